//! The rules that sit on parts of a spec: storage, TLS and snapshot locations, wherever they are used.

use anyhow::Result;
use serde_json::{Value, json};

use crate::arena::{arena, refused};
use crate::cluster_rules::{cluster, memory, server_tls};

const CLUSTER: &str = "EtcdCluster";
const MEMBER: &str = "EtcdMember";
const SNAPSHOT: &str = "EtcdSnapshot";

fn member(extra: Value) -> Value {
    let mut spec = json!({"clusterName": "c", "version": "99.0.0", "storage": {}, "initialCluster": "", "clusterToken": "t"});
    if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
        spec.extend(extra);
    }
    spec
}

fn restore(source: Value) -> Value {
    cluster(json!({"bootstrap": {"restore": {"source": source}}}))
}

fn s3(key: Option<&str>) -> Value {
    let mut s3 = json!({"endpoint": "https://s3", "bucket": "b", "credentialsSecretRef": {"name": "s3"}});
    if let Some(key) = key {
        s3["key"] = json!(key);
    }
    json!({"s3": s3})
}

#[tokio::test]
async fn rule_14_size_cannot_be_shrunk() -> Result<()> {
    let message = "spec.storage.size cannot be shrunk";
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, cluster(json!({"storage": {"size": "1Gi"}}))).await?;
        for size in [json!("1Gi"), json!("1024Mi"), json!(1_073_741_824), json!("2Gi"), json!("1.5Gi")] {
            stored.accepts(json!({"storage": {"size": size}})).await?;
        }
        for size in [json!("1G"), json!("1023Mi"), json!(1_073_741_823), json!(1)] {
            stored.refuses(json!({"storage": {"size": size}}), message).await?;
        }
        // Without a size the default of 1Gi counts: fine here, a shrinking below.
        stored.accepts(json!({"storage": {"size": null}})).await?;
        let number = arena.stored(CLUSTER, cluster(json!({"storage": {"size": 2_147_483_648_i64}}))).await?;
        number.accepts(json!({"storage": {"size": "2Gi"}})).await?;
        number.refuses(json!({"storage": {"size": null}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_14_holds_for_members_and_targets() -> Result<()> {
    let message = "spec.storage.size cannot be shrunk";
    arena(async |arena| {
        let one = arena.stored(MEMBER, member(json!({}))).await?;
        one.accepts(json!({"storage": {"size": "2Gi"}})).await?;
        one.refuses(json!({"storage": {"size": "512Mi"}}), message).await?;

        let stored = arena.stored(CLUSTER, cluster(json!({}))).await?;
        let target =
            |size: &str| json!({"observed": {"replicas": 3, "version": "99.0.0", "storage": {"size": size}}});
        stored.set_status(&target("1Gi")).await?;
        stored.set_status(&target("2Gi")).await?;
        let patch = kube::api::Patch::Merge(json!({"status": target("1Gi")}));
        refused(stored.api.patch_status(&stored.name, &Default::default(), &patch).await, message)
    })
    .await
}

#[tokio::test]
async fn rule_15_medium_is_immutable() -> Result<()> {
    let message = "spec.storage.medium is immutable";
    arena(async |arena| {
        let disk = arena.stored(CLUSTER, cluster(json!({}))).await?;
        disk.accepts(json!({"storage": {"medium": ""}})).await?;
        disk.accepts(json!({"storage": {"medium": null}})).await?;
        disk.refuses(json!({"storage": {"medium": "Memory"}}), message).await?;
        let tmpfs = arena.stored(CLUSTER, memory(json!("64Mi"))).await?;
        tmpfs.refuses(json!({"storage": {"medium": ""}}), message).await?;
        tmpfs.refuses(json!({"storage": {"medium": null}}), message).await?;
        let one = arena.stored(MEMBER, member(json!({}))).await?;
        one.refuses(json!({"storage": {"medium": "Memory"}}), message).await?;

        let target = |medium: &str| json!({"observed": {"replicas": 3, "version": "99.0.0", "storage": {"medium": medium}}});
        disk.set_status(&target("")).await?;
        let patch = kube::api::Patch::Merge(json!({"status": target("Memory")}));
        refused(disk.api.patch_status(&disk.name, &Default::default(), &patch).await, message)
    })
    .await
}

#[tokio::test]
async fn rule_16_one_source_for_the_server_certificate() -> Result<()> {
    let message = "exactly one of spec.tls.client.serverSecretRef or spec.tls.client.certManager";
    let issuer = json!({"serverIssuerRef": {"name": "ca"}});
    arena(async |arena| {
        arena.accepts(CLUSTER, cluster(json!({"tls": server_tls()}))).await?;
        arena.accepts(CLUSTER, cluster(json!({"tls": {"client": {"certManager": issuer}}}))).await?;
        arena.refuses(CLUSTER, cluster(json!({"tls": {"client": {}}})), message).await?;
        let both = json!({"serverSecretRef": {"name": "s"}, "certManager": issuer});
        arena.refuses(CLUSTER, cluster(json!({"tls": {"client": both}})), message).await?;

        let stored = arena.stored(CLUSTER, cluster(json!({"tls": server_tls()}))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"tls": {"client": {"certManager": issuer}}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_17_no_client_secret_beside_cert_manager() -> Result<()> {
    let message = "operatorClientSecretRef cannot be combined with certManager";
    let issuer = json!({"serverIssuerRef": {"name": "ca"}});
    arena(async |arena| {
        let own = json!({"serverSecretRef": {"name": "s"}, "operatorClientSecretRef": {"name": "o"}});
        arena.accepts(CLUSTER, cluster(json!({"tls": {"client": own}}))).await?;
        let mixed = json!({"certManager": issuer, "operatorClientSecretRef": {"name": "o"}});
        arena.refuses(CLUSTER, cluster(json!({"tls": {"client": mixed}})), message).await?;

        let stored =
            arena.stored(CLUSTER, cluster(json!({"tls": {"client": {"certManager": issuer}}}))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"tls": {"client": {"operatorClientSecretRef": {"name": "o"}}}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_18_one_source_for_the_peer_certificate() -> Result<()> {
    let message = "exactly one of spec.tls.peer.secretRef";
    let issuer = json!({"issuerRef": {"name": "ca"}});
    arena(async |arena| {
        let own = cluster(json!({"tls": {"peer": {"secretRef": {"name": "p"}}}}));
        arena.accepts(CLUSTER, own.clone()).await?;
        arena.accepts(CLUSTER, cluster(json!({"tls": {"peer": {"certManager": issuer}}}))).await?;
        arena.refuses(CLUSTER, cluster(json!({"tls": {"peer": {}}})), message).await?;
        let both = json!({"secretRef": {"name": "p"}, "certManager": issuer});
        arena.refuses(CLUSTER, cluster(json!({"tls": {"peer": both}})), message).await?;

        let stored = arena.stored(CLUSTER, own).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"tls": {"peer": {"certManager": issuer}}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_19_a_restore_from_s3_names_the_object() -> Result<()> {
    let message = "exact (non-empty) object key";
    arena(async |arena| {
        arena.accepts(CLUSTER, restore(s3(Some("prod/a.db")))).await?;
        arena.refuses(CLUSTER, restore(s3(None)), message).await?;
        arena.refuses(CLUSTER, restore(s3(Some(""))), message).await?;
        arena.refuses(MEMBER, member(json!({"restore": {"source": s3(None)}})), message).await?;

        let stored = arena.stored(CLUSTER, restore(s3(Some("prod/a.db")))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"bootstrap": {"restore": {"source": {"s3": {"key": ""}}}}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_20_a_restore_from_a_claim_names_the_file() -> Result<()> {
    let message = "exact (non-empty) snapshot file path";
    let pvc = |path: Value| json!({"pvc": {"claimName": "backups", "subPath": path}});
    arena(async |arena| {
        arena.accepts(CLUSTER, restore(pvc(json!("a.db")))).await?;
        arena.refuses(CLUSTER, restore(json!({"pvc": {"claimName": "backups"}})), message).await?;
        arena.refuses(CLUSTER, restore(pvc(json!(""))), message).await?;
        arena.refuses(MEMBER, member(json!({"restore": {"source": pvc(json!(""))}})), message).await?;

        let stored = arena.stored(CLUSTER, restore(pvc(json!("a.db")))).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"bootstrap": {"restore": {"source": pvc(json!(""))}}}), message).await
    })
    .await
}

#[tokio::test]
async fn rule_21_a_location_is_one_place() -> Result<()> {
    let message = "exactly one of destination.s3 or destination.pvc";
    let pvc = json!({"pvc": {"claimName": "backups", "subPath": "a.db"}});
    let mut both = s3(Some("a.db"));
    both["pvc"] = pvc["pvc"].clone();
    let snapshot = |destination: Value| json!({"clusterRef": {"name": "c"}, "destination": destination});
    arena(async |arena| {
        arena.accepts(CLUSTER, restore(pvc.clone())).await?;
        for nowhere in [json!({}), both.clone()] {
            arena.refuses(CLUSTER, restore(nowhere.clone()), message).await?;
            let named = "spec.bootstrap.restore.source needs one place to restore from";
            arena.refuses(CLUSTER, restore(nowhere), named).await?;
        }
        arena.refuses(MEMBER, member(json!({"restore": {"source": both}})), message).await?;

        // A destination may leave key and path open.
        arena.accepts(SNAPSHOT, snapshot(s3(None))).await?;
        arena.accepts(SNAPSHOT, snapshot(json!({"pvc": {"claimName": "backups"}}))).await?;
        arena.refuses(SNAPSHOT, snapshot(json!({})), message).await?;
        arena.refuses(SNAPSHOT, snapshot(both.clone()), message).await?;

        let stored = arena.stored(CLUSTER, restore(pvc)).await?;
        stored.accepts(json!({"replicas": 1})).await?;
        stored.refuses(json!({"bootstrap": {"restore": {"source": s3(Some("a.db"))}}}), message).await
    })
    .await
}
