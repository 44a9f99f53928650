//! When the operator comes back to a cluster: the same waits as in the operator, with the simulation's own chance.

use planner::Next;
use rand::RngExt;
use rand::rngs::StdRng;

use super::call::Failure;
use crate::Millis;

const AT_REST: f64 = 30_000.0;
const UNTOLD: Millis = 1000;

/// What is remembered of a cluster between two passes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    failures: u32,
    polling_since: Option<Millis>,
    pub untold_since: Option<Millis>,
    pub quorum_at: Option<Millis>,
}

/// What became of a plan's actions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub progressed: bool,
    pub left_out: bool,
}

/// Why a pass ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The object has changed since it was read.
    Stale,
    Refused(String),
    Failed(Failure),
}

impl Memory {
    /// Whether a pass that began then may leave its words to the next one.
    pub fn may_tell_later(&mut self, began: Millis, now: Millis) -> bool {
        now - *self.untold_since.get_or_insert(began) < UNTOLD
    }

    /// `began` is when the pass that is over now began.
    pub fn come_back(
        &mut self,
        next: Next,
        outcome: Outcome,
        stop: Option<&Stop>,
        (began, now): (Millis, Millis),
        rng: &mut StdRng,
    ) -> Millis {
        let retry = waits(100.0, 30_000.0, 1.3, self.failures);
        if let Some(stop) = stop {
            self.failures += 1;
            let again = if *stop == Stop::Stale { retry.min(1000.0) } else { retry };
            return jittered(again, rng);
        }
        self.failures = if outcome.left_out { self.failures + 1 } else { 0 };
        if next != Next::Soon || outcome.progressed {
            self.polling_since = None;
        }
        match next {
            _ if outcome.progressed => 0,
            Next::Now if outcome.left_out => jittered(retry, rng),
            Next::Now => 0,
            Next::Soon => {
                let waited = now - *self.polling_since.get_or_insert(began);
                let again = (waited / 10).max(now - began).clamp(100, 5000);
                jittered(again as f64, rng)
            }
            Next::AtRest if outcome.left_out => jittered(retry, rng),
            Next::AtRest => jittered(AT_REST, rng),
        }
    }
}

fn waits(first: f64, most: f64, growth: f64, tries: u32) -> f64 {
    (first * growth.powi(i32::try_from(tries.min(100)).unwrap_or(100))).min(most)
}

fn jittered(delay: f64, rng: &mut StdRng) -> Millis {
    (delay * rng.random_range(0.9..1.1)) as Millis
}
