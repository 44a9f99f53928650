//! Clusters as other operators leave them: real etcd in real Pods, every object in the shape that the other one gave it.
//! To be made while no operator runs.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use api::{EtcdCluster, EtcdMember, labels, names};
use etcd::{Etcd as _, Membership, Pool};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::endpoint;
use crate::command::checkout;
use crate::wait::{LONG, SHORT, wait_for};
use crate::{Arena, Cluster};

/// Three members on volumes, as the Go operator leaves them.
pub async fn go_operator(arena: &Arena) -> Result<Cluster> {
    let mut words = Words::default();
    words.replace("default-my-etcd-", &format!("{}-my-etcd-", arena.namespace));
    words.replace(".default.svc", &format!(".{}.svc", arena.namespace));

    let found = load("crates/api/tests/fixtures/my-etcd-cluster.yaml")?.remove(0);
    let cluster: EtcdCluster = store(arena, &mut words, &found).await?;
    for service in load("tests/fixtures/go-operator/my-etcd-svc.yaml")? {
        store::<Service>(arena, &mut words, &service).await?;
    }
    for budget in load("tests/fixtures/go-operator/my-etcd-pdb.yaml")? {
        store::<PodDisruptionBudget>(arena, &mut words, &budget).await?;
    }
    let mut members = load("crates/api/tests/fixtures/my-etcd-etcdmember.yaml")?;
    // In the order in which they joined: each was told those before it, and itself.
    members.sort_by_key(|member| member["spec"]["initialCluster"].as_str().map(str::len));
    for member in &members {
        store::<EtcdMember>(arena, &mut words, member).await?;
    }
    for claim in load("tests/fixtures/go-operator/my-etcd-pvc.yaml")? {
        store::<PersistentVolumeClaim>(arena, &mut words, &claim).await?;
    }

    let left = Cluster { arena: arena.clone(), name: cluster.name_any() };
    let pods = load("tests/fixtures/go-operator/my-etcd-pod.yaml")?;
    for member in &members {
        let name = member["metadata"]["name"].as_str().context("a member has a name")?;
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name).context("a member has a Pod")?;
        join(&left, &mut words, name, pod).await?;
    }
    tell(&left, &words, &found, &members).await?;
    Ok(left)
}

/// Starts the next member, as the Go operator does: a learner first, its vote before the next one comes.
async fn join(cluster: &Cluster, words: &mut Words, name: &str, pod: &Value) -> Result<()> {
    let pool = Pool::default();
    let seed = cluster.pods().await?.first().and_then(endpoint);
    let peer_url = names::peer_url(false, name, &cluster.name, &cluster.arena.namespace);
    if let Some(seed) = &seed {
        // Five seconds after the last promotion at the earliest.
        wait_for(&format!("etcd to take {name}"), SHORT, async || {
            Ok(pool.add_learner(seed, &peer_url).await?)
        })
        .await?;
    }
    store::<Pod>(&cluster.arena, words, pod).await?;
    let id = wait_for(&format!("{name} to serve"), LONG, async || {
        let pod = cluster.arena.api::<Pod>().get(name).await?;
        let at = endpoint(&pod).context("it has no address yet")?;
        Ok(pool.status(&at).await?.member_id)
    })
    .await?;
    if let Some(seed) = &seed {
        wait_for(&format!("{name} to get its vote"), SHORT, async || Ok(pool.promote(seed, id).await?))
            .await?;
    }
    Ok(())
}

/// Three members as the migration tool leaves them: Pods with ordinals below a headless Service of their own, peers that
/// speak TLS with certificates of their own making, data in a directory below the volume's root, and no owner.
pub async fn legacy(arena: &Arena) -> Result<Cluster> {
    let (name, headless) = ("my-legacy", "my-legacy-headless");
    let url = |i: u32| format!("my-legacy-{i}=https://my-legacy-{i}.{headless}.{}.svc:2380", arena.namespace);
    let (initial, token) = ([0, 1, 2].map(url).join(","), format!("{name}-{}", arena.namespace));
    let ports = json!([{"name": "client", "port": 2379}, {"name": "peer", "port": 2380}]);

    let spec = json!({"replicas": 3, "version": "3.6.16", "storage": {"size": "1Gi"}});
    let annotations = json!({labels::annotation::PEER_AUTO_TLS: "true"});
    let cluster = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
    let mut words = Words::default();
    store::<EtcdCluster>(arena, &mut words, &cluster).await?;
    for ordinal in 0..3 {
        let member = format!("{name}-{ordinal}");
        let overrides = json!({
            labels::annotation::HEADLESS_SERVICE_NAME: headless,
            labels::annotation::DATA_DIR_SUBPATH: "default.etcd",
        });
        let object = json!({
            "metadata": {"name": member, "labels": labels::for_member(name, &member), "annotations": overrides},
            "spec": {
                "clusterName": name, "clusterToken": token, "initialCluster": initial, "version": "3.6.16",
                "storage": {"size": "1Gi"}, "tls": {"peerAutoTLS": true},
            },
        });
        let owner: EtcdMember = store(arena, &mut words, &object).await?;
        let owners = owner.controller_owner_ref(&()).into_iter().collect::<Vec<_>>();
        let mut labels = labels::for_member(name, &member);
        let claim = json!({
            "metadata": {"name": names::pvc(&member), "labels": labels, "ownerReferences": owners},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        store::<PersistentVolumeClaim>(arena, &mut words, &claim).await?;
        labels.insert(labels::ROLE.to_owned(), labels::VOTER.to_owned());
        let pod = json!({
            "metadata": {"name": member, "labels": labels, "ownerReferences": owners},
            "spec": legacy_pod(&arena.namespace, &member, headless, &initial, &token),
        });
        store::<Pod>(arena, &mut words, &pod).await?;
    }
    let members: Vec<EtcdMember> = arena.list().await?;
    let owners: Vec<_> = members.iter().filter_map(|m| m.owner_ref(&())).collect();
    let service = json!({
        "metadata": {"name": headless, "ownerReferences": owners},
        "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": true, "ports": ports,
            "selector": labels::select_cluster(name),
        },
    });
    store::<Service>(arena, &mut words, &service).await?;

    let left = Cluster { arena: arena.clone(), name: name.to_owned() };
    let status = json!({"status": {
        "clusterToken": token,
        "observed": {"replicas": 3, "version": "3.6.16", "storage": {"size": "1Gi"}},
    }});
    let member = |m: &EtcdMember| json!({"metadata": {"name": m.name_any()}, "status": {"isVoter": true}});
    tell(&left, &words, &status, &members.iter().map(member).collect::<Vec<_>>()).await?;
    Ok(left)
}

fn legacy_pod(namespace: &str, member: &str, headless: &str, initial: &str, token: &str) -> Value {
    let host = names::dns_name(member, headless, namespace);
    json!({
        "hostname": member,
        "subdomain": headless,
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
        "containers": [{
            "name": "etcd",
            "image": "quay.io/coreos/etcd:v3.6.16",
            "command": [
                "etcd", format!("--name={member}"), "--listen-peer-urls=https://0.0.0.0:2380",
                "--listen-client-urls=http://0.0.0.0:2379",
                format!("--initial-advertise-peer-urls=https://{host}:2380"),
                "--data-dir=/var/run/etcd/default.etcd", format!("--advertise-client-urls=http://{host}:2379"),
                "--peer-auto-tls", "--initial-cluster-state=new", format!("--initial-cluster={initial}"),
                format!("--initial-cluster-token={token}"), "--listen-metrics-urls=http://0.0.0.0:2381",
            ],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 2381}, "periodSeconds": 1},
            "volumeMounts": [{"name": "data", "mountPath": "/var/run/etcd"}],
        }],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": names::pvc(member)}}],
    })
}

/// Writes the statuses, with the ids that this etcd has and the UIDs that these objects got.
async fn tell(cluster: &Cluster, words: &Words, found: &Value, members: &[Value]) -> Result<()> {
    let list: Membership = wait_for("all members to vote", LONG, async || {
        let list = cluster.etcd().await?;
        let started = list.voters().filter(|voter| !voter.name.is_empty()).count();
        ensure!(started == members.len(), "{started} do");
        Ok(list)
    })
    .await?;
    let api = cluster.arena.api::<EtcdMember>();
    for member in members {
        let name = member["metadata"]["name"].as_str().unwrap_or_default();
        let row = list.members.iter().find(|row| row.name == name).context("a member is in etcd")?;
        let mut status = words.apply(&member["status"])?;
        status["memberID"] = json!(format!("{:016x}", row.id));
        status["podName"] = json!(name);
        status["podUID"] = json!(cluster.arena.api::<Pod>().get(name).await?.uid());
        status["pvcName"] = json!(names::pvc(name));
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch).await?;
    }
    let mut status = words.apply(&found["status"])?;
    status["clusterID"] = json!(format!("{:016x}", list.cluster_id));
    let patch = Patch::Merge(json!({"status": status}));
    cluster.arena.api::<EtcdCluster>().patch_status(&cluster.name, &PatchParams::default(), &patch).await?;
    wait_for("every Pod to be ready", LONG, async || {
        let ready = cluster.doors().await?.len();
        ensure!(ready == members.len(), "{ready} are");
        Ok(())
    })
    .await
}

/// What is called otherwise here than where the objects come from.
#[derive(Default)]
struct Words(BTreeMap<String, String>);

impl Words {
    fn replace(&mut self, old: &str, new: &str) {
        self.0.insert(old.to_owned(), new.to_owned());
    }

    fn apply(&self, object: &Value) -> Result<Value> {
        let mut text = object.to_string();
        for (old, new) in &self.0 {
            text = text.replace(old, new);
        }
        Ok(serde_json::from_str(&text)?)
    }
}

/// Objects of a file, one or a list.
fn load(path: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(checkout(path)).with_context(|| path.to_owned())?;
    let mut parsed: Value = serde_norway::from_str(&text)?;
    match parsed["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(vec![parsed]),
    }
}

/// Creates an object without what only a server can give, and remembers its new UID.
async fn store<K>(arena: &Arena, words: &mut Words, found: &Value) -> Result<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let mut object = words.apply(found)?;
    let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
    for path in ["/metadata", "/spec", ""] {
        let Some(part) = object.pointer_mut(path).and_then(Value::as_object_mut) else { continue };
        for given in ["namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "status"] {
            part.remove(given);
        }
        for bound in ["nodeName", "volumeName", "storageClassName", "clusterIPs"] {
            part.remove(bound);
        }
        part.retain(|key, value| key != "clusterIP" || value == "None");
        if let Some(notes) = part.get_mut("annotations").and_then(Value::as_object_mut) {
            notes.retain(|key, _| key.starts_with(labels::PREFIX));
        }
    }
    let object: K = serde_json::from_value(object)?;
    let stored = arena.api::<K>().create(&PostParams::default(), &object).await?;
    if let (Some(old), Some(new)) = (uid, stored.uid()) {
        words.replace(&old, &new);
    }
    Ok(stored)
}
