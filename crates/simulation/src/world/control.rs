//! What stands between the operator and the API server besides failures: quotas, policies and webhooks that refuse, others
//! that undo what it has done, kubelets that take no Pod, and a predecessor's way of making Pods.

use api::labels::{self, annotation};
use serde_json::{Value, json};

use super::agenda::Event;
use super::{World, name_of, namespace};
use crate::Millis;
use crate::apiserver::kind::{BUDGET, POD, SERVICE};
use crate::apiserver::{ApiError, Kind};
use crate::script::{MINUTE, Verb};

/// Pods that the predecessor made are made in this time; then the operator takes over.
const BEFORE: Millis = 45_000;

/// Standing faults; all of them are lifted at the end.
#[derive(Clone, Debug, Default)]
pub struct Control {
    refusals: Vec<Refusal>,
    reverts: Vec<Revert>,
    undone: Vec<(Kind, Value)>,
    pub fails_pods_until: Millis,
    pub no_room_until: Millis,
    /// Clusters whose etcd the operator can not reach, and until when.
    pub shut: Vec<(String, Millis)>,
}

#[derive(Clone, Debug)]
struct Refusal {
    kind: Kind,
    verb: Verb,
    only: Option<String>,
    until: Millis,
}

#[derive(Clone, Debug)]
struct Revert {
    kind: Kind,
    name: String,
    late: bool,
    until: Millis,
}

/// What becomes of a call on its way through admission.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    Pass,
    Refused(ApiError),
    /// Answered as if it had been carried out, but nothing is changed.
    Undone(Value),
}

impl Control {
    /// Whether anything is refused or undone now.
    pub fn is_disturbed(&self, now: Millis) -> bool {
        self.refusals.iter().any(|r| now < r.until)
            || self.reverts.iter().any(|r| now < r.until)
            || self.shut.iter().any(|(_, until)| now < *until)
    }

    /// Whether this is refused now, for anybody.
    pub fn refuses(&self, now: Millis, kind: Kind, verb: Verb) -> bool {
        self.refusals.iter().any(|r| now < r.until && r.kind == kind && r.verb == verb)
    }
}

impl World {
    pub(super) fn refuse(&mut self, kind: Kind, verb: Verb, only: Option<usize>, lasts: Millis) {
        let only = only.and_then(|pick| self.picked(kind, pick));
        let until = self.now + lasts;
        self.control.refusals.push(Refusal { kind, verb, only, until });
    }

    /// Changes one object of a kind, and keeps it that way.
    pub(super) fn revert(&mut self, kind: usize, pick: usize, late: bool, lasts: Millis) {
        let kind = [SERVICE, POD, BUDGET][kind % 3];
        let Some(name) = self.picked(kind, pick) else { return };
        let Some(object) = self.object(kind, &name) else { return };
        let tampered = match kind {
            SERVICE => json!({ "spec": { "selector": { "tampered": "yes" } } }),
            POD => {
                let votes = object["metadata"]["labels"].get(labels::ROLE).is_some();
                let role = if votes { Value::Null } else { json!(labels::VOTER) };
                json!({ "metadata": { "labels": { labels::ROLE: role } } })
            }
            _ => {
                let kept = object["spec"]["minAvailable"].as_u64().unwrap_or_default();
                json!({ "spec": { "minAvailable": kept + 1 } })
            }
        };
        self.patch_object(kind, &name, &tampered);
        let until = self.now + lasts;
        self.control.reverts.push(Revert { kind, name, late, until });
    }

    /// What admission makes of a call of the operator.
    pub fn admit(&mut self, kind: Kind, verb: Verb, name: &str) -> Admission {
        let now = self.now;
        let refuses = |r: &&Refusal| {
            now < r.until && r.kind == kind && r.verb == verb && r.only.as_deref().is_none_or(|n| n == name)
        };
        if self.control.refusals.iter().any(|r| refuses(&r)) {
            let error = if verb == Verb::Create {
                ApiError::over_quota(kind, name)
            } else {
                ApiError::denied(kind, name)
            };
            return Admission::Refused(error);
        }
        let reverts = |r: &&Revert| now < r.until && r.kind == kind && r.name == name;
        let Some(revert) = self.control.reverts.iter().find(reviewed(verb, reverts)).cloned() else {
            return Admission::Pass;
        };
        let Some(present) = self.object(kind, name) else { return Admission::Pass };
        if !revert.late {
            return Admission::Undone((*present).clone());
        }
        self.control.undone.push((kind, (*present).clone()));
        let number = self.control.undone.len() - 1;
        let at = now + self.within(30, 600);
        self.agenda.put(at, Event::Undo(number));
        Admission::Pass
    }

    /// Brings back what was there before a patch of the operator's.
    pub(super) fn undo(&mut self, number: usize) {
        let Some((kind, old)) = self.control.undone.get(number).cloned() else { return };
        let name = name_of(&old);
        let patch = match kind {
            SERVICE => json!({ "spec": { "selector": old["spec"]["selector"] } }),
            POD => {
                let role = old["metadata"]["labels"].get(labels::ROLE).cloned().unwrap_or_default();
                json!({ "metadata": { "labels": { labels::ROLE: role } } })
            }
            _ => json!({ "spec": { "minAvailable": old["spec"]["minAvailable"] } }),
        };
        self.patch_object(kind, &name, &patch);
    }

    /// A Pod as the predecessor made it: its flags are fixed for its life, and it has no annotations of ours.
    pub fn as_made_before(&mut self, pod: Value) -> Value {
        let cluster = pod["metadata"]["labels"][labels::CLUSTER].as_str().unwrap_or_default().to_owned();
        let made = |w: &&crate::script::Wish| w.name == cluster && w.predecessor && self.now < w.at + BEFORE;
        if !self.script.clusters.iter().any(|w| made(&w)) || self.ledger.taken_over.contains(&cluster) {
            return pod;
        }
        let mut pod = pod;
        let annotations = pod["metadata"]["annotations"].take();
        let value = |key: &str| annotations[key].as_str().unwrap_or_default().to_owned();
        let (list, state) = (value(annotation::INITIAL_CLUSTER), value(annotation::INITIAL_CLUSTER_STATE));
        // A Pod of ours lets etcd have several learners, and then one of the predecessor's can not read etcd's log any more
        // before etcd has saved a snapshot: it does not come back.
        if list.is_empty() {
            self.ledger.taken_over.insert(cluster);
            pod["metadata"]["annotations"] = annotations;
            return pod;
        }
        for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
            if let Some(command) = container["command"].as_array_mut() {
                // One learner at a time: the predecessor knew no such flag.
                command.retain(|flag| !flag.as_str().is_some_and(|f| f.starts_with("--max-learners=")));
                for flag in command {
                    let text = flag.as_str().unwrap_or_default();
                    if text.starts_with("--initial-cluster=") {
                        *flag = json!(format!("--initial-cluster={list}"));
                    } else if text.starts_with("--initial-cluster-state=") {
                        *flag = json!(format!("--initial-cluster-state={state}"));
                    }
                }
                container["env"] = Value::Null;
            }
        }
        pod
    }
}

/// Only patches are undone.
fn reviewed<'a>(verb: Verb, reverts: impl Fn(&&'a Revert) -> bool) -> impl FnMut(&&'a Revert) -> bool {
    move |revert| verb == Verb::Patch && reverts(revert)
}

/// How often one object may be written in a minute, apart from its status. Whoever needs more repeats itself.
const TOO_OFTEN: usize = 40;

impl World {
    /// Rule 9: anything that is done again and again to the same object backs off.
    pub fn count_write(&mut self, kind: Kind, verb: Verb, name: &str) {
        if verb == Verb::Status {
            return;
        }
        let now = self.now;
        let times = self.ledger.writes.entry((kind, namespace(name), name.to_owned())).or_default();
        times.push_back(now);
        while times.front().is_some_and(|at| at + MINUTE < now) {
            times.pop_front();
        }
        if times.len() > TOO_OFTEN {
            let what = format!("{} {name} was written {} times in a minute", kind.kind, times.len());
            self.ledger.violate(crate::invariants::Violation::new(9, what));
        }
    }
}
