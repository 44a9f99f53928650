//! A status that is lost is found again: it is a record, and not where the truth is.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{Arena, Cluster, Diary, Keys, LONG, arena, holds_for, in_memory, on_volumes, wait_for};
use k8s_openapi::api::core::v1::Event;
use serde_json::json;

#[tokio::test]
async fn t26_three_members_are_known_again_when_the_status_was_lost() -> Result<()> {
    known_again(3).await
}

#[tokio::test]
async fn t26_a_single_member_is_known_again_when_the_status_was_lost() -> Result<()> {
    known_again(1).await
}

async fn known_again(replicas: i32) -> Result<()> {
    arena(async |arena: Arena| {
        let members = usize::try_from(replicas)?;
        let cluster = arena.create("my-etcd", in_memory(replicas)).await?;
        cluster.settled(members).await?;
        // Not before it has formed: a busy machine may need longer for that.
        cluster.edit(json!({"progressDeadlineSeconds": 5})).await?;
        let before = cluster.settled(members).await?.status.unwrap_or_default();
        let left = cluster.identity().await?;
        let keys = Keys::start(&cluster).await?;

        cluster.forget_status().await?;
        let diary = Diary::of(&cluster);
        wait_for("the cluster to be known again", LONG, async || {
            assert_eq!(cluster.identity().await?, left, "nothing was made, restarted or lost");
            let now = cluster.status().await?;
            let available = e2e::condition(&now.conditions, "Available");
            ensure!(available == "True/QuorumHealthy", "it says {available}");
            ensure!(now.cluster_id == before.cluster_id, "it says that its id is {:?}", now.cluster_id);
            Ok(())
        })
        .await?;
        let after = cluster.settled(members).await?.status.unwrap_or_default();
        assert_eq!(after.cluster_token, before.cluster_token);
        assert_eq!(after.observed, before.observed);
        assert_eq!(cluster.identity().await?, left);
        no_failure_is_told(&cluster, &diary).await?;
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t26_a_paused_cluster_is_known_again_when_the_status_was_lost() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(1)).await?;
        let before = cluster.settled(1).await?.status.unwrap_or_default();
        cluster.voters().await?[0].put("before", "the loss").await?;
        cluster.scale(0).await?;
        cluster.says("Available", "False/Paused").await?;
        wait_for("the Pod to go", LONG, async || {
            ensure!(cluster.pods().await?.is_empty(), "it is still there");
            Ok(())
        })
        .await?;
        cluster.edit(json!({"progressDeadlineSeconds": 5})).await?;
        let left = cluster.identity().await?;

        cluster.forget_status().await?;
        let diary = Diary::of(&cluster);
        wait_for("the cluster to be known again", LONG, async || {
            let now = cluster.status().await?;
            let available = e2e::condition(&now.conditions, "Available");
            ensure!(available == "False/Paused", "it says {available}");
            ensure!(now.cluster_id == before.cluster_id, "it says that its id is {:?}", now.cluster_id);
            ensure!(now.cluster_token == before.cluster_token, "it says {:?}", now.cluster_token);
            Ok(())
        })
        .await?;
        assert_eq!(cluster.identity().await?, left);
        no_failure_is_told(&cluster, &diary).await?;

        cluster.scale(1).await?;
        let after = cluster.settled(1).await?.status.unwrap_or_default();
        assert_eq!(after.cluster_id, before.cluster_id, "the same etcd cluster");
        assert_eq!(cluster.claim_uids().await?, left.claims, "on the same volume");
        assert_eq!(cluster.voters().await?[0].get("before").await?.as_deref(), Some("the loss"));
        Ok(())
    })
    .await
}

/// Neither now nor when the deadline is over.
async fn no_failure_is_told(cluster: &Cluster, diary: &Diary) -> Result<()> {
    let past_the_deadline = Duration::from_secs(12);
    holds_for("no failure is told", past_the_deadline, async || {
        let said = diary.entries();
        ensure!(!said.iter().any(|entry| entry.available.contains("BootstrapFailed")), "it said {said:#?}");
        let events = cluster.arena.list::<Event>().await?;
        let failures: Vec<_> =
            events.iter().filter(|e| e.reason.as_deref() == Some("BootstrapFailed")).collect();
        ensure!(failures.is_empty(), "{failures:#?}");
        Ok(())
    })
    .await
}
