//! The first member. Whatever the number of replicas, exactly one seed forms the cluster; all others join it. A cluster
//! is formed once: after its id is known nothing here acts again.

use api::{EtcdClusterStatus, ids};

use crate::disruption::Disruption;
use crate::healing::lost_data;
use crate::view::{Assessed, Scene, controller_uid};
use crate::{Action, Leaving, Next, Plan, joiner, network, outdated};

/// Makes the seed, or finishes one that was left half-made.
pub(crate) fn seed(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.target().replicas == 0 {
        // A seed that has never served has nothing to keep. One that may have is waited for, and paused with its data.
        let seed = scene.members.iter().find(|m| m.member.spec.bootstrap && !m.is_deleting());
        match seed {
            Some(seed) if outdated::withdraw_seed(scene, seed, plan) => {}
            Some(seed) => plan.wait_for(format!(
                "waiting for bootstrap member to form cluster: {}; it is paused with its data then",
                seed.name()
            )),
            None => plan.wait_for("cluster declared paused from the start; not bootstrapping"),
        }
        return;
    }
    if let Some(why) = obstacle(scene) {
        plan.wait_for(why);
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
    } else if let Some(loss) = lost_data(seed) {
        // It can not form what it has lost, and nobody else has a copy: another seed begins anew.
        plan.disrupt_or_tell(scene, seed, &Disruption::Delete(Leaving::Broken(loss)));
    } else if outdated::remake_seed(scene, seed, plan) {
    } else if seed.is_pending() {
        let initial_cluster = format!("{}={}", seed.name(), seed.peer_url());
        plan.act(Action::WireMember { name: seed.name().into(), uid: seed.uid().into(), initial_cluster });
    } else {
        plan.wait_for(format!("waiting for bootstrap member to form cluster: {}", seed.name()));
        if seed.living_pod().and_then(|p| p.status.as_ref()?.pod_ip.as_ref()).is_some() {
            plan.look_again(Next::Soon);
        }
    }
}

/// What stands in the way of a first member: anything of this cluster's name that may hold data, or a Service of somebody
/// else under the name that its members need (T25). Something that is going is waited for.
pub(crate) fn obstacle(scene: &Scene<'_>) -> Option<String> {
    if scene.is_formed() || !scene.members.is_empty() || scene.target().replicas == 0 {
        return None;
    }
    if let Some(member) = scene.outsiders().next() {
        let name = member.name();
        let owner = controller_uid(&member.member.metadata);
        return Some(match owner {
            _ if member.is_deleting() => {
                format!("waiting for EtcdMember {name} of an earlier cluster of this name to be gone")
            }
            Some(uid) => format!(
                "EtcdMember {name} of an earlier cluster of this name (UID {uid}) exists and may hold its data; no cluster is \
                 formed beside it"
            ),
            None => format!(
                "EtcdMember {name} names this cluster, but does not fit it; no cluster is formed beside it"
            ),
        });
    }
    if let Some(stray) = scene.view.strays.first() {
        let what = format!("{} {}", stray.kind, stray.name);
        return Some(if stray.leaving {
            format!("waiting for {what} of an earlier cluster of this name to be gone")
        } else {
            format!(
                "{what} carries the label of this cluster and may hold its data; no cluster is formed beside it. \
                     Delete it if it is not needed, or take the label off"
            )
        });
    }
    network::foreign_headless(scene)
}

/// Latches the id of the etcd cluster: from what the members have on record, or from what etcd says.
pub(crate) fn discover(scene: &Scene<'_>, status: &mut EtcdClusterStatus) {
    if status.cluster_id.is_some() {
        return;
    }
    if let Some(recorded) = &scene.identity.cluster_id {
        status.cluster_id = Some(recorded.clone());
        return;
    }
    let Some(list) = scene.membership().filter(|list| list.cluster_id != 0) else { return };
    let named = if scene.members.iter().any(|m| m.has_joined()) {
        // T26: the record was lost. Whoever is on record as having joined is on the list under its id and its address, and
        // nobody who serves names another cluster.
        let row = |m: &Assessed<'_>| {
            list.members.iter().any(|row| {
                row.peer_urls.contains(&m.peer_url())
                    && m.member.status.as_ref().and_then(|s| s.member_id.as_deref())
                        == Some(&ids::format(row.id))
            })
        };
        let agrees = |m: &Assessed<'_>| m.serving().is_none_or(|s| s.cluster_id == list.cluster_id);
        scene.members.iter().any(|m| m.has_joined() && row(m)) && scene.members.iter().all(agrees)
    } else {
        // Only an answer that names exactly the seed counts (H13). Also a seed that is to leave: if it has formed a cluster,
        // it holds the only copy of what was written to it.
        let alone = |m: &Assessed<'_>| matches!(list.members.as_slice(), [only] if only.peer_urls.contains(&m.peer_url()));
        // The cluster is on record after its seed (T7): a seed that is not may be begun anew.
        scene.members.iter().any(|m| m.member.spec.bootstrap && alone(m) && m.status.member_id.is_some())
    };
    if named {
        status.cluster_id = Some(ids::format(list.cluster_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberView;
    use crate::fixtures::World;
    use api::{EtcdCluster, conditions};

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
        let mut world = World::new(EtcdCluster::test("ns", "c").replicas(5).latched());
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
    fn a_seed_that_is_about_to_form_is_waited_for_at_zero_and_one_that_leaves_is_left_alone() {
        let mut world = World::new(latched());
        world.pass();
        world.aim_at(0);
        let seed = world.member(0);
        seed.pod = Some(k8s_openapi::api::core::v1::Pod::default());
        seed.pod.as_mut().unwrap().metadata.owner_references = crate::view::controlled_by(&seed.member);
        seed.pod.as_mut().unwrap().spec =
            Some(k8s_openapi::api::core::v1::PodSpec { node_name: Some("n".into()), ..Default::default() });
        let plan = world.plan();
        assert!(!plan.actions.iter().any(|a| matches!(a, Action::DeleteMember { .. })), "{:?}", plan.actions);
        assert!(plan.waiting_for.unwrap().contains("it is paused with its data then"));

        world.member(0).pod = None;
        let withdrawn =
            |world: &World| world.plan().actions.iter().any(|a| matches!(a, Action::DeleteMember { .. }));
        assert!(withdrawn(&world), "one that has not even a Pod is not");
        world.member(0).member.metadata.deletion_timestamp =
            Some(conditions::wire_time(crate::fixtures::now()));
        assert!(!withdrawn(&world), "once is enough");
    }

    #[test]
    fn what_is_left_over_stands_in_the_way_of_a_first_member_only() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.view.strays =
            vec![crate::Stray { kind: crate::Kind::Pod, name: "left".into(), leaving: false }];
        world.settle();
        assert_eq!(world.condition(conditions::PROGRESSING), "False/Reconciled");
        world.view.members.clear();
        world.view.etcd.membership = None;
        assert_eq!(world.condition(conditions::PROGRESSING), "True/Reconciling", "formed is formed");
    }

    #[test]
    fn a_member_of_an_earlier_cluster_that_is_going_is_waited_for() {
        let cluster = latched();
        let mut world = World::new(cluster.clone());
        let mut stale = cluster.member("stale").seed();
        crate::fixtures::estrange(&mut stale);
        stale.metadata.deletion_timestamp = Some(conditions::wire_time(crate::fixtures::now()));
        stale.metadata.finalizers = None;
        world.view.members.push(MemberView { member: stale, ..Default::default() });
        let waits = world.plan().waiting_for.unwrap();
        assert!(waits.contains("c-stale of an earlier cluster of this name to be gone"), "{waits}");
    }

    #[test]
    fn t26_a_lost_record_is_taken_from_a_list_only_if_a_member_is_on_it_under_its_id_and_its_address() {
        let forgotten = || {
            let mut world = World::settled(EtcdCluster::test("ns", "c"));
            world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
            for member in &mut world.view.members {
                member.member.status.as_mut().unwrap().cluster_id = None;
                member.etcd = None;
            }
            world
        };
        assert!(forgotten().status().cluster_id.is_some());
        let mut world = forgotten();
        for row in world.rows() {
            row.id += 1000;
        }
        assert_eq!(world.status().cluster_id, None, "other ids");
        let mut world = forgotten();
        for row in world.rows() {
            row.peer_urls = vec!["http://elsewhere:2380".into()];
        }
        assert_eq!(world.status().cluster_id, None, "other addresses");
    }

    #[test]
    fn h16_a_stale_seed_of_another_cluster_is_not_adopted_and_nothing_is_formed_beside_it() {
        let cluster = latched();
        let mut world = World::new(cluster.clone());
        let mut stale = cluster.member("stale").seed();
        crate::fixtures::estrange(&mut stale);
        world.view.members.push(MemberView { member: stale, ..Default::default() });
        assert_eq!(created(&world.pass()), [] as [&api::EtcdMember; 0], "T25: it may hold data");
        assert_eq!(world.condition(conditions::PROGRESSING), "True/WaitingForLeftovers");
        assert!(!world.plan().member_statuses.contains_key("c-stale"), "and it is not ours to speak for");
        world.view.members.clear();
        assert_eq!(created(&world.pass()).len(), 1, "a seed of our own");
    }

    #[test]
    fn t25_nothing_is_formed_beside_a_pod_or_claim_of_this_name() {
        for kind in [crate::Kind::Pod, crate::Kind::Claim] {
            let mut world = World::new(latched());
            world.view.strays = vec![crate::Stray { kind, name: "left".into(), leaving: false }];
            assert_eq!(created(&world.pass()), [] as [&api::EtcdMember; 0]);
            assert_eq!(world.condition(conditions::PROGRESSING), "True/WaitingForLeftovers");
            assert!(world.plan().complaint.unwrap().contains("left"), "and it is said which");
            world.view.strays.clear();
            assert_eq!(created(&world.pass()).len(), 1);
        }
    }

    #[test]
    fn t25_no_seed_without_the_headless_service() {
        let mut world = World::new(latched());
        let mut other = World::new(EtcdCluster::test("ns", "c").latched());
        other.pass();
        let mut service = other.view.headless_service.clone().unwrap();
        crate::fixtures::estrange(&mut service);
        world.view.headless_service = Some(service);
        assert_eq!(created(&world.pass()), [] as [&api::EtcdMember; 0]);
        assert_eq!(world.condition(conditions::PROGRESSING), "True/WaitingForLeftovers");
    }

    #[test]
    fn t34_a_seed_that_never_ran_is_made_anew_from_the_corrected_spec() {
        let mut world = World::new(latched());
        world.pass();
        let before = world.view.members[0].uid().to_owned();
        world.view.cluster.as_mut().unwrap().spec.version = "3.6.17".into();
        assert!(world.pass().is_empty(), "the edit is taken up at once, before anything rests on it");
        assert_eq!(world.status().observed.unwrap().version, "3.6.17");
        let actions = world.pass();
        let steps: Vec<_> = actions.iter().filter_map(Action::reason).collect();
        assert_eq!(steps, ["ReplacingMember"], "and nothing is made for the one that goes");
        assert!(matches!(&actions[..], [Action::DeleteMember { because: Leaving::Outdated, .. }, ..]));
        world.settle();
        assert!(world.view.members.iter().all(|m| m.uid() != before && m.member.spec.version == "3.6.17"));
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
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
        let mut world = World::new(EtcdCluster::test("ns", "c").memory("64Mi").latched());
        world.pass();
        world.pass();
        let seed = world.member(0);
        let name = seed.name().to_owned();
        let status = seed.member.status.get_or_insert_default();
        (status.member_id, status.cluster_id, status.pod_uid) = (None, None, Some("gone".into()));
        seed.pod = None;
        seed.etcd = None;
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
        world.view.etcd.membership = None;
        let actions = world.plan().actions;
        assert!(
            matches!(&actions[..], [.., Action::DeleteMember { name: gone, .. }] if *gone == name),
            "{actions:?}"
        );
    }

    #[test]
    fn t26_a_seed_that_is_on_record_has_formed_a_cluster_whatever_the_status_of_the_cluster_says() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1).memory("64Mi"));
        world.view.cluster.as_mut().unwrap().status = None;
        world.member(0).pod = None;
        world.member(0).etcd = None;
        world.view.etcd.membership = None;
        let done = world.settle();
        assert!(
            !done.iter().any(|a| matches!(a, Action::CreateMember(_) | Action::DeleteMember { .. })),
            "{done:?}"
        );
        assert_eq!(world.condition(conditions::AVAILABLE), "False/AllMembersLost");
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
