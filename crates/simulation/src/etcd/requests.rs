//! What the operator asks of etcd, answered as its client sees it: etcd's checks at the member that is asked, then raft,
//! then what applying the change says.

use std::time::Duration;

use etcd::{Error, Member, Membership, Status};

use super::raft::Proposed;
use super::store::{Change, Data, Rejected, Row};
use super::{Etcds, Millis, hash};

/// The client's limits: etcd itself would wait for 7 s.
const STATUS_LIMIT: Duration = Duration::from_secs(1);
const READ_LIMIT: Duration = Duration::from_secs(2);
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// How long a voter must have been connected to count for a change of the membership.
const HEALTH_INTERVAL: Millis = 5_000;

/// The calls of the `etcd` crate's trait, and one that it leaves out for good reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Status,
    Members,
    AddLearner {
        peer_url: String,
    },
    /// With a vote from the first moment on, whether it runs or not (H3).
    AddVoter {
        peer_url: String,
    },
    Promote {
        id: u64,
    },
    MoveLeader {
        to: u64,
    },
    Remove {
        id: u64,
    },
    /// An entry that changes nothing.
    Persist,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    Status(Status),
    Members(Membership),
    Done,
}

impl Response {
    pub fn status(self) -> Option<Status> {
        if let Self::Status(status) = self { Some(status) } else { None }
    }

    pub fn members(self) -> Option<Membership> {
        if let Self::Members(members) = self { Some(members) } else { None }
    }
}

impl Etcds {
    /// As the operator's client sees it: removing a member that is out already is a success (T3). `at` is a process id, a
    /// member's name, or one of its URLs. A timeout has kept the caller for the limit it names, and the change may still
    /// be made.
    pub fn call(&mut self, now: Millis, at: &str, request: Request) -> Result<Response, Error> {
        let removes = matches!(request, Request::Remove { .. });
        match self.ask(now, at, request) {
            Err(Error::MemberNotFound) if removes => Ok(Response::Done),
            answer => answer,
        }
    }

    /// The same from a host that may be cut off from the member's.
    pub fn call_from(
        &mut self,
        now: Millis,
        host: &str,
        at: &str,
        request: Request,
    ) -> Result<Response, Error> {
        self.advance(now);
        if let Some(found) = self.find(at).map(|found| &self.processes[found])
            && !self.network.dials(host, &found.host)
        {
            return Err(Error::Timeout { member: found.flags.name.clone(), limit: limit(&request) });
        }
        self.call(now, at, request)
    }

    /// In etcd's own words: removing an unknown member is `MemberNotFound`.
    pub fn ask(&mut self, now: Millis, at: &str, request: Request) -> Result<Response, Error> {
        self.advance(now);
        let Some(at) = self.find(at) else { return Err(Error::Unreachable { member: short(at) }) };
        if !self.processes[at].serves() {
            // The port is open, but nothing is served on it before the member has published itself.
            return Err(self.timeout(at, limit(&request)));
        }
        if self.processes[at].is_learner() && request != Request::Status {
            return Err(self.refuse(at, "etcdserver: rpc not supported for learner"));
        }
        match request {
            Request::Status => Ok(Response::Status(self.status(at))),
            Request::Members => self.list(at).map(Response::Members),
            Request::AddLearner { peer_url } => self.add(at, peer_url, true).map(Response::Members),
            Request::AddVoter { peer_url } => self.add(at, peer_url, false).map(Response::Members),
            Request::Promote { id } => self.promote(at, id).map(Response::Members),
            Request::MoveLeader { to } => self.move_leader(at, to).map(|()| Response::Done),
            Request::Remove { id } => self.remove(at, id).map(|()| Response::Done),
            Request::Persist => self.persist(at).map(|()| Response::Done),
        }
    }

    fn find(&self, at: &str) -> Option<usize> {
        let by = |is: &dyn Fn(&super::Process) -> bool| self.processes.iter().rposition(is);
        by(&|process| process.id.0 == at)
            .or_else(|| by(&|process| process.flags.name == at))
            .or_else(|| by(&|process| process.flags.peer_url == at || process.flags.client_url == at))
    }

    fn refuse(&self, at: usize, message: &str) -> Error {
        Error::Refused { member: self.processes[at].flags.name.clone(), message: message.to_owned() }
    }

    fn timeout(&self, at: usize, limit: Duration) -> Error {
        Error::Timeout { member: self.processes[at].flags.name.clone(), limit }
    }

    fn status(&self, at: usize) -> Status {
        let process = &self.processes[at];
        let state = &process.data.state;
        let mut errors = Vec::new();
        if process.leader == 0 {
            errors.push("etcdserver: no leader".to_owned());
        }
        errors.extend(state.no_space.iter().map(|id| format!("memberID:{id} alarm:NOSPACE ")));
        Status {
            cluster_id: process.data.cluster,
            member_id: process.data.member,
            version: process.flags.version_text(),
            leader: process.leader,
            is_learner: process.is_learner(),
            db_size: 20_480,
            raft_term: process.data.term,
            raft_applied_index: state.index,
            errors,
        }
    }

    /// Brings the process up to what the leader has committed, if a quorum stands behind that leader.
    pub(super) fn read_index(&mut self, at: usize) -> bool {
        let Some(leader) = self.confirmed_leader(at) else { return false };
        let index = self.processes[leader].data.commit;
        let (id, member) = (self.processes[at].id.clone(), self.processes[at].member());
        if leader != at {
            self.send(leader, member);
        }
        self.index(&id).is_some_and(|at| self.processes[at].data.state.index >= index)
    }

    fn list(&mut self, at: usize) -> Result<Membership, Error> {
        let id = self.processes[at].id.clone();
        let slow = self.timeout(at, READ_LIMIT);
        if !self.read_index(at) {
            return Err(slow);
        }
        self.index(&id).map(|at| membership(&self.processes[at].data)).ok_or(slow)
    }

    /// Members that this one has been connected to for long enough, itself among them.
    fn connected_voters(&self, at: usize) -> usize {
        let process = &self.processes[at];
        let long = |id: &u64| {
            let since = process.connections.get(id).map(|c| c.since);
            process.deaf_to != Some(*id) && since.is_some_and(|since| since + HEALTH_INTERVAL < self.clock)
        };
        process.data.state.voters().filter(|id| *id == process.data.member || long(id)).count()
    }

    fn add(&mut self, at: usize, peer_url: String, learner: bool) -> Result<Membership, Error> {
        let process = &self.processes[at];
        let voters = process.data.state.voters().count();
        let needed = match process.flags.adds_only_with_all_voters() {
            true => voters,
            false if voters == 1 => 0,
            // The new member is taken for unavailable.
            false => voters.div_ceil(2) + 1,
        };
        let started =
            process.data.state.members.values().filter(|row| !row.learner && !row.name.is_empty()).count();
        if !learner && (voters, started) != (1, 1) && started < voters.div_ceil(2) + 1 {
            return Err(self.refuse(at, NOT_ENOUGH_STARTED));
        }
        if self.connected_voters(at) < needed {
            return Err(Error::Unhealthy);
        }
        // etcd hashes the URL with the second of the request.
        let id = hash([peer_url.as_bytes(), (self.clock / 1000).to_string().as_bytes()]);
        let row = Row { name: String::new(), url: peer_url, learner };
        self.configure(at, Change::Add { id, row })
    }

    fn promote(&mut self, at: usize, id: u64) -> Result<Membership, Error> {
        let slow = self.timeout(at, WRITE_LIMIT);
        // Only the leader knows how far a learner is; a follower passes the request on.
        let mut leader = self.confirmed_leader(at).ok_or_else(|| slow.clone())?;
        if leader != at && !self.network.dials(&self.processes[at].host, &self.processes[leader].host) {
            return Err(slow);
        }
        // The newest entry has reached the learner already, or just not yet: right after another change etcd may say that
        // it has not caught up.
        if self.jitter(id, 2) == 0 {
            let process = self.processes[leader].id.clone();
            self.send(leader, id);
            leader = self.index(&process).ok_or_else(|| slow.clone())?;
        }
        let process = &self.processes[leader];
        let state = &process.data.state;
        if !state.members.contains_key(&id) {
            return Err(Error::MemberNotFound);
        }
        let last = process.data.log.last();
        let matched = process.leads.as_ref().and_then(|leads| leads.matched.get(&id)).copied().unwrap_or(0);
        let matched = if id == process.data.member { last } else { matched };
        if matched * 10 < last * 9 {
            return Err(Error::LearnerNotReady);
        }
        let started = state.members.values().filter(|row| !row.learner && !row.name.is_empty()).count() + 1;
        if started < state.voters().count().div_ceil(2) + 1 {
            return Err(self.refuse(at, NOT_ENOUGH_STARTED));
        }
        self.configure(leader, Change::Promote(id))
    }

    fn remove(&mut self, at: usize, id: u64) -> Result<(), Error> {
        let process = &self.processes[at];
        let state = &process.data.state;
        if !state.is_learner(id) {
            let left: Vec<_> = state.members.iter().filter(|(m, row)| **m != id && !row.learner).collect();
            if left.iter().filter(|(_, row)| !row.name.is_empty()).count() < left.len() / 2 + 1 {
                return Err(self.refuse(at, NOT_ENOUGH_STARTED));
            }
            let heard = process.connections.contains_key(&id) && process.deaf_to != Some(id);
            let down = id != process.data.member && !heard;
            let voters = state.voters().count();
            if !down && self.connected_voters(at) < 2 + voters.saturating_sub(1) / 2 {
                return Err(Error::Unhealthy);
            }
        }
        self.configure(at, Change::Remove(id)).map(drop)
    }

    fn move_leader(&mut self, at: usize, to: u64) -> Result<(), Error> {
        let process = &self.processes[at];
        if process.leads.is_none() {
            return Err(self.refuse(at, "etcdserver: not leader"));
        }
        if !process.data.state.is_voter(to) {
            return Err(self.refuse(at, "etcdserver: bad leader transferee"));
        }
        let slow = self.timeout(at, WRITE_LIMIT);
        if self.transfer(at, to) { Ok(()) } else { Err(slow) }
    }

    fn persist(&mut self, at: usize) -> Result<(), Error> {
        let slow = self.timeout(at, WRITE_LIMIT);
        if let Proposed::Applied(_) = self.propose(at, Change::Nothing) { Ok(()) } else { Err(slow) }
    }

    fn configure(&mut self, at: usize, change: Change) -> Result<Membership, Error> {
        let id = self.processes[at].id.clone();
        let slow = self.timeout(at, WRITE_LIMIT);
        let Proposed::Applied(entry) = self.propose(at, change) else { return Err(slow) };
        let Some(at) = self.index(&id) else { return Err(slow) };
        match self.processes[at].outcome {
            Some((applied, Err(rejected))) if applied == entry => Err(self.rejection(at, rejected)),
            _ => Ok(membership(&self.processes[at].data)),
        }
    }

    fn rejection(&self, at: usize, rejected: Rejected) -> Error {
        match rejected {
            Rejected::NotFound => Error::MemberNotFound,
            Rejected::TooManyLearners => Error::TooManyLearners,
            Rejected::UrlExists => self.refuse(at, "etcdserver: Peer URLs already exists"),
            Rejected::IdExists => self.refuse(at, "etcdserver: member ID already exist"),
            Rejected::NotLearner => self.refuse(at, "etcdserver: can only promote a learner member"),
        }
    }
}

const NOT_ENOUGH_STARTED: &str = "etcdserver: re-configuration failed due to not enough started members";

fn limit(request: &Request) -> Duration {
    match request {
        Request::Status => STATUS_LIMIT,
        Request::Members => READ_LIMIT,
        _ => WRITE_LIMIT,
    }
}

fn membership(data: &Data) -> Membership {
    let member = |(&id, row): (&u64, &Row)| Member {
        id,
        name: row.name.clone(),
        peer_urls: vec![row.url.clone()],
        is_learner: row.learner,
    };
    Membership { cluster_id: data.cluster, members: data.state.members.iter().map(member).collect() }
}

/// `a` of `http://a.b.c:2380` or `a.b.c:2379`.
fn short(at: &str) -> String {
    let host = at.split_once("://").map_or(at, |(_, rest)| rest);
    host.split(['.', ':', '/']).next().unwrap_or(host).to_owned()
}
