//! Losses that are told, and what comes back by itself.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use e2e::{Arena, Diary, Keys, LONG, arena, in_memory, on_volumes, wait_for};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test]
async fn a_lost_quorum_is_told_and_comes_back_with_its_pods() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let (ids, claims) = (cluster.member_ids().await?, cluster.claim_uids().await?);
        let keys = Keys::start(&cluster).await?;
        let diary = Diary::of(&cluster);
        let began = Instant::now();
        let told = wait_for("the loss of the quorum to be told", LONG, async || {
            // Again and again, or they are back before anybody can tell.
            for victim in ids.keys().take(2) {
                let gone = arena.api::<Pod>().delete(victim, &DeleteParams::default().grace_period(1)).await;
                ensure!(matches!(&gone, Ok(_) | Err(kube::Error::Api(_))), "{gone:?}");
            }
            let said = diary.entries();
            let told = said.iter().find(|entry| entry.available == "False/QuorumLost");
            Ok(told.with_context(|| format!("it said {said:#?}"))?.at)
        })
        .await?;
        eprintln!("the lost quorum was told after {:.1} s", (told - began).as_secs_f32());

        cluster.settled(3).await?;
        keys.advance().await?;
        keys.all_there().await?;
        assert_eq!(cluster.member_ids().await?, ids);
        assert_eq!(cluster.claim_uids().await?, claims);
        cluster.has_only_voters(3).await
    })
    .await
}

#[tokio::test]
async fn t12_a_cluster_that_lost_everything_says_so_and_is_not_formed_anew() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-cache", in_memory(3)).await?;
        let before = cluster.settled(3).await?.status.and_then(|status| status.cluster_id);
        let at_once = DeleteParams::default().grace_period(0);
        arena.api::<Pod>().delete_collection(&at_once, &ListParams::default()).await?;
        let status = cluster.says("Available", "False/AllMembersLost").await?;
        assert_eq!(status.cluster_id, before);
        assert_eq!(cluster.pod_uids().await?.len(), 0, "nothing is started without its data");
        arena.warned("AllMembersLost").await
    })
    .await
}

#[tokio::test]
async fn t4_a_pod_that_has_ended_is_started_anew() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let (ids, pods) = (cluster.member_ids().await?, cluster.pod_uids().await?);
        let victim = ids.keys().next().context("a member")?.clone();
        // What an eviction by the kubelet leaves behind.
        let ended = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
        arena.api::<Pod>().patch_status(&victim, &PatchParams::default(), &ended).await?;
        wait_for("another Pod", LONG, async || {
            let now = cluster.pod_uids().await?;
            ensure!(now.contains_key(&victim) && now[&victim] != pods[&victim], "the Pods are {now:?}");
            Ok(())
        })
        .await?;
        cluster.settled(3).await?;
        assert_eq!(cluster.member_ids().await?, ids);
        cluster.has_only_voters(3).await
    })
    .await
}

#[tokio::test]
async fn two_lost_volumes_of_three_are_told_and_the_last_copy_is_kept() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let members: Vec<_> = cluster.member_ids().await?.into_keys().collect();
        let (lost, survivor) = (&members[..2], &members[2]);
        let kept = cluster.claim_uids().await?[&api::names::pvc(survivor)].clone();
        for member in lost {
            let claims = arena.api::<PersistentVolumeClaim>();
            claims.delete(&api::names::pvc(member), &DeleteParams::default()).await?;
        }
        for member in lost {
            arena.api::<Pod>().delete(member, &DeleteParams::default().grace_period(1)).await?;
        }
        cluster.says("Available", "False/QuorumLost").await?;
        for member in lost {
            cluster.tells(&[member, "volume"]).await?;
        }

        // Waiting for ever is right; doing so without a word is not.
        cluster.delete_member(survivor).await?;
        cluster.tells(&[survivor, "delet"]).await?;
        assert_eq!(
            cluster.claim_uids().await?[&api::names::pvc(survivor)],
            kept,
            "the last copy of the data"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn claims_that_go_as_soon_as_their_pods_do_are_told() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(1)).await?;
        cluster.settled(1).await?;
        let claim = cluster.claims().await?[0].name_any();
        arena.api::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await?;
        cluster.tells(&[&claim]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_version_that_no_member_runs_is_told() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        cluster.settled(1).await?;
        let before = cluster.identity().await?;
        cluster.edit(json!({"version": "3.7.3"})).await?;
        cluster.tells(&["3.7.3", "3.6.16"]).await?;
        assert_eq!(cluster.identity().await?, before, "members keep their version");
        Ok(())
    })
    .await
}
