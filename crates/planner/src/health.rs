//! What the cluster says about itself. Judged on every pass, whatever etcd answers, so that the status can neither
//! freeze nor lie (T2).

use api::conditions::{self, NewCondition, reason};
use api::{EtcdCluster, EtcdClusterStatus, labels};
use jiff::{SignedDuration, Timestamp};

use crate::healing::{self, broken};
use crate::view::{Assessed, Scene};
use crate::{Loss, Plan, alarms, cause, outdated, pause, pod};

/// How long a quorum that confirmed itself is believed while single questions fail: an election takes about a second.
const CONFIRMATION_LIFETIME: SignedDuration = SignedDuration::from_secs(5);
/// How long a started seed may be silent before the silence is news.
const START_GRACE: SignedDuration = SignedDuration::from_secs(10);

pub(crate) fn judge(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    let ready = scene.running().filter(|m| m.is_ready()).count();
    status.ready_members = i32::try_from(ready).unwrap_or(i32::MAX);
    status.selector = Some(labels::cluster_selector(&scene.view.name));

    let broken = scene.running().filter(|m| broken(scene, m).is_some()).count();
    status.broken_members = i32::try_from(broken).unwrap_or(i32::MAX);
    status.version = running_version(scene).or(status.version.take());

    let wanted = usize::try_from(scene.target().replicas).unwrap_or(0);
    if wanted == 0 && is_asleep(scene) {
        paused(scene, status);
    } else if is_lost(scene) {
        all_lost(scene, status);
    } else if scene.is_formed() {
        formed(scene, status, ready, wanted);
    } else if let Some(id) = status.cluster_id.clone() {
        let message = format!("etcd cluster {id} discovered");
        scene.set_condition(status, conditions::AVAILABLE, true, reason::CLUSTER_DISCOVERED, &message);
    } else {
        forming(scene, status);
    }
}

/// What a cluster says while one of its objects can not be read: nobody looks after it, and what it said before may be over.
pub fn unreadable(cluster: &EtcdCluster, object: &str, now: Timestamp) -> EtcdClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let message = format!("{object} can not be read, and the cluster is left alone until it is corrected");
    for (type_, on) in [
        (conditions::AVAILABLE, conditions::Status::Unknown),
        (conditions::PROGRESSING, conditions::Status::False),
        (conditions::DEGRADED, conditions::Status::True),
    ] {
        let generation = cluster.metadata.generation;
        let condition = NewCondition::new(type_, on, reason::UNREADABLE, &message, generation);
        conditions::set_condition(&mut status.conditions, condition, now);
    }
    status
}

/// All sleep, or are about to leave. Without a quorum nobody can leave, and what still runs for that reason does not sleep.
/// What has formed sleeps only in somebody who has its data, or is about to.
fn is_asleep(scene: &Scene<'_>) -> bool {
    let sleeps = |m: &Assessed<'_>| m.member.spec.dormant;
    let can_leave = |m: &Assessed<'_>| match scene.is_formed() {
        true => scene.membership().is_some(),
        false => !outdated::may_hold_data(m),
    };
    let leaves = |m: &Assessed<'_>| m.is_deleting() && (can_leave(m) || (m.is_let_go() && m.pod.is_none()));
    scene.members.iter().all(|m| sleeps(m) || m.is_unused() || leaves(m))
        && (!scene.is_formed() || scene.members.iter().any(|m| sleeps(m) || m.is_deleting()))
}

/// The version that all members report, or the lowest and the highest.
fn running_version(scene: &Scene<'_>) -> Option<String> {
    let number =
        |version: &str| version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    let mut versions: Vec<&str> = scene.running().filter_map(|m| m.status.version.as_deref()).collect();
    versions.sort_by_key(|version| number(version));
    match (versions.first()?, versions.last()?) {
        (lowest, highest) if lowest == highest => Some((*lowest).to_owned()),
        (lowest, highest) => Some(format!("{lowest}..{highest}")),
    }
}

fn formed(scene: &Scene<'_>, status: &mut EtcdClusterStatus, ready: usize, wanted: usize) {
    let mut set = |type_, on, reason, message: &str| scene.set_condition(status, type_, on, reason, message);
    let count = format!("{ready}/{wanted} members ready");
    let verdict = if let Some(why) = &scene.split {
        let message =
            format!("{why}; nothing is changed before a person has decided which etcd cluster is right");
        Some((reason::MEMBERS_DISAGREE, message))
    } else if alarms::is_raised(scene, "CORRUPT") {
        let message = format!(
            "{count}, etcd has raised its CORRUPT alarm and refuses to serve; compare the members' data"
        );
        Some((reason::ALARM_RAISED, message))
    } else if let Some(message) = wants_credentials(scene, &count) {
        Some((reason::AUTH_REQUIRED_NOT_CONFIGURED, message))
    } else {
        let told = |why| format!("{count}, quorum lost: {why}{}", losses(scene));
        quorum_lost(scene, ready).map(|why| (reason::QUORUM_LOST, told(why)))
    };
    if let Some((reason, message)) = verdict {
        set(conditions::AVAILABLE, false, reason, &message);
        set(conditions::DEGRADED, true, reason, &message);
    } else if ready >= wanted {
        let all = if ready == 1 {
            "the only member is ready".to_owned()
        } else {
            format!("all {ready} members ready")
        };
        set(conditions::AVAILABLE, true, reason::QUORUM_HEALTHY, "All members are ready");
        set(conditions::DEGRADED, false, reason::QUORUM_HEALTHY, &all);
    } else {
        let why = cause::first(scene).map(|why| format!("; {why}")).unwrap_or_default();
        set(conditions::AVAILABLE, true, reason::QUORUM_AVAILABLE, &count);
        set(conditions::DEGRADED, true, reason::MEMBERS_UNHEALTHY, &format!("{count}{why}"));
    }
}

/// etcd serves, but not us: somebody has switched authentication on. Not a lost quorum, and not a confirmed one.
fn wants_credentials(scene: &Scene<'_>, count: &str) -> Option<String> {
    let asked =
        scene.members.iter().filter_map(|m| m.etcd.as_ref()?.as_ref().err()).chain(&scene.view.etcd.failure);
    let wanted = scene.membership().is_none()
        && asked.into_iter().any(|e| matches!(e, etcd::Error::AuthRequired { .. }));
    wanted.then(|| {
        format!(
            "{count}, but etcd asks for credentials and spec.auth is not set, so that a quorum can not be confirmed and \
             nothing can be changed; switch authentication off in etcd (etcdctl auth disable)"
        )
    })
}

/// Says under which circumstances a cluster that has all it was asked for does not run as it should.
pub(crate) fn mention(scene: &Scene<'_>, status: &mut EtcdClusterStatus, plan: &Plan) {
    let well =
        conditions::find(&status.conditions, conditions::DEGRADED).is_some_and(|c| c.status == "False");
    let obstacle = plan.complaint.clone().or_else(|| scene.view.refused.values().next().cloned());
    let Some(message) = obstacle.filter(|_| well && status.ready_members > 0) else { return };
    // What it said before, and not what was judged above, is what it turns from; or it would turn on every pass.
    let stored =
        scene.cluster.status.as_ref().and_then(|s| conditions::find(&s.conditions, conditions::DEGRADED));
    let judged = status.conditions.iter_mut().find(|c| c.type_ == conditions::DEGRADED);
    if let (Some(judged), Some(stored)) = (judged, stored) {
        judged.clone_from(stored);
    }
    scene.set_condition(status, conditions::DEGRADED, true, reason::BLOCKED, &message);
}

/// Why there is no quorum, or `None` while etcd has confirmed one. A failed question alone is believed only after a
/// moment, unless the Pods already show that a quorum can not be there.
fn quorum_lost(scene: &Scene<'_>, ready: usize) -> Option<String> {
    if scene.membership().is_some() {
        return None;
    }
    let voters = scene.members.iter().filter(|m| m.status.is_voter).count();
    let ready_voters = scene.members.iter().filter(|m| m.status.is_voter && m.is_ready()).count();
    if ready == 0 || ready_voters < etcd::quorum(voters) {
        return Some(format!("{ready_voters} of {voters} voters are ready"));
    }
    let fresh = scene.view.etcd.confirmed_ago.is_some_and(|ago| ago < CONFIRMATION_LIFETIME);
    if fresh {
        return None;
    }
    Some(match &scene.view.etcd.failure {
        Some(error) => format!("etcd does not confirm one, {error}"),
        None => "no voter could be asked".to_owned(),
    })
}

/// Whose data is gone for good, all of them by name: what a person has to know before anything else.
fn losses(scene: &Scene<'_>) -> String {
    let lost = scene.members.iter().filter_map(|m| Some((m.name(), healing::lost_data(m)?)));
    lost.map(|(name, loss)| format!("; member {name} {loss}")).collect()
}

/// T12: a formed cluster of which nothing is left that holds data, and nobody serves. It is never bootstrapped over.
pub(crate) fn is_lost(scene: &Scene<'_>) -> bool {
    let nobody_answers =
        scene.view.etcd.membership.is_none() && scene.view.members.iter().all(|m| m.serving().is_none());
    scene.is_formed()
        && nobody_answers
        && scene.view.strays.is_empty()
        && scene.outsiders().next().is_none()
        && scene.members.iter().all(|m| healing::lost_data(m).is_some_and(|loss| loss != Loss::OtherVolume))
}

fn all_lost(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    let message = "every member and its data are gone: no EtcdMember, Pod or claim of this cluster holds any; create a new \
                   cluster, from a snapshot if there is one";
    scene.set_condition(status, conditions::AVAILABLE, false, reason::ALL_MEMBERS_LOST, message);
    scene.set_condition(status, conditions::PROGRESSING, false, reason::ALL_MEMBERS_LOST, message);
    scene.set_condition(status, conditions::DEGRADED, true, reason::ALL_MEMBERS_LOST, message);
}

/// Zero of zero members ready must not read as healthy (H25).
fn paused(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    let (message, degraded) = match pause::message(scene) {
        Ok(message) => (message, false),
        Err(message) => (message, true),
    };
    let why = if degraded { reason::BLOCKED } else { reason::PAUSED };
    scene.set_condition(status, conditions::AVAILABLE, false, reason::PAUSED, &message);
    scene.set_condition(status, conditions::PROGRESSING, false, reason::PAUSED, &message);
    scene.set_condition(status, conditions::DEGRADED, degraded, why, &message);
}

fn forming(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    let expired = conditions::find(&status.conditions, conditions::PROGRESSING)
        .filter(|c| c.reason == reason::BOOTSTRAP_FAILED)
        .map(|c| c.message.clone());
    if let Some(message) = expired {
        scene.set_condition(status, conditions::AVAILABLE, false, reason::BOOTSTRAP_FAILED, &message);
    } else if let Some(message) = silent_seed(scene) {
        scene.set_condition(status, conditions::AVAILABLE, false, reason::CLUSTER_UNREACHABLE, &message);
    }
}

/// Why the seed has formed nothing, once that is more than a slow start.
fn silent_seed(scene: &Scene<'_>) -> Option<String> {
    let seed = scene.running().find(|m| m.member.spec.bootstrap)?;
    let container = pod::etcd_status(seed.living_pod()?)?;
    let state = container.state.as_ref()?;
    if let Some(waiting) = state.waiting.as_ref().and_then(|w| w.reason.as_deref())
        && waiting != "ContainerCreating"
    {
        return Some(format!("bootstrap member {} does not run: {waiting}", seed.name()));
    }
    let started = state.running.as_ref()?.started_at.clone()?;
    let error = match (&scene.view.etcd.failure, &seed.etcd) {
        (Some(error), _) => error.to_string(),
        (None, Some(Err(error))) => error.to_string(),
        _ => return None,
    };
    (scene.now.duration_since(started.0) > START_GRACE).then(|| format!("MemberList failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, now, unready};
    use api::EtcdCluster;

    fn world() -> World {
        World::settled(EtcdCluster::test("ns", "c").replicas(3))
    }

    fn available(world: &World) -> String {
        world.condition(conditions::AVAILABLE)
    }

    #[test]
    fn one_member_down_is_available_and_degraded() {
        let mut world = world();
        unready(world.member(0).pod.as_mut().unwrap());
        assert_eq!(available(&world), "True/QuorumAvailable");
        assert_eq!(world.condition(conditions::DEGRADED), "True/MembersUnhealthy");
        assert_eq!(world.status().ready_members, 2);
    }

    #[test]
    fn t2_a_lost_quorum_shows_at_once_although_etcd_says_nothing() {
        let mut world = world();
        world.view.etcd.confirmed_ago = Some(SignedDuration::ZERO);
        unready(world.member(0).pod.as_mut().unwrap());
        world.member(1).pod = None;
        world.silence_etcd();
        assert_eq!(available(&world), "False/QuorumLost");
        assert_eq!(world.condition(conditions::DEGRADED), "True/QuorumLost");
        assert_eq!(world.status().ready_members, 1);
    }

    #[test]
    fn a_lost_quorum_names_everybody_whose_volume_is_gone() {
        let mut world = world();
        for index in [0, 2] {
            world.member(index).pod = None;
            world.member(index).volume = None;
        }
        world.silence_etcd();
        assert_eq!(available(&world), "False/QuorumLost");
        let status = world.status();
        let message = &conditions::find(&status.conditions, conditions::AVAILABLE).unwrap().message;
        for (index, lost) in [true, false, true].into_iter().enumerate() {
            let words = format!("member {} lost its volume", world.view.members[index].name());
            assert_eq!(message.contains(&words), lost, "{message}");
        }
    }

    #[test]
    fn a_quorum_is_believed_through_an_election_but_not_for_long() {
        let mut world = world();
        world.silence_etcd();
        world.view.etcd.failure = Some(etcd::Error::Unreachable { member: "c-a".into() });
        world.view.etcd.confirmed_ago = Some(SignedDuration::from_secs(2));
        assert_eq!(available(&world), "True/QuorumHealthy");
        world.view.etcd.confirmed_ago = Some(SignedDuration::from_secs(6));
        assert_eq!(available(&world), "False/QuorumLost");
        world.view.etcd.confirmed_ago = None;
        assert_eq!(available(&world), "False/QuorumLost");
    }

    #[test]
    fn a_terminating_pod_is_not_ready_whatever_the_kubelet_says() {
        let mut world = world();
        world.member(2).pod.as_mut().unwrap().metadata.deletion_timestamp =
            Some(conditions::wire_time(now()));
        assert_eq!(world.status().ready_members, 2);
    }

    #[test]
    fn h18_the_same_failure_twice_says_the_same() {
        let mut world = world();
        world.silence_etcd();
        world.view.etcd.failure = Some(etcd::Error::Unreachable { member: "c-a".into() });
        world.pass();
        let once = world.view.cluster.clone();
        world.pass();
        assert_eq!(once, world.view.cluster);
    }

    #[test]
    fn a_cluster_whose_last_members_can_not_leave_is_not_paused() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(2));
        world.aim_at(0);
        for index in 0..2 {
            world.member(index).member.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
        }
        assert_eq!(available(&world), "False/Paused", "they leave one after the other");
        world.silence_etcd();
        assert_eq!(available(&world), "False/QuorumLost");
        assert_eq!(world.condition(conditions::PROGRESSING), "True/Reconciling");
    }

    #[test]
    fn what_is_not_supported_is_said_and_left_untouched() {
        let mut cluster = EtcdCluster::test("ns", "c");
        cluster.spec.tls =
            Some(api::ClusterTls { peer: Some(api::PeerTls::default()), ..Default::default() });
        let mut world = World::new(cluster);
        assert!(world.settle().is_empty());
        assert_eq!(available(&world), "False/Unsupported");
        assert!(world.view.members.is_empty());
    }

    #[test]
    fn a_seed_that_keeps_crashing_is_told() {
        use k8s_openapi::api::core::v1::{ContainerState, ContainerStateWaiting};
        let mut world = World::new(EtcdCluster::test("ns", "c").latched());
        world.pass();
        world.pass();
        world.silence_etcd();
        let pod = world.member(0).pod.as_mut().unwrap();
        unready(pod);
        let container = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
        let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".into()), message: None };
        container.state = Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() });
        assert_eq!(available(&world), "False/ClusterUnreachable");
    }

    #[test]
    fn a_cluster_with_an_object_that_can_not_be_read_does_not_go_on_saying_that_it_is_well() {
        let world = World::settled(EtcdCluster::test("ns", "c"));
        let cluster = world.view.cluster.as_ref().unwrap();
        let status = unreadable(cluster, "EtcdMember c-x", now());
        let says = |type_| {
            let c = conditions::find(&status.conditions, type_).unwrap();
            assert!(c.message.starts_with("EtcdMember c-x can not be read"), "{}", c.message);
            format!("{}/{}", c.status, c.reason)
        };
        assert_eq!(says(conditions::AVAILABLE), "Unknown/Unreadable");
        assert_eq!(says(conditions::PROGRESSING), "False/Unreadable");
        assert_eq!(says(conditions::DEGRADED), "True/Unreadable");
        assert_eq!(status.cluster_id, cluster.status.as_ref().unwrap().cluster_id, "the record stays");
    }
}
