//! Who is in etcd: one change at a time, each on the linearizable list of the pass. Members join as learners, one after
//! the other, and get their votes at the end.
//!
//! Join first, promote last: after a promotion etcd refuses the next add until the new voter has been connected for
//! five seconds, so promoting in between would cost five seconds a member. The next joiner is added only when the last
//! one has started: whoever starts resolves the name of every other member and asks for its version before it serves,
//! and one that is listed but not there yet costs many seconds.

use etcd::Membership;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use crate::command::{self, max_learners};
use crate::disruption::{Verdict, may_promote, may_remove};
use crate::view::{Assessed, Scene};
use crate::{Action, Ending, Next, Plan, healing, joiner, orphans, outdated, pause, shrink};

/// A joiner that has not started by then does not keep the votes of the others waiting.
const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// One step towards the wanted membership. What changes it rests on the linearizable list of this pass.
pub(crate) fn converge(scene: &Scene<'_>, plan: &mut Plan) {
    if pause::sleep_or_wake(scene, plan) {
        return;
    }
    let wanted = usize::try_from(scene.target().replicas).unwrap_or(0);
    let present = scene.running().count();
    if wanted == 0 && present == 0 {
        return;
    }
    let Some(list) = scene.membership() else {
        if wanted == 0 && scene.running().all(|m| m.is_unused()) {
            return;
        }
        plan.wait_for("MemberList failed: no answer from a quorum of etcd");
        healing::tell(scene, plan);
        if scene.members.iter().any(|m| m.living_pod().is_some()) {
            plan.look_again(Next::Soon);
        }
        return;
    };
    let leaves = |m: &&Assessed<'_>| m.is_deleting() && !scene.is_out(m) && !is_last_voter(list, m);
    if let Some(leaving) = scene.members.iter().find(leaves) {
        // H11: one membership change at a time.
        let name = leaving.name();
        plan.wait_for(format!("waiting for in-flight deletion of member {name} before further scaling"));
        // It may be held up by one that can not come back by itself: then that one goes first, or nobody ever does.
        let stuck = leaving.row_in(list).is_some_and(|row| may_remove(scene, list, row.id) != Verdict::Safe);
        if stuck && !orphans::remove(scene, list, plan) && !healing::replace_broken(scene, list, plan) {
            tell_overtaken(scene, list, plan);
        }
        return;
    }
    if orphans::remove(scene, list, plan)
        || healing::replace_broken(scene, list, plan)
        || outdated::remake_joiner(scene, list, plan)
    {
        return;
    }
    let is_full = list.learners().count() >= max_learners(scene);
    if present > wanted {
        shrink::shrink(scene, list, plan);
    } else if let Some(pending) = next_pending(scene, list, is_full) {
        // H5: what was begun is finished first. A learner whose Pod can not start yet can never be promoted.
        complete(list, pending, plan);
    } else if let Some(starting) = scene.running().find(|m| !m.is_pending() && !has_started(list, m)) {
        await_start(scene, list, starting, plan);
    } else if present == wanted || is_full {
        promote(scene, list, plan);
    } else {
        grow(scene, list, plan);
    }
}

/// The pending member that can be helped now: one that etcd has already, or one that it has room for.
fn next_pending<'s, 'a>(scene: &'s Scene<'a>, list: &Membership, is_full: bool) -> Option<&'s Assessed<'a>> {
    let mut pending = scene.running().filter(|m| m.is_pending());
    let listed = scene.running().find(|m| m.is_pending() && m.row_in(list).is_some());
    listed.or_else(|| pending.next().filter(|_| !is_full))
}

/// The last voter can leave only after others have joined, so its leaving does not keep them out.
fn is_last_voter(list: &Membership, member: &Assessed<'_>) -> bool {
    let mut voters = list.voters();
    let last = voters.next().filter(|row| member.stands_for(row));
    last.is_some() && voters.next().is_none()
}

/// Creates the next member, unless a voter is silent: a cluster that is not whole is not grown (H3).
fn grow(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    let silent = |row: &&etcd::Member| scene.member_of(row).is_none_or(|m| m.serving().is_none());
    if let Some(silent) = list.voters().find(silent) {
        let name = &silent.name;
        plan.wait_for(format!(
            "waiting for existing members to become Ready before next scale-up step: {name} is silent"
        ));
        plan.look_again(Next::Soon);
        return;
    }
    let name = scene.fresh_member_name();
    plan.act(Action::CreateMember(Box::new(joiner::joiner(scene, &name))));
}

/// A member that has been told whom to join and has not started yet.
fn await_start(scene: &Scene<'_>, list: &Membership, starting: &Assessed<'_>, plan: &mut Plan) {
    let name = starting.name();
    plan.wait_for(format!("waiting for member {name} to start"));
    if starting.living_pod().is_some() {
        plan.look_again(Next::Soon);
    }
    if starting.status.member_id.is_none() {
        refresh(list, starting, plan);
    } else if starting.has_joined() && starting.row_in(list).is_none() {
        plan.complain(format!(
            "etcd does not list member {name} although nobody here took it out; it is kept, because it may hold data that the \
             others do not have. Have it replaced if it does not: kubectl delete etcdmember {name}"
        ));
    }
    if starting.seen.silent.is_some_and(|silent| silent > PATIENCE) {
        promote(scene, list, plan);
    }
}

/// T13: a joiner that etcd has and that an earlier change overtook can not start before it is told, whatever else is
/// waited for; it may be the very one whose vote is missing.
fn tell_overtaken(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    let starting =
        |m: &&Assessed<'_>| m.status.member_id.is_none() && m.row_in(list).is_some() && !has_started(list, m);
    for joiner in scene.running().filter(starting) {
        refresh(list, joiner, plan);
    }
}

/// T13: etcd refuses to start on a list that is not the present one, so a joiner that was overtaken by another change
/// is told anew and started anew.
fn refresh(list: &Membership, starting: &Assessed<'_>, plan: &mut Plan) {
    let spec = &starting.member.spec;
    if spec.bootstrap {
        return;
    }
    let present = joiner::initial_cluster(list);
    if starting.row_in(list).is_none() || spec.initial_cluster != present {
        complete(list, starting, plan);
    } else if let Some(pod) = starting.living_pod()
        && command::initial_cluster(pod).is_some_and(|list| list != present)
    {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let because = Ending::Overtaken { member: starting.uid().to_owned() };
        plan.act(Action::DeletePod { name: starting.name().to_owned(), uid, because });
    }
}

/// Brings a pending member into etcd and tells it whom to join. Safe to repeat after a crash at any point.
fn complete(list: &Membership, pending: &Assessed<'_>, plan: &mut Plan) {
    if pending.row_in(list).is_none() {
        let (member, peer_url) = (pending.name().to_owned(), pending.peer_url());
        plan.act(Action::AddLearner { member, peer_url });
        // The list that the member joins has to be read again, linearizably.
        plan.look_again(Next::Now);
        return;
    }
    plan.act(Action::WireMember {
        name: pending.name().to_owned(),
        uid: pending.uid().to_owned(),
        initial_cluster: joiner::initial_cluster(list),
    });
}

/// Gives every learner that serves its vote.
fn promote(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    for learner in list.learners() {
        let Some(member) = scene.member_of(learner) else { continue };
        plan.look_again(Next::Soon);
        if member.serving().is_none() || member.is_deleting() {
            continue;
        }
        if let Some(voter) = unsettled(scene, list) {
            plan.wait_for(format!(
                "member {} gets its vote later: the Pod of voter {} could still begin anew, and has to be told first",
                member.name(),
                voter.name()
            ));
        } else if let Verdict::Wait(why) = may_promote(scene, list) {
            plan.wait_for(format!("member {} gets its vote later: {why}", member.name()));
        } else if is_on_record(member) {
            plan.act(Action::Promote { member: member.name().to_owned(), id: learner.id });
        } else if !member.has_joined() && member.status.member_id.is_some() {
            // It goes on record at the end of this pass.
            plan.look_again(Next::Now);
        }
    }
}

/// A voter whose etcd could begin anew without its data, as far as its Pod can be told otherwise: with more votes than its
/// own there would be two clusters then.
fn unsettled<'a>(scene: &'a Scene<'_>, list: &Membership) -> Option<&'a Assessed<'a>> {
    let voters = list.voters().filter_map(|row| scene.member_of(row));
    let anew = |m: &&Assessed<'_>| {
        m.living_pod().is_some_and(|pod| command::may_begin_anew(pod, &command::alone(m)))
    };
    voters.into_iter().find(anew)
}

/// Whether it is written down, on the member and on its Pod, that the member has joined. From its first vote on it must
/// never come back without its data (T7), also if this process ends right after the promotion.
fn is_on_record(member: &Assessed<'_>) -> bool {
    let settled = |pod: &Pod| !command::may_begin_anew(pod, &command::alone(member));
    member.has_joined() && member.pod.as_ref().is_some_and(settled)
}

/// Whether the member's etcd has run at least once: it answers, or it has told the cluster its name.
fn has_started(list: &Membership, member: &Assessed<'_>) -> bool {
    member.serving().is_some() || member.row_in(list).is_some_and(|row| !row.name.is_empty())
}

#[cfg(test)]
mod tests {
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
        let promotes =
            |world: &World| world.plan().actions.iter().any(|a| matches!(a, Action::Promote { .. }));
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
        let urls: Vec<_> =
            world.view.members.iter().map(|m| format!("{}={}", m.name(), m.peer_url())).collect();
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
        world.rows().push(etcd::Member {
            id: 77,
            name: String::new(),
            peer_urls: vec![url],
            is_learner: true,
        });
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
    fn t7_nobody_votes_before_it_is_on_record_that_it_must_not_begin_anew() {
        let mut world = settled(3);
        world.rows()[2].is_learner = true;
        world.member(2).member.status.as_mut().unwrap().member_id = None;
        let plan = world.plan();
        assert!(
            !steps(&plan.actions).contains(&"LearnerPromoted"),
            "the member does not say that it has joined"
        );
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
            let command =
                m.pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].command.as_mut().unwrap();
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
        let command =
            world.member(0).pod.as_mut().unwrap().spec.as_mut().unwrap().containers[0].command.as_mut();
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
}
