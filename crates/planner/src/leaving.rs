//! Members on their way out of a living cluster. A member is let go only when etcd has confirmed that it is out; its Pod and
//! volume are garbage-collected after that.

use api::labels;
use etcd::Membership;

use crate::disruption::{Verdict, may_remove};
use crate::view::{MemberView, Scene};
use crate::{Action, Next, Plan, Release, outdated};

/// Takes members that the user or a shrink deleted out of a living cluster.
pub(crate) fn remove_all(scene: &Scene<'_>, plan: &mut Plan) {
    for member in &scene.members {
        let wanted = labels::for_member(&scene.view.name, member.name());
        if member.member.metadata.labels.as_ref().and_then(|l| l.get(labels::CLUSTER))
            != wanted.get(labels::CLUSTER)
        {
            let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
            plan.act(Action::LabelMember { name, uid, labels: wanted });
        }
        if member.is_deleting() {
            // One at a time: the next one is judged on a list without the last one.
            let removing = plan.actions.iter().any(|a| matches!(a, Action::RemoveFromEtcd { .. }));
            if !removing {
                remove(scene, member, plan);
            }
        } else if !member.has_finalizer() {
            let mut finalizers = member.member.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(labels::FINALIZER.to_owned());
            let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
            plan.act(Action::GuardMember { name, uid, finalizers });
        }
    }
}

fn remove(scene: &Scene<'_>, member: &MemberView, plan: &mut Plan) {
    let name = member.name();
    if !scene.is_formed() {
        if !member.has_finalizer() {
            held_by_others(member, plan);
        } else if outdated::may_hold_data(member) {
            plan.complain(format!(
                "member {name} was deleted, but its etcd may have served clients although the operator has never reached it; \
                 its data is kept. Let the operator reach it, and it is replaced; if its data is not needed, delete the \
                 EtcdCluster"
            ));
            plan.look_again(Next::Soon);
        } else if outdated::withdraw(member, plan) {
            plan.act(release(member, Release::NeverFormed));
        }
        return;
    }
    let Some(list) = scene.membership() else {
        if member.has_finalizer() {
            plan.complain(match scene.split {
                Some(_) => format!(
                    "member {name} was deleted, and is kept while members disagree; what it has may be what the others lack"
                ),
                None => format!(
                    "member {name} was deleted, and can leave once etcd has a quorum again; until then its data is kept"
                ),
            });
        }
        plan.look_again(Next::Soon);
        return;
    };
    let Some(row) = member.row_in(list) else {
        if !member.has_finalizer() {
            held_by_others(member, plan);
            return;
        }
        // With the finalizer goes the volume, and nobody can be asked for the vote of what was on it.
        if !plan.actions.contains(&Action::PersistMembership) {
            plan.act(Action::PersistMembership);
        }
        plan.act(release(member, Release::OutOfEtcd));
        return;
    };
    match may_remove(scene, list, row.id) {
        // Where a list of one is left, or can be an impostor's, it goes on record first who is out.
        Verdict::Safe if is_doubtful(scene, list) && !are_on_record(scene, list, member) => {
            plan.look_again(Next::Now);
        }
        Verdict::Safe => {
            hand_over(scene, list, row.id, plan);
            plan.act(Action::RemoveFromEtcd { member: member.name().to_owned(), id: row.id });
            plan.look_again(Next::Now);
        }
        Verdict::Wait(why) => plan.complain(format!("member {name} can not leave: {why}")),
    }
}

/// Only the object of the member is left. What the garbage collector waits for comes to an end by itself.
fn held_by_others(member: &MemberView, plan: &mut Plan) {
    let finalizers = member.member.metadata.finalizers.iter().flatten().map(String::as_str);
    let theirs: Vec<_> = finalizers.filter(|f| !["foregroundDeletion", "orphan"].contains(f)).collect();
    if !theirs.is_empty() {
        plan.complain(format!(
            "EtcdMember {} was deleted and is not needed any more, but stays with its volume because of the finalizer {}, which \
             is not this operator's; whoever put it there has to take it off",
            member.name(),
            theirs.join(", ")
        ));
    }
}

/// Whether it is written down of this member, and of all that are out already, that they leave.
fn are_on_record(scene: &Scene<'_>, list: &Membership, member: &MemberView) -> bool {
    let others = scene.members.iter().filter(|m| m.is_deleting() && m.has_joined());
    let mut out = others.filter(|m| m.uid() == member.uid() || m.row_in(list).is_none());
    out.all(|m| m.is_told_to_leave())
}

fn is_doubtful(scene: &Scene<'_>, list: &Membership) -> bool {
    list.members.len() == 2 || scene.members.iter().any(|m| m.may_turn_impostor())
}

/// T22: a leader that is asked to leave hands over first, so that writes do not wait for an election.
fn hand_over(scene: &Scene<'_>, list: &Membership, leaving: u64, plan: &mut Plan) {
    let leads =
        |id| scene.members.iter().filter_map(|m| m.serving()).any(|s| s.leader == id && s.member_id == id);
    if !leads(leaving) {
        return;
    }
    let from = list.members.iter().find(|row| row.id == leaving).and_then(|row| scene.member_of(row));
    let heir = list.voters().filter(|row| row.id != leaving).find_map(|row| {
        let member = scene.member_of(row).filter(|m| m.serving().is_some() && !m.is_deleting())?;
        Some((member.name().to_owned(), row.id))
    });
    if let (Some(from), Some((to, id))) = (from, heir) {
        plan.act(Action::MoveLeader { from: from.name().to_owned(), to, id });
    }
}

pub(crate) fn release(member: &MemberView, because: Release) -> Action {
    let finalizers = member.member.metadata.finalizers.iter().flatten();
    Action::ReleaseMember {
        name: member.name().to_owned(),
        uid: member.uid().to_owned(),
        finalizers: finalizers.filter(|f| *f != labels::FINALIZER).cloned().collect(),
        because,
    }
}

#[cfg(test)]
mod tests;
