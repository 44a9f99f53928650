//! The operator's cache and what feeds it: six watches that lag, deliver in part, break off and list anew. The cache is
//! the operator's own.

use std::sync::Arc;

use api::labels;
use operator::cluster::kinds::Clusters;
use operator::runtime::cache::{Cache, Cached, Group as _, Key, Listing, Visitor};
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
    pub cache: Arc<Cache<Clusters>>,
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
        let mut keys: Vec<Key> = objects
            .iter()
            .flat_map(|object| hear(&self.cache, kind, News::Shown(object, &watch.listing)))
            .collect();
        keys.extend(hear(&self.cache, kind, News::Listed(&watch.listing)));
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

fn tell(cache: &Cache<Clusters>, kind: usize, event: &Event, listing: &Listing) -> Vec<Key> {
    let news = match event.change {
        Change::Deleted => News::Deleted(&event.object),
        _ => News::Seen(&event.object, listing),
    };
    hear(cache, kind, news)
}

/// What a watch has to say.
#[derive(Clone, Copy)]
enum News<'a> {
    Seen(&'a Value, &'a Listing),
    Shown(&'a Value, &'a Listing),
    Deleted(&'a Value),
    Listed(&'a Listing),
}

/// Takes in news of the kind with that number. Returns the keys to look at.
fn hear(cache: &Cache<Clusters>, kind: usize, news: News<'_>) -> Vec<Key> {
    let mut ear = Ear { cache, wanted: kind, visited: 0, news, keys: vec![] };
    Clusters::each(&mut ear);
    ear.keys
}

struct Ear<'a> {
    cache: &'a Cache<Clusters>,
    wanted: usize,
    visited: usize,
    news: News<'a>,
    keys: Vec<Key>,
}

impl Visitor<Clusters> for Ear<'_> {
    fn visit<K: Cached<Clusters>>(&mut self) {
        let number = self.visited;
        self.visited += 1;
        if number != self.wanted {
            return;
        }
        let keys = match self.news {
            News::Seen(object, listing) => {
                K::deserialize(object).map(|object| self.cache.seen(object, listing))
            }
            News::Shown(object, listing) => {
                K::deserialize(object).map(|object| self.cache.shown(object, listing))
            }
            News::Deleted(object) => K::deserialize(object).map(|object| self.cache.deleted(&object)),
            News::Listed(listing) => {
                let mut lost: Vec<Key> = self.cache.listed::<K>(listing).into_iter().collect();
                lost.sort();
                Ok(lost)
            }
        };
        self.keys = keys.unwrap_or_default();
    }
}
