//! What the model owes to etcd, fact by fact, and the small world they are tried in: members `a`, `b`, … on hosts and
//! disks of their own.

mod audit;
mod boot;
mod membership;
mod network;
mod raft;
mod writes;

use etcd::{Error, Member, Membership, Status};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

/// Longer than any election.
const SETTLED: Millis = 3_000;
/// Long enough for voters to count as connected.
const CONNECTED: Millis = 6_000;

struct World {
    etcds: Etcds,
    now: Millis,
    rng: StdRng,
    version: (u8, u8, u8),
    max_learners: usize,
    restarts: u32,
    keys: u64,
}

fn url(name: &str) -> String {
    format!("http://{name}.c.ns.svc:2380")
}

fn disk(name: &str) -> DiskId {
    DiskId(format!("disk-{name}"))
}

fn find<'a>(list: &'a Membership, name: &str) -> Option<&'a Member> {
    list.members.iter().find(|member| member.peer_urls == [url(name)])
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name}={}", url(name))).collect::<Vec<_>>().join(",")
}

impl World {
    fn new() -> Self {
        Self {
            etcds: Etcds::default(),
            now: 0,
            rng: StdRng::seed_from_u64(1),
            version: (3, 6, 16),
            max_learners: 4,
            restarts: 0,
            keys: 0,
        }
    }

    /// A cluster of these voters, settled and connected for long.
    fn of(names: &[&str]) -> Self {
        let mut world = Self::new();
        world.grow(names);
        world.pass(CONNECTED);
        world
    }

    fn grow(&mut self, names: &[&str]) {
        self.start(names[0], ClusterState::New, &names[..1]);
        self.pass(SETTLED);
        for (nth, name) in names.iter().enumerate().skip(1) {
            self.add(names[0], name).unwrap();
            self.start(name, ClusterState::Existing, &names[..=nth]);
            self.pass(SETTLED);
        }
        for name in &names[1..] {
            self.promote(names[0], name).unwrap();
            self.pass(100);
        }
    }

    fn flags(&self, name: &str, state: ClusterState, others: &[&str]) -> Flags {
        Flags {
            name: name.to_owned(),
            peer_url: url(name),
            client_url: format!("http://{name}.c.ns.svc:2379"),
            initial_cluster: list(others),
            initial_cluster_state: state,
            token: "token".to_owned(),
            max_learners: self.max_learners,
            version: self.version,
        }
    }

    fn start(&mut self, name: &str, state: ClusterState, others: &[&str]) -> ProcessId {
        self.restarts += 1;
        let id = ProcessId(format!("{name}-{}", self.restarts));
        let flags = self.flags(name, state, others);
        self.etcds.start(self.now, id.clone(), &format!("host-{name}"), flags, disk(name));
        id
    }

    fn pass(&mut self, time: Millis) {
        self.now += time;
        self.etcds.tick(self.now, &mut self.rng);
    }

    fn process(&self, name: &str) -> ProcessId {
        self.etcds.processes.iter().rev().find(|p| p.flags.name == name).map(|p| p.id.clone()).unwrap()
    }

    fn kill(&mut self, name: &str) {
        let id = self.process(name);
        self.etcds.stop(self.now, &id);
    }

    fn ask(&mut self, at: &str, request: Request) -> Result<Response, Error> {
        self.etcds.ask(self.now, at, request)
    }

    fn status(&mut self, at: &str) -> Result<Status, Error> {
        self.ask(at, Request::Status).map(|answer| answer.status().unwrap())
    }

    fn members(&mut self, at: &str) -> Result<Membership, Error> {
        self.ask(at, Request::Members).map(|answer| answer.members().unwrap())
    }

    fn row(&mut self, at: &str, name: &str) -> Option<Member> {
        find(&self.members(at).unwrap(), name).cloned()
    }

    fn id(&mut self, name: &str) -> u64 {
        let process = self.process(name);
        self.etcds.identity(&process).unwrap().1
    }

    fn add(&mut self, at: &str, name: &str) -> Result<Membership, Error> {
        self.ask(at, Request::AddLearner { peer_url: url(name) }).map(|answer| answer.members().unwrap())
    }

    fn promote(&mut self, at: &str, name: &str) -> Result<Response, Error> {
        let id = self.row(at, name).unwrap().id;
        self.ask(at, Request::Promote { id })
    }

    fn remove(&mut self, at: &str, name: &str) -> Result<Response, Error> {
        let id = self.row(at, name).unwrap().id;
        self.ask(at, Request::Remove { id })
    }

    fn put(&mut self, via: &str) -> (u64, PutResult) {
        self.keys += 1;
        let process = self.process(via);
        (self.keys, self.etcds.put(self.now, &process, self.keys))
    }

    fn get(&mut self, via: &str, key: u64, linearizable: bool) -> GetResult {
        let process = self.process(via);
        self.etcds.get(self.now, &process, key, linearizable)
    }

    /// The name of the leader that can commit.
    fn leader(&mut self) -> Option<String> {
        let cluster = self.etcds.clusters().next()?;
        let id = self.etcds.leaders(cluster).into_iter().next()?;
        let at = self.etcds.index(&id)?;
        Some(self.etcds.processes[at].flags.name.clone())
    }

    fn followers(&mut self) -> Vec<String> {
        let leader = self.leader().unwrap();
        let names = self.etcds.processes.iter().map(|p| p.flags.name.clone());
        names.filter(|name| *name != leader).collect()
    }

    fn ends(&mut self) -> Vec<(ProcessId, String)> {
        self.etcds.exited(self.now)
    }
}

fn refused(answer: Result<impl std::fmt::Debug, Error>) -> String {
    match answer.unwrap_err() {
        Error::Refused { message, .. } => message,
        other => panic!("{other}"),
    }
}

fn is_timeout(answer: &Result<impl std::fmt::Debug, Error>) -> bool {
    matches!(answer, Err(Error::Timeout { .. }))
}
