//! Members that have never joined, and were made from a spec that has been corrected since. Nothing that never joined needs
//! keeping, so they are made anew (T34): otherwise a bad image or an impossible request would outlive its correction.

use api::{MemberTemplate, labels};
use etcd::Membership;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;

use crate::disruption::Disruption;
use crate::healing::{has_ended, never_served};
use crate::pod::etcd_status;
use crate::view::{Assessed, MemberView, Scene, controller_uid};
use crate::{Leaving, Next, Plan, command, joiner};

/// By then a kubelet has told that it has started something, and knows that it must not.
const HEARD: SignedDuration = SignedDuration::from_secs(5);
const OUTDATED: Disruption = Disruption::Delete(Leaving::Outdated);

/// Takes out one such joiner of a formed cluster. True when there is one.
pub(crate) fn remake_joiner(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) -> bool {
    let unheard = |m: &&Assessed<'_>| m.row_in(list).is_none_or(|row| row.is_learner && row.name.is_empty());
    let joiners = scene.running().filter(|m| !m.member.spec.bootstrap);
    let outdated = joiners.into_iter().find(|m| unheard(m) && is_outdated(scene, m));
    outdated.is_some_and(|joiner| plan.disrupt_or_tell(scene, joiner, &OUTDATED))
}

/// Takes out a seed that has formed nothing. True when there is one.
pub(crate) fn remake_seed(scene: &Scene<'_>, seed: &Assessed<'_>, plan: &mut Plan) -> bool {
    // One that was told not to start never will, even if the spec is as it was again.
    let withdrawn = seed.pod.as_ref().is_some_and(command::is_withdrawn);
    let goes = is_outdated(scene, seed) || (withdrawn && is_fresh(seed));
    goes && scene.members.len() == 1 && let_seed_go(scene, seed, plan)
}

/// Takes out a seed that nobody wants any more, if it has formed nothing and is not about to. True when it is.
pub(crate) fn withdraw_seed(scene: &Scene<'_>, seed: &Assessed<'_>, plan: &mut Plan) -> bool {
    let alone = scene.members.len() == 1;
    let stuck = seed.pod.as_ref().is_none_or(is_stuck);
    alone && is_fresh(seed) && stuck && let_seed_go(scene, seed, plan)
}

fn let_seed_go(scene: &Scene<'_>, seed: &Assessed<'_>, plan: &mut Plan) -> bool {
    !withdraw(scene, seed, plan) || plan.disrupt_or_tell(scene, seed, &OUTDATED)
}

/// Makes sure that a seed can not start any more before it goes with its data. True when it can not: it was told, and has had
/// the time to say that it had started before that.
pub(crate) fn withdraw(scene: &Scene<'_>, seed: &MemberView, plan: &mut Plan) -> bool {
    if startable_pod(seed).is_some_and(|pod| !command::is_withdrawn(pod)) {
        plan.disrupt_or_tell(scene, seed, &Disruption::Withdraw);
    }
    let may_start = may_start(seed);
    if may_start {
        plan.look_again(Next::Soon);
    }
    !may_start
}

/// Whether the etcd of a seed may still start, or may have started before it was told not to, and was not heard of yet.
pub(crate) fn may_start(seed: &MemberView) -> bool {
    startable_pod(seed).is_some() && seed.seen.withdrawn.is_none_or(|since| since < HEARD)
}

fn startable_pod(seed: &MemberView) -> Option<&Pod> {
    seed.pod.as_ref().filter(|pod| command::can_be_told(pod) && !has_ended(pod))
}

/// Whether the etcd of a Pod can not start as things are: no node takes it, it has ended, or its container can not be made.
fn is_stuck(pod: &Pod) -> bool {
    let waiting = etcd_status(pod).and_then(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    let refused = waiting.is_some_and(|reason| !["ContainerCreating", "PodInitializing"].contains(&reason));
    let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    !placed || has_ended(pod) || refused
}

/// Never joined, never served, and not what would be made today. On record or in this pass: whoever has once been known
/// to etcd by its name has data.
fn is_outdated(scene: &Scene<'_>, member: &Assessed<'_>) -> bool {
    let made = || MemberTemplate::of_member(&member.member.spec);
    is_fresh(member) && !made().changes_to(&joiner::template(scene)).is_empty()
}

fn is_fresh(member: &Assessed<'_>) -> bool {
    let unheard = !member.has_joined() && member.status.member_id.is_none() && member.serving().is_none();
    // A joiner that etcd has never heard of by name has certainly never run.
    let blank = !member.member.spec.bootstrap || is_blank(member);
    unheard && blank && !member.is_deleting()
}

/// Whether a member that is not on record may have been given something to keep, by clients that could reach it while the
/// operator could not. One that answers has formed a cluster, which goes on record now.
pub(crate) fn may_hold_data(member: &MemberView) -> bool {
    let owned = |pod: &&Pod| member.owns(&pod.metadata);
    let held = if member.is_memory() {
        member.pod.as_ref().filter(owned).is_some_and(|pod| !never_served(pod) && !has_ended(pod))
    } else {
        member.volume.as_ref().is_some_and(|claim| member.owns(&claim.metadata)) && !is_blank(member)
    };
    held || member.serving().is_some()
}

/// Whether nothing can have been written for a member: its first Pod has never served. A Pod that was not made together with
/// the claim is not the first one, and a claim without a Pod may have had one: statuses get lost, and an etcd that the
/// operator could not reach may have served clients for days.
fn is_blank(member: &MemberView) -> bool {
    // One that nobody owns does not go with its member, and may start when that is gone.
    let stays = |pod: &Pod| controller_uid(&pod.metadata) != Some(member.uid());
    if member.pod.as_ref().is_some_and(stays) {
        return false;
    }
    if member.volume.as_ref().is_some_and(|claim| !is_bound(claim)) {
        return true;
    }
    let first = |pod: &Pod| {
        let first = member.is_memory() || pod.annotations().contains_key(labels::annotation::FIRST_START);
        first && never_served(pod)
    };
    match (&member.pod, &member.volume) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some(pod), None) => member.is_memory() && first(pod),
        (Some(pod), Some(_)) => first(pod),
    }
}

/// Whether there is a volume behind a claim.
pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())
}
