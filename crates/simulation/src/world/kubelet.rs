//! The kubelet: a Pod that has a node waits for its volume, starts etcd, is probed, is started again with growing
//! pauses when etcd ends, and ends when its object is deleted. All of it takes time, and none of it happens on a node
//! that is dead.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::World;
use super::agenda::{Event, PodEvent};
use super::pod_run::{PodRun, Stage};
use crate::Millis;
use crate::apiserver::kind::{ETCD_CLUSTER, ETCD_MEMBER, POD};
use crate::etcd::{Flags, ProcessId};
use crate::invariants::Violation;
use crate::script::{MINUTE, SECOND};

/// A container that ran this long starts afresh with its pauses.
const FORGIVEN: Millis = 10 * MINUTE;
/// Failed probes in a row that cost readiness.
const PROBE_FAILURES: u32 = 3;

impl World {
    /// A Pod was created.
    pub(super) fn pod_appears(&mut self, object: &Value) {
        let Ok(pod) = serde_json::from_value::<Pod>(object.clone()) else { return };
        let Some(run) = PodRun::new(&pod) else { return };
        let uid = run.uid.clone();
        self.pods.insert(uid.clone(), run);
        let at = self.now + self.within(5, 200);
        self.agenda.put(at, Event::Pod(uid, PodEvent::Schedule));
    }

    /// A Pod is to end.
    pub(super) fn pod_is_deleted(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if std::mem::replace(&mut pod.terminating, true) {
            return;
        }
        let at = self.now + self.within(50, 2500);
        self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Terminate));
    }

    /// A Pod's object is gone; the process may not be.
    pub(super) fn pod_disappears(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.object_gone = true;
        if pod.process.is_none() {
            self.forget_pod(uid);
        } else {
            let at = self.now + self.within(50, 3000);
            self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Terminate));
        }
    }

    pub(super) fn pod_event(&mut self, uid: &str, event: PodEvent) {
        match event {
            PodEvent::Schedule => self.schedule(uid),
            PodEvent::Start => self.start(uid),
            PodEvent::Probe => self.probe(uid),
            PodEvent::Terminate => self.terminate(uid),
        }
    }

    fn start(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        let ready =
            matches!(pod.stage, Stage::Starting | Stage::Backoff) && !pod.terminating && !pod.object_gone;
        let (Some(node), Some(disk)) = (pod.node, pod.disk.clone()) else { return };
        // A node that is dead starts nothing; when it is back, it looks again.
        if !ready || !self.nodes[node].alive || pod.process.is_some() {
            return;
        }
        if self.is_attached_elsewhere(&disk, uid) || !self.is_bound(&disk, uid) {
            let at = self.now + SECOND;
            self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Start));
            return;
        }
        let command = self.command_line(pod);
        let is_withdrawn =
            |flag: &String| flag.strip_prefix("--initial-cluster-state=") == Some(planner::WITHDRAWN);
        let flags = match Flags::parse(&command) {
            Ok(flags) => Flags { version: pod.version, ..flags },
            // Told not to start: etcd complains of the word, and ends.
            Err(why) if command.iter().any(is_withdrawn) => {
                let now = self.now;
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.stage = Stage::Running;
                    pod.started_at = now;
                }
                self.container_ends(uid, &why);
                return;
            }
            Err(why) => {
                self.broken_model = Some(format!("a Pod's command line can not be read: {why}"));
                return;
            }
        };
        let process = ProcessId(format!("{uid}/{}", pod.restarts));
        let host = self.nodes[node].name.clone();
        self.note(|w| {
            let pod = &w.pods[uid];
            format!(
                "kubelet starts {} on {host} (restart {}, {:?})",
                pod.name, pod.restarts, flags.initial_cluster_state
            )
        });
        self.starts_on(&disk);
        self.etcds.start(self.now, process.clone(), &host, flags, disk);
        if let Some(until) = self.pods.get(uid).map(|p| p.hidden_until).filter(|until| *until > self.now) {
            self.etcds.hide(&process, until);
        }
        if self.pods.get(uid).is_some_and(PodRun::has_fixed_flags) {
            self.ledger.fixed_pods.insert(uid.to_owned());
        }
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.process = Some(process);
            pod.stage = Stage::Running;
            pod.started_at = self.now;
            pod.failed_probes = 0;
        }
        self.write_pod_status(uid);
        let at = self.now + self.within(200, 1200);
        self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Probe));
    }

    /// The command with its variables filled in as they are now.
    fn command_line(&self, pod: &PodRun) -> Vec<String> {
        let object = self.object(POD, &pod.name);
        let annotation = |key: &str| {
            let value = object
                .as_ref()
                .and_then(|o| o["metadata"]["annotations"].get(key)?.as_str().map(str::to_owned));
            value.unwrap_or_default()
        };
        let filled = |flag: &String| {
            let fill = |flag: String, (name, key): &(String, String)| {
                flag.replace(&format!("$({name})"), &annotation(key))
            };
            pod.environment.iter().fold(flag.clone(), fill)
        };
        pod.command.iter().map(filled).collect()
    }

    /// A container that ended with its machine counts as restarted.
    pub(super) fn restart_counted(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get_mut(uid)
            && pod.stage == Stage::Backoff
        {
            pod.restarts += 1;
            pod.ready = false;
        }
        self.write_pod_status(uid);
    }

    fn probe(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid).filter(|p| p.stage == Stage::Running && !p.object_gone) else {
            return;
        };
        let (Some(node), Some(process)) = (pod.node, pod.process.clone()) else { return };
        // When the node is back, probing begins again.
        if !self.nodes[node].is_reachable() {
            return;
        }
        let healthy = self.etcds.healthy_excluding_no_space(&process);
        let now = self.now;
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let healthy = healthy && now >= pod.flaps_until;
        pod.failed_probes = if healthy { 0 } else { pod.failed_probes + 1 };
        let ready = healthy || (pod.ready && pod.failed_probes < PROBE_FAILURES);
        let period = if pod.ready || ready { 5 * SECOND } else { SECOND };
        if ready != pod.ready {
            pod.ready = ready;
            self.write_pod_status(uid);
        }
        let at = self.now + period;
        self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Probe));
    }

    fn terminate(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        let (name, object_gone) = (pod.name.clone(), pod.object_gone);
        if !(pod.terminating || object_gone) || pod.node.is_some_and(|n| !self.nodes[n].is_reachable()) {
            return;
        }
        self.stop_process(uid);
        if object_gone {
            self.forget_pod(uid);
        } else {
            self.delete_object(POD, &name, Some(uid), None, true);
        }
    }

    /// SIGKILL, or the end of the machine.
    pub(super) fn stop_process(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if let Some(process) = pod.process.take() {
            let name = pod.name.clone();
            self.note(|_| format!("etcd of {name} is stopped"));
            self.etcds.stop(self.now, &process);
        }
    }

    fn forget_pod(&mut self, uid: &str) {
        self.lose_memory(uid);
        if let Some(pod) = self.pods.remove(uid)
            && let Some(ip) = pod.ip
            // It may have ended before, and somebody else may have its address by now.
            && !self.free_addresses.contains(&ip)
            && !self.pods.values().any(|other| other.ip.as_ref() == Some(&ip))
        {
            self.free_addresses.push(ip);
        }
    }

    /// What a Pod had in memory goes with it.
    pub(super) fn lose_memory(&mut self, uid: &str) {
        let disk = self.pods.get(uid).filter(|p| p.is_memory()).and_then(|p| p.disk.clone());
        if let Some(disk) = disk {
            self.lose_disk(&disk, "its Pod is gone");
        }
    }

    /// etcd ended by itself, with these words.
    pub(super) fn etcd_exits(&mut self, process: &ProcessId, words: &str) {
        let Some(uid) =
            self.pods.values().find(|p| p.process.as_ref() == Some(process)).map(|p| p.uid.clone())
        else {
            return;
        };
        self.container_ends(&uid, words);
    }

    pub(super) fn container_ends(&mut self, uid: &str, words: &str) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(uid).filter(|p| p.stage == Stage::Running) else { return };
        pod.process = None;
        if now.saturating_sub(pod.started_at) > FORGIVEN {
            pod.backoff = 0;
        }
        // The first restart is immediate.
        let pause = pod.backoff;
        let (first, longest) = self.temper.backoff;
        pod.backoff = if pause == 0 { first } else { (pause * 2).min(longest) };
        pod.pause = pause;
        pod.ended_at = now;
        pod.restarts += 1;
        pod.stage = Stage::Backoff;
        pod.ready = false;
        pod.last_words = Some(words.to_owned());
        let (name, cluster) = (pod.name.clone(), pod.cluster.clone());
        self.note(|_| format!("etcd of {name} ends: {words}"));
        // T13: each restart waits longer, and the fifth costs the member.
        let undisturbed = self.ledger.undisturbed_since.is_some_and(|since| now - since > MINUTE);
        // A member that is cut off has an old list to tell, and what has no label is not seen.
        let undisturbed = undisturbed && self.etcds.network_is_whole() && self.ledger.unlabelled.is_empty();
        let serves = |id: Option<u64>| id.is_some_and(|id| self.etcds.quorum_serves(id));
        // Of two clusters under the same ids, one has another list to tell; it takes a person to decide.
        let disagree = self.object(ETCD_CLUSTER, &cluster).is_some_and(|c| {
            crate::invariants::condition(&c, api::conditions::AVAILABLE)
                .is_some_and(|(_, reason)| reason == api::conditions::reason::MEMBERS_DISAGREE)
        });
        let undisturbed = undisturbed && !disagree && !self.etcds.formations().iter().any(|f| f.impostor);
        // A Pod that its user told to stay when its member went is theirs.
        // So is one whose member somebody else's finalizer keeps.
        let kept = |m: &Value| {
            let finalizers = m["metadata"]["finalizers"].as_array();
            let ours = finalizers.is_some_and(|all| all.iter().any(|f| f == api::labels::FINALIZER));
            m["metadata"]["deletionTimestamp"].is_null() || ours
        };
        let looked_after = self.object(ETCD_MEMBER, &name).is_some_and(|member| kept(&member))
            && self.ledger.clusters.values().any(|c| c.name == cluster && c.lives() && serves(c.id));
        if words.contains("unequal")
            && undisturbed
            && looked_after
            // A list in fixed flags is its maker's, and nobody can change it.
            && let Some(pod) = self.pods.get_mut(uid).filter(|pod| !pod.has_fixed_flags())
        {
            pod.refused += 1;
            if pod.refused == 1 {
                pod.refused_since = now;
            }
            if pod.refused > 3 && now - pod.refused_since > MINUTE {
                let what = format!("{name} was started {} times with a list that is not etcd's", pod.refused);
                self.ledger.violate(Violation::new(8, what));
            }
        }
        self.write_pod_status(uid);
        let at = now + pause + self.within(100, 800);
        self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Start));
    }

    /// Evicted, or shut down with its node: the Pod stays as Failed.
    pub(super) fn end_pod(&mut self, uid: &str, reason: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        if matches!(pod.stage, Stage::Ended | Stage::Lost | Stage::Waiting) || pod.object_gone {
            return;
        }
        let name = pod.name.clone();
        self.note(|_| format!("Pod {name} ends as Failed: {reason}"));
        self.stop_process(uid);
        self.lose_memory(uid);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.stage = Stage::Ended;
            pod.ready = false;
            pod.last_words = Some(reason.to_owned());
            // Its status goes on to name the address, which the next Pod may get.
            self.free_addresses.extend(pod.ip.clone());
        }
        self.write_pod_status(uid);
    }

    /// What the kubelet tells the API server of a Pod.
    pub(super) fn write_pod_status(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid).filter(|p| !p.object_gone) else { return };
        let name = pod.name.clone();
        let phase = match pod.stage {
            Stage::Waiting | Stage::Starting => "Pending",
            Stage::Ended => "Failed",
            _ => "Running",
        };
        let state = match pod.stage {
            Stage::Running => {
                json!({ "running": { "startedAt": self.kubelet_time(pod.node, pod.started_at) } })
            }
            Stage::Ended => json!({ "terminated": { "exitCode": 137, "reason": "Error" } }),
            // The first restart is immediate: nobody waits.
            Stage::Backoff if pod.pause == 0 => json!({ "terminated": { "exitCode": 1, "reason": "Error" } }),
            Stage::Backoff => json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
            _ => json!({ "waiting": { "reason": "ContainerCreating" } }),
        };
        let at = self.kubelet_time(pod.node, self.now);
        // When a condition turned, not when it was last written.
        let before = self.object(POD, &name).map(|known| known["status"]["conditions"].clone());
        let condition = |type_: &str, on: bool| {
            let status = if on { "True" } else { "False" };
            let mut told = before.iter().filter_map(Value::as_array).flatten();
            let same = told.find(|c| c["type"] == type_ && c["status"] == status);
            let since = same.map_or_else(|| json!(at), |known| known["lastTransitionTime"].clone());
            json!({ "type": type_, "status": status, "lastTransitionTime": since })
        };
        let last = (pod.restarts > 0).then(|| {
            let at = self.kubelet_time(pod.node, pod.ended_at);
            let began = self.kubelet_time(pod.node, pod.started_at.min(pod.ended_at));
            json!({ "terminated": { "exitCode": 1, "reason": "Error", "startedAt": began, "finishedAt": at } })
        });
        let status = json!({
            "phase": phase,
            "podIP": if pod.stage == Stage::Starting { Value::Null } else { json!(pod.ip) },
            "conditions": [
                condition("PodScheduled", true),
                condition("Initialized", true),
                condition("Ready", pod.ready),
            ],
            "containerStatuses": [{
                "name": "etcd", "ready": pod.ready, "restartCount": pod.restarts,
                "image": "", "imageID": "", "state": state, "lastState": last,
            }],
        });
        self.patch_status(POD, &name, &json!({ "metadata": { "uid": uid }, "status": status }));
    }
}
