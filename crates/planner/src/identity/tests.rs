use super::*;
use crate::fixtures::World;
use crate::{Action, Release};

/// A settled cluster that was deleted with its dependents left behind, and an object of the same name made over it.
fn orphaned(cluster: EtcdCluster) -> World {
    let mut world = World::settled(cluster.clone());
    let metas = world.view.members.iter_mut().map(|m| &mut m.member.metadata);
    let services = [&mut world.view.headless_service, &mut world.view.client_service];
    let metas = metas.chain(services.into_iter().flatten().map(|s| &mut s.metadata));
    for meta in metas.chain(world.view.budget.as_mut().map(|b| &mut b.metadata)) {
        meta.owner_references = None;
    }
    let mut again = cluster;
    again.metadata.uid = Some("made-again".into());
    again.status = None;
    world.view.cluster = Some(again);
    world
}

fn harm(actions: &[Action]) -> Vec<&Action> {
    let harms = |a: &&Action| {
        !matches!(
            a,
            Action::AdoptMember { .. }
                | Action::ConfirmMember { .. }
                | Action::AdoptService { .. }
                | Action::AdoptBudget { .. }
        )
    };
    actions.iter().filter(harms).collect()
}

#[test]
fn t25_a_cluster_made_over_orphans_takes_them_up() {
    for cluster in [EtcdCluster::test("ns", "c"), EtcdCluster::test("ns", "c").memory("64Mi")] {
        for replicas in [1, 3] {
            let before = World::settled(cluster.clone().replicas(replicas));
            let mut world = orphaned(cluster.clone().replicas(replicas));
            let done = world.settle();
            assert_eq!(harm(&done), [] as [&Action; 0], "no seed, no Pod, nothing deleted");
            let (was, is) = (before.status(), world.status());
            assert_eq!((was.cluster_token, was.cluster_id), (is.cluster_token, is.cluster_id));
            assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
            let owned = |m: &MemberView| controller_uid(&m.member.metadata) == Some("made-again");
            assert!(world.view.members.iter().all(owned));
            assert!(world.plan().complaint.is_none());
        }
    }
}

#[test]
fn t26_who_has_the_data_belongs_to_the_cluster_it_was_made_for_whatever_was_taken_off() {
    let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(2));
    let at = conditions::wire_time(crate::fixtures::now());
    world.view.members.iter_mut().for_each(|m| m.member.metadata.deletion_timestamp = Some(at.clone()));
    world.member(0).member.metadata.owner_references = None;
    world.member(1).member.status = None;
    world.view.cluster.as_mut().unwrap().status = None;
    let cluster = world.view.cluster.clone().unwrap();
    assert!(family(&world.view, &cluster).has(&world.view.members[0]));
}

#[test]
fn t25_a_paused_orphan_stays_paused_or_wakes_as_itself() {
    let cluster = EtcdCluster::test("ns", "c").replicas(1);
    for replicas in [0, 1] {
        let mut world = World::settled(cluster.clone());
        let id = world.status().cluster_id;
        world.scale(0);
        world.member(0).member.metadata.owner_references = None;
        let mut again = cluster.clone().replicas(replicas);
        again.metadata.uid = Some("made-again".into());
        again.status = None;
        world.view.cluster = Some(again);
        let services = [&mut world.view.headless_service, &mut world.view.client_service];
        services.into_iter().flatten().for_each(|s| s.metadata.owner_references = None);
        let done = world.settle();
        assert!(
            !done.iter().any(|a| matches!(a, Action::CreateMember(_) | Action::DeleteMember { .. })),
            "{done:?}"
        );
        assert_eq!(world.status().cluster_id, id);
        let expected = if replicas == 0 { "False/Paused" } else { "True/QuorumHealthy" };
        assert_eq!(world.condition(conditions::AVAILABLE), expected);
    }
}

#[test]
fn t25_orphans_with_two_tokens_stop_everything() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    world.member(2).member.spec.cluster_token = "another".into();
    assert_eq!(world.settle(), []);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/IdentityConflict");
    assert!(world.plan().complaint.unwrap().contains("another"));
}

#[test]
fn t25_orphans_of_two_etcd_clusters_stop_everything() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    world.member(2).member.status.as_mut().unwrap().cluster_id = Some("00000000000000c2".into());
    assert_eq!(world.settle(), []);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/IdentityConflict");
}

#[test]
fn t25_a_seed_beside_living_orphans_stops_everything() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    let cluster = world.view.cluster.clone().unwrap();
    let seed = cluster.member("fresh").seed();
    world.view.members.push(MemberView { member: seed, ..MemberView::default() });
    assert_eq!(world.settle(), []);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/IdentityConflict");
}

#[test]
fn t25_a_spec_of_another_medium_than_the_members_is_not_acted_on() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    let other = EtcdCluster::test("ns", "c").memory("64Mi").spec;
    world.view.cluster.as_mut().unwrap().spec = other;
    assert_eq!(world.settle(), []);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/SpecConflict");
    assert!(world.plan().complaint.unwrap().contains("spec.storage.medium"));
}

#[test]
fn t25_a_member_of_another_owner_is_never_ours() {
    let mut world = World::settled(EtcdCluster::test("ns", "c"));
    crate::fixtures::estrange(&mut world.member(2).member);
    let plan = world.plan();
    assert!(!plan.member_statuses.contains_key(world.view.members[2].name()));
    assert!(
        !plan.actions.iter().any(|a| matches!(a, Action::DeleteMember { .. } | Action::RemoveOrphan { .. }))
    );
    assert!(plan.complaint.is_some(), "and that is said");
}

#[test]
fn t25_one_that_was_taken_up_is_not_removed_before_its_own_etcd_has_named_the_cluster() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    for member in &mut world.view.members {
        member.member.status.as_mut().unwrap().cluster_id = None;
    }
    let silent = world.member(2).etcd.take();
    world.settle();
    world.aim_at(2);
    let leaves = |world: &World| {
        world.plan().actions.into_iter().find_map(|a| match a {
            Action::DeleteMember { name, .. } => Some(name),
            _ => None,
        })
    };
    assert_ne!(
        leaves(&world).as_deref(),
        Some(world.view.members[2].name()),
        "it has not said which it is of"
    );
    world.member(2).etcd = silent;
    world.pass();
    assert!(world.view.members[2].member.status.as_ref().unwrap().cluster_id.is_some());
}

#[test]
fn t25_a_seed_made_beside_orphans_goes_when_its_user_deletes_it() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    let cluster = world.view.cluster.clone().unwrap();
    let mut seed = world.view.members[0].clone();
    seed.member = cluster.member("newer");
    seed.member.spec.bootstrap = true;
    seed.member.spec.cluster_token = "another".into();
    seed.member.metadata.finalizers = Some(vec![labels::FINALIZER.into()]);
    world.view.members.push(seed);
    let plan = world.plan();
    assert_eq!(world.condition(conditions::AVAILABLE), "False/IdentityConflict");
    let new = plan.member_statuses.get("c-newer");
    assert!(new.is_none_or(|s| s.member_id.is_none()), "it is not put on record under the hold");
    let deleted = Some(conditions::wire_time(crate::fixtures::now()));
    world.view.members.last_mut().unwrap().member.metadata.deletion_timestamp = deleted;
    let done = world.settle();
    let gone = |a: &Action| matches!(a, Action::ReleaseMember { name, .. } if name == "c-newer");
    assert!(done.iter().any(gone), "{done:?}");
    assert_eq!(world.view.members.len(), 3);
}

#[test]
fn t26_members_brought_back_without_any_status_get_no_blank_claims() {
    let mut world = orphaned(EtcdCluster::test("ns", "c"));
    for index in 0..3 {
        let member = world.member(index);
        member.member.status = None;
        (member.pod, member.volume, member.etcd) = (None, None, None);
    }
    world.view.etcd.membership = None;
    let done: Vec<_> = (0..10).flat_map(|_| world.pass()).collect();
    let made =
        |a: &Action| matches!(a, Action::CreateVolume(_) | Action::CreatePod(_) | Action::CreateMember(_));
    assert!(!done.iter().any(made), "{done:?}");
}

#[test]
fn t25_what_is_left_of_a_deleted_cluster_is_not_taken_up() {
    let mut world = orphaned(EtcdCluster::test("ns", "c").replicas(1));
    let deleted = Some(conditions::wire_time(crate::fixtures::now()));
    world.member(0).member.metadata.deletion_timestamp = deleted;
    let released = |world: &World| {
        let empty = |a: &Action| matches!(a, Action::ReleaseMember { because: Release::Empty, .. });
        world.plan().actions.iter().any(empty)
    };
    assert!(!released(&world), "it has its data, and was deleted after its cluster");
    world.member(0).pod = None;
    world.member(0).etcd = None;
    world.view.etcd.membership = None;
    assert!(!released(&world), "its volume is there");
    world.member(0).volume = None;
    assert!(released(&world));

    // One that was made for this very object is its last copy.
    let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
    let member = &mut world.member(0).member.metadata;
    member.owner_references = None;
    member.deletion_timestamp = Some(conditions::wire_time(crate::fixtures::now()));
    world.view.cluster.as_mut().unwrap().status = None;
    let done = world.settle();
    assert!(
        !done.iter().any(
            |a| matches!(a, Action::ReleaseMember { name, .. } if *name == world.view.members[0].name())
        ),
        "{done:?}"
    );
}

#[test]
fn t26_a_lost_status_is_found_again() {
    for replicas in [1, 3] {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(replicas));
        let before = world.status();
        world.view.cluster.as_mut().unwrap().status = None;
        assert_eq!(world.settle(), [], "nothing is done, only written down");
        let after = world.status();
        assert_eq!((before.cluster_id, before.cluster_token), (after.cluster_id, after.cluster_token));
        assert_eq!(before.observed, after.observed);
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
    }
}

#[test]
fn t26_it_is_found_again_from_etcd_if_no_member_has_it_on_record() {
    let mut world = World::settled(EtcdCluster::test("ns", "c"));
    let before = world.status();
    world.view.cluster.as_mut().unwrap().status = None;
    for member in &mut world.view.members {
        member.member.status.as_mut().unwrap().cluster_id = None;
    }
    assert_eq!(world.settle(), []);
    assert_eq!(world.status().cluster_id, before.cluster_id);
}

#[test]
fn t26_nothing_is_bootstrapped_while_etcd_is_silent_and_the_record_is_lost() {
    let mut world = World::settled(EtcdCluster::test("ns", "c"));
    world.view.cluster.as_mut().unwrap().status = None;
    for member in &mut world.view.members {
        member.member.status.as_mut().unwrap().cluster_id = None;
    }
    world.silence_etcd();
    assert_eq!(world.settle(), []);
    let late = crate::plan(&world.view, crate::fixtures::now() + jiff::SignedDuration::from_hours(1));
    assert_eq!(late.actions, []);
    let available =
        conditions::find(&late.cluster_status.as_ref().unwrap().conditions, conditions::AVAILABLE).cloned();
    assert_eq!(available.unwrap().reason, reason::QUORUM_LOST, "not BootstrapFailed");
}
