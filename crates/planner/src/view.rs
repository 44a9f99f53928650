//! Everything known about one cluster, as plain data, and the questions the other files ask of it.

use std::collections::BTreeMap;

use api::conditions::{self, NewCondition};
use api::{EtcdCluster, EtcdClusterStatus, EtcdMember, EtcdMemberStatus, ObservedSpec, ids, labels, names};
use etcd::{Membership, Status};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::identity::{self, Conflict, Identity};
use crate::{Kind, Sightings, command, member_status, split};

/// A Pod that ends takes about its grace period; beyond that it is asked whether it still serves.
const LINGERS: SignedDuration = SignedDuration::from_secs(10);

/// One cluster and all that belongs to it, read at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClusterView {
    pub namespace: String,
    pub name: String,
    /// Absent once it is deleted; what it left behind is still in the view.
    pub cluster: Option<EtcdCluster>,
    /// Every EtcdMember with this cluster's label, whoever owns it.
    pub members: Vec<MemberView>,
    pub headless_service: Option<Service>,
    pub client_service: Option<Service>,
    pub budget: Option<PodDisruptionBudget>,
    /// Pods and claims with this cluster's label that no EtcdMember stands for.
    pub strays: Vec<Stray>,
    /// What the API server refused when it was last tried, by the object it is about, in a sentence.
    pub refused: BTreeMap<String, String>,
    pub etcd: EtcdView,
    pub settings: Settings,
    /// Randomness for new names, drawn by whoever made the view, so that the plan itself stays a function.
    pub entropy: u64,
}

/// Something that may hold data of a cluster, and belongs to no EtcdMember.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    /// A Pod or a claim.
    pub kind: Kind,
    pub name: String,
    /// It is on its way out.
    pub leaving: bool,
}

/// One EtcdMember with what it owns and what its etcd process says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemberView {
    pub member: EtcdMember,
    pub pod: Option<Pod>,
    pub volume: Option<PersistentVolumeClaim>,
    /// The answer to Status in this pass; absent when there was nobody to ask.
    pub etcd: Option<Result<Status, etcd::Error>>,
    /// Since when the operator itself has seen what it sees of the member.
    pub seen: Sightings,
    /// Its volume can be used on certain nodes only, and none of them is there and takes Pods.
    pub stranded: bool,
}

/// What etcd says about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EtcdView {
    /// The linearizable member list read in this pass: its presence proves a quorum.
    pub membership: Option<Seen<Membership>>,
    /// Why there is no list, if somebody was asked.
    pub failure: Option<etcd::Error>,
    /// How long ago a quorum last confirmed itself; nothing in this pass. Not a moment, because clocks are set.
    pub confirmed_ago: Option<SignedDuration>,
    /// For how long more than one member has said that it leads; an election is over in a moment.
    pub disputed_for: Option<SignedDuration>,
}

/// A fact and the member that stated it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen<T> {
    pub fact: T,
    pub from: String,
}

/// What the operator was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Repository of the etcd image, without a tag.
    pub etcd_image_repository: String,
    /// How long a member may be stuck on a node that is gone before it is replaced; never, if absent.
    pub lost_member_timeout: Option<SignedDuration>,
    /// What stands after `svc.` in the full names of Services. Absent from views that were recorded before it was known.
    #[serde(default = "usual_domain")]
    pub cluster_domain: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            etcd_image_repository: "quay.io/coreos/etcd".to_owned(),
            lost_member_timeout: Some(SignedDuration::from_mins(5)),
            cluster_domain: usual_domain(),
        }
    }
}

fn usual_domain() -> String {
    "cluster.local".to_owned()
}

impl ClusterView {
    /// The cluster, unless it is gone or going.
    pub fn living_cluster(&self) -> Option<&EtcdCluster> {
        self.cluster.as_ref().filter(|c| c.metadata.deletion_timestamp.is_none())
    }

    /// Whether there is a cluster to work on that asks for nothing this version does not do.
    pub fn is_supported(&self) -> bool {
        self.living_cluster().is_some_and(|c| {
            let formed = c.status.as_ref().is_some_and(|s| s.cluster_id.is_some());
            let past = |field| field == crate::support::RESTORE && (formed || !self.members.is_empty());
            crate::support::missing(&c.spec).is_none_or(past)
        })
    }

    /// Who can be told to change the membership: whoever gave the list, then the other voters that follow the same leader.
    /// Each of them judges by its own connections whether a change is safe, and one that has lost count of them can refuse
    /// for as long as it runs, while the others know better.
    pub fn speakers(&self) -> Vec<&MemberView> {
        let Some(seen) = &self.etcd.membership else { return vec![] };
        let Some(first) = self.members.iter().find(|m| m.name() == seen.from) else { return vec![] };
        let leader = first.serving().map(|s| s.leader);
        let agrees = |m: &&MemberView| {
            let votes = m.row_in(&seen.fact).is_some_and(|row| !row.is_learner);
            let follows = m.serving().is_some_and(|s| Some(s.leader) == leader);
            m.name() != seen.from && votes && follows
        };
        // Whoever is to leave is asked last.
        let mut others: Vec<_> = self.members.iter().filter(agrees).collect();
        others.sort_by_key(|m| m.is_deleting());
        std::iter::once(first).chain(others).collect()
    }

    /// Whether the API server refuses something about a member.
    pub(crate) fn is_refused(&self, member: &str) -> bool {
        self.refused.keys().any(|object| object.ends_with(member))
    }

    /// The etcd cluster that was formed, once it is on record, with the cluster or with its members.
    pub fn etcd_cluster(&self) -> Option<u64> {
        let cluster = self.cluster.as_ref()?;
        let recorded = cluster.status.as_ref().and_then(|s| s.cluster_id.clone());
        let id = recorded.or_else(|| {
            let family = identity::family(self, cluster);
            family.identity.cluster_id.filter(|_| family.conflict.is_none())
        });
        id.as_deref().and_then(ids::parse)
    }
}

/// The UID of the controlling owner.
pub fn controller_uid(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

/// The owner reference of what `owner` controls. Foreground deletion waits for it, as with the Go operator.
pub(crate) fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> Option<Vec<OwnerReference>> {
    let reference = owner.controller_owner_ref(&())?;
    Some(vec![OwnerReference { block_owner_deletion: Some(true), ..reference }])
}

/// Whose an object is that has the name and the label of one of ours.
pub(crate) enum Ownership {
    Ours,
    /// Nobody's, and made by an operator like this one.
    Free,
    /// Somebody else's: who they are.
    Foreign(String),
}

pub(crate) fn ownership(scene: &Scene<'_>, metadata: &ObjectMeta) -> Ownership {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let made_by_us = metadata
        .labels
        .as_ref()
        .is_some_and(|l| l.get(labels::MANAGED_BY).is_some_and(|by| by == labels::OPERATOR));
    match owners.iter().find(|o| o.controller == Some(true)) {
        Some(owner) if Some(owner.uid.as_str()) == scene.cluster.metadata.uid.as_deref() => Ownership::Ours,
        Some(owner) => Ownership::Foreign(format!("{} {} of UID {}", owner.kind, owner.name, owner.uid)),
        None if made_by_us => Ownership::Free,
        None => Ownership::Foreign("nobody".to_owned()),
    }
}

/// The owners that an object has, and the cluster as the one that controls it.
pub(crate) fn owners_with(metadata: &ObjectMeta, scene: &Scene<'_>) -> Vec<OwnerReference> {
    let present = metadata.owner_references.clone().unwrap_or_default();
    present.into_iter().chain(controlled_by(scene.cluster).unwrap_or_default()).collect()
}

impl MemberView {
    pub fn name(&self) -> &str {
        self.member.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.member.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The Service whose DNS names the member uses; legacy members bring their own (H41).
    pub fn service_name(&self) -> String {
        self.member
            .annotations()
            .get(labels::annotation::HEADLESS_SERVICE_NAME)
            .unwrap_or(&self.member.spec.cluster_name)
            .clone()
    }

    pub fn namespace(&self) -> &str {
        self.member.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn peer_url(&self) -> String {
        names::peer_url(self.member.spec.peer_tls(), self.name(), &self.service_name(), self.namespace())
    }

    /// Whether a row of etcd's list is about this member. By URL, because a member that has not started has no name there
    /// (H7); by id and by name as well, because a row that is overlooked would be taken for a member that is out.
    pub(crate) fn stands_for(&self, row: &etcd::Member) -> bool {
        let id = self.member.status.as_ref().and_then(|s| s.member_id.as_deref());
        row.peer_urls.contains(&self.peer_url())
            || id.is_some_and(|id| id == ids::format(row.id))
            || row.name == self.name()
    }

    /// This member's row in etcd's list.
    pub fn row_in<'a>(&self, list: &'a Membership) -> Option<&'a etcd::Member> {
        list.members.iter().find(|row| self.stands_for(row))
    }

    pub fn is_deleting(&self) -> bool {
        self.member.metadata.deletion_timestamp.is_some()
    }

    /// Whether the operator's own finalizer keeps it until etcd has let it go.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.member.metadata.finalizers.iter().flatten().any(|f| f == labels::FINALIZER)
    }

    /// Nobody here keeps it any more; somebody else's finalizer may.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_deleting() && !self.has_finalizer()
    }

    /// Created, but not yet told whom to join: it gets no volume and no Pod.
    pub fn is_pending(&self) -> bool {
        self.member.spec.is_pending()
    }

    /// An object and nothing else: its time to join has never come. It can wait beside members that sleep.
    pub fn is_unused(&self) -> bool {
        self.is_pending() && !self.has_joined() && self.pod.is_none() && self.volume.is_none()
    }

    /// Whether its etcd has been part of the cluster, and so has data that must not be lost or forgotten (T7).
    pub fn has_joined(&self) -> bool {
        self.member.status.as_ref().is_some_and(|s| s.member_id.is_some())
    }

    /// A seed whose Pod was told that its cluster has formed. Kept beside the record, so that it outlives it (T26).
    pub(crate) fn is_settled_seed(&self) -> bool {
        let settled = |pod: &Pod| self.owns(&pod.metadata) && command::is_settled(pod);
        self.member.spec.bootstrap && self.pod.as_ref().is_some_and(settled)
    }

    /// Whether it has been put to sleep with its data. Kept beside the record, so that it outlives it (T26).
    fn has_been_paused(&self) -> bool {
        self.member.annotations().contains_key(labels::annotation::HAS_DATA)
    }

    /// A seed that begins anew whenever it has lost its data, under the ids it had before (T28).
    pub(crate) fn may_turn_impostor(&self) -> bool {
        self.member.spec.bootstrap && self.pod.as_ref().is_some_and(command::is_fixed_to_form)
    }

    /// Whether it is on record that the member is being taken out of etcd.
    pub(crate) fn is_told_to_leave(&self) -> bool {
        self.member.status.as_ref().is_some_and(|s| s.role.as_deref() == Some(member_status::LEAVING))
    }

    pub fn is_memory(&self) -> bool {
        self.member.spec.storage.medium.is_memory()
    }

    /// The member's own word in this pass, if it gave one.
    pub fn serving(&self) -> Option<&Status> {
        self.etcd.as_ref().and_then(|answer| answer.as_ref().ok())
    }

    /// The Pod, if it is this member's and not on its way out.
    pub fn living_pod(&self) -> Option<&Pod> {
        self.pod.as_ref().filter(|p| p.metadata.deletion_timestamp.is_none() && self.owns(&p.metadata))
    }

    /// The owners that an object of the member's own should have, if it has none that controls it: somebody has taken the
    /// owner off, or brought it back from a backup without. What a user orphans on purpose by deleting the member stays so.
    pub(crate) fn disowned(&self, metadata: &ObjectMeta) -> Option<Vec<OwnerReference>> {
        let leaves = self.is_deleting() || metadata.deletion_timestamp.is_some();
        if controller_uid(metadata).is_some() || leaves || !self.owns(metadata) {
            return None;
        }
        let present = metadata.owner_references.clone().unwrap_or_default();
        Some(present.into_iter().chain(controlled_by(&self.member)?).collect())
    }

    /// A Pod that should have ended long ago: whether it really has is asked, because one that answers serves.
    pub fn lingering_pod(&self) -> Option<&Pod> {
        let lingers = self.ends_for_longer_than(LINGERS);
        self.pod.as_ref().filter(|p| lingers && self.owns(&p.metadata))
    }

    /// Whether an object of the member's name is really its own (H14, H15): by its owner, or, if somebody has taken that
    /// off, because the member has this very object on record, or the Pod says for whom it was made. A claim can be brought
    /// back from a backup with all that it says; so it is taken at its word only while the member's own Pod runs on it.
    pub(crate) fn owns(&self, metadata: &ObjectMeta) -> bool {
        let otherwise =
            || self.has_on_record(metadata) || self.mounts(metadata) || self.is_made_for(metadata);
        self.controls(metadata).unwrap_or_else(otherwise)
    }

    /// Whether the owner that an object has is this member; `None` for one that nobody controls.
    fn controls(&self, metadata: &ObjectMeta) -> Option<bool> {
        controller_uid(metadata).map(|owner| !self.uid().is_empty() && owner == self.uid())
    }

    /// Whether its own Pod runs on this claim, of which the member has nothing on record: it can not be another one as long
    /// as that Pod runs.
    fn mounts(&self, metadata: &ObjectMeta) -> bool {
        let own = |pod: &Pod| self.controls(&pod.metadata).unwrap_or_else(|| self.is_made_for(&pod.metadata));
        let runs = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        let recorded = self.member.status.as_ref().is_some_and(|s| s.pvc_uid.is_some());
        metadata.name.as_deref() == Some(&names::pvc(self.name()))
            && !recorded
            && self.pod.as_ref().is_some_and(|pod| own(pod) && runs(pod))
    }

    fn is_made_for(&self, pod: &ObjectMeta) -> bool {
        let maker = pod.annotations.as_ref().and_then(|a| a.get(labels::annotation::MEMBER_UID));
        pod.name.as_deref() == Some(self.name())
            && maker.is_some_and(|uid| !uid.is_empty() && uid == self.uid())
    }

    fn has_on_record(&self, metadata: &ObjectMeta) -> bool {
        let recorded = self.member.status.iter().flat_map(|s| [&s.pod_uid, &s.pvc_uid]).flatten();
        recorded.into_iter().any(|uid| metadata.uid.as_ref() == Some(uid))
    }
}

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

#[cfg(test)]
mod tests {
    use crate::fixtures::World;
    use api::{EtcdCluster, conditions};

    #[test]
    fn a_change_that_one_declines_is_asked_of_those_that_follow_the_same_leader() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(5));
        let names =
            |world: &World| world.view.speakers().iter().map(|m| m.name().to_owned()).collect::<Vec<_>>();
        let all = names(&world);
        assert_eq!(all.len(), 5);
        assert_eq!(
            all.first(),
            world.view.etcd.membership.as_ref().map(|seen| &seen.from),
            "who gave the list"
        );

        let others: Vec<usize> = (0..5).filter(|i| world.view.members[*i].name() != all[0]).collect();
        let (silent, split, leaving) = (others[0], others[1], others[2]);
        world.member(silent).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        let Some(Ok(status)) = &mut world.member(split).etcd else { panic!() };
        status.leader = 0xbad;
        world.member(leaving).member.metadata.deletion_timestamp =
            Some(conditions::wire_time(crate::fixtures::now()));
        let [next, last] = [others[3], leaving].map(|i| world.view.members[i].name().to_owned());
        assert_eq!(names(&world), [all[0].clone(), next, last]);
    }
}
