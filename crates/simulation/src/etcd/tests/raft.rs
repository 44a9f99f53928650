//! Quorum, elections, and what a voter that forgot does.

use super::*;

#[test]
fn a_linearizable_list_needs_a_quorum_and_status_does_not() {
    let mut world = World::of(&["a", "b", "c"]);
    world.kill("b");
    world.kill("c");
    assert!(is_timeout(&world.members("a")));
    world.pass(SETTLED);
    assert!(is_timeout(&world.members("a")));
    let status = world.status("a").unwrap();
    assert_eq!((status.leader, status.errors), (0, vec!["etcdserver: no leader".to_owned()]));
    let process = world.process("a");
    assert!(world.etcds.serving(&process) && !world.etcds.healthy(&process));
}

#[test]
fn a_lost_leader_is_replaced_after_about_a_second() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let follower = world.followers()[0].clone();
    world.kill(&leader);
    world.pass(800);
    assert!(is_timeout(&world.members(&follower)));
    world.pass(2_000);
    assert!(world.members(&follower).is_ok());
}

#[test]
fn sigterm_hands_leadership_over() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let process = world.process(&leader);
    world.etcds.terminate(world.now, &process);
    assert!(!world.etcds.running(&process));
    assert!(world.leader().is_some());
}

#[test]
fn a_learner_does_not_vote_for_the_quorum() {
    let mut world = World::of(&["a", "b"]);
    world.add("a", "c").unwrap();
    world.start("c", ClusterState::Existing, &["a", "b", "c"]);
    world.pass(CONNECTED);
    world.kill("b");
    world.pass(SETTLED);
    assert!(is_timeout(&world.members("a")));
}

#[test]
fn a_cut_off_leader_steps_down_and_its_uncommitted_writes_go() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    world.etcds.isolate(&format!("host-{leader}"));
    let (key, result) = world.put(&leader);
    assert_eq!(result, PutResult::Unknown);
    world.pass(2 * SETTLED);
    assert_eq!(world.status(&leader).unwrap().leader, 0);
    let next = world.leader().unwrap();
    assert_eq!(world.put(&next).1, PutResult::Acknowledged);
    world.etcds.rejoin(&format!("host-{leader}"));
    world.pass(SETTLED);
    assert_eq!(world.get(&leader, key, true), GetResult::Missing);
    assert!(world.etcds.lost_writes().is_empty());
    assert_eq!(world.etcds.splits().count(), 0);
}

#[test]
fn an_unknown_write_may_be_committed_later() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    world.etcds.isolate(&format!("host-{leader}"));
    let (key, result) = world.put(&leader);
    assert_eq!(result, PutResult::Unknown);
    world.etcds.rejoin(&format!("host-{leader}"));
    world.pass(500);
    assert_eq!(world.get(&leader, key, true), GetResult::Found);
}

#[test]
fn a_membership_change_without_quorum_may_be_made_later() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let victim = world.followers()[0].clone();
    world.pass(CONNECTED);
    world.etcds.isolate(&format!("host-{leader}"));
    let id = world.id(&victim);
    assert!(is_timeout(&world.ask(&leader, Request::Remove { id })));
    world.etcds.rejoin(&format!("host-{leader}"));
    world.pass(500);
    assert_eq!(world.row(&leader, &victim), None);
}

#[test]
fn one_membership_change_at_a_time() {
    let mut world = World::of(&["a", "b", "c", "d", "e"]);
    let leader = world.leader().unwrap();
    let others = world.followers();
    world.etcds.isolate(&format!("host-{leader}"));
    for name in &others[..2] {
        let id = world.id(name);
        assert!(is_timeout(&world.ask(&leader, Request::Remove { id })));
    }
    world.etcds.rejoin(&format!("host-{leader}"));
    world.pass(500);
    assert_eq!(world.members(&leader).unwrap().members.len(), 4, "the second change is dropped");
}

#[test]
fn a_follower_catches_up_from_far_behind() {
    let mut world = World::of(&["a", "b", "c"]);
    let (leader, late) = (world.leader().unwrap(), world.followers()[0].clone());
    world.kill(&late);
    for _ in 0..2_000 {
        assert_eq!(world.put(&leader).1, PutResult::Acknowledged);
    }
    world.start(&late, ClusterState::Existing, &[&late]);
    world.pass(SETTLED);
    assert_eq!(world.get(&late, 1, false), GetResult::Found);
    assert_eq!(world.get(&late, 2_000, false), GetResult::Found);
}

#[test]
fn t7_a_follower_that_comes_back_empty_is_killed_by_its_leader() {
    let mut world = World::of(&["a", "b", "c"]);
    let victim = world.followers()[0].clone();
    world.kill(&victim);
    world.etcds.wipe(&disk(&victim));
    for _ in 0..2 {
        world.start(&victim, ClusterState::Existing, &["a", "b", "c"]);
        world.pass(1_000);
        assert!(world.ends()[0].1.contains("Was the raft log corrupted, truncated, or lost?"));
    }
    let leader = world.leader().unwrap();
    let other = world.followers().into_iter().find(|name| *name != victim).unwrap();
    let to = world.id(&other);
    world.ask(&leader, Request::MoveLeader { to }).unwrap();
    world.start(&victim, ClusterState::Existing, &["a", "b", "c"]);
    world.pass(1_000);
    assert!(world.status(&victim).is_ok(), "a new leader remembers nothing of it");
    assert!(world.etcds.amnesia()[0].voter);
}

/// One of three is late, one was wiped, one is away: the wiped voter elects the late one, and what the other two had
/// acknowledged is gone although two of three volumes were never touched.
#[test]
fn t7_a_voter_that_forgot_costs_acknowledged_writes() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let [wiped, late] = <[String; 2]>::try_from(world.followers()).unwrap();
    world.etcds.cut(&format!("host-{late}"), &format!("host-{leader}"));
    let (key, result) = world.put(&leader);
    assert_eq!(result, PutResult::Acknowledged);
    world.kill(&leader);
    world.kill(&wiped);
    world.etcds.wipe(&disk(&wiped));
    world.start(&wiped, ClusterState::Existing, &["a", "b", "c"]);
    world.pass(20_000);
    assert_eq!(world.leader(), Some(late.clone()));
    assert_eq!(world.get(&late, key, true), GetResult::Missing);
    let lost = world.etcds.lost_writes();
    assert_eq!((lost[0].keys.as_slice(), lost[0].disaster), (&[key][..], None));
    assert!(world.etcds.volumes(lost[0].cluster).is_quorum());
    assert_eq!(world.etcds.splits().count(), 1);
}

#[test]
fn without_amnesia_the_late_one_is_not_elected() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let late = world.followers()[0].clone();
    world.etcds.isolate(&format!("host-{late}"));
    let (key, _) = world.put(&leader);
    world.kill(&leader);
    world.etcds.rejoin(&format!("host-{late}"));
    world.pass(2 * SETTLED);
    let next = world.leader().unwrap();
    assert_ne!(next, late);
    assert_eq!(world.get(&late, key, true), GetResult::Found);
}

#[test]
fn an_acknowledged_write_survives_any_minority() {
    for name in ["a", "b", "c"] {
        let mut world = World::of(&["a", "b", "c"]);
        let leader = world.leader().unwrap();
        let (key, result) = world.put(&leader);
        assert_eq!(result, PutResult::Acknowledged);
        world.kill(name);
        world.etcds.wipe(&disk(name));
        world.pass(2 * SETTLED);
        let next = world.leader().unwrap();
        assert_eq!(world.get(&next, key, true), GetResult::Found);
        assert!(world.etcds.lost_writes().is_empty());
    }
}

/// How much is committed is written with the next entry, term or vote. A leader that was alone and is killed right after a
/// change comes back with the configuration of before, and elects itself.
#[test]
fn a_killed_leader_that_was_alone_leads_once_more() {
    let mut world = World::of(&["a"]);
    world.ask("a", Request::AddVoter { peer_url: url("b") }).unwrap();
    world.kill("a");
    let a = world.start("a", ClusterState::Existing, &["a"]);
    world.pass(2 * SETTLED);
    assert!(world.etcds.serving(&a), "it has published itself");
    assert_eq!(world.leader(), None, "and then applied that there are two voters");
}

/// The other direction has no way back: the vote that it waits for is gone.
#[test]
fn a_last_voter_that_is_killed_waits_for_the_one_that_was_taken_out_unless_that_is_written_down() {
    for persisted in [false, true] {
        let mut world = World::of(&["a", "b"]);
        world.pass(CONNECTED);
        let (leader, other) = if world.leader().as_deref() == Some("a") { ("a", "b") } else { ("b", "a") };
        let id = world.id(other);
        world.ask(leader, Request::Remove { id }).unwrap();
        if persisted {
            world.ask(leader, Request::Persist).unwrap();
        }
        world.kill(leader);
        let process = world.start(leader, ClusterState::Existing, &[leader]);
        world.pass(2 * SETTLED);
        assert_eq!(world.etcds.serving(&process), persisted);
    }
}

#[test]
fn a_leader_that_ends_properly_writes_everything_down() {
    let mut world = World::of(&["a"]);
    world.ask("a", Request::AddVoter { peer_url: url("b") }).unwrap();
    let a = world.process("a");
    world.etcds.terminate(world.now, &a);
    let a = world.start("a", ClusterState::Existing, &["a"]);
    world.pass(2 * SETTLED);
    assert!(!world.etcds.serving(&a));
}
