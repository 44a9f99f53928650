//! The controller of EtcdClusters: [`observe`] makes a view of what the cache has, [`reconcile`] plays the pass that the planner
//! describes, [`report`] tells what it did.

pub mod observe;
pub mod reconcile;
pub mod report;
