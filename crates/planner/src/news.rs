//! What of a status has to be told at once, and what are only words about the step at hand.

use api::{EtcdClusterStatus, EtcdMemberStatus, conditions};

use crate::{ClusterView, Plan};

impl Plan {
    /// Whether there is more to tell than words. Words about a step may wait for the pass that sees what became of it;
    /// not so what others act on (conditions, numbers, the target) and what later decisions rest on (who has which data).
    pub fn has_news(&self, view: &ClusterView) -> bool {
        let told = view.cluster.as_ref().and_then(|c| c.status.as_ref()).map(facts);
        let of_cluster = self.cluster_status.as_ref().is_some_and(|status| Some(facts(status)) != told);
        let of_members = view.members.iter().any(|member| {
            let told = member.member.status.as_ref().map(record).unwrap_or_default();
            self.member_statuses.get(member.name()).is_some_and(|status| record(status) != told)
        });
        of_cluster || of_members
    }
}

/// A cluster's status without its words: conditions by type, status and reason, and everything else. Why work is in
/// progress is words, and so is how many are beyond recovery: that they are missing has been told, and a pass that does
/// nothing about them tells this, too.
fn facts(status: &EtcdClusterStatus) -> (Vec<[&str; 3]>, EtcdClusterStatus) {
    let conditions = status.conditions.iter().map(|c| {
        let reason = if c.type_ == conditions::PROGRESSING { "" } else { &c.reason };
        [c.type_.as_str(), &c.status, reason]
    });
    (conditions.collect(), EtcdClusterStatus { conditions: vec![], broken_members: 0, ..status.clone() })
}

/// Which member this is, and what holds its data.
fn record(status: &EtcdMemberStatus) -> [Option<&str>; 4] {
    [&status.member_id, &status.cluster_id, &status.pvc_uid, &status.pod_uid].map(Option::as_deref)
}

#[cfg(test)]
mod tests {
    use api::EtcdCluster;
    use api::conditions::reason;

    use super::*;
    use crate::Action;
    use crate::fixtures::{World, unready};

    fn cluster(replicas: i32) -> EtcdCluster {
        EtcdCluster::test("ns", "c").replicas(replicas)
    }

    fn has_news(world: &World) -> bool {
        world.plan().has_news(&world.view)
    }

    #[test]
    fn at_rest_there_is_no_news() {
        assert!(!has_news(&World::settled(cluster(3))));
    }

    #[test]
    fn words_about_the_work_are_no_news() {
        let mut world = World::settled(cluster(3));
        for condition in &mut world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().conditions {
            condition.message = "as it was".to_owned();
            if condition.type_ == conditions::PROGRESSING {
                condition.reason = reason::RECONCILING.to_owned();
            }
        }
        let member = world.member(0).member.status.as_mut().unwrap();
        member.conditions[0].message = "as it was".to_owned();
        let plan = world.plan();
        assert_ne!(plan.cluster_status, world.view.cluster.as_ref().unwrap().status);
        assert!(!plan.has_news(&world.view));
    }

    #[test]
    fn a_first_look_a_target_and_a_loss_are_news() {
        let mut world = World::new(cluster(3));
        assert!(has_news(&world), "a first look");
        world.settle();
        let settled = world.clone();
        world.view.cluster.as_mut().unwrap().spec.replicas = Some(5);
        assert!(has_news(&world), "a target");
        world = settled;
        unready(world.member(2).pod.as_mut().unwrap());
        world.member(2).etcd = None;
        assert!(has_news(&world), "a loss");
    }

    #[test]
    fn that_a_missing_member_is_beyond_recovery_is_no_news() {
        let mut world = World::settled(cluster(3).memory("256Mi"));
        let lost = world.member(2);
        (lost.pod, lost.etcd) = (None, None);
        let told = world.plan();
        assert!(told.has_news(&world.view), "it is missing");
        let replaces = |plan: &Plan| plan.actions.iter().any(|a| matches!(a, Action::DeleteMember { .. }));
        assert!(replaces(&told), "{:?}", told.actions);
        let status = EtcdClusterStatus { broken_members: 0, ..told.cluster_status.unwrap() };
        world.view.cluster.as_mut().unwrap().status = Some(status);
        assert_eq!(world.status().broken_members, 1);
        assert!(!has_news(&world));
    }

    #[test]
    fn whoever_first_goes_on_record_is_news() {
        let settled = World::settled(cluster(3));
        let forget: [fn(&mut EtcdMemberStatus); 3] = [
            |status| status.member_id = None,
            |status| status.pvc_uid = None,
            |status| status.pod_uid = None,
        ];
        for forget in forget {
            let mut world = settled.clone();
            forget(world.member(1).member.status.as_mut().unwrap());
            assert!(has_news(&world));
        }
    }
}
