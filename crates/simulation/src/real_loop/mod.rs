//! The slow speed: the operator's own code. Its watches, cache, queue, reconciler, actor and reporter run on a real
//! `kube::Client` whose other end is the API server in memory, and on an etcd client whose other end is the model. Time is
//! paused and there is one thread, so a seed is a run here as well.

mod etcd_client;
mod fates;
mod replica;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::apiserver::http::{Disturbance, Shared, Watchers};
use crate::invariants::{self, Rest, Violation};
use crate::script::{MINUTE, SECOND, Script};
use crate::world::agenda::Event;
use crate::world::{Order, WATCHED, World};
use crate::{Millis, Outcome};

use replica::Replica;

/// How long a cluster may take to come to rest after the last fault.
const PATIENCE: Millis = 40 * MINUTE;
const LEASE: Millis = 15 * SECOND;

/// The world, as everybody here shares it.
#[derive(Clone)]
struct Stage {
    world: Arc<Mutex<World>>,
    api: Shared,
    began: Instant,
    skew: Arc<AtomicI64>,
    lost_member_timeout: Option<Millis>,
}

impl Stage {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        millis(self.began)
    }
}

fn millis(since: Instant) -> Millis {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Runs a script to its end, or to the first violation.
pub fn run(script: &Script, telling: bool) -> std::io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(Play::new(script, telling).play()))
}

struct Play {
    stage: Stage,
    leader: Option<Replica>,
    /// Replicas that have lost the lead and go on until then.
    old: Vec<(Millis, Replica)>,
    replicas: usize,
    /// Watches of a kind that lag, and until when.
    lagging: Vec<(usize, Millis)>,
    rest: Rest,
    steps: u64,
}

impl Play {
    fn new(script: &Script, telling: bool) -> Self {
        let mut world = World::new(script.clone(), telling);
        world.agenda.put(5, Event::Lead);
        let began = Instant::now();
        let api = Shared::over(world.api.clone(), script.seed, move || millis(began));
        let lost_member_timeout = script.temper.lost_member_timeout;
        let world = Arc::new(Mutex::new(world));
        let stage = Stage { world, api, began, skew: Arc::default(), lost_member_timeout };
        stage.api.set_hook(Arc::new(fates::Fates { stage: stage.clone() }));
        let rest = Rest::default();
        Self { stage, leader: None, old: vec![], replicas: 0, lagging: vec![], rest, steps: 0 }
    }

    async fn play(mut self) -> Outcome {
        let end = self.stage.world().script.calm_at + PATIENCE;
        let violation = loop {
            let Some(at) = self.stage.world().agenda.next_at() else { break None };
            if at > end {
                break self.rest.verdict(&self.stage.world());
            }
            tokio::time::sleep_until(self.stage.began + Duration::from_millis(at)).await;
            if let Some(verdict) = self.step() {
                break verdict;
            }
        };
        // The hook holds the stage, and the stage the hook: they are let go of one after the other.
        self.stage.api.set_hook(Arc::new(crate::apiserver::http::Calm));
        let mut world = self.stage.world();
        Outcome {
            violation,
            steps: self.steps,
            simulated: world.now,
            faults: std::mem::take(&mut world.faults_injected),
            acknowledged: world.ledger.acknowledged,
            history: world.history().cloned().collect(),
            ..Outcome::default()
        }
    }

    /// Everything that is due. The verdict, when there is one.
    fn step(&mut self) -> Option<Option<Violation>> {
        let stage = self.stage.clone();
        let now = stage.now();
        let mut world = stage.world();
        let revision = world.api().revision();
        while world.agenda.next_at().is_some_and(|at| at <= now) {
            let Some((at, event)) = world.agenda.pop() else { break };
            self.steps += 1;
            world.advance(at);
            if matches!(world.handle(event), Some(Event::Lead)) {
                self.lead(&mut world);
            }
            world.settle();
        }
        world.advance(now);
        self.obey(&mut world, now);
        let verdict = match invariants::check(&mut world, self.leader.is_some()) {
            Some(violation) => Some(Some(violation)),
            None if world.calm && self.rest.is_reached(&world) => Some(None),
            None => None,
        };
        if world.api().revision() != revision {
            stage.api.wake();
        }
        verdict
    }

    fn lead(&mut self, world: &mut World) {
        if self.leader.is_none() {
            self.replicas += 1;
            let name = format!("operator-{}", self.replicas);
            world.note(|_| format!("{name} leads"));
            self.leader = Some(Replica::start(&self.stage, &name));
        }
    }

    fn obey(&mut self, world: &mut World, now: Millis) {
        self.old.retain(|(until, _)| *until > now);
        let over: Vec<usize> =
            self.lagging.iter().filter(|(_, until)| *until <= now).map(|(kind, _)| *kind).collect();
        self.lagging.retain(|(_, until)| *until > now);
        for kind in over {
            self.disturb(kind, Disturbance::Flow);
        }
        for kind in 0..WATCHED.len() {
            let (by, until) = world.watch_lag[kind];
            if until > now && !self.lagging.iter().any(|(known, _)| *known == kind) {
                self.lagging.push((kind, until));
                self.disturb(kind, Disturbance::Lag(by));
            }
        }
        while let Some(order) = world.orders.pop_front() {
            match order {
                Order::Crash { back } => {
                    if self.leader.take().is_some() {
                        world.note(|_| "the operator dies".to_owned());
                        world.agenda.put(now + back, Event::Lead);
                    }
                }
                Order::Depose { linger } => {
                    if let Some(old) = self.leader.take() {
                        world.note(|_| "another replica takes over, the old one goes on".to_owned());
                        self.old.push((now + linger, old));
                        world.agenda.put(now + 1, Event::Lead);
                    }
                }
                Order::RestartWatch(kind) => self.disturb(kind, Disturbance::Expire),
                Order::SkewClock(by) => self.stage.skew.store(by, Ordering::Relaxed),
                Order::Calm if self.leader.is_none() => world.agenda.put(now + LEASE, Event::Lead),
                Order::Calm => {}
            }
        }
    }

    fn disturb(&self, kind: usize, how: Disturbance) {
        self.stage.api.disturb(&Watchers { kind: Some(WATCHED[kind]), ..Watchers::default() }, how);
    }
}
