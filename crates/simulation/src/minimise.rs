//! Makes a failing script shorter: incidents are struck out, many at a time and then one by one, as long as the same
//! rule is still broken.

use crate::mutations::Mutation;
use crate::planner_loop;
use crate::script::Script;

/// The shortest script found that still breaks the rule.
pub fn shorten(script: &Script, rule: u8, mutation: &'static Mutation) -> Script {
    let fails = |candidate: &Script| {
        planner_loop::run(candidate, mutation, false).violation.is_some_and(|v| v.rule == rule)
    };
    let mut best = script.clone();
    let mut chunk = best.incidents.len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        while from < best.incidents.len() {
            let candidate = best.without(|i| (from..from + chunk).contains(&i));
            if fails(&candidate) {
                best = candidate;
            } else {
                from += chunk;
            }
        }
        chunk /= 2;
    }
    if best.clusters.len() > 1 {
        let mut alone = best.clone();
        alone.clusters.truncate(1);
        if fails(&alone) {
            best = alone;
        }
    }
    best
}
