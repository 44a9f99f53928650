use super::*;
use crate::fixtures::{World, estrange, now};
use crate::{Action, Kind, Release};
use api::{EtcdCluster, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

fn world(replicas: i32) -> World {
    World::settled(EtcdCluster::test("ns", "c").replicas(replicas))
}

fn delete(member: &mut MemberView) {
    member.member.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
}

#[test]
fn t24_a_cluster_whose_members_are_to_stay_lets_nobody_go_and_says_nothing() {
    let mut world = world(3);
    let cluster = world.view.cluster.as_mut().unwrap();
    cluster.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
    delete(world.member(0));
    let plan = world.plan();
    assert!(matches!(&plan.actions[..], [Action::ReleaseMember { .. }]), "{:?}", plan.actions);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/Deleting");

    world.view.cluster.as_mut().unwrap().metadata.finalizers = Some(vec!["orphan".into()]);
    let plan = world.plan();
    assert_eq!((plan.actions, plan.cluster_status), (vec![], None));
}

#[test]
fn t24_a_learner_that_was_left_behind_has_no_vote_that_others_count_on() {
    let mut world = world(3);
    world.view.cluster = None;
    for member in &mut world.view.members {
        member.member.metadata.owner_references = None;
    }
    delete(world.member(2));
    assert_eq!(world.plan().actions, []);
    world.member(2).member.status.as_mut().unwrap().is_voter = false;
    assert!(matches!(&world.plan().actions[..], [Action::ReleaseMember { .. }]));
}

#[test]
fn t24_others_may_have_left_something_behind_that_counts_on_a_vote() {
    let left_behind = || {
        let mut world = world(2);
        world.view.cluster = None;
        for member in &mut world.view.members {
            member.member.metadata.owner_references = None;
        }
        delete(world.member(1));
        world
    };
    let mut orphaning = left_behind();
    delete(orphaning.member(0));
    assert_eq!(orphaning.plan().actions.len(), 2, "all of them are to go");
    orphaning.member(0).member.metadata.finalizers.get_or_insert_default().push("orphan".into());
    let actions = orphaning.plan().actions;
    assert!(!actions.iter().any(|a| a.member() == Some(orphaning.view.members[1].name())), "{actions:?}");

    let mut stray = left_behind();
    stray.view.members.remove(0);
    assert_eq!(stray.plan().actions.len(), 1);
    stray.view.strays = vec![crate::Stray { kind: Kind::Pod, name: "c-x".into(), leaving: false }];
    assert_eq!(stray.plan().actions, []);

    let mut forgotten = left_behind();
    forgotten.member(1).member.status = None;
    assert_eq!(forgotten.plan().actions, [], "its record was lost, and it may vote");
}

#[test]
fn t24_that_nothing_is_left_of_a_member_is_confirmed_before_it_goes_for_that_reason() {
    let left_behind = |given_to: Option<&str>| {
        let mut world = world(1);
        let was = world.view.cluster.take().unwrap();
        let member = world.member(0);
        member.member.metadata.owner_references = given_to.map(|uid| {
            let mut owner = OwnerReference::default();
            (owner.uid, owner.name, owner.controller) = (uid.to_owned(), was.name_any(), Some(true));
            vec![owner]
        });
        let taken_out = (labels::annotation::TAKEN_OUT.to_owned(), "true".to_owned());
        member.member.metadata.annotations.get_or_insert_default().extend([taken_out]);
        delete(world.member(0));
        world
    };
    for given_to in [None, Some("of-another")] {
        let mut world = left_behind(given_to);
        assert_eq!(world.plan().actions, [], "it may be the last copy");
        (world.member(0).pod, world.member(0).volume) = (None, None);
        let actions = world.plan().actions;
        let [release] = &actions[..] else { panic!("{actions:?}") };
        let looked_at: Vec<_> = release.looks(&world.view).iter().map(|look| look.kind).collect();
        assert_eq!(looked_at, [Kind::Cluster, Kind::Pod, Kind::Claim]);
    }
}

#[test]
fn h10_a_cluster_that_is_not_seen_is_looked_for_before_its_members_go() {
    let mut world = world(1);
    delete(world.member(0));
    let uid = world.view.cluster.take().unwrap().metadata.uid;
    let actions = world.plan().actions;
    let [Action::ReleaseMember { because: Release::ClusterDeleted { cluster, uid: asked, .. }, .. }] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((cluster.as_str(), asked), ("c", &uid), "the live look is for this very object");
}

#[test]
fn a_deleted_cluster_lets_its_members_go_without_asking_etcd() {
    let mut world = world(3);
    for index in 0..3 {
        delete(world.member(index));
    }
    world.silence_etcd();
    for gone in [true, false] {
        let mut world = world.clone();
        if gone {
            world.view.cluster = None;
        } else {
            let at = Some(conditions::wire_time(now()));
            world.view.cluster.as_mut().unwrap().metadata.deletion_timestamp = at;
        }
        let actions = world.plan().actions;
        assert_eq!(actions.len(), 3);
        assert!(actions.iter().all(|a| matches!(a,
            Action::ReleaseMember { because: Release::ClusterDeleted { uid, .. }, .. }
                if uid.as_deref() == Some("uid-of-c"))));
    }
}

#[test]
fn t10_a_member_of_an_earlier_cluster_of_the_same_name_is_not_ours() {
    let mut world = world(1);
    let mut old = world.member(0).clone();
    old.member.metadata.name = Some("c-old".into());
    estrange(&mut old.member);
    old.member.spec.cluster_token = names::cluster_token("ns", "c", "somebody-else");
    delete(&mut old);
    world.view.members.push(old);
    let actions = world.plan().actions;
    assert!(
        matches!(&actions[..], [Action::ReleaseMember { name, because: Release::ClusterDeleted { uid, .. }, .. }]
        if name == "c-old" && uid.as_deref() == Some("somebody-else")),
        "{actions:?}"
    );
}

#[test]
fn finalizers_of_others_stay() {
    let mut world = world(1);
    delete(world.member(0));
    world.member(0).member.metadata.finalizers = Some(vec!["theirs".into(), labels::FINALIZER.into()]);
    world.view.cluster = None;
    assert!(
        matches!(&world.plan().actions[..], [Action::ReleaseMember { finalizers, .. }] if *finalizers == ["theirs"])
    );
}

#[test]
fn t25_who_was_given_to_a_cluster_that_was_gone_already_is_not_let_go_with_it() {
    let mut world = world(1);
    let (mut view, deleted) = (&mut world.view, |view: &mut ClusterView| delete(&mut view.members[0]));
    view.members[0].member.metadata.owner_references.as_mut().unwrap()[0].uid = "second".into();
    view.cluster = None;
    deleted(view);
    let plan = world.plan();
    assert_eq!(plan.actions, []);
    assert!(plan.complaint.unwrap().contains("its data is kept"));
    view = &mut world.view;
    view.members[0].member.annotations_mut().insert(labels::annotation::ADOPTED_BY.into(), "second".into());
    assert!(matches!(&world.plan().actions[..], [Action::ReleaseMember { .. }]));
}

#[test]
fn t24_an_orphaned_cluster_that_somebody_holds_says_what_becomes_of_its_members() {
    let mut world = world(3);
    let cluster = world.view.cluster.as_mut().unwrap();
    cluster.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
    let message = |world: &World| {
        let status = world.plan().cluster_status.unwrap();
        conditions::find(&status.conditions, conditions::AVAILABLE).unwrap().message.clone()
    };
    assert!(message(&world).ends_with("its members with it"), "{}", message(&world));
    world.view.members.iter_mut().for_each(|m| m.member.metadata.owner_references = None);
    assert!(message(&world).ends_with("its members were left behind"), "{}", message(&world));
    delete(world.member(0));
    let plan = world.plan();
    assert_eq!(plan.actions, []);
    assert!(plan.complaint.unwrap().contains("it is looked at again"));
}

#[test]
fn t24_who_was_leaving_when_its_cluster_was_orphaned_keeps_what_may_be_the_last_copy() {
    let mut unrecorded = world(2);
    delete(unrecorded.member(1));
    let mut world = unrecorded.clone();
    world.member(1).member.status.as_mut().unwrap().role = Some("leaving".into());
    world.view.cluster = None;
    world.view.members.iter_mut().for_each(|m| m.member.metadata.owner_references = None);
    world.view.members.remove(0);
    let plan = world.plan();
    assert_eq!(plan.actions, []);
    let complaint = plan.complaint.unwrap();
    assert!(complaint.contains("its data is kept") && complaint.contains("kubectl patch"), "{complaint}");
    world.member(0).pod = None;
    assert_eq!(world.plan().actions, [], "its volume is there");
    world.member(0).volume = None;
    assert!(matches!(&world.plan().actions[..], [Action::ReleaseMember { .. }]), "nothing is left to keep");

    let mut world = unrecorded;
    world.view.cluster = None;
    world.view.members.iter_mut().for_each(|m| m.member.metadata.owner_references = None);
    delete(world.member(0));
    assert_eq!(world.plan().actions.len(), 2, "a user has deleted both");
    let taken_out = labels::annotation::TAKEN_OUT.to_owned();
    world.member(1).member.annotations_mut().insert(taken_out, "true".into());
    let plan = world.plan();
    assert!(matches!(&plan.actions[..], [Action::ReleaseMember { .. }]), "{:?}", plan.actions);
    assert!(plan.complaint.unwrap().contains("its data is kept"));
}

#[test]
fn t24_a_member_that_outlived_its_cluster_does_not_hang_when_it_is_deleted() {
    let mut world = world(1);
    world.view.cluster = None;
    world.member(0).member.metadata.owner_references = None;
    assert_eq!(world.plan().actions, [], "left alone until somebody deletes it");
    delete(world.member(0));
    assert!(matches!(
        &world.plan().actions[..],
        [Action::ReleaseMember { because: Release::ClusterDeleted { uid: None, .. }, .. }]
    ));
}

#[test]
fn t24_members_that_were_left_behind_do_not_lose_their_votes_one_by_one() {
    let mut world = world(5);
    world.view.cluster = None;
    for member in &mut world.view.members {
        member.member.metadata.owner_references = None;
    }
    delete(world.member(0));
    assert_eq!(world.plan().actions, [], "nobody can take it out of etcd");
    assert!(world.plan().complaint.unwrap().contains("count on its vote"));
    for index in 1..5 {
        delete(world.member(index));
    }
    assert_eq!(world.plan().actions.len(), 5, "all of them were deleted");
}

#[test]
fn a_cluster_whose_deletion_is_held_up_does_not_say_that_it_is_available() {
    let mut world = world(3);
    let cluster = world.view.cluster.as_mut().unwrap();
    cluster.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
    cluster.metadata.finalizers = Some(vec!["foregroundDeletion".into()]);
    assert_eq!(world.condition(conditions::AVAILABLE), "False/Deleting");
    assert_eq!(world.condition(conditions::PROGRESSING), "True/Deleting");
}

#[test]
fn t24_a_note_whose_deletion_never_came_does_not_outlive_the_decision() {
    let mut world = world(3);
    let taken_out = labels::annotation::TAKEN_OUT.to_owned();
    world.member(2).member.annotations_mut().insert(taken_out, "true".into());
    assert!(matches!(&world.pass()[..], [Action::RetainMember { .. }]));
    assert_eq!(world.pass(), []);
    world.view.cluster = None;
    for member in &mut world.view.members {
        member.member.metadata.owner_references = None;
        delete(member);
    }
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 3, "{:?}", plan.complaint);
}
