//! `EtcdDefrag`: one defragmentation of a cluster, run once.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::{is_false, is_zero};

/// Which cluster to defragment, and which of its members are worth it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdDefrag",
    plural = "etcddefrags",
    namespaced,
    doc = "One defragmentation of an EtcdCluster, member by member, run once. To run another, create another.",
    status = "EtcdDefragStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Defragmented", type_ = "integer", json_path = ".status.defragmented"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdDefragSpec {
    /// The EtcdCluster, in the same namespace.
    pub cluster_ref: LocalObjectReference,

    /// Which members are defragmented. Absent or empty means those with more than 200Mi to reclaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<DefragRule>,

    /// Seconds after which a finished object is deleted. Absent means it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// Which members of a cluster are defragmented.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefragRule {
    /// Every member, whatever there is to reclaim. Excludes the other fields.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all: bool,

    /// Members whose database file holds more free space than this; 200Mi when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_space_above: Option<Quantity>,

    /// Members whose database file is larger than this part of etcd's quota, for example 80%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([1-9][0-9]?|100)%$"))]
    pub quota_usage_above: Option<String>,

    /// With quotaUsageAbove: skip members that have less than this to reclaim; 32Mi when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_reclaim: Option<Quantity>,
}

/// What became of a defragmentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdDefragStatus {
    /// Pending, Running, Complete or Failed. The last two are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DefragPhase>,

    /// When the first member was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,

    /// Members defragmented.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub defragmented: i32,

    /// What happened to each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<DefragMember>,

    /// Conditions of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What happened to one member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefragMember {
    /// Name of the EtcdMember.
    pub name: String,

    /// leader or follower, when it was its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<DefragRole>,

    /// Pending, Skipped, Defragmented or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<DefragOutcome>,

    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Bytes of the database file before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_before: Option<i64>,

    /// Bytes of the database file after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_after: Option<i64>,

    /// Bytes won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed_bytes: Option<i64>,

    /// When this member was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// Progress of a defragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DefragPhase {
    Pending,
    Running,
    Complete,
    Failed,
}

impl DefragPhase {
    /// Nothing happens to the object any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

/// What a member was when its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DefragRole {
    Leader,
    Follower,
}

/// How it ended for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DefragOutcome {
    Pending,
    Skipped,
    Defragmented,
    Failed,
}
