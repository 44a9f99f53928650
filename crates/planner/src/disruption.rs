//! The one place that decides whether a member may be taken out now. It looks at live evidence only: the linearizable
//! list of this pass and who answered in this pass. No counter, no memory, no hope.

use etcd::Membership;

use crate::alarms;
use crate::view::Scene;

/// The answer, with the reason when it is no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Safe,
    Wait(String),
}

/// May the member with this etcd id be removed from etcd now?
pub(crate) fn may_remove(scene: &Scene<'_>, list: &Membership, id: u64) -> Verdict {
    let Some(leaving) = list.members.iter().find(|m| m.id == id) else { return Verdict::Safe };
    // A learner has no vote to lose.
    if leaving.is_learner {
        return Verdict::Safe;
    }
    let others: Vec<_> = list.voters().filter(|m| m.id != id).collect();
    // T1, T12: the last voter holds the last copy of the data.
    if others.is_empty() {
        return Verdict::Wait("it is the last voter and holds the only copy of the data".to_owned());
    }
    let serving = others.iter().filter(|m| is_serving(scene, m)).count();
    let quorum = etcd::quorum(others.len());
    if serving < quorum {
        return Verdict::Wait(format!(
            "only {serving} of the {} other voters answer, {quorum} are needed",
            others.len()
        ));
    }
    Verdict::Safe
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

/// Why nobody is taken out now of the operator's own accord; what a user has deleted leaves all the same.
pub(crate) fn held(scene: &Scene<'_>) -> Option<String> {
    // Which copy is the good one is for a person to find out.
    alarms::is_raised(scene, "CORRUPT")
        .then(|| "etcd has raised its CORRUPT alarm, and nothing is deleted under it".to_owned())
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
