//! A namespace that is watched: what is in it now, and when each thing in it was first seen in each state. Nothing here
//! polls, so a moment is as exact as a watch event is quick.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::{EtcdCluster, EtcdMember, conditions};
use e2e::Arena;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// For what takes seconds: it ends a run that is lost and measures nothing.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Objects by name, as last seen.
pub type Slot<K> = BTreeMap<String, K>;

/// What is in the namespace, as last seen.
#[derive(Default)]
pub struct World {
    pub clusters: Slot<EtcdCluster>,
    pub members: Slot<EtcdMember>,
    pub pods: Slot<Pod>,
    pub claims: Slot<PersistentVolumeClaim>,
    journal: Journal,
}

/// When a thing was first seen in a state: (`Pod`, its name, `Ready`).
pub type Journal = BTreeMap<(String, String, &'static str), Instant>;

/// A kind that is watched.
pub trait Watched:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static
{
    fn slot(world: &mut World) -> &mut Slot<Self>;
    /// The states worth remembering that the object is in.
    fn states(&self) -> Vec<&'static str>;
}

impl Watched for EtcdCluster {
    fn slot(world: &mut World) -> &mut Slot<Self> {
        &mut world.clusters
    }

    fn states(&self) -> Vec<&'static str> {
        let Some(status) = &self.status else { return vec!["created"] };
        let available = conditions::is_true(&status.conditions, conditions::AVAILABLE);
        let states = [
            ("created", true),
            ("formed", status.cluster_id.is_some()),
            ("available", available),
            ("1 ready", status.ready_members >= 1),
            ("2 ready", status.ready_members >= 2),
            ("3 ready", status.ready_members >= 3),
        ];
        held(&states)
    }
}

impl Watched for EtcdMember {
    fn slot(world: &mut World) -> &mut Slot<Self> {
        &mut world.members
    }

    fn states(&self) -> Vec<&'static str> {
        let status = self.status.clone().unwrap_or_default();
        held(&[
            ("created", true),
            ("told", !self.spec.is_pending()),
            ("known", status.member_id.is_some()),
            ("voter", status.is_voter && status.member_id.is_some()),
        ])
    }
}

impl Watched for Pod {
    fn slot(world: &mut World) -> &mut Slot<Self> {
        &mut world.pods
    }

    fn states(&self) -> Vec<&'static str> {
        let scheduled = self.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let containers = self.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let started = containers.into_iter().any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()));
        held(&[("created", true), ("scheduled", scheduled), ("started", started), ("ready", is_ready(self))])
    }
}

impl Watched for PersistentVolumeClaim {
    fn slot(world: &mut World) -> &mut Slot<Self> {
        &mut world.claims
    }

    fn states(&self) -> Vec<&'static str> {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        held(&[("created", true), ("bound", phase == Some("Bound"))])
    }
}

fn held(states: &[(&'static str, bool)]) -> Vec<&'static str> {
    states.iter().filter(|(_, holds)| *holds).map(|(state, _)| *state).collect()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The address of a Pod that is not on its way out.
pub fn address(pod: &Pod) -> Option<&str> {
    let ip = pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
    pod.metadata.deletion_timestamp.is_none().then_some(ip)
}

impl World {
    /// The cluster is what was asked for: it says so itself, all its members vote, and nothing of former ones runs.
    pub fn is_settled(&self, cluster: &str, replicas: i32) -> bool {
        let wanted = usize::try_from(replicas).unwrap_or_default();
        let says_so = self.clusters.get(cluster).and_then(|c| c.status.as_ref()).is_some_and(|status| {
            status.observed.as_ref().is_some_and(|target| target.replicas == replicas)
                && status.ready_members == replicas
                && conditions::is_true(&status.conditions, conditions::AVAILABLE)
        });
        let members: Vec<_> = self.members.values().filter(|m| m.spec.cluster_name == cluster).collect();
        let vote = |m: &&EtcdMember| {
            m.metadata.deletion_timestamp.is_none() && m.status.as_ref().is_some_and(|s| s.is_voter)
        };
        says_so
            && members.len() == wanted
            && members.iter().all(vote)
            && self.pods_of(cluster).count() == wanted
    }

    pub fn pods_of(&self, cluster: &str) -> impl Iterator<Item = &Pod> {
        self.pods
            .values()
            .filter(move |p| p.labels().get(api::labels::CLUSTER).is_some_and(|name| name == cluster))
    }

    pub fn ready_members(&self, cluster: &str) -> i32 {
        let status = self.clusters.get(cluster).and_then(|c| c.status.as_ref());
        status.map_or(0, |status| status.ready_members)
    }

    fn note(&mut self, kind: &str, name: &str, state: &'static str, at: Instant) {
        self.journal.entry((kind.to_owned(), name.to_owned(), state)).or_insert(at);
    }
}

/// A namespace of its own, and what was seen in it.
pub struct Stage {
    pub arena: Arena,
    world: Arc<Mutex<World>>,
    news: watch::Receiver<()>,
    _watching: JoinSet<()>,
}

impl Stage {
    /// Makes a namespace and begins to watch it.
    pub async fn open(client: &Client) -> Result<Self> {
        let namespace = e2e::create_namespace(client, "bench").await?;
        let arena = Arena { client: client.clone(), namespace };
        let world = Arc::new(Mutex::new(World::default()));
        let (tell, news) = watch::channel(());
        let mut watching = JoinSet::new();
        watching.spawn(follow(arena.api::<EtcdCluster>(), Arc::clone(&world), tell.clone()));
        watching.spawn(follow(arena.api::<EtcdMember>(), Arc::clone(&world), tell.clone()));
        watching.spawn(follow(arena.api::<Pod>(), Arc::clone(&world), tell.clone()));
        watching.spawn(follow(arena.api::<PersistentVolumeClaim>(), Arc::clone(&world), tell));
        Ok(Self { arena, world, news, _watching: watching })
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something holds, and returns when it did.
    pub async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) -> Result<Instant> {
        self.find(what, |world| holds(world).then_some(())).await?;
        Ok(Instant::now())
    }

    /// Waits until something is there, and returns it.
    pub async fn find<T>(&self, what: &str, found: impl Fn(&World) -> Option<T>) -> Result<T> {
        let mut news = self.news.clone();
        let wait = async {
            loop {
                news.borrow_and_update();
                if let Some(found) = found(&self.world()) {
                    return Ok(found);
                }
                news.changed().await.context("the watches have ended")?;
            }
        };
        match tokio::time::timeout(LIMIT, wait).await {
            Ok(found) => found,
            Err(_) => bail!("waited {} s for {what} in {}", LIMIT.as_secs(), self.arena.namespace),
        }
    }

    /// Adds a moment that no watch can see.
    pub fn note(&self, kind: &str, name: &str, state: &'static str) {
        self.world().note(kind, name, state, Instant::now());
    }

    pub fn journal(&self) -> Journal {
        self.world().journal.clone()
    }

    /// Deletes one cluster and waits until nothing of it runs.
    pub async fn remove(&self, cluster: &str) -> Result<()> {
        self.arena.api::<EtcdCluster>().delete(cluster, &DeleteParams::default()).await?;
        self.until("a deleted cluster to go", |world| {
            let mine = |labels: &BTreeMap<String, String>| {
                labels.get(api::labels::CLUSTER).is_some_and(|name| name == cluster)
            };
            !world.members.values().any(|m| m.spec.cluster_name == cluster)
                && !world.pods.values().any(|p| mine(p.labels()))
                && !world.claims.values().any(|c| mine(c.labels()))
        })
        .await
        .map(drop)
    }

    /// Removes everything and waits until nothing of it is left: what comes next must find the machine at rest. The
    /// namespace goes last, because with Pods in it its controller waits as long as they might take.
    pub async fn close(self) -> Result<()> {
        if self.delete_clusters().await? == 0 {
            // What was made by hand has no owner to go with.
            let (params, all) = (DeleteParams::default(), ListParams::default());
            self.arena.api::<Pod>().delete_collection(&params, &all).await?;
            self.arena.api::<PersistentVolumeClaim>().delete_collection(&params, &all).await?;
        }
        self.emptied().await?;
        self.delete_namespace().await?;
        let namespaces: Api<Namespace> = Api::all(self.arena.client.clone());
        let is_gone = |found: Option<&Namespace>| found.is_none();
        let gone = await_condition(namespaces, &self.arena.namespace, is_gone);
        let gone = tokio::time::timeout(LIMIT, gone).await;
        gone.with_context(|| format!("waited {} s for {} to go", LIMIT.as_secs(), self.arena.namespace))??;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    }

    /// Removes a whole fleet, namespace and all at once: then Kubernetes deletes its objects by the thousand.
    pub async fn raze(self) -> Result<()> {
        self.delete_clusters().await?;
        self.delete_namespace().await?;
        self.emptied().await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    }

    /// Returns how many there were.
    async fn delete_clusters(&self) -> Result<usize> {
        let clusters: Vec<String> = self.world().clusters.keys().cloned().collect();
        let api = self.arena.api::<EtcdCluster>();
        let params = DeleteParams::default();
        let delete = async |name: String| api.delete(&name, &params).await.map(drop);
        let deletions = stream::iter(clusters.into_iter().map(delete)).buffer_unordered(16);
        Ok(deletions.try_collect::<Vec<()>>().await?.len())
    }

    async fn delete_namespace(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.arena.client.clone());
        namespaces.delete(&self.arena.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn emptied(&self) -> Result<()> {
        self.until("the namespace to be empty", |world| {
            world.members.is_empty() && world.pods.is_empty() && world.claims.is_empty()
        })
        .await
        .map(drop)
    }
}

async fn follow<K: Watched>(objects: Api<K>, world: Arc<Mutex<World>>, tell: watch::Sender<()>) {
    let mut events = pin!(watcher::watcher(objects, watcher::Config::default()).default_backoff());
    let mut listed = Slot::new();
    while let Some(event) = events.next().await {
        let at = Instant::now();
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any(), object);
            }
            Ok(Event::InitDone) => *K::slot(&mut world) = std::mem::take(&mut listed),
            Ok(Event::Apply(object)) => {
                let name = object.name_any();
                for state in object.states() {
                    world.note(&K::kind(&()), &name, state, at);
                }
                K::slot(&mut world).insert(name, object);
            }
            Ok(Event::Delete(object)) => {
                world.note(&K::kind(&()), &object.name_any(), "gone", at);
                K::slot(&mut world).remove(&object.name_any());
            }
            Err(_) => {}
        }
        drop(world);
        tell.send_replace(());
    }
}
