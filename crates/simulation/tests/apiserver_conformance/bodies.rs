//! What is sent: objects and patches, good and bad.

use serde_json::{Value, json};
use simulation::apiserver::Kind;
use simulation::apiserver::kind::{
    BUDGET, CLAIM, ETCD_CLUSTER, ETCD_DEFRAG, ETCD_MEMBER, ETCD_SNAPSHOT, EVENT, LEASE, POD, SECRET, SERVICE,
};

pub const KINDS: [Kind; 11] = [
    ETCD_CLUSTER,
    ETCD_MEMBER,
    ETCD_SNAPSHOT,
    ETCD_DEFRAG,
    POD,
    CLAIM,
    SERVICE,
    BUDGET,
    LEASE,
    SECRET,
    EVENT,
];

/// Everything of an object but its metadata.
pub fn contents(kind: Kind) -> Vec<Value> {
    let spec = |spec: Value| json!({ "spec": spec });
    match kind {
        ETCD_CLUSTER => clusters(),
        ETCD_MEMBER => members(),
        ETCD_SNAPSHOT => vec![
            spec(json!({ "clusterRef": { "name": "c" }, "destination": { "pvc": { "claimName": "x" } } })),
            spec(json!({ "clusterRef": { "name": "" }, "destination": { "pvc": { "claimName": "x" } } })),
            spec(json!({ "clusterRef": { "name": "c" }, "destination": {} })),
        ],
        ETCD_DEFRAG => vec![
            spec(json!({ "clusterRef": { "name": "c" }, "rule": { "all": true } })),
            spec(json!({ "clusterRef": { "name": "c" }, "rule": { "freeSpaceAbove": "1Gi" } })),
            spec(json!({ "clusterRef": { "name": "c" }, "rule": { "freeSpaceAbove": 0 } })),
            spec(json!({ "clusterRef": { "name": "c" }, "rule": { "minReclaim": "1Gi" } })),
        ],
        POD => vec![
            spec(pod(None)),
            spec(pod(Some("n1"))),
            spec(pod(Some("n2"))),
            spec(json!({ "containers": [] })),
            spec(json!({ "containers": [{ "name": "x" }] })),
        ],
        CLAIM => {
            vec![spec(claim("1Gi")), spec(claim("2Gi")), spec(json!({ "accessModes": ["ReadWriteOnce"] }))]
        }
        SERVICE => vec![
            spec(json!({ "ports": [{ "name": "client", "port": 2379 }], "selector": { "a": "b" } })),
            spec(
                json!({ "clusterIP": "None", "ports": [{ "port": 2380, "protocol": "TCP", "targetPort": 2380 }],
                "publishNotReadyAddresses": true, "selector": { "a": "b" } }),
            ),
        ],
        BUDGET => vec![
            spec(json!({ "minAvailable": 2, "selector": { "matchLabels": { "a": "b" } } })),
            spec(json!({ "minAvailable": 2, "maxUnavailable": 1, "selector": {} })),
        ],
        LEASE => vec![spec(json!({ "holderIdentity": "me", "leaseDurationSeconds": 15 })), spec(json!({}))],
        SECRET => vec![
            json!({ "stringData": { "a": "b" } }),
            json!({ "data": { "a": "Yg==" } }),
            json!({ "data": { "a": "Yg==" }, "immutable": true }),
        ],
        _ => vec![json!({
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "etcd-operator",
            "reportingInstance": "x", "action": "a", "reason": "R", "type": "Normal", "note": "n",
        })],
    }
}

fn clusters() -> Vec<Value> {
    let memory = json!({ "medium": "Memory", "size": "128Mi" });
    let specs = [
        json!({ "version": "3.6.16" }),
        json!({ "version": "3.6.16", "replicas": 1 }),
        json!({ "version": "3.6.16", "replicas": 5, "storage": { "size": "2Gi" } }),
        json!({ "version": "3.6.16", "storage": memory }),
        json!({ "version": "3.6.16", "storage": { "size": 5, "storageClassName": "fast" }, "nonsense": 1 }),
        json!({ "version": "3.6.16", "replicas": 0, "storage": memory }),
        json!({ "version": "3.6" }),
        json!({ "replicas": 1 }),
        json!({ "version": "3.6.16", "replicas": "3" }),
        json!({ "version": "3.6.16", "replicas": -1 }),
        json!({ "version": "3.6.16", "replicas": null }),
        json!({ "version": "3.6.16", "auth": { "enabled": true } }),
        json!({ "version": "3.6.16", "tls": { "client": {} } }),
        json!({ "version": "3.6.16", "tls": { "client": { "serverSecretRef": { "name": "s" } } } }),
        json!({ "version": "3.6.16", "tls": { "client": { "serverSecretRef": {} } } }),
        json!({ "version": "3.6.16", "storage": { "size": "0" } }),
        json!({ "version": "3.6.16", "storage": { "size": "much" } }),
        json!({ "version": "3.6.16", "bootstrap": { "restore": { "source": { "pvc": { "claimName": "x" } } } } }),
    ];
    let mut bodies: Vec<Value> = specs.into_iter().map(|spec| json!({ "spec": spec })).collect();
    bodies.push(json!({}));
    bodies.push(json!({ "spec": { "version": "3.6.16" }, "status": { "readyMembers": 3 } }));
    bodies
}

fn members() -> Vec<Value> {
    let member = json!({
        "clusterName": "c", "version": "3.6.16", "storage": { "size": "1Gi" },
        "initialCluster": "", "clusterToken": "t",
    });
    let mut nameless = member.clone();
    nameless["clusterName"] = json!("");
    let mut dormant = member.clone();
    dormant["dormant"] = json!(true);
    [member, dormant, nameless, json!({ "clusterName": "c" })].map(|spec| json!({ "spec": spec })).into()
}

fn pod(node: Option<&str>) -> Value {
    let container = json!({
        "name": "etcd", "image": "etcd:v3.6.16", "command": ["etcd", "--name=a"],
        "ports": [{ "containerPort": 2379, "name": "client" }],
        "readinessProbe": { "httpGet": { "path": "/health", "port": 2381 }, "periodSeconds": 5 },
        "volumeMounts": [{ "mountPath": "/var/lib/etcd", "name": "data" }],
    });
    let volumes = json!([{ "name": "data", "emptyDir": { "medium": "Memory" } }]);
    let mut pod =
        json!({ "containers": [container], "volumes": volumes, "automountServiceAccountToken": false });
    if let Some(node) = node {
        pod["nodeName"] = json!(node);
    }
    pod
}

fn claim(size: &str) -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } })
}

/// Changes of an object's own part.
pub fn changes(kind: Kind) -> Vec<Value> {
    let specs = match kind {
        ETCD_CLUSTER => vec![
            json!({ "replicas": 1 }),
            json!({ "replicas": 5 }),
            json!({ "replicas": 0 }),
            json!({ "replicas": -1 }),
            json!({ "replicas": "x" }),
            json!({ "replicas": null }),
            json!({ "storage": { "size": "2Gi" } }),
            json!({ "storage": { "size": "512Mi" } }),
            json!({ "storage": { "medium": "Memory" } }),
            json!({ "storage": { "storageClassName": "slow" } }),
            json!({ "storage": null }),
            json!({ "version": "3.6.17" }),
            json!({ "version": null }),
            json!({ "nonsense": 1 }),
            json!({ "tls": { "client": { "serverSecretRef": { "name": "t" } } } }),
            json!({ "options": { "quotaBackendBytes": "1Gi" } }),
            Value::Null,
        ],
        ETCD_MEMBER => vec![
            json!({ "dormant": true }),
            json!({ "dormant": null }),
            json!({ "initialCluster": "a=http://a:2380" }),
            json!({ "clusterName": "" }),
            json!({ "storage": { "size": "1Mi" } }),
            json!({ "replicas": 2 }),
        ],
        ETCD_SNAPSHOT => vec![json!({ "clusterRef": { "name": "d" } }), json!({ "nonsense": 1 })],
        ETCD_DEFRAG => vec![json!({ "rule": { "all": true } }), json!({ "rule": { "all": null } })],
        POD => vec![
            json!({ "nodeName": "n9" }),
            json!({ "hostname": "h" }),
            json!({ "activeDeadlineSeconds": 100 }),
            json!({ "activeDeadlineSeconds": 200 }),
            json!({ "terminationGracePeriodSeconds": 1 }),
            json!({ "restartPolicy": null }),
            json!({ "containers": [{ "name": "etcd", "image": "etcd:v3.6.17" }] }),
        ],
        CLAIM => vec![
            json!({ "resources": { "requests": { "storage": "3Gi" } } }),
            json!({ "volumeName": "v" }),
            json!({ "accessModes": ["ReadWriteMany"] }),
        ],
        SERVICE => vec![
            json!({ "selector": { "a": null, "c": "d" } }),
            json!({ "clusterIP": "10.96.9.9" }),
            json!({ "publishNotReadyAddresses": true }),
            json!({ "ports": [{ "name": "client", "port": 2380 }] }),
        ],
        BUDGET => vec![
            json!({ "minAvailable": 3, "maxUnavailable": null }),
            json!({ "minAvailable": null, "maxUnavailable": 1 }),
            json!({ "maxUnavailable": 1 }),
        ],
        LEASE => vec![json!({ "holderIdentity": "you" }), json!({ "holderIdentity": null })],
        SECRET => {
            return vec![
                json!({ "data": { "a": "Yw==" } }),
                json!({ "type": "other" }),
                json!({ "data": null }),
            ];
        }
        _ => {
            return vec![
                json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z" } }),
            ];
        }
    };
    specs.into_iter().map(|spec| json!({ "spec": spec })).collect()
}

pub fn status_changes(kind: Kind) -> Vec<Value> {
    let condition = |status: &str| {
        json!({ "type": "Ready", "status": status, "reason": "Because", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let statuses = match kind {
        ETCD_CLUSTER => vec![
            json!({ "readyMembers": 1, "selector": "a=b" }),
            json!({ "conditions": [condition("True")] }),
            json!({ "conditions": [condition("Perhaps")] }),
            json!({ "conditions": [{ "type": "Ready" }] }),
            json!({ "readyMembers": "x" }),
            json!({ "nonsense": 1 }),
            Value::Null,
        ],
        ETCD_MEMBER | ETCD_SNAPSHOT | ETCD_DEFRAG => {
            vec![
                json!({ "conditions": [condition("True")] }),
                json!({ "conditions": [condition("False")] }),
                Value::Null,
            ]
        }
        POD => vec![json!({ "phase": "Running", "podIP": "10.0.0.1" }), json!({ "phase": "Failed" })],
        CLAIM => {
            vec![json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } }), json!({ "phase": "Lost" })]
        }
        BUDGET => vec![json!({ "currentHealthy": 3 })],
        _ => vec![json!({ "loadBalancer": {} })],
    };
    let mut changes: Vec<Value> = statuses.into_iter().map(|status| json!({ "status": status })).collect();
    changes.push(json!({ "spec": { "replicas": 9, "minAvailable": 9, "hostname": "h" } }));
    changes.push(json!({ "metadata": { "labels": { "app": "c" } } }));
    changes
}

/// Changes of any object's metadata.
pub fn metadata_changes() -> Vec<Value> {
    let owner = |name: &str, controller: bool| {
        let mut owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u" });
        owner["controller"] = json!(controller);
        owner
    };
    let changes = [
        json!({ "labels": { "app": "a" } }),
        json!({ "labels": { "app": "b" } }),
        json!({ "labels": { "app": null } }),
        json!({ "annotations": { "note": "x" } }),
        json!({ "annotations": null }),
        json!({ "finalizers": ["x.io/f"] }),
        json!({ "finalizers": ["x.io/f", "x.io/g"] }),
        json!({ "finalizers": ["x.io/g"] }),
        json!({ "finalizers": [] }),
        json!({ "finalizers": null }),
        json!({ "finalizers": ["bad"] }),
        json!({ "finalizers": ["x.io/f", "x.io/f"] }),
        json!({ "ownerReferences": [owner("o", true)] }),
        json!({ "ownerReferences": [owner("o", true), owner("p", true)] }),
        json!({ "ownerReferences": [owner("", false)] }),
        json!({ "ownerReferences": null }),
        json!({ "name": "other" }),
        json!({ "namespace": "other" }),
        json!({ "creationTimestamp": null }),
        json!({ "creationTimestamp": "2020-01-01T00:00:00Z" }),
        json!({ "deletionTimestamp": null, "deletionGracePeriodSeconds": null }),
        json!({ "deletionTimestamp": "2020-01-01T00:00:00Z" }),
        json!({ "deletionGracePeriodSeconds": 7 }),
        json!({ "generation": 99 }),
        json!({ "uid": null, "resourceVersion": null }),
        json!({ "generateName": "g-" }),
        json!({}),
    ];
    changes.into_iter().map(|metadata| json!({ "metadata": metadata })).collect()
}
