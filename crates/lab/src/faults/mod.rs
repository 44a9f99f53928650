//! Faults on demand: what happens to real machines, done on purpose and undone again.

pub mod container;
pub mod node;
pub mod volume;
