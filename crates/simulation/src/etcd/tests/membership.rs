//! Adding, promoting, removing: what is refused, and in which words.

use super::*;

#[test]
fn learners_serve_status_and_serializable_reads_only() {
    let mut world = World::of(&["a"]);
    let (key, _) = world.put("a");
    world.add("a", "b").unwrap();
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(SETTLED);
    assert!(world.status("b").unwrap().is_learner);
    assert_eq!(world.get("b", key, false), GetResult::Found);
    assert_eq!(world.get("b", key, true), GetResult::Failed);
    assert_eq!(world.put("b").1, PutResult::Failed);
    let id = world.id("b");
    for request in [
        Request::Members,
        Request::AddLearner { peer_url: url("c") },
        Request::Promote { id },
        Request::Remove { id },
        Request::MoveLeader { to: id },
    ] {
        assert_eq!(refused(world.ask("b", request)), "etcdserver: rpc not supported for learner");
    }
    let process = world.process("b");
    assert!(world.etcds.healthy(&process), "a learner's /health is true");
}

#[test]
fn there_are_no_more_learners_than_max_learners() {
    let mut world = World::new();
    world.max_learners = 2;
    world.grow(&["a"]);
    world.add("a", "b").unwrap();
    world.add("a", "c").unwrap();
    assert_eq!(world.add("a", "d"), Err(Error::TooManyLearners));
}

#[test]
fn a_peer_url_is_added_once() {
    let mut world = World::of(&["a"]);
    world.add("a", "b").unwrap();
    // The id is made of the URL and the second of the request.
    assert_eq!(refused(world.add("a", "b")), "etcdserver: member ID already exist");
    world.pass(1_000);
    assert_eq!(refused(world.add("a", "b")), "etcdserver: Peer URLs already exists");
}

#[test]
fn a_learner_that_has_not_started_is_not_promoted() {
    let mut world = World::of(&["a"]);
    world.add("a", "b").unwrap();
    assert_eq!(world.promote("a", "b"), Err(Error::LearnerNotReady));
    assert_eq!(world.row("a", "b").unwrap().name, "");
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(SETTLED);
    world.promote("a", "b").unwrap();
    assert!(!world.row("a", "b").unwrap().is_learner);
    world.pass(100);
    assert_eq!(refused(world.promote("a", "b")), "etcdserver: can only promote a learner member");
}

#[test]
fn a_learner_must_have_nine_tenths_of_the_leaders_log() {
    let mut world = World::of(&["a"]);
    world.add("a", "b").unwrap();
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(SETTLED);
    world.etcds.isolate("host-b");
    for _ in 0..30 {
        world.put("a");
    }
    assert_eq!(world.promote("a", "b"), Err(Error::LearnerNotReady));
    world.etcds.rejoin("host-b");
    world.pass(200);
    world.promote("a", "b").unwrap();
}

#[test]
fn followers_forward_promotions() {
    let mut world = World::of(&["a", "b"]);
    world.add("a", "c").unwrap();
    world.start("c", ClusterState::Existing, &["a", "b", "c"]);
    world.pass(SETTLED);
    let follower = if world.leader().unwrap() == "a" { "b" } else { "a" };
    world.promote(follower, "c").unwrap();
    assert!(!world.row(follower, "c").unwrap().is_learner);
}

#[test]
fn an_add_is_refused_until_a_promoted_voter_was_connected_for_5_s() {
    let mut world = World::of(&["a"]);
    world.add("a", "b").unwrap();
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(1_000);
    world.promote("a", "b").unwrap();
    assert_eq!(world.add("a", "c"), Err(Error::Unhealthy));
    world.pass(3_500);
    assert_eq!(world.add("a", "c"), Err(Error::Unhealthy));
    world.pass(1_500);
    world.add("a", "c").unwrap();
}

#[test]
fn several_learners_can_join_before_the_first_is_promoted() {
    let mut world = World::of(&["a"]);
    for (name, others) in [("b", &["a", "b"][..]), ("c", &["a", "b", "c"][..])] {
        world.add("a", name).unwrap();
        world.start(name, ClusterState::Existing, others);
        world.pass(500);
    }
    world.promote("a", "b").unwrap();
    world.pass(100);
    world.promote("a", "c").unwrap();
    assert_eq!(world.members("a").unwrap().voters().count(), 3);
}

#[test]
fn right_after_another_change_a_learner_may_not_have_caught_up() {
    let mut answers = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let mut world = World::new();
        world.rng = StdRng::seed_from_u64(seed);
        world.grow(&["a"]);
        for (name, others) in [("b", &["a", "b"][..]), ("c", &["a", "b", "c"][..])] {
            world.add("a", name).unwrap();
            world.start(name, ClusterState::Existing, others);
            world.pass(500);
        }
        world.promote("a", "b").unwrap();
        answers.insert(world.promote("a", "c").map(drop).map_err(|error| error.to_string()));
    }
    assert_eq!(answers.len(), 2, "{answers:?}");
}

#[test]
fn older_versions_refuse_an_add_while_any_voter_is_away() {
    let five = ["a", "b", "c", "d", "e"];
    let add = |version| {
        let mut world = World::new();
        world.version = version;
        world.grow(&five);
        world.pass(CONNECTED);
        world.kill("e");
        world.pass(CONNECTED);
        world.add("a", "f").map(drop)
    };
    assert_eq!(add((3, 6, 10)), Err(Error::Unhealthy));
    assert_eq!(add((3, 5, 29)), Err(Error::Unhealthy));
    assert_eq!(add((3, 6, 11)), Ok(()));
    assert_eq!(add((3, 5, 30)), Ok(()));
}

#[test]
fn newer_versions_refuse_an_add_that_would_put_the_quorum_at_risk() {
    let mut world = World::of(&["a", "b", "c"]);
    world.kill("c");
    world.pass(CONNECTED);
    assert_eq!(world.add("a", "d"), Err(Error::Unhealthy));
}

#[test]
fn h3_a_voting_add_counts_for_the_quorum_before_it_runs() {
    let mut world = World::of(&["a"]);
    world.ask("a", Request::AddVoter { peer_url: url("b") }).unwrap();
    world.pass(SETTLED);
    assert!(is_timeout(&world.members("a")), "one of two voters is no quorum");
    world.start("b", ClusterState::Existing, &["a", "b"]);
    world.pass(10_000);
    assert_eq!(world.members("a").unwrap().voters().count(), 2);
    assert!(world.etcds.amnesia().is_empty());
}

#[test]
fn a_voting_add_is_refused_while_too_few_voters_have_started() {
    let mut world = World::of(&["a", "b", "c"]);
    world.ask("a", Request::AddVoter { peer_url: url("d") }).unwrap();
    world.pass(CONNECTED);
    assert!(world.members("a").is_ok());
    assert_eq!(
        world.ask("a", Request::AddVoter { peer_url: url("e") }).map(drop),
        Ok(()),
        "three of five run"
    );
    world.pass(CONNECTED);
    let third = world.ask("a", Request::AddVoter { peer_url: url("f") });
    assert!(refused(third).contains("not enough started members"));
}

#[test]
fn t3_removing_an_unknown_member_is_not_found_and_a_success_to_the_operators_client() {
    let mut world = World::of(&["a", "b", "c"]);
    let id = world.id("c");
    world.remove("a", "c").unwrap();
    assert_eq!(world.ask("a", Request::Remove { id }), Err(Error::MemberNotFound));
    assert_eq!(world.ask("a", Request::Promote { id }), Err(Error::MemberNotFound));
    assert_eq!(world.etcds.call(world.now, "a", Request::Remove { id }), Ok(Response::Done));
}

#[test]
fn removing_a_voter_is_refused_when_the_active_quorum_would_be_in_danger() {
    let mut world = World::of(&["a", "b", "c"]);
    world.kill("c");
    world.pass(SETTLED);
    assert_eq!(world.remove("a", "b"), Err(Error::Unhealthy));
    assert_eq!(world.remove("a", "a"), Err(Error::Unhealthy));
    world.remove("a", "c").unwrap();
    assert_eq!(world.members("a").unwrap().members.len(), 2);
}

#[test]
fn the_last_voter_is_not_removed() {
    let mut world = World::of(&["a"]);
    assert!(refused(world.remove("a", "a")).contains("not enough started members"));
}

#[test]
fn removing_a_learner_needs_no_connected_voters() {
    let mut world = World::of(&["a", "b"]);
    world.add("a", "c").unwrap();
    world.kill("b");
    world.start("b", ClusterState::Existing, &["b"]);
    world.pass(SETTLED);
    world.remove("a", "c").unwrap();
}

#[test]
fn a_removed_member_ends_itself() {
    let mut world = World::of(&["a", "b", "c"]);
    let process = world.process("c");
    world.remove("a", "c").unwrap();
    world.pass(1_200);
    assert_eq!(world.ends(), [(process, REMOVED.to_owned())]);
    world.start("c", ClusterState::Existing, &["c"]);
    world.pass(SETTLED);
    assert_eq!(world.ends()[0].1, REMOVED);
}

#[test]
fn a_member_that_was_removed_while_it_was_away_is_turned_away() {
    let mut world = World::of(&["a", "b", "c"]);
    world.kill("c");
    world.pass(CONNECTED);
    world.remove("a", "c").unwrap();
    world.start("c", ClusterState::Existing, &["c"]);
    world.pass(SETTLED);
    assert_eq!(world.ends()[0].1, REMOVED);
}

#[test]
fn t7_a_removed_member_without_a_log_does_not_know_whom_to_ask() {
    let mut world = World::of(&["a", "b", "c"]);
    let victim = world.followers()[0].clone();
    world.kill(&victim);
    world.etcds.wipe(&disk(&victim));
    world.start(&victim, ClusterState::Existing, &["a", "b", "c"]);
    world.pass(500);
    assert_eq!(world.ends().len(), 1, "the leader kills it");
    let leader = world.leader().unwrap();
    world.remove(&leader, &victim).unwrap();
    world.start(&victim, ClusterState::Existing, &["a", "b", "c"]);
    world.pass(30_000);
    assert_eq!(world.ends(), []);
    assert!(is_timeout(&world.status(&victim)));
    // And whoever asks it for the list learns nothing.
    world.start("z", ClusterState::Existing, &[&victim, "z"]);
    world.pass(500);
    assert!(world.ends()[0].1.contains("failed to get raft cluster member(s)"));
}

#[test]
fn a_removed_leader_is_succeeded() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    world.remove(&leader, &leader).unwrap();
    world.pass(2 * SETTLED);
    assert_eq!(world.ends().len(), 1);
    assert!(world.leader().is_some_and(|next| next != leader));
}

#[test]
fn an_id_depends_on_the_second_it_was_asked_for() {
    let mut world = World::of(&["a"]);
    let first = find(&world.add("a", "b").unwrap(), "b").unwrap().id;
    world.remove("a", "b").unwrap();
    assert_eq!(world.add("a", "b"), Err(Error::MemberNotFound), "the same id was removed for good");
    world.pass(1_000);
    let second = find(&world.add("a", "b").unwrap(), "b").unwrap().id;
    assert_ne!(first, second);
}

#[test]
fn only_the_leader_moves_leadership_and_only_to_a_voter() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let follower = world.followers()[0].clone();
    let to = world.id(&follower);
    assert_eq!(refused(world.ask(&follower, Request::MoveLeader { to })), "etcdserver: not leader");
    assert_eq!(
        refused(world.ask(&leader, Request::MoveLeader { to: 1 })),
        "etcdserver: bad leader transferee"
    );
    world.ask(&leader, Request::MoveLeader { to }).unwrap();
    assert_eq!(world.leader(), Some(follower));
    assert_eq!(world.status(&leader).unwrap().leader, to);
}

#[test]
fn leadership_does_not_move_to_a_member_that_is_away() {
    let mut world = World::of(&["a", "b", "c"]);
    let leader = world.leader().unwrap();
    let follower = world.followers()[0].clone();
    let to = world.id(&follower);
    world.kill(&follower);
    assert!(is_timeout(&world.ask(&leader, Request::MoveLeader { to })));
}
