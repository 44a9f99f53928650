//! The scheduler: a Pod gets a node that takes it, and that its volume can be used on.

use super::agenda::{Event, PodEvent};
use super::pod_run::Stage;
use super::{World, namespace};
use crate::apiserver::kind::CLAIM;
use crate::etcd::DiskId;
use crate::script::SECOND;

impl World {
    pub(super) fn schedule(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid).filter(|p| p.stage == Stage::Waiting && !p.object_gone) else {
            return;
        };
        let (claim, too_much) = (pod.claim.clone(), pod.too_much);
        let again = |world: &mut Self| {
            world.mark_unschedulable(uid);
            let at = world.now + 2 * SECOND;
            world.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Schedule));
        };
        if too_much {
            return again(self);
        }
        let mut bound_to = None;
        let mut disk = DiskId(uid.to_owned());
        if let Some(claim) = &claim {
            let Some(object) = self.object(CLAIM, claim) else { return again(self) };
            if object["metadata"]["deletionTimestamp"].is_string() {
                return again(self);
            }
            disk = DiskId(object["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
            if self.disks.get(&disk).is_some_and(|d| d.unreachable) {
                return again(self);
            }
            bound_to = self.disks.get(&disk).and_then(|d| d.node);
        }
        let Some(node) = self.choose_node(bound_to) else { return again(self) };
        let ip = self.new_address();
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.node = Some(node);
            pod.stage = Stage::Starting;
            pod.unschedulable_since = None;
            pod.disk = Some(disk.clone());
            pod.ip = Some(ip);
        }
        if claim.is_some() {
            self.mount(&disk, node);
        }
        let host = self.nodes[node].name.clone();
        if let Some(name) = self.pods.get(uid).map(|p| p.name.clone()) {
            let _ = self.api().bind(self.now, namespace(&name), &name, &host);
        }
        self.write_pod_status(uid);
        if self.now < self.control.fails_pods_until {
            self.end_pod(uid, "OutOfcpu");
            return;
        }
        let at = self.now + self.within(300, self.temper.slowest_start);
        self.agenda.put(at, Event::Pod(uid.to_owned(), PodEvent::Start));
    }

    fn new_address(&mut self) -> String {
        if self.temper.reuses_addresses
            && let Some(ip) = self.free_addresses.pop()
        {
            return ip;
        }
        self.generation += 1;
        format!("10.{}.{}.{}", self.generation >> 16 & 255, self.generation >> 8 & 255, self.generation & 255)
    }
}
