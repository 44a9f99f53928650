//! What the world remembers for the invariants: who deleted what, which cluster is alive, when a quorum was last there,
//! and when each member was last seen serving.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use api::{ids, labels, names};
use planner::pass::API_LIMIT;
use serde_json::Value;

use super::{World, name_of, namespace, uid_of};
use crate::Millis;
use crate::apiserver::{Change, Kind};
use crate::etcd::DiskId;
use crate::invariants::Violation;

/// An EtcdCluster that is or was.
#[derive(Clone, Debug, Default)]
pub struct ClusterFact {
    pub name: String,
    /// When it was made.
    since: Option<Millis>,
    pub exists: bool,
    pub deleting: bool,
    /// `status.clusterID`, as etcd's number.
    pub id: Option<u64>,
    /// Since when it is there.
    pub id_since: Option<Millis>,
    /// A user has emptied its status; the id has to come back.
    pub status_lost: bool,
    /// Tokens of the clusters that were left behind under this name when it was made: their data are its data.
    pub inherits: Vec<String>,
}

impl ClusterFact {
    pub fn lives(&self) -> bool {
        self.exists && !self.deleting
    }

    /// The tokens under which an etcd cluster of this object can have been formed. What was left behind comes first.
    pub fn tokens(&self, uid: &str) -> Vec<String> {
        let own = names::cluster_token(namespace(&self.name), &self.name, uid);
        self.inherits.iter().cloned().chain([own]).collect()
    }
}

/// An etcd cluster whose data have to be kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// UID of the cluster object; empty when it was left behind and nobody has taken it up yet.
    pub uid: String,
    pub name: String,
    pub id: u64,
}

/// An EtcdMember that is or was.
#[derive(Clone, Debug, Default)]
pub struct MemberFact {
    pub name: String,
    /// UID of the controlling cluster.
    pub owner: String,
    /// Whether it was made for that cluster, by its token, and not taken up by it.
    born_there: bool,
    pub exists: bool,
    pub deleting: bool,
    /// `status.memberID`, as etcd's number.
    pub id: Option<u64>,
    pub user_deleted: bool,
    /// When they did, at first.
    deleted_at: Option<Millis>,
    /// It was let go when no cluster of its name was there to take it out of etcd, whoever else may hold it since.
    pub unattended: bool,
    pub stripped: bool,
    pub operator_deleted: bool,
}

/// What has happened so far, as far as a rule asks for it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub clusters: BTreeMap<String, ClusterFact>,
    pub members: BTreeMap<String, MemberFact>,
    user_volumes: BTreeSet<String>,
    pub unlabelled: Vec<(Kind, String)>,
    pub filled: Vec<DiskId>,
    /// Names of clusters that were deleted with their dependents left behind and not made again, with their tokens.
    pub orphaned: BTreeMap<String, Vec<String>>,
    /// Pods that start with the same flags every time, as a predecessor made them.
    pub fixed_pods: BTreeSet<String>,
    /// Names of clusters that the operator has made a Pod for in its own way.
    pub taken_over: BTreeSet<String>,
    /// Members whose owner a user took off, and their tokens.
    pub disowned: BTreeMap<String, String>,
    /// When the status of an object was last emptied by a user.
    pub status_lost_at: BTreeMap<String, Millis>,
    /// When the operator wrote an object, in the last minute.
    pub writes: BTreeMap<(Kind, &'static str, String), VecDeque<Millis>>,
    /// Formations that have been looked at.
    pub formations_seen: usize,
    /// Since when a replica leads that hears and is heard, whatever is refused to it.
    pub led_since: Option<Millis>,
    /// Since when a member has been without the Pod it could have.
    pub missing_since: BTreeMap<String, Millis>,
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

    pub(super) fn user_touched(&mut self, member: &str, strip: bool, now: Millis) {
        let fact = self.members.entry(member.to_owned()).or_default();
        fact.user_deleted = true;
        fact.deleted_at.get_or_insert(now);
        fact.stripped |= strip;
    }

    /// A cluster is deleted, and everything of it is left behind.
    pub(super) fn orphan(&mut self, uid: &str) {
        if let Some(fact) = self.clusters.get(uid) {
            self.orphaned.insert(fact.name.clone(), fact.tokens(uid));
        }
    }

    pub(super) fn status_lost(&mut self, uid: &str) {
        self.clusters.entry(uid.to_owned()).or_default().status_lost = true;
    }

    pub(super) fn user_deleted_volume(&mut self, claim: &str) {
        self.user_volumes.insert(claim.to_owned());
    }

    pub(super) fn member_changed(&mut self, now: Millis, change: Change, object: &Value) {
        let fact = self.members.entry(uid_of(object)).or_default();
        fact.name = name_of(object);
        fact.exists = change != Change::Deleted;
        fact.deleting = object["metadata"]["deletionTimestamp"].is_string();
        let cluster = object["spec"]["clusterName"].as_str().unwrap_or_default();
        let mut finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let let_go = fact.deleting && !finalizers.any(|f| f == labels::FINALIZER);
        // A request that was under way when the cluster was made can not be taken back.
        let limit = u64::try_from(API_LIMIT.as_millis()).unwrap_or(u64::MAX);
        let attends = |c: &&ClusterFact| c.since.is_some_and(|since| since.saturating_add(limit) < now);
        let attended = self.clusters.values().filter(attends).any(|c| c.lives() && c.name == cluster);
        fact.unattended |= (let_go || !fact.exists) && !attended;
        fact.id = object["status"]["memberID"].as_str().and_then(ids::parse).or(fact.id);
        let owners = object["metadata"]["ownerReferences"].as_array();
        let owner = owners.and_then(|o| o.iter().find(|o| o["controller"] == Value::Bool(true)));
        fact.owner = owner.map(|o| o["uid"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
        let token = object["spec"]["clusterToken"].as_str().unwrap_or_default();
        fact.born_there = !fact.owner.is_empty() && token.ends_with(&fact.owner);
    }

    /// `lost`: the volumes of a quorum of what it stood for have been destroyed.
    pub(super) fn cluster_changed(&mut self, now: Millis, change: Change, object: &Value, lost: bool) {
        let uid = uid_of(object);
        let inherits =
            if self.clusters.contains_key(&uid) { None } else { self.orphaned.remove(&name_of(object)) };
        let fact = self.clusters.entry(uid).or_default();
        fact.inherits.extend(inherits.into_iter().flatten());
        fact.name = name_of(object);
        fact.since.get_or_insert(now);
        fact.exists = change != Change::Deleted;
        fact.deleting = object["metadata"]["deletionTimestamp"].is_string();
        let id = object["status"]["clusterID"].as_str().and_then(ids::parse);
        if id.is_none() && fact.status_lost {
            // It is not forgotten what the id was: no other may come in its place.
        } else if fact.id.is_some() && id != fact.id && !(fact.status_lost && lost) {
            let what = format!("clusterID of {} was {:x?} and becomes {id:x?}", fact.name, fact.id);
            self.violation.get_or_insert(Violation::new(3, what));
        } else {
            fact.id = id;
            fact.id_since = fact.id_since.or(id.map(|_| now));
        }
    }

    /// Whether the cluster of this UID was made over what another had left behind.
    pub fn inherits(&self, uid: &str) -> bool {
        self.clusters.get(uid).is_some_and(|c| !c.inherits.is_empty())
    }

    /// The living cluster object of this UID.
    pub fn living(&self, uid: &str) -> Option<&ClusterFact> {
        self.clusters.get(uid).filter(|c| c.lives())
    }
}

impl World {
    /// The etcd cluster that belongs to a cluster object: the one it has latched, or else the one that was left behind for
    /// it, or else the last one formed for it.
    pub fn etcd_cluster(&self, uid: &str) -> Option<u64> {
        let fact = self.ledger.clusters.get(uid)?;
        let own = || self.formed_under(&names::cluster_token(namespace(&fact.name), &fact.name, uid));
        fact.id.or_else(|| self.inheritance(fact)).or_else(own)
    }

    /// Every etcd cluster that was ever formed for a cluster object, or left behind for it.
    pub fn ever_formed(&self, uid: &str) -> Vec<u64> {
        let Some(fact) = self.ledger.clusters.get(uid) else { return vec![] };
        fact.tokens(uid).iter().filter_map(|token| self.formed_under(token)).chain(fact.id).collect()
    }

    /// The last etcd cluster that was formed under a token.
    pub fn formed_under(&self, token: &str) -> Option<u64> {
        self.etcds.formations().iter().rev().find(|f| f.token == *token).map(|f| f.cluster)
    }

    /// The etcd cluster that a cluster object inherits, as long as anything is left of it.
    pub fn inheritance(&self, fact: &ClusterFact) -> Option<u64> {
        let mut ids = fact.inherits.iter().filter_map(|token| self.formed_under(token));
        ids.find(|id| self.etcds.homes(*id).next().is_some())
    }

    /// Living cluster objects with their etcd clusters.
    pub fn living_clusters(&self) -> Vec<(String, u64)> {
        let living = self.ledger.clusters.iter().filter(|(_, fact)| fact.lives());
        living.filter_map(|(uid, _)| Some((uid.clone(), self.etcd_cluster(uid)?))).collect()
    }

    /// Every etcd cluster whose data nobody may lose: those of living objects, those that such an object was made over,
    /// and those that were left behind.
    pub fn kept_clusters(&self) -> Vec<Kept> {
        let mut kept = vec![];
        for (uid, fact) in self.ledger.clusters.iter().filter(|(_, fact)| fact.lives()) {
            let name = &fact.name;
            let ids = [self.etcd_cluster(uid), self.inheritance(fact)];
            kept.extend(ids.into_iter().flatten().map(|id| Kept {
                uid: uid.clone(),
                name: name.clone(),
                id,
            }));
        }
        for (name, tokens) in &self.ledger.orphaned {
            let ids = tokens.iter().filter_map(|token| self.formed_under(token));
            kept.extend(ids.map(|id| Kept { uid: String::new(), name: name.clone(), id }));
        }
        kept.dedup_by_key(|kept| kept.id);
        kept
    }

    /// Rule 4, at the moment a claim is gone: if that cost a voter its data, somebody must answer for it.
    pub(super) fn destroy_claim(&mut self, disk: &DiskId, owner: &str, claim: &str) {
        let clusters = self.kept_clusters();
        let before: Vec<usize> = clusters.iter().map(|kept| self.etcds.volumes(kept.id).surviving).collect();
        let struck = clusters.iter().filter(|kept| self.etcds.disaster(kept.id).is_some());
        let disasters: Vec<u64> = struck.map(|kept| kept.id).collect();
        self.lose_disk(disk, "its claim is gone");
        self.etcds.forget_disk(disk);
        let by_user = self.ledger.user_volumes.contains(&disk.0);
        // Somebody may have taken the owner off.
        let named = |m: &&MemberFact| claim.strip_prefix("data-") == Some(m.name.as_str());
        let member = self.ledger.members.get(owner).or_else(|| self.ledger.members.values().rfind(named));
        let stripped = member.is_some_and(|m| m.stripped);
        let user_deleted = member.is_some_and(|m| m.user_deleted);
        let unattended = member.is_some_and(|m| m.unattended);
        let deleted_at = member.and_then(|m| m.deleted_at);
        // It goes with the cluster that it was made in, although another one has taken up a sister that lost her owner.
        let went_along = member.is_some_and(|m| m.born_there && self.ledger.living(&m.owner).is_none());
        let name = member.map(|m| m.name.clone()).unwrap_or_default();
        // A Pod that a user told to stay when its seed went, before it had started, forms a cluster of theirs.
        let pod =
            claim.strip_prefix("data-").and_then(|member| self.object(crate::apiserver::kind::POD, member));
        let theirs =
            pod.is_some_and(|pod| pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
        for (kept, before) in clusters.iter().zip(before) {
            let id = kept.id;
            // Before anybody knew that a cluster had formed, and anybody wrote to it, a seed may be taken back.
            let known = self.ledger.clusters.values().any(|c| c.id == Some(id))
                || (self.etcds.acknowledged(id).is_some_and(|keys| !keys.is_empty()) && !theirs);
            // Both records were emptied before its etcd was heard again, or all its data had been deleted: nothing tells
            // that it ever joined.
            let emptied = self.ledger.clusters.get(&kept.uid).is_some_and(|c| c.status_lost);
            let forgotten =
                emptied && (self.ledger.status_lost_at.contains_key(owner) || disasters.contains(&id));
            // Without a cluster object there is nobody to take a member out of etcd that its user has deleted.
            let alone = kept.uid.is_empty() || unattended;
            // A member of a predecessor's has begun anew, and the one that its user has deleted is not on record any more.
            let unknown =
                crate::invariants::is_misvoted(self, id) && self.ledger.status_lost_at.contains_key(owner);
            // Its Pod was started after its user had deleted the seed, and before anybody could end it.
            let here = |f: &&crate::etcd::Formation| f.cluster == id && f.disk == *disk;
            let formed = self.etcds.formations().iter().rfind(here).map(|f| f.at);
            let doomed = formed.zip(deleted_at).is_some_and(|(formed, deleted)| deleted <= formed);
            let by_user =
                by_user || went_along || (user_deleted && (forgotten || alone || unknown || doomed));
            if self.etcds.volumes(id).surviving < before && known && !by_user && !stripped {
                let what = format!("the volume of {name} was deleted while etcd {id:x} still counts on it");
                self.ledger.violate(Violation::new(4, what));
            }
        }
    }
}
