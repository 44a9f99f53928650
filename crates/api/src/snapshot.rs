//! `EtcdSnapshot`: one snapshot of a cluster, taken once.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SnapshotLocation;

/// Which cluster to take a snapshot of, and where to put it. Cannot be changed later.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdSnapshot",
    plural = "etcdsnapshots",
    namespaced,
    doc = "One snapshot of an EtcdCluster, taken once. To take another, create another.",
    status = "EtcdSnapshotStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSnapshotSpec {
    /// The EtcdCluster, in the same namespace.
    pub cluster_ref: LocalObjectReference,

    /// Where the snapshot goes: a key prefix in S3 or a directory on a claim.
    pub destination: SnapshotLocation,
}

/// What became of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSnapshotStatus {
    /// Pending, Started, Complete or Failed. The last two are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub phase: Option<SnapshotPhase>,

    /// The stored snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<SnapshotArtifact>,

    /// Ready, true once the snapshot is stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Progress of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotPhase {
    Pending,
    Started,
    Complete,
    Failed,
}

impl SnapshotPhase {
    /// Nothing happens to the object any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

/// A snapshot as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotArtifact {
    /// Where it is: s3://bucket/key, or file:// with the path inside the snapshot Pod.
    pub uri: String,

    /// Bytes stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,

    /// sha256: and 64 hex digits, over the bytes stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}
