//! `EtcdMember`: one member of a cluster, made and owned by the operator.

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::{empty_as_none, is_false, is_zero};
use crate::{AdditionalMetadata, EtcdOptions, RestoreSpec, StorageSpec};

/// One member, as it was decided when it was created. The operator writes it; nobody else should.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "etcd-operator.cozystack.io",
    version = "v1alpha2",
    kind = "EtcdMember",
    plural = "etcdmembers",
    shortname = "etcdm",
    namespaced,
    doc = "One member of an EtcdCluster. Created by the operator; deleting one makes the operator replace it.",
    status = "EtcdMemberStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Role", type_ = "string", json_path = ".status.role"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberSpec {
    /// The EtcdCluster this member belongs to, in the same namespace.
    #[schemars(length(min = 1))]
    pub cluster_name: String,

    /// Version of etcd this member runs.
    pub version: String,

    /// Where this member keeps its data.
    pub storage: StorageSpec,

    /// Value of --initial-cluster. Empty while the member is pending: it gets neither a volume nor a Pod yet.
    pub initial_cluster: String,

    /// Value of --initial-cluster-token.
    pub cluster_token: String,

    /// True on the one member the cluster was started with. Never cleared.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bootstrap: bool,

    /// Paused: the Pod is gone, the volume stays.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dormant: bool,

    /// CPU and memory of the etcd container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Labels and annotations for the Pod and the volume claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_metadata: Option<AdditionalMetadata>,

    /// Affinity of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// How the Pod spreads over nodes and zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// Settings of etcd itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<EtcdOptions>,

    /// Secrets for pulling the etcd image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Always 1: a member is one Pod. It exists for the scale subresource, which disruption budgets of yours with
    /// maxUnavailable or a percentage ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1))]
    pub replicas: Option<i32>,

    /// Secrets with this member's certificates. Absent means plaintext.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<MemberTls>,

    /// The snapshot this member starts from. Only on the first member of a restored cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSpec>,
}

impl EtcdMemberSpec {
    /// Not yet told whom to join: no volume, no Pod.
    pub fn is_pending(&self) -> bool {
        self.initial_cluster.is_empty()
    }

    /// Whether clients speak https to this member.
    pub fn client_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_server_secret_ref.is_some())
    }

    /// Whether other members speak https to this member.
    pub fn peer_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.peer_secret_ref.is_some() || tls.peer_auto_tls)
    }
}

/// Secrets with a member's certificates, whoever issued them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberTls {
    /// Secret with the server certificate of the client plane. Absent means plaintext for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_server_secret_ref: Option<LocalObjectReference>,

    /// Whether clients must present a certificate.
    #[serde(default, rename = "clientMTLS", skip_serializing_if = "is_false")]
    pub client_mtls: bool,

    /// Secret with the certificate of the peer plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_secret_ref: Option<LocalObjectReference>,

    /// Self-signed certificates between peers. Only on members of adopted clusters.
    #[serde(default, rename = "peerAutoTLS", skip_serializing_if = "is_false")]
    pub peer_auto_tls: bool,
}

/// What became of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberStatus {
    /// Id of the member in etcd, sixteen hex digits. Set once.
    #[serde(
        default,
        rename = "memberID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_as_none"
    )]
    pub member_id: Option<String>,

    /// Id of the etcd cluster that this member's own etcd has named, sixteen hex digits.
    #[serde(
        default,
        rename = "clusterID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_as_none"
    )]
    pub cluster_id: Option<String>,

    /// Name of the Pod while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub pod_name: Option<String>,

    /// UID of the Pod seen last.
    #[serde(
        default,
        rename = "podUID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_as_none"
    )]
    pub pod_uid: Option<String>,

    /// Whether etcd counts this member as a voter; learners do not vote.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_voter: bool,

    /// What the member is in etcd at the moment: leader, voter, learner, or leaving. Absent while nobody answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub role: Option<String>,

    /// 1 once the member has had a Pod, for the scale subresource.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: i32,

    /// Label selector of this member's Pod, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub selector: Option<String>,

    /// Name of the volume claim. Absent for medium Memory.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub pvc_name: Option<String>,

    /// UID of the claim the member joined with. Another claim under the same name does not hold its data.
    #[serde(
        default,
        rename = "pvcUID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "empty_as_none"
    )]
    pub pvc_uid: Option<String>,

    /// Version of etcd this member reported last.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub version: Option<String>,

    /// Ready, and VersionDrifted once a version is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
