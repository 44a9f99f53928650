//! When the operator comes back to a cluster: the same waits as in the operator, with the simulation's own chance.

use std::collections::BTreeMap;

use planner::{Next, Restraint, Watchman};
use rand::RngExt;
use rand::rngs::StdRng;

use super::call::Failure;
use crate::Millis;

const AT_REST: f64 = 30_000.0;
const UNTOLD: Millis = 1000;
const FOLLOWED: u32 = 20;

/// What is remembered of a cluster between two passes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    failures: u32,
    polling_since: Option<Millis>,
    unsettled: u32,
    pub untold_since: Option<Millis>,
    pub quorum_at: Option<Millis>,
    pub watchman: Watchman,
    pub restraint: Restraint,
    pub refused: BTreeMap<String, String>,
}

/// What became of a plan's actions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub progressed: bool,
    pub held_back: Option<Millis>,
}

/// Why a pass ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The object has changed since it was read.
    Stale,
    /// Something of that name is there; why is looked up.
    Occupied,
    /// The labels of the object were put back.
    Relabelled,
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
            if outcome.progressed && self.failures <= FOLLOWED {
                return 0;
            }
            let again = if *stop == Stop::Stale { retry.min(1000.0) } else { retry };
            return jittered(again, rng);
        }
        self.failures = 0;
        self.unsettled = if next == Next::Now && !outcome.progressed { self.unsettled + 1 } else { 0 };
        let next = if self.unsettled > 4 { Next::Soon } else { next };
        if next != Next::Soon || outcome.progressed {
            self.polling_since = None;
        }
        let again = match next {
            _ if outcome.progressed => 0,
            Next::Now => 0,
            Next::Soon => {
                let waited = now - *self.polling_since.get_or_insert(began);
                let again = (waited / 10).max(now - began).clamp(100, 5000);
                jittered(again as f64, rng)
            }
            Next::AtRest => jittered(AT_REST, rng),
        };
        match outcome.held_back {
            Some(pause) if next == Next::Now => pause,
            Some(pause) => again.min(pause),
            None => again,
        }
    }
}

fn waits(first: f64, most: f64, growth: f64, tries: u32) -> f64 {
    (first * growth.powi(i32::try_from(tries.min(100)).unwrap_or(100))).min(most)
}

fn jittered(delay: f64, rng: &mut StdRng) -> Millis {
    (delay * rng.random_range(0.9..1.1)) as Millis
}
