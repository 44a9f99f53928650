//! What is remembered of a cluster between two passes, and when to come back to it. Losing it costs nothing but a little speed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{Next, Restraint, Watchman};

use super::error::Error;

/// etcd has no event for its own health.
const AT_REST: Duration = Duration::from_secs(30);
/// Limits of the wait for what no event announces. In between it is a tenth of what has been waited already, and never
/// less than the last pass took: a cluster whose etcd is silent must not keep a worker busy (T16).
const SOON: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(5);
const RETRY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);
/// After a conflict: the event of the other change is on its way, this is only the net below it.
const STALE: Duration = Duration::from_secs(1);
/// So many passes with failures in them follow each other at once, as long as something else gets done in each.
const FOLLOWED: u32 = 20;
/// So many passes may follow each other for the sake of what they have written down.
const SETTLED: u32 = 4;
/// Longer than that no status is deferred to the next pass.
const DEFERRED: Duration = Duration::from_secs(1);

/// How patient to be, and what was seen before. Moments are those of a clock that only goes forward.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    failures: u32,
    /// Since when the cluster has been waiting for what no event announces.
    polling_since: Option<Duration>,
    /// When a quorum last confirmed itself.
    pub(super) confirmed: Option<Duration>,
    /// Since when passes have deferred their statuses to the next one.
    pub(super) deferred_since: Option<Duration>,
    /// So many passes in a row have written something down to go on from at once, and did not.
    unsettled: u32,
    pub(super) waiting_for: Option<String>,
    pub(super) complaint: Option<String>,
    /// For how long what is seen has been seen.
    pub(super) watchman: Watchman,
    /// What was done again and again.
    pub(super) restraint: Restraint,
    /// What the API server refused, by object, when it was last tried.
    pub(super) refused: BTreeMap<String, String>,
    /// Whether a volume can be used on no node, and when that was asked.
    pub(super) stranded: BTreeMap<String, (Duration, bool)>,
}

/// What became of a plan's actions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Something was done, so there may be something to do next.
    pub progressed: bool,
    /// Something is not done again so soon; how long it has to wait.
    pub held_back: Option<Duration>,
}

impl Memory {
    /// Whether a pass that began then may defer its statuses to the next one, which comes at once.
    pub(super) fn may_defer(&mut self, began: Duration, now: Duration) -> bool {
        now.saturating_sub(*self.deferred_since.get_or_insert(began)) < DEFERRED
    }

    /// When to come back without an event. `span`: when the pass began, and now. `chance` spreads clusters over time.
    pub(super) fn come_back(
        &mut self,
        next: Next,
        outcome: Outcome,
        failure: Option<&Error>,
        (began, now): (Duration, Duration),
        chance: u64,
    ) -> Duration {
        let retry = retry_after(self.failures, chance);
        if let Some(error) = failure {
            self.failures += 1;
            // What was done is followed at once; what failed is tried again in its own time.
            if outcome.progressed && self.failures <= FOLLOWED {
                return Duration::ZERO;
            }
            return if matches!(error, Error::Stale(_)) { retry.min(STALE) } else { retry };
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
                let waited = now.saturating_sub(*self.polling_since.get_or_insert(began));
                let again = (waited / 10).max(now.saturating_sub(began)).clamp(*SOON.start(), *SOON.end());
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

    /// When to come back to a cluster of which something can not be read.
    pub(super) fn after_unreadable(told: bool) -> Duration {
        if told { AT_REST } else { *SOON.end() }
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

    const NOW: Duration = Duration::from_secs(1000);

    fn come_back(memory: &mut Memory, next: Next, outcome: Outcome, failure: Option<&Error>) -> Duration {
        memory.come_back(next, outcome, failure, (NOW, NOW), 512)
    }

    #[test]
    fn patience_grows_with_the_wait_and_is_lost_with_success() {
        let mut memory = Memory::default();
        let wait = |memory: &mut Memory, at: u64| {
            let at = NOW + Duration::from_secs(at);
            memory.come_back(Next::Soon, Outcome::default(), None, (at, at), 512)
        };
        let first = wait(&mut memory, 0);
        assert!(first < Duration::from_millis(150), "{first:?}");
        let later = wait(&mut memory, 10);
        assert!(later > Duration::from_millis(800) && later < Duration::from_millis(1200), "{later:?}");
        let last = wait(&mut memory, 1010);
        assert!(last > Duration::from_secs(4) && last < Duration::from_secs(6), "{last:?}");
        come_back(&mut memory, Next::AtRest, Outcome::default(), None);
        assert!(wait(&mut memory, 1011) < Duration::from_millis(150));
    }

    #[test]
    fn no_status_is_deferred_for_longer_than_a_second() {
        let mut memory = Memory::default();
        assert!(memory.may_defer(NOW, NOW));
        assert!(memory.may_defer(NOW, NOW + Duration::from_millis(900)));
        assert!(!memory.may_defer(NOW, NOW + Duration::from_millis(1000)));
    }

    #[test]
    fn t16_a_cluster_that_takes_long_waits_as_long() {
        let span = (NOW, NOW + Duration::from_secs(1));
        let again = Memory::default().come_back(Next::Soon, Outcome::default(), None, span, 512);
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
