//! Members whose EtcdCluster is gone or going, or who have none. There is nobody who could take them out of etcd, so they are
//! let go without it, or kept because others count on them.

use api::EtcdClusterStatus;
use api::conditions::{self, NewCondition, reason};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::adoption::was_given_to;
use crate::leaving::release;
use crate::view::{ClusterView, MemberView, controller_uid};
use crate::{Plan, Release, identity};

/// Lets go of members whose cluster object is gone or going: the user deleted everything, so there is no etcd to ask
/// (H20). A cluster of the same name that was made since is not their parent (T10).
pub(crate) fn release_all(view: &ClusterView, plan: &mut Plan) {
    // A cluster that is deleted with its dependents left behind takes nobody along.
    let kept = view
        .cluster
        .as_ref()
        .filter(|c| c.metadata.deletion_timestamp.is_none() || is_orphaning(&c.metadata));
    let kept = kept.and_then(|c| c.metadata.uid.as_deref());
    for member in view.members.iter().filter(|m| m.is_deleting() && m.has_finalizer()) {
        let owner = controller_uid(&member.member.metadata);
        let abandoned = match owner {
            Some(owner) => Some(owner) != kept,
            // T24: the cluster was deleted and its members were left behind on purpose.
            None => view.cluster.is_none() || is_outsider(view, member),
        };
        let unseen = |owner: &&str| !was_given_to(view, member, owner) && !identity::is_empty(member);
        if let Some(owner) = owner.filter(|owner| abandoned && unseen(owner)) {
            let name = member.name();
            plan.complain(format!(
                "EtcdMember {name} was given to an EtcdCluster (UID {owner}) that was gone before anybody saw them together, and is \
                 deleted for that reason alone; its data is kept. To use it, take the owner off, and apply the EtcdCluster again: \
                 kubectl patch etcdmember {name} --namespace {} --type=merge --patch '{{\"metadata\":{{\"ownerReferences\":null}}}}'; \
                 if the data is not needed, take the finalizers off the same way",
                view.namespace
            ));
        } else if view.cluster.is_some() && view.living_cluster().is_none() && owner.is_none() {
            plan.complain(format!(
                "member {} was deleted; it is looked at again when its EtcdCluster, which is being deleted as well, is gone",
                member.name()
            ));
        } else if abandoned && owner.is_none() && is_needed(view, member) {
            plan.complain(format!(
                "member {} was deleted and has no cluster; it is kept, because without an EtcdCluster nobody takes it out of \
                 etcd, where the members that were left behind with it count on its vote. Apply the EtcdCluster again, or \
                 delete the others, too",
                member.name()
            ));
        } else if abandoned && owner.is_none() && was_taken_out(member) && !identity::is_empty(member) {
            let name = member.name();
            plan.complain(format!(
                "member {name} was being taken out of its etcd cluster when it was left behind without an EtcdCluster; its data \
                 is kept, because it may be the last. Apply the EtcdCluster again; if the data is not needed, let it go: \
                 kubectl patch etcdmember {name} --namespace {} --type=merge --patch '{{\"metadata\":{{\"finalizers\":null}}}}'",
                view.namespace
            ));
        } else if abandoned {
            let because = if view.cluster.is_some() && owner.is_none() {
                if identity::is_empty(member) { Release::Empty } else { Release::Outsider }
            } else {
                Release::ClusterDeleted { cluster: view.name.clone(), uid: owner.map(str::to_owned) }
            };
            plan.act(release(member, because));
        }
    }
}

/// What a cluster says while it is deleted and something holds it up: nobody looks after its members any more.
pub(crate) fn farewell(view: &ClusterView, now: Timestamp) -> Option<EtcdClusterStatus> {
    let cluster = view.cluster.as_ref().filter(|c| !is_orphaning(&c.metadata))?;
    let mut status = cluster.status.clone()?;
    let uid = cluster.metadata.uid.as_deref();
    let owns = |m: &MemberView| uid.is_some() && controller_uid(&m.member.metadata) == uid;
    let message = if view.members.iter().any(|m| !m.is_let_go() && !owns(m)) {
        "the EtcdCluster is being deleted, and its members were left behind"
    } else {
        "the EtcdCluster is being deleted, and its members with it"
    };
    for (type_, on) in [(conditions::AVAILABLE, false), (conditions::PROGRESSING, true)] {
        let condition = NewCondition::new(type_, on, reason::DELETING, message, cluster.metadata.generation);
        conditions::set_condition(&mut status.conditions, condition, now);
    }
    Some(status)
}

/// Whether a member without an owner is not this cluster's: of two that do not fit together, a user deletes the wrong one.
fn is_outsider(view: &ClusterView, member: &MemberView) -> bool {
    let Some(cluster) = view.living_cluster() else { return false };
    let family = identity::family(view, cluster);
    family.conflict.is_none() && !family.has(member)
}

/// Whether an object is on its way out and its dependents are to stay.
fn is_orphaning(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|f| f == "orphan")
}

/// Whether it was the operator that wanted to be rid of it, and not a user.
fn was_taken_out(member: &MemberView) -> bool {
    member.is_told_to_leave() || member.member.annotations().contains_key(labels::annotation::TAKEN_OUT)
}

/// Whether others were left behind that count on this one's vote: without a cluster there is nobody to take it out of etcd,
/// and nobody who could tell how many votes the others can spare.
fn is_needed(view: &ClusterView, member: &MemberView) -> bool {
    let token = &member.member.spec.cluster_token;
    let record = member.member.status.as_ref().filter(|s| s.member_id.is_some());
    // One whose record was lost may vote, if it has ever had anything to run on.
    let votes = record.map_or(member.pod.is_some() || member.volume.is_some(), |s| s.is_voter);
    let stays = |m: &MemberView| !m.is_deleting() || is_orphaning(&m.member.metadata);
    let others = view.members.iter().filter(|m| m.uid() != member.uid());
    let others = others.filter(|m| m.member.spec.cluster_token == *token && stays(m));
    // What a member has left behind runs on without it.
    votes && (others.count() > 0 || view.strays.iter().any(|stray| !stray.leaving))
}

#[cfg(test)]
mod tests;
