//! A namespace of its own for every test, on a Kubernetes where the operator runs.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};

use anyhow::{Context, Result, ensure};
use api::{EtcdCluster, EtcdClusterSpec, EtcdMember};
use futures::FutureExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::ObjectList;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::manager::{Leave, Manager};
use crate::wait::{LONG, wait_for};
use crate::{Cluster, dump, kubernetes, operator};

/// A test's own namespace.
#[derive(Clone)]
pub struct Arena {
    pub client: Client,
    pub namespace: String,
}

/// Runs `test` in a new namespace. A failure prints the state of everything in there; whatever came out, the namespace is
/// removed, except after a failure with `E2E_KEEP=1`. A test has passed only if deleting its clusters left nothing
/// behind and the operator was never refused a call.
pub async fn arena(test: impl AsyncFnOnce(Arena) -> Result<()>) -> Result<()> {
    let client = kubernetes::connect().await?;
    operator::wait_until_available_or_away(&client).await?;
    let began = Timestamp::now();
    in_namespace(client, async |arena| {
        test(arena.clone()).await?;
        arena.clear().await?;
        operator::was_never_refused(&arena.client, began).await
    })
    .await
}

/// The same for a test that brings an operator of its own: the installed one is away. The test hands over the operator that
/// is there at its end, and that one has to delete the clusters and leave nothing behind.
pub async fn arena_of_its_own(test: impl AsyncFnOnce(Arena) -> Result<Manager>) -> Result<()> {
    let client = kubernetes::connect().await?;
    let _leave = Leave::begin(&client).await?;
    in_namespace(client, async |arena| {
        let operator = test(arena.clone()).await?;
        arena.clear().await?;
        operator.kill().await
    })
    .await
}

async fn in_namespace(client: Client, test: impl AsyncFnOnce(Arena) -> Result<()>) -> Result<()> {
    let namespace = kubernetes::create_namespace(&client, "e2e").await?;
    let arena = Arena { client: client.clone(), namespace: namespace.clone() };
    let outcome = AssertUnwindSafe(test(arena.clone())).catch_unwind().await;
    let failed = !matches!(outcome, Ok(Ok(())));
    if failed {
        eprintln!("{}", dump::everything(&arena).await);
    }
    if failed && std::env::var_os("E2E_KEEP").is_some_and(|keep| keep == "1") {
        eprintln!("E2E_KEEP=1: namespace {namespace} is left as it is");
    } else {
        Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await?;
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Arena {
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn list<K>(&self) -> Result<Vec<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let list: ObjectList<K> = self.api().list(&ListParams::default()).await?;
        Ok(list.items)
    }

    /// Creates an EtcdCluster, as a user would.
    pub async fn create(&self, name: &str, spec: EtcdClusterSpec) -> Result<Cluster> {
        let object = EtcdCluster::new(name, spec);
        let created = self.api().create(&PostParams::default(), &object).await;
        created.with_context(|| format!("EtcdCluster {name} should be admitted"))?;
        Ok(Cluster { arena: self.clone(), name: name.to_owned() })
    }

    /// Waits for a warning Event that says `of`.
    pub async fn warned(&self, of: &str) -> Result<()> {
        wait_for(&format!("a warning that says: {of}"), LONG, async || {
            let warnings = self.warnings().await?;
            ensure!(warnings.iter().any(|w| w.contains(of)), "there are others: {warnings:#?}");
            Ok(())
        })
        .await
    }

    /// Reason and message of every warning Event about what the operator is responsible for.
    pub async fn warnings(&self) -> Result<Vec<String>> {
        let mut events = self.list::<Event>().await?;
        events.retain(|e| {
            let ours = e.involved_object.kind.as_deref().is_some_and(|kind| kind.starts_with("Etcd"));
            ours && e.type_.as_deref() == Some("Warning")
        });
        let text = |e: &Event| {
            let (reason, message) = (e.reason.as_deref(), e.message.as_deref());
            format!("{}: {}", reason.unwrap_or_default(), message.unwrap_or_default())
        };
        Ok(events.iter().map(text).collect())
    }

    /// Deletes every EtcdCluster and waits until nothing is left of any.
    async fn clear(&self) -> Result<()> {
        for cluster in self.list::<EtcdCluster>().await? {
            self.api::<EtcdCluster>().delete(&cluster.name_any(), &DeleteParams::default()).await?;
        }
        self.wait_until_empty().await
    }

    /// Waits until no object that the operator makes is left in the namespace, and no volume of it anywhere.
    pub async fn wait_until_empty(&self) -> Result<()> {
        wait_for("the last trace of the clusters to go", LONG, async || {
            none_left("EtcdClusters", &self.list::<EtcdCluster>().await?)?;
            none_left("EtcdMembers", &self.list::<EtcdMember>().await?)?;
            none_left("Pods", &self.list::<Pod>().await?)?;
            none_left("claims", &self.list::<PersistentVolumeClaim>().await?)?;
            none_left("Services", &self.list::<Service>().await?)?;
            none_left("budgets", &self.list::<PodDisruptionBudget>().await?)?;
            none_left("volumes", &self.volumes().await?)
        })
        .await
    }

    /// The PersistentVolumes that were made for claims of this namespace.
    async fn volumes(&self) -> Result<Vec<PersistentVolume>> {
        let all: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut volumes = all.list(&ListParams::default()).await?.items;
        volumes.retain(|volume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.namespace.as_ref() == Some(&self.namespace))
        });
        Ok(volumes)
    }
}

fn none_left<K: ResourceExt>(kind: &str, objects: &[K]) -> Result<()> {
    let names: Vec<_> = objects.iter().map(ResourceExt::name_any).collect();
    ensure!(names.is_empty(), "these {kind} are still there: {}", names.join(", "));
    Ok(())
}
