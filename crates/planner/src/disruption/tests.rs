use super::*;
use crate::fixtures::{World, now};
use api::{EtcdCluster, conditions, labels};
use jiff::SignedDuration;
use kube::ResourceExt as _;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Voter,
    Leader,
    Learner,
}

/// A settled cluster of that many members, of which the last has this role, and so many of the others are silent.
fn cluster(size: usize, role: Role, silent: usize) -> World {
    let replicas = i32::try_from(size).unwrap();
    let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(replicas));
    let last = world.rows()[size - 1].clone();
    world.rows()[size - 1].is_learner = role == Role::Learner;
    let statuses = world.view.members.iter_mut().filter_map(|m| m.etcd.as_mut()?.as_mut().ok());
    for status in statuses {
        status.leader = if role == Role::Leader { last.id } else { 1 };
    }
    for index in size - 1 - silent..size - 1 {
        world.member(index).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    }
    world
}

fn delete(member: &mut MemberView) {
    member.member.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
    member.member.status.as_mut().unwrap().role = Some("leaving".into());
}

fn on<T>(world: &World, ask: impl FnOnce(&Scene<'_>) -> T) -> T {
    ask(&Scene::new(&world.view, world.view.cluster.as_ref().unwrap(), now()))
}

/// What comes of it if that is to happen to a member.
fn disrupt(world: &World, index: usize, how: &Disruption) -> (Verdict, Vec<Action>) {
    let mut plan = Plan::default();
    let verdict = on(world, |scene| plan.disrupt(scene, &world.view.members[index], how));
    assert_eq!(
        verdict == Verdict::Safe,
        !plan.actions.is_empty(),
        "{how:?}: {verdict:?}, {:?}",
        plan.actions
    );
    (verdict, plan.actions)
}

fn why_not(world: &World, index: usize, how: &Disruption) -> Option<String> {
    disrupt(world, index, how).0.why_not()
}

const SURPLUS: Disruption = Disruption::Delete(Leaving::Surplus { wanted: 1 });
const CRASHES: Disruption = Disruption::Delete(Leaving::Broken(Loss::CrashLoop { restarts: 5 }));
const BLANK: Disruption = Disruption::Delete(Leaving::Broken(Loss::Volume));
const OUTDATED: Disruption = Disruption::Delete(Leaving::Outdated);

/// How many of the others may be silent when a voter of a cluster of this size is to go; without a number it never may.
const SPARE: [(usize, Option<usize>); 7] =
    [(1, None), (2, Some(0)), (3, Some(0)), (4, Some(1)), (5, Some(1)), (6, Some(2)), (7, Some(2))];

#[test]
fn t1_t12_t22_who_may_go_by_size_role_and_the_health_of_the_others() {
    for (size, spare) in SPARE {
        for (role, silent) in [Role::Voter, Role::Leader, Role::Learner]
            .into_iter()
            .flat_map(|role| (0..size).map(move |silent| (role, silent)))
            .filter(|(role, _)| size > 1 || *role != Role::Learner)
        {
            let may = role == Role::Learner || spare.is_some_and(|spare| silent <= spare);
            let about = format!("{role:?} of {size}, {silent} others are silent");
            let mut world = cluster(size, role, silent);
            let last = size - 1;
            for how in [&SURPLUS, &CRASHES, &BLANK] {
                let (verdict, actions) = disrupt(&world, last, how);
                assert_eq!(verdict == Verdict::Safe, may, "{how:?} {about}: {verdict:?}");
                assert!(matches!(&actions[..], [] | [Action::DeleteMember { .. }]), "{actions:?}");
            }
            assert!(why_not(&world, last, &Disruption::Remove).is_some(), "nobody deleted it: {about}");
            delete(world.member(last));
            let (verdict, actions) = disrupt(&world, last, &Disruption::Remove);
            assert_eq!(verdict == Verdict::Safe, may, "{about}: {verdict:?}");
            let handed_over =
                matches!(&actions[..], [Action::MoveLeader { .. }, Action::RemoveFromEtcd { .. }]);
            assert_eq!(handed_over, may && role == Role::Leader, "{about}: {actions:?}");
            assert!(why_not(&world, last, &Disruption::Release).is_some(), "etcd has it: {about}");
        }
    }
}

#[test]
fn t12_the_last_voter_holds_the_only_copy_also_beside_learners() {
    let mut world = cluster(3, Role::Voter, 0);
    for row in &mut world.rows()[..2] {
        row.is_learner = true;
    }
    for how in [&SURPLUS, &CRASHES] {
        assert!(why_not(&world, 2, how).unwrap().contains("only copy"));
    }
}

#[test]
fn t28_a_voter_that_follows_another_leader_is_not_counted() {
    let mut world = cluster(3, Role::Voter, 0);
    assert_eq!(why_not(&world, 2, &SURPLUS), None);
    let Some(Ok(status)) = &mut world.member(1).etcd else { panic!() };
    status.leader = 0xbad;
    status.raft_term += 1;
    assert!(why_not(&world, 2, &SURPLUS).unwrap().contains("only 1 of the 2 other voters"));
}

#[test]
fn t27_under_a_corrupt_alarm_only_those_leave_whom_a_user_has_deleted() {
    let mut world = cluster(3, Role::Voter, 0);
    let orphan = etcd::Member { id: 99, name: String::new(), peer_urls: vec![], is_learner: true };
    let spared = |world: &World| {
        let mut plan = Plan::default();
        on(world, |scene| plan.remove_orphan(scene, &orphan, "c-gone1")).why_not()
    };
    assert_eq!(spared(&world), None);
    let Some(Ok(status)) = &mut world.member(0).etcd else { panic!() };
    status.errors = vec!["memberID:101 alarm:CORRUPT ".into()];
    for how in [&SURPLUS, &CRASHES, &BLANK] {
        assert!(why_not(&world, 2, how).unwrap().contains("CORRUPT"));
    }
    assert!(spared(&world).unwrap().contains("CORRUPT"));
    delete(world.member(2));
    assert_eq!(why_not(&world, 2, &Disruption::Remove), None);
    let taken_out = labels::annotation::TAKEN_OUT.to_owned();
    world.member(2).member.annotations_mut().insert(taken_out, "true".into());
    let why = why_not(&world, 2, &Disruption::Remove);
    assert!(why.unwrap().contains("CORRUPT"), "it was the operator that had deleted it, before the alarm");
}

#[test]
fn t28_nobody_goes_while_members_disagree_or_no_quorum_gives_a_list() {
    let mut world = cluster(3, Role::Voter, 0);
    let judge = |world: &World, split: bool, how: &Disruption| {
        let mut scene = Scene::new(&world.view, world.view.cluster.as_ref().unwrap(), now());
        scene.split = split.then(|| "two clusters".to_owned());
        may_disrupt(&scene, &world.view.members[2], how)
    };
    let hows = [&SURPLUS, &CRASHES, &BLANK, &OUTDATED, &Disruption::Remove, &Disruption::Release];
    delete(world.member(2));
    for how in hows.into_iter().chain([&Disruption::Sleep]) {
        assert!(matches!(judge(&world, true, how), Verdict::Wait(_)), "{how:?}");
    }
    world.view.etcd.membership = None;
    for how in hows {
        assert!(matches!(judge(&world, false, how), Verdict::Wait(_)), "{how:?}");
    }
}

#[test]
fn h11_one_at_a_time_unless_it_is_held_up_by_the_other() {
    let mut world = cluster(5, Role::Voter, 0);
    delete(world.member(0));
    for how in [&SURPLUS, &CRASHES, &BLANK] {
        assert!(why_not(&world, 4, how).unwrap().ends_with("leaves"), "{how:?}");
    }
    for index in [3, 4] {
        world.member(index).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
    }
    assert!(why_not(&world, 0, &Disruption::Remove).unwrap().contains("only 2 of the 4"));
    assert!(why_not(&world, 4, &SURPLUS).is_some(), "it can wait");
    assert_eq!(why_not(&world, 4, &BLANK), None, "without it the other one can leave");
    let mut plan = Plan::default();
    on(&world, |scene| {
        assert_eq!(plan.disrupt(scene, &world.view.members[4], &BLANK), Verdict::Safe);
        assert_ne!(plan.disrupt(scene, &world.view.members[3], &BLANK), Verdict::Safe, "in the same pass");
    });
}

#[test]
fn t1_two_are_not_taken_out_on_the_same_list() {
    let mut world = cluster(7, Role::Voter, 0);
    delete(world.member(5));
    delete(world.member(6));
    let mut plan = Plan::default();
    on(&world, |scene| {
        assert_eq!(plan.disrupt(scene, &world.view.members[5], &Disruption::Remove), Verdict::Safe);
        assert_ne!(plan.disrupt(scene, &world.view.members[6], &Disruption::Remove), Verdict::Safe);
    });
    let orphan = etcd::Member { id: 99, name: String::new(), peer_urls: vec![], is_learner: true };
    let mut plan = Plan::default();
    on(&world, |scene| {
        assert_eq!(plan.disrupt(scene, &world.view.members[5], &Disruption::Remove), Verdict::Safe);
        assert_ne!(plan.remove_orphan(scene, &orphan, "c-gone1"), Verdict::Safe, "nor an orphan beside it");
    });
}

#[test]
fn t28_of_two_the_one_that_leaves_is_on_record_first() {
    let mut world = cluster(2, Role::Voter, 0);
    delete(world.member(1));
    world.member(1).member.status.as_mut().unwrap().role = Some("voter".into());
    assert_eq!(disrupt(&world, 1, &Disruption::Remove).0, Verdict::Unrecorded);
    delete(world.member(1));
    assert_eq!(disrupt(&world, 1, &Disruption::Remove).0, Verdict::Safe);
}

#[test]
fn t7_who_is_unlisted_although_nobody_took_it_out_goes_only_without_data() {
    let mut world = cluster(3, Role::Voter, 0);
    world.rows().truncate(2);
    world.member(2).etcd = None;
    for how in [&SURPLUS, &CRASHES] {
        assert!(why_not(&world, 2, how).unwrap().contains("does not list it"), "{how:?}");
    }
    assert_eq!(why_not(&world, 2, &BLANK), None);
    assert!(why_not(&world, 2, &Disruption::Release).is_some(), "nobody deleted it");
    delete(world.member(2));
    let (_, actions) = disrupt(&world, 2, &Disruption::Release);
    let released = matches!(
        &actions[..],
        [Action::PersistMembership, Action::ReleaseMember { because: Release::OutOfEtcd, .. }]
    );
    assert!(released, "{actions:?}");
}

#[test]
fn t25_who_was_taken_up_goes_only_after_its_etcd_has_named_the_cluster() {
    let mut world = cluster(3, Role::Voter, 0);
    world.member(2).member.spec.cluster_token = "of another".into();
    assert_eq!(why_not(&world, 2, &SURPLUS), None);
    world.member(2).member.status.as_mut().unwrap().cluster_id = None;
    for how in [&SURPLUS, &CRASHES] {
        assert!(why_not(&world, 2, how).unwrap().contains("was taken up"), "{how:?}");
    }
    assert_eq!(why_not(&world, 2, &BLANK), None, "what is lost can not be lost again");
}

#[test]
fn t34_a_joiner_is_made_anew_only_if_its_etcd_has_never_run() {
    let mut world = cluster(3, Role::Learner, 0);
    assert_eq!(why_not(&world, 2, &OUTDATED).as_deref(), Some("it has run"));
    world.rows()[2].name = String::new();
    world.member(2).etcd = None;
    assert_eq!(why_not(&world, 2, &OUTDATED).as_deref(), Some("it has run"), "it is on record");
    world.member(2).member.status = None;
    assert_eq!(why_not(&world, 2, &OUTDATED), None);
    world.rows()[2].is_learner = false;
    assert!(why_not(&world, 2, &OUTDATED).is_some(), "it has a vote");
}

/// A seed that has not formed anything yet.
fn seed() -> World {
    let mut world = World::new(EtcdCluster::test("ns", "c").replicas(1).latched());
    while world.view.members.first().is_none_or(|m| m.pod.is_none()) {
        world.pass();
    }
    world.view.etcd.membership = None;
    let seed = world.member(0);
    seed.etcd = None;
    seed.pod.as_mut().unwrap().status = None;
    world
}

#[test]
fn t34_a_seed_goes_only_blank_alone_and_told_not_to_start() {
    let mut world = seed();
    for how in [&OUTDATED, &Disruption::Release] {
        assert_eq!(why_not(&world, 0, how).as_deref(), Some("its etcd may still start"));
    }
    let (_, actions) = disrupt(&world, 0, &Disruption::Withdraw);
    assert!(matches!(&actions[..], [Action::WithdrawPod { .. }]), "{actions:?}");
    world.member(0).seen.withdrawn = Some(SignedDuration::from_mins(1));
    let mut two = world.clone();
    for how in [&OUTDATED, &Disruption::Release] {
        assert_eq!(why_not(&world, 0, how), None, "{how:?}");
    }
    let mut other = two.member(0).clone();
    other.member.metadata.name = Some("c-other".into());
    other.member.metadata.uid = Some("other".into());
    two.view.members.push(other);
    assert!(why_not(&two, 0, &OUTDATED).is_some(), "it is not the only one");

    let its = world.member(0);
    its.volume.as_mut().unwrap().spec.as_mut().unwrap().volume_name = Some("pv-1".into());
    its.pod = None;
    for how in [&OUTDATED, &Disruption::Release, &Disruption::Withdraw] {
        assert!(why_not(&world, 0, how).unwrap().contains("something to keep"), "{how:?}");
    }
    assert_eq!(why_not(&world, 0, &BLANK), None, "what is lost can not be lost again");
    assert!(why_not(&world, 0, &CRASHES).is_some());
}

#[test]
fn t4_t13_a_pod_is_deleted_only_where_nobody_is_taken_down() {
    let ended = Disruption::End(Ending::Ended);
    let paused = Disruption::End(Ending::Paused { member: String::new() });
    let overtaken = Disruption::End(Ending::Overtaken { member: String::new() });
    let mut world = cluster(3, Role::Voter, 0);
    for how in [&ended, &paused, &overtaken] {
        assert!(why_not(&world, 2, how).is_some(), "{how:?}");
    }
    let mut asleep = world.clone();
    asleep.member(2).member.spec.dormant = true;
    assert_eq!(why_not(&asleep, 2, &paused), None);
    let mut joiner = world.clone();
    joiner.member(2).member.status = None;
    assert_eq!(why_not(&joiner, 2, &overtaken), None);
    joiner.member(2).member.spec.bootstrap = true;
    assert!(why_not(&joiner, 2, &overtaken).is_some(), "a seed joins nobody");
    world.member(2).pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".into());
    assert_eq!(why_not(&world, 2, &ended), None);
}

#[test]
fn t29_only_the_last_voter_sleeps() {
    for size in 1..=3 {
        let world = cluster(size, Role::Voter, 0);
        assert_eq!(why_not(&world, size - 1, &Disruption::Sleep).is_none(), size == 1, "of {size}");
    }
    let beside_a_learner = cluster(2, Role::Learner, 0);
    assert_eq!(why_not(&beside_a_learner, 0, &Disruption::Sleep), None);
    let (_, actions) = disrupt(&beside_a_learner, 0, &Disruption::Sleep);
    let sleeps = matches!(
        &actions[..],
        [Action::SetDormant { dormant: true, confirmed: true, .. }, Action::DeletePod { .. }]
    );
    assert!(sleeps, "its Pod ends, its volume stays: {actions:?}");
}

/// The text of a source file that is compiled into the operator.
fn in_use(path: &std::path::Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

#[test]
fn no_operator_forges_a_permit() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![crates.join("planner/src"), crates.join("operator/src")];
    let (mut seen, mut forgers) = (0, vec![]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") {
                seen += 1;
                forgers.extend(in_use(&path).contains("Permit::forged").then_some(path));
            }
        }
    }
    assert!(seen > 60, "{seen} files");
    assert!(forgers.is_empty(), "ask `disruption` instead: {forgers:?}");
}
