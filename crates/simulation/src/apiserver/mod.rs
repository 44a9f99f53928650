//! The API server: objects, versions, conflicts, finalizers, garbage collection and watches, as one value.
//!
//! It ensures that whoever writes here meets what a real kube-apiserver would have answered, and that nothing happens
//! by itself: time, chance and the work of controllers are handed in. `tests/apiserver_conformance` holds it against
//! the real thing. [`http`] puts a `kube::Client` in front of it.
//!
//! Not simulated, and refused: server-side apply, JSON and strategic patches, dry runs, deleting collections. Not
//! simulated, and not missed by the operator: managedFields, paging (a list is always whole), quotas, authorization,
//! storage classes (no claim grows), canonical quantities in the kinds of Kubernetes itself.

mod core;
mod crd;
mod delete;
mod error;
mod garbage;
mod history;
pub mod http;
pub mod kind;
mod meta;
mod names;
mod patch;
mod scale;
mod selector;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub use delete::{DeleteOptions, Deletion, Propagation};
pub use error::ApiError;
pub use garbage::Chore;
pub use history::{Change, Event};
pub use kind::Kind;
pub use selector::Selector;

use history::{History, Write};

/// Milliseconds since the world began.
pub type Millis = u64;

/// A part of an object with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sub {
    Status,
    Scale,
}

/// Where an object is. The namespace of what has none is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    kind: Kind,
    namespace: String,
    name: String,
}

/// A simulated kube-apiserver with all its objects.
#[derive(Clone, Debug)]
pub struct ApiServer {
    objects: BTreeMap<Id, Arc<Value>>,
    /// One counter for all kinds, as in etcd.
    revision: u64,
    history: History,
    /// When the world began, by the clock on the wall.
    epoch: Timestamp,
    /// Namespaces that are being deleted. All others exist.
    terminating: BTreeSet<String>,
    /// Cluster addresses given to Services so far.
    addresses: u32,
}

impl Default for ApiServer {
    fn default() -> Self {
        // The first of January 2026.
        Self::starting_at(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 20_454))
    }
}

impl ApiServer {
    /// An empty one whose time zero is `epoch`.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self {
            objects: BTreeMap::new(),
            revision: 1,
            history: History::default(),
            epoch,
            terminating: BTreeSet::new(),
            addresses: 0,
        }
    }

    /// What the clock on the wall shows.
    pub fn time(&self, now: Millis) -> Timestamp {
        self.epoch + SignedDuration::from_millis(i64::try_from(now).unwrap_or(i64::MAX))
    }

    /// The version of the newest write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let found = self.peek(kind, namespace, name);
        found.map(|object| (**object).clone()).ok_or_else(|| ApiError::not_found(kind, name))
    }

    /// Like `get`, without a copy.
    pub fn peek(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&Id::new(kind, namespace, name))
    }

    /// The objects of a kind, by namespace and name, and the version they were read at.
    pub fn list(&self, kind: Kind, namespace: Option<&str>, selector: &Selector) -> (Vec<Value>, u64) {
        let selected = self.objects_of(kind, namespace).filter(|object| selector.matches(object));
        (selected.map(|object| (**object).clone()).collect(), self.revision)
    }

    /// Like `list`, without copies.
    pub fn objects_of<'a>(
        &'a self,
        kind: Kind,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Value>> {
        let first = Id::new(kind, namespace.unwrap_or_default(), "");
        self.objects
            .range(first..)
            .take_while(move |(id, _)| id.kind == kind && namespace.is_none_or(|ns| id.namespace == ns))
            .map(|(_, object)| object)
    }

    /// What has happened after `revision`, for a watch. 410 if that is compacted already.
    pub fn watch_since(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &Selector,
        revision: u64,
    ) -> Result<Vec<Event>, ApiError> {
        self.history.since(kind, namespace, selector, revision)
    }

    /// Forgets what happened up to and including `revision`: watches that are behind it get 410.
    pub fn compact(&mut self, revision: u64) {
        self.history.compact(revision.min(self.revision));
    }

    /// From now on nothing new is admitted there. Deleting what is there is the caller's work.
    pub fn terminate_namespace(&mut self, namespace: &str) {
        self.terminating.insert(namespace.to_owned());
    }

    /// Stores a new version, or removes the object. `None` before and after is no write.
    fn commit(&mut self, now: Millis, id: Id, after: Option<Value>) -> Option<Arc<Value>> {
        self.revision += 1;
        let kind = id.kind;
        let after = after.map(|mut object| {
            meta::set(&mut object, "resourceVersion", json!(self.revision.to_string()));
            Arc::new(object)
        });
        let before = match &after {
            Some(object) => self.objects.insert(id, object.clone()),
            None => self.objects.remove(&id),
        };
        self.history.push(Write { revision: self.revision, at: now, kind, before, after: after.clone() });
        after
    }

    /// As it stands in objects: whole seconds.
    fn timestamp(&self, now: Millis) -> Value {
        json!(self.time(now).strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }
}

impl Id {
    fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.namespaced { namespace } else { "" };
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn of(kind: Kind, object: &Value) -> Self {
        Self::new(kind, meta::text(object, "namespace"), meta::name(object))
    }
}
