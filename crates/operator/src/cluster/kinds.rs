//! What belongs to a cluster, how it is found, and what of it is kept. Most of a Pod is of no interest here, and a thousand
//! clusters have many.

use api::{EtcdCluster, EtcdMember};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, PodSpec, PodStatus,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::runtime::cache::{Cached, Group, Key, Visitor, itself};

/// The kinds that the controller of clusters knows.
pub struct Clusters;

impl Group for Clusters {
    fn each(visitor: &mut impl Visitor<Self>) {
        visitor.visit::<EtcdCluster>();
        visitor.visit::<EtcdMember>();
        visitor.visit::<Pod>();
        visitor.visit::<PersistentVolumeClaim>();
        visitor.visit::<Service>();
        visitor.visit::<PodDisruptionBudget>();
    }
}

impl Cached<Clusters> for EtcdCluster {
    const LABEL: Option<&'static str> = None;

    fn key(&self) -> Option<Key> {
        itself(&self.metadata)
    }

    fn key_of_unreadable(metadata: &ObjectMeta) -> Option<Key> {
        itself(metadata)
    }
}

/// Found by `spec.clusterName`, so that one without a label is not lost.
impl Cached<Clusters> for EtcdMember {
    const LABEL: Option<&'static str> = None;

    fn key(&self) -> Option<Key> {
        Some(Key { namespace: self.metadata.namespace.clone()?, name: self.spec.cluster_name.clone() })
    }
}

impl Cached<Clusters> for Pod {
    fn prune(&mut self) {
        let container = |c: Container| Container {
            name: c.name,
            image: c.image,
            command: c.command,
            args: c.args,
            ..Container::default()
        };
        let state = |c: ContainerStatus| ContainerStatus {
            name: c.name,
            ready: c.ready,
            restart_count: c.restart_count,
            state: c.state,
            last_state: c.last_state,
            ..ContainerStatus::default()
        };
        self.spec = self.spec.take().map(|spec| PodSpec {
            containers: spec.containers.into_iter().map(container).collect(),
            node_name: spec.node_name,
            ..PodSpec::default()
        });
        self.status = self.status.take().map(|status| PodStatus {
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            pod_ip: status.pod_ip,
            conditions: status.conditions,
            container_statuses: status.container_statuses.map(|all| all.into_iter().map(state).collect()),
            ..PodStatus::default()
        });
    }
}

impl Cached<Clusters> for PersistentVolumeClaim {
    fn prune(&mut self) {
        self.spec = self.spec.take().map(|spec| PersistentVolumeClaimSpec {
            volume_name: spec.volume_name,
            ..PersistentVolumeClaimSpec::default()
        });
        self.status = None;
    }
}

impl Cached<Clusters> for Service {}

impl Cached<Clusters> for PodDisruptionBudget {
    fn prune(&mut self) {
        self.status = None;
    }
}
