//! Objects the Go operator left on a real Kubernetes decode, and encode again without loss.

#![allow(clippy::expect_used)]

use api::{EtcdCluster, EtcdClusterStatus, EtcdDefrag, EtcdMember, EtcdSnapshot, ObservedSpec};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn round_trip<T: Serialize + DeserializeOwned>(object: &Value) -> T {
    let decoded: T = serde_json::from_value(object.clone()).expect("decodes");
    let encoded = serde_json::to_value(&decoded).expect("encodes");
    assert_eq!(&encoded, object, "something was lost or invented");
    decoded
}

fn yaml(text: &str) -> Value {
    serde_norway::from_str(text).expect("the fixture is YAML")
}

macro_rules! fixture {
    ($name:literal) => {
        yaml(include_str!(concat!("fixtures/", $name, ".yaml")))
    };
}

fn clusters() -> [Value; 4] {
    [
        fixture!("my-etcd-cluster"),
        fixture!("mem-cluster"),
        fixture!("full-cluster"),
        fixture!("paused-cluster"),
    ]
    .map(|mut object| {
        // The Go operator leaves a zero out. We write it, so that the column shows it.
        let status = object["status"].as_object_mut().expect("has a status");
        status.entry("readyMembers").or_insert_with(|| json!(0));
        object
    })
}

#[test]
fn nobody_ready_is_said_with_a_zero() {
    let status = serde_json::to_value(EtcdClusterStatus::default()).expect("encodes");
    assert_eq!(status, json!({"readyMembers": 0}));
}

#[test]
fn nobody_ready_is_read_from_what_the_go_operator_leaves_out() {
    let object = fixture!("paused-cluster");
    assert!(object["status"].get("readyMembers").is_none());
    let cluster: EtcdCluster = serde_json::from_value(object).expect("decodes");
    assert_eq!(cluster.status.expect("has a status").ready_members, 0);
}

#[test]
fn clusters_survive() {
    for object in clusters() {
        round_trip::<EtcdCluster>(&object);
    }
}

#[test]
fn members_survive() {
    let lists = [
        fixture!("my-etcd-etcdmember"),
        fixture!("mem-etcdmember"),
        fixture!("full-etcdmember"),
        fixture!("paused-etcdmember"),
    ];
    for list in lists {
        let items = list["items"].as_array().expect("a list");
        assert!(!items.is_empty());
        for object in items {
            round_trip::<EtcdMember>(object);
        }
    }
}

#[test]
fn no_cluster_of_the_go_operator_looks_changed() {
    for object in clusters() {
        let cluster: EtcdCluster = round_trip(&object);
        let observed: ObservedSpec = cluster.status.and_then(|status| status.observed).expect("has a target");
        assert!(observed.matches(&cluster.spec), "{}", object["metadata"]["name"]);
    }
}

#[test]
fn managed_fields_survive() {
    let mut object = fixture!("my-etcd-cluster");
    object["metadata"]["managedFields"] = json!([{
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {".": {}, "f:replicas": {}}},
        "manager": "kubectl",
        "operation": "Apply",
        "time": "2026-11-15T20:15:07Z",
        "subresource": "status"
    }]);
    round_trip::<EtcdCluster>(&object);
}

#[test]
fn every_field_of_a_cluster_survives() {
    round_trip::<EtcdCluster>(&json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster", "metadata": {"name": "all"},
        "spec": {
            "replicas": 3, "version": "3.6.16", "progressDeadlineSeconds": 60,
            "storage": {"size": "1Gi", "medium": "", "storageClassName": ""},
            "tls": {
                "client": {"serverSecretRef": {"name": "s"}, "operatorClientSecretRef": {"name": "o"},
                    "certManager": {"serverIssuerRef": {"name": "i", "kind": "ClusterIssuer"},
                        "operatorClientIssuerRef": {"name": "j", "kind": "Issuer"}}},
                "peer": {"secretRef": {"name": "p"}, "certManager": {"issuerRef": {"name": "k", "kind": "Issuer"}}}
            },
            "auth": {"enabled": true, "rootCredentialsSecretRef": {"name": "root"}},
            "bootstrap": {"restore": {"source": {
                "s3": {"endpoint": "https://s3", "bucket": "b", "key": "k", "region": "r", "forcePathStyle": true,
                    "credentialsSecretRef": {"name": "c"}},
                "pvc": {"claimName": "c", "subPath": "s"}}}},
            "imagePullSecrets": [{"name": "pull"}],
            "options": {"quotaBackendBytes": 10200547328_i64, "autoCompactionMode": "revision",
                "autoCompactionRetention": "1000", "snapshotCount": 1}
        },
        "status": {"readyMembers": 1, "brokenMembers": 1, "selector": "a=b", "clusterID": "00000000000000c1",
            "clusterToken": "t", "version": "3.6.16..3.7.3", "authEnabled": true, "progressDeadline": "2026-11-15T20:15:07Z"}
    }));
}

#[test]
fn every_field_of_a_member_survives() {
    round_trip::<EtcdMember>(&json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember", "metadata": {"name": "all-abcde"},
        "spec": {
            "clusterName": "all", "version": "3.6.16", "storage": {"size": "1Gi", "medium": "Memory"},
            "initialCluster": "", "clusterToken": "t", "bootstrap": true, "dormant": true, "replicas": 1,
            "tls": {"clientServerSecretRef": {"name": "s"}, "clientMTLS": true, "peerSecretRef": {"name": "p"},
                "peerAutoTLS": true},
            "restore": {"source": {"pvc": {"claimName": "c", "subPath": "s"}}}
        },
        "status": {"memberID": "00000000000000c1", "clusterID": "00000000000000c2", "podName": "p", "podUID": "u",
            "isVoter": true, "role": "leader", "replicas": 1, "selector": "a=b", "pvcName": "d", "version": "3.6.16"}
    }));
}

#[test]
fn every_field_of_a_snapshot_survives() {
    round_trip::<EtcdSnapshot>(&json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdSnapshot", "metadata": {"name": "s"},
        "spec": {"clusterRef": {"name": "c"}, "destination": {"pvc": {"claimName": "c"}}},
        "status": {"phase": "Complete",
            "artifact": {"uri": "file:///snapshot/data/s.db", "sizeBytes": 20512, "checksum": "sha256:00"}}
    }));
}

#[test]
fn every_field_of_a_defrag_survives() {
    round_trip::<EtcdDefrag>(&json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdDefrag", "metadata": {"name": "d"},
        "spec": {"clusterRef": {"name": "c"}, "ttlSecondsAfterFinished": 0,
            "rule": {"all": true, "freeSpaceAbove": "200Mi", "quotaUsageAbove": "80%", "minReclaim": "32Mi"}},
        "status": {"phase": "Running", "startedAt": "2026-11-15T20:15:07Z", "completedAt": "2026-11-15T20:15:08Z",
            "defragmented": 1, "members": [{"name": "m", "role": "leader", "outcome": "Defragmented", "reason": "r",
                "dbSizeBefore": 2, "dbSizeAfter": 1, "reclaimedBytes": 1, "finishedAt": "2026-11-15T20:15:08Z"}]}
    }));
}

#[test]
fn a_pending_member_says_so_with_an_empty_string() {
    let member = EtcdMember::new("m", Default::default());
    assert_eq!(serde_json::to_value(member).expect("encodes")["spec"]["initialCluster"], json!(""));
}

#[test]
fn an_empty_id_is_no_id() {
    let cluster: EtcdCluster = serde_json::from_value(json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster", "metadata": {"name": "c"},
        "spec": {"version": "3.6.16"}, "status": {"clusterID": "", "readyMembers": 0}
    }))
    .expect("decodes");
    assert_eq!(cluster.status, Some(Default::default()));
}
