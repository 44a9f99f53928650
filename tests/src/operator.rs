//! The operator under test: it runs in the cluster, installed by Helm, as a user would have it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, LogParams};
use kube::{Api, Client, ResourceExt};

use crate::cluster::is_ready;
use crate::lab;
use crate::manager::Leave;
use crate::wait::{SHORT, wait_for};

pub const NAMESPACE: &str = "etcd-operator-system";
pub const DEPLOYMENT: &str = "etcd-operator";
const CONTAINER: &str = "manager";
pub(crate) const PODS: &str = "control-plane=controller-manager";
const PATIENCE: Duration = Duration::from_secs(45);
const NEEDED: &str =
    "these tests need the operator in etcd-operator-system/etcd-operator (`make deploy` installs it)";

/// Fails unless the operator is there and ready, after a moment of patience for one that is just being restarted.
pub async fn wait_until_available(client: &Client) -> Result<()> {
    wait_for("the operator", PATIENCE, async || is_available(client).await).await.context(NEEDED)
}

/// The same for a test that runs beside others: they may have sent it away, and will have it back.
pub async fn wait_until_available_or_away(client: &Client) -> Result<()> {
    let there = async || if Leave::is_taken() { Ok(()) } else { is_available(client).await };
    wait_for("the operator", PATIENCE, there).await.context(NEEDED)
}

/// Fails unless a replica is available now.
pub(crate) async fn is_available(client: &Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let status = deployments.get(DEPLOYMENT).await?.status.unwrap_or_default();
    ensure!(status.available_replicas.unwrap_or(0) > 0, "no replica of the Deployment is available");
    Ok(())
}

/// The operator's Pod, the newest if there are several.
pub async fn pod(client: &Client) -> Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut pods = pods.list(&ListParams::default().labels(PODS)).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|created| created.0));
    pods.pop().with_context(|| format!("there is no Pod of the operator in {NAMESPACE}"))
}

/// Deletes the operator's Pod and waits until another one is ready. The old one has time for a farewell.
pub async fn replace(client: &Client) -> Result<()> {
    let old = pod(client).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    pods.delete(&old.name_any(), &DeleteParams::default()).await?;
    wait_for("another Pod of the operator", SHORT, async || {
        let new = pod(client).await?;
        ensure!(new.uid() != old.uid(), "there is no other Pod yet");
        ensure!(is_ready(&new), "it is not ready yet");
        Ok(())
    })
    .await
}

/// Ends the operator's process without a farewell and waits until it runs again.
pub async fn kill(client: &Client) -> Result<()> {
    let victim = pod(client).await?;
    let before = restarts(&victim);
    lab::kill_container(NAMESPACE, &victim.name_any(), CONTAINER).await?;
    wait_for("the operator to run again", SHORT, async || {
        let now = pod(client).await?;
        ensure!(restarts(&now) > before, "it has not been started again");
        ensure!(is_ready(&now), "it is not ready yet");
        Ok(())
    })
    .await
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).sum()
}

/// The last lines of the operator's log.
pub async fn log_tail(client: &Client, lines: i64) -> Result<String> {
    log(client, LogParams { tail_lines: Some(lines), ..LogParams::default() }).await
}

/// Fails if the API server refused the operator a call since `began`: its role must name every verb it uses. A namespace
/// that is going away refuses new objects with similar words; that is another matter.
pub async fn was_never_refused(client: &Client, began: Timestamp) -> Result<()> {
    let log = log(client, LogParams { since_time: Some(began), ..LogParams::default() }).await?;
    let is_refused = |line: &&str| line.contains("forbidden: User") || line.contains("the operator may not ");
    let refused: Vec<_> = log.lines().filter(is_refused).take(5).collect();
    ensure!(refused.is_empty(), "the operator's role lacks a verb:\n{}", refused.join("\n"));
    Ok(())
}

async fn log(client: &Client, params: LogParams) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = LogParams { container: Some(CONTAINER.to_owned()), ..params };
    let log = pods.logs(&pod(client).await?.name_any(), &params).await;
    log.context("cannot read the operator's log")
}
