//! The rules of `EtcdDefrag`.

use anyhow::Result;
use serde_json::{Value, json};

use crate::arena::arena;

const DEFRAG: &str = "EtcdDefrag";

fn defrag(rule: Value) -> Value {
    json!({"clusterRef": {"name": "c"}, "rule": rule})
}

#[tokio::test]
async fn defrag_names_its_cluster() -> Result<()> {
    let message = "spec.clusterRef.name must not be empty";
    arena(async |arena| {
        arena.accepts(DEFRAG, json!({"clusterRef": {"name": "c"}})).await?;
        arena.refuses(DEFRAG, json!({"clusterRef": {}}), message).await?;
        arena.refuses(DEFRAG, json!({"clusterRef": {"name": ""}}), message).await?;
        arena.refuses(DEFRAG, json!({}), "spec.clusterRef: Required value").await
    })
    .await
}

#[tokio::test]
async fn defrag_all_excludes_the_rest() -> Result<()> {
    let message = "spec.rule.all excludes freeSpaceAbove, quotaUsageAbove and minReclaim";
    arena(async |arena| {
        arena.accepts(DEFRAG, defrag(json!({}))).await?;
        arena.accepts(DEFRAG, defrag(json!({"all": true}))).await?;
        arena.accepts(DEFRAG, defrag(json!({"all": false, "freeSpaceAbove": "1Gi"}))).await?;
        for other in [
            json!({"freeSpaceAbove": "1Gi"}),
            json!({"quotaUsageAbove": "80%"}),
            json!({"minReclaim": "1Mi"}),
        ] {
            let mut rule = other;
            rule["all"] = json!(true);
            arena.refuses(DEFRAG, defrag(rule), message).await?;
        }
        let stored = arena.stored(DEFRAG, defrag(json!({"freeSpaceAbove": "1Gi"}))).await?;
        stored.refuses(json!({"rule": {"all": true}}), message).await
    })
    .await
}

#[tokio::test]
async fn defrag_thresholds_are_positive() -> Result<()> {
    arena(async |arena| {
        for size in [json!("200Mi"), json!(1), json!("1m")] {
            arena.accepts(DEFRAG, defrag(json!({"freeSpaceAbove": size}))).await?;
            arena.accepts(DEFRAG, defrag(json!({"quotaUsageAbove": "80%", "minReclaim": size}))).await?;
        }
        for size in [json!(0), json!("0"), json!("-1Mi"), json!(-1)] {
            let rule = defrag(json!({"freeSpaceAbove": size}));
            arena.refuses(DEFRAG, rule, "freeSpaceAbove must be greater than 0").await?;
            let rule = defrag(json!({"quotaUsageAbove": "80%", "minReclaim": size}));
            arena.refuses(DEFRAG, rule, "minReclaim must be greater than 0").await?;
        }
        let unreadable = defrag(json!({"freeSpaceAbove": "1GB"}));
        arena.refuses(DEFRAG, unreadable.clone(), "must be a quantity like 1Gi").await?;
        arena.does_not_say(DEFRAG, unreadable, "greater than 0").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn defrag_quota_usage_is_a_percentage() -> Result<()> {
    arena(async |arena| {
        for good in ["1%", "80%", "99%", "100%"] {
            arena.accepts(DEFRAG, defrag(json!({"quotaUsageAbove": good}))).await?;
        }
        for bad in ["0%", "101%", "80", "080%", "8.5%", "", "%"] {
            arena
                .refuses(DEFRAG, defrag(json!({"quotaUsageAbove": bad})), "spec.rule.quotaUsageAbove")
                .await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn defrag_min_reclaim_goes_with_quota_usage() -> Result<()> {
    let message = "spec.rule.minReclaim only works with quotaUsageAbove";
    arena(async |arena| {
        arena.accepts(DEFRAG, defrag(json!({"quotaUsageAbove": "80%", "minReclaim": "32Mi"}))).await?;
        arena.refuses(DEFRAG, defrag(json!({"minReclaim": "32Mi"})), message).await?;
        arena.refuses(DEFRAG, defrag(json!({"freeSpaceAbove": "1Gi", "minReclaim": "32Mi"})), message).await
    })
    .await
}

#[tokio::test]
async fn defrag_min_reclaim_is_at_most_free_space() -> Result<()> {
    let message = "spec.rule.minReclaim must be at most freeSpaceAbove";
    let rule = |free: Value, reclaim: Value| {
        defrag(json!({"quotaUsageAbove": "80%", "freeSpaceAbove": free, "minReclaim": reclaim}))
    };
    arena(async |arena| {
        arena.accepts(DEFRAG, rule(json!("200Mi"), json!("32Mi"))).await?;
        arena.accepts(DEFRAG, rule(json!("1Gi"), json!("1024Mi"))).await?;
        arena.accepts(DEFRAG, rule(json!(1024), json!("1Ki"))).await?;
        arena.refuses(DEFRAG, rule(json!("32Mi"), json!("200Mi")), message).await?;
        arena.refuses(DEFRAG, rule(json!(1023), json!("1Ki")), message).await
    })
    .await
}

#[tokio::test]
async fn defrag_time_to_live_is_not_negative() -> Result<()> {
    arena(async |arena| {
        let ttl = |seconds: i32| json!({"clusterRef": {"name": "c"}, "ttlSecondsAfterFinished": seconds});
        arena.accepts(DEFRAG, ttl(0)).await?;
        arena.refuses(DEFRAG, ttl(-1), "spec.ttlSecondsAfterFinished").await
    })
    .await
}
