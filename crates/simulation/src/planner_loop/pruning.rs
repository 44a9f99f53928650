//! What the cache drops, no plan reads: the views of simulated days are planned once more with the objects whole.

use planner::{ClusterView, Declared, plan};
use serde::de::DeserializeOwned;

use super::call::kind;
use super::*;

/// The object as the API server has it, if it is still the version that the cache has.
fn whole<K: Declared + DeserializeOwned>(world: &World, pruned: &K) -> Option<K> {
    let metadata = pruned.meta();
    let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
    let found = world.api().get(kind(K::KIND), namespace, name).ok()?;
    let found = K::deserialize(&found).ok()?;
    (found.meta().resource_version == metadata.resource_version).then_some(found)
}

/// The same view with whole objects; and how many of them say more than what the cache has kept.
fn with_whole_objects(world: &World, view: &ClusterView) -> (ClusterView, usize) {
    let (mut view, mut restored) = (view.clone(), 0);
    let mut restore = |changed: bool| restored += usize::from(changed);
    for member in &mut view.members {
        if let Some(pod) = member.pod.as_ref().and_then(|pod| whole(world, pod)) {
            restore(member.pod.as_ref() != Some(&pod));
            member.pod = Some(pod);
        }
        if let Some(claim) = member.volume.as_ref().and_then(|claim| whole(world, claim)) {
            restore(member.volume.as_ref() != Some(&claim));
            member.volume = Some(claim);
        }
        if let Some(found) = whole(world, &member.member) {
            restore(member.member != found);
            member.member = found;
        }
    }
    if let Some(found) = view.cluster.as_ref().and_then(|cluster| whole(world, cluster)) {
        view.cluster = Some(found);
    }
    for service in [&mut view.headless_service, &mut view.client_service] {
        if let Some(found) = service.as_ref().and_then(|service| whole(world, service)) {
            *service = Some(found);
        }
    }
    if let Some(found) = view.budget.as_ref().and_then(|budget| whole(world, budget)) {
        restore(view.budget.as_ref() != Some(&found));
        view.budget = Some(found);
    }
    (view, restored)
}

#[test]
fn a_plan_from_pruned_objects_is_the_plan_from_whole_ones() {
    let (mut planned, mut restored) = (0, 0);
    for seed in 0..12 {
        let mut simulation = Simulation::new(Script::from_seed(seed), &mutations::NONE, false, None);
        let mut turns = 0;
        while simulation.turn().is_continue() {
            turns += 1;
            if turns % 7 != 0 {
                continue;
            }
            let now = simulation.world.timestamp();
            let workers = simulation.operators.values().flat_map(|operator| operator.workers.values());
            for playing in workers.filter_map(|worker| worker.playing.as_ref()) {
                let pruned = playing.pass.view();
                let (whole, more) = with_whole_objects(&simulation.world, pruned);
                assert_eq!(plan(pruned, now), plan(&whole, now), "seed {seed}, turn {turns}");
                (planned, restored) = (planned + 1, restored + more);
            }
        }
    }
    assert!(planned > 500 && restored > 500, "{planned} views, {restored} objects say more");
}
