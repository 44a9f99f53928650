//! Clients that write all the time, to whichever voter their Service leads them to, and read back what was acknowledged.

use super::World;
use super::agenda::Event;
use super::kubelet::Stage;
use crate::etcd::{ProcessId, PutResult};

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

    /// Processes behind the client Service of a cluster: ready Pods that can be reached.
    fn endpoints(&self, cluster: &str) -> Vec<ProcessId> {
        let ready = self.pods.values().filter(|p| {
            p.cluster == cluster && p.ready && p.stage == Stage::Running && !p.object_gone && !p.terminating
        });
        let reachable = ready.filter(|p| p.node.is_some_and(|n| self.nodes[n].is_reachable()));
        reachable.filter_map(|p| p.process.clone()).collect()
    }
}
