use super::*;

#[test]
fn without_finalizers_an_object_goes_at_once() {
    let mut bench = Bench::new();
    bench.create(ETCD_MEMBER, member("m")).unwrap();
    let gone = bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default()).unwrap();
    assert!(matches!(gone, Deletion::Gone(_)));
    assert_eq!(bench.get(ETCD_MEMBER, "m"), None);
    assert_eq!(refusal(bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default())), (404, "NotFound"));
}

#[test]
fn preconditions_name_the_object_and_its_version() {
    let mut bench = Bench::new();
    let made = bench.create(ETCD_MEMBER, member("m")).unwrap();
    let other = DeleteOptions { uid: Some("other".into()), ..DeleteOptions::default() };
    assert_eq!(refusal(bench.delete(ETCD_MEMBER, "m", &other)), (409, "Conflict"));
    let stale = DeleteOptions { resource_version: Some("1".into()), ..DeleteOptions::default() };
    assert_eq!(refusal(bench.delete(ETCD_MEMBER, "m", &stale)), (409, "Conflict"));
    let version = Some(meta::text(&made, "resourceVersion").to_owned());
    let right = DeleteOptions {
        uid: Some(meta::uid(&made).to_owned()),
        resource_version: version,
        ..DeleteOptions::default()
    };
    bench.delete(ETCD_MEMBER, "m", &right).unwrap();
}

#[test]
fn finalizers_keep_an_object_until_the_last_is_gone() {
    let mut bench = Bench::new();
    bench.create(ETCD_MEMBER, finalized(member("m"), &["x.io/a", "x.io/b"])).unwrap();
    let Deletion::Pending(marked) = bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default()).unwrap() else {
        panic!("it has finalizers");
    };
    assert!(meta::is_terminating(&marked));
    assert_eq!((meta::grace(&marked), meta::generation(&marked)), (Some(0), 2));
    let revision = bench.server.revision();
    bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default()).unwrap();
    assert_eq!(bench.server.revision(), revision, "a second delete changes nothing");

    bench.patch(ETCD_MEMBER, "m", json!({ "metadata": { "labels": { "a": "b" } } })).unwrap();
    let add = json!({ "metadata": { "finalizers": ["x.io/a", "x.io/b", "x.io/c"] } });
    assert_eq!(refusal(bench.patch(ETCD_MEMBER, "m", add)), (422, "Invalid"));
    bench.patch(ETCD_MEMBER, "m", json!({ "metadata": { "finalizers": ["x.io/b"] } })).unwrap();
    assert!(bench.get(ETCD_MEMBER, "m").is_some());
    bench.patch(ETCD_MEMBER, "m", json!({ "metadata": { "finalizers": [] } })).unwrap();
    assert_eq!(bench.get(ETCD_MEMBER, "m"), None);
}

#[test]
fn nobody_takes_a_deletion_back() {
    let mut bench = Bench::new();
    bench.create(ETCD_MEMBER, finalized(member("m"), &["x.io/a"])).unwrap();
    bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default()).unwrap();
    let back = json!({ "metadata": { "deletionTimestamp": null, "deletionGracePeriodSeconds": null } });
    bench.patch(ETCD_MEMBER, "m", back).unwrap();
    assert!(meta::is_terminating(bench.get(ETCD_MEMBER, "m").unwrap()));
}

#[test]
fn a_pod_on_a_node_waits_for_its_kubelet() {
    let mut bench = Bench::new();
    bench.create(POD, pod("p")).unwrap();
    bench.server.bind(0, "ns", "p", "n").unwrap();
    bench.delete(POD, "p", &DeleteOptions::default()).unwrap();
    let marked = bench.get(POD, "p").unwrap().clone();
    assert_eq!(meta::grace(&marked), Some(30));
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z", "when its time ends");

    let longer = DeleteOptions { grace_period_seconds: Some(60), ..DeleteOptions::default() };
    bench.delete(POD, "p", &longer).unwrap();
    assert_eq!(bench.get(POD, "p"), Some(&marked), "never longer");
    let shorter = DeleteOptions { grace_period_seconds: Some(5), ..DeleteOptions::default() };
    bench.delete(POD, "p", &shorter).unwrap();
    assert_eq!(meta::grace(bench.get(POD, "p").unwrap()), Some(5));
    let revision = bench.server.revision();
    let kubelet = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    assert!(matches!(bench.delete(POD, "p", &kubelet).unwrap(), Deletion::Gone(_)));
    let events = bench.server.watch_since(POD, None, &Selector::all(), revision).unwrap();
    let changes: Vec<_> = events.iter().map(|event| event.change).collect();
    assert_eq!(changes, [Change::Modified, Change::Deleted], "marked once more, then removed");
}

#[test]
fn a_pod_without_a_node_or_without_processes_goes_at_once() {
    let mut bench = Bench::new();
    bench.create(POD, pod("p")).unwrap();
    assert!(matches!(bench.delete(POD, "p", &DeleteOptions::default()).unwrap(), Deletion::Gone(_)));
    bench.create(POD, pod("q")).unwrap();
    bench.server.bind(0, "ns", "q", "n").unwrap();
    bench.patch_status(POD, "q", json!({ "status": { "phase": "Failed" } })).unwrap();
    assert!(matches!(bench.delete(POD, "q", &DeleteOptions::default()).unwrap(), Deletion::Gone(_)));
}

#[test]
fn a_pod_with_finalizers_outlives_its_grace() {
    let mut bench = Bench::new();
    bench.create(POD, finalized(pod("p"), &["x.io/a"])).unwrap();
    bench.server.bind(0, "ns", "p", "n").unwrap();
    bench.delete(POD, "p", &DeleteOptions::default()).unwrap();
    let clear = json!({ "metadata": { "finalizers": null } });
    bench.patch(POD, "p", clear).unwrap();
    assert!(bench.get(POD, "p").is_some(), "its processes may still run");
}
