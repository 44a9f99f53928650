//! Who votes, as raft itself sees it. Raft learns its members from the log, again at every start, and only as far as the
//! log is known to be committed. etcd writes down how far that is when it has something else to write. So a process
//! that is killed can come back with the configuration of before the last change, while its own list already has it: a
//! leader that was alone and added a voter elects itself once more, alone.

use std::collections::BTreeMap;

use super::store::{Change, Entry};

#[derive(Clone, Debug, Default)]
pub(super) struct Config {
    /// How much of the log this comes from.
    pub index: u64,
    /// The index of the last change.
    pub changed: u64,
    /// By id, whether it is a learner.
    members: BTreeMap<u64, bool>,
}

impl Config {
    pub fn of(index: u64, members: impl Iterator<Item = (u64, bool)>) -> Self {
        Self { index, changed: index, members: members.collect() }
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.members.keys().copied()
    }

    pub fn voters(&self) -> impl Iterator<Item = u64> {
        self.members.iter().filter(|(_, learner)| !**learner).map(|(&id, _)| id)
    }

    pub fn is_voter(&self, id: u64) -> bool {
        self.members.get(&id) == Some(&false)
    }

    pub fn contains(&self, id: u64) -> bool {
        self.members.contains_key(&id)
    }

    pub fn quorum(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// Takes the next entry in. One that etcd has rejected changes nothing.
    pub fn apply(&mut self, entry: &Entry, rejected: bool) {
        self.index += 1;
        if rejected || !entry.change.is_membership() {
            return;
        }
        self.changed = self.index;
        match &entry.change {
            Change::Add { id, row } => {
                self.members.insert(*id, row.learner);
            }
            Change::Promote(id) => {
                self.members.insert(*id, false);
            }
            Change::Remove(id) => {
                self.members.remove(id);
            }
            _ => {}
        }
    }
}
