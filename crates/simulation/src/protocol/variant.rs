//! Operators with one rule broken. Each is the real planner with a lie in its ear (the view) or a slip of the hand (the
//! calls), so that everything but the broken rule is as it ships. The search has to find what each of them ruins.

use planner::ClusterView;

use super::operator::Decided;
use super::state::{Leaving, Member, NAMES, Op, Pod, Row, Volume};

/// Which rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// None: the operator as it is.
    #[default]
    Faithful,
    /// Members join with a vote (`membership::complete` adds learners).
    VotingAdd,
    /// A learner gets its vote whether it answers or not (`membership::promote` asks).
    PromoteSilent,
    /// A learner that waits for its vote comes before a member that waits to be told whom to join (H5,
    /// `membership::converge`).
    PromoteBeforePending,
    /// Everybody is taken for serving when a member is to leave (`disruption::may_remove` looks).
    RemoveUnchecked,
    /// All that have to leave are removed on one list (`deletion::remove_leaving` takes one).
    RemoveTwo,
    /// A member is let go, and its volume with it, before etcd has let it go (`deletion::remove`).
    ReleaseBeforeRemoval,
    /// A member that keeps dying is replaced without asking etcd (T1, `healing::replace_broken`).
    HealUnchecked,
    /// A member that has joined and lost its volume gets a blank one (T7, `volume::keep`).
    BlankVolume,
    /// A seed that lost its volume starts `new` again (H31, `pod::starts_new`).
    NewAfterFormation,
    /// A seed that does not answer yet is doubled (`bootstrap::seed`).
    SecondSeed,
    /// A member that etcd no longer lists is not let go (T3, `deletion::remove`).
    NotFoundIsError,
    /// Rows without a member stay (T9, `orphans::remove`).
    OrphansStay,
}

impl Variant {
    /// What the operator is made to believe.
    pub(super) fn distort_view(self, view: &mut ClusterView) {
        match self {
            Self::BlankVolume => {
                // Neither the record nor etcd's own word counts.
                let rows = view.etcd.membership.iter_mut().flat_map(|seen| &mut seen.fact.members);
                let mut rows: Vec<_> = rows.collect();
                for member in view.members.iter_mut().filter(|m| m.volume.is_none()) {
                    for row in rows.iter_mut().filter(|row| row.name == member.name()) {
                        row.name = String::new();
                    }
                    member.member.status.get_or_insert_default().member_id = None;
                }
            }
            Self::RemoveUnchecked => pretend_all_serve(view),
            _ => {}
        }
    }

    /// What the operator is made to do.
    pub(super) fn distort_calls(self, members: &[Member; NAMES], formed: bool, calls: &mut Vec<Decided>) {
        let which =
            |keep: &dyn Fn(&Member) -> bool| (0..NAMES).filter(|i| keep(&members[*i])).collect::<Vec<_>>();
        match self {
            Self::Faithful | Self::BlankVolume | Self::RemoveUnchecked => {}
            Self::VotingAdd => replace(calls, |op| match op {
                Op::AddLearner { member } => Some(Op::AddVoter { member }),
                other => Some(other),
            }),
            Self::PromoteSilent => {
                replace(calls, |op| Some(op).filter(|op| !matches!(op, Op::Promote { .. })));
                let learners = which(&|m| m.row == Row::Learner && m.object);
                calls.extend(learners.into_iter().map(|member| Decided::Call(Op::Promote { member })));
            }
            Self::PromoteBeforePending => {
                let learners = which(&|m| m.row == Row::Learner && m.object);
                if !learners.is_empty() {
                    replace(calls, |op| Some(op).filter(|op| !matches!(op, Op::Wire { .. })));
                    calls.extend(learners.into_iter().map(|member| Decided::Call(Op::Promote { member })));
                }
            }
            Self::RemoveTwo => {
                if calls.iter().any(|c| matches!(c, Decided::Call(Op::Remove { .. }))) {
                    replace(calls, |op| Some(op).filter(|op| !matches!(op, Op::Remove { .. })));
                    let leaving = which(&|m| m.leaving != Leaving::No && m.row != Row::None);
                    calls.extend(leaving.into_iter().map(|member| Decided::Call(Op::Remove { member })));
                }
            }
            Self::ReleaseBeforeRemoval => replace(calls, |op| match op {
                Op::Remove { member } if members[member].object => Some(Op::Release { member }),
                other => Some(other),
            }),
            Self::HealUnchecked => {
                for member in which(&|m| m.object && m.looping) {
                    calls.push(Decided::Call(match members[member].leaving {
                        Leaving::No => Op::Delete { member },
                        _ => Op::Release { member },
                    }));
                }
            }
            Self::NewAfterFormation => {
                for member in
                    which(&|m| m.seed && m.told.is_some() && m.volume == Volume::None && m.pod.is_none())
                {
                    let pod = Pod { told: super::state::Members::only(member), new: true };
                    calls.push(Decided::Call(Op::CreateVolume { member }));
                    calls.push(Decided::Call(Op::CreatePod { member, pod }));
                }
            }
            Self::SecondSeed => {
                if !formed && members.iter().any(|m| m.object && !m.up) {
                    calls.push(Decided::Create { seed: true });
                }
            }
            Self::NotFoundIsError => replace(calls, |op| match op {
                Op::Release { member } if members[member].row == Row::None && formed => None,
                other => Some(other),
            }),
            Self::OrphansStay => replace(calls, |op| match op {
                Op::Remove { member } if !members[member].object => None,
                other => Some(other),
            }),
        }
    }
}

fn replace(calls: &mut Vec<Decided>, with: impl Fn(Op) -> Option<Op>) {
    let changed = calls.drain(..).filter_map(|call| match call {
        Decided::Call(op) => with(op).map(Decided::Call),
        create @ Decided::Create { .. } => Some(create),
    });
    *calls = changed.collect();
}

fn pretend_all_serve(view: &mut ClusterView) {
    let Some(list) = view.etcd.membership.as_ref().map(|seen| seen.fact.clone()) else { return };
    let Some(answer) = view.members.iter().find_map(|m| m.serving().cloned()) else { return };
    for member in &mut view.members {
        if let Some(row) = list.by_peer_url(&member.peer_url()) {
            let status = etcd::Status { member_id: row.id, is_learner: row.is_learner, ..answer.clone() };
            member.etcd = Some(Ok(status));
        }
    }
}
