//! The operator process. Events from watches put the keys of EtcdClusters into the [`queue`]; [`reconcile`] plays a pass for
//! each: [`observe`] makes a view of what the cache has, `planner::pass` says what to ask and what answers mean,
//! [`requests`] asks, [`report`] tells. Nothing that an event can announce is waited for with a timer.

pub mod ambient;
pub mod args;
pub mod cache;
pub mod events;
pub mod http;
pub mod leader;
pub mod metrics;
pub mod observe;
pub mod queue;
pub mod reconcile;
pub mod report;
pub mod requests;
pub mod run;
pub mod sentence;
pub mod watch;
