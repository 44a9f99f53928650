//! The fast speed: the operator's own passes and its own cache, driven directly. Between any two calls of a pass anything can
//! happen: the world moves on, the process dies, another replica takes over.

mod broken;
mod call;
#[cfg(test)]
mod pruning;
mod steps;
mod watch;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use jiff::SignedDuration;
use operator::runtime::cache::Key;
use planner::Settings;
use planner::pass::Memory;

use crate::coverage::Coverage;
use crate::invariants::{self, Rest, Violation};
use crate::mutations::{self, Mutation};
use crate::record::Recorder;
use crate::script::{MINUTE, SECOND, Script};
use crate::world::agenda::Event;
use crate::world::{Order, World, namespace};
use crate::{Millis, Outcome};

use broken::Broken;
use steps::Playing;
use watch::Eyes;

pub use call::Call;

/// How long a cluster may take to come to rest after the last fault.
const PATIENCE: Millis = 40 * MINUTE;
/// No cluster needs that many passes in [`A_WHILE`]: an operator that does spins.
const TOO_MANY: u32 = 600;
const A_WHILE: Millis = 10 * SECOND;
/// How long a new leader waits for the lease of one that did not give it back.
const LEASE: Millis = 15 * SECOND;

/// One replica of the operator.
struct Operator {
    eyes: Eyes,
    workers: BTreeMap<Key, Worker>,
    /// Its clock, against the API server's.
    skew: i64,
    /// It stands still until then, calls and all.
    still_until: Millis,
}

/// The place of one cluster in the operator's queue.
#[derive(Default)]
struct Worker {
    memory: Memory,
    playing: Option<Playing>,
    due: Option<Millis>,
    /// Touched while it was worked on.
    dirty: bool,
    /// Passes since then.
    passes: (Millis, u32),
}

/// A world with an operator in it.
pub struct Simulation<'r> {
    pub world: World,
    operators: BTreeMap<usize, Operator>,
    leader: Option<usize>,
    replicas: usize,
    skew: i64,
    mutation: &'static Mutation,
    late: BTreeMap<u64, Call>,
    /// Calls that arrived late so far.
    calls: u64,
    /// Only for an operator that is broken that way.
    old_lists: BTreeMap<String, planner::Seen<etcd::Membership>>,
    /// The last line about each cluster.
    told: BTreeMap<String, String>,
    pub coverage: Coverage,
    rest: Rest,
    steps: u64,
    recorder: Option<&'r Recorder>,
    /// The last plan of each cluster that was written down.
    recorded: BTreeMap<String, planner::Plan>,
}

/// Runs a script to its end, or to the first violation.
pub fn run(script: &Script, mutation: &'static Mutation, telling: bool) -> Outcome {
    Simulation::new(script.clone(), mutation, telling, None).outcome()
}

/// Runs a script with the operator as it is, and writes down what it planned.
pub fn record(script: &Script, recorder: &Recorder) -> Outcome {
    Simulation::new(script.clone(), &mutations::NONE, false, Some(recorder)).outcome()
}

/// The operator's name for a cluster.
fn key(cluster: &str) -> Key {
    Key { namespace: namespace(cluster).to_owned(), name: cluster.to_owned() }
}

impl<'r> Simulation<'r> {
    fn new(
        script: Script,
        mutation: &'static Mutation,
        telling: bool,
        recorder: Option<&'r Recorder>,
    ) -> Self {
        let mut world = World::new(script, telling);
        world.agenda.put(5, Event::Lead);
        Self {
            world,
            operators: BTreeMap::new(),
            leader: None,
            replicas: 0,
            skew: 0,
            mutation,
            late: BTreeMap::new(),
            calls: 0,
            old_lists: BTreeMap::new(),
            told: BTreeMap::new(),
            coverage: Coverage::default(),
            rest: Rest::default(),
            steps: 0,
            recorder,
            recorded: BTreeMap::new(),
        }
    }

    fn outcome(mut self) -> Outcome {
        let violation = self.play();
        Outcome {
            violation,
            steps: self.steps,
            simulated: self.world.now,
            faults: std::mem::take(&mut self.world.faults_injected),
            acknowledged: self.world.ledger.acknowledged,
            history: self.world.history().cloned().collect(),
            coverage: self.coverage,
        }
    }

    fn play(&mut self) -> Option<Violation> {
        loop {
            if let ControlFlow::Break(verdict) = self.turn() {
                return verdict;
            }
        }
    }

    /// The next thing that happens, and the verdict if that was the last.
    fn turn(&mut self) -> ControlFlow<Option<Violation>> {
        let Some((at, event)) = self.world.agenda.pop() else { return ControlFlow::Break(None) };
        if at > self.world.script.calm_at + PATIENCE {
            return ControlFlow::Break(self.rest.verdict(&self.world));
        }
        self.steps += 1;
        self.world.advance(at);
        if let Some(event) = self.world.handle(event) {
            self.operate(event);
        }
        self.world.settle();
        self.obey();
        self.watch();
        if let Some(violation) = invariants::check(&mut self.world, self.leader.is_some()) {
            return ControlFlow::Break(Some(violation));
        }
        if self.world.calm && self.rest.is_reached(&self.world) {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }

    fn operate(&mut self, event: Event) {
        match event {
            Event::Operator(id, key) => self.step(id, &key),
            Event::Watch(id, kind) => self.deliver(id, kind),
            Event::Lead => self.lead(),
            Event::End(id) => self.end(id),
            Event::Late(number) => {
                if let Some(call) = self.late.remove(&number) {
                    self.world.note(|_| format!("a call arrives late: {}", call.describe()));
                    let _ = self.observed_write(&call, None, 0);
                }
            }
            _ => {}
        }
    }

    /// A replica takes the lead, with a cache that has just been filled.
    fn lead(&mut self) {
        if self.leader.is_some() {
            return;
        }
        if self.world.now < self.world.api_down_until {
            let at = self.world.api_down_until + 1;
            self.world.agenda.put(at, Event::Lead);
            return;
        }
        self.replicas += 1;
        let id = self.replicas;
        self.world.note(|_| format!("operator {id} leads"));
        // Whoever starts knows nothing of what was tried before.
        self.world.ledger.writes.clear();
        let eyes = Eyes::open(&self.world, self.mutation.sweeps);
        let operator = Operator { eyes, workers: BTreeMap::new(), skew: self.skew, still_until: 0 };
        self.operators.insert(id, operator);
        self.leader = Some(id);
        let names: Vec<String> = self.world.script.clusters.iter().map(|w| w.name.clone()).collect();
        for name in names {
            self.touch(id, &key(&name));
        }
    }

    fn end(&mut self, id: usize) {
        if self.operators.remove(&id).is_some() {
            self.world.note(|_| format!("operator {id} ends"));
        }
        if self.leader == Some(id) {
            self.leader = None;
        }
    }

    /// The process dies; another one leads after a while.
    fn die(&mut self, id: usize, back: Millis) {
        let led = self.leader == Some(id);
        self.end(id);
        if led {
            let at = self.world.now + back;
            self.world.agenda.put(at, Event::Lead);
        }
    }

    fn obey(&mut self) {
        while let Some(order) = self.world.orders.pop_front() {
            match (order, self.leader) {
                (Order::Crash { back }, Some(id)) => self.die(id, back),
                (Order::Depose { linger }, Some(id)) => self.depose(id, linger),
                (Order::RestartWatch(kind), Some(id)) => self.relist(id, kind),
                (Order::SkewClock(by), _) => {
                    self.skew = by;
                    for operator in self.operators.values_mut() {
                        operator.skew = by;
                    }
                }
                (Order::Calm, None) => {
                    let at = self.world.now + LEASE;
                    self.world.agenda.put(at, Event::Lead);
                }
                _ => {}
            }
        }
    }

    /// The leader stands still for longer than its lease; the next one leads; the old one wakes up and goes on with
    /// what it was about to do, until it notices.
    fn depose(&mut self, id: usize, linger: Millis) {
        let (now, pause) = (self.world.now, self.world.within(0, 5000));
        let Some(operator) = self.operators.get_mut(&id) else { return };
        operator.still_until = now + LEASE + pause;
        self.leader = None;
        self.world.note(|_| format!("operator {id} stands still"));
        self.world.agenda.put(now + LEASE, Event::Lead);
        self.world.agenda.put(now + LEASE + pause + linger, Event::End(id));
    }

    fn relist(&mut self, id: usize, kind: usize) {
        let Some(operator) = self.operators.get_mut(&id) else { return };
        self.world.note(|_| format!("operator {id} lists anew: {}", crate::world::WATCHED[kind].plural));
        // One of its watches of this kind, if it has several.
        let scopes = operator.eyes.watches.len() / 6;
        let watch = kind + 6 * (self.world.now as usize % scopes);
        let keys = operator.eyes.list(&self.world, watch);
        self.touch_all(id, keys);
    }

    /// Puts deliveries on the agenda for watches that have something to tell.
    fn watch(&mut self) {
        let now = self.world.now;
        let ids: Vec<usize> = self.operators.keys().copied().collect();
        for id in ids {
            let watches = self.operators.get(&id).map_or(0, |o| o.eyes.watches.len());
            for watch in 0..watches {
                let Some(operator) = self.operators.get_mut(&id) else { continue };
                if operator.eyes.watches[watch].due || !operator.eyes.is_behind(&self.world, watch) {
                    continue;
                }
                operator.eyes.watches[watch].due = true;
                let (lag, until) = self.world.watch_lag[operator.eyes.watches[watch].kind];
                let lag = if now < until { lag } else { 0 };
                let at = now + lag + self.world.within(1, self.world.temper.slowest_watch);
                self.world.agenda.put(at, Event::Watch(id, watch));
            }
        }
    }

    fn deliver(&mut self, id: usize, kind: usize) {
        let down = self.world.now < self.world.api_down_until;
        let most = if self.world.within(0, 9) == 0 { 1 } else { usize::MAX };
        let Some(operator) = self.operators.get_mut(&id) else { return };
        let later = if down { self.world.api_down_until } else { operator.still_until };
        if later > self.world.now {
            self.world.agenda.put(later + 1, Event::Watch(id, kind));
            return;
        }
        let keys = operator.eyes.deliver(&self.world, kind, most);
        self.touch_all(id, keys);
    }

    fn touch_all(&mut self, id: usize, mut keys: Vec<Key>) {
        keys.dedup();
        for key in keys {
            self.touch(id, &key);
        }
    }

    /// Something happened to a cluster: it is looked at now, or right after the pass under way.
    fn touch(&mut self, id: usize, key: &Key) {
        let now = self.world.now;
        let Some(operator) = self.operators.get_mut(&id) else { return };
        let worker = operator.workers.entry(key.clone()).or_default();
        if worker.is_busy() {
            worker.dirty = true;
        } else if worker.due != Some(now) {
            worker.due = Some(now);
            self.world.agenda.put(now, Event::Operator(id, key.clone()));
        }
    }

    fn settings(&self) -> Settings {
        let timeout = self.world.temper.lost_member_timeout;
        Settings {
            lost_member_timeout: timeout
                .map(|ms| SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
            ..Settings::default()
        }
    }

    /// What the operator's clock shows.
    fn clock(&self, id: usize) -> jiff::Timestamp {
        let skew = self.operators.get(&id).map_or(0, |o| o.skew);
        self.world.timestamp() + SignedDuration::from_millis(skew)
    }
}
