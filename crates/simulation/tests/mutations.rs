//! Does it bite? Every deliberately broken operator is caught within a bounded number of seeds, and the operator as it is
//! passes the very seeds that caught them.

use simulation::mutations::{self, Mutation, NONE};
use simulation::planner_loop;
use simulation::script::Script;

/// Seeds that a broken operator may survive.
const BOUND: u64 = 400;

/// The seed that catches it, and the rule it broke.
fn caught(mutation: &'static Mutation) -> Option<(u64, u8)> {
    (0..BOUND).find_map(|seed| {
        let violation = planner_loop::run(&Script::from_seed(seed), mutation, false).violation?;
        Some((seed, violation.rule))
    })
}

fn every(part: usize, of: usize) {
    let mut survived = vec![];
    for mutation in mutations::all().iter().skip(part).step_by(of) {
        let Some((seed, rule)) = caught(mutation) else {
            survived.push(mutation.name);
            continue;
        };
        println!("{} ({}): caught by seed {seed}, rule {rule}", mutation.name, mutation.trap);
        let sound = planner_loop::run(&Script::from_seed(seed), &NONE, false).violation;
        assert_eq!(sound, None, "seed {seed} also breaks the operator as it is");
    }
    assert!(survived.is_empty(), "not caught within {BOUND} seeds: {survived:?}");
}

#[test]
fn broken_operators_are_caught_1() {
    every(0, 2);
}

#[test]
fn broken_operators_are_caught_2() {
    every(1, 2);
}

#[test]
fn there_are_enough_of_them() {
    assert!(mutations::all().len() >= 20);
    for trap in ["T1:", "T3:", "T4:", "T7:", "T9:", "T10:", "T12:", "T13:", "T22:", "H3:", "H5:", "H11:"] {
        assert!(mutations::all().iter().any(|m| m.trap.starts_with(trap)), "{trap}");
    }
}
