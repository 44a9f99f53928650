//! The rules on `EtcdCluster.spec` as a whole, numbered as in docs/api.md.

use anyhow::Result;
use serde_json::{Value, json};

use crate::arena::arena;

const CLUSTER: &str = "EtcdCluster";

/// No image has this version, so that a running operator starts nothing for the objects of these tests.
pub fn cluster(extra: Value) -> Value {
    let mut spec = json!({"version": "99.0.0"});
    if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
        spec.extend(extra);
    }
    spec
}

pub fn memory(size: Value) -> Value {
    cluster(json!({"replicas": 1, "storage": {"medium": "Memory", "size": size}}))
}

pub fn server_tls() -> Value {
    json!({"client": {"serverSecretRef": {"name": "server"}}})
}

fn restore() -> Value {
    json!({"restore": {"source": {"pvc": {"claimName": "backups", "subPath": "a.db"}}}})
}

#[tokio::test]
async fn rule_01_memory_cannot_be_paused() -> Result<()> {
    let message = "replicas=0 with spec.storage.medium=Memory";
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"replicas": 0}))).await?;
        arena.accepts(CLUSTER, memory(json!("256Mi"))).await?;
        let paused = cluster(json!({"replicas": 0, "storage": {"medium": "Memory", "size": "256Mi"}}));
        arena.refuses(CLUSTER, paused, message).await?;

        let stored = arena.stored(CLUSTER, memory(json!("256Mi"))).await?;
        stored.accepts(json!({"replicas": 2})).await?;
        stored.refuses(json!({"replicas": 0}), message).await
    })
    .await
}

#[tokio::test]
async fn h36_rule_02_memory_needs_a_size() -> Result<()> {
    let message = "spec.storage.size must be > 0";
    arena(async |arena| {
        arena.accepts(CLUSTER, memory(json!("64Mi"))).await?;
        arena.accepts(CLUSTER, memory(json!(67_108_864))).await?;
        for size in [json!(0), json!("0"), json!("0Gi"), json!("-1Gi"), json!(-1)] {
            arena.refuses(CLUSTER, memory(size), message).await?;
        }
        let stored = arena.stored(CLUSTER, memory(json!("64Mi"))).await?;
        stored.accepts(json!({"storage": {"size": "128Mi"}})).await?;
        stored.refuses(json!({"storage": {"size": 0}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_03_tls_cannot_be_added_or_removed() -> Result<()> {
    let message = "spec.tls cannot be added";
    arena(async |arena| {
        let plain = arena.stored(CLUSTER, cluster(json!({}))).await?;
        plain.accepts(json!({"replicas": 5})).await?;
        plain.refuses(json!({"tls": server_tls()}), message).await?;
        plain.refuses(json!({"tls": {}}), message).await?;
        let secure = arena.stored(CLUSTER, cluster(json!({"tls": server_tls()}))).await?;
        secure.accepts(json!({"replicas": 5})).await?;
        secure.refuses(json!({"tls": null}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_04_tls_is_immutable() -> Result<()> {
    let message = "spec.tls is immutable";
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, cluster(json!({"tls": server_tls()}))).await?;
        stored.accepts(json!({"tls": server_tls(), "replicas": 1})).await?;
        stored.refuses(json!({"tls": {"client": {"serverSecretRef": {"name": "other"}}}}), message).await?;
        stored.refuses(json!({"tls": {"peer": {"secretRef": {"name": "peer"}}}}), message).await?;
        stored.refuses(json!({"tls": {"client": null}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_05_storage_class_cannot_be_added_or_removed() -> Result<()> {
    let message = "spec.storage.storageClassName cannot be added";
    arena(async |arena| {
        let default = arena.stored(CLUSTER, cluster(json!({}))).await?;
        default.accepts(json!({"storage": {"size": "2Gi"}})).await?;
        default.refuses(json!({"storage": {"storageClassName": "fast"}}), message).await?;
        default.refuses(json!({"storage": {"storageClassName": ""}}), message).await?;
        let named = arena.stored(CLUSTER, cluster(json!({"storage": {"storageClassName": "fast"}}))).await?;
        named.accepts(json!({"storage": {"size": "2Gi"}})).await?;
        named.refuses(json!({"storage": {"storageClassName": null}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_06_storage_class_is_immutable() -> Result<()> {
    let message = "spec.storage.storageClassName is immutable";
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, cluster(json!({"storage": {"storageClassName": "fast"}}))).await?;
        stored.accepts(json!({"storage": {"storageClassName": "fast", "size": "2Gi"}})).await?;
        stored.refuses(json!({"storage": {"storageClassName": "slow"}}), message).await?;
        stored.refuses(json!({"storage": {"storageClassName": ""}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_07_auth_cannot_be_added_or_removed() -> Result<()> {
    let message = "spec.auth cannot be added to or removed from an existing cluster";
    arena(async |arena| {
        let without = arena.stored(CLUSTER, cluster(json!({}))).await?;
        without.accepts(json!({"replicas": 1})).await?;
        without.refuses(json!({"auth": {"enabled": false}}), message).await?;
        let with = arena.stored(CLUSTER, cluster(json!({"auth": {}}))).await?;
        with.accepts(json!({"replicas": 1})).await?;
        with.refuses(json!({"auth": null}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_08_auth_is_immutable() -> Result<()> {
    let message = "spec.auth is immutable post-create";
    arena(async |arena| {
        let auth = json!({"enabled": true, "rootCredentialsSecretRef": {"name": "root"}});
        let stored = arena.stored(CLUSTER, cluster(json!({"tls": server_tls(), "auth": auth}))).await?;
        stored.accepts(json!({"auth": auth, "replicas": 1})).await?;
        stored.refuses(json!({"auth": {"enabled": false}}), message).await?;
        stored.refuses(json!({"auth": {"rootCredentialsSecretRef": {"name": "other"}}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_09_auth_needs_client_tls() -> Result<()> {
    // The reference's own tests look for all of it.
    let message = "requires spec.tls.client (auth credentials must not cross a plaintext connection)";
    let auth = json!({"enabled": true, "rootCredentialsSecretRef": {"name": "root"}});
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"auth": auth, "tls": server_tls()}))).await?;
        arena.refuses(CLUSTER, cluster(json!({"auth": auth})), message).await?;
        arena.refuses(CLUSTER, cluster(json!({"auth": auth, "tls": {}})), message).await?;
        let peer = json!({"peer": {"secretRef": {"name": "peer"}}});
        arena.refuses(CLUSTER, cluster(json!({"auth": auth, "tls": peer})), message).await?;

        let stored = arena.stored(CLUSTER, cluster(json!({"auth": {"enabled": false}}))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"auth": {"enabled": true}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_10_auth_needs_credentials() -> Result<()> {
    let message = "spec.auth.enabled requires spec.auth.rootCredentialsSecretRef";
    arena(async |arena| {
        let with = json!({"enabled": true, "rootCredentialsSecretRef": {"name": "root"}});
        arena.accepts(CLUSTER, cluster(json!({"auth": with, "tls": server_tls()}))).await?;
        let without = cluster(json!({"auth": {"enabled": true}, "tls": server_tls()}));
        arena.refuses(CLUSTER, without, message).await?;

        let stored = arena.stored(CLUSTER, cluster(json!({"auth": {}, "tls": server_tls()}))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"auth": {"enabled": true}}), message).await
    })
    .await
}

/// The Go operator answers these with "no such key".
#[tokio::test]
async fn auth_that_does_not_say_enabled_is_off() -> Result<()> {
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"auth": {}}))).await?;
        arena.accepts(CLUSTER, cluster(json!({"auth": {"enabled": false}}))).await?;
        arena
            .accepts(CLUSTER, cluster(json!({"auth": {"rootCredentialsSecretRef": {"name": "root"}}})))
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rule_11_bootstrap_cannot_be_added_or_removed() -> Result<()> {
    let message = "spec.bootstrap cannot be added to or removed";
    arena(async |arena| {
        let fresh = arena.stored(CLUSTER, cluster(json!({}))).await?;
        fresh.accepts(json!({"replicas": 1})).await?;
        fresh.refuses(json!({"bootstrap": restore()}), message).await?;
        let restored = arena.stored(CLUSTER, cluster(json!({"bootstrap": restore()}))).await?;
        restored.accepts(json!({"replicas": 1})).await?;
        restored.refuses(json!({"bootstrap": null}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_12_bootstrap_is_immutable() -> Result<()> {
    let message = "spec.bootstrap is immutable";
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, cluster(json!({"bootstrap": restore()}))).await?;
        stored.accepts(json!({"bootstrap": restore(), "replicas": 1})).await?;
        stored
            .refuses(json!({"bootstrap": {"restore": {"source": {"pvc": {"subPath": "b.db"}}}}}), message)
            .await?;
        stored.refuses(json!({"bootstrap": {"restore": null}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_13_memory_cannot_be_restored() -> Result<()> {
    let message = "unsupported with spec.storage.medium=Memory";
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"bootstrap": restore()}))).await?;
        let storage = json!({"medium": "Memory", "size": "64Mi"});
        arena.accepts(CLUSTER, cluster(json!({"bootstrap": {}, "storage": storage}))).await?;
        arena.refuses(CLUSTER, cluster(json!({"bootstrap": restore(), "storage": storage})), message).await?;

        let stored = arena.stored(CLUSTER, cluster(json!({"bootstrap": {}, "storage": storage}))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"bootstrap": restore()}), message).await
    })
    .await
}
