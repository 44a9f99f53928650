//! Which looks each action needs, in order, and those that a status needs before it says what later decisions rest on.

use api::{EtcdClusterStatus, EtcdMemberStatus, conditions, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{Look, Must};
use crate::action::{Action, Ending, Leaving, Loss, Release};
use crate::view::{ClusterView, MemberView};
use crate::{Kind, healing, identity, outdated};

impl Action {
    /// The live looks that an action needs, in order.
    pub fn looks(&self, view: &ClusterView) -> Vec<Look> {
        let uid = || view.cluster.as_ref().and_then(|c| c.metadata.uid.clone());
        let cluster = |must| Look::named(Kind::Cluster, view.name.clone(), must);
        match self {
            // When a cluster is deleted, the end of its Services can be seen before its own (H20).
            Self::CreateService(_) | Self::CreateBudget(_) if view.etcd_cluster().is_some() => {
                vec![cluster(Must::Live { uid: uid() })]
            }
            // An owner that is not there any more takes what it owns with it.
            Self::AdoptMember { .. }
            | Self::ConfirmMember { .. }
            | Self::AdoptService { .. }
            | Self::AdoptBudget { .. } => {
                vec![cluster(Must::Live { uid: uid() })]
            }
            // Who is on its way out by now keeps its note.
            Self::RetainMember { name, uid } => {
                vec![Look::named(Kind::Member, name, Must::Live { uid: Some(uid.clone()) })]
            }
            Self::AdoptPod { owners, .. } | Self::AdoptVolume { owners, .. } => {
                let owner = owners.iter().find(|o| o.controller == Some(true));
                let lives = |o: &OwnerReference| {
                    Look::named(Kind::Member, &o.name, Must::Live { uid: Some(o.uid.clone()) })
                };
                owner.map(lives).into_iter().collect()
            }
            // T25: nothing that may hold data of this name exists.
            Self::CreateMember(member) if member.spec.bootstrap => {
                let none = |kind| Look::labelled(kind, view, Must::NotExist);
                let unformed = cluster(Must::LiveUnformed { uid: uid() });
                vec![unformed, none(Kind::Member), none(Kind::Pod), none(Kind::Claim)]
            }
            Self::DeleteMember { name, uid: member, because, .. } => match because {
                Leaving::Surplus { wanted } => vec![
                    cluster(Must::Aim { uid: uid(), replicas: *wanted }),
                    Look::labelled(Kind::Member, view, exceed(view, *wanted)),
                ],
                Leaving::Broken(loss) => look_for(view, name, *loss),
                Leaving::Outdated => {
                    let mut looks =
                        vec![Look::named(Kind::Member, name, Must::NeverHaveJoined { uid: member.clone() })];
                    let seed = view.members.iter().find(|m| m.name() == name && m.member.spec.bootstrap);
                    // That a joiner has never run is what etcd's list of this pass says; a seed has nobody to vouch for it.
                    if let Some(seed) = seed {
                        looks.extend(looks_for_a_blank(view, seed));
                    }
                    looks
                }
            },
            Self::SetDormant { uid: member, dormant: true, .. } => vec![
                cluster(Must::Aim { uid: uid(), replicas: 0 }),
                Look::labelled(
                    Kind::Member,
                    view,
                    Must::BeAlone { uid: member.clone(), outsiders: outsiders(view) },
                ),
            ],
            Self::ReleaseMember {
                name, because: Release::ClusterDeleted { cluster, uid, empty }, ..
            } => {
                let mut looks = vec![Look::named(Kind::Cluster, cluster, Must::BeGone { uid: uid.clone() })];
                if *empty {
                    looks.extend(looks_for_nothing(view, name));
                }
                looks
            }
            // A blank claim for one that has joined would be the end of its data (T7).
            Self::CreateVolume(claim) => {
                let owner =
                    claim.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
                let fresh = |o: &OwnerReference| {
                    Look::named(Kind::Member, &o.name, Must::NeverHaveJoined { uid: o.uid.clone() })
                };
                owner.map(fresh).into_iter().collect()
            }
            // That nothing was ever written to it: nobody but its Pod can tell.
            Self::ReleaseMember { name, because: Release::NeverFormed, .. } => {
                let mut looks = vec![cluster(Must::LiveUnformed { uid: uid() })];
                if let Some(seed) = view.members.iter().find(|m| m.name() == name) {
                    looks.extend(looks_for_a_blank(view, seed));
                }
                looks
            }
            Self::ReleaseMember { name, because: Release::Empty, .. } => looks_for_nothing(view, name),
            Self::WithdrawPod { name, uid, .. } => {
                let member = view.members.iter().find(|m| m.name() == name).map(|m| m.uid().to_owned());
                let (uid, member) = (uid.clone(), member.unwrap_or_default());
                vec![Look::named(Kind::Pod, name, Must::NeverHaveServed { uid, member, withdrawn: false })]
            }
            // T7: from its first vote on it must never begin anew, and its status may have been lost since it was written.
            Self::Promote { member: name, .. } => {
                let known = view.members.iter().find(|m| m.name() == name);
                let uid = known.map(|m| m.uid().to_owned()).unwrap_or_default();
                vec![Look::named(Kind::Member, name, Must::HaveJoined { uid })]
            }
            Self::SeekLost { name, loss } => look_for(view, name, *loss),
            Self::RemoveOrphan { member, .. } => vec![Look::named(Kind::Member, member, Must::NotExist)],
            Self::DeletePod { name, uid, because, .. } => match because {
                Ending::Ended => vec![Look::named(Kind::Pod, name, Must::HaveEnded { uid: uid.clone() })],
                Ending::Paused { member } => {
                    vec![Look::named(Kind::Member, name, Must::BePaused { uid: member.clone() })]
                }
                Ending::Overtaken { member } => {
                    vec![Look::named(Kind::Member, name, Must::NeverHaveJoined { uid: member.clone() })]
                }
            },
            _ => vec![],
        }
    }
}

/// The looks that tell that nothing is left of a member.
fn looks_for_nothing(view: &ClusterView, name: &str) -> Vec<Look> {
    let Some(member) = view.members.iter().find(|m| m.name() == name) else { return vec![] };
    [(Kind::Pod, name.to_owned()), (Kind::Claim, names::pvc(name))]
        .map(|(kind, object)| Look::named(kind, object, not_belong_to(view, member)))
        .to_vec()
}

/// The looks that a seed which is not on record needs before it goes.
fn looks_for_a_blank(view: &ClusterView, seed: &MemberView) -> Vec<Look> {
    let name = seed.name();
    let mut looks = vec![];
    match &seed.pod {
        None => looks.push(Look::named(Kind::Pod, name, not_belong_to(view, seed))),
        Some(pod) if !seed.owns(&pod.metadata) => {}
        Some(pod) => {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            // What was in memory is gone with it.
            let ended = seed.is_memory() && healing::has_ended(pod);
            let must = if ended {
                Must::HaveEnded { uid }
            } else {
                Must::NeverHaveServed { uid, member: seed.uid().to_owned(), withdrawn: true }
            };
            looks.push(Look::named(Kind::Pod, name, must));
        }
    }
    match &seed.volume {
        None => looks.push(Look::named(Kind::Claim, names::pvc(name), not_belong_to(view, seed))),
        Some(claim) if !outdated::is_bound(claim) => {
            let uid = claim.metadata.uid.clone().unwrap_or_default();
            looks.push(Look::named(Kind::Claim, names::pvc(name), Must::BeUnbound { uid }));
        }
        Some(_) => {}
    }
    looks
}

/// The UIDs of members that carry the cluster's label and are not its own, or not any more.
fn outsiders(view: &ClusterView) -> Vec<String> {
    let Some(cluster) = &view.cluster else { return vec![] };
    let family = identity::family(view, cluster);
    let listed =
        |m: &MemberView| view.etcd.membership.as_ref().is_none_or(|seen| m.row_in(&seen.fact).is_some());
    let counts = |m: &MemberView| family.has(m) && (!m.is_let_go() || listed(m));
    view.members.iter().filter(|m| !counts(m)).map(|m| m.uid().to_owned()).collect()
}

fn exceed(view: &ClusterView, replicas: i32) -> Must {
    let leaving = view.members.iter().filter(|m| m.is_deleting()).map(|m| m.uid().to_owned()).collect();
    Must::Exceed { cluster: view.cluster.as_ref().and_then(|c| c.metadata.uid.clone()), replicas, leaving }
}

fn not_belong_to(view: &ClusterView, member: &MemberView) -> Must {
    let status = member.member.status.clone().unwrap_or_default();
    Must::NotBelongTo {
        member: member.uid().to_owned(),
        recorded: [status.pod_uid, status.pvc_uid].into_iter().flatten().collect(),
        labels: labels::for_member(&view.name, member.name()),
    }
}

/// The looks that confirm what is wrong with a member.
fn look_for(view: &ClusterView, name: &str, loss: Loss) -> Vec<Look> {
    let Some(member) = view.members.iter().find(|m| m.name() == name) else { return vec![] };
    let status = member.member.status.clone().unwrap_or_default();
    let pod_uid = || member.pod.as_ref().and_then(|p| p.metadata.uid.clone()).unwrap_or_default();
    let not_belong = || not_belong_to(view, member);
    let pod = |must| Look::named(Kind::Pod, name, must);
    let claim = |must| Look::named(Kind::Claim, names::pvc(name), must);
    vec![match loss {
        Loss::Pod if member.pod.is_none() => pod(not_belong()),
        Loss::Pod => pod(Must::HaveEnded { uid: status.pod_uid.unwrap_or_default() }),
        Loss::Volume => claim(not_belong()),
        Loss::OtherVolume => claim(Must::BeAnother { uid: status.pvc_uid.unwrap_or_default() }),
        Loss::CrashLoop { .. } => pod(Must::CrashLoop { uid: pod_uid() }),
        Loss::StuckPod => {
            let node = member.pod.as_ref().and_then(|p| p.spec.as_ref()?.node_name.clone());
            let silent = Must::BeSilent { pod: name.to_owned() };
            return [pod(Must::BeEnding { uid: pod_uid() })]
                .into_iter()
                .chain(node.map(|node| Look::named(Kind::Node, node, silent)))
                .collect();
        }
        Loss::NoNode => pod(Must::BeUnschedulable { uid: pod_uid() }),
    }]
}

/// The look that a member's status needs before it goes on record, at the very first time, together with its claim. A
/// cache can be late about a claim that was swapped, and from then on the one that holds the data would be taken for a
/// wrong one (T7).
pub fn look_before_record(member: &MemberView, status: &EtcdMemberStatus) -> Option<Look> {
    let is_first = status.member_id.is_some() && !member.has_joined() && !member.is_memory();
    let uid = status.pvc_uid.clone().filter(|_| is_first)?;
    Some(Look::named(Kind::Claim, names::pvc(member.name()), Must::Be { uid }))
}

/// The same status without the word that nothing is left, because a look did not confirm it. That nobody answers is true all
/// the same, and must not stay untold.
pub fn without_loss(status: &EtcdClusterStatus, why: &str) -> EtcdClusterStatus {
    use conditions::reason::{ALL_MEMBERS_LOST, QUORUM_LOST};
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().filter(|c| c.reason == ALL_MEMBERS_LOST) {
        condition.reason = QUORUM_LOST.to_owned();
        condition.message = format!(
            "no member answers; whether all data is lost is not certain, because {why}. Delete nothing"
        );
    }
    status
}

/// The looks that a cluster's status needs before it says, for the first time, that nothing is left: people act on that.
pub fn looks_before_loss(view: &ClusterView, status: &EtcdClusterStatus) -> Vec<Look> {
    let lost = |conditions: &[_]| {
        conditions::find(conditions, conditions::AVAILABLE)
            .is_some_and(|c| c.reason == conditions::reason::ALL_MEMBERS_LOST)
    };
    let before = view.cluster.as_ref().and_then(|c| c.status.as_ref());
    if !lost(&status.conditions) || before.is_some_and(|s| lost(&s.conditions)) {
        return vec![];
    }
    if view.members.is_empty() {
        let none = |kind| Look::labelled(kind, view, Must::NotExist);
        return vec![none(Kind::Member), none(Kind::Pod), none(Kind::Claim)];
    }
    let loss = |m: &MemberView| healing::lost_data(m).map(|loss| look_for(view, m.name(), loss));
    view.members.iter().filter_map(loss).flatten().collect()
}
