//! A namespace of its own for every test, and sentences like `arena.refuses("EtcdCluster", …, "message")`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use e2e::create_namespace;
pub use e2e::{connect, unique};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::sleep;

pub const MANAGER: &str = "admission-tests";

/// A namespace on a Kubernetes that has our CRDs.
#[derive(Clone)]
pub struct Arena {
    pub client: Client,
    pub namespace: String,
}

/// Runs `test` in a new namespace and removes that again, whatever came out.
pub async fn arena(test: impl AsyncFnOnce(Arena) -> Result<()>) -> Result<()> {
    static CRDS: OnceCell<()> = OnceCell::const_new();
    let client = connect().await?;
    CRDS.get_or_try_init(|| install_crds(client.clone())).await.context("cannot install the CRDs")?;

    let namespace = create_namespace(&client, "admission").await?;
    let result = test(Arena { client: client.clone(), namespace: namespace.clone() }).await;
    Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await?;
    result
}

/// Applies the CRDs of the chart and waits until they are served.
async fn install_crds(client: Client) -> Result<()> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/etcd-operator/crd-bases");
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot read {dir}"))? {
        let text = std::fs::read_to_string(entry?.path())?;
        apply_crd(client.clone(), &serde_norway::from_str(&text)?).await?;
    }
    Ok(())
}

/// Applies one CRD and waits until the API server works by it.
pub async fn apply_crd(client: Client, crd: &Value) -> Result<()> {
    let name = crd["metadata"]["name"].as_str().context("a CRD has a name")?;
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    let before = crds.get_opt(name).await?.and_then(|crd| crd.metadata.generation);
    crds.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(crd)).await?;
    loop {
        let now = crds.get(name).await?;
        let conditions =
            now.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        if conditions.iter().any(|c| c.type_ == "Established" && c.status == "True") {
            if now.metadata.generation != before {
                // Established says nothing about a changed schema; it follows within a moment.
                sleep(Duration::from_secs(2)).await;
            }
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

impl Arena {
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(api::GROUP, kind))
    }

    /// A new object with that spec is admitted; it is not stored.
    pub async fn accepts(&self, kind: &str, spec: Value) -> Result<DynamicObject> {
        self.accepts_named(kind, &unique("new"), spec).await
    }

    pub async fn accepts_named(&self, kind: &str, name: &str, spec: Value) -> Result<DynamicObject> {
        let object = object(kind, name, &spec)?;
        let created = self.api(kind).create(&dry_run(), &object).await;
        created.map_err(|error| anyhow!("{kind} {name} with {spec} should be admitted: {error}"))
    }

    /// A new object with that spec is refused with that fragment in the message.
    pub async fn refuses(&self, kind: &str, spec: Value, fragment: &str) -> Result<()> {
        self.refuses_named(kind, &unique("new"), spec, fragment).await
    }

    pub async fn refuses_named(&self, kind: &str, name: &str, spec: Value, fragment: &str) -> Result<()> {
        let object = object(kind, name, &spec)?;
        let created = self.api(kind).create(&dry_run(), &object).await;
        refused(created, fragment).with_context(|| format!("{kind} {name} with {spec}"))
    }

    /// A new object with that spec is refused, but not with that fragment in the message.
    pub async fn does_not_say(&self, kind: &str, spec: Value, fragment: &str) -> Result<()> {
        let object = object(kind, &unique("new"), &spec)?;
        match self.api(kind).create(&dry_run(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 422 => {
                let said = status.message.contains(fragment);
                ensure!(
                    !said,
                    "{kind} with {spec} should not say `{fragment}`, but says: {}",
                    status.message
                );
                Ok(())
            }
            other => bail!("{kind} with {spec} should be refused as invalid: {other:?}"),
        }
    }

    /// Stores an object with that spec, for updates.
    pub async fn stored(&self, kind: &str, spec: Value) -> Result<Stored> {
        let api = self.api(kind);
        let object = object(kind, &unique("old"), &spec)?;
        let created = api.create(&PostParams::default(), &object).await;
        let object = created.map_err(|error| anyhow!("{kind} with {spec} should be stored: {error}"))?;
        Ok(Stored { api, name: object.name_any() })
    }
}

/// An object on the API server. Updates of it are dry runs.
pub struct Stored {
    pub api: Api<DynamicObject>,
    pub name: String,
}

impl Stored {
    /// Merging `spec` into the stored one is admitted.
    pub async fn accepts(&self, spec: Value) -> Result<DynamicObject> {
        let patched =
            self.api.patch(&self.name, &dry_run_patch(), &Patch::Merge(json!({"spec": spec}))).await;
        patched.map_err(|error| anyhow!("an update to {spec} should be admitted: {error}"))
    }

    /// Merging `spec` into the stored one is refused with that fragment in the message.
    pub async fn refuses(&self, spec: Value, fragment: &str) -> Result<()> {
        let patched =
            self.api.patch(&self.name, &dry_run_patch(), &Patch::Merge(json!({"spec": spec}))).await;
        refused(patched, fragment).with_context(|| format!("an update to {spec}"))
    }

    /// Merges `status` into the stored one, for good.
    pub async fn set_status(&self, status: &Value) -> Result<DynamicObject> {
        let patch = Patch::Merge(json!({"status": status}));
        self.api
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await
            .context("the status is admitted")
    }
}

/// The request failed because of admission, with that fragment in the message.
pub fn refused<T>(outcome: kube::Result<T>, fragment: &str) -> Result<()> {
    match outcome {
        Ok(_) => bail!("should be refused with `{fragment}`, but was admitted"),
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 422, "should be refused as invalid, not with: {}", status.message);
            ensure!(
                status.message.contains(fragment),
                "should say `{fragment}`, but says: {}",
                status.message
            );
            Ok(())
        }
        Err(other) => Err(other.into()),
    }
}

pub fn resource(group: &str, kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(group, api::VERSION, kind);
    ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()))
}

fn object(kind: &str, name: &str, spec: &Value) -> Result<DynamicObject> {
    let api_version = format!("{}/{}", api::GROUP, api::VERSION);
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !spec.is_null() {
        object["spec"] = spec.clone();
    }
    Ok(serde_json::from_value(object)?)
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..Default::default() }
}

fn dry_run_patch() -> PatchParams {
    PatchParams { dry_run: true, ..Default::default() }
}
