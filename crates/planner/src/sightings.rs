//! How long something has been seen, by the operator itself and without a break. Timestamps of the API server, of kubelets
//! and of this process come from different clocks, and a clock that is minutes off must not turn a slow start or a slow end
//! into a loss (T27). What is remembered here is lost with the process, and then simply takes its time again.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde::{Deserialize, Serialize};

use crate::member_status::is_pod_ready;
use crate::pod::etcd_status;
use crate::{ClusterView, MemberView, command, split};

/// For how long the operator has seen a member in a state; absent while it is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sightings {
    /// Its etcd does not answer.
    pub silent: Option<SignedDuration>,
    /// Its Pod is on its way out.
    pub ending: Option<SignedDuration>,
    /// No node can run its Pod.
    pub unschedulable: Option<SignedDuration>,
    /// Its etcd answers, and its Pod is not ready.
    #[serde(default)]
    pub unprobed: Option<SignedDuration>,
    /// Its etcd has been told not to start.
    #[serde(default)]
    pub withdrawn: Option<SignedDuration>,
    /// How often its container was restarted since it fell silent.
    pub restarts: i32,
    /// The etcd of its Pod has applied less than it had before: it has lost its data since, and begun anew.
    #[serde(default)]
    pub regressed: bool,
}

/// Remembers since when.
#[derive(Clone, Debug, Default)]
pub struct Watchman {
    since: BTreeMap<(State, String), Duration>,
    /// Restarts of a member's container when it fell silent, by [`silence`].
    restarts: BTreeMap<String, i32>,
    /// The most that the etcd of a Pod has said it had applied, and whether it said less since. etcd serves only after it has
    /// caught up with itself.
    applied: BTreeMap<String, (u64, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Silent,
    Ending,
    Unschedulable,
    Unprobed,
    Withdrawn,
    Disputed,
}

impl Watchman {
    /// Tells a view, before etcd is asked, for how long its Pods have been as they are.
    pub fn look_at_pods(&mut self, view: &mut ClusterView, now: Duration) {
        let known = self.clone();
        self.look(view, now);
        // What etcd says is not known yet, and so not forgotten.
        *self = known;
    }

    /// Notes what the view shows, and tells the view for how long it has been so. `now` is a clock that only goes forward.
    pub fn look(&mut self, view: &mut ClusterView, now: Duration) {
        let before = std::mem::take(&mut self.since);
        let restarted = std::mem::take(&mut self.restarts);
        for member in &view.members {
            let Some(silence) = silence(member) else { continue };
            let count = restarts(member);
            // Another Pod begins to count anew.
            let first = restarted.get(&silence).copied().filter(|first| *first <= count).unwrap_or(count);
            self.restarts.insert(silence, first);
        }
        let known = std::mem::take(&mut self.applied);
        for member in &view.members {
            let Some(pod) = member.pod.as_ref().and_then(|p| p.metadata.uid.clone()) else { continue };
            let (most, regressed) = known.get(&pod).copied().unwrap_or_default();
            let applied = member.serving().map_or(most, |s| s.raft_applied_index);
            self.applied.insert(pod, (most.max(applied), regressed || applied < most));
        }
        let mut note = |state: State, whose: Option<&str>| {
            let key = (state, whose?.to_owned());
            let since = before.get(&key).copied().unwrap_or(now);
            self.since.insert(key, since);
            SignedDuration::try_from(now.saturating_sub(since)).ok()
        };
        for member in &mut view.members {
            let pod = |is: fn(&Pod) -> bool| {
                member.pod.as_ref().filter(|p| is(p)).and_then(|p| p.metadata.uid.as_deref())
            };
            let silence = silence(member);
            let silent = silence.as_deref();
            let first = silent.and_then(|silence| self.restarts.get(silence)).copied();
            let applied = pod(|_| true).and_then(|uid| self.applied.get(uid));
            member.seen = Sightings {
                restarts: first.map_or(0, |first| restarts(member) - first),
                silent: note(State::Silent, silent),
                ending: note(State::Ending, pod(|p| p.metadata.deletion_timestamp.is_some())),
                unschedulable: note(State::Unschedulable, pod(|p| unschedulable(p).is_some())),
                unprobed: note(State::Unprobed, pod(|p| !is_pod_ready(p)).filter(|_| silent.is_none())),
                withdrawn: note(State::Withdrawn, pod(command::is_withdrawn)),
                regressed: applied.is_some_and(|(_, regressed)| *regressed),
            };
        }
        let disputed = split::is_disputed(view).then_some("");
        view.etcd.disputed_for = note(State::Disputed, disputed);
    }
}

/// What makes one silence of a member; `None` while its etcd answers. An etcd that its kubelet has found ready in between
/// has served, even if nobody here asked it in time, and falls silent anew after that.
fn silence(member: &MemberView) -> Option<String> {
    let pod = member.pod.as_ref();
    let ready = pod.and_then(|p| p.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == "Ready"));
    let turned = ready.and_then(|c| Some(c.last_transition_time.as_ref()?.0.to_string())).unwrap_or_default();
    member.serving().is_none().then(|| format!("{} {turned}", member.uid()))
}

fn restarts(member: &MemberView) -> i32 {
    member.pod.as_ref().and_then(etcd_status).map_or(0, |c| c.restart_count)
}

/// What the scheduler says about a Pod that it has no place for.
pub(crate) fn unschedulable(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| {
        c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
    })
}

impl MemberView {
    /// Whether the operator has seen its Pod end for longer than that, beyond the time the Pod was given for it.
    pub(crate) fn ends_for_longer_than(&self, patience: SignedDuration) -> bool {
        let grace = self.pod.as_ref().and_then(|p| p.metadata.deletion_grace_period_seconds).unwrap_or(0);
        self.seen
            .ending
            .is_some_and(|ending| ending > patience.saturating_add(SignedDuration::from_secs(grace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use api::EtcdCluster;

    #[test]
    fn a_pod_with_an_absurd_grace_period_is_waited_for_and_ends_nobody() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let pod = world.member(0).pod.as_mut().unwrap();
        pod.metadata.deletion_timestamp = Some(api::conditions::wire_time(crate::fixtures::now()));
        pod.metadata.deletion_grace_period_seconds = Some(i64::MAX);
        Watchman::default().look(&mut world.view, Duration::from_secs(1));
        assert!(crate::endpoint(&world.view, &world.view.members[0]).is_none());
        assert!(!world.member(0).ends_for_longer_than(SignedDuration::MAX));
    }

    #[test]
    fn t27_a_silence_is_as_long_as_it_was_heard_without_a_break() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let mut watchman = Watchman::default();
        let mut heard = |world: &mut World, at: u64| {
            watchman.look(&mut world.view, Duration::from_secs(at));
            world.view.members[0].seen.silent.map(|s| s.as_secs())
        };
        assert_eq!(heard(&mut world, 10), None);
        let answer = world.member(0).etcd.take();
        assert_eq!(heard(&mut world, 100), Some(0));
        assert_eq!(heard(&mut world, 130), Some(30));
        world.member(0).etcd = answer;
        assert_eq!(heard(&mut world, 140), None);
        world.member(0).etcd = None;
        assert_eq!(heard(&mut world, 150), Some(0), "what was before the answer does not count");
    }

    #[test]
    fn t27_a_silence_ends_with_a_moment_in_which_the_kubelet_found_it_ready() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let mut watchman = Watchman::default();
        let turn_ready = |world: &mut World, ready: bool, at: i64| {
            let pod = world.member(0).pod.as_mut().unwrap();
            let status = pod.status.as_mut().unwrap();
            let ready = PodCondition {
                type_: "Ready".into(),
                status: if ready { "True" } else { "False" }.into(),
                last_transition_time: Some(api::conditions::wire_time(
                    crate::fixtures::now() + SignedDuration::from_secs(at),
                )),
                ..PodCondition::default()
            };
            status.conditions = Some(vec![ready]);
            status.container_statuses.as_mut().unwrap()[0].restart_count = i32::try_from(at / 10).unwrap();
        };
        let mut heard = |world: &mut World, at: u64| {
            watchman.look(&mut world.view, Duration::from_secs(at));
            let seen = world.view.members[0].seen;
            (seen.silent.map(|s| s.as_secs()), seen.restarts)
        };
        world.member(0).etcd = None;
        turn_ready(&mut world, false, 10);
        assert_eq!(heard(&mut world, 10), (Some(0), 0));
        let pod = world.member(0).pod.as_mut().unwrap();
        pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].restart_count = 4;
        assert_eq!(heard(&mut world, 50), (Some(40), 3));
        // It was ready for a moment between two passes; that is long enough to have served.
        turn_ready(&mut world, false, 60);
        assert_eq!(heard(&mut world, 71), (Some(0), 0));
        turn_ready(&mut world, true, 80);
        assert_eq!(heard(&mut world, 81), (Some(0), 0));
        assert_eq!(heard(&mut world, 91), (Some(10), 0));
    }

    #[test]
    fn t28_two_leaders_are_heard_through_passes_that_look_at_pods_first() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        for index in [0, 1] {
            let Some(Ok(status)) = &mut world.member(index).etcd else { panic!() };
            (status.leader, status.raft_term) = (status.member_id, index as u64 + 1);
        }
        let answers: Vec<_> = world.view.members.iter().map(|m| m.etcd.clone()).collect();
        let mut watchman = Watchman::default();
        for at in [1, 5, 12] {
            world.view.members.iter_mut().for_each(|m| m.etcd = None);
            watchman.look_at_pods(&mut world.view, Duration::from_secs(at));
            world.view.members.iter_mut().zip(&answers).for_each(|(m, answer)| m.etcd.clone_from(answer));
            watchman.look(&mut world.view, Duration::from_secs(at));
        }
        assert_eq!(world.view.etcd.disputed_for, Some(SignedDuration::from_secs(11)));
        assert_eq!(world.condition(api::conditions::AVAILABLE), "False/MembersDisagree");
    }

    #[test]
    fn t27_another_pod_takes_its_own_time_to_end() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let mut watchman = Watchman::default();
        let pod = world.member(0).pod.as_mut().unwrap();
        // A deletion that lies an hour back by somebody's clock has been seen for no time at all.
        pod.metadata.deletion_timestamp =
            Some(api::conditions::wire_time(crate::fixtures::now() - SignedDuration::from_hours(1)));
        watchman.look(&mut world.view, Duration::from_secs(1));
        assert_eq!(world.view.members[0].seen.ending, Some(SignedDuration::ZERO));
        watchman.look(&mut world.view, Duration::from_secs(61));
        assert_eq!(world.view.members[0].seen.ending, Some(SignedDuration::from_mins(1)));
        world.member(0).pod.as_mut().unwrap().metadata.uid = Some("another".into());
        watchman.look(&mut world.view, Duration::from_secs(62));
        assert_eq!(world.view.members[0].seen.ending, Some(SignedDuration::ZERO));
    }
}
