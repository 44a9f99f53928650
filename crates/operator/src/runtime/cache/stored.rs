//! How objects lie in the cache: folded, as JSON. A Pod of Rust structures is several times as large, and nobody reads it
//! between two passes.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use api::{EtcdCluster, EtcdMember};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::kinds::Cached;

/// Everything known about one cluster, objects by name.
#[derive(Debug, Default)]
pub struct Entry {
    pub clusters: BTreeMap<String, EtcdCluster>,
    pub members: BTreeMap<String, EtcdMember>,
    pub pods: BTreeMap<String, Pod>,
    pub volumes: BTreeMap<String, PersistentVolumeClaim>,
    pub services: BTreeMap<String, Service>,
    pub budgets: BTreeMap<String, PodDisruptionBudget>,
    /// Objects that can not be read, by kind and name, and why. With one of these nothing is done: a member that can not
    /// be read still exists.
    pub malformed: BTreeMap<String, String>,
}

/// An [`Entry`] at rest.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    pub(super) clusters: Slot,
    pub(super) members: Slot,
    pub(super) pods: Slot,
    pub(super) volumes: Slot,
    pub(super) services: Slot,
    pub(super) budgets: Slot,
}

/// Objects of one kind by name.
pub type Slot = BTreeMap<String, Arc<Stored>>;

/// An object, and where it came from.
#[derive(Clone, Debug)]
pub struct Stored {
    pub(super) form: Form,
    pub(super) state: State,
    /// The listing that showed it last.
    pub(super) listing: u64,
    /// When we wrote it ourselves: a listing that began before can not know it.
    pub(super) written: Option<Instant>,
    /// The answer to a write of ours that looked older than this: it is not, if a listing shows that versions went back.
    pub(super) outdone: Option<Arc<Stored>>,
}

/// Which state of which object it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) uid: Option<Box<str>>,
    pub(super) version: Option<u64>,
    created: Option<Timestamp>,
}

impl State {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.as_deref().map(Box::from),
            version: meta.resource_version.as_deref().and_then(|v| v.parse().ok()),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    /// Whether `new` says more. Resource versions are decimal numbers that only grow, unless the API server was restored
    /// from a backup; where one is not a number, the last word counts.
    pub(super) fn is_older_than(&self, new: &Self) -> bool {
        if new.uid != self.uid {
            return new.created >= self.created;
        }
        match (new.version, self.version) {
            (Some(new), Some(known)) => new > known,
            _ => true,
        }
    }
}

/// How an object lies in the cache.
#[derive(Clone, Debug)]
pub(super) enum Form {
    Json(Box<[u8]>),
    Whole(Arc<dyn Any + Send + Sync>),
}

impl Form {
    /// Whether this is known to say something else. What is not folded is not compared.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Json(one), Self::Json(other)) if one != other)
    }
}

impl Stored {
    pub(super) fn unfold<K: Cached>(&self) -> Result<K, serde_json::Error> {
        match &self.form {
            Form::Json(json) => serde_json::from_slice(json),
            Form::Whole(object) => object
                .downcast_ref::<K>()
                .cloned()
                .ok_or_else(|| serde::de::Error::custom("it is an object of another kind")),
        }
    }

    /// Whether it is a write of ours that a listing which began then need not know of.
    pub(super) fn is_written_since(&self, began: Instant) -> bool {
        self.written.is_some_and(|at| at >= began)
    }
}

impl Shelf {
    /// The objects, and what of them can not be read.
    pub(super) fn unfold(&self) -> Entry {
        let mut malformed = BTreeMap::new();
        Entry {
            clusters: unfold(&self.clusters, &mut malformed),
            members: unfold(&self.members, &mut malformed),
            pods: unfold(&self.pods, &mut malformed),
            volumes: unfold(&self.volumes, &mut malformed),
            services: unfold(&self.services, &mut malformed),
            budgets: unfold(&self.budgets, &mut malformed),
            malformed,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let slots = [&self.clusters, &self.members, &self.pods, &self.volumes, &self.services, &self.budgets];
        slots.iter().all(|slot| slot.is_empty())
    }
}

fn unfold<K: Cached>(slot: &Slot, malformed: &mut BTreeMap<String, String>) -> BTreeMap<String, K> {
    let mut objects = BTreeMap::new();
    for (name, stored) in slot {
        match stored.unfold() {
            Ok(object) => {
                objects.insert(name.clone(), object);
            }
            Err(error) => {
                malformed.insert(format!("{} {name}", K::kind(&())), error.to_string());
            }
        }
    }
    objects
}
