//! Talking to etcd. Every call goes to one named member, over one pooled connection per member, and ends within a
//! fixed time. Membership is only ever read linearizably: a decision that rests on a stale list is how quorum is lost.
//!
//! `Etcd` is the seam: the operator talks to it, `Pool` is the real thing, a simulation can be another. Without
//! the `client` feature only the plain data is left, for code that must not do I/O.

#[cfg(feature = "client")]
mod client;
mod error;
mod limits;
#[cfg(feature = "client")]
mod pool;
mod types;

/// The wire messages, generated from `proto/etcd.proto`.
#[cfg(feature = "client")]
pub mod pb {
    #![allow(missing_docs, unused_qualifications, clippy::all)]
    tonic::include_proto!("etcdserverpb");
}

#[cfg(feature = "client")]
pub use client::Etcd;
pub use error::Error;
pub use limits::{READ_LIMIT, STATUS_LIMIT, WRITE_LIMIT};
#[cfg(feature = "client")]
pub use pool::Pool;
pub use types::{Endpoint, Member, Membership, Status, quorum};
