//! Where we refuse what the Go operator admits and cannot handle; docs/api.md lists each of these.

use anyhow::Result;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::arena::{MANAGER, arena, refused, resource};
use crate::cluster_rules::{cluster, memory, server_tls};

const CLUSTER: &str = "EtcdCluster";
const SNAPSHOT: &str = "EtcdSnapshot";

/// A name with that many characters.
fn name(length: usize) -> String {
    "n".repeat(length)
}

#[tokio::test]
async fn t20_tightened_missing_spec() -> Result<()> {
    arena(async |arena| {
        arena.accepts(CLUSTER, json!({"version": "99.0.0"})).await?;
        arena.refuses(CLUSTER, Value::Null, "spec is required: say at least which version").await?;
        arena.refuses(CLUSTER, json!({}), "spec.version: Required value").await?;
        for kind in ["EtcdMember", SNAPSHOT, "EtcdDefrag"] {
            arena.refuses(kind, Value::Null, "spec is required").await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t20_tightened_name_with_dots() -> Result<()> {
    arena(async |arena| {
        arena.accepts_named(CLUSTER, "my-etcd", cluster(json!({}))).await?;
        // Kubernetes 1.36 takes Service names that start with a digit, so we do too.
        arena.accepts_named(CLUSTER, "3-etcd", cluster(json!({}))).await?;
        arena.refuses_named(CLUSTER, "my.etcd", cluster(json!({})), "must not contain dots").await?;

        // The rule spares objects that have a status. A new one cannot bring one along.
        let spec_and_status = json!({"spec": cluster(json!({})), "status": {"readyMembers": 1}});
        let sly = DynamicObject::new("my.etcd", &resource(api::GROUP, CLUSTER)).data(spec_and_status);
        refused(arena.api(CLUSTER).create(&PostParams::default(), &sly).await, "must not contain dots")?;
        let patch = (PatchParams::apply(MANAGER), Patch::Apply(&sly));
        refused(arena.api(CLUSTER).patch("my.etcd", &patch.0, &patch.1).await, "must not contain dots")
    })
    .await
}

#[tokio::test]
async fn t20_tightened_name_too_long_for_the_client_service() -> Result<()> {
    let message = "metadata.name must have at most 56 characters";
    arena(async |arena| {
        arena.accepts_named(CLUSTER, &name(56), cluster(json!({}))).await?;
        arena.refuses_named(CLUSTER, &name(57), cluster(json!({})), message).await
    })
    .await
}

#[tokio::test]
async fn t20_tightened_name_too_long_for_a_common_name() -> Result<()> {
    let message = "metadata.name must have at most 48 characters";
    let issuers = json!({"serverIssuerRef": {"name": "ca"}, "operatorClientIssuerRef": {"name": "ca"}});
    let mutual = cluster(json!({"tls": {"client": {"certManager": issuers}}}));
    let server_only =
        cluster(json!({"tls": {"client": {"certManager": {"serverIssuerRef": {"name": "ca"}}}}}));
    arena(async |arena| {
        arena.accepts_named(CLUSTER, &name(48), mutual.clone()).await?;
        arena.refuses_named(CLUSTER, &name(49), mutual, message).await?;
        // The other common names are shorter, and Secrets of one's own need none.
        arena.accepts_named(CLUSTER, &name(56), server_only).await?;
        arena.accepts_named(CLUSTER, &name(56), cluster(json!({"tls": server_tls()}))).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn tightened_empty_volume() -> Result<()> {
    let message = "spec.storage.size must be > 0";
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"storage": {"size": 1}}))).await?;
        for size in [json!(0), json!("0"), json!("-1Gi")] {
            arena.refuses(CLUSTER, cluster(json!({"storage": {"size": size}})), message).await?;
        }
        let stored = arena.stored(CLUSTER, cluster(json!({}))).await?;
        stored.refuses(json!({"storage": {"size": 0}}), message).await
    })
    .await
}

/// 64 MB are what etcd allocates for its log before it starts, and a tmpfs has no more than its limit.
#[tokio::test]
async fn tightened_memory_too_small_for_the_log() -> Result<()> {
    let message = "spec.storage.size must be more than 64M with spec.storage.medium=Memory";
    arena(async |arena| {
        for size in [json!("64Mi"), json!("65M"), json!(64_000_001)] {
            arena.accepts(CLUSTER, memory(size)).await?;
        }
        for size in [json!("64M"), json!("10Mi"), json!(1)] {
            arena.refuses(CLUSTER, memory(size), message).await?;
        }
        arena.does_not_say(CLUSTER, memory(json!(0)), message).await?;
        // What a claim of that size gets is for its StorageClass to say.
        arena.accepts(CLUSTER, cluster(json!({"storage": {"size": "10Mi"}}))).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn tightened_version_below_3_5() -> Result<()> {
    let message = "spec.version must be 3.5.0 or newer";
    let member = |version: &str| json!({"clusterName": "c", "version": version, "storage": {}, "initialCluster": "", "clusterToken": "t"});
    arena(async |arena| {
        for version in ["3.5.0", "3.5.17", "3.6.16", "3.10.0", "3.40.1", "4.0.0", "10.0.0", "20.1.2"] {
            arena.accepts(CLUSTER, json!({"version": version})).await?;
        }
        for version in ["3.4.36", "3.0.0", "2.3.8", "0.0.0"] {
            arena.refuses(CLUSTER, json!({"version": version}), message).await?;
            // A cluster that is stored with it must be able to replace its members.
            arena.accepts("EtcdMember", member(version)).await?;
        }
        let stored = arena.stored(CLUSTER, cluster(json!({}))).await?;
        stored.refuses(json!({"version": "3.4.36"}), message).await
    })
    .await
}

#[tokio::test]
async fn tightened_too_many_replicas() -> Result<()> {
    let message = "spec.replicas must be at most 31";
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"replicas": 31}))).await?;
        arena.refuses(CLUSTER, cluster(json!({"replicas": 32})), message).await?;
        arena.refuses(CLUSTER, cluster(json!({"replicas": 3000})), message).await?;
        let stored = arena.stored(CLUSTER, cluster(json!({}))).await?;
        stored.refuses(json!({"replicas": 3000}), message).await?;
        let many = Patch::Merge(json!({"spec": {"replicas": 3000}}));
        refused(stored.api.patch_scale(&stored.name, &PatchParams::default(), &many).await, message)
    })
    .await
}

#[tokio::test]
async fn tightened_revisions_counted_in_minutes() -> Result<()> {
    let message = "spec.options.autoCompactionRetention must be a number of revisions";
    let options = |mode: &str, keep: &str| {
        cluster(json!({"options": {"autoCompactionMode": mode, "autoCompactionRetention": keep}}))
    };
    arena(async |arena| {
        arena.accepts(CLUSTER, options("revision", "1000")).await?;
        arena.accepts(CLUSTER, options("periodic", "5m")).await?;
        arena.accepts(CLUSTER, options("periodic", "1")).await?;
        arena.accepts(CLUSTER, cluster(json!({"options": {"autoCompactionMode": "revision"}}))).await?;
        arena.refuses(CLUSTER, options("revision", "5m"), message).await?;
        let stored = arena.stored(CLUSTER, options("periodic", "5m")).await?;
        stored.refuses(json!({"options": {"autoCompactionMode": "revision"}}), message).await
    })
    .await
}

/// The reference's own tests create it, and a volume may be larger than its claim.
#[tokio::test]
async fn not_tightened_quota_larger_than_the_volume() -> Result<()> {
    arena(async |arena| {
        let spec = cluster(
            json!({"storage": {"size": "1Gi"}, "options": {"quotaBackendBytes": 10_200_547_328_i64}}),
        );
        arena.accepts(CLUSTER, spec).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn t20_tightened_empty_secret_name() -> Result<()> {
    let secret = |name: &str| json!({"name": name});
    arena(async |arena| {
        let client = |server: Value, operator: Value| {
            cluster(json!({"tls": {"client": {"serverSecretRef": server, "operatorClientSecretRef": operator}}}))
        };
        arena.accepts(CLUSTER, client(secret("s"), secret("o"))).await?;
        let message = "spec.tls.client.serverSecretRef.name must not be empty";
        arena.refuses(CLUSTER, client(json!({}), secret("o")), message).await?;
        arena.refuses(CLUSTER, client(secret(""), secret("o")), message).await?;
        let message = "spec.tls.client.operatorClientSecretRef.name must not be empty";
        arena.refuses(CLUSTER, client(secret("s"), json!({})), message).await?;

        let peer = |secret: Value| cluster(json!({"tls": {"peer": {"secretRef": secret}}}));
        arena.accepts(CLUSTER, peer(secret("p"))).await?;
        arena.refuses(CLUSTER, peer(json!({})), "spec.tls.peer.secretRef.name must not be empty").await?;

        let s3 = |credentials: Value| json!({"s3": {"endpoint": "https://s3", "bucket": "b", "key": "k", "credentialsSecretRef": credentials}});
        let restore = |source: Value| cluster(json!({"bootstrap": {"restore": {"source": source}}}));
        let snapshot = |place: Value| json!({"clusterRef": {"name": "c"}, "destination": place});
        let message = "s3.credentialsSecretRef.name must not be empty";
        arena.accepts(CLUSTER, restore(s3(secret("c")))).await?;
        arena.refuses(CLUSTER, restore(s3(json!({}))), message).await?;
        arena.accepts(SNAPSHOT, snapshot(s3(secret("c")))).await?;
        arena.refuses(SNAPSHOT, snapshot(s3(secret(""))), message).await
    })
    .await
}

#[tokio::test]
async fn tightened_empty_root_credentials() -> Result<()> {
    let message = "spec.auth.rootCredentialsSecretRef.name must not be empty";
    let auth = |enabled: bool, name: &str| {
        let auth = json!({"enabled": enabled, "rootCredentialsSecretRef": {"name": name}});
        cluster(json!({"auth": auth, "tls": server_tls()}))
    };
    arena(async |arena| {
        arena.accepts(CLUSTER, auth(true, "root")).await?;
        arena.refuses(CLUSTER, auth(true, ""), message).await?;
        // Nobody reads it.
        arena.accepts(CLUSTER, auth(false, "")).await?;
        Ok(())
    })
    .await
}

/// A Pod may name an empty pull Secret, so that an object which does works today.
#[tokio::test]
async fn not_tightened_image_pull_secrets() -> Result<()> {
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"imagePullSecrets": [{"name": "pull"}, {}]}))).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn tightened_snapshot_without_cluster() -> Result<()> {
    let snapshot =
        |cluster: Value| json!({"clusterRef": cluster, "destination": {"pvc": {"claimName": "backups"}}});
    let message = "spec.clusterRef.name must not be empty";
    arena(async |arena| {
        arena.accepts(SNAPSHOT, snapshot(json!({"name": "c"}))).await?;
        arena.refuses(SNAPSHOT, snapshot(json!({})), message).await?;
        arena.refuses(SNAPSHOT, snapshot(json!({"name": ""})), message).await
    })
    .await
}

#[tokio::test]
async fn tightened_snapshot_spec_is_immutable() -> Result<()> {
    let message = "spec is immutable: create another EtcdSnapshot";
    let spec = json!({"clusterRef": {"name": "c"}, "destination": {"pvc": {"claimName": "backups"}}});
    arena(async |arena| {
        let stored = arena.stored(SNAPSHOT, spec.clone()).await?;
        stored.accepts(spec).await?;
        stored.set_status(&json!({"phase": "Pending"})).await?;
        stored.refuses(json!({"clusterRef": {"name": "d"}}), message).await?;
        stored.refuses(json!({"destination": {"pvc": {"subPath": "x"}}}), message).await
    })
    .await
}
