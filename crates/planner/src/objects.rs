//! From plain objects to a view, for whoever has them: the operator's cache, or a tool that has just listed them. What has to
//! be asked of etcd is not in it yet.

use std::collections::BTreeMap;

use api::{EtcdCluster, EtcdMember, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;

use crate::{ClusterView, Kind, MemberView, Settings, Stray};

/// What carries the name or the label of one cluster, each by its name.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The EtcdCluster itself, if there is one.
    pub clusters: BTreeMap<String, EtcdCluster>,
    /// Its members, by `spec.clusterName`.
    pub members: BTreeMap<String, EtcdMember>,
    /// Pods with its label.
    pub pods: BTreeMap<String, Pod>,
    /// Claims with its label.
    pub volumes: BTreeMap<String, PersistentVolumeClaim>,
    /// Services with its label.
    pub services: BTreeMap<String, Service>,
    /// Budgets with its label.
    pub budgets: BTreeMap<String, PodDisruptionBudget>,
}

impl Objects {
    /// Whether there is nothing that could be looked after.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.members.is_empty()
    }

    /// The view of the cluster of that name.
    pub fn into_view(mut self, namespace: &str, name: &str, settings: Settings, entropy: u64) -> ClusterView {
        let with_belongings = |(name, member): (String, EtcdMember)| MemberView {
            member,
            pod: self.pods.remove(&name),
            volume: self.volumes.remove(&names::pvc(&name)),
            ..MemberView::default()
        };
        let members = self.members.into_iter().map(with_belongings).collect();
        // What is left over belongs to no member.
        let pods = self.pods.values().map(|p| stray(Kind::Pod, &p.metadata));
        let claims = self.volumes.values().map(|v| stray(Kind::Claim, &v.metadata));
        ClusterView {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster: self.clusters.remove(name),
            strays: pods.chain(claims).collect(),
            members,
            headless_service: self.services.remove(&names::headless_service(name)),
            client_service: self.services.remove(&names::client_service(name)),
            budget: self.budgets.remove(&names::budget(name)),
            settings,
            entropy,
            ..ClusterView::default()
        }
    }
}

fn stray(kind: Kind, metadata: &ObjectMeta) -> Stray {
    let owners = metadata.owner_references.iter().flatten();
    // The garbage collector takes along what a member had.
    let mut members = owners.filter(|o| o.controller == Some(true) && o.kind == EtcdMember::kind(&()));
    Stray {
        kind,
        name: metadata.name.clone().unwrap_or_default(),
        leaving: metadata.deletion_timestamp.is_some() || members.next().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    #[test]
    fn what_somebody_elses_controller_keeps_is_not_about_to_go() {
        let leaving = |kind: &str| {
            let owner =
                OwnerReference { kind: kind.to_owned(), controller: Some(true), ..OwnerReference::default() };
            let mut pod = Pod::default();
            pod.metadata.owner_references = Some(vec![owner]);
            let objects = Objects { pods: [("x".to_owned(), pod)].into(), ..Objects::default() };
            objects.into_view("ns", "c", Settings::default(), 0).strays[0].leaving
        };
        assert!(leaving("EtcdMember"));
        assert!(!leaving("ReplicaSet"));
    }
}
