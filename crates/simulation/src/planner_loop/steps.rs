//! The steps of a pass, each with at most one call, and what becomes of a call.

use api::{EtcdCluster, EtcdMember};
use operator::cache::{Cached, Key};
use operator::stranded;
use planner::{Action, Contradiction, Look};
use rand::RngExt;
use serde_json::Value;

use super::call::{Answer, Call, EtcdCall, Failure, STATUS_LIMIT};
use super::memory::Stop;
use super::pass::{Pass, Phase};
use super::{Simulation, act, key};
use crate::Millis;
use crate::apiserver::Selector;
use crate::apiserver::kind::{ETCD_CLUSTER, ETCD_MEMBER, NODE, POD, VOLUME};
use crate::invariants;
use crate::script::{Fate, Verb};
use crate::world::control::Admission;

/// What a step led to.
enum Next {
    /// Go on after so long.
    After(Millis),
    /// The pass is over.
    Over,
    /// The process is.
    Dead,
}

/// What came of a call, and how long it took.
enum Called {
    Answered(Result<Answer, Failure>, Millis),
    Died,
}

impl Simulation<'_> {
    /// One step of the operator's work on one cluster.
    pub(super) fn step(&mut self, id: usize, key: &Key) {
        let now = self.world.now;
        let Some(operator) = self.operators.get_mut(&id) else { return };
        let Some(worker) = operator.workers.get_mut(key).filter(|w| w.due == Some(now)) else { return };
        if operator.still_until > now {
            let at = operator.still_until;
            worker.due = Some(at);
            self.world.agenda.put(at, crate::world::agenda::Event::Operator(id, key.clone()));
            return;
        }
        let Some(mut pass) = worker.pass.take().or_else(|| self.begin(id, key)) else { return };
        let next = self.go_on(id, &mut pass);
        let Some(operator) = self.operators.get_mut(&id) else { return };
        let worker = operator.workers.entry(key.clone()).or_default();
        let at = match next {
            Next::Dead => return,
            Next::After(delay) => {
                worker.pass = Some(pass);
                now + delay
            }
            Next::Over => {
                if now - worker.passes.0 > super::A_WHILE {
                    worker.passes = (now, 0);
                }
                worker.passes.1 += 1;
                if worker.passes.1 > super::TOO_MANY {
                    let what = format!(
                        "{} passes over {} in {} s",
                        worker.passes.1,
                        key.name,
                        super::A_WHILE / 1000
                    );
                    self.world.ledger.violate(invariants::Violation::new(9, what));
                }
                worker.memory.quorum_at = pass.quorum_at;
                worker.memory.refused = std::mem::take(&mut pass.refused);
                let (next, stop) = (pass.plan.next, pass.stop.as_ref());
                let span = (pass.began, now);
                let again = worker.memory.come_back(next, pass.outcome, stop, span, &mut self.world.rng);
                if std::mem::take(&mut worker.dirty) { now + 1 } else { now + again.max(1) }
            }
        };
        worker.due = Some(at);
        self.world.agenda.put(at, crate::world::agenda::Event::Operator(id, key.clone()));
    }

    fn begin(&mut self, id: usize, key: &Key) -> Option<Pass> {
        let settings = self.settings();
        let operator = self.operators.get_mut(&id)?;
        let entry = operator.eyes.cache.entry(key);
        if entry.clusters.is_empty() && entry.members.is_empty() {
            operator.workers.remove(key);
            return None;
        }
        let quorum_at = operator.workers.get(key).and_then(|w| w.memory.quorum_at);
        let entropy = self.world.rng.random();
        let now = std::time::Duration::from_millis(self.world.now);
        let mut pass = Pass::begin(self.world.now, key, entry, quorum_at, settings, entropy);
        let operator = self.operators.get_mut(&id)?;
        operator.workers.entry(key.clone()).or_default().memory.watchman.look_at_pods(&mut pass.view, now);
        Some(pass)
    }

    fn go_on(&mut self, id: usize, pass: &mut Pass) -> Next {
        match pass.phase.clone() {
            Phase::AskStatus => self.ask_status(pass),
            Phase::AskMembers(index) => self.ask_members(id, pass, index),
            Phase::Decide => self.decide(id, pass),
            Phase::Act(index) => self.act(id, pass, index),
            Phase::Report(index) => self.report(id, pass, index),
        }
    }

    /// Everybody at once, as the operator does.
    fn ask_status(&mut self, pass: &mut Pass) -> Next {
        let mut longest = 0;
        for (index, at) in pass.to_ask(self.mutation.believes_strangers) {
            let call = Call::Etcd(at, EtcdCall::Status);
            let reachable = call.reaches(&self.world);
            let answer = if reachable { call.execute(&mut self.world) } else { Err(call.timeout()) };
            let timed_out = matches!(&answer, Err(Failure::Etcd(etcd::Error::Timeout { .. })));
            let answer = match answer {
                Ok(Answer::Status(status)) => Ok(status),
                Err(Failure::Etcd(error)) => Err(error),
                _ => continue,
            };
            let member = &mut pass.view.members[index];
            match answer {
                Err(error) if timed_out && member.is_deleting() => pass.unheard.push((index, error)),
                answer => {
                    longest = longest.max(if timed_out { call.limit() } else { 2 });
                    member.etcd = Some(answer);
                }
            }
        }
        pass.rank_voters();
        Next::After(longest)
    }

    fn ask_members(&mut self, id: usize, pass: &mut Pass, index: usize) -> Next {
        let Some(call) = pass.ask_members(index, self.mutation.believes_strangers) else {
            return self.hear_leaving(pass);
        };
        match self.call(id, &call, None, 0) {
            Called::Died => Next::Dead,
            Called::Answered(answer, took) => {
                if pass.hear_members(index, answer, self.world.now) {
                    return self.hear_leaving(pass);
                }
                pass.phase = Phase::AskMembers(index + 1);
                Next::After(took.min(pass.members_limit()))
            }
        }
    }

    fn hear_leaving(&self, pass: &mut Pass) -> Next {
        let heard = if pass.hear_leaving() { pass.began + STATUS_LIMIT } else { 0 };
        if pass.view.etcd.membership.is_none() {
            pass.no_list();
        }
        pass.phase = Phase::Decide;
        Next::After(heard.saturating_sub(self.world.now))
    }

    fn decide(&mut self, id: usize, pass: &mut Pass) -> Next {
        let clock = self.clock(id);
        let ago = |at: Millis| {
            jiff::SignedDuration::from_millis(i64::try_from(self.world.now - at).unwrap_or(i64::MAX))
        };
        pass.view.etcd.confirmed_ago = pass.quorum_at.map(ago);
        let now = std::time::Duration::from_millis(self.world.now);
        self.look_for_strandings(pass);
        if let Some(operator) = self.operators.get_mut(&id) {
            let memory = &mut operator.workers.entry(key(&pass.view.name)).or_default().memory;
            memory.watchman.look(&mut pass.view, now);
            pass.view.refused.clone_from(&memory.refused);
        }
        if self.mutation.keeps_list {
            self.remember_list(pass);
        }
        if std::ptr::eq(self.mutation, &raw const crate::mutations::NONE) {
            pass.plan = planner::plan(&pass.view, clock);
            self.write_down(pass, clock);
        } else {
            let mut view = pass.view.clone();
            (self.mutation.before)(&mut view);
            pass.plan = planner::plan(&view, clock);
            (self.mutation.after)(&view, &mut pass.plan);
        }
        if let Some(violation) = invariants::own_list(&self.world, &pass.view) {
            self.world.ledger.violate(violation);
        }
        self.coverage.planned(&pass.plan);
        self.tell_plan(id, pass);
        pass.phase = Phase::Act(0);
        Next::After(0)
    }

    /// Every plan that differs from the last one of its cluster.
    fn write_down(&mut self, pass: &Pass, clock: jiff::Timestamp) {
        let Some(recorder) = self.recorder else { return };
        if self.recorded.get(&pass.view.name) != Some(&pass.plan) {
            recorder.note(&pass.view, clock, &pass.plan);
            self.recorded.insert(pass.view.name.clone(), pass.plan.clone());
        }
    }

    /// A line for a plan, unless it says the same as the last one.
    fn tell_plan(&mut self, id: usize, pass: &Pass) {
        if !self.world.is_told() {
            return;
        }
        let doing: Vec<String> = pass.plan.actions.iter().map(ToString::to_string).collect();
        let waiting = [&pass.plan.waiting_for, &pass.plan.complaint].into_iter().flatten().cloned();
        let (doing, waiting) = (doing.join("; "), waiting.collect::<Vec<_>>().join("; "));
        let line = format!("operator {id} on {}: plans [{doing}] ({waiting})", pass.view.name);
        if self.told.insert(pass.view.name.clone(), line.clone()).as_ref() != Some(&line) {
            self.world.note(|_| line);
        }
    }

    /// What an operator does that takes the last list it has.
    fn remember_list(&mut self, pass: &mut Pass) {
        let name = pass.view.name.clone();
        match &pass.view.etcd.membership {
            Some(list) => drop(self.old_lists.insert(name, list.clone())),
            None => pass.view.etcd.membership = self.old_lists.get(&name).cloned(),
        }
    }

    fn act(&mut self, id: usize, pass: &mut Pass, index: usize) -> Next {
        let Some(action) = pass.plan.actions.get(index).cloned() else {
            return self.acted(id, pass);
        };
        if pass.failed.iter().any(|failed| action.waits_for(failed)) {
            pass.phase = Phase::Act(index + 1);
            return Next::After(0);
        }
        // Whoever was deposed finds its lease run out before every step.
        if self.leader != Some(id) {
            self.failed(pass, index, &action, Stop::Stale);
            return Next::After(0);
        }
        if let Some(pause) = self.held_back(id, pass, &action) {
            pass.outcome.held_back = Some(pass.outcome.held_back.map_or(pause, |known| known.min(pause)));
            pass.failed.push(action);
            pass.phase = if self.mutation.stops { Phase::Report(0) } else { Phase::Act(index + 1) };
            return Next::After(0);
        }
        let looks = if self.mutation.blind { vec![] } else { action.looks(&pass.view) };
        if let Some(look) = looks.get(pass.looked) {
            return self.take_a_look(id, pass, look, |this, pass, stop| {
                this.failed(pass, index, &action, stop);
            });
        }
        let call = match act::call(&pass.view, &action, pass.declined) {
            Ok(call) => (self.mutation.call)(&pass.view, &action, call),
            Err(stop) => {
                self.failed(pass, index, &action, stop);
                return Next::After(0);
            }
        };
        if let Some(violation) = invariants::before_action(&self.world, pass_facts(pass), &action) {
            self.world.ledger.violate(violation);
        }
        let (answer, took) = match self.call(id, &call, Some(&action), pass.began) {
            Called::Died => return Next::Dead,
            Called::Answered(answer, took) => (answer, took),
        };
        match act::outcome(&call, answer) {
            Ok(written) => {
                if let (Call::Delete(kind, name, options), None) = (&call, &written) {
                    self.take_out(
                        id,
                        &pass.view.name,
                        *kind,
                        name,
                        options.uid.as_deref().unwrap_or_default(),
                    );
                }
                self.take_in(id, written);
                self.coverage.done(&action);
                pass.outcome.progressed |= action.is_progress();
                pass.phase = Phase::Act(index + 1);
                pass.looked = 0;
                let now = std::time::Duration::from_millis(self.world.now);
                if let Some(operator) = self.operators.get_mut(&id) {
                    let worker = operator.workers.entry(key(&pass.view.name)).or_default();
                    worker.memory.restraint.done(&action, now);
                }
            }
            Err(Stop::Occupied) => return self.explain(id, pass, index, &action, took),
            Err(Stop::Failed(Failure::Etcd(etcd::Error::Unhealthy)))
                if matches!(call, Call::Etcd(_, EtcdCall::AddLearner(_) | EtcdCall::Remove(_)))
                    && pass.declined + 1 < pass.view.speakers().len() =>
            {
                pass.declined += 1;
                return Next::After(took);
            }
            Err(stop) => self.failed(pass, index, &action, stop),
        }
        pass.declined = 0;
        Next::After(took)
    }

    /// How long a step that was taken again and again has to wait.
    fn held_back(&self, id: usize, pass: &Pass, action: &Action) -> Option<Millis> {
        let now = std::time::Duration::from_millis(self.world.now);
        let worker = self.operators.get(&id)?.workers.get(&key(&pass.view.name))?;
        let pause = worker.memory.restraint.holds_back(action, now)?;
        u64::try_from(pause.as_millis()).ok()
    }

    /// Something of the name that was to be made is there: looks whose it is, and puts its labels back if it is ours.
    fn explain(&mut self, id: usize, pass: &mut Pass, index: usize, action: &Action, took: Millis) -> Next {
        let Some((kind, wanted)) = act::made(action) else { return Next::After(took) };
        let name = wanted.name.clone().unwrap_or_default();
        let (answer, looked) = match self.call(id, &Call::Get(kind, name.clone()), None, 0) {
            Called::Died => return Next::Dead,
            Called::Answered(answer, looked) => (answer, looked),
        };
        let stop = match act::found(answer) {
            Err(stop) => stop,
            Ok(found) => match found.first().map(|found| planner::occupied(&name, wanted, found)) {
                None | Some(Contradiction::Stale(_)) => Stop::Stale,
                Some(Contradiction::Refused(why)) => Stop::Refused(why),
                Some(Contradiction::Unlabelled { uid, labels }) => {
                    let call = Call::Patch(kind, name, act::relabel(&uid, &labels));
                    match self.call(id, &call, None, pass.began) {
                        Called::Died => return Next::Dead,
                        Called::Answered(answer, _) => {
                            if let Ok(written) = act::outcome(&call, answer) {
                                self.take_in(id, written);
                            }
                            Stop::Relabelled
                        }
                    }
                }
            },
        };
        self.failed(pass, index, action, stop);
        Next::After(took + looked)
    }

    /// As the operator finds out whether a volume can be used on any node: from live volumes and nodes.
    fn look_for_strandings(&self, pass: &mut Pass) {
        let api = self.world.api();
        for member in &mut pass.view.members {
            let volume = member.volume.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            let Some(volume) = volume.filter(|_| member.pod.as_ref().is_some_and(stranded::has_no_node))
            else {
                continue;
            };
            let Ok(volume) = api.get(VOLUME, "", &volume) else { continue };
            let (nodes, _) = api.list(NODE, None, &Selector::all());
            let nodes: Vec<_> =
                nodes.iter().filter_map(|node| serde_json::from_value(node.clone()).ok()).collect();
            member.stranded =
                serde_json::from_value(volume).is_ok_and(|volume| stranded::is_stranded(&volume, &nodes));
        }
    }

    /// Words about what was done may wait for the next pass; see [`planner::Plan::has_news`].
    fn acted(&mut self, id: usize, pass: &mut Pass) -> Next {
        let Some(operator) = self.operators.get_mut(&id) else { return Next::Dead };
        let memory = &mut operator.workers.entry(key(&pass.view.name)).or_default().memory;
        let is_followed = pass.outcome.progressed && pass.stop.is_none() && pass.outcome.held_back.is_none();
        let (began, now) = (pass.began, self.world.now);
        let can_wait = is_followed && !pass.plan.has_news(&pass.view) && memory.may_tell_later(began, now);
        if can_wait {
            return Next::Over;
        }
        memory.untold_since = None;
        pass.phase = Phase::Report(0);
        Next::After(0)
    }

    fn take_a_look(
        &mut self,
        id: usize,
        pass: &mut Pass,
        look: &Look,
        otherwise: impl FnOnce(&mut Self, &mut Pass, Stop),
    ) -> Next {
        let call = act::look(look);
        let (answer, took) = match self.call(id, &call, None, 0) {
            Called::Died => return Next::Dead,
            Called::Answered(answer, took) => (answer, took),
        };
        let found = match act::found(answer) {
            Ok(found) => found,
            Err(stop) => {
                otherwise(self, pass, stop);
                return Next::After(took);
            }
        };
        let stop = match look.judge(&found) {
            Ok(()) => {
                pass.looked += 1;
                return Next::After(took);
            }
            Err(Contradiction::Stale(_)) => Stop::Stale,
            Err(Contradiction::Refused(why)) => Stop::Refused(why),
            Err(Contradiction::Unlabelled { uid, labels }) => {
                if let (Call::Get(kind, name), Some(_)) = (&call, found.first()) {
                    let patch = Call::Patch(*kind, name.clone(), act::relabel(&uid, &labels));
                    if let Called::Died = self.call(id, &patch, None, pass.began) {
                        return Next::Dead;
                    }
                }
                Stop::Relabelled
            }
        };
        otherwise(self, pass, stop);
        Next::After(took)
    }

    fn failed(&mut self, pass: &mut Pass, index: usize, action: &Action, stop: Stop) {
        self.coverage.failed(&stop);
        self.world.note(|_| format!("  {action}: not done, {stop:?}"));
        pass.looked = 0;
        match &stop {
            Stop::Refused(why) => {
                drop(pass.refused.insert(why.clone(), why.clone()));
                self.note_refusal(pass, action);
            }
            Stop::Failed(Failure::Api(error)) => {
                let object = act::made(action).map_or_else(
                    || action.member().map_or_else(|| action.to_string(), |m| format!("EtcdMember {m}")),
                    |(kind, meta)| format!("{} {}", kind.kind, meta.name.clone().unwrap_or_default()),
                );
                drop(pass.refused.insert(object, error.to_string()));
                self.note_refusal(pass, action);
            }
            Stop::Relabelled | Stop::Stale => self.note_refusal(pass, action),
            _ => {}
        }
        pass.failed.push(action.clone());
        pass.stop.get_or_insert(stop);
        pass.phase = if self.mutation.stops { Phase::Report(0) } else { Phase::Act(index + 1) };
    }

    fn note_refusal(&mut self, pass: &Pass, action: &Action) {
        let now = std::time::Duration::from_millis(self.world.now);
        let Some(operator) = self.leader.and_then(|id| self.operators.get_mut(&id)) else { return };
        operator.workers.entry(key(&pass.view.name)).or_default().memory.restraint.refused(action, now);
    }

    fn take_out(&mut self, id: usize, cluster: &str, kind: crate::apiserver::Kind, name: &str, uid: &str) {
        if let Some(operator) = self.operators.get(&id) {
            operator.eyes.gone(kind, &key(cluster), name, uid);
        }
    }

    fn take_in(&mut self, id: usize, written: Option<(crate::apiserver::Kind, Value)>) {
        if let (Some((kind, object)), Some(operator)) = (written, self.operators.get(&id)) {
            operator.eyes.wrote(kind, &object);
        }
    }

    /// Statuses of members first, the cluster's last; each only if it says something new.
    fn report(&mut self, id: usize, pass: &mut Pass, index: usize) -> Next {
        let Some(operator) = self.operators.get(&id) else { return Next::Dead };
        let cache = operator.eyes.cache.clone();
        // Statuses, too, are written only by who leads.
        if self.leader != Some(id) {
            pass.stop.get_or_insert(Stop::Stale);
            return Next::Over;
        }
        let looks = self.looks_before_status(pass, index);
        if let Some(look) = looks.get(pass.looked) {
            return self.take_a_look(id, pass, look, |_, pass, stop| {
                pass.looked = 0;
                let of_cluster = index == pass.view.members.len();
                if let Some(status) = pass.plan.cluster_status.as_mut().filter(|_| of_cluster) {
                    *status = planner::without_loss(status, &format!("{stop:?}"));
                    pass.stop.get_or_insert(stop);
                    return;
                }
                pass.stop.get_or_insert(stop);
                pass.unreported = true;
                pass.phase = Phase::Report(index + 1);
            });
        }
        pass.looked = 0;
        // The id of a cluster is on record after its members.
        let is_new_id = || {
            let before = pass.view.cluster.as_ref().and_then(|c| c.status.as_ref()?.cluster_id.as_ref());
            pass.plan.cluster_status.as_ref().and_then(|s| s.cluster_id.as_ref()) != before
        };
        if index == pass.view.members.len() && pass.unreported && is_new_id() {
            return Next::Over;
        }
        let write = if let Some(member) = pass.view.members.get(index) {
            pass.plan.member_statuses.get(member.name()).and_then(|status| {
                let latest = cache.latest(&member.member).unwrap_or_else(|| member.member.clone());
                status_write(
                    &member.member,
                    &latest,
                    status,
                    |m: &EtcdMember| m.status.as_ref(),
                    |m, s| m.status = Some(s),
                )
            })
        } else if index == pass.view.members.len() {
            pass.view.cluster.as_ref().zip(pass.plan.cluster_status.as_ref()).and_then(|(cluster, status)| {
                let latest = cache.latest(cluster).unwrap_or_else(|| cluster.clone());
                status_write(
                    cluster,
                    &latest,
                    status,
                    |c: &EtcdCluster| c.status.as_ref(),
                    |c, s| c.status = Some(s),
                )
            })
        } else {
            return Next::Over;
        };
        pass.phase = Phase::Report(index + 1);
        let Some(write) = write else { return Next::After(0) };
        let kind = if index < pass.view.members.len() { ETCD_MEMBER } else { ETCD_CLUSTER };
        let Ok((name, object)) = write else {
            pass.stop.get_or_insert(Stop::Stale);
            pass.unreported = true;
            return Next::After(0);
        };
        let call = Call::ReplaceStatus(kind, name, object);
        let (answer, took) = match self.call(id, &call, None, pass.began) {
            Called::Died => return Next::Dead,
            Called::Answered(answer, took) => (answer, took),
        };
        match act::outcome(&call, answer) {
            Ok(written) => self.take_in(id, written),
            Err(stop) => {
                pass.stop.get_or_insert(stop);
                pass.unreported = true;
            }
        }
        Next::After(took)
    }

    /// The live looks before a status: the claim a member goes on record with, or that a cluster has lost everything.
    fn looks_before_status(&self, pass: &Pass, index: usize) -> Vec<Look> {
        if let Some(member) = pass.view.members.get(index) {
            let status =
                pass.plan.member_statuses.get(member.name()).filter(|_| !self.mutation.records_unseen);
            return status
                .and_then(|status| planner::look_before_record(member, status))
                .into_iter()
                .collect();
        }
        let status = pass.plan.cluster_status.as_ref().filter(|_| index == pass.view.members.len());
        status.map(|status| planner::looks_before_loss(&pass.view, status)).unwrap_or_default()
    }

    /// Makes a call, and lets happen to it what is to happen.
    fn call(&mut self, id: usize, call: &Call, action: Option<&Action>, evidence: Millis) -> Called {
        let usual = self.world.within(1, 12);
        let fate = self.world.fate();
        let api = !matches!(call, Call::Etcd(..));
        if (api && self.world.now < self.world.api_down_until) || !call.reaches(&self.world) {
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
                let number = self.steps;
                self.late.insert(number, call.clone());
                let at = self.world.now + by;
                self.world.agenda.put(at, crate::world::agenda::Event::Late(number));
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
        action: Option<&Action>,
        evidence: Millis,
    ) -> Result<Answer, Failure> {
        if !call.is_write() {
            return call.execute(&mut self.world);
        }
        let before = invariants::Before::of(&mut self.world);
        let answer = self.admitted(call);
        self.world.note(|_| {
            let what = match &answer {
                Ok(_) => "ok".to_owned(),
                Err(failure) => format!("{failure:?}"),
            };
            format!("  {}: {what}", describe(call))
        });
        if let Some(violation) = before.compare(&mut self.world, action, call, evidence) {
            self.world.ledger.violate(violation);
        }
        answer
    }
}

impl Simulation<'_> {
    /// Lets a write through, if admission does.
    fn admitted(&mut self, call: &Call) -> Result<Answer, Failure> {
        let (kind, verb, name) = match call {
            Call::Create(kind, object) => (*kind, Verb::Create, crate::world::name_of(object)),
            Call::Patch(kind, name, _) => (*kind, Verb::Patch, name.clone()),
            Call::ReplaceStatus(kind, name, _) => (*kind, Verb::Status, name.clone()),
            Call::Delete(kind, name, _) => (*kind, Verb::Delete, name.clone()),
            _ => return call.execute(&mut self.world),
        };
        self.world.count_write(kind, verb, &name);
        match self.world.admit(kind, verb, &name) {
            Admission::Refused(error) => Err(Failure::Api(error)),
            Admission::Undone(object) => Ok(Answer::Object(object)),
            Admission::Pass => match call {
                Call::Create(POD, object) => {
                    let object = self.world.as_made_before(object.clone());
                    Call::Create(POD, object).execute(&mut self.world)
                }
                _ => call.execute(&mut self.world),
            },
        }
    }
}

fn pass_facts(pass: &Pass) -> invariants::PassFacts<'_> {
    invariants::PassFacts { view: &pass.view, list_read: pass.list_read, began: pass.began }
}

/// The write that a status needs: none if it says nothing new, refused if somebody else changed it since.
fn status_write<K, S>(
    seen: &K,
    latest: &K,
    status: &S,
    get: impl Fn(&K) -> Option<&S>,
    set: impl Fn(&mut K, S),
) -> Option<Result<(String, Value), ()>>
where
    K: Cached + serde::Serialize,
    S: PartialEq + Clone,
{
    if get(seen) == Some(status) {
        return None;
    }
    if get(latest) != get(seen) {
        return Some(Err(()));
    }
    let mut object = latest.clone();
    set(&mut object, status.clone());
    let name = object.meta().name.clone().unwrap_or_default();
    let Ok(mut value) = serde_json::to_value(&object) else { return Some(Err(())) };
    value["apiVersion"] = serde_json::json!(K::api_version(&()));
    value["kind"] = serde_json::json!(K::kind(&()));
    Some(Ok((name, value)))
}

/// One line about a call.
pub(super) fn describe(call: &Call) -> String {
    match call {
        Call::Get(kind, name) => format!("get {} {name}", kind.kind),
        Call::List(kind, cluster) => format!("list {} of {cluster}", kind.plural),
        Call::Create(kind, object) => format!("create {} {}", kind.kind, crate::world::name_of(object)),
        Call::Patch(kind, name, patch) => format!("patch {} {name}: {patch}", kind.kind),
        Call::ReplaceStatus(kind, name, object) => {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let said: Vec<String> = conditions
                .iter()
                .map(|c| format!("{}={}/{}", text(&c["type"]), text(&c["status"]), text(&c["reason"])))
                .collect();
            format!("status of {} {name}: {}", kind.kind, said.join(" "))
        }
        Call::Delete(kind, name, _) => format!("delete {} {name}", kind.kind),
        Call::Etcd(at, call) => {
            format!("etcd at {}: {call:?}", at.authority.split('.').next().unwrap_or_default())
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
