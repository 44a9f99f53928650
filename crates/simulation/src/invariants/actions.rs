//! What an action of the operator may not do, judged at the moment it is done: rules 1, 2, 6 and 7.

use planner::pass::Request;
use planner::{Action, ClusterView, Leaving, MemberView, Release};

use super::{Violation, is_available, watch_quorums};
use crate::Millis;
use crate::apiserver::kind::{ETCD_CLUSTER, ETCD_MEMBER};
use crate::etcd::ProcessId;
use crate::script::{MINUTE, SECOND};
use crate::world::pod_run::{PodRun, Stage};
use crate::world::{World, uid_of};

/// A member that has been silent that long is known to be.
const SILENT: Millis = 40 * SECOND;
/// Who has served within that time is there.
const PRESENT: Millis = 10 * SECOND;
/// How old a confirmed quorum may be when it is written into a status: its time to live, and the pass itself.
const CONFIRMED: Millis = 8 * SECOND;

/// What is known of the pass that acts.
#[derive(Clone, Copy)]
pub struct PassFacts<'a> {
    pub view: &'a ClusterView,
    pub list_read: bool,
    pub began: Millis,
}

/// Judges an action before it is carried out.
pub fn before_action(world: &World, pass: PassFacts<'_>, action: &Action) -> Option<Violation> {
    match action {
        Action::AddLearner { .. }
        | Action::Promote { .. }
        | Action::RemoveFromEtcd { .. }
        | Action::RemoveOrphan { .. }
            if !pass.list_read =>
        {
            Some(Violation::new(7, format!("{action:?} without a list that was read in this pass")))
        }
        Action::AddLearner { .. }
        | Action::RemoveFromEtcd { .. }
        | Action::RemoveOrphan { .. }
        | Action::ReleaseMember { because: Release::OutOfEtcd, .. }
            if is_misled(world, &pass) && !is_forgotten(world, action) =>
        {
            Some(Violation::new(7, format!("{action:?} on the list of an impostor")))
        }
        Action::Promote { member, id } => on_record(world, &pass, member, *id),
        Action::DeleteMember { name, because: Leaving::Surplus { .. }, .. } => {
            least_missed(world, &pass, name)
        }
        Action::DeleteMember { name, because: Leaving::Broken(why), .. } => {
            given_up(world, &pass, name, *why)
        }
        _ => None,
    }
}

/// Rule 7: whatever is decided on a list, it is that of the cluster's own etcd. Before a cluster is on record, only a list
/// that names its seed is believed.
pub fn own_list(world: &World, view: &ClusterView) -> Option<Violation> {
    let uid = view.cluster.as_ref()?.metadata.uid.as_deref()?;
    let fact = world.ledger.clusters.get(uid).filter(|fact| !fact.status_lost)?;
    let (seen, known) = (view.etcd.membership.as_ref()?, fact.id?);
    if view.etcd_cluster().is_none() && view.members.iter().all(|m| m.row_in(&seen.fact).is_none()) {
        return None;
    }
    (seen.fact.cluster_id != known).then(|| {
        let what = format!("{} believes {}, which answers for another cluster", view.name, seen.from);
        Violation::new(7, what)
    })
}

/// Whether the list of this pass comes from one that formed a cluster of its own under the same ids, although a member of
/// the true one was heard in the same pass.
fn is_misled(world: &World, pass: &PassFacts<'_>) -> bool {
    let Some(seen) = &pass.view.etcd.membership else { return false };
    let process = |name: &str| {
        let pod = world.pods.values().find(|p| p.name == name && p.process.is_some());
        pod.and_then(|p| p.process.as_ref())
    };
    let false_one = |name: &str| process(name).is_some_and(|p| world.etcds.is_impostor(p));
    let heard = |m: &&MemberView| matches!(m.etcd, Some(Ok(_))) && process(m.name()).is_some();
    let true_one = pass.view.members.iter().filter(heard).any(|m| {
        let id = process(m.name()).and_then(|p| world.etcds.identity(p));
        !false_one(m.name()) && id.is_some_and(|(cluster, _)| cluster == seen.fact.cluster_id)
    });
    // A list that was true when it was read is no impostor's, whatever became of its speaker while the request was under way.
    let since = |p: &ProcessId| {
        let formations = world.etcds.formations().iter();
        formations.filter(|f| f.impostor && f.process == *p).map(|f| f.at).max()
    };
    let began_anew = process(&seen.from).and_then(since).is_some_and(|at| at >= pass.began);
    false_one(&seen.from) && !began_anew && true_one
}

/// Whether a user has emptied the status of the member that is let go: nothing says any more that it ever joined.
fn is_forgotten(world: &World, action: &Action) -> bool {
    let Action::ReleaseMember { uid, .. } = action else { return false };
    world.ledger.status_lost_at.contains_key(uid)
}

/// T7, a consequence of rule 3: nobody gets a vote before it is written down that it has joined. A status that a user has
/// emptied since the pass began, or a moment before that, of which the watch has not told yet, is nobody's fault.
fn on_record(world: &World, pass: &PassFacts<'_>, member: &str, id: u64) -> Option<Violation> {
    let object = world.object(ETCD_MEMBER, member)?;
    let heard = pass.began.saturating_sub(world.temper.slowest_watch);
    let emptied = world.ledger.status_lost_at.get(&uid_of(&object)).is_some_and(|at| *at >= heard);
    let recorded = object["status"]["memberID"].as_str().and_then(api::ids::parse);
    (recorded != Some(id) && !emptied).then(|| {
        Violation::new(3, format!("{member} gets a vote, and it is not on record that it has joined"))
    })
}

/// Rule 11: a member is given up only for what is so now. Whoever was heard of a moment ago is not broken, and who only
/// waits for room has lost nothing.
fn given_up(world: &World, pass: &PassFacts<'_>, name: &str, why: planner::Loss) -> Option<Violation> {
    let object = world.object(ETCD_MEMBER, name)?;
    let fact = world.ledger.members.get(&uid_of(&object))?;
    let cluster = world.ledger.clusters.get(&fact.owner).and_then(|c| c.id)?;
    let member = (cluster, fact.id?);
    let served = world.ledger.served_at.get(&member).copied().unwrap_or_default();
    // What it has is gone with its claim, or with its Pod, even if it goes on for a moment.
    let kept = world.etcds.home(member).is_some_and(|disk| super::has_object(world, disk));
    if kept && served + PRESENT > pass.began && served > 0 {
        return Some(Violation::new(11, format!("{name} is given up because it {why}, but it serves")));
    }
    let pod = world.pods.values().find(|p| p.name == name && !p.object_gone)?;
    let waits = pod.stage == Stage::Waiting && !pod.terminating && !pod.is_memory();
    let disk = world
        .etcds
        .homes(cluster)
        .find(|disk| world.disks.get(disk).is_some_and(|d| pod.claim.as_deref() == Some(d.claim.as_str())))?;
    let known = world.disks.get(disk)?;
    let there = known
        .node
        .is_none_or(|n| world.nodes[n].is_reachable() && world.nodes[n].changed_at + MINUTE < world.now);
    let intact = !known.lost && !known.unreachable && !known.spoilt && there;
    let same = object["status"]["pvcUID"].as_str() == Some(disk.0.as_str());
    (waits && intact && same).then(|| {
        Violation::new(
            11,
            format!("{name} is given up because it {why}, but its volume is intact and only waits for room"),
        )
    })
}

/// T22, a consequence of rule 1: a healthy voter does not leave while one stays that has been silent for long.
fn least_missed(world: &World, pass: &PassFacts<'_>, victim: &str) -> Option<Violation> {
    let list = &pass.view.etcd.membership.as_ref()?.fact;
    let row = |name: &str| {
        list.voters().find(|row| row.peer_urls.iter().any(|url| url.contains(&format!("//{name}."))))
    };
    let served = |id: u64| world.ledger.served_at.get(&(list.cluster_id, id)).copied().unwrap_or_default();
    let leaves = row(victim)?;
    let ready = |m: &MemberView| {
        m.member.status.as_ref().is_some_and(|s| api::conditions::is_true(&s.conditions, "Ready"))
    };
    // One that did not answer when it was asked looks no better than the other, even if it serves by now.
    let looks_silent = |m: &MemberView| m.name() == victim && !ready(m) && !matches!(m.etcd, Some(Ok(_)));
    if served(leaves.id) + 5 * SECOND < pass.began || pass.view.members.iter().any(looks_silent) {
        return None;
    }
    // One that was taken up does not leave before its own etcd has named the cluster.
    let named = |m: &MemberView| m.member.status.as_ref().is_some_and(|s| s.cluster_id.is_some());
    let uid = pass.view.cluster.as_ref().and_then(|c| c.metadata.uid.as_deref()).unwrap_or_default();
    let may_leave = |m: &&MemberView| named(m) || !world.ledger.inherits(uid);
    let others = pass.view.members.iter().filter(|m| m.name() != victim && !m.is_deleting());
    let silent = others.filter(may_leave).find(|m| {
        let silent = |id| served(id) + SILENT < pass.began && !serves(&world.etcds, list.cluster_id, id);
        !ready(m) && row(m.name()).is_some_and(|r| silent(r.id))
    })?;
    Some(Violation::new(
        1,
        format!("{victim} leaves although it serves, and {} is kept although it is silent", silent.name()),
    ))
}

/// The state of things before a write.
pub struct Before {
    able: Vec<(u64, bool)>,
}

impl Before {
    pub fn of(world: &mut World) -> Self {
        watch_quorums(world);
        let able =
            world.kept_clusters().into_iter().map(|kept| (kept.id, is_able(world, kept.id, world.now)));
        Self { able: able.collect() }
    }

    /// Rule 1: whether a write has left a quorum able to serve.
    pub fn quorum_kept(
        self,
        world: &mut World,
        what: &dyn std::fmt::Debug,
        evidence: Millis,
    ) -> Option<Violation> {
        let since = since(world, evidence);
        watch_quorums(world);
        let lost = self.able.iter().find(|(cluster, able)| *able && !is_able(world, *cluster, since))?;
        Some(Violation::new(1, format!("{what:?} took the quorum of {:x}", lost.0)))
    }

    /// Judges what a write has done. `evidence` is when the pass behind it began to look; who died since then is nobody's
    /// fault.
    pub fn compare(
        self,
        world: &mut World,
        action: Option<&Action>,
        call: &crate::planner_loop::Call,
        evidence: Millis,
    ) -> Option<Violation> {
        let since = since(world, evidence);
        let lost = self.quorum_kept(world, &call.request, evidence);
        if lost.is_some() {
            return lost;
        }
        if let Some(Action::DeleteMember { uid, .. }) = action {
            return one_at_a_time(world, uid);
        }
        if let Some(Action::DeletePod { uid, .. }) = action {
            return pods_kept(world, uid);
        }
        if let Request::ReplaceStatus { kind: planner::Kind::Cluster, name, object } = &call.request {
            return confirmed(world, name, object, since);
        }
        None
    }
}

/// From when on somebody must have served to count as able: since the pass behind a write began to look, if there was one.
fn since(world: &World, evidence: Millis) -> Millis {
    if evidence == 0 { world.now.saturating_sub(20 * SECOND) } else { evidence.saturating_sub(SECOND) }
}

/// Whether a quorum of the voters has served since that moment.
fn is_able(world: &World, cluster: u64, since: Millis) -> bool {
    let voters = world.etcds.voters(cluster);
    let slack = since.saturating_sub(500);
    let able = |id: &&u64| world.ledger.served_at.get(&(cluster, **id)).is_some_and(|at| *at >= slack);
    !voters.is_empty() && voters.iter().filter(able).count() > voters.len() / 2
}

/// Rule 1 for a Pod that was told to end and still serves for a moment.
fn pods_kept(world: &World, uid: &str) -> Option<Violation> {
    let ended = world.pods.get(uid)?;
    let cluster = world.object(ETCD_CLUSTER, &ended.cluster)?;
    // A pause ends the last Pod because it was asked for.
    let wanted = |of: &serde_json::Value| of["replicas"].as_u64() != Some(0);
    if !wanted(&cluster["spec"]) || !wanted(&cluster["status"]["observed"]) {
        return None;
    }
    let (id, _) = world.etcds.identity(ended.process.as_ref()?)?;
    let voters = world.etcds.voters(id);
    let serving = |and_this: bool| {
        let stays = |p: &&PodRun| (!p.terminating && p.uid != uid) || (and_this && p.uid == uid);
        let processes = world.pods.values().filter(stays).filter_map(|p| p.process.as_ref());
        let able = processes.filter(|p| world.etcds.serving(p)).filter_map(|p| world.etcds.identity(p));
        able.filter(|(cluster, member)| *cluster == id && voters.contains(member)).count()
    };
    let quorum = voters.len() / 2 + 1;
    (serving(true) >= quorum && serving(false) < quorum)
        .then(|| Violation::new(1, format!("Pod {} was ended, and with it the quorum", ended.name)))
}

/// Rule 2.
fn one_at_a_time(world: &mut World, uid: &str) -> Option<Violation> {
    // The API server refuses what is not there; then nothing was done.
    let fact = world.ledger.members.get_mut(uid)?;
    let object = world.api.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let deleting = object
        .peek(ETCD_MEMBER, crate::world::namespace(&fact.name), &fact.name)
        .is_some_and(|m| uid_of(m) == uid && m["metadata"]["deletionTimestamp"].is_string());
    drop(object);
    // Taking out one that is down already disrupts nothing.
    let cluster = world.ledger.clusters.get(&fact.owner).and_then(|c| c.id).unwrap_or_default();
    let member = fact.id.map(|id| (cluster, id));
    let runs = |p: &PodRun| {
        p.process.as_ref().is_some_and(|p| world.etcds.identity(p) == member && world.etcds.serving(p))
    };
    // Nor does one whose Pod somebody has deleted; it may run for a moment.
    let disrupts =
        member.is_some() && world.pods.values().any(|p| runs(p) && !p.terminating && !p.object_gone);
    if !deleting || fact.user_deleted || !disrupts {
        return None;
    }
    fact.operator_deleted = true;
    let owner = fact.owner.clone();
    let leaving: Vec<String> = world
        .ledger
        .members
        .values()
        .filter(|m| m.exists && m.operator_deleted && m.owner == owner)
        // Somebody else's finalizer may keep the object.
        .filter(|m| m.id.is_none_or(|id| world.etcds.voters(cluster).contains(&id)))
        .map(|m| m.name.clone())
        .collect();
    (leaving.len() > 1)
        .then(|| Violation::new(2, format!("{} leave at the same time", leaving.join(" and "))))
}

fn serves(etcds: &crate::etcd::Etcds, cluster: u64, id: u64) -> bool {
    etcds.serving_members().any(|member| member == (cluster, id))
}

/// Rule 6: who says Available has seen a quorum.
fn confirmed(world: &World, name: &str, written: &serde_json::Value, since: Millis) -> Option<Violation> {
    if !is_available(written) {
        return None;
    }
    let stored = world.object(ETCD_CLUSTER, name)?;
    if !is_available(&stored) {
        return None;
    }
    let named = written["status"]["clusterID"].as_str().and_then(api::ids::parse);
    let cluster = named.or_else(|| world.etcd_cluster(&uid_of(&stored)))?;
    let quorum_at = world.ledger.quorum_at.get(&cluster).copied().unwrap_or_default();
    let late = quorum_at + CONFIRMED < since && !super::is_misvoted(world, cluster);
    late.then(|| {
        Violation::new(
            6,
            format!("{name} is said to be Available, its quorum was last there at {quorum_at} ms"),
        )
    })
}
