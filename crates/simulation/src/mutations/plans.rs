//! Operators that see the right thing and want the wrong one.

use api::{EtcdMember, conditions, labels};
use planner::{Action, ClusterView, Ending, Leaving, Loss, MemberView, Permit, Plan, Release};

fn delete(member: &MemberView, because: Leaving) -> Action {
    let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
    Action::DeleteMember { name, uid, because, permit: Permit::forged() }
}

fn surplus(view: &ClusterView) -> Leaving {
    Leaving::Surplus { wanted: i32::try_from(wanted(view)).unwrap_or(0) }
}

fn release(member: &MemberView) -> Action {
    let finalizers = member.member.metadata.finalizers.iter().flatten();
    Action::ReleaseMember {
        name: member.name().to_owned(),
        uid: member.uid().to_owned(),
        finalizers: finalizers.filter(|f| *f != labels::FINALIZER).cloned().collect(),
        because: Release::OutOfEtcd,
        permit: Permit::forged(),
    }
}

fn crash_loops(member: &MemberView) -> bool {
    let containers = member.living_pod().and_then(|p| p.status.as_ref()?.container_statuses.as_ref());
    containers.is_some_and(|all| all.iter().any(|c| !c.ready && c.restart_count >= 5))
}

fn wanted(view: &ClusterView) -> usize {
    let observed = view.cluster.as_ref().and_then(|c| c.status.as_ref()?.observed.as_ref());
    observed.map_or(0, |o| usize::try_from(o.replicas).unwrap_or(0))
}

pub(super) fn heals_without_quorum(view: &ClusterView, plan: &mut Plan) {
    if view.etcd.membership.is_some() || view.living_cluster().is_none() {
        return;
    }
    for member in view.members.iter().filter(|m| m.has_joined()) {
        if member.is_deleting() {
            plan.actions.push(release(member));
        } else if crash_loops(member) {
            plan.actions.push(delete(member, Leaving::Broken(Loss::CrashLoop { restarts: 5 })));
        }
    }
}

pub(super) fn frozen_status(view: &ClusterView, plan: &mut Plan) {
    let before = view.cluster.as_ref().and_then(|c| c.status.clone());
    if view.etcd.membership.is_none() && before.as_ref().is_some_and(|s| s.cluster_id.is_some()) {
        plan.cluster_status = before;
    }
}

pub(super) fn remove_once(view: &ClusterView, plan: &mut Plan) {
    let removed: Vec<String> = plan
        .actions
        .iter()
        .filter_map(
            |a| if let Action::RemoveFromEtcd { member, .. } = a { Some(member.clone()) } else { None },
        )
        .collect();
    plan.actions.retain(|a| match a {
        Action::ReleaseMember { name, because: Release::OutOfEtcd, .. } => {
            view.members.iter().any(|m| m.name() == name && !m.has_joined())
        }
        _ => true,
    });
    for member in view.members.iter().filter(|m| removed.iter().any(|name| name == m.name())) {
        plan.actions.push(release(member));
    }
}

pub(super) fn orphans_stay(_: &ClusterView, plan: &mut Plan) {
    plan.actions.retain(|a| !matches!(a, Action::RemoveOrphan { .. }));
}

pub(super) fn no_guard(_: &ClusterView, plan: &mut Plan) {
    plan.actions.retain(|a| !matches!(a, Action::GuardMember { .. }));
}

pub(super) fn restless_message(view: &ClusterView, plan: &mut Plan) {
    let conditions = plan.cluster_status.iter_mut().flat_map(|s| &mut s.conditions);
    for condition in conditions.filter(|c| c.type_ == conditions::PROGRESSING) {
        condition.message = format!("working on {:#x}", view.entropy);
    }
}

pub(super) fn stale_list(view: &ClusterView, plan: &mut Plan) {
    let told = |name: &str| view.members.iter().any(|m| m.name() == name && !m.is_pending());
    let starts = |name: &str| {
        view.members
            .iter()
            .any(|m| m.name() == name && !m.has_joined() && !m.member.spec.dormant && !m.is_deleting())
    };
    plan.actions.retain(|a| match a {
        Action::WireMember { name, .. } => !told(name),
        Action::DeletePod { name, .. } => !starts(name),
        _ => true,
    });
}

pub(super) fn labels_stay(_: &ClusterView, plan: &mut Plan) {
    plan.actions.retain(|a| !matches!(a, Action::LabelPod { .. }));
}

pub(super) fn newest_leaves(view: &ClusterView, plan: &mut Plan) {
    let running =
        view.members.iter().filter(|m| !m.is_deleting() && !m.member.spec.dormant && m.has_joined());
    let newest = running.max_by_key(|m| m.member.metadata.creation_timestamp.as_ref().map(|t| t.0));
    for action in &mut plan.actions {
        if let (Action::DeleteMember { because: Leaving::Surplus { .. }, .. }, Some(newest)) =
            (&*action, newest)
        {
            *action = delete(newest, surplus(view));
        }
    }
}

/// A second one like the first.
pub(super) fn two_seeds(view: &ClusterView, plan: &mut Plan) {
    let first = plan.actions.iter().find_map(|a| match a {
        Action::CreateMember(member) if member.spec.bootstrap => Some((**member).clone()),
        _ => None,
    });
    if let Some(first) = first {
        let name = format!("{}-second", view.name);
        let old = first.metadata.name.clone().unwrap_or_default();
        let mut second: EtcdMember = first;
        second.spec.initial_cluster = second.spec.initial_cluster.replace(&old, &name);
        second.metadata.name = Some(name);
        plan.actions.push(Action::CreateMember(Box::new(second)));
    }
}

pub(super) fn no_promotion(_: &ClusterView, plan: &mut Plan) {
    plan.actions.retain(|a| !matches!(a, Action::Promote { .. }));
}

pub(super) fn promote_first(view: &ClusterView, plan: &mut Plan) {
    let Some(list) = view.etcd.membership.as_ref().map(|seen| &seen.fact) else { return };
    let learners: Vec<Action> =
        list.learners().map(|l| Action::Promote { member: l.name.clone(), id: l.id }).collect();
    if !learners.is_empty() {
        plan.actions.retain(|a| !matches!(a, Action::WireMember { .. } | Action::AddLearner { .. }));
        plan.actions.splice(0..0, learners);
    }
}

pub(super) fn two_leave(view: &ClusterView, plan: &mut Plan) {
    let leaving = view.members.iter().any(MemberView::is_deleting);
    let running: Vec<_> =
        view.members.iter().filter(|m| !m.is_deleting() && !m.member.spec.dormant).collect();
    if leaving && running.len() > wanted(view).max(1) && view.etcd.membership.is_some() {
        plan.actions.extend(running.first().map(|m| delete(m, surplus(view))));
    }
}

pub(super) fn pause_deletes(view: &ClusterView, plan: &mut Plan) {
    for action in &mut plan.actions {
        if let Action::SetDormant { name, dormant: true, .. } = action
            && let Some(member) = view.members.iter().find(|m| m.name() == name)
        {
            *action = delete(member, surplus(view));
        }
    }
}

pub(super) fn budget_stays(_: &ClusterView, plan: &mut Plan) {
    plan.actions.retain(|a| !matches!(a, Action::ResizeBudget { .. }));
}

pub(super) fn release_without_quorum(view: &ClusterView, plan: &mut Plan) {
    if view.etcd.membership.is_none() && view.living_cluster().is_some() {
        plan.actions.extend(view.members.iter().filter(|m| m.is_deleting()).map(release));
    }
}

pub(super) fn removal_in_memory(_: &ClusterView, plan: &mut Plan) {
    plan.actions.retain(|a| !matches!(a, Action::PersistMembership));
}

pub(super) fn optimist(_: &ClusterView, plan: &mut Plan) {
    let conditions = plan.cluster_status.iter_mut().flat_map(|s| &mut s.conditions);
    for condition in conditions.filter(|c| c.reason == conditions::reason::QUORUM_LOST) {
        if condition.type_ == conditions::AVAILABLE {
            condition.status = "True".to_owned();
        }
    }
}

pub(super) fn all_at_once(view: &ClusterView, plan: &mut Plan) {
    for member in &view.members {
        let options = view.cluster.as_ref().and_then(|c| c.spec.options.as_ref());
        let Some(pod) = member.living_pod().filter(|_| member.member.spec.options.as_ref() != options) else {
            continue;
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let (name, because) = (member.name().to_owned(), Ending::Ended);
        plan.actions.push(Action::DeletePod { name, uid, because, permit: Permit::forged() });
    }
}

/// Lifetime restarts count, and nobody asks etcd.
pub(super) fn heals_a_server(view: &ClusterView, plan: &mut Plan) {
    let often = |m: &MemberView| {
        let containers = m.living_pod().and_then(|p| p.status.as_ref()?.container_statuses.as_ref());
        containers.is_some_and(|all| all.iter().any(|c| c.restart_count >= 5))
    };
    give_up(view, plan, often, Loss::CrashLoop { restarts: 5 });
}

pub(super) fn gives_up_the_homeless(view: &ClusterView, plan: &mut Plan) {
    let homeless = |m: &MemberView| {
        let conditions = m.living_pod().and_then(|p| p.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "PodScheduled" && c.status == "False"))
    };
    give_up(view, plan, homeless, Loss::NoNode);
}

/// Deletes one member as broken, as long as somebody else is there.
fn give_up(view: &ClusterView, plan: &mut Plan, broken: impl Fn(&MemberView) -> bool, loss: Loss) {
    let leaving = view.members.iter().any(MemberView::is_deleting);
    if view.etcd.membership.is_none() || leaving || view.members.len() < 3 || view.living_cluster().is_none()
    {
        return;
    }
    if let Some(member) = view.members.iter().find(|m| m.has_joined() && broken(m)) {
        plan.actions.push(delete(member, Leaving::Broken(loss)));
    }
}

/// Every learner that serves is promoted in the pass that first hears it.
pub(super) fn votes_before_the_record(view: &ClusterView, plan: &mut Plan) {
    let Some(list) = view.etcd.membership.as_ref().map(|seen| &seen.fact) else { return };
    for learner in list.learners() {
        let member = view.members.iter().find(|m| m.row_in(list).is_some_and(|row| row.id == learner.id));
        let planned =
            plan.actions.iter().any(|a| matches!(a, Action::Promote { id, .. } if *id == learner.id));
        if let Some(member) = member.filter(|m| m.serving().is_some() && !m.is_deleting() && !planned) {
            plan.actions.push(Action::Promote { member: member.name().to_owned(), id: learner.id });
        }
    }
}

/// A seed that its user deleted goes, whatever it may have been given to keep.
pub(super) fn lets_an_unreached_seed_go(view: &ClusterView, plan: &mut Plan) {
    if view.living_cluster().is_none() || view.etcd_cluster().is_some() {
        return;
    }
    let unknown = |m: &&MemberView| m.is_deleting() && m.member.spec.bootstrap && !m.has_joined();
    plan.actions.extend(view.members.iter().filter(unknown).map(release));
}
