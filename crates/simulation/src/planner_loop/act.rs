//! Actions as calls: what the operator's `act` sends for each action, the live look it takes before a destructive one,
//! and how it reads the answer.

use api::{EtcdMemberStatus, labels, names};
use kube::Resource;
use operator::observe::endpoint;
use planner::{Action, ClusterView, Leaving, MemberView, Release};
use serde::Serialize;
use serde_json::{Value, json};

use super::call::{Answer, Call, EtcdCall, Failure};
use super::memory::Stop;
use crate::apiserver::kind::{BUDGET, CLAIM, ETCD_CLUSTER, ETCD_MEMBER, POD, SERVICE};
use crate::apiserver::{DeleteOptions, Kind, Propagation};

/// A last, live look before an action, and what it must show.
pub struct Look {
    pub call: Call,
    pub wanted: Wanted,
}

/// What has to be true.
pub enum Wanted {
    /// The cluster of this UID lives.
    Alive(Option<String>),
    /// The cluster of this UID lives, and does not know of any etcd cluster yet.
    Unformed(Option<String>),
    /// The cluster is gone, going, or another one.
    ClusterGone(Option<String>),
    /// Nobody has that name.
    Absent,
    /// It does not belong to this member.
    NotOf(String),
    /// It is the one of this UID.
    Same(String),
}

/// The live look that an action needs.
pub fn look(view: &ClusterView, action: &Action) -> Option<Look> {
    match action {
        Action::CreateService(_) | Action::CreateBudget(_) => {
            let cluster = view
                .living_cluster()
                .filter(|c| c.status.as_ref().is_some_and(|s| s.cluster_id.is_some()))?;
            let call = Call::Get(ETCD_CLUSTER, view.name.clone());
            Some(Look { call, wanted: Wanted::Alive(cluster.metadata.uid.clone()) })
        }
        Action::DeleteMember { name, because: Leaving::Broken(_), .. } => look_for_loss(view, name),
        Action::ReleaseMember { because: Release::ClusterDeleted { cluster, uid }, .. } => {
            let call = Call::Get(ETCD_CLUSTER, cluster.clone());
            Some(Look { call, wanted: Wanted::ClusterGone(uid.clone()) })
        }
        Action::ReleaseMember { because: Release::NeverFormed, .. } => {
            let uid = view.cluster.as_ref().and_then(|c| c.metadata.uid.clone());
            Some(Look { call: Call::Get(ETCD_CLUSTER, view.name.clone()), wanted: Wanted::Unformed(uid) })
        }
        Action::RemoveOrphan { member, .. } => {
            Some(Look { call: Call::Get(ETCD_MEMBER, member.clone()), wanted: Wanted::Absent })
        }
        _ => None,
    }
}

fn look_for_loss(view: &ClusterView, name: &str) -> Option<Look> {
    let member = view.members.iter().find(|m| m.name() == name)?;
    let call = if member.is_memory() && member.pod.is_none() {
        Call::Get(POD, name.to_owned())
    } else if !member.is_memory() && member.volume.is_none() {
        Call::Get(CLAIM, names::pvc(name))
    } else {
        return None;
    };
    Some(Look { call, wanted: Wanted::NotOf(member.uid().to_owned()) })
}

/// The live look that a member's status needs.
pub fn look_for_claim(member: &MemberView, status: &EtcdMemberStatus) -> Option<Look> {
    let wanted = Wanted::Same(planner::claim_to_confirm(member, status)?.to_owned());
    Some(Look { call: Call::Get(CLAIM, names::pvc(member.name())), wanted })
}

/// What the look says about the action.
pub fn judge(wanted: &Wanted, answer: Result<Answer, Failure>) -> Result<(), Stop> {
    let live = match answer {
        Ok(Answer::Object(object)) => Some(object),
        Err(Failure::Api(error)) if error.reason == "NotFound" => None,
        Ok(_) => None,
        Err(failure) => return Err(Stop::Failed(failure)),
    };
    let uid = |o: &Value| o["metadata"]["uid"].as_str().map(str::to_owned);
    let alive = |o: &Value| o["metadata"]["deletionTimestamp"].is_null();
    match wanted {
        Wanted::Alive(wanted) if live.as_ref().is_some_and(|c| uid(c) == *wanted && alive(c)) => Ok(()),
        Wanted::Unformed(wanted)
            if live.as_ref().is_some_and(|c| uid(c) == *wanted && c["status"]["clusterID"].is_null()) =>
        {
            Ok(())
        }
        Wanted::Alive(_) | Wanted::Unformed(_) => Err(Stop::Stale),
        Wanted::ClusterGone(wanted) => {
            let lives = live.as_ref().is_some_and(|c| (wanted.is_none() || uid(c) == *wanted) && alive(c));
            if lives { Err(Stop::Stale) } else { Ok(()) }
        }
        Wanted::Absent => live.map_or(Ok(()), |_| Err(Stop::Stale)),
        Wanted::NotOf(member) => match live {
            Some(live) if controller(&live) == Some(member) => {
                Err(Stop::Refused("it is there, but without its label".to_owned()))
            }
            _ => Ok(()),
        },
        Wanted::Same(wanted) => {
            if live.as_ref().and_then(uid).as_ref() == Some(wanted) {
                Ok(())
            } else {
                Err(Stop::Stale)
            }
        }
    }
}

fn controller(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|o| o["controller"] == json!(true))?["uid"].as_str()
}

/// The call that carries an action out; a reason when there is nobody to call.
pub fn call(view: &ClusterView, action: &Action) -> Result<Call, Stop> {
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
        Action::DeletePod { name, uid } => delete(POD, name, uid),
        Action::AdoptMember { name, uid, owners } => {
            let metadata =
                json!({ "uid": uid, "resourceVersion": version(view, name), "ownerReferences": owners });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": metadata }))
        }
        Action::SetDormant { name, uid, dormant } => {
            let spec = json!({ "dormant": dormant.then_some(true) });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": { "uid": uid }, "spec": spec }))
        }
        Action::WireMember { name, uid, initial_cluster } => {
            let spec = json!({ "initialCluster": initial_cluster });
            Call::Patch(ETCD_MEMBER, name.clone(), json!({ "metadata": { "uid": uid }, "spec": spec }))
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
        Action::AddLearner { peer_url, .. } => speak(view, EtcdCall::AddLearner(peer_url.clone()))?,
        Action::Promote { id, .. } => speak(view, EtcdCall::Promote(*id))?,
        Action::RemoveFromEtcd { id, .. } | Action::RemoveOrphan { id, .. } => {
            speak(view, EtcdCall::Remove(*id))?
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
            // The operator looks why; here nobody else makes objects under such names, so the cache lags.
            (Call::Create(..), "AlreadyExists") => Err(Stop::Stale),
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
