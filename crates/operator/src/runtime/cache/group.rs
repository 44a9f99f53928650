//! The kinds that a controller knows: which key an object belongs to, and what of it is kept. Each is declared once, as
//! [`Cached`], and named once, in its [`Group`]; watching, listing and taking in our own writes follow from that.

use std::fmt::Debug;

use api::labels;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use planner::pass::Latest;
use planner::{Declared, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Cache, Key};

/// The kinds that one controller knows.
pub trait Group: Sized + Send + Sync + 'static {
    /// Visits each kind of the group.
    fn each(visitor: &mut impl Visitor<Self>);
}

/// Does something with the kinds of a group.
pub trait Visitor<G> {
    /// One kind.
    fn visit<K: Cached<G>>(&mut self);
}

/// A kind in a group.
pub trait Cached<G>:
    Declared
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
    /// Only objects with this label are listed and watched; all, if there is none.
    const LABEL: Option<&'static str> = Some(labels::CLUSTER);
    /// Its CRD need not be installed: it is looked for again and again, and nobody waits for it.
    const OPTIONAL: bool = false;

    /// What it belongs to.
    fn key(&self) -> Option<Key> {
        labelled(self.meta())
    }

    /// What an object belongs to that can not be read, from its metadata alone.
    fn key_of_unreadable(metadata: &ObjectMeta) -> Option<Key> {
        labelled(metadata)
    }

    /// Drops what no plan reads. A plan from pruned objects is the plan from whole ones.
    fn prune(&mut self) {}
}

/// The key that the label of the cluster names.
pub fn labelled(metadata: &ObjectMeta) -> Option<Key> {
    let name = metadata.labels.as_ref()?.get(labels::CLUSTER)?;
    Some(Key { namespace: metadata.namespace.clone()?, name: name.clone() })
}

/// The key of an object that is looked after itself.
pub fn itself(metadata: &ObjectMeta) -> Option<Key> {
    Some(Key { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
}

impl<G: Group> Cache<G> {
    /// Takes in the answer to one of our own writes. What can not be read is left to the watch, which says so.
    pub fn wrote_as(&self, kind: Kind, object: &Value) {
        G::each(&mut Wrote { cache: self, kind, object });
    }

    /// Takes out what we have deleted for good, or found to be gone.
    pub fn gone_as(&self, kind: Kind, key: &Key, name: &str, uid: &str) {
        G::each(&mut Gone { cache: self, kind, key, name, uid });
    }
}

struct Wrote<'a, G> {
    cache: &'a Cache<G>,
    kind: Kind,
    object: &'a Value,
}

impl<G: Group> Visitor<G> for Wrote<'_, G> {
    fn visit<K: Cached<G>>(&mut self) {
        if K::KIND == self.kind
            && let Ok(object) = K::deserialize(self.object)
        {
            self.cache.wrote(object);
        }
    }
}

struct Gone<'a, G> {
    cache: &'a Cache<G>,
    kind: Kind,
    key: &'a Key,
    name: &'a str,
    uid: &'a str,
}

impl<G: Group> Visitor<G> for Gone<'_, G> {
    fn visit<K: Cached<G>>(&mut self) {
        if K::KIND == self.kind {
            self.cache.gone::<K>(self.key, self.name, self.uid);
        }
    }
}

/// What the cache has of the objects in one namespace.
pub struct Known<'a, G> {
    pub cache: &'a Cache<G>,
    pub namespace: &'a str,
}

impl<G: Group> Latest for Known<'_, G> {
    fn latest(&self, kind: Kind, name: &str) -> Option<Value> {
        let mut found = Found { known: self, kind, name, object: None };
        G::each(&mut found);
        found.object
    }
}

struct Found<'a, G> {
    known: &'a Known<'a, G>,
    kind: Kind,
    name: &'a str,
    object: Option<Value>,
}

impl<G: Group> Visitor<G> for Found<'_, G> {
    fn visit<K: Cached<G>>(&mut self) {
        if K::KIND == self.kind {
            self.object = self.known.cache.latest::<K>(self.known.namespace, self.name);
        }
    }
}
