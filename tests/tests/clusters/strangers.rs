//! Objects of others stay theirs, and objects that nobody can read harm nobody.

use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use e2e::{Arena, Cluster, LONG, arena, in_memory, wait_for};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

#[tokio::test]
async fn t21_a_service_of_somebody_else_is_reported_and_not_taken() -> Result<()> {
    arena(async |arena: Arena| {
        let services = arena.api::<Service>();
        let theirs = json!({
            "metadata": {"name": "my-etcd-client"},
            "spec": {"selector": {"app": "something-else"}, "ports": [{"port": 80}]},
        });
        let theirs = services.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
        let cluster = arena.create("my-etcd", in_memory(1)).await?;
        warned(&arena, "Service my-etcd-client").await?;
        let found = services.get("my-etcd-client").await?;
        assert_eq!(found.resource_version(), theirs.resource_version(), "it was not touched");

        services.delete("my-etcd-client", &DeleteParams::default()).await?;
        cluster.settled(1).await?;
        wait_for("a Service of our own", LONG, async || {
            let ours = services.get("my-etcd-client").await?;
            ensure!(ours.uid() != theirs.uid(), "it is still the other one");
            ensure!(!ours.owner_references().is_empty(), "nobody owns it");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn t16_an_object_that_can_not_be_read_is_named_and_harms_nobody() -> Result<()> {
    arena(async |arena: Arena| {
        // The API server does not mind a number that fits no Pod.
        let cluster = |weight: i64| {
            let term = json!({"weight": weight, "podAffinityTerm": {"topologyKey": "zone"}});
            let apart = json!({"preferredDuringSchedulingIgnoredDuringExecution": [term]});
            json!({"spec": {"replicas": 1, "affinity": {"podAntiAffinity": apart}}})
        };
        let mut unreadable = serde_json::to_value(EtcdCluster::new("unreadable", in_memory(1)))?;
        unreadable["spec"]["affinity"] = cluster(5_000_000_000)["spec"]["affinity"].clone();
        let kind = ApiResource::erase::<EtcdCluster>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(arena.client.clone(), &arena.namespace, &kind);
        api.create(&PostParams::default(), &serde_json::from_value(unreadable)?).await?;
        warned(&arena, "EtcdCluster unreadable can not be read").await?;
        let neighbour = arena.create("neighbour", in_memory(1)).await;
        let settled = match &neighbour {
            Ok(neighbour) => neighbour.settled(1).await.map(drop),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };

        // Corrected, it is a cluster like any other; also for the test, which could not list it.
        api.patch("unreadable", &PatchParams::default(), &Patch::Merge(cluster(50))).await?;
        settled?;
        Cluster { arena: arena.clone(), name: "unreadable".to_owned() }.settled(1).await.map(drop)
    })
    .await
}

async fn warned(arena: &Arena, of: &str) -> Result<()> {
    wait_for(&format!("a warning that says: {of}"), LONG, async || {
        let events = arena.list::<Event>().await?;
        let warning = events.iter().find(|e| {
            let says = e.message.as_ref().is_some_and(|m| m.contains(of));
            says && e.type_.as_deref() == Some("Warning")
        });
        warning.map(drop).with_context(|| format!("there are {} others", events.len()))
    })
    .await
}
