//! Everything known about one cluster, as plain data, and the questions the other files ask of it.

mod member;
mod scene;

use std::collections::BTreeMap;

use api::{EtcdCluster, EtcdMember, ids, labels};
use etcd::{Membership, Status};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::{Deserialize, Serialize};

use crate::{Kind, Sightings, identity};

pub(crate) use scene::{Assessed, Scene};

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
