//! What goes leaves nothing behind, and does not come back as a ghost.

use std::collections::BTreeSet;

use anyhow::Result;
use e2e::{Arena, LONG, arena, in_memory, on_volumes, wait_for};
use kube::ResourceExt;
use kube::api::DeleteParams;

#[tokio::test]
async fn a_deleted_cluster_leaves_nothing_behind() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        cluster.delete(&DeleteParams::background()).await?;
        arena.wait_until_empty().await
    })
    .await
}

#[tokio::test]
async fn foreground_deletion_ends_when_the_last_dependent_is_gone() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        cluster.delete(&DeleteParams::foreground()).await?;
        arena.wait_until_empty().await
    })
    .await
}

#[tokio::test]
async fn a_cluster_deleted_before_it_formed_leaves_nothing_behind() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        wait_for("the first member", LONG, async || {
            anyhow::ensure!(!cluster.members().await?.is_empty(), "there is none");
            Ok(())
        })
        .await?;
        cluster.delete(&DeleteParams::background()).await?;
        arena.wait_until_empty().await
    })
    .await
}

#[tokio::test]
async fn t10_a_cluster_recreated_under_the_same_name_is_a_new_one() -> Result<()> {
    arena(async |arena: Arena| {
        let first = arena.create("my-etcd", in_memory(3)).await?;
        let old = first.settled(3).await?;
        let old_members: BTreeSet<_> = first.members().await?.iter().map(ResourceExt::name_any).collect();
        first.voters().await?[0].put("who", "the first one").await?;
        first.delete(&DeleteParams::background()).await?;

        // At once: the members of the old one are still there.
        let second = arena.create("my-etcd", in_memory(3)).await?;
        let new = second.settled(3).await?;
        let id = |c: &api::EtcdCluster| c.status.as_ref().and_then(|s| s.cluster_id.clone());
        assert_ne!(id(&old), id(&new));
        let members: BTreeSet<_> = second.members().await?.iter().map(ResourceExt::name_any).collect();
        assert!(members.is_disjoint(&old_members), "{members:?} are all new, {old_members:?} are all gone");
        for voter in second.voters().await? {
            assert_eq!(
                voter.get("who").await?,
                None,
                "nothing of the old data shows through {}",
                voter.member
            );
        }
        Ok(())
    })
    .await
}
