//! One call of the operator, as a value: it can be carried out now, later, or never, and its answer can get lost.

use api::labels;
use etcd::{Endpoint, Membership, Status};
use serde_json::Value;

use crate::apiserver::{ApiError, DeleteOptions, Deletion, Kind, Selector, Sub};
use crate::world::{World, name_of, namespace};
use crate::{Millis, etcd as model};

/// Longest wait for the API server, as in the operator.
pub const API_LIMIT: Millis = 10_000;
/// Longest waits for etcd, as in its client.
pub const STATUS_LIMIT: Millis = 1000;
pub const READ_LIMIT: Millis = 2000;
pub const WRITE_LIMIT: Millis = 5000;

/// A request and whom it goes to.
#[derive(Clone, Debug)]
pub enum Call {
    Get(Kind, String),
    /// All that carry the label of this cluster.
    List(Kind, String),
    Create(Kind, Value),
    Patch(Kind, String, Value),
    ReplaceStatus(Kind, String, Value),
    Delete(Kind, String, DeleteOptions),
    Etcd(Endpoint, EtcdCall),
}

/// A request to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdCall {
    Status,
    Members,
    AddLearner(String),
    /// What the operator never does.
    AddVoter(String),
    Promote(u64),
    MoveLeader(u64),
    Remove(u64),
    Persist,
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Answer {
    Object(Value),
    Objects(Vec<Value>),
    /// The object is gone, or is going and looks like this.
    Deleted,
    Status(Status),
    Members(Membership),
    Done,
}

/// Why nothing good came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    Api(ApiError),
    Etcd(etcd::Error),
    Timeout,
}

impl Call {
    /// Whether it changes anything.
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Get(..) | Self::List(..) | Self::Etcd(_, EtcdCall::Status | EtcdCall::Members))
    }

    /// How long its caller waits at most.
    pub fn limit(&self) -> Millis {
        match self {
            Self::Etcd(_, EtcdCall::Status) => STATUS_LIMIT,
            Self::Etcd(_, EtcdCall::Members) => READ_LIMIT,
            Self::Etcd(..) => WRITE_LIMIT,
            _ => API_LIMIT,
        }
    }

    /// What its caller is told when nothing comes back.
    pub fn timeout(&self) -> Failure {
        match self {
            Self::Etcd(at, _) => {
                let member = at.member().to_owned();
                Failure::Etcd(etcd::Error::Timeout {
                    member,
                    limit: std::time::Duration::from_millis(self.limit()),
                })
            }
            _ => Failure::Timeout,
        }
    }

    /// Whether it gets through to the machine it goes to.
    pub fn reaches(&self, world: &World) -> bool {
        match self {
            Self::Etcd(at, _) => world.reaches_address(&at.address),
            _ => true,
        }
    }

    /// Carries it out.
    pub fn execute(&self, world: &mut World) -> Result<Answer, Failure> {
        let now = world.now;
        let shared = world.api.clone();
        let mut api = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let object = match self {
            Self::Get(kind, name) if !kind.namespaced => api.get(*kind, "", name),
            Self::Get(kind, name) => api.get(*kind, namespace(name), name),
            Self::List(kind, cluster) => {
                let selector =
                    Selector::labels(&format!("{}={cluster}", labels::CLUSTER)).unwrap_or_default();
                let (objects, _) = api.list(*kind, Some(namespace(cluster)), &selector);
                return Ok(Answer::Objects(objects));
            }
            Self::Create(kind, object) => {
                api.create(now, *kind, namespace(&name_of(object)), object.clone(), &mut world.rng)
            }
            Self::Patch(kind, name, patch) => api.patch_merge(now, *kind, namespace(name), name, patch, None),
            Self::ReplaceStatus(kind, name, object) => {
                api.update(now, *kind, namespace(name), name, object.clone(), Some(Sub::Status))
            }
            Self::Delete(kind, name, options) => match api.delete(now, *kind, namespace(name), name, options)
            {
                Ok(Deletion::Gone(_)) => return Ok(Answer::Deleted),
                Ok(Deletion::Pending(object)) => Ok(object),
                Err(error) => Err(error),
            },
            Self::Etcd(at, call) => {
                drop(api);
                return ask_etcd(world, at, call);
            }
        };
        object.map(Answer::Object).map_err(Failure::Api)
    }
}

fn ask_etcd(world: &mut World, at: &Endpoint, call: &EtcdCall) -> Result<Answer, Failure> {
    let request = match call {
        EtcdCall::Status => model::Request::Status,
        EtcdCall::Members => model::Request::Members,
        EtcdCall::AddLearner(url) => model::Request::AddLearner { peer_url: url.clone() },
        EtcdCall::AddVoter(url) => model::Request::AddVoter { peer_url: url.clone() },
        EtcdCall::Promote(id) => model::Request::Promote { id: *id },
        EtcdCall::MoveLeader(id) => model::Request::MoveLeader { to: *id },
        EtcdCall::Remove(id) => model::Request::Remove { id: *id },
        EtcdCall::Persist => model::Request::Persist,
    };
    match world.ask_etcd(at, request) {
        Ok(model::Response::Status(status)) => Ok(Answer::Status(status)),
        Ok(model::Response::Members(list)) => Ok(Answer::Members(list)),
        Ok(model::Response::Done) => Ok(Answer::Done),
        Err(error) => Err(Failure::Etcd(error)),
    }
}
