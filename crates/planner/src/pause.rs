//! Zero replicas: the last member goes to sleep with its volume, and the cluster wakes up as itself. The flag stands on
//! the member, so nothing has to be handed over and nothing can get lost in between (H26).

use api::labels::annotation::HAS_DATA;
use api::names;

use kube::ResourceExt as _;

use crate::disruption::{Disruption, Verdict};
use crate::view::Scene;
use crate::{Action, Ending, Loss, Plan};

/// Wakes a sleeping member, or puts the last one to sleep. True when that was the thing to do.
pub(crate) fn sleep_or_wake(scene: &Scene<'_>, plan: &mut Plan) -> bool {
    let wanted = scene.target().replicas;
    // Also one that is to leave: as the last one it can not, asleep or awake, and nobody can join what sleeps.
    let sleeping = scene.members.iter().find(|m| m.member.spec.dormant);
    let left: Vec<_> = scene.members.iter().filter(|m| !scene.is_out(m)).collect();
    match (wanted, sleeping, left.as_slice()) {
        (1.., Some(sleeping), _) => {
            plan.wake(sleeping);
            true
        }
        (0, None, [last]) => plan.disrupt(scene, last, &Disruption::Sleep) == Verdict::Safe,
        _ => false,
    }
}

/// What is noted on a member that is put to sleep.
pub fn has_data(confirmed: bool) -> &'static str {
    if confirmed { "true" } else { "unconfirmed" }
}

/// Ends the Pods of sleeping members, unless they are just being woken: one that has not ended yet goes on.
pub(crate) fn end_pods(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.target().replicas > 0 {
        return;
    }
    for member in scene.members.iter().filter(|m| m.member.spec.dormant) {
        let paused = Ending::Paused { member: member.uid().to_owned() };
        plan.disrupt_or_tell(scene, member, &Disruption::End(paused));
        // It may only be out of sight.
        if !member.is_memory() && member.volume.is_none() {
            plan.act(Action::SeekLost { name: member.name().to_owned(), loss: Loss::Volume });
        }
    }
}

/// What a paused cluster says about its data: all is well, or something is not.
pub(crate) fn message(scene: &Scene<'_>) -> Result<String, String> {
    let sleeping = scene.members.iter().find(|m| m.member.spec.dormant);
    if let Some(member) = sleeping.filter(|m| !m.is_memory()) {
        let claim = names::pvc(member.name());
        let recorded = member.member.status.as_ref().and_then(|s| s.pvc_uid.as_ref());
        return match &member.volume {
            // Nothing mounts the claim of a paused member, so that anybody can delete it.
            None => Err(format!("the cluster is paused, but PVC {claim} with its data is not there")),
            Some(found) if recorded.is_some() && recorded != found.metadata.uid.as_ref() => Err(format!(
                "the cluster is paused, but PVC {claim} is another one than its data was on (that had the UID {})",
                recorded.map(String::as_str).unwrap_or_default()
            )),
            Some(found) if found.metadata.deletion_timestamp.is_some() => Err(format!(
                "the cluster is paused, but PVC {claim} with its data is being deleted; it is gone with its last finalizer. Save \
                 what is on it now"
            )),
            Some(_) if member.member.annotations().get(HAS_DATA).is_some_and(|v| v == has_data(false)) => {
                Err(format!(
                    "the cluster is paused on PVC {claim}, but etcd did not answer when it was paused, so that other voters may \
                     have been there; a cluster without its quorum has none when it is resumed either"
                ))
            }
            Some(_) => Ok(format!(
                "the cluster is paused; its data is preserved on PVC {claim}, set spec.replicas to resume"
            )),
        };
    }
    Ok(match sleeping {
        Some(_) => "the cluster is paused; its data was on tmpfs and is lost, recreate the cluster",
        None if scene.is_formed() => "the cluster is about to be paused; its last members leave",
        None => "the cluster was created with 0 replicas and never bootstrapped; nothing was ever written",
    }
    .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disruption::may_disrupt;
    use crate::fixtures::World;
    use api::{EtcdCluster, conditions};

    fn message(world: &World) -> String {
        let status = world.status();
        conditions::find(&status.conditions, conditions::AVAILABLE).unwrap().message.clone()
    }

    #[test]
    fn h26_a_stranger_with_our_label_does_not_keep_a_cluster_awake() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let mut stranger = world.view.members[0].clone();
        stranger.member.metadata.name = Some("c-other".into());
        stranger.member.metadata.uid = Some("another".into());
        stranger.member.metadata.owner_references = None;
        stranger.member.spec.cluster_token = "another".into();
        world.view.members.push(stranger);
        let sleep = Action::SetDormant {
            name: world.view.members[0].name().to_owned(),
            uid: world.view.members[0].uid().to_owned(),
            dormant: true,
            confirmed: true,
            permit: crate::disruption::Permit::forged(),
        };
        let look = sleep.looks(&world.view).pop().unwrap();
        let member = |uid: &str| serde_json::json!({ "metadata": { "uid": uid } });
        let own = member(world.view.members[0].uid());
        assert_eq!(look.judge(&[own.clone(), member("another")]), Ok(()));
        assert!(look.judge(&[own, member("unseen")]).is_err());
    }

    #[test]
    fn h26_a_pause_without_a_quorum_does_not_say_that_all_is_well() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.view.members.truncate(1);
        world.silence_etcd();
        world.view.etcd.membership = None;
        world.aim_at(0);
        world.pass();
        world.pass();
        assert!(world.view.members[0].member.spec.dormant);
        assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
        assert!(message(&world).contains("etcd did not answer when it was paused"), "{}", message(&world));
        assert!(world.condition(conditions::DEGRADED).starts_with("True/"));
    }

    #[test]
    fn h26_the_last_member_sleeps_on_its_volume_and_wakes_as_itself() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let id = world.status().cluster_id;
        world.scale(0);
        let [member] = &world.view.members[..] else { panic!("{}", world.view.members.len()) };
        assert!(member.member.spec.dormant && member.pod.is_none() && member.volume.is_some());
        assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
        assert_eq!(world.condition(conditions::PROGRESSING), "False/Paused");
        assert_eq!(world.condition(conditions::DEGRADED), "False/Paused");
        assert!(message(&world).contains(&format!("preserved on PVC {}", names::pvc(member.name()))));
        let (name, member_id) = (member.name().to_owned(), member.member.status.clone().unwrap().member_id);
        assert!(member_id.is_some());

        world.scale(3);
        assert_eq!(world.view.members.len(), 3);
        assert_eq!(world.status().cluster_id, id);
        let same = world.view.members.iter().find(|m| m.name() == name).unwrap();
        assert_eq!(same.member.status.as_ref().unwrap().member_id, member_id);
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
    }

    #[test]
    fn a_last_member_that_was_deleted_sleeps_all_the_same() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let at = conditions::wire_time(crate::fixtures::now());
        world.member(0).member.metadata.deletion_timestamp = Some(at);
        world.scale(0);
        assert!(world.member(0).member.spec.dormant && world.member(0).pod.is_none());
        assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
    }

    #[test]
    fn a_member_that_is_woken_before_its_pod_has_ended_keeps_it() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.member(0).member.spec.dormant = true;
        let actions = world.plan().actions;
        assert!(
            actions.iter().any(|a| matches!(a, Action::SetDormant { dormant: false, .. })),
            "{actions:?}"
        );
        assert!(!actions.iter().any(|a| matches!(a, Action::DeletePod { .. })), "{actions:?}");
    }

    #[test]
    fn t29_one_that_is_not_alone_in_etcd_is_not_put_to_sleep() {
        let sleeps = |world: &World| {
            let actions = world.plan().actions;
            actions.iter().any(|a| matches!(a, Action::SetDormant { dormant: true, .. }))
        };
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.aim_at(0);
        assert!(sleeps(&world));
        let mut other = world.rows()[0].clone();
        (other.id, other.name, other.peer_urls) = (99, "c-other".into(), vec!["http://other:2380".into()]);
        world.rows().push(other);
        assert!(!sleeps(&world), "another voter counts on it");
        world.rows()[1].is_learner = true;
        assert!(sleeps(&world), "a learner does not");
    }

    #[test]
    fn t28_one_that_disagrees_with_the_record_is_not_put_to_sleep() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(3));
        world.view.members.truncate(1);
        world.aim_at(0);
        let row = world.rows()[0].clone();
        *world.rows() = vec![etcd::Member { id: row.id + 1, ..row }];
        let scene = Scene::new(&world.view, world.view.cluster.as_ref().unwrap(), crate::fixtures::now());
        assert!(scene.split.is_some());
        let verdict = may_disrupt(&scene, &scene.members[0], &Disruption::Sleep);
        assert_eq!(verdict.why_not().as_deref(), Some("members disagree"));
    }

    #[test]
    fn h26_the_pod_of_a_sleeping_member_is_ended_also_after_a_crash() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.aim_at(0);
        world.member(0).member.spec.dormant = true;
        assert!(matches!(&world.plan().actions[..], [Action::DeletePod { .. }, ..]));
    }

    #[test]
    fn a_sleeping_member_that_was_deleted_wakes_up_to_leave() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let name = world.member(0).name().to_owned();
        world.scale(0);
        let at = conditions::wire_time(crate::fixtures::now());
        world.member(0).member.metadata.deletion_timestamp = Some(at);
        world.settle();
        assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused", "asleep it stays");
        world.scale(1);
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
        assert!(world.view.members.iter().all(|m| m.name() != name));
    }

    #[test]
    fn h25_a_paused_cluster_is_at_rest() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.scale(0);
        let plan = world.plan();
        assert_eq!(plan.actions, []);
        assert_eq!(plan.cluster_status, world.view.cluster.as_ref().unwrap().status);
        assert_eq!(world.status().progress_deadline, None);
        assert!(world.view.budget.is_none(), "nothing to protect");
    }

    #[test]
    fn h25_a_paused_cluster_whose_member_is_gone_does_not_say_that_nothing_was_written() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.scale(0);
        world.view.members.clear();
        world.settle();
        assert_eq!(world.condition(conditions::AVAILABLE), "False/AllMembersLost");
        assert!(message(&world).contains("every member and its data are gone"), "{}", message(&world));
    }

    #[test]
    fn a_member_that_was_created_too_late_does_not_disturb_a_paused_cluster() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        world.scale(0);
        let mut late = world.view.members[0].clone();
        late.member.metadata.name = Some("c-late".into());
        late.member.metadata.uid = Some("late".into());
        late.member.spec.dormant = false;
        late.member.spec.bootstrap = false;
        late.member.spec.initial_cluster.clear();
        late.member.status = None;
        (late.pod, late.volume, late.etcd) = (None, None, None);
        world.view.members.push(late);
        world.settle();
        let plan = world.plan();
        assert_eq!((plan.actions, plan.waiting_for), (vec![], None));
        assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
        assert_eq!(world.condition(conditions::PROGRESSING), "False/Paused");

        world.scale(1);
        assert_eq!(world.view.members.len(), 1, "it was not needed");
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
    }

    #[test]
    fn h25_a_paused_cluster_does_not_promise_data_on_another_claim_or_on_one_that_is_going() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.scale(0);
        assert_eq!(world.condition(conditions::DEGRADED), "False/Paused");
        let mut another = world.clone();
        another.member(0).volume.as_mut().unwrap().metadata.uid = Some("made again, blank".into());
        let mut going = world.clone();
        let at = Some(conditions::wire_time(crate::fixtures::now()));
        going.member(0).volume.as_mut().unwrap().metadata.deletion_timestamp = at;
        world.member(0).volume = None;
        for (world, says) in
            [(another, "is another one than"), (going, "is being deleted"), (world, "is not there")]
        {
            assert_eq!(world.condition(conditions::AVAILABLE), "False/Paused");
            assert_eq!(world.condition(conditions::DEGRADED), "True/Blocked");
            assert!(message(&world).contains(says), "{}", message(&world));
            let sought = world.plan().actions.iter().any(|a| matches!(a, Action::SeekLost { .. }));
            assert_eq!(sought, says == "is not there", "it may have lost its label");
        }
    }

    #[test]
    fn h25_the_three_texts_of_a_paused_cluster() {
        let mut never = World::new(EtcdCluster::test("ns", "c").replicas(0));
        never.settle();
        assert!(message(&never).contains("never bootstrapped"));
        let mut memory = World::settled(EtcdCluster::test("ns", "c").replicas(1).memory("64Mi"));
        memory.scale(0);
        assert!(message(&memory).contains("lost"));
    }

    #[test]
    fn a_cluster_created_at_zero_starts_when_asked_to() {
        let mut world = World::new(EtcdCluster::test("ns", "c").replicas(0));
        world.settle();
        world.scale(1);
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
    }

    #[test]
    fn a_member_that_does_not_answer_can_still_be_put_to_sleep() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        world.aim_at(0);
        world.silence_etcd();
        assert!(matches!(
            &world.plan().actions[..],
            [Action::SetDormant { dormant: true, .. }, Action::DeletePod { .. }]
        ));
    }
}
