use super::*;

const CHOICES: [Option<Propagation>; 2] = [None, Some(Propagation::Background)];

fn family(bench: &mut Bench) -> Value {
    let head = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    let child = bench.create(ETCD_MEMBER, owned(member("m"), &head)).unwrap();
    bench.create(POD, owned(pod("p"), &child)).unwrap();
    head
}

fn delete(bench: &mut Bench, propagation: Option<Propagation>) {
    bench.delete(ETCD_CLUSTER, "c", &DeleteOptions { propagation, ..DeleteOptions::default() }).unwrap();
}

#[test]
fn in_the_background_dependents_follow_one_step_at_a_time() {
    for propagation in CHOICES {
        let mut bench = Bench::new();
        family(&mut bench);
        assert_eq!(bench.server.chores(), []);
        delete(&mut bench, propagation);
        assert_eq!(bench.get(ETCD_CLUSTER, "c"), None);
        assert_eq!(bench.server.collect_garbage(0), 1);
        assert!(bench.get(ETCD_MEMBER, "m").is_none() && bench.get(POD, "p").is_some());
        assert_eq!(bench.server.collect_garbage(0), 1);
        assert_eq!(bench.get(POD, "p"), None);
    }
}

#[test]
fn in_the_foreground_the_owner_goes_last() {
    let mut bench = Bench::new();
    family(&mut bench);
    bench.patch(ETCD_MEMBER, "m", json!({ "metadata": { "finalizers": ["x.io/hold"] } })).unwrap();
    delete(&mut bench, Some(Propagation::Foreground));
    bench.collect_all();
    assert_eq!(bench.get(POD, "p"), None);
    assert!(bench.get(ETCD_CLUSTER, "c").is_some(), "a dependent blocks it");
    bench.patch(ETCD_MEMBER, "m", json!({ "metadata": { "finalizers": null } })).unwrap();
    bench.collect_all();
    assert!(bench.get(ETCD_MEMBER, "m").is_none() && bench.get(ETCD_CLUSTER, "c").is_none());
}

#[test]
fn orphans_live_on_without_their_owner() {
    let mut bench = Bench::new();
    family(&mut bench);
    delete(&mut bench, Some(Propagation::Orphan));
    assert!(bench.get(ETCD_CLUSTER, "c").is_some(), "until its dependents have forgotten it");
    bench.collect_all();
    assert_eq!(bench.get(ETCD_CLUSTER, "c"), None);
    assert_eq!(meta::owners(bench.get(ETCD_MEMBER, "m").unwrap()), []);
    assert!(bench.get(POD, "p").is_some());
}

#[test]
fn a_successor_of_the_same_name_is_not_the_owner() {
    let mut bench = Bench::new();
    family(&mut bench);
    delete(&mut bench, None);
    bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    bench.collect_all();
    assert!(bench.get(ETCD_CLUSTER, "c").is_some() && bench.get(ETCD_MEMBER, "m").is_none());
}

#[test]
fn one_living_owner_is_enough() {
    let mut bench = Bench::new();
    let (a, b) = (
        bench.create(ETCD_CLUSTER, cluster("a")).unwrap(),
        bench.create(ETCD_CLUSTER, cluster("b")).unwrap(),
    );
    let mut child = owned(member("m"), &a);
    let second = owned(member("m"), &b)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    bench.create(ETCD_MEMBER, child).unwrap();
    bench.delete(ETCD_CLUSTER, "a", &DeleteOptions::default()).unwrap();
    bench.collect_all();
    let owners = meta::owners(bench.get(ETCD_MEMBER, "m").unwrap());
    assert_eq!(owners.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_claim_in_use_stays_until_its_pod_is_gone() {
    let mut bench = Bench::new();
    bench.create(CLAIM, claim("data")).unwrap();
    bench.create(POD, pod("p")).unwrap();
    bench.server.bind(0, "ns", "p", "n").unwrap();
    bench.delete(CLAIM, "data", &DeleteOptions::default()).unwrap();
    assert_eq!(bench.server.chores(), []);
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    bench.delete(POD, "p", &now).unwrap();
    bench.collect_all();
    assert_eq!(bench.get(CLAIM, "data"), None);
}

#[test]
fn a_chore_that_came_too_late_harms_nobody() {
    let mut bench = Bench::new();
    family(&mut bench);
    delete(&mut bench, None);
    let chore = bench.server.chores().remove(0);
    bench.delete(ETCD_MEMBER, "m", &DeleteOptions::default()).unwrap();
    let head = bench.create(ETCD_CLUSTER, cluster("c")).unwrap();
    bench.create(ETCD_MEMBER, owned(member("m"), &head)).unwrap();
    assert!(!bench.server.perform(0, &chore));
    assert!(bench.get(ETCD_MEMBER, "m").is_some());
}
