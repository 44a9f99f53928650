//! One EtcdCluster: as its user sees it, and the etcd behind it as its clients see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use anyhow::{Context, Result, ensure};
use api::{
    EtcdCluster, EtcdClusterSpec, EtcdClusterStatus, EtcdMember, StorageMedium, StorageSpec, conditions,
    labels, names,
};
use etcd::{Endpoint, Etcd as _, Membership, Pool};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::wait::{LONG, SHORT, wait_for};
use crate::{Arena, Kv};

/// The version of etcd that tests use unless it is their subject.
const VERSION: &str = "3.6.16";

/// A cluster on volumes of its own.
pub fn on_volumes(replicas: i32) -> EtcdClusterSpec {
    let storage = StorageSpec { size: Quantity("1Gi".to_owned()), ..StorageSpec::default() };
    EtcdClusterSpec { replicas: Some(replicas), version: VERSION.to_owned(), storage, ..Default::default() }
}

/// A cluster that keeps its data in memory: quicker, where volumes are not the point.
pub fn in_memory(replicas: i32) -> EtcdClusterSpec {
    let storage = StorageSpec {
        size: Quantity("128Mi".to_owned()),
        medium: StorageMedium::Memory,
        ..StorageSpec::default()
    };
    EtcdClusterSpec { storage, ..on_volumes(replicas) }
}

/// An EtcdCluster in a test's namespace.
#[derive(Clone)]
pub struct Cluster {
    pub arena: Arena,
    pub name: String,
}

impl Cluster {
    pub async fn get(&self) -> Result<EtcdCluster> {
        Ok(self.arena.api().get(&self.name).await?)
    }

    pub async fn status(&self) -> Result<EtcdClusterStatus> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// Its EtcdMembers, oldest first.
    pub async fn members(&self) -> Result<Vec<EtcdMember>> {
        self.list().await
    }

    /// Its Pods, oldest first.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        self.list().await
    }

    pub async fn claims(&self) -> Result<Vec<PersistentVolumeClaim>> {
        self.list().await
    }

    async fn list<K>(&self) -> Result<Vec<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let ours = ListParams::default().labels(&labels::cluster_selector(&self.name));
        let mut objects = self.arena.api::<K>().list(&ours).await?.items;
        objects.sort_by_key(|o| (o.creation_timestamp().map(|created| created.0), o.name_any()));
        Ok(objects)
    }

    /// Asks for another number of members, the way `kubectl scale` does.
    pub async fn scale(&self, replicas: i32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.arena.api::<EtcdCluster>().patch_scale(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn delete(&self, how: &DeleteParams) -> Result<()> {
        self.arena.api::<EtcdCluster>().delete(&self.name, how).await?;
        Ok(())
    }

    pub async fn delete_member(&self, name: &str) -> Result<()> {
        self.arena.api::<EtcdMember>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the cluster says that it is what the user asked for, with `replicas` ready members.
    pub async fn settled(&self, replicas: usize) -> Result<EtcdCluster> {
        wait_for(&format!("{} to settle with {replicas} members", self.name), LONG, async || {
            let cluster = self.get().await?;
            let status = cluster.status.clone().unwrap_or_default();
            ensure!(
                status.observed.as_ref().is_some_and(|target| target.replicas == cluster.spec.replicas()),
                "the new spec has not been taken up"
            );
            let said = said(&status);
            let settled = "Available=True/QuorumHealthy Progressing=False/Reconciled";
            ensure!(said.starts_with(settled), "it says {said}");
            ensure!(
                usize::try_from(status.ready_members)? == replicas,
                "{} members are ready",
                status.ready_members
            );
            let members = self.members().await?;
            ensure!(members.len() == replicas, "there are {} EtcdMembers", members.len());
            Ok(cluster)
        })
        .await
    }

    /// Waits until a condition has that value: `("Available", "True/QuorumAvailable")`.
    pub async fn says(&self, condition_type: &str, value: &str) -> Result<EtcdClusterStatus> {
        wait_for(&format!("{} to say {condition_type}={value}", self.name), LONG, async || {
            let status = self.status().await?;
            let now = condition(&status.conditions, condition_type);
            ensure!(now == value, "it says {}", said(&status));
            Ok(status)
        })
        .await
    }

    /// etcd's own member list, read linearizably through whichever voter answers.
    pub async fn etcd(&self) -> Result<Membership> {
        let pool = Pool::default();
        wait_for("a member list from etcd", SHORT, async || {
            let mut failure = anyhow::anyhow!("no Pod has an address");
            for pod in self.pods().await? {
                let Some(endpoint) = endpoint(&pod) else { continue };
                match pool.members(&endpoint).await {
                    Ok(list) => return Ok(list),
                    Err(error) => failure = error.into(),
                }
            }
            Err(failure)
        })
        .await
    }

    /// Connections to every Pod that is ready, by member name.
    pub async fn doors(&self) -> Result<Vec<Kv>> {
        let pods = self.pods().await?;
        pods.iter().filter(|pod| is_ready(pod)).filter_map(endpoint).map(|at| Kv::connect(&at)).collect()
    }

    /// Connections to all voters, and only when there is one to each.
    pub async fn voters(&self) -> Result<Vec<Kv>> {
        let list = self.etcd().await?;
        let voters: BTreeSet<_> = list.voters().map(|voter| voter.name.clone()).collect();
        wait_for("a ready Pod behind every voter", SHORT, async || {
            let mut doors = self.doors().await?;
            doors.retain(|door| voters.contains(&door.member));
            ensure!(doors.len() == voters.len(), "{} of {} voters have one", doors.len(), voters.len());
            Ok(doors)
        })
        .await
    }

    /// Name to UID: whose Pod is still the same?
    pub async fn pod_uids(&self) -> Result<BTreeMap<String, Option<String>>> {
        Ok(self.pods().await?.iter().map(|pod| (pod.name_any(), pod.uid())).collect())
    }

    /// Name to UID: whose volume is still the same?
    pub async fn claim_uids(&self) -> Result<BTreeMap<String, Option<String>>> {
        Ok(self.claims().await?.iter().map(|claim| (claim.name_any(), claim.uid())).collect())
    }

    /// Waits until an EtcdMember is gone for good.
    pub async fn without(&self, member: &str) -> Result<()> {
        wait_for(&format!("{member} to go"), LONG, async || {
            let found = self.arena.api::<EtcdMember>().get_opt(member).await?;
            ensure!(found.is_none(), "it is still there");
            Ok(())
        })
        .await
    }

    /// etcd lists exactly the EtcdMembers there are, all of them voters.
    pub async fn has_only_voters(&self, count: usize) -> Result<()> {
        let list = self.etcd().await?;
        let voters: BTreeSet<_> = list.voters().map(|voter| voter.name.clone()).collect();
        let members: BTreeSet<_> = self.members().await?.iter().map(ResourceExt::name_any).collect();
        ensure!(list.learners().count() == 0, "there are learners: {list:?}");
        ensure!(
            voters == members && voters.len() == count,
            "etcd has {voters:?}, Kubernetes has {members:?}"
        );
        Ok(())
    }

    /// Member name to the id in the member's status.
    pub async fn member_ids(&self) -> Result<BTreeMap<String, String>> {
        let members = self.members().await?;
        let ids = members.iter().map(|m| {
            let id = m.status.as_ref().and_then(|status| status.member_id.clone());
            Ok((m.name_any(), id.with_context(|| format!("{} has no member id", m.name_any()))?))
        });
        ids.collect()
    }
}

/// Status and reason of a condition in one word: `True/QuorumHealthy`.
pub fn condition(conditions: &[Condition], condition_type: &str) -> String {
    let found = conditions::find(conditions, condition_type);
    found.map_or_else(|| "absent".to_owned(), |c| format!("{}/{}", c.status, c.reason))
}

fn said(status: &EtcdClusterStatus) -> String {
    let all = [conditions::AVAILABLE, conditions::PROGRESSING, conditions::DEGRADED];
    all.map(|t| format!("{t}={}", condition(&status.conditions, t))).join(" ")
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Where the etcd in a Pod can be reached. Pod addresses work from where the tests run.
pub(crate) fn endpoint(pod: &Pod) -> Option<Endpoint> {
    let ip = pod.status.as_ref()?.pod_ip.clone().filter(|_| pod.metadata.deletion_timestamp.is_none())?;
    Some(Endpoint {
        identity: pod.uid()?,
        address: format!("{ip}:{}", names::CLIENT_PORT),
        authority: pod.name_any(),
        cluster: None,
    })
}
