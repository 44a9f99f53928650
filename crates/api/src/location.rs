//! Where a snapshot is kept, and starting a cluster from one.

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::is_false;

/// How the first member of a new cluster gets its data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapSpec {
    /// Start from a snapshot instead of empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSpec>,
}

/// A snapshot to start from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSpec {
    /// The snapshot: an object in S3 (key is its exact key) or a file on a claim (subPath is its exact path).
    pub source: SnapshotLocation,
}

/// A place for snapshots: exactly one of s3 and pvc.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotLocation {
    /// A bucket of an S3 compatible object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Location>,

    /// A PersistentVolumeClaim in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcLocation>,
}

/// A place in an S3 compatible object store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Location {
    /// URL of the store, with its scheme.
    #[schemars(length(min = 1))]
    pub endpoint: String,

    /// Name of the bucket.
    #[schemars(length(min = 1))]
    pub bucket: String,

    /// As a destination: a prefix, the object becomes prefix/name-of-the-snapshot.db. As a restore source: the exact
    /// key of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,

    /// Secret with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    pub credentials_secret_ref: LocalObjectReference,

    /// Region of the bucket; us-east-1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// Put the bucket into the path of the URL instead of its host name. Many self-hosted stores need it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force_path_style: bool,
}

/// A place on a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcLocation {
    /// Name of the claim.
    #[schemars(length(min = 1))]
    pub claim_name: String,

    /// As a destination: a directory inside the volume. As a restore source: the exact path of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}
