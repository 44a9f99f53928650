//! Members that can not come back by themselves, and when they may be replaced. What is wrong is read off the member's
//! own objects; whether it may go is decided by `disruption`, from live evidence (T1). The seed and both media are
//! treated alike (H30).

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::disruption::Disruption;
use crate::pod::etcd_status;
use crate::view::{MemberView, Scene};
use crate::{Leaving, Loss, Plan};

/// Restarts after which a container is not believed to recover.
const RESTARTS: i32 = 5;
/// How long such a member must have been silent, as the operator itself has heard: five restarts may lie a year back.
const SILENCE: SignedDuration = SignedDuration::from_secs(60);
/// How often it must have been restarted during that silence: a node that reboots restarts what it runs once.
const AGAIN: i32 = 2;
/// No client finds an etcd that runs no longer than that before it has been ready once.
const BRIEF: SignedDuration = SignedDuration::from_secs(10);
/// An image is there by then.
const FETCH: SignedDuration = SignedDuration::from_mins(2);

/// Replaces one broken member, if the others can do without it. False when there is nothing to do about it now: the next
/// member to join may be what the others wait for.
pub(crate) fn replace_broken(scene: &Scene<'_>, plan: &mut Plan) -> bool {
    // Who does not serve goes first: one that serves may be what the others can not do without.
    let mut broken: Vec<_> = scene.running().filter_map(|m| Some((m, broken(scene, m)?))).collect();
    broken.sort_by_key(|(m, _)| m.serving().is_some());
    for (member, loss) in broken {
        // Between two crashes, and not in the moment in which it may come up.
        let runs = || member.pod.as_ref().is_none_or(|pod| crash_loop(pod).is_none());
        if matches!(loss, Loss::CrashLoop { .. }) && runs() {
            continue;
        }
        let Some(why) = plan.disrupt(scene, member, &Disruption::Delete(Leaving::Broken(loss))).why_not()
        else {
            return true;
        };
        plan.complain(format!("member {} {loss}, but is kept: {why}", member.name()));
    }
    false
}

/// Says what is wrong while there is no list to decide on.
pub(crate) fn tell(scene: &Scene<'_>, plan: &mut Plan) {
    if let Some(why) = &scene.split {
        plan.complain(format!(
            "{why}: there are two etcd clusters under one name, and nothing is changed before a person has \
                               decided which one is right"
        ));
    }
    if let Some((member, loss)) = scene.running().find_map(|m| Some((m, broken(scene, m)?))) {
        plan.complain(format!("member {} {loss}, but is kept: etcd has no quorum", member.name()));
    }
}

/// What is wrong with a member that will not recover; `None` for one that may. One that answers in this pass serves,
/// whatever became of its Pods before.
pub(crate) fn broken(scene: &Scene<'_>, member: &MemberView) -> Option<Loss> {
    if let Some(loss) = lost_data(member).or_else(|| forgotten_loss(scene, member)) {
        return Some(loss);
    }
    if member.serving().is_some() {
        return None;
    }
    let pod = member.pod.as_ref().filter(|p| member.owns(&p.metadata))?;
    let silent = member.seen.silent.is_some_and(|silent| silent >= SILENCE) && member.seen.restarts >= AGAIN;
    crashes(pod)
        .filter(|_| silent)
        .map(|restarts| Loss::CrashLoop { restarts })
        .or_else(|| lost_node(scene, member))
}

/// Whether the member's data is gone for good.
pub(crate) fn lost_data(member: &MemberView) -> Option<Loss> {
    let status = member.member.status.as_ref()?;
    if member.member.spec.dormant {
        return None;
    }
    if member.is_memory() {
        // A Pod that is on its way out may still be the one that holds the data.
        let known = status.pod_uid.as_deref()?;
        let pod = member.pod.as_ref().filter(|p| p.metadata.uid.as_deref() == Some(known));
        return pod.is_none_or(has_ended).then_some(Loss::Pod);
    }
    status.member_id.as_ref()?;
    match &member.volume {
        None => Some(Loss::Volume),
        Some(found) if status.pvc_uid.is_some() && found.metadata.uid != status.pvc_uid => {
            Some(Loss::OtherVolume)
        }
        Some(_) => None,
    }
}

/// The loss of a member whose own record is lost as well (T26): etcd knows it by a name that it can only have from a
/// start, and what it ran on is not there.
fn forgotten_loss(scene: &Scene<'_>, member: &MemberView) -> Option<Loss> {
    let has_run =
        scene.membership().and_then(|list| member.row_in(list)).is_some_and(|row| !row.name.is_empty());
    if member.has_joined() || !has_run || member.member.spec.dormant {
        return None;
    }
    match (member.is_memory(), &member.pod, &member.volume) {
        (true, None, _) => Some(Loss::Pod),
        (false, _, None) => Some(Loss::Volume),
        _ => None,
    }
}

/// Failed or Succeeded: evicted, or shut down with its node. Such a Pod never runs again (T4).
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// The number of restarts of an etcd that keeps dying. Running out of memory is not cured by a replacement (H32).
fn crashes(pod: &Pod) -> Option<i32> {
    let etcd = etcd_status(pod).filter(|_| pod.metadata.deletion_timestamp.is_none())?;
    (!etcd.ready && etcd.restart_count >= RESTARTS && !out_of_memory(etcd)).then_some(etcd.restart_count)
}

/// The same, while it is down between two crashes.
pub(crate) fn crash_loop(pod: &Pod) -> Option<i32> {
    let waiting = etcd_status(pod)?.state.as_ref()?.waiting.as_ref()?;
    crashes(pod).filter(|_| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
}

/// Whether the etcd in a Pod can not have been given anything to keep: it has never run, or dies right after every start
/// and has never been ready since the Pod was made. A kubelet that turns a Pod away after a restart forgets what has run in
/// it, so one that has ended proves nothing. Nor do times that are not in their order: a clock was set back, or the node
/// controller has turned Ready by its own.
pub(crate) fn never_served(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return true };
    let never_ran = etcd_status(pod).map_or(!has_ended(pod), |c| {
        let state = c.state.as_ref();
        c.restart_count == 0
            && c.last_state.as_ref().is_none_or(|s| s.terminated.is_none())
            && state.is_none_or(|s| s.running.is_none() && s.terminated.is_none())
    });
    let since = |type_: &str| {
        let condition = status.conditions.iter().flatten().find(|c| c.type_ == type_)?;
        Some((condition.status == "True", condition.last_transition_time.as_ref()?.0))
    };
    let never_ready = || match (since("Ready"), since("Initialized")) {
        (Some((false, unready)), Some((true, initialized))) => unready <= initialized,
        _ => false,
    };
    let dies_at_once = || {
        let etcd = etcd_status(pod)?;
        let states = [etcd.state.as_ref(), etcd.last_state.as_ref()];
        if states[0].is_some_and(|s| s.running.is_some()) {
            return None;
        }
        let last = states.into_iter().flatten().find_map(|s| s.terminated.as_ref())?;
        let (began, ended) = (last.started_at.as_ref()?.0, last.finished_at.as_ref()?.0);
        let (_, initialized) = since("Initialized")?;
        let room = room_for_brief_runs(etcd.restart_count);
        Some(
            initialized <= began
                && began <= ended
                && ended.duration_since(began) <= BRIEF
                && began.duration_since(initialized) <= room,
        )
    };
    never_ran || (never_ready() && dies_at_once() == Some(true))
}

/// The most that lies between a Pod's beginning and the last start in it, if every run before that was brief: of those nothing is
/// left to see. Beside them there are the kubelet's pauses, twice as long each time and five minutes at the most, and the time
/// in which the image is fetched.
fn room_for_brief_runs(restarts: i32) -> SignedDuration {
    let pause = |restart: i32| SignedDuration::from_secs((10_i64 << restart.min(5)).min(300)) + BRIEF;
    // Nothing ran before the first start, however late it was.
    if restarts == 0 {
        return SignedDuration::MAX;
    }
    // After so many pauses all are alike.
    let (first, rest) = (restarts.min(6), restarts.saturating_sub(6).max(0));
    let pauses: SignedDuration = (0..first).map(pause).sum();
    FETCH.saturating_add(pauses).saturating_add(pause(6).saturating_mul(rest))
}

fn out_of_memory(container: &ContainerStatus) -> bool {
    let states = [&container.state, &container.last_state];
    let reasons = states.into_iter().filter_map(|s| s.as_ref()?.terminated.as_ref()?.reason.as_deref());
    reasons.into_iter().any(|reason| reason == "OOMKilled")
}

/// The Pod is stuck on a node that does not answer, or its volume is on nodes that are gone, for longer than the operator
/// was told to wait, as it has seen itself. A Pod that merely lacks room has lost nothing.
fn lost_node(scene: &Scene<'_>, member: &MemberView) -> Option<Loss> {
    let patience = scene.view.settings.lost_member_timeout?;
    if member.ends_for_longer_than(patience) {
        return Some(Loss::StuckPod);
    }
    let waited = member.seen.unschedulable.is_some_and(|waited| waited > patience);
    (waited && member.stranded).then_some(Loss::NoNode)
}

#[cfg(test)]
mod tests;
