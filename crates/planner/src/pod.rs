//! The Pod of each member: when it may exist, here; what it looks like, in the files below. A Pod is never changed in place,
//! except for the role label by which Services and budgets tell voters from learners, and the annotations that etcd is started
//! with.

mod build;
mod container;
mod probes;
mod scheduling;
mod security;
mod volumes;

use api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::disruption::Disruption;
use crate::healing::has_ended;
use crate::view::{Assessed, Scene};
use crate::{Action, Ending, Plan, command, outdated, volume};

pub use container::etcd_container;
pub(crate) use container::etcd_status;

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| has_a_place(scene, m)) {
        match &member.pod {
            // One that can not be let go, because somebody refuses that, is still needed.
            None if may_start(scene, member)
                && (!plan.lets_go(member.name()) || scene.view.is_refused(member.name())) =>
            {
                plan.act(Action::CreatePod(Box::new(build::pod(scene, member))));
            }
            None => {}
            Some(found) if member.disowned(&found.metadata).is_some() => {
                let uid = found.metadata.uid.clone().unwrap_or_default();
                let owners = member.disowned(&found.metadata).unwrap_or_default();
                plan.act(Action::AdoptPod { name: member.name().to_owned(), uid, owners });
            }
            Some(found) if !member.owns(&found.metadata) => {
                let name = member.name();
                plan.complain(format!(
                    "Pod {name} is not owned by EtcdMember {name}, so it is neither used nor deleted. If it is the member's, \
                     make the EtcdMember (UID {}) its owner; if not, delete it",
                    member.uid()
                ));
            }
            // T4: it never runs again. What a memory-backed member had is gone with it, and healing deals with that.
            Some(found)
                if has_ended(found) && !member.is_memory() && found.metadata.deletion_timestamp.is_none() =>
            {
                plan.disrupt_or_tell(scene, member, &Disruption::End(Ending::Ended));
            }
            Some(found) => {
                relabel(member, found, plan);
                settle(scene, member, found, plan);
            }
        }
    }
}

/// Members that run, and those that have to leave but are still needed in etcd, or have to be asked first.
pub(crate) fn has_a_place(scene: &Scene<'_>, member: &Assessed<'_>) -> bool {
    let listed = || scene.membership().is_none_or(|list| member.row_in(list).is_some());
    // Who sleeps is alone in etcd.
    let sleeps = scene.members.iter().any(|m| m.member.spec.dormant);
    !member.is_pending()
        && !member.member.spec.dormant
        && (!member.is_deleting()
            || if scene.is_formed() { listed() && !sleeps } else { outdated::may_hold_data(member) })
}

/// A memory-backed member lives and dies with its Pod (H27); a member on a volume needs that volume.
fn may_start(scene: &Scene<'_>, member: &Assessed<'_>) -> bool {
    let had_pod = member.member.status.as_ref().is_some_and(|s| s.pod_uid.is_some());
    if member.is_memory() { !had_pod && scene.is_newcomer(member) } else { volume::is_usable(scene, member) }
}

fn relabel(member: &Assessed<'_>, pod: &Pod, plan: &mut Plan) {
    let labelled = pod.labels().get(labels::ROLE).is_some_and(|role| role == labels::VOTER);
    let voter = member.status.is_voter;
    if labelled != voter && pod.metadata.deletion_timestamp.is_none() {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        plan.act(Action::LabelPod { name: member.name().to_owned(), uid, voter });
    }
}

/// A member that has joined must not begin anew, whatever becomes of its files while its first Pod stays (T7, H31). A seed
/// may, as long as nobody has recorded that it formed anything: there is nobody else to join.
fn settle(scene: &Scene<'_>, member: &Assessed<'_>, pod: &Pod, plan: &mut Plan) {
    let alone = command::alone(member);
    if scene.is_formed()
        && member.has_joined()
        && command::may_begin_anew(pod, &alone)
        && pod.metadata.deletion_timestamp.is_none()
    {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        plan.act(Action::SettlePod { name: member.name().to_owned(), uid, initial_cluster: alone });
    }
}

#[cfg(test)]
mod tests;
