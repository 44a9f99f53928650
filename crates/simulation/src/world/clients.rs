//! Clients that write all the time, to whichever voter their Service leads them to, and read back what was acknowledged.

use std::collections::BTreeSet;

use api::labels;
use serde_json::json;

use super::World;
use super::agenda::Event;
use super::pod_run::{PodRun, Stage};
use crate::apiserver::kind::{ETCD_MEMBER, POD};
use crate::etcd::{ProcessId, PutResult};
use crate::invariants::Violation;

impl World {
    pub(super) fn client_writes(&mut self) {
        let at = self.now + self.temper.write_period;
        self.agenda.put(at, Event::Write);
        for index in 0..self.script.clusters.len() {
            let cluster = self.script.clusters[index].name.clone();
            let reachable = self.endpoints(&cluster);
            if reachable.is_empty() {
                continue;
            }
            self.one_cluster(&cluster, &reachable);
            let chosen = self.within(0, reachable.len() as u64 - 1) as usize;
            self.key += 1;
            let (now, key) = (self.now, self.key);
            if self.disarm {
                self.etcds.disarm(now, &reachable[chosen]);
            }
            match self.etcds.put(now, &reachable[chosen], key) {
                PutResult::Acknowledged => self.ledger.acknowledged += 1,
                PutResult::Failed | PutResult::Unknown => self.ledger.unanswered += 1,
            }
        }
    }

    /// Processes behind the client Service of a cluster: ready Pods with its labels that can be reached.
    fn endpoints(&self, cluster: &str) -> Vec<ProcessId> {
        let ready = self.pods.values().filter(|p| {
            p.ready
                && p.stage == Stage::Running
                && !p.object_gone
                && !p.terminating
                && self.serves(p, cluster)
        });
        let reachable = ready.filter(|p| p.node.is_some_and(|n| self.nodes[n].is_reachable()));
        reachable.filter_map(|p| p.process.clone()).collect()
    }

    /// Whether the Service's selector finds the Pod.
    fn serves(&self, pod: &PodRun, cluster: &str) -> bool {
        let Some(object) = self.object(POD, &pod.name) else { return false };
        let labels = &object["metadata"]["labels"];
        labels.get(labels::CLUSTER) == Some(&json!(cluster))
            && labels.get(labels::ROLE) == Some(&json!(labels::VOTER))
    }

    /// Rule 5: behind one Service there is one etcd cluster. Pods that somebody gave another label are their own doing.
    fn one_cluster(&mut self, name: &str, reachable: &[ProcessId]) {
        let touched = |process: &&ProcessId| {
            let pod = self.pods.values().find(|p| p.process.as_ref() == Some(process));
            let relabelled =
                |name: &str| self.ledger.unlabelled.iter().any(|(kind, n)| *kind == POD && n == name);
            // So is one that they told to stay when its member went.
            pod.is_some_and(|p| relabelled(&p.name) || self.object(ETCD_MEMBER, &p.name).is_none())
        };
        let own = reachable.iter().filter(|p| !touched(p));
        let ids: BTreeSet<u64> =
            own.filter_map(|p| self.etcds.identity(p)).map(|(cluster, _)| cluster).collect();
        if ids.len() > 1 {
            let what = format!("clients of {name} reach {} etcd clusters behind one Service", ids.len());
            self.ledger.violate(Violation::new(5, what));
        }
    }
}
