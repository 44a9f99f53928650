//! A stand-in for storage: a PersistentVolume for every claim, with nothing behind it, bound at once. The real controller
//! would bind them too, but allows itself a hundred requests a second, and a fleet would wait for that.

use std::collections::HashSet;
use std::pin::pin;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{persistently, unless};

/// Name of the class, and label of the volumes.
pub const CLASS: &str = "etcd-operator-bench";

/// Makes the class.
pub async fn open(client: &Client) -> Result<()> {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": { "name": CLASS },
        "provisioner": "etcd-operator-bench/none",
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    }))?;
    let classes: Api<StorageClass> = Api::all(client.clone());
    Ok(unless("AlreadyExists", classes.create(&PostParams::default(), &class).await)?)
}

/// Takes class and volumes away.
pub async fn close(client: &Client) -> Result<()> {
    clear(client).await?;
    let classes: Api<StorageClass> = Api::all(client.clone());
    classes.delete(CLASS, &DeleteParams::default()).await?;
    Ok(())
}

/// Takes the volumes away.
pub async fn clear(client: &Client) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.delete_collection(&DeleteParams::default(), &ListParams::default().labels(CLASS)).await?;
    Ok(())
}

/// Makes volumes for the claims of a namespace until dropped.
pub async fn run(client: Client, namespace: String) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let mut events = pin!(watcher::watcher(claims, watcher::Config::default()).default_backoff());
    let mut known = HashSet::new();
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(claim) | Event::InitApply(claim)) = event else { continue };
        if claim.metadata.deletion_timestamp.is_some() || !known.insert(claim.uid()) {
            continue;
        }
        let client = client.clone();
        tokio::spawn(async move {
            let what = format!("claim {}", claim.name_any());
            persistently(what, || make(&client, &claim)).await;
        });
    }
}

async fn make(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let uid = claim.uid().unwrap_or_default();
    let spec = claim.spec.clone().unwrap_or_default();
    let size = spec.resources.and_then(|r| r.requests).unwrap_or_default().remove("storage");
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": format!("bench-{uid}"), "labels": { CLASS: "true" } },
        "spec": {
            "storageClassName": CLASS,
            "capacity": { "storage": size },
            "accessModes": spec.access_modes,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": { "path": "/nonexistent" },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": uid,
            },
        },
    }))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    unless("AlreadyExists", volumes.create(&PostParams::default(), &volume).await)?;
    bind(client, claim, &volume).await
}

async fn bind(client: &Client, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<()> {
    let params = PatchParams::default();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
    volumes.patch_status(&volume.name_any(), &params, &bound).await?;

    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let done =
        json!({ "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes" });
    let name = claim.name_any();
    let patch = json!({ "metadata": { "annotations": done }, "spec": { "volumeName": volume.name_any() } });
    // The claim may be gone by now.
    unless("NotFound", claims.patch(&name, &params, &Patch::Merge(patch)).await)?;
    let spec = volume.spec.clone().unwrap_or_default();
    let status = json!({ "status": { "phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity } });
    Ok(unless("NotFound", claims.patch_status(&name, &params, &Patch::Merge(status)).await)?)
}
