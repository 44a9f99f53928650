//! From nothing to a cluster that serves.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api::{EtcdCluster, EtcdClusterSpec, ids, labels};
use e2e::{Arena, Cluster, SHORT, arena, condition, in_memory, on_volumes, unique, wait_for};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

#[tokio::test]
async fn three_members_on_volumes_form_one_cluster() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-etcd", on_volumes(3)).await?;
        let settled = cluster.settled(3).await?;
        status_agrees_with_etcd(&cluster, &settled, 3).await?;
        exactly_one_member_is_the_seed(&cluster).await?;
        every_pod_is_labelled_as_a_voter(&cluster).await?;
        every_member_has_a_volume_of(&cluster, "1Gi").await?;
        services_are_as_promised(&cluster).await?;
        cluster.is_served_by_its_members().await?;
        what_one_member_stores_the_others_have(&cluster).await
    })
    .await
}

#[tokio::test]
async fn a_cluster_in_memory_forms_and_grows_from_one_to_three() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("my-cache", in_memory(1)).await?;
        let alone = cluster.settled(1).await?;
        cluster.voters().await?[0].put("before", "growth").await?;

        cluster.scale(3).await?;
        let grown = cluster.settled(3).await?;
        assert_eq!(id_of(&alone)?, id_of(&grown)?, "it is still the same etcd cluster");
        status_agrees_with_etcd(&cluster, &grown, 3).await?;
        exactly_one_member_is_the_seed(&cluster).await?;
        every_pod_is_labelled_as_a_voter(&cluster).await?;
        cluster.is_served_by_its_members().await?;
        what_one_member_stores_the_others_have(&cluster).await?;
        for voter in cluster.voters().await? {
            assert_eq!(voter.get("before").await?.as_deref(), Some("growth"), "through {}", voter.member);
        }
        assert_eq!(arena.list::<PersistentVolumeClaim>().await?, [], "memory needs no claims");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_promised_version_of_etcd_forms_a_cluster() -> Result<()> {
    arena(async |arena: Arena| {
        for version in ["3.5.35", "3.6.15", "3.7.3"] {
            let spec = EtcdClusterSpec { version: version.to_owned(), ..in_memory(3) };
            let cluster = arena.create(&format!("v{}", version.replace('.', "-")), spec).await?;
            let settled = cluster.settled(3).await.with_context(|| format!("etcd {version}"))?;
            status_agrees_with_etcd(&cluster, &settled, 3).await?;
            for member in cluster.members().await? {
                let running = member.status.and_then(|status| status.version);
                assert_eq!(running.as_deref(), Some(version));
            }
            what_one_member_stores_the_others_have(&cluster).await?;
            cluster.delete(&Default::default()).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_created_at_zero_waits_until_it_is_scaled() -> Result<()> {
    arena(async |arena: Arena| {
        let cluster = arena.create("sleeper", on_volumes(0)).await?;
        let status = cluster.says("Available", "False/Paused").await?;
        assert_eq!(condition(&status.conditions, "Progressing"), "False/Paused");
        assert_eq!(status.cluster_id, None, "nothing has formed");
        assert_eq!(cluster.members().await?.len(), 0);

        cluster.scale(1).await?;
        let settled = cluster.settled(1).await?;
        status_agrees_with_etcd(&cluster, &settled, 1).await
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_asks_for_tls_is_left_untouched() -> Result<()> {
    arena(async |arena: Arena| {
        let secret = json!({"client": {"serverSecretRef": {"name": "server-tls"}}});
        let spec = EtcdClusterSpec { tls: Some(serde_json::from_value(secret)?), ..on_volumes(3) };
        let cluster = arena.create("secretive", spec).await?;
        let status = cluster.says("Available", "False/Unsupported").await?;
        assert_eq!(condition(&status.conditions, "Progressing"), "False/Unsupported");

        // An edit wakes the operator once more; it still keeps its hands off.
        let edit = Patch::Merge(json!({"spec": {"replicas": 1}}));
        let edited = arena.api::<EtcdCluster>().patch("secretive", &PatchParams::default(), &edit).await?;
        wait_for("the operator to see the edit", SHORT, async || {
            let conditions = cluster.status().await?.conditions;
            let generations: BTreeSet<_> = conditions.iter().map(|c| c.observed_generation).collect();
            ensure!(
                generations == BTreeSet::from([edited.metadata.generation]),
                "it speaks of {generations:?}"
            );
            Ok(())
        })
        .await?;
        assert_eq!(cluster.members().await?.len(), 0);
        assert_eq!(arena.list::<Pod>().await?.len(), 0);
        assert_eq!(arena.list::<Service>().await?.len(), 0);
        Ok(())
    })
    .await
}

fn id_of(cluster: &EtcdCluster) -> Result<&str> {
    cluster.status.as_ref().and_then(|s| s.cluster_id.as_deref()).context("a settled cluster has an id")
}

/// Ids, names and votes in the status are etcd's own.
async fn status_agrees_with_etcd(cluster: &Cluster, settled: &EtcdCluster, voters: usize) -> Result<()> {
    let list = cluster.etcd().await?;
    assert_eq!(id_of(settled)?, ids::format(list.cluster_id));
    assert_eq!(list.voters().count(), voters, "{list:?}");
    assert_eq!(list.learners().count(), 0, "{list:?}");
    let theirs: BTreeSet<_> = list.members.iter().map(|m| (m.name.clone(), ids::format(m.id))).collect();
    let ours: BTreeSet<_> = cluster.member_ids().await?.into_iter().collect();
    assert_eq!(ours, theirs, "a name in etcd's list means that the member has started");
    for member in cluster.members().await? {
        let status = member.status.clone().unwrap_or_default();
        assert!(status.is_voter, "{} is a voter", member.name_any());
        assert_eq!(condition(&status.conditions, "Ready"), "True/PodReady");
    }
    Ok(())
}

async fn exactly_one_member_is_the_seed(cluster: &Cluster) -> Result<()> {
    let members = cluster.members().await?;
    let seeds: Vec<_> = members.iter().filter(|m| m.spec.bootstrap).map(ResourceExt::name_any).collect();
    assert_eq!(seeds.len(), 1, "{seeds:?}");
    Ok(())
}

async fn every_pod_is_labelled_as_a_voter(cluster: &Cluster) -> Result<()> {
    wait_for("the role label on every Pod", SHORT, async || {
        for pod in cluster.pods().await? {
            let role = pod.labels().get(labels::ROLE);
            ensure!(role.is_some_and(|role| role == labels::VOTER), "{} has {role:?}", pod.name_any());
        }
        Ok(())
    })
    .await
}

async fn every_member_has_a_volume_of(cluster: &Cluster, size: &str) -> Result<()> {
    let claims = cluster.claims().await?;
    let claimed: BTreeSet<_> = claims.iter().map(ResourceExt::name_any).collect();
    let members = cluster.members().await?;
    let expected: BTreeSet<_> = members.iter().map(|m| format!("data-{}", m.name_any())).collect();
    assert_eq!(claimed, expected);
    for claim in claims {
        let capacity = claim.status.clone().unwrap_or_default().capacity.unwrap_or_default();
        assert_eq!(capacity["storage"].0, size, "{}", claim.name_any());
    }
    Ok(())
}

async fn services_are_as_promised(cluster: &Cluster) -> Result<()> {
    let services = cluster.arena.api::<Service>();
    let ports = |service: &Service| -> Vec<(String, i32)> {
        let ports = service.spec.clone().unwrap_or_default().ports.unwrap_or_default();
        ports.into_iter().map(|p| (p.name.unwrap_or_default(), p.port)).collect()
    };
    let cluster_label = (labels::CLUSTER.to_owned(), cluster.name.clone());

    let headless = services.get(&cluster.name).await?;
    assert_eq!(ports(&headless), [("client".to_owned(), 2379), ("peer".to_owned(), 2380)]);
    let spec = headless.spec.unwrap_or_default();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    assert_eq!(spec.publish_not_ready_addresses, Some(true));
    assert_eq!(spec.selector, Some([cluster_label.clone()].into()));

    let client = services.get(&format!("{}-client", cluster.name)).await?;
    assert_eq!(ports(&client), [("client".to_owned(), 2379)]);
    let spec = client.spec.unwrap_or_default();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    let role = (labels::ROLE.to_owned(), labels::VOTER.to_owned());
    assert_eq!(spec.selector, Some([cluster_label, role].into()));
    Ok(())
}

async fn what_one_member_stores_the_others_have(cluster: &Cluster) -> Result<()> {
    let voters = cluster.voters().await?;
    for writer in &voters {
        let value = unique("value");
        writer.put("greeting", &value).await?;
        for reader in &voters {
            let read = reader.get("greeting").await?;
            assert_eq!(read.as_ref(), Some(&value), "{} to {}", writer.member, reader.member);
        }
    }
    Ok(())
}
