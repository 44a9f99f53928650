//! Members that were deleted and have no EtcdCluster to take them out of etcd: it is gone or going, or was never theirs. There
//! is no etcd to ask whom the others can spare (H20), so the rule is whether anybody is left who counts on them.

use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::adoption::was_given_to;
use crate::view::{ClusterView, MemberView, controller_uid};
use crate::{Release, identity};

/// What becomes of a member that was deleted.
pub(super) enum Abandoned {
    /// It has a cluster that takes care of it.
    No,
    /// It is kept for this reason.
    Kept(String),
    LetGo(Release),
}

pub(super) fn judge(view: &ClusterView, member: &MemberView) -> Abandoned {
    let (owner, name) = (controller_uid(&member.member.metadata), member.name());
    let is_abandoned = match owner {
        // A cluster of the same name that was made since is not its parent (T10).
        Some(owner) => Some(owner) != kept_by(view),
        // T24: the cluster was deleted and its members were left behind on purpose.
        None => view.cluster.is_none() || is_outsider(view, member),
    };
    let is_empty = identity::is_empty(member);
    if let Some(owner) = owner.filter(|owner| is_abandoned && !was_given_to(view, member, owner) && !is_empty)
    {
        return Abandoned::Kept(format!(
            "EtcdMember {name} was given to an EtcdCluster (UID {owner}) that was gone before anybody saw them together, and is \
             deleted for that reason alone; its data is kept. To use it, take the owner off, and apply the EtcdCluster again: \
             kubectl patch etcdmember {name} --namespace {} --type=merge --patch '{{\"metadata\":{{\"ownerReferences\":null}}}}'; \
             if the data is not needed, take the finalizers off the same way",
            view.namespace
        ));
    }
    if view.cluster.is_some() && view.living_cluster().is_none() && owner.is_none() {
        return Abandoned::Kept(format!(
            "member {name} was deleted; it is looked at again when its EtcdCluster, which is being deleted as well, is gone"
        ));
    }
    if !is_abandoned {
        return Abandoned::No;
    }
    if owner.is_none() && is_needed(view, member) {
        return Abandoned::Kept(format!(
            "member {name} was deleted and has no cluster; it is kept, because without an EtcdCluster nobody takes it out of \
             etcd, where the members that were left behind with it count on its vote. Apply the EtcdCluster again, or \
             delete the others, too"
        ));
    }
    if owner.is_none() && was_taken_out(member) && !is_empty {
        return Abandoned::Kept(format!(
            "member {name} was being taken out of its etcd cluster when it was left behind without an EtcdCluster; its data \
             is kept, because it may be the last. Apply the EtcdCluster again; if the data is not needed, let it go: \
             kubectl patch etcdmember {name} --namespace {} --type=merge --patch '{{\"metadata\":{{\"finalizers\":null}}}}'",
            view.namespace
        ));
    }
    Abandoned::LetGo(match owner {
        None if view.cluster.is_some() && is_empty => Release::Empty,
        None if view.cluster.is_some() => Release::Outsider,
        _ => Release::ClusterDeleted {
            cluster: view.name.clone(),
            uid: owner.map(str::to_owned),
            empty: is_empty,
        },
    })
}

/// The UID of a cluster that takes nobody along: it lives, or is deleted with its dependents left behind.
fn kept_by(view: &ClusterView) -> Option<&str> {
    let cluster = view.cluster.as_ref()?;
    let stays = cluster.metadata.deletion_timestamp.is_none() || is_orphaning(&cluster.metadata);
    cluster.metadata.uid.as_deref().filter(|_| stays)
}

/// Whether a member without an owner is not this cluster's: of two that do not fit together, a user deletes the wrong one.
fn is_outsider(view: &ClusterView, member: &MemberView) -> bool {
    let Some(cluster) = view.living_cluster() else { return false };
    let family = identity::family(view, cluster);
    family.conflict.is_none() && !family.has(member)
}

/// Whether an object is on its way out and its dependents are to stay.
pub(crate) fn is_orphaning(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|f| f == "orphan")
}

/// Whether it may have been the operator that wanted to be rid of it, and not a user.
fn was_taken_out(member: &MemberView) -> bool {
    member.is_told_to_leave() || is_own_wish(member)
}

/// Whether it was the operator that deleted it, or was about to.
pub(crate) fn is_own_wish(member: &MemberView) -> bool {
    member.member.annotations().contains_key(labels::annotation::TAKEN_OUT)
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
