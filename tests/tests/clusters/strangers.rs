//! Objects of others stay theirs.

use anyhow::{Result, ensure};
use e2e::{Arena, LONG, arena, in_memory, wait_for};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
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
        arena.warned("Service my-etcd-client").await?;
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
