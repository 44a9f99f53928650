//! What has to be true right before an action, looked up live. A plan rests on a cache, and a cache can be late or blind:
//! to what has lost its label, to what has come back under an old name, to a user who has changed their mind. So every
//! action that can cost data, a quorum or a member says here what is looked at last, and what it must show. Whoever
//! carries actions out takes the looks; what they mean is decided here.

mod looks;

use std::collections::BTreeMap;
use std::fmt;

use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::view::{ClusterView, controller_uid};
use crate::{Kind, command, healing};

pub use looks::{look_before_record, looks_before_loss, without_loss};

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
    /// The member of this UID, which is on record as having joined.
    HaveJoined { uid: String },
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
            Must::HaveJoined { uid } => {
                this(uid).is_some_and(|m| !m["status"]["memberID"].as_str().unwrap_or("").is_empty())
            }
            Must::NeverHaveJoined { uid } => {
                this(uid).is_some_and(|m| m["status"]["memberID"].as_str().unwrap_or("").is_empty())
            }
            Must::NeverHaveServed { uid, member, withdrawn } => this(uid)
                .filter(|found| goes_with(found, member))
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
            Self::HaveJoined { .. } => "is the one that was seen, and has a memberID",
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

/// Whether a Pod goes with that member, or, if a user wants it to stay, will never start: it was told so.
fn goes_with(found: &Value, member: &str) -> bool {
    let told = || pod(found).is_some_and(|pod| command::is_withdrawn(&pod));
    controller(found).map_or_else(|| made_for(found) == Some(member) && told(), |owner| owner == member)
}

/// The UID of the member that a Pod was made for.
fn made_for(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][labels::annotation::MEMBER_UID].as_str()
}

fn pod(object: &Value) -> Option<k8s_openapi::api::core::v1::Pod> {
    serde_json::from_value(object.clone()).ok()
}

#[cfg(test)]
mod tests;
