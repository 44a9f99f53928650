//! Act: carries out the actions of a plan, in order, and stops at the first that fails. Every action can be repeated;
//! "already so" is success.

use std::sync::Arc;
use std::time::Duration;

use api::{EtcdCluster, EtcdMember, labels};
use etcd::{Endpoint, Etcd};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use planner::{Action, ClusterView, Leaving, Release};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cache::{Cache, Cached, Key};
use crate::leader::Mandate;
use crate::observe::endpoint;

/// An API server that needs longer is not going to answer.
pub const API_LIMIT: Duration = Duration::from_secs(10);

/// Why an action could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has changed since it was read; the next pass decides anew.
    #[error("{0} has changed in the meantime")]
    Stale(String),

    #[error("{object}: {source}")]
    Api { object: String, source: Box<kube::Error> },

    #[error("{0}: the API server did not answer in time")]
    Timeout(String),

    #[error("{action}: {source}")]
    Etcd { action: &'static str, source: etcd::Error },

    #[error("{0}")]
    Refused(String),

    #[error("the lease has run out, another replica may be leading")]
    Deposed,
}

/// Writes.
pub struct Actor {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub etcd: Arc<dyn Etcd>,
    pub mandate: Mandate,
}

impl Actor {
    pub async fn carry_out(&self, view: &ClusterView, action: &Action) -> Result<(), Error> {
        if !self.mandate.holds() {
            return Err(Error::Deposed);
        }
        match action {
            Action::CreateService(service) => {
                self.confirm_life(view).await?;
                self.create::<Service>(view, service).await
            }
            Action::RepairService { name, patch } => self.patch::<Service>(view, name, patch).await,
            Action::CreateBudget(budget) => {
                self.confirm_life(view).await?;
                self.create::<PodDisruptionBudget>(view, budget).await
            }
            Action::ResizeBudget { name, uid, min_available } => {
                let spec = json!({ "minAvailable": min_available, "maxUnavailable": null });
                let patch = json!({ "metadata": { "uid": uid }, "spec": spec });
                self.patch::<PodDisruptionBudget>(view, name, &patch).await
            }
            Action::DeleteBudget { name, uid } => self.delete::<PodDisruptionBudget>(view, name, uid).await,
            Action::CreateMember(member) => self.create::<EtcdMember>(view, member).await,
            Action::AdoptMember { name, uid, owners } => {
                let version = resource_version(view, name);
                let metadata = json!({ "uid": uid, "resourceVersion": version, "ownerReferences": owners });
                self.patch::<EtcdMember>(view, name, &json!({ "metadata": metadata })).await
            }
            Action::SetDormant { name, uid, dormant } => {
                // False is written as absent, as in every object of this API.
                let dormant = dormant.then_some(true);
                let patch = json!({ "metadata": { "uid": uid }, "spec": { "dormant": dormant } });
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::WireMember { name, uid, initial_cluster } => {
                let patch =
                    json!({ "metadata": { "uid": uid }, "spec": { "initialCluster": initial_cluster } });
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::DeleteMember { name, uid, because } => {
                if matches!(because, Leaving::Broken(_)) {
                    self.confirm_loss(view, name).await?;
                }
                self.delete::<EtcdMember>(view, name, uid).await
            }
            Action::GuardMember { name, uid, finalizers } => {
                self.patch::<EtcdMember>(view, name, &finalizer_patch(view, name, uid, finalizers)).await
            }
            Action::ReleaseMember { name, uid, finalizers, because } => {
                self.confirm(view, because).await?;
                self.patch::<EtcdMember>(view, name, &finalizer_patch(view, name, uid, finalizers)).await
            }
            Action::CreateVolume(claim) => self.create::<PersistentVolumeClaim>(view, claim).await,
            Action::CreatePod(pod) => self.create::<Pod>(view, pod).await,
            Action::DeletePod { name, uid } => self.delete::<Pod>(view, name, uid).await,
            Action::LabelPod { name, uid, voter } => {
                let role = voter.then_some(labels::VOTER);
                let patch = json!({ "metadata": { "uid": uid, "labels": { labels::ROLE: role } } });
                self.patch::<Pod>(view, name, &patch).await
            }
            Action::SettlePod { name, uid, initial_cluster } => {
                let annotations = json!({
                    labels::annotation::INITIAL_CLUSTER: initial_cluster,
                    labels::annotation::INITIAL_CLUSTER_STATE: "existing",
                });
                let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
                self.patch::<Pod>(view, name, &patch).await
            }
            Action::AddLearner { .. }
            | Action::Promote { .. }
            | Action::MoveLeader { .. }
            | Action::RemoveFromEtcd { .. }
            | Action::RemoveOrphan { .. }
            | Action::PersistMembership => self.change_membership(view, action).await,
        }
    }

    /// The actions that etcd carries out.
    async fn change_membership(&self, view: &ClusterView, action: &Action) -> Result<(), Error> {
        let failed = |action| move |source| Error::Etcd { action, source };
        match action {
            Action::AddLearner { peer_url, .. } => {
                let done = self.etcd.add_learner(&speaker(view)?, peer_url).await;
                done.map(drop).map_err(failed("adding a learner"))
            }
            Action::Promote { id, .. } => {
                let done = self.etcd.promote(&speaker(view)?, *id).await;
                done.map(drop).map_err(failed("promoting a learner"))
            }
            Action::MoveLeader { from, id, .. } => {
                let done = self.etcd.move_leader(&endpoint_of(view, from)?, *id).await;
                done.map_err(failed("moving leadership"))
            }
            Action::RemoveFromEtcd { id, .. } => {
                let done = self.etcd.remove(&speaker(view)?, *id).await;
                done.map_err(failed("failed to remove member from etcd, will retry"))
            }
            Action::PersistMembership => {
                let done = self.etcd.persist(&speaker(view)?).await;
                done.map_err(failed("writing the membership down"))
            }
            Action::RemoveOrphan { member, id } => {
                self.confirm_absent(view, member).await?;
                let done = self.etcd.remove(&speaker(view)?, *id).await;
                done.map_err(failed("removing an orphan"))
            }
            _ => Ok(()),
        }
    }

    fn api<K>(&self, view: &ClusterView) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &view.namespace)
    }

    async fn create<K>(&self, view: &ClusterView, object: &K) -> Result<(), Error>
    where
        K: Cached + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let what = describe(object);
        match limited(&what, self.api::<K>(view).create(&PostParams::default(), object)).await {
            Ok(made) => {
                self.cache.wrote(made);
                Ok(())
            }
            Err(Error::Api { source, .. }) if is_reason(&source, "AlreadyExists") => {
                Err(self.explain(view, object, what).await)
            }
            Err(error) => Err(error),
        }
    }

    /// Why an object of that name is there although the cache does not have it: the cache may lag, or the object does
    /// not carry our label, because it belongs to somebody else (T21) or because somebody took it off.
    async fn explain<K>(&self, view: &ClusterView, object: &K, what: String) -> Error
    where
        K: Cached + Resource<Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
    {
        let name = object.meta().name.as_deref().unwrap_or_default();
        match limited(&what, self.api::<K>(view).get_metadata_opt(name)).await {
            Ok(Some(found))
                if planner::controller_uid(&found.metadata) != planner::controller_uid(object.meta()) =>
            {
                Error::Refused(format!("{what} exists and belongs to somebody else; delete or rename it"))
            }
            Ok(Some(found)) if !found.labels().contains_key(labels::CLUSTER) => Error::Refused(format!(
                "{what} is there, but without the label {}; put it back",
                labels::CLUSTER
            )),
            Ok(_) => Error::Stale(what),
            Err(error) => error,
        }
    }

    async fn patch<K>(&self, view: &ClusterView, name: &str, patch: &Value) -> Result<(), Error>
    where
        K: Cached + Resource<Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
    {
        let what = format!("{} {name}", K::kind(&()));
        let call = self.api::<K>(view);
        match limited(&what, call.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(patched) => {
                self.cache.wrote(patched);
                Ok(())
            }
            Err(Error::Api { source, .. })
                if is_reason(&source, "Conflict")
                    || is_reason(&source, "NotFound")
                    || is_another_object(&source) =>
            {
                Err(Error::Stale(what))
            }
            Err(error) => Err(error),
        }
    }

    async fn delete<K>(&self, view: &ClusterView, name: &str, uid: &str) -> Result<(), Error>
    where
        K: Cached + Resource<Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
    {
        let what = format!("{} {name}", K::kind(&()));
        let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::background().preconditions(only_this);
        let call = self.api::<K>(view);
        match limited(&what, call.delete(name, &params)).await {
            // The next pass must see that it is leaving, or it could choose another one to leave (rule 2); and that it is
            // gone, or it would delete it again and again until the watch has told of it.
            Ok(answer) => {
                match answer.left().filter(|o| o.meta().deletion_timestamp.is_some()) {
                    Some(leaving) => self.cache.wrote(leaving),
                    None => self.cache.gone::<K>(&key_of(view), name, uid),
                }
                Ok(())
            }
            Err(Error::Api { source, .. }) if is_reason(&source, "NotFound") => {
                self.cache.gone::<K>(&key_of(view), name, uid);
                Ok(())
            }
            Err(Error::Api { source, .. }) if is_reason(&source, "Conflict") => Err(Error::Stale(what)),
            Err(error) => Err(error),
        }
    }

    /// A last, live look before a member is given up because its Pod or volume is not there: one that has merely lost its
    /// label is not in the cache, and holds the data all the same.
    async fn confirm_loss(&self, view: &ClusterView, name: &str) -> Result<(), Error> {
        let Some(member) = view.members.iter().find(|m| m.name() == name) else { return Ok(()) };
        let (what, live) = if member.is_memory() && member.pod.is_none() {
            let what = format!("Pod {name}");
            let live = limited(&what, self.api::<Pod>(view).get_metadata_opt(name)).await?;
            (what, live.map(|p| p.metadata))
        } else if !member.is_memory() && member.volume.is_none() {
            let claim = api::names::pvc(name);
            let what = format!("PersistentVolumeClaim {claim}");
            let live =
                limited(&what, self.api::<PersistentVolumeClaim>(view).get_metadata_opt(&claim)).await?;
            (what, live.map(|p| p.metadata))
        } else {
            return Ok(());
        };
        match live {
            Some(live) if planner::controller_uid(&live) == Some(member.uid()) => Err(Error::Refused(
                format!("{what} is there, but without the label {}; put it back", labels::CLUSTER),
            )),
            _ => Ok(()),
        }
    }

    /// A last, live look before a row of etcd's list is taken for an orphan: a cache can be wrong about absence.
    async fn confirm_absent(&self, view: &ClusterView, member: &str) -> Result<(), Error> {
        let what = format!("EtcdMember {member}");
        let call = self.api::<EtcdMember>(view);
        match limited(&what, call.get_metadata_opt(member)).await? {
            Some(_) => Err(Error::Stale(what)),
            None => Ok(()),
        }
    }

    /// A last, live look before something is made again for a cluster that had it already: when a cluster is deleted, the
    /// end of its Services can be seen before its own (H20).
    async fn confirm_life(&self, view: &ClusterView) -> Result<(), Error> {
        let Some(cluster) =
            view.living_cluster().filter(|c| c.status.as_ref().is_some_and(|s| s.cluster_id.is_some()))
        else {
            return Ok(());
        };
        let what = describe(cluster);
        let live = limited(&what, self.api::<EtcdCluster>(view).get_metadata_opt(&view.name)).await?;
        let same = live.is_some_and(|c| {
            c.metadata.uid == cluster.metadata.uid && c.metadata.deletion_timestamp.is_none()
        });
        if same { Ok(()) } else { Err(Error::Stale(what)) }
    }

    /// A last, live look before a finalizer goes because the cluster is gone or has never formed: a cache can be wrong
    /// about what is not there.
    async fn confirm(&self, view: &ClusterView, because: &Release) -> Result<(), Error> {
        let what = format!("EtcdCluster {}", view.name);
        let clusters = self.api::<EtcdCluster>(view);
        let holds = match because {
            Release::OutOfEtcd => return Ok(()),
            Release::ClusterDeleted { cluster, uid } => {
                // Metadata is enough, and readable even where the spec is not.
                let live = limited(&what, clusters.get_metadata_opt(cluster)).await?;
                // A member without an owner belongs to any cluster of its name.
                live.is_none_or(|c| {
                    (uid.is_some() && c.metadata.uid != *uid) || c.metadata.deletion_timestamp.is_some()
                })
            }
            Release::NeverFormed => {
                let uid = view.cluster.as_ref().and_then(|c| c.metadata.uid.as_ref());
                let live = limited(&what, clusters.get_opt(&view.name)).await?;
                live.is_some_and(|c| {
                    c.metadata.uid.as_ref() == uid && c.status.is_none_or(|s| s.cluster_id.is_none())
                })
            }
        };
        if holds { Ok(()) } else { Err(Error::Stale(what)) }
    }
}

fn key_of(view: &ClusterView) -> Key {
    Key { namespace: view.namespace.clone(), name: view.name.clone() }
}

/// Whom to tell: the member that vouched for the list this plan rests on.
fn speaker(view: &ClusterView) -> Result<Endpoint, Error> {
    let from = view.etcd.membership.as_ref().map(|seen| seen.from.as_str());
    endpoint_of(view, from.unwrap_or_default())
}

fn endpoint_of(view: &ClusterView, member: &str) -> Result<Endpoint, Error> {
    let found = view.members.iter().find(|m| m.name() == member).and_then(|m| endpoint(view, m));
    found.ok_or_else(|| Error::Refused(format!("member {member} can not be talked to")))
}

/// Replaces the finalizers, unless the member has changed since they were read.
fn finalizer_patch(view: &ClusterView, name: &str, uid: &str, finalizers: &[String]) -> Value {
    let version = resource_version(view, name);
    json!({ "metadata": { "uid": uid, "resourceVersion": version, "finalizers": finalizers } })
}

/// The version of a member that the plan was made from.
fn resource_version(view: &ClusterView, name: &str) -> Option<String> {
    view.members.iter().find(|m| m.name() == name).and_then(|m| m.member.metadata.resource_version.clone())
}

fn describe<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.meta().name.as_deref().unwrap_or_default())
}

/// Runs a call to the API server within its limit.
pub async fn limited<T>(what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(API_LIMIT, call).await {
        Ok(result) => {
            result.map_err(|source| Error::Api { object: what.to_owned(), source: Box::new(source) })
        }
        Err(_) => Err(Error::Timeout(what.to_owned())),
    }
}

/// Whether the API server gave this reason.
pub fn is_reason(error: &kube::Error, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == reason)
}

/// Whether a patch was meant for an object of the same name that is gone: its UID, given along, is taken for an attempt to
/// change that of the successor.
pub fn is_another_object(error: &kube::Error) -> bool {
    let about_uid = |status: &kube::core::Status| {
        let causes = status.details.iter().flat_map(|d| &d.causes);
        causes.into_iter().any(|c| c.field == "metadata.uid")
    };
    is_reason(error, "Invalid") && matches!(error, kube::Error::Api(status) if about_uid(status))
}

/// Whether the API server refuses new objects because their namespace is being deleted.
pub fn is_terminating(error: &kube::Error) -> bool {
    let cause = |status: &kube::core::Status| {
        let causes = status.details.iter().flat_map(|d| &d.causes);
        causes.into_iter().any(|c| c.reason == "NamespaceTerminating")
    };
    matches!(error, kube::Error::Api(status) if cause(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_for_a_predecessor_is_told_from_one_that_is_wrong() {
        let refusal = |field: &str| {
            let status = json!({
                "status": "Failure", "reason": "Invalid", "code": 422,
                "details": { "causes": [{ "reason": "FieldValueInvalid", "field": field }] },
            });
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        assert!(is_another_object(&refusal("metadata.uid")));
        assert!(!is_another_object(&refusal("spec.replicas")));
    }
}
