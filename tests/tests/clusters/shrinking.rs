//! Fewer members, down to none, and back.

use anyhow::{Result, ensure};
use e2e::{Arena, Diary, Keys, LONG, arena, condition, lab, on_volumes, wait_for};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

#[tokio::test]
async fn t22_a_cluster_shrinks_from_five_to_three_to_one_under_a_writing_client() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(5)).await?;
        let id = cluster.settled(5).await?.status.and_then(|s| s.cluster_id);

        let keys = Keys::start(&cluster).await?;
        let diary = Diary::of(&cluster);
        for replicas in [3, 1] {
            cluster.scale(replicas).await?;
            let wanted = usize::try_from(replicas)?;
            let now = cluster.settled(wanted).await?;
            assert_eq!(now.status.and_then(|s| s.cluster_id), id);
            cluster.has_only_voters(wanted).await?;
            wait_for("the volumes of those who left to go", LONG, async || {
                let claims = cluster.claims().await?.len();
                ensure!(claims == wanted, "there are {claims}");
                Ok(())
            })
            .await?;
        }
        keys.advance().await?;
        keys.all_there().await?;
        let said = diary.entries();
        assert!(
            said.iter().all(|entry| entry.available.starts_with("True/")),
            "it served all along: {said:#?}"
        );
        Ok(())
    })
    .await
}

/// etcd itself does not write down at once that a member is out; a last voter that is killed would wait for its vote.
#[tokio::test]
async fn a_last_member_that_is_killed_after_the_others_left_serves_again() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        cluster.voters().await?[0].put("before", "the kill").await?;
        cluster.scale(1).await?;
        cluster.settled(1).await?;
        // Nobody writes from here on.
        let [last] = &cluster.members().await?[..] else { panic!("one member is left") };
        lab::kill_container(&arena.namespace, &last.name_any(), "etcd").await?;
        wait_for("the last member to serve again", LONG, async || {
            let value = cluster.voters().await?[0].get("before").await?;
            ensure!(value.as_deref() == Some("the kill"), "it says {value:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn h26_a_cluster_sleeps_at_zero_and_wakes_as_itself() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let id = cluster.settled(3).await?.status.and_then(|s| s.cluster_id);
        cluster.voters().await?[0].put("before", "the pause").await?;

        cluster.scale(0).await?;
        let status = cluster.says("Available", "False/Paused").await?;
        assert_eq!(condition(&status.conditions, "Progressing"), "False/Paused");
        wait_for("the last Pod to go", LONG, async || {
            let pods = cluster.pods().await?.len();
            ensure!(pods == 0, "there are {pods}");
            Ok(())
        })
        .await?;
        let [sleeper] = &cluster.members().await?[..] else { panic!("one member is left") };
        assert!(sleeper.spec.dormant);
        let message = &status.conditions.iter().find(|c| c.type_ == "Available").expect("just seen").message;
        assert!(message.contains(&format!("PVC data-{}", sleeper.name_any())), "{message}");
        let ids = cluster.member_ids().await?;

        cluster.scale(3).await?;
        let now = cluster.settled(3).await?;
        assert_eq!(now.status.and_then(|s| s.cluster_id), id, "the same cluster");
        let after = cluster.member_ids().await?;
        assert!(ids.iter().all(|(name, id)| after.get(name) == Some(id)), "{ids:?} in {after:?}");
        for door in cluster.voters().await? {
            assert_eq!(door.get("before").await?.as_deref(), Some("the pause"), "{}", door.member);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn h28_the_budget_keeps_a_quorum_of_the_members() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let kept = wait_for("the budget to allow one disruption", LONG, async || {
            let budget = arena.api::<PodDisruptionBudget>().get("my-etcd").await?;
            let allowed = budget.status.as_ref().and_then(|s| s.disruptions_allowed).unwrap_or(0);
            ensure!(allowed == 1, "it allows {allowed}");
            Ok(budget.spec.and_then(|s| s.min_available))
        })
        .await?;
        assert_eq!(kept, Some(IntOrString::Int(2)));
        Ok(())
    })
    .await
}
