//! One call of the operator: it can be carried out now, later, or never, and its answer can get lost.

use api::labels;
use etcd::Endpoint;
use planner::pass::{Answer, EtcdCall, Failure, Request};

use crate::apiserver::kind::{
    BUDGET, CLAIM, ETCD_CLUSTER, ETCD_DEFRAG, ETCD_MEMBER, ETCD_SNAPSHOT, NODE, POD, SERVICE, VOLUME,
};
use crate::apiserver::{ApiError, DeleteOptions, Deletion, Kind, Propagation, Selector, Sub};
use crate::script::Verb;
use crate::world::{World, name_of};
use crate::{Millis, etcd as model};

/// A request of the operator's, and what a broken one makes of it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where the cluster is.
    pub namespace: String,
    pub request: Request,
    /// A learner is added as a voter, which the operator never does.
    pub votes: bool,
}

/// What the simulated API server calls a kind.
pub fn kind(kind: planner::Kind) -> Kind {
    match kind {
        planner::Kind::Cluster => ETCD_CLUSTER,
        planner::Kind::Member => ETCD_MEMBER,
        planner::Kind::Pod => POD,
        planner::Kind::Claim => CLAIM,
        planner::Kind::Service => SERVICE,
        planner::Kind::Budget => BUDGET,
        planner::Kind::Volume => VOLUME,
        planner::Kind::Node => NODE,
        planner::Kind::Snapshot => ETCD_SNAPSHOT,
        planner::Kind::Defrag => ETCD_DEFRAG,
    }
}

fn refused(error: &ApiError) -> Failure {
    match serde_json::from_value(error.status()) {
        Ok(status) => Failure::Refused(Box::new(status)),
        Err(error) => Failure::Unreachable(error.to_string()),
    }
}

impl Call {
    pub fn new(namespace: &str, request: Request) -> Self {
        Self { namespace: namespace.to_owned(), request, votes: false }
    }

    /// How long its caller waits at most.
    pub fn limit(&self) -> Millis {
        u64::try_from(self.request.limit().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Whether it goes to the API server.
    pub fn is_api(&self) -> bool {
        !matches!(self.request, Request::Etcd { .. })
    }

    /// What its caller is told when nothing comes back.
    pub fn timeout(&self) -> Failure {
        match &self.request {
            Request::Etcd { at, call } => Failure::Etcd(call.silence(at.member())),
            _ => Failure::Timeout,
        }
    }

    /// Whether it gets through to the machine it goes to.
    pub fn reaches(&self, world: &World) -> bool {
        match &self.request {
            Request::Etcd { at, .. } => world.reaches_address(&at.address),
            _ => true,
        }
    }

    /// What admission is asked about, for what it is asked about.
    pub fn admission(&self) -> Option<(Kind, Verb, String)> {
        Some(match &self.request {
            Request::Create { kind: k, object } => (kind(*k), Verb::Create, name_of(object)),
            Request::Patch { kind: k, name, .. } => (kind(*k), Verb::Patch, name.clone()),
            Request::ReplaceStatus { kind: k, name, .. } => (kind(*k), Verb::Status, name.clone()),
            Request::Delete { kind: k, name, .. } => (kind(*k), Verb::Delete, name.clone()),
            Request::Get { .. } | Request::List { .. } | Request::Etcd { .. } => return None,
        })
    }

    /// Carries it out.
    pub fn execute(&self, world: &mut World) -> Result<Answer, Failure> {
        if let Request::Etcd { at, call } = &self.request {
            return self.ask_etcd(world, at, call);
        }
        let (now, namespace) = (world.now, self.namespace.as_str());
        let shared = world.api.clone();
        let mut api = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let answer = match &self.request {
            Request::Get { kind: k, name } => {
                let namespace = if k.is_namespaced() { namespace } else { "" };
                api.get(kind(*k), namespace, name)
            }
            Request::List { kind: k, cluster } => {
                let labels = cluster.as_ref().map(|cluster| format!("{}={cluster}", labels::CLUSTER));
                let selector =
                    labels.map_or_else(Selector::all, |l| Selector::labels(&l).unwrap_or_default());
                let namespace = k.is_namespaced().then_some(namespace);
                return Ok(Answer::Objects(api.list(kind(*k), namespace, &selector).0));
            }
            Request::Create { kind: k, object } => {
                api.create(now, kind(*k), namespace, object.clone(), &mut world.rng)
            }
            Request::Patch { kind: k, name, patch } => {
                api.patch_merge(now, kind(*k), namespace, name, patch, None)
            }
            Request::ReplaceStatus { kind: k, name, object } => {
                api.update(now, kind(*k), namespace, name, object.clone(), Some(Sub::Status))
            }
            Request::Delete { kind: k, name, uid } => {
                let options = DeleteOptions {
                    uid: Some(uid.clone()),
                    propagation: Some(Propagation::Background),
                    ..DeleteOptions::default()
                };
                match api.delete(now, kind(*k), namespace, name, &options) {
                    Ok(Deletion::Gone(_)) => return Ok(Answer::Gone),
                    Ok(Deletion::Pending(object)) => Ok(object),
                    Err(error) => Err(error),
                }
            }
            Request::Etcd { .. } => return Ok(Answer::Done),
        };
        answer.map(Answer::Object).map_err(|error| refused(&error))
    }

    fn ask_etcd(&self, world: &mut World, at: &Endpoint, call: &EtcdCall) -> Result<Answer, Failure> {
        let request = match call {
            EtcdCall::Status => model::Request::Status,
            EtcdCall::Members { .. } => model::Request::Members,
            EtcdCall::AddLearner { peer_url } if self.votes => {
                model::Request::AddVoter { peer_url: peer_url.clone() }
            }
            EtcdCall::AddLearner { peer_url } => model::Request::AddLearner { peer_url: peer_url.clone() },
            EtcdCall::Promote { id } => model::Request::Promote { id: *id },
            EtcdCall::MoveLeader { to } => model::Request::MoveLeader { to: *to },
            EtcdCall::Remove { id } => model::Request::Remove { id: *id },
            EtcdCall::Persist => model::Request::Persist,
        };
        match world.ask_etcd(at, request) {
            Ok(model::Response::Status(status)) => Ok(Answer::Status(status)),
            Ok(model::Response::Members(list)) => Ok(Answer::Members(list)),
            Ok(model::Response::Done) => Ok(Answer::Done),
            Err(error) => Err(Failure::Etcd(error)),
        }
    }

    /// Lets a write through, if admission does.
    pub fn admitted(&self, world: &mut World) -> Result<Answer, Failure> {
        use crate::world::control::Admission;
        let Some((kind, verb, name)) = self.admission() else { return self.execute(world) };
        world.count_write(kind, verb, &name);
        match world.admit(kind, verb, &name) {
            Admission::Refused(error) => Err(refused(&error)),
            Admission::Undone(object) => Ok(Answer::Object(object)),
            Admission::Pass => match &self.request {
                Request::Create { kind: planner::Kind::Pod, object } => {
                    let object = world.as_made_before(object.clone());
                    let request = Request::Create { kind: planner::Kind::Pod, object };
                    Self { request, ..self.clone() }.execute(world)
                }
                _ => self.execute(world),
            },
        }
    }

    /// One line about it.
    pub fn describe(&self) -> String {
        match &self.request {
            Request::Get { kind, name } => format!("get {kind} {name}"),
            Request::List { .. } => format!("list {}", self.request.what()),
            Request::Create { .. } => format!("create {}", self.request.what()),
            Request::Patch { kind, name, patch } => format!("patch {kind} {name}: {patch}"),
            Request::ReplaceStatus { object, .. } => {
                let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let said: Vec<String> = conditions
                    .iter()
                    .map(|c| format!("{}={}/{}", text(&c["type"]), text(&c["status"]), text(&c["reason"])))
                    .collect();
                format!("{}: {}", self.request.what(), said.join(" "))
            }
            Request::Delete { kind, name, .. } => format!("delete {kind} {name}"),
            Request::Etcd { at, call } => format!("etcd at {}: {call:?}", at.member()),
        }
    }
}
