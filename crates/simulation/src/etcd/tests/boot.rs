//! How processes come up, and how they do not.

use super::*;

#[test]
fn a_pods_command_line_is_understood() {
    let command = "etcd --name=c-1 --data-dir=/var/lib/etcd --advertise-client-urls=http://c-1:2379 \
                   --initial-advertise-peer-urls http://c-1:2380 --initial-cluster=c-0=http://c-0:2380,c-1=http://c-1:2380 \
                   --initial-cluster-token=t --initial-cluster-state=existing --max-learners=5";
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let flags = Flags::parse(&command).unwrap();
    assert_eq!((flags.name.as_str(), flags.peer_url.as_str()), ("c-1", "http://c-1:2380"));
    assert_eq!(flags.initial_members(), [("c-0", "http://c-0:2380"), ("c-1", "http://c-1:2380")]);
    assert_eq!(flags.initial_cluster_state, ClusterState::Existing);
    assert_eq!((flags.token.as_str(), flags.max_learners), ("t", 5));
    assert!(Flags::parse(&["etcd".into(), "--initial-cluster-state=old".into()]).is_err());
    assert_eq!(Flags::parse(&["etcd".into()]).unwrap().max_learners, 1);
}

#[test]
fn a_seed_forms_a_cluster_and_serves_after_its_election() {
    let mut world = World::new();
    let seed = world.start("a", ClusterState::New, &["a"]);
    assert!(!world.etcds.serving(&seed));
    assert!(is_timeout(&world.status("a")), "the port is open before anything is served");
    world.pass(SETTLED);
    assert!(world.etcds.serving(&seed) && world.etcds.healthy(&seed));
    let status = world.status("a").unwrap();
    assert_eq!(status.leader, status.member_id);
    assert_eq!(world.row("a", "a").unwrap().name, "a");
}

#[test]
fn identical_inputs_give_identical_ids() {
    let form = |token: &str| {
        let mut world = World::new();
        let flags = Flags { token: token.to_owned(), ..world.flags("a", ClusterState::New, &["a"]) };
        world.etcds.start(0, ProcessId("p".into()), "h", flags, disk("a"));
        world.pass(SETTLED);
        world.etcds.identity(&ProcessId("p".into())).unwrap()
    };
    assert_eq!(form("t"), form("t"));
    assert_ne!(form("t").0, form("u").0);
    assert_ne!(form("t").1, form("u").1);
}

#[test]
fn initial_flags_are_ignored_once_a_wal_exists() {
    let mut world = World::of(&["a"]);
    let before = world.status("a").unwrap();
    world.kill("a");
    world.start("a", ClusterState::New, &["a", "b", "c"]);
    world.pass(SETTLED);
    let after = world.status("a").unwrap();
    assert_eq!((before.cluster_id, before.member_id), (after.cluster_id, after.member_id));
    assert_eq!(world.members("a").unwrap().members.len(), 1);
}

#[test]
fn a_joiner_takes_the_id_that_etcd_has_for_its_url() {
    let mut world = World::of(&["a"]);
    let id = find(&world.add("a", "b").unwrap(), "b").unwrap().id;
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(SETTLED);
    let status = world.status("b").unwrap();
    assert_eq!((status.member_id, status.is_learner), (id, true));
}

#[test]
fn t13_a_stale_initial_cluster_is_refused() {
    let mut world = World::of(&["a", "b"]);
    world.add("a", "c").unwrap();
    world.start("c", ClusterState::Existing, &["a", "c"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("member count is unequal"));
    world.start("c", ClusterState::Existing, &["a", "x", "c"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("no match found for existing member"));
    world.start("c", ClusterState::Existing, &["a", "b", "c"]);
    world.pass(SETTLED);
    assert!(world.status("c").unwrap().is_learner);
}

#[test]
fn a_self_only_list_finds_nobody_to_join() {
    let mut world = World::of(&["a", "b"]);
    world.kill("b");
    world.etcds.wipe(&disk("b"));
    world.start("b", ClusterState::Existing, &["b"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("could not retrieve cluster information"));
}

#[test]
fn a_member_that_has_been_up_is_not_formed_again_if_the_others_are_asked() {
    let mut world = World::of(&["a", "b"]);
    world.kill("a");
    world.etcds.wipe(&disk("a"));
    world.start("a", ClusterState::New, &["a", "b"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("already been bootstrapped"));
}

#[test]
fn several_members_can_form_a_cluster_together() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.start(name, ClusterState::New, &["a", "b", "c"]);
    }
    world.pass(2 * SETTLED);
    assert_eq!(world.members("b").unwrap().voters().count(), 3);
    assert_eq!(world.etcds.formed_again().count(), 0);
}

/// 7 s over the version, and again over the next question if both ask each other first: that depends on their ids.
#[test]
fn two_joiners_that_start_together_wait_for_each_other() {
    let mut took = std::collections::BTreeSet::new();
    for second in 0..20 {
        let mut world = World::of(&["a"]);
        world.pass(1_000 * second);
        world.add("a", "b").unwrap();
        world.add("a", "c").unwrap();
        let began = world.now;
        world.start("b", ClusterState::Existing, &["a", "b", "c"]);
        world.start("c", ClusterState::Existing, &["a", "b", "c"]);
        while world.status("b").is_err() || world.status("c").is_err() {
            world.pass(100);
        }
        took.insert((world.now - began) / 1_000);
    }
    assert_eq!(took, [7, 14].into());
}

#[test]
fn a_joiner_waits_7_s_for_a_cluster_without_quorum() {
    let mut world = World::of(&["a"]);
    world.ask("a", Request::AddVoter { peer_url: url("b") }).unwrap();
    world.pass(SETTLED);
    let b = world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(6_500);
    assert_eq!(world.etcds.identity(&b), None);
    world.pass(1_000);
    assert!(world.etcds.identity(&b).is_some());
}

#[test]
fn a_joiner_does_not_wait_for_one_that_has_not_started() {
    let mut world = World::of(&["a"]);
    world.add("a", "b").unwrap();
    world.add("a", "c").unwrap();
    world.start("b", ClusterState::Existing, &["a", "b", "c"]);
    world.pass(500);
    assert!(world.status("b").is_ok());
    world.start("c", ClusterState::Existing, &["a", "b", "c"]);
    world.pass(500);
    assert!(world.status("c").is_ok());
}

#[test]
fn a_corrupt_disk_ends_the_process_at_its_start_not_before() {
    let mut world = World::of(&["a", "b", "c"]);
    world.etcds.corrupt(&disk("b"));
    world.pass(SETTLED);
    assert!(world.status("b").is_ok());
    world.kill("b");
    world.start("b", ClusterState::Existing, &["b"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("crc mismatch"));
}

#[test]
fn a_full_volume_ends_the_process_and_every_start_until_there_is_room() {
    let mut world = World::of(&["a"]);
    world.etcds.exhaust(&disk("a"));
    assert!(world.ends()[0].1.contains("no space left"));
    world.start("a", ClusterState::New, &["a"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("no space left"));
    world.etcds.make_room(&disk("a"));
    world.start("a", ClusterState::New, &["a"]);
    world.pass(SETTLED);
    assert!(world.status("a").is_ok());
    assert_eq!(world.etcds.formations().len(), 1);
}

#[test]
fn a_disk_serves_one_process_at_a_time() {
    let mut world = World::of(&["a"]);
    let second = world.start("a", ClusterState::New, &["a"]);
    assert_eq!(world.ends()[0].0, second);
    assert!(world.status("a").is_ok());
}

#[test]
fn a_restarted_member_without_quorum_does_not_serve() {
    let mut world = World::of(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        world.kill(name);
    }
    world.start("a", ClusterState::Existing, &["a"]);
    world.pass(10_000);
    assert!(is_timeout(&world.status("a")));
    world.start("b", ClusterState::Existing, &["b"]);
    world.pass(2 * SETTLED);
    assert!(world.status("a").is_ok());
}
