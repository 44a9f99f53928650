use super::*;
use crate::Action;
use crate::fixtures::{World, crash_looping, now, unready};
use api::EtcdCluster;
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

fn silent_for(member: &mut MemberView, seconds: i64) {
    silent(member);
    member.seen.silent = Some(SignedDuration::from_secs(seconds));
    member.seen.restarts = 4;
}

/// Down between two crashes, and silent for a while.
fn crash(member: &mut MemberView) {
    silent_for(member, 300);
    let pod = member.pod.as_mut().unwrap();
    unready(pod);
    crash_looping(pod);
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
fn without_a_quorum_it_is_said_who_can_not_come_back() {
    let mut world = world();
    crash(world.member(0));
    world.view.etcd.membership = None;
    let complaint = world.plan().complaint.unwrap();
    assert!(complaint.contains(world.view.members[0].name()), "{complaint}");
    assert!(complaint.contains("etcd has no quorum"), "{complaint}");
}

#[test]
fn t7_a_member_that_etcd_does_not_list_although_nobody_took_it_out_keeps_its_data() {
    let mut world = world();
    crash(world.member(2));
    world.rows().remove(2);
    assert_eq!(replaced(&world), None);
    let complaint = world.plan().complaint.unwrap();
    assert!(complaint.contains("etcd does not list it, although nobody here took it out"), "{complaint}");
}

#[test]
fn t26_a_member_without_record_pod_or_volume_that_etcd_knows_is_replaced() {
    let mut world = world();
    world.member(1).member.status = None;
    assert_eq!(replaced(&world), None, "its volume is there");
    world.member(1).volume = None;
    assert_eq!(replaced(&world).as_deref(), Some(world.view.members[1].name()));
    let mut world = in_memory(3);
    world.member(1).member.status = None;
    assert_eq!(replaced(&world), None, "its Pod is there");
    vanish(world.member(1));
    assert_eq!(replaced(&world).as_deref(), Some(world.view.members[1].name()));
}

#[test]
fn t34_what_has_never_served() {
    use k8s_openapi::api::core::v1::{ContainerStateRunning, PodCondition, PodStatus};
    let at = |seconds: i64| Some(api::conditions::wire_time(now() + SignedDuration::from_secs(seconds)));
    let condition = |type_: &str, on: bool, since: i64| PodCondition {
        type_: type_.into(),
        status: if on { "True" } else { "False" }.into(),
        last_transition_time: at(since),
        ..PodCondition::default()
    };
    let running =
        || ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
    let ran = |from: i64, to: i64| {
        let run = ContainerStateTerminated {
            started_at: at(from),
            finished_at: at(to),
            ..ContainerStateTerminated::default()
        };
        ContainerState { terminated: Some(run), ..ContainerState::default() }
    };
    let ended = || ran(20, 21);
    let pod =
        |restarts: i32, state: Option<ContainerState>, last: Option<ContainerState>, ready: (bool, i64)| {
            let etcd = ContainerStatus {
                name: "etcd".into(),
                restart_count: restarts,
                state,
                last_state: last,
                ..ContainerStatus::default()
            };
            let conditions = vec![condition("Initialized", true, 10), condition("Ready", ready.0, ready.1)];
            let status = PodStatus {
                container_statuses: Some(vec![etcd]),
                conditions: Some(conditions),
                ..PodStatus::default()
            };
            Pod { status: Some(status), ..Pod::default() }
        };
    assert!(never_served(&Pod::default()), "not even looked at by a kubelet");
    assert!(never_served(&pod(0, None, None, (false, 99))), "never ran");
    let mut turned_away = Pod { status: Some(PodStatus::default()), ..Pod::default() };
    assert!(never_served(&turned_away), "nothing is known of it yet");
    turned_away.status.as_mut().unwrap().phase = Some("Failed".into());
    assert!(!never_served(&turned_away), "it may have run before its node was restarted");
    assert!(!never_served(&pod(0, Some(running()), None, (false, 99))), "runs, and was ready once");
    assert!(!never_served(&pod(0, Some(running()), None, (false, 10))), "runs, and may be ready soon");
    assert!(!never_served(&pod(0, Some(ended()), None, (false, 99))), "was ready once");
    assert!(!never_served(&pod(0, None, Some(ended()), (false, 99))), "the same, and it is started again");
    assert!(!never_served(&pod(1, None, None, (false, 99))), "the same, and nothing else is known");
    assert!(never_served(&pod(3, None, Some(ended()), (false, 10))), "crashes, and has never been ready");
    assert!(never_served(&pod(3, None, Some(ended()), (false, 5))));
    assert!(!never_served(&pod(3, None, Some(ended()), (true, 5))), "is ready");
    assert!(!never_served(&pod(3, None, Some(ran(2, 3)), (false, 5))), "the clock was set back since");
    assert!(!never_served(&pod(3, None, Some(ran(21, 20)), (false, 5))), "the clock was set back");
    assert!(!never_served(&pod(3, None, Some(ran(20, 31)), (false, 5))), "ran for a while, ready or not");
    let unknown =
        ContainerState { terminated: Some(ContainerStateTerminated::default()), ..ContainerState::default() };
    assert!(!never_served(&pod(3, None, Some(unknown), (false, 5))), "nobody knows how long it ran");
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
    let restarted =
        matches!(&done[..], [Action::DeletePod { name: gone, .. }, Action::CreatePod(_)] if *gone == name);
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
    let member = world.member(1);
    member.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
    member.pod.as_mut().unwrap().metadata.deletion_grace_period_seconds = Some(30);
    member.seen.ending = Some(SignedDuration::from_secs(330));
    assert_eq!(replaced(&world), None);
    world.member(1).seen.ending = Some(SignedDuration::from_secs(331));
    assert!(replaced(&world).is_some());
    world.view.settings.lost_member_timeout = None;
    assert_eq!(replaced(&world), None, "switched off");
}

#[test]
fn t27_a_clock_that_is_off_does_not_turn_a_slow_end_into_a_loss() {
    let mut world = world();
    silent(world.member(1));
    let long_ago = api::conditions::wire_time(now() - SignedDuration::from_hours(2));
    world.member(1).pod.as_mut().unwrap().metadata.deletion_timestamp = Some(long_ago);
    world.member(1).seen.ending = Some(SignedDuration::from_secs(3));
    assert_eq!(replaced(&world), None);
}

fn unschedulable_for(member: &mut MemberView, seconds: i64) {
    silent(member);
    let pod = member.pod.as_mut().unwrap();
    pod.status.as_mut().unwrap().conditions = Some(vec![PodCondition {
        type_: "PodScheduled".into(),
        status: "False".into(),
        reason: Some("Unschedulable".into()),
        ..PodCondition::default()
    }]);
    member.seen.unschedulable = Some(SignedDuration::from_secs(seconds));
}

#[test]
fn t27_a_pod_that_no_node_can_run_is_lost_only_if_its_volume_is() {
    let mut world = world();
    unschedulable_for(world.member(1), 301);
    assert_eq!(replaced(&world), None, "it merely lacks room");
    world.member(1).stranded = true;
    assert!(replaced(&world).is_some());
    world.member(1).seen.unschedulable = Some(SignedDuration::from_secs(299));
    assert_eq!(replaced(&world), None, "not yet");
}

#[test]
fn t27_a_member_that_serves_is_not_broken_whatever_its_pod_looks_like() {
    let mut world = world();
    let answer = world.member(1).etcd.clone();
    crash(world.member(1));
    assert!(replaced(&world).is_some());
    world.member(1).etcd = answer;
    assert_eq!(replaced(&world), None, "it answers");
    assert_eq!(world.status().broken_members, 0);
}

#[test]
fn t27_restarts_of_a_lifetime_are_no_crash_loop() {
    let mut world = world();
    crash(world.member(1));
    world.member(1).seen.silent = Some(SignedDuration::from_secs(59));
    assert_eq!(replaced(&world), None, "silent for a moment only");
    crash(world.member(1));
    container(world.member(1).pod.as_mut().unwrap()).state = None;
    assert_eq!(replaced(&world), None, "it runs, and may come up");
}

#[test]
fn t27_under_a_corrupt_alarm_nothing_is_deleted() {
    let mut world = world();
    crash(world.member(1));
    for index in [0, 2] {
        let Some(Ok(status)) = &mut world.member(index).etcd else { panic!() };
        status.errors = vec!["memberID:101 alarm:CORRUPT ".into()];
    }
    assert_eq!(replaced(&world), None);
    assert!(world.plan().complaint.unwrap().contains("CORRUPT"));
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

#[test]
fn t24_an_etcd_whose_earlier_runs_may_have_been_long_may_have_served() {
    let at =
        |minutes: i64| serde_json::json!(format!("2026-01-01T{:02}:{:02}:00Z", minutes / 60, minutes % 60));
    // Made at 00:00, unready ever since; its last start died at once.
    let pod = |restarts: i32, last: i64| -> Pod {
        let terminated = serde_json::json!({ "exitCode": 1, "startedAt": at(last), "finishedAt": at(last) });
        serde_json::from_value(serde_json::json!({ "status": { "phase": "Running",
            "conditions": [
                { "type": "Initialized", "status": "True", "lastTransitionTime": at(0) },
                { "type": "Ready", "status": "False", "lastTransitionTime": at(0) },
            ],
            "containerStatuses": [{ "name": "etcd", "image": "", "imageID": "", "ready": false,
                "restartCount": restarts, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                "lastState": { "terminated": terminated } }],
        } }))
        .unwrap()
    };
    assert!(!never_served(&pod(1, 180)), "one restart in three hours: the first run lasted that long");
    assert!(!never_served(&pod(12, 180)), "twelve pauses are an hour at the most");
    assert!(never_served(&pod(0, 60)), "the image came late, and nothing ran before");
    assert!(never_served(&pod(1, 2)) && never_served(&pod(6, 12)) && never_served(&pod(100, 480)));
}
