//! The first member. Whatever the number of replicas, exactly one seed forms the cluster; all others join it. A cluster
//! is formed once: after its id is known nothing here acts again.

use api::conditions::{self, reason};
use api::{EtcdClusterStatus, ids};

use crate::healing::lost_data;
use crate::view::{MemberView, Scene};
use crate::{Action, Leaving, Next, Plan, joiner};

/// Makes the seed, or finishes one that was left half-made.
pub(crate) fn seed(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.target().replicas == 0 {
        plan.wait_for("cluster declared paused from the start; not bootstrapping");
        return;
    }
    let Some(seed) = scene.members.iter().find(|m| m.member.spec.bootstrap) else {
        if scene.members.is_empty() {
            // The same name on every try: of two creations whose answers were lost, only one can succeed.
            let name = scene.seed_name();
            plan.act(Action::CreateMember(Box::new(joiner::seed(scene, &name))));
        } else {
            // Members without a seed and without a cluster id: somebody else's half-done work. Guessing here could
            // form a second cluster beside the first.
            plan.wait_for("members exist but none of them is the seed; not bootstrapping over them");
        }
        return;
    };
    if seed.is_deleting() {
        plan.wait_for("the bootstrap member is being deleted");
    } else if let Some(why) = lost_data(seed) {
        // It can not form what it has lost, and nobody else has a copy: another seed begins anew.
        plan.act(Action::DeleteMember {
            name: seed.name().to_owned(),
            uid: seed.uid().to_owned(),
            because: Leaving::Broken(why.to_owned()),
        });
    } else if seed.is_pending() {
        let initial_cluster = format!("{}={}", seed.name(), seed.peer_url());
        plan.act(Action::WireMember { name: seed.name().into(), uid: seed.uid().into(), initial_cluster });
    } else {
        plan.wait_for(format!("waiting for bootstrap member {} to form cluster", seed.name()));
        if seed.living_pod().and_then(|p| p.status.as_ref()?.pod_ip.as_ref()).is_some() {
            plan.look_again(Next::Soon);
        }
    }
}

/// Says so before a seed is let go whose etcd has answered once. The record that it has formed may still be on its way:
/// it rests on the version of the cluster object that this replaces, so it can no longer arrive.
pub(crate) fn announce_end(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    if status.cluster_id.is_some() {
        return;
    }
    let Some(seed) = scene.members.iter().find(|m| m.is_deleting() && m.has_joined()) else { return };
    let message = end_of(seed);
    match status.conditions.iter_mut().find(|c| c.type_ == conditions::AVAILABLE) {
        Some(available) => available.message = message,
        None => {
            scene.set_condition(status, conditions::AVAILABLE, false, reason::CLUSTER_UNREACHABLE, &message);
        }
    }
}

/// Whether a member of a cluster that is not known to have formed may be let go.
pub(crate) fn may_go(scene: &Scene<'_>, member: &MemberView) -> bool {
    let stored = scene.cluster.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let announced =
        || conditions::find(stored, conditions::AVAILABLE).is_some_and(|c| c.message == end_of(member));
    !member.has_joined() || announced()
}

/// Names and UIDs: the next seed has the same name.
fn end_of(member: &MemberView) -> String {
    format!("bootstrap member {} (UID {}) is let go, another one begins anew", member.name(), member.uid())
}

/// Latches the id of the cluster that the seed formed. Only an answer that names exactly the seed counts (H13).
pub(crate) fn discover(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    if status.cluster_id.is_some() {
        return;
    }
    let Some(list) = scene.membership() else { return };
    let [only] = list.members.as_slice() else { return };
    // Also a seed that is to leave: if it has formed a cluster, it holds the only copy of what was written to it. The
    // cluster is on record after its seed (T7): a seed that is not may be begun anew.
    let seed =
        scene.members.iter().find(|m| m.member.spec.bootstrap && only.peer_urls.contains(&m.peer_url()));
    if seed.is_some_and(|s| s.status.member_id.is_some()) && list.cluster_id != 0 {
        status.cluster_id = Some(ids::format(list.cluster_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::World;
    use api::EtcdCluster;

    fn latched() -> EtcdCluster {
        EtcdCluster::test("ns", "c").latched()
    }

    fn created(actions: &[Action]) -> Vec<&api::EtcdMember> {
        actions
            .iter()
            .filter_map(|a| if let Action::CreateMember(m) = a { Some(&**m) } else { None })
            .collect()
    }

    #[test]
    fn h1_one_seed_whatever_the_number_of_replicas() {
        let mut world = World::new(latched().replicas(5));
        let actions = world.pass();
        let [seed] = created(&actions)[..] else { panic!("{actions:?}") };
        assert!(seed.spec.bootstrap);
        let name = seed.metadata.name.clone().unwrap();
        assert_eq!(seed.spec.initial_cluster, format!("{name}=http://{name}.c.ns.svc:2380"));
        assert_eq!(seed.metadata.finalizers.as_deref(), Some(&[api::labels::FINALIZER.to_owned()][..]), "T9");
        assert!(created(&world.pass()).is_empty(), "and never a second one");
    }

    #[test]
    fn h1_h14_a_seed_whose_creation_was_not_answered_is_created_under_the_same_name() {
        let mut world = World::new(latched());
        let name = |actions: &[Action]| created(actions)[0].metadata.name.clone();
        let first = name(&world.plan().actions);
        world.view.entropy += 1;
        assert_eq!(name(&world.plan().actions), first);
        world.view.cluster.as_mut().unwrap().metadata.uid = Some("another".into());
        assert_ne!(name(&world.plan().actions), first, "a recreated cluster has other names (H14)");
    }

    #[test]
    fn a_seed_left_pending_by_a_crash_is_completed() {
        let cluster = latched();
        let mut world = World::new(cluster.clone());
        let mut seed = cluster.member("abcde");
        seed.spec.bootstrap = true;
        world.view.members.push(MemberView { member: seed, ..Default::default() });
        let actions = world.pass();
        assert!(created(&actions).is_empty());
        assert!(actions.iter().any(|a| matches!(a, Action::WireMember { initial_cluster, .. }
            if initial_cluster == "c-abcde=http://c-abcde.c.ns.svc:2380")));
    }

    #[test]
    fn h25_a_cluster_declared_at_zero_is_not_bootstrapped() {
        let mut world = World::new(latched().replicas(0).latched());
        let actions = world.settle();
        assert!(created(&actions).is_empty());
        assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
    }

    #[test]
    fn h16_a_stale_seed_of_another_cluster_is_not_adopted() {
        let cluster = latched();
        let mut world = World::new(cluster.clone());
        let mut stale = cluster.member("stale").seed();
        crate::fixtures::estrange(&mut stale);
        world.view.members.push(MemberView { member: stale, ..Default::default() });
        let actions = world.pass();
        assert_eq!(created(&actions).len(), 1, "a seed of our own");
    }

    #[test]
    fn h13_only_an_answer_that_names_exactly_the_seed_counts() {
        let mut world = World::new(latched());
        world.pass();
        world.pass();
        let answer = world.rows().clone();
        world.rows()[0].peer_urls = vec!["http://stranger:2380".into()];
        assert_eq!(world.status().cluster_id, None, "not a stranger");
        let mut two = answer.clone();
        two.push(etcd::Member {
            id: 9,
            name: "x".into(),
            peer_urls: vec!["http://x:2380".into()],
            is_learner: false,
        });
        *world.rows() = two;
        assert_eq!(world.status().cluster_id, None, "not a cluster of two");
        *world.rows() = answer;
        assert_eq!(world.status().cluster_id.as_deref(), Some("00000000000000c1"));
        assert_eq!(world.condition(conditions::AVAILABLE), "True/ClusterDiscovered");
    }

    #[test]
    fn a_seed_that_lost_its_memory_before_it_formed_makes_room_for_another() {
        let mut world = World::new(latched().memory("64Mi").latched());
        world.pass();
        world.pass();
        world.pass();
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
        let seed = world.member(0);
        let name = seed.name().to_owned();
        assert!(seed.member.status.as_ref().unwrap().pod_uid.is_some());
        seed.pod = None;
        seed.etcd = None;
        world.view.etcd.membership = None;
        let actions = world.plan().actions;
        assert!(
            matches!(&actions[..], [.., Action::DeleteMember { name: gone, .. }] if *gone == name),
            "{actions:?}"
        );
    }

    #[test]
    fn a_seed_that_is_deleted_after_it_has_formed_keeps_its_data() {
        let mut world = World::new(latched());
        world.pass();
        world.pass();
        let at = conditions::wire_time(crate::fixtures::now());
        world.member(0).member.metadata.deletion_timestamp = Some(at);
        let actions = world.pass();
        assert!(!actions.iter().any(|a| matches!(a, Action::ReleaseMember { .. })), "{actions:?}");
        assert!(world.status().cluster_id.is_some());
    }

    #[test]
    fn the_id_is_latched_before_anything_rests_on_it() {
        let mut world = World::new(latched());
        world.pass();
        world.pass();
        assert!(world.pass().is_empty());
        assert!(!created(&world.pass()).is_empty());
    }
}
