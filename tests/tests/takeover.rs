//! Clusters that other operators left behind are taken over by the installed one.
//!
//! It is sent away for both tests and comes back for both, so they can run at the same time, and not beside those of other
//! files.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::labels;
use e2e::manager::Leave;
use e2e::{Arena, Cluster, Diary, Keys, LONG, arena, predecessor, wait_for};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use tokio::time::sleep;

/// Longer than the operator's slowest regular look at etcd, jitter included.
const REST: Duration = Duration::from_secs(40);

#[tokio::test]
async fn clusters_of_the_go_operator_are_taken_over_without_restarting_a_pod() -> Result<()> {
    taken_over(async |arena| predecessor::go_operator(arena).await).await
}

#[tokio::test]
async fn t8_h41_h42_members_adopted_from_the_legacy_operator_are_taken_over() -> Result<()> {
    taken_over(async |arena| predecessor::legacy(arena).await).await
}

async fn taken_over(leave_behind: impl AsyncFn(&Arena) -> Result<Cluster>) -> Result<()> {
    arena(async |arena: Arena| {
        let leave = Leave::begin(&arena.client).await?;
        let cluster = leave_behind(&arena).await?;
        let (pods, ids) = (pods(&cluster).await?, cluster.member_ids().await?);
        let id = cluster.status().await?.cluster_id;
        let keys = Keys::start(&cluster).await?;
        let diary = Diary::of(&cluster);

        leave.end(&arena.client).await?;
        // The one thing about the Go operator's objects that we want otherwise.
        wait_for("the client Service to lead to voters only", LONG, async || {
            let service = arena.api::<Service>().get(&api::names::client_service(&cluster.name)).await?;
            let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
            ensure!(selector.contains_key(labels::ROLE), "it selects {selector:?}");
            Ok(())
        })
        .await?;
        cluster.settled(3).await?;
        sleep(REST).await;
        let said = diary.entries();
        assert!(said.len() <= 4, "a storm of {} statuses: {said:#?}", said.len());
        assert!(said[1..].iter().all(|entry| entry.available.starts_with("True/")), "{said:#?}");
        assert_eq!(cluster.status().await?.cluster_id, id);
        assert_eq!(cluster.member_ids().await?, ids);
        assert_eq!(self::pods(&cluster).await?, pods, "no Pod was restarted or replaced");

        // And it is managed: a Pod comes back as the same member, a member is replaced, a fourth and fifth join.
        let victim = ids.keys().next().context("a member")?;
        arena.api::<Pod>().delete(victim, &DeleteParams::default()).await?;
        wait_for("another Pod of the same name", LONG, async || {
            let now = cluster.pod_uids().await?;
            ensure!(now.get(victim).is_some_and(|uid| *uid != pods[victim].0), "the Pods are {now:?}");
            Ok(())
        })
        .await?;
        cluster.settled(3).await?;
        assert_eq!(cluster.member_ids().await?, ids, "the same members");
        cluster.delete_member(victim).await?;
        cluster.without(victim).await?;
        cluster.settled(3).await?;
        cluster.scale(5).await?;
        cluster.settled(5).await?;
        keys.advance().await?;
        keys.all_there().await?;
        cluster.has_only_voters(5).await
    })
    .await
}

/// Name to UID and number of restarts.
async fn pods(cluster: &Cluster) -> Result<BTreeMap<String, (Option<String>, i32)>> {
    let restarts = |pod: &Pod| {
        let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
        containers.map(|c| c.restart_count).sum::<i32>()
    };
    Ok(cluster.pods().await?.iter().map(|pod| (pod.name_any(), (pod.uid(), restarts(pod)))).collect())
}
