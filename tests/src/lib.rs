//! The test kit: what every end-to-end test needs, so that the tests themselves read as the behaviour they check.
//!
//! [`arena`](fn@arena) gives a test a namespace of its own on the Kubernetes that `KUBECONFIG` names, with the operator running in
//! it, and prints everything worth knowing when the test fails. [`Cluster`] is one EtcdCluster as its user sees it, and
//! the etcd behind it as its clients see it. [`Keys`] writes while things happen and remembers what was acknowledged;
//! [`Diary`] remembers what the cluster said about itself.

mod arena;
mod cluster;
pub mod command;
mod diary;
mod dump;
mod identity;
mod keys;
mod kubernetes;
mod kv;
pub mod lab;
pub mod manager;
pub mod metrics;
pub mod operator;
pub mod predecessor;
pub mod proxy;
mod wait;

pub use arena::{Arena, arena, arena_of_its_own};
pub use cluster::{Cluster, condition, in_memory, on_volumes};
pub use diary::{Diary, Entry};
pub use identity::{Identity, Uids, restarts, uids};
pub use keys::Keys;
pub use kubernetes::{connect, create_namespace, unique};
pub use kv::Kv;
pub use wait::{LONG, SHORT, holds_for, wait_for};
