//! Cuts.

use super::*;

#[test]
fn a_partition_leaves_the_majority_working() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    for other in world.followers() {
        world.etcds.cut(&format!("host-{leader}"), &format!("host-{other}"));
    }
    world.pass(2 * SETTLED);
    let next = world.leader().unwrap();
    assert_ne!(next, leader);
    assert!(is_timeout(&world.members(&leader)));
    world.etcds.heal_all();
    world.pass(SETTLED);
    assert!(world.members(&leader).is_ok());
}

#[test]
fn a_pair_that_can_not_talk_does_not_matter_as_long_as_the_leader_reaches_both() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let [one, two] = <[String; 2]>::try_from(world.followers()).unwrap();
    world.etcds.cut(&format!("host-{one}"), &format!("host-{two}"));
    world.pass(30_000);
    assert_eq!(world.leader(), Some(leader));
    assert!(world.members(&one).is_ok() && world.members(&two).is_ok());
}

#[test]
fn raft_needs_only_one_side_to_dial_but_a_joiner_must_dial_itself() {
    let mut world = World::of(&["a"]);
    world.add("a", "b").unwrap();
    world.etcds.cut_one_way("host-b", "host-a");
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(SETTLED);
    assert!(world.ends()[0].1.contains("could not retrieve cluster information"));
    world.etcds.heal("host-a", "host-b");
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(SETTLED);
    world.promote("a", "b").unwrap();
    world.etcds.cut_one_way("host-b", "host-a");
    world.pass(30_000);
    assert_eq!(world.put("a").1, PutResult::Acknowledged);
}

#[test]
fn a_silent_peer_counts_as_connected_for_5_s() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let silent = world.followers()[0].clone();
    world.etcds.isolate(&format!("host-{silent}"));
    world.pass(2_000);
    let id = world.id(&silent);
    assert_eq!(world.etcds.processes.len(), 3);
    assert!(world.etcds.processes.iter().any(|p| p.flags.name == leader && p.connections.contains_key(&id)));
    world.pass(4_000);
    assert!(world.etcds.processes.iter().all(|p| p.flags.name != leader || !p.connections.contains_key(&id)));
}

#[test]
fn the_operator_can_be_cut_off_from_a_member() {
    let mut world = World::of(&["a"]);
    assert!(world.etcds.call_from(world.now, "operator", "a", Request::Status).is_ok());
    world.etcds.cut_one_way("operator", "host-a");
    assert!(is_timeout(&world.etcds.call_from(world.now, "operator", "a", Request::Status)));
    world.kill("a");
    let gone = world.etcds.call(world.now, "http://a.c.ns.svc:2379", Request::Status);
    assert_eq!(gone, Err(Error::Unreachable { member: "a".into() }));
}

#[test]
fn a_member_moves_between_addresses_by_its_url() {
    let mut world = World::of(&["a", "b", "c"]);
    world.kill("b");
    let flags = world.flags("b", ClusterState::Existing, &["b"]);
    world.etcds.start(world.now, ProcessId("b-elsewhere".into()), "host-z", flags, disk("b"));
    world.pass(SETTLED);
    assert!(world.members("b").is_ok());
}
