//! Objects the Go operator's CRDs admitted stay editable under ours.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::arena::{apply_crd, arena, refused, resource, unique};
use crate::cluster_rules::{cluster, server_tls};

/// The CRD of EtcdCluster under another group, so that nobody else is affected.
fn definition(group: &str) -> Result<Value> {
    let manifests = api::crd::all()?;
    let manifest =
        manifests.into_iter().find(|m| m.kind == "EtcdCluster").context("there is an EtcdCluster")?;
    let mut crd = manifest.definition;
    crd["metadata"]["name"] = json!(format!("etcdclusters.{group}"));
    crd["spec"]["group"] = json!(group);
    Ok(crd)
}

fn without_rules(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

#[tokio::test]
async fn what_was_admitted_before_stays_editable() -> Result<()> {
    let long = "n".repeat(60);
    let odd = [
        ("dots.in.name", cluster(json!({}))),
        (long.as_str(), cluster(json!({}))),
        ("empty-volume", cluster(json!({"storage": {"size": 0}}))),
        ("empty-secret", cluster(json!({"tls": {"client": {"serverSecretRef": {}}}}))),
        (
            "empty-root-secret",
            cluster(json!({"tls": server_tls(), "auth": {"enabled": true, "rootCredentialsSecretRef": {}}})),
        ),
        ("old-version", json!({"version": "3.4.36"})),
        ("a-thousand", cluster(json!({"replicas": 1000}))),
        ("small-memory", cluster(json!({"storage": {"medium": "Memory", "size": "10Mi"}}))),
        (
            "revision-for-a-while",
            cluster(json!({"options": {"autoCompactionMode": "revision", "autoCompactionRetention": "5m"}})),
        ),
        ("empty-peer-secret", cluster(json!({"tls": {"peer": {"secretRef": {"name": ""}}}}))),
    ];
    arena(async |arena| {
        let group = format!("{}.example", unique("stored"));
        let mut lax = definition(&group)?;
        without_rules(&mut lax);
        apply_crd(arena.client.clone(), &lax).await?;
        let kind = resource(&group, "EtcdCluster");
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(arena.client.clone(), &arena.namespace, &kind);

        let outcome = async {
            for (name, spec) in &odd {
                let object = DynamicObject::new(name, &kind).data(json!({"spec": spec}));
                clusters.create(&PostParams::default(), &object).await.context("stored under lax rules")?;
                let status = Patch::Merge(json!({"status": {"readyMembers": 1}}));
                clusters.patch_status(name, &PatchParams::default(), &status).await?;
            }
            apply_crd(arena.client.clone(), &definition(&group)?).await?;
            let new = DynamicObject::new("new.one", &kind).data(json!({"spec": {"version": "99.0.0"}}));
            refused(clusters.create(&PostParams::default(), &new).await, "must not contain dots")?;

            for (name, _) in &odd {
                let edits = [
                    json!({"metadata": {"labels": {"a": "b"}}}),
                    json!({"spec": {"progressDeadlineSeconds": 60}}),
                ];
                for edit in &edits {
                    let edited = clusters.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await;
                    edited.with_context(|| format!("{name} takes {edit}"))?;
                }
                let status = Patch::Merge(json!({"status": {"readyMembers": 2}}));
                let written = clusters.patch_status(name, &PatchParams::default(), &status).await;
                written.with_context(|| format!("{name} takes a status"))?;
            }
            Ok(())
        }
        .await;
        let crds: Api<CustomResourceDefinition> = Api::all(arena.client.clone());
        crds.delete(&format!("etcdclusters.{group}"), &DeleteParams::default()).await?;
        outcome
    })
    .await
}
