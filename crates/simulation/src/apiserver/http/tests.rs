//! The real client, watcher and reflector against the simulated server, on paused time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{EtcdCluster, EtcdMember};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::{self, reflector};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::Event};
use kube::{Error, Resource as _, ResourceExt as _};
use operator::runtime::events::{Announcer, News, Tone};
use operator::runtime::leader::{Candidate, Mandate};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::super::kind::{ETCD_CLUSTER, ETCD_MEMBER, EVENT, LEASE};
use super::super::{ApiError, Kind, Selector};
use super::*;

fn shared() -> Shared {
    Shared::new(ApiServer::default(), 1)
}

fn clusters(shared: &Shared) -> Api<EtcdCluster> {
    Api::namespaced(shared.client("test", "ns"), "ns")
}

fn cluster(name: &str) -> EtcdCluster {
    let mut cluster = EtcdCluster::test("ns", name);
    cluster.metadata = kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    cluster
}

async fn create(api: &Api<EtcdCluster>, name: &str) -> EtcdCluster {
    api.create(&PostParams::default(), &cluster(name)).await.unwrap()
}

async fn scale(api: &Api<EtcdCluster>, name: &str, replicas: i32) -> kube::Result<EtcdCluster> {
    let patch = json!({ "spec": { "replicas": replicas } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn code(error: Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("no answer: {other}"),
    }
}

/// What a watcher tells, as it tells it.
fn follow(shared: &Shared) -> (Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let told = Arc::new(Mutex::new(vec![]));
    let log = told.clone();
    let api = Api::<EtcdCluster>::namespaced(shared.client("watcher", "ns"), "ns");
    let task = tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            let replicas = |c: &EtcdCluster| c.spec.replicas.unwrap_or_default();
            let line = match event {
                Ok(Event::Init) => "init".to_owned(),
                Ok(Event::InitDone) => "done".to_owned(),
                Ok(Event::InitApply(c)) => format!("list {}={}", c.name_any(), replicas(&c)),
                Ok(Event::Apply(c)) => format!("apply {}={}", c.name_any(), replicas(&c)),
                Ok(Event::Delete(c)) => format!("delete {}", c.name_any()),
                Err(_) => "error".to_owned(),
            };
            lock(&log).push(line);
        }
    });
    (told, task)
}

async fn a_moment() {
    sleep(Duration::from_millis(50)).await;
}

fn take(told: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *lock(told))
}

#[tokio::test(start_paused = true)]
async fn the_client_reads_and_writes() {
    let shared = shared();
    let api = clusters(&shared);
    let made = create(&api, "c").await;
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(code(api.create(&PostParams::default(), &cluster("c")).await.unwrap_err()), 409);
    assert!(api.get_opt("d").await.unwrap().is_none());

    let mut changed = api.get("c").await.unwrap();
    changed.spec.replicas = Some(5);
    let changed = api.replace("c", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(changed.metadata.generation, Some(2));
    assert_eq!(code(api.replace("c", &PostParams::default(), &made).await.unwrap_err()), 409);

    let mut told = changed.clone();
    told.status.get_or_insert_default().ready_members = 1;
    let told = api.replace_status("c", &PostParams::default(), &told).await.unwrap();
    assert_eq!(told.metadata.generation, Some(2));
    let patch = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
    let scaled = api.patch_scale("c", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(1));
    let metadata = api.get_metadata("c").await.unwrap();
    assert_eq!(metadata.metadata.generation, Some(3));
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(api.list_metadata(&ListParams::default().labels("absent")).await.unwrap().items.len(), 0);

    let other = Preconditions { uid: Some("other".into()), resource_version: None };
    let params = DeleteParams::background().preconditions(other);
    assert_eq!(code(api.delete("c", &params).await.unwrap_err()), 409);
    assert!(api.delete("c", &DeleteParams::background()).await.unwrap().is_right());
    assert_eq!(code(api.get("c").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn a_reflector_follows() {
    let shared = shared();
    let api = clusters(&shared);
    create(&api, "a").await;
    let (reader, writer) = reflector::store::<EtcdCluster>();
    let config = watcher::Config::default().streaming_lists();
    let events = reflector(writer, watcher(clusters(&shared), config)).applied_objects();
    let task = tokio::spawn(events.for_each(|_| async {}));
    reader.wait_until_ready().await.unwrap();
    assert_eq!(reader.state().len(), 1);
    create(&api, "b").await;
    scale(&api, "a", 1).await.unwrap();
    a_moment().await;
    let replicas: BTreeMap<_, _> = reader.state().iter().map(|c| (c.name_any(), c.spec.replicas)).collect();
    assert_eq!(replicas, [("a".to_owned(), Some(1)), ("b".to_owned(), Some(3))].into());
    api.delete("a", &DeleteParams::default()).await.unwrap();
    // Longer than a stream lasts: it is resumed, not begun anew.
    sleep(Duration::from_secs(1000)).await;
    create(&api, "c").await;
    a_moment().await;
    let names: Vec<_> = reader.state().iter().map(|c| c.name_any()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_written_beside_the_client_shows_in_watches() {
    let shared = shared();
    let (told, task) = follow(&shared);
    a_moment().await;
    assert_eq!(take(&told), ["init", "done"]);
    let object = json!({ "metadata": { "name": "c" }, "spec": { "version": "3.6.16" } });
    let mut rng = SmallRng::seed_from_u64(1);
    shared.with(|server, now| server.create(now, ETCD_CLUSTER, "ns", object, &mut rng)).unwrap();
    a_moment().await;
    assert_eq!(take(&told), ["apply c=3"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn watches_lag_and_coalesce() {
    let shared = shared();
    let api = clusters(&shared);
    let (told, task) = follow(&shared);
    a_moment().await;
    take(&told);
    assert_eq!(shared.disturb(&Watchers { kind: Some(ETCD_MEMBER), client: None }, Disturbance::Hold), 0);
    assert_eq!(shared.disturb(&Watchers::default(), Disturbance::Hold), 1);
    create(&api, "a").await;
    create(&api, "b").await;
    scale(&api, "a", 1).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    a_moment().await;
    assert!(take(&told).is_empty(), "held back");
    shared.disturb(&Watchers::default(), Disturbance::Coalesce);
    a_moment().await;
    assert_eq!(take(&told), ["apply a=1"], "b was never there");

    shared.disturb(&Watchers::default(), Disturbance::Lag(2000));
    let began = Instant::now();
    scale(&api, "a", 5).await.unwrap();
    while lock(&told).is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    let late = began.elapsed();
    assert!(late >= Duration::from_secs(2) && late < Duration::from_millis(2100), "{late:?}");
    take(&told);
    shared.disturb(&Watchers::default(), Disturbance::Hold);
    scale(&api, "a", 1).await.unwrap();
    scale(&api, "a", 3).await.unwrap();
    shared.disturb(&Watchers::default(), Disturbance::Flow);
    a_moment().await;
    assert_eq!(take(&told), ["apply a=1", "apply a=3"], "one by one");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn broken_watches_are_resumed_and_expired_ones_begin_anew() {
    let shared = shared();
    let api = clusters(&shared);
    create(&api, "a").await;
    let (told, task) = follow(&shared);
    a_moment().await;
    assert_eq!(take(&told), ["init", "list a=3", "done"]);
    for how in [Disturbance::Close, Disturbance::Break] {
        shared.disturb(&Watchers::default(), how);
        scale(&api, "a", 1).await.unwrap();
        scale(&api, "a", 3).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let mut lines = take(&told);
        lines.retain(|line| line != "error");
        assert_eq!(lines, ["apply a=1", "apply a=3"], "{how:?}: nothing missed, nothing listed");
    }
    shared.disturb(&Watchers::default(), Disturbance::Expire);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(take(&told), ["error", "init", "list a=3", "done"]);

    shared.disturb(&Watchers::default(), Disturbance::Close);
    shared.with(|server, _| server.compact(server.revision()));
    create(&api, "b").await;
    shared.with(|server, _| server.compact(server.revision()));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(take(&told), ["error", "init", "list a=3", "list b=3", "done"], "its version is compacted");
    task.abort();
}

/// The fate of the first write; the others pass.
struct First {
    fate: Fate,
    writes: AtomicUsize,
}

impl Hook for First {
    fn fate(&self, call: &Call<'_>) -> Fate {
        let first = call.verb.is_write() && self.writes.fetch_add(1, Ordering::Relaxed) == 0;
        if first { self.fate.clone() } else { Fate::pass() }
    }
}

async fn scale_under(
    fate: Fate,
) -> (Shared, kube::Result<kube::Result<EtcdCluster>, tokio::time::error::Elapsed>) {
    let shared = shared();
    let api = clusters(&shared);
    create(&api, "c").await;
    shared.set_hook(Arc::new(First { fate, writes: AtomicUsize::new(0) }));
    let outcome = timeout(Duration::from_secs(10), scale(&api, "c", 5)).await;
    (shared, outcome)
}

fn replicas(shared: &Shared) -> i64 {
    let kind: Kind = ETCD_CLUSTER;
    shared.with(|server, _| server.get(kind, "ns", "c").unwrap()["spec"]["replicas"].as_i64().unwrap())
}

#[tokio::test(start_paused = true)]
async fn requests_meet_their_fate() {
    let (shared, outcome) =
        scale_under(Fate::refused(ApiError::internal("etcdserver: request timed out"))).await;
    assert_eq!((code(outcome.unwrap().unwrap_err()), replicas(&shared)), (500, 3));

    let (shared, outcome) = scale_under(Fate::unreachable(Silence::Reset)).await;
    assert!(outcome.unwrap().is_err());
    assert_eq!(replicas(&shared), 3, "it never arrived");

    let (shared, outcome) = scale_under(Fate::answer_lost(Silence::Reset)).await;
    assert!(outcome.unwrap().is_err());
    assert_eq!(replicas(&shared), 5, "it was done all the same");

    let (shared, outcome) = scale_under(Fate::answer_lost(Silence::Hang)).await;
    assert!(outcome.is_err(), "the client times out");
    assert_eq!(replicas(&shared), 5);
}

#[tokio::test(start_paused = true)]
async fn a_request_arrives_even_if_its_sender_has_given_up() {
    let (shared, outcome) = scale_under(Fate::delayed(15_000)).await;
    assert!(outcome.is_err(), "the client times out after 10 s");
    assert_eq!(replicas(&shared), 3, "still on its way");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(replicas(&shared), 5);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_simulated_is_refused_loudly() {
    let shared = shared();
    let api = clusters(&shared);
    create(&api, "c").await;
    let apply =
        Patch::Apply(json!({ "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster" }));
    assert_eq!(code(api.patch("c", &PatchParams::apply("me"), &apply).await.unwrap_err()), 415);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    assert_eq!(code(api.create(&dry, &cluster("d")).await.unwrap_err()), 400);
    let pods = Api::<Pod>::all(shared.client("test", "ns"));
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 0);
    let members = Api::<EtcdMember>::namespaced(shared.client("test", "ns"), "ns");
    assert_eq!(code(members.get_scale("m").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn the_operator_leads_and_tells() {
    let shared = shared();
    let client = shared.client("operator", "ns");
    Candidate::new(client.clone(), "ns", Mandate::default()).win().await;
    let lease = shared.with(|server, _| server.get(LEASE, "ns", operator::runtime::leader::LEASE)).unwrap();
    assert!(lease["spec"]["holderIdentity"].is_string());
    let other =
        timeout(Duration::from_secs(5), Candidate::new(client.clone(), "ns", Mandate::default()).win()).await;
    assert!(other.is_err(), "there is a leader");

    let about = create(&clusters(&shared), "c").await.object_ref(&());
    let announcer = Announcer::new(client, None);
    let (reason, note) = ("MemberCreated".to_owned(), "Created member c-1".to_owned());
    let news = News { tone: Tone::Normal, reason, note, about, related: None };
    for _ in 0..2 {
        announcer.tell(news.clone());
        sleep(Duration::from_secs(1)).await;
    }
    let (told, _) = shared.with(|server, _| server.list(EVENT, Some("ns"), &Selector::all()));
    assert_eq!(told.iter().map(|event| &event["series"]["count"]).collect::<Vec<_>>(), [&json!(2)]);
}

#[tokio::test(start_paused = true)]
async fn one_seed_is_one_run() {
    async fn run() -> String {
        let shared = shared();
        let api = clusters(&shared);
        let (told, task) = follow(&shared);
        for number in 0..20 {
            create(&api, &format!("c{number}")).await;
            shared.disturb(
                &Watchers::default(),
                if number % 3 == 0 { Disturbance::Hold } else { Disturbance::Flow },
            );
            sleep(Duration::from_millis(number * 7)).await;
        }
        task.abort();
        let objects = shared.with(|server, _| server.list(ETCD_CLUSTER, None, &Selector::all()));
        format!("{:?} {:?}", take(&told), objects)
    }
    assert_eq!(run().await, run().await);
}
