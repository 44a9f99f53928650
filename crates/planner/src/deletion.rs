//! Members on their way out. A member is let go only when etcd has confirmed that it is out, or its cluster is deleted;
//! its Pod and volume are garbage-collected after that.

use api::labels;

use crate::disruption::{Verdict, may_remove};
use crate::view::{ClusterView, MemberView, Scene, controller_uid};
use crate::{Action, Next, Plan, Release};

/// Lets go of members whose cluster object is gone or going: the user deleted everything, so there is no etcd to ask
/// (H20). A cluster of the same name that was made since is not their parent (T10).
pub(crate) fn release_abandoned(view: &ClusterView, plan: &mut Plan) {
    let living = view.living_cluster().and_then(|c| c.metadata.uid.as_deref());
    for member in view.members.iter().filter(|m| m.is_deleting() && has_finalizer(m)) {
        let Some(owner) = controller_uid(&member.member.metadata) else { continue };
        if Some(owner) != living {
            let because = Release::ClusterDeleted { cluster: view.name.clone(), uid: owner.to_owned() };
            plan.act(release(member, because));
        }
    }
}

/// Takes members that the user or a shrink deleted out of a living cluster.
pub(crate) fn remove_leaving(scene: &Scene<'_>, plan: &mut Plan) {
    for member in &scene.members {
        if member.is_deleting() {
            if has_finalizer(member) {
                remove(scene, member, plan);
            }
        } else if !has_finalizer(member) {
            let mut finalizers = member.member.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(labels::FINALIZER.to_owned());
            let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
            plan.act(Action::GuardMember { name, uid, finalizers });
        }
    }
}

fn remove(scene: &Scene<'_>, member: &MemberView, plan: &mut Plan) {
    if !scene.is_formed() {
        plan.act(release(member, Release::NeverFormed));
        return;
    }
    let Some(list) = scene.membership() else {
        plan.wait_for(format!("member {} can leave once etcd has a quorum again", member.name()));
        plan.look_again(Next::Soon);
        return;
    };
    let Some(row) = list.by_peer_url(&member.peer_url()) else {
        plan.act(release(member, Release::OutOfEtcd));
        return;
    };
    match may_remove(scene, list, row.id) {
        Verdict::Safe => {
            plan.act(Action::RemoveFromEtcd { member: member.name().to_owned(), id: row.id });
            plan.look_again(Next::Now);
        }
        Verdict::Wait(why) => plan.wait_for(format!("member {} can not leave: {why}", member.name())),
    }
}

fn release(member: &MemberView, because: Release) -> Action {
    let finalizers = member.member.metadata.finalizers.iter().flatten();
    Action::ReleaseMember {
        name: member.name().to_owned(),
        uid: member.uid().to_owned(),
        finalizers: finalizers.filter(|f| *f != labels::FINALIZER).cloned().collect(),
        because,
    }
}

fn has_finalizer(member: &MemberView) -> bool {
    member.member.metadata.finalizers.iter().flatten().any(|f| f == labels::FINALIZER)
}
