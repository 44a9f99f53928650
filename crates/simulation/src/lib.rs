//! The operator in a simulated world. A seed decides everything: what users ask for, when Pods start, which call fails,
//! when the operator dies. After every step the invariants are checked; the same seed gives the same run.
//!
//! The world has three parts that know nothing of each other: the API server's objects ([`apiserver`]), the etcd
//! processes with their disks ([`etcd`]), and what moves them ([`world`]: kubelet, nodes, volumes, users, faults). The
//! operator works in it at two speeds: [`planner_loop`] drives the planner directly, thousands of steps a second;
//! [`real_loop`] runs the operator's own process, client and all. [`protocol`] is apart from all of them: the membership
//! protocol alone, searched exhaustively.

pub mod apiserver;
pub mod cli;
pub mod coverage;
pub mod etcd;
pub mod invariants;
pub mod minimise;
pub mod mutations;
pub mod planner_loop;
pub mod protocol;
pub mod real_loop;
pub mod record;
pub mod regressions;
pub mod scenarios;
pub mod script;
pub mod world;

use std::collections::BTreeMap;

use coverage::Coverage;
use invariants::Violation;

/// Milliseconds since the world began.
pub type Millis = u64;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub violation: Option<Violation>,
    pub steps: u64,
    pub simulated: Millis,
    pub faults: BTreeMap<String, u64>,
    /// Writes that clients were told are safe.
    pub acknowledged: u64,
    pub coverage: Coverage,
    /// The last steps, if they were asked for.
    pub history: Vec<String>,
}
