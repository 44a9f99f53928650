//! Nodes: they die, come back, are cut off, or are lost for good. Whoever is on a dead node ends with it; whoever is on
//! one that is cut off goes on, unseen.

use rand::RngExt;
use serde_json::json;

use super::agenda::{Event, PodEvent};
use super::pod_run::Stage;
use super::{World, name_of};
use crate::Millis;
use crate::apiserver::Kind;
use crate::apiserver::kind::{NODE, POD};
use crate::etcd::DiskId;
use crate::script::SECOND;

/// The label of a node that volumes are tied by.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub alive: bool,
    pub cut: bool,
    /// Counts its silences, so that a late reaction to an old one is recognised.
    pub silence: u64,
    /// Since when it has been reachable, or not.
    pub changed_at: Millis,
    /// Its clock, against the API server's.
    pub skew: i64,
}

impl Node {
    /// Whether the control plane, the operator and clients get through to it.
    pub fn is_reachable(&self) -> bool {
        self.alive && !self.cut
    }
}

impl World {
    /// A machine with a name nobody had before, and its object.
    pub(super) fn new_node(&mut self, name: String) -> Node {
        let most = i64::try_from(self.temper.clocks).unwrap_or_default();
        let skew = if most == 0 { 0 } else { self.rng.random_range(-most..=most) };
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { HOSTNAME: name } },
        });
        let now = self.now;
        let api = self.api.clone();
        let mut api = api.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = api.create(now, NODE, "", object, &mut self.rng);
        drop(api);
        self.tell_node(&name, "True");
        Node { name, alive: true, cut: false, silence: 0, changed_at: now, skew }
    }

    /// What the node controller says of a node.
    fn tell_node(&mut self, name: &str, ready: &str) {
        let at = super::wire(self.now);
        let conditions = json!([{ "type": "Ready", "status": ready, "reason": "Kubelet", "message": "", "lastTransitionTime": at }]);
        self.patch_status(NODE, name, &json!({ "status": { "conditions": conditions } }));
    }

    /// A moment as the kubelet of a node writes it.
    pub(super) fn kubelet_time(&self, node: Option<usize>, at: Millis) -> String {
        let skew = node.map_or(0, |n| self.nodes[n].skew);
        super::wire_signed(i64::try_from(at).unwrap_or_default() + skew)
    }

    /// Off and on again, faster than anybody notices.
    pub(super) fn reboot(&mut self, node: usize, back: Millis) {
        if !self.nodes[node].is_reachable() {
            return;
        }
        self.node_dies(node);
        let (at, silence) = (self.now + back, self.nodes[node].silence);
        self.agenda.put(at, Event::NodeUp(node, silence));
    }

    pub(super) fn node_up(&mut self, node: usize, silence: u64) {
        if self.nodes[node].silence == silence {
            self.node_returns(node);
        }
    }

    pub(super) fn node_dies(&mut self, node: usize) {
        if !self.nodes[node].alive {
            return;
        }
        self.note(|w| format!("node {} dies", w.nodes[node].name));
        self.nodes[node].alive = false;
        for uid in self.pods_on(node) {
            self.stop_process(&uid);
            if let Some(pod) = self.pods.get_mut(&uid)
                && pod.stage == Stage::Running
            {
                pod.stage = Stage::Backoff;
            }
        }
        self.falls_silent(node);
    }

    pub(super) fn node_cut(&mut self, node: usize) {
        if self.nodes[node].cut {
            return;
        }
        self.note(|w| format!("node {} is cut off", w.nodes[node].name));
        self.nodes[node].cut = true;
        self.wire_nodes();
        self.falls_silent(node);
    }

    fn falls_silent(&mut self, node: usize) {
        // Deleted by force, and the kubelet had not got to it yet.
        let forced = self.pods.values().filter(|p| p.node == Some(node) && p.object_gone);
        self.ledger.denied.extend(forced.map(|p| p.cluster.clone()));
        self.nodes[node].silence += 1;
        self.nodes[node].changed_at = self.now;
        let silence = self.nodes[node].silence;
        let noticed = self.now + self.within(10 * SECOND, 40 * SECOND);
        let drained = noticed + self.temper.node_patience;
        self.agenda.put(noticed, Event::NodeUnready(node, silence));
        self.agenda.put(drained, Event::NodeDrained(node, silence));
    }

    /// Back from death or from being cut off: the kubelet tells what it has and ends what should not be there.
    pub(super) fn node_returns(&mut self, node: usize) {
        if self.nodes[node].is_reachable() {
            return;
        }
        self.note(|w| format!("node {} is back", w.nodes[node].name));
        let rebooted = !self.nodes[node].alive;
        self.nodes[node].alive = true;
        self.nodes[node].cut = false;
        self.nodes[node].silence += 1;
        self.nodes[node].changed_at = self.now;
        self.wire_nodes();
        let name = self.nodes[node].name.clone();
        self.tell_node(&name, "True");
        for uid in self.pods_on(node) {
            let at = self.now + self.within(500, 8 * SECOND);
            let Some(pod) = self.pods.get(&uid) else { continue };
            if pod.terminating || pod.object_gone {
                self.agenda.put(at, Event::Pod(uid, PodEvent::Terminate));
            } else if rebooted && matches!(pod.stage, Stage::Backoff | Stage::Starting) {
                // tmpfs is empty after a reboot, and the kubelet starts the container again, in the same Pod.
                self.lose_memory(&uid);
                self.restart_counted(&uid);
                let named = at + self.within(0, 30 * SECOND);
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.hidden_until = named;
                }
                self.agenda.put(at, Event::Pod(uid, PodEvent::Start));
            } else {
                self.agenda.put(at, Event::Pod(uid, PodEvent::Probe));
            }
        }
    }

    /// A machine that never comes back, with everything on it; another one takes its place.
    pub(super) fn node_lost(&mut self, node: usize) {
        self.node_dies(node);
        self.note(|w| format!("node {} is lost for good", w.nodes[node].name));
        for uid in self.pods_on(node) {
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.node = None;
                pod.stage = Stage::Lost;
            }
            self.lose_memory(&uid);
        }
        // What was to be made there, and is not bound yet, is made somewhere else.
        let unbound = |d: &&mut super::volumes::Disk| d.node == Some(node) && d.bound_at.is_none();
        self.disks.values_mut().filter(unbound).for_each(|disk| disk.node = None);
        let gone: Vec<DiskId> =
            self.disks.iter().filter(|(_, d)| d.node == Some(node)).map(|(id, _)| id.clone()).collect();
        for disk in gone {
            self.lose_disk(&disk, "its node is lost");
            if let Some(known) = self.disks.get_mut(&disk) {
                known.unreachable = true;
            }
        }
        self.generation += 1;
        let (old, silence) = (self.nodes[node].name.clone(), self.nodes[node].silence);
        self.delete_object(NODE, &old, None, None, true);
        let name = format!("node-{node}-{}", self.generation);
        self.nodes[node] = Node { silence, ..self.new_node(name) };
        self.wire_nodes();
    }

    /// The node controller takes the readiness of Pods that nobody has heard of.
    pub(super) fn node_unready(&mut self, node: usize, silence: u64) {
        if self.nodes[node].silence != silence && !self.has_lost_pods() {
            return;
        }
        if !self.nodes[node].is_reachable() {
            let name = self.nodes[node].name.clone();
            self.tell_node(&name, "Unknown");
        }
        for uid in self.pods_on(node).into_iter().chain(self.lost_pods()) {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            pod.ready = false;
            let name = pod.name.clone();
            self.doubt(&uid, &name);
        }
    }

    /// The node controller knows nothing of containers, and has a clock of its own.
    fn doubt(&mut self, uid: &str, name: &str) {
        let Some(mut conditions) = self.object(POD, name).map(|pod| pod["status"]["conditions"].clone())
        else {
            return;
        };
        let at = self.kubelet_time(None, self.now);
        for condition in conditions.as_array_mut().into_iter().flatten() {
            if condition["type"] == "Ready" && condition["status"] == "True" {
                condition["status"] = json!("False");
                condition["lastTransitionTime"] = json!(at);
            }
        }
        let status = json!({ "conditions": conditions });
        self.patch_status(POD, name, &json!({ "metadata": { "uid": uid }, "status": status }));
    }

    /// The taint manager deletes the Pods of a node that stays silent. Nobody is there to end them.
    pub(super) fn node_drained(&mut self, node: usize, silence: u64) {
        let mut doomed = self.lost_pods();
        if self.nodes[node].silence == silence && !self.nodes[node].is_reachable() {
            doomed.extend(self.pods_on(node));
        }
        for uid in doomed {
            let Some(name) = self.pods.get(&uid).map(|p| p.name.clone()) else { continue };
            self.note(|_| format!("Pod {name} is deleted, its node is silent"));
            self.delete_object(POD, &name, Some(&uid), None, false);
        }
        // The Pod garbage collector ends what is bound to a node that does not exist.
        for uid in self.lost_pods() {
            if let Some(name) = self.pods.get(&uid).map(|p| p.name.clone()) {
                self.delete_object(POD, &name, Some(&uid), None, true);
            }
        }
    }

    fn lost_pods(&self) -> Vec<String> {
        self.pods
            .iter()
            .filter(|(_, p)| p.stage == Stage::Lost && !p.object_gone)
            .map(|(u, _)| u.clone())
            .collect()
    }

    fn has_lost_pods(&self) -> bool {
        self.pods.values().any(|p| p.stage == Stage::Lost && !p.object_gone)
    }

    pub(super) fn pods_on(&self, node: usize) -> Vec<String> {
        self.pods.iter().filter(|(_, p)| p.node == Some(node)).map(|(uid, _)| uid.clone()).collect()
    }

    pub(super) fn link_cut(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.note(|w| format!("the link between {} and {} is cut", w.nodes[a].name, w.nodes[b].name));
        self.cut_links.insert((a.min(b), a.max(b)));
        self.wire_nodes();
    }

    /// Tells the network between etcd processes what is connected.
    pub(super) fn wire_nodes(&mut self) {
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                let broken = self.nodes[a].cut || self.nodes[b].cut || self.cut_links.contains(&(a, b));
                let (left, right) = (self.nodes[a].name.clone(), self.nodes[b].name.clone());
                if broken {
                    self.etcds.cut(&left, &right);
                } else {
                    self.etcds.heal(&left, &right);
                }
            }
        }
    }

    /// Everything that was broken and can be mended is mended.
    pub(super) fn calm_nodes(&mut self) {
        self.cut_links.clear();
        for node in 0..self.nodes.len() {
            self.node_returns(node);
        }
        self.wire_nodes();
        // Whatever was lost with a node for good is cleared away by the control plane in the end.
        let node = 0;
        let silence = self.nodes[node].silence;
        let at = self.now + 40 * SECOND;
        self.agenda.put(at, Event::NodeUnready(node, silence));
        self.agenda.put(at + self.temper.node_patience, Event::NodeDrained(node, silence));
    }

    /// A node for a Pod: alive, and with as few of the cluster's Pods as possible.
    pub(super) fn choose_node(&mut self, bound_to: Option<usize>) -> Option<usize> {
        if self.now < self.control.no_room_until {
            return None;
        }
        if let Some(node) = bound_to {
            return self.nodes[node].is_reachable().then_some(node);
        }
        let load = |n: usize| self.pods.values().filter(|p| p.node == Some(n)).count();
        let mut fit: Vec<(usize, usize)> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].is_reachable()).map(|n| (load(n), n)).collect();
        fit.sort_unstable();
        let least = fit.first()?.0;
        fit.retain(|(load, _)| *load == least);
        let chosen = self.within(0, fit.len() as u64 - 1) as usize;
        Some(fit[chosen].1)
    }

    /// The scheduler says that it found no place.
    pub(super) fn mark_unschedulable(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.unschedulable_since.is_some() {
            return;
        }
        pod.unschedulable_since = Some(self.now);
        let (name, at) = (pod.name.clone(), super::wire(self.now));
        let condition = json!([{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at,
        }]);
        self.note(|_| format!("Pod {name} fits no node"));
        let patch =
            json!({ "metadata": { "uid": uid }, "status": { "phase": "Pending", "conditions": condition } });
        self.patch_status(POD, &name, &patch);
    }

    /// The name of a random object of a kind, for an incident.
    pub(super) fn picked(&self, kind: Kind, pick: usize) -> Option<String> {
        let all = self.objects(kind);
        (!all.is_empty()).then(|| name_of(&all[pick % all.len()]))
    }
}
