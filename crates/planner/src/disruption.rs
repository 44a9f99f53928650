//! The one place that decides about harm: whether a member may be taken down or out now, and whether what it has may be let
//! go. Whoever wants that asks here. Only here are such actions made: each carries a [`Permit`], and nobody else can give one.
//!
//! The evidence is live: the linearizable list of this pass, and who answered in this pass. No counter, no memory, no hope.
//! * Who has a vote goes only if a quorum of the others serves without it, and the last voter does not go (`votes`).
//! * One at a time: the next one waits for whoever is on its way out, unless that one can not go before it.
//! * A leader hands over before it goes, and nobody is let go whose removal is not on disk.
//! * Under a CORRUPT alarm nobody goes of the operator's own accord; what a user has deleted leaves all the same.
//! * While members disagree no list is believed, and without a list nobody goes who may have data.
//! * Where no cluster has formed there is nobody to ask: a seed goes only if it can not have been given anything to keep.
//! * Where there is no EtcdCluster any more, `abandoned` decides.

mod abandoned;
mod votes;

use api::labels;
use etcd::Membership;

use crate::healing::has_ended;
use crate::view::{Assessed, ClusterView, MemberView, Scene};
use crate::{Action, Ending, Leaving, Loss, Plan, Release, alarms, outdated};

use abandoned::Abandoned;

pub(crate) use abandoned::{is_orphaning, is_own_wish};
pub(crate) use votes::may_promote;

/// Stands in every action that takes a member down or out, or lets go of what it has. The compiler finds whoever makes such an
/// action without having asked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit(());

impl Permit {
    /// For operators that are broken on purpose, and for tests; a test sees to it that nobody else forges one.
    #[doc(hidden)]
    pub fn forged() -> Self {
        Self(())
    }
}

/// What is to happen to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disruption {
    /// Its EtcdMember is deleted. That can not be taken back, but the finalizer keeps it until etcd has let it go.
    Delete(Leaving),
    /// It is taken out of etcd, because its EtcdMember was deleted.
    Remove,
    /// The finalizer of its EtcdMember is dropped. Its Pod and its volume go with it.
    Release,
    /// Its Pod is told not to start any more.
    Withdraw,
    /// Its Pod is deleted. On a volume, another one follows.
    End(Ending),
    /// Its Pod ends, and its volume stays.
    Sleep,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Safe,
    /// Safe, once it is on record that it happens. It goes there at the end of this pass.
    Unrecorded,
    Wait(String),
}

impl Verdict {
    /// Why not; `None` if it may be.
    pub fn why_not(self) -> Option<String> {
        match self {
            Self::Safe => None,
            Self::Unrecorded => Some("it has to be on record first that it leaves".to_owned()),
            Self::Wait(why) => Some(why),
        }
    }
}

fn wait<T>(why: impl Into<String>) -> Result<T, Verdict> {
    Err(Verdict::Wait(why.into()))
}

/// One at a time, whatever the reason: the list that the next one would be judged on still has the last one.
const ANOTHER_LEAVES: &str = "another member leaves in this pass";

impl Plan {
    /// Does that to a member, if it may be done now.
    pub(crate) fn disrupt(&mut self, scene: &Scene<'_>, member: &MemberView, how: &Disruption) -> Verdict {
        // One at a time: the next one is judged on a list without the last one.
        let is_second = match how {
            Disruption::Remove => self.is_removing(),
            Disruption::Delete(_) => self.actions.iter().any(|a| matches!(a, Action::DeleteMember { .. })),
            _ => false,
        };
        if is_second {
            return Verdict::Wait(ANOTHER_LEAVES.to_owned());
        }
        let verdict = may_disrupt(scene, member, how);
        if verdict == Verdict::Safe {
            let steps = self.steps(scene, member, how);
            self.actions.extend(steps);
        }
        verdict
    }

    /// The same, where nothing should speak against it. What does is told. True when it is done.
    pub(crate) fn disrupt_or_tell(
        &mut self,
        scene: &Scene<'_>,
        member: &MemberView,
        how: &Disruption,
    ) -> bool {
        let why = self.disrupt(scene, member, how).why_not();
        if let Some(why) = &why {
            self.complain(format!("member {} is left as it is: {why}", member.name()));
        }
        why.is_none()
    }

    /// Takes a row out of etcd that no EtcdMember stands for, and that has this name of ours, if it may be done now.
    pub(crate) fn remove_orphan(&mut self, scene: &Scene<'_>, row: &etcd::Member, name: &str) -> Verdict {
        if self.is_removing() {
            return Verdict::Wait(ANOTHER_LEAVES.to_owned());
        }
        if let Err(verdict) = may_spare(scene, row) {
            return verdict;
        }
        self.act(Action::RemoveOrphan { member: name.to_owned(), id: row.id, permit: Permit(()) });
        // Its volume went with its object, so nobody can be asked for its vote.
        self.act(Action::PersistMembership);
        Verdict::Safe
    }

    /// Wakes a member, which takes nobody down.
    pub(crate) fn wake(&mut self, member: &MemberView) {
        self.act(set_dormant(member, false, true));
    }

    /// Lets a member go that has no EtcdCluster to take it out of etcd, if it may; says why, if not.
    pub(crate) fn let_go(&mut self, view: &ClusterView, member: &MemberView) {
        match abandoned::judge(view, member) {
            Abandoned::No => {}
            Abandoned::Kept(why) => self.complain(why),
            Abandoned::LetGo(because) => self.act(release(member, because)),
        }
    }

    /// Whether a member is being taken out of etcd.
    pub(crate) fn is_removing(&self) -> bool {
        self.actions.iter().any(|a| matches!(a, Action::RemoveFromEtcd { .. }))
    }

    fn steps(&self, scene: &Scene<'_>, member: &MemberView, how: &Disruption) -> Vec<Action> {
        let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
        match how {
            Disruption::Delete(because) => {
                vec![Action::DeleteMember { name, uid, because: because.clone(), permit: Permit(()) }]
            }
            Disruption::Remove => {
                let row = scene.membership().and_then(|list| Some((list, member.row_in(list)?)));
                row.map(|(list, row)| remove(scene, list, member, row)).unwrap_or_default()
            }
            Disruption::Release if scene.is_formed() => {
                // With the finalizer goes the volume, and nobody can be asked for the vote of what was on it.
                let persisted = self.actions.contains(&Action::PersistMembership);
                let persist = (!persisted).then_some(Action::PersistMembership);
                persist.into_iter().chain([release(member, Release::OutOfEtcd)]).collect()
            }
            Disruption::Release => vec![release(member, Release::NeverFormed)],
            Disruption::Withdraw => {
                let uid = member.pod.as_ref().and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default();
                vec![Action::WithdrawPod { name, uid, permit: Permit(()) }]
            }
            Disruption::End(because) => end(member, because.clone()).into_iter().collect(),
            Disruption::Sleep => {
                let asleep = set_dormant(member, true, scene.membership().is_some());
                let end = end(member, Ending::Paused { member: uid });
                [asleep].into_iter().chain(end).collect()
            }
        }
    }
}

fn remove(scene: &Scene<'_>, list: &Membership, member: &MemberView, row: &etcd::Member) -> Vec<Action> {
    let id = row.id;
    let removal = Action::RemoveFromEtcd { member: member.name().to_owned(), id, permit: Permit(()) };
    votes::hand_over(scene, list, id).into_iter().chain([removal]).collect()
}

fn release(member: &MemberView, because: Release) -> Action {
    let finalizers = member.member.metadata.finalizers.iter().flatten();
    Action::ReleaseMember {
        name: member.name().to_owned(),
        uid: member.uid().to_owned(),
        finalizers: finalizers.filter(|f| *f != labels::FINALIZER).cloned().collect(),
        because,
        permit: Permit(()),
    }
}

fn end(member: &MemberView, because: Ending) -> Option<Action> {
    let uid = member.living_pod()?.metadata.uid.clone()?;
    Some(Action::DeletePod { name: member.name().to_owned(), uid, because, permit: Permit(()) })
}

fn set_dormant(member: &MemberView, dormant: bool, confirmed: bool) -> Action {
    let (name, uid) = (member.name().to_owned(), member.uid().to_owned());
    Action::SetDormant { name, uid, dormant, confirmed, permit: Permit(()) }
}

/// May this happen to a member now, apart from what else is planned?
pub(crate) fn may_disrupt(scene: &Scene<'_>, member: &MemberView, how: &Disruption) -> Verdict {
    let judged = match how {
        Disruption::Delete(Leaving::Surplus { .. }) => may_delete(scene, member, None),
        Disruption::Delete(Leaving::Broken(loss)) => may_delete(scene, member, Some(*loss)),
        Disruption::Delete(Leaving::Outdated) if scene.is_formed() => has_never_run(scene, member),
        // Nobody else may count on what it has formed meanwhile.
        Disruption::Delete(Leaving::Outdated) if scene.members.len() > 1 => wait("it is not the only member"),
        Disruption::Delete(Leaving::Outdated) => is_blank(scene, member).and_then(|()| can_not_start(member)),
        Disruption::Remove => may_remove(scene, member),
        Disruption::Release if scene.is_formed() => is_out(scene, member),
        Disruption::Release => is_blank(scene, member).and_then(|()| can_not_start(member)),
        Disruption::Withdraw => is_blank(scene, member),
        Disruption::End(because) => may_end(member, because),
        Disruption::Sleep => may_sleep(scene, member),
    };
    judged.err().unwrap_or(Verdict::Safe)
}

/// The list that everything rests on that can cost a vote.
fn list<'a>(scene: &Scene<'a>) -> Result<&'a Membership, Verdict> {
    match (scene.membership(), &scene.split) {
        (Some(list), _) => Ok(list),
        (None, Some(_)) => wait("members disagree"),
        (None, None) => wait("etcd has no quorum"),
    }
}

/// Of the operator's own accord. What is `lost` already can not be lost by letting it go.
fn may_delete(scene: &Scene<'_>, member: &MemberView, lost: Option<Loss>) -> Result<(), Verdict> {
    let has_data = !matches!(lost, Some(Loss::Pod | Loss::Volume | Loss::OtherVolume));
    if !scene.is_formed() {
        // Nobody else has a copy, and another seed begins anew.
        return if has_data { wait("no cluster has formed") } else { Ok(()) };
    }
    let list = list(scene)?;
    no_alarm(scene)?;
    if has_data && !scene.is_confirmed(member) {
        let advice = if lost.is_some() { "; delete the EtcdMember if it is not needed" } else { "" };
        return wait(format!("it was taken up, and its own etcd has not named the cluster yet{advice}"));
    }
    match lost {
        Some(_) => nobody_can_leave(scene, list)?,
        None => nobody_leaves(scene, list)?,
    }
    match member.row_in(list) {
        Some(row) => votes::may_lose(scene, list, row.id),
        // Nobody of ours took it out: its object would be on its way out then.
        None if has_data && member.has_joined() => {
            wait("etcd does not list it, although nobody here took it out")
        }
        None => Ok(()),
    }
}

/// Neither a vote nor data: not even etcd knows its name, which it has from its first start.
fn has_never_run(scene: &Scene<'_>, member: &MemberView) -> Result<(), Verdict> {
    let list = list(scene)?;
    nobody_leaves(scene, list)?;
    let unheard = member.row_in(list).is_none_or(|row| row.is_learner && row.name.is_empty());
    if !unheard || member.has_joined() || member.serving().is_some() {
        return wait("it has run");
    }
    Ok(())
}

/// Whoever deleted it: that can not be taken back, so that it leaves as soon as the others can do without it.
fn may_remove(scene: &Scene<'_>, member: &MemberView) -> Result<(), Verdict> {
    let list = list(scene)?;
    if !member.is_deleting() {
        return wait("its EtcdMember was not deleted");
    }
    let Some(row) = member.row_in(list) else { return Ok(()) };
    // It was the operator's own wish, and is not any more.
    if is_own_wish(member) {
        no_alarm(scene)?;
    }
    votes::may_lose(scene, list, row.id)?;
    // Where a list of one is left, or can be an impostor's, it goes on record first who is out (T28).
    let doubtful = list.members.len() == 2 || scene.members.iter().any(|m| m.may_turn_impostor());
    if doubtful && !are_on_record(scene, list, member) { Err(Verdict::Unrecorded) } else { Ok(()) }
}

/// Whether it is written down of this member, and of all that are out already, that they leave.
fn are_on_record(scene: &Scene<'_>, list: &Membership, member: &MemberView) -> bool {
    let others = scene.members.iter().filter(|m| m.is_deleting() && m.has_joined());
    let mut out = others.filter(|m| m.uid() == member.uid() || m.row_in(list).is_none());
    out.all(|m| m.is_told_to_leave())
}

fn is_out(scene: &Scene<'_>, member: &MemberView) -> Result<(), Verdict> {
    if !member.is_deleting() || list(scene)?.members.iter().any(|row| member.stands_for(row)) {
        return wait("it is not out of etcd");
    }
    Ok(())
}

/// May a row be taken out of etcd that no EtcdMember stands for?
fn may_spare(scene: &Scene<'_>, row: &etcd::Member) -> Result<(), Verdict> {
    let list = list(scene)?;
    no_alarm(scene)?;
    nobody_can_leave(scene, list)?;
    votes::may_lose(scene, list, row.id)
}

/// No cluster has formed, and no client can have written to what this one has.
fn is_blank(scene: &Scene<'_>, member: &MemberView) -> Result<(), Verdict> {
    if scene.is_formed() || outdated::may_hold_data(member) {
        return wait("its etcd may have been given something to keep");
    }
    Ok(())
}

fn can_not_start(member: &MemberView) -> Result<(), Verdict> {
    if outdated::may_start(member) { wait("its etcd may still start") } else { Ok(()) }
}

fn may_end(member: &MemberView, because: &Ending) -> Result<(), Verdict> {
    let pod = member.pod.as_ref();
    let is_harmless = match because {
        // There is nobody in it to take down, and what it had is on its volume.
        Ending::Ended => pod.is_some_and(has_ended) && !member.is_memory(),
        // It was decided, and noted on the member, that nobody else counts on it.
        Ending::Paused { .. } => member.member.spec.dormant,
        // It has neither a vote that counts nor data: etcd refuses to start in it.
        Ending::Overtaken { .. } => !member.has_joined() && !member.member.spec.bootstrap,
    };
    if is_harmless { Ok(()) } else { wait("its Pod is needed") }
}

/// No volume changes, so that no answer from etcd is needed; but if etcd answers, it must know of no other voter (T29), and
/// nobody must disagree. One without an object is taken out first.
fn may_sleep(scene: &Scene<'_>, member: &MemberView) -> Result<(), Verdict> {
    if scene.split.is_some() {
        return wait("members disagree");
    }
    let no_other = |list: &Membership| list.voters().all(|row| member.stands_for(row));
    if scene.membership().is_none_or(no_other) { Ok(()) } else { wait("it is not the only voter") }
}

/// Which copy is the good one is for a person to find out.
fn no_alarm(scene: &Scene<'_>) -> Result<(), Verdict> {
    if alarms::is_raised(scene, "CORRUPT") {
        return wait("etcd has raised its CORRUPT alarm, and nothing is deleted under it");
    }
    Ok(())
}

/// Who is on its way out of etcd: no other change of the membership is begun before it is out (H11). The last voter can leave
/// only after others have joined, so its leaving does not keep them waiting.
pub(crate) fn leaving<'s, 'a>(scene: &'s Scene<'a>, list: &Membership) -> Option<&'s Assessed<'a>> {
    let leaves = |m: &&Assessed<'_>| m.is_deleting() && !scene.is_out(m) && !votes::is_last(list, m);
    scene.members.iter().find(leaves)
}

fn nobody_leaves(scene: &Scene<'_>, list: &Membership) -> Result<(), Verdict> {
    let Some(other) = leaving(scene, list) else { return Ok(()) };
    wait(format!("member {} leaves", other.name()))
}

/// Whoever leaves may be held up by one that can not come back by itself: then that one goes first, or nobody ever does.
fn nobody_can_leave(scene: &Scene<'_>, list: &Membership) -> Result<(), Verdict> {
    match leaving(scene, list) {
        Some(other) if !is_held_up(scene, other) => wait(format!("member {} leaves", other.name())),
        _ => Ok(()),
    }
}

/// Whether a member that is on its way out can not be taken out of etcd now.
pub(crate) fn is_held_up(scene: &Scene<'_>, leaving: &MemberView) -> bool {
    matches!(may_disrupt(scene, leaving, &Disruption::Remove), Verdict::Wait(_))
}

#[cfg(test)]
mod tests;
