//! The operator's cache and what feeds it: six watches that lag, deliver in part, break off and list anew. The cache is
//! the operator's own.

use std::sync::Arc;

use api::{EtcdCluster, EtcdMember, labels};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use operator::runtime::cache::{Cache, Cached, Key, Listing};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::apiserver::{Change, Event, Selector};
use crate::world::{NAMESPACE, OTHER_NAMESPACE, WATCHED, World};

/// One watch.
pub struct Watch {
    revision: u64,
    listing: Listing,
    /// A delivery is on its way.
    pub due: bool,
    pub kind: usize,
    /// Nothing else is listed and watched.
    namespace: Option<&'static str>,
}

/// The cache with its watches: one for each of the six kinds, in all namespaces or in each of two.
pub struct Eyes {
    pub cache: Arc<Cache>,
    pub watches: Vec<Watch>,
    selectors: [Selector; 6],
}

impl Eyes {
    /// Lists everything, as an operator does when it starts. With `sweeps`, each listing speaks for all namespaces.
    pub fn open(world: &World, sweeps: bool) -> Self {
        let labelled = Selector::labels(labels::CLUSTER).unwrap_or_default();
        let selectors = std::array::from_fn(|kind| if kind < 2 { Selector::all() } else { labelled.clone() });
        let mut eyes = Self { cache: Arc::new(Cache::whole()), watches: vec![], selectors };
        let scopes: &[Option<&str>] =
            if world.temper.namespaced { &[Some(NAMESPACE), Some(OTHER_NAMESPACE)] } else { &[None] };
        for &namespace in scopes {
            for kind in 0..WATCHED.len() {
                let listing = Listing::first(namespace.filter(|_| !sweeps));
                eyes.watches.push(Watch { revision: 0, listing, due: false, kind, namespace });
                eyes.list(world, eyes.watches.len() - 1);
            }
        }
        eyes
    }

    /// A watch lists anew. Returns the clusters that are to be looked at.
    pub fn list(&mut self, world: &World, watch: usize) -> Vec<Key> {
        let watch = &mut self.watches[watch];
        let kind = watch.kind;
        watch.listing = watch.listing.next();
        let (objects, revision) = world.api().list(WATCHED[kind], watch.namespace, &self.selectors[kind]);
        watch.revision = revision;
        let mut keys: Vec<Key> =
            objects.iter().flat_map(|object| show(&self.cache, kind, object, &watch.listing)).collect();
        keys.extend(ended(&self.cache, kind, &watch.listing));
        keys
    }

    /// Whether there is something this watch has not told yet.
    pub fn is_behind(&self, world: &World, watch: usize) -> bool {
        world.api().revision() > self.watches[watch].revision
    }

    /// Tells what has happened; all of it, or only the first part. A watch that is too far behind lists anew.
    pub fn deliver(&mut self, world: &World, number: usize, most: usize) -> Vec<Key> {
        let watch = &mut self.watches[number];
        let kind = watch.kind;
        watch.due = false;
        let api = world.api();
        let selector = &self.selectors[kind];
        let Ok(events) = api.watch_since(WATCHED[kind], watch.namespace, selector, watch.revision) else {
            drop(api);
            return self.list(world, number);
        };
        let all = events.len() <= most;
        let newest = api.revision();
        drop(api);
        let mut keys = vec![];
        for event in events.into_iter().take(most) {
            watch.revision = event.revision;
            keys.extend(tell(&self.cache, kind, &event, &watch.listing));
        }
        if all {
            watch.revision = newest;
        }
        keys
    }
}

fn tell(cache: &Cache, kind: usize, event: &Event, listing: &Listing) -> Vec<Key> {
    if event.change == Change::Deleted {
        return match kind {
            0 => deleted::<EtcdCluster>(cache, &event.object),
            1 => deleted::<EtcdMember>(cache, &event.object),
            2 => deleted::<Pod>(cache, &event.object),
            3 => deleted::<PersistentVolumeClaim>(cache, &event.object),
            4 => deleted::<Service>(cache, &event.object),
            _ => deleted::<PodDisruptionBudget>(cache, &event.object),
        };
    }
    apply(cache, kind, &event.object, listing)
}

fn apply(cache: &Cache, kind: usize, object: &Value, listing: &Listing) -> Vec<Key> {
    match kind {
        0 => seen::<EtcdCluster>(cache, object, listing),
        1 => seen::<EtcdMember>(cache, object, listing),
        2 => seen::<Pod>(cache, object, listing),
        3 => seen::<PersistentVolumeClaim>(cache, object, listing),
        4 => seen::<Service>(cache, object, listing),
        _ => seen::<PodDisruptionBudget>(cache, object, listing),
    }
}

fn show(cache: &Cache, kind: usize, object: &Value, listing: &Listing) -> Vec<Key> {
    match kind {
        0 => shown::<EtcdCluster>(cache, object, listing),
        1 => shown::<EtcdMember>(cache, object, listing),
        2 => shown::<Pod>(cache, object, listing),
        3 => shown::<PersistentVolumeClaim>(cache, object, listing),
        4 => shown::<Service>(cache, object, listing),
        _ => shown::<PodDisruptionBudget>(cache, object, listing),
    }
}

fn ended(cache: &Cache, kind: usize, listing: &Listing) -> Vec<Key> {
    let lost = match kind {
        0 => cache.listed::<EtcdCluster>(listing),
        1 => cache.listed::<EtcdMember>(listing),
        2 => cache.listed::<Pod>(listing),
        3 => cache.listed::<PersistentVolumeClaim>(listing),
        4 => cache.listed::<Service>(listing),
        _ => cache.listed::<PodDisruptionBudget>(listing),
    };
    let mut lost: Vec<Key> = lost.into_iter().collect();
    lost.sort();
    lost
}

fn decode<K: DeserializeOwned>(object: &Value) -> Option<K> {
    K::deserialize(object).ok()
}

fn seen<K: Cached + DeserializeOwned>(cache: &Cache, object: &Value, listing: &Listing) -> Vec<Key> {
    decode::<K>(object).map(|object| cache.seen(object, listing)).unwrap_or_default()
}

fn shown<K: Cached + DeserializeOwned>(cache: &Cache, object: &Value, listing: &Listing) -> Vec<Key> {
    decode::<K>(object).map(|object| cache.shown(object, listing)).unwrap_or_default()
}

fn deleted<K: Cached + DeserializeOwned>(cache: &Cache, object: &Value) -> Vec<Key> {
    decode::<K>(object).map(|object| cache.deleted(&object)).unwrap_or_default()
}
