//! What a cluster is made of, by UID: what must still be there after somebody has touched the objects around it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use api::{EtcdCluster, EtcdClusterSpec, names};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::command::run;
use crate::wait::{LONG, SHORT, wait_for};
use crate::{Cluster, condition};

/// Name to UID.
pub type Uids = BTreeMap<String, Option<String>>;

/// Two of these are equal if nobody was made, replaced, restarted or lost in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    pub members: Uids,
    /// With the number of restarts.
    pub pods: BTreeMap<String, (Option<String>, i32)>,
    pub claims: Uids,
    pub services: Uids,
    pub budgets: Uids,
}

impl Cluster {
    pub async fn identity(&self) -> Result<Identity> {
        Ok(Identity {
            members: uids(&self.members().await?),
            pods: self.pods().await?.iter().map(|p| (p.name_any(), (p.uid(), restarts(p)))).collect(),
            claims: self.claim_uids().await?,
            services: uids(&self.arena.list::<Service>().await?),
            budgets: uids(&self.arena.list::<PodDisruptionBudget>().await?),
        })
    }

    /// Deletes the EtcdCluster alone, as `kubectl delete --cascade=orphan` does, and waits until it is gone.
    pub async fn orphan(&self) -> Result<()> {
        self.delete(&DeleteParams::orphan()).await?;
        wait_for(&format!("EtcdCluster {} to be gone", self.name), SHORT, async || {
            let found = self.arena.api::<EtcdCluster>().get_opt(&self.name).await?;
            ensure!(found.is_none(), "it is still there");
            Ok(())
        })
        .await
    }

    /// Removes everything the operator has written down about the cluster, as restoring objects from a backup does.
    pub async fn forget_status(&self) -> Result<()> {
        let nothing = Patch::Merge(json!({"status": null}));
        let api = self.arena.api::<EtcdCluster>();
        let left = api.patch_status(&self.name, &PatchParams::default(), &nothing).await?;
        ensure!(left.status.is_none(), "the status is still there: {:?}", left.status);
        Ok(())
    }

    /// Edits the spec, as `kubectl apply` of a corrected manifest does.
    pub async fn edit(&self, spec: serde_json::Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.arena.api::<EtcdCluster>().patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates the EtcdCluster again under its name.
    pub async fn create_again(&self, spec: EtcdClusterSpec) -> Result<()> {
        self.arena.create(&self.name, spec).await?;
        Ok(())
    }

    /// Services and budget have this EtcdCluster, and nobody else, for an owner; so have the members.
    pub async fn owns_its_objects(&self) -> Result<()> {
        wait_for(&format!("{} to own its objects", self.name), LONG, async || {
            let uid = self.get().await?.uid().context("a stored object has a UID")?;
            owned("Service", &self.arena.list::<Service>().await?, &uid)?;
            owned("PodDisruptionBudget", &self.arena.list::<PodDisruptionBudget>().await?, &uid)?;
            owned("EtcdMember", &self.members().await?, &uid)
        })
        .await
    }

    /// The client Service leads to exactly the Pods of the EtcdMembers there are.
    pub async fn is_served_by_its_members(&self) -> Result<()> {
        let of_client = format!("kubernetes.io/service-name={}", names::client_service(&self.name));
        let of_client = ListParams::default().labels(&of_client);
        wait_for("the client Service to lead to every member and nobody else", SHORT, async || {
            let members = uids(&self.members().await?);
            let pods = self.arena.list::<Pod>().await?;
            let pods = pods.iter().filter(|pod| members.contains_key(&pod.name_any()));
            let mut expected: Vec<_> = pods.filter_map(|p| p.status.as_ref()?.pod_ip.clone()).collect();
            let slices = self.arena.api::<EndpointSlice>().list(&of_client).await?;
            let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
            let ready = endpoints.filter(|e| e.conditions.as_ref().is_some_and(|c| c.ready == Some(true)));
            let mut found: Vec<_> = ready.flat_map(|e| e.addresses).collect();
            expected.sort();
            found.sort();
            ensure!(found == expected, "it leads to {found:?}, the Pods are {expected:?}");
            Ok(())
        })
        .await
    }

    /// A key read through the client Service's own address, each time over a new connection, `times` times. All answers.
    pub async fn read_through_service(&self, key: &str, times: usize) -> Result<Vec<String>> {
        let service = self.arena.api::<Service>().get(&names::client_service(&self.name)).await?;
        let ip =
            service.spec.and_then(|spec| spec.cluster_ip).context("the client Service has an address")?;
        let endpoint = format!("--endpoints=http://{ip}:{}", names::CLIENT_PORT);
        let mut answers = vec![];
        for _ in 0..times {
            let etcdctl = ["etcdctl", &endpoint, "get", key, "--print-value-only"];
            let line = ["node", "exec", "node1", "--"].into_iter().chain(etcdctl).collect::<Vec<_>>();
            answers.push(run("lab", &line).await?.trim().to_owned());
        }
        Ok(answers)
    }

    /// Waits until one condition or one warning contains all of these words; returns it.
    pub async fn tells(&self, words: &[&str]) -> Result<String> {
        wait_for(&format!("{} to tell of {}", self.name, words.join(", ")), SHORT, async || {
            let conditions = self.status().await?.conditions;
            let said =
                conditions.iter().map(|c| format!("{}={}/{}: {}", c.type_, c.status, c.reason, c.message));
            let mut said: Vec<_> = said.collect();
            said.extend(self.arena.warnings().await?);
            let found = said.iter().find(|text| words.iter().all(|word| text.contains(word)));
            Ok(found.with_context(|| format!("it says only {said:#?}"))?.clone())
        })
        .await
    }

    /// Waits until the message of a condition contains all of these words; returns the message.
    pub async fn explains(&self, condition_type: &str, words: &[&str]) -> Result<String> {
        let what = format!("{condition_type} of {} to say {}", self.name, words.join(", "));
        wait_for(&what, LONG, async || {
            let conditions = self.status().await?.conditions;
            let message = conditions.iter().find(|c| c.type_ == condition_type).map(|c| c.message.clone());
            let message = message.unwrap_or_default();
            let missing: Vec<_> = words.iter().filter(|word| !message.contains(**word)).collect();
            let now = condition(&conditions, condition_type);
            ensure!(missing.is_empty(), "{missing:?} is not in {condition_type}={now}: {message}");
            Ok(message)
        })
        .await
    }
}

pub fn uids<K: ResourceExt>(objects: &[K]) -> Uids {
    objects.iter().map(|object| (object.name_any(), object.uid())).collect()
}

pub fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

fn owned<K: ResourceExt>(kind: &str, objects: &[K], owner: &str) -> Result<()> {
    for object in objects {
        let owners: Vec<_> = object.owner_references().iter().map(|o| o.uid.as_str()).collect();
        ensure!(owners == [owner], "{kind} {} is owned by {owners:?} and not by {owner}", object.name_any());
    }
    Ok(())
}
