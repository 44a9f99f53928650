use super::*;
use crate::MemberView;
use crate::fixtures::{World, now};
use api::EtcdCluster;
use kube::ResourceExt as _;

#[test]
fn t7_nobody_gets_a_vote_while_a_voter_may_begin_anew() {
    let mut world = World::settled(EtcdCluster::test("ns", "c"));
    world.rows()[1].is_learner = true;
    world.rows()[2].is_learner = true;
    let promotes = |world: &World| world.plan().actions.iter().any(|a| matches!(a, Action::Promote { .. }));
    assert!(promotes(&world));
    let notes = world.member(0).pod.as_mut().unwrap().annotations_mut();
    notes.insert(api::labels::annotation::INITIAL_CLUSTER_STATE.into(), "new".into());
    assert!(!promotes(&world));
    assert!(world.pass().iter().any(|a| matches!(a, Action::SettlePod { .. })));
    assert!(promotes(&world));
}

fn steps(actions: &[Action]) -> Vec<&'static str> {
    actions.iter().filter_map(Action::reason).collect()
}

fn settled(replicas: i32) -> World {
    World::settled(EtcdCluster::test("ns", "c").replicas(replicas))
}

fn scale(world: &mut World, replicas: i32) {
    world.view.cluster.as_mut().unwrap().spec.replicas = Some(replicas);
    world.pass();
}

#[test]
fn members_join_one_after_the_other_and_get_their_votes_at_the_end() {
    let mut world = World::new(EtcdCluster::test("ns", "c").replicas(3));
    assert_eq!(
        steps(&world.settle()),
        [
            "MemberCreated",
            "MemberCreated",
            "LearnerAdded",
            "MemberCreated",
            "LearnerAdded",
            "LearnerPromoted",
            "LearnerPromoted"
        ]
    );
    assert_eq!(world.condition(api::conditions::AVAILABLE), "True/QuorumHealthy");
    assert!(world.view.members.iter().all(|m| m.member.status.as_ref().unwrap().is_voter));
}

#[test]
fn at_rest_nothing_is_planned_and_no_status_changes() {
    let world = settled(3);
    let plan = world.plan();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.cluster_status, world.view.cluster.as_ref().unwrap().status);
    for member in &world.view.members {
        assert_eq!(plan.member_statuses.get(member.name()), member.member.status.as_ref());
    }
    assert_eq!(plan.next, Next::AtRest);
}

#[test]
fn h6_a_joiner_is_told_the_list_etcd_has() {
    let world = settled(2);
    let urls: Vec<_> = world.view.members.iter().map(|m| format!("{}={}", m.name(), m.peer_url())).collect();
    let mut expected = urls.clone();
    expected.sort();
    assert_eq!(world.view.members[1].member.spec.initial_cluster, expected.join(","));
    assert_eq!(world.view.members[0].member.spec.initial_cluster, urls[0]);
}

#[test]
fn h5_a_pending_member_is_finished_before_any_promotion() {
    let mut world = settled(1);
    scale(&mut world, 2);
    world.pass();
    let pending = world.view.members.iter().find(|m| m.is_pending()).unwrap().name().to_owned();
    // The add went through, the answer was lost: it must not be added twice.
    let url = world.view.members.last().unwrap().peer_url();
    world.rows().push(etcd::Member { id: 77, name: String::new(), peer_urls: vec![url], is_learner: true });
    let actions = world.pass();
    assert!(matches!(&actions[..], [Action::WireMember { name, .. }] if *name == pending), "{actions:?}");
}

#[test]
fn h11_nothing_grows_while_a_member_is_leaving() {
    let mut world = settled(3);
    let third = world.member(2);
    third.member.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
    world.silence_etcd();
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_member_that_can_not_leave_because_of_a_broken_one_does_not_wait_for_ever() {
    let mut world = settled(3);
    world.member(2).member.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
    let broken = world.member(1);
    broken.volume = None;
    broken.pod = None;
    broken.etcd = None;
    let name = broken.name().to_owned();
    let actions = world.pass();
    assert!(
        matches!(&actions[..], [Action::DeleteMember { name: gone, .. }] if *gone == name),
        "{actions:?}"
    );
    world.settle();
    assert_eq!(world.view.members.len(), 3);
    assert_eq!(world.condition(api::conditions::AVAILABLE), "True/QuorumHealthy");
}

#[test]
fn a_member_that_can_not_leave_because_of_an_orphan_does_not_wait_for_ever() {
    let mut world = settled(3);
    world.member(2).member.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
    world.view.members.remove(1);
    let actions = world.plan().actions;
    assert!(matches!(&actions[0], Action::RemoveOrphan { .. }), "{actions:?}");
}

#[test]
fn h3_a_cluster_that_is_not_whole_is_not_grown() {
    let mut world = settled(3);
    scale(&mut world, 5);
    world.member(1).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    let plan = world.plan();
    assert!(steps(&plan.actions).is_empty());
    assert!(plan.waiting_for.unwrap().contains("waiting for existing members to become Ready"));
}

#[test]
fn a_listed_member_that_is_down_is_waited_for_without_a_complaint() {
    let mut world = settled(3);
    world.rows()[2].name = String::new();
    world.member(2).etcd = None;
    let plan = world.plan();
    assert!(plan.waiting_for.unwrap().contains("to start"));
    assert_eq!(plan.complaint, None);
    world.rows().remove(2);
    assert!(world.plan().complaint.unwrap().contains("although nobody here took it out"));
}

#[test]
fn t7_a_learner_whose_pod_is_not_settled_is_come_back_to_and_not_at_once() {
    let mut world = settled(3);
    world.rows()[2].is_learner = true;
    world.member(2).pod.as_mut().unwrap().metadata.annotations = None;
    let plan = world.plan();
    assert!(!plan.actions.iter().any(|a| matches!(a, Action::Promote { .. })), "{:?}", plan.actions);
    assert_eq!(plan.next, Next::Soon);
}

#[test]
fn t27_a_clock_that_is_behind_does_not_keep_learners_from_voting() {
    let mut world = settled(3);
    world.rows()[1].is_learner = true;
    world.rows()[2].is_learner = true;
    world.rows()[2].name = String::new();
    let ahead = now() + SignedDuration::from_hours(1);
    let starting = world.member(2);
    starting.etcd = None;
    starting.member.metadata.creation_timestamp = Some(api::conditions::wire_time(ahead));
    starting.seen.silent = Some(SignedDuration::from_mins(10));
    let actions = world.plan().actions;
    assert!(actions.iter().any(|a| matches!(a, Action::Promote { .. })), "{actions:?}");
}

#[test]
fn t6_nobody_gets_a_vote_that_the_others_can_not_do_without_while_one_of_them_is_silent() {
    let promotes = |voters: usize, silent: usize| {
        let mut world = settled(5);
        for row in &mut world.rows()[voters..] {
            row.is_learner = true;
        }
        for index in voters - silent..voters {
            world.member(index).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        }
        world.plan().actions.iter().any(|a| matches!(a, Action::Promote { .. }))
    };
    assert!(promotes(3, 0) && promotes(1, 0) && promotes(2, 0) && promotes(4, 0));
    assert!(!promotes(3, 1), "2 of 3 would become 2 of 4, if it has died meanwhile");
    assert!(promotes(4, 1), "3 of 4 become 3 of 5");
}

#[test]
fn h4_the_last_learner_is_promoted_when_the_count_is_reached() {
    let mut world = settled(3);
    world.rows()[2].is_learner = true;
    let actions = world.pass();
    assert!(
        matches!(&actions[..], [Action::Promote { .. }, Action::LabelPod { voter: false, .. }]),
        "{actions:?}"
    );
}

#[test]
fn h38_a_promotion_that_etcd_refuses_does_not_hold_up_the_rest() {
    let mut world = settled(5);
    world.rows()[4].is_learner = true;
    let lost = world.member(1);
    (lost.pod, lost.etcd) = (None, None);
    let actions = world.plan().actions;
    let promotion = actions.iter().position(|a| matches!(a, Action::Promote { .. })).unwrap();
    let pod = actions.iter().position(|a| matches!(a, Action::CreatePod(_))).unwrap();
    assert!(!actions[pod].waits_for(&actions[promotion]), "{actions:?}");
}

#[test]
fn h38_a_learner_whose_promotion_is_refused_gets_the_pod_it_needs_to_catch_up() {
    let promote = Action::Promote { member: "c-abcde".into(), id: 1 };
    let ended = Action::DeletePod {
        name: "c-abcde".into(),
        uid: "x".into(),
        because: Ending::Ended,
        permit: crate::Permit::forged(),
    };
    assert!(!ended.waits_for(&promote));
}

#[test]
fn t7_nobody_votes_before_it_is_on_record_that_it_must_not_begin_anew() {
    let mut world = settled(3);
    world.rows()[2].is_learner = true;
    world.member(2).member.status.as_mut().unwrap().member_id = None;
    let plan = world.plan();
    assert!(!steps(&plan.actions).contains(&"LearnerPromoted"), "the member does not say that it has joined");
    assert_eq!(plan.next, Next::Now);

    let mut world = settled(3);
    world.rows()[2].is_learner = true;
    let state = api::labels::annotation::INITIAL_CLUSTER_STATE.to_owned();
    world.member(2).pod.as_mut().unwrap().annotations_mut().insert(state, "new".into());
    let actions = world.pass();
    assert!(!steps(&actions).contains(&"LearnerPromoted"), "its Pod could begin anew");
    assert!(actions.iter().any(|a| matches!(a, Action::SettlePod { .. })), "{actions:?}");
    assert!(steps(&world.plan().actions).contains(&"LearnerPromoted"));
}

#[test]
fn members_made_by_somebody_else_accept_one_learner_at_a_time() {
    let mut world = settled(1);
    let foreign = |m: &mut MemberView| {
        let command = m.pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].command.as_mut().unwrap();
        command.retain(|flag| !flag.contains("max-learners"));
    };
    foreign(world.member(0));
    scale(&mut world, 3);
    assert_eq!(
        steps(&world.settle()),
        [
            "MemberCreated",
            "LearnerAdded",
            "LearnerPromoted",
            "MemberCreated",
            "LearnerAdded",
            "LearnerPromoted"
        ]
    );
}

#[test]
fn etcd_is_never_asked_for_a_learner_more_than_each_of_its_members_takes() {
    let one_learner = |m: &mut MemberView| {
        let command = m.pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].command.as_mut().unwrap();
        command.retain(|flag| !flag.contains("max-learners"));
    };
    // The last one lost its record and its place in the list, beside a learner that is there already.
    let mut world = settled(3);
    world.rows()[1].is_learner = true;
    world.rows().remove(2);
    let lost = world.member(2);
    (lost.etcd, lost.member.status) = (None, None);
    let adds = |world: &World| steps(&world.plan().actions).contains(&"LearnerAdded");
    assert!(adds(&world), "all take eight");
    let mut by_another = world.clone();
    one_learner(by_another.member(0));
    assert!(!adds(&by_another), "the leader would refuse, and the others would not");
    assert!(steps(&by_another.plan().actions).contains(&"LearnerPromoted"), "that makes room");
    world.member(0).pod = None;
    assert!(!adds(&world), "its flags are not known");
}

#[test]
fn a_joiner_that_does_not_start_does_not_keep_the_others_from_voting() {
    let mut world = settled(3);
    world.rows()[1].is_learner = true;
    world.rows()[2].name = String::new();
    world.rows()[2].is_learner = true;
    world.member(2).etcd = None;
    assert!(!steps(&world.plan().actions).contains(&"LearnerPromoted"), "it may still come");
    world.member(2).seen.silent = Some(SignedDuration::from_secs(60));
    assert!(steps(&world.plan().actions).contains(&"LearnerPromoted"));
}

#[test]
fn h11_a_member_that_may_not_leave_does_not_keep_a_broken_one() {
    let mut world = settled(3);
    let crashed = world.member(0);
    let name = crashed.name().to_owned();
    crashed.etcd = Some(Err(etcd::Error::Unreachable { member: name.clone() }));
    let pod = crashed.pod.as_mut().unwrap();
    crate::fixtures::unready(pod);
    crate::fixtures::crash_looping(pod);
    crashed.seen.silent = Some(SignedDuration::from_mins(5));
    crashed.seen.restarts = 4;
    let at = Some(api::conditions::wire_time(now()));
    world.member(1).member.metadata.deletion_timestamp = at;
    let actions = world.plan().actions;
    assert!(matches!(&actions[..], [Action::DeleteMember { name: n, .. }] if *n == name), "{actions:?}");
}

#[test]
fn two_pending_members_and_room_for_one_learner_end_as_two_voters() {
    let mut world = settled(1);
    let command = world.member(0).pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].command.as_mut();
    command.unwrap().retain(|flag| !flag.contains("max-learners"));
    scale(&mut world, 3);
    world.pass();
    // A creation that was given up, and landed after all.
    let mut late = world.member(1).clone();
    late.member.metadata.name = Some("c-late".into());
    late.member.metadata.uid = Some("uid-late".into());
    world.view.members.push(late);
    world.settle();
    assert_eq!(world.rows().iter().filter(|row| !row.is_learner).count(), 3);
}

#[test]
fn without_a_quorum_nothing_is_changed() {
    let mut world = settled(3);
    scale(&mut world, 5);
    world.silence_etcd();
    let plan = world.plan();
    assert!(steps(&plan.actions).is_empty());
    assert_eq!(plan.next, Next::Soon);
}

#[test]
fn t13_a_joiner_that_was_overtaken_is_told_anew_and_started_anew() {
    let mut world = settled(3);
    world.rows()[2].name = String::new();
    world.rows()[2].is_learner = true;
    let current = joiner::initial_cluster(world.membership());
    let joiner = world.member(2);
    joiner.etcd = None;
    joiner.member.status.as_mut().unwrap().member_id = None;
    joiner.member.spec.initial_cluster = "stale".into();
    let told = world.plan().actions;
    assert!(
        matches!(&told[0], Action::WireMember { initial_cluster, .. } if *initial_cluster == current),
        "{told:?}"
    );

    world.member(2).member.spec.initial_cluster = current;
    let pod = world.member(2).pod.as_mut().unwrap();
    pod.annotations_mut().insert(api::labels::annotation::INITIAL_CLUSTER.into(), "stale".into());
    let actions = world.plan().actions;
    assert!(actions.iter().any(|a| matches!(a, Action::DeletePod { .. })), "{actions:?}");
}

#[test]
fn t13_a_joiner_that_was_overtaken_is_told_although_somebody_who_can_not_leave_yet_is_waited_for() {
    let mut world = settled(5);
    world.rows()[4].name = String::new();
    world.rows()[4].is_learner = true;
    let joiner = world.member(4);
    joiner.etcd = None;
    joiner.member.status.as_mut().unwrap().member_id = None;
    joiner.member.spec.initial_cluster = "stale".into();
    let name = joiner.name().to_owned();
    let told = |world: &World| {
        let wires = |a: &Action| matches!(a, Action::WireMember { name: n, .. } if *n == name);
        world.plan().actions.iter().any(wires)
    };
    world.member(0).member.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
    assert!(!told(&world), "its list changes once more right now");
    for silent in [1, 2] {
        world.member(silent).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    }
    assert!(told(&world));
    world.rows().pop();
    assert!(!told(&world), "who is not in etcd is not added while another is leaving");
}
