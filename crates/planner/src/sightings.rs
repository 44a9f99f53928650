//! How long something has been seen, by the operator itself and without a break. Timestamps of the API server, of kubelets
//! and of this process come from different clocks, and a clock that is minutes off must not turn a slow start or a slow end
//! into a loss (T27). What is remembered here is lost with the process, and then simply takes its time again.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use crate::{ClusterView, MemberView, split};

/// For how long the operator has seen a member in a state; absent while it is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// Its etcd does not answer.
    pub silent: Option<SignedDuration>,
    /// Its Pod is on its way out.
    pub ending: Option<SignedDuration>,
    /// No node can run its Pod.
    pub unschedulable: Option<SignedDuration>,
}

/// Remembers since when.
#[derive(Clone, Debug, Default)]
pub struct Watchman {
    since: BTreeMap<(State, String), Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Silent,
    Ending,
    Unschedulable,
    Disputed,
}

impl Watchman {
    /// Notes what the view shows, and tells the view for how long it has been so. `now` is a clock that only goes forward.
    pub fn look(&mut self, view: &mut ClusterView, now: Duration) {
        let before = std::mem::take(&mut self.since);
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
            let silent = member.serving().is_none().then(|| member.uid());
            member.seen = Sightings {
                silent: note(State::Silent, silent),
                ending: note(State::Ending, pod(|p| p.metadata.deletion_timestamp.is_some())),
                unschedulable: note(State::Unschedulable, pod(|p| unschedulable(p).is_some())),
            };
        }
        let disputed = split::is_disputed(view).then_some("");
        view.etcd.disputed_for = note(State::Disputed, disputed);
    }
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
        self.seen.ending.is_some_and(|ending| ending > patience + SignedDuration::from_secs(grace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use api::EtcdCluster;

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
