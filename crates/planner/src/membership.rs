//! Growing: members join as learners, one after the other, and get their votes at the end.
//!
//! Join first, promote last: after a promotion etcd refuses the next add until the new voter has been connected for
//! five seconds, so promoting in between would cost five seconds a member. Two joiners never start at the same moment:
//! each would wait for the other's version before it serves.

use etcd::Membership;
use jiff::SignedDuration;

use crate::pod::max_learners;
use crate::view::{Assessed, Scene};
use crate::{Action, Next, Plan, joiner};

/// A joiner that has not started by then does not keep the votes of the others waiting.
const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// One step towards the wanted membership. Everything rests on the linearizable list of this pass.
pub(crate) fn converge(scene: &Scene<'_>, plan: &mut Plan) {
    let Some(list) = scene.membership() else {
        plan.wait_for("MemberList failed: no answer from a quorum of etcd");
        if scene.members.iter().any(|m| m.living_pod().is_some()) {
            plan.look_again(Next::Soon);
        }
        return;
    };
    if let Some(leaving) = scene.members.iter().find(|m| m.is_deleting()) {
        // H11: one membership change at a time.
        plan.wait_for(format!(
            "waiting for in-flight deletion of member {} before further scaling",
            leaving.name()
        ));
        return;
    }
    // H5: what was begun is finished first. A learner whose Pod can not start yet can never be promoted.
    if let Some(pending) = scene.running().find(|m| m.is_pending()) {
        complete(list, pending, plan);
        return;
    }
    let wanted = usize::try_from(scene.target().replicas).unwrap_or(0);
    let missing = wanted.saturating_sub(scene.running().count());
    if let Some(starting) = scene.running().find(|m| !has_started(list, m)) {
        plan.wait_for(format!("waiting for member {} to start", starting.name()));
        if starting.living_pod().is_some() {
            plan.look_again(Next::Soon);
        }
        if waited_for(scene, starting) > PATIENCE {
            promote(scene, list, plan);
        }
        return;
    }
    if missing == 0 || list.learners().count() >= max_learners(scene) {
        promote(scene, list, plan);
    } else if let Some(silent) =
        list.voters().find(|v| scene.by_peer_url(v).is_none_or(|m| m.serving().is_none()))
    {
        // H3: a cluster that is not whole is not grown.
        plan.wait_for(format!(
            "waiting for existing members to become Ready before next scale-up step: {} is silent",
            silent.name
        ));
        plan.look_again(Next::Soon);
    } else {
        let name = scene.fresh_member_name();
        plan.act(Action::CreateMember(Box::new(joiner::joiner(scene, &name))));
    }
}

/// Brings a pending member into etcd and tells it whom to join. Safe to repeat after a crash at any point.
fn complete(list: &Membership, pending: &Assessed<'_>, plan: &mut Plan) {
    let peer_url = pending.peer_url();
    if list.by_peer_url(&peer_url).is_none() {
        plan.act(Action::AddLearner { member: pending.name().to_owned(), peer_url });
        // The list that the member joins has to be read again, linearizably.
        plan.look_again(Next::Now);
        return;
    }
    plan.act(Action::WireMember {
        name: pending.name().to_owned(),
        uid: pending.uid().to_owned(),
        initial_cluster: joiner::initial_cluster(list),
    });
}

/// Gives every learner that serves its vote.
fn promote(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    for learner in list.learners() {
        let Some(member) = scene.by_peer_url(learner) else { continue };
        if member.serving().is_some() && !member.is_deleting() {
            plan.act(Action::Promote { member: member.name().to_owned(), id: learner.id });
        }
        plan.look_again(Next::Soon);
    }
}

/// Whether the member's etcd has run at least once: it answers, or it has told the cluster its name.
fn has_started(list: &Membership, member: &Assessed<'_>) -> bool {
    member.serving().is_some() || list.by_peer_url(&member.peer_url()).is_some_and(|row| !row.name.is_empty())
}

fn waited_for(scene: &Scene<'_>, member: &Assessed<'_>) -> SignedDuration {
    let created = member.member.metadata.creation_timestamp.as_ref();
    created.map_or(SignedDuration::ZERO, |t| scene.now.duration_since(t.0))
}
