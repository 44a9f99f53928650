//! The operator process. One key per EtcdCluster goes through four steps, each in its own file: [`observe`] reads,
//! `planner::plan` decides, [`act`] writes, [`report`] tells. Events from watches put keys into the [`queue`]; nothing
//! that an event can announce is waited for with a timer.

pub mod act;
pub mod ambient;
pub mod args;
pub mod cache;
pub mod events;
pub mod http;
pub mod leader;
pub mod looks;
pub mod metrics;
pub mod observe;
pub mod queue;
pub mod reconcile;
pub mod report;
pub mod run;
pub mod sentence;
pub mod stranded;
pub mod watch;
