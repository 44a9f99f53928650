//! Makes the requests of a pass: to the API server and to etcd, each within its limit.

use std::sync::Arc;

use api::labels;
use etcd::{Endpoint, Etcd};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use planner::Kind;
use planner::pass::{Answer, EtcdCall, Failure, Request};
use serde_json::Value;

use crate::runtime::leader::Mandate;
use crate::runtime::sentence;

/// The way out. Nothing is written over it by a replica that may not lead any more.
#[derive(Clone)]
pub struct Network {
    pub client: Client,
    pub etcd: Arc<dyn Etcd>,
    pub mandate: Mandate,
}

impl Network {
    /// Makes a request about a cluster in that namespace.
    pub async fn send(&self, namespace: &str, request: &Request) -> Result<Answer, Failure> {
        match request {
            request if request.is_write() && !self.mandate.holds() => Err(Failure::Deposed),
            // The list may be wanted in haste; apart from that, connections to etcd have these limits of their own.
            Request::Etcd { at, call: call @ EtcdCall::Members { limit: Some(limit) } } => {
                let answer = tokio::time::timeout(*limit, self.ask(at, call)).await;
                answer.unwrap_or_else(|_| Err(call.silence(at.member()))).map_err(Failure::Etcd)
            }
            Request::Etcd { at, call } => self.ask(at, call).await.map_err(Failure::Etcd),
            request => {
                let answer = tokio::time::timeout(request.limit(), self.call(namespace, request)).await;
                answer.unwrap_or(Err(Failure::Timeout))
            }
        }
    }

    async fn call(&self, namespace: &str, request: &Request) -> Result<Answer, Failure> {
        let api = |kind: Kind| -> Api<DynamicObject> {
            let (client, resource) = (self.client.clone(), kind.resource());
            if kind.is_namespaced() {
                Api::namespaced_with(client, namespace, &resource)
            } else {
                Api::all_with(client, &resource)
            }
        };
        let object = match request {
            Request::Get { kind, name } => api(*kind).get(name).await,
            Request::List { kind, cluster } => {
                let label_selector = cluster.as_ref().map(|name| format!("{}={name}", labels::CLUSTER));
                let of = ListParams { label_selector, ..ListParams::default() };
                let found = api(*kind).list(&of).await.map_err(failure)?;
                let objects: Result<Vec<_>, _> = found.items.iter().map(plain).collect();
                return objects.map(Answer::Objects);
            }
            Request::Create { kind, object } => {
                api(*kind).create(&PostParams::default(), &dynamic(object)?).await
            }
            Request::Patch { kind, name, patch } => {
                api(*kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
            }
            Request::ReplaceStatus { kind, name, object } => {
                api(*kind).replace_status(name, &PostParams::default(), &dynamic(object)?).await
            }
            Request::Delete { kind, name, uid } => {
                let only_this = Preconditions { uid: Some(uid.clone()), resource_version: None };
                let params = DeleteParams::background().preconditions(only_this);
                match api(*kind).delete(name, &params).await.map_err(failure)?.left() {
                    Some(leaving) => Ok(leaving),
                    None => return Ok(Answer::Gone),
                }
            }
            Request::Etcd { .. } => return Ok(Answer::Done),
        };
        plain(&object.map_err(failure)?).map(Answer::Object)
    }

    async fn ask(&self, at: &Endpoint, call: &EtcdCall) -> Result<Answer, etcd::Error> {
        let done = |()| Answer::Done;
        match call {
            EtcdCall::Status => self.etcd.status(at).await.map(Answer::Status),
            EtcdCall::Members { .. } => self.etcd.members(at).await.map(Answer::Members),
            EtcdCall::AddLearner { peer_url } => {
                self.etcd.add_learner(at, peer_url).await.map(Answer::Members)
            }
            EtcdCall::Promote { id } => self.etcd.promote(at, *id).await.map(Answer::Members),
            EtcdCall::MoveLeader { to } => self.etcd.move_leader(at, *to).await.map(done),
            EtcdCall::Remove { id } => self.etcd.remove(at, *id).await.map(done),
            EtcdCall::Persist => self.etcd.persist(at).await.map(done),
        }
    }
}

fn failure(error: kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => Failure::Refused(status),
        other => Failure::Unreachable(sentence::without_answer(&other)),
    }
}

fn dynamic(object: &Value) -> Result<DynamicObject, Failure> {
    serde_json::from_value(object.clone()).map_err(unreadable)
}

fn plain(object: &DynamicObject) -> Result<Value, Failure> {
    serde_json::to_value(object).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Failure {
    failure(kube::Error::SerdeError(error))
}

/// Whether the API server gave this reason.
pub fn is_reason(error: &kube::Error, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == reason)
}

/// Whether the API server refuses new objects because their namespace is being deleted.
pub fn is_terminating(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if planner::pass::is_terminating(status))
}
