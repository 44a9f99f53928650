//! Users' reads and writes. A key stands for one write: nobody writes the same one twice.

use super::raft::Proposed;
use super::store::Change;
use super::{Etcds, Millis, ProcessId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// Committed by a majority of the leader's configuration. It must never be lost again.
    Acknowledged,
    /// Nothing was written.
    Failed,
    /// No answer: it may be written, now or later.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetResult {
    Found,
    Missing,
    Failed,
}

impl Etcds {
    pub fn put(&mut self, now: Millis, via: &ProcessId, key: u64) -> PutResult {
        self.advance(now);
        let Some(at) = self.index(via) else { return PutResult::Failed };
        let process = &self.processes[at];
        if !process.serves() || process.is_learner() || !process.data.state.no_space.is_empty() {
            return PutResult::Failed;
        }
        let member = process.member();
        if self.disks.get(&process.disk).is_some_and(|disk| disk.full) {
            self.propose(at, Change::NoSpace(member));
            return PutResult::Failed;
        }
        match self.propose(at, Change::Put(key)) {
            Proposed::Applied(_) => {
                if let Some(at) = self.index(via) {
                    self.audit.acknowledge(&self.processes[at].data, key);
                }
                PutResult::Acknowledged
            }
            Proposed::Unknown => PutResult::Unknown,
            Proposed::Dropped => PutResult::Failed,
        }
    }

    /// A serializable read is answered from what the member has itself, also by learners and without a quorum.
    pub fn get(&mut self, now: Millis, via: &ProcessId, key: u64, linearizable: bool) -> GetResult {
        self.advance(now);
        let Some(at) = self.index(via).filter(|&at| self.processes[at].serves()) else {
            return GetResult::Failed;
        };
        if linearizable && (self.processes[at].is_learner() || !self.read_index(at)) {
            return GetResult::Failed;
        }
        match self.index(via) {
            Some(at) if self.processes[at].data.state.keys.contains(key) => GetResult::Found,
            Some(_) => GetResult::Missing,
            None => GetResult::Failed,
        }
    }

    /// Lifts NOSPACE; whether that was carried out. It comes back if the disk is still full.
    pub fn disarm(&mut self, now: Millis, via: &ProcessId) -> bool {
        self.advance(now);
        let Some(at) = self.index(via).filter(|&at| self.processes[at].serves()) else { return false };
        matches!(self.propose(at, Change::Disarm), Proposed::Applied(_))
    }
}
