//! The programs that make up the lab's Kubernetes, built from Go modules pinned by version and checksum.
//!
//! [`catalogue`] says what there is, [`builder`] builds what the cache does not have yet. A version is written
//! down once, in the `go.mod` of its directory below `crates/lab/tools`.

pub mod builder;
pub mod catalogue;

pub use builder::Toolbox;
