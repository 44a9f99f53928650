//! Act: carries out the actions of a plan. What must be true right before one is looked up live, as its description says;
//! every action can be repeated, and "already so" is success.

use std::sync::Arc;
use std::time::Duration;

use api::{EtcdMember, labels};
use etcd::{Endpoint, Etcd};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use planner::{Action, ClusterView, Contradiction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cache::{Cache, Cached, Key};
use crate::leader::Mandate;
use crate::looks::Looks;
use crate::observe::endpoint;
use crate::sentence;

/// An API server that needs longer is not going to answer.
pub const API_LIMIT: Duration = Duration::from_secs(10);

/// Why an action could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has changed since it was read; the next pass decides anew.
    #[error("{0} has changed in the meantime")]
    Stale(String),

    /// It is ours, and somebody had changed its labels; the next pass sees it.
    #[error("{0} had lost the labels of its cluster; they were put back")]
    Relabelled(String),

    #[error("{}", sentence::refusal(object, source))]
    Api { object: String, source: Box<kube::Error> },

    #[error("{}", sentence::silence(.0))]
    Timeout(String),

    #[error("{action}: {source}")]
    Etcd { action: &'static str, source: etcd::Error },

    #[error("{0}")]
    Refused(String),

    #[error("the lease has run out, another replica may be leading")]
    Deposed,
}

impl Error {
    /// What the API server refused, and why, if it was that: the object and a sentence for its cluster's conditions.
    pub fn refusal(&self) -> Option<(String, String)> {
        match self {
            Self::Api { object, source }
                if matches!(**source, kube::Error::Api(_)) && !is_terminating(source) =>
            {
                Some((object.clone(), self.to_string()))
            }
            Self::Refused(why) => {
                Some((why.split(" is there").next().unwrap_or(why).to_owned(), why.clone()))
            }
            _ => None,
        }
    }
}

/// Writes.
pub struct Actor {
    pub client: Client,
    pub looks: Looks,
    pub cache: Arc<Cache>,
    pub etcd: Arc<dyn Etcd>,
    pub mandate: Mandate,
}

impl Actor {
    pub async fn carry_out(&self, view: &ClusterView, action: &Action) -> Result<(), Error> {
        if !self.mandate.holds() {
            return Err(Error::Deposed);
        }
        for look in action.looks(view) {
            self.looks.take(&view.namespace, &look).await?;
        }
        // A process may have stood still in between.
        if !self.mandate.holds() {
            return Err(Error::Deposed);
        }
        match action {
            Action::CreateService(service) => self.create::<Service>(view, service).await,
            Action::RepairService { name, patch } => self.patch::<Service>(view, name, patch).await,
            Action::AdoptService { name, uid, owners } => {
                self.patch::<Service>(view, name, &owner_patch(uid, None, owners)).await
            }
            Action::CreateBudget(budget) => self.create::<PodDisruptionBudget>(view, budget).await,
            Action::AdoptBudget { name, uid, owners } => {
                self.patch::<PodDisruptionBudget>(view, name, &owner_patch(uid, None, owners)).await
            }
            Action::AdoptPod { name, uid, owners } => {
                self.patch::<Pod>(view, name, &owner_patch(uid, None, owners)).await
            }
            Action::AdoptVolume { name, uid, owners } => {
                self.patch::<PersistentVolumeClaim>(view, name, &owner_patch(uid, None, owners)).await
            }
            Action::ResizeBudget { name, uid, min_available } => {
                let spec = json!({ "minAvailable": min_available, "maxUnavailable": null });
                let patch = json!({ "metadata": { "uid": uid }, "spec": spec });
                self.patch::<PodDisruptionBudget>(view, name, &patch).await
            }
            Action::DeleteBudget { name, uid } => self.delete::<PodDisruptionBudget>(view, name, uid).await,
            Action::CreateMember(member) => self.create::<EtcdMember>(view, member).await,
            Action::AdoptMember { name, uid, owners } => {
                let patch = owner_patch(uid, resource_version(view, name), owners);
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::ConfirmMember { name, uid, cluster } => {
                let annotations = json!({ labels::annotation::ADOPTED_BY: cluster });
                let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::SetDormant { name, uid, dormant, confirmed } => {
                // False is written as absent, as in every object of this API.
                let dormant = dormant.then_some(true);
                let has_data = json!({ labels::annotation::HAS_DATA: planner::has_data(*confirmed) });
                let patch = json!({
                    "metadata": { "uid": uid, "annotations": has_data },
                    "spec": { "dormant": dormant }
                });
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::WireMember { name, uid, initial_cluster } => {
                let patch =
                    json!({ "metadata": { "uid": uid }, "spec": { "initialCluster": initial_cluster } });
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::DeleteMember { name, uid, .. } => self.delete::<EtcdMember>(view, name, uid).await,
            Action::LabelMember { name, uid, labels } => {
                let patch = json!({ "metadata": { "uid": uid, "labels": labels } });
                self.patch::<EtcdMember>(view, name, &patch).await
            }
            Action::GuardMember { name, uid, finalizers } => {
                self.patch::<EtcdMember>(view, name, &finalizer_patch(view, name, uid, finalizers)).await
            }
            Action::ReleaseMember { name, uid, finalizers, .. } => {
                self.patch::<EtcdMember>(view, name, &finalizer_patch(view, name, uid, finalizers)).await
            }
            Action::CreateVolume(claim) => self.create::<PersistentVolumeClaim>(view, claim).await,
            Action::CreatePod(pod) => self.create::<Pod>(view, pod).await,
            Action::DeletePod { name, uid, .. } => self.delete::<Pod>(view, name, uid).await,
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
            // The look was all.
            Action::SeekLost { .. } => Ok(()),
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
                let done = self.ask(view, Change::Add(peer_url)).await?;
                done.map_err(failed("adding a learner"))
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
                let done = self.ask(view, Change::Remove(*id)).await?;
                done.map_err(failed("failed to remove member from etcd, will retry"))
            }
            Action::PersistMembership => {
                let done = self.etcd.persist(&speaker(view)?).await;
                done.map_err(failed("writing the membership down"))
            }
            Action::RemoveOrphan { id, .. } => {
                let done = self.ask(view, Change::Remove(*id)).await?;
                done.map_err(failed("removing an orphan"))
            }
            _ => Ok(()),
        }
    }

    /// Asks for a change of the membership, and asks the next one if that one finds the cluster not healthy enough.
    async fn ask(&self, view: &ClusterView, change: Change<'_>) -> Result<Result<(), etcd::Error>, Error> {
        let others = view.speakers().into_iter().skip(1).filter_map(|m| endpoint(view, m));
        let mut endpoints = vec![speaker(view)?];
        endpoints.extend(others);
        let mut answer = Ok(());
        for at in endpoints {
            answer = match change {
                Change::Add(peer_url) => self.etcd.add_learner(&at, peer_url).await.map(drop),
                Change::Remove(id) => self.etcd.remove(&at, id).await,
            };
            if !matches!(answer, Err(etcd::Error::Unhealthy)) {
                break;
            }
        }
        Ok(answer)
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

    /// Why an object of that name is there although the cache does not have it. If only its labels are wrong, they are
    /// put back.
    async fn explain<K>(&self, view: &ClusterView, object: &K, what: String) -> Error
    where
        K: Cached + Resource<Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
    {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let found = match limited(&what, self.api::<K>(view).get_metadata_opt(name)).await {
            Ok(Some(found)) => json!({ "metadata": found.metadata }),
            Ok(None) => return Error::Stale(what),
            Err(error) => return error,
        };
        match planner::occupied(&what, object.meta(), &found) {
            Contradiction::Stale(what) => Error::Stale(what),
            Contradiction::Refused(why) => Error::Refused(why),
            Contradiction::Unlabelled { uid, labels } => {
                let patch = json!({ "metadata": { "uid": uid, "labels": labels } });
                self.patch::<K>(view, name, &patch).await.err().unwrap_or(Error::Relabelled(what))
            }
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
}

/// Makes the cluster an owner. With a version, only if the object has not changed since it was read.
fn owner_patch(uid: &str, version: Option<String>, owners: &[OwnerReference]) -> Value {
    let mut metadata = json!({ "uid": uid, "ownerReferences": owners });
    if let Some(version) = version {
        metadata["resourceVersion"] = json!(version);
    }
    json!({ "metadata": metadata })
}

fn key_of(view: &ClusterView) -> Key {
    Key { namespace: view.namespace.clone(), name: view.name.clone() }
}

/// A change of the membership that any voter can be asked for.
#[derive(Clone, Copy)]
enum Change<'a> {
    Add(&'a str),
    Remove(u64),
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
