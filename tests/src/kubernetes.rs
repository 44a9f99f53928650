//! The Kubernetes under test.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Config};

/// The cluster that `KUBECONFIG` names. Tests without one fail and say so; they never skip.
pub async fn connect() -> Result<Client> {
    if std::env::var_os("KUBECONFIG").is_none() {
        bail!(
            "these tests need a Kubernetes: set KUBECONFIG (`lab up` starts one, `lab env` prints the setting)"
        );
    }
    let mut config = Config::infer().await.context("KUBECONFIG does not name a usable cluster")?;
    // Tests wait and ask again themselves; the client's own patience would hide what they wait for.
    config.default_retry = false;
    let client = Client::try_from(config).context("KUBECONFIG does not name a usable cluster")?;
    client.apiserver_version().await.context("the Kubernetes that KUBECONFIG names does not answer")?;
    Ok(client)
}

/// A name nobody else uses.
pub fn unique(prefix: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("{prefix}-{now}-{}", COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Creates a namespace with a name of its own.
pub async fn create_namespace(client: &Client, prefix: &str) -> Result<String> {
    let name = unique(prefix);
    let metadata = ObjectMeta { name: Some(name.clone()), ..Default::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Default::default() }).await?;
    Ok(name)
}
