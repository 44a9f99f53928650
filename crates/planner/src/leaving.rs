//! Members on their way out of a living cluster. A member is let go only when etcd has confirmed that it is out; its Pod and
//! volume are garbage-collected after that.

use api::labels;

use crate::disruption::{self, Disruption, Verdict};
use crate::view::{MemberView, Scene};
use crate::{Action, Next, Plan, outdated};

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
            if !plan.is_removing() {
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

/// A member that was to be deleted, and never was because the call was lost or refused, forgets that once nobody wants it to go
/// any more: else it would be believed to have been on its way out when its user orphans the cluster.
pub(crate) fn retain(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| !m.is_deleting() && disruption::is_own_wish(m)) {
        if !plan.lets_go(member.name()) {
            let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
            plan.act(Action::RetainMember { name, uid });
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
        } else if outdated::withdraw(scene, member, plan) {
            plan.disrupt_or_tell(scene, member, &Disruption::Release);
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
    if member.row_in(list).is_none() {
        if !member.has_finalizer() {
            held_by_others(member, plan);
            return;
        }
        plan.disrupt_or_tell(scene, member, &Disruption::Release);
        return;
    }
    match plan.disrupt(scene, member, &Disruption::Remove) {
        Verdict::Safe | Verdict::Unrecorded => plan.look_again(Next::Now),
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

#[cfg(test)]
mod tests;
