//! What the world remembers for the invariants: who deleted what, which cluster is alive, when a quorum was last there,
//! and when each member was last seen serving.

use std::collections::{BTreeMap, BTreeSet};

use api::{ids, names};
use serde_json::Value;

use super::{NAMESPACE, World, name_of, uid_of};
use crate::Millis;
use crate::apiserver::{Change, Kind};
use crate::etcd::DiskId;
use crate::invariants::Violation;

/// An EtcdCluster that is or was.
#[derive(Clone, Debug, Default)]
pub struct ClusterFact {
    pub name: String,
    pub exists: bool,
    pub deleting: bool,
    /// `status.clusterID`, as etcd's number.
    pub id: Option<u64>,
    /// Since when it is there.
    pub id_since: Option<Millis>,
}

impl ClusterFact {
    pub fn lives(&self) -> bool {
        self.exists && !self.deleting
    }
}

/// An EtcdMember that is or was.
#[derive(Clone, Debug, Default)]
pub struct MemberFact {
    pub name: String,
    /// UID of the controlling cluster.
    pub owner: String,
    pub exists: bool,
    pub deleting: bool,
    /// `status.memberID`, as etcd's number.
    pub id: Option<u64>,
    pub user_deleted: bool,
    pub stripped: bool,
    pub operator_deleted: bool,
}

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub clusters: BTreeMap<String, ClusterFact>,
    pub members: BTreeMap<String, MemberFact>,
    user_volumes: BTreeSet<String>,
    pub unlabelled: Vec<(Kind, String)>,
    pub filled: Vec<DiskId>,
    /// Names of clusters that were deleted with their dependents left behind.
    pub orphaned: BTreeSet<String>,
    /// Clusters with a Pod that a user said was dead while it ran where nobody could see it.
    pub denied: BTreeSet<String>,
    pub acknowledged: u64,
    pub unanswered: u64,
    /// Per etcd cluster: when a quorum last served.
    pub quorum_at: BTreeMap<u64, Millis>,
    /// Per etcd cluster and member: when it last served.
    pub served_at: BTreeMap<(u64, u64), Millis>,
    /// Since when one operator has led without being disturbed.
    pub undisturbed_since: Option<Millis>,
    /// Until when something lacked the label by which the operator sees it.
    pub hidden_until: Millis,
    pub audited_at: Millis,
    violation: Option<Violation>,
}

impl Ledger {
    /// The first one counts: what follows is often its consequence.
    pub fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(super) fn user_touched(&mut self, member: &str, strip: bool) {
        let fact = self.members.entry(member.to_owned()).or_default();
        fact.user_deleted = true;
        fact.stripped |= strip;
    }

    pub(super) fn user_deleted_volume(&mut self, claim: &str) {
        self.user_volumes.insert(claim.to_owned());
    }

    pub(super) fn member_changed(&mut self, change: Change, object: &Value) {
        let fact = self.members.entry(uid_of(object)).or_default();
        fact.name = name_of(object);
        fact.exists = change != Change::Deleted;
        fact.deleting = object["metadata"]["deletionTimestamp"].is_string();
        fact.id = object["status"]["memberID"].as_str().and_then(ids::parse).or(fact.id);
        let owners = object["metadata"]["ownerReferences"].as_array();
        let owner = owners.and_then(|o| o.iter().find(|o| o["controller"] == Value::Bool(true)));
        fact.owner = owner.map(|o| o["uid"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
    }

    pub(super) fn cluster_changed(&mut self, now: Millis, change: Change, object: &Value) {
        let fact = self.clusters.entry(uid_of(object)).or_default();
        fact.name = name_of(object);
        fact.exists = change != Change::Deleted;
        fact.deleting = object["metadata"]["deletionTimestamp"].is_string();
        let id = object["status"]["clusterID"].as_str().and_then(ids::parse);
        if fact.id.is_some() && id != fact.id {
            let what = format!("clusterID of {} was {:x?} and becomes {id:x?}", fact.name, fact.id);
            self.violation.get_or_insert(Violation::new(3, what));
        } else {
            fact.id = id;
            fact.id_since = fact.id_since.or(id.map(|_| now));
        }
    }

    /// The living cluster object of this UID.
    pub fn living(&self, uid: &str) -> Option<&ClusterFact> {
        self.clusters.get(uid).filter(|c| c.lives())
    }
}

impl World {
    /// The etcd cluster that belongs to a cluster object: the one it has latched, or else the last one formed for it.
    pub fn etcd_cluster(&self, uid: &str) -> Option<u64> {
        let fact = self.ledger.clusters.get(uid)?;
        fact.id.or_else(|| {
            let token = names::cluster_token(NAMESPACE, &fact.name, uid);
            self.etcds.formations().iter().rev().find(|f| f.token == token).map(|f| f.cluster)
        })
    }

    /// Living cluster objects with their etcd clusters.
    pub fn living_clusters(&self) -> Vec<(String, u64)> {
        let living = self.ledger.clusters.iter().filter(|(_, fact)| fact.lives());
        living.filter_map(|(uid, _)| Some((uid.clone(), self.etcd_cluster(uid)?))).collect()
    }

    /// Rule 4, at the moment a claim is gone: if that cost a voter its data, somebody must answer for it.
    pub(super) fn destroy_claim(&mut self, disk: &DiskId, owner: &str) {
        let clusters = self.living_clusters();
        let before: Vec<usize> = clusters.iter().map(|(_, id)| self.etcds.volumes(*id).surviving).collect();
        self.lose_disk(disk, "its claim is gone");
        self.etcds.forget_disk(disk);
        let by_user = self.ledger.user_volumes.contains(&disk.0);
        let member = self.ledger.members.get(owner);
        let stripped = member.is_some_and(|m| m.stripped);
        let name = member.map(|m| m.name.clone()).unwrap_or_default();
        for ((uid, id), before) in clusters.iter().zip(before) {
            // Before anybody knew that a cluster had formed, a seed may be taken back.
            let known = self.ledger.clusters.get(uid).is_some_and(|c| c.id.is_some());
            if self.etcds.volumes(*id).surviving < before && known && !by_user && !stripped {
                let what = format!("the volume of {name} was deleted while etcd {id:x} still counts on it");
                self.ledger.violate(Violation::new(4, what));
            }
        }
    }
}
