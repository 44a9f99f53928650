//! What else users see: accepted objects, defaults, plain validation, `/scale`, columns, the chart's examples.

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::arena::{Arena, arena, refused};
use crate::cluster_rules::{cluster, memory, server_tls};

const CLUSTER: &str = "EtcdCluster";

#[tokio::test]
async fn objects_that_must_be_admitted() -> Result<()> {
    let own = json!({"client": {"serverSecretRef": {"name": "s"}, "operatorClientSecretRef": {"name": "o"}},
        "peer": {"secretRef": {"name": "p"}}});
    let issued = |kind: &str| {
        let issuer = json!({"name": "ca", "kind": kind});
        json!({"client": {"certManager": {"serverIssuerRef": issuer, "operatorClientIssuerRef": issuer}},
            "peer": {"certManager": {"issuerRef": issuer}}})
    };
    let s3 = json!({"s3": {"endpoint": "https://s3", "bucket": "b", "key": "k", "region": "eu", "forcePathStyle": true,
        "credentialsSecretRef": {"name": "c"}}});
    let auth = json!({"enabled": true, "rootCredentialsSecretRef": {"name": "root"}});
    let options = |quota: i64, mode: &str, retention: &str| json!({"quotaBackendBytes": quota, "autoCompactionMode": mode, "autoCompactionRetention": retention, "snapshotCount": 1});
    let specs = [
        cluster(json!({})),
        cluster(json!({"replicas": 4})),
        cluster(json!({"replicas": 0})),
        cluster(json!({"tls": {}})),
        cluster(json!({"tls": own})),
        cluster(json!({"tls": issued("Issuer")})),
        cluster(json!({"tls": issued("ClusterIssuer")})),
        cluster(json!({"storage": {"storageClassName": "fast"}})),
        cluster(json!({"storage": {"storageClassName": ""}})),
        cluster(json!({"tls": server_tls(), "auth": auth})),
        cluster(json!({"bootstrap": {"restore": {"source": s3}}})),
        cluster(
            json!({"bootstrap": {"restore": {"source": {"pvc": {"claimName": "c", "subPath": "a.db"}}}}}),
        ),
        cluster(json!({"options": options(10_200_547_328, "periodic", "5m")})),
        cluster(json!({"options": options(0, "revision", "1000")})),
        cluster(json!({"options": options(1, "periodic", "1h30m")})),
        cluster(json!({"resources": {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"cpu": "1500m"}}})),
        memory(json!("256Mi")),
    ];
    arena(async |arena| {
        for spec in specs {
            arena.accepts(CLUSTER, spec).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn plain_validation() -> Result<()> {
    let refused = [
        (json!({"version": "v3.6.16"}), "spec.version must be three numbers like 3.6.16"),
        (json!({"version": "3.6"}), "spec.version must be three numbers like 3.6.16"),
        (json!({"version": "3.6.16-rc.0"}), "spec.version must be three numbers like 3.6.16"),
        (json!({"version": ""}), "spec.version must be three numbers like 3.6.16"),
        (cluster(json!({"replicas": -1})), "spec.replicas"),
        (cluster(json!({"progressDeadlineSeconds": 0})), "spec.progressDeadlineSeconds"),
        (cluster(json!({"storage": {"size": "much"}})), "spec.storage.size"),
        (cluster(json!({"storage": {"size": "1GB"}})), "must be a quantity like 1Gi or 500Mi"),
        (cluster(json!({"storage": {"medium": "Disk"}})), "spec.storage.medium"),
        (cluster(json!({"options": {"autoCompactionMode": "hourly"}})), "spec.options.autoCompactionMode"),
        (cluster(json!({"options": {"autoCompactionRetention": "five-minutes"}})), "autoCompactionRetention"),
        (cluster(json!({"options": {"quotaBackendBytes": -1}})), "spec.options.quotaBackendBytes"),
        (cluster(json!({"options": {"snapshotCount": 0}})), "spec.options.snapshotCount"),
        (cluster(json!({"topologySpreadConstraints": [{"maxSkew": 1}]})), "topologyKey"),
        (cluster(json!({"tls": {"peer": {"certManager": {"issuerRef": {"name": ""}}}}})), "issuerRef.name"),
        (
            cluster(json!({"tls": {"peer": {"certManager": {"issuerRef": {"name": "a", "kind": "CA"}}}}})),
            "issuerRef.kind",
        ),
        (cluster(json!({"bootstrap": {"restore": {}}})), "spec.bootstrap.restore.source: Required value"),
    ];
    arena(async |arena| {
        for (spec, fragment) in refused {
            arena.refuses(CLUSTER, spec, fragment).await?;
        }
        let member = |replicas: i32| {
            json!({"clusterName": "c", "version": "99.0.0", "storage": {}, "initialCluster": "", "clusterToken": "t", "replicas": replicas})
        };
        for (medium, wrong) in [("", "must be > 0"), ("Memory", "must be > 0"), ("Memory", "64M")] {
            let spec = cluster(json!({"storage": {"medium": medium, "size": "1GB"}}));
            arena.does_not_say(CLUSTER, spec, wrong).await?;
        }
        arena.does_not_say(CLUSTER, json!({"version": "v3.4.1"}), "[0-9]").await?;
        arena.accepts("EtcdMember", member(1)).await?;
        arena.refuses("EtcdMember", member(2), "spec.replicas").await?;
        arena.refuses("EtcdMember", json!({"clusterName": ""}), "spec.initialCluster: Required value").await
    })
    .await
}

#[tokio::test]
async fn defaults() -> Result<()> {
    arena(async |arena| {
        let stored = arena.accepts(CLUSTER, json!({"version": "3.6.16"})).await?;
        let expected = json!({"version": "3.6.16", "replicas": 3, "progressDeadlineSeconds": 600,
            "storage": {"size": "1Gi", "medium": ""}});
        ensure!(stored.data["spec"] == expected, "{}", stored.data["spec"]);

        let issuer = json!({"tls": {"peer": {"certManager": {"issuerRef": {"name": "ca"}}}}, "storage": {"size": 5}});
        let stored = arena.accepts(CLUSTER, cluster(issuer)).await?;
        ensure!(stored.data.pointer("/spec/tls/peer/certManager/issuerRef/kind") == Some(&json!("Issuer")));
        ensure!(stored.data["spec"]["storage"] == json!({"size": 5, "medium": ""}));

        let member = json!({"clusterName": "c", "version": "99.0.0", "storage": {}, "initialCluster": "", "clusterToken": "t"});
        let stored = arena.accepts("EtcdMember", member).await?;
        ensure!(stored.data["spec"]["replicas"] == 1);
        ensure!(stored.data["spec"]["storage"] == json!({"size": "1Gi", "medium": ""}));
        ensure!(stored.data["spec"]["initialCluster"] == "");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn clusters_scale() -> Result<()> {
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, memory(json!("64Mi"))).await?;
        let selector = api::labels::cluster_selector(&stored.name);
        stored.set_status(&json!({"readyMembers": 1, "selector": selector})).await?;

        let scale = stored.api.get_scale(&stored.name).await?;
        ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(1));
        let status = scale.status.context("/scale has a status")?;
        ensure!(status.replicas == 1 && status.selector.as_deref() == Some(&selector), "{status:?}");

        let replicas = |n: i32| Patch::Merge(json!({"spec": {"replicas": n}}));
        stored.api.patch_scale(&stored.name, &PatchParams::default(), &replicas(5)).await?;
        ensure!(stored.api.get(&stored.name).await?.data["spec"]["replicas"] == 5);
        let paused = stored.api.patch_scale(&stored.name, &PatchParams::default(), &replicas(0)).await;
        refused(paused, "replicas=0 with spec.storage.medium=Memory")
    })
    .await
}

#[tokio::test]
async fn h29_members_scale() -> Result<()> {
    arena(async |arena| {
        let spec = json!({"clusterName": "c", "version": "99.0.0", "storage": {}, "initialCluster": "", "clusterToken": "t"});
        let stored = arena.stored("EtcdMember", spec).await?;
        stored.set_status(&json!({"replicas": 1, "selector": api::labels::member_selector("c", &stored.name)})).await?;
        let scale = stored.api.get_scale(&stored.name).await?;
        ensure!(scale.spec.and_then(|spec| spec.replicas) == Some(1));
        ensure!(scale.status.is_some_and(|status| status.replicas == 1));
        let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
        refused(stored.api.patch_scale(&stored.name, &PatchParams::default(), &two).await, "spec.replicas")
    })
    .await
}

/// Column names and the one row as `kubectl get` asks for them.
async fn table(arena: &Arena, plural: &str) -> Result<(Vec<String>, Vec<Value>)> {
    let path = format!("/apis/{}/{}/namespaces/{}/{plural}", api::GROUP, api::VERSION, arena.namespace);
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = arena.client.request(request).await?;
    let columns = table["columnDefinitions"].as_array().context("a table has columns")?;
    let names = columns.iter().filter_map(|column| column["name"].as_str()).map(str::to_owned).collect();
    let row = table["rows"][0]["cells"].as_array().context("a table has a row")?;
    Ok((names, row.clone()))
}

#[tokio::test]
async fn columns() -> Result<()> {
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, cluster(json!({}))).await?;
        let lost = json!({"type": "Available", "status": "False", "reason": "QuorumLost", "message": "",
            "lastTransitionTime": "2026-11-15T20:15:43Z"});
        stored.set_status(&json!({"readyMembers": 0, "version": "98.0.0", "conditions": [lost]})).await?;
        let (names, row) = table(&arena, "etcdclusters").await?;
        ensure!(
            names == ["Name", "Version", "Replicas", "Ready", "Running", "Status", "Age"],
            "{names:?}"
        );
        ensure!(row[1..6] == [json!("99.0.0"), json!(3), json!(0), json!("98.0.0"), json!("QuorumLost")], "{row:?}");

        let spec = json!({"clusterName": "c", "version": "99.0.0", "storage": {}, "initialCluster": "", "clusterToken": "t"});
        let stored = arena.stored("EtcdMember", spec).await?;
        let ready = json!({"type": "Ready", "status": "True", "reason": "PodReady", "message": "",
            "lastTransitionTime": "2026-11-15T20:15:43Z"});
        stored.set_status(&json!({"version": "99.0.1", "role": "leader", "conditions": [ready]})).await?;
        let (names, row) = table(&arena, "etcdmembers").await?;
        ensure!(names == ["Name", "Cluster", "Version", "Running", "Ready", "Role", "Age"], "{names:?}");
        ensure!(
            row[1..6] == [json!("c"), json!("99.0.0"), json!("99.0.1"), json!("True"), json!("leader")],
            "{row:?}"
        );

        let spec = json!({"clusterRef": {"name": "c"}, "destination": {"pvc": {"claimName": "backups"}}});
        let stored = arena.stored("EtcdSnapshot", spec).await?;
        stored.set_status(&json!({"phase": "Started"})).await?;
        let (names, row) = table(&arena, "etcdsnapshots").await?;
        ensure!(names == ["Name", "Cluster", "Phase", "Age"], "{names:?}");
        ensure!(row[1..3] == [json!("c"), json!("Started")], "{row:?}");

        let stored = arena.stored("EtcdDefrag", json!({"clusterRef": {"name": "c"}})).await?;
        stored.set_status(&json!({"phase": "Running", "defragmented": 1})).await?;
        let (names, row) = table(&arena, "etcddefrags").await?;
        ensure!(names == ["Name", "Cluster", "Phase", "Defragmented", "Age"], "{names:?}");
        ensure!(row[1..4] == [json!("c"), json!("Running"), json!(1)], "{row:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn names_of_the_kinds() -> Result<()> {
    arena(async |arena| {
        let crds: Api<CustomResourceDefinition> = Api::all(arena.client.clone());
        for ours in [
            api::EtcdCluster::crd(),
            api::EtcdMember::crd(),
            api::EtcdSnapshot::crd(),
            api::EtcdDefrag::crd(),
        ] {
            let name = ours.metadata.name.context("a CRD has a name")?;
            let crd = crds.get(&name).await?;
            let names =
                crd.status.and_then(|status| status.accepted_names).context("its names are accepted")?;
            ensure!(names.list_kind == Some(format!("{}List", names.kind)), "{names:?}");
            let short = match names.kind.as_str() {
                "EtcdCluster" => Some(vec!["etcdc".to_owned()]),
                "EtcdMember" => Some(vec!["etcdm".to_owned()]),
                _ => None,
            };
            ensure!(names.short_names == short && names.categories.is_none(), "{names:?}");
        }
        Ok(())
    })
    .await
}

/// Everything a status of ours can hold is kept by the schema.
#[tokio::test]
async fn a_full_status_is_kept() -> Result<()> {
    arena(async |arena| {
        let stored = arena.stored(CLUSTER, cluster(json!({}))).await?;
        let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
            "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}]}});
        let status = json!({
            "readyMembers": 1, "brokenMembers": 1, "selector": "a=b", "clusterID": "00000000000000c1", "clusterToken": "t",
            "version": "3.6.16..3.7.3", "authEnabled": true, "progressDeadline": "2026-11-15T20:15:43Z",
            "observed": {
                "replicas": 3, "version": "99.0.0", "storage": {"size": "1Gi", "medium": ""},
                "resources": {"limits": {"cpu": "1"}}, "affinity": affinity, "options": {"snapshotCount": 5},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "additionalMetadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "imagePullSecrets": [{"name": "pull"}]
            },
            "conditions": [{"type": "Available", "status": "False", "reason": "Paused", "message": "",
                "lastTransitionTime": "2026-11-15T20:15:43Z", "observedGeneration": 1}]
        });
        let written = stored.set_status(&status).await?;
        ensure!(written.data["status"] == status, "{}", written.data["status"]);

        let spec = json!({"clusterName": "c", "version": "99.0.0", "storage": {}, "initialCluster": "", "clusterToken": "t"});
        let stored = arena.stored("EtcdMember", spec).await?;
        let status = json!({
            "memberID": "00000000000000c1", "clusterID": "00000000000000c2", "podName": "p", "podUID": "u", "isVoter": true,
            "role": "leader", "replicas": 1, "selector": "a=b", "pvcName": "d", "pvcUID": "v", "version": "3.6.16"
        });
        let written = stored.set_status(&status).await?;
        ensure!(written.data["status"] == status, "{}", written.data["status"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_examples_are_admitted() -> Result<()> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    arena(async |arena| {
        for entry in std::fs::read_dir(dir).with_context(|| format!("cannot read {dir}"))? {
            let path = entry?.path();
            let example: Value = serde_norway::from_str(&std::fs::read_to_string(&path)?)?;
            let (kind, name) = (&example["kind"], &example["metadata"]["name"]);
            let (Some(kind), Some(name)) = (kind.as_str(), name.as_str()) else {
                anyhow::bail!("{} has no kind or name", path.display());
            };
            let stored = arena.accepts_named(kind, name, example["spec"].clone()).await?;
            let kept: Value = stored.data["spec"].clone();
            ensure!(includes(&kept, &example["spec"]), "{} lost fields: {kept}", path.display());
        }
        Ok(())
    })
    .await
}

/// Whether `whole` has everything that `part` has: an unknown field would have been pruned.
fn includes(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| includes(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| includes(whole, part))
        }
        _ => whole == part,
    }
}
