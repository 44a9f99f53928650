//! What one member has on its disk: identity, hard state, log, and the state that the committed log has led to. A log
//! keeps its recent entries only; a follower that needs older ones is sent the state instead, as etcd sends a snapshot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::config::Config;

/// Entries that stay in the log after they were applied, for followers that lag a little.
const CATCH_UP: usize = 64;

/// A set of keys, as ranges: clients count upwards, so that the set stays small however long a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(BTreeMap<u64, u64>);

impl Keys {
    pub fn contains(&self, key: u64) -> bool {
        self.0.range(..=key).next_back().is_some_and(|(_, &end)| key <= end)
    }

    pub fn insert(&mut self, key: u64) {
        if self.contains(key) {
            return;
        }
        let before = key.checked_sub(1).and_then(|k| self.0.range(..=k).next_back().map(|(&s, &e)| (s, e)));
        let start = match before {
            Some((start, end)) if end.checked_add(1) == Some(key) => start,
            _ => key,
        };
        let end = key.checked_add(1).and_then(|next| self.0.remove(&next)).unwrap_or(key);
        self.0.insert(start, end);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|(&start, &end)| start..=end)
    }

    /// Whether `other` holds all of these. Whole ranges are compared, not keys.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|(start, &end)| {
            other.0.range(..=start).next_back().is_some_and(|(_, &covered)| end <= covered)
        })
    }
}

/// One row of the member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Empty until the member has published itself.
    pub name: String,
    pub url: String,
    pub learner: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Put(u64),
    Add { id: u64, row: Row },
    Promote(u64),
    Remove(u64),
    Publish { id: u64, name: String },
    NoSpace(u64),
    Disarm,
}

impl Change {
    pub fn is_membership(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Promote(_) | Self::Remove(_))
    }
}

/// `id` is unique in the world. Raft does not see it, only the audit does: to raft, equal index and term are equal
/// entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub term: u64,
    pub id: u64,
    pub change: Change,
}

/// Why a committed change had no effect, in etcd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    NotFound,
    UrlExists,
    IdExists,
    NotLearner,
    TooManyLearners,
}

/// The state machine, applied up to `index`.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub index: u64,
    pub term: u64,
    pub members: BTreeMap<u64, Row>,
    pub removed: BTreeSet<u64>,
    pub keys: Keys,
    /// Members that have raised NOSPACE.
    pub no_space: BTreeSet<u64>,
}

impl State {
    pub fn voters(&self) -> impl Iterator<Item = u64> {
        self.members.iter().filter(|(_, row)| !row.learner).map(|(&id, _)| id)
    }

    pub fn is_voter(&self, id: u64) -> bool {
        self.members.get(&id).is_some_and(|row| !row.learner)
    }

    pub fn is_learner(&self, id: u64) -> bool {
        self.members.get(&id).is_some_and(|row| row.learner)
    }

    fn apply(&mut self, entry: &Entry, max_learners: usize) -> Result<(), Rejected> {
        self.index += 1;
        self.term = entry.term;
        match &entry.change {
            Change::Nothing => {}
            Change::Put(key) => self.keys.insert(*key),
            Change::Add { id, row } => self.add(*id, row, max_learners)?,
            Change::Promote(id) => self.promote(*id)?,
            Change::Remove(id) => {
                self.members.remove(id).ok_or(Rejected::NotFound)?;
                self.removed.insert(*id);
                self.no_space.remove(id);
            }
            Change::Publish { id, name } => {
                if let Some(row) = self.members.get_mut(id) {
                    row.name.clone_from(name);
                }
            }
            Change::NoSpace(id) => {
                self.no_space.insert(*id);
            }
            Change::Disarm => self.no_space.clear(),
        }
        Ok(())
    }

    fn add(&mut self, id: u64, row: &Row, max_learners: usize) -> Result<(), Rejected> {
        if self.removed.contains(&id) {
            return Err(Rejected::NotFound);
        }
        if self.members.contains_key(&id) {
            return Err(Rejected::IdExists);
        }
        if self.members.values().any(|known| known.url == row.url) {
            return Err(Rejected::UrlExists);
        }
        if row.learner && self.members.values().filter(|known| known.learner).count() >= max_learners {
            return Err(Rejected::TooManyLearners);
        }
        self.members.insert(id, row.clone());
        Ok(())
    }

    fn promote(&mut self, id: u64) -> Result<(), Rejected> {
        let row = self.members.get_mut(&id).ok_or(Rejected::NotFound)?;
        if !row.learner {
            return Err(Rejected::NotLearner);
        }
        row.learner = false;
        Ok(())
    }
}

/// The entries after `base`.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    base: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
}

impl Log {
    pub fn first(&self) -> u64 {
        self.base + 1
    }

    pub fn last(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub fn last_term(&self) -> u64 {
        self.entries.back().map_or(self.base_term, |entry| entry.term)
    }

    pub fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(index.checked_sub(self.first())?).ok()?)
    }

    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.base { Some(self.base_term) } else { self.get(index).map(|entry| entry.term) }
    }

    pub fn append(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    pub fn truncate(&mut self, last: u64) {
        self.entries.truncate(last.saturating_sub(self.base) as usize);
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Whether a candidate with such a last entry may be voted for.
    pub fn is_behind(&self, term: u64, index: u64) -> bool {
        (term, index) >= (self.last_term(), self.last())
    }
}

/// One member's directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub cluster: u64,
    pub member: u64,
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
    pub log: Log,
    pub state: State,
    pub config: Config,
    /// What a kill leaves of `commit` and `config`.
    pub written: (u64, Config),
    /// Indices of membership changes without effect.
    pub rejected: BTreeSet<u64>,
    /// The list that a joiner was told, before its log had anything to say.
    pub told: BTreeMap<u64, Row>,
    /// It was formed under the ids of a cluster that lives elsewhere. Only the audit looks at it.
    pub impostor: bool,
}

impl Data {
    /// Applies what is committed; returns what became of the membership changes among it, by the entry's id.
    pub fn apply(&mut self, max_learners: usize) -> Vec<(u64, Result<(), Rejected>)> {
        let mut outcomes = Vec::new();
        while self.config.index < self.commit {
            let index = self.config.index + 1;
            let Some(entry) = self.log.get(index) else { break };
            if self.state.index < index {
                let outcome = self.state.apply(entry, max_learners);
                if outcome.is_err() {
                    self.rejected.insert(index);
                }
                if entry.change.is_membership() {
                    outcomes.push((entry.id, outcome));
                }
            }
            self.config.apply(entry, self.rejected.contains(&index));
        }
        self.compact();
        outcomes
    }

    fn compact(&mut self) {
        let done = self.written.1.index.min(self.state.index).saturating_sub(self.log.base) as usize;
        if done < 2 * CATCH_UP {
            return;
        }
        for _ in CATCH_UP..done {
            if let Some(entry) = self.log.entries.pop_front() {
                self.log.base += 1;
                self.log.base_term = entry.term;
            }
        }
        self.rejected = self.rejected.split_off(&self.log.first());
    }

    /// The leader's next entry.
    pub fn append(&mut self, entry: Entry) {
        self.log.append(entry);
        self.write();
    }

    /// A term or a vote is on disk before anybody hears of it.
    pub fn promise(&mut self, term: u64, vote: u64) {
        (self.term, self.vote) = (term, vote);
        self.write();
    }

    /// Entries, terms and votes are written at once; how much is committed only along with them.
    fn write(&mut self) {
        self.written.0 = self.commit;
        if self.written.1.changed == self.config.changed {
            self.written.1.index = self.config.index;
        } else {
            self.written.1 = self.config.clone();
        }
    }

    /// What was not written is forgotten.
    pub fn crash(&mut self) {
        self.commit = self.written.0;
        self.config = self.written.1.clone();
    }

    /// Brings a follower's log in line with the leader's, of which the leader thinks that `matched` is there already; what
    /// the leader may now count on. An error is the follower's panic. A follower never gives up what it has committed:
    /// where that differs, it stays behind for good, and to the leader it looks as if it had the leader's entries up to
    /// there.
    pub fn take(&mut self, from: &Self, matched: u64) -> Result<u64, String> {
        let told = matched.min(from.commit);
        if told > self.log.last() {
            return Err(format!(
                "tocommit({told}) is out of range [lastIndex({})]. Was the raft log corrupted, truncated, or lost?",
                self.log.last()
            ));
        }
        self.impostor &= from.impostor;
        let last = from.log.last();
        let mut known = if matched > 0 { matched } else { self.common(from) }.max(self.commit);
        if known > last {
            return Ok(last);
        }
        if known + 1 < from.log.first() {
            self.restore(&from.state);
            known = from.state.index;
        } else if from.log.term(known) != self.log.term(known) {
            return Ok(known);
        }
        let mut news = false;
        for index in known + 1..=last {
            let Some(entry) = from.log.get(index) else { break };
            if self.log.term(index) != Some(entry.term) {
                self.log.truncate(index - 1);
                self.log.append(entry.clone());
                news = true;
            }
        }
        self.commit = self.commit.max(from.commit);
        if news {
            self.write();
        }
        Ok(last)
    }

    /// The last index at which both logs have the same term, found from the end, as a leader probes.
    fn common(&self, from: &Self) -> u64 {
        let first = from.log.first().max(self.log.first()) - 1;
        let last = from.log.last().min(self.log.last());
        (first..=last).rev().find(|&index| from.log.term(index) == self.log.term(index)).unwrap_or(0)
    }

    /// Takes over another member's state in place of entries that it has dropped.
    fn restore(&mut self, state: &State) {
        self.log = Log { base: state.index, base_term: state.term, entries: VecDeque::new() };
        self.commit = state.index;
        self.state = state.clone();
        self.config = Config::of(state.index, state.members.iter().map(|(&id, row)| (id, row.learner)));
        self.rejected.clear();
        self.write();
    }

    /// Whether this copy can bring the key back: applied, or somewhere in the log.
    pub fn holds(&self, key: u64) -> bool {
        self.state.keys.contains(key) || self.log.entries().any(|entry| entry.change == Change::Put(key))
    }
}
