//! `EtcdCluster`: what a user asks for, and what became of it.

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::{empty_as_none, is_false, is_zero};
use crate::{AdditionalMetadata, AuthSpec, BootstrapSpec, ClusterTls, EtcdOptions, StorageSpec, quantity};

/// Members of a cluster that does not say how many.
pub const DEFAULT_REPLICAS: i32 = 3;
/// Seconds a cluster may take to reach its target when it does not say.
pub const DEFAULT_PROGRESS_DEADLINE_SECONDS: i32 = 600;

/// Two files of etcd's log, the one it writes and the next, of 64 MB each, and a little for the database.
const ROOM_FOR_LOG: i64 = 128 << 20;

/// The etcd cluster you want.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    shortname = "etcdc",
    namespaced,
    doc = "An etcd cluster. The operator creates its members, Services and volumes and keeps them as described here.",
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.readyMembers",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyMembers"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Number of members, at most 31. Odd numbers tolerate the most failures; 0 pauses the cluster and keeps its
    /// volumes, which is why medium Memory refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,

    /// Version of etcd, three numbers without a leading v, for example 3.6.16; 3.5.0 or newer. It is the tag of the
    /// image. Members that exist already keep theirs.
    pub version: String,

    /// Where members keep their data.
    #[serde(default)]
    pub storage: StorageSpec,

    /// Seconds a change may take before the operator gives up and says so in the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,

    /// Transport security. Absent means plaintext. Cannot be added, removed or changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTls>,

    /// Authentication inside etcd. Cannot be added, removed or changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthSpec>,

    /// How the first member gets its data. Read only until the cluster has formed. Cannot be added, removed or changed
    /// later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapSpec>,

    /// CPU and memory of the etcd container. Absent means requests of 100m CPU and 128Mi memory and no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Labels and annotations for every object that is created for this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,

    /// Affinity of the member Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the member Pods spread over nodes and zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Settings of etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<EtcdOptions>,

    /// Secrets for pulling the etcd image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

impl EtcdClusterSpec {
    /// Members asked for.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(DEFAULT_REPLICAS)
    }

    /// Seconds a change may take.
    pub fn progress_deadline_seconds(&self) -> i32 {
        self.progress_deadline_seconds.unwrap_or(DEFAULT_PROGRESS_DEADLINE_SECONDS)
    }

    /// Whether clients speak https.
    pub fn client_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client.is_some())
    }

    /// Whether members speak https with each other.
    pub fn peer_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.peer.is_some())
    }

    /// What is admitted, because it can work, but hardly will: a sentence with the cure for each. A volume may be larger
    /// than its claim, or not limited at all, so that the API server can not refuse these.
    pub fn doubts(&self) -> Vec<String> {
        let size = &self.storage.size.0;
        let Some(bytes) = quantity::value(&self.storage.size).map(quantity::Value::units) else {
            return vec![];
        };
        let mut doubts = vec![];
        if bytes < ROOM_FOR_LOG {
            doubts.push(format!(
                "spec.storage.size {size} is too small for etcd: its log takes 64 MB at the first start and as much again \
                 for the next file; make it 256Mi or more"
            ));
        }
        let quota = self.options.as_ref().and_then(|options| options.quota_backend_bytes);
        if let Some(quota) = quota.filter(|quota| *quota > bytes) {
            doubts.push(format!(
                "spec.options.quotaBackendBytes {quota} is larger than spec.storage.size {size}: the volume would be full \
                 before etcd refuses writes; make the size at least twice the quota"
            ));
        }
        doubts
    }
}

/// What became of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// Members that are ready to serve.
    // Written also when it is 0: kubectl shows a blank for what is absent.
    #[serde(default)]
    pub ready_members: i32,

    /// Label selector of the member Pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub selector: Option<String>,

    /// Members that can not come back by themselves, because their data or their node is gone or their etcd keeps
    /// crashing. They are replaced one by one, when the others form a quorum without them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub broken_members: i32,

    /// Id of the etcd cluster, sixteen hex digits. Its presence means that the cluster has formed; it never changes.
    #[serde(
        default,
        rename = "clusterID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_as_none"
    )]
    pub cluster_id: Option<String>,

    /// Token the cluster was made with, kept for its whole life.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub cluster_token: Option<String>,

    /// Version of etcd that the members run: the one they all report, or the lowest and the highest, as in
    /// 3.6.16..3.7.3, while they differ.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub version: Option<String>,

    /// Whether authentication was turned on in etcd. Never cleared.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auth_enabled: bool,

    /// The target the operator works towards: the parts of the spec that were taken over last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedSpec>,

    /// When the target must be reached. Absent while there is nothing to reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Time>,

    /// Available (a quorum serves), Progressing (there is work left) and Degraded (not everything runs as it should);
    /// NoSpace and Corrupt once etcd has raised the alarm of that name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The parts of a cluster's spec that new members are made from, as last taken over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedSpec {
    /// Number of members.
    pub replicas: i32,

    /// Version of etcd for new members.
    pub version: String,

    /// Where new members keep their data.
    pub storage: StorageSpec,

    /// CPU and memory for new members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Affinity of new members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Spreading of new members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Labels and annotations for new objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,

    /// Settings of etcd for new members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<EtcdOptions>,

    /// Image pull Secrets for new members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EtcdCluster;

    fn doubts(size: &str, quota: Option<i64>) -> Vec<String> {
        let mut spec = EtcdCluster::test("ns", "c").size(size).spec;
        spec.options = Some(EtcdOptions { quota_backend_bytes: quota, ..EtcdOptions::default() });
        spec.doubts()
    }

    #[test]
    fn an_ordinary_cluster_is_not_doubted() {
        assert_eq!(EtcdClusterSpec::default().doubts(), [""; 0]);
        assert_eq!(doubts("128Mi", None), [""; 0]);
        assert_eq!(doubts("2Gi", Some(1 << 30)), [""; 0]);
        assert_eq!(doubts("2Gi", Some(2 << 30)), [""; 0]);
    }

    #[test]
    fn a_volume_that_the_log_fills_is_doubted() {
        for size in ["64Mi", "10Mi", "127Mi", "5"] {
            let said = doubts(size, None);
            assert!(said.len() == 1 && said[0].contains(&format!("spec.storage.size {size} ")), "{said:?}");
        }
    }

    #[test]
    fn a_quota_larger_than_the_volume_is_doubted() {
        let said = doubts("1Gi", Some(10_200_547_328));
        assert!(said.len() == 1 && said[0].contains("quotaBackendBytes 10200547328"), "{said:?}");
    }
}
