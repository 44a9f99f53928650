//! A model of etcd: its processes, their disks and the network between them. It answers as etcd answers and refuses what
//! etcd refuses, and wrong use has its real consequence: a lost write, a second cluster under one name, a member that
//! panics. It never fails by itself.
//!
//! Raft is kept simple. Messages take no time, but they are only exchanged on a tick or for the sake of a request, and a
//! request is carried to no more members than it needs. So a follower lags whenever it may. Time is given from outside;
//! what is random (election timeouts, who lags) comes from the generator that `tick` is given: one seed, one run.
//!
//! Not modelled: TLS, auth, leases, watches, compaction and defragmentation, mixed versions, etcd's own request limits.

mod audit;
mod boot;
mod clients;
mod config;
mod flags;
mod network;
mod process;
mod raft;
mod requests;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rand::Rng;

pub use audit::{Amnesia, Formation, LostWrites, Split, Volumes};
pub use clients::{GetResult, PutResult};
pub use flags::{ClusterState, Flags};
pub use requests::{Request, Response};
pub use store::Keys;

use audit::Audit;
use boot::Boot;
use network::Network;
use process::Process;
use store::Data;

/// Milliseconds since the world began.
pub type Millis = u64;

/// Raft's heartbeat, and the longest step the model takes while something is going on.
const HEARTBEAT: Millis = 100;
/// A follower that has not heard from a leader that long stands for election, up to twice that much later.
const ELECTION: Millis = 1_000;
/// From `exec` until the data directory is open.
const OPENING: Millis = 100;
/// A member that learns of its own removal ends itself that much later.
const FAREWELL: Millis = 1_000;

const REMOVED: &str = "the member has been permanently removed from the cluster";

/// A volume: a PVC's UID, or a Pod's for memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub String);

/// One run of the program: a Pod's UID and the container's restart count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub String);

#[derive(Clone, Debug, Default)]
struct Disk {
    /// `None`: empty, or in the hands of the process that uses it.
    data: Option<Data>,
    user: Option<ProcessId>,
    /// Counts what was wiped, so that data of before is told from data of after.
    generation: u64,
    /// What the process still writes is gone when it ends.
    doomed: bool,
    corrupt: bool,
    full: bool,
    exhausted: bool,
}

/// All etcd processes of the world.
#[derive(Clone, Debug, Default)]
pub struct Etcds {
    clock: Millis,
    salt: u64,
    entries: u64,
    /// In the order they started: of two at one address, the later one is reached.
    processes: Vec<Process>,
    disks: BTreeMap<DiskId, Disk>,
    network: Network,
    ended: Vec<(ProcessId, String)>,
    audit: Audit,
}

impl Etcds {
    /// Executes etcd on a node. A process id that runs already is left alone.
    pub fn start(&mut self, now: Millis, process: ProcessId, host: &str, flags: Flags, disk: DiskId) {
        self.advance(now);
        if self.index(&process).is_some() {
            return;
        }
        let known = self.disks.entry(disk.clone()).or_default();
        if known.user.is_some() {
            self.ended.push((process, "fileutil: file already locked".to_owned()));
            return;
        }
        known.user = Some(process.clone());
        self.processes.push(Process::new(process, host, flags, disk, Boot::Opening { until: now + OPENING }));
    }

    /// The name of a process that has just been started leads nowhere for a while: its machine came back with other
    /// A process that loses count of a connection: a message that failed right after it was made marks the peer as
    /// inactive, and nothing marks it as active again. One in a cluster.
    pub fn deafen(&mut self, process: &ProcessId) {
        let Some(at) = self.index(process) else { return };
        let data = &self.processes[at].data;
        let (cluster, own) = (data.cluster, data.member);
        let peer = data.state.voters().find(|id| *id != own);
        for process in self.processes.iter_mut().filter(|p| p.data.cluster == cluster) {
            process.deaf_to = None;
        }
        self.processes[at].deaf_to = peer;
    }

    /// addresses.
    pub fn hide(&mut self, process: &ProcessId, until: Millis) {
        if let Some(at) = self.index(process) {
            self.processes[at].hidden_until = until;
        }
    }

    /// SIGKILL. The data stays on the disk.
    pub fn stop(&mut self, now: Millis, process: &ProcessId) {
        self.advance(now);
        if let Some(at) = self.index(process) {
            self.processes[at].data.crash();
            self.end(at);
        }
    }

    /// SIGTERM: a leader hands over before it goes, if somebody can take over.
    pub fn terminate(&mut self, now: Millis, process: &ProcessId) {
        self.advance(now);
        let Some(at) = self.index(process) else { return };
        self.hand_over(at);
        if let Some(at) = self.index(process) {
            self.end(at);
        }
    }

    /// Processes that ended by themselves since the last question, with etcd's words.
    pub fn exited(&mut self, now: Millis) -> Vec<(ProcessId, String)> {
        self.advance(now);
        std::mem::take(&mut self.ended)
    }

    /// Whether there is such a process, serving or not.
    pub fn running(&self, process: &ProcessId) -> bool {
        self.index(process).is_some()
    }

    /// Whether its Status answers. A process serves clients only after it has published its name through raft, so not
    /// before it has met a quorum once.
    pub fn serving(&self, process: &ProcessId) -> bool {
        self.index(process).is_some_and(|at| self.processes[at].serves())
    }

    /// Plain `/health`: false without a leader and a quorum behind it, and false with any alarm.
    pub fn healthy(&self, process: &ProcessId) -> bool {
        self.healthy_excluding_no_space(process)
            && self.index(process).is_some_and(|at| self.processes[at].data.state.no_space.is_empty())
    }

    /// `/health?exclude=NOSPACE`, which is what the operator's probes ask (T18). The port for metrics answers this,
    /// whether or not clients are served yet.
    pub fn healthy_excluding_no_space(&self, process: &ProcessId) -> bool {
        self.index(process)
            .is_some_and(|at| self.processes[at].booted() && self.confirmed_leader(at).is_some())
    }

    /// Lets time pass: boots, heartbeats, elections, replication.
    pub fn tick(&mut self, now: Millis, rng: &mut impl Rng) {
        self.salt = rng.next_u64();
        self.advance(now);
    }

    /// Neither host can dial the other.
    pub fn cut(&mut self, a: &str, b: &str) {
        self.network.cut(a, b);
        self.network.cut(b, a);
    }

    /// `from` can not dial `to`; the other way round works.
    pub fn cut_one_way(&mut self, from: &str, to: &str) {
        self.network.cut(from, to);
    }

    /// Undoes every cut between two hosts.
    pub fn heal(&mut self, a: &str, b: &str) {
        self.network.heal(a, b);
        self.network.heal(b, a);
    }

    /// Takes a host off the network.
    pub fn isolate(&mut self, host: &str) {
        self.network.isolate(host);
    }

    /// Undoes `isolate`.
    pub fn rejoin(&mut self, host: &str) {
        self.network.rejoin(host);
    }

    /// Undoes every cut and every isolation.
    pub fn heal_all(&mut self) {
        self.network.heal_all();
    }

    /// Empties a volume. A process that uses it goes on with its open files and finds nothing at its next start.
    pub fn wipe(&mut self, disk: &DiskId) {
        if let Some(known) = self.disks.get_mut(disk) {
            known.data = None;
            known.corrupt = false;
            known.generation += 1;
            known.doomed = known.user.is_some();
            self.notice_destruction();
        }
    }

    /// Damages a volume's files: the next start fails.
    pub fn corrupt(&mut self, disk: &DiskId) {
        if let Some(known) = self.disks.get_mut(disk) {
            known.corrupt = true;
            self.notice_destruction();
        }
    }

    /// The volume is gone for good, when its claim was deleted.
    pub fn forget_disk(&mut self, disk: &DiskId) {
        self.wipe(disk);
        if self.disks.get(disk).is_some_and(|known| known.user.is_none()) {
            self.disks.remove(disk);
        }
    }

    /// The database reaches its quota: the next write raises NOSPACE, in the whole cluster, until it is disarmed.
    pub fn fill(&mut self, disk: &DiskId) {
        if let Some(known) = self.disks.get_mut(disk) {
            known.full = true;
        }
    }

    /// The volume itself is full: etcd dies of its next write, and of every start.
    pub fn exhaust(&mut self, disk: &DiskId) {
        self.disks.entry(disk.clone()).or_default().exhausted = true;
        let user = self.disks.get(disk).and_then(|known| known.user.clone());
        if let Some(at) = user.and_then(|process| self.index(&process)) {
            self.die(at, "failed to save raft hard state and entries: no space left on device");
        }
    }

    /// Undoes `fill` and `exhaust`. An alarm stays until `disarm`.
    pub fn make_room(&mut self, disk: &DiskId) {
        if let Some(known) = self.disks.get_mut(disk) {
            (known.full, known.exhausted) = (false, false);
        }
    }

    fn index(&self, process: &ProcessId) -> Option<usize> {
        self.processes.iter().position(|known| known.id == *process)
    }

    /// Takes a process away and gives the disk its data back.
    fn end(&mut self, at: usize) {
        let process = self.processes.remove(at);
        if let Some(disk) = self.disks.get_mut(&process.disk) {
            disk.user = None;
            if !std::mem::take(&mut disk.doomed) && process.booted() {
                disk.data = Some(process.data);
            }
        }
    }

    /// The process ends by itself.
    fn die(&mut self, at: usize, words: impl Into<String>) {
        let words = words.into();
        if words != REMOVED {
            self.processes[at].data.crash();
        }
        self.ended.push((self.processes[at].id.clone(), words));
        self.end(at);
    }

    /// Brings the world to `now`, in small steps as long as something is going on.
    fn advance(&mut self, now: Millis) {
        while self.clock < now {
            let step = if self.quiet() { now - self.clock } else { HEARTBEAT.min(now - self.clock) };
            self.clock += step;
            self.step();
        }
    }

    fn step(&mut self) {
        self.boot();
        self.connect();
        self.replicate_all();
        self.elect();
        self.publish();
        self.dismiss();
    }

    /// A spread of `span` milliseconds that differs by seed, member and occasion.
    fn jitter(&self, member: u64, span: Millis) -> Millis {
        mix(self.salt ^ member ^ mix(self.clock)) % span
    }
}

/// Spreads bits, so that similar inputs give unrelated numbers.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An id out of texts: equal texts, equal id, and never zero.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, fold);
    mix(sum).max(1)
}
