//! Watches: six kinds, each limited to what carries our label, feeding the cache and the queue.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{EtcdCluster, EtcdMember, labels};
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tracing::warn;

use crate::cache::{Cache, Cached, Key, Listing};
use crate::queue::Queue;

/// Objects in one part of a listing. On their way to structures they take many times the room of their text, six kinds at
/// once, and that is what a restarted operator needs most memory for.
const PAGE: u32 = 25;
/// How long a watch lasts, in seconds: beginning it anew is all that clusters at rest ask of the API server. Whether the
/// server is still there shows much sooner, see [`SILENCE`].
const LASTS: u32 = 600;
/// A connection over which nothing came for so long is dead: the API server sends every watch a bookmark once a minute.
pub const SILENCE: Duration = Duration::from_secs(150);

/// How many first listings are still to come; zero means the cache can be trusted.
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

/// What every watch needs.
#[derive(Clone)]
pub struct Watches {
    pub client: Client,
    /// Empty means all.
    pub namespaces: Vec<String>,
    pub cache: Arc<Cache>,
    pub queue: Arc<Queue<Key>>,
    pub pending: Arc<Pending>,
}

impl Watches {
    /// Starts all watches. They run until the set is dropped.
    pub fn start(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let all = watcher::Config::default().page_size(PAGE).timeout(LASTS);
        let ours = all.clone().labels(labels::CLUSTER);
        let namespaces: Vec<Option<&str>> = match self.namespaces.as_slice() {
            [] => vec![None],
            some => some.iter().map(|n| Some(n.as_str())).collect(),
        };
        for namespace in namespaces {
            // Members are found by spec.clusterName, so that one without a label is not lost.
            self.spawn::<EtcdCluster>(&mut tasks, namespace, all.clone());
            self.spawn::<EtcdMember>(&mut tasks, namespace, all.clone());
            self.spawn::<Pod>(&mut tasks, namespace, ours.clone());
            self.spawn::<PersistentVolumeClaim>(&mut tasks, namespace, ours.clone());
            self.spawn::<Service>(&mut tasks, namespace, ours.clone());
            self.spawn::<PodDisruptionBudget>(&mut tasks, namespace, ours.clone());
        }
        tasks
    }

    fn spawn<K>(&self, tasks: &mut JoinSet<()>, namespace: Option<&str>, config: watcher::Config)
    where
        K: Cached + Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Debug,
    {
        let api: Api<DeserializeGuard<K>> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        self.pending.expect_one();
        tasks.spawn(self.clone().follow(api, config, Listing::first(namespace)));
    }

    async fn follow<K>(self, api: Api<DeserializeGuard<K>>, config: watcher::Config, mut listing: Listing)
    where
        K: Cached + DeserializeOwned + Debug,
    {
        let mut synced = false;
        let mut events = pin!(watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listing = listing.next(),
                Ok(Event::InitApply(object)) => self.take_in(object, &listing, Cache::shown),
                Ok(Event::Apply(object)) => self.take_in(object, &listing, Cache::seen),
                Ok(Event::Delete(object)) => self.delete(object),
                Ok(Event::InitDone) => {
                    self.look_at(self.cache.listed::<K>(&listing));
                    if !std::mem::replace(&mut synced, true) {
                        self.pending.one_is_done();
                    }
                }
                Err(error) => warn!(kind = %K::kind(&()), %error, "watch interrupted; it will be resumed"),
            }
        }
    }

    fn take_in<K: Cached>(
        &self,
        object: DeserializeGuard<K>,
        listing: &Listing,
        how: fn(&Cache, K, &Listing) -> Vec<Key>,
    ) {
        self.look_at(match object.0 {
            Ok(object) => how(&self.cache, object, listing),
            // One object that can not be read must not hide the others (T16).
            Err(invalid) => {
                let name = invalid.metadata.name.as_deref().unwrap_or_default();
                warn!(kind = %K::kind(&()), name, error = invalid.error, "object can not be read");
                self.cache.unreadable::<K>(&invalid.metadata, invalid.error, listing)
            }
        });
    }

    fn delete<K: Cached>(&self, object: DeserializeGuard<K>) {
        self.look_at(match object.0 {
            Ok(object) => self.cache.deleted(&object),
            Err(invalid) => self.cache.deleted_unread::<K>(&invalid.metadata),
        });
    }

    fn look_at(&self, clusters: impl IntoIterator<Item = Key>) {
        for key in clusters {
            self.queue.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn h48_nothing_is_watched_but_our_own_kinds_and_what_carries_our_label() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let uri = request.uri().to_string();
            log.lock().unwrap_or_else(PoisonError::into_inner).push(uri);
            let empty = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
            async move { Ok::<_, std::io::Error>(http::Response::new(Body::from(empty.as_bytes().to_vec()))) }
        });
        let watches = Watches {
            client: Client::new(server, "default"),
            namespaces: vec![],
            cache: Arc::default(),
            queue: Arc::default(),
            pending: Arc::default(),
        };
        let _tasks = watches.start();
        while !watches.pending.is_synced() {
            tokio::task::yield_now().await;
        }

        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(asked.len() >= 6, "{asked:?}");
        let label = labels::CLUSTER.replace('/', "%2F");
        for uri in asked.iter() {
            let ours = uri.starts_with("/apis/etcd-operator.cozystack.io/");
            assert!(ours || uri.contains(&format!("labelSelector={label}")), "{uri}");
            assert!(!uri.contains("secrets") && !uri.contains("configmaps"), "{uri}");
        }
    }
}
