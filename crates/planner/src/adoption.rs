//! Members that a cluster takes up: they were there before it, or somebody has taken their owner off.

use api::{labels, names};
use kube::ResourceExt as _;

use crate::view::{Assessed, ClusterView, MemberView, Scene, controller_uid, owners_with};
use crate::{Action, Plan};

/// Makes the cluster the owner of members that came without one, so that they go with it (T8).
pub(crate) fn adopt(scene: &Scene<'_>, plan: &mut Plan) {
    for member in scene.members.iter().filter(|m| controller_uid(&m.member.metadata).is_none()) {
        plan.act(Action::AdoptMember {
            name: member.name().to_owned(),
            uid: member.uid().to_owned(),
            owners: owners_with(&member.member.metadata, scene),
        });
    }
    let Some(cluster) = scene.cluster.metadata.uid.as_deref() else { return };
    let owned = |m: &&Assessed<'_>| controller_uid(&m.member.metadata) == Some(cluster);
    for member in scene.members.iter().filter(owned).filter(|m| !was_given_to(scene.view, m, cluster)) {
        let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
        plan.act(Action::ConfirmMember { name, uid, cluster: cluster.to_owned() });
    }
}

/// Whether a member is its owner's: made for it, or seen together with it after it was taken up. What is given to an owner in
/// the moment in which that is deleted, and its members left behind, has not been anybody's.
pub(crate) fn was_given_to(view: &ClusterView, member: &MemberView, owner: &str) -> bool {
    let token = names::cluster_token(&view.namespace, &view.name, owner);
    let confirmed = member.member.annotations().get(labels::annotation::ADOPTED_BY);
    member.member.spec.cluster_token == token || confirmed.is_some_and(|uid| uid == owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, now};
    use api::{EtcdCluster, conditions};

    fn world(replicas: i32) -> World {
        World::settled(EtcdCluster::test("ns", "c").replicas(replicas))
    }

    #[test]
    fn t8_a_member_adopted_without_an_owner_is_ours_and_gets_one() {
        let mut world = world(3);
        let theirs = world.member(1).member.metadata.owner_references.take();
        assert!(theirs.is_some());
        assert!(matches!(&world.pass()[..], [Action::AdoptMember { owners, .. }] if owners.len() == 1));
        assert_eq!(world.plan().actions, []);
        assert_eq!(world.status().ready_members, 3);
    }

    #[test]
    fn t25_who_was_taken_up_is_confirmed_once() {
        let mut world = world(1);
        world.view.cluster.as_mut().unwrap().metadata.uid = Some("second".into());
        world.member(0).member.metadata.owner_references = None;
        assert!(matches!(&world.pass()[..], [Action::AdoptMember { .. }, ..]));
        assert!(matches!(&world.pass()[..], [Action::ConfirmMember { cluster, .. }] if cluster == "second"));
        assert_eq!(world.pass(), []);
        // Also one that its user has deleted: it goes with the cluster that it was taken up by.
        world.member(0).member.annotations_mut().clear();
        world.member(0).member.metadata.deletion_timestamp = Some(conditions::wire_time(now()));
        assert!(world.pass().iter().any(|a| matches!(a, Action::ConfirmMember { .. })));
    }
}
