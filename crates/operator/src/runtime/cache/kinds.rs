//! The kinds that the cache holds: which cluster an object belongs to, and what of it is kept.

use api::{EtcdCluster, EtcdMember, labels};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, PodSpec, PodStatus,
    Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use planner::Kind;
use planner::pass::Latest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::stored::{Shelf, Slot};
use super::{Cache, Key};

/// A kind that the cache holds.
pub trait Cached:
    Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
    fn slot(shelf: &mut Shelf) -> &mut Slot;

    /// The cluster it belongs to.
    fn key(&self) -> Option<Key> {
        let namespace = self.meta().namespace.clone()?;
        let name = self.labels().get(labels::CLUSTER)?.clone();
        Some(Key { namespace, name })
    }

    /// Drops what nobody here reads; most of a Pod is that.
    fn prune(&mut self) {}
}

impl Cached for EtcdCluster {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.clusters
    }

    fn key(&self) -> Option<Key> {
        Some(Key { namespace: self.metadata.namespace.clone()?, name: self.metadata.name.clone()? })
    }
}

impl Cached for EtcdMember {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.members
    }

    fn key(&self) -> Option<Key> {
        Some(Key { namespace: self.metadata.namespace.clone()?, name: self.spec.cluster_name.clone() })
    }
}

impl Cached for Pod {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.pods
    }

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
            pod_ip: status.pod_ip,
            conditions: status.conditions,
            container_statuses: status.container_statuses.map(|all| all.into_iter().map(state).collect()),
            ..PodStatus::default()
        });
    }
}

impl Cached for PersistentVolumeClaim {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.volumes
    }

    fn prune(&mut self) {
        self.spec = self.spec.take().map(|spec| PersistentVolumeClaimSpec {
            volume_name: spec.volume_name,
            ..PersistentVolumeClaimSpec::default()
        });
        self.status = None;
    }
}

impl Cached for Service {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.services
    }
}

impl Cached for PodDisruptionBudget {
    fn slot(shelf: &mut Shelf) -> &mut Slot {
        &mut shelf.budgets
    }

    fn prune(&mut self) {
        self.status = None;
    }
}

/// The cluster that an object belongs to which can not be read, from its metadata alone.
pub(super) fn key_of_unreadable<K: Cached>(metadata: &ObjectMeta) -> Option<Key> {
    let own = K::kind(&()) == EtcdCluster::kind(&());
    let name = if own { metadata.name.as_ref() } else { metadata.labels.as_ref()?.get(labels::CLUSTER) };
    Some(Key { namespace: metadata.namespace.clone()?, name: name?.clone() })
}

impl Cache {
    /// Takes in the answer to one of our own writes.
    pub fn wrote_as(&self, kind: Kind, object: &Value) {
        match kind {
            Kind::Cluster => self.wrote_value::<EtcdCluster>(object),
            Kind::Member => self.wrote_value::<EtcdMember>(object),
            Kind::Pod => self.wrote_value::<Pod>(object),
            Kind::Claim => self.wrote_value::<PersistentVolumeClaim>(object),
            Kind::Service => self.wrote_value::<Service>(object),
            Kind::Budget => self.wrote_value::<PodDisruptionBudget>(object),
            Kind::Volume | Kind::Node => {}
        }
    }

    /// Takes out what we have deleted for good, or found to be gone.
    pub fn gone_as(&self, kind: Kind, key: &Key, name: &str, uid: &str) {
        match kind {
            Kind::Cluster => self.gone::<EtcdCluster>(key, name, uid),
            Kind::Member => self.gone::<EtcdMember>(key, name, uid),
            Kind::Pod => self.gone::<Pod>(key, name, uid),
            Kind::Claim => self.gone::<PersistentVolumeClaim>(key, name, uid),
            Kind::Service => self.gone::<Service>(key, name, uid),
            Kind::Budget => self.gone::<PodDisruptionBudget>(key, name, uid),
            Kind::Volume | Kind::Node => {}
        }
    }

    fn wrote_value<K: Cached>(&self, object: &Value) {
        // What can not be read is left to the watch, which says so.
        if let Ok(object) = K::deserialize(object) {
            self.wrote(object);
        }
    }
}

/// What the cache has of the objects in one namespace.
pub struct Known<'a> {
    pub cache: &'a Cache,
    pub namespace: &'a str,
}

impl Latest for Known<'_> {
    fn latest(&self, kind: Kind, name: &str) -> Option<Value> {
        match kind {
            Kind::Cluster => self.cache.latest::<EtcdCluster>(self.namespace, name),
            Kind::Member => self.cache.latest::<EtcdMember>(self.namespace, name),
            _ => None,
        }
    }
}
