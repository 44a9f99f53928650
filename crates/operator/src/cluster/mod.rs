//! The controller of EtcdClusters: [`kinds`] are what it knows, [`reconcile`] plays the pass that the planner describes, and
//! [`report`] tells what it did.

pub mod kinds;
pub mod reconcile;
pub mod report;
