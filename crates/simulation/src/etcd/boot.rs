//! How a process comes up. A data directory that exists decides alone. Without one, `new` forms a cluster and
//! `existing` asks the others of `--initial-cluster`: first for the member list, which must be the same, then everybody
//! for their version, then one of them for something that takes a quorum. Somebody who is booting himself keeps his port open and answers nothing, so two joiners that start
//! together wait for each other until they time out.

use std::collections::{BTreeMap, VecDeque};

use super::process::Phase;
use super::store::{Change, Data, Entry, Row};
use super::{ClusterState, ELECTION, Etcds, Millis, hash};

/// etcd's patience with a peer that takes the connection and does not answer.
const MEMBERS_TIMEOUT: Millis = 10_000;
const VERSION_TIMEOUT: Millis = 7_000;
/// And with one that can not be connected to.
const DIAL_TIMEOUT: Millis = 2_000;

#[derive(Clone, Debug)]
pub(super) enum Boot {
    Opening {
        until: Millis,
    },
    /// Whom to ask for the member list, one after the other.
    AskingMembers {
        urls: VecDeque<String>,
        since: Millis,
    },
    /// Whom to ask for their version before the directory is made.
    AskingVersions {
        data: Box<Data>,
        urls: VecDeque<String>,
        since: Millis,
        answered: bool,
    },
    /// And whom to ask whether a downgrade is on: the first answer will do, but it takes a quorum to give one.
    AskingDowngrade {
        data: Box<Data>,
        urls: VecDeque<String>,
        since: Millis,
    },
}

/// What a dialled address does.
enum Answer {
    From(usize),
    Nobody,
    Silence,
    NoRoute,
}

impl Etcds {
    pub(super) fn boot(&mut self) {
        let mut at = 0;
        while at < self.processes.len() {
            match self.boot_one(at) {
                Ok(()) => at += 1,
                Err(words) => self.die(at, words),
            }
        }
    }

    fn boot_one(&mut self, at: usize) -> Result<(), String> {
        loop {
            let Phase::Booting(boot) = &self.processes[at].phase else { return Ok(()) };
            let next = match boot.clone() {
                Boot::Opening { until } if until > self.clock => None,
                Boot::Opening { .. } => self.open(at)?,
                Boot::AskingMembers { urls, since } => self.ask_members(at, urls, since)?,
                Boot::AskingVersions { data, urls, since, answered } => {
                    self.ask_versions(at, data, urls, since, answered)?
                }
                Boot::AskingDowngrade { data, urls, since } => self.ask_downgrade(at, data, urls, since),
            };
            match next {
                Some(boot) => self.processes[at].phase = Phase::Booting(boot),
                None => return Ok(()),
            }
        }
    }

    fn open(&mut self, at: usize) -> Result<Option<Boot>, String> {
        let process = &self.processes[at];
        let disk = self.disks.entry(process.disk.clone()).or_default();
        if disk.exhausted {
            return Err("cannot write to data directory: no space left on device".to_owned());
        }
        if disk.corrupt {
            return Err("failed to read WAL, cannot be repaired: walpb: crc mismatch".to_owned());
        }
        if let Some(mut data) = disk.data.take() {
            data.apply(process.flags.max_learners);
            self.run(at, data);
            return Ok(None);
        }
        self.check_flags(at)?;
        match self.processes[at].flags.initial_cluster_state {
            ClusterState::New => self.form(at).map(|()| None),
            ClusterState::Existing => {
                let mut urls: Vec<String> = self.others_of(at).map(str::to_owned).collect();
                urls.sort_unstable();
                Ok(Some(Boot::AskingMembers { urls: urls.into(), since: self.clock }))
            }
        }
    }

    fn others_of(&self, at: usize) -> impl Iterator<Item = &str> {
        let flags = &self.processes[at].flags;
        flags.initial_members().into_iter().filter(|(name, _)| *name != flags.name).map(|(_, url)| url)
    }

    fn check_flags(&self, at: usize) -> Result<(), String> {
        let flags = &self.processes[at].flags;
        let members = flags.initial_members();
        let mut urls: Vec<_> = members.iter().map(|(_, url)| *url).collect();
        urls.sort_unstable();
        urls.dedup();
        if urls.len() < members.len() {
            return Err(format!("initial cluster {} has duplicate url", flags.initial_cluster));
        }
        match members.iter().find(|(name, _)| *name == flags.name) {
            None => {
                Err(format!("couldn't find local name {:?} in the initial cluster configuration", flags.name))
            }
            Some((_, url)) if *url != flags.peer_url => Err(format!(
                "--initial-cluster has {}={url} but missing from --initial-advertise-peer-urls={}",
                flags.name, flags.peer_url
            )),
            Some(_) => Ok(()),
        }
    }

    /// A new cluster out of `--initial-cluster` and the token alone. Somebody else with the same flags forms the same one.
    fn form(&mut self, at: usize) -> Result<(), String> {
        let process = &self.processes[at];
        let flags = &process.flags;
        let members: BTreeMap<u64, Row> = flags
            .initial_members()
            .into_iter()
            .map(|(name, url)| {
                let row = Row { name: name.to_owned(), url: url.to_owned(), learner: false };
                (hash([url.as_bytes(), flags.token.as_bytes()]), row)
            })
            .collect();
        let member = hash([flags.peer_url.as_bytes(), flags.token.as_bytes()]);
        let ids: Vec<[u8; 8]> = members.keys().map(|id| id.to_be_bytes()).collect();
        let cluster = hash(ids.iter().map(<[u8; 8]>::as_slice));
        if self.others_of(at).any(|url| self.knows(at, url, member)) {
            return Err(format!("member {member:x} has already been bootstrapped"));
        }
        let impostor = self.volumes(cluster).surviving > 0;
        let mut data = Data { cluster, member, term: 1, impostor, ..Data::default() };
        for (&id, row) in &members {
            // The same on every member, so the entries must count as the same.
            let row = Row { name: String::new(), ..row.clone() };
            data.log.append(Entry {
                term: 1,
                id: hash([&id.to_be_bytes()[..], &cluster.to_be_bytes()]),
                change: Change::Add { id, row },
            });
        }
        data.commit = data.log.last();
        data.apply(usize::MAX);
        data.promise(1, 0);
        self.audit.form(self.clock, process, &data);
        self.audit.configure(&data);
        self.run(at, data);
        Ok(())
    }

    /// Whether somebody at this URL has a member of this id that has been up before.
    fn knows(&self, at: usize, url: &str, member: u64) -> bool {
        let Answer::From(peer) = self.dial(at, url) else { return false };
        self.processes[peer].local_members().get(&member).is_some_and(|row| !row.name.is_empty())
    }

    fn dial(&self, from: usize, url: &str) -> Answer {
        let Some(to) = self.at_url(url) else { return Answer::Nobody };
        let (this, that) = (&self.processes[from], &self.processes[to]);
        if !self.network.dials(&this.host, &that.host) || that.hidden_until > self.clock {
            Answer::NoRoute
        } else if that.booted() {
            Answer::From(to)
        } else {
            Answer::Silence
        }
    }

    fn ask_members(
        &self,
        at: usize,
        mut urls: VecDeque<String>,
        since: Millis,
    ) -> Result<Option<Boot>, String> {
        let Some(url) = urls.front() else {
            return Err(
                "cannot fetch cluster info from peer urls: could not retrieve cluster information from the \
                        given URLs"
                    .to_owned(),
            );
        };
        match self.dial(at, url) {
            Answer::From(peer) => self.join(at, peer).map(Some),
            Answer::Silence if self.clock - since < MEMBERS_TIMEOUT => Ok(None),
            Answer::NoRoute if self.clock - since < DIAL_TIMEOUT => Ok(None),
            _ => {
                urls.pop_front();
                Ok(Some(Boot::AskingMembers { urls, since: self.clock }))
            }
        }
    }

    /// Compares the own list with the peer's and takes the id that the cluster has for this URL, whatever log may once
    /// have belonged to it.
    fn join(&self, at: usize, peer: usize) -> Result<Boot, String> {
        let flags = &self.processes[at].flags;
        let known = &self.processes[peer].data;
        let existing = self.processes[peer].local_members();
        if existing.is_empty() {
            return Err("cannot fetch cluster info from peer urls: failed to get raft cluster member(s) from the given \
                        URLs"
                .to_owned());
        }
        let own = flags.initial_members();
        if existing.len() != own.len() {
            return Err("error validating peerURLs: member count is unequal".to_owned());
        }
        if let Some((id, row)) = existing.iter().find(|(_, row)| own.iter().all(|(_, url)| *url != row.url)) {
            return Err(format!(
                "error validating peerURLs: PeerURLs: no match found for existing member ({id:x}, [{}])",
                row.url
            ));
        }
        let Some((&member, _)) = existing.iter().find(|(_, row)| row.url == flags.peer_url) else {
            return Err("error validating peerURLs: PeerURLs: no match found for the local member".to_owned());
        };
        if existing.values().filter(|row| row.learner).count() > flags.max_learners {
            return Err("membership: too many learner members in cluster".to_owned());
        }
        let (cluster, impostor) = (known.cluster, known.impostor);
        let data = Data { cluster, member, told: existing.clone(), impostor, ..Data::default() };
        let urls = peers(&data);
        Ok(Boot::AskingVersions { data: Box::new(data), urls, since: self.clock, answered: false })
    }

    fn ask_versions(
        &self,
        at: usize,
        data: Box<Data>,
        mut urls: VecDeque<String>,
        since: Millis,
        answered: bool,
    ) -> Result<Option<Boot>, String> {
        let Some(url) = urls.front() else {
            if !answered {
                return Err("incompatible with current running cluster".to_owned());
            }
            let urls = peers(&data);
            return Ok(Some(Boot::AskingDowngrade { data, urls, since: self.clock }));
        };
        let answer = self.dial(at, url);
        let patience = match answer {
            Answer::Silence => VERSION_TIMEOUT,
            Answer::NoRoute => DIAL_TIMEOUT,
            Answer::From(_) | Answer::Nobody => 0,
        };
        if self.clock - since < patience {
            return Ok(None);
        }
        urls.pop_front();
        let answered = answered || matches!(answer, Answer::From(_));
        Ok(Some(Boot::AskingVersions { data, urls, since: self.clock, answered }))
    }

    fn ask_downgrade(
        &mut self,
        at: usize,
        data: Box<Data>,
        mut urls: VecDeque<String>,
        since: Millis,
    ) -> Option<Boot> {
        let patience = match urls.front().map(|url| self.dial(at, url)) {
            Some(Answer::From(peer)) if self.confirmed_leader(peer).is_none() => VERSION_TIMEOUT,
            Some(Answer::Silence) => VERSION_TIMEOUT,
            Some(Answer::NoRoute) => DIAL_TIMEOUT,
            Some(Answer::Nobody) => 0,
            Some(Answer::From(_)) | None => {
                self.audit.join(self.clock, &self.processes[at], &data);
                self.processes[at].fresh = true;
                self.run(at, *data);
                return None;
            }
        };
        if self.clock - since < patience {
            return None;
        }
        urls.pop_front();
        Some(Boot::AskingDowngrade { data, urls, since: self.clock })
    }

    fn run(&mut self, at: usize, data: Data) {
        let generation = self.disks.get(&self.processes[at].disk).map_or(0, |disk| disk.generation);
        self.audit.settle(&self.processes[at], &data, generation);
        let alone = data.state.members.len() == 1;
        let jitter = self.jitter(data.member, ELECTION);
        let process = &mut self.processes[at];
        if data.state.removed.contains(&data.member) {
            process.leaves = Some(self.clock + super::FAREWELL);
        }
        process.data = data;
        process.phase = Phase::Running { published: false };
        // etcd fast-forwards the election of a member that is alone.
        process.deadline = self.clock + jitter + if alone { super::HEARTBEAT } else { ELECTION };
    }
}

/// The URLs of a joiner's peers, in the order of their ids.
fn peers(data: &Data) -> VecDeque<String> {
    data.told.iter().filter(|(id, _)| **id != data.member).map(|(_, row)| row.url.clone()).collect()
}
