//! Actions as calls: what the operator's `act` sends for each action, the live look it takes before a destructive one,
//! and how it reads the answer.

use std::collections::BTreeMap;

use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use operator::observe::endpoint;
use planner::{Action, ClusterView, Look, Which};
use serde::Serialize;
use serde_json::{Value, json};

use super::call::{Answer, Call, EtcdCall, Failure};
use super::memory::Stop;
use crate::apiserver::kind::{BUDGET, CLAIM, ETCD_CLUSTER, ETCD_MEMBER, NODE, POD, SERVICE, VOLUME};
use crate::apiserver::{DeleteOptions, Kind, Propagation};

/// The call that takes a live look.
pub fn look(look: &Look) -> Call {
    let kind = match look.kind {
        planner::Kind::Cluster => ETCD_CLUSTER,
        planner::Kind::Member => ETCD_MEMBER,
        planner::Kind::Pod => POD,
        planner::Kind::Claim => CLAIM,
        planner::Kind::Service => SERVICE,
        planner::Kind::Budget => BUDGET,
        planner::Kind::Volume => VOLUME,
        planner::Kind::Node => NODE,
    };
    match &look.which {
        Which::Named(name) => Call::Get(kind, name.clone()),
        Which::Labelled(cluster) => Call::List(kind, cluster.clone()),
    }
}

/// What a look found.
pub fn found(answer: Result<Answer, Failure>) -> Result<Vec<Value>, Stop> {
    match answer {
        Ok(Answer::Object(object)) => Ok(vec![object]),
        Ok(Answer::Objects(objects)) => Ok(objects),
        Err(Failure::Api(error)) if error.reason == "NotFound" => Ok(vec![]),
        Ok(_) => Ok(vec![]),
        Err(failure) => Err(Stop::Failed(failure)),
    }
}

/// The patch that puts labels back on this very object.
pub fn relabel(uid: &str, labels: &BTreeMap<String, String>) -> Value {
    json!({ "metadata": { "uid": uid, "labels": labels } })
}

/// The metadata of what an action makes.
pub fn made(action: &Action) -> Option<(Kind, &ObjectMeta)> {
    Some(match action {
        Action::CreateService(service) => (SERVICE, &service.metadata),
        Action::CreateBudget(budget) => (BUDGET, &budget.metadata),
        Action::CreateMember(member) => (ETCD_MEMBER, &member.metadata),
        Action::CreateVolume(claim) => (CLAIM, &claim.metadata),
        Action::CreatePod(pod) => (POD, &pod.metadata),
        _ => return None,
    })
}

/// The call that carries an action out; a reason when there is nobody to call.
pub fn call(view: &ClusterView, action: &Action, declined: usize) -> Result<Call, Stop> {
    Ok(match action {
        Action::CreateService(service) => create(SERVICE, service.as_ref())?,
        Action::CreateBudget(budget) => create(BUDGET, budget.as_ref())?,
        Action::CreateMember(member) => create(ETCD_MEMBER, member.as_ref())?,
        Action::CreateVolume(claim) => create(CLAIM, claim.as_ref())?,
        Action::CreatePod(pod) => create(POD, pod.as_ref())?,
        Action::RepairService { name, patch } => Call::Patch(SERVICE, name.clone(), patch.clone()),
        Action::ResizeBudget { name, uid, min_available } => {
            let spec = json!({ "minAvailable": min_available, "maxUnavailable": null });
            Call::Patch(BUDGET, name.clone(), json!({ "metadata": { "uid": uid }, "spec": spec }))
        }
        Action::DeleteBudget { name, uid } => delete(BUDGET, name, uid),
        Action::DeleteMember { name, uid, .. } => delete(ETCD_MEMBER, name, uid),
        Action::DeletePod { name, uid, .. } => delete(POD, name, uid),
        Action::AdoptService { name, uid, owners } => Call::Patch(
            SERVICE,
            name.clone(),
            json!({ "metadata": { "uid": uid, "ownerReferences": owners } }),
        ),
        Action::AdoptBudget { name, uid, owners } => Call::Patch(
            BUDGET,
            name.clone(),
            json!({ "metadata": { "uid": uid, "ownerReferences": owners } }),
        ),
        Action::AdoptPod { name, uid, owners } => {
            Call::Patch(POD, name.clone(), json!({ "metadata": { "uid": uid, "ownerReferences": owners } }))
        }
        Action::AdoptVolume { name, uid, owners } => {
            Call::Patch(CLAIM, name.clone(), json!({ "metadata": { "uid": uid, "ownerReferences": owners } }))
        }
        Action::AdoptMember { name, uid, owners } => {
            let metadata =
                json!({ "uid": uid, "resourceVersion": version(view, name), "ownerReferences": owners });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": metadata }))
        }
        Action::ConfirmMember { name, uid, cluster } => {
            let annotations = json!({ labels::annotation::ADOPTED_BY: cluster });
            let metadata = json!({ "uid": uid, "annotations": annotations });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": metadata }))
        }
        Action::SetDormant { name, uid, dormant, confirmed } => {
            let spec = json!({ "dormant": dormant.then_some(true) });
            let has_data = json!({ labels::annotation::HAS_DATA: planner::has_data(*confirmed) });
            let metadata = json!({ "uid": uid, "annotations": has_data });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": metadata, "spec": spec }))
        }
        Action::WireMember { name, uid, initial_cluster } => {
            let spec = json!({ "initialCluster": initial_cluster });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": { "uid": uid }, "spec": spec }))
        }
        Action::LabelMember { name, uid, labels } => {
            Call::Patch(ETCD_MEMBER, name.clone(), relabel(uid, labels))
        }
        Action::GuardMember { name, uid, finalizers }
        | Action::ReleaseMember { name, uid, finalizers, .. } => {
            let metadata =
                json!({ "uid": uid, "resourceVersion": version(view, name), "finalizers": finalizers });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": metadata }))
        }
        Action::LabelPod { name, uid, voter } => {
            let role = json!({ labels::ROLE: voter.then_some(labels::VOTER) });
            Call::Patch(POD, name.clone(), json!({ "metadata": { "uid": uid, "labels": role } }))
        }
        Action::SettlePod { name, uid, initial_cluster } => {
            let annotations = json!({
                labels::annotation::INITIAL_CLUSTER: initial_cluster,
                labels::annotation::INITIAL_CLUSTER_STATE: "existing",
            });
            Call::Patch(POD, name.clone(), json!({ "metadata": { "uid": uid, "annotations": annotations } }))
        }
        // The look was all; nothing is asked for.
        Action::SeekLost { name, .. } => Call::Get(ETCD_MEMBER, name.clone()),
        Action::AddLearner { peer_url, .. } => ask(view, declined, EtcdCall::AddLearner(peer_url.clone()))?,
        Action::Promote { id, .. } => speak(view, EtcdCall::Promote(*id))?,
        Action::RemoveFromEtcd { id, .. } | Action::RemoveOrphan { id, .. } => {
            ask(view, declined, EtcdCall::Remove(*id))?
        }
        Action::PersistMembership => speak(view, EtcdCall::Persist)?,
        Action::MoveLeader { from, id, .. } => to(view, from, EtcdCall::MoveLeader(*id))?,
    })
}

/// What the answer to an action's call means.
pub fn outcome(call: &Call, answer: Result<Answer, Failure>) -> Result<Option<(Kind, Value)>, Stop> {
    let kind = match call {
        Call::Create(kind, _)
        | Call::Patch(kind, ..)
        | Call::ReplaceStatus(kind, ..)
        | Call::Delete(kind, ..) => Some(*kind),
        _ => None,
    };
    match answer {
        Ok(Answer::Object(object)) => Ok(kind.map(|kind| (kind, object))),
        Ok(_) => Ok(None),
        Err(Failure::Api(error)) => match (call, error.reason) {
            (Call::Delete(..), "NotFound") => Ok(None),
            (Call::Delete(..), "Conflict") => Err(Stop::Stale),
            (Call::Create(..), "AlreadyExists") => Err(Stop::Occupied),
            (Call::Patch(..) | Call::ReplaceStatus(..), "Conflict" | "NotFound") => Err(Stop::Stale),
            // Another object has the name.
            (Call::Patch(..), "Invalid") if error.fields.iter().any(|f| f == "metadata.uid") => {
                Err(Stop::Stale)
            }
            _ => Err(Stop::Failed(Failure::Api(error))),
        },
        Err(failure) => Err(Stop::Failed(failure)),
    }
}

fn create<K: Serialize + Resource<DynamicType = ()>>(kind: Kind, object: &K) -> Result<Call, Stop> {
    let mut value = serde_json::to_value(object).map_err(|e| Stop::Refused(e.to_string()))?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    Ok(Call::Create(kind, value))
}

fn delete(kind: Kind, name: &str, uid: &str) -> Call {
    let options = DeleteOptions {
        uid: Some(uid.to_owned()),
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    };
    Call::Delete(kind, name.to_owned(), options)
}

/// Tells the next one that can be told, after so many have declined.
fn ask(view: &ClusterView, declined: usize, call: EtcdCall) -> Result<Call, Stop> {
    let speakers = view.speakers();
    let member = speakers.get(declined).map(|m| m.name()).unwrap_or_default();
    to(view, member, call)
}

/// Tells the member that vouched for the list the plan rests on.
fn speak(view: &ClusterView, call: EtcdCall) -> Result<Call, Stop> {
    let from = view.etcd.membership.as_ref().map(|seen| seen.from.clone()).unwrap_or_default();
    to(view, &from, call)
}

fn to(view: &ClusterView, member: &str, call: EtcdCall) -> Result<Call, Stop> {
    let found = view.members.iter().find(|m| m.name() == member).and_then(|m| endpoint(view, m));
    found
        .map(|at| Call::Etcd(at, call))
        .ok_or_else(|| Stop::Refused(format!("member {member} can not be talked to")))
}

fn version(view: &ClusterView, name: &str) -> Option<String> {
    view.members.iter().find(|m| m.name() == name).and_then(|m| m.member.metadata.resource_version.clone())
}
