//! What a plan can ask for. Every action can be repeated: it names its object by UID, chooses names before the call, and
//! counts "already so" as done.

mod words;

use std::collections::BTreeMap;

use api::{EtcdMember, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde_json::Value;

use crate::disruption::Permit;

/// One step. One that takes a member down or out, or lets go of what it has, carries the permit of `disruption`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action {
    CreateService(Box<Service>),
    /// Merge-patches what the operator owns of a Service.
    RepairService {
        name: String,
        patch: Value,
    },
    CreateBudget(Box<PodDisruptionBudget>),
    /// Sets `minAvailable` and clears `maxUnavailable`; both together are invalid.
    ResizeBudget {
        name: String,
        uid: String,
        min_available: i32,
    },
    DeleteBudget {
        name: String,
        uid: String,
    },
    /// Makes the cluster the owner of a Service or budget of ours that has none.
    AdoptService {
        name: String,
        uid: String,
        owners: Vec<OwnerReference>,
    },
    AdoptBudget {
        name: String,
        uid: String,
        owners: Vec<OwnerReference>,
    },
    /// Makes a member the owner of the very Pod or claim that it has on record, and that has none.
    AdoptPod {
        name: String,
        uid: String,
        owners: Vec<OwnerReference>,
    },
    AdoptVolume {
        name: String,
        uid: String,
        owners: Vec<OwnerReference>,
    },
    CreateMember(Box<EtcdMember>),
    /// Makes the cluster the owner of a member that was adopted without one.
    AdoptMember {
        name: String,
        uid: String,
        owners: Vec<OwnerReference>,
    },
    /// Notes on a member that this cluster (its UID) was still there after the member was given to it. Until then the end of
    /// that cluster is no reason to let the member go: it may have been left behind in the very moment it was taken up.
    ConfirmMember {
        name: String,
        uid: String,
        cluster: String,
    },
    /// Takes off a member what it was given before it should be deleted: it stays.
    RetainMember {
        name: String,
        uid: String,
    },
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
        because: Leaving,
        #[serde(skip)]
        permit: Permit,
    },
    /// Puts a member to sleep, volume kept, or wakes it.
    SetDormant {
        name: String,
        uid: String,
        dormant: bool,
        /// etcd has said that nobody else votes; without that, the member may wait for others when it wakes up.
        confirmed: bool,
        #[serde(skip)]
        permit: Permit,
    },
    /// Looks for what a member seems to have lost, and that may only have lost its labels; they are put back then.
    SeekLost {
        name: String,
        loss: Loss,
    },
    /// Puts back the labels of a member: live looks find members by them.
    LabelMember {
        name: String,
        uid: String,
        labels: BTreeMap<String, String>,
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
        #[serde(skip)]
        permit: Permit,
    },
    CreateVolume(Box<PersistentVolumeClaim>),
    CreatePod(Box<Pod>),
    DeletePod {
        name: String,
        uid: String,
        because: Ending,
        #[serde(skip)]
        permit: Permit,
    },
    /// Sets or removes the role label by which Services and budgets select voters.
    LabelPod {
        name: String,
        uid: String,
        voter: bool,
    },
    /// Tells the first Pod of a member that has joined how etcd has to start from now on: as a member that exists and
    /// knows nobody, so that it can not begin anew with an empty directory.
    SettlePod {
        name: String,
        uid: String,
        initial_cluster: String,
    },
    /// Tells the Pod of a seed that goes, and has never served, not to start any more: whoever reached it after the last look
    /// would write to what is about to be deleted.
    WithdrawPod {
        name: String,
        uid: String,
        #[serde(skip)]
        permit: Permit,
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
    /// Hands leadership over before the leader is taken out. Courtesy, not necessity: a failure does not end the pass.
    MoveLeader {
        from: String,
        to: String,
        id: u64,
    },
    /// Takes a member out of etcd.
    RemoveFromEtcd {
        member: String,
        id: u64,
        #[serde(skip)]
        permit: Permit,
    },
    /// Makes sure that the members have the last change of the membership on their disks. etcd does not by itself: the
    /// last voter of a cluster, killed after the last but one was taken out, comes back waiting for that one's vote.
    PersistMembership,
    /// Takes a member out of etcd that no EtcdMember stands for. The last look for one is a live one.
    RemoveOrphan {
        member: String,
        id: u64,
        #[serde(skip)]
        permit: Permit,
    },
}

/// Why a member is taken out of a living cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Leaving {
    /// There are more members than wanted.
    Surplus { wanted: i32 },
    /// It can not come back with its data.
    Broken(Loss),
    /// It has never joined, and the spec it was made from has changed.
    Outdated,
}

/// What is wrong with a member that can not come back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Loss {
    /// Its data was in memory, and the Pod that held it is gone or has ended.
    Pod,
    /// Its claim is gone.
    Volume,
    /// Its claim is another one than it joined with.
    OtherVolume,
    /// Its etcd dies whenever it is started.
    CrashLoop { restarts: i32 },
    /// Its Pod does not end: the node does not answer.
    StuckPod,
    /// Its volume is on nodes that are gone.
    NoNode,
}

/// Why a Pod is ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Ending {
    /// It has ended by itself and will not run again (T4).
    Ended,
    /// Its member (this UID) is paused.
    Paused { member: String },
    /// Its member (this UID) has never joined, and was told to join a list that has changed since (T13).
    Overtaken { member: String },
}

/// Why a member may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Release {
    /// A linearizable read of this pass does not list it (any more).
    OutOfEtcd,
    /// It never was in an etcd cluster. The last look before the finalizer goes is a live one: the cluster still does not
    /// know of any.
    NeverFormed,
    /// It names this cluster, but is of another, and its user has deleted it.
    Outsider,
    /// It has no owner, and neither its Pod nor its volume is there any more.
    Empty,
    /// Its cluster object (this UID, if it is known) is deleted. The last look before the finalizer goes is a live one. One
    /// that would be kept for its data is let go only if it is `empty`: neither its Pod nor its volume is there any more.
    ClusterDeleted { cluster: String, uid: Option<String>, empty: bool },
}

impl Action {
    /// The reason under which the step is announced as an Event; `None` for steps of no interest to a user.
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::CreateMember(_) => "MemberCreated",
            Self::AdoptMember { .. } => "MemberAdopted",
            Self::DeleteMember { because: Leaving::Surplus { .. }, .. } => "ScalingDown",
            Self::DeleteMember { .. } => "ReplacingMember",
            Self::SetDormant { dormant: true, .. } => "Paused",
            Self::SetDormant { .. } => "Resumed",
            Self::DeletePod { .. } => "PodDeleted",
            Self::AddLearner { .. } => "LearnerAdded",
            Self::Promote { .. } => "LearnerPromoted",
            Self::MoveLeader { .. } => "LeaderMoved",
            Self::RemoveFromEtcd { .. } => "MemberRemoved",
            Self::RemoveOrphan { .. } => "OrphanRemoved",
            _ => return None,
        })
    }

    /// The member the step is about.
    pub fn member(&self) -> Option<&str> {
        match self {
            Self::CreateMember(member) => member.metadata.name.as_deref(),
            Self::CreatePod(pod) => pod.metadata.name.as_deref(),
            Self::CreateVolume(claim) => claim.metadata.name.as_deref().and_then(names::member_of_pvc),
            Self::AdoptVolume { name, .. } => names::member_of_pvc(name),
            Self::AdoptMember { name, .. }
            | Self::AdoptPod { name, .. }
            | Self::ConfirmMember { name, .. }
            | Self::RetainMember { name, .. }
            | Self::WireMember { name, .. }
            | Self::DeleteMember { name, .. }
            | Self::SetDormant { name, .. }
            | Self::SeekLost { name, .. }
            | Self::LabelMember { name, .. }
            | Self::GuardMember { name, .. }
            | Self::ReleaseMember { name, .. }
            | Self::DeletePod { name, .. }
            | Self::LabelPod { name, .. }
            | Self::SettlePod { name, .. }
            | Self::WithdrawPod { name, .. } => Some(name),
            Self::AddLearner { member, .. }
            | Self::Promote { member, .. }
            | Self::RemoveFromEtcd { member, .. }
            | Self::RemoveOrphan { member, .. } => Some(member),
            Self::CreateService(_)
            | Self::RepairService { .. }
            | Self::AdoptService { .. }
            | Self::CreateBudget(_)
            | Self::ResizeBudget { .. }
            | Self::DeleteBudget { .. }
            | Self::AdoptBudget { .. }
            | Self::MoveLeader { .. }
            | Self::PersistMembership => None,
        }
    }

    /// Whether the step has to be left out because that one failed. Steps of different members do not wait for each other
    /// (T32): a claim that one member is refused must not keep the Pod of another from being made again. Nobody is let go
    /// whose removal is not on disk, and without the headless Service there is no first member.
    pub fn waits_for(&self, failed: &Self) -> bool {
        // What was looked for, or can not be let go, goes on.
        let goes_on = match failed {
            Self::SeekLost { .. } => true,
            // A learner gets its vote when it has caught up, for which it may need another Pod first.
            Self::Promote { .. } => true,
            Self::DeleteMember { because: Leaving::Surplus { .. }, .. } => matches!(self, Self::CreatePod(_)),
            _ => false,
        };
        if self.member().is_some() && self.member() == failed.member() && !goes_on {
            return true;
        }
        match failed {
            Self::PersistMembership => matches!(self, Self::ReleaseMember { .. }),
            Self::CreateService(service) => {
                let headless = service.spec.as_ref().is_some_and(|s| s.cluster_ip.is_some());
                headless && matches!(self, Self::CreateMember(_))
            }
            Self::RemoveOrphan { .. } | Self::RemoveFromEtcd { .. } => {
                matches!(self, Self::PersistMembership)
            }
            _ => false,
        }
    }

    /// Whether the step changes anything that the next pass would see.
    pub fn is_progress(&self) -> bool {
        !matches!(self, Self::PersistMembership | Self::SeekLost { .. })
    }

    /// What makes a step the same as an earlier one, whatever UID its object has by now; `None` for steps that are
    /// ordinary however often they are taken.
    pub fn deed(&self) -> Option<String> {
        let ordinary = matches!(self, Self::PersistMembership | Self::MoveLeader { .. });
        // Every replacement has another name.
        match self {
            Self::DeleteMember { because: Leaving::Outdated, .. } => Some("make members anew".to_owned()),
            Self::DeleteMember { because: Leaving::Broken(Loss::Pod), .. } => {
                Some("replace lost Pods".to_owned())
            }
            // How often it has restarted by now makes no difference.
            Self::DeleteMember { name, because: Leaving::Broken(Loss::CrashLoop { .. }), .. } => {
                Some(format!("replace member {name}, which is in a crash loop"))
            }
            _ => (!ordinary).then(|| self.to_string()),
        }
    }
}
