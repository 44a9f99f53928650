//! What a plan can ask for. Every action can be repeated: it names its object by UID, chooses names before the call, and
//! counts "already so" as done.

use std::fmt;

use api::EtcdMember;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use serde_json::Value;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    CreateService(Box<Service>),
    /// Merge-patches what the operator owns of a Service.
    RepairService {
        name: String,
        patch: Value,
    },
    CreateMember(Box<EtcdMember>),
    /// Tells a pending member whom to join.
    WireMember {
        name: String,
        uid: String,
        initial_cluster: String,
    },
    /// Takes a member out; the finalizer keeps it until etcd has let it go.
    DeleteMember {
        name: String,
        uid: String,
    },
    /// Adds the cleanup finalizer to a member that was made without it.
    GuardMember {
        name: String,
        uid: String,
        finalizers: Vec<String>,
    },
    /// Drops the cleanup finalizer.
    ReleaseMember {
        name: String,
        uid: String,
        finalizers: Vec<String>,
        because: Release,
    },
    CreateVolume(Box<PersistentVolumeClaim>),
    CreatePod(Box<Pod>),
    /// Sets or removes the role label by which Services and budgets select voters.
    LabelPod {
        name: String,
        uid: String,
        voter: bool,
    },
    /// Adds a member to etcd, without a vote.
    AddLearner {
        member: String,
        peer_url: String,
    },
    /// Gives a learner its vote.
    Promote {
        member: String,
        id: u64,
    },
    /// Takes a member out of etcd.
    RemoveFromEtcd {
        member: String,
        id: u64,
    },
}

/// Why a member may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// A linearizable read of this pass does not list it (any more).
    OutOfEtcd,
    /// It never was in an etcd cluster.
    NeverFormed,
    /// Its cluster object (this UID) is deleted. The last look before the finalizer goes is a live one.
    ClusterDeleted { cluster: String, uid: String },
}

impl Action {
    /// The reason under which the step is announced as an Event; `None` for steps of no interest to a user.
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::CreateMember(_) => "MemberCreated",
            Self::DeleteMember { .. } => "ScalingDown",
            Self::AddLearner { .. } => "LearnerAdded",
            Self::Promote { .. } => "LearnerPromoted",
            Self::RemoveFromEtcd { .. } => "MemberRemoved",
            _ => return None,
        })
    }

    /// The member the step is about, for Events.
    pub fn member(&self) -> Option<&str> {
        match self {
            Self::CreateMember(member) => member.metadata.name.as_deref(),
            Self::DeleteMember { name, .. } => Some(name),
            Self::AddLearner { member, .. }
            | Self::Promote { member, .. }
            | Self::RemoveFromEtcd { member, .. } => Some(member),
            _ => None,
        }
    }
}

/// What the step did, in the past tense, for logs and Events.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |m: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            m.name.clone().unwrap_or_default()
        };
        match self {
            Self::CreateService(s) => write!(f, "created Service {}", name(&s.metadata)),
            Self::RepairService { name, .. } => write!(f, "repaired Service {name}"),
            Self::CreateMember(m) if m.spec.bootstrap => {
                write!(f, "bootstrapping single-node cluster with member {}", name(&m.metadata))
            }
            Self::CreateMember(m) => write!(f, "scaling up: created member {}", name(&m.metadata)),
            Self::WireMember { name, .. } => write!(f, "member {name} knows whom to join"),
            Self::DeleteMember { name, .. } => write!(f, "scaling down: member {name} leaves"),
            Self::GuardMember { name, .. } => write!(f, "member {name} has its cleanup finalizer"),
            Self::ReleaseMember { name, .. } => write!(f, "member {name} may go"),
            Self::CreateVolume(v) => write!(f, "created PersistentVolumeClaim {}", name(&v.metadata)),
            Self::CreatePod(p) => write!(f, "created Pod {}", name(&p.metadata)),
            Self::LabelPod { name, voter: true, .. } => write!(f, "Pod {name} is labelled as a voter"),
            Self::LabelPod { name, .. } => write!(f, "Pod {name} is no longer labelled as a voter"),
            Self::AddLearner { member, .. } => write!(f, "added member {member} as learner"),
            Self::Promote { member, .. } => write!(f, "promoted learner {member}"),
            Self::RemoveFromEtcd { member, .. } => write!(f, "removed member {member} from etcd"),
        }
    }
}
