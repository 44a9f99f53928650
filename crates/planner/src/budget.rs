//! The PodDisruptionBudget: an eviction must leave a quorum. A whole number of members that must stay is the only form
//! that does not re-base itself while members come and go (H28).

use std::collections::BTreeMap;

use api::{labels, names};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::view::{Assessed, Ownership, Scene, owners_with, ownership};
use crate::{Action, Plan, metadata};

pub(crate) fn keep(scene: &Scene<'_>, plan: &mut Plan) {
    // A member that is to leave has its vote until it is out.
    let votes = |m: &&Assessed<'_>| m.status.is_voter && !m.member.spec.dormant && !scene.is_out(m);
    let voters = scene.members.iter().filter(votes).count();
    let wanted = usize::try_from(scene.target().replicas).unwrap_or(0);
    let min_available = min_available(voters, wanted);
    let name = names::budget(&scene.view.name);
    let Some(live) = &scene.view.budget else {
        if voters > 0 {
            plan.act(Action::CreateBudget(Box::new(budget(scene, min_available))));
        }
        return;
    };
    let uid = live.metadata.uid.clone().unwrap_or_default();
    match ownership(scene, &live.metadata) {
        Ownership::Ours => {}
        Ownership::Free => {
            let owners = owners_with(&live.metadata, scene);
            plan.act(Action::AdoptBudget { name: name.clone(), uid: uid.clone(), owners });
        }
        Ownership::Foreign(owner) => {
            plan.complain(format!(
                "PodDisruptionBudget {name} is not owned by this EtcdCluster (owner: {owner}); delete or rename it"
            ));
            return;
        }
    }
    let spec = live.spec.as_ref();
    if voters == 0 {
        // Not for `disruption` to decide: where nobody votes, no eviction can cost a quorum.
        plan.act(Action::DeleteBudget { name, uid });
    } else if spec.and_then(|s| s.min_available.as_ref()) != Some(&IntOrString::Int(min_available))
        || spec.is_some_and(|s| s.max_unavailable.is_some())
    {
        plan.act(Action::ResizeBudget { name, uid, min_available });
    }
}

/// A quorum of whichever is larger, the voters there are or the members there should be.
fn min_available(voters: usize, wanted: usize) -> i32 {
    let members = voters.max(wanted);
    if members == 0 { 0 } else { i32::try_from(etcd::quorum(members)).unwrap_or(i32::MAX) }
}

fn budget(scene: &Scene<'_>, min_available: i32) -> PodDisruptionBudget {
    let mut selector: BTreeMap<_, _> = labels::select_cluster(&scene.view.name);
    selector.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
    PodDisruptionBudget {
        metadata: metadata::of(
            scene.cluster,
            names::budget(&scene.view.name),
            labels::for_cluster(&scene.view.name),
            BTreeMap::new(),
            scene.target().additional_metadata.as_ref(),
        ),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(min_available)),
            selector: Some(LabelSelector { match_labels: Some(selector), match_expressions: None }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn h28_an_object_that_is_left_of_a_member_has_no_vote() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(2));
        let left = world.member(1);
        left.member.metadata.deletion_timestamp = Some(api::conditions::wire_time(crate::fixtures::now()));
        left.member.metadata.finalizers = Some(vec!["theirs".into()]);
        (left.pod, left.etcd) = (None, None);
        world.rows().truncate(1);
        world.member(1).member.status.as_mut().unwrap().role = Some("leaving".into());
        world.scale(1);
        let budget = world.view.budget.as_ref().unwrap().spec.as_ref().unwrap();
        assert_eq!(budget.min_available, Some(IntOrString::Int(1)));
    }

    use super::*;
    use crate::fixtures::{World, estrange};
    use api::EtcdCluster;

    #[test]
    fn h28_a_quorum_of_the_larger_of_voters_and_wanted_stays() {
        let table = [
            (1, 1, 1),
            (2, 2, 2),
            (3, 3, 2),
            (4, 4, 3),
            (5, 5, 3),
            (7, 7, 4),
            (3, 0, 2),
            (2, 5, 3),
            (3, 5, 3),
            (4, 5, 3),
            (4, 7, 4),
            (6, 7, 4),
            (5, 3, 3),
            (4, 3, 3),
            (1, 3, 2),
            (0, 0, 0),
        ];
        for (voters, wanted, expected) in table {
            assert_eq!(min_available(voters, wanted), expected, "({voters}, {wanted})");
        }
    }

    #[test]
    fn the_budget_selects_voters() {
        let world = World::settled(EtcdCluster::test("ns", "c"));
        insta::assert_yaml_snapshot!(world.view.budget);
    }

    #[test]
    fn h28_an_old_budget_is_turned_into_one_that_does_not_rebase() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let spec = world.view.budget.as_mut().unwrap().spec.as_mut().unwrap();
        spec.min_available = None;
        spec.max_unavailable = Some(IntOrString::Int(1));
        assert!(matches!(&world.pass()[..], [Action::ResizeBudget { min_available: 2, .. }]));
    }

    #[test]
    fn a_budget_of_somebody_else_is_left_alone() {
        let mut world = World::settled(EtcdCluster::test("ns", "c"));
        let live = world.view.budget.as_mut().unwrap();
        estrange(live);
        live.spec = None;
        assert_eq!(world.plan().actions, []);
        assert!(world.plan().complaint.is_some());
    }
}
