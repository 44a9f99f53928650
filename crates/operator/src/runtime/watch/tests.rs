//! Watches against a server that is played.

use std::sync::{Mutex, PoisonError};

use api::{EtcdSnapshot, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::cluster::kinds::Clusters;
use crate::unsupported::Only;

#[tokio::test]
async fn h48_i12_nothing_is_watched_but_our_own_kinds_and_what_carries_our_label() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let uri = request.uri().to_string();
        log.lock().unwrap_or_else(PoisonError::into_inner).push(uri);
        let empty = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
        async move { Ok::<_, std::io::Error>(http::Response::new(Body::from(empty.as_bytes().to_vec()))) }
    });
    let watching = Watching::begin(Client::new(server, "default"), &[]);
    while !watching.pending.is_synced() {
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

/// Watches of the controller of clusters.
struct Watching {
    cache: Arc<Cache<Clusters>>,
    pending: Arc<Pending>,
    _watches: Watches,
}

impl Watching {
    fn begin(client: Client, namespaces: &[&str]) -> Self {
        let (cache, pending) = (Arc::default(), Arc::new(Pending::default()));
        let namespaces = namespaces.iter().map(|&n| n.to_owned()).collect();
        let mut watches = Watches::new(client, namespaces, pending.clone());
        watches.follow(&cache, &Arc::default());
        Self { cache, pending, _watches: watches }
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

    fn watch(&self, namespaces: &[&str]) -> Watching {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let this = this.clone();
            async move {
                let text = this.answer(request.uri()).await;
                Ok::<_, std::io::Error>(http::Response::new(Body::from(text.into_bytes())))
            }
        });
        Watching::begin(Client::new(service, "default"), namespaces)
    }

    async fn answer(&self, uri: &http::Uri) -> String {
        let namespace = uri.path().split('/').skip_while(|part| *part != "namespaces").nth(1).unwrap_or("a");
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

fn known(watching: &Watching, namespace: &str) -> Option<String> {
    let key = Key { namespace: namespace.to_owned(), name: "c".to_owned() };
    watching.cache.entry(&key).take::<Pod>().get("p").and_then(|pod| pod.metadata.resource_version.clone())
}

#[tokio::test(start_paused = true)]
async fn t30_a_re_list_in_one_namespace_leaves_the_objects_of_another() {
    let server = Server::default();
    *server.state() = State { revision: 9, pods: vec![("a", 1), ("b", 2)], ..State::default() };
    server.expire("a");
    let watching = server.watch(&["a", "b"]);
    server.settled("/api/v1/namespaces/b/pods", 1).await;
    server.settled("/api/v1/namespaces/a/pods", 2).await;
    assert_eq!((known(&watching, "a").as_deref(), known(&watching, "b").as_deref()), (Some("1"), Some("2")));
}

#[tokio::test(start_paused = true)]
async fn t31_watches_of_a_server_that_has_gone_back_in_time_begin_anew() {
    let server = Server::default();
    *server.state() = State { revision: 900, pods: vec![("a", 899)], ..State::default() };
    let watching = server.watch(&[]);
    server.settled("/api/v1/pods", 1).await;
    assert_eq!(known(&watching, "a").as_deref(), Some("899"));

    // The watches hear nothing of it: they wait for version 901.
    (server.state().revision, server.state().pods) = (120, vec![("a", 100)]);
    tokio::time::timeout(
        Duration::from_secs(2 * u64::from(WATCH_TIMEOUT)),
        server.settled("/api/v1/pods", 2),
    )
    .await
    .unwrap();
    assert_eq!(known(&watching, "a").as_deref(), Some("100"));
    tokio::time::sleep(Duration::from_secs(2 * u64::from(WATCH_TIMEOUT))).await;
    assert_eq!(server.state().watches.iter().filter(|path| path.ends_with("/pods")).count(), 2, "once");
}

#[tokio::test(start_paused = true)]
async fn t31_an_interrupted_watch_is_reason_to_ask_whether_the_server_has_gone_back() {
    let server = Server::default();
    *server.state() = State { revision: 900, pods: vec![("a", 899)], ..State::default() };
    let watching = server.watch(&["a", "b"]);
    server.settled("/api/v1/namespaces/a/pods", 1).await;
    server.settled("/api/v1/namespaces/b/pods", 1).await;

    // Only the watch of the other namespace is told that it is too old.
    *server.state() = State { revision: 120, pods: vec![("a", 100)], ..State::default() };
    server.expire("b");
    tokio::time::timeout(Duration::from_secs(30), server.settled("/api/v1/namespaces/a/pods", 1))
        .await
        .unwrap();
    assert_eq!(known(&watching, "a").as_deref(), Some("100"));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_kind_that_is_not_installed_and_it_is_found_when_it_is() {
    let installed = Arc::new(Mutex::new(false));
    let (is_installed, asked) = (installed.clone(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let there = *is_installed.lock().unwrap_or_else(PoisonError::into_inner);
        count.fetch_add(usize::from(request.uri().path().contains("etcdsnapshots")), Ordering::Relaxed);
        let watched = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        async move {
            if watched {
                std::future::pending::<()>().await;
            }
            let metadata = json!({ "name": "s", "namespace": "ns", "uid": "u", "resourceVersion": "5" });
            let spec = json!({ "clusterRef": { "name": "c" }, "destination": {} });
            let snapshot = json!({ "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdSnapshot",
                "metadata": metadata, "spec": spec });
            let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "7" },
                "items": [snapshot] });
            let (code, body) =
                if there { (200, list.to_string()) } else { (404, "404 page not found\n".into()) };
            let response = http::Response::builder().status(code);
            response.body(Body::from(body.into_bytes())).map_err(std::io::Error::other)
        }
    });
    let cache = Arc::new(Cache::<Only<EtcdSnapshot>>::default());
    let (queue, pending) = (Arc::new(Queue::default()), Arc::new(Pending::default()));
    let mut watches = Watches::new(Client::new(server, "default"), vec![], pending.clone());
    watches.follow(&cache, &queue);
    assert!(pending.is_synced(), "a kind that need not be there keeps nobody from being ready");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(cache.is_empty());
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < 25, "looked for {asked} times in an hour");

    *installed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    let key = tokio::time::timeout(ABSENT_RETRY_LAST * 2, queue.next()).await.unwrap();
    assert_eq!((key.namespace.as_str(), key.name.as_str()), ("ns", "s"));
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_is_refused_is_tried_less_and_less_often() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        count.fetch_add(usize::from(request.uri().path() == "/api/v1/pods"), Ordering::Relaxed);
        let refusal = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
            "code": 403, "message": "pods is forbidden", "metadata": {} });
        async move {
            let response = http::Response::builder().status(403);
            response.body(Body::from(refusal.to_string().into_bytes())).map_err(std::io::Error::other)
        }
    });
    let watching = Watching::begin(Client::new(server, "default"), &[]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!watching.pending.is_synced());
    let asked = asked.load(Ordering::Relaxed);
    assert!((10..40).contains(&asked), "asked {asked} times in ten minutes");
}
