//! The custom resources of etcd-operator and everything that is a pure function of them.
//!
//! This is the room for what users and other programs can see of us: the four kinds (`EtcdCluster`, `EtcdMember`,
//! `EtcdSnapshot`, `EtcdDefrag`), their defaults and admission rules, and the vocabulary around them: labels,
//! annotations, derived names, condition types and reasons. Objects written by the Go operator of the same API group
//! decode here and encode again without loss. Nothing in this crate does I/O, looks at a clock or decides anything.
//!
//! The CRD manifests in the chart are generated from these types: `cargo run -p api --bin crdgen`.

#![allow(clippy::duplicated_attributes, reason = "kube's printcolumn(...) repeats its keys by design")]

pub mod auth;
pub mod cluster;
pub mod conditions;
pub mod crd;
pub mod defrag;
pub mod ids;
pub mod labels;
pub mod location;
pub mod member;
pub mod metadata;
pub mod names;
pub mod options;
pub mod quantity;
pub mod semantic;
mod serialization;
pub mod snapshot;
pub mod storage;
pub mod template;
pub mod tls;

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;

pub use auth::AuthSpec;
pub use cluster::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, ObservedSpec};
pub use defrag::{
    DefragMember, DefragOutcome, DefragPhase, DefragRole, DefragRule, EtcdDefrag, EtcdDefragSpec,
    EtcdDefragStatus,
};
pub use location::{BootstrapSpec, PvcLocation, RestoreSpec, S3Location, SnapshotLocation};
pub use member::{EtcdMember, EtcdMemberSpec, EtcdMemberStatus, MemberTls};
pub use metadata::AdditionalMetadata;
pub use options::{AutoCompactionMode, EtcdOptions};
pub use snapshot::{EtcdSnapshot, EtcdSnapshotSpec, EtcdSnapshotStatus, SnapshotArtifact, SnapshotPhase};
pub use storage::{StorageMedium, StorageSpec};
pub use template::MemberTemplate;
pub use tls::{
    ClientCertManager, ClientTls, ClusterTls, IssuerKind, IssuerReference, PeerCertManager, PeerTls,
};

/// API group of all kinds in this crate.
pub const GROUP: &str = "etcd-operator.cozystack.io";
/// The one served and stored version.
pub const VERSION: &str = "v1alpha2";
