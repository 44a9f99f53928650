//! What the cluster is being made into: `status.observed`. A change of the spec is taken up only once the previous
//! target is reached, or has run out of time, because a target that moves under a half-done membership change
//! corrupts it (H1).

use std::collections::BTreeSet;

use api::{EtcdClusterStatus, ObservedSpec, conditions, names};
use conditions::reason;
use jiff::{SignedDuration, Timestamp};

use crate::view::{Assessed, MemberView, Scene};
use crate::{bootstrap, cause, health};

/// Brings token, target and deadline up to date. False when one of them was taken anew: it has to be stored before
/// anything may rest on it.
pub(crate) fn settle(scene: &Scene<'_>, status: &mut EtcdClusterStatus) -> bool {
    let cluster = scene.cluster;
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    let own = || names::cluster_token(&scene.view.namespace, &scene.view.name, uid);
    let token = scene.identity.token.clone().unwrap_or_else(own);
    let settled = status.cluster_token.as_ref() == Some(&token);
    status.cluster_token = Some(token);
    let wanted = ObservedSpec::from_spec(&cluster.spec);
    let Some(observed) = status.observed.clone() else {
        let message = format!("working towards {}", of(&wanted));
        adopt(scene, status, reason::INITIAL_SNAPSHOT, &message);
        return false;
    };

    let reached = is_reached(scene, &observed);
    let changes = observed.changes_to(&wanted).join(", ");
    let edited = !changes.is_empty();
    let expired = status.progress_deadline.as_ref().is_some_and(|d| d.0 <= scene.now);
    if edited && !reached && expired && scene.is_formed() {
        let message = format!("previous target not reached in time; spec changed: {changes}");
        adopt(scene, status, reason::RETRY_AFTER_DEADLINE, &message);
        return false;
    }
    if edited && (reached || status.progress_deadline.is_none() || is_free_to_change(scene)) {
        adopt(scene, status, reason::SPEC_CHANGED, &format!("spec changed: {changes}"));
        return false;
    }
    match (reached, expired) {
        (true, _) => {
            status.progress_deadline = None;
            progressing(scene, status, false, reason::RECONCILED, &reconciled(scene, &observed));
        }
        // health says what there is to say; nothing here is going on.
        (false, _) if health::is_lost(scene) => {}
        (false, true) => give_up_waiting(scene, status, &observed),
        (false, false) => progressing_on(scene, status, &observed),
    }
    settled
}

/// Whether nothing is under way that a moving target could harm: nothing has formed yet, or all who have joined are well,
/// so that only those who have not joined are missing (T34).
fn is_free_to_change(scene: &Scene<'_>) -> bool {
    let is_well = |m: &Assessed<'_>| m.is_ready() && m.status.is_voter;
    let is_new = |m: &Assessed<'_>| !m.has_joined() && m.serving().is_none();
    !scene.is_formed()
        || scene
            .members
            .iter()
            .all(|m| !m.is_deleting() && !m.member.spec.dormant && (is_well(m) || is_new(m)))
}

fn of(target: &ObservedSpec) -> String {
    let n = target.replicas;
    format!("{n} ready {}", if n == 1 { "member" } else { "members" })
}

/// What there is when everything is as it was asked for. Members that exist keep the version they were made with.
fn reconciled(scene: &Scene<'_>, observed: &ObservedSpec) -> String {
    let running: BTreeSet<_> = scene.running().filter_map(|m| m.status.version.as_deref()).collect();
    let other: Vec<_> = running.into_iter().filter(|version| *version != observed.version).collect();
    let doubts = scene.cluster.spec.doubts();
    let mut parts = vec![];
    if !other.is_empty() {
        let (running, wanted) = (other.join(" and "), &observed.version);
        parts.push(format!(
            "members run etcd {running}, and spec.version {wanted} counts for new members only"
        ));
    }
    parts.extend(doubts);
    if parts.is_empty() {
        return "actual state matches status.observed".to_owned();
    }
    format!("as many members as wanted are ready; {}", parts.join("; "))
}

/// Reached: as many members as wanted, all of them ready voters; or all of them asleep or never woken.
fn is_reached(scene: &Scene<'_>, observed: &ObservedSpec) -> bool {
    let wanted = usize::try_from(observed.replicas).unwrap_or(0);
    if wanted == 0 {
        let gone = |m: &MemberView| m.is_let_go() && m.pod.is_none();
        return scene.members.iter().all(|m| m.member.spec.dormant || m.is_unused() || gone(m));
    }
    scene.is_formed()
        && scene.running().count() == wanted
        && scene.running().all(|m| m.is_ready() && m.status.is_voter)
        && scene.members.iter().all(|m| !m.is_deleting() || scene.is_out(m))
}

fn adopt(scene: &Scene<'_>, status: &mut EtcdClusterStatus, reason: &'static str, message: &str) {
    let seconds = i64::from(scene.cluster.spec.progress_deadline_seconds());
    let until = scene.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    status.observed = Some(ObservedSpec::from_spec(&scene.cluster.spec));
    status.progress_deadline = Some(conditions::wire_time(until));
    scene.set_condition_of_newest_spec(status, conditions::PROGRESSING, true, reason, message);
}

/// The deadline is a verdict, not a stop: work goes on, and success clears it.
fn give_up_waiting(scene: &Scene<'_>, status: &mut EtcdClusterStatus, observed: &ObservedSpec) {
    let n = observed.replicas;
    if scene.is_formed() {
        let message = format!("{n} members of version {} were not ready in time", observed.version);
        progressing(scene, status, false, reason::DEADLINE_EXCEEDED, &because(scene, message));
    } else {
        let message = format!("could not bootstrap {n}-member cluster within deadline");
        progressing(scene, status, false, reason::BOOTSTRAP_FAILED, &because(scene, message));
    }
}

/// A message with what the first member waits for, if anything keeps it.
fn because(scene: &Scene<'_>, message: String) -> String {
    match bootstrap::obstacle(scene).or_else(|| cause::first(scene)) {
        Some(why) => format!("{message}; {why}"),
        None => message,
    }
}

fn progressing_on(scene: &Scene<'_>, status: &mut EtcdClusterStatus, observed: &ObservedSpec) {
    if let Some(why) = bootstrap::obstacle(scene) {
        progressing(scene, status, true, reason::WAITING_FOR_LEFTOVERS, &why);
        return;
    }
    if let Some(seed) = waiting_seed(scene) {
        let message = format!("waiting for the Pod of bootstrap member \"{seed}\"");
        progressing(scene, status, true, reason::WAITING_FOR_SEED, &because(scene, message));
        return;
    }
    // A target that is being worked on keeps the reason it was taken up for; one that was reached before has lost a
    // member since.
    let current = conditions::find(&status.conditions, conditions::PROGRESSING);
    let kept = current.filter(|c| c.status == "True").and_then(|c| {
        [reason::INITIAL_SNAPSHOT, reason::SPEC_CHANGED, reason::RETRY_AFTER_DEADLINE]
            .into_iter()
            .find(|r| *r == c.reason)
    });
    let message = format!("working towards {}", of(observed));
    progressing(scene, status, true, kept.unwrap_or(reason::RECONCILING), &because(scene, message));
}

/// The seed, while it has no Pod and nothing has formed.
fn waiting_seed<'a>(scene: &'a Scene<'_>) -> Option<&'a str> {
    if scene.is_formed() {
        return None;
    }
    scene.running().find(|m| m.member.spec.bootstrap && m.pod.is_none()).map(|m| m.view.name())
}

fn progressing(
    scene: &Scene<'_>,
    status: &mut EtcdClusterStatus,
    on: bool,
    reason: &'static str,
    message: &str,
) {
    scene.set_condition(status, conditions::PROGRESSING, on, reason, message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, now};
    use api::EtcdCluster;

    fn three() -> World {
        World::settled(EtcdCluster::test("ns", "c").replicas(3))
    }

    #[test]
    fn the_first_pass_only_latches_token_and_target() {
        let mut world = World::new(EtcdCluster::test("ns", "c"));
        assert!(world.pass().is_empty());
        assert_eq!(world.condition(conditions::PROGRESSING), "True/InitialSnapshot");
        let status = world.status();
        assert_eq!(status.cluster_token.as_deref(), Some("ns-c-uid-of-c"));
        assert_eq!(status.observed.map(|o| o.replicas), Some(3));
        assert!(status.progress_deadline.is_some());
    }

    #[test]
    fn a_reached_target_clears_the_deadline() {
        let world = three();
        assert_eq!(world.condition(conditions::PROGRESSING), "False/Reconciled");
        assert_eq!(world.status().progress_deadline, None);
    }

    #[test]
    fn h1_an_edit_waits_until_the_present_target_is_reached() {
        let mut world = three();
        world.member(0).etcd = None;
        crate::fixtures::unready(world.member(0).pod.as_mut().unwrap());
        let cluster = world.view.cluster.as_mut().unwrap();
        cluster.spec.replicas = Some(5);
        cluster.metadata.generation = Some(2);
        let later = now() + SignedDuration::from_mins(5);
        cluster.status.as_mut().unwrap().progress_deadline = Some(conditions::wire_time(later));
        world.settle();
        let status = world.status();
        assert_eq!(
            status.observed.unwrap().replicas,
            3,
            "not while one that has joined is missing, and time is left"
        );
        let judged =
            |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| c.observed_generation == Some(2);
        assert!(!status.conditions.iter().any(judged), "nothing was judged against what was not taken up");
    }

    #[test]
    fn t33_an_edit_after_a_loss_is_taken_up_because_no_deadline_runs() {
        let mut world = three();
        world.member(0).etcd = None;
        crate::fixtures::unready(world.member(0).pod.as_mut().unwrap());
        world.view.cluster.as_mut().unwrap().spec.replicas = Some(1);
        world.pass();
        assert_eq!(world.status().observed.unwrap().replicas, 1);
        assert_eq!(world.condition(conditions::PROGRESSING), "True/SpecChanged");
    }

    #[test]
    fn t34_an_edit_is_taken_up_while_only_those_are_missing_who_never_joined() {
        let mut world = three();
        world.view.cluster.as_mut().unwrap().spec.replicas = Some(5);
        for _ in 0..3 {
            world.pass();
        }
        assert!(world.status().progress_deadline.is_some());
        assert!(world.view.members.len() > 3 && world.view.members.iter().any(|m| !m.has_joined()));
        world.view.cluster.as_mut().unwrap().spec.replicas = Some(3);
        world.pass();
        assert_eq!(world.status().observed.unwrap().replicas, 3);
        world.settle();
        assert_eq!(world.view.members.len(), 3);
    }

    #[test]
    fn an_edit_is_taken_up_once_the_target_is_reached() {
        let mut world = three();
        world.view.cluster.as_mut().unwrap().spec.replicas = Some(5);
        assert!(world.pass().is_empty(), "the new target is latched before anything is done about it");
        assert_eq!(world.status().observed.unwrap().replicas, 5);
        assert_eq!(world.condition(conditions::PROGRESSING), "True/SpecChanged");
        world.settle();
        assert_eq!(world.view.members.len(), 5);
    }

    #[test]
    fn h2_a_missed_deadline_is_said_once_and_cleared_by_success() {
        let mut world = World::new(EtcdCluster::test("ns", "c").latched());
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().progress_deadline =
            Some(conditions::wire_time(Timestamp::UNIX_EPOCH));
        world.pass();
        assert_eq!(world.condition(conditions::PROGRESSING), "False/BootstrapFailed");
        assert_eq!(world.condition(conditions::AVAILABLE), "False/BootstrapFailed");
        let message = |world: &World| world.status().conditions[0].message.clone();
        let once = message(&world);
        world.pass();
        assert_eq!(once, message(&world), "T11: the message is stable");
        world.settle();
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
    }

    #[test]
    fn t11_a_missed_deadline_is_said_in_the_same_words_each_time() {
        let mut cluster = EtcdCluster::test("ns", "c");
        cluster.spec.affinity = Some(k8s_openapi::api::core::v1::Affinity::default());
        let mut world = World::settled(cluster);
        crate::fixtures::unready(world.member(0).pod.as_mut().unwrap());
        let past = conditions::wire_time(now() - SignedDuration::from_secs(1));
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().progress_deadline = Some(past);
        world.pass();
        let first = world.status();
        assert_eq!(world.condition(conditions::PROGRESSING), "False/DeadlineExceeded");
        world.pass();
        assert_eq!(world.status(), first);
    }

    #[test]
    fn an_edit_after_a_missed_deadline_is_a_retry() {
        let mut world = three();
        let status = world.view.cluster.as_mut().unwrap().status.as_mut().unwrap();
        status.progress_deadline = Some(conditions::wire_time(Timestamp::UNIX_EPOCH));
        crate::fixtures::unready(world.member(0).pod.as_mut().unwrap());
        assert_eq!(world.condition(conditions::PROGRESSING), "False/DeadlineExceeded");
        world.view.cluster.as_mut().unwrap().spec.version = "3.6.15".into();
        world.pass();
        assert_eq!(world.condition(conditions::PROGRESSING), "True/RetryAfterDeadline");
    }
}
