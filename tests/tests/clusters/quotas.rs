//! A quota that refuses one thing is told, and keeps nothing else from being done.

use anyhow::{Context as _, Result, ensure};
use e2e::{Arena, Keys, LONG, SHORT, arena, on_volumes, wait_for};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

const QUOTA: &str = "few-claims";

#[tokio::test]
async fn t32_a_refused_claim_does_not_keep_a_pod_of_another_member_away() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let (ids, pods) = (cluster.member_ids().await?, cluster.pod_uids().await?);
        let keys = Keys::start(&cluster).await?;
        allow_claims(&arena, 3).await?;
        cluster.scale(5).await?;
        arena.warned("quota").await?;

        let victim = ids.keys().next().context("a member")?;
        arena.api::<Pod>().delete(victim, &DeleteParams::default()).await?;
        wait_for(&format!("another Pod of {victim}"), SHORT, async || {
            let now = cluster.pod_uids().await?;
            ensure!(now.get(victim).is_some_and(|uid| *uid != pods[victim]), "the Pods are {now:?}");
            Ok(())
        })
        .await?;
        wait_for("the three to be ready", LONG, async || {
            let ready = cluster.status().await?.ready_members;
            ensure!(ready == 3, "{ready} are");
            Ok(())
        })
        .await?;
        let message = cluster.explains("Progressing", &["quota", QUOTA]).await?;
        assert!(!message.contains("ListMeta"), "in words, not in our own structures: {message}");
        keys.advance().await?;

        arena.api::<ResourceQuota>().delete(QUOTA, &DeleteParams::default()).await?;
        cluster.settled(5).await?;
        let now = cluster.member_ids().await?;
        assert!(ids.iter().all(|(name, id)| now.get(name) == Some(id)), "{ids:?} are still in {now:?}");
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t33_an_edit_after_a_loss_is_taken_up_although_the_replacement_is_refused() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let before = cluster.settled(3).await?.status.unwrap_or_default();
        let keys = Keys::start(&cluster).await?;
        allow_claims(&arena, 2).await?;
        let lost = cluster.members().await?.last().context("three members")?.name_any();
        cluster.delete_member(&lost).await?;
        cluster.without(&lost).await?;
        arena.warned("quota").await?;

        cluster.scale(1).await?;
        let taken_up = wait_for("the edit to be taken up", SHORT, async || {
            let status = cluster.status().await?;
            let replicas = status.observed.as_ref().map(|observed| observed.replicas);
            ensure!(replicas == Some(1), "it still works towards {replicas:?}");
            Ok(status)
        })
        .await?;
        assert_eq!(taken_up.cluster_id, before.cluster_id);
        cluster.settled(1).await?;
        cluster.has_only_voters(1).await?;
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

/// From now on the namespace may have that many claims and no more.
async fn allow_claims(arena: &Arena, count: u32) -> Result<()> {
    let quota = json!({
        "metadata": {"name": QUOTA},
        "spec": {"hard": {"persistentvolumeclaims": count.to_string()}},
    });
    let quotas = arena.api::<ResourceQuota>();
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    wait_for("the quota to count", SHORT, async || {
        let status = quotas.get(QUOTA).await?.status.unwrap_or_default();
        let used = status.used.and_then(|used| used.get("persistentvolumeclaims").cloned());
        ensure!(used.is_some_and(|used| used.0 == "3"), "it has not counted the three");
        Ok(())
    })
    .await
}
