//! Rows of etcd's member list that no EtcdMember stands for (T9): a learner that can never be promoted blocks every
//! other join, a voter that does not exist weighs on the quorum. Only rows that carry a name of ours are touched.

use etcd::Membership;

use crate::Plan;
use crate::view::Scene;

/// Removes one orphan. True when there is one to deal with.
pub(crate) fn remove(scene: &Scene<'_>, list: &Membership, plan: &mut Plan) -> bool {
    let known = |row: &etcd::Member| scene.view.members.iter().any(|m| m.stands_for(row));
    let strangers = || list.members.iter().filter(|row| !known(row));
    let Some((orphan, name)) = strangers().find_map(|row| Some((row, our_name(scene, row)?))) else {
        if let Some(foreign) = strangers().next() {
            let urls = foreign.peer_urls.join(", ");
            plan.complain(format!(
                "etcd lists a member that is not ours ({urls}); remove it if nobody needs it"
            ));
        }
        return false;
    };
    if let Some(why) = plan.remove_orphan(scene, orphan, &name).why_not() {
        plan.complain(format!("orphan {name} in etcd can not be removed: {why}"));
    }
    true
}

/// The member name in a peer URL that the operator made for this cluster.
fn our_name(scene: &Scene<'_>, row: &etcd::Member) -> Option<String> {
    let view = scene.view;
    let suffix = format!(
        ".{}.{}.svc:{}",
        api::names::headless_service(&view.name),
        view.namespace,
        api::names::PEER_PORT
    );
    row.peer_urls.iter().find_map(|url| {
        let name = url.split_once("://")?.1.strip_suffix(&suffix)?;
        name.starts_with(&api::names::member_prefix(&view.name)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use crate::Action;
    use crate::fixtures::World;
    use api::EtcdCluster;

    fn world(url: &str, is_learner: bool) -> World {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let row = etcd::Member { id: 99, name: String::new(), peer_urls: vec![url.to_owned()], is_learner };
        world.rows().push(row);
        world
    }

    #[test]
    fn t9_a_learner_without_a_member_object_is_removed() {
        let mut world = world("http://c-gone1.c.ns.svc:2380", true);
        assert!(
            matches!(&world.pass()[..], [Action::RemoveOrphan { member, id: 99, .. }, Action::PersistMembership] if member == "c-gone1")
        );
        assert_eq!(world.plan().actions, []);
    }

    #[test]
    fn t9_a_voter_without_a_member_object_is_removed_only_while_the_others_are_well() {
        let mut world = world("http://c-gone1.c.ns.svc:2380", false);
        assert!(matches!(&world.plan().actions[0], Action::RemoveOrphan { .. }));
        for index in [0, 1] {
            world.member(index).etcd = Some(Err(etcd::Error::Unreachable { member: "x".into() }));
        }
        assert_eq!(world.plan().actions, []);
        assert!(world.plan().complaint.is_some());
    }

    #[test]
    fn t9_a_member_that_somebody_else_added_is_reported_and_left_alone() {
        let world = world("http://10.1.2.3:2380", true);
        assert!(!world.plan().actions.iter().any(|a| matches!(a, Action::RemoveOrphan { .. })));
        assert!(world.plan().complaint.unwrap().contains("10.1.2.3"));
    }
}
