use super::*;
use crate::Release;
use crate::fixtures::{World, now};
use api::{EtcdCluster, conditions};
use kube::ResourceExt as _;

fn world(replicas: i32) -> World {
    World::settled(EtcdCluster::test("ns", "c").replicas(replicas))
}

fn delete(member: &mut MemberView) {
    member.member.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
}

#[test]
fn h7_a_member_that_etcd_lists_under_another_url_is_not_out() {
    let mut world = world(3);
    delete(world.member(2));
    world.rows()[2].peer_urls = vec!["https://elsewhere:2380".into()];
    world.rows()[2].name = String::new();
    let actions = world.plan().actions;
    assert!(!actions.iter().any(|a| matches!(a, Action::ReleaseMember { .. })), "{actions:?}");
    assert!(actions.iter().any(|a| matches!(a, Action::RemoveFromEtcd { .. })), "{actions:?}");
}

#[test]
fn a_deleted_member_leaves_etcd_first_and_is_replaced() {
    let mut world = world(3);
    let gone = world.member(1).name().to_owned();
    delete(world.member(1));
    assert!(matches!(&world.pass()[..], [Action::RemoveFromEtcd { member, .. }] if *member == gone));
    assert!(matches!(
        &world.pass()[..],
        [Action::PersistMembership, Action::ReleaseMember { because: Release::OutOfEtcd, .. }]
    ));
    world.settle();
    assert_eq!(world.view.members.len(), 3);
    assert!(world.view.members.iter().all(|m| m.name() != gone));
}

/// A seed that serves its clients.
fn serving_seed() -> World {
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning};
    let mut world = World::new(EtcdCluster::test("ns", "c").replicas(1).latched());
    while world.view.members.first().is_none_or(|m| m.pod.is_none()) {
        world.pass();
    }
    let member = world.member(0);
    member.volume.as_mut().unwrap().spec.as_mut().unwrap().volume_name = Some("pv-1".into());
    let pod = member.pod.as_mut().unwrap();
    let running = ContainerStateRunning { started_at: Some(conditions::wire_time(now())) };
    let etcd = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
    etcd.ready = true;
    etcd.state = Some(ContainerState { running: Some(running), ..ContainerState::default() });
    world
}

fn lets_go(world: &World) -> bool {
    world.plan().actions.iter().any(|a| matches!(a, Action::ReleaseMember { .. }))
}

#[test]
fn t24_a_seed_that_serves_clients_but_not_us_keeps_its_data_when_it_is_deleted() {
    let mut world = serving_seed();
    world.silence_etcd();
    world.pass();
    delete(world.member(0));
    assert!(!lets_go(&world));
    assert!(world.plan().complaint.unwrap().contains("its data is kept"));
    let mut unwanted = world.clone();
    unwanted.aim_at(0);
    assert_ne!(unwanted.condition(conditions::AVAILABLE), "False/Paused", "something may have been written");
    world.member(0).etcd = None;
    world.member(0).pod = None;
    let actions = world.plan().actions;
    assert!(matches!(&actions[..], [.., Action::CreatePod(_)]), "so that it can be asked: {actions:?}");
    world.member(0).volume.as_mut().unwrap().spec.as_mut().unwrap().volume_name = None;
    assert!(lets_go(&world), "a claim that was never bound holds nothing");
}

#[test]
fn t24_a_pod_that_was_not_made_together_with_its_claim_is_not_the_first() {
    let mut world = serving_seed();
    world.silence_etcd();
    delete(world.member(0));
    let pod = world.member(0).pod.as_mut().unwrap();
    assert!(pod.annotations().contains_key(labels::annotation::FIRST_START));
    crate::fixtures::unready(pod);
    pod.status.as_mut().unwrap().container_statuses = None;
    assert!(!lets_go(&world), "it may start at any moment");
    assert!(matches!(&world.pass()[..], [Action::WithdrawPod { .. }]));
    world.member(0).seen.withdrawn = Some(jiff::SignedDuration::from_secs(4));
    assert!(!lets_go(&world), "it may have started before it was told");
    world.member(0).seen.withdrawn = Some(jiff::SignedDuration::from_secs(5));
    assert!(lets_go(&world), "its first Pod has never run, and never will");
    world.member(0).pod.as_mut().unwrap().annotations_mut().remove(labels::annotation::FIRST_START);
    assert!(!lets_go(&world), "another one may have run before");
    world.member(0).pod = None;
    let made = world.plan().actions.into_iter().find_map(|a| match a {
        Action::CreatePod(pod) => Some(pod),
        _ => None,
    });
    assert!(!made.unwrap().annotations().contains_key(labels::annotation::FIRST_START));
}

#[test]
fn t24_t26_a_seed_whose_record_was_lost_while_its_pod_was_away_keeps_its_data() {
    let mut world = serving_seed();
    world.settle();
    world.view.cluster.as_mut().unwrap().status = None;
    let member = world.member(0);
    (member.member.status, member.pod, member.etcd) = (None, None, None);
    world.view.etcd.membership = None;
    delete(world.member(0));
    world.pass();
    assert!(!lets_go(&world));
}

/// Out of etcd, and only its object is left, because somebody else's finalizer keeps it.
fn hold(world: &mut World, index: usize, finalizer: &str) {
    let url = world.member(index).peer_url();
    world.rows().retain(|r| !r.peer_urls.contains(&url));
    let member = world.member(index);
    delete(member);
    member.member.metadata.finalizers = Some(vec![finalizer.to_owned()]);
    (member.pod, member.etcd, member.volume) = (None, None, None);
}

#[test]
fn an_object_that_somebody_else_holds_keeps_nobody_waiting() {
    let mut lost = world(3);
    hold(&mut lost, 2, "foregroundDeletion");
    let member = lost.member(1);
    (member.pod, member.etcd, member.volume) = (None, None, None);
    let actions = lost.plan().actions;
    assert!(matches!(&actions[..], [Action::DeleteMember { .. }, ..]), "a loss is healed: {actions:?}");

    let mut world = world(3);
    hold(&mut world, 2, "theirs");
    world.settle();
    assert_eq!(world.view.members.len(), 4, "a successor is made");
    assert_eq!(world.condition(conditions::PROGRESSING), "False/Reconciled");
    assert_eq!(world.condition(conditions::DEGRADED), "True/Blocked");
    let complaint = world.plan().complaint.unwrap();
    assert!(complaint.contains("the finalizer theirs"), "{complaint}");
    world.scale(0);
    assert!(world.view.members.iter().any(|m| m.member.spec.dormant), "and the cluster can be paused");
    assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
    assert_eq!(world.condition(conditions::PROGRESSING), "False/Paused");
}

#[test]
fn a_member_that_leaves_without_our_finalizer_is_taken_out_of_etcd_all_the_same() {
    let mut world = world(3);
    delete(world.member(2));
    world.member(2).member.metadata.finalizers = Some(vec!["theirs".into()]);
    let actions = world.plan().actions;
    assert!(matches!(&actions[..], [Action::RemoveFromEtcd { .. }, ..]), "{actions:?}");
}

#[test]
fn t28_a_deleted_member_that_the_others_disagree_about_is_not_told_to_wait_for_a_quorum() {
    let mut world = world(2);
    world.rows().truncate(1);
    world.member(1).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    world.pass();
    delete(world.member(1));
    world.pass();
    let complaint = world.plan().complaint.unwrap();
    assert!(complaint.contains("is kept while members disagree"), "{complaint}");
}

#[test]
fn t28_a_member_that_is_out_before_anybody_said_so_is_on_record_as_leaving() {
    let mut world = world(3);
    delete(world.member(2));
    world.rows().truncate(2);
    let role = |world: &World| world.plan().member_statuses[world.view.members[2].name()].role.clone();
    assert_eq!(role(&world).as_deref(), Some("leaving"));
    world.rows().truncate(1);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/MembersDisagree");
}

#[test]
fn h9_a_member_is_not_let_go_while_nobody_can_be_asked() {
    let mut world = world(3);
    delete(world.member(2));
    for member in &mut world.view.members[..2] {
        member.pod = None;
        member.etcd = None;
        member.member.status.as_mut().unwrap().pod_name = None;
    }
    world.view.etcd.membership = None;
    let actions = world.plan().actions;
    assert!(!actions.iter().any(|a| matches!(a, Action::ReleaseMember { .. })), "{actions:?}");
}

#[test]
fn t12_the_last_member_is_not_let_go() {
    let mut world = world(1);
    delete(world.member(0));
    let plan = world.plan();
    let steps: Vec<_> = plan.actions.iter().filter_map(Action::reason).collect();
    assert_eq!(steps, ["MemberCreated"], "somebody else has to join first");
    assert!(plan.complaint.unwrap().contains("only copy of the data"));
}

#[test]
fn t1_members_that_are_all_leaving_do_not_excuse_each_other() {
    let mut world = world(3);
    for index in 0..3 {
        delete(world.member(index));
    }
    world.silence_etcd();
    assert_eq!(world.plan().actions, [], "no quorum, no permission");
}

#[test]
fn t3_a_member_that_etcd_no_longer_lists_is_let_go() {
    let mut world = world(3);
    delete(world.member(2));
    let url = world.member(2).peer_url();
    world.rows().retain(|r| !r.peer_urls.contains(&url));
    let done = world.pass();
    assert!(matches!(done.last(), Some(Action::ReleaseMember { because: Release::OutOfEtcd, .. })));
}

#[test]
fn volumes_go_only_after_etcd_has_written_down_that_their_members_are_out() {
    let mut world = world(3);
    for index in [1, 2] {
        delete(world.member(index));
        world.member(index).member.status.as_mut().unwrap().role = Some("leaving".into());
    }
    world.rows().truncate(1);
    let actions = world.plan().actions;
    assert!(
        matches!(
            &actions[..],
            [Action::PersistMembership, Action::ReleaseMember { .. }, Action::ReleaseMember { .. }]
        ),
        "{actions:?}"
    );
    assert!(actions[1].waits_for(&actions[0]), "without it nobody is let go");
}

#[test]
fn t28_a_voter_that_follows_another_leader_does_not_count() {
    for leader in [0, 99] {
        let mut world = world(3);
        delete(world.member(0));
        if let Some(Ok(status)) = &mut world.member(2).etcd {
            (status.leader, status.raft_term) = (leader, 2);
        }
        let plan = world.plan();
        assert_eq!(plan.actions, []);
        assert!(plan.complaint.unwrap().contains("only 1 of the 2 other voters answer"));
    }
}

#[test]
fn a_voter_is_not_removed_when_the_others_would_lose_their_quorum() {
    let mut world = world(3);
    delete(world.member(0));
    world.member(1).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    assert_eq!(world.plan().actions, []);
}

#[test]
fn a_member_without_our_finalizer_gets_it() {
    let mut world = world(1);
    world.member(0).member.metadata.finalizers = Some(vec!["theirs".into()]);
    assert!(matches!(&world.pass()[..], [Action::GuardMember { finalizers, .. }]
        if *finalizers == ["theirs", labels::FINALIZER]));
}

#[test]
fn t26_a_member_that_is_on_record_is_not_let_go_because_the_cluster_has_none() {
    let mut world = world(1);
    world.view.cluster.as_mut().unwrap().status = None;
    world.view.etcd.membership = None;
    world.member(0).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    delete(world.member(0));
    let done = world.settle();
    assert!(!done.iter().any(|a| matches!(a, Action::ReleaseMember { .. })), "{done:?}");
    assert!(world.plan().complaint.unwrap().contains("its data is kept"));
}

#[test]
fn t12_a_whole_cluster_of_deleted_members_is_replaced_one_by_one() {
    let mut world = world(3);
    let old: Vec<_> = world.view.members.iter().map(|m| m.name().to_owned()).collect();
    for index in 0..3 {
        delete(world.member(index));
    }
    world.settle();
    assert_eq!(world.view.members.len(), 3);
    assert!(world.view.members.iter().all(|m| !old.contains(&m.name().to_owned())));
    assert_eq!(world.status().cluster_id.as_deref(), Some("00000000000000c1"), "and it is the same cluster");
}

#[test]
fn t1_two_members_are_not_removed_on_the_same_list() {
    let mut world = world(3);
    delete(world.member(0));
    delete(world.member(1));
    let removals = world.plan().actions.iter().filter(|a| matches!(a, Action::RemoveFromEtcd { .. })).count();
    assert_eq!(removals, 1);
}
