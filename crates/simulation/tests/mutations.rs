//! Does it bite? Every deliberately broken operator is caught within a bounded number of seeds, and the operator as it is
//! passes the very seeds that caught them.

use simulation::mutations::{self, Mutation, NONE};
use simulation::script::Script;
use simulation::{planner_loop, scenarios};

/// Seeds that a broken operator may survive.
const BOUND: u64 = 400;

/// The same for one that no day with a name may catch.
const UNSCRIPTED: u64 = 2000;

/// How often days with a name are played once more, with other luck: some need a little of it.
const LUCK: u64 = 10;

/// The day that catches it, and the rule it broke: days with a name first, then seeds,
/// then the days with other luck.
fn caught(mutation: &'static Mutation) -> Option<(String, Script, u8)> {
    if mutation.unscripted {
        return (0..UNSCRIPTED).find_map(|seed| {
            let script = Script::from_seed(seed);
            let rule = planner_loop::run(&script, mutation, false).violation?.rule;
            Some((format!("seed {seed}"), script, rule))
        });
    }
    let named = || scenarios::all().into_iter().map(|s| (s.name.to_owned(), s.script));
    let seeds = (0..BOUND).map(|seed| (format!("seed {seed}"), Script::from_seed(seed)));
    let lucky = (0..LUCK).flat_map(|seed| {
        named().map(move |(name, script)| (format!("{name} with luck {seed}"), Script { seed, ..script }))
    });
    named().chain(seeds).chain(lucky).find_map(|(name, script)| {
        let rule = planner_loop::run(&script, mutation, false).violation?.rule;
        Some((name, script, rule))
    })
}

fn every(part: usize, of: usize) {
    let mut survived = vec![];
    let broken: Vec<_> = mutations::all().iter().skip(part).step_by(of).collect();
    for (number, mutation) in broken.iter().enumerate() {
        let Some((day, script, rule)) = caught(mutation) else {
            survived.push(mutation.name);
            continue;
        };
        let (name, trap) = (mutation.name, mutation.trap);
        println!("{} of {}: {name} ({trap}): caught by {day}, rule {rule}", number + 1, broken.len());
        let sound = planner_loop::run(&script, &NONE, false).violation;
        assert_eq!(sound, None, "{day} also breaks the operator as it is");
    }
    assert!(
        survived.is_empty(),
        "not caught within {BOUND} seeds, or {UNSCRIPTED} unscripted ones: {survived:?}"
    );
}

#[test]
#[cfg_attr(not(feature = "long"), ignore = "minutes: make test plays them beside the lab")]
fn broken_operators_are_caught_1() {
    every(0, 2);
}

#[test]
#[cfg_attr(not(feature = "long"), ignore = "minutes: make test plays them beside the lab")]
fn broken_operators_are_caught_2() {
    every(1, 2);
}

#[test]
fn there_are_enough_of_them() {
    assert!(mutations::all().len() >= 20);
    let traps = ["T1:", "T3:", "T4:", "T7:", "T9:", "T10:", "T12:", "T13:", "T22:", "T25:", "T26:", "T27:"];
    for trap in traps.into_iter().chain(["T28:", "T30:", "H3:", "H5:", "H11:"]) {
        assert!(mutations::all().iter().any(|m| m.trap.starts_with(trap)), "{trap}");
    }
}
