//! The cache's rules, one by one.

use api::{EtcdCluster, EtcdMember, labels};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::cluster::kinds::Clusters;

fn cluster(uid: &str, version: u64) -> EtcdCluster {
    let mut cluster = EtcdCluster::test("ns", "c");
    cluster.metadata.uid = Some(uid.to_owned());
    cluster.metadata.resource_version = Some(version.to_string());
    cluster
}

fn stored(cache: &Cache<Clusters>) -> Option<String> {
    let key = Key { namespace: "ns".into(), name: "c".into() };
    let clusters = cache.entry(&key).take::<EtcdCluster>();
    clusters.get("c").and_then(|c| c.metadata.resource_version.clone())
}

#[test]
fn a_late_event_does_not_undo_our_own_write() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    assert!(!cache.seen(cluster("u", 1), &listing).is_empty());
    cache.wrote(cluster("u", 3));
    assert_eq!(cache.seen(cluster("u", 2), &listing), [], "older than what we wrote");
    assert_eq!(cache.seen(cluster("u", 3), &listing), [], "the echo of our write is no news");
    assert_eq!(stored(&cache).as_deref(), Some("3"));
}

#[test]
fn a_late_answer_does_not_bring_back_what_was_deleted() {
    let cache = Cache::<Clusters>::default();
    cache.seen(cluster("u", 1), &Listing::first(None));
    assert!(!cache.deleted(&cluster("u", 2)).is_empty());
    cache.wrote(cluster("u", 2));
    assert_eq!(stored(&cache), None);
    assert!(cache.is_empty());
}

#[test]
fn what_we_deleted_ourselves_is_gone_before_the_watch_says_so() {
    let cache = Cache::<Clusters>::default();
    let key = Key { namespace: "ns".into(), name: "c".into() };
    cache.seen(cluster("u", 1), &Listing::first(None));
    cache.gone::<EtcdCluster>(&key, "c", "another");
    assert!(stored(&cache).is_some(), "a successor stays");
    cache.gone::<EtcdCluster>(&key, "c", "u");
    assert_eq!(stored(&cache), None);
}

#[test]
fn an_object_whose_end_waited_for_our_write_is_gone_with_the_answer() {
    let cache = Cache::<Clusters>::default();
    let mut held = cluster("u", 1);
    held.metadata.deletion_timestamp = Some(api::conditions::wire_time(Timestamp::UNIX_EPOCH));
    held.metadata.deletion_grace_period_seconds = Some(0);
    held.metadata.finalizers = Some(vec!["ours".to_owned(), "another's".to_owned()]);
    cache.seen(held.clone(), &Listing::first(None));
    // The API server may answer with the version that was there before.
    held.metadata.finalizers.as_mut().unwrap().remove(0);
    cache.wrote(held.clone());
    assert!(stored(&cache).is_some(), "somebody else holds it");
    held.metadata.finalizers = None;
    cache.wrote(held.clone());
    assert_eq!(stored(&cache), None);
}

#[test]
fn a_pod_that_has_time_to_end_is_not_gone_with_an_answer() {
    let mut pod = Pod::default();
    pod.metadata.deletion_timestamp = Some(api::conditions::wire_time(Timestamp::UNIX_EPOCH));
    pod.metadata.deletion_grace_period_seconds = Some(30);
    assert!(!has_ended(&pod.metadata));
}

#[test]
fn an_object_that_gets_its_label_back_is_seen_again() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    cache.seen(cluster("u", 1), &listing);
    cache.deleted(&cluster("u", 2));
    assert!(!cache.seen(cluster("u", 3), &listing).is_empty());
    assert_eq!(stored(&cache).as_deref(), Some("3"));
}

#[test]
fn a_listing_drops_what_it_does_not_show_but_not_what_was_written_since_it_began() {
    let cache = Cache::<Clusters>::default();
    let first = Listing::first(None);
    cache.seen(cluster("u", 1), &first);
    assert!(cache.listed::<EtcdCluster>(&first).is_empty());

    let second = first.next();
    cache.wrote(cluster("u", 2));
    assert!(cache.listed::<EtcdCluster>(&second).is_empty(), "the listing is older than the write");

    let third = second.next();
    std::thread::sleep(Duration::from_millis(2));
    let fourth = third.next();
    assert_eq!(cache.listed::<EtcdCluster>(&fourth).len(), 1);
    assert_eq!(stored(&cache), None);
}

#[test]
fn a_successor_of_the_same_name_is_not_removed_with_its_predecessor() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    cache.seen(cluster("old", 1), &listing);
    cache.seen(cluster("new", 5), &listing);
    cache.deleted(&cluster("old", 4));
    assert_eq!(stored(&cache).as_deref(), Some("5"));
}

/// Versions of one Pod.
fn pod(namespace: &str, cluster: &str, version: u64) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("p".to_owned());
    pod.metadata.namespace = Some(namespace.to_owned());
    pod.metadata.uid = Some(format!("{namespace}-p"));
    pod.metadata.resource_version = Some(version.to_string());
    pod.metadata.labels = Some([(labels::CLUSTER.to_owned(), cluster.to_owned())].into());
    pod
}

fn key(namespace: &str, cluster: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: cluster.to_owned() }
}

/// The version of the Pod that a cluster has.
fn known(cache: &Cache<Clusters>, namespace: &str, cluster: &str) -> Option<String> {
    cache
        .entry(&key(namespace, cluster))
        .take::<Pod>()
        .get("p")
        .and_then(|p| p.metadata.resource_version.clone())
}

fn sorted(keys: impl IntoIterator<Item = Key>) -> Vec<Key> {
    let mut keys: Vec<Key> = keys.into_iter().collect();
    keys.sort();
    keys.dedup();
    keys
}

/// A listing that begins after everything that was written before.
fn later(listing: &Listing) -> Listing {
    std::thread::sleep(Duration::from_millis(2));
    listing.next()
}

#[test]
fn t30_a_listing_of_one_namespace_says_nothing_about_another() {
    let cache = Cache::<Clusters>::default();
    let (a, b) = (Listing::first(Some("a")), Listing::first(Some("b")));
    cache.shown(pod("a", "c", 1), &a);
    cache.shown(pod("b", "c", 2), &b);
    cache.unreadable::<Service>(&pod("b", "c", 3).metadata, "no ports".to_owned(), &b);
    assert!(cache.listed::<Pod>(&a).is_empty() && cache.listed::<Pod>(&b).is_empty());

    for _ in 0..3 {
        let again = later(&a);
        cache.shown(pod("a", "c", 1), &again);
        assert!(cache.listed::<Pod>(&again).is_empty());
        assert!(cache.listed::<Service>(&again).is_empty());
    }
    assert_eq!(known(&cache, "b", "c").as_deref(), Some("2"));
    assert_eq!(cache.entry(&key("b", "c")).malformed.len(), 1);

    let again = later(&b);
    assert_eq!(sorted(cache.listed::<Pod>(&again)), [key("b", "c")], "there it does");
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("1"));
}

#[test]
fn t30_a_listing_of_all_namespaces_sweeps_them_all() {
    let cache = Cache::<Clusters>::default();
    let all = Listing::first(None);
    cache.shown(pod("a", "c", 1), &all);
    cache.shown(pod("b", "c", 2), &all);
    cache.listed::<Pod>(&all);
    assert_eq!(sorted(cache.listed::<Pod>(&later(&all))), [key("a", "c"), key("b", "c")]);
    assert!(cache.is_empty());
}

#[test]
fn t31_a_changed_label_moves_an_object_and_leaves_no_ghost() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    cache.shown(pod("a", "c", 1), &listing);
    assert_eq!(sorted(cache.seen(pod("a", "d", 2), &listing)), [key("a", "c"), key("a", "d")]);
    assert_eq!((known(&cache, "a", "c"), known(&cache, "a", "d").as_deref()), (None, Some("2")));

    assert_eq!(cache.seen(pod("a", "c", 1), &listing), [], "what it was before is no news");
    assert_eq!((known(&cache, "a", "c"), known(&cache, "a", "d").as_deref()), (None, Some("2")));

    let again = later(&listing);
    assert_eq!(sorted(cache.shown(pod("a", "e", 3), &again)), [key("a", "d"), key("a", "e")]);
    assert!(cache.listed::<Pod>(&again).is_empty(), "it did not vanish, it moved");
    assert_eq!((known(&cache, "a", "d"), known(&cache, "a", "e").as_deref()), (None, Some("3")));
    assert_eq!(cache.len(), 1);
}

#[test]
fn t31_a_move_by_our_own_write_is_told_to_the_cluster_that_lost_it() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    cache.shown(pod("a", "d", 1), &listing);
    cache.wrote(pod("a", "c", 2));
    assert_eq!((known(&cache, "a", "d"), known(&cache, "a", "c").as_deref()), (None, Some("2")));
    assert_eq!(cache.seen(pod("a", "c", 2), &listing), [key("a", "d")], "with the echo of the write");
    assert_eq!(cache.seen(pod("a", "c", 2), &listing), []);
}

#[test]
fn t31_an_object_that_moved_is_found_by_whoever_deletes_it() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    cache.shown(pod("a", "c", 1), &listing);
    cache.seen(pod("a", "d", 2), &listing);
    assert_eq!(known(&cache, "a", "d").as_deref(), Some("2"));
    cache.gone::<Pod>(&key("a", "c"), "p", "a-p");
    assert!(cache.is_empty());

    cache.seen(pod("b", "c", 3), &listing);
    // The last word about an object may show it with a label that no event had.
    assert_eq!(sorted(cache.deleted(&pod("b", "d", 4))), [key("b", "c"), key("b", "d")]);
    assert!(cache.is_empty());
}

#[test]
fn t31_a_member_that_moves_by_its_spec_leaves_no_ghost() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    let member = |cluster: &str, version: u64| {
        let mut member = EtcdMember::new(
            "m",
            api::EtcdMemberSpec { cluster_name: cluster.to_owned(), ..Default::default() },
        );
        member.metadata.namespace = Some("a".to_owned());
        member.metadata.resource_version = Some(version.to_string());
        member
    };
    cache.shown(member("c", 1), &listing);
    assert_eq!(sorted(cache.seen(member("d", 2), &listing)), [key("a", "c"), key("a", "d")]);
    assert!(cache.entry(&key("a", "c")).take::<EtcdMember>().is_empty());
}

#[test]
fn t31_an_unreadable_object_that_vanished_in_a_gap_is_forgotten_with_the_next_listing() {
    let cache = Cache::<Clusters>::default();
    let first = Listing::first(None);
    let why = || "no spec".to_owned();
    assert_eq!(cache.unreadable::<Pod>(&pod("a", "c", 1).metadata, why(), &first), [key("a", "c")]);
    assert!(cache.listed::<Pod>(&first).is_empty(), "the listing showed it");

    let second = later(&first);
    assert!(cache.listed::<Service>(&second).is_empty(), "another kind's listing");
    cache.unreadable::<Pod>(&pod("a", "c", 1).metadata, why(), &second);
    assert!(cache.listed::<Pod>(&second).is_empty(), "it is still there");
    assert_eq!(cache.entry(&key("a", "c")).malformed.keys().collect::<Vec<_>>(), ["Pod p"]);

    let third = later(&second);
    assert_eq!(sorted(cache.listed::<Pod>(&third)), [key("a", "c")]);
    assert!(cache.entry(&key("a", "c")).malformed.is_empty());
}

#[test]
fn t31_what_becomes_unreadable_holds_its_cluster_until_it_can_be_read_or_is_gone() {
    let cache = Cache::<Clusters>::default();
    let listing = Listing::first(None);
    cache.shown(pod("a", "c", 1), &listing);
    let mut unlabelled = pod("a", "c", 2).metadata;
    unlabelled.labels = None;
    assert_eq!(cache.unreadable::<Pod>(&unlabelled, "bad".to_owned(), &listing), [key("a", "c")]);
    assert_eq!(cache.entry(&key("a", "c")).malformed.len(), 1, "whose it was when it could be read");

    let again = later(&listing);
    cache.unreadable::<Pod>(&pod("a", "d", 3).metadata, "bad".to_owned(), &again);
    cache.listed::<Pod>(&again);
    for cluster in ["c", "d"] {
        assert_eq!(cache.entry(&key("a", cluster)).malformed.len(), 1, "it may be {cluster}'s");
    }
    assert_eq!(sorted(cache.seen(pod("a", "d", 4), &again)), [key("a", "c"), key("a", "d")]);
    assert!(cache.entry(&key("a", "c")).malformed.is_empty());

    cache.unreadable::<Pod>(&pod("a", "d", 5).metadata, "bad".to_owned(), &again);
    assert_eq!(sorted(cache.deleted_unread::<Pod>(&pod("a", "d", 6).metadata)), [key("a", "d")]);
    assert!(cache.entry(&key("a", "d")).malformed.is_empty());
    assert!(cache.is_empty(), "nor is its last version that could be read");
}

#[test]
fn t31_a_listing_replaces_even_what_has_a_higher_version() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 900), &before);
    cache.wrote(pod("a", "c", 901));
    let restored = later(&before);
    assert_eq!(cache.shown(pod("a", "d", 100), &restored), [key("a", "d"), key("a", "c")]);
    assert!(cache.listed::<Pod>(&restored).is_empty());
    assert_eq!((known(&cache, "a", "c"), known(&cache, "a", "d").as_deref()), (None, Some("100")));
    assert!(!cache.seen(pod("a", "d", 101), &restored).is_empty(), "and events go on from there");
    cache.wrote(pod("a", "d", 102));
    assert_eq!(known(&cache, "a", "d").as_deref(), Some("102"));
}

#[test]
fn t31_a_listing_replaces_what_has_the_same_version_and_says_something_else() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 100), &before);
    let again = later(&before);
    assert_eq!(cache.shown(pod("a", "c", 100), &again), [], "no news");
    let restored = later(&again);
    let mut other = pod("a", "c", 100);
    other.metadata.annotations = Some([("one".to_owned(), "more".to_owned())].into());
    assert_eq!(cache.shown(other, &restored), [key("a", "c")]);
    assert!(cache.entry(&key("a", "c")).take::<Pod>()["p"].metadata.annotations.is_some());
}

#[test]
fn t31_a_listing_replaces_a_successor_that_the_backup_does_not_know() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    let at = |seconds| Some(api::conditions::wire_time(Timestamp::from_second(seconds).unwrap()));
    let (mut old, mut new) = (pod("a", "c", 100), pod("a", "c", 900));
    (old.metadata.uid, old.metadata.creation_timestamp) = (Some("old".to_owned()), at(1));
    (new.metadata.uid, new.metadata.creation_timestamp) = (Some("new".to_owned()), at(2));
    cache.shown(new, &before);
    cache.seen(old.clone(), &before);
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("900"), "a late event of the predecessor");
    cache.shown(old, &later(&before));
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("100"));
}

#[test]
fn t31_what_was_deleted_after_the_backup_is_back_with_the_listing() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 900), &before);
    cache.deleted(&pod("a", "c", 901));
    let restored = later(&before);
    assert_eq!(cache.shown(pod("a", "c", 100), &restored), [key("a", "c")]);
    cache.listed::<Pod>(&restored);
    cache.wrote(pod("a", "c", 101));
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("101"), "its end is not remembered any more");
}

#[test]
fn t31_what_we_delete_while_a_listing_is_under_way_stays_deleted() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 1), &before);
    let slow = later(&before);
    cache.gone::<Pod>(&key("a", "c"), "p", "a-p");
    assert_eq!(cache.shown(pod("a", "c", 1), &slow), [], "a page from before the deletion");
    assert_eq!(known(&cache, "a", "c"), None);
}

#[test]
fn t31_a_listing_does_not_undo_what_we_wrote_since_it_began() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 5), &before);
    let slow = later(&before);
    cache.wrote(pod("a", "c", 7));
    assert_eq!(cache.shown(pod("a", "c", 5), &slow), [], "a page from before the write");
    assert!(cache.listed::<Pod>(&slow).is_empty());
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("7"));
}

#[test]
fn t31_an_answer_of_the_restored_server_survives_the_listing_that_does_not_know_it() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 900), &before);
    let restored = later(&before);
    cache.wrote(pod("a", "c", 105));
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("900"), "by the numbers it is older");
    assert_eq!(cache.shown(pod("a", "c", 101), &restored), [key("a", "c")]);
    assert!(cache.listed::<Pod>(&restored).is_empty());
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("105"));
}

#[test]
fn t31_a_late_answer_does_not_survive_a_listing_that_knows_more() {
    let cache = Cache::<Clusters>::default();
    let before = Listing::first(None);
    cache.shown(pod("a", "c", 1), &before);
    cache.seen(pod("a", "c", 9), &before);
    let again = later(&before);
    cache.wrote(pod("a", "c", 8));
    assert_eq!(cache.shown(pod("a", "c", 9), &again), [], "no news");
    assert_eq!(known(&cache, "a", "c").as_deref(), Some("9"));
}
