//! Who is in etcd: one change at a time, each on the linearizable list of the pass. Members join as learners, one after
//! the other, and get their votes at the end.
//!
//! Join first, promote last: after a promotion etcd refuses the next add until the new voter has been connected for
//! five seconds, so promoting in between would cost five seconds a member. The next joiner is added only when the last
//! one has started: whoever starts resolves the name of every other member and asks for its version before it serves,
//! and one that is listed but not there yet costs many seconds.

use etcd::Membership;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use crate::command::{self, max_learners};
use crate::disruption::{self, Disruption, may_promote};
use crate::view::{Assessed, Scene};
use crate::{Action, Ending, Next, Plan, healing, joiner, orphans, outdated, pause, shrink};

/// A joiner that has not started by then does not keep the votes of the others waiting.
const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// One step towards the wanted membership. What changes it rests on the linearizable list of this pass.
pub(crate) fn converge(scene: &Scene<'_>, plan: &mut Plan) {
    if pause::sleep_or_wake(scene, plan) {
        return;
    }
    let wanted = usize::try_from(scene.target().replicas).unwrap_or(0);
    let present = scene.running().count();
    if wanted == 0 && present == 0 {
        return;
    }
    let Some(list) = scene.membership() else {
        if wanted == 0 && scene.running().all(|m| m.is_unused()) {
            return;
        }
        plan.wait_for("MemberList failed: no answer from a quorum of etcd");
        healing::tell(scene, plan);
        if scene.members.iter().any(|m| m.living_pod().is_some()) {
            plan.look_again(Next::Soon);
        }
        return;
    };
    if let Some(leaving) = disruption::leaving(scene, list) {
        // H11: one membership change at a time.
        let name = leaving.name();
        plan.wait_for(format!("waiting for in-flight member deletion before further scaling: {name}"));
        // It may be held up by one that can not come back by itself: then that one goes first, or nobody ever does.
        if disruption::is_held_up(scene, leaving)
            && !orphans::remove(scene, list, plan)
            && !healing::replace_broken(scene, plan)
        {
            tell_overtaken(scene, list, plan);
        }
        return;
    }
    if orphans::remove(scene, list, plan)
        || healing::replace_broken(scene, plan)
        || outdated::remake_joiner(scene, list, plan)
    {
        return;
    }
    let is_full = is_full(scene, list);
    if present > wanted {
        shrink::shrink(scene, list, plan);
    } else if let Some(pending) = next_pending(scene, list, is_full) {
        // H5: what was begun is finished first. A learner whose Pod can not start yet can never be promoted.
        complete(list, pending, plan);
    } else if let Some(starting) = next_starting(scene, list) {
        await_start(scene, list, starting, plan);
    } else if present == wanted || is_full {
        promote(scene, list, plan);
    } else {
        grow(scene, list, plan);
    }
}

/// Whether etcd has as many learners as every member takes. It is not asked for one more then: the leader would refuse, but a
/// member that takes more would not, and from then on has a list of its own.
fn is_full(scene: &Scene<'_>, list: &Membership) -> bool {
    list.learners().count() >= max_learners(scene, list)
}

/// A member that was told whom to join and has not started yet; whom etcd has goes first.
fn next_starting<'s, 'a>(scene: &'s Scene<'a>, list: &Membership) -> Option<&'s Assessed<'a>> {
    let starting = scene.running().filter(|m| !m.is_pending() && !has_started(list, m));
    starting.min_by_key(|m| m.row_in(list).is_none())
}

/// The pending member that can be helped now: one that etcd has already, or one that it has room for.
fn next_pending<'s, 'a>(scene: &'s Scene<'a>, list: &Membership, is_full: bool) -> Option<&'s Assessed<'a>> {
    let mut pending = scene.running().filter(|m| m.is_pending());
    let listed = scene.running().find(|m| m.is_pending() && m.row_in(list).is_some());
    listed.or_else(|| pending.next().filter(|_| !is_full))
}

/// Creates the next member, unless a voter is silent: a cluster that is not whole is not grown (H3).
fn grow(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    let silent = |row: &&etcd::Member| scene.member_of(row).is_none_or(|m| m.serving().is_none());
    if let Some(silent) = list.voters().find(silent) {
        let name = &silent.name;
        plan.wait_for(format!(
            "waiting for existing members to become Ready before next scale-up step: {name} is silent"
        ));
        plan.look_again(Next::Soon);
        return;
    }
    let name = scene.fresh_member_name();
    plan.act(Action::CreateMember(Box::new(joiner::joiner(scene, &name))));
}

/// A member that has been told whom to join and has not started yet.
fn await_start(scene: &Scene<'_>, list: &Membership, starting: &Assessed<'_>, plan: &mut Plan) {
    let name = starting.name();
    plan.wait_for(format!("waiting for member {name} to start"));
    if !starting.has_joined() && starting.row_in(list).is_none() && is_full(scene, list) {
        // It joins when there is room again.
        promote(scene, list, plan);
        return;
    }
    if starting.living_pod().is_some() {
        plan.look_again(Next::Soon);
    }
    if starting.status.member_id.is_none() {
        refresh(scene, list, starting, plan);
    } else if starting.has_joined() && starting.row_in(list).is_none() {
        plan.complain(format!(
            "etcd does not list member {name} although nobody here took it out; it is kept, because it may hold data that the \
             others do not have. Have it replaced if it does not: kubectl delete etcdmember {name}"
        ));
    }
    if starting.seen.silent.is_some_and(|silent| silent > PATIENCE) {
        promote(scene, list, plan);
    }
}

/// T13: a joiner that etcd has and that an earlier change overtook can not start before it is told, whatever else is
/// waited for; it may be the very one whose vote is missing.
fn tell_overtaken(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) {
    let starting =
        |m: &&Assessed<'_>| m.status.member_id.is_none() && m.row_in(list).is_some() && !has_started(list, m);
    for joiner in scene.running().filter(starting) {
        refresh(scene, list, joiner, plan);
    }
}

/// T13: etcd refuses to start on a list that is not the present one, so a joiner that was overtaken by another change
/// is told anew and started anew.
fn refresh(scene: &Scene<'_>, list: &Membership, starting: &Assessed<'_>, plan: &mut Plan) {
    let spec = &starting.member.spec;
    if spec.bootstrap {
        return;
    }
    let present = joiner::initial_cluster(list);
    if starting.row_in(list).is_none() || spec.initial_cluster != present {
        complete(list, starting, plan);
    } else if let Some(pod) = starting.living_pod()
        && command::initial_cluster(pod).is_some_and(|list| list != present)
    {
        let because = Ending::Overtaken { member: starting.uid().to_owned() };
        plan.disrupt_or_tell(scene, starting, &Disruption::End(because));
    }
}

/// Brings a pending member into etcd and tells it whom to join. Safe to repeat after a crash at any point.
fn complete(list: &Membership, pending: &Assessed<'_>, plan: &mut Plan) {
    if pending.row_in(list).is_none() {
        let (member, peer_url) = (pending.name().to_owned(), pending.peer_url());
        plan.act(Action::AddLearner { member, peer_url });
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
        let Some(member) = scene.member_of(learner) else { continue };
        plan.look_again(Next::Soon);
        if member.serving().is_none() || member.is_deleting() {
            continue;
        }
        if let Some(voter) = unsettled(scene, list) {
            plan.wait_for(format!(
                "member {} gets its vote later: the Pod of voter {} could still begin anew, and has to be told first",
                member.name(),
                voter.name()
            ));
        } else if let Some(why) = may_promote(scene, list).why_not() {
            plan.wait_for(format!("member {} gets its vote later: {why}", member.name()));
        } else if is_on_record(member) {
            plan.act(Action::Promote { member: member.name().to_owned(), id: learner.id });
        } else if !member.has_joined() && member.status.member_id.is_some() {
            // It goes on record at the end of this pass.
            plan.look_again(Next::Now);
        }
    }
}

/// A voter whose etcd could begin anew without its data, as far as its Pod can be told otherwise: with more votes than its
/// own there would be two clusters then.
fn unsettled<'a>(scene: &'a Scene<'_>, list: &Membership) -> Option<&'a Assessed<'a>> {
    let voters = list.voters().filter_map(|row| scene.member_of(row));
    let anew = |m: &&Assessed<'_>| {
        m.living_pod().is_some_and(|pod| command::may_begin_anew(pod, &command::alone(m)))
    };
    voters.into_iter().find(anew)
}

/// Whether it is written down, on the member and on its Pod, that the member has joined. From its first vote on it must
/// never come back without its data (T7), also if this process ends right after the promotion.
fn is_on_record(member: &Assessed<'_>) -> bool {
    let settled = |pod: &Pod| !command::may_begin_anew(pod, &command::alone(member));
    member.has_joined() && member.pod.as_ref().is_some_and(settled)
}

/// Whether the member's etcd has run at least once: it answers, or it has told the cluster its name.
fn has_started(list: &Membership, member: &Assessed<'_>) -> bool {
    member.serving().is_some() || member.row_in(list).is_some_and(|row| !row.name.is_empty())
}

#[cfg(test)]
mod tests;
