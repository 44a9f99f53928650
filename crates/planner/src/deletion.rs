//! Members on their way out. A member is let go only when etcd has confirmed that it is out, or its cluster is deleted;
//! its Pod and volume are garbage-collected after that.

use api::conditions::{self, NewCondition, reason};
use api::{EtcdClusterStatus, labels, names};
use etcd::Membership;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::disruption::{Verdict, may_remove};
use crate::view::{Assessed, ClusterView, MemberView, Scene, controller_uid, owners_with};
use crate::{Action, Next, Plan, Release, identity, outdated};

/// Lets go of members whose cluster object is gone or going: the user deleted everything, so there is no etcd to ask
/// (H20). A cluster of the same name that was made since is not their parent (T10).
pub(crate) fn release_abandoned(view: &ClusterView, plan: &mut Plan) {
    // A cluster that is deleted with its dependents left behind takes nobody along.
    let kept = view
        .cluster
        .as_ref()
        .filter(|c| c.metadata.deletion_timestamp.is_none() || is_orphaning(&c.metadata));
    let kept = kept.and_then(|c| c.metadata.uid.as_deref());
    for member in view.members.iter().filter(|m| m.is_deleting() && m.has_finalizer()) {
        let owner = controller_uid(&member.member.metadata);
        let abandoned = match owner {
            Some(owner) => Some(owner) != kept,
            // T24: the cluster was deleted and its members were left behind on purpose.
            None => view.cluster.is_none() || is_outsider(view, member),
        };
        let unseen = |owner: &&str| !was_given_to(view, member, owner) && !identity::is_empty(member);
        if let Some(owner) = owner.filter(|owner| abandoned && unseen(owner)) {
            let name = member.name();
            plan.complain(format!(
                "EtcdMember {name} was given to an EtcdCluster (UID {owner}) that was gone before anybody saw them together, and is \
                 deleted for that reason alone; its data is kept. To use it, take the owner off, and apply the EtcdCluster again: \
                 kubectl patch etcdmember {name} --namespace {} --type=merge --patch '{{\"metadata\":{{\"ownerReferences\":null}}}}'; \
                 if the data is not needed, take the finalizers off the same way",
                view.namespace
            ));
        } else if view.cluster.is_some() && view.living_cluster().is_none() && owner.is_none() {
            plan.complain(format!(
                "member {} was deleted; it is looked at again when its EtcdCluster, which is being deleted as well, is gone",
                member.name()
            ));
        } else if abandoned && owner.is_none() && is_needed(view, member) {
            plan.complain(format!(
                "member {} was deleted and has no cluster; it is kept, because without an EtcdCluster nobody takes it out of \
                 etcd, where the members that were left behind with it count on its vote. Apply the EtcdCluster again, or \
                 delete the others, too",
                member.name()
            ));
        } else if abandoned && owner.is_none() && was_taken_out(member) && !identity::is_empty(member) {
            let name = member.name();
            plan.complain(format!(
                "member {name} was being taken out of its etcd cluster when it was left behind without an EtcdCluster; its data \
                 is kept, because it may be the last. Apply the EtcdCluster again; if the data is not needed, let it go: \
                 kubectl patch etcdmember {name} --namespace {} --type=merge --patch '{{\"metadata\":{{\"finalizers\":null}}}}'",
                view.namespace
            ));
        } else if abandoned {
            let because = if view.cluster.is_some() && owner.is_none() {
                if identity::is_empty(member) { Release::Empty } else { Release::Outsider }
            } else {
                Release::ClusterDeleted { cluster: view.name.clone(), uid: owner.map(str::to_owned) }
            };
            plan.act(release(member, because));
        }
    }
}

/// What a cluster says while it is deleted and something holds it up: nobody looks after its members any more.
pub(crate) fn farewell(view: &ClusterView, now: Timestamp) -> Option<EtcdClusterStatus> {
    let cluster = view.cluster.as_ref().filter(|c| !is_orphaning(&c.metadata))?;
    let mut status = cluster.status.clone()?;
    let uid = cluster.metadata.uid.as_deref();
    let owns = |m: &MemberView| uid.is_some() && controller_uid(&m.member.metadata) == uid;
    let message = if view.members.iter().any(|m| !m.is_let_go() && !owns(m)) {
        "the EtcdCluster is being deleted, and its members were left behind"
    } else {
        "the EtcdCluster is being deleted, and its members with it"
    };
    for (type_, on) in [(conditions::AVAILABLE, false), (conditions::PROGRESSING, true)] {
        let condition = NewCondition::new(type_, on, reason::DELETING, message, cluster.metadata.generation);
        conditions::set_condition(&mut status.conditions, condition, now);
    }
    Some(status)
}

/// Whether a member without an owner is not this cluster's: of two that do not fit together, a user deletes the wrong one.
fn is_outsider(view: &ClusterView, member: &MemberView) -> bool {
    let Some(cluster) = view.living_cluster() else { return false };
    let family = identity::family(view, cluster);
    family.conflict.is_none() && !family.has(member)
}

/// Whether a member is its owner's: made for it, or seen together with it after it was taken up. What is given to an owner in
/// the moment in which that is deleted, and its members left behind, has not been anybody's.
fn was_given_to(view: &ClusterView, member: &MemberView, owner: &str) -> bool {
    let token = names::cluster_token(&view.namespace, &view.name, owner);
    let confirmed = member.member.annotations().get(labels::annotation::ADOPTED_BY);
    member.member.spec.cluster_token == token || confirmed.is_some_and(|uid| uid == owner)
}

/// Whether it was the operator that wanted to be rid of it, and not a user.
fn was_taken_out(member: &MemberView) -> bool {
    member.is_told_to_leave() || member.member.annotations().contains_key(labels::annotation::TAKEN_OUT)
}

/// Whether an object is on its way out and its dependents are to stay.
fn is_orphaning(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|f| f == "orphan")
}

/// Whether others were left behind that count on this one's vote: without a cluster there is nobody to take it out of etcd,
/// and nobody who could tell how many votes the others can spare.
fn is_needed(view: &ClusterView, member: &MemberView) -> bool {
    let token = &member.member.spec.cluster_token;
    let record = member.member.status.as_ref().filter(|s| s.member_id.is_some());
    // One whose record was lost may vote, if it has ever had anything to run on.
    let votes = record.map_or(member.pod.is_some() || member.volume.is_some(), |s| s.is_voter);
    let stays = |m: &MemberView| !m.is_deleting() || is_orphaning(&m.member.metadata);
    let others = view.members.iter().filter(|m| m.uid() != member.uid());
    let others = others.filter(|m| m.member.spec.cluster_token == *token && stays(m));
    // What a member has left behind runs on without it.
    votes && (others.count() > 0 || view.strays.iter().any(|stray| !stray.leaving))
}

/// Makes the cluster the owner of members that came without one, so that they go with it (T8).
pub(crate) fn adopt(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| controller_uid(&m.member.metadata).is_none()) {
        plan.act(Action::AdoptMember {
            name: member.name().to_owned(),
            uid: member.uid().to_owned(),
            owners: owners_with(&member.member.metadata, scene),
        });
    }
    let Some(cluster) = scene.cluster.metadata.uid.as_deref() else { return };
    let owned = |m: &&Assessed<'_>| controller_uid(&m.member.metadata) == Some(cluster);
    for member in scene.members.iter().filter(owned).filter(|m| !was_given_to(scene.view, m, cluster)) {
        let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
        plan.act(Action::ConfirmMember { name, uid, cluster: cluster.to_owned() });
    }
}

/// Takes members that the user or a shrink deleted out of a living cluster.
pub(crate) fn remove_leaving(scene: &Scene<'_>, plan: &mut Plan) {
    for member in &scene.members {
        let wanted = labels::for_member(&scene.view.name, member.name());
        if member.member.metadata.labels.as_ref().and_then(|l| l.get(labels::CLUSTER))
            != wanted.get(labels::CLUSTER)
        {
            let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
            plan.act(Action::LabelMember { name, uid, labels: wanted });
        }
        if member.is_deleting() {
            // One at a time: the next one is judged on a list without the last one.
            let removing = plan.actions.iter().any(|a| matches!(a, Action::RemoveFromEtcd { .. }));
            if !removing {
                remove(scene, member, plan);
            }
        } else if !member.has_finalizer() {
            let mut finalizers = member.member.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(labels::FINALIZER.to_owned());
            let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
            plan.act(Action::GuardMember { name, uid, finalizers });
        }
    }
}

fn remove(scene: &Scene<'_>, member: &MemberView, plan: &mut Plan) {
    let name = member.name();
    if !scene.is_formed() {
        if !member.has_finalizer() {
            held_by_others(member, plan);
        } else if outdated::may_hold_data(member) {
            plan.complain(format!(
                "member {name} was deleted, but its etcd may have served clients although the operator has never reached it; \
                 its data is kept. Let the operator reach it, and it is replaced; if its data is not needed, delete the \
                 EtcdCluster"
            ));
            plan.look_again(Next::Soon);
        } else if outdated::withdraw(member, plan) {
            plan.act(release(member, Release::NeverFormed));
        }
        return;
    }
    let Some(list) = scene.membership() else {
        if member.has_finalizer() {
            plan.complain(match scene.split {
                Some(_) => format!(
                    "member {name} was deleted, and is kept while members disagree; what it has may be what the others lack"
                ),
                None => format!(
                    "member {name} was deleted, and can leave once etcd has a quorum again; until then its data is kept"
                ),
            });
        }
        plan.look_again(Next::Soon);
        return;
    };
    let Some(row) = member.row_in(list) else {
        if !member.has_finalizer() {
            held_by_others(member, plan);
            return;
        }
        // With the finalizer goes the volume, and nobody can be asked for the vote of what was on it.
        if !plan.actions.contains(&Action::PersistMembership) {
            plan.act(Action::PersistMembership);
        }
        plan.act(release(member, Release::OutOfEtcd));
        return;
    };
    match may_remove(scene, list, row.id) {
        // Where a list of one is left, or can be an impostor's, it goes on record first who is out.
        Verdict::Safe if is_doubtful(scene, list) && !are_on_record(scene, list, member) => {
            plan.look_again(Next::Now);
        }
        Verdict::Safe => {
            hand_over(scene, list, row.id, plan);
            plan.act(Action::RemoveFromEtcd { member: member.name().to_owned(), id: row.id });
            plan.look_again(Next::Now);
        }
        Verdict::Wait(why) => plan.complain(format!("member {name} can not leave: {why}")),
    }
}

/// Only the object of the member is left. What the garbage collector waits for comes to an end by itself.
fn held_by_others(member: &MemberView, plan: &mut Plan) {
    let finalizers = member.member.metadata.finalizers.iter().flatten().map(String::as_str);
    let theirs: Vec<_> = finalizers.filter(|f| !["foregroundDeletion", "orphan"].contains(f)).collect();
    if !theirs.is_empty() {
        plan.complain(format!(
            "EtcdMember {} was deleted and is not needed any more, but stays with its volume because of the finalizer {}, which \
             is not this operator's; whoever put it there has to take it off",
            member.name(),
            theirs.join(", ")
        ));
    }
}

/// Whether it is written down of this member, and of all that are out already, that they leave.
fn are_on_record(scene: &Scene<'_>, list: &Membership, member: &MemberView) -> bool {
    let others = scene.members.iter().filter(|m| m.is_deleting() && m.has_joined());
    let mut out = others.filter(|m| m.uid() == member.uid() || m.row_in(list).is_none());
    out.all(|m| m.is_told_to_leave())
}

fn is_doubtful(scene: &Scene<'_>, list: &Membership) -> bool {
    list.members.len() == 2 || scene.members.iter().any(|m| m.may_turn_impostor())
}

/// T22: a leader that is asked to leave hands over first, so that writes do not wait for an election.
fn hand_over(scene: &Scene<'_>, list: &Membership, leaving: u64, plan: &mut Plan) {
    let leads =
        |id| scene.members.iter().filter_map(|m| m.serving()).any(|s| s.leader == id && s.member_id == id);
    if !leads(leaving) {
        return;
    }
    let from = list.members.iter().find(|row| row.id == leaving).and_then(|row| scene.member_of(row));
    let heir = list.voters().filter(|row| row.id != leaving).find_map(|row| {
        let member = scene.member_of(row).filter(|m| m.serving().is_some() && !m.is_deleting())?;
        Some((member.name().to_owned(), row.id))
    });
    if let (Some(from), Some((to, id))) = (from, heir) {
        plan.act(Action::MoveLeader { from: from.name().to_owned(), to, id });
    }
}

fn release(member: &MemberView, because: Release) -> Action {
    let finalizers = member.member.metadata.finalizers.iter().flatten();
    Action::ReleaseMember {
        name: member.name().to_owned(),
        uid: member.uid().to_owned(),
        finalizers: finalizers.filter(|f| *f != labels::FINALIZER).cloned().collect(),
        because,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, estrange, now};
    use api::EtcdCluster;

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
        assert_ne!(
            unwanted.condition(conditions::AVAILABLE),
            "False/Paused",
            "something may have been written"
        );
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
        stray.view.strays = vec![crate::Stray { kind: crate::Kind::Pod, name: "c-x".into(), leaving: false }];
        assert_eq!(stray.plan().actions, []);

        let mut forgotten = left_behind();
        forgotten.member(1).member.status = None;
        assert_eq!(forgotten.plan().actions, [], "its record was lost, and it may vote");
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
    fn h10_a_cluster_that_is_not_seen_is_looked_for_before_its_members_go() {
        let mut world = world(1);
        delete(world.member(0));
        let uid = world.view.cluster.take().unwrap().metadata.uid;
        let actions = world.plan().actions;
        let [Action::ReleaseMember { because: Release::ClusterDeleted { cluster, uid: asked }, .. }] =
            &actions[..]
        else {
            panic!("{actions:?}")
        };
        assert_eq!((cluster.as_str(), asked), ("c", &uid), "the live look is for this very object");
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
    fn a_member_without_our_finalizer_gets_it() {
        let mut world = world(1);
        world.member(0).member.metadata.finalizers = Some(vec!["theirs".into()]);
        assert!(matches!(&world.pass()[..], [Action::GuardMember { finalizers, .. }]
            if *finalizers == ["theirs", labels::FINALIZER]));
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
    fn t8_a_member_adopted_without_an_owner_is_ours_and_gets_one() {
        let mut world = world(3);
        let theirs = world.member(1).member.metadata.owner_references.take();
        assert!(theirs.is_some());
        assert!(matches!(&world.pass()[..], [Action::AdoptMember { owners, .. }] if owners.len() == 1));
        assert_eq!(world.plan().actions, []);
        assert_eq!(world.status().ready_members, 3);
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
        view.members[0]
            .member
            .annotations_mut()
            .insert(labels::annotation::ADOPTED_BY.into(), "second".into());
        assert!(matches!(&world.plan().actions[..], [Action::ReleaseMember { .. }]));
    }

    #[test]
    fn t25_who_was_taken_up_is_confirmed_once() {
        let mut world = world(1);
        world.view.cluster.as_mut().unwrap().metadata.uid = Some("second".into());
        world.member(0).member.metadata.owner_references = None;
        assert!(matches!(&world.pass()[..], [Action::AdoptMember { .. }, ..]));
        assert!(matches!(&world.pass()[..], [Action::ConfirmMember { cluster, .. }] if cluster == "second"));
        assert_eq!(world.pass(), []);
        // Also one that its user has deleted: it goes with the cluster that it was taken up by.
        world.member(0).member.annotations_mut().clear();
        delete(world.member(0));
        assert!(world.pass().iter().any(|a| matches!(a, Action::ConfirmMember { .. })));
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
        assert!(
            matches!(&world.plan().actions[..], [Action::ReleaseMember { .. }]),
            "nothing is left to keep"
        );

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
    fn t12_a_whole_cluster_of_deleted_members_is_replaced_one_by_one() {
        let mut world = world(3);
        let old: Vec<_> = world.view.members.iter().map(|m| m.name().to_owned()).collect();
        for index in 0..3 {
            delete(world.member(index));
        }
        world.settle();
        assert_eq!(world.view.members.len(), 3);
        assert!(world.view.members.iter().all(|m| !old.contains(&m.name().to_owned())));
        assert_eq!(
            world.status().cluster_id.as_deref(),
            Some("00000000000000c1"),
            "and it is the same cluster"
        );
    }

    #[test]
    fn t1_two_members_are_not_removed_on_the_same_list() {
        let mut world = world(3);
        delete(world.member(0));
        delete(world.member(1));
        let removals =
            world.plan().actions.iter().filter(|a| matches!(a, Action::RemoveFromEtcd { .. })).count();
        assert_eq!(removals, 1);
    }
}
