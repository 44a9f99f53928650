//! The operator dies or is replaced in the middle of its work, and its successor finishes it. Needs the lab, which can kill.
//!
//! The operator is one for all, so these tests run one after the other, and not beside those of other files.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::manager::Leave;
use e2e::{Arena, Cluster, Keys, LONG, arena, in_memory, on_volumes, operator, wait_for};
use kube::ResourceExt;
use tokio::sync::Mutex;

static ALONE: Mutex<()> = Mutex::const_new(());

/// A moment in the making of a cluster. Each is a state that stays, so none can be missed.
type Moment = (&'static str, fn(&Glimpse) -> bool);

struct Glimpse {
    members: usize,
    started: usize,
    formed: bool,
}

#[tokio::test]
async fn a_cluster_forms_once_however_often_the_operator_dies() -> Result<()> {
    let _alone = ALONE.lock().await;
    let moments: [Moment; 4] = [
        ("the seed is made", |seen| seen.members >= 1),
        ("etcd has formed", |seen| seen.formed),
        ("the second member is made", |seen| seen.members >= 2),
        ("the third member has a Pod", |seen| seen.started >= 3),
    ];
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let mut ids = BTreeSet::new();
        for (what, moment) in moments {
            reach(&cluster, what, moment).await?;
            operator::kill(&arena.client).await.with_context(|| format!("after {what}"))?;
            ids.extend(cluster.status().await?.cluster_id);
        }
        let settled = cluster.settled(3).await?;
        ids.extend(settled.status.and_then(|status| status.cluster_id));
        assert_eq!(ids.len(), 1, "one etcd cluster and no other: {ids:?}");

        let members = cluster.members().await?;
        let seeds: Vec<_> = members.iter().filter(|m| m.spec.bootstrap).map(ResourceExt::name_any).collect();
        assert_eq!(seeds.len(), 1, "{seeds:?}");
        cluster.has_only_voters(3).await
    })
    .await
}

#[tokio::test]
async fn a_cluster_grows_to_its_size_and_no_further_however_often_the_operator_is_replaced() -> Result<()> {
    let _alone = ALONE.lock().await;
    let moments: [Moment; 3] = [
        ("the second member is made", |seen| seen.members >= 2),
        ("the second member has a Pod", |seen| seen.started >= 2),
        ("the third member is made", |seen| seen.members >= 3),
    ];
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        let before = cluster.settled(1).await?.status.and_then(|status| status.cluster_id);
        let keys = Keys::start(&cluster).await?;
        cluster.scale(3).await?;
        for (what, moment) in moments {
            reach(&cluster, what, moment).await?;
            operator::replace(&arena.client).await.with_context(|| format!("after {what}"))?;
        }
        let after = cluster.settled(3).await?.status.and_then(|status| status.cluster_id);
        assert_eq!(before, after);
        keys.advance().await?;
        keys.all_there().await?;
        cluster.has_only_voters(3).await
    })
    .await
}

#[tokio::test]
async fn a_member_that_was_leaving_still_leaves_when_the_operator_dies() -> Result<()> {
    let _alone = ALONE.lock().await;
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        let victim = cluster.members().await?[1].name_any();
        let keys = Keys::start(&cluster).await?;
        cluster.delete_member(&victim).await?;
        operator::kill(&arena.client).await?;
        cluster.without(&victim).await?;
        cluster.settled(3).await?;
        keys.all_there().await?;
        cluster.has_only_voters(3).await
    })
    .await
}

#[tokio::test]
async fn t26_a_status_that_is_lost_while_the_operator_is_away_is_found_again() -> Result<()> {
    let _alone = ALONE.lock().await;
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", in_memory(3)).await?;
        let before = cluster.settled(3).await?.status.unwrap_or_default();
        let left = cluster.identity().await?;
        let keys = Keys::start(&cluster).await?;
        // Nobody remembers anything.
        let leave = Leave::begin(&arena.client).await?;
        cluster.forget_status().await?;
        leave.end(&arena.client).await?;
        let after = cluster.settled(3).await?.status.unwrap_or_default();
        assert_eq!((after.cluster_id, after.cluster_token), (before.cluster_id, before.cluster_token));
        assert_eq!(cluster.identity().await?, left, "nothing was made, restarted or lost");
        keys.advance().await?;
        keys.all_there().await?;
        Ok(())
    })
    .await
}

async fn reach(cluster: &Cluster, what: &str, moment: fn(&Glimpse) -> bool) -> Result<()> {
    wait_for(what, LONG, async || {
        let seen = Glimpse {
            members: cluster.members().await?.len(),
            started: cluster.pods().await?.len(),
            formed: cluster.status().await?.cluster_id.is_some(),
        };
        ensure!(moment(&seen), "there are {} members, {} Pods", seen.members, seen.started);
        Ok(())
    })
    .await
}
