//! Users and accidents: what an entry of the script does to the world as it is then.

use serde_json::json;

use super::agenda::Event;
use super::pod_run::Stage;
use super::{Order, WATCHED, World, name_of, namespace};
use crate::apiserver::kind::{BUDGET, ETCD_CLUSTER, ETCD_MEMBER, SERVICE};
use crate::script::{Incident, SECOND};

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

    pub(super) fn picked_pod(&self, pick: usize) -> Option<String> {
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
