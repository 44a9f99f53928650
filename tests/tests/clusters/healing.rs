//! Members that can not come back, and members that must not be given up.

use anyhow::{Context as _, Result, ensure};
use api::EtcdMember;
use e2e::lab::{self, Damage};
use e2e::{Arena, Cluster, Keys, LONG, arena, in_memory, on_volumes, wait_for};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;

#[tokio::test]
async fn h27_a_member_in_memory_that_loses_its_pod_is_replaced() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-cache", in_memory(3)).await?;
        cluster.settled(3).await?;
        let victim = newest(&cluster).await?;
        let keys = Keys::start(&cluster).await?;
        arena.api::<Pod>().delete(&victim, &DeleteParams::default()).await?;
        replaced(&cluster, &victim).await?;
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t7_a_member_that_loses_its_volume_is_replaced_and_never_starts_blank() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        // The newest is the one whose own list equals the present one: etcd would let it in again, empty.
        let victim = newest(&cluster).await?;
        let keys = Keys::start(&cluster).await?;
        let claim = api::names::pvc(&victim);
        arena.api::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await?;
        arena.api::<Pod>().delete(&victim, &DeleteParams::default()).await?;
        replaced(&cluster, &victim).await?;
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t1_a_single_member_with_broken_data_keeps_its_volume() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(1)).await?;
        cluster.settled(1).await?;
        let member = newest(&cluster).await?;
        let claim = cluster.claims().await?.first().and_then(ResourceExt::uid);
        spoil(&arena, Damage::Emptied, &member).await?;

        let status = cluster.says("Available", "False/QuorumLost").await?;
        assert_eq!(status.ready_members, 0);
        wait_for("etcd to have crashed often enough for a replacement", LONG, async || {
            let status = cluster.status().await?;
            ensure!(status.broken_members == 1, "{} members count as broken", status.broken_members);
            Ok(())
        })
        .await?;
        let now = cluster.claims().await?;
        assert_eq!(now.first().and_then(ResourceExt::uid), claim, "the only copy of the data");
        assert!(now[0].metadata.deletion_timestamp.is_none());
        let members = cluster.members().await?;
        assert!(members.len() == 1 && members[0].metadata.deletion_timestamp.is_none());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t1_three_members_with_broken_data_keep_their_volumes() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let (members, claims) = (cluster.member_ids().await?, cluster.claim_uids().await?);
        for member in members.keys() {
            spoil(&arena, Damage::Corrupted, member).await?;
        }
        wait_for("all three to have crashed often enough for a replacement", LONG, async || {
            let broken = cluster.status().await?.broken_members;
            ensure!(broken == 3, "{broken} members count as broken");
            Ok(())
        })
        .await?;
        cluster.says("Available", "False/QuorumLost").await?;
        assert_eq!(cluster.claim_uids().await?, claims, "what is left of the data");
        let leaving = |m: &EtcdMember| m.metadata.deletion_timestamp.is_some();
        let now = cluster.members().await?;
        assert!(now.len() == 3 && !now.iter().any(leaving), "nobody is given up");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn h30_a_seed_with_corrupt_data_is_replaced() -> Result<()> {
    a_spoilt_seed_is_replaced(Damage::Corrupted, Restart::Pod).await
}

#[tokio::test]
async fn h30_a_seed_with_an_emptied_volume_is_replaced_and_never_serves_nothing() -> Result<()> {
    a_spoilt_seed_is_replaced(Damage::Emptied, Restart::Pod).await
}

#[tokio::test]
async fn h31_a_seed_emptied_in_its_first_pod_is_replaced_and_never_serves_nothing() -> Result<()> {
    a_spoilt_seed_is_replaced(Damage::Emptied, Restart::Container).await
}

/// How a member meets its damaged data.
#[derive(Clone, Copy)]
enum Restart {
    /// In a new Pod, with flags of its own.
    Pod,
    /// In the Pod that formed the cluster.
    Container,
}

async fn a_spoilt_seed_is_replaced(damage: Damage, restart: Restart) -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        cluster.voters().await?[0].put("before", "the damage").await?;
        let seed =
            cluster.members().await?.into_iter().find(|m| m.spec.bootstrap).context("a seed")?.name_any();
        let keys = Keys::start(&cluster).await?;
        match restart {
            Restart::Pod => spoil(&arena, damage, &seed).await?,
            Restart::Container => {
                lab::spoil(damage, &arena.namespace, &api::names::pvc(&seed)).await?;
                lab::kill_container(&arena.namespace, &seed, "etcd").await?;
            }
        }

        wait_for(&format!("{seed} to be replaced"), LONG, async || {
            // Whoever answers for it has what was written before; no answer is fine.
            for door in cluster.doors().await?.iter().filter(|door| door.member == seed) {
                if let Ok(value) = door.get_local("before").await {
                    assert_eq!(value.as_deref(), Some("the damage"), "{seed} serves an empty keyspace");
                }
            }
            let found = arena.api::<EtcdMember>().get_opt(&seed).await?;
            ensure!(found.is_none(), "it is still there");
            Ok(())
        })
        .await?;
        replaced(&cluster, &seed).await?;
        keys.advance().await?;
        keys.all_there().await?;
        wait_for("the spoilt volume to go", LONG, async || {
            let claims = cluster.claim_uids().await?;
            ensure!(!claims.contains_key(&api::names::pvc(&seed)), "there are {claims:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn t12_when_all_members_are_deleted_at_once_the_data_survives() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let id = cluster.settled(3).await?.status.and_then(|s| s.cluster_id);
        let old = cluster.member_ids().await?;
        let keys = Keys::start(&cluster).await?;
        for name in old.keys() {
            cluster.delete_member(name).await?;
        }
        wait_for("all old members to go", LONG, async || {
            let members = cluster.members().await?;
            let left: Vec<_> =
                members.iter().map(ResourceExt::name_any).filter(|n| old.contains_key(n)).collect();
            ensure!(left.is_empty(), "{left:?} are still there");
            Ok(())
        })
        .await?;
        let now = cluster.settled(3).await?;
        assert_eq!(now.status.and_then(|s| s.cluster_id), id, "the same cluster");
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

async fn newest(cluster: &Cluster) -> Result<String> {
    Ok(cluster.members().await?.last().context("a member")?.name_any())
}

/// Damages a member's data and deletes its Pod: it finds out when it starts again.
async fn spoil(arena: &Arena, damage: Damage, member: &str) -> Result<()> {
    lab::spoil(damage, &arena.namespace, &api::names::pvc(member)).await?;
    arena.api::<Pod>().delete(member, &DeleteParams::default()).await?;
    Ok(())
}

async fn replaced(cluster: &Cluster, member: &str) -> Result<()> {
    cluster.without(member).await?;
    cluster.settled(3).await?;
    cluster.has_only_voters(3).await
}

#[tokio::test]
async fn t27_a_member_that_serves_again_after_each_of_five_kills_is_kept() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        cluster.voters().await?[0].put("before", "the kills").await?;
        let before = cluster.identity().await?;
        let victim = newest(&cluster).await?;
        let keys = Keys::start(&cluster).await?;
        for kill in 1..=5 {
            lab::kill_container(&arena.namespace, &victim, "etcd").await?;
            wait_for(&format!("{victim} to serve again after kill {kill}"), LONG, async || {
                let member = arena.api::<EtcdMember>().get_opt(&victim).await?;
                let member = member.with_context(|| format!("{victim} was deleted"));
                let member = member.expect("a member that serves is kept");
                assert_eq!(member.metadata.deletion_timestamp, None, "{victim} is being deleted");
                let pod = arena.api::<Pod>().get(&victim).await?;
                ensure!(e2e::restarts(&pod) >= kill, "it has not been started again");
                let doors = cluster.doors().await?;
                let door = doors.iter().find(|door| door.member == victim).context("it is not ready")?;
                ensure!(door.get("before").await?.as_deref() == Some("the kills"), "it has no data");
                Ok(())
            })
            .await?;
        }
        cluster.settled(3).await?;
        let after = cluster.identity().await?;
        assert_eq!((after.members, after.claims), (before.members, before.claims), "nobody was replaced");
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}
