//! What a user installs: the chart, the examples, and the operator as it runs.

use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::command::{checkout, run, run_with_input};
use e2e::{LONG, connect, create_namespace, operator, wait_for};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, DeleteParams, ListParams};

const CHART: &str = "charts/etcd-operator";
/// What the image may weigh.
const LIMIT: i64 = 25_000_000;

#[tokio::test]
async fn the_chart_passes_helms_own_lint() -> Result<()> {
    run("helm", &["lint", "--strict", CHART]).await?;
    Ok(())
}

#[tokio::test]
async fn every_value_set_renders_or_is_refused_with_a_reason() -> Result<()> {
    run("charts/etcd-operator/ci/check.sh", &[]).await?;
    Ok(())
}

#[tokio::test]
async fn the_api_server_takes_what_the_chart_renders() -> Result<()> {
    connect().await?;
    let defaults = "charts/etcd-operator/values.yaml".to_owned();
    for values in [defaults, "charts/etcd-operator/ci/accepted/no-proxy.yaml".to_owned()] {
        let render =
            ["template", "etcd-operator", CHART, "--namespace", operator::NAMESPACE, "--values", &values];
        let manifests = run("helm", &render).await?;
        dry_run(&["--namespace", operator::NAMESPACE], &manifests).await.with_context(|| values.clone())?;
    }
    Ok(())
}

#[tokio::test]
async fn the_api_server_takes_every_example() -> Result<()> {
    let client = connect().await?;
    let namespace = create_namespace(&client, "examples").await?;
    let outcome = apply_examples(&namespace).await;
    Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await?;
    outcome
}

async fn apply_examples(namespace: &str) -> Result<()> {
    let mut files: Vec<_> =
        fs::read_dir(checkout("examples"))?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    files.sort();
    ensure!(!files.is_empty(), "there are no examples");
    for file in files {
        let manifests = fs::read_to_string(&file)?;
        dry_run(&["--namespace", namespace], &manifests)
            .await
            .with_context(|| format!("{}", file.display()))?;
    }
    Ok(())
}

/// The API server admits the manifests, without a warning and without a field it does not know.
async fn dry_run(args: &[&str], manifests: &str) -> Result<()> {
    let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict"];
    let all = [&apply[..], &["--warnings-as-errors", "--filename", "-"], args].concat();
    run_with_input("kubectl", &all, manifests).await?;
    Ok(())
}

#[tokio::test]
async fn the_operator_runs_with_as_little_power_as_possible() -> Result<()> {
    let client = connect().await?;
    operator::wait_until_available(&client).await?;
    let spec = operator::pod(&client).await?.spec.context("a Pod has a spec")?;
    let pod = spec.security_context.unwrap_or_default();
    assert_eq!(pod.run_as_non_root, Some(true));
    assert_eq!(pod.seccomp_profile.map(|p| p.type_).as_deref(), Some("RuntimeDefault"));
    for container in &spec.containers {
        let security = container.security_context.clone().unwrap_or_default();
        assert_eq!(security.read_only_root_filesystem, Some(true), "{}", container.name);
        assert_eq!(security.allow_privilege_escalation, Some(false), "{}", container.name);
        let dropped = security.capabilities.unwrap_or_default().drop.unwrap_or_default();
        assert_eq!(dropped, ["ALL"], "{}", container.name);
        let resources = container.resources.clone().unwrap_or_default();
        assert!(resources.limits.is_some_and(|l| l.contains_key("memory")), "{}", container.name);
    }
    Ok(())
}

#[tokio::test]
async fn h47_the_operator_was_never_refused_a_call() -> Result<()> {
    let client = connect().await?;
    operator::wait_until_available(&client).await?;
    let created = operator::pod(&client).await?.metadata.creation_timestamp;
    operator::was_never_refused(&client, created.context("a Pod was created some time")?.0).await
}

#[tokio::test]
async fn the_image_weighs_at_most_25_mb() -> Result<()> {
    let client = connect().await?;
    operator::wait_until_available(&client).await?;
    let pod = operator::pod(&client).await?;
    let image = pod.spec.and_then(|spec| spec.containers.into_iter().next()?.image).context("an image")?;
    let nodes: Api<Node> = Api::all(client);
    // Kubelets tell of new images now and then.
    let size = wait_for("a node to list the image", LONG, async || {
        let nodes = nodes.list(&ListParams::default()).await?;
        let mut images = nodes.iter().flat_map(|n| n.status.iter().flat_map(|s| s.images.iter().flatten()));
        let ours = images.find(|i| i.names.iter().flatten().any(|name| *name == image));
        ours.and_then(|i| i.size_bytes).with_context(|| format!("no node lists {image} yet"))
    })
    .await?;
    assert!(size <= LIMIT, "{image} weighs {} MB", size / 1_000_000);
    Ok(())
}
