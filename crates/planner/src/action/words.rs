//! Actions in words, for logs, Events and conditions. Runbooks search logs for some of them, so their words stand together, and
//! names at the end.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Action, Leaving, Loss};

/// What the step did, in the past tense, for logs and Events.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |m: &ObjectMeta| m.name.clone().unwrap_or_default();
        match self {
            Self::CreateService(s) => write!(f, "created Service {}", name(&s.metadata)),
            Self::RepairService { name, .. } => write!(f, "repaired Service {name}"),
            Self::CreateBudget(b) => write!(f, "created PodDisruptionBudget {}", name(&b.metadata)),
            Self::ResizeBudget { name, min_available, .. } => {
                write!(f, "PodDisruptionBudget {name} keeps {min_available} members")
            }
            Self::DeleteBudget { name, .. } => write!(f, "deleted PodDisruptionBudget {name}"),
            Self::CreateMember(m) if m.spec.bootstrap => {
                write!(f, "bootstrapping single-node cluster with member {}", name(&m.metadata))
            }
            Self::CreateMember(m) => write!(f, "scaling up: created member {}", name(&m.metadata)),
            Self::AdoptMember { name, .. } => write!(f, "adopted member {name}"),
            Self::ConfirmMember { name, .. } => write!(f, "member {name} has been taken up"),
            Self::RetainMember { name, .. } => write!(f, "member {name} is to stay after all"),
            Self::AdoptService { name, .. } => write!(f, "adopted Service {name}"),
            Self::AdoptBudget { name, .. } => write!(f, "adopted PodDisruptionBudget {name}"),
            Self::AdoptPod { name, .. } => write!(f, "adopted Pod {name}"),
            Self::AdoptVolume { name, .. } => write!(f, "adopted PersistentVolumeClaim {name}"),
            Self::WireMember { name, .. } => {
                write!(
                    f,
                    "completing pending scale-up member before further action: {name} knows whom to join"
                )
            }
            Self::DeleteMember { name, because: Leaving::Surplus { .. }, .. } => {
                write!(f, "scaling down: member {name} leaves")
            }
            Self::DeleteMember { name, because: Leaving::Broken(Loss::Pod), .. } => {
                write!(f, "memory-backed member's pod is gone; deleting member for replacement: {name}")
            }
            Self::DeleteMember { name, because: Leaving::Broken(why), .. } => {
                let healthy = "while the rest of the cluster is healthy; deleting it for replacement";
                write!(f, "member {name} {why} {healthy}")?;
                match why {
                    Loss::CrashLoop { restarts } => write!(f, " ({restarts} restarts)"),
                    _ => Ok(()),
                }
            }
            Self::DeleteMember { name, because: Leaving::Outdated, .. } => {
                write!(f, "member {name} has never joined, and is not what the changed spec asks for")
            }
            Self::SetDormant { name, dormant: true, .. } => {
                write!(f, "paused member {name}, its volume stays")
            }
            Self::SetDormant { name, .. } => write!(f, "waking dormant member {name}"),
            Self::SeekLost { name, loss } => write!(f, "member {name} {loss}: looked for it"),
            Self::LabelMember { name, .. } => write!(f, "put back the labels of member {name}"),
            Self::GuardMember { name, .. } => write!(f, "member {name} has its cleanup finalizer"),
            Self::ReleaseMember { name, .. } => write!(f, "released member {name}: its finalizer is removed"),
            Self::CreateVolume(v) => write!(f, "created PersistentVolumeClaim {}", name(&v.metadata)),
            Self::CreatePod(p) => write!(f, "created Pod {}", name(&p.metadata)),
            Self::DeletePod { name, .. } => write!(f, "deleted Pod {name}"),
            Self::LabelPod { name, voter: true, .. } => write!(f, "Pod {name} is labelled as a voter"),
            Self::LabelPod { name, .. } => write!(f, "Pod {name} is no longer labelled as a voter"),
            Self::WithdrawPod { name, .. } => write!(f, "Pod {name} is told not to start, its member goes"),
            Self::SettlePod { name, .. } => {
                write!(f, "Pod {name} is told to start as an existing member from now on")
            }
            Self::AddLearner { member, .. } => write!(f, "added member as learner: {member}"),
            Self::Promote { member, .. } => write!(f, "promoted learner {member}"),
            Self::MoveLeader { from, to, .. } => write!(f, "moved leadership from {from} to {to}"),
            Self::RemoveFromEtcd { member, .. } => write!(f, "removed member {member} from etcd"),
            Self::PersistMembership => f.write_str("etcd has its membership on disk"),
            Self::RemoveOrphan { member, .. } => write!(f, "removed orphan {member} from etcd"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("lost its Pod, and with it its memory-backed data"),
            Self::Volume => f.write_str("lost its volume"),
            Self::OtherVolume => f.write_str("has another volume than the one it joined with"),
            Self::CrashLoop { .. } => f.write_str("is persistently crash-looping"),
            Self::StuckPod => f.write_str("has a Pod that does not end, its node seems gone"),
            Self::NoNode => f.write_str("has its volume on nodes that are gone or take no Pods"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permit;

    /// Runbooks of the Go operator search its log for these words.
    #[test]
    fn runbooks_find_their_words() {
        let (name, uid, permit) = (|| "c-abcde".to_owned(), || "u".to_owned(), Permit::forged);
        let wake = Action::SetDormant {
            name: name(),
            uid: uid(),
            dormant: false,
            confirmed: true,
            permit: permit(),
        };
        let broken = |loss| Action::DeleteMember {
            name: name(),
            uid: uid(),
            because: Leaving::Broken(loss),
            permit: permit(),
        };
        let told = Action::WireMember { name: name(), uid: uid(), initial_cluster: String::new() };
        for (action, words) in [
            (told, "completing pending scale-up member before further action"),
            (Action::AddLearner { member: name(), peer_url: String::new() }, "added member as learner"),
            (Action::Promote { member: name(), id: 1 }, "promoted learner"),
            (wake, "waking dormant member"),
            (broken(Loss::Pod), "memory-backed member's pod is gone; deleting member for replacement"),
            (
                broken(Loss::CrashLoop { restarts: 7 }),
                "persistently crash-looping while the rest of the cluster is healthy; deleting it for replacement",
            ),
        ] {
            let text = action.to_string();
            assert!(text.contains(words) && text.contains("c-abcde"), "{text}");
        }
    }
}
