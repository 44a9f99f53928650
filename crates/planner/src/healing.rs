//! Members that can not come back by themselves, and when they may be replaced. What is wrong is read off the member's
//! own objects; whether it may go is decided by `disruption`, from live evidence (T1). The seed and both media are
//! treated alike (H30).

use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod};

use crate::disruption::{Verdict, may_remove};
use crate::view::{MemberView, Scene};
use crate::{Action, Leaving, Plan};

/// Restarts after which a container is not believed to recover.
const RESTARTS: i32 = 5;

/// Replaces one broken member, if the others can do without it. False when there is nothing to do about it now: the next
/// member to join may be what the others wait for.
pub(crate) fn replace_broken(scene: &Scene<'_>, list: &etcd::Membership, plan: &mut Plan) -> bool {
    let Some((member, why)) = scene.running().find_map(|m| Some((m, broken(scene, m)?))) else {
        return false;
    };
    let row = member.row_in(list);
    match row.map_or(Verdict::Safe, |row| may_remove(scene, list, row.id)) {
        Verdict::Safe => {
            plan.act(Action::DeleteMember {
                name: member.name().to_owned(),
                uid: member.uid().to_owned(),
                because: Leaving::Broken(why),
            });
            true
        }
        Verdict::Wait(unsafe_because) => {
            plan.complain(format!("member {} {why}, but is kept: {unsafe_because}", member.name()));
            false
        }
    }
}

/// What is wrong with a member that will not recover; `None` for one that may.
pub(crate) fn broken(scene: &Scene<'_>, member: &MemberView) -> Option<String> {
    if let Some(loss) = lost_data(member) {
        return Some(loss.to_owned());
    }
    if let Some(pod) = member.pod.as_ref().filter(|p| member.owns(&p.metadata)) {
        if let Some(restarts) = crash_loops(pod) {
            return Some(format!("is persistently crash-looping ({restarts} restarts)"));
        }
        return lost_node(scene, member, pod);
    }
    None
}

/// Whether the member's data is gone for good.
pub(crate) fn lost_data(member: &MemberView) -> Option<&'static str> {
    let status = member.member.status.as_ref()?;
    if member.member.spec.dormant {
        return None;
    }
    if member.is_memory() {
        // A Pod that is on its way out may still be the one that holds the data.
        let known = status.pod_uid.as_deref()?;
        let pod = member.pod.as_ref().filter(|p| p.metadata.uid.as_deref() == Some(known));
        return match pod {
            None => Some("lost its Pod, and with it its memory-backed data"),
            Some(pod) if has_ended(pod) => {
                Some("has a Pod that has ended, and with it its memory-backed data")
            }
            Some(_) => None,
        };
    }
    status.member_id.as_ref()?;
    match &member.volume {
        None => Some("lost its volume"),
        Some(found) if status.pvc_uid.is_some() && found.metadata.uid != status.pvc_uid => {
            Some("has another volume than the one it joined with")
        }
        Some(_) => None,
    }
}

/// Failed or Succeeded: evicted, or shut down with its node. Such a Pod never runs again (T4).
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// The number of restarts of an etcd that keeps dying. Running out of memory is not cured by a replacement (H32).
fn crash_loops(pod: &Pod) -> Option<i32> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let etcd = containers.iter().find(|c| c.name == "etcd")?;
    (!etcd.ready && etcd.restart_count >= RESTARTS && !out_of_memory(etcd)).then_some(etcd.restart_count)
}

fn out_of_memory(container: &ContainerStatus) -> bool {
    let states = [&container.state, &container.last_state];
    let reasons = states.into_iter().filter_map(|s| s.as_ref()?.terminated.as_ref()?.reason.as_deref());
    reasons.into_iter().any(|reason| reason == "OOMKilled")
}

/// The Pod is stuck on a node that does not answer, or its volume is on a node that is gone, for longer than the
/// operator was told to wait.
fn lost_node(scene: &Scene<'_>, member: &MemberView, pod: &Pod) -> Option<String> {
    let patience = scene.view.settings.lost_member_timeout?;
    let waited = |since: jiff::Timestamp| scene.now.duration_since(since) > patience;
    if let Some(deadline) = &pod.metadata.deletion_timestamp {
        return waited(deadline.0).then(|| "has a Pod that does not end, its node seems gone".to_owned());
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let unschedulable = conditions.iter().find(|c| {
        c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
    })?;
    let since = unschedulable.last_transition_time.as_ref()?.0;
    // Where nothing ties the Pod to a node, another member would wait just as long.
    let tied = member.has_joined() || member.volume.as_ref().is_some_and(is_bound);
    (tied && waited(since)).then(|| "has a Pod that no node can run".to_owned())
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, now, unready};
    use api::EtcdCluster;
    use jiff::SignedDuration;
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, PodCondition};

    fn world() -> World {
        World::settled(EtcdCluster::test("ns", "c"))
    }

    fn in_memory(replicas: i32) -> World {
        World::settled(EtcdCluster::test("ns", "c").replicas(replicas).memory("64Mi"))
    }

    fn silent(member: &mut MemberView) {
        member.etcd = Some(Err(etcd::Error::Unreachable { member: member.name().to_owned() }));
    }

    fn crash(member: &mut MemberView) {
        silent(member);
        let pod = member.pod.as_mut().unwrap();
        unready(pod);
        container(pod).restart_count = 5;
    }

    fn vanish(member: &mut MemberView) {
        member.pod = None;
        member.etcd = None;
    }

    fn container(pod: &mut Pod) -> &mut ContainerStatus {
        &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0]
    }

    fn replaced(world: &World) -> Option<String> {
        world.plan().actions.into_iter().find_map(|a| match a {
            Action::DeleteMember { name, because: Leaving::Broken(_), .. } => Some(name),
            _ => None,
        })
    }

    #[test]
    fn h30_a_crash_looping_member_is_replaced_also_the_seed() {
        for index in 0..3 {
            let mut world = world();
            crash(world.member(index));
            let name = world.view.members[index].name().to_owned();
            assert_eq!(replaced(&world), Some(name.clone()));
            assert_eq!(world.status().broken_members, 1);
            world.settle();
            assert_eq!(world.view.members.len(), 3);
            assert!(world.view.members.iter().all(|m| m.name() != name));
        }
    }

    #[test]
    fn t1_the_only_member_keeps_its_data() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        crash(world.member(0));
        world.view.etcd.membership = None;
        assert_eq!(replaced(&world), None);
        assert_eq!(world.condition(api::conditions::AVAILABLE), "False/QuorumLost");
    }

    #[test]
    fn t1_a_cluster_of_which_all_crash_keeps_its_data() {
        let mut world = world();
        for index in 0..3 {
            crash(world.member(index));
        }
        world.view.etcd.membership = None;
        assert_eq!(world.plan().actions, []);
        assert_eq!(world.status().broken_members, 3);
    }

    #[test]
    fn t1_a_member_is_kept_while_the_others_have_no_quorum_without_it() {
        let mut world = world();
        crash(world.member(0));
        silent(world.member(1));
        assert_eq!(replaced(&world), None);
        assert!(world.plan().complaint.unwrap().contains("is kept"));
    }

    #[test]
    fn only_one_is_replaced_at_a_time() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(5));
        crash(world.member(0));
        crash(world.member(1));
        for _ in 0..2 {
            world.pass();
            assert_eq!(world.view.members.iter().filter(|m| m.is_deleting()).count(), 1);
        }
    }

    #[test]
    fn h32_what_counts_as_stuck() {
        let judge = |change: fn(&mut Pod)| {
            let mut world = world();
            crash(world.member(1));
            change(world.member(1).pod.as_mut().unwrap());
            replaced(&world).is_some()
        };
        fn killed() -> Option<ContainerState> {
            let reason = Some("OOMKilled".to_owned());
            let terminated = Some(ContainerStateTerminated { reason, ..ContainerStateTerminated::default() });
            Some(ContainerState { terminated, ..ContainerState::default() })
        }
        assert!(judge(|_| {}), "no last termination counts");
        assert!(!judge(|pod| container(pod).ready = true));
        assert!(!judge(|pod| container(pod).restart_count = 4), "below the threshold");
        assert!(!judge(|pod| container(pod).name = "other".into()));
        assert!(!judge(|pod| pod.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()))));
        assert!(!judge(|pod| container(pod).last_state = killed()), "out of memory before");
        assert!(!judge(|pod| container(pod).state = killed()), "out of memory now");
    }

    #[test]
    fn h27_a_memory_member_that_lost_its_pod_is_replaced() {
        let mut world = in_memory(3);
        vanish(world.member(2));
        let name = world.view.members[2].name().to_owned();
        assert_eq!(replaced(&world), Some(name));
        world.settle();
        assert_eq!(world.condition(api::conditions::AVAILABLE), "True/QuorumHealthy");
    }

    #[test]
    fn h27_a_terminating_pod_still_holds_its_data() {
        let mut world = in_memory(3);
        let pod = world.member(2).pod.as_mut().unwrap();
        pod.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
        assert_eq!(replaced(&world), None);
    }

    #[test]
    fn t4_a_pod_that_has_ended_is_replaced_by_a_new_one_on_the_same_volume() {
        let mut world = world();
        silent(world.member(1));
        let pod = world.member(1).pod.as_mut().unwrap();
        unready(pod);
        pod.status.as_mut().unwrap().phase = Some("Failed".into());
        let name = world.member(1).name().to_owned();
        let done = world.settle();
        let restarted = matches!(&done[..], [Action::DeletePod { name: gone, .. }, Action::CreatePod(_)] if *gone == name);
        assert!(restarted, "{done:?}");
    }

    #[test]
    fn t4_a_memory_pod_that_has_ended_takes_its_data_with_it() {
        let mut world = in_memory(3);
        silent(world.member(1));
        let pod = world.member(1).pod.as_mut().unwrap();
        unready(pod);
        pod.status.as_mut().unwrap().phase = Some("Failed".into());
        assert!(replaced(&world).is_some());
    }

    #[test]
    fn t7_a_member_without_its_volume_is_replaced() {
        let mut world = world();
        world.member(1).volume = None;
        vanish(world.member(1));
        assert!(replaced(&world).is_some());
    }

    #[test]
    fn t7_a_swapped_volume_is_not_used() {
        let mut world = world();
        world.member(1).volume.as_mut().unwrap().metadata.uid = Some("another".into());
        vanish(world.member(1));
        assert!(!world.plan().actions.iter().any(|a| matches!(a, Action::CreatePod(_))));
        assert!(replaced(&world).is_some());
    }

    #[test]
    fn a_member_on_a_lost_node_is_replaced_after_the_time_it_was_given() {
        let mut world = world();
        silent(world.member(1));
        let at = |ago: i64| Some(api::conditions::wire_time(now() - SignedDuration::from_secs(ago)));
        world.member(1).pod.as_mut().unwrap().metadata.deletion_timestamp = at(299);
        assert_eq!(replaced(&world), None);
        world.member(1).pod.as_mut().unwrap().metadata.deletion_timestamp = at(301);
        assert!(replaced(&world).is_some());
        world.view.settings.lost_member_timeout = None;
        assert_eq!(replaced(&world), None, "switched off");
    }

    #[test]
    fn a_member_whose_pod_no_node_can_run_is_replaced_after_the_same_time() {
        let mut world = world();
        silent(world.member(1));
        let pod = world.member(1).pod.as_mut().unwrap();
        let since = now() - SignedDuration::from_secs(301);
        pod.status.as_mut().unwrap().conditions = Some(vec![PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some("Unschedulable".into()),
            last_transition_time: Some(api::conditions::wire_time(since)),
            ..PodCondition::default()
        }]);
        assert!(replaced(&world).is_some());

        // One that has not joined goes only if its volume ties it to a node.
        let joiner = world.member(1);
        joiner.member.status.as_mut().unwrap().member_id = None;
        assert_eq!(replaced(&world), None);
        let claim = world.member(1).volume.as_mut().unwrap();
        claim.spec.as_mut().unwrap().volume_name = Some("pv".into());
        assert!(replaced(&world).is_some());
    }

    #[test]
    fn t12_nothing_left_is_a_state_of_its_own_and_nothing_is_bootstrapped_over_it() {
        let mut sole = in_memory(1);
        vanish(sole.member(0));
        sole.view.etcd.membership = None;
        assert_eq!(sole.condition(api::conditions::AVAILABLE), "False/AllMembersLost");
        assert_eq!(sole.plan().actions, []);

        let mut none = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        none.view.members.clear();
        none.view.etcd.membership = None;
        none.settle();
        assert_eq!(none.condition(api::conditions::AVAILABLE), "False/AllMembersLost");
        assert_eq!(none.condition(api::conditions::PROGRESSING), "False/AllMembersLost");
        assert_eq!(none.condition(api::conditions::DEGRADED), "True/AllMembersLost");
        assert!(none.view.members.is_empty());
        let later = crate::plan(&none.view, now() + SignedDuration::from_hours(1));
        assert_eq!(later.cluster_status, none.view.cluster.as_ref().unwrap().status, "and it is said once");
    }
}
