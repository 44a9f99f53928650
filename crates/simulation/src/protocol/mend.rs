//! Defects of the operator that the search has found, and what would mend them. A scenario says whether they are mended:
//! without, the search must find each of them; with, it must find nothing, which shows that the mending is enough. What
//! the planner has learned by itself is deleted here.

use planner::ClusterView;

use super::operator::Decided;
use super::state::{Leaving, Member, Members, NAMES, Op, Row, Volume};

/// The seed has one name, made from the cluster's UID. With a fresh name for every try, a create that was given up and
/// lands after the next try makes a second seed, and both form a cluster (`bootstrap::seed`).
pub const SEED: usize = 0;

/// A member that answers has its data on the claim that is there. Otherwise the UID of an earlier claim, stored before
/// the member ever ran, makes a sound member look as if it had lost its data (`member_status::assess`).
pub fn view(view: &mut ClusterView) {
    for member in view.members.iter_mut().filter(|m| m.serving().is_some() && !m.has_joined()) {
        let uid = member.volume.as_ref().and_then(|v| v.metadata.uid.clone());
        member.member.status.get_or_insert_default().pvc_uid = uid;
    }
}

pub fn calls(members: &[Member; NAMES], max_learners: usize, calls: &mut Vec<Decided>) {
    promote_in_time(members, max_learners, calls);
    promote_the_known(members, calls);
    replace_in_spite_of_leaving(members, calls);
}

/// A learner gets its vote after its id is stored. Otherwise the operator may die in between, and then gives a voter
/// that lost its volume a blank one, because as far as it knows the member never ran (`membership::promote`).
fn promote_the_known(members: &[Member; NAMES], calls: &mut Vec<Decided>) {
    calls.retain(|call| !matches!(call, Decided::Call(Op::Promote { member }) if !members[*member].joined));
}

/// When etcd takes no more learners, those it has are told whom to join and get their votes before another is added.
/// Otherwise, with two pending members, the refused add ends every pass before the first joiner is told, or gets its
/// Pod (`membership::converge`, `membership::complete`).
fn promote_in_time(members: &[Member; NAMES], max_learners: usize, calls: &mut Vec<Decided>) {
    let learners = Members::of(|i| members[i].row == Row::Learner);
    let adds = |call: &Decided| matches!(call, Decided::Call(Op::AddLearner { .. }));
    if learners.count() >= max_learners && calls.iter().any(adds) {
        calls.retain(|call| !adds(call));
        let told = Members::of(|i| members[i].row != Row::None);
        let pending = learners.iter().filter(|i| members[*i].object && members[*i].told.is_none());
        calls.extend(pending.map(|member| Decided::Call(Op::Wire { member, told })));
        let serving = learners.iter().filter(|i| members[*i].up && members[*i].object);
        calls.extend(serving.map(|member| Decided::Call(Op::Promote { member })));
    }
}

/// A broken member is replaced also while another waits to leave. Otherwise each waits for the other for ever: the one
/// may not leave because the broken one does not answer, the other is not replaced because one is leaving
/// (`membership::converge`, H11).
fn replace_in_spite_of_leaving(members: &[Member; NAMES], calls: &mut Vec<Decided>) {
    let (voters, up) = (Members::of(|i| members[i].row == Row::Voter), Members::of(|i| members[i].up));
    let waits = members.iter().any(|m| m.object && m.leaving != Leaving::No && m.row != Row::None);
    let moves = |call: &Decided| matches!(call, Decided::Call(Op::Remove { .. } | Op::Delete { .. }));
    let broken = |m: &Member| m.restarted || (m.joined && m.volume == Volume::None);
    let replaceable = |i: &usize| {
        let m = &members[*i];
        m.object && !m.up && m.leaving == Leaving::No && broken(m) && voters.without(*i).served_by(up)
    };
    if waits && voters.served_by(up) && !calls.iter().any(moves) {
        calls.extend((0..NAMES).find(replaceable).map(|member| Decided::Call(Op::Delete { member })));
    }
}
