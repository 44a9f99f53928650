//! What has to be true right before an action, looked up live. A plan rests on a cache, and a cache can be late or blind:
//! to what has lost its label, to what has come back under an old name, to a user who has changed their mind. So every
//! action that can cost data, a quorum or a member says here what is looked at last, and what it must show. Whoever
//! carries actions out takes the looks; what they mean is decided here.

use std::collections::BTreeMap;
use std::fmt;

use api::{EtcdClusterStatus, EtcdMemberStatus, conditions, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::action::{Action, Ending, Leaving, Loss, Release};
use crate::view::{ClusterView, MemberView, controller_uid};
use crate::{Kind, command, healing, identity, outdated};

/// Which objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Named(String),
    /// All that carry the label of this cluster.
    Labelled(String),
}

/// One live look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub kind: Kind,
    pub which: Which,
    pub must: Must,
}

/// What a look has to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Must {
    /// The object of this UID lives.
    Live { uid: Option<String> },
    /// It lives, and knows of no etcd cluster.
    LiveUnformed { uid: Option<String> },
    /// It lives, and is being made into one of so many members.
    Aim { uid: Option<String>, replicas: i32 },
    /// It is gone, going, or another one. Without a UID, any cluster of that name counts.
    BeGone { uid: Option<String> },
    /// There is none.
    NotExist,
    /// More than so many members of this cluster run, and none is leaving but those that were known to.
    Exceed { cluster: Option<String>, replicas: i32, leaving: Vec<String> },
    /// The member of this UID is the only one, apart from those that were known not to belong here.
    BeAlone { uid: String, outsiders: Vec<String> },
    /// Nothing that belongs to this member, by its owner or because the member has it on record under one of these UIDs; what
    /// does should have these labels.
    NotBelongTo { member: String, recorded: Vec<String>, labels: BTreeMap<String, String> },
    /// Not the object of this UID, or one that has ended.
    HaveEnded { uid: String },
    /// Not the object of this UID.
    BeAnother { uid: String },
    /// The object of this UID.
    Be { uid: String },
    /// The claim of this UID, or none, and no volume is behind it.
    BeUnbound { uid: String },
    /// The Pod of this UID, and its etcd keeps dying.
    CrashLoop { uid: String },
    /// The Pod of this UID, on its way out.
    BeEnding { uid: String },
    /// No node, or one whose kubelet is not heard. On any other a Pod comes to its end, unless something holds it.
    BeSilent { pod: String },
    /// The Pod of this UID, which no node can run.
    BeUnschedulable { uid: String },
    /// The member of this UID, which is not on record as having joined.
    NeverHaveJoined { uid: String },
    /// The Pod of this UID, which goes with its member, and whose etcd has never been ready; and, if it can be told at all,
    /// has been told not to start.
    NeverHaveServed { uid: String, member: String, withdrawn: bool },
    /// The member of this UID, paused.
    BePaused { uid: String },
}

/// Why an action must not be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// The world has moved on; the next pass decides anew.
    Stale(String),
    /// Only a user can put it right.
    Refused(String),
    /// An object of ours is there, and was not seen because somebody changed its labels. They are put back, on this very
    /// object, and the next pass sees it.
    Unlabelled { uid: String, labels: BTreeMap<String, String> },
}

impl Look {
    fn named(kind: Kind, name: impl Into<String>, must: Must) -> Self {
        Self { kind, which: Which::Named(name.into()), must }
    }

    fn labelled(kind: Kind, view: &ClusterView, must: Must) -> Self {
        Self { kind, which: Which::Labelled(view.name.clone()), must }
    }

    /// The object looked at, for messages.
    pub fn what(&self) -> String {
        match &self.which {
            Which::Named(name) => format!("{} {name}", self.kind),
            Which::Labelled(cluster) => format!("{}s of cluster {cluster}", self.kind),
        }
    }

    /// What the objects that were found, live, say about the action.
    pub fn judge(&self, found: &[Value]) -> Result<(), Contradiction> {
        let one = found.first();
        let is = |uid: &Option<String>| one.filter(|o| uid_of(o) == uid.as_deref());
        let this = |uid: &str| one.filter(|o| uid_of(o) == Some(uid));
        let lives = |o: &&Value| o["metadata"]["deletionTimestamp"].is_null();
        let holds = match &self.must {
            Must::Live { uid } => is(uid).filter(lives).is_some(),
            Must::LiveUnformed { uid } => is(uid)
                .filter(lives)
                .is_some_and(|c| c["status"]["clusterID"].as_str().unwrap_or("").is_empty()),
            Must::Aim { uid, replicas } => is(uid)
                .filter(lives)
                .is_some_and(|c| c["status"]["observed"]["replicas"].as_i64() == Some(i64::from(*replicas))),
            Must::BeGone { uid } => one.is_none_or(|c| {
                // One that leaves its dependents behind takes nobody along.
                let orphans =
                    c["metadata"]["finalizers"].as_array().is_some_and(|f| f.iter().any(|f| f == "orphan"));
                (uid.is_some() && uid_of(c) != uid.as_deref()) || (!lives(&c) && !orphans)
            }),
            Must::NotExist => match one.filter(lives).filter(|_| matches!(self.which, Which::Labelled(_))) {
                Some(found) => {
                    let name = found["metadata"]["name"].as_str().unwrap_or_default();
                    return Err(Contradiction::Refused(format!(
                        "{} {name} is there, carries the label of this cluster and may hold its data; no cluster is formed \
                         beside it",
                        self.kind
                    )));
                }
                None => one.is_none(),
            },
            Must::Exceed { cluster, replicas, leaving } => {
                let ours: Vec<_> = found.iter().filter(|m| controller(m) == cluster.as_deref()).collect();
                let running = |m: &&&Value| lives(m) && m["spec"]["dormant"] != Value::Bool(true);
                let count = i64::try_from(ours.iter().filter(running).count()).unwrap_or(0);
                let known = |m: &&&Value| uid_of(m).is_some_and(|uid| leaving.iter().any(|l| l == uid));
                ours.iter().all(|m| lives(m) || known(&m)) && count > i64::from(*replicas)
            }
            Must::BeAlone { uid, outsiders } => {
                let known = |m: &Value| uid_of(m).is_some_and(|uid| outsiders.iter().any(|o| o == uid));
                let ours: Vec<_> = found.iter().filter(|m| !known(m)).collect();
                matches!(ours.as_slice(), [only] if uid_of(only) == Some(uid))
            }
            Must::NotBelongTo { member, recorded, labels } => {
                let known = |o: &Value| {
                    uid_of(o).is_some_and(|uid| recorded.iter().any(|r| r == uid))
                        || made_for(o) == Some(member)
                };
                let belongs = |o: &&Value| controller(o).map_or_else(|| known(o), |owner| owner == member);
                match one.filter(belongs) {
                    Some(found) => return Err(unlabelled(self.what(), found, labels)),
                    None => true,
                }
            }
            Must::HaveEnded { uid } => this(uid)
                .is_none_or(|p| matches!(p["status"]["phase"].as_str(), Some("Failed" | "Succeeded"))),
            Must::BeAnother { uid } => this(uid).is_none(),
            Must::Be { uid } => this(uid).is_some(),
            Must::BeUnbound { uid } => {
                one.is_none() || this(uid).is_some_and(|claim| claim["spec"]["volumeName"].is_null())
            }
            Must::CrashLoop { uid } => {
                this(uid).filter(lives).and_then(pod).is_some_and(|p| healing::crash_loop(&p).is_some())
            }
            Must::BeEnding { uid } => this(uid).is_some_and(|p| !lives(&p)),
            Must::BeSilent { pod } => match one.filter(|node| is_ready(node)) {
                Some(_) => {
                    return Err(Contradiction::Refused(format!(
                        "Pod {pod} does not end, although its {} is Ready; its member is kept. See which finalizer holds the Pod, or \
                         what goes on on that node",
                        self.what()
                    )));
                }
                None => true,
            },
            Must::BeUnschedulable { uid } => this(uid)
                .filter(lives)
                .and_then(pod)
                .is_some_and(|p| crate::sightings::unschedulable(&p).is_some()),
            Must::NeverHaveJoined { uid } => {
                this(uid).is_some_and(|m| m["status"]["memberID"].as_str().unwrap_or("").is_empty())
            }
            Must::NeverHaveServed { uid, member, withdrawn } => this(uid)
                .filter(|pod| controller(pod) == Some(member))
                .and_then(pod)
                .filter(|pod| !withdrawn || command::is_withdrawn(pod) || !command::can_be_told(pod))
                .is_some_and(|pod| healing::never_served(&pod)),
            Must::BePaused { uid } => this(uid).is_some_and(|m| m["spec"]["dormant"] == Value::Bool(true)),
        };
        if holds { Ok(()) } else { Err(Contradiction::Stale(self.what())) }
    }
}

/// What it means that an object which is to be made is there already, although the cache does not have it: the cache lags,
/// or somebody changed its labels, or it is somebody else's (T21).
pub fn occupied(what: &str, wanted: &ObjectMeta, found: &Value) -> Contradiction {
    let owner = controller_uid(wanted);
    let labels = wanted.labels.clone().unwrap_or_default();
    let made_by_us = found["metadata"]["labels"][labels::MANAGED_BY] == labels::OPERATOR;
    let free = controller(found).is_none();
    let ours = free
        && (made_for(found).is_some_and(|uid| Some(uid) == owner) || (made_by_us && is_clusters(wanted)));
    if controller(found) == owner || ours {
        return unlabelled(what.to_owned(), found, &labels);
    }
    let owners = found["metadata"]["ownerReferences"].as_array();
    let theirs = owners.and_then(|o| o.iter().find(|o| o["controller"] == Value::Bool(true))).map_or_else(
        || "nobody".to_owned(),
        |o| {
            let text = |key: &str| o[key].as_str().unwrap_or_default().to_owned();
            format!("{} {} of UID {}", text("kind"), text("name"), text("uid"))
        },
    );
    let ours = if is_clusters(wanted) { "this EtcdCluster" } else { "its EtcdMember" };
    Contradiction::Refused(format!(
        "{what} is there and not owned by {ours} (owner: {theirs}), so it is neither used nor deleted; if it is not needed \
         and holds no data, delete it"
    ))
}

/// Services and budgets belong to the cluster itself; they are taken back when nobody owns them.
fn is_clusters(wanted: &ObjectMeta) -> bool {
    wanted.owner_references.iter().flatten().any(|o| o.controller == Some(true) && o.kind == "EtcdCluster")
}

fn unlabelled(what: String, found: &Value, wanted: &BTreeMap<String, String>) -> Contradiction {
    let present = &found["metadata"]["labels"];
    let missing = |(key, value): &(&String, &String)| present[key.as_str()].as_str() != Some(value);
    let labels: BTreeMap<_, _> =
        wanted.iter().filter(missing).map(|(key, value)| (key.clone(), value.clone())).collect();
    if !labels.contains_key(labels::CLUSTER) {
        return Contradiction::Stale(what);
    }
    Contradiction::Unlabelled { uid: uid_of(found).unwrap_or_default().to_owned(), labels }
}

impl fmt::Display for Must {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live { .. } => "lives, under the UID that was seen",
            Self::LiveUnformed { .. } => "lives, under the UID that was seen, and has no clusterID",
            Self::Aim { .. } => {
                "lives, under the UID that was seen, and still has this number of members as its target"
            }
            Self::BeGone { .. } => "is gone, or going with all it owns, or another one",
            Self::NotExist => "none exists",
            Self::Exceed { .. } => "are more than wanted, and none is leaving but those that were seen to",
            Self::BeAlone { .. } => "are this one alone",
            Self::NotBelongTo { .. } => "is gone, or not this member's",
            Self::HaveEnded { .. } => "is gone, or has ended",
            Self::BeAnother { .. } => "is gone, or another one than the member joined with",
            Self::Be { .. } => "is the one that was seen",
            Self::BeUnbound { .. } => "is gone, or the one that was seen, and not bound to a volume",
            Self::CrashLoop { .. } => "is the one that was seen, and its etcd is down between two crashes",
            Self::BeEnding { .. } => "is the one that was seen, and still terminates",
            Self::BeSilent { .. } => "is gone, or not Ready",
            Self::BeUnschedulable { .. } => "is the one that was seen, and still has no node",
            Self::NeverHaveJoined { .. } => "is the one that was seen, and has no memberID",
            Self::NeverHaveServed { withdrawn: false, .. } => {
                "is the one that was seen, goes with its member, and has never served"
            }
            Self::NeverHaveServed { .. } => {
                "is the one that was seen, goes with its member, has never served, and was told not to start"
            }
            Self::BePaused { .. } => "is the one that was seen, and is paused",
        })
    }
}

/// What is looked at, and what it must show, as in the table of docs/evidence.md.
impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what(), self.must)
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

pub(crate) fn uid_of(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

fn controller(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|o| o["controller"] == Value::Bool(true))?["uid"].as_str()
}

/// The UID of the member that a Pod was made for.
fn made_for(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][labels::annotation::MEMBER_UID].as_str()
}

fn pod(object: &Value) -> Option<k8s_openapi::api::core::v1::Pod> {
    serde_json::from_value(object.clone()).ok()
}

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
            Self::DeleteMember { name, uid: member, because } => match because {
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
            Self::ReleaseMember { because: Release::ClusterDeleted { cluster, uid }, .. } => {
                vec![Look::named(Kind::Cluster, cluster, Must::BeGone { uid: uid.clone() })]
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
            Self::ReleaseMember { name, because: Release::Empty, .. } => {
                let member = view.members.iter().find(|m| m.name() == name);
                let gone = |m: &MemberView| {
                    [(Kind::Pod, name.clone()), (Kind::Claim, names::pvc(name))]
                        .map(|(kind, object)| Look::named(kind, object, not_belong_to(view, m)))
                        .to_vec()
                };
                member.map(gone).unwrap_or_default()
            }
            Self::WithdrawPod { name, uid } => {
                let member = view.members.iter().find(|m| m.name() == name).map(|m| m.uid().to_owned());
                let (uid, member) = (uid.clone(), member.unwrap_or_default());
                vec![Look::named(Kind::Pod, name, Must::NeverHaveServed { uid, member, withdrawn: false })]
            }
            Self::SeekLost { name, loss } => look_for(view, name, *loss),
            Self::RemoveOrphan { member, .. } => vec![Look::named(Kind::Member, member, Must::NotExist)],
            Self::DeletePod { name, uid, because } => match because {
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

#[cfg(test)]
mod tests {
    use super::*;
    use api::{EtcdCluster, EtcdMember};
    use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

    const DOCUMENT: &str = include_str!("../../../docs/evidence.md");
    const MEMBER: &str = "my-etcd-4xk7q";

    /// The row of the document that an action has; `None` for those that can cost nothing. Without a catch-all, so that
    /// whoever adds an action has to say.
    fn row(view: &ClusterView, action: &Action) -> Option<&'static str> {
        Some(match action {
            Action::CreateMember(member) if member.spec.bootstrap => {
                "form a cluster: create its first EtcdMember"
            }
            Action::DeleteMember { because, .. } => match because {
                Leaving::Surplus { .. } => "scale down: delete an EtcdMember",
                Leaving::Outdated if view.members[0].member.spec.bootstrap => {
                    "take out a seed that has formed nothing"
                }
                Leaving::Outdated => "make a joiner anew that never joined",
                Leaving::Broken(loss) => match loss {
                    Loss::Pod if view.members[0].pod.is_none() => {
                        "replace a member in memory: its Pod is gone"
                    }
                    Loss::Pod => "replace a member in memory: its Pod has ended",
                    Loss::Volume => "replace a member: its claim is gone",
                    Loss::OtherVolume => "replace a member: its claim is another one",
                    Loss::CrashLoop { .. } => "replace a member: its etcd crashes again and again",
                    Loss::StuckPod => "replace a member: its Pod is stuck in Terminating",
                    Loss::NoNode => "replace a member: its volume has no node",
                },
            },
            Action::RemoveFromEtcd { .. } => "take a member out of etcd whose EtcdMember was deleted",
            Action::RemoveOrphan { .. } => "take a member out of etcd that has no EtcdMember",
            Action::ReleaseMember { because, .. } => match because {
                Release::OutOfEtcd => "drop the finalizer: the member is out of etcd",
                Release::NeverFormed => "drop the finalizer: no cluster has formed",
                Release::Outsider => "drop the finalizer: the member is of another cluster",
                Release::Empty => "drop the finalizer: nothing is left of the member",
                Release::ClusterDeleted { .. } => "drop the finalizer: the EtcdCluster is deleted",
            },
            Action::SetDormant { dormant: true, .. } => "pause: put the last member to sleep",
            Action::DeletePod { because, .. } => match because {
                Ending::Ended => "delete a Pod that has ended",
                Ending::Paused { .. } => "delete the Pod of a paused member",
                Ending::Overtaken { .. } => "delete the Pod of a joiner that was told an old list",
            },
            Action::WithdrawPod { .. } => "tell the Pod of a seed that goes not to start",
            Action::CreateVolume(_) => "make a blank claim for a member",
            Action::DeleteBudget { .. } => "delete the PodDisruptionBudget",
            Action::AdoptMember { .. } | Action::AdoptService { .. } | Action::AdoptBudget { .. } => {
                "make the EtcdCluster the owner of a member, Service or budget"
            }
            Action::ConfirmMember { .. } => "confirm that an EtcdCluster has taken a member up",
            Action::AdoptPod { .. } | Action::AdoptVolume { .. } => {
                "make an EtcdMember the owner of its Pod or claim"
            }
            Action::CreateService(_)
            | Action::RepairService { .. }
            | Action::CreateBudget(_)
            | Action::ResizeBudget { .. }
            | Action::CreateMember(_)
            | Action::WireMember { .. }
            | Action::SetDormant { .. }
            | Action::GuardMember { .. }
            | Action::LabelMember { .. }
            | Action::SeekLost { .. }
            | Action::CreatePod(_)
            | Action::LabelPod { .. }
            | Action::SettlePod { .. }
            | Action::AddLearner { .. }
            | Action::Promote { .. }
            | Action::MoveLeader { .. }
            | Action::PersistMembership => return None,
        })
    }

    fn cluster() -> EtcdCluster {
        EtcdCluster::test("ns", "my-etcd").formed()
    }

    fn member() -> EtcdMember {
        cluster().member("4xk7q").id(1).voter().ready()
    }

    fn view(pod: Option<Pod>) -> ClusterView {
        let member = MemberView { member: member(), pod, ..MemberView::default() };
        let name = "my-etcd".to_owned();
        ClusterView { name, cluster: Some(cluster()), members: vec![member], ..ClusterView::default() }
    }

    fn placed() -> Pod {
        let spec =
            k8s_openapi::api::core::v1::PodSpec { node_name: Some("node-1".into()), ..Default::default() };
        Pod { spec: Some(spec), ..Pod::default() }
    }

    /// One of each that can cost something, with what it is carried out on.
    fn examples() -> Vec<(ClusterView, Action)> {
        let (name, uid) = (|| MEMBER.to_owned(), || "uid-of-my-etcd-4xk7q".to_owned());
        let leave = |because| Action::DeleteMember { name: name(), uid: uid(), because };
        let broken = |loss| leave(Leaving::Broken(loss));
        let release =
            |because| Action::ReleaseMember { name: name(), uid: uid(), finalizers: vec![], because };
        let end = |because| Action::DeletePod { name: name(), uid: uid(), because };
        let owners = |kind: &str, name: &str| {
            vec![OwnerReference {
                kind: kind.to_owned(),
                name: name.to_owned(),
                controller: Some(true),
                ..OwnerReference::default()
            }]
        };
        let (ours, its) = (|| owners("EtcdCluster", "my-etcd"), || owners("EtcdMember", MEMBER));
        let gone = Release::ClusterDeleted { cluster: "my-etcd".to_owned(), uid: None };
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta { owner_references: Some(its()), ..ObjectMeta::default() },
            ..PersistentVolumeClaim::default()
        };
        let of_nobody = [Action::CreateMember(Box::new(member().seed())), broken(Loss::Pod)];
        let of_a_pod = [
            leave(Leaving::Surplus { wanted: 1 }),
            leave(Leaving::Outdated),
            broken(Loss::Pod),
            broken(Loss::Volume),
            broken(Loss::OtherVolume),
            broken(Loss::CrashLoop { restarts: 5 }),
            broken(Loss::StuckPod),
            broken(Loss::NoNode),
            Action::RemoveFromEtcd { member: name(), id: 1 },
            Action::RemoveOrphan { member: name(), id: 1 },
            release(Release::OutOfEtcd),
            release(Release::Outsider),
            release(Release::Empty),
            Action::CreateVolume(Box::new(claim)),
            release(gone),
            Action::SetDormant { name: name(), uid: uid(), dormant: true, confirmed: true },
            end(Ending::Ended),
            end(Ending::Paused { member: uid() }),
            end(Ending::Overtaken { member: uid() }),
            Action::WithdrawPod { name: name(), uid: uid() },
            Action::DeleteBudget { name: "my-etcd".to_owned(), uid: String::new() },
            Action::AdoptMember { name: name(), uid: uid(), owners: ours() },
            Action::ConfirmMember { name: name(), uid: uid(), cluster: String::new() },
            Action::AdoptService { name: "my-etcd".to_owned(), uid: String::new(), owners: ours() },
            Action::AdoptBudget { name: "my-etcd".to_owned(), uid: String::new(), owners: ours() },
            Action::AdoptPod { name: name(), uid: String::new(), owners: its() },
            Action::AdoptVolume { name: names::pvc(MEMBER), uid: String::new(), owners: its() },
        ];
        let mut seed = view(Some(Pod::default()));
        let its_seed = &mut seed.members[0];
        its_seed.member.spec.bootstrap = true;
        its_seed.member.metadata.uid = Some("uid".to_owned());
        let owners = crate::view::controlled_by(&its_seed.member);
        its_seed.pod.as_mut().unwrap().metadata.owner_references = owners;
        let on = |pod: Option<Pod>| move |action| (view(pod.clone()), action);
        of_nobody
            .into_iter()
            .map(on(None))
            .chain(of_a_pod.into_iter().map(on(Some(placed()))))
            .chain([(seed.clone(), release(Release::NeverFormed)), (seed, leave(Leaving::Outdated))])
            .collect()
    }

    /// A status that says that nothing is left.
    fn all_lost() -> EtcdClusterStatus {
        let mut status = cluster().status.unwrap_or_default();
        let reason = conditions::reason::ALL_MEMBERS_LOST;
        let lost = conditions::NewCondition::new(conditions::AVAILABLE, false, reason, "", None);
        conditions::set_condition(&mut status.conditions, lost, api::fixtures::THEN);
        status
    }

    fn words(looks: &[Look]) -> String {
        let words: Vec<_> = looks.iter().map(Look::to_string).collect();
        if words.is_empty() { "none".to_owned() } else { words.join("<br>") }
    }

    /// What the code looks at, by the words of the document for the step.
    fn taken() -> BTreeMap<String, String> {
        let mut rows = BTreeMap::new();
        for (view, action) in examples() {
            let (row, looks) = (row(&view, &action).unwrap(), words(&action.looks(&view)));
            let before = rows.insert(row.to_owned(), looks.clone());
            assert!(before.is_none_or(|before| before == looks), "two kinds of looks for one row: {row}");
        }
        let newcomer = MemberView { member: cluster().member("4xk7q"), ..MemberView::default() };
        let status = EtcdMemberStatus { pvc_uid: Some(String::new()), ..member().status.unwrap_or_default() };
        let look = look_before_record(&newcomer, &status).unwrap();
        rows.insert("write down with which claim a member has joined".to_owned(), words(&[look]));
        let nobody = ClusterView { members: vec![], ..view(None) };
        let looks = looks_before_loss(&nobody, &all_lost());
        rows.insert("say `AllMembersLost`, without any EtcdMember".to_owned(), words(&looks));
        let looks = looks_before_loss(&view(None), &all_lost());
        rows.insert("say `AllMembersLost`, for each EtcdMember (here: claim gone)".to_owned(), words(&looks));
        rows
    }

    /// First and last cell of each row of the document's tables.
    fn documented() -> BTreeMap<String, String> {
        let cells = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let rows = cells.map(|row| row.split(" | ").collect::<Vec<_>>()).filter(|cells| cells[0] != "Step");
        rows.map(|cells| (cells[0].to_owned(), cells[cells.len() - 1].to_owned())).collect()
    }

    #[test]
    fn a_claim_that_was_seen_unbound_is_looked_at_again() {
        let claim = |volume: Value| serde_json::json!({ "metadata": { "uid": "x" }, "spec": { "volumeName": volume } });
        let look = Look::named(Kind::Claim, "data-c-a", Must::BeUnbound { uid: "x".into() });
        assert_eq!(look.judge(&[]), Ok(()));
        assert_eq!(look.judge(&[claim(Value::Null)]), Ok(()));
        assert!(look.judge(&[claim("pv-with-data".into())]).is_err());
        let other = Look::named(Kind::Claim, "data-c-a", Must::BeUnbound { uid: "y".into() });
        assert!(other.judge(&[claim(Value::Null)]).is_err(), "another one may be bound any moment");

        let mut view = view(None);
        let seed = &mut view.members[0];
        seed.member.spec.bootstrap = true;
        seed.volume = Some(PersistentVolumeClaim::default());
        let leaves =
            Action::DeleteMember { name: MEMBER.to_owned(), uid: String::new(), because: Leaving::Outdated };
        let unbound = |look: &Look| matches!(look.must, Must::BeUnbound { .. });
        assert!(leaves.looks(&view).iter().any(unbound));
    }

    #[test]
    fn t27_a_pod_that_does_not_end_on_a_node_that_is_ready_is_waited_for() {
        let stuck = Action::DeleteMember {
            name: MEMBER.to_owned(),
            uid: String::new(),
            because: Leaving::Broken(Loss::StuckPod),
        };
        let look = stuck.looks(&view(Some(placed()))).pop().unwrap();
        assert_eq!((look.kind, &look.which), (Kind::Node, &Which::Named("node-1".into())));
        let node = |ready: &str| serde_json::json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        assert_eq!(look.judge(&[]), Ok(()));
        assert_eq!(look.judge(&[node("Unknown")]), Ok(()));
        let why = look.judge(&[node("True")]).unwrap_err();
        assert!(matches!(why, Contradiction::Refused(why) if why.contains("Node node-1 is Ready")));
    }

    #[test]
    fn a_loss_that_a_look_contradicts_is_a_lost_quorum_all_the_same() {
        let told = without_loss(&all_lost(), "PersistentVolumeClaim data-c-a is there");
        let available = conditions::find(&told.conditions, conditions::AVAILABLE).unwrap();
        assert_eq!((available.status.as_str(), available.reason.as_str()), ("False", "QuorumLost"));
        assert!(available.message.contains("data-c-a is there"), "{}", available.message);
        assert_eq!(looks_before_loss(&view(None), &told), []);
    }

    #[test]
    fn t29_the_document_names_the_looks_that_are_taken() {
        let (taken, documented) = (taken(), documented());
        for (row, looks) in &taken {
            assert_eq!(documented.get(row), Some(looks), "docs/evidence.md, row \"{row}\"");
        }
        let unknown: Vec<_> = documented.keys().filter(|row| !taken.contains_key(*row)).collect();
        assert_eq!(unknown, [""; 0], "rows of docs/evidence.md that nothing stands for");
    }
}
