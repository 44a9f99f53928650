//! The PersistentVolumeClaim of each member. A claim is made once, before the member's first start; a member that has
//! joined never gets a blank one (T7): it would come back as a voter that has forgotten what it voted for.

use std::collections::BTreeMap;

use api::{MemberTemplate, labels, names};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};

use crate::healing::lost_data;
use crate::view::{MemberView, Scene};
use crate::{Action, Loss, Plan, metadata, pod};

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| pod::has_a_place(scene, m) && !m.is_memory()) {
        let name = names::pvc(member.name());
        match &member.volume {
            None if plan.lets_go(member.name()) => {}
            // T7: the member is replaced instead, if the others can do without it. Until then, it may only be out of sight.
            None if !scene.is_newcomer(member) => {
                plan.act(Action::SeekLost { name: member.name().to_owned(), loss: Loss::Volume });
            }
            None if member.is_deleting() => {}
            None => plan.act(Action::CreateVolume(Box::new(claim(member)))),
            // H15: mounting a stranger's volume could mix two clusters' data.
            Some(found) if member.disowned(&found.metadata).is_some() => {
                let uid = found.metadata.uid.clone().unwrap_or_default();
                let owners = member.disowned(&found.metadata).unwrap_or_default();
                plan.act(Action::AdoptVolume { name, uid, owners });
            }
            Some(found) if !member.owns(&found.metadata) => plan.complain(format!(
                "PersistentVolumeClaim {name} is not owned by EtcdMember {}, so it is neither used nor deleted; it may hold \
                 the member's data. If it does, make the EtcdMember (UID {}) its owner",
                member.name(),
                member.uid()
            )),
            Some(found) if found.metadata.deletion_timestamp.is_some() => {
                let (going, member_name) = ("is being deleted", member.name());
                plan.complain(match member.living_pod() {
                    Some(_) => format!(
                        "PersistentVolumeClaim {name} {going}, and its data goes when Pod {member_name} ends; have the member \
                         replaced first: kubectl delete etcdmember {member_name}"
                    ),
                    None => format!(
                        "PersistentVolumeClaim {name} {going}, so no Pod is started on it, and member {member_name} is \
                         replaced when it is gone; see what holds it: its finalizers, and Pods that mount it"
                    ),
                });
            }
            Some(_) => {}
        }
    }
}

/// Whether the member may get a Pod as far as its data goes.
pub(crate) fn is_usable(scene: &Scene<'_>, member: &MemberView) -> bool {
    match &member.volume {
        // Its Pod may be created together with the claim.
        None => scene.is_newcomer(member),
        Some(found) => {
            member.owns(&found.metadata)
                && lost_data(member).is_none()
                && found.metadata.deletion_timestamp.is_none()
        }
    }
}

fn claim(member: &MemberView) -> PersistentVolumeClaim {
    let MemberTemplate { storage, additional_metadata, .. } = MemberTemplate::of_member(&member.member.spec);
    PersistentVolumeClaim {
        metadata: metadata::of(
            &member.member,
            names::pvc(member.name()),
            labels::for_member(&member.member.spec.cluster_name, member.name()),
            BTreeMap::new(),
            additional_metadata.as_ref(),
        ),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.storage_class_name,
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), storage.size)])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::now;
    use crate::fixtures::{World, estrange};
    use api::EtcdCluster;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    fn world() -> World {
        World::settled(EtcdCluster::test("ns", "c").replicas(1).size("2Gi"))
    }

    #[test]
    fn a_claim_asks_for_the_size_and_leaves_the_class_to_the_cluster() {
        let mut world = world();
        let spec = world.member(0).volume.clone().unwrap().spec.unwrap();
        assert_eq!(spec.resources.unwrap().requests.unwrap()["storage"], Quantity("2Gi".into()));
        assert_eq!(spec.storage_class_name, None, "absent is not empty");
    }

    #[test]
    fn t7_a_member_that_has_joined_gets_no_blank_volume() {
        let mut world = world();
        world.member(0).volume = None;
        world.member(0).pod = None;
        world.member(0).etcd = None;
        world.view.etcd.membership = None;
        let plan = world.plan();
        let made = |a: &Action| matches!(a, Action::CreateVolume(_) | Action::CreatePod(_));
        assert!(!plan.actions.iter().any(made), "neither a claim nor a Pod");
    }

    #[test]
    fn h15_a_claim_of_somebody_else_is_not_mounted() {
        let mut world = world();
        estrange(world.member(0).volume.as_mut().unwrap());
        world.member(0).pod = None;
        assert_eq!(world.plan().actions, []);
    }

    #[test]
    fn memory_needs_no_claim() {
        let world = World::settled(EtcdCluster::test("ns", "c").replicas(1).memory("64Mi"));
        assert!(world.view.members[0].volume.is_none());
        assert!(world.view.members[0].pod.is_some());
    }

    #[test]
    fn t36_a_claim_that_is_going_is_told_of_also_without_a_pod() {
        for replicas in [1, 3] {
            let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(replicas));
            let member = world.member(0);
            let going = Some(api::conditions::wire_time(now()));
            member.volume.as_mut().unwrap().metadata.deletion_timestamp = going;
            assert!(world.plan().complaint.unwrap().contains("its data goes when Pod"));
            let member = world.member(0);
            (member.pod, member.etcd) = (None, None);
            if replicas == 1 {
                world.view.etcd.membership = None;
            }
            let plan = world.plan();
            assert!(!plan.actions.iter().any(|a| matches!(a, Action::CreatePod(_))), "{:?}", plan.actions);
            let complaint = plan.complaint.unwrap();
            assert!(complaint.contains("see what holds it"), "{complaint}");
        }
    }

    #[test]
    fn t7_the_claim_of_a_member_that_is_to_leave_and_is_still_needed_is_looked_for() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.member(0).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        let leaving = world.member(1);
        leaving.member.metadata.deletion_timestamp = Some(api::conditions::wire_time(now()));
        (leaving.pod, leaving.etcd, leaving.volume) = (None, None, None);
        world.view.etcd.membership = None;
        let actions = world.plan().actions;
        assert!(matches!(&actions[..], [Action::SeekLost { .. }]), "{actions:?}");
    }
}
