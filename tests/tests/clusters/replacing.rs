//! Members and Pods that go missing.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::{Arena, Diary, Keys, LONG, arena, on_volumes, wait_for};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;

#[tokio::test]
async fn a_deleted_member_leaves_etcd_and_another_takes_its_place() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let pods = cluster.pod_uids().await?;
        let ids = cluster.member_ids().await?;
        // The seed is no exception.
        let victim =
            cluster.members().await?.into_iter().find(|m| m.spec.bootstrap).expect("a seed").name_any();

        let keys = Keys::start(&cluster).await?;
        cluster.delete_member(&victim).await?;
        cluster.without(&victim).await?;
        cluster.settled(3).await?;
        keys.advance().await?;
        keys.all_there().await?;

        let now = cluster.member_ids().await?;
        assert!(!now.contains_key(&victim), "the successor has a name of its own: {now:?}");
        assert!(!now.values().any(|id| *id == ids[&victim]), "and an id of its own");
        cluster.has_only_voters(3).await?;
        let now = cluster.pod_uids().await?;
        for (name, uid) in pods.iter().filter(|(name, _)| **name != victim) {
            assert_eq!(now.get(name), Some(uid), "{name} was left alone");
        }
        let claims = cluster.claims().await?;
        assert_eq!(claims.len(), 3, "the volume went with its member");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_deleted_by_hand_comes_back_on_its_volume() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let (ids, pods) = (cluster.member_ids().await?, cluster.pod_uids().await?);
        let claims = cluster.claim_uids().await?;
        let victim = ids.keys().next().expect("a member").clone();

        let keys = Keys::start(&cluster).await?;
        let diary = Diary::of(&cluster);
        let began = Instant::now();
        arena.api::<Pod>().delete(&victim, &DeleteParams::default()).await?;
        wait_for("a new Pod of the same name", LONG, async || {
            let now = cluster.pod_uids().await?;
            ensure!(now.contains_key(&victim) && now[&victim] != pods[&victim], "the Pods are {now:?}");
            Ok(())
        })
        .await?;
        cluster.settled(3).await?;
        keys.advance().await?;
        keys.all_there().await?;

        let said = diary.entries();
        let noticed =
            said.iter().find(|entry| entry.ready_members == 2).expect("the loss is told while it lasts");
        eprintln!("the lost Pod was told after {:.1} s", (noticed.at - began).as_secs_f32());
        assert!(
            said.iter().all(|entry| entry.available.starts_with("True/")),
            "two of three serve: {said:#?}"
        );

        assert_eq!(cluster.member_ids().await?, ids, "the same members");
        assert_eq!(cluster.claim_uids().await?, claims, "on the same volumes");
        cluster.has_only_voters(3).await
    })
    .await
}
