//! The rules that hold in every state, checked against the truth of the world and not against what the operator
//! believes. Rule 10 (crashes, lost answers, stale caches and old leaders break none of the others) is the sum of all
//! checks, since all of that happens in every run.

mod actions;
mod rest;

use std::fmt;

use api::conditions;
use serde_json::Value;

use crate::Millis;
use crate::apiserver::kind::ETCD_CLUSTER;
use crate::script::SECOND;
use crate::world::World;
use crate::world::pod_run::Stage;

pub use actions::{Before, PassFacts, before_action, own_list};
pub use rest::Rest;

/// Acknowledged writes and histories are audited this often; a loss does not heal.
const AUDIT: Millis = 2 * SECOND;
/// A healthy operator has told the Pod of a seed within that time that its cluster has formed, also if a call gets lost.
const TOLD_WITHIN: Millis = 15 * SECOND;
/// A healthy operator has made a Pod again within that time, whatever else it can not do.
const HELPED_WITHIN: Millis = 90 * SECOND;
/// A healthy operator shows within that time that a quorum is gone.
const SHOWN_WITHIN: Millis = 150 * SECOND;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the rule.
    pub rule: u8,
    pub what: String,
}

impl Violation {
    pub fn new(rule: u8, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }

    /// The rule in one line.
    pub fn rule_text(&self) -> &'static str {
        match self.rule {
            0 => "the simulation itself is sound",
            1 => "no action of ours leaves fewer than a quorum of the voters able to serve",
            2 => "at most one voluntary disruption per cluster at a time",
            3 => "a cluster is bootstrapped once, and no member that had joined begins anew without its data",
            4 => "a volume is deleted only after etcd has confirmed that its member is out",
            5 => "an acknowledged write is readable as long as a quorum of volumes survives",
            6 => "Available=True only if a quorum was confirmed recently",
            7 => "membership actions rest on a linearizable read of the same pass",
            8 => "when faults stop, a cluster converges or parks in a named condition",
            9 => "at rest nothing is written, and nothing is repeated without a pause",
            _ => "a member that serves, or whose data are intact and can come back, is not given up",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} ({}): {}", self.rule, self.rule_text(), self.what)
    }
}

/// Looks at the world after a step.
pub fn check(world: &mut World, led: bool) -> Option<Violation> {
    if let Some(why) = &world.broken_model {
        return Some(Violation::new(0, why.clone()));
    }
    if let Some(found) = world.ledger.violation() {
        return Some(found.clone());
    }
    if world.now < world.ledger.audited_at + 250 {
        return None;
    }
    watch_quorums(world);
    watch_operator(world, led);
    let thorough = world.now / AUDIT != world.ledger.audited_at / AUDIT;
    world.ledger.audited_at = world.now;
    if !thorough {
        return None;
    }
    forget_the_deleted(world);
    begun_anew(world)
        .or_else(|| beside(world))
        .or_else(|| lost_writes(world))
        .or_else(|| stale_status(world))
        .or_else(|| held_up(world))
}

/// Notes which members serve and which clusters have a quorum.
pub(crate) fn watch_quorums(world: &mut World) {
    let now = world.now;
    let serving: Vec<(u64, u64)> = world
        .pods
        .values()
        .filter(|p| p.stage == Stage::Running && p.node.is_some_and(|n| world.nodes[n].is_reachable()))
        .filter_map(|p| p.process.as_ref())
        .filter(|process| world.etcds.serving(process) && !world.etcds.is_impostor(process))
        .filter_map(|process| world.etcds.identity(process))
        .collect();
    for member in serving {
        world.ledger.served_at.insert(member, now);
    }
    let clusters: Vec<u64> = world.etcds.clusters().collect();
    for cluster in clusters {
        if world.etcds.quorum_serves(cluster) {
            world.ledger.quorum_at.insert(cluster, now);
        }
    }
}

/// Notes since when one operator has been able to do its work.
fn watch_operator(world: &mut World, led: bool) {
    let now = world.now;
    let unheard = !led
        || now < world.api_down_until
        || world.watch_lag.iter().any(|(_, until)| now < *until)
        || world.control.refuses(now, ETCD_CLUSTER, crate::script::Verb::Status);
    let disturbed = unheard || world.control.is_disturbed(now);
    if unheard {
        world.ledger.led_since = None;
    } else {
        world.ledger.led_since.get_or_insert(now);
    }
    if !world.ledger.unlabelled.is_empty() {
        world.ledger.hidden_until = now;
    }
    if disturbed {
        world.ledger.undisturbed_since = None;
    } else {
        world.ledger.undisturbed_since.get_or_insert(now);
    }
}

/// Nothing is expected of a cluster that its user has deleted.
fn forget_the_deleted(world: &mut World) {
    let kept: Vec<u64> = world.kept_clusters().into_iter().map(|kept| kept.id).collect();
    let gone = world.ledger.clusters.iter().filter(|(_, c)| !c.lives());
    let ids = gone.flat_map(|(uid, fact)| [world.etcd_cluster(uid), world.inheritance(fact)]);
    let forgotten: Vec<u64> = ids.flatten().filter(|id| !kept.contains(id)).collect();
    for cluster in forgotten {
        world.etcds.forget_cluster(cluster);
    }
}

/// Rule 3: a second formation after the first was known, or a voter that came back without its memory.
fn begun_anew(world: &World) -> Option<Violation> {
    if let Some(heir) = heritage(world) {
        return Some(heir);
    }
    for (uid, cluster) in world.living_clusters() {
        let known = world.ledger.clusters.get(&uid).and_then(|c| c.id_since);
        // Its Pod is told within that time that it must not form anything any more; until then a restart may. What has
        // no label is not seen, and can not be told.
        let seen = |since: Millis| since.max(world.ledger.hidden_until);
        let told = known
            .zip(world.ledger.undisturbed_since)
            .map(|(known, since)| known.max(seen(since)) + TOLD_WITHIN);
        let is_known = |f: &&crate::etcd::Formation| told.is_some_and(|told| f.at >= told);
        let again = world
            .etcds
            .formed_again()
            .filter(|f| f.cluster == cluster && f.over_acknowledged && !is_fixed(world, &f.process))
            .filter(|f| f.impostor || !is_forgotten(world, &uid, cluster));
        if let Some(again) = again.into_iter().find(is_known) {
            let what = format!("{} formed cluster {cluster:x} a second time", again.process.0);
            return Some(Violation::new(3, what));
        }
        if let Some(second) = second_formation(world, &uid).filter(|_| known.is_some()) {
            return Some(second);
        }
        let forgetful = world.etcds.amnesia().iter();
        let forgetful =
            forgetful.into_iter().find(|a| a.cluster == cluster && a.voter && !is_fixed(world, &a.process));
        if let Some(forgetful) = forgetful {
            let what =
                format!("voter {:x} came back on an empty disk ({})", forgetful.member, forgetful.process.0);
            return Some(Violation::new(3, what));
        }
        let excused =
            is_denied(world, &uid) || world.etcds.disaster(cluster).is_some() || is_misvoted(world, cluster);
        // A seed that is not on record may be begun anew, while the one before it still ends.
        let split = |s: &crate::etcd::Split| s.cluster == cluster && known.is_some_and(|known| s.at > known);
        if world.etcds.splits().any(split) && !excused {
            return Some(Violation::new(5, format!("cluster {cluster:x} has two histories")));
        }
    }
    None
}

/// A user has emptied the status of a cluster, and its volumes are gone as well: nothing is left that could tell that there
/// ever was one.
fn is_forgotten(world: &World, uid: &str, cluster: u64) -> bool {
    let emptied = world.ledger.clusters.get(uid).is_some_and(|c| c.status_lost);
    emptied && world.etcds.disaster(cluster).is_some()
}

/// What a predecessor made with fixed flags can not be told how to start.
fn is_fixed(world: &World, process: &crate::etcd::ProcessId) -> bool {
    process.0.split('/').next().is_some_and(|pod| world.ledger.fixed_pods.contains(pod))
}

/// Clusters in which a Pod with fixed flags came back without its data, and voted: what that cost is its maker's doing. Or
/// which were begun anew before anybody knew of the first, while that one still ended.
pub(crate) fn is_misvoted(world: &World, cluster: u64) -> bool {
    let known = world.ledger.clusters.values().find(|c| c.id == Some(cluster)).and_then(|c| c.id_since);
    let unknown = |at: Millis| known.is_none_or(|known| at < known);
    let anew = world
        .etcds
        .formations()
        .iter()
        .any(|f| f.impostor && f.cluster == cluster && (is_fixed(world, &f.process) || unknown(f.at)));
    anew || world.etcds.amnesia().iter().any(|a| a.cluster == cluster && is_fixed(world, &a.process))
}

/// A cluster object that claims the etcd cluster of a predecessor (T10).
fn heritage(world: &World) -> Option<Violation> {
    let living = world.ledger.clusters.iter().filter(|(_, c)| c.lives());
    for (uid, cluster) in living {
        let formed = world.etcds.formations().iter().find(|f| Some(f.cluster) == cluster.id);
        // What a user took the owner off did not go with the cluster before: it was left behind as well.
        // So was what an object in between inherited, and had not made its own before it went.
        let passed_on = |token: &String| {
            let mut before = world.ledger.clusters.values().filter(|c| !c.lives() && c.name == cluster.name);
            before.any(|c| c.inherits.contains(token))
        };
        let left = |token: &String| {
            world.ledger.disowned.values().any(|disowned| disowned == token) || passed_on(token)
        };
        if formed.is_some_and(|f| !cluster.tokens(uid).contains(&f.token) && !left(&f.token)) {
            let what = format!("{} took the etcd cluster of a predecessor for its own", cluster.name);
            return Some(Violation::new(3, what));
        }
    }
    None
}

/// Rule 3: a cluster that was made over what somebody had left behind forms none of its own beside it.
fn beside(world: &mut World) -> Option<Violation> {
    let new = world.etcds.formations()[world.ledger.formations_seen..].to_vec();
    world.ledger.formations_seen += new.len();
    for (uid, fact) in world.ledger.clusters.iter().filter(|(_, c)| c.lives() && !c.inherits.is_empty()) {
        let Some(id) = world.inheritance(fact) else { continue };
        let own = api::names::cluster_token(crate::world::namespace(&fact.name), &fact.name, uid);
        // Somebody took the label off what was left: then it is not seen.
        let hidden = world.now < world.ledger.hidden_until + TOLD_WITHIN;
        let is_left = world.etcds.homes(id).any(|disk| has_object(world, disk));
        if is_left && !hidden && new.iter().any(|f| f.token == own) {
            let what = format!("{} formed a second cluster beside {id:x}, which was left behind", fact.name);
            return Some(Violation::new(3, what));
        }
    }
    None
}

/// Whether there is still an object that stands for a disk: a claim, or a Pod in whose memory it is.
fn has_object(world: &World, disk: &crate::etcd::DiskId) -> bool {
    [crate::apiserver::kind::CLAIM, crate::apiserver::kind::POD]
        .into_iter()
        .any(|kind| world.objects(kind).iter().any(|object| crate::world::uid_of(object) == disk.0))
}

/// Rule 8 while something is refused: a member whose data are there gets its Pod back, whatever else can not be had.
fn held_up(world: &mut World) -> Option<Violation> {
    use crate::apiserver::kind::{CLAIM, ETCD_MEMBER, POD};
    let now = world.now;
    let refused = world.control.refuses(now, POD, crate::script::Verb::Create)
        || now < world.control.fails_pods_until
        || world.ledger.hidden_until + HELPED_WITHIN > now;
    let Some(since) = world.ledger.led_since.filter(|_| !refused) else {
        world.ledger.missing_since.clear();
        return None;
    };
    let missing: Vec<(String, String)> = world
        .objects(ETCD_MEMBER)
        .iter()
        .filter(|m| could_run(world, m))
        .filter(|m| {
            let name = crate::world::name_of(m);
            let claim = world.object(CLAIM, &api::names::pvc(&name));
            let same = claim.as_ref().is_some_and(|c| {
                c["metadata"]["uid"] == m["status"]["pvcUID"] && c["metadata"]["deletionTimestamp"].is_null()
            });
            same && world.object(POD, &name).is_none()
        })
        .map(|m| (crate::world::uid_of(m), crate::world::name_of(m)))
        .collect();
    world.ledger.missing_since.retain(|uid, _| missing.iter().any(|(known, _)| known == uid));
    for (uid, name) in missing {
        let first = *world.ledger.missing_since.entry(uid).or_insert(now);
        if now > first.max(since) + HELPED_WITHIN {
            let what = format!(
                "{name} has been without a Pod for {} s, its volume is there",
                (now - first) / SECOND
            );
            return Some(Violation::new(8, what));
        }
    }
    None
}

/// A member on a volume that is meant to run, of a cluster that is meant to run.
fn could_run(world: &World, member: &Value) -> bool {
    let owner = member["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default();
    let Some(fact) = world.ledger.living(owner).filter(|fact| fact.id.is_some()) else { return false };
    let Some(cluster) = world.object(ETCD_CLUSTER, &fact.name) else { return false };
    let wanted = |of: &Value| of["replicas"].as_u64() != Some(0);
    member["metadata"]["deletionTimestamp"].is_null()
        && member["spec"]["dormant"] != true
        && member["status"]["memberID"].is_string()
        && wanted(&cluster["spec"])
        && wanted(&cluster["status"]["observed"])
        && cluster["status"]["clusterID"].is_string()
}

/// Two clusters for one object, both with their data.
fn second_formation(world: &World, uid: &str) -> Option<Violation> {
    let fact = world.ledger.clusters.get(uid)?;
    let (name, tokens) = (fact.name.clone(), fact.tokens(uid));
    let alive = |f: &&crate::etcd::Formation| {
        tokens.contains(&f.token)
            && world.etcds.volumes(f.cluster).surviving > 0
            && !world.etcds.voters(f.cluster).is_empty()
    };
    let mut clusters: Vec<u64> = world.etcds.formations().iter().filter(alive).map(|f| f.cluster).collect();
    clusters.dedup();
    // What a user has taken out by force may go on for a while where nobody can stop it.
    let wanted = |cluster: &&u64| {
        // Nor is a Pod wanted that a user told to stay when its member went.
        let stands = |name: &str| world.object(crate::apiserver::kind::ETCD_MEMBER, name).is_some();
        let pods = world.pods.values().filter(|p| !p.object_gone && !p.terminating && stands(&p.name));
        let mut ids = pods.filter_map(|p| world.etcds.identity(p.process.as_ref()?));
        ids.any(|(id, _)| id == **cluster)
    };
    let serve = clusters.iter().filter(wanted).filter(|c| world.etcds.quorum_serves(**c)).count();
    (serve > 1).then(|| {
        Violation::new(3, format!("{name} has formed {} clusters that serve side by side", clusters.len()))
    })
}

/// Whether a user said of one of its Pods that it was dead while it ran.
fn is_denied(world: &World, uid: &str) -> bool {
    world.ledger.clusters.get(uid).is_some_and(|c| world.ledger.denied.contains(&c.name))
}

/// Rule 5.
fn lost_writes(world: &World) -> Option<Violation> {
    let kept = world.kept_clusters().into_iter().filter(|kept| !world.ledger.denied.contains(&kept.name));
    let living: Vec<u64> = kept.map(|kept| kept.id).collect();
    let lost =
        world.etcds.lost_writes().into_iter().find(|l| {
            l.disaster.is_none() && living.contains(&l.cluster) && !is_misvoted(world, l.cluster)
        })?;
    let what = format!(
        "cluster {:x} lost {} acknowledged writes, first {:?}",
        lost.cluster,
        lost.keys.len(),
        lost.keys.first()
    );
    Some(Violation::new(5, what))
}

/// Rule 6, the other half: a quorum that is gone is not shown as there for long.
fn stale_status(world: &World) -> Option<Violation> {
    let since = world.ledger.led_since?;
    for (uid, cluster) in world.living_clusters() {
        let quorum_at = world.ledger.quorum_at.get(&cluster).copied().unwrap_or_default();
        if world.now.saturating_sub(quorum_at.max(since)) < SHOWN_WITHIN || is_misvoted(world, cluster) {
            continue;
        }
        let name = world.ledger.clusters.get(&uid).map(|c| c.name.clone()).unwrap_or_default();
        let object = world.object(ETCD_CLUSTER, &name)?;
        if is_available(&object) {
            let gone = (world.now - quorum_at) / SECOND;
            return Some(Violation::new(
                6,
                format!("{name} says Available=True, {gone} s after its quorum was last there"),
            ));
        }
    }
    None
}

/// Whether a cluster object says that it is available.
pub(crate) fn is_available(object: &Value) -> bool {
    condition(object, conditions::AVAILABLE).is_some_and(|(status, _)| status == "True")
}

/// Status and reason of a condition.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == *type_)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}
