//! The operator in a simulated world. A seed decides everything: what users ask for, when Pods start, which call fails,
//! when the operator dies. After every step the invariants are checked; the same seed gives the same run.
//!
//! The world has three parts that know nothing of each other: the API server's objects ([`apiserver`]), the etcd
//! processes with their disks ([`etcd`]), and what moves them (kubelet, users, faults). [`protocol`] is apart from all of
//! them: the membership protocol alone, searched exhaustively.

pub mod apiserver;
pub mod etcd;
pub mod protocol;
