//! Fewer members than there are. The one that leaves is the one that is missed least, and only if etcd would agree.

use etcd::Membership;

use crate::disruption::{Disruption, is_own_wish};
use crate::view::{Assessed, Scene};
use crate::{Leaving, Plan};

/// Takes one member out; the next one follows when it is gone.
pub(crate) fn shrink(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    // Nobody here took it out, so what it has may be what the others lack; and without it there may be no surplus.
    if let Some(unlisted) = scene.running().find(|m| m.has_joined() && m.row_in(list).is_none()) {
        let name = unlisted.name();
        plan.complain(format!(
            "scaling down waits: etcd does not list member {name}, although nobody here took it out; it is kept, because it may \
             hold data that the others do not have. If it does not: kubectl delete etcdmember {name}"
        ));
        return;
    }
    let mut candidates: Vec<_> = scene.running().collect();
    candidates.sort_by_key(|m| (usefulness(list, m), !is_own_wish(m), std::cmp::Reverse(newness(m))));
    let mut refused = None;
    let wanted = scene.target().replicas;
    for victim in candidates {
        let verdict = plan.disrupt(scene, victim, &Disruption::Delete(Leaving::Surplus { wanted }));
        let Some(why) = verdict.why_not() else { return };
        refused = refused.or(Some((victim.name().to_owned(), why)));
    }
    if let Some((name, why)) = refused {
        plan.complain(format!("scaling down waits, member {name} can not leave: {why}"));
    }
}

/// T22: who is not in etcd yet goes first, then learners, then voters that are silent (before all others those of whom the
/// kubelet knows nothing better), then those that are not ready, then the rest. Of those that are alike, the one goes on that was already about to.
fn usefulness(list: &Membership, member: &Assessed<'_>) -> u8 {
    match member.row_in(list) {
        None => 0,
        Some(row) if row.is_learner => 1,
        Some(_) if !member.is_ready() && member.serving().is_none() => 2 + u8::from(has_ready_pod(member)),
        Some(_) if !member.is_ready() => 4,
        Some(_) => 5,
    }
}

/// Also one that ends just now: the next one comes back with the same data.
fn has_ready_pod(member: &Assessed<'_>) -> bool {
    let conditions = member.pod.as_ref().and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn newness<'a>(member: &'a Assessed<'_>) -> (Option<jiff::Timestamp>, &'a str) {
    (member.member.metadata.creation_timestamp.as_ref().map(|t| t.0), member.view.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;
    use crate::fixtures::{World, unready};
    use api::EtcdCluster;

    /// A settled cluster that has just been asked to be smaller.
    fn world(from: i32, to: i32) -> World {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(from));
        world.aim_at(to);
        world
    }

    fn victim(world: &World) -> Option<String> {
        world.plan().actions.into_iter().find_map(|a| match a {
            Action::DeleteMember { name, because: Leaving::Surplus { .. }, .. } => Some(name),
            _ => None,
        })
    }

    /// Without anything else it would go last.
    fn oldest(world: &mut World, index: usize) {
        let then = api::conditions::wire_time(crate::fixtures::now() - jiff::SignedDuration::from_hours(9));
        world.member(index).member.metadata.creation_timestamp = Some(then);
    }

    #[test]
    fn members_leave_one_at_a_time_until_enough_are_left() {
        let mut world = world(5, 3);
        let done = world.settle();
        let steps: Vec<_> = done.iter().filter_map(Action::reason).collect();
        assert_eq!(steps, ["ScalingDown", "MemberRemoved", "ScalingDown", "MemberRemoved"]);
        assert_eq!(world.condition(api::conditions::AVAILABLE), "True/QuorumHealthy");
    }

    #[test]
    fn t7_a_member_that_etcd_does_not_list_although_nobody_took_it_out_is_not_scaled_away() {
        let mut world = world(3, 2);
        world.rows().remove(2);
        world.member(2).etcd = None;
        let actions = world.plan().actions;
        assert!(!actions.iter().any(|a| matches!(a, Action::DeleteMember { .. })), "{actions:?}");
        assert!(world.plan().complaint.unwrap().contains("scaling down waits: etcd does not list member"));
    }

    #[test]
    fn t22_the_newest_goes_if_all_are_well() {
        let mut world = world(3, 1);
        let newest = api::conditions::wire_time(crate::fixtures::now() + jiff::SignedDuration::from_secs(9));
        world.member(1).member.metadata.creation_timestamp = Some(newest);
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[1].name()));
    }

    #[test]
    fn t22_an_unready_voter_goes_before_the_newest() {
        let mut world = world(4, 3);
        oldest(&mut world, 1);
        unready(world.member(1).pod.as_mut().unwrap());
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[1].name()));
    }

    #[test]
    fn t22_a_silent_voter_goes_before_one_whose_pod_is_not_ready() {
        let mut world = world(5, 3);
        oldest(&mut world, 1);
        for index in [1, 2] {
            unready(world.member(index).pod.as_mut().unwrap());
        }
        world.member(1).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[1].name()));
    }

    #[test]
    fn t22_one_whose_pod_just_ends_stays_rather_than_one_that_is_down() {
        let mut world = world(5, 3);
        oldest(&mut world, 1);
        for index in [1, 2] {
            world.member(index).etcd = None;
            let pod = world.member(index).pod.as_mut().unwrap();
            pod.metadata.deletion_timestamp = Some(api::conditions::wire_time(crate::fixtures::now()));
        }
        unready(world.member(1).pod.as_mut().unwrap());
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[1].name()));
    }

    #[test]
    fn t22_whoever_was_about_to_leave_goes_before_another_that_is_missed_as_little() {
        let mut world = world(5, 3);
        oldest(&mut world, 1);
        for index in [1, 2] {
            unready(world.member(index).pod.as_mut().unwrap());
            world.member(index).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        }
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[2].name()));
        let taken_out = (api::labels::annotation::TAKEN_OUT.to_owned(), "true".to_owned());
        world.member(1).member.metadata.annotations.get_or_insert_default().extend([taken_out]);
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[1].name()));
    }

    #[test]
    fn t22_a_learner_goes_before_any_voter() {
        let mut world = world(4, 3);
        unready(world.member(1).pod.as_mut().unwrap());
        world.rows()[2].is_learner = true;
        assert_eq!(victim(&world).as_deref(), Some(world.view.members[2].name()));
    }

    #[test]
    fn t22_nobody_goes_whose_removal_would_cost_the_quorum() {
        let mut world = world(3, 1);
        for index in [1, 2] {
            world.member(index).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        }
        assert_eq!(victim(&world), None);
        assert!(world.plan().complaint.unwrap().contains("scaling down waits"));
    }

    #[test]
    fn t22_a_leader_hands_over_before_it_leaves() {
        let mut world = world(3, 2);
        let name = victim(&world).unwrap();
        world.pass();
        let id = world.rows().iter().find(|r| r.name == name).unwrap().id;
        for member in &mut world.view.members {
            if let Some(Ok(status)) = &mut member.etcd {
                status.leader = id;
            }
        }
        let actions = world.plan().actions;
        let leaves = matches!(&actions[..],
            [Action::MoveLeader { from, .. }, Action::RemoveFromEtcd { .. }, ..] if *from == name);
        assert!(leaves, "{actions:?}");
    }
}
