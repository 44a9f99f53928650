//! The operator process. [`runtime`] is what any controller needs; [`cluster`] looks after EtcdClusters with it, and
//! [`unsupported`] after kinds that nothing is done about yet. Events from watches put keys into a queue, and a pass is played
//! for each: `planner::pass` says what to ask and what answers mean.
//! Nothing that an event can announce is waited for with a timer.

pub mod args;
pub mod cluster;
pub mod run;
pub mod runtime;
pub mod unsupported;
