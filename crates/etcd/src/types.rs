//! etcd's answers as plain data.

use serde::{Deserialize, Serialize};

use crate::Error;

/// Where one member is reached: dialled by address, addressed by name. The name is what certificates carry; the
/// address spares a DNS round trip and the negative DNS cache of a Pod that has just started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Changes when the process behind the address does (the Pod UID): a new one gets a new connection.
    pub identity: String,
    /// `ip:port` to dial.
    pub address: String,
    /// `host:port` for the request's authority.
    pub authority: String,
    /// The cluster that is meant, once it is known. Addresses are given out again: whoever answers may be somebody else.
    pub cluster: Option<u64>,
}

impl Endpoint {
    /// The member's short name, for messages.
    pub fn member(&self) -> &str {
        self.authority.split(['.', ':']).next().unwrap_or(&self.authority)
    }

    /// An answer is believed if it comes from the cluster that is meant; 0 is one that does not say.
    pub fn believe(&self, answering: u64) -> Result<(), Error> {
        match self.cluster {
            Some(meant) if answering != 0 && answering != meant => {
                Err(Error::Stranger { member: self.member().to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// One row of etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub id: u64,
    /// Empty until the member has started for the first time.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub is_learner: bool,
}

/// A linearizable member list and who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub cluster_id: u64,
    pub members: Vec<Member>,
}

impl Membership {
    /// The row with this peer URL. Names are empty before the first start.
    pub fn by_peer_url(&self, url: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.peer_urls.iter().any(|u| u == url))
    }

    /// The rows that count for quorum.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| !m.is_learner)
    }

    /// The rows that only replicate.
    pub fn learners(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.is_learner)
    }
}

/// How many of so many voters have to agree: more than half.
pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// What one member says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub cluster_id: u64,
    pub member_id: u64,
    pub version: String,
    /// The leader this member follows; 0 when it knows none.
    pub leader: u64,
    pub is_learner: bool,
    pub db_size: i64,
    /// The term of raft it is in. A term has one leader: two of them in one term are two clusters.
    pub raft_term: u64,
    pub raft_applied_index: u64,
    /// Alarms and other complaints, such as `NOSPACE`.
    pub errors: Vec<String>,
}

/// From the wire to plain data.
#[cfg(feature = "client")]
mod wire {
    use super::{Member, Membership, Status};
    use crate::pb;

    impl From<pb::Member> for Member {
        fn from(m: pb::Member) -> Self {
            Self { id: m.id, name: m.name, peer_urls: m.peer_ur_ls, is_learner: m.is_learner }
        }
    }

    impl Membership {
        pub(crate) fn from_pb(header: Option<&pb::ResponseHeader>, members: Vec<pb::Member>) -> Self {
            Self {
                cluster_id: header.map_or(0, |h| h.cluster_id),
                members: members.into_iter().map(Member::from).collect(),
            }
        }
    }

    impl From<pb::StatusResponse> for Status {
        fn from(s: pb::StatusResponse) -> Self {
            let header = s.header.unwrap_or_default();
            Self {
                cluster_id: header.cluster_id,
                member_id: header.member_id,
                version: s.version,
                leader: s.leader,
                is_learner: s.is_learner,
                db_size: s.db_size,
                raft_term: s.raft_term,
                raft_applied_index: s.raft_applied_index,
                errors: s.errors,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quorum;

    #[test]
    fn two_quorums_always_have_a_voter_in_common_and_are_no_larger_than_that_takes() {
        for voters in 1..32 {
            assert!(2 * quorum(voters) > voters);
            assert!(2 * (quorum(voters) - 1) <= voters);
        }
    }
}
