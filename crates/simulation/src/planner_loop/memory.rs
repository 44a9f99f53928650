//! When the operator comes back to a cluster: the same waits as in the operator, with the simulation's own chance.

use planner::Next;
use rand::RngExt;
use rand::rngs::StdRng;

use super::call::Failure;
use crate::Millis;

const AT_REST: f64 = 30_000.0;

/// What is remembered of a cluster between two passes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    failures: u32,
    polls: u32,
    pub confirmed_at: Option<jiff::Timestamp>,
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
    pub fn come_back(&mut self, next: Next, outcome: Outcome, stop: Option<&Stop>, rng: &mut StdRng) -> Millis {
        let retry = waits(100.0, 30_000.0, 1.3, self.failures);
        if let Some(stop) = stop {
            self.failures += 1;
            let again = if *stop == Stop::Stale { retry.min(1000.0) } else { retry };
            return jittered(again, rng);
        }
        self.failures = if outcome.left_out { self.failures + 1 } else { 0 };
        if next != Next::Soon || outcome.progressed {
            self.polls = 0;
        }
        match next {
            _ if outcome.progressed => 0,
            Next::Now => 0,
            Next::Soon => {
                let again = waits(100.0, 5000.0, 1.1, self.polls);
                self.polls += 1;
                jittered(again, rng)
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
