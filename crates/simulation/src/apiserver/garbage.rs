//! What the garbage collector and the volume protection do, one chore at a time: the caller decides when.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::{FOREGROUND, ORPHAN};
use super::kind::POD;
use super::{ApiServer, DeleteOptions, Id, Kind, Millis, Propagation, meta};

pub(super) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(super) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// One thing a controller of the control plane would do next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chore {
    /// All owners are gone, or the last one waits for its dependents. In the foreground its own dependents go first.
    Delete { kind: Kind, namespace: String, name: String, uid: String, foreground: bool },
    /// Some owners are gone, others live.
    Disown { kind: Kind, namespace: String, name: String, uid: String },
    /// An owner was deleted with `Orphan`: its dependents forget it, then it goes.
    Orphan { kind: Kind, namespace: String, name: String, uid: String },
    /// Nothing blocks the deletion in the foreground any more, or nobody uses the volume.
    Release { kind: Kind, namespace: String, name: String, uid: String, finalizer: &'static str },
}

/// Owner references of an object, by what became of the owners.
#[derive(Default)]
struct Owners {
    solid: usize,
    dangling: Vec<String>,
    waiting: Vec<String>,
}

impl ApiServer {
    /// Everything there is to do now.
    pub fn chores(&self) -> Vec<Chore> {
        let dependents = self.dependents();
        self.objects.iter().filter_map(|(id, object)| self.chore(id, object, &dependents)).collect()
    }

    /// Does one chore. Whether it was still to be done.
    pub fn perform(&mut self, now: Millis, chore: &Chore) -> bool {
        match chore {
            Chore::Delete { kind, namespace, name, uid, foreground } => {
                let propagation = foreground.then_some(Propagation::Foreground);
                let options =
                    DeleteOptions { uid: Some(uid.clone()), propagation, ..DeleteOptions::default() };
                self.delete(now, *kind, namespace, name, &options).is_ok()
            }
            Chore::Disown { kind, namespace, name, uid } => {
                self.disown(now, &Id::new(*kind, namespace, name), uid)
            }
            Chore::Orphan { kind, namespace, name, uid } => {
                let dependents = self.dependents().remove(uid).unwrap_or_default();
                for id in dependents {
                    self.forget_owners(now, &id, std::slice::from_ref(uid));
                }
                self.release(now, &Id::new(*kind, namespace, name), uid, ORPHAN)
            }
            Chore::Release { kind, namespace, name, uid, finalizer } => {
                self.release(now, &Id::new(*kind, namespace, name), uid, finalizer)
            }
        }
    }

    /// One step of the collector: does every chore there is now, once. Returns how many.
    pub fn collect_garbage(&mut self, now: Millis) -> usize {
        let chores = self.chores();
        chores.iter().filter(|chore| self.perform(now, chore)).count()
    }

    fn chore(&self, id: &Id, object: &Value, dependents: &BTreeMap<String, Vec<Id>>) -> Option<Chore> {
        let Id { kind, namespace, name } = id.clone();
        let uid = meta::uid(object).to_owned();
        let finalizers = meta::finalizers(object);
        let has = |finalizer: &str| finalizers.iter().any(|f| f == finalizer);
        let own = dependents.get(&uid).map(Vec::as_slice).unwrap_or_default();
        if meta::is_terminating(object) {
            let finalizer = match () {
                () if has(ORPHAN) => return Some(Chore::Orphan { kind, namespace, name, uid }),
                () if has(FOREGROUND) && !self.is_blocked(&uid, own) => FOREGROUND,
                () if has(CLAIM_PROTECTION) && !self.is_mounted(id) => CLAIM_PROTECTION,
                () if has(VOLUME_PROTECTION) && object["status"]["phase"] != "Bound" => VOLUME_PROTECTION,
                () => return None,
            };
            return Some(Chore::Release { kind, namespace, name, uid, finalizer });
        }
        let owners = self.owners(id, object);
        if owners.dangling.is_empty() && owners.waiting.is_empty() {
            return None;
        }
        if owners.solid > 0 {
            return Some(Chore::Disown { kind, namespace, name, uid });
        }
        let foreground = (!owners.waiting.is_empty() && !own.is_empty()) || has(FOREGROUND);
        Some(Chore::Delete { kind, namespace, name, uid, foreground })
    }

    fn owners(&self, id: &Id, object: &Value) -> Owners {
        let mut owners = Owners::default();
        for owner in meta::owners(object) {
            // An owner of a kind that is not known here can not be shown to be gone.
            let Some(kind) = Kind::by_name(&owner.api_version, &owner.kind) else {
                owners.solid += 1;
                continue;
            };
            let found = self.peek(kind, &id.namespace, &owner.name).filter(|o| meta::uid(o) == owner.uid);
            let waits = |o: &Arc<Value>| {
                meta::is_terminating(o) && meta::finalizers(o).iter().any(|f| f == FOREGROUND)
            };
            match found {
                Some(found) if waits(found) => owners.waiting.push(owner.uid),
                Some(_) => owners.solid += 1,
                None => owners.dangling.push(owner.uid),
            }
        }
        owners
    }

    /// Objects by the UIDs of their owners.
    fn dependents(&self) -> BTreeMap<String, Vec<Id>> {
        let mut dependents = BTreeMap::<String, Vec<Id>>::new();
        for (id, object) in &self.objects {
            for owner in meta::owners(object) {
                dependents.entry(owner.uid).or_default().push(id.clone());
            }
        }
        dependents
    }

    fn is_blocked(&self, owner: &str, dependents: &[Id]) -> bool {
        dependents.iter().filter_map(|id| self.objects.get(id)).any(|object| {
            meta::owners(object).iter().any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
        })
    }

    /// A Pod that is on a node and has not ended uses the claim.
    fn is_mounted(&self, claim: &Id) -> bool {
        self.objects_of(POD, Some(&claim.namespace)).any(|pod| {
            let ended =
                ["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
            let volumes = pod["spec"]["volumes"].as_array();
            let mounts = |v: &Value| v["persistentVolumeClaim"]["claimName"] == json!(claim.name);
            let placed = pod["spec"]["nodeName"].is_string();
            placed && !ended && volumes.into_iter().flatten().any(mounts)
        })
    }

    fn disown(&mut self, now: Millis, id: &Id, uid: &str) -> bool {
        let Some(object) = self.objects.get(id).filter(|o| meta::uid(o) == uid) else { return false };
        let owners = self.owners(id, object);
        self.forget_owners(now, id, &[owners.dangling, owners.waiting].concat())
    }

    fn forget_owners(&mut self, now: Millis, id: &Id, gone: &[String]) -> bool {
        let Some(old) = self.objects.get(id).cloned() else { return false };
        let mut object = (*old).clone();
        let left: Vec<_> = meta::owners(&old).into_iter().filter(|o| !gone.contains(&o.uid)).collect();
        meta::set(&mut object, "ownerReferences", json!(left));
        self.replace(now, id.kind, &old, object, None).is_ok()
    }

    fn release(&mut self, now: Millis, id: &Id, uid: &str, finalizer: &str) -> bool {
        let Some(old) = self.objects.get(id).filter(|o| meta::uid(o) == uid).cloned() else { return false };
        let mut object = (*old).clone();
        let left: Vec<_> = meta::finalizers(&old).into_iter().filter(|f| f != finalizer).collect();
        meta::set_finalizers(&mut object, &left);
        self.replace(now, id.kind, &old, object, None).is_ok()
    }
}
