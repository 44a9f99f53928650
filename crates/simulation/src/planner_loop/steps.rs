//! The passes of an operator, call by call. What a pass asks and what answers mean is the operator's own code; here is what
//! becomes of a call on its way.

use std::sync::Arc;
use std::time::Duration;

use operator::cluster::kinds::Clusters;
use operator::cluster::reconcile::observe;
use operator::runtime::cache::{Cache, Key, Known};
use planner::pass::{Answer, Around, Change, EtcdCall, Failure, Pass, Request, Step, Ticket, Told};
use rand::RngExt;

use super::call::Call;
use super::{Broken, Simulation, Worker};
use crate::Millis;
use crate::invariants;
use crate::script::Fate;
use crate::world::agenda::Event;

/// A pass under way, and the answers that are under way to it.
pub struct Playing {
    pub pass: Pass<Broken>,
    arrivals: Vec<(Millis, Ticket, Result<Answer, Failure>)>,
    began: Millis,
    /// The linearizable list was read in this very pass.
    list_read: bool,
}

/// What came of a call, and how long it took.
enum Called {
    Answered(Result<Answer, Failure>, Millis),
    Died,
}

impl Simulation<'_> {
    /// One turn of the operator's work on one cluster.
    pub(super) fn step(&mut self, id: usize, key: &Key) {
        let now = self.world.now;
        let Some(operator) = self.operators.get_mut(&id) else { return };
        let Some(worker) = operator.workers.get_mut(key) else { return };
        if operator.still_until > now {
            let at = operator.still_until;
            if worker.playing.is_none() && worker.due == Some(now) {
                worker.due = Some(at);
            }
            self.world.agenda.put(at, Event::Operator(id, key.clone()));
            return;
        }
        let playing = match worker.playing.take() {
            Some(playing) => Some(playing),
            None if worker.due == Some(now) => self.begin(id, key),
            None => None,
        };
        let Some(mut playing) = playing else { return };
        self.hear(id, key, &mut playing);
        if !self.go_on(id, key, &mut playing) {
            return;
        }
        let cache = self.cache(id);
        let known = Known { cache: &cache, namespace: &key.namespace };
        let is_over = matches!(playing.pass.next(&self.around(id, &known)), Step::Over);
        let Some(worker) = self.operators.get_mut(&id).and_then(|o| o.workers.get_mut(key)) else { return };
        if is_over {
            self.finish(id, key, playing);
        } else {
            worker.playing = Some(playing);
        }
    }

    fn begin(&mut self, id: usize, key: &Key) -> Option<Playing> {
        let settings = self.settings();
        let operator = self.operators.get_mut(&id)?;
        let objects = observe(&mut operator.eyes.cache.entry(key));
        if objects.is_empty() {
            operator.workers.remove(key);
            return None;
        }
        let memory = operator.workers.get(key).map(|w| w.memory.clone()).unwrap_or_default();
        let view = objects.into_view(&key.namespace, &key.name, settings, self.world.rng.random());
        let list = self.old_lists.get(&key.name).filter(|_| self.mutation.keeps_list).cloned();
        let conduct = Broken { mutation: self.mutation, list };
        let cache = self.cache(id);
        let known = Known { cache: &cache, namespace: &key.namespace };
        let pass = Pass::begin(view, memory, conduct, &self.around(id, &known));
        Some(Playing { pass, arrivals: vec![], began: self.world.now, list_read: false })
    }

    /// The operator's clocks, its cache, and whether it leads.
    fn around<'a>(&self, id: usize, known: &'a Known<'_, Clusters>) -> Around<'a> {
        Around {
            now: Duration::from_millis(self.world.now),
            wall: self.clock(id),
            leads: self.leader == Some(id),
            cache: known,
        }
    }

    /// The cache of an operator; an empty one if it has ended.
    fn cache(&self, id: usize) -> Arc<Cache<Clusters>> {
        self.operators.get(&id).map_or_else(Arc::default, |operator| operator.eyes.cache.clone())
    }

    /// Hands over what has arrived by now.
    fn hear(&mut self, id: usize, key: &Key, playing: &mut Playing) {
        let cache = self.cache(id);
        let known = Known { cache: &cache, namespace: &key.namespace };
        let (now, around) = (self.world.now, self.around(id, &known));
        let (due, later) = std::mem::take(&mut playing.arrivals).into_iter().partition(|(at, ..)| *at <= now);
        playing.arrivals = later;
        for (_, ticket, answer) in due {
            playing.list_read |= matches!(answer, Ok(Answer::Members(_)));
            playing.pass.hear(ticket, answer, &around);
            self.take_in(id, playing);
        }
    }

    /// Makes the calls that a pass asks for. False if the operator has died.
    fn go_on(&mut self, id: usize, key: &Key, playing: &mut Playing) -> bool {
        let cache = self.cache(id);
        let known = Known { cache: &cache, namespace: &key.namespace };
        loop {
            let step = playing.pass.next(&self.around(id, &known));
            self.take_in(id, playing);
            let Step::Ask(ticket, request) = step else { return true };
            let mut call = Call::new(&key.namespace, request);
            let action = playing.pass.at_work().cloned();
            if let Some(action) = &action {
                call = (self.mutation.call)(playing.pass.view(), action, call);
                let facts = invariants::PassFacts {
                    view: playing.pass.view(),
                    list_read: playing.list_read,
                    began: playing.began,
                };
                if let Some(violation) = invariants::before_action(&self.world, facts, action) {
                    self.world.ledger.violate(violation);
                }
            }
            if let Request::Etcd { at, call: EtcdCall::Status | EtcdCall::Members { .. } } = &mut call.request
                && self.mutation.believes_strangers
            {
                at.cluster = None;
            }
            let evidence = if call.request.is_write() { playing.began } else { 0 };
            match self.call(id, &call, action.as_ref(), evidence) {
                Called::Died => return false,
                Called::Answered(answer, took) => {
                    let at = self.world.now + took;
                    playing.arrivals.push((at, ticket, answer));
                    self.world.agenda.put(at, Event::Operator(id, key.clone()));
                }
            }
        }
    }

    /// Takes note of what a pass tells.
    fn take_in(&mut self, id: usize, playing: &mut Playing) {
        for told in playing.pass.told() {
            match told {
                Told::Planned => self.planned(id, &playing.pass),
                Told::Done(action) => self.coverage.done(&action),
                Told::Failed { what, error } => {
                    self.coverage.failed(&error);
                    let what = what.map(|action| action.to_string()).unwrap_or_else(|| "status".to_owned());
                    self.world.note(|_| format!("  {what}: not done, {error}"));
                }
                Told::Changed(change) => {
                    let Some(operator) = self.operators.get(&id) else { continue };
                    let view = playing.pass.view();
                    let key = Key { namespace: view.namespace.clone(), name: view.name.clone() };
                    match change {
                        Change::Wrote { kind, object } => {
                            operator.eyes.cache.wrote_as(kind, &object);
                        }
                        Change::Gone { kind, name, uid } => {
                            operator.eyes.cache.gone_as(kind, &key, &name, &uid);
                        }
                    }
                }
                Told::Waiting(_) | Told::Complaint(_) | Told::Unreadable { .. } | Told::Reported => {}
            }
        }
    }

    fn planned(&mut self, id: usize, pass: &Pass<Broken>) {
        let (view, plan, clock) = (pass.view(), pass.plan(), self.clock(id));
        if let Some(list) = &view.etcd.membership {
            self.old_lists.insert(view.name.clone(), list.clone());
        }
        if let Some(recorder) = self.recorder
            && self.recorded.get(&view.name) != Some(plan)
        {
            recorder.note(view, clock, plan);
            self.recorded.insert(view.name.clone(), plan.clone());
        }
        if let Some(violation) = invariants::own_list(&self.world, view) {
            self.world.ledger.violate(violation);
        }
        self.coverage.planned(plan);
        self.tell_plan(id, pass);
    }

    /// A line for a plan, unless it says the same as the last one.
    fn tell_plan(&mut self, id: usize, pass: &Pass<Broken>) {
        if !self.world.is_told() {
            return;
        }
        let (plan, name) = (pass.plan(), &pass.view().name);
        let doing: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        let waiting = [&plan.waiting_for, &plan.complaint].into_iter().flatten().cloned();
        let (doing, waiting) = (doing.join("; "), waiting.collect::<Vec<_>>().join("; "));
        let line = format!("operator {id} on {name}: plans [{doing}] ({waiting})");
        if self.told.insert(name.clone(), line.clone()).as_ref() != Some(&line) {
            self.world.note(|_| line);
        }
    }

    fn finish(&mut self, id: usize, key: &Key, playing: Playing) {
        let now = self.world.now;
        let end = playing.pass.end();
        let Some(operator) = self.operators.get_mut(&id) else { return };
        let worker = operator.workers.entry(key.clone()).or_default();
        if now - worker.passes.0 > super::A_WHILE {
            worker.passes = (now, 0);
        }
        worker.passes.1 += 1;
        if worker.passes.1 > super::TOO_MANY {
            let what = format!("{} passes over {} in {} s", worker.passes.1, key.name, super::A_WHILE / 1000);
            self.world.ledger.violate(invariants::Violation::new(9, what));
        }
        worker.memory = end.memory;
        let again = u64::try_from(end.again.as_millis()).unwrap_or(Millis::MAX).max(1);
        let at = if std::mem::take(&mut worker.dirty) { now + 1 } else { now + again };
        worker.due = Some(at);
        self.world.agenda.put(at, Event::Operator(id, key.clone()));
    }

    /// Makes a call, and lets happen to it what is to happen.
    fn call(&mut self, id: usize, call: &Call, action: Option<&planner::Action>, evidence: Millis) -> Called {
        let asks_status = matches!(call.request, Request::Etcd { call: EtcdCall::Status, .. });
        let usual = if asks_status { 2 } else { self.world.within(1, 12) };
        let fate = if asks_status { None } else { self.world.fate() };
        if (call.is_api() && self.world.now < self.world.api_down_until) || !call.reaches(&self.world) {
            return Called::Answered(Err(call.timeout()), call.limit());
        }
        match fate {
            None => {
                let answer = self.observed_write(call, action, evidence);
                let timed_out = matches!(&answer, Err(Failure::Etcd(etcd::Error::Timeout { .. })));
                Called::Answered(answer, if timed_out { call.limit() } else { usual })
            }
            Some(Fate::AnswerLost) => {
                let _ = self.observed_write(call, action, evidence);
                Called::Answered(Err(call.timeout()), call.limit())
            }
            Some(Fate::RequestLost) => Called::Answered(Err(call.timeout()), call.limit()),
            Some(Fate::Late(by)) => {
                self.calls += 1;
                self.late.insert(self.calls, call.clone());
                let at = self.world.now + by;
                self.world.agenda.put(at, Event::Late(self.calls));
                Called::Answered(Err(call.timeout()), call.limit())
            }
            Some(Fate::Slow(by)) => {
                let answer = self.observed_write(call, action, evidence);
                Called::Answered(answer, by.min(call.limit() - 1))
            }
            Some(Fate::DieBefore) => {
                self.die(id, 2000);
                Called::Died
            }
            Some(Fate::DieAfter) => {
                let _ = self.observed_write(call, action, evidence);
                self.die(id, 2000);
                Called::Died
            }
        }
    }

    /// Carries a call out and looks at what it did to the world.
    pub(super) fn observed_write(
        &mut self,
        call: &Call,
        action: Option<&planner::Action>,
        evidence: Millis,
    ) -> Result<Answer, Failure> {
        if !call.request.is_write() {
            return call.execute(&mut self.world);
        }
        let before = invariants::Before::of(&mut self.world);
        let answer = call.admitted(&mut self.world);
        self.world.note(|_| {
            let what = match &answer {
                Ok(_) => "ok".to_owned(),
                Err(Failure::Refused(status)) => format!("{} {}", status.reason, status.message),
                Err(failure) => format!("{failure:?}"),
            };
            format!("  {}: {what}", call.describe())
        });
        if let Some(violation) = before.compare(&mut self.world, action, call, evidence) {
            self.world.ledger.violate(violation);
        }
        answer
    }
}

impl Worker {
    /// Whether a pass is under way.
    pub fn is_busy(&self) -> bool {
        self.playing.is_some()
    }
}
