//! The first member. Whatever the number of replicas, exactly one seed forms the cluster; all others join it. A cluster
//! is formed once: after its id is known nothing here acts again.

use api::{EtcdClusterStatus, ids};

use crate::view::Scene;
use crate::{Action, Next, Plan, joiner};

/// Makes the seed, or finishes one that was left half-made.
pub(crate) fn seed(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.target().replicas == 0 {
        plan.wait_for("cluster declared paused from the start; not bootstrapping");
        return;
    }
    let Some(seed) = scene.members.iter().find(|m| m.member.spec.bootstrap) else {
        if scene.members.is_empty() {
            let name = scene.fresh_member_name();
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

/// Latches the id of the cluster that the seed formed. Only an answer that names exactly the seed counts (H13).
pub(crate) fn discover(scene: &Scene<'_>, status: &mut EtcdClusterStatus, _plan: &mut Plan) {
    if status.cluster_id.is_some() {
        return;
    }
    let Some(list) = scene.membership() else { return };
    let [only] = list.members.as_slice() else { return };
    let seed = scene.running().find(|m| m.member.spec.bootstrap && only.peer_urls.contains(&m.peer_url()));
    if seed.is_some() && list.cluster_id != 0 {
        status.cluster_id = Some(ids::format(list.cluster_id));
    }
}
