//! What this version does not do yet. A cluster that asks for it is left exactly as it is: a plaintext member in a
//! cluster that was meant to be encrypted would be worse than none.

use api::conditions::{self, reason};
use api::{EtcdClusterSpec, EtcdClusterStatus};

use crate::view::Scene;

/// How a cluster begins.
pub(crate) const RESTORE: &str = "spec.bootstrap.restore";

/// The first field of the spec that the operator can not honour.
pub fn missing(spec: &EtcdClusterSpec) -> Option<&'static str> {
    if spec.client_tls() {
        Some("spec.tls.client")
    } else if spec.peer_tls() {
        Some("spec.tls.peer")
    } else if spec.auth.as_ref().is_some_and(|auth| auth.enabled) {
        Some("spec.auth.enabled")
    } else if spec.bootstrap.as_ref().is_some_and(|b| b.restore.is_some()) {
        Some(RESTORE)
    } else {
        None
    }
}

/// Whether a field that can not be honoured does not matter any more: how a cluster begins is past once it has members, or
/// had some.
pub(crate) fn is_past(scene: &Scene<'_>, field: &str) -> bool {
    field == RESTORE && (scene.is_formed() || !scene.members.is_empty())
}

pub(crate) fn decline(scene: &Scene<'_>, status: &mut EtcdClusterStatus, field: &str) {
    let message =
        format!("{field} is not supported by this version of the operator; the cluster is left untouched");
    scene.set_condition_of_newest_spec(status, conditions::AVAILABLE, false, reason::UNSUPPORTED, &message);
    scene.set_condition_of_newest_spec(status, conditions::PROGRESSING, false, reason::UNSUPPORTED, &message);
    scene.set_condition_of_newest_spec(status, conditions::DEGRADED, true, reason::UNSUPPORTED, &message);
}

#[cfg(test)]
mod tests {
    use api::EtcdCluster;

    use super::*;
    use crate::fixtures::World;

    #[test]
    fn t12_a_cluster_that_was_once_restored_and_has_lost_everything_says_so() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1));
        let restored =
            serde_json::json!({ "restore": { "source": { "pvc": { "claimName": "x", "subPath": "y" } } } });
        world.view.cluster.as_mut().unwrap().spec.bootstrap = serde_json::from_value(restored).unwrap();
        assert!(world.view.is_supported());
        assert_eq!(world.condition(conditions::AVAILABLE), "True/QuorumHealthy");
        world.view.members.clear();
        world.view.etcd.membership = None;
        assert!(world.view.is_supported());
        assert_eq!(world.condition(conditions::AVAILABLE), "False/AllMembersLost");
    }
}
