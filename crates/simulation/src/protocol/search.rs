//! The search itself, and what it tells: how much was searched, and the shortest way into trouble.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use super::state::{Faults, NAMES, Op, Row, State, Volume};
use super::step::{Step, is_converged};
use super::{Protocol, Scenario};

/// More than any cluster of four needs.
const MOST_STEPS: usize = 2000;
/// Enough to see that a cluster goes in circles.
const SHOWN: usize = 12;

/// What a search came to.
pub struct Search {
    /// States that were reached, each counted once.
    pub states: usize,
    /// Steps that were taken.
    pub steps: usize,
    /// Views that the planner was asked about.
    pub views: usize,
    pub depth: usize,
    pub took: Duration,
    pub counterexamples: Vec<Counterexample>,
}

/// A way to break a rule.
pub struct Counterexample {
    pub rule: &'static str,
    pub steps: Vec<String>,
}

impl Search {
    /// Visits every state; stops at the first that breaks a rule.
    pub fn all(scenario: Scenario) -> Self {
        Self::until(scenario, HasDiscoveries::AnyFailures)
    }

    /// Visits states until `rule` is broken, whatever else is.
    pub fn breaking(scenario: Scenario, rule: &'static str) -> Self {
        Self::until(scenario, HasDiscoveries::AllOf([rule].into()))
    }

    fn until(scenario: Scenario, enough: HasDiscoveries) -> Self {
        let began = Instant::now();
        let checker = Protocol::new(scenario).checker().finish_when(enough).spawn_bfs().join();
        let mut counterexamples: Vec<_> = checker
            .discoveries()
            .into_iter()
            .map(|(rule, path)| {
                let mut path = path.into_vec();
                if rule == super::rule::CONVERGENCE {
                    checker.model().go_on(&mut path);
                }
                Counterexample { rule, steps: tell(&path) }
            })
            .collect();
        counterexamples.sort_by_key(|found| found.steps.len());
        Self {
            states: checker.unique_state_count(),
            steps: checker.state_count(),
            views: checker.model().operator.views(),
            depth: checker.max_depth(),
            took: began.elapsed(),
            counterexamples,
        }
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, views, depth, took, .. } = self;
        write!(f, "states={states}, depth={depth}, steps={steps}, views={views}, {:.1} s", took.as_secs_f64())
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "broken: {}", self.rule)?;
        self.steps.iter().enumerate().try_for_each(|(n, step)| writeln!(f, "{:>4}. {step}", n + 1))
    }
}

/// A path in words. Calls are told by what they ask for, looks by what comes of them.
fn tell(path: &[(State, Option<Step>)]) -> Vec<String> {
    let steps = path.windows(2).filter_map(|pair| Some((&pair[0].0, pair[0].1?, &pair[1].0)));
    let told = steps.map(|(before, step, after)| match (step, before.plan.first(), before.late) {
        (Step::Observe { .. }, ..) => format!("{step}, and plans {}", list(&after.plan)),
        (Step::Call | Step::LoseAnswer | Step::GiveUp, Some(op), _) => format!("{step}: {op:?}"),
        (Step::Land, _, Some((op, _))) => format!("{step}: {op:?}"),
        _ => step.to_string(),
    });
    told.collect()
}

fn list(plan: &[Op]) -> String {
    let calls: Vec<_> = plan.iter().map(|op| format!("{op:?}")).collect();
    if calls.is_empty() { "nothing".to_owned() } else { calls.join(", ") }
}

/// States from which the cluster is known to settle.
#[derive(Default)]
pub(super) struct Calm(Mutex<HashSet<u64>>);

impl Protocol {
    /// Whether the cluster settles when nothing goes wrong any more: the world and the operator take turns, each doing
    /// all it can, until nobody has anything left to do. Then the cluster is what was asked for, or beyond help.
    pub(super) fn converges(&self, state: &State) -> bool {
        let mut state = State { faults: Faults::default(), harm: Default::default(), ..state.clone() };
        let mut way = vec![];
        for _ in 0..MOST_STEPS {
            let print = fingerprint(&state);
            if self.calm.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&print) {
                return self.remember(way);
            }
            way.push(print);
            match self.calm_step(&state) {
                Some((_, next)) => state = next,
                None if is_converged(&state) || is_beyond_help(&state) => return self.remember(way),
                None => return false,
            }
        }
        false
    }

    /// What happens after a state from which the cluster does not settle, as far as it is of interest.
    fn go_on(&self, path: &mut Vec<(State, Option<Step>)>) {
        for _ in 0..SHOWN {
            let Some((last, step)) = path.last_mut() else { return };
            let Some((taken, next)) = self.calm_step(last) else { return };
            *step = Some(taken);
            path.push((next, None));
        }
    }

    fn remember(&self, way: Vec<u64>) -> bool {
        self.calm.0.lock().unwrap_or_else(PoisonError::into_inner).extend(way);
        true
    }

    fn calm_step(&self, state: &State) -> Option<(Step, State)> {
        let world = (0..NAMES).flat_map(|i| [Step::Start(i), Step::Replicate(i)]);
        let operator = [
            Step::Land,
            Step::Call,
            Step::Observe { patience_is_over: false },
            Step::Observe { patience_is_over: true },
        ];
        let at_last = (0..NAMES).map(Step::Despair);
        world.chain(operator).chain(at_last).find_map(|step| Some((step, self.take(state, step)?)))
    }
}

/// Faults took what no operator can give back: a quorum of voters with their data, or the only seed before there was a
/// cluster. Such a cluster is left alone, and says so.
fn is_beyond_help(state: &State) -> bool {
    let sound = state.which(|m| m.volume == Volume::Data && !m.looping);
    let voters = state.voters();
    if state.formed || !voters.is_empty() {
        return !voters.served_by(sound);
    }
    state.members.iter().any(|m| m.seed && m.row == Row::None && (m.looping || m.joined))
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
