//! Claims and the disks behind them. A claim is bound late, is kept while a Pod uses it, and takes its disk with it when
//! it goes. Who destroyed a disk is written down, because a user may and the operator may not.

use serde_json::{Value, json};

use super::agenda::Event;
use super::nodes::HOSTNAME;
use super::pod_run::Stage;
use super::{World, name_of, namespace, uid_of};
use crate::Millis;
use crate::apiserver::kind::{CLAIM, VOLUME};
use crate::etcd::DiskId;

/// Keeps a claim while Pods use it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// One volume.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The claim; empty for memory.
    pub claim: String,
    /// The only node that has it.
    pub node: Option<usize>,
    pub bound_at: Option<Millis>,
    /// What was on it is gone.
    pub lost: bool,
    /// The only node that had it is gone: no Pod can use it again.
    pub unreachable: bool,
    /// Somebody has laid hands on what was on it.
    pub spoilt: bool,
}

impl World {
    /// A claim was created.
    pub(super) fn claim_appears(&mut self, claim: &Value) {
        let (name, uid) = (name_of(claim), uid_of(claim));
        let disk = Disk { claim: name.clone(), ..Disk::default() };
        self.disks.insert(DiskId(uid.clone()), disk);
        // What the admission plugin does to every claim.
        self.patch_object(CLAIM, &name, &json!({ "metadata": { "uid": uid, "finalizers": [PROTECTION] } }));
        let at = self.now + self.within(50, self.temper.slowest_bind);
        self.agenda.put(at, Event::Bind(uid));
    }

    pub(super) fn bind(&mut self, uid: &str) {
        let now = self.now;
        let local = self.temper.local_volumes;
        let Some(disk) = self.disks.get_mut(&DiskId(uid.to_owned())) else { return };
        // A local volume is made where its first Pod is.
        if local && disk.node.is_none() && !disk.unreachable {
            self.agenda.put(now + 500, Event::Bind(uid.to_owned()));
            return;
        }
        disk.bound_at = Some(now);
        let (name, node) = (disk.claim.clone(), disk.node);
        self.make_volume(uid, &name, node);
        self.patch_object(
            CLAIM,
            &name,
            &json!({ "metadata": { "uid": uid }, "spec": { "volumeName": uid } }),
        );
        let patch = json!({ "metadata": { "uid": uid }, "status": { "phase": "Bound" } });
        self.patch_status(CLAIM, &name, &patch);
    }

    /// The volume behind a claim, tied to a node if it is on one.
    fn make_volume(&mut self, uid: &str, claim: &str, node: Option<usize>) {
        let host = node.map(|n| self.nodes[n].name.clone());
        let tied = host.map(|host| {
            let term = json!({ "key": HOSTNAME, "operator": "In", "values": [host] });
            json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [term] }] } })
        });
        let claim_ref = json!({ "kind": "PersistentVolumeClaim", "name": claim, "namespace": namespace(claim), "uid": uid });
        let object = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": uid },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "claimRef": claim_ref,
                "persistentVolumeReclaimPolicy": "Delete", "nodeAffinity": tied,
            },
        });
        let now = self.now;
        let api = self.api.clone();
        let mut api = api.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = api.create(now, VOLUME, "", object, &mut self.rng) {
            self.broken_model = Some(format!("a volume can not be created: {error}"));
        }
    }

    /// A claim is deleted: it goes when no Pod uses it any more.
    pub(super) fn release_claims(&mut self) {
        let deleted: Vec<(String, String)> = self
            .objects(CLAIM)
            .iter()
            .filter(|c| {
                c["metadata"]["deletionTimestamp"].is_string() && c["metadata"]["finalizers"].is_array()
            })
            .map(|c| (name_of(c), uid_of(c)))
            .collect();
        for (name, uid) in deleted {
            let used = self.pods.values().any(|p| {
                !p.object_gone && p.stage != Stage::Ended && p.claim.as_deref() == Some(name.as_str())
            });
            if !used {
                self.patch_object(CLAIM, &name, &json!({ "metadata": { "uid": uid, "finalizers": null } }));
            }
        }
    }

    /// A claim is gone, and its disk with it.
    pub(super) fn claim_disappears(&mut self, claim: &Value) {
        let owners = claim["metadata"]["ownerReferences"].as_array();
        let owner =
            owners.and_then(|o| o.first()).and_then(|o| o["uid"].as_str()).unwrap_or_default().to_owned();
        let uid = uid_of(claim);
        self.destroy_claim(&DiskId(uid.clone()), &owner, &name_of(claim));
        self.patch_object(VOLUME, &uid, &json!({ "metadata": { "finalizers": null } }));
        self.delete_object(VOLUME, &uid, None, None, true);
    }

    pub(super) fn mount(&mut self, disk: &DiskId, node: usize) {
        let local = self.temper.local_volumes;
        if let Some(known) = self.disks.get_mut(disk)
            && local
        {
            known.node = Some(node);
        }
    }

    pub(super) fn is_bound(&self, disk: &DiskId, uid: &str) -> bool {
        disk.0 == uid || self.disks.get(disk).is_some_and(|d| d.bound_at.is_some())
    }

    /// Whether another Pod's process still has the disk: a volume is attached to one node at a time.
    pub(super) fn is_attached_elsewhere(&self, disk: &DiskId, uid: &str) -> bool {
        self.pods.values().any(|p| p.uid != uid && p.process.is_some() && p.disk.as_ref() == Some(disk))
    }

    /// etcd is about to use a disk.
    pub(super) fn starts_on(&mut self, disk: &DiskId) {
        // Whatever was on it before is gone; what comes now counts again.
        self.disks.entry(disk.clone()).or_default().lost = false;
    }

    /// Data are gone.
    pub(super) fn lose_disk(&mut self, disk: &DiskId, why: &str) {
        let Some(known) = self.disks.get_mut(disk) else { return };
        if std::mem::replace(&mut known.lost, true) {
            return;
        }
        self.note(|_| format!("disk {} is lost: {why}", disk.0));
        self.etcds.wipe(disk);
    }
}
