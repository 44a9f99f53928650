//! What was asked for and can not be had is told, and a corrected spec is enough to recover.

use anyhow::{Context as _, Result, ensure};
use api::{EtcdClusterSpec, EtcdMember};
use e2e::{Arena, Cluster, Keys, LONG, arena, in_memory, on_volumes, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

/// More than any node has.
const IMPOSSIBLE: &str = "1000";

#[tokio::test]
async fn t34_a_cluster_with_an_image_that_does_not_exist_is_cured_by_an_edit() -> Result<()> {
    arena(async |arena: Arena| {
        let spec = EtcdClusterSpec { version: "3.6.99".to_owned(), ..in_memory(1) };
        let cluster = arena.create("my-etcd", spec).await?;
        pod_is_stuck(&cluster, 0, |pod| waiting(pod).contains("ImagePull")).await?;
        cluster.edit(json!({"version": "3.6.16"})).await?;
        formed_once(&cluster, 1).await
    })
    .await
}

#[tokio::test]
async fn t34_a_cluster_that_fits_no_node_is_cured_by_an_edit() -> Result<()> {
    arena(async |arena: Arena| {
        let spec = EtcdClusterSpec { resources: impossible()?, ..on_volumes(3) };
        let cluster = arena.create("my-etcd", spec).await?;
        pod_is_stuck(&cluster, 0, is_unschedulable).await?;
        cluster.edit(json!({"resources": {"requests": {"cpu": "50m"}}})).await?;
        formed_once(&cluster, 3).await
    })
    .await
}

#[tokio::test]
async fn t34_a_learner_that_fits_no_node_is_made_anew_from_the_edited_spec() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        let before = cluster.settled(1).await?.status.unwrap_or_default();
        let voter = cluster.identity().await?;
        let keys = Keys::start(&cluster).await?;
        let impossible = json!({"replicas": 3, "resources": {"requests": {"cpu": IMPOSSIBLE}}});
        cluster.edit(impossible).await?;
        let stuck = pod_is_stuck(&cluster, 1, is_unschedulable).await?;

        cluster.edit(json!({"resources": {"requests": {"cpu": "50m"}}})).await?;
        let after = cluster.settled(3).await?.status.unwrap_or_default();
        assert_eq!(after.cluster_id, before.cluster_id);
        cluster.has_only_voters(3).await?;
        let now = cluster.identity().await?;
        assert!(!now.pods.values().any(|(uid, _)| *uid == stuck.uid()), "the stuck Pod went");
        assert!(voter.pods.iter().all(|(name, pod)| now.pods.get(name) == Some(pod)), "the voter stayed");
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t36_news_that_are_too_long_for_an_event_are_cut_and_told() -> Result<()> {
    arena(async |arena: Arena| {
        // The API server repeats in its refusal what it does not like.
        let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "Nearby".repeat(400), "values": ["a"]}]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let affinity = serde_json::from_value(json!({"nodeAffinity": required}))?;
        let spec = EtcdClusterSpec { affinity: Some(affinity), ..in_memory(1) };
        let cluster = arena.create("my-etcd", spec).await?;
        cluster.explains("Progressing", &["affinity"]).await?;
        let told = wait_for("a warning about the affinity", LONG, async || {
            let mut warnings = arena.warnings().await?.into_iter();
            warnings.find(|w| w.contains("affinity")).context("nobody speaks of it")
        })
        .await?;
                assert!(!told.contains("ListMeta"), "in words, not in our own structures: {told}");

        cluster.edit(json!({"affinity": null})).await?;
        formed_once(&cluster, 1).await
    })
    .await
}

#[tokio::test]
async fn the_condition_names_the_pod_that_has_no_image() -> Result<()> {
    arena(async |arena: Arena| {
        let spec = EtcdClusterSpec { version: "3.6.99".to_owned(), ..in_memory(1) };
        let cluster = arena.create("my-etcd", spec).await?;
        let pod = pod_is_stuck(&cluster, 0, |pod| waiting(pod).contains("ImagePull")).await?;
        cluster.explains("Progressing", &[&pod.name_any(), "ImagePull"]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_condition_names_the_pod_that_has_no_storage_class() -> Result<()> {
    arena(async |arena: Arena| {
        let mut spec = on_volumes(1);
        spec.storage.storage_class_name = Some("no-such-class".to_owned());
        let cluster = arena.create("my-etcd", spec).await?;
        let pod = pod_is_stuck(&cluster, 0, is_unschedulable).await?;
        cluster.explains("Progressing", &[&pod.name_any(), "Unschedulable", "no-such-class"]).await?;
        Ok(())
    })
    .await
}

fn impossible() -> Result<Option<k8s_openapi::api::core::v1::ResourceRequirements>> {
    Ok(serde_json::from_value(json!({"requests": {"cpu": IMPOSSIBLE}}))?)
}

/// Waits until the Pod of the cluster's `index`th member is in that state.
async fn pod_is_stuck(cluster: &Cluster, index: usize, how: impl Fn(&Pod) -> bool) -> Result<Pod> {
    wait_for("a Pod to be stuck", LONG, async || {
        let pod = cluster.pods().await?.into_iter().nth(index).context("there is no such Pod")?;
        ensure!(how(&pod), "{} is {:?}", pod.name_any(), pod.status);
        Ok(pod)
    })
    .await
}

fn waiting(pod: &Pod) -> &str {
    let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let reasons = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    reasons.into_iter().next().unwrap_or_default()
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
}

/// It serves with that many members, of which exactly one was the seed.
async fn formed_once(cluster: &Cluster, replicas: usize) -> Result<()> {
    cluster.settled(replicas).await?;
    cluster.has_only_voters(replicas).await?;
    let seeds = cluster.arena.list::<EtcdMember>().await?.iter().filter(|m| m.spec.bootstrap).count();
    assert_eq!(seeds, 1);
    cluster.voters().await?[0].put("after", "the edit").await
}
