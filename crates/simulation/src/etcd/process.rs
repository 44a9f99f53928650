//! One etcd process: how far it has come, what it holds, and what it only knows while it runs.

use std::collections::BTreeMap;

use super::boot::Boot;
use super::network::{Connection, READ_TIMEOUT};
use super::store::{Change, Data, Rejected, Row};
use super::{DiskId, Etcds, FAREWELL, Flags, Millis, ProcessId, REMOVED};

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Ports are open, nobody answers on them.
    Booting(Boot),
    /// Peers are answered; clients once it is `published`.
    Running { published: bool },
}

/// What only a leader has.
#[derive(Clone, Debug)]
pub(super) struct Leadership {
    /// How much of the log each member has acknowledged to this leader. It is not forgotten when a member is gone, which
    /// is what kills a member that comes back empty.
    pub matched: BTreeMap<u64, u64>,
    pub quorum_seen: Millis,
    /// No second membership change before this index is applied.
    pub pending: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub id: ProcessId,
    pub host: String,
    pub flags: Flags,
    pub disk: DiskId,
    pub phase: Phase,
    pub data: Data,
    pub leads: Option<Leadership>,
    /// The member it follows; 0 for none.
    pub leader: u64,
    /// When it last heard from a leader.
    pub heard: Millis,
    /// When it stands for election.
    pub deadline: Millis,
    pub connections: BTreeMap<u64, Connection>,
    /// What became of the last membership change it applied, by the entry's id.
    pub outcome: Option<(u64, Result<(), Rejected>)>,
    /// It joined in this run.
    pub fresh: bool,
    /// When it ends itself.
    pub leaves: Option<Millis>,
    /// Until then its name leads nowhere: only those it dials itself know where it is.
    pub hidden_until: Millis,
    /// A peer that it takes for inactive as long as it runs, although they are connected.
    pub deaf_to: Option<u64>,
}

impl Process {
    pub fn new(id: ProcessId, host: &str, flags: Flags, disk: DiskId, boot: Boot) -> Self {
        Self {
            id,
            host: host.to_owned(),
            flags,
            disk,
            phase: Phase::Booting(boot),
            data: Data::default(),
            leads: None,
            leader: 0,
            heard: 0,
            deadline: 0,
            connections: BTreeMap::new(),
            outcome: None,
            fresh: false,
            leaves: None,
            hidden_until: 0,
            deaf_to: None,
        }
    }

    pub fn booted(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Running { published: true })
    }

    pub fn member(&self) -> u64 {
        self.data.member
    }

    /// What it tells the cluster about itself before it serves.
    pub fn publication(&self) -> Change {
        Change::Publish { id: self.data.member, name: self.flags.name.clone() }
    }

    pub fn is_learner(&self) -> bool {
        self.data.state.is_learner(self.data.member)
    }

    /// The member list as this process tells it to a joiner. With an empty log that is what it was told itself, and
    /// after a restart nothing.
    pub fn local_members(&self) -> &BTreeMap<u64, Row> {
        if self.fresh && self.data.state.index == 0 { &self.data.told } else { &self.data.state.members }
    }

    pub fn follow(&mut self, term: u64, leader: u64) {
        if term > self.data.term {
            self.data.promise(term, 0);
        }
        self.leader = leader;
        self.leads = None;
    }

    /// Applies what is committed and notes what concerns this process.
    pub fn apply(&mut self, now: Millis) {
        if self.data.config.index == self.data.commit {
            return;
        }
        let was_member = self.data.state.members.contains_key(&self.data.member);
        if let Some(last) = self.data.apply(self.flags.max_learners).pop() {
            self.outcome = Some(last);
        }
        if was_member && self.data.state.removed.contains(&self.data.member) {
            self.leaves.get_or_insert(now + FAREWELL);
        }
    }
}

impl Etcds {
    /// Whom `from` reaches as this member of its own list: the process at the member's URL, if it is that member.
    pub(super) fn peer(&self, from: usize, id: u64) -> Option<usize> {
        let this = &self.processes[from];
        let row = this.data.state.members.get(&id).or_else(|| this.data.told.get(&id))?;
        let at = self.at_url(&row.url)?;
        let that = &self.processes[at];
        (that.booted()
            && that.data.cluster == this.data.cluster
            && that.data.member == id
            && self.is_found(this, that)
            && self.network.links(&this.host, &that.host))
        .then_some(at)
    }

    /// Whether the two can meet: the name of one has come through, or the other one knows whom to dial.
    fn is_found(&self, this: &Process, that: &Process) -> bool {
        that.hidden_until <= self.clock || that.data.state.members.contains_key(&this.data.member)
    }

    pub(super) fn at_url(&self, url: &str) -> Option<usize> {
        self.processes.iter().rposition(|process| process.flags.peer_url == url)
    }

    /// Keeps each member's account of whom it is connected to and since when.
    pub(super) fn connect(&mut self) {
        for at in 0..self.processes.len() {
            if !self.processes[at].booted() {
                continue;
            }
            let mut connections = std::mem::take(&mut self.processes[at].connections);
            let (this, now) = (&self.processes[at], self.clock);
            for &id in this.data.state.members.keys().filter(|&&id| id != this.data.member) {
                let Some(to) = self.alive_peer(at, id) else {
                    connections.remove(&id);
                    continue;
                };
                if self.network.dials(&this.host, &self.processes[to].host) {
                    connections.entry(id).or_insert(Connection { since: now, heard: now }).heard = now;
                }
            }
            connections.retain(|id, connection| {
                now - connection.heard < READ_TIMEOUT && this.data.state.members.contains_key(id)
            });
            self.processes[at].connections = connections;
        }
    }

    /// The process behind a member, whether or not the network lets it through: a process that dies closes its
    /// connections at once, a cut is only noticed by silence.
    fn alive_peer(&self, from: usize, id: u64) -> Option<usize> {
        let this = &self.processes[from];
        let at = self.at_url(&this.data.state.members.get(&id)?.url)?;
        let that = &self.processes[at];
        let same = that.data.cluster == this.data.cluster && that.data.member == id;
        (that.booted() && same && self.is_found(this, that)).then_some(at)
    }

    /// Ends members that are out: those that applied it, after their farewell, and those that ask a peer who knows.
    pub(super) fn dismiss(&mut self) {
        let leaving: Vec<ProcessId> = (0..self.processes.len())
            .filter(|&at| self.processes[at].booted() && (self.is_over(at) || self.is_turned_away(at)))
            .map(|at| self.processes[at].id.clone())
            .collect();
        for at in leaving.iter().filter_map(|id| self.index(id)).collect::<Vec<_>>().into_iter().rev() {
            self.die(at, REMOVED);
        }
    }

    fn is_over(&self, at: usize) -> bool {
        self.processes[at].leaves.is_some_and(|when| when <= self.clock)
    }

    fn is_turned_away(&self, at: usize) -> bool {
        let this = &self.processes[at];
        this.leaves.is_none()
            && self.processes.iter().any(|that| {
                that.booted()
                    && that.data.cluster == this.data.cluster
                    && that.data.state.removed.contains(&this.data.member)
                    // A member whose log is empty does not know whom to ask, and waits for ever.
                    && this.data.state.members.contains_key(&that.data.member)
                    && self.network.dials(&this.host, &that.host)
            })
    }

    /// Nothing will happen by itself: a long time may pass in one step.
    pub(super) fn quiet(&self) -> bool {
        self.processes.iter().enumerate().all(|(at, process)| {
            process.serves()
                && process.leaves.is_none()
                && self.settled(at)
                && process.data.state.members.keys().all(|id| {
                    *id == process.data.member
                        || process.connections.contains_key(id)
                        || self.alive_peer(at, *id).is_none()
                })
        })
    }

    fn settled(&self, at: usize) -> bool {
        let process = &self.processes[at];
        if process.leads.is_some() {
            return self.confirmed_leader(at).is_some() && process.data.commit == process.data.log.last();
        }
        self.confirmed_leader(at).is_some_and(|leader| {
            let leader = &self.processes[leader];
            leader.data.commit == process.data.commit && leader.data.log.last() == process.data.log.last()
        })
    }
}
