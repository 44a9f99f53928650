//! The operator's own code, client and all, on paused time.

use simulation::script::Script;
use simulation::{real_loop, scenarios};

#[test]
fn scenarios_break_no_rule_with_the_operators_own_code() -> std::io::Result<()> {
    for scenario in scenarios::all() {
        let outcome = real_loop::run(&scenario.script, false)?;
        if let Some(violation) = outcome.violation {
            panic!(
                "{} breaks {violation}\nsee: cargo run -p simulation -- --real --scenario {}",
                scenario.name, scenario.name
            );
        }
    }
    Ok(())
}

#[test]
fn seeds_break_no_rule_with_the_operators_own_code() -> std::io::Result<()> {
    for seed in 0..8 {
        let outcome = real_loop::run(&Script::from_seed(seed), false)?;
        if let Some(violation) = outcome.violation {
            panic!("seed {seed} breaks {violation}\nsee: cargo run -p simulation -- --real --seed {seed}");
        }
    }
    Ok(())
}
