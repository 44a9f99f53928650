use super::super::kind::{BUDGET, ETCD_DEFRAG, ETCD_SNAPSHOT, LEASE, SERVICE};
use super::*;

fn refuses(bench: &mut Bench, kind: Kind, name: &str, spec: Value, because: &str) {
    let error = bench.patch(kind, name, json!({ "spec": spec })).expect_err(because);
    assert_eq!(error.code, 422, "{error}");
    assert!(error.message.contains(because), "{error}");
}

#[test]
fn a_paused_memory_cluster_is_refused() {
    let mut bench = Bench::new();
    let mut object = cluster("c");
    object["spec"]["storage"] = json!({ "medium": "Memory", "size": "128Mi" });
    bench.create(ETCD_CLUSTER, object).unwrap();
    refuses(&mut bench, ETCD_CLUSTER, "c", json!({ "replicas": 0 }), "spec.replicas=0 with");
    refuses(&mut bench, ETCD_CLUSTER, "c", json!({ "storage": { "medium": null } }), "spec.storage");
}

#[test]
fn what_may_not_change_does_not() {
    let mut bench = Bench::new();
    bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    let shrunk = json!({ "storage": { "size": "512Mi" } });
    refuses(&mut bench, ETCD_CLUSTER, "c", shrunk, "cannot be shrunk");
    let class = json!({ "storage": { "storageClassName": "fast" } });
    refuses(&mut bench, ETCD_CLUSTER, "c", class, "storageClassName cannot be added");
    refuses(&mut bench, ETCD_CLUSTER, "c", json!({ "replicas": -1 }), "out of range");
    bench
        .patch(ETCD_CLUSTER, "c", json!({ "spec": { "storage": { "size": "2Gi" }, "replicas": 0 } }))
        .unwrap();

    let spec = json!({ "clusterRef": { "name": "c" }, "destination": { "pvc": { "claimName": "x" } } });
    bench.create(ETCD_SNAPSHOT, json!({ "metadata": { "name": "s" }, "spec": spec })).unwrap();
    refuses(&mut bench, ETCD_SNAPSHOT, "s", json!({ "clusterRef": { "name": "d" } }), "spec is immutable");
}

#[test]
fn a_rule_that_came_later_does_not_stand_in_the_way_of_what_is_stored() {
    let mut bench = Bench::new();
    let mut old = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    old["spec"]["storage"]["size"] = json!("0");
    bench.server.commit(0, Id::new(ETCD_CLUSTER, "ns", "c"), Some(old));
    bench.patch(ETCD_CLUSTER, "c", json!({ "spec": { "replicas": 5 } })).unwrap();
    refuses(&mut bench, ETCD_CLUSTER, "c", json!({ "storage": { "size": "0.0" } }), "must be > 0");
}

#[test]
fn bad_input_is_refused_in_words() {
    let mut bench = Bench::new();
    let mut refusal_of = |kind, spec: Value| {
        let refused = bench.create(kind, json!({ "metadata": { "name": "x" }, "spec": spec })).unwrap_err();
        refused.message
    };
    let options = json!({ "autoCompactionMode": "revision", "autoCompactionRetention": "5m" });
    let words = [
        (json!({ "version": "v3.6.16" }), "three numbers like 3.6.16"),
        (json!({ "version": "3.4.36" }), "must be 3.5.0 or newer"),
        (json!({ "version": "3.6.16", "replicas": 3000 }), "must be at most 31"),
        (json!({ "version": "3.6.16", "options": options }), "a number of revisions like 1000"),
        (json!({ "version": "3.6.16", "storage": { "medium": "Memory", "size": "10Mi" } }), "more than 64M"),
        (
            json!({ "version": "3.6.16", "bootstrap": { "restore": { "source": {} } } }),
            "spec.bootstrap.restore.source needs",
        ),
    ];
    for (spec, fragment) in words {
        let message = refusal_of(ETCD_CLUSTER, spec.clone());
        assert!(message.contains(fragment), "{spec}: {message}");
    }
    let auth = json!({ "enabled": true, "rootCredentialsSecretRef": { "name": "root" } });
    let message = refusal_of(ETCD_CLUSTER, json!({ "version": "3.6.16", "auth": auth }));
    assert!(
        message.contains("requires spec.tls.client (auth credentials must not cross a plaintext connection)")
    );
    let nothing = json!({ "clusterRef": { "name": "c" }, "rule": { "freeSpaceAbove": 0 } });
    assert!(refusal_of(ETCD_DEFRAG, nothing).contains("freeSpaceAbove must be greater than 0"));
}

#[test]
fn a_cluster_made_before_a_rule_stays_editable_and_replaces_its_members() {
    let mut bench = Bench::new();
    let mut old = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    old["spec"]["version"] = json!("3.4.36");
    old["spec"]["replicas"] = json!(33);
    bench.server.commit(0, Id::new(ETCD_CLUSTER, "ns", "c"), Some(old));
    bench.patch(ETCD_CLUSTER, "c", json!({ "spec": { "progressDeadlineSeconds": 60 } })).unwrap();
    refuses(&mut bench, ETCD_CLUSTER, "c", json!({ "version": "3.4.37" }), "3.5.0 or newer");
    let spec = json!({ "clusterName": "c", "version": "3.4.36", "storage": {}, "initialCluster": "", "clusterToken": "t" });
    bench.create(ETCD_MEMBER, json!({ "metadata": { "name": "c-abcde" }, "spec": spec })).unwrap();
}

#[test]
fn a_pod_stays_what_it_was() {
    let mut bench = Bench::new();
    let made = bench.create(POD, pod("p")).unwrap();
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 30);
    refuses(&mut bench, POD, "p", json!({ "hostname": "h" }), "pod updates may not change fields");
    refuses(&mut bench, POD, "p", json!({ "nodeName": "n" }), "pod updates may not change fields");
    let mut containers = made["spec"]["containers"].clone();
    containers[0]["image"] = json!("etcd:v3.6.17");
    let updated = bench.patch(POD, "p", json!({ "spec": { "containers": containers } })).unwrap();
    assert_eq!(meta::generation(&updated), 2);
    containers[0]["command"] = json!(["sh"]);
    refuses(&mut bench, POD, "p", json!({ "containers": containers }), "pod updates may not change fields");
}

#[test]
fn a_claim_is_bound_once_and_protected() {
    let mut bench = Bench::new();
    let made = bench.create(CLAIM, claim("data")).unwrap();
    assert_eq!(meta::finalizers(&made), ["kubernetes.io/pvc-protection"]);
    refuses(
        &mut bench,
        CLAIM,
        "data",
        json!({ "accessModes": ["ReadWriteMany"] }),
        "immutable after creation",
    );
    bench.patch(CLAIM, "data", json!({ "spec": { "volumeName": "v" } })).unwrap();
    refuses(&mut bench, CLAIM, "data", json!({ "volumeName": "w" }), "immutable after creation");
    bench.patch_status(CLAIM, "data", json!({ "status": { "phase": "Bound" } })).unwrap();
    let size = |size: &str| json!({ "resources": { "requests": { "storage": size } } });
    refuses(&mut bench, CLAIM, "data", size("512Mi"), "less than previous value");
    assert_eq!(refusal(bench.patch(CLAIM, "data", json!({ "spec": size("2Gi") }))), (403, "Forbidden"));
}

#[test]
fn a_service_keeps_its_address() {
    let mut bench = Bench::new();
    let spec = json!({ "ports": [{ "port": 2379 }], "selector": { "a": "b" } });
    let made = bench.create(SERVICE, json!({ "metadata": { "name": "s" }, "spec": spec })).unwrap();
    assert_eq!(made["spec"]["ports"][0], json!({ "port": 2379, "protocol": "TCP", "targetPort": 2379 }));
    refuses(&mut bench, SERVICE, "s", json!({ "clusterIP": "None" }), "may not change once set");
    bench.patch(SERVICE, "s", json!({ "spec": { "selector": { "a": null, "c": "d" } } })).unwrap();
    assert_eq!(bench.get(SERVICE, "s").unwrap()["spec"]["selector"], json!({ "c": "d" }));
}

#[test]
fn a_budget_says_one_thing() {
    let mut bench = Bench::new();
    let spec = json!({ "minAvailable": 2, "selector": {} });
    bench.create(BUDGET, json!({ "metadata": { "name": "b" }, "spec": spec })).unwrap();
    refuses(&mut bench, BUDGET, "b", json!({ "maxUnavailable": 1 }), "cannot be both set");
}

#[test]
fn what_can_not_be_read_is_refused() {
    let mut bench = Bench::new();
    let object = json!({ "metadata": { "name": "l" }, "spec": { "leaseDurationSeconds": "long" } });
    assert_eq!(refusal(bench.create(LEASE, object)), (400, "BadRequest"));
    let object = json!({ "kind": "Pod", "metadata": { "name": "l" } });
    assert_eq!(refusal(bench.create(LEASE, object)), (400, "BadRequest"));
    let object = json!({ "metadata": { "name": "l", "namespace": "elsewhere" } });
    assert_eq!(refusal(bench.create(LEASE, object)), (400, "BadRequest"));
}
