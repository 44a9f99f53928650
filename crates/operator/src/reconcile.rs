//! One pass over one cluster: observe, plan, act, report, and when to come back.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use planner::{Action, ClusterView, Next, Plan, Restraint, Watchman};
use tokio::time::Instant;
use tracing::info;

use crate::act::{Actor, Error};
use crate::cache::{Cache, Key};
use crate::metrics::Metrics;
use crate::observe::Observer;
use crate::report::Reporter;

/// etcd has no event for its own health.
const AT_REST: Duration = Duration::from_secs(30);
/// Limits of the wait for what no event announces. In between it is a tenth of what has been waited already, and never
/// less than the last pass took: a cluster whose etcd is silent must not keep a worker busy (T16).
const SOON: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(5);
const RETRY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);
/// So many passes with failures in them follow each other at once, as long as something else gets done in each.
const FOLLOWED: u32 = 20;
/// So many passes may follow each other for the sake of what they have written down.
const SETTLED: u32 = 4;
/// Longer than that no step keeps its words to itself.
const UNTOLD: Duration = Duration::from_secs(1);

/// The four steps.
pub struct Reconciler {
    pub cache: Arc<Cache>,
    pub observer: Observer,
    pub actor: Actor,
    pub reporter: Reporter,
    pub metrics: Arc<Metrics>,
    pub memory: Mutex<HashMap<Key, Memory>>,
    /// A clock that only goes forward.
    pub started: Instant,
}

/// What is remembered of a cluster between two passes: how patient to be, and when its quorum was last seen. Losing it
/// costs nothing but a little speed.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    failures: u32,
    /// Since when the cluster has been waiting for what no event announces.
    polling_since: Option<Instant>,
    /// When a quorum last confirmed itself.
    confirmed: Option<Instant>,
    /// Since when passes have left their words to the next one.
    untold_since: Option<Instant>,
    /// So many passes in a row have written something down to go on from at once, and did not.
    unsettled: u32,
    waiting_for: Option<String>,
    complaint: Option<String>,
    /// For how long what is seen has been seen.
    watchman: Watchman,
    /// What was done again and again.
    restraint: Restraint,
    /// What the API server refused, by object, when it was last tried.
    refused: BTreeMap<String, String>,
}

impl Reconciler {
    /// Runs one pass. Returns when to come back without an event; `None` when the cluster is gone.
    pub async fn pass(&self, key: &Key) -> Option<Duration> {
        let began = Instant::now();
        let entry = self.cache.entry(key);
        if entry.clusters.is_empty() && entry.members.is_empty() && entry.malformed.is_empty() {
            self.memory().remove(key);
            return None;
        }
        let mut memory = self.memory().get(key).cloned().unwrap_or_default();
        if let Some((object, why)) = entry.malformed.first_key_value() {
            if memory.complaint.as_ref() != Some(why) {
                self.reporter.unreadable(key, object, why);
                memory.complaint = Some(why.clone());
                self.memory().insert(key.clone(), memory);
            }
            let cluster = entry.clusters.get(&key.name);
            let told = match cluster.filter(|c| c.metadata.deletion_timestamp.is_none()) {
                Some(cluster) => {
                    let status = planner::unreadable(cluster, object, self.observer.ambient.now());
                    self.reporter.write_cluster_status(cluster, &status).await
                }
                None => Ok(()),
            };
            return Some(if told.is_ok() { AT_REST } else { *SOON.end() });
        }

        let mut view = self.observer.collect(key, entry);
        memory.watchman.look_at_pods(&mut view, self.started.elapsed());
        self.observer.ask(&mut view).await;
        if view.etcd.membership.is_some() {
            memory.confirmed = Some(Instant::now());
        }
        view.etcd.confirmed_ago = memory.confirmed.and_then(|at| at.elapsed().try_into().ok());
        memory.watchman.look(&mut view, self.started.elapsed());
        view.refused.clone_from(&memory.refused);
        let plan = planner::plan(&view, self.observer.ambient.now());
        if plan.waiting_for != memory.waiting_for {
            if let Some(what) = &plan.waiting_for {
                info!(cluster = %key, "{what}");
            }
            memory.waiting_for.clone_from(&plan.waiting_for);
        }
        if plan.complaint != memory.complaint {
            if let Some(about) = &plan.complaint {
                self.reporter.complain(key, &view, about);
            }
            memory.complaint.clone_from(&plan.complaint);
        }

        let (outcome, failed) = self.carry_out(key, &view, &plan, &mut memory).await;
        let mut failure = failed.into_iter().map(|(_, error)| error).next();
        // Also after a failed action: what was seen has to be told.
        let is_followed = failure.is_none() && outcome.progressed && outcome.held_back.is_none();
        let can_wait = is_followed && !plan.has_news(&view) && memory.may_tell_later(began);
        if !can_wait {
            memory.untold_since = None;
            if let Err(error) = self.reporter.report(&view, &plan).await {
                self.reporter.failed(key, &view, &error);
                failure.get_or_insert(error);
            }
        }

        self.metrics.pass(began.elapsed(), failure.is_none());
        let chance = view.entropy;
        let again = memory.come_back(plan.next, &outcome, failure.as_ref(), began, chance);
        self.memory().insert(key.clone(), memory);
        Some(again)
    }

    /// Takes the steps of a plan in order, and leaves out what waits for one that failed (T32).
    async fn carry_out<'p>(
        &self,
        key: &Key,
        view: &ClusterView,
        plan: &'p Plan,
        memory: &mut Memory,
    ) -> (Outcome, Vec<(&'p Action, Error)>) {
        let mut outcome = Outcome::default();
        let mut failed: Vec<(&Action, Error)> = vec![];
        let mut held: Vec<&Action> = vec![];
        let before = std::mem::take(&mut memory.refused);
        for action in &plan.actions {
            if failed.iter().any(|(earlier, _)| action.waits_for(earlier))
                || held.iter().any(|e| action.waits_for(e))
            {
                continue;
            }
            if let Some(pause) = memory.restraint.holds_back(action, self.started.elapsed()) {
                outcome.held_back = Some(outcome.held_back.map_or(pause, |known| known.min(pause)));
                // What was refused stands until it is tried again.
                let about = |object: &&String| action.member().is_none_or(|name| object.ends_with(name));
                memory
                    .refused
                    .extend(before.iter().filter(|(o, _)| about(o)).map(|(o, why)| (o.clone(), why.clone())));
                held.push(action);
                continue;
            }
            match self.actor.carry_out(view, action).await {
                Ok(()) => {
                    outcome.progressed |= action.is_progress();
                    self.reporter.done(key, view, action);
                    if let Some(about) = memory.restraint.done(action, self.started.elapsed()) {
                        self.reporter.complain(key, view, &about);
                    }
                }
                Err(error) => {
                    self.reporter.failed(key, view, &error);
                    let refusal = error.refusal();
                    let contradicted = matches!(error, Error::Relabelled(_) | Error::Stale(_));
                    if refusal.is_some() || contradicted {
                        let hopeless = memory.restraint.refused(action, self.started.elapsed());
                        if let Some(deed) = hopeless.filter(|_| contradicted) {
                            let about = format!("a step can not be taken again and again ({deed}): {error}");
                            self.reporter.complain(key, view, &about);
                        }
                    }
                    memory.refused.extend(refusal);
                    failed.push((action, error));
                }
            }
        }
        (outcome, failed)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a plan's actions.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Something was done, so there may be something to do next.
    progressed: bool,
    /// Something is not done again so soon; how long it has to wait.
    held_back: Option<Duration>,
}

impl Memory {
    /// Whether a pass that began then may leave its words to the next one, which comes at once.
    fn may_tell_later(&mut self, began: Instant) -> bool {
        self.untold_since.get_or_insert(began).elapsed() < UNTOLD
    }

    fn come_back(
        &mut self,
        next: Next,
        outcome: &Outcome,
        failure: Option<&Error>,
        began: Instant,
        chance: u64,
    ) -> Duration {
        let retry = retry_after(self.failures, chance);
        if let Some(error) = failure {
            self.failures += 1;
            // What was done is followed at once; what failed is tried again in its own time.
            if outcome.progressed && self.failures <= FOLLOWED {
                return Duration::ZERO;
            }
            // Somebody else changed the object: the event of that change is on its way, this is only the net below it.
            return if matches!(error, Error::Stale(_)) { retry.min(Duration::from_secs(1)) } else { retry };
        }
        self.failures = 0;
        self.unsettled = if next == Next::Now && !outcome.progressed { self.unsettled + 1 } else { 0 };
        // What is written down and is not there in the next pass is undone by somebody.
        let next = if self.unsettled > SETTLED { Next::Soon } else { next };
        if next != Next::Soon || outcome.progressed {
            self.polling_since = None;
        }
        let again = match next {
            // Whatever was done is visible at once, so the next step can be taken at once.
            _ if outcome.progressed => Duration::ZERO,
            Next::Now => Duration::ZERO,
            Next::Soon => {
                let waited = self.polling_since.get_or_insert(began).elapsed();
                let again = (waited / 10).max(began.elapsed()).clamp(*SOON.start(), *SOON.end());
                jittered(again, chance)
            }
            Next::AtRest => jittered(AT_REST, chance),
        };
        match outcome.held_back {
            // Not before it may be done again, or it would only be looked at; and not much later.
            Some(pause) if next == Next::Now => pause,
            Some(pause) => again.min(pause),
            None => again,
        }
    }
}

fn retry_after(failures: u32, chance: u64) -> Duration {
    let factor = 1.3_f64.powi(i32::try_from(failures.min(60)).unwrap_or(60));
    jittered(RETRY.start().mul_f64(factor).min(*RETRY.end()), chance)
}

/// Spread by a tenth, so that a thousand clusters do not ask at the same moment.
fn jittered(delay: Duration, chance: u64) -> Duration {
    delay.mul_f64(0.9 + 0.2 * (chance % 1024) as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come_back(memory: &mut Memory, next: Next, outcome: Outcome, failure: Option<&Error>) -> Duration {
        memory.come_back(next, &outcome, failure, Instant::now(), 512)
    }

    #[tokio::test(start_paused = true)]
    async fn patience_grows_with_the_wait_and_is_lost_with_success() {
        let mut memory = Memory::default();
        let wait = |memory: &mut Memory| come_back(memory, Next::Soon, Outcome::default(), None);
        let first = wait(&mut memory);
        assert!(first < Duration::from_millis(150), "{first:?}");
        tokio::time::advance(Duration::from_secs(10)).await;
        let later = wait(&mut memory);
        assert!(later > Duration::from_millis(800) && later < Duration::from_millis(1200), "{later:?}");
        tokio::time::advance(Duration::from_secs(1000)).await;
        let last = wait(&mut memory);
        assert!(last > Duration::from_secs(4) && last < Duration::from_secs(6), "{last:?}");
        come_back(&mut memory, Next::AtRest, Outcome::default(), None);
        assert!(wait(&mut memory) < Duration::from_millis(150));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_kept_waiting_for_words_longer_than_a_second() {
        let mut memory = Memory::default();
        assert!(memory.may_tell_later(Instant::now()));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(memory.may_tell_later(Instant::now()));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(!memory.may_tell_later(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn t16_a_cluster_that_takes_long_waits_as_long() {
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let again = Memory::default().come_back(Next::Soon, &Outcome::default(), None, began, 512);
        assert!(again > Duration::from_millis(850), "{again:?}");
    }

    #[test]
    fn t35_a_record_that_does_not_stay_is_not_waited_for_at_full_speed() {
        let mut memory = Memory::default();
        let now = |memory: &mut Memory| come_back(memory, Next::Now, Outcome::default(), None);
        for _ in 0..SETTLED {
            assert_eq!(now(&mut memory), Duration::ZERO);
        }
        assert!(now(&mut memory) >= Duration::from_millis(90));
        come_back(&mut memory, Next::AtRest, Outcome::default(), None);
        assert_eq!(now(&mut memory), Duration::ZERO);
    }

    #[test]
    fn at_rest_a_cluster_is_looked_at_twice_a_minute() {
        let again = come_back(&mut Memory::default(), Next::AtRest, Outcome::default(), None);
        assert!(again > Duration::from_secs(26) && again < Duration::from_secs(34), "{again:?}");
    }

    #[test]
    fn failures_back_off_to_half_a_minute() {
        let mut memory = Memory::default();
        let error = Error::Refused("no".into());
        let mut last = Duration::ZERO;
        for _ in 0..80 {
            last = come_back(&mut memory, Next::AtRest, Outcome::default(), Some(&error));
        }
        assert!(last > Duration::from_secs(20) && last < Duration::from_secs(34), "{last:?}");
    }

    #[test]
    fn h19_a_conflict_is_tried_again_within_a_second_or_so() {
        let mut memory = Memory::default();
        let stale = Error::Stale("status of EtcdCluster c".into());
        for _ in 0..80 {
            let again = come_back(&mut memory, Next::AtRest, Outcome::default(), Some(&stale));
            assert!(again <= Duration::from_millis(1100), "{again:?}");
        }
    }

    #[test]
    fn t32_what_gets_done_beside_a_failure_is_followed_at_once_but_not_for_ever() {
        let mut memory = Memory::default();
        let error = Error::Refused("no".into());
        let progressed = Outcome { progressed: true, held_back: None };
        assert_eq!(come_back(&mut memory, Next::AtRest, progressed, Some(&error)), Duration::ZERO);
        for _ in 0..80 {
            come_back(&mut memory, Next::AtRest, progressed, Some(&error));
        }
        assert!(come_back(&mut memory, Next::AtRest, progressed, Some(&error)) > Duration::from_secs(20));
    }

    #[test]
    fn t35_what_is_held_back_is_come_back_to_in_its_time() {
        let held = Outcome { progressed: false, held_back: Some(Duration::from_secs(8)) };
        for next in [Next::AtRest, Next::Now] {
            assert_eq!(come_back(&mut Memory::default(), next, held, None), Duration::from_secs(8));
        }
        assert!(come_back(&mut Memory::default(), Next::Soon, held, None) < Duration::from_secs(1));
    }
}
