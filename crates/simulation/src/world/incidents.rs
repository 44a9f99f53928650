//! Users and accidents: what an entry of the script does to the world as it is then.

use serde_json::{Value, json};

use super::agenda::Event;
use super::kubelet::{PodRun, Stage};
use super::{Order, WATCHED, World, name_of, namespace, uid_of};
use crate::apiserver::Propagation as Orphans;
use crate::apiserver::Sub;
use crate::apiserver::kind::{BUDGET, CLAIM, ETCD_CLUSTER, ETCD_MEMBER, POD, SERVICE};
use crate::script::{Edit, Incident, Propagation, SECOND};

/// Somebody else's finalizer.
pub(crate) const HOLD: &str = "tool.example/hold";

/// More than any node has.
pub(super) const TOO_MUCH: &str = "640";

impl World {
    /// Users who have asked for too much ask for less.
    pub(super) fn ask_for_less(&mut self) {
        for cluster in self.objects(ETCD_CLUSTER) {
            if cluster["spec"]["resources"]["requests"]["cpu"] == json!(TOO_MUCH) {
                let less = json!({ "spec": { "resources": { "requests": { "cpu": "100m" } } } });
                self.patch_object(ETCD_CLUSTER, &name_of(&cluster), &less);
            }
        }
        self.wishes.iter_mut().for_each(|wish| wish.too_much = false);
    }

    pub(super) fn incident(&mut self, index: usize) {
        let Some(incident) = self.script.incidents.get(index).map(|t| t.incident.clone()) else { return };
        self.note(|_| format!("INCIDENT {incident:?}"));
        *self.faults_injected.entry(incident.kind()).or_default() += 1;
        match incident {
            Incident::Scale { cluster, replicas } => self.user_scales(cluster, replicas),
            Incident::Edit { cluster, what } => self.user_edits(cluster, what),
            Incident::DeleteCluster { cluster, how } => self.user_deletes_cluster(cluster, how),
            Incident::Recreate { cluster } => {
                let at = self.now;
                self.agenda.put(at, Event::Wish(cluster % self.script.clusters.len()));
            }
            Incident::RecreateAs { cluster, replicas, other_medium } => {
                let index = cluster % self.wishes.len();
                let wish = &mut self.wishes[index];
                wish.memory ^= other_medium;
                // Admission refuses to pause what lives in memory.
                let least = i32::from(wish.memory);
                wish.replicas = replicas.unwrap_or(wish.replicas).max(least);
                let at = self.now;
                self.agenda.put(at, Event::Wish(index));
            }
            Incident::LoseStatus { cluster } => self.cluster_status_lost(cluster),
            Incident::LoseMemberStatus { pick } => {
                if let Some(name) = self.picked(ETCD_MEMBER, pick) {
                    self.lose_status(ETCD_MEMBER, &name);
                }
            }
            Incident::OrphanMember { pick } => self.user_orphans_member(pick),
            Incident::Disown { kind, pick } => self.user_disowns(kind, pick),
            Incident::Refuse { kind, verb, only, lasts } => self.refuse(WATCHED[kind % 6], verb, only, lasts),
            Incident::Revert { kind, pick, late, lasts } => self.revert(kind, pick, late, lasts),
            Incident::DeleteMember { pick } => self.user_deletes_member(pick, false),
            Incident::StripMember { pick } => self.user_deletes_member(pick, true),
            Incident::DeletePod { pick, force } => self.user_deletes_pod(pick, force),
            Incident::DeleteVolume { pick } => self.user_deletes_volume(pick),
            Incident::SwapVolume { pick } => self.user_swaps_volume(pick),
            Incident::DeleteService { pick } => self.user_deletes(SERVICE, pick),
            Incident::DeleteBudget { pick } => self.user_deletes(BUDGET, pick),
            Incident::Unlabel { pick } => self.user_unlabels(pick, false),
            Incident::Relabel { pick } => self.user_unlabels(pick, true),
            Incident::KillContainer { pick } => {
                if let Some(uid) = self.picked_pod(pick) {
                    self.kill(&uid, "killed");
                }
            }
            Incident::Storm { pick, times, every } => {
                let Some(uid) = self.picked_pod(pick) else { return };
                for nth in 0..u64::from(times) {
                    let at = self.now + nth * every;
                    self.agenda.put(at, Event::Kill(uid.clone()));
                }
            }
            Incident::Deafen { pick } => {
                let process = self.picked_pod(pick).and_then(|uid| self.pods.get(&uid)?.process.clone());
                if let Some(process) = process {
                    self.etcds.deafen(&process);
                }
            }
            Incident::Veteran { pick, restarts } => {
                let Some(uid) = self.picked_pod(pick) else { return };
                // Only what has run can have been restarted.
                if let Some(pod) = self.pods.get_mut(&uid).filter(|p| p.stage == Stage::Running) {
                    pod.restarts += restarts;
                    self.write_pod_status(&uid);
                }
            }
            Incident::Flap { pick, lasts } => {
                let Some(uid) = self.picked_pod(pick) else { return };
                let until = self.now + lasts;
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.flaps_until = until;
                }
            }
            Incident::FailPods { lasts } => self.control.fails_pods_until = self.now + lasts,
            Incident::NoRoom { lasts } => self.control.no_room_until = self.now + lasts,
            Incident::Reboot { node, back } => self.reboot(node, back),
            Incident::Evict { pick } => {
                if let Some(uid) = self.picked_pod(pick) {
                    self.end_pod(&uid, "Evicted");
                }
            }
            Incident::NodeDies { node } => self.node_dies(node),
            Incident::NodeCut { node } => self.node_cut(node),
            Incident::NodeReturns { node } | Incident::NodeHeals { node } => self.node_returns(node),
            Incident::NodeLost { node } => self.node_lost(node),
            Incident::Shut { cluster, lasts } => {
                let name = self.script.clusters[cluster % self.script.clusters.len()].name.clone();
                self.control.shut.push((name, self.now + lasts));
            }
            Incident::HoldMember { pick } => self.hold_member(pick),
            Incident::LinkCut { a, b } => self.link_cut(a, b),
            Incident::WipeDisk { pick } => self.spoil(pick, Self::wipe),
            Incident::CorruptDisk { pick } => self.spoil(pick, Self::corrupt),
            Incident::FillDisk { pick } => self.fill(pick),
            Incident::Crash { back } => self.orders.push_back(Order::Crash { back }),
            Incident::Call { skip, fate } => self.fates.push_back((skip, fate)),
            Incident::Depose { linger } => self.orders.push_back(Order::Depose { linger }),
            Incident::WatchLag { kind, by, lasts } => self.watch_lag[kind % 6] = (by, self.now + lasts),
            Incident::WatchRestart { kind } => self.orders.push_back(Order::RestartWatch(kind % 6)),
            Incident::ApiDown { lasts } => self.api_down_until = self.now + lasts,
            Incident::ClockJump { by } => self.orders.push_back(Order::SkewClock(by)),
        }
    }

    /// Makes a cluster as it was wished for, unless one of that name is there.
    pub(super) fn make_cluster(&mut self, index: usize) {
        let wish = self.wishes[index % self.wishes.len()].clone();
        if let Some(present) = self.object(ETCD_CLUSTER, &wish.name) {
            if present["metadata"]["deletionTimestamp"].is_string() && !self.calm {
                let at = self.now + SECOND;
                self.agenda.put(at, Event::Wish(index));
            }
            return;
        }
        let medium = if wish.memory { "Memory" } else { "" };
        let storage =
            if wish.memory { json!({ "medium": medium, "size": "64Mi" }) } else { json!({ "size": "1Gi" }) };
        let mut object = json!({
            "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
            "metadata": { "name": wish.name, "namespace": namespace(&wish.name) },
            "spec": { "replicas": wish.replicas, "version": wish.version, "storage": storage },
        });
        if wish.too_much {
            object["spec"]["resources"] = json!({ "requests": { "cpu": TOO_MUCH } });
        }
        self.note(|_| format!("a user creates cluster {} with {} members", wish.name, wish.replicas));
        let now = self.now;
        let api = self.api.clone();
        let mut api = api.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = api.create(now, ETCD_CLUSTER, namespace(&wish.name), object, &mut self.rng) {
            self.broken_model = Some(format!("a cluster can not be created: {error}"));
        }
    }

    fn picked_cluster(&self, cluster: usize) -> Option<(String, bool)> {
        let object =
            self.object(ETCD_CLUSTER, &self.script.clusters[cluster % self.script.clusters.len()].name)?;
        let memory = object["spec"]["storage"]["medium"] == json!("Memory");
        let alive = object["metadata"]["deletionTimestamp"].is_null();
        alive.then(|| (name_of(&object), memory))
    }

    fn user_scales(&mut self, cluster: usize, replicas: i32) {
        let Some((name, memory)) = self.picked_cluster(cluster) else { return };
        // Admission refuses to pause what lives in memory.
        let replicas = if memory { replicas.max(1) } else { replicas };
        self.patch_object(ETCD_CLUSTER, &name, &json!({ "spec": { "replicas": replicas } }));
    }

    fn user_edits(&mut self, cluster: usize, what: Edit) {
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

    fn user_deletes_cluster(&mut self, cluster: usize, how: Propagation) {
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
    fn user_clears_away(&mut self, cluster: &str) {
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

    fn cluster_status_lost(&mut self, cluster: usize) {
        let Some((name, _)) = self.picked_cluster(cluster) else { return };
        let uid = self.object(ETCD_CLUSTER, &name).map(|c| uid_of(&c)).unwrap_or_default();
        self.ledger.status_lost(&uid);
        self.lose_status(ETCD_CLUSTER, &name);
    }

    fn lose_status(&mut self, kind: crate::apiserver::Kind, name: &str) {
        let Some(object) = self.object(kind, name) else { return };
        self.ledger.status_lost_at.insert(uid_of(&object), self.now);
        let mut bare = (*object).clone();
        bare["status"] = Value::Null;
        let _ = self.api().update(self.now, kind, namespace(name), name, bare, Some(Sub::Status));
    }

    /// The member goes as etcd lets it; its Pod and its claim stay, and nobody owns them.
    fn user_orphans_member(&mut self, pick: usize) {
        let Some(name) = self.picked(ETCD_MEMBER, pick) else { return };
        let uid = self.object(ETCD_MEMBER, &name).map(|m| uid_of(&m)).unwrap_or_default();
        self.ledger.user_touched(&uid, false, self.now);
        self.delete_object(ETCD_MEMBER, &name, None, Some(Orphans::Orphan), false);
    }

    fn user_disowns(&mut self, kind: usize, pick: usize) {
        let kind = [ETCD_MEMBER, POD, CLAIM, SERVICE, BUDGET][kind % 5];
        let Some(name) = self.picked(kind, pick) else { return };
        if let Some(member) = self.object(kind, &name).filter(|_| kind == ETCD_MEMBER) {
            let token = member["spec"]["clusterToken"].as_str().unwrap_or_default().to_owned();
            self.ledger.disowned.insert(uid_of(&member), token);
        }
        self.patch_object(kind, &name, &json!({ "metadata": { "ownerReferences": null } }));
    }

    fn user_deletes_member(&mut self, pick: usize, strip: bool) {
        let Some(name) = self.picked(ETCD_MEMBER, pick) else { return };
        let uid = self.object(ETCD_MEMBER, &name).map(|m| uid_of(&m)).unwrap_or_default();
        self.ledger.user_touched(&uid, strip, self.now);
        self.delete_object(ETCD_MEMBER, &name, None, Some(Orphans::Background), false);
        if strip {
            self.patch_object(ETCD_MEMBER, &name, &json!({ "metadata": { "finalizers": null } }));
        }
    }

    fn hold_member(&mut self, pick: usize) {
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

    fn user_deletes_pod(&mut self, pick: usize, force: bool) {
        let Some(name) = self.picked(POD, pick) else { return };
        let alive = |p: &&PodRun| {
            p.name == name && p.process.is_some() && p.node.is_some_and(|n| !self.nodes[n].is_reachable())
        };
        let denied = self.pods.values().find(alive).map(|p| p.cluster.clone()).filter(|_| force);
        self.ledger.denied.extend(denied);
        self.delete_object(POD, &name, None, None, force);
    }

    /// The claim goes when its Pod has gone.
    fn user_deletes_volume(&mut self, pick: usize) {
        let Some(name) = self.picked(CLAIM, pick) else { return };
        let uid = self.object(CLAIM, &name).map(|c| uid_of(&c)).unwrap_or_default();
        self.ledger.user_deleted_volume(&uid);
        self.delete_object(CLAIM, &name, None, None, false);
        if let Some(member) = name.strip_prefix("data-") {
            self.delete_object(POD, member, None, None, false);
        }
    }

    /// Another claim under the same name, with the same owner: restored from somewhere, or made by hand.
    fn user_swaps_volume(&mut self, pick: usize) {
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

    fn user_deletes(&mut self, kind: crate::apiserver::Kind, pick: usize) {
        let Some(name) = self.picked(kind, pick) else { return };
        self.delete_object(kind, &name, None, None, false);
    }

    /// Takes the cluster's label off a Pod or claim, or writes another cluster's name there, and puts it right when all is
    /// calm.
    fn user_unlabels(&mut self, pick: usize, other: bool) {
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

    fn picked_pod(&self, pick: usize) -> Option<String> {
        let all: Vec<_> = self.pods.values().filter(|p| !p.object_gone).collect();
        (!all.is_empty()).then(|| all[pick % all.len()].uid.clone())
    }

    pub(super) fn kill(&mut self, uid: &str, words: &str) {
        if self.pods.get(uid).is_some_and(|p| p.stage == Stage::Running) {
            self.stop_process(uid);
            self.container_ends(uid, words);
        }
    }

    /// Something happens to the files of a member, and etcd meets it at its next start.
    fn spoil(&mut self, pick: usize, how: fn(&mut Self, &crate::etcd::DiskId)) {
        let Some(uid) = self.picked_pod(pick) else { return };
        let Some(disk) = self.pods.get(&uid).and_then(|p| p.disk.clone()) else { return };
        let running = self.pods.get(&uid).is_some_and(|p| p.stage == Stage::Running);
        self.stop_process(&uid);
        how(self, &disk);
        if running {
            self.container_ends(&uid, "its files were spoilt");
        }
    }

    fn wipe(&mut self, disk: &crate::etcd::DiskId) {
        self.lose_disk(disk, "wiped");
        self.spoilt(disk);
    }

    fn spoilt(&mut self, disk: &crate::etcd::DiskId) {
        if let Some(known) = self.disks.get_mut(disk) {
            known.spoilt = true;
        }
    }

    fn corrupt(&mut self, disk: &crate::etcd::DiskId) {
        self.note(|_| format!("disk {} is corrupt", disk.0));
        self.etcds.corrupt(disk);
        self.spoilt(disk);
    }

    fn fill(&mut self, pick: usize) {
        let Some(uid) = self.picked_pod(pick) else { return };
        if let Some(disk) = self.pods.get(&uid).and_then(|p| p.disk.clone()) {
            self.etcds.fill(&disk);
            self.ledger.filled.push(disk);
        }
    }

    /// The user makes room and disarms the alarm, as the condition says.
    pub(super) fn make_room(&mut self) {
        for disk in std::mem::take(&mut self.ledger.filled) {
            self.etcds.make_room(&disk);
        }
        self.disarm = true;
    }
}
