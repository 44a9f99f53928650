//! Watches: one for each kind that a controller knows, limited to what carries our label, feeding its cache and its queue.

mod timeline;

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::runtime::cache::{Cache, Cached, Group, Key, Listing, Visitor};
use crate::runtime::queue::Queue;
use crate::runtime::sentence::interruption;

use timeline::Timeline;

/// Objects in one part of a listing. On their way to structures they take many times the room of their text, several kinds at
/// once, and that is what a restarted operator needs most memory for.
const PAGE: u32 = 25;
/// How long a watch lasts, in seconds: beginning it anew is all that clusters at rest ask of the API server. Whether the
/// server is still there shows much sooner, see [`READ_TIMEOUT`].
const WATCH_TIMEOUT: u32 = 600;
/// A connection over which nothing came for so long is dead: the API server sends every watch a bookmark once a minute.
pub const READ_TIMEOUT: Duration = Duration::from_secs(150);
/// An interrupted watch is resumed after so long, and then later and later.
const RETRY_FIRST: Duration = Duration::from_millis(800);
/// The latest.
const RETRY_LAST: Duration = Duration::from_secs(30);
/// A kind that is not installed is looked for after so long, and then less and less often.
const ABSENT_RETRY_FIRST: Duration = Duration::from_secs(2);
/// The least often.
const ABSENT_RETRY_LAST: Duration = Duration::from_secs(300);

/// How many first listings are still to come; zero means that all caches can be trusted.
#[derive(Default)]
pub struct Pending(AtomicUsize);

impl Pending {
    pub fn is_synced(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn expect_one(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn one_is_done(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The watches of a process. They run until this is dropped.
pub struct Watches {
    client: Client,
    /// Empty means all.
    namespaces: Vec<String>,
    pending: Arc<Pending>,
    timeline: Arc<Timeline>,
    tasks: JoinSet<()>,
}

impl Watches {
    /// Watches nothing yet. Needs a runtime. Without `namespaces`, all of them are meant.
    pub fn new(client: Client, namespaces: Vec<String>, pending: Arc<Pending>) -> Self {
        let timeline = Arc::new(Timeline::default());
        let mut tasks = JoinSet::new();
        let first = namespaces.first().map(String::as_str);
        let clusters = match first {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        tasks.spawn(timeline.clone().watch_over(clusters));
        Self { client, namespaces, pending, timeline, tasks }
    }

    /// Watches every kind of a group; what they tell goes into this cache, and its keys into this queue.
    pub fn follow<G: Group>(&mut self, cache: &Arc<Cache<G>>, queue: &Arc<Queue<Key>>) {
        let namespaces = match self.namespaces.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        for namespace in namespaces {
            G::each(&mut Start { watches: self, cache, queue, namespace: namespace.as_deref() });
        }
    }
}

/// Starts the watch of each kind in one scope.
struct Start<'a, G> {
    watches: &'a mut Watches,
    cache: &'a Arc<Cache<G>>,
    queue: &'a Arc<Queue<Key>>,
    namespace: Option<&'a str>,
}

impl<G: Group> Visitor<G> for Start<'_, G> {
    fn visit<K: Cached<G>>(&mut self) {
        let client = self.watches.client.clone();
        let api: Api<DeserializeGuard<K>> = match self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        // Nobody waits for a kind that need not be there.
        let pending = (!K::OPTIONAL).then(|| self.watches.pending.clone());
        if let Some(pending) = &pending {
            pending.expect_one();
        }
        let watch = Watch {
            cache: self.cache.clone(),
            queue: self.queue.clone(),
            pending,
            timeline: self.watches.timeline.clone(),
            listing: Listing::first(self.namespace),
            absent: None,
            failures: 0,
        };
        self.watches.tasks.spawn(watch.follow(api));
    }
}

/// The watch of one kind in one scope.
struct Watch<G> {
    cache: Arc<Cache<G>>,
    queue: Arc<Queue<Key>>,
    /// Who waits for the first listing.
    pending: Option<Arc<Pending>>,
    timeline: Arc<Timeline>,
    listing: Listing,
    /// The kind is not installed, and is looked for again after so long.
    absent: Option<Duration>,
    /// Interruptions since something good was last heard.
    failures: u32,
}

impl<G: Group> Watch<G> {
    async fn follow<K: Cached<G>>(mut self, api: Api<DeserializeGuard<K>>) {
        let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_TIMEOUT);
        let config = match K::LABEL {
            Some(label) => config.labels(label),
            None => config,
        };
        let mut restores = self.timeline.restores.subscribe();
        loop {
            let events = watcher(api.clone(), config.clone());
            tokio::select! {
                () = self.take_in_all(events) => {}
                _ = restores.changed() => {}
            }
            if let Some(delay) = self.absent {
                tokio::time::sleep(delay).await;
            }
        }
    }

    /// Takes in what a watch tells, until it has to be begun anew.
    async fn take_in_all<K: Cached<G>>(
        &mut self,
        events: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>>,
    ) {
        let mut events = pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => self.listing = self.listing.next(),
                Ok(Event::InitApply(object)) => {
                    self.timeline.note(&object);
                    self.take_in(object, Cache::shown);
                }
                Ok(Event::Apply(object)) => {
                    self.failures = 0;
                    self.timeline.note(&object);
                    self.take_in(object, Cache::seen);
                }
                Ok(Event::Delete(object)) => self.delete(object),
                Ok(Event::InitDone) => self.listed::<K>(),
                Err(error) if K::OPTIONAL && is_not_installed(&error) => return self.is_absent::<K>(),
                Err(error) => {
                    let why = interruption(&error);
                    warn!(kind = %K::KIND, "watch interrupted, it will be resumed: {why}");
                    self.timeline.interrupted.notify_one();
                    self.back_off().await;
                }
            }
        }
    }

    /// The watcher itself tries again at once, and what backs it off in kube begins anew with every listing that is begun.
    async fn back_off(&mut self) {
        let delay = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_LAST);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(delay.mul_f64(rand::random_range(0.8..1.2))).await;
    }

    fn listed<K: Cached<G>>(&mut self) {
        self.failures = 0;
        self.look_at(self.cache.listed::<K>(&self.listing));
        if self.absent.take().is_some() {
            info!(kind = %K::KIND, "the kind is installed now");
        }
        if let Some(pending) = self.pending.take() {
            pending.one_is_done();
        }
    }

    /// There is no such kind, and so there are no objects of it.
    fn is_absent<K: Cached<G>>(&mut self) {
        self.listing = self.listing.next();
        self.look_at(self.cache.listed::<K>(&self.listing));
        if self.absent.is_none() {
            info!(kind = %K::KIND, "the kind is not installed; it is looked for again from time to time");
        }
        self.absent = Some(match self.absent {
            None => ABSENT_RETRY_FIRST,
            Some(delay) => (delay * 2).min(ABSENT_RETRY_LAST),
        });
    }

    fn take_in<K: Cached<G>>(
        &self,
        object: DeserializeGuard<K>,
        how: fn(&Cache<G>, K, &Listing) -> Vec<Key>,
    ) {
        self.look_at(match object.0 {
            Ok(object) => how(&self.cache, object, &self.listing),
            // One object that can not be read must not hide the others (T16).
            Err(invalid) => {
                let name = invalid.metadata.name.as_deref().unwrap_or_default();
                warn!(kind = %K::KIND, name, error = invalid.error, "object can not be read");
                self.cache.unreadable::<K>(&invalid.metadata, invalid.error, &self.listing)
            }
        });
    }

    fn delete<K: Cached<G>>(&self, object: DeserializeGuard<K>) {
        self.look_at(match object.0 {
            Ok(object) => self.cache.deleted(&object),
            Err(invalid) => self.cache.deleted_unread::<K>(&invalid.metadata),
        });
    }

    fn look_at(&self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            self.queue.add(key);
        }
    }
}

/// Whether the API server has no such kind. Of the path of one it says so in plain text, without a reason: only the code is
/// left of that.
fn is_not_installed(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}
