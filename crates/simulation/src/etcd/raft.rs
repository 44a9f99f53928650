//! Raft as etcd runs it: pre-vote, check-quorum, one membership change at a time, in effect when applied. A voter whose
//! log is empty votes for anybody; a leader that remembers more of a member than the member itself kills it.

use super::process::{Leadership, Phase};
use super::store::{Change, Entry};
use super::{ELECTION, Etcds, ProcessId, mix};

/// What became of a proposal, as the process that was asked sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proposed {
    /// Committed, and applied by the process that was asked; the entry's id.
    Applied(u64),
    /// Sent off, no answer: it may be committed later.
    Unknown,
    /// There is no leader to send it to.
    Dropped,
}

impl Etcds {
    /// One heartbeat of every leader.
    pub(super) fn replicate_all(&mut self) {
        let leaders: Vec<ProcessId> =
            self.processes.iter().filter(|p| p.leads.is_some()).map(|p| p.id.clone()).collect();
        for id in leaders {
            if let Some(at) = self.index(&id) {
                self.beat(at);
            }
        }
    }

    fn beat(&mut self, leader: usize) {
        let id = self.processes[leader].id.clone();
        let peers: Vec<u64> = self.others(leader);
        // Twice: entries first, then the news that they are committed.
        for _ in 0..2 {
            let mut answered = vec![self.member_of(&id)];
            for &peer in &peers {
                let Some(at) = self.index(&id) else { return };
                if self.send(at, peer) {
                    answered.push(peer);
                }
            }
            let Some(at) = self.index(&id) else { return };
            self.check_quorum(at, &answered);
            self.advance_commit(at);
        }
    }

    fn member_of(&self, id: &ProcessId) -> u64 {
        self.index(id).map_or(0, |at| self.processes[at].member())
    }

    fn others(&self, at: usize) -> Vec<u64> {
        let data = &self.processes[at].data;
        data.config.ids().filter(|&id| id != data.member).collect()
    }

    /// A leader that has not met a quorum for an election timeout steps down.
    fn check_quorum(&mut self, at: usize, answered: &[u64]) {
        let now = self.clock;
        let process = &mut self.processes[at];
        let config = &process.data.config;
        let active = config.voters().filter(|id| answered.contains(id)).count();
        let Some(leads) = &mut process.leads else { return };
        if active >= config.quorum() {
            leads.quorum_seen = now;
        } else if now - leads.quorum_seen >= ELECTION {
            let term = process.data.term;
            process.follow(term, 0);
            self.rest(at);
        }
    }

    /// Sends a leader's heartbeat and entries to one member; whether it answered as a follower.
    pub(super) fn send(&mut self, leader: usize, to: u64) -> bool {
        let Some(at) = self.peer(leader, to) else { return false };
        let now = self.clock;
        let rest = now + ELECTION + self.jitter(to, ELECTION);
        let Ok([from, peer]) = self.processes.get_disjoint_mut([leader, at]) else { return false };
        let Some(leads) = &mut from.leads else { return false };
        if peer.data.state.removed.contains(&from.data.member) {
            return false;
        }
        if peer.data.term > from.data.term {
            from.follow(peer.data.term, 0);
            self.rest(leader);
            return false;
        }
        if peer.data.term == from.data.term && peer.leads.is_some() {
            return false;
        }
        peer.follow(from.data.term, from.data.member);
        (peer.heard, peer.deadline) = (now, rest);
        let matched = leads.matched.get(&to).copied().unwrap_or(0);
        match peer.data.take(&from.data, matched) {
            Ok(matched) => {
                leads.matched.insert(to, matched);
                peer.apply(now);
                true
            }
            Err(words) => {
                self.die(at, words);
                false
            }
        }
    }

    /// Commits what a quorum of the leader's own configuration holds.
    pub(super) fn advance_commit(&mut self, mut at: usize) {
        loop {
            let process = &self.processes[at];
            let (data, Some(leads)) = (&process.data, &process.leads) else { return };
            let mut held: Vec<u64> =
                data.state
                    .voters()
                    .map(|id| {
                        if id == data.member {
                            data.log.last()
                        } else {
                            *leads.matched.get(&id).unwrap_or(&0)
                        }
                    })
                    .collect();
            held.sort_unstable_by(|a, b| b.cmp(a));
            let Some(&index) = held.get(data.config.quorum() - 1) else { return };
            if index <= data.commit || data.log.term(index) != Some(data.term) {
                return;
            }
            self.audit.commit(self.clock, data, index);
            let leaving = (data.commit + 1..=index).filter_map(|i| data.log.get(i)).find_map(leaving);
            self.processes[at].data.commit = index;
            if let Some(member) = leaving {
                at = match self.bid_farewell(at, member) {
                    Some(at) => at,
                    None => return,
                };
            }
            let now = self.clock;
            self.processes[at].apply(now);
            self.audit.configure(&self.processes[at].data);
        }
    }

    /// The last message to a member that is about to be removed tells it so. Where the leader is found afterwards.
    fn bid_farewell(&mut self, leader: usize, member: u64) -> Option<usize> {
        let id = self.processes[leader].id.clone();
        self.send(leader, member);
        self.index(&id)
    }

    /// Puts an election off.
    pub(super) fn rest(&mut self, at: usize) {
        let jitter = self.jitter(self.processes[at].member(), ELECTION);
        self.processes[at].deadline = self.clock + ELECTION + jitter;
    }

    /// Followers that have waited long enough stand for election.
    pub(super) fn elect(&mut self) {
        for at in 0..self.processes.len() {
            // Who wins may take another process down.
            let Some(process) = self.processes.get(at) else { return };
            let promotable = process.booted() && process.data.config.is_voter(process.member());
            if promotable && process.leads.is_none() && process.deadline <= self.clock {
                self.campaign(at, false);
            }
        }
    }

    /// With `transfer` the leader has asked for it: no pre-vote, and its lease does not count.
    pub(super) fn campaign(&mut self, at: usize, transfer: bool) {
        self.processes[at].leader = 0;
        self.rest(at);
        if !transfer && !self.wins(at, false, transfer) {
            return;
        }
        let process = &mut self.processes[at];
        process.data.promise(process.data.term + 1, process.data.member);
        if self.wins(at, true, transfer) {
            self.lead(at);
        }
    }

    fn wins(&mut self, at: usize, real: bool, transfer: bool) -> bool {
        let voters: Vec<u64> = self.processes[at].data.config.voters().collect();
        let mut votes = 0;
        for &id in &voters {
            if id == self.processes[at].member() {
                votes += 1;
            } else if let Some(voter) = self.peer(at, id) {
                votes += usize::from(self.votes(at, voter, real, transfer));
            }
        }
        votes > voters.len() / 2
    }

    /// Asks one voter, for real or to find out. Nothing but its own log and hard state speaks against a candidate.
    fn votes(&mut self, candidate: usize, voter: usize, real: bool, transfer: bool) -> bool {
        let now = self.clock;
        let rest = now + ELECTION + self.jitter(self.processes[voter].member(), ELECTION);
        let Ok([from, voter]) = self.processes.get_disjoint_mut([candidate, voter]) else { return false };
        if voter.data.state.removed.contains(&from.data.member) {
            return false;
        }
        let term = from.data.term + u64::from(!real);
        let leased = voter.leads.is_some() || (voter.leader != 0 && now - voter.heard < ELECTION);
        if term > voter.data.term && leased && !transfer {
            return false;
        }
        if voter.data.term > term {
            from.follow(voter.data.term, 0);
            return false;
        }
        if real && term > voter.data.term {
            voter.follow(term, 0);
        }
        let free = voter.data.vote == from.data.member
            || (voter.data.vote == 0 && voter.leader == 0)
            || (!real && term > voter.data.term);
        if !free || !voter.data.log.is_behind(from.data.log.last_term(), from.data.log.last()) {
            return false;
        }
        if real {
            voter.data.promise(voter.data.term, from.data.member);
            voter.deadline = rest;
        }
        true
    }

    fn lead(&mut self, at: usize) {
        let now = self.clock;
        let process = &mut self.processes[at];
        process.leader = process.data.member;
        process.leads = Some(Leadership {
            matched: Default::default(),
            quorum_seen: now,
            pending: process.data.log.last(),
        });
        let id = process.id.clone();
        self.append(at, Change::Nothing);
        // What waited for a leader comes with its first entry, before a membership change that it brings along applies.
        let name = (!self.processes[at].serves()).then(|| self.processes[at].publication());
        let entry = name.map(|change| self.append(at, change));
        let index = self.processes[at].data.log.last();
        self.beat(at);
        if let (Some(entry), Some(at)) = (entry, self.index(&id)) {
            let data = &self.processes[at].data;
            if data.state.index >= index && data.log.get(index).is_some_and(|found| found.id == entry) {
                self.processes[at].phase = Phase::Running { published: true };
            }
        }
    }

    fn append(&mut self, at: usize, change: Change) -> u64 {
        self.entries += 1;
        let id = self.entries;
        let data = &mut self.processes[at].data;
        data.append(Entry { term: data.term, id, change });
        id
    }

    /// Carries a change from the process that was asked to the leader and to just as many others as it takes. Who they
    /// are differs from entry to entry.
    pub(super) fn propose(&mut self, via: usize, change: Change) -> Proposed {
        let asked = &self.processes[via];
        if asked.leader == 0 {
            return Proposed::Dropped;
        }
        let leader = if asked.leads.is_some() { Some(via) } else { self.peer(via, asked.leader) };
        let Some(leader) = leader else { return Proposed::Unknown };
        let process = &mut self.processes[leader];
        let is_member = process.data.config.contains(process.data.member);
        let Some(leads) = process.leads.as_mut().filter(|_| is_member) else { return Proposed::Unknown };
        let refused = change.is_membership() && leads.pending > process.data.config.index;
        if change.is_membership() && !refused {
            leads.pending = process.data.log.last() + 1;
        }
        let entry = self.append(leader, if refused { Change::Nothing } else { change });
        let index = self.processes[leader].data.log.last();
        let (leader, via) = (self.processes[leader].id.clone(), self.processes[via].id.clone());
        self.spread(&leader, index, entry);
        if leader != via
            && let (Some(at), member) = (self.index(&leader), self.member_of(&via))
        {
            self.send(at, member);
        }
        let applied = self.index(&via).map(|at| &self.processes[at].data).is_some_and(|data| {
            data.state.index >= index && data.log.get(index).is_none_or(|found| found.id == entry)
        });
        if applied && !refused { Proposed::Applied(entry) } else { Proposed::Unknown }
    }

    fn spread(&mut self, leader: &ProcessId, index: u64, entry: u64) {
        let Some(at) = self.index(leader) else { return };
        self.advance_commit(at);
        let mut peers = self.others(at);
        peers.sort_by_key(|peer| mix(peer ^ mix(entry ^ self.salt)));
        for peer in peers {
            let Some(at) = self.index(leader) else { return };
            let data = &self.processes[at].data;
            if data.commit >= index {
                return;
            }
            if data.config.is_voter(peer) && self.send(at, peer) {
                // The peer's end may have moved the leader.
                if let Some(at) = self.index(leader) {
                    self.advance_commit(at);
                }
            }
        }
    }

    /// The leader that would answer a linearizable read of this process: one it follows, that has committed in its own
    /// term and reaches a quorum now.
    pub(super) fn confirmed_leader(&self, via: usize) -> Option<usize> {
        let asked = &self.processes[via];
        let at = if asked.leads.is_some() { via } else { self.peer(via, asked.leader)? };
        let leader = &self.processes[at];
        let data = &leader.data;
        if leader.leads.is_none()
            || data.term < asked.data.term
            || data.log.term(data.commit) != Some(data.term)
        {
            return None;
        }
        let answers = |id: u64| {
            id == data.member
                || self.peer(at, id).is_some_and(|to| {
                    let peer = &self.processes[to];
                    peer.data.term <= data.term
                        && (peer.leads.is_none() || peer.data.term < data.term)
                        && !peer.data.state.removed.contains(&data.member)
                })
        };
        (data.config.voters().filter(|&id| answers(id)).count() >= data.config.quorum()).then_some(at)
    }

    /// A process tells the cluster its name, and serves clients from then on.
    pub(super) fn publish(&mut self) {
        for at in 0..self.processes.len() {
            let Some(process) = self.processes.get(at) else { return };
            if !process.booted() || process.serves() || self.confirmed_leader(at).is_none() {
                continue;
            }
            let id = process.id.clone();
            let change = process.publication();
            if let (Proposed::Applied(_), Some(at)) = (self.propose(at, change), self.index(&id)) {
                self.processes[at].phase = Phase::Running { published: true };
            }
        }
    }

    /// Leadership goes to another voter; whether it did.
    pub(super) fn transfer(&mut self, leader: usize, to: u64) -> bool {
        if self.processes[leader].member() == to {
            return true;
        }
        let id = self.processes[leader].id.clone();
        if !self.send(leader, to) || self.index(&id).is_none() {
            return false;
        }
        let Some(target) = self.index(&id).and_then(|at| self.peer(at, to)) else { return false };
        if self.processes[target].data.config.is_voter(to) {
            self.campaign(target, true);
        }
        self.processes.iter().any(|process| process.member() == to && process.leads.is_some())
    }

    /// What a leader does on SIGTERM: the voter it has been connected to for longest takes over.
    pub(super) fn hand_over(&mut self, at: usize) {
        let process = &self.processes[at];
        if process.leads.is_none() {
            return;
        }
        let longest = process
            .connections
            .iter()
            .filter(|(id, _)| process.data.state.is_voter(**id))
            .min_by_key(|(id, connection)| (connection.since, **id))
            .map(|(id, _)| *id);
        if let Some(to) = longest {
            self.transfer(at, to);
        }
    }
}

fn leaving(entry: &Entry) -> Option<u64> {
    if let Change::Remove(id) = entry.change { Some(id) } else { None }
}
