//! Rules 8 and 9: after the last fault every cluster comes to rest where its spec says, or where a condition says why
//! not; and at rest nothing is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::conditions::{self, reason};
use api::labels::{self, annotation};
use api::names;
use serde_json::{Value, json};

use super::{Violation, condition};
use crate::Millis;
use crate::apiserver::Kind;
use crate::apiserver::kind::{BUDGET, CLAIM, ETCD_CLUSTER, ETCD_MEMBER, POD, SERVICE};
use crate::etcd::{Request, Response};
use crate::script::SECOND;
use crate::world::{World, name_of, uid_of};

/// Two health checks and their jitter.
const QUIET: Millis = 75 * SECOND;
/// How often it is looked.
const LOOK: Millis = 2 * SECOND;

/// How far a world is on its way to rest.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    looked_at: Millis,
    /// Everything is as it should be since then, and nothing was written.
    quiet: Option<(Millis, u64)>,
    last_reason: String,
    ever_settled: bool,
}

impl Rest {
    /// Whether everything has been in place, and silent, for long enough.
    pub fn is_reached(&mut self, world: &World) -> bool {
        if world.now < self.looked_at + LOOK {
            return false;
        }
        self.looked_at = world.now;
        if let Err(why) = settled(world) {
            self.last_reason = why;
            self.quiet = None;
            return false;
        }
        self.ever_settled = true;
        let revision = world.api().revision();
        match self.quiet {
            Some((since, at)) if at == revision => world.now - since > QUIET,
            _ => {
                self.quiet = Some((world.now, revision));
                false
            }
        }
    }

    /// What is wrong with a world that has not come to rest in time.
    pub fn verdict(&self, world: &World) -> Option<Violation> {
        Some(match settled(world) {
            // Who lost its data and kept its vote has a list of its own to tell, and nobody can join by that.
            Ok(()) if world.etcds.clusters().any(|id| super::is_misvoted(world, id)) => return None,
            Ok(()) if self.ever_settled => {
                Violation::new(9, "everything is in place, but writing does not stop".to_owned())
            }
            Ok(()) => Violation::new(8, self.last_reason.clone()),
            Err(why) => Violation::new(8, why),
        })
    }
}

/// Whether every cluster is where it should be; what is missing, if not.
fn settled(world: &World) -> Result<(), String> {
    for wish in &world.script.clusters {
        match world.object(ETCD_CLUSTER, &wish.name) {
            None => gone(world, &wish.name)?,
            // A Pod that a user took the owner off stays, and holds its claim, which holds its member.
            Some(cluster)
                if cluster["metadata"]["deletionTimestamp"].is_string()
                    && belongings(world, POD, &wish.name).iter().any(|pod| is_ownerless(pod)) => {}
            Some(cluster) if cluster["metadata"]["deletionTimestamp"].is_string() => {
                return Err(format!("cluster {} is still being deleted", wish.name));
            }
            Some(cluster) => place(world, &wish.name, &cluster)?,
        }
    }
    Ok(())
}

/// Whether a member was given to a cluster that was gone before anybody saw them together: its data is kept, and that is told.
fn is_unconfirmed(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let owner = metadata["ownerReferences"][0]["uid"].as_str();
    let confirmed = metadata["annotations"][annotation::ADOPTED_BY].as_str();
    let token = object["spec"]["clusterToken"].as_str();
    let made_for = |uid: &str| token.is_some_and(|token| token.ends_with(uid));
    metadata["deletionTimestamp"].is_string()
        && owner.is_some_and(|uid| confirmed != Some(uid) && token.is_some() && !made_for(uid))
}

/// Whether a member was on its way out of etcd when it was left behind without a cluster: its data may be the last, is kept, and
/// that is told.
fn is_kept_leaving(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string() && is_ownerless(object) && object["status"]["role"] == "leaving"
}

/// Nothing is left of a deleted cluster, unless that was asked for.
fn gone(world: &World, name: &str) -> Result<(), String> {
    if world.ledger.orphaned.contains_key(name) {
        return Ok(());
    }
    let members = belongings(world, ETCD_MEMBER, name);
    let is_kept = |m: &Value| is_unconfirmed(m) || is_kept_leaving(m);
    let kept: BTreeSet<String> = members.iter().filter(|m| is_kept(m)).map(|m| uid_of(m)).collect();
    for kind in [ETCD_MEMBER, POD, CLAIM, SERVICE, BUDGET] {
        // What a user took the owner off is theirs, except for members: the operator makes those its own again.
        // A claim is held by the Pod that mounts it, and that may be theirs.
        let held = |o: &Arc<Value>| {
            let pod = name_of(o).strip_prefix("data-").and_then(|member| world.object(POD, member));
            kind == CLAIM && pod.is_some_and(|pod| is_ownerless(&pod))
        };
        let disowned = |o: &Value| {
            (is_ownerless(o) && world.ledger.disowned.contains_key(&uid_of(o))) || kept.contains(&uid_of(o))
        };
        // With such a member everything that it owns stays.
        let of_theirs = |o: &Value| {
            let owners = o["metadata"]["ownerReferences"].as_array();
            let mut uids = owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str());
            uids.any(|uid| world.ledger.disowned.contains_key(uid) || kept.contains(uid))
        };
        let theirs = |o: &&Arc<Value>| {
            disowned(o) || of_theirs(o) || (kind != ETCD_MEMBER && (is_ownerless(o) || held(o)))
        };
        if let Some(left) = belongings(world, kind, name).iter().find(|o| !theirs(o)) {
            return Err(format!("{} {} is left of deleted cluster {name}", kind.kind, name_of(left)));
        }
    }
    Ok(())
}

fn belongings(world: &World, kind: Kind, cluster: &str) -> Vec<Arc<Value>> {
    let ours = |o: &Arc<Value>| o["metadata"]["labels"].get(labels::CLUSTER) == Some(&json!(cluster));
    world.objects(kind).into_iter().filter(ours).collect()
}

fn is_ownerless(object: &Value) -> bool {
    object["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)
}

/// Whether a user left a Pod or a claim behind whose member is gone: the operator says so, and leaves it alone.
fn is_littered(world: &World, cluster: &str) -> bool {
    let unowned =
        |o: &Arc<Value>, member: &str| is_ownerless(o) && world.object(ETCD_MEMBER, member).is_none();
    belongings(world, ETCD_MEMBER, cluster).iter().any(|m| is_held(m))
        || belongings(world, POD, cluster).iter().any(|p| unowned(p, &name_of(p)))
        || belongings(world, CLAIM, cluster)
            .iter()
            .any(|c| name_of(c).strip_prefix("data-").is_some_and(|member| unowned(c, member)))
}

/// Whether somebody else's finalizer is all that keeps a member.
fn is_held(member: &Value) -> bool {
    let finalizers = member["metadata"]["finalizers"].as_array();
    member["metadata"]["deletionTimestamp"].is_string()
        && finalizers.is_some_and(|f| f.iter().all(|f| f == crate::world::incidents::HOLD))
}

/// Pods of a cluster, without those whose member a user deleted and told them to stay.
fn own_pods(world: &World, cluster: &str) -> Vec<Arc<Value>> {
    let mut pods = belongings(world, POD, cluster);
    let member = |p: &Value| world.object(ETCD_MEMBER, &name_of(p));
    pods.retain(|p| !is_ownerless(p) || member(p).is_some());
    pods.retain(|p| !member(p).is_some_and(|m| is_held(&m)));
    pods
}

fn place(world: &World, name: &str, cluster: &Value) -> Result<(), String> {
    let wanted = cluster["spec"]["replicas"].as_u64().unwrap_or(3) as usize;
    let reached =
        if wanted == 0 { paused(world, name, cluster) } else { running(world, name, cluster, wanted) };
    reached.or_else(|why| parked(world, cluster).ok_or(why))
}

fn paused(world: &World, name: &str, cluster: &Value) -> Result<(), String> {
    expect(cluster, conditions::AVAILABLE, "False", reason::PAUSED)?;
    match own_pods(world, name).first() {
        Some(pod) => Err(format!("{name} is paused, but Pod {} is there", name_of(pod))),
        None => Ok(()),
    }
}

fn running(world: &World, name: &str, cluster: &Value, wanted: usize) -> Result<(), String> {
    expect(cluster, conditions::AVAILABLE, "True", reason::QUORUM_HEALTHY)?;
    expect(cluster, conditions::PROGRESSING, "False", reason::RECONCILED)?;
    if is_littered(world, name) {
        expect(cluster, conditions::DEGRADED, "True", reason::BLOCKED)?;
    } else {
        expect(cluster, conditions::DEGRADED, "False", reason::QUORUM_HEALTHY)?;
    }
    if cluster["status"]["observed"]["replicas"] != cluster["spec"]["replicas"]
        || cluster["status"]["observed"]["version"] != cluster["spec"]["version"]
    {
        return Err(format!("{name}: the latest spec was not taken up"));
    }
    let mut members = belongings(world, ETCD_MEMBER, name);
    members.retain(|m| !is_held(m));
    let leaving = members.iter().any(|m| m["metadata"]["deletionTimestamp"].is_string());
    if members.len() != wanted || leaving {
        return Err(format!("{name} has {} members instead of {wanted}", members.len()));
    }
    in_etcd(world, name, cluster, &members)?;
    let budget = world.object(BUDGET, &names::budget(name)).ok_or_else(|| format!("{name} has no budget"))?;
    if budget["spec"]["minAvailable"] != json!(wanted / 2 + 1) {
        return Err(format!("the budget of {name} keeps {}", budget["spec"]["minAvailable"]));
    }
    let unlabelled =
        |p: &&Arc<Value>| p["metadata"]["labels"].get(labels::ROLE) != Some(&json!(labels::VOTER));
    if let Some(pod) = own_pods(world, name).iter().find(unlabelled) {
        return Err(format!("Pod {} is not labelled as a voter", name_of(pod)));
    }
    for service in [names::headless_service(name), names::client_service(name)] {
        let found = world.object(SERVICE, &service).ok_or_else(|| format!("Service {service} is missing"))?;
        owned(&found, cluster)?;
    }
    owned(&budget, cluster)?;
    members.iter().try_for_each(|member| owned(member, cluster))
}

/// What belongs to a cluster goes with it.
fn owned(object: &Value, cluster: &Value) -> Result<(), String> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let ours = owners.is_some_and(|o| o.iter().any(|o| o["uid"] == cluster["metadata"]["uid"]));
    if ours { Ok(()) } else { Err(format!("{} {} has lost its owner", object["kind"], name_of(object))) }
}

/// etcd's own list names exactly the members, all of them voters.
fn in_etcd(world: &World, name: &str, cluster: &Value, members: &[Arc<Value>]) -> Result<(), String> {
    let id = world.etcd_cluster(&uid_of(cluster)).ok_or_else(|| format!("{name} has not formed"))?;
    let leaders = world.etcds.leaders(id);
    let [leader] = leaders.as_slice() else { return Err(format!("{name} has {} leaders", leaders.len())) };
    // A copy answers: asking must not change the world.
    let mut etcds = world.etcds.clone();
    let Ok(Response::Members(list)) = etcds.call(world.now, &leader.0, Request::Members) else {
        return Err(format!("the leader of {name} does not answer"));
    };
    if let Some(learner) = list.learners().next() {
        return Err(format!("{name}: {} is still a learner", learner.name));
    }
    let mut listed: Vec<String> = list.members.iter().map(|m| m.name.clone()).collect();
    let mut wanted: Vec<String> = members.iter().map(|m| name_of(m)).collect();
    listed.sort();
    wanted.sort();
    if listed == wanted {
        Ok(())
    } else {
        Err(format!("{name}: etcd lists {listed:?}, there should be {wanted:?}"))
    }
}

fn expect(cluster: &Value, type_: &str, status: &str, reason: &str) -> Result<(), String> {
    let found = condition(cluster, type_);
    if found == Some((status, reason)) {
        return Ok(());
    }
    Err(format!("{} is {type_}={found:?}, not {status}/{reason}", name_of(cluster)))
}

fn owner(object: &Value) -> &str {
    object["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default()
}

/// Whether a voter runs in a Pod that a user told to stay when its member went: nobody can ask it, or take it out.
fn has_stray_voter(world: &World, cluster: &str, id: u64) -> bool {
    let voters = world.etcds.voters(id);
    world.pods.values().filter(|p| p.cluster == cluster && !p.object_gone).any(|pod| {
        let identity = pod.process.as_ref().and_then(|process| world.etcds.identity(process));
        let votes = identity.is_some_and(|(of, member)| of == id && voters.contains(&member));
        votes && world.object(ETCD_MEMBER, &pod.name).is_none()
    })
}

/// Whether the claim of a member can not be told from a stranger's: it has lost its owner and the record of it.
fn is_estranged(world: &World, claim: &Value) -> bool {
    let member = name_of(claim).strip_prefix("data-").and_then(|m| world.object(ETCD_MEMBER, m));
    is_ownerless(claim) && member.is_some_and(|m| m["status"]["pvcUID"] != claim["metadata"]["uid"])
}

/// A state that is not what was asked for, but that says why and is the best there is. `None` if it is not one.
fn parked(world: &World, cluster: &Value) -> Option<()> {
    let (available, because) = condition(cluster, conditions::AVAILABLE)?;
    // Members that do not fit together, or not to what is asked for, wait for a person.
    let name = name_of(cluster);
    let members = belongings(world, ETCD_MEMBER, &name);
    let ever = world.ever_formed(&uid_of(cluster));
    let struck = ever.iter().any(|id| world.etcds.disaster(*id).is_some());
    let differ =
        |field: fn(&Value) -> &Value| members.windows(2).any(|pair| field(&pair[0]) != field(&pair[1]));
    if because == reason::QUORUM_LOST && is_littered(world, &name) {
        return (available == "False").then_some(());
    }
    // A Pod that its user told to stay when its member went still votes, so others may have to wait until it is gone. It is told.
    let stays = |p: &Arc<Value>| is_ownerless(p) && world.object(ETCD_MEMBER, &name_of(p)).is_none();
    let told = condition(cluster, conditions::DEGRADED).is_some_and(|(_, why)| why == reason::BLOCKED);
    if told && belongings(world, POD, &name).iter().any(stays) {
        return Some(());
    }
    // Two clusters under the same ids: a seed has begun anew without its data, and could not be told not to.
    if because == reason::MEMBERS_DISAGREE {
        let two = world.etcds.formations().iter().any(|f| f.impostor && ever.contains(&f.cluster));
        // Or the data of all voters was wiped, and learners still have a copy.
        return (available == "False" && (two || struck)).then_some(());
    }
    if because == "IdentityConflict" {
        return (available == "False" && differ(|m| &m["spec"]["clusterToken"])).then_some(());
    }
    let medium = |of: &Value| of["spec"]["storage"]["medium"].as_str().unwrap_or_default().to_owned();
    if because == "SpecConflict" {
        return (available == "False" && members.iter().any(|m| medium(m) != medium(cluster))).then_some(());
    }
    // Nothing is made over what somebody left behind and nobody stands for.
    let waits = condition(cluster, conditions::PROGRESSING)?.1 == "WaitingForLeftovers";
    if waits {
        return is_littered(world, &name).then_some(());
    }
    let lost = world.disks.values().any(|d| d.unreachable);
    // A seed whose volume was spoilt, or is where nobody can get at it, before anybody knew that it had formed anything.
    if because == reason::BOOTSTRAP_FAILED {
        let disowned = [POD, CLAIM]
            .into_iter()
            .any(|kind| belongings(world, kind, &name_of(cluster)).iter().any(|object| is_ownerless(object)));
        // A seed whose Pod is not its first may have served, and is not made anew from a corrected spec.
        let late = |c: &Arc<Value>| {
            let pod = name_of(c).strip_prefix("data-").and_then(|member| world.object(POD, member));
            let first = |pod: &Value| !pod["metadata"]["annotations"][annotation::FIRST_START].is_null();
            pod.is_none_or(|pod| !first(&pod) || pod["status"]["phase"] == "Failed")
        };
        let not_first = belongings(world, CLAIM, &name_of(cluster)).iter().any(late);
        // Or its name is taken by what somebody else's finalizer keeps.
        let held = members.iter().any(|m| is_held(m));
        // Or its status was emptied, and the volumes of those who had joined are gone.
        return (lost || disowned || not_first || held || struck || world.disks.values().any(|d| d.spoilt))
            .then_some(());
    }
    let known = world.etcd_cluster(&uid_of(cluster));
    let token = |m: &Arc<Value>| m["spec"]["clusterToken"].as_str().and_then(|t| world.formed_under(t));
    let id = known.or_else(|| ever.first().copied()).or_else(|| members.iter().find_map(token))?;
    // A member of a predecessor's has begun anew under its old ids; whatever a user chose then is right.
    if super::is_misvoted(world, id) {
        return Some(());
    }
    // The only voter was wiped and began anew; a learner on record has what is left of the data before, and is kept.
    let unlisted = |m: &Arc<Value>| {
        condition(m, conditions::READY).is_some_and(|(_, reason)| reason == reason::NOT_IN_CLUSTER)
    };
    if world.etcds.disaster(id).is_some() && members.iter().any(unlisted) {
        return (condition(cluster, conditions::DEGRADED)?.0 == "True").then_some(());
    }
    // So many volumes are gone that no quorum can come back.
    if !world.etcds.volumes(id).is_quorum() {
        return (available == "False" && [reason::QUORUM_LOST, reason::ALL_MEMBERS_LOST].contains(&because))
            .then_some(());
    }
    // The last voter was killed in the moment between the removal of the last but one and the entry after it. The other's
    // volume is still there, and a guided recovery can begin from it; or a user took it away.
    let leaving =
        |m: &Arc<Value>| m["metadata"]["deletionTimestamp"].is_string() && uid_of(cluster) == owner(m);
    if because == reason::QUORUM_LOST && world.etcds.forgets(id) {
        let uid = uid_of(cluster);
        let mut stripped = world.ledger.members.values().filter(|m| m.stripped);
        let stripped = stripped.any(|m| world.ledger.inherits(&uid) || m.owner == uid);
        return (stripped || world.objects(ETCD_MEMBER).iter().any(leaving)).then_some(());
    }
    // A member that only its user can give up, and others that can not leave because of it: the operator was told to wait
    // for ever.
    let waits = world.temper.lost_member_timeout.is_none() && lost;
    // A Pod of a predecessor's that can not be told from a stranger's: it has lost its owner and the record of it.
    let unknown = |p: &Arc<Value>| {
        let recorded = world.object(ETCD_MEMBER, &name_of(p)).map(|m| m["status"]["podUID"].clone());
        is_ownerless(p)
            && p["metadata"]["annotations"][annotation::MEMBER_UID].is_null()
            && recorded.is_some_and(|uid| uid != p["metadata"]["uid"])
    };
    let estranged = belongings(world, POD, &name).iter().any(unknown)
        || belongings(world, CLAIM, &name).iter().any(|c| is_estranged(world, c));
    let needed = has_stray_voter(world, &name, id);
    let says = condition(cluster, conditions::DEGRADED)?.0 == "True"
        || condition(cluster, conditions::PROGRESSING)?.1 == reason::DEADLINE_EXCEEDED;
    // The only voter was wiped and began anew, and a joiner that was not on record yet has a copy of what was before.
    let unrecorded = struck && members.iter().any(|m| m["status"]["memberID"].is_null());
    // One that was taken up is not given up before its own etcd has named the cluster, and it will not: its data are gone.
    let unnamed = |m: &Arc<Value>| m["status"]["memberID"].is_string() && m["status"]["clusterID"].is_null();
    let unconfirmed = world.ledger.inherits(&uid_of(cluster)) && members.iter().any(unnamed);
    ((waits || estranged || needed || unconfirmed || unrecorded) && says).then_some(())
}
