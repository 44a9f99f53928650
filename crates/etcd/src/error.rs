//! Why a call to etcd failed, sorted by what the caller can do about it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A failed call. The messages are stable: the same cause gives the same text, so a repeated failure does not rewrite
/// a status (H18).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// Nobody answers at the member's address.
    #[error("{member} can not be reached")]
    Unreachable { member: String },

    /// No answer in time. A change may still have been made.
    #[error("{member} did not answer within {} ms", limit.as_millis())]
    Timeout { member: String, limit: Duration },

    /// Whoever has the member's address now belongs to another cluster.
    #[error("another cluster's etcd answers at the address of {member}")]
    Stranger { member: String },

    /// The member is not in the cluster (any more).
    #[error("etcd does not know that member")]
    MemberNotFound,

    /// The learner has not caught up; ask again.
    #[error("the learner has not caught up with the leader yet")]
    LearnerNotReady,

    /// etcd declines for now, to keep its quorum safe: a voter is down or too fresh.
    #[error("etcd holds membership changes back until its voters have been connected for a while")]
    Unhealthy,

    /// As many learners as etcd's `--max-learners` allows.
    #[error("etcd already has as many learners as it allows")]
    TooManyLearners,

    /// etcd wants to know who is asking, and we have nothing to show.
    #[error("{member} asks for credentials")]
    AuthRequired { member: String },

    /// Any other answer that is not a success.
    #[error("{member} answered: {message}")]
    Refused { member: String, message: String },
}

#[cfg(feature = "client")]
impl Error {
    pub(crate) fn from_status(member: &str, status: &tonic::Status) -> Self {
        let text = status.message();
        // etcd has one gRPC code for many causes, so the text decides; it is part of etcd's API.
        if text.contains("member not found") {
            Self::MemberNotFound
        } else if text.contains("in sync with leader") {
            Self::LearnerNotReady
        } else if text.contains("unhealthy cluster") {
            Self::Unhealthy
        } else if text.contains("too many learner") {
            Self::TooManyLearners
        } else if ["user name is empty", "permission denied", "insufficient credentials"]
            .iter()
            .any(|t| text.contains(t))
        {
            Self::AuthRequired { member: member.to_owned() }
        } else if text.starts_with("etcdserver:") || text.starts_with("etcdserver/") {
            Self::Refused { member: member.to_owned(), message: text.to_owned() }
        } else if matches!(
            status.code(),
            tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Internal
        ) {
            // Transport errors carry addresses and OS texts that differ from try to try.
            Self::Unreachable { member: member.to_owned() }
        } else {
            Self::Refused { member: member.to_owned(), message: text.to_owned() }
        }
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use super::*;
    use tonic::{Code, Status};

    #[test]
    fn etcd_texts_become_causes() {
        let of = |code, text: &str| Error::from_status("a", &Status::new(code, text));
        assert_eq!(of(Code::NotFound, "etcdserver: member not found"), Error::MemberNotFound);
        assert_eq!(
            of(
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member which is in sync with leader"
            ),
            Error::LearnerNotReady
        );
        assert_eq!(of(Code::Unavailable, "etcdserver: unhealthy cluster"), Error::Unhealthy);
        assert_eq!(
            of(Code::FailedPrecondition, "etcdserver: too many learner members in cluster"),
            Error::TooManyLearners
        );
        assert_eq!(
            of(Code::Unavailable, "etcdserver: no leader"),
            Error::Refused { member: "a".into(), message: "etcdserver: no leader".into() }
        );
    }

    #[test]
    fn h18_transport_errors_read_the_same_each_time() {
        let one = Error::from_status("a", &Status::new(Code::Unavailable, "tcp connect error: port 40123"));
        let two = Error::from_status("a", &Status::new(Code::Unavailable, "tcp connect error: port 40999"));
        assert_eq!(one.to_string(), two.to_string());
    }
}
