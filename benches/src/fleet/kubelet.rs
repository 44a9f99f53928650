//! A stand-in for the kubelets of a fleet: nodes that report for duty, and Pods that run the moment they are scheduled.
//! The API server, the scheduler and the controllers are the real ones.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, EnvVar, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::members::Members;
use super::{persistently, unless};

/// On the nodes, and in the affinity of the fleet's clusters.
pub const LABEL: &str = "etcd-operator-bench/fleet";
const NODES: u32 = 4;
const HEARTBEAT: Duration = Duration::from_secs(2);
const AT_ONCE: usize = 64;
/// Addresses that this machine answers for, see [`super::network`].
const NETWORK: [u8; 2] = [10, 245];

/// Plays the kubelet of every node.
#[derive(Clone)]
pub struct Kubelet {
    client: Client,
    members: Members,
    addresses: Arc<Mutex<HashMap<String, IpAddr>>>,
    last: Arc<AtomicU32>,
    room: Arc<Semaphore>,
}

impl Kubelet {
    pub fn new(client: &Client, members: &Members) -> Self {
        Self {
            client: client.clone(),
            members: members.clone(),
            addresses: Arc::default(),
            last: Arc::default(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Registers the nodes and keeps reporting, until the set is dropped.
    pub async fn join(&self) -> Result<JoinSet<()>> {
        let mut beating = JoinSet::new();
        for number in 1..=NODES {
            let name = format!("bench-{number}");
            self.register(&name).await.with_context(|| format!("registering node {name}"))?;
            let this = self.clone();
            beating.spawn(async move {
                loop {
                    // A missed one is made up for by the next.
                    let _ = this.beat(&name).await;
                    tokio::time::sleep(HEARTBEAT).await;
                }
            });
        }
        Ok(beating)
    }

    async fn register(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let labels = json!({ LABEL: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
        unless("AlreadyExists", nodes.create(&PostParams::default(), &node).await)?;
        let plenty = json!({ "cpu": "10000", "memory": "100Ti", "pods": "100000" });
        let now = Timestamp::now();
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Bench", "message": "",
                            "lastHeartbeatTime": now, "lastTransitionTime": now });
        let status =
            json!({ "status": { "capacity": plenty, "allocatable": plenty, "conditions": [ready] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        self.beat(name).await
    }

    async fn beat(&self, name: &str) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let now = format!("{:.6}", Timestamp::now());
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now } });
        leases.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(lease)).await?;
        Ok(())
    }

    /// Takes the nodes away again.
    pub async fn leave(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.delete_collection(&DeleteParams::default(), &ListParams::default().labels(LABEL)).await?;
        Ok(())
    }

    /// Runs the Pods of a namespace until dropped.
    pub async fn run(self, namespace: String) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let mut events = pin!(watcher::watcher(pods.clone(), watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else { continue };
            let scheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let ending = pod.metadata.deletion_timestamp.is_some();
            let known = pod.uid().is_some_and(|uid| self.address(&uid).is_some());
            if !scheduled || (known && !ending) {
                continue;
            }
            let address = self.assign(&pod, ending);
            let (this, pods) = (self.clone(), pods.clone());
            tokio::spawn(async move {
                let _room = this.room.acquire().await;
                let what = format!("Pod {}", pod.name_any());
                persistently(what, || this.settle(&pods, &pod, address)).await;
            });
        }
    }

    fn address(&self, uid: &str) -> Option<IpAddr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(uid).copied()
    }

    /// The address of a Pod: a new one for one that starts, and nobody's any more for one that ends.
    fn assign(&self, pod: &Pod, ending: bool) -> Option<IpAddr> {
        let uid = pod.uid()?;
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if ending {
            return addresses.remove(&uid);
        }
        let [_, _, high, low] = (self.last.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
        let address = IpAddr::from(Ipv4Addr::new(NETWORK[0], NETWORK[1], high, low));
        addresses.insert(uid, address);
        Some(address)
    }

    async fn settle(&self, pods: &Api<Pod>, pod: &Pod, address: Option<IpAddr>) -> Result<()> {
        match pod.metadata.deletion_timestamp {
            Some(_) => self.end(pods, pod, address).await,
            None => self.start(pods, pod, address).await,
        }
    }

    async fn start(&self, pods: &Api<Pod>, pod: &Pod, address: Option<IpAddr>) -> Result<()> {
        let address = address.context("it has no UID")?;
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("it is empty")?;
        self.members.start(address, &command(pod, container))?;
        let now = Timestamp::now();
        let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": now });
        let conditions = ["Initialized", "ContainersReady", "Ready", "PodScheduled"].map(condition);
        let status = json!({ "status": {
            "phase": "Running",
            "hostIP": "127.0.0.1",
            "podIP": address,
            "podIPs": [{ "ip": address }],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [{
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
                "ready": true, "started": true, "state": { "running": { "startedAt": now } },
            }],
        }});
        self.patch(pods, &pod.name_any(), status).await
    }

    async fn end(&self, pods: &Api<Pod>, pod: &Pod, address: Option<IpAddr>) -> Result<()> {
        if let Some(address) = address {
            self.members.stop(address);
        }
        Ok(unless("NotFound", pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await)?)
    }

    async fn patch(&self, pods: &Api<Pod>, name: &str, status: Value) -> Result<()> {
        // It may be gone by now.
        Ok(unless(
            "NotFound",
            pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await,
        )?)
    }

    /// Lets the etcd of a Pod fall silent and the Pod become unready, or the opposite, as a readiness probe would.
    pub async fn silence(&self, pod: &Pod, silent: bool) -> Result<()> {
        let uid = pod.uid().unwrap_or_default();
        let address = self.address(&uid).context("no such Pod runs")?;
        self.members.silence(address, silent);
        let status = if silent { "False" } else { "True" };
        let condition =
            |type_: &str| json!({ "type": type_, "status": status, "lastTransitionTime": Timestamp::now() });
        let conditions = ["ContainersReady", "Ready"].map(condition);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        self.patch(&pods, &pod.name_any(), json!({ "status": { "conditions": conditions } })).await
    }
}

/// The command line with the variables filled in that come from the Pod's annotations.
fn command(pod: &Pod, container: &Container) -> Vec<String> {
    let annotation = |variable: &EnvVar| {
        let path = &variable.value_from.as_ref()?.field_ref.as_ref()?.field_path;
        let key = path.strip_prefix("metadata.annotations['")?.strip_suffix("']")?;
        Some((format!("$({})", variable.name), pod.annotations().get(key)?.clone()))
    };
    let variables: Vec<_> = container.env.iter().flatten().filter_map(annotation).collect();
    let fill = |word: &String| {
        variables.iter().fold(word.clone(), |word, (variable, value)| word.replace(variable, value))
    };
    container.command.iter().flatten().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_from_annotations() {
        let env = json!([{ "name": "STATE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.annotations['a/state']" } } }]);
        let container =
            json!({ "name": "etcd", "env": env, "command": ["etcd", "--state=$(STATE)", "--other=$(X)"] });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "annotations": { "a/state": "new" } }, "spec": { "containers": [container] } }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert_eq!(command(&pod, container), ["etcd", "--state=new", "--other=$(X)"]);
    }
}
