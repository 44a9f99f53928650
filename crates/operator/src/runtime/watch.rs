//! Watches: six kinds, each limited to what carries our label, feeding the cache and the queue.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use api::{EtcdCluster, EtcdMember, labels};
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::runtime::cache::{Cache, Cached, Key, Listing};
use crate::runtime::queue::Queue;
use crate::runtime::sentence::interruption;
use planner::pass::API_LIMIT;

/// Objects in one part of a listing. On their way to structures they take many times the room of their text, six kinds at
/// once, and that is what a restarted operator needs most memory for.
const PAGE: u32 = 25;
/// How long a watch lasts, in seconds: beginning it anew is all that clusters at rest ask of the API server. Whether the
/// server is still there shows much sooner, see [`SILENCE`].
const LASTS: u32 = 600;
/// A connection over which nothing came for so long is dead: the API server sends every watch a bookmark once a minute.
pub const SILENCE: Duration = Duration::from_secs(150);
/// How long after an interruption the API server is asked how far it is.
const CALMED: Duration = Duration::from_secs(2);
/// How long until it is asked again if it does not say.
const AGAIN: Duration = Duration::from_secs(10);

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

/// What the watches of a process tell each other.
#[derive(Default)]
struct Timeline {
    /// The highest version that an object of our own kinds was seen at.
    newest: AtomicU64,
    /// A watch was interrupted.
    interrupted: Notify,
    /// Counts how often versions went back: with every time, all watches begin anew.
    restores: watch::Sender<u32>,
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
        let timeline = Arc::new(Timeline::default());
        tasks.spawn(timeline.clone().watch_over(self.api(namespaces[0])));
        for namespace in namespaces {
            // Members are found by spec.clusterName, so that one without a label is not lost.
            self.spawn::<EtcdCluster>(&mut tasks, namespace, all.clone(), &timeline);
            self.spawn::<EtcdMember>(&mut tasks, namespace, all.clone(), &timeline);
            self.spawn::<Pod>(&mut tasks, namespace, ours.clone(), &timeline);
            self.spawn::<PersistentVolumeClaim>(&mut tasks, namespace, ours.clone(), &timeline);
            self.spawn::<Service>(&mut tasks, namespace, ours.clone(), &timeline);
            self.spawn::<PodDisruptionBudget>(&mut tasks, namespace, ours.clone(), &timeline);
        }
        tasks
    }

    fn api<K>(&self, namespace: Option<&str>) -> Api<DeserializeGuard<K>>
    where
        K: Cached + Resource<Scope = NamespaceResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn spawn<K>(
        &self,
        tasks: &mut JoinSet<()>,
        namespace: Option<&str>,
        config: watcher::Config,
        timeline: &Arc<Timeline>,
    ) where
        K: Cached + Resource<Scope = NamespaceResourceScope> + Debug,
    {
        let api = self.api::<K>(namespace);
        self.pending.expect_one();
        let (this, listing, timeline) = (self.clone(), Listing::first(namespace), timeline.clone());
        tasks.spawn(this.follow(api, config, listing, timeline));
    }

    async fn follow<K>(
        self,
        api: Api<DeserializeGuard<K>>,
        config: watcher::Config,
        mut listing: Listing,
        timeline: Arc<Timeline>,
    ) where
        K: Cached + Debug,
    {
        let mut synced = false;
        let mut restores = timeline.restores.subscribe();
        loop {
            let mut events = pin!(watcher(api.clone(), config.clone()).default_backoff());
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    _ = restores.changed() => break,
                };
                match event {
                    Some(Ok(Event::Init)) => listing = listing.next(),
                    Some(Ok(Event::InitApply(object))) => {
                        timeline.note(&object);
                        self.take_in(object, &listing, Cache::shown);
                    }
                    Some(Ok(Event::Apply(object))) => {
                        timeline.note(&object);
                        self.take_in(object, &listing, Cache::seen);
                    }
                    Some(Ok(Event::Delete(object))) => self.delete(object),
                    Some(Ok(Event::InitDone)) => {
                        self.look_at(self.cache.listed::<K>(&listing));
                        if !std::mem::replace(&mut synced, true) {
                            self.pending.one_is_done();
                        }
                    }
                    Some(Err(error)) => {
                        let why = interruption(&error);
                        warn!(kind = %K::kind(&()), "watch interrupted, it will be resumed: {why}");
                        timeline.interrupted.notify_one();
                    }
                    None => return,
                }
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

impl Timeline {
    fn note<K: Cached>(&self, object: &DeserializeGuard<K>) {
        if K::group(&()) == EtcdCluster::group(&()) {
            self.newest.fetch_max(version(object.meta().resource_version.as_deref()), Ordering::AcqRel);
        }
    }

    /// Looks whether the API server is still the one that the watches began with. One that was restored from a backup
    /// knows nothing of the versions they stand at, and tells them nothing until it gets there; for what it tells them
    /// then they have missed the beginning (T31).
    async fn watch_over(self: Arc<Self>, clusters: Api<DeserializeGuard<EtcdCluster>>) {
        loop {
            let newest = self.newest.load(Ordering::Acquire);
            let page = ListParams::default().limit(1);
            let now = match tokio::time::timeout(API_LIMIT, clusters.list(&page)).await {
                Ok(Ok(list)) => version(list.metadata.resource_version.as_deref()),
                Ok(Err(_)) | Err(_) => {
                    // The watches say what is wrong.
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            if (1..newest).contains(&now) {
                warn!(now, newest, "the API server has gone back in time; everything is listed anew");
                self.newest.store(now, Ordering::Release);
                self.restores.send_modify(|count| *count += 1);
            } else {
                self.newest.fetch_max(now, Ordering::AcqRel);
            }
            let life = Duration::from_secs(LASTS.into());
            if tokio::time::timeout(life, self.interrupted.notified()).await.is_ok() {
                tokio::time::sleep(CALMED).await;
            }
        }
    }
}

/// Resource versions are decimal numbers. One that is not says nothing, and is zero.
fn version(text: Option<&str>) -> u64 {
    text.and_then(|v| v.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use kube::client::Body;
    use serde_json::json;

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

    /// A server with lists of Pods by namespace, whose watches tell nothing but that they have expired.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<State>>, Arc<Notify>);

    #[derive(Default)]
    struct State {
        revision: u64,
        pods: Vec<(&'static str, u64)>,
        /// The watch of Pods in this namespace ends.
        expire: Option<&'static str>,
        watches: Vec<String>,
    }

    impl Server {
        fn state(&self) -> std::sync::MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn watches(&self, namespaces: &[&str]) -> Watches {
            let this = self.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let this = this.clone();
                async move {
                    let text = this.answer(request.uri()).await;
                    Ok::<_, std::io::Error>(http::Response::new(Body::from(text.into_bytes())))
                }
            });
            Watches {
                client: Client::new(service, "default"),
                namespaces: namespaces.iter().map(|&n| n.to_owned()).collect(),
                cache: Arc::default(),
                queue: Arc::default(),
                pending: Arc::default(),
            }
        }

        async fn answer(&self, uri: &http::Uri) -> String {
            let namespace =
                uri.path().split('/').skip_while(|part| *part != "namespaces").nth(1).unwrap_or("a");
            if uri.query().is_some_and(|query| query.contains("watch=true")) {
                self.state().watches.push(uri.path().to_owned());
                while !uri.path().ends_with("/pods") || self.state().expire != Some(namespace) {
                    self.1.notified().await;
                }
                self.state().expire = None;
                let gone = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired",
                    "code": 410, "message": "too old resource version", "metadata": {} });
                return format!("{}\n", json!({ "type": "ERROR", "object": gone }));
            }
            let state = self.state();
            let is_there = |(ns, _): &&(&str, u64)| uri.path().ends_with("/pods") && *ns == namespace;
            let items: Vec<_> = state.pods.iter().filter(is_there).map(pod).collect();
            let metadata = json!({ "resourceVersion": state.revision.to_string() });
            json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }).to_string()
        }

        fn expire(&self, namespace: &'static str) {
            self.state().expire = Some(namespace);
            self.1.notify_waiters();
        }

        /// Waits until Pods were listed and are watched, so often.
        async fn settled(&self, path: &str, times: usize) {
            while self.state().watches.iter().filter(|watched| *watched == path).count() < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    fn pod((namespace, version): &(&str, u64)) -> serde_json::Value {
        let labels = json!({ labels::CLUSTER: "c" });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": namespace,
            "uid": namespace, "resourceVersion": version.to_string(), "labels": labels } })
    }

    fn known(watches: &Watches, namespace: &str) -> Option<String> {
        let entry = watches.cache.entry(&Key { namespace: namespace.to_owned(), name: "c".to_owned() });
        entry.pods.get("p").and_then(|pod| pod.metadata.resource_version.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn t30_a_re_list_in_one_namespace_leaves_the_objects_of_another() {
        let server = Server::default();
        *server.state() = State { revision: 9, pods: vec![("a", 1), ("b", 2)], ..State::default() };
        server.expire("a");
        let watches = server.watches(&["a", "b"]);
        let _tasks = watches.start();
        server.settled("/api/v1/namespaces/b/pods", 1).await;
        server.settled("/api/v1/namespaces/a/pods", 2).await;
        assert_eq!(
            (known(&watches, "a").as_deref(), known(&watches, "b").as_deref()),
            (Some("1"), Some("2"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn t31_watches_of_a_server_that_has_gone_back_in_time_begin_anew() {
        let server = Server::default();
        *server.state() = State { revision: 900, pods: vec![("a", 899)], ..State::default() };
        let watches = server.watches(&[]);
        let _tasks = watches.start();
        server.settled("/api/v1/pods", 1).await;
        assert_eq!(known(&watches, "a").as_deref(), Some("899"));

        // The watches hear nothing of it: they wait for version 901.
        (server.state().revision, server.state().pods) = (120, vec![("a", 100)]);
        tokio::time::timeout(Duration::from_secs(2 * u64::from(LASTS)), server.settled("/api/v1/pods", 2))
            .await
            .unwrap();
        assert_eq!(known(&watches, "a").as_deref(), Some("100"));
        tokio::time::sleep(Duration::from_secs(2 * u64::from(LASTS))).await;
        assert_eq!(server.state().watches.iter().filter(|path| path.ends_with("/pods")).count(), 2, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn t31_an_interrupted_watch_is_reason_to_ask_whether_the_server_has_gone_back() {
        let server = Server::default();
        *server.state() = State { revision: 900, pods: vec![("a", 899)], ..State::default() };
        let watches = server.watches(&["a", "b"]);
        let _tasks = watches.start();
        server.settled("/api/v1/namespaces/a/pods", 1).await;
        server.settled("/api/v1/namespaces/b/pods", 1).await;

        // Only the watch of the other namespace is told that it is too old.
        *server.state() = State { revision: 120, pods: vec![("a", 100)], ..State::default() };
        server.expire("b");
        tokio::time::timeout(Duration::from_secs(30), server.settled("/api/v1/namespaces/a/pods", 1))
            .await
            .unwrap();
        assert_eq!(known(&watches, "a").as_deref(), Some("100"));
    }
}
