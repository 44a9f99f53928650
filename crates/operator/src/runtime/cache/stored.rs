//! How objects lie in the cache: folded, as JSON. A Pod of Rust structures is several times as large, and nobody reads it
//! between two passes.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use planner::Kind;
use serde::de::DeserializeOwned;

use super::group::Cached;

/// Everything known of one key, as it was at one moment.
pub struct Entry<G> {
    shelf: Shelf,
    /// Objects that can not be read, by kind and name, and why. With one of these nothing is done: a member that can not
    /// be read still exists.
    pub malformed: BTreeMap<String, String>,
    group: PhantomData<fn() -> G>,
}

impl<G> Entry<G> {
    pub(super) fn new(shelf: Shelf, malformed: BTreeMap<String, String>) -> Self {
        Self { shelf, malformed, group: PhantomData }
    }

    /// The objects of a kind by name. What of them can not be read is noted.
    pub fn take<K: Cached<G>>(&mut self) -> BTreeMap<String, K> {
        let mut objects = BTreeMap::new();
        for (name, stored) in self.shelf.0.remove(&K::KIND).unwrap_or_default() {
            match stored.unfold() {
                Ok(object) => {
                    objects.insert(name, object);
                }
                Err(error) => {
                    self.malformed.insert(format!("{} {name}", K::KIND), error.to_string());
                }
            }
        }
        objects
    }
}

/// What belongs to one key, at rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf(BTreeMap<Kind, Slot>);

/// Objects of one kind by name.
pub(super) type Slot = BTreeMap<String, Arc<Stored>>;

/// An object, and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Stored {
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
    pub(super) fn unfold<K: DeserializeOwned + Clone + 'static>(&self) -> Result<K, serde_json::Error> {
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
    pub(super) fn slot(&mut self, kind: Kind) -> &mut Slot {
        self.0.entry(kind).or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(Slot::is_empty)
    }
}
