//! Objects of others stay theirs, ours stay ours, and what others do to our etcd is told.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use api::labels;
use e2e::command::run;
use e2e::{Arena, Keys, LONG, SHORT, arena, condition, in_memory, wait_for};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

#[tokio::test]
async fn t21_a_service_of_somebody_else_is_reported_and_not_taken() -> Result<()> {
    arena(async |arena: Arena| {
        let services = arena.api::<Service>();
        let theirs = json!({
            "metadata": {"name": "my-etcd-client"},
            "spec": {"selector": {"app": "something-else"}, "ports": [{"port": 80}]},
        });
        let theirs = services.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        cluster.tells(&["Service", "my-etcd-client"]).await?;
        let found = services.get("my-etcd-client").await?;
        assert_eq!(found.resource_version(), theirs.resource_version(), "it was not touched");

        services.delete("my-etcd-client", &DeleteParams::default()).await?;
        cluster.settled(1).await?;
        wait_for("a Service of our own", LONG, async || {
            let ours = services.get("my-etcd-client").await?;
            ensure!(ours.uid() != theirs.uid(), "it is still the other one");
            ensure!(!ours.owner_references().is_empty(), "nobody owns it");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_budget_of_somebody_else_is_reported_and_not_taken() -> Result<()> {
    arena(async |arena: Arena| {
        let budgets = arena.api::<PodDisruptionBudget>();
        let theirs = json!({
            "metadata": {"name": "my-etcd"},
            "spec": {"selector": {"matchLabels": {"app": "something-else"}}, "minAvailable": 1},
        });
        let theirs = budgets.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
        let cluster = arena.create("my-etcd", in_memory(3)).await?;
        cluster.tells(&["PodDisruptionBudget", "my-etcd"]).await?;
        let found = budgets.get("my-etcd").await?;
        assert_eq!(found.spec, theirs.spec, "it was not touched");

        budgets.delete("my-etcd", &DeleteParams::default()).await?;
        cluster.settled(3).await?;
        wait_for("a budget of our own", LONG, async || {
            let ours = budgets.get("my-etcd").await?;
            ensure!(ours.uid() != theirs.uid() && !ours.owner_references().is_empty(), "there is none");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn labels_taken_from_our_objects_are_put_back() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(3)).await?;
        cluster.settled(3).await?;
        let before = cluster.identity().await?;
        let pod = cluster.pods().await?[0].name_any();
        let keys = Keys::start(&cluster).await?;
        comes_back::<Service>(&arena, "my-etcd-client", None).await?;
        comes_back::<Service>(&arena, "my-etcd", None).await?;
        comes_back::<PodDisruptionBudget>(&arena, "my-etcd", None).await?;
        comes_back::<Pod>(&arena, &pod, None).await?;
        comes_back::<Pod>(&arena, &pod, Some("another-cluster")).await?;
        cluster.settled(3).await?;
        cluster.is_served_by_its_members().await?;
        assert_eq!(cluster.identity().await?, before, "nothing was made anew");
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

/// Gives an object's cluster label that value, or takes the label away, and waits until the operator has put it right.
async fn comes_back<K>(arena: &Arena, name: &str, value: Option<&str>) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = arena.api::<K>();
    let patch = Patch::Merge(json!({"metadata": {"labels": {labels::CLUSTER: value}}}));
    let uid = api.patch(name, &PatchParams::default(), &patch).await?.uid();
    let kind = K::kind(&());
    wait_for(&format!("the label of {kind} {name} that was made {value:?}"), SHORT, async || {
        let now = api.get(name).await?;
        ensure!(now.uid() == uid, "{kind} {name} was replaced");
        let label = now.labels().get(labels::CLUSTER);
        ensure!(label.is_some_and(|label| label == "my-etcd"), "it is {label:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn authentication_switched_on_by_hand_is_told_as_such() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(3)).await?;
        cluster.settled(3).await?;
        let before = cluster.identity().await?;
        let etcdctl = async |args: &[&str]| {
            let ip = cluster.pods().await?[0].status.clone().and_then(|s| s.pod_ip).context("an address")?;
            let endpoint = format!("--endpoints=http://{ip}:2379");
            let line: Vec<_> = [endpoint.as_str()].into_iter().chain(args.iter().copied()).collect();
            run("etcdctl", &line).await
        };
        etcdctl(&["user", "add", "root:secret"]).await?;
        etcdctl(&["user", "grant-role", "root", "root"]).await?;
        etcdctl(&["auth", "enable"]).await?;
        wait_for("the operator to say what is wrong", LONG, async || {
            let status = cluster.status().await?;
            let available = condition(&status.conditions, "Available");
            assert!(!available.ends_with("QuorumLost"), "a cluster that serves is not lost");
            ensure!(available.ends_with("/AuthRequiredNotConfigured"), "it says {available}");
            Ok(())
        })
        .await?;

        etcdctl(&["--user=root:secret", "auth", "disable"]).await?;
        cluster.settled(3).await?;
        assert_eq!(cluster.identity().await?, before, "nobody was replaced for it");
        Ok(())
    })
    .await
}
