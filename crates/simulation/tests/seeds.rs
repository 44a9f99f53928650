//! A fixed set of days, and the days that once broke something.

use simulation::mutations::NONE;
use simulation::script::Script;
use simulation::{planner_loop, scenarios};

fn play(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let outcome = planner_loop::run(&Script::from_seed(seed), &NONE, false);
        if let Some(violation) = outcome.violation {
            panic!("seed {seed} breaks {violation}\nsee: cargo run -p simulation -- --seed {seed}");
        }
    }
}

#[test]
fn fixed_seeds_break_no_rule() {
    play(0..60);
}

#[test]
fn more_fixed_seeds_break_no_rule() {
    play(60..120);
}

#[test]
fn scenarios_and_regressions_break_no_rule() {
    for scenario in scenarios::all() {
        let outcome = planner_loop::run(&scenario.script, &NONE, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "{} breaks {violation}\nsee: cargo run -p simulation -- --scenario {}",
                scenario.name, scenario.name
            );
        }
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 11] {
        let script = Script::from_seed(seed);
        let (once, again) =
            (planner_loop::run(&script, &NONE, true), planner_loop::run(&script, &NONE, true));
        assert_eq!((once.steps, once.simulated), (again.steps, again.simulated));
        assert_eq!(once.history, again.history);
    }
}
