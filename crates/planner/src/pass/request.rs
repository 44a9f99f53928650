//! What is asked of the API server and of etcd, and what comes back, as plain data. A pass says what it asks; whoever plays it
//! has the network, or a simulated world, and brings the answers.

use std::time::Duration;

use etcd::{Endpoint, Membership};
use kube::core::Status;
use serde::Serialize;
use serde_json::Value;

use crate::{Declared, Kind, Which};

/// An API server that needs longer is not going to answer.
pub const API_LIMIT: Duration = Duration::from_secs(10);

/// A request. Objects of a namespaced kind are meant in the namespace of the cluster that the pass is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// One object by its name.
    Get { kind: Kind, name: String },
    /// All that carry the label of this cluster; without one, all there are.
    List { kind: Kind, cluster: Option<String> },
    /// A new object, with its name, `apiVersion` and `kind`.
    Create { kind: Kind, object: Value },
    /// A merge patch.
    Patch { kind: Kind, name: String, patch: Value },
    /// A new status for this version of an object.
    ReplaceStatus { kind: Kind, name: String, object: Value },
    /// The end of the object of this UID, and in the background that of what it owns.
    Delete { kind: Kind, name: String, uid: String },
    /// Something for one member of etcd.
    Etcd { at: Endpoint, call: EtcdCall },
}

/// What is asked of a member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdCall {
    /// What it says about itself.
    Status,
    /// The linearizable list of members. Whoever may be too few to have one is not waited for as long as usual.
    Members {
        limit: Option<Duration>,
    },
    AddLearner {
        peer_url: String,
    },
    Promote {
        id: u64,
    },
    MoveLeader {
        to: u64,
    },
    Remove {
        id: u64,
    },
    /// One more entry, which changes nothing, so that the last change of the membership is on disk.
    Persist,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object as it is, or as it has become.
    Object(Value),
    /// What was listed.
    Objects(Vec<Value>),
    /// The object is gone.
    Gone,
    Status(etcd::Status),
    Members(Membership),
    /// It was done, and there is nothing to say about it.
    Done,
}

/// Why nothing good came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The API server said no.
    Refused(Box<Status>),
    /// It could not be asked, or its answer not be read.
    Unreachable(String),
    /// No answer in time. A change may have been made all the same.
    Timeout,
    Etcd(etcd::Error),
    /// It was not sent: another replica may be leading.
    Deposed,
}

impl Failure {
    /// Whether the API server gave this reason.
    pub fn is_reason(&self, reason: &str) -> bool {
        matches!(self, Self::Refused(status) if status.reason == reason)
    }

    /// Whether a patch was meant for an object of the same name that is gone: its UID, given along, is taken for an attempt
    /// to change that of the successor.
    pub fn is_about_another_object(&self) -> bool {
        let Self::Refused(status) = self else { return false };
        let mut causes = status.details.iter().flat_map(|d| &d.causes);
        status.reason == "Invalid" && causes.any(|c| c.field == "metadata.uid")
    }
}

impl Request {
    /// Writes the status of an object that was read, and nothing else of it. `None` if it can not be put into words.
    pub fn replace_status<K: Declared + Serialize>(object: &K) -> Option<Self> {
        let name = object.meta().name.clone()?;
        Some(Self::ReplaceStatus { kind: K::KIND, name, object: super::translation::wire(object).ok()? })
    }

    /// The request that takes a look.
    pub fn look(kind: Kind, which: &Which) -> Self {
        match which {
            Which::Named(name) => Self::Get { kind, name: name.clone() },
            Which::Labelled(cluster) => Self::List { kind, cluster: Some(cluster.clone()) },
        }
    }

    /// The kind and name of the object it is about, for messages.
    pub fn what(&self) -> String {
        let name_of = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match self {
            Self::Get { kind, name } | Self::Patch { kind, name, .. } | Self::Delete { kind, name, .. } => {
                format!("{kind} {name}")
            }
            Self::List { kind, cluster: Some(cluster) } => format!("{kind}s of cluster {cluster}"),
            Self::List { kind, cluster: None } => format!("{kind}s"),
            Self::Create { kind, object } => format!("{kind} {}", name_of(object)),
            Self::ReplaceStatus { kind, name, .. } => format!("status of {kind} {name}"),
            Self::Etcd { at, .. } => format!("etcd member {}", at.member()),
        }
    }

    /// How long its answer is waited for.
    pub fn limit(&self) -> Duration {
        match self {
            Self::Etcd { call, .. } => call.limit(),
            _ => API_LIMIT,
        }
    }

    /// Whether it changes anything.
    pub fn is_write(&self) -> bool {
        match self {
            Self::Get { .. } | Self::List { .. } => false,
            Self::Etcd { call, .. } => !matches!(call, EtcdCall::Status | EtcdCall::Members { .. }),
            _ => true,
        }
    }
}

impl EtcdCall {
    /// How long its answer is waited for.
    pub fn limit(&self) -> Duration {
        match self {
            Self::Status => etcd::STATUS_LIMIT,
            Self::Members { limit } => limit.unwrap_or(etcd::READ_LIMIT),
            _ => etcd::WRITE_LIMIT,
        }
    }

    /// What it means that a member has not answered in time.
    pub fn silence(&self, member: &str) -> etcd::Error {
        etcd::Error::Timeout { member: member.to_owned(), limit: self.limit() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_for_a_predecessor_is_told_from_one_that_is_wrong() {
        let refusal = |field: &str| {
            let status = json!({
                "status": "Failure", "reason": "Invalid", "code": 422,
                "details": { "causes": [{ "reason": "FieldValueInvalid", "field": field }] },
            });
            Failure::Refused(serde_json::from_value(status).unwrap())
        };
        assert!(refusal("metadata.uid").is_about_another_object());
        assert!(!refusal("spec.replicas").is_about_another_object());
    }
}
