//! Who votes, who serves, and whether that is enough.

use etcd::Membership;

use super::{Verdict, wait};
use crate::Action;
use crate::view::{MemberView, Scene};

/// May the row of this id be taken out of etcd, as far as the others' quorum goes?
pub(super) fn may_lose(scene: &Scene<'_>, list: &Membership, id: u64) -> Result<(), Verdict> {
    let Some(leaving) = list.members.iter().find(|m| m.id == id) else { return Ok(()) };
    // A learner has no vote to lose.
    if leaving.is_learner {
        return Ok(());
    }
    let others: Vec<_> = list.voters().filter(|m| m.id != id).collect();
    // T1, T12: the last voter holds the last copy of the data.
    if others.is_empty() {
        return wait("it is the last voter and holds the only copy of the data");
    }
    let serving = others.iter().filter(|m| is_serving(scene, m)).count();
    let quorum = etcd::quorum(others.len());
    if serving < quorum {
        return wait(format!(
            "only {serving} of the {} other voters answer, {quorum} are needed",
            others.len()
        ));
    }
    Ok(())
}

/// May a learner be given its vote now? As long as all voters serve, yes. While one is silent, only if the others are a
/// quorum of all without the learner: it may have died since it answered, and its vote would be the one that is missing.
pub(crate) fn may_promote(scene: &Scene<'_>, list: &Membership) -> Verdict {
    let voters = list.voters().count();
    let serving = list.voters().filter(|m| is_serving(scene, m)).count();
    let quorum = etcd::quorum(voters + 1);
    if serving == voters || serving >= quorum {
        return Verdict::Safe;
    }
    Verdict::Wait(format!("only {serving} of {voters} voters answer, {quorum} are needed with one more"))
}

/// Whether nobody but this member has a vote.
pub(super) fn is_last(list: &Membership, member: &MemberView) -> bool {
    let mut voters = list.voters();
    let last = voters.next().filter(|row| member.stands_for(row));
    last.is_some() && voters.next().is_none()
}

/// T22: a leader that is asked to leave hands over first, so that writes do not wait for an election.
pub(super) fn hand_over(scene: &Scene<'_>, list: &Membership, leaving: u64) -> Option<Action> {
    let leads =
        |id| scene.members.iter().filter_map(|m| m.serving()).any(|s| s.leader == id && s.member_id == id);
    if !leads(leaving) {
        return None;
    }
    let from = list.members.iter().find(|row| row.id == leaving).and_then(|row| scene.member_of(row))?;
    let (to, id) = list.voters().filter(|row| row.id != leaving).find_map(|row| {
        let member = scene.member_of(row).filter(|m| m.serving().is_some() && !m.is_deleting())?;
        Some((member.name().to_owned(), row.id))
    })?;
    Some(Action::MoveLeader { from: from.name().to_owned(), to, id })
}

/// Whether the voter answered in this pass, under the id etcd knows it by, and follows the leader that whoever gave the
/// list follows: one that leads a cluster of its own does not count (T28).
fn is_serving(scene: &Scene<'_>, row: &etcd::Member) -> bool {
    let speaker = scene.view.etcd.membership.as_ref().map(|seen| &seen.from);
    let speaker = scene.view.members.iter().find(|m| Some(m.name()) == speaker.map(String::as_str));
    let leader = speaker.and_then(|m| m.serving()).map(|s| s.leader);
    let status = scene.member_of(row).and_then(|m| m.view.serving());
    status.is_some_and(|s| {
        s.member_id == row.id && s.leader != 0 && leader.is_none_or(|leader| s.leader == leader)
    })
}
