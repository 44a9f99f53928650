//! Does it bite? Every deliberately broken operator is caught within a bounded number of seeds, and the operator as it is
//! passes the very seeds that caught them.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use simulation::mutations::{self, Mutation, NONE};
use simulation::script::Script;
use simulation::{planner_loop, scenarios};

/// Half of a run is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds that a broken operator may survive.
const BOUND: u64 = 400;

/// The same for one that no day with a name may catch.
const UNSCRIPTED: u64 = 2000;

/// How often days with a name are played once more, with other luck: some need a little of it.
const LUCK: u64 = 40;

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

/// Says which day catches it, or that none does.
fn play(mutation: &'static Mutation) -> Result<String, &'static str> {
    let Some((day, script, rule)) = caught(mutation) else { return Err(mutation.name) };
    let sound = planner_loop::run(&script, &NONE, false).violation;
    assert_eq!(sound, None, "{day} also breaks the operator as it is");
    Ok(format!("{} ({}): caught by {day}, rule {rule}", mutation.name, mutation.trap))
}

#[test]
#[cfg_attr(not(feature = "long"), ignore = "minutes: make test plays them beside the lab")]
fn broken_operators_are_caught() {
    // Those that seeds alone have to catch take longest and stand last: they are begun with, so that no thread is left alone
    // with one of them.
    let (waiting, survived) = (Mutex::new(mutations::all().iter().collect::<Vec<_>>()), Mutex::new(vec![]));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let left = || waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            threads.spawn(|| {
                while let Some(mutation) = next() {
                    match play(mutation) {
                        Ok(caught) => println!("{caught}; {} more wait", left()),
                        Err(name) => survived.lock().unwrap_or_else(PoisonError::into_inner).push(name),
                    }
                }
            });
        }
    });
    let survived = survived.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        survived.is_empty(),
        "not caught within {BOUND} seeds, or {UNSCRIPTED} unscripted ones: {survived:?}"
    );
}

#[test]
fn there_are_enough_of_them() {
    assert!(mutations::all().len() >= 20);
    let traps = ["T1:", "T3:", "T4:", "T7:", "T9:", "T10:", "T12:", "T13:", "T22:", "T25:", "T26:", "T27:"];
    for trap in traps.into_iter().chain(["T28:", "T30:", "H3:", "H5:", "H11:"]) {
        assert!(mutations::all().iter().any(|m| m.trap.starts_with(trap)), "{trap}");
    }
}
