use super::*;

fn told(bench: &Bench, selector: &str, since: u64) -> Vec<(Change, u64)> {
    let selector = Selector::labels(selector).unwrap();
    let events = bench.server.watch_since(ETCD_MEMBER, Some("ns"), &selector, since).unwrap();
    events.iter().map(|event| (event.change, event.revision)).collect()
}

#[test]
fn a_watch_tells_everything_since_and_nothing_twice() {
    let mut bench = Bench::new();
    bench.create(ETCD_CLUSTER, cluster("other kinds do not show".split(' ').next().unwrap())).unwrap();
    let start = bench.server.revision();
    bench.create(ETCD_MEMBER, member("m")).unwrap();
    bench.patch(ETCD_MEMBER, "m", json!({ "spec": { "dormant": true } })).unwrap();
    bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default()).unwrap();
    let (a, b, c) = (start + 1, start + 2, start + 3);
    let all = [(Change::Added, a), (Change::Modified, b), (Change::Deleted, c)];
    assert_eq!(told(&bench, "", start), all);
    assert_eq!(told(&bench, "", b), [(Change::Deleted, c)]);
    assert_eq!(told(&bench, "", c), []);
}

#[test]
fn what_leaves_the_selector_is_deleted_for_the_watch() {
    let mut bench = Bench::new();
    let start = bench.server.revision();
    bench.create(ETCD_MEMBER, member("m")).unwrap();
    let label = |value: Value| json!({ "metadata": { "labels": { "a": value } } });
    bench.patch(ETCD_MEMBER, "m", label(json!("b"))).unwrap();
    bench.patch(ETCD_MEMBER, "m", label(json!("c"))).unwrap();
    let changes: Vec<_> = told(&bench, "a=b", start).into_iter().map(|(change, _)| change).collect();
    assert_eq!(changes, [Change::Added, Change::Deleted]);
    let selector = Selector::labels("a=b").unwrap();
    let events = bench.server.watch_since(ETCD_MEMBER, None, &selector, start).unwrap();
    let last = events.last().unwrap();
    assert_eq!(meta::label(&last.object, "a"), Some("b"), "as it was last seen");
    assert_eq!(meta::version(&last.object), last.revision, "at the version of its leaving");
}

#[test]
fn what_is_compacted_is_gone() {
    let mut bench = Bench::new();
    let start = bench.server.revision();
    bench.create(ETCD_MEMBER, member("m")).unwrap();
    bench.server.compact(bench.server.revision());
    let outcome = bench.server.watch_since(ETCD_MEMBER, None, &Selector::all(), start);
    assert_eq!(refusal(outcome), (410, "Expired"));
    assert_eq!(told(&bench, "", bench.server.revision()), []);
}

#[test]
fn lists_are_in_order_and_know_their_version() {
    let mut bench = Bench::new();
    for name in ["b", "a"] {
        bench.create(ETCD_MEMBER, member(name)).unwrap();
    }
    bench.server.create(0, ETCD_MEMBER, "another", member("c"), &mut bench.rng).unwrap();
    let (all, revision) = bench.server.list(ETCD_MEMBER, None, &Selector::all());
    assert_eq!(all.iter().map(meta::name).collect::<Vec<_>>(), ["c", "a", "b"]);
    assert_eq!(revision, bench.server.revision());
    assert_eq!(bench.server.list(ETCD_MEMBER, Some("ns"), &Selector::all()).0.len(), 2);
}
