//! What a seed decides before the run begins: the cluster that is asked for, the temper of the world, and every incident
//! with its time. Written down as a list, so that a failing run can be shortened by striking incidents out.

mod draw;
mod incident;

use std::fmt;

use crate::Millis;

pub use incident::{Edit, Fate, Incident, Propagation, Verb};

/// Seconds, in the world's unit.
pub const SECOND: Millis = 1000;
/// Minutes, in the world's unit.
pub const MINUTE: Millis = 60 * SECOND;

/// A whole run, before it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub seed: u64,
    pub temper: Temper,
    pub clusters: Vec<Wish>,
    /// In order of time.
    pub incidents: Vec<Timed>,
    /// When all standing faults are lifted and nothing new happens.
    pub calm_at: Millis,
}

/// How the world behaves throughout a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Temper {
    pub nodes: usize,
    /// Volumes that can only be used on the node they were made on.
    pub local_volumes: bool,
    /// Longest usual time until a Pod's container runs.
    pub slowest_start: Millis,
    pub slowest_bind: Millis,
    /// Longest usual delay of a watch event.
    pub slowest_watch: Millis,
    /// How long a silent node is waited for before its Pods are deleted.
    pub node_patience: Millis,
    /// `--lost-member-timeout` of the operator.
    pub lost_member_timeout: Option<Millis>,
    /// Addresses of dead Pods are given to new ones at once.
    pub reuses_addresses: bool,
    /// Milliseconds between two writes of the clients.
    pub write_period: Millis,
    /// The kubelet's first pause after a crash, and its longest.
    pub backoff: (Millis, Millis),
    /// The operator was told which namespaces to look at, and watches each of them by itself.
    pub namespaced: bool,
    /// How far the clocks of nodes are off at most, either way. What kubelets write into objects is by their clocks.
    pub clocks: Millis,
}

/// A cluster a user asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    pub name: String,
    pub replicas: i32,
    pub memory: bool,
    pub version: &'static str,
    pub at: Millis,
    /// Its first Pods are such as the Go operator made: with fixed flags and without annotations.
    pub predecessor: bool,
    /// It asks for more than any node has.
    pub too_much: bool,
}

/// An incident and its moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    pub at: Millis,
    pub incident: Incident,
}

/// Which of several: taken modulo however many there are when it happens.
pub type Pick = usize;

impl Script {
    /// The same run without some of its incidents.
    pub fn without(&self, strike: impl Fn(usize) -> bool) -> Self {
        let kept = self.incidents.iter().enumerate().filter(|(i, _)| !strike(*i));
        Self { incidents: kept.map(|(_, t)| t.clone()).collect(), ..self.clone() }
    }
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3}s {:?}", self.at as f64 / 1000.0, self.incident)
    }
}
