//! What the world is told about broken promises.

use super::*;

#[test]
fn h31_a_seed_that_lost_its_data_forms_the_same_cluster_again() {
    let mut world = World::of(&["a"]);
    let (key, _) = world.put("a");
    let before = world.status("a").unwrap();
    world.kill("a");
    world.etcds.wipe(&disk("a"));
    world.start("a", ClusterState::New, &["a"]);
    world.pass(SETTLED);
    assert_eq!(world.status("a").unwrap().cluster_id, before.cluster_id);
    let again: Vec<_> = world.etcds.formed_again().collect();
    assert!(again.len() == 1 && again[0].over_acknowledged);
    assert_eq!(world.etcds.lost_writes()[0].keys, [key]);
    assert!(world.etcds.lost_writes()[0].disaster.is_some(), "its only volume was wiped");
}

#[test]
fn a_seed_that_is_formed_again_beside_its_cluster_splits_it() {
    let mut world = World::of(&["a", "b", "c"]);
    world.kill("a");
    world.etcds.wipe(&disk("a"));
    world.etcds.isolate("host-a");
    world.start("a", ClusterState::New, &["a"]);
    world.pass(2 * SETTLED);
    assert_eq!(world.put("a").1, PutResult::Acknowledged);
    assert_eq!(world.put("b").1, PutResult::Acknowledged);
    let cluster = world.etcds.clusters().next().unwrap();
    assert_eq!(world.etcds.leaders(cluster).len(), 1, "an impostor leads nobody");
    assert!(world.etcds.formations().last().is_some_and(|f| f.impostor));
    assert_eq!(world.etcds.splits().count(), 1);
    assert_eq!(world.etcds.formed_again().count(), 1);
}

#[test]
fn two_clusters_under_one_token_are_noticed() {
    let mut world = World::of(&["a"]);
    world.start("b", ClusterState::New, &["b"]);
    world.pass(SETTLED);
    assert_eq!(world.etcds.formed_again().count(), 1);
    assert_eq!(world.etcds.splits().count(), 0);
}

#[test]
fn a_lost_quorum_of_volumes_is_a_disaster_and_an_excuse() {
    let mut world = World::of(&["a", "b", "c"]);
    world.put("a");
    let cluster = world.etcds.clusters().next().unwrap();
    assert_eq!(world.etcds.volumes(cluster), Volumes { voters: 3, surviving: 3 });
    world.etcds.corrupt(&disk("a"));
    assert!(world.etcds.volumes(cluster).is_quorum());
    world.kill("b");
    world.etcds.forget_disk(&disk("b"));
    assert_eq!(world.etcds.volumes(cluster), Volumes { voters: 3, surviving: 1 });
    for name in ["a", "c"] {
        world.kill(name);
        world.etcds.forget_disk(&disk(name));
    }
    let lost = world.etcds.lost_writes();
    assert_eq!((lost[0].keys.as_slice(), lost[0].disaster), (&[1][..], Some(world.now)));
    world.etcds.forget_cluster(cluster);
    assert!(world.etcds.lost_writes().is_empty());
}

#[test]
fn volumes_follow_the_membership() {
    let mut world = World::of(&["a", "b", "c"]);
    let cluster = world.etcds.clusters().next().unwrap();
    world.kill("c");
    world.etcds.forget_disk(&disk("c"));
    world.pass(2 * SETTLED);
    assert_eq!(world.etcds.volumes(cluster), Volumes { voters: 3, surviving: 2 });
    assert!(world.etcds.quorum_serves(cluster));
    let at = world.leader().unwrap();
    world.remove(&at, "c").unwrap();
    world.pass(CONNECTED);
    world.add(&at, "d").unwrap();
    world.start("d", ClusterState::Existing, &["a", "b", "d"]);
    world.pass(SETTLED);
    world.promote(&at, "d").unwrap();
    assert_eq!(world.etcds.volumes(cluster), Volumes { voters: 3, surviving: 3 });
    assert_eq!(world.etcds.voters(cluster).len(), 3);
    assert!(world.etcds.amnesia().is_empty());
}

#[test]
fn files_deleted_under_a_running_process_are_missed_at_its_next_start() {
    let mut world = World::of(&["a", "b", "c"]);
    world.etcds.wipe(&disk("a"));
    world.pass(SETTLED);
    assert!(world.members("a").is_ok());
    world.kill("a");
    world.start("a", ClusterState::Existing, &["a"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("could not retrieve cluster information"));
}

/// The same seed gives the same run, whatever happens in it.
#[test]
fn one_seed_one_run() {
    let history = || {
        let mut world = World::of(&["a", "b", "c"]);
        let leader = world.leader().unwrap();
        world.kill(&leader);
        for _ in 0..50 {
            world.pass(70);
            for name in ["a", "b", "c"].into_iter().filter(|name| *name != leader) {
                world.put(name);
            }
        }
        format!("{:?}", world.etcds)
    };
    assert_eq!(history(), history());
}
