//! What each EtcdMember should say about itself, from the same view that decides.

use api::conditions::{self, NewCondition, reason};
use api::{EtcdCluster, EtcdMemberStatus, ids, labels, names};
use etcd::Membership;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::pod::etcd_status;
use crate::view::MemberView;

/// The role of a member that is to be taken out of etcd. Where a list of one could be an impostor's, it goes on record
/// before that is done: who is not on a list without it was taken out by nobody (T28).
pub(crate) const LEAVING: &str = "leaving";

/// `list`: the one of this pass, if it can be believed.
pub(crate) fn assess(
    list: Option<&Membership>,
    cluster: &EtcdCluster,
    member: &MemberView,
    now: Timestamp,
) -> EtcdMemberStatus {
    let mut status = member.member.status.clone().unwrap_or_default();
    let spec = &member.member.spec;
    status.selector = Some(labels::member_selector(&spec.cluster_name, member.name()));

    let claim = member.volume.as_ref().filter(|v| member.owns(&v.metadata));
    if let Some(claim) = claim {
        status.pvc_name = Some(names::pvc(member.name()));
        // T7: fixed once it is known that there is data on it. Until then the claim that is there is the one it runs on.
        if status.pvc_uid.is_none() || !member.has_joined() {
            status.pvc_uid = claim.metadata.uid.clone();
        }
    }
    let row = list.and_then(|list| member.row_in(list));
    if let Some(row) = row {
        // Listed is not joined: the id stands for a member that has run, and so has data that must not be lost (T7). It is
        // written down together with the place of that data, or a loss of it could not be told.
        let pod = member.pod.as_ref().filter(|p| member.owns(&p.metadata));
        let has_place = if member.is_memory() { pod.is_some() } else { claim.is_some() };
        let placed = member.has_joined() || has_place;
        if placed && (!row.name.is_empty() || member.serving().is_some()) {
            status.member_id = Some(ids::format(row.id));
            // Only what its own etcd has said, under the id that the others know it by.
            let named = member.serving().filter(|s| s.member_id == row.id && s.cluster_id != 0);
            status.cluster_id = status.cluster_id.or(named.map(|s| ids::format(s.cluster_id)));
        }
        status.is_voter = !row.is_learner;
    } else if spec.bootstrap && cluster.status.as_ref().is_none_or(|s| s.cluster_id.is_none()) {
        // The seed is never a learner; its Pod carries the label from the start.
        status.is_voter = true;
    } else if list.is_none() && !member.has_joined() {
        // What is not known is left as it is: a label and a budget that are taken away cost clients and a quorum.
        let labelled = |p: &Pod| p.labels().get(labels::ROLE).is_some_and(|role| role == labels::VOTER);
        let shown = member.pod.as_ref().filter(|p| member.owns(&p.metadata)).is_some_and(labelled);
        status.is_voter = member.serving().map_or(shown, |s| !s.is_learner);
    }

    if let Some(pod) = member.pod.as_ref().filter(|p| member.owns(&p.metadata)) {
        status.pod_name = pod.metadata.name.clone();
        // H27: the Pod a memory-backed member started with is the only one that has its data.
        if status.pod_uid.is_none() || !member.is_memory() {
            status.pod_uid = pod.metadata.uid.clone();
        }
        status.replicas = 1;
    } else {
        status.pod_name = None;
    }
    if spec.dormant {
        status.pod_name = None;
        status.pod_uid = None;
    }
    if let Some(answer) = member.serving().filter(|s| !s.version.is_empty()) {
        status.version = Some(answer.version.clone());
    }
    // Also one that was taken out, of more than two, before anything about it was on record.
    let is_out = list.is_some_and(|list| list.members.len() > 1) && row.is_none();
    let leaves = member.is_deleting() && (member.is_told_to_leave() || is_out);
    status.role = match row.filter(|_| !spec.dormant) {
        Some(row) => Some(role(row, member).to_owned()),
        None => leaves.then(|| LEAVING.to_owned()),
    };

    let generation = member.member.metadata.generation;
    let mut set = |type_, on: bool, reason, message: String| {
        let condition = NewCondition::new(type_, on, reason, message, generation);
        conditions::set_condition(&mut status.conditions, condition, now);
    };
    let standing = standing(list, member).map_or(Ok(()), Err);
    match standing.and_then(|()| readiness(member, status.member_id.is_some(), status.is_voter, now)) {
        Ok(()) => set(conditions::READY, true, reason::POD_READY, "etcd member is ready".to_owned()),
        Err((reason, message)) => set(conditions::READY, false, reason, message),
    }
    if let Some(running) = status.version.clone() {
        let wanted = &spec.version;
        if &running == wanted {
            let message = format!("running etcd version \"{running}\" matches intended spec.version");
            set(conditions::VERSION_DRIFTED, false, reason::VERSION_MATCHED, message);
        } else {
            let message =
                format!("running etcd version \"{running}\" differs from spec.version \"{wanted}\"");
            set(conditions::VERSION_DRIFTED, true, reason::VERSION_MISMATCH, message);
        }
    }
    status
}

fn role(row: &etcd::Member, member: &MemberView) -> &'static str {
    if member.is_deleting() {
        return LEAVING;
    }
    let leads = member.serving().is_some_and(|s| s.leader == row.id);
    match (row.is_learner, leads) {
        (true, _) => "learner",
        (false, true) => "leader",
        (false, false) => "voter",
    }
}

/// Why a member is not one, although its Pod may be ready: a client that is led to it meets another etcd.
fn standing(list: Option<&Membership>, member: &MemberView) -> Option<(&'static str, String)> {
    if matches!(member.etcd, Some(Err(etcd::Error::Stranger { .. }))) {
        return Some((reason::NOT_IN_CLUSTER, "another cluster's etcd answers in its place".to_owned()));
    }
    let unlisted = list.is_some_and(|list| member.row_in(list).is_none());
    (member.has_joined() && unlisted && !member.member.spec.dormant)
        .then(|| (reason::NOT_IN_CLUSTER, "etcd does not list this member any more".to_owned()))
}

/// Ready: the kubelet says so, or etcd itself before the kubelet has looked for the first time; and etcd has told us the
/// member's id, without which it could not be removed again (H8).
fn readiness(
    member: &MemberView,
    id_known: bool,
    voter: bool,
    now: Timestamp,
) -> Result<(), (&'static str, String)> {
    if member.member.spec.dormant {
        return Err((reason::PAUSED, "the member is paused".to_owned()));
    }
    let Some(pod) = member.pod.as_ref() else {
        return Err((reason::POD_NOT_READY, "there is no Pod".to_owned()));
    };
    if member.living_pod().is_none() {
        return Err((reason::POD_NOT_READY, "the Pod is terminating".to_owned()));
    }
    let ready = is_pod_ready(pod) || (voter && serves_unprobed(member, pod, now));
    if !ready {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
        return Err((reason::POD_NOT_READY, format!("pod phase: {phase}")));
    }
    if !id_known {
        let unplaced = !member.is_memory() && member.volume.is_none();
        let message = if unplaced { "its claim is not seen" } else { "etcd does not list this member yet" };
        return Err((reason::DISCOVERING_MEMBER_ID, message.to_owned()));
    }
    Ok(())
}

/// How long the kubelet may take, by its own clock and by ours, to find a container ready that is: its startup probe, and a
/// round of the next one.
const PROBE_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Whether etcd has answered us, and knows its leader, before the kubelet has found it ready for the first time since it
/// was started.
fn serves_unprobed(member: &MemberView, pod: &Pod, now: Timestamp) -> bool {
    let Some(status) = &pod.status else { return false };
    let started = etcd_status(pod).and_then(|c| c.state.as_ref()?.running.as_ref()?.started_at.clone());
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready");
    let unready_since = ready.and_then(|c| c.last_transition_time.clone());
    let (Some(started), Some(unready_since)) = (started, unready_since) else { return false };
    let seen = member.seen.unprobed.is_none_or(|unprobed| unprobed < PROBE_GRACE);
    let unprobed = unready_since.0 <= started.0 && now.duration_since(started.0) < PROBE_GRACE;
    unprobed && seen && member.serving().is_some_and(|s| s.leader != 0 && s.errors.is_empty())
}

pub(crate) fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, now, unready};
    use crate::look_before_record;
    use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning};

    fn status_of(world: &World, index: usize) -> EtcdMemberStatus {
        world.plan().member_statuses[world.view.members[index].name()].clone()
    }

    fn ready(world: &World) -> (String, String) {
        let status = status_of(world, 0);
        let condition = conditions::find(&status.conditions, conditions::READY).unwrap();
        (condition.reason.clone(), condition.message.clone())
    }

    #[test]
    fn a_ready_member_says_who_it_is() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let name = world.member(0).name().to_owned();
        let status = status_of(&world, 0);
        assert_eq!(status.pod_name.as_deref(), Some(&*name));
        assert_eq!(status.pvc_name, Some(format!("data-{name}")));
        assert_eq!(status.version.as_deref(), Some(api::fixtures::VERSION));
        assert_eq!(status.replicas, 1);
        assert!(status.is_voter && status.member_id.is_some());
        assert_eq!(ready(&world).0, "PodReady");
        let drifted = conditions::find(&status.conditions, conditions::VERSION_DRIFTED).unwrap();
        assert_eq!((drifted.status.as_str(), drifted.reason.as_str()), ("False", "VersionMatched"));
    }

    #[test]
    fn h8_not_ready_before_the_id_is_known() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.member(0).member.status = None;
        world.view.etcd.membership = None;
        assert_eq!(ready(&world).0, "DiscoveringMemberID");
    }

    #[test]
    fn etcds_word_counts_until_the_kubelet_has_looked() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let at = |seconds| Some(conditions::wire_time(now() - SignedDuration::from_secs(seconds)));
        let pod = world.member(0).pod.as_mut().unwrap();
        unready(pod);
        let status = pod.status.as_mut().unwrap();
        status.conditions.as_mut().unwrap()[0].last_transition_time = at(4);
        let running = ContainerStateRunning { started_at: at(2) };
        let state = ContainerState { running: Some(running), ..ContainerState::default() };
        status.container_statuses.as_mut().unwrap()[0].state = Some(state);
        assert_eq!(ready(&world).0, "PodReady");

        let mut slow = world.clone();
        slow.member(0).seen.unprobed = Some(SignedDuration::from_secs(11));
        assert_eq!(ready(&slow).0, "PodNotReady", "T27: whatever the clocks say, it takes too long");

        let mut later = world.clone();
        let status = later.member(0).pod.as_mut().unwrap().status.as_mut().unwrap();
        status.conditions.as_mut().unwrap()[0].last_transition_time = at(1);
        assert_eq!(ready(&later).0, "PodNotReady", "the kubelet has looked since, and changed its mind");

        if let Some(Ok(status)) = &mut world.member(0).etcd {
            status.leader = 0;
        }
        assert_eq!(ready(&world).0, "PodNotReady", "etcd knows of no leader");
        world.rows()[0].is_learner = true;
        if let Some(Ok(status)) = &mut world.member(0).etcd {
            status.leader = 1;
        }
        assert_eq!(ready(&world).0, "PodNotReady", "learners serve nobody");
    }

    #[test]
    fn t7_the_claim_a_member_joins_on_is_its_own_whatever_was_there_before() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let status = world.member(0).member.status.as_mut().unwrap();
        status.member_id = None;
        status.pvc_uid = Some("lost before the first start".into());
        let claim = world.member(0).volume.as_ref().unwrap().metadata.uid.clone();
        assert_eq!(status_of(&world, 0).pvc_uid, claim);
    }

    #[test]
    fn t7_a_member_is_on_record_only_together_with_the_claim_its_data_is_on() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let status = world.member(0).member.status.as_mut().unwrap();
        (status.member_id, status.cluster_id) = (None, None);
        status.pvc_uid = Some("one that was there before".into());
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
        let claim = world.member(0).volume.take();
        assert_eq!(status_of(&world, 0).member_id, None);
        assert_eq!(ready(&world).1, "its claim is not seen");
        assert_eq!(world.status().cluster_id, None, "and so is its cluster");
        world.member(0).volume = claim;
        assert!(status_of(&world, 0).member_id.is_some());
        assert!(world.status().cluster_id.is_some());
    }

    #[test]
    fn t7_the_claim_is_looked_up_when_a_member_goes_on_record_and_never_again() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let status = status_of(&world, 0);
        assert_eq!(look_before_record(world.member(0), &status), None);
        world.member(0).member.status.as_mut().unwrap().member_id = None;
        let look = look_before_record(world.member(0), &status).unwrap();
        assert_eq!(look.must, crate::Must::Be { uid: status.pvc_uid.clone().unwrap() });
        let unlisted = EtcdMemberStatus { member_id: None, ..status };
        assert_eq!(look_before_record(world.member(0), &unlisted), None);

        let mut memory = World::settled(EtcdCluster::test("ns", "c").replicas(1).memory("64Mi"));
        let status = status_of(&memory, 0);
        memory.member(0).member.status.as_mut().unwrap().member_id = None;
        assert_eq!(look_before_record(memory.member(0), &status), None, "there is none");
    }

    #[test]
    fn h24_the_seed_is_a_voter_on_every_pass_before_it_has_formed() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
        world.view.etcd.membership = None;
        world.member(0).member.status = None;
        assert!(status_of(&world, 0).is_voter);
    }

    #[test]
    fn an_unready_pod_is_named_by_its_phase() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        unready(world.member(0).pod.as_mut().unwrap());
        assert_eq!(ready(&world), ("PodNotReady".to_owned(), "pod phase: Running".to_owned()));
        world.member(0).pod = None;
        assert_eq!(ready(&world).0, "PodNotReady");
        assert_eq!(status_of(&world, 0).pod_name, None);
        assert!(status_of(&world, 0).pod_uid.is_some(), "needed to tell a lost Pod from one that never was");
    }

    #[test]
    fn a_version_that_drifted_is_told() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        if let Some(Ok(status)) = &mut world.member(0).etcd {
            status.version = "3.6.15".into();
        }
        assert!(conditions::is_true(&status_of(&world, 0).conditions, conditions::VERSION_DRIFTED));
    }

    #[test]
    fn h7_a_member_is_known_by_its_url_while_it_has_no_name() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.rows()[0].name = String::new();
        world.rows()[0].id = 0x2a;
        let Some(Ok(answer)) = &mut world.member(0).etcd else { panic!() };
        answer.member_id = 0x2a;
        assert_eq!(status_of(&world, 0).member_id.as_deref(), Some("000000000000002a"));
    }
}
