//! Every action as the requests that carry it out. Without a catch-all: an action that nobody routes does not compile.

use api::labels::{self, annotation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::command::WITHDRAWN;
use crate::{Action, ClusterView, Kind, Look, endpoint, has_data};

use super::error::Error;
use super::operation::Operation;
use super::request::{EtcdCall, Request};

impl Action {
    /// What carries the action out, after these looks. An error if there is nobody to ask.
    pub(super) fn operation(&self, view: &ClusterView, looks: Vec<Look>) -> Result<Operation, Error> {
        let operation = match self {
            Self::CreateService(service) => create(Kind::Service, service.as_ref())?,
            Self::CreateBudget(budget) => create(Kind::Budget, budget.as_ref())?,
            Self::CreateMember(member) => create(Kind::Member, member.as_ref())?,
            Self::CreateVolume(claim) => create(Kind::Claim, claim.as_ref())?,
            Self::CreatePod(pod) => create(Kind::Pod, pod.as_ref())?,

            Self::DeleteBudget { name, uid } => delete(Kind::Budget, name, uid),
            // Who is deleted by a user goes with the last of its cluster; who was taken out by the operator does not (T24).
            Self::DeleteMember { name, uid, .. } => {
                let patch =
                    json!({ "metadata": { "uid": uid, "annotations": { annotation::TAKEN_OUT: "true" } } });
                let record = Request::Patch { kind: Kind::Member, name: name.clone(), patch };
                delete(Kind::Member, name, uid).recording(record)
            }
            Self::DeletePod { name, uid, .. } => delete(Kind::Pod, name, uid),

            Self::AdoptService { name, uid, owners } => adopt(Kind::Service, name, uid, owners),
            Self::AdoptBudget { name, uid, owners } => adopt(Kind::Budget, name, uid, owners),
            Self::AdoptPod { name, uid, owners } => adopt(Kind::Pod, name, uid, owners),
            Self::AdoptVolume { name, uid, owners } => adopt(Kind::Claim, name, uid, owners),
            // Members change hands only as they were read.
            Self::AdoptMember { name, uid, owners } => {
                let version = version(view, name);
                let metadata = json!({ "uid": uid, "resourceVersion": version, "ownerReferences": owners });
                patch(Kind::Member, name, json!({ "metadata": metadata }))
            }
            Self::GuardMember { name, uid, finalizers }
            | Self::ReleaseMember { name, uid, finalizers, .. } => {
                let version = version(view, name);
                let metadata = json!({ "uid": uid, "resourceVersion": version, "finalizers": finalizers });
                patch(Kind::Member, name, json!({ "metadata": metadata }))
            }

            Self::RepairService { name, patch: repair } => patch(Kind::Service, name, repair.clone()),
            Self::ResizeBudget { name, uid, min_available } => {
                let spec = json!({ "minAvailable": min_available, "maxUnavailable": null });
                patch(Kind::Budget, name, json!({ "metadata": { "uid": uid }, "spec": spec }))
            }
            Self::ConfirmMember { name, uid, cluster } => {
                annotate(Kind::Member, name, uid, &json!({ annotation::ADOPTED_BY: cluster }))
            }
            Self::RetainMember { name, uid } => {
                annotate(Kind::Member, name, uid, &json!({ annotation::TAKEN_OUT: null }))
            }
            Self::SetDormant { name, uid, dormant, confirmed, .. } => {
                let notes = json!({ annotation::HAS_DATA: has_data(*confirmed) });
                // False is written as absent, as in every object of this API.
                let spec = json!({ "dormant": dormant.then_some(true) });
                let metadata = json!({ "uid": uid, "annotations": notes });
                patch(Kind::Member, name, json!({ "metadata": metadata, "spec": spec }))
            }
            Self::WireMember { name, uid, initial_cluster } => {
                let spec = json!({ "initialCluster": initial_cluster });
                patch(Kind::Member, name, json!({ "metadata": { "uid": uid }, "spec": spec }))
            }
            Self::LabelMember { name, uid, labels } => label(Kind::Member, name, uid, &json!(labels)),
            Self::LabelPod { name, uid, voter } => {
                let role = voter.then_some(labels::VOTER);
                label(Kind::Pod, name, uid, &json!({ labels::ROLE: role }))
            }
            Self::SettlePod { name, uid, initial_cluster } => {
                let notes = json!({
                    annotation::INITIAL_CLUSTER: initial_cluster,
                    annotation::INITIAL_CLUSTER_STATE: "existing",
                });
                annotate(Kind::Pod, name, uid, &notes)
            }
            Self::WithdrawPod { name, uid, .. } => {
                annotate(Kind::Pod, name, uid, &json!({ annotation::INITIAL_CLUSTER_STATE: WITHDRAWN }))
            }
            // The look is all.
            Self::SeekLost { .. } => Operation::new([]),

            Self::AddLearner { peer_url, .. } => {
                let call = EtcdCall::AddLearner { peer_url: peer_url.clone() };
                ask_around(view, &call)?.called("adding a learner")
            }
            Self::RemoveFromEtcd { id, .. } => ask_around(view, &EtcdCall::Remove { id: *id })?
                .called("failed to remove member from etcd, will retry"),
            Self::RemoveOrphan { id, .. } => {
                ask_around(view, &EtcdCall::Remove { id: *id })?.called("removing an orphan")
            }
            Self::Promote { id, .. } => {
                ask(view, speaker(view), EtcdCall::Promote { id: *id })?.called("promoting a learner")
            }
            Self::MoveLeader { from, id, .. } => {
                ask(view, from, EtcdCall::MoveLeader { to: *id })?.called("moving leadership")
            }
            Self::PersistMembership => {
                ask(view, speaker(view), EtcdCall::Persist)?.called("writing the membership down")
            }
        };
        Ok(operation.after(looks))
    }
}

fn create<K>(kind: Kind, object: &K) -> Result<Operation, Error>
where
    K: Serialize + Resource<DynamicType = ()>,
{
    Ok(Operation::new([Request::Create { kind, object: wire(object)? }]).making(object.meta()))
}

/// An object as it is sent.
pub(super) fn wire<K>(object: &K) -> Result<Value, Error>
where
    K: Serialize + Resource<DynamicType = ()>,
{
    let mut value = serde_json::to_value(object).map_err(|error| Error::Refused(error.to_string()))?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    Ok(value)
}

fn delete(kind: Kind, name: &str, uid: &str) -> Operation {
    Operation::new([Request::Delete { kind, name: name.to_owned(), uid: uid.to_owned() }])
}

fn patch(kind: Kind, name: &str, patch: Value) -> Operation {
    Operation::new([Request::Patch { kind, name: name.to_owned(), patch }])
}

fn adopt(kind: Kind, name: &str, uid: &str, owners: &[OwnerReference]) -> Operation {
    patch(kind, name, json!({ "metadata": { "uid": uid, "ownerReferences": owners } }))
}

fn annotate(kind: Kind, name: &str, uid: &str, annotations: &Value) -> Operation {
    patch(kind, name, json!({ "metadata": { "uid": uid, "annotations": annotations } }))
}

fn label(kind: Kind, name: &str, uid: &str, labels: &Value) -> Operation {
    patch(kind, name, json!({ "metadata": { "uid": uid, "labels": labels } }))
}

/// The version of a member that the plan was made from.
fn version(view: &ClusterView, name: &str) -> Option<String> {
    view.members.iter().find(|m| m.name() == name).and_then(|m| m.member.metadata.resource_version.clone())
}

/// Whom to tell: the member that vouched for the list this plan rests on.
fn speaker(view: &ClusterView) -> &str {
    view.etcd.membership.as_ref().map(|seen| seen.from.as_str()).unwrap_or_default()
}

fn ask(view: &ClusterView, member: &str, call: EtcdCall) -> Result<Operation, Error> {
    let found = view.members.iter().find(|m| m.name() == member).and_then(|m| endpoint(view, m));
    let at = found.ok_or_else(|| Error::Refused(format!("member {member} can not be talked to")))?;
    Ok(Operation::new([Request::Etcd { at, call }]))
}

/// A change of the membership: whoever gave the list is asked first, and the others if that one finds the cluster not healthy
/// enough.
fn ask_around(view: &ClusterView, call: &EtcdCall) -> Result<Operation, Error> {
    let speakers: Vec<_> = view.speakers().into_iter().filter_map(|m| endpoint(view, m)).collect();
    if speakers.is_empty() {
        return Err(Error::Refused(format!("member {} can not be talked to", speaker(view))));
    }
    Ok(Operation::new(speakers.into_iter().map(|at| Request::Etcd { at, call: call.clone() })))
}
