//! The decisions of the operator, as one pure function: [`plan`] takes everything known about one cluster and says what
//! to do next, what its status is, and when to look again. No I/O, no clock, no randomness: the same view gives the
//! same plan, so a plan can be tested with values, printed, recorded and replayed.
//!
//! One file per concern. What takes a member down or out passes through `disruption` and nowhere else.

mod abandoned;
mod action;
mod adoption;
mod alarms;
mod bootstrap;
mod budget;
mod cause;
mod command;
mod disruption;
mod endpoint;
mod evidence;
mod healing;
mod health;
mod identity;
mod joiner;
mod kind;
mod leaving;
mod member_status;
mod membership;
mod metadata;
mod network;
mod news;
mod objects;
mod orphans;
mod outdated;
pub mod pass;
mod pause;
mod pod;
mod restraint;
pub mod sentence;
mod shrink;
mod sightings;
mod split;
mod stranded;
mod support;
mod target;
pub mod unsupported;
mod view;
mod volume;

#[cfg(test)]
mod fixtures;

use std::collections::BTreeMap;

use api::{EtcdClusterStatus, EtcdMemberStatus};
use jiff::Timestamp;
use serde::Serialize;

pub use action::{Action, Ending, Leaving, Loss, Release};
pub use command::WITHDRAWN;
pub use disruption::Permit;
pub use endpoint::{endpoint, is_minority, voters};
pub use evidence::{
    Contradiction, Look, Must, Which, look_before_record, looks_before_loss, occupied, without_loss,
};
pub use health::unreadable;
pub use kind::{Declared, Kind};
pub use objects::Objects;
pub use pause::has_data;
pub use pod::etcd_container;
pub use restraint::Restraint;
pub use sightings::{Sightings, Watchman};
pub use support::missing as unsupported;
pub use view::{ClusterView, EtcdView, MemberView, Seen, Settings, Stray, controller_uid};

use view::Scene;

/// What to do about one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// In order; what [waits for](Action::waits_for) a step that failed is left out.
    pub actions: Vec<Action>,
    /// The status the cluster should show; absent when there is no cluster to show it on.
    pub cluster_status: Option<EtcdClusterStatus>,
    /// The status each member should show, by name.
    pub member_statuses: BTreeMap<String, EtcdMemberStatus>,
    /// When to look again if nothing happens before.
    pub next: Next,
    /// One line for the log: what the cluster waits for.
    pub waiting_for: Option<String>,
    /// For the user: all that only they can change.
    pub complaint: Option<String>,
}

/// When to look again without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Next {
    /// Nothing is expected: the slow health check.
    #[default]
    AtRest,
    /// Something is about to change that no event will announce, such as etcd starting to answer.
    Soon,
    /// A status has been latched that the next decision rests on.
    Now,
}

impl Plan {
    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Whether the plan lets this member go: nothing is made for it any more.
    pub(crate) fn lets_go(&self, member: &str) -> bool {
        self.actions.iter().any(|a| matches!(a, Action::DeleteMember { name, .. } if name == member))
    }

    pub(crate) fn look_again(&mut self, next: Next) {
        self.next = self.next.max(next);
    }

    pub(crate) fn complain(&mut self, about: impl Into<String>) {
        let about = about.into();
        match &mut self.complaint {
            Some(told) if told.contains(&about) => {}
            Some(told) => *told = format!("{told}; {about}"),
            none => *none = Some(about),
        }
    }

    pub(crate) fn wait_for(&mut self, what: impl Into<String>) {
        self.waiting_for.get_or_insert(what.into());
    }
}

/// Decides what to do about one cluster.
pub fn plan(view: &ClusterView, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    abandoned::release_all(view, &mut plan);

    let Some(cluster) = view.living_cluster() else {
        plan.cluster_status = abandoned::farewell(view, now);
        return plan;
    };
    let scene = Scene::new(view, cluster, now);
    for member in &scene.members {
        plan.member_statuses.insert(member.name().to_owned(), member.status.clone());
    }

    let mut status = cluster.status.clone().unwrap_or_default();
    if let Some(conflict) = &scene.conflict {
        let message = identity::hold(&scene, &mut status, conflict);
        plan.complain(message);
        for member in scene.members.iter().filter(|m| m.is_deleting() && m.has_finalizer()) {
            plan.complain(format!(
                "member {} was deleted, and is kept until this is resolved",
                member.name()
            ));
        }
        // Who joins something meanwhile is not put on record: that would decide the matter.
        let is_news = |name: &String| scene.members.iter().any(|m| m.name() == name && !m.has_joined());
        plan.member_statuses.retain(|name, status| status.member_id.is_none() || !is_news(name));
        plan.cluster_status = Some(status);
        return plan;
    }
    if let Some(what) = support::missing(&cluster.spec).filter(|what| !support::is_past(&scene, what)) {
        support::decline(&scene, &mut status, what);
        plan.cluster_status = Some(status);
        return plan;
    }
    let settled = target::settle(&scene, &mut status);
    bootstrap::discover(&scene, &mut status);
    health::judge(&scene, &mut status);
    alarms::judge(&scene, &mut status);

    // Token, target and cluster id are latched before anything rests on them: a crash in between must not make two passes
    // decide from two different targets.
    let latched = settled && status.cluster_id == scene.cluster_id();
    // One more member may go at any moment, and the loss of a quorum has to be told at once.
    if scene.is_formed() && status.ready_members < scene.target().replicas {
        plan.look_again(Next::Soon);
    }
    if !latched {
        plan.cluster_status = Some(status);
        plan.look_again(Next::Now);
        return plan;
    }

    network::keep(&scene, &mut plan);
    adoption::adopt(&scene, &mut plan);
    leaving::remove_all(&scene, &mut plan);
    if scene.is_formed() {
        membership::converge(&scene, &mut plan);
    } else {
        bootstrap::seed(&scene, &mut plan);
    }
    leaving::retain(&scene, &mut plan);
    volume::keep(&scene, &mut plan);
    pause::end_pods(&scene, &mut plan);
    pod::keep(&scene, &mut plan);
    // Last: a budget that can not be had must not keep a cluster from forming.
    budget::keep(&scene, &mut plan);
    strangers(&scene, &mut plan);
    health::mention(&scene, &mut status, &plan);
    plan.cluster_status = Some(status);
    plan
}

/// Members that name this cluster and are not its own are left alone, but not in silence.
fn strangers(scene: &Scene<'_>, plan: &mut Plan) {
    if let Some(member) = scene.outsiders().find(|m| !m.is_deleting()) {
        plan.complain(format!(
            "EtcdMember {} names this cluster, but does not belong to it (its owner or its cluster token is another one); it \
             is left alone",
            member.name()
        ));
    } else if let Some(stray) = scene.view.strays.iter().find(|stray| !stray.leaving) {
        plan.complain(format!(
            "{} {} carries the label of this cluster, but belongs to no EtcdMember; it is left alone. Delete it if it is \
             not needed, or take the label off",
            stray.kind, stray.name
        ));
    }
}
