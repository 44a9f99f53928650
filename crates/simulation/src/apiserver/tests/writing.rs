use super::super::kind::LEASE;
use super::*;

#[test]
fn a_new_object_gets_what_only_the_server_gives() {
    let mut bench = Bench::new();
    bench.now = 61_500;
    let mut object = cluster("c");
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["generation"] = json!(9);
    object["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    object["status"] = json!({ "readyMembers": 3 });
    let made = bench.create(ETCD_CLUSTER, object).unwrap();
    let metadata = &made["metadata"];
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:01:01Z");
    assert_eq!((&metadata["generation"], &metadata["namespace"]), (&json!(1), &json!("ns")));
    assert_ne!(metadata["uid"], "mine");
    assert!(metadata.get("deletionTimestamp").is_none() && made.get("status").is_none());
    assert_eq!(refusal(bench.create(ETCD_CLUSTER, cluster("c"))), (409, "AlreadyExists"));
}

#[test]
fn names_are_made_up_from_the_seed() {
    let mut bench = Bench::new();
    let object = json!({ "metadata": { "generateName": "c-" }, "spec": { "version": "3.6.16" } });
    let first = bench.create(ETCD_CLUSTER, object.clone()).unwrap();
    let second = bench.create(ETCD_CLUSTER, object.clone()).unwrap();
    assert_ne!(meta::name(&first), meta::name(&second));
    let again = Bench::new().create(ETCD_CLUSTER, object).unwrap();
    assert_eq!(first["metadata"], again["metadata"]);
    assert_eq!(
        refusal(bench.create(ETCD_CLUSTER, json!({ "spec": { "version": "3.6.16" } }))),
        (422, "Invalid")
    );
}

#[test]
fn the_generation_counts_changes_of_the_spec_alone() {
    let mut bench = Bench::new();
    bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    let generation = |object: Value| meta::generation(&object);
    let labelled = bench.patch(ETCD_CLUSTER, "c", json!({ "metadata": { "labels": { "a": "b" } } })).unwrap();
    assert_eq!(generation(labelled), 1);
    let status = bench.patch_status(ETCD_CLUSTER, "c", json!({ "status": { "readyMembers": 1 } })).unwrap();
    assert_eq!(generation(status), 1);
    let grown = bench.patch(ETCD_CLUSTER, "c", json!({ "spec": { "replicas": 5 } })).unwrap();
    assert_eq!(generation(grown), 2);
}

#[test]
fn each_path_writes_its_own_part() {
    let mut bench = Bench::new();
    bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    let both = |replicas: i32, label: Value| {
        let metadata = json!({ "labels": { "a": label } });
        json!({ "spec": { "replicas": replicas }, "status": { "readyMembers": 1 }, "metadata": metadata })
    };
    let main = bench.patch(ETCD_CLUSTER, "c", both(5, json!("b"))).unwrap();
    assert!(main.get("status").is_none() && main["spec"]["replicas"] == 5);
    let status = bench.patch_status(ETCD_CLUSTER, "c", both(7, Value::Null)).unwrap();
    assert_eq!((&status["spec"]["replicas"], &status["status"]["readyMembers"]), (&json!(5), &json!(1)));
    assert_eq!(status["metadata"]["labels"]["a"], "b");
}

#[test]
fn a_write_that_says_nothing_new_is_no_write() {
    let mut bench = Bench::new();
    let made = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    let before = bench.server.revision();
    assert_eq!(bench.patch(ETCD_CLUSTER, "c", json!({ "spec": { "replicas": 3 } })).unwrap(), made);
    assert_eq!(bench.update(ETCD_CLUSTER, made.clone()).unwrap(), made);
    assert_eq!(bench.server.revision(), before);
}

#[test]
fn who_writes_over_a_newer_version_is_refused() {
    let mut bench = Bench::new();
    let first = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    bench.patch(ETCD_CLUSTER, "c", json!({ "spec": { "replicas": 5 } })).unwrap();
    assert_eq!(refusal(bench.update(ETCD_CLUSTER, first.clone())), (409, "Conflict"));
    let version = first["metadata"]["resourceVersion"].clone();
    let patch = json!({ "metadata": { "resourceVersion": version, "labels": { "a": "b" } } });
    assert_eq!(refusal(bench.patch(ETCD_CLUSTER, "c", patch)), (409, "Conflict"));
    let mut blind = first;
    meta::set(&mut blind, "resourceVersion", Value::Null);
    assert_eq!(refusal(bench.update(ETCD_CLUSTER, blind)), (422, "Invalid"));
}

#[test]
fn a_write_meant_for_a_predecessor_is_refused() {
    let mut bench = Bench::new();
    let mut old = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    bench.delete(ETCD_CLUSTER, "c", &DeleteOptions::default()).unwrap();
    let new = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    meta::copy(&mut old, &new, "resourceVersion");
    assert_eq!(refusal(bench.update(ETCD_CLUSTER, old.clone())), (409, "Conflict"));
    let patch = json!({ "metadata": { "uid": old["metadata"]["uid"] }, "spec": { "replicas": 1 } });
    assert!(bench.patch(ETCD_CLUSTER, "c", patch).is_err());
    assert_eq!(bench.get(ETCD_CLUSTER, "c").unwrap()["spec"]["replicas"], 3);
}

#[test]
fn a_replace_of_a_lease_that_is_gone_makes_a_new_one_or_is_a_conflict() {
    let mut bench = Bench::new();
    let mut lease = bench.create(LEASE, json!({ "metadata": { "name": "l" }, "spec": {} })).unwrap();
    bench.delete(LEASE, "l", &DeleteOptions::default()).unwrap();
    assert_eq!(refusal(bench.update(LEASE, lease.clone())), (409, "Conflict"));
    let old = lease["metadata"]["uid"].clone();
    meta::set(&mut lease, "uid", Value::Null);
    assert_ne!(bench.update(LEASE, lease).unwrap()["metadata"]["uid"], old);
    assert_eq!(refusal(bench.update(ETCD_CLUSTER, cluster("c"))), (404, "NotFound"));
}

#[test]
fn scale_writes_replicas_and_nothing_else() {
    let mut bench = Bench::new();
    let made = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    let scale = bench.server.scale(ETCD_CLUSTER, "ns", "c").unwrap();
    assert_eq!((&scale["spec"]["replicas"], &scale["kind"]), (&json!(3), &json!("Scale")));
    let patch = json!({ "spec": { "replicas": 5, "version": "9.9.9" } });
    let scaled = bench.server.patch_merge(0, ETCD_CLUSTER, "ns", "c", &patch, Some(Sub::Scale)).unwrap();
    assert_eq!(scaled["spec"], json!({ "replicas": 5 }));
    let now = bench.get(ETCD_CLUSTER, "c").unwrap();
    assert_eq!((meta::generation(now), &now["spec"]["version"]), (2, &json!("3.6.16")));
    let version = &made["metadata"]["resourceVersion"];
    let stale = json!({ "metadata": { "resourceVersion": version }, "spec": { "replicas": 1 } });
    let outcome = bench.server.update(0, ETCD_CLUSTER, "ns", "c", stale, Some(Sub::Scale));
    assert_eq!(refusal(outcome), (409, "Conflict"));
    assert_eq!(refusal(bench.server.scale(POD, "ns", "p")), (404, "NotFound"));
}

#[test]
fn nothing_new_comes_into_a_namespace_that_goes() {
    let mut bench = Bench::new();
    bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    bench.server.terminate_namespace("ns");
    let error = bench.create(ETCD_CLUSTER, cluster("d")).unwrap_err();
    assert_eq!((error.code, error.cause), (403, Some("NamespaceTerminating")));
    bench.patch(ETCD_CLUSTER, "c", json!({ "spec": { "replicas": 5 } })).unwrap();
}

#[test]
fn a_pod_is_bound_once() {
    let mut bench = Bench::new();
    bench.create(POD, pod("p")).unwrap();
    assert_eq!(bench.server.bind(0, "ns", "p", "n1").unwrap()["spec"]["nodeName"], "n1");
    assert_eq!(refusal(bench.server.bind(0, "ns", "p", "n2")), (409, "Conflict"));
}
