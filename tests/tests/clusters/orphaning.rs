//! An EtcdCluster that was deleted alone, with its members left behind, and is applied again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::{EtcdClusterSpec, EtcdMember, labels};
use e2e::{
    Arena, Cluster, Identity, Keys, LONG, SHORT, arena, holds_for, in_memory, on_volumes, uids, wait_for,
};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

/// Longer than the operator needs to do harm: it took ten seconds at most when it did.
const HARM: Duration = Duration::from_secs(20);

#[tokio::test]
async fn t25_one_orphaned_member_on_a_volume_is_taken_up_again() -> Result<()> {
    taken_up_again(on_volumes(1), 3).await
}

#[tokio::test]
async fn t25_one_orphaned_member_in_memory_is_taken_up_again() -> Result<()> {
    taken_up_again(in_memory(1), 3).await
}

#[tokio::test]
async fn t25_three_orphaned_members_on_volumes_are_taken_up_again() -> Result<()> {
    taken_up_again(on_volumes(3), 1).await
}

#[tokio::test]
async fn t25_three_orphaned_members_in_memory_are_taken_up_again() -> Result<()> {
    taken_up_again(in_memory(3), 5).await
}

/// Orphans a cluster under a writing client, applies the same spec again, and scales it afterwards.
async fn taken_up_again(spec: EtcdClusterSpec, later: i32) -> Result<()> {
    arena(async |arena: Arena| {
        let replicas = usize::try_from(spec.replicas())?;
        let cluster = arena.create("my-etcd", spec.clone()).await?;
        let before = cluster.settled(replicas).await?.status.unwrap_or_default();
        cluster.voters().await?[0].put("before", "the orphaning").await?;
        let keys = Keys::start(&cluster).await?;

        cluster.orphan().await?;
        let left = cluster.identity().await?;
        cluster.create_again(spec.clone()).await?;
        let after = settled_untouched(&cluster, &left, replicas).await?;

        assert_eq!(after.cluster_id, before.cluster_id, "the same etcd cluster");
        assert_eq!(after.cluster_token, before.cluster_token, "and its token");
        cluster.has_only_voters(replicas).await?;
        cluster.owns_its_objects().await?;
        cluster.is_served_by_its_members().await?;
        let answers = cluster.read_through_service("before", 8).await?;
        assert_eq!(answers, ["the orphaning"; 8], "through the client Service");
        keys.advance().await?;
        untouched_for_a_while(&cluster, &left).await?;

        cluster.scale(later).await?;
        let wanted = usize::try_from(later)?;
        let scaled = cluster.settled(wanted).await?.status.unwrap_or_default();
        assert_eq!(scaled.cluster_id, before.cluster_id);
        cluster.has_only_voters(wanted).await?;
        keys.advance().await?;
        keys.all_there().await?;
        cluster.owns_its_objects().await
    })
    .await
}

#[tokio::test]
async fn t25_a_paused_cluster_that_was_orphaned_wakes_as_itself() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(1)).await?;
        let before = cluster.settled(1).await?.status.unwrap_or_default();
        cluster.voters().await?[0].put("before", "the orphaning").await?;
        let left = pause_and_orphan(&cluster).await?;

        cluster.create_again(on_volumes(1)).await?;
        let after = settled_with(&cluster, &left, 1).await?;
        assert_eq!(after.cluster_id, before.cluster_id, "the same etcd cluster");
        assert_eq!(cluster.claim_uids().await?, left.claims, "on the same volume");
        cluster.owns_its_objects().await?;
        cluster.is_served_by_its_members().await?;
        assert_eq!(cluster.read_through_service("before", 1).await?, ["the orphaning"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t25_a_paused_cluster_that_was_orphaned_stays_asleep_until_it_is_scaled() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let before = cluster.settled(3).await?.status.unwrap_or_default();
        cluster.voters().await?[0].put("before", "the orphaning").await?;
        let left = pause_and_orphan(&cluster).await?;

        cluster.create_again(on_volumes(0)).await?;
        let asleep = wait_for("the cluster to be known again", LONG, async || {
            nobody_else(&cluster, &left).await?;
            let status = cluster.status().await?;
            let available = e2e::condition(&status.conditions, "Available");
            ensure!(available == "False/Paused", "it says {available}");
            ensure!(status.cluster_id.is_some(), "it does not know its cluster id");
            Ok(status)
        })
        .await?;
        assert_eq!(asleep.cluster_id, before.cluster_id);
        assert_eq!(asleep.cluster_token, before.cluster_token);
        cluster.owns_its_objects().await?;
        assert_eq!(uids(&cluster.members().await?), left.members);

        cluster.scale(3).await?;
        let after = cluster.settled(3).await?.status.unwrap_or_default();
        assert_eq!(after.cluster_id, before.cluster_id, "the same etcd cluster");
        for voter in cluster.voters().await? {
            let value = voter.get("before").await?;
            assert_eq!(value.as_deref(), Some("the orphaning"), "through {}", voter.member);
        }
        Ok(())
    })
    .await
}

async fn pause_and_orphan(cluster: &Cluster) -> Result<Identity> {
    cluster.scale(0).await?;
    cluster.says("Available", "False/Paused").await?;
    wait_for("the last Pod to go", LONG, async || {
        let (pods, members) = (cluster.pods().await?.len(), cluster.members().await?.len());
        ensure!(pods == 0 && members == 1, "there are {pods} Pods and {members} members");
        Ok(())
    })
    .await?;
    cluster.orphan().await?;
    cluster.identity().await
}

#[tokio::test]
async fn t25_a_cluster_orphaned_in_the_middle_of_growth_is_taken_up_and_grows_on() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(1)).await?;
        let before = cluster.settled(1).await?.status.unwrap_or_default();
        let keys = Keys::start(&cluster).await?;
        cluster.scale(3).await?;
        wait_for("the second member to be made", LONG, async || {
            ensure!(cluster.members().await?.len() >= 2, "there is one");
            Ok(())
        })
        .await?;
        cluster.orphan().await?;
        let left = cluster.identity().await?;
        let seed = cluster.members().await?.into_iter().find(|m| m.spec.bootstrap).context("a seed")?;

        cluster.create_again(on_volumes(3)).await?;
        wait_for("three members", LONG, async || {
            let members = cluster.members().await?;
            let seeds: Vec<_> =
                members.iter().filter(|m| m.spec.bootstrap).filter_map(ResourceExt::uid).collect();
            assert_eq!(seeds, [seed.uid().unwrap_or_default()], "no other seed is made");
            ensure!(cluster.status().await?.ready_members == 3, "not all are ready");
            Ok(())
        })
        .await?;
        let after = cluster.settled(3).await?.status.unwrap_or_default();
        assert_eq!(after.cluster_id, before.cluster_id, "the same etcd cluster");
        assert_eq!(after.cluster_token, before.cluster_token);
        let now = cluster.identity().await?;
        let name = seed.name_any();
        assert_eq!(now.pods[&name], left.pods[&name], "the voter was not touched");
        assert_eq!(now.services, left.services);
        cluster.has_only_voters(3).await?;
        cluster.owns_its_objects().await?;
        cluster.is_served_by_its_members().await?;
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t25_orphans_of_two_clusters_stop_everything_until_a_person_decides() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        let before = cluster.settled(1).await?.status.unwrap_or_default();
        cluster.voters().await?[0].put("before", "the orphaning").await?;
        cluster.orphan().await?;
        let stranger = orphan_of_another_cluster(&cluster).await?;
        let left = cluster.identity().await?;

        cluster.create_again(in_memory(1)).await?;
        cluster_says(&cluster, &left, "False/IdentityConflict").await?;
        untouched_for_a_while(&cluster, &left).await?;

        arena.api::<EtcdMember>().delete(&stranger, &DeleteParams::default()).await?;
        cluster.without(&stranger).await?;
        let after = cluster.settled(1).await?.status.unwrap_or_default();
        assert_eq!(after.cluster_id, before.cluster_id);
        assert_eq!(cluster.identity().await?.pods, left.pods);
        assert_eq!(cluster.read_through_service("before", 1).await?, ["the orphaning"]);
        Ok(())
    })
    .await
}

/// An EtcdMember under the same cluster's name that was made with another token.
async fn orphan_of_another_cluster(cluster: &Cluster) -> Result<String> {
    let [member] = &cluster.members().await?[..] else { anyhow::bail!("one member was left") };
    let mut stranger = EtcdMember::new(&format!("{}-other", cluster.name), member.spec.clone());
    stranger.spec.cluster_token = "the-token-of-another-cluster".to_owned();
    stranger.metadata.labels = Some(labels::for_member(&cluster.name, &stranger.name_any()));
    let stored = cluster.arena.api::<EtcdMember>().create(&PostParams::default(), &stranger).await?;
    Ok(stored.name_any())
}

#[tokio::test]
async fn t25_orphans_on_another_medium_are_left_alone_and_the_field_is_named() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(3)).await?;
        let before = cluster.settled(3).await?.status.unwrap_or_default();
        let keys = Keys::start(&cluster).await?;
        cluster.orphan().await?;
        let left = cluster.identity().await?;

        cluster.create_again(on_volumes(3)).await?;
        cluster_says(&cluster, &left, "False/SpecConflict").await?;
        cluster.explains("Available", &["spec.storage.medium"]).await?;
        untouched_for_a_while(&cluster, &left).await?;
        keys.advance().await?;

        // The right manifest again.
        cluster.orphan().await?;
        assert_eq!(cluster.identity().await?, left);
        cluster.create_again(in_memory(3)).await?;
        let after = settled_untouched(&cluster, &left, 3).await?;
        assert_eq!(after.cluster_id, before.cluster_id);
        keys.advance().await?;
        keys.all_there().await?;
        cluster.owns_its_objects().await
    })
    .await
}

/// Waits until Available has that value, with nobody made and nobody gone in the meantime.
async fn cluster_says(cluster: &Cluster, left: &Identity, available: &str) -> Result<()> {
    wait_for(&format!("the cluster to say {available}"), SHORT, async || {
        nobody_else(cluster, left).await?;
        let now = e2e::condition(&cluster.status().await?.conditions, "Available");
        ensure!(now == available, "it says {now}");
        Ok(())
    })
    .await
}

/// Waits until the cluster is what the user asked for, and fails at once if anything was made, restarted or lost on the way.
async fn settled_untouched(
    cluster: &Cluster,
    left: &Identity,
    replicas: usize,
) -> Result<api::EtcdClusterStatus> {
    let status = settled_with(cluster, left, replicas).await?;
    assert_eq!(&cluster.identity().await?, left, "nothing was made, restarted or lost");
    Ok(status)
}

async fn settled_with(cluster: &Cluster, left: &Identity, replicas: usize) -> Result<api::EtcdClusterStatus> {
    wait_for("the orphans to be taken up", LONG, async || {
        nobody_else(cluster, left).await?;
        let status = cluster.status().await?;
        let ready = usize::try_from(status.ready_members)?;
        let available = e2e::condition(&status.conditions, "Available");
        ensure!(available == "True/QuorumHealthy" && ready == replicas, "it says {available}, {ready} ready");
        Ok(())
    })
    .await?;
    Ok(cluster.settled(replicas).await?.status.unwrap_or_default())
}

async fn nobody_else(cluster: &Cluster, left: &Identity) -> Result<()> {
    let now = cluster.identity().await?;
    assert_eq!(now.members, left.members, "exactly the members that were left behind");
    assert_eq!(now.claims, left.claims, "exactly the volumes that were left behind");
    Ok(())
}

async fn untouched_for_a_while(cluster: &Cluster, left: &Identity) -> Result<()> {
    holds_for("nothing is made, restarted or deleted", HARM, async || {
        let now = cluster.identity().await?;
        let leaving = cluster.members().await?.iter().any(|m| m.metadata.deletion_timestamp.is_some());
        ensure!(
            now == *left && !leaving,
            "{}",
            json!({"was": format!("{left:?}"), "is": format!("{now:?}")})
        );
        Ok(())
    })
    .await
}
