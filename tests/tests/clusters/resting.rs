//! Nothing to do means that nothing is done.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{Arena, Cluster, SHORT, arena, on_volumes, wait_for};
use k8s_openapi::api::core::v1::Service;
use kube::{Resource, ResourceExt};
use tokio::time::sleep;

/// Longer than the operator's slowest regular look at etcd, jitter included.
const REST: Duration = Duration::from_secs(45);

#[tokio::test]
async fn at_rest_nothing_is_written() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        cluster.settled(3).await?;
        // The last touches of others, such as the kubelet, may come a moment later.
        wait_for("the cluster to come to rest", SHORT, async || {
            let before = versions(&cluster).await?;
            sleep(Duration::from_secs(3)).await;
            let changed = changes(&before, &versions(&cluster).await?);
            ensure!(changed.is_empty(), "{changed:?}");
            Ok(())
        })
        .await?;

        let before = versions(&cluster).await?;
        sleep(REST).await;
        let changed = changes(&before, &versions(&cluster).await?);
        assert!(changed.is_empty(), "written at rest: {changed:?}");
        Ok(())
    })
    .await
}

/// resourceVersions by kind and name.
type Versions = BTreeMap<String, Option<String>>;

/// Those of everything that belongs to the cluster.
async fn versions(cluster: &Cluster) -> Result<Versions> {
    let mut versions = Versions::new();
    note(&mut versions, &[cluster.get().await?]);
    note(&mut versions, &cluster.members().await?);
    note(&mut versions, &cluster.pods().await?);
    note(&mut versions, &cluster.claims().await?);
    note(&mut versions, &cluster.arena.list::<Service>().await?);
    Ok(versions)
}

fn note<K: Resource<DynamicType = ()>>(versions: &mut Versions, objects: &[K]) {
    for object in objects {
        let name = format!("{} {}", K::kind(&()), object.name_any());
        versions.insert(name, object.resource_version());
    }
}

fn changes(before: &Versions, after: &Versions) -> Vec<String> {
    let all = before.keys().chain(after.keys());
    all.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}
