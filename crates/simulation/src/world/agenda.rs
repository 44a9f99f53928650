//! What will happen, and when. Two things at the same moment happen in the order they were put down.

use std::collections::BTreeMap;

use operator::runtime::cache::Key;

use crate::Millis;

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub enum Event {
    /// etcd's own time goes on.
    Tick,
    /// A client writes.
    Write,
    /// The garbage collector comes by.
    Collect,
    /// An entry of the script.
    Incident(usize),
    /// All standing faults are lifted.
    Calm,
    Pod(String, PodEvent),
    /// A claim gets its volume.
    Bind(String),
    /// A silent node is noticed; the number tells one silence from the next.
    NodeUnready(usize, u64),
    /// A silent node's Pods are deleted.
    NodeDrained(usize, u64),
    /// A cluster is made (again).
    Wish(usize),
    /// A container is killed once more.
    Kill(String),
    /// Somebody undoes a patch of the operator's.
    Undo(usize),
    /// A node is up again.
    NodeUp(usize, u64),
    /// An operator goes on with a cluster.
    Operator(usize, Key),
    /// A watch of an operator delivers.
    Watch(usize, usize),
    /// A replica of the operator starts and leads.
    Lead,
    /// A replica of the operator ends.
    End(usize),
    /// A call arrives that nobody waits for any more.
    Late(u64),
}

/// What the kubelet and the scheduler do to a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodEvent {
    Schedule,
    Start,
    Probe,
    Terminate,
}

/// What is still to come, by its time.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    entries: BTreeMap<(Millis, u64), Event>,
    serial: u64,
}

impl Agenda {
    pub fn put(&mut self, at: Millis, event: Event) {
        self.serial += 1;
        self.entries.insert((at, self.serial), event);
    }

    pub fn next_at(&self) -> Option<Millis> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn pop(&mut self) -> Option<(Millis, Event)> {
        self.entries.pop_first().map(|((at, _), event)| (at, event))
    }

    /// Strikes out what does not matter any more.
    pub fn strike(&mut self, gone: impl Fn(&Event) -> bool) {
        self.entries.retain(|_, event| !gone(event));
    }
}
