//! A view as one pass sees it: a living cluster, the members that are its own, and the list that can be believed.

use api::conditions::{self, NewCondition};
use api::{EtcdCluster, EtcdClusterStatus, EtcdMemberStatus, ObservedSpec};
use etcd::Membership;
use jiff::Timestamp;

use super::{ClusterView, MemberView};
use crate::identity::{self, Conflict, Identity};
use crate::{member_status, split};

/// A member with the status it should show.
#[derive(Clone, Debug)]
pub(crate) struct Assessed<'a> {
    pub view: &'a MemberView,
    pub status: EtcdMemberStatus,
}

impl std::ops::Deref for Assessed<'_> {
    type Target = MemberView;

    fn deref(&self) -> &MemberView {
        self.view
    }
}

impl Assessed<'_> {
    pub fn is_ready(&self) -> bool {
        conditions::is_true(&self.status.conditions, conditions::READY)
    }
}

/// The view as one pass sees it: a living cluster and the members that are its own.
pub(crate) struct Scene<'a> {
    pub view: &'a ClusterView,
    pub cluster: &'a EtcdCluster,
    pub members: Vec<Assessed<'a>>,
    pub identity: Identity,
    /// Why everything is held.
    pub conflict: Option<Conflict>,
    /// Why no list of members can be believed now (T28).
    pub split: Option<String>,
    /// The generation of the spec that conditions are judged against: not the newest one before it is taken up.
    generation: Option<i64>,
    pub now: Timestamp,
}

impl<'a> Scene<'a> {
    pub fn new(view: &'a ClusterView, cluster: &'a EtcdCluster, now: Timestamp) -> Self {
        let family = identity::family(view, cluster);
        let split = split::find(view, &family.members);
        let list = view.etcd.membership.as_ref().map(|seen| &seen.fact).filter(|_| split.is_none());
        let assess = |m| Assessed { view: m, status: member_status::assess(list, cluster, m, now) };
        let mut members: Vec<_> = family.members.into_iter().map(assess).collect();
        members.sort_by(|a, b| age(a).cmp(&age(b)));
        let (identity, conflict) = (family.identity, family.conflict);
        Self { view, cluster, members, identity, conflict, split, generation: judged(cluster), now }
    }

    /// What the cluster is being made into; before the first pass has latched it, what the user asks for.
    pub fn target(&self) -> ObservedSpec {
        let latched = self.cluster.status.as_ref().and_then(|s| s.observed.clone());
        latched.unwrap_or_else(|| ObservedSpec::from_spec(&self.cluster.spec))
    }

    pub fn cluster_id(&self) -> Option<String> {
        self.cluster.status.as_ref().and_then(|s| s.cluster_id.clone())
    }

    /// Whether there is an etcd cluster behind this object. A member that is on record as having joined proves it as well
    /// as the cluster's own record, which can get lost (T26). So does any member but the seed: others are made only after
    /// a cluster has formed, and all records are lost where objects are brought back from files.
    pub fn is_formed(&self) -> bool {
        self.cluster_id().is_some()
            || self.identity.cluster_id.is_some()
            || self.members.iter().any(|m| {
                let spec = &m.member.spec;
                m.has_joined()
                    || m.is_settled_seed()
                    || spec.dormant
                    || !spec.bootstrap
                    || m.has_been_paused()
            })
    }

    /// Whether a member has certainly never had data: it is not on record as having joined, and etcd, which has to answer
    /// once there is one, does not know it by a name it can only have from a start (T7; a status can get lost, T26).
    pub fn is_newcomer(&self, member: &MemberView) -> bool {
        let unheard = |list: &Membership| member.row_in(list).is_none_or(|row| row.name.is_empty());
        !member.has_joined() && (!self.is_formed() || self.membership().is_some_and(unheard))
    }

    /// Whether a member is of this cluster beyond doubt: it was made for this object, or its own etcd has named the cluster.
    /// Those that were taken up are not removed before (T25).
    pub fn is_confirmed(&self, member: &MemberView) -> bool {
        let born_here = identity::is_made_for(self.cluster, member);
        let named = member.member.status.as_ref().and_then(|s| s.cluster_id.clone());
        born_here || (named.is_some() && named == self.cluster_id()) || !member.has_joined()
    }

    /// Members that name this cluster, but are not its own.
    pub fn outsiders(&self) -> impl Iterator<Item = &'a MemberView> {
        let ours =
            |m: &&MemberView| self.members.iter().any(|own| own.uid() == m.uid() && own.name() == m.name());
        self.view.members.iter().filter(move |m| !ours(m))
    }

    /// Whether only the object of a member is left: it was let go, and etcd does not list it.
    pub fn is_out(&self, member: &MemberView) -> bool {
        member.is_let_go() && self.membership().is_some_and(|list| member.row_in(list).is_none())
    }

    /// Members that are meant to run: not leaving, not paused.
    pub fn running(&self) -> impl Iterator<Item = &Assessed<'a>> {
        self.members.iter().filter(|m| !m.is_deleting() && !m.member.spec.dormant)
    }

    /// The list that decisions rest on; none if the members contradict it.
    pub fn membership(&self) -> Option<&'a Membership> {
        let seen = self.view.etcd.membership.as_ref();
        seen.map(|seen| &seen.fact).filter(|_| self.split.is_none())
    }

    /// The member that a row of etcd's list is about.
    pub fn member_of(&self, row: &etcd::Member) -> Option<&Assessed<'a>> {
        self.members.iter().find(|m| m.stands_for(row))
    }

    /// Sets a condition of the cluster, stamped with the generation of the target it was judged against.
    pub fn set_condition(
        &self,
        status: &mut EtcdClusterStatus,
        type_: &'static str,
        on: bool,
        reason: &'static str,
        message: &str,
    ) {
        let condition = NewCondition::new(type_, on, reason, message, self.generation);
        conditions::set_condition(&mut status.conditions, condition, self.now);
    }

    /// The same, for what is said about the spec as it is now.
    pub fn set_condition_of_newest_spec(
        &self,
        status: &mut EtcdClusterStatus,
        type_: &'static str,
        on: bool,
        reason: &'static str,
        message: &str,
    ) {
        let condition = NewCondition::new(type_, on, reason, message, self.cluster.metadata.generation);
        conditions::set_condition(&mut status.conditions, condition, self.now);
    }

    /// A name no member has, `<cluster>-<5 characters>`, from the view's entropy.
    pub fn fresh_member_name(&self) -> String {
        self.member_name(self.view.entropy)
    }

    /// The name of the seed, which follows from the UID of the cluster.
    pub fn seed_name(&self) -> String {
        // FNV-1a: any function will do, as long as it is always the same.
        let uid = self.cluster.metadata.uid.as_deref().unwrap_or_default();
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.member_name(uid.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    fn member_name(&self, mut state: u64) -> String {
        // The letters Kubernetes itself uses for generated names: no vowels, no look-alikes.
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        loop {
            let suffix: String = (0..5)
                .map(|_| {
                    // splitmix64: every seed gives a full-period sequence, so the loop ends.
                    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let mut z = state;
                    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                    char::from(ALPHABET[((z ^ (z >> 31)) % ALPHABET.len() as u64) as usize])
                })
                .collect();
            let name = format!("{}-{suffix}", self.view.name);
            if self.view.members.iter().all(|m| m.name() != name) {
                return name;
            }
        }
    }
}

/// The generation that the target was taken from. It is not stored as such: as long as the spec is another one, what was
/// said before stands.
fn judged(cluster: &EtcdCluster) -> Option<i64> {
    let status = cluster.status.as_ref();
    let is_current =
        status.and_then(|s| s.observed.as_ref()).is_none_or(|target| target.matches(&cluster.spec));
    let before = status.and_then(|s| s.conditions.iter().filter_map(|c| c.observed_generation).max());
    if is_current { cluster.metadata.generation } else { before.or(cluster.metadata.generation) }
}

/// Oldest first, then by name: the order members are listed and numbered in.
fn age(m: &MemberView) -> (Option<Timestamp>, &str) {
    (m.member.metadata.creation_timestamp.as_ref().map(|t| t.0), m.name())
}
