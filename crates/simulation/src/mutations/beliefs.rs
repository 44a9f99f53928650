//! Operators that misread what they see.

use api::labels::annotation;
use kube::Resource as _;
use planner::{ClusterView, MemberView};

pub(super) fn ended_pods_run(view: &mut ClusterView) {
    for status in view.members.iter_mut().filter_map(|m| m.pod.as_mut()?.status.as_mut()) {
        if status.phase.as_deref() == Some("Failed") {
            status.phase = Some("Running".to_owned());
        }
    }
}

pub(super) fn nobody_was_taken_out(view: &mut ClusterView) {
    for notes in view.members.iter_mut().filter_map(|m| m.member.metadata.annotations.as_mut()) {
        notes.remove(annotation::TAKEN_OUT);
    }
}

/// Takes etcd's word for a member that has started away, too.
fn unnamed(view: &mut ClusterView, is: impl Fn(&MemberView) -> bool) {
    let names: Vec<String> = view.members.iter().filter(|m| is(m)).map(|m| m.name().to_owned()).collect();
    for row in view.etcd.membership.iter_mut().flat_map(|seen| &mut seen.fact.members) {
        if names.contains(&row.name) {
            row.name = String::new();
        }
    }
}

fn forget_joining(member: &mut MemberView) {
    if let Some(status) = &mut member.member.status {
        status.member_id = None;
        status.pvc_uid = None;
        status.pod_uid = None;
    }
}

pub(super) fn never_joined_without_volume(view: &mut ClusterView) {
    unnamed(view, |m| !m.is_memory() && m.volume.is_none());
    for member in view.members.iter_mut().filter(|m| !m.is_memory() && m.volume.is_none()) {
        forget_joining(member);
    }
}

pub(super) fn memory_never_had_a_pod(view: &mut ClusterView) {
    unnamed(view, |m| m.is_memory() && m.pod.is_none());
    for member in view.members.iter_mut().filter(|m| m.is_memory() && m.pod.is_none()) {
        forget_joining(member);
    }
}

pub(super) fn parent_by_name(view: &mut ClusterView) {
    let Some(uid) = view.cluster.as_ref().and_then(|c| c.metadata.uid.clone()) else { return };
    for owner in view.members.iter_mut().flat_map(|m| m.member.metadata.owner_references.iter_mut().flatten())
    {
        owner.uid.clone_from(&uid);
    }
}

pub(super) fn never_formed(view: &mut ClusterView) {
    if view.members.is_empty()
        && let Some(status) = view.cluster.as_mut().and_then(|c| c.status.as_mut())
    {
        status.cluster_id = None;
    }
}

pub(super) fn seeds_are_settled(view: &mut ClusterView) {
    let seeds = view.members.iter_mut().filter(|m| m.member.spec.bootstrap);
    for annotations in seeds.filter_map(|m| m.pod.as_mut()?.metadata.annotations.as_mut()) {
        annotations.remove(annotation::INITIAL_CLUSTER);
        annotations.remove(annotation::INITIAL_CLUSTER_STATE);
    }
}

fn has_owner(member: &MemberView) -> bool {
    planner::controller_uid(&member.member.metadata).is_some()
}

/// Members without an owner are taken for the cluster's own, whatever their token says.
pub(super) fn any_orphan_fits(view: &mut ClusterView) {
    let Some(cluster) = view.cluster.clone() else { return };
    let latched = cluster.status.as_ref().and_then(|s| s.cluster_token.clone());
    let uid = cluster.metadata.uid.clone().unwrap_or_default();
    let token = latched.unwrap_or_else(|| api::names::cluster_token(&view.namespace, &view.name, &uid));
    for member in view.members.iter_mut().filter(|m| !has_owner(m)) {
        member.member.spec.cluster_token.clone_from(&token);
        member.member.metadata.owner_references = cluster.controller_owner_ref(&()).map(|owner| vec![owner]);
    }
}

pub(super) fn no_orphans(view: &mut ClusterView) {
    if view.living_cluster().is_some() {
        view.members.retain(has_owner);
    }
}

/// What the status does not say has not happened, however many members there are.
pub(super) fn nothing_without_status(view: &mut ClusterView) {
    if view.living_cluster().is_some() && view.etcd_cluster().is_none() && view.members.len() > 1 {
        view.members.iter_mut().for_each(forget_joining);
        view.etcd.membership = None;
    }
}

/// Members that serve and are not on the list are taken for silent, so that nothing speaks against the list.
pub(super) fn only_the_list(view: &mut ClusterView) {
    let Some(list) = view.etcd.membership.as_ref().map(|seen| seen.fact.clone()) else { return };
    for member in &mut view.members {
        member.seen.regressed = false;
        if member.row_in(&list).is_none() {
            member.etcd = None;
            // And nobody is missed.
            if let Some(status) = &mut member.member.status {
                (status.role, status.is_voter) = (Some("leaving".to_owned()), false);
            }
        }
    }
}

/// Whatever is on its way out is taken for kept by the operator itself.
pub(super) fn held_by_us(view: &mut ClusterView) {
    for member in view.members.iter_mut().filter(|m| m.is_deleting()) {
        let finalizers = member.member.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|f| f == api::labels::FINALIZER) {
            finalizers.push(api::labels::FINALIZER.to_owned());
        }
    }
}
