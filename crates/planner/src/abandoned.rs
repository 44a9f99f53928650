//! Members whose EtcdCluster is gone or going, or who have none. Nobody could take them out of etcd, so they are let go without
//! that, or kept because others count on them.

use api::EtcdClusterStatus;
use api::conditions::{self, NewCondition, reason};
use jiff::Timestamp;

use crate::Plan;
use crate::disruption::is_orphaning;
use crate::view::{ClusterView, MemberView, controller_uid};

/// Lets go of members whose cluster object is gone or going: the user deleted everything, so there is no etcd to ask
/// (H20).
pub(crate) fn release_all(view: &ClusterView, plan: &mut Plan) {
    for member in view.members.iter().filter(|m| m.is_deleting() && m.has_finalizer()) {
        plan.let_go(view, member);
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

#[cfg(test)]
mod tests;
