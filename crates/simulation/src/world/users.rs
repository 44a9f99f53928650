//! What users do to the objects of their clusters.

use serde_json::{Value, json};

use super::incidents::{HOLD, TOO_MUCH};
use super::pod_run::PodRun;
use super::{World, name_of, namespace, uid_of};
use crate::apiserver::Propagation as Orphans;
use crate::apiserver::Sub;
use crate::apiserver::kind::{BUDGET, CLAIM, ETCD_CLUSTER, ETCD_MEMBER, POD, SERVICE};
use crate::script::{Edit, Propagation};

impl World {
    pub(super) fn picked_cluster(&self, cluster: usize) -> Option<(String, bool)> {
        let object =
            self.object(ETCD_CLUSTER, &self.script.clusters[cluster % self.script.clusters.len()].name)?;
        let memory = object["spec"]["storage"]["medium"] == json!("Memory");
        let alive = object["metadata"]["deletionTimestamp"].is_null();
        alive.then(|| (name_of(&object), memory))
    }

    pub(super) fn user_scales(&mut self, cluster: usize, replicas: i32) {
        let Some((name, memory)) = self.picked_cluster(cluster) else { return };
        // Admission refuses to pause what lives in memory.
        let replicas = if memory { replicas.max(1) } else { replicas };
        self.patch_object(ETCD_CLUSTER, &name, &json!({ "spec": { "replicas": replicas } }));
    }

    pub(super) fn user_edits(&mut self, cluster: usize, what: Edit) {
        let Some((name, _)) = self.picked_cluster(cluster) else { return };
        let serial = self.now;
        let spec = match what {
            Edit::Version => {
                let current = self.object(ETCD_CLUSTER, &name).map(|c| c["spec"]["version"].clone());
                // A patch upwards and back: what is admitted.
                let next = match current.as_ref().and_then(Value::as_str) {
                    Some("3.5.35") => "3.5.36",
                    Some("3.6.16") => "3.6.17",
                    Some(other) => other,
                    None => return,
                };
                json!({ "version": next })
            }
            Edit::Resources => {
                json!({ "resources": { "requests": { "cpu": format!("{}m", 100 + serial % 50) } } })
            }
            Edit::TooMuch => json!({ "resources": { "requests": { "cpu": TOO_MUCH } } }),
            Edit::Options => json!({ "options": { "snapshotCount": 1000 + serial % 1000 } }),
            Edit::Deadline => json!({ "progressDeadlineSeconds": 30 + serial % 600 }),
        };
        self.patch_object(ETCD_CLUSTER, &name, &json!({ "spec": spec }));
    }

    pub(super) fn user_deletes_cluster(&mut self, cluster: usize, how: Propagation) {
        let Some((name, _)) = self.picked_cluster(cluster) else { return };
        let how = match how {
            Propagation::Background => Orphans::Background,
            Propagation::Foreground => Orphans::Foreground,
            Propagation::Orphan => Orphans::Orphan,
        };
        let uid = self.object(ETCD_CLUSTER, &name).map(|c| uid_of(&c)).unwrap_or_default();
        if how == Orphans::Orphan {
            self.ledger.orphan(&uid);
        }
        self.delete_object(ETCD_CLUSTER, &name, None, Some(how), false);
        if how != Orphans::Orphan {
            self.user_clears_away(&name);
        }
    }

    /// Who deletes a cluster for good takes along what nobody owns of it.
    pub(super) fn user_clears_away(&mut self, cluster: &str) {
        for kind in [ETCD_MEMBER, POD, CLAIM, SERVICE, BUDGET] {
            for object in self.objects(kind) {
                let ours = object["metadata"]["labels"].get(api::labels::CLUSTER) == Some(&json!(cluster));
                if !ours || object["metadata"]["ownerReferences"].is_array() {
                    continue;
                }
                let uid = uid_of(&object);
                match kind {
                    ETCD_MEMBER => self.ledger.user_touched(&uid, false, self.now),
                    CLAIM => self.ledger.user_deleted_volume(&uid),
                    _ => {}
                }
                self.delete_object(kind, &name_of(&object), Some(&uid), Some(Orphans::Background), false);
            }
        }
    }

    pub(super) fn cluster_status_lost(&mut self, cluster: usize) {
        let Some((name, _)) = self.picked_cluster(cluster) else { return };
        let uid = self.object(ETCD_CLUSTER, &name).map(|c| uid_of(&c)).unwrap_or_default();
        self.ledger.status_lost(&uid);
        self.lose_status(ETCD_CLUSTER, &name);
    }

    pub(super) fn lose_status(&mut self, kind: crate::apiserver::Kind, name: &str) {
        let Some(object) = self.object(kind, name) else { return };
        self.ledger.status_lost_at.insert(uid_of(&object), self.now);
        let mut bare = (*object).clone();
        bare["status"] = Value::Null;
        let _ = self.api().update(self.now, kind, namespace(name), name, bare, Some(Sub::Status));
    }

    /// The member goes as etcd lets it; its Pod and its claim stay, and nobody owns them.
    pub(super) fn user_orphans_member(&mut self, pick: usize) {
        let Some(name) = self.picked(ETCD_MEMBER, pick) else { return };
        let uid = self.object(ETCD_MEMBER, &name).map(|m| uid_of(&m)).unwrap_or_default();
        self.ledger.user_touched(&uid, false, self.now);
        self.delete_object(ETCD_MEMBER, &name, None, Some(Orphans::Orphan), false);
    }

    pub(super) fn user_disowns(&mut self, kind: usize, pick: usize) {
        let kind = [ETCD_MEMBER, POD, CLAIM, SERVICE, BUDGET][kind % 5];
        let Some(name) = self.picked(kind, pick) else { return };
        if let Some(member) = self.object(kind, &name).filter(|_| kind == ETCD_MEMBER) {
            let token = member["spec"]["clusterToken"].as_str().unwrap_or_default().to_owned();
            self.ledger.disowned.insert(uid_of(&member), token);
        }
        self.patch_object(kind, &name, &json!({ "metadata": { "ownerReferences": null } }));
    }

    pub(super) fn user_deletes_member(&mut self, pick: usize, strip: bool) {
        let Some(name) = self.picked(ETCD_MEMBER, pick) else { return };
        let uid = self.object(ETCD_MEMBER, &name).map(|m| uid_of(&m)).unwrap_or_default();
        self.ledger.user_touched(&uid, strip, self.now);
        self.delete_object(ETCD_MEMBER, &name, None, Some(Orphans::Background), false);
        if strip {
            self.patch_object(ETCD_MEMBER, &name, &json!({ "metadata": { "finalizers": null } }));
        }
    }

    pub(super) fn hold_member(&mut self, pick: usize) {
        let Some(name) = self.picked(ETCD_MEMBER, pick) else { return };
        let Some(member) = self.object(ETCD_MEMBER, &name) else { return };
        if member["metadata"]["deletionTimestamp"].is_string() {
            return;
        }
        let mut finalizers = member["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(json!(HOLD));
        self.patch_object(ETCD_MEMBER, &name, &json!({ "metadata": { "finalizers": finalizers } }));
    }

    /// The tool lets go of what is left of clusters that are gone.
    pub(super) fn let_go(&mut self) {
        let clusters = self.objects(ETCD_CLUSTER);
        let living = clusters.iter().filter(|c| c["metadata"]["deletionTimestamp"].is_null());
        let living: Vec<String> = living.map(|c| uid_of(c)).collect();
        for member in self.objects(ETCD_MEMBER) {
            let owner = member["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default();
            let finalizers = member["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            if finalizers.contains(&json!(HOLD)) && !living.iter().any(|uid| uid == owner) {
                let others: Vec<_> = finalizers.into_iter().filter(|f| f != HOLD).collect();
                let patch = json!({ "metadata": { "finalizers": others } });
                self.patch_object(ETCD_MEMBER, &name_of(&member), &patch);
            }
        }
    }

    pub(super) fn user_deletes_pod(&mut self, pick: usize, force: bool) {
        let Some(name) = self.picked(POD, pick) else { return };
        let alive = |p: &&PodRun| {
            p.name == name && p.process.is_some() && p.node.is_some_and(|n| !self.nodes[n].is_reachable())
        };
        let denied = self.pods.values().find(alive).map(|p| p.cluster.clone()).filter(|_| force);
        self.ledger.denied.extend(denied);
        self.delete_object(POD, &name, None, None, force);
    }

    /// The claim goes when its Pod has gone.
    pub(super) fn user_deletes_volume(&mut self, pick: usize) {
        let Some(name) = self.picked(CLAIM, pick) else { return };
        let uid = self.object(CLAIM, &name).map(|c| uid_of(&c)).unwrap_or_default();
        self.ledger.user_deleted_volume(&uid);
        self.delete_object(CLAIM, &name, None, None, false);
        if let Some(member) = name.strip_prefix("data-") {
            self.delete_object(POD, member, None, None, false);
        }
    }

    /// Another claim under the same name, with the same owner: restored from somewhere, or made by hand.
    pub(super) fn user_swaps_volume(&mut self, pick: usize) {
        let Some(name) = self.picked(CLAIM, pick) else { return };
        let Some(old) = self.object(CLAIM, &name) else { return };
        let uid = uid_of(&old);
        self.ledger.user_deleted_volume(&uid);
        if let Some(member) = name.strip_prefix("data-") {
            let pod = self.object(POD, member).map(|p| uid_of(&p));
            self.delete_object(POD, member, None, None, true);
            if let Some(pod) = pod {
                self.stop_process(&pod);
            }
        }
        self.delete_object(CLAIM, &name, Some(&uid), None, false);
        self.patch_object(CLAIM, &name, &json!({ "metadata": { "finalizers": null } }));
        let copy = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": namespace(&name),
                "labels": old["metadata"]["labels"], "ownerReferences": old["metadata"]["ownerReferences"],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        let now = self.now;
        let api = self.api.clone();
        let mut api = api.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = api.create(now, CLAIM, namespace(&name), copy, &mut self.rng);
    }

    pub(super) fn user_deletes(&mut self, kind: crate::apiserver::Kind, pick: usize) {
        let Some(name) = self.picked(kind, pick) else { return };
        self.delete_object(kind, &name, None, None, false);
    }

    /// Takes the cluster's label off a Pod or claim, or writes another cluster's name there, and puts it right when all is
    /// calm.
    pub(super) fn user_unlabels(&mut self, pick: usize, other: bool) {
        let kind = if pick.is_multiple_of(2) { POD } else { CLAIM };
        let Some(name) = self.picked(kind, pick / 2) else { return };
        let ours = self.object(kind, &name).map(|o| o["metadata"]["labels"][api::labels::CLUSTER].clone());
        let theirs = ["c", "d"].into_iter().find(|c| ours.as_ref().is_some_and(|o| o != c));
        let value = if other { json!(theirs) } else { Value::Null };
        let off = json!({ "metadata": { "labels": { api::labels::CLUSTER: value } } });
        self.patch_object(kind, &name, &off);
        self.ledger.unlabelled.push((kind, name));
    }

    pub(super) fn relabel_all(&mut self) {
        for (kind, name) in std::mem::take(&mut self.ledger.unlabelled) {
            let Some(object) = self.object(kind, &name) else { continue };
            let cluster = object["metadata"]["labels"][api::labels::INSTANCE].clone();
            let on = json!({ "metadata": { "labels": { api::labels::CLUSTER: cluster } } });
            self.patch_object(kind, &name, &on);
        }
    }
}
