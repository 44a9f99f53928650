//! Whom to ask: where a member is reached, and who of them is likely to have etcd's list.

use api::names;
use etcd::{Endpoint, Status};
use k8s_openapi::api::core::v1::Pod;

use crate::healing::has_ended;
use crate::{ClusterView, MemberView};

/// Where a member can be asked, if it has a Pod with an address. What we know of the Pod may be old and the address
/// somebody else's by now, so an answer counts only if it comes from the cluster's own etcd. Before a cluster has formed
/// nothing tells that; a Pod that has ended has given its address back, so it is not asked then.
pub fn endpoint(view: &ClusterView, member: &MemberView) -> Option<Endpoint> {
    let pod: &Pod = member.living_pod().or_else(|| member.lingering_pod())?;
    if has_ended(pod) && view.etcd_cluster().is_none() {
        return None;
    }
    let ip = pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
    let address = if ip.contains(':') { format!("[{ip}]:2379") } else { format!("{ip}:2379") };
    let name = names::dns_name(member.name(), &member.service_name(), member.namespace());
    Some(Endpoint {
        identity: pod.metadata.uid.clone().unwrap_or_default(),
        address,
        authority: format!("{name}:{}", names::CLIENT_PORT),
        cluster: view.etcd_cluster(),
    })
}

/// Whom to ask for the list: whoever is most likely to have it, the leader, then other voters. Members that know no leader
/// are not asked, they would only let the question time out.
pub fn voters(view: &ClusterView) -> Vec<&MemberView> {
    let mut voters: Vec<(&MemberView, &Status)> = view
        .members
        .iter()
        .filter_map(|m| Some((m, m.serving()?)))
        .filter(|(_, status)| !status.is_learner && status.leader != 0)
        .collect();
    voters.sort_by_key(|(member, status)| (member.is_deleting(), status.member_id != status.leader));
    voters.into_iter().map(|(member, _)| member).collect()
}

/// Whether fewer than a quorum of the voters we know of are there to answer for one.
pub fn is_minority(view: &ClusterView, answering: usize) -> bool {
    let voters = view.members.iter().filter(|m| m.member.status.as_ref().is_some_and(|s| s.is_voter)).count();
    answering < etcd::quorum(voters)
}

#[cfg(test)]
mod tests {
    use api::EtcdCluster;

    use super::*;
    use crate::fixtures::World;

    #[test]
    fn a_pod_that_has_ended_is_asked_only_if_it_can_be_told_whose_etcd_answers() {
        let mut world = World::settled(EtcdCluster::test("ns", "c").replicas(1).memory("64Mi"));
        let status = world.member(0).pod.as_mut().unwrap().status.as_mut().unwrap();
        (status.phase, status.pod_ip) = (Some("Failed".into()), Some("10.0.0.1".into()));
        let asked = |world: &World| endpoint(&world.view, &world.view.members[0]).is_some();
        assert!(asked(&world), "an answer of another cluster is told by its id");
        world.view.cluster.as_mut().unwrap().status.as_mut().unwrap().cluster_id = None;
        world.member(0).member.status.as_mut().unwrap().cluster_id = None;
        assert!(!asked(&world), "its address may be a stranger's by now");
        world.member(0).pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Running".into());
        assert!(asked(&world));
    }
}
