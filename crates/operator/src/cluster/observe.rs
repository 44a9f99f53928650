//! Observe: everything the cache has of one cluster, as plain data. What has to be asked for, the pass asks.

use api::{EtcdMember, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use planner::{ClusterView, Kind, MemberView, Settings, Stray};

use crate::runtime::cache::{Entry, Key};

/// What the cache has of a cluster; etcd has not been asked yet.
pub fn view(key: &Key, mut entry: Entry, settings: Settings, entropy: u64) -> ClusterView {
    let with_belongings = |(name, member): (String, EtcdMember)| MemberView {
        member,
        pod: entry.pods.remove(&name),
        volume: entry.volumes.remove(&names::pvc(&name)),
        ..MemberView::default()
    };
    let members = entry.members.into_iter().map(with_belongings).collect();
    // What is left over belongs to nobody here.
    let stray = |kind, metadata: &ObjectMeta| Stray {
        kind,
        name: metadata.name.clone().unwrap_or_default(),
        // The garbage collector takes along what a member had.
        leaving: metadata.deletion_timestamp.is_some() || is_members(metadata),
    };
    let pods = entry.pods.values().map(|p| stray(Kind::Pod, &p.metadata));
    let claims = entry.volumes.values().map(|v| stray(Kind::Claim, &v.metadata));
    ClusterView {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        cluster: entry.clusters.remove(&key.name),
        strays: pods.chain(claims).collect(),
        members,
        headless_service: entry.services.remove(&names::headless_service(&key.name)),
        client_service: entry.services.remove(&names::client_service(&key.name)),
        budget: entry.budgets.remove(&names::budget(&key.name)),
        settings,
        entropy,
        ..ClusterView::default()
    }
}

/// Whether an EtcdMember controls it.
fn is_members(metadata: &ObjectMeta) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && owner.kind == EtcdMember::kind(&()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    #[test]
    fn what_somebody_elses_controller_keeps_is_not_about_to_go() {
        let leaving = |kind: &str| {
            let owner =
                OwnerReference { kind: kind.to_owned(), controller: Some(true), ..OwnerReference::default() };
            let mut pod = Pod::default();
            pod.metadata.owner_references = Some(vec![owner]);
            let key = Key { namespace: "ns".into(), name: "c".into() };
            let entry = Entry { pods: [("x".to_owned(), pod)].into(), ..Entry::default() };
            view(&key, entry, Settings::default(), 0).strays[0].leaving
        };
        assert!(leaving("EtcdMember"));
        assert!(!leaving("ReplicaSet"));
    }
}
