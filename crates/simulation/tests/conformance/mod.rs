//! Real etcd and its model side by side: everything is done to both, and whatever can be seen of both is compared.

mod real;
mod steps;
mod traps;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use etcd::{Error, Membership, Status};
use rand::SeedableRng;
use rand::rngs::StdRng;
use real::{Real, free_ports};
use simulation::etcd::{ClusterState, DiskId, Etcds, Flags, Millis, ProcessId, Request, Response};

/// The real thing gets that long to reach a state that the model has foretold.
const LIMIT: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(50);
/// The model looks that far ahead: longer than two joiners wait for each other, and than any election.
const AHEAD: Millis = 40_000;
/// Answers that depend on how long somebody has been connected are asked for only when this much makes no difference.
const SLACK: Millis = 1_500;
/// A boot that takes longer waits for a peer.
const SLOW: Millis = 3_000;
const MAX_LEARNERS: usize = 2;
/// No member has it.
const NOBODY: u64 = 4711;

/// Words of processes that end themselves; the model's and the real ones have the same of these.
const LAST_WORDS: [&str; 7] = [
    "member count is unequal",
    "no match found for existing member",
    "could not retrieve cluster information",
    "failed to get raft cluster member(s) from the given URLs",
    "permanently removed from the cluster",
    "Was the raft log corrupted, truncated, or lost?",
    "already been bootstrapped",
];

#[derive(Clone, Copy)]
struct Ids {
    real: u64,
    model: u64,
}

pub struct Pair {
    real: Real,
    model: Etcds,
    rng: StdRng,
    /// Apart from the steps: how often the clock is looked at differs from run to run.
    noise: StdRng,
    began: Instant,
    /// Every member there ever was, with the flags of its last start.
    flags: BTreeMap<String, Flags>,
    ids: BTreeMap<String, Ids>,
    /// The processes that run, as far as both sides agree.
    running: BTreeMap<String, ProcessId>,
    starts: u32,
    keys: u64,
    history: Vec<String>,
}

impl Pair {
    pub fn new(seed: u64) -> Result<Self> {
        Ok(Self {
            real: Real::new()?,
            model: Etcds::default(),
            rng: StdRng::seed_from_u64(seed),
            noise: StdRng::seed_from_u64(seed),
            began: Instant::now(),
            flags: BTreeMap::new(),
            ids: BTreeMap::new(),
            running: BTreeMap::new(),
            starts: 0,
            keys: 0,
            history: vec![format!("seed {seed}")],
        })
    }

    pub fn history(&self) -> String {
        self.history.join("\n  ")
    }

    fn note(&mut self, text: &str) {
        self.history.push(format!("{:6} ms  {text}", self.began.elapsed().as_millis()));
    }

    fn tick(&mut self) -> Millis {
        let now = self.began.elapsed().as_millis() as Millis;
        self.model.tick(now, &mut self.noise);
        now
    }

    /// The model as it will be.
    fn ahead(&mut self, by: Millis) -> Etcds {
        let now = self.tick();
        let mut later = self.model.clone();
        later.tick(now + by, &mut self.noise);
        later
    }

    fn member(&mut self, name: &str) -> Result<Flags> {
        if let Some(known) = self.flags.get(name) {
            return Ok(known.clone());
        }
        let [peer, client] = free_ports()?;
        let flags = Flags {
            name: name.to_owned(),
            peer_url: format!("http://127.0.0.1:{peer}"),
            client_url: format!("http://127.0.0.1:{client}"),
            token: "conformance".to_owned(),
            max_learners: MAX_LEARNERS,
            version: self.real.version,
            ..Flags::default()
        };
        self.flags.insert(name.to_owned(), flags.clone());
        Ok(flags)
    }

    fn name_of(&self, url: &str) -> String {
        self.flags
            .iter()
            .find(|(_, f)| f.peer_url == url)
            .map_or_else(|| url.to_owned(), |(name, _)| name.clone())
    }

    /// Starts a member on both sides and waits until it has become what the model says.
    async fn start(&mut self, name: &str, state: ClusterState, others: &[String]) -> Result<()> {
        self.note(&format!("start {name} {state:?} {others:?}"));
        let mut entries = Vec::new();
        for other in others {
            entries.push(format!("{other}={}", self.member(other)?.peer_url));
        }
        let flags =
            Flags { initial_cluster: entries.join(","), initial_cluster_state: state, ..self.member(name)? };
        self.flags.insert(name.to_owned(), flags.clone());
        self.starts += 1;
        let process = ProcessId(format!("{name}-{}", self.starts));
        let now = self.tick();
        let mut later = self.model.clone();
        later.start(now, process.clone(), name, flags.clone(), DiskId(name.to_owned()));
        later.tick(now + SLOW, &mut self.noise);
        let waits = later.running(&process) && later.identity(&process).is_none();
        later.tick(now + AHEAD, &mut self.noise);
        self.real.start(&flags)?;
        self.running.insert(name.to_owned(), process.clone());
        // The model's connections must not be older than the real ones, nor much younger.
        let boots = later.running(&process) || later.identity(&process).is_some();
        if boots && !waits {
            self.wait_for_boot(name).await?;
        }
        let now = self.tick();
        self.model.start(now, process, name, flags, DiskId(name.to_owned()));
        self.settle().await?;
        if waits {
            // Nobody knows whether they waited equally long. After this it does not matter.
            self.wait().await?;
        }
        Ok(())
    }

    async fn wait_for_boot(&mut self, name: &str) -> Result<()> {
        let began = Instant::now();
        let flags = self.flags.get(name).context("no such member")?.clone();
        while !real::answers_peers(&flags) {
            if let Some(words) = self.real.ended(name)? {
                bail!("the real {name} ended, the model's does not: {}", tail(&words));
            }
            ensure!(
                began.elapsed() < LIMIT,
                "the real {name} does not come up: {}",
                tail(&self.real.words(name))
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn wait_for_status(&mut self, name: &str) -> Result<()> {
        let began = Instant::now();
        while self.status(name).await.is_none() {
            if let Some(words) = self.real.ended(name)? {
                bail!("the real {name} ended, the model's serves: {}", tail(&words));
            }
            ensure!(
                began.elapsed() < LIMIT,
                "the real {name} does not serve: {}",
                tail(&self.real.words(name))
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn stop(&mut self, name: &str) -> Result<()> {
        self.note(&format!("stop {name}"));
        self.real.stop(name)?;
        let now = self.tick();
        if let Some(process) = self.running.remove(name) {
            self.model.stop(now, &process);
        }
        self.settle().await
    }

    fn wipe(&mut self, name: &str) -> Result<()> {
        self.note(&format!("wipe {name}"));
        self.model.wipe(&DiskId(name.to_owned()));
        self.real.wipe(name)
    }

    /// The real member's Status, if it serves.
    async fn status(&self, name: &str) -> Option<Status> {
        let answer = self.real.call(self.flags.get(name)?, &Request::Status).await;
        answer.ok().and_then(Response::status)
    }

    /// Waits until both sides are where the model ends up if it is left alone, then lets the model have the same leader.
    async fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            let difference = match self.difference().await? {
                None => return self.align().await,
                Some(difference) => difference,
            };
            if began.elapsed() > LIMIT {
                bail!("they do not come together: {difference}");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// What still differs between the real processes, the model, and the model's future.
    async fn difference(&mut self) -> Result<Option<String>> {
        let mut later = self.ahead(AHEAD);
        for (name, process) in self.running.clone() {
            if !later.running(&process) {
                return self.both_end(&name, &process);
            }
            let real = self.status(&name).await;
            if real.is_some() != later.serving(&process) || real.is_some() != self.model.serving(&process) {
                return Ok(Some(format!("{name} serves: really {}", real.is_some())));
            }
            let (Some(real), Some(model)) = (real, self.model_status(&name)) else { continue };
            let end = later.call(0, &name, Request::Status).ok().and_then(Response::status);
            let leaderless = end.is_some_and(|end| end.leader == 0);
            let alike = real.is_learner == model.is_learner;
            if !alike || (real.leader == 0) != leaderless || (model.leader == 0) != leaderless {
                return Ok(Some(format!("{name}: really {real:?}, in the model {model:?}")));
            }
        }
        let leads = |model: &Etcds| model.clusters().next().is_some_and(|c| !model.leaders(c).is_empty());
        let leader = self.real_leader().await;
        if leads(&later) != leads(&self.model) || leads(&later) != leader.is_some() {
            return Ok(Some(format!("the leader: really {leader:?}, in the model {}", leads(&self.model))));
        }
        Ok(None)
    }

    fn both_end(&mut self, name: &str, process: &ProcessId) -> Result<Option<String>> {
        let now = self.tick();
        if self.model.running(process) {
            return Ok(Some(format!("the model's {name} has not ended yet")));
        }
        let Some(real) = self.real.ended(name)? else {
            return Ok(Some(format!("the real {name} has not ended: {}", tail(&self.real.words(name)))));
        };
        let ends = self.model.exited(now);
        let words =
            ends.iter().find(|(id, _)| id == process).map(|(_, words)| words.clone()).unwrap_or_default();
        let said = LAST_WORDS.iter().find(|said| words.contains(**said)).context(words.clone())?;
        ensure!(real.contains(said), "{name} ended with {said:?} in the model, really with {}", tail(&real));
        self.running.remove(name);
        self.note(&format!("{name} ends: {said}"));
        Ok(Some("a process has just ended".to_owned()))
    }

    fn model_status(&mut self, name: &str) -> Option<Status> {
        let now = self.tick();
        self.model.call(now, name, Request::Status).ok().and_then(Response::status)
    }

    /// The leader that every real voter follows, if it runs and leads.
    async fn real_leader(&self) -> Option<String> {
        let mut leader = None;
        let mut statuses = Vec::new();
        for name in self.running.keys() {
            let Some(status) = self.status(name).await else { continue };
            if status.leader == status.member_id {
                leader = Some((name.clone(), status.member_id));
            }
            statuses.push(status);
        }
        let (name, id) = leader?;
        statuses.iter().all(|status| status.leader == id).then_some(name)
    }

    fn model_leader(&self) -> Option<String> {
        let cluster = self.model.clusters().next()?;
        let leaders = self.model.leaders(cluster);
        self.running.iter().find(|(_, id)| leaders.first() == Some(*id)).map(|(name, _)| name.clone())
    }

    /// Elections are random: the model follows.
    async fn align(&mut self) -> Result<()> {
        let (Some(real), Some(model)) = (self.real_leader().await, self.model_leader()) else {
            return Ok(());
        };
        if real != model {
            let to =
                self.running.get(&real).and_then(|id| self.model.identity(id)).context("no such process")?.1;
            let now = self.tick();
            let moved = self.model.call(now, &model, Request::MoveLeader { to });
            ensure!(moved.is_ok(), "{real} leads, in the model {model} and it can not be moved: {moved:?}");
        }
        // Followers hear of the last entry.
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.tick();
        Ok(())
    }

    /// Asks both the same. `request` makes it, given a member's id on either side.
    async fn ask(&mut self, at: &str, about: Option<&str>, request: impl Fn(u64) -> Request) -> Result<bool> {
        let nobody = Ids { real: NOBODY, model: NOBODY };
        let ids = about.and_then(|name| self.ids.get(name)).copied().unwrap_or(nobody);
        let model_request = request(ids.model);
        self.wait_out_doubt(at, &model_request).await;
        let now = self.tick();
        let model = self.model.call(now, at, model_request);
        let flags = self.flags.get(at).context("no such member")?;
        let real = self.real.call(flags, &request(ids.real)).await;
        self.note(&format!("{at}: {:?} about {about:?}: {}", request(0), kind(&real)));
        // A member that takes itself out may be gone before it has answered.
        let gone = about == Some(at) && kind(&model) == "ok" && kind(&real) == "etcdserver: server stopped";
        ensure!(gone || kind(&real) == kind(&model), "really {real:?}, in the model {model:?}");
        if let (Ok(Response::Members(real)), Ok(Response::Members(model))) = (&real, &model) {
            self.compare_lists(real, model)?;
        }
        Ok(gone || real.is_ok())
    }

    /// Waits while the answer is about to change by itself.
    async fn wait_out_doubt(&mut self, at: &str, request: &Request) {
        loop {
            let now = self.tick();
            let mut later = self.ahead(SLACK);
            let soon = later.call(now + SLACK, at, request.clone());
            if kind(&soon) == kind(&self.model.clone().call(now, at, request.clone())) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn compare_lists(&mut self, real: &Membership, model: &Membership) -> Result<()> {
        let rows = |list: &Membership| {
            let row = |m: &etcd::Member| (m.peer_urls.clone(), m.name.clone(), m.is_learner);
            let mut rows: Vec<_> = list.members.iter().map(row).collect();
            rows.sort();
            rows
        };
        ensure!(rows(real) == rows(model), "lists: really {:?}, in the model {:?}", rows(real), rows(model));
        self.ids.clear();
        for member in &real.members {
            let url = member.peer_urls.first().context("a member has a URL")?;
            let twin = model.members.iter().find(|m| m.peer_urls.contains(url)).context("known to both")?;
            self.ids.insert(self.name_of(url), Ids { real: member.id, model: twin.id });
        }
        Ok(())
    }

    /// Everything that can be seen of both. Roles take a moment to be known everywhere.
    async fn compare(&mut self) -> Result<()> {
        let began = Instant::now();
        while let Some(difference) = self.roles_differ().await {
            ensure!(began.elapsed() < LIMIT, difference);
            self.settle().await?;
        }
        // Without a leader every list costs a timeout.
        if self.model_leader().is_some() {
            for name in self.serving() {
                self.ask(&name, None, |_| Request::Members).await?;
            }
        }
        Ok(())
    }

    async fn roles_differ(&mut self) -> Option<String> {
        let seen =
            |status: &Status| (status.is_learner, status.leader == 0, status.leader == status.member_id);
        for name in self.running.keys().cloned().collect::<Vec<_>>() {
            let (real, model) = (self.status(&name).await, self.model_status(&name));
            let (real, model) = (real.as_ref().map(seen), model.as_ref().map(seen));
            if real != model {
                return Some(format!(
                    "{name}: really {real:?}, in the model {model:?} (learner, no leader, leads)"
                ));
            }
        }
        None
    }
}

fn kind(answer: &Result<Response, Error>) -> String {
    match answer {
        Ok(_) => "ok".to_owned(),
        Err(Error::Refused { message, .. }) => message.clone(),
        Err(Error::Timeout { .. }) => "timeout".to_owned(),
        Err(Error::Unreachable { .. }) => "unreachable".to_owned(),
        Err(other) => other.to_string(),
    }
}

fn tail(words: &str) -> String {
    words.lines().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
}
