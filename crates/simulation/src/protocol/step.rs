//! The steps of the state machine: the operator's, the world's, the faults, clients and users.

use std::fmt;

use super::Protocol;
use super::state::{Leaving, Members, Op, Row, State, Volume};
use super::world::Outcome;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The operator looks and plans; at last it may find that it has been patient for long enough.
    Observe {
        patience_is_over: bool,
    },
    /// It makes the next call of its plan.
    Call,
    /// The call is carried out, its answer is lost.
    LoseAnswer,
    /// The call is given up, and is still under way.
    GiveUp,
    /// The operator dies and starts anew.
    CrashOperator,
    /// A call that was given up lands.
    Land,
    Start(usize),
    Despair(usize),
    Replicate(usize),
    CrashMember(usize),
    LosePod(usize),
    CrashForGood(usize),
    LoseVolume(usize),
    /// A client's write is acknowledged; these have it on disk.
    Write(Members),
    UserDeletes(usize),
    UserScales(u8),
}

impl Protocol {
    pub(super) fn operator_steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.plan.is_empty() {
            steps.push(Step::Observe { patience_is_over: false });
            steps.push(Step::Observe { patience_is_over: true });
        } else {
            steps.push(Step::Call);
            steps.extend([Step::LoseAnswer, Step::GiveUp, Step::CrashOperator]);
        }
        steps.push(Step::Land);
    }

    /// What comes of a step, if it can be taken.
    pub(super) fn take(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        let taken = match step {
            Step::Observe { patience_is_over } => self.observe(&mut next, patience_is_over),
            Step::Call | Step::LoseAnswer | Step::GiveUp | Step::CrashOperator | Step::Land => {
                self.operate(&mut next, step)
            }
            Step::Start(member) => next.start(member),
            Step::Despair(member) => next.despair(member),
            Step::Replicate(member) => next.replicate(member),
            Step::Write(quorum) => write(&mut next, quorum),
            _ => go_wrong(&mut next, step),
        };
        next.publish();
        (taken && next != *state).then_some(next)
    }

    fn observe(&self, state: &mut State, patience_is_over: bool) -> bool {
        let plan = self.operator.decide(state, patience_is_over);
        if !state.plan.is_empty() || (patience_is_over && plan == self.operator.decide(state, false)) {
            return false;
        }
        state.seen = if plan.is_empty() { Members::default() } else { state.up() };
        state.harm.disruption |= disruptions(state, &plan) > 1;
        state.plan = plan;
        true
    }

    fn operate(&self, state: &mut State, step: Step) -> bool {
        if step == Step::Land {
            let Some((op, seen)) = state.late else { return false };
            let outcome = state.carry_out(self.scenario.etcd, op, seen);
            state.late = None;
            return outcome != Outcome::NotYet;
        }
        let allowed = match step {
            Step::Call => true,
            Step::GiveUp => spend(&mut state.faults.late),
            _ => spend(&mut state.faults.operator),
        };
        if !allowed {
            return false;
        }
        let Some(op) = state.plan.first().copied() else { return false };
        let seen = state.seen;
        match step {
            Step::CrashOperator => state.plan.clear(),
            Step::GiveUp => {
                // A status is written against the version that was read, and a Pod is deleted by its UID: late, they
                // miss.
                if state.late.is_some() || op.is_report() || matches!(op, Op::DeletePod { .. }) {
                    return false;
                }
                state.late = Some((op, seen));
                state.plan.retain(|op| op.is_report());
            }
            _ => {
                let outcome = state.carry_out(self.scenario.etcd, op, seen);
                state.plan.remove(0);
                match outcome {
                    Outcome::NotYet => return false,
                    Outcome::Done if step == Step::Call => {}
                    Outcome::Refused if step == Step::LoseAnswer => return false,
                    // The first failure ends the pass; what was seen is told all the same.
                    _ => state.plan.retain(|op| op.is_report()),
                }
            }
        }
        if state.plan.is_empty() {
            state.seen = Members::default();
        }
        true
    }
}

/// Voters that run and that a pass takes down or out at the same time: those it removes or stops, or those it lets go
/// besides the ones that were let go before. Who is down already is not disrupted by being let go.
fn disruptions(state: &State, plan: &[Op]) -> usize {
    let running = state.voters().and(state.up());
    let of = |wanted: fn(&Op) -> bool| {
        let targets = plan.iter().filter(|op| wanted(op)).filter_map(|op| op.member());
        targets.fold(Members::default(), Members::with).and(running)
    };
    let removed = of(|op| matches!(op, Op::Remove { .. } | Op::DeletePod { .. }));
    let let_go = of(|op| matches!(op, Op::Delete { .. }));
    let leaving = state.which(|m| m.leaving == Leaving::Decided).and(running);
    removed.count().max(if let_go.is_empty() { 0 } else { leaving.or(let_go).count() })
}

fn write(state: &mut State, quorum: Members) -> bool {
    let possible = state.formed
        && !state.acknowledged
        && state.has_quorum()
        && state.voters().and(state.up()).and(quorum) == quorum
        && quorum.count() == state.voters().quorum();
    if possible {
        state.acknowledged = true;
        quorum.iter().for_each(|i| state.members[i].written = true);
    }
    possible
}

/// Faults and users.
fn go_wrong(state: &mut State, step: Step) -> bool {
    match step {
        Step::CrashMember(i) => {
            let possible = state.members[i].up && spend(&mut state.faults.crashes);
            state.members[i].up &= !possible;
            possible
        }
        Step::LosePod(i) => {
            let possible = state.members[i].pod.is_some() && spend(&mut state.faults.pods);
            if possible {
                state.members[i].end_pod();
            }
            possible
        }
        Step::CrashForGood(i) => {
            let member = &mut state.members[i];
            let possible = member.pod.is_some() && !member.looping && spend(&mut state.faults.loops);
            if possible {
                (member.up, member.looping, member.restarted) = (false, true, true);
            }
            possible
        }
        Step::LoseVolume(i) => {
            let possible = state.members[i].volume != Volume::None && spend(&mut state.faults.volumes);
            if possible {
                state.lose_volume(i);
            }
            possible
        }
        Step::UserDeletes(i) => {
            let member = &mut state.members[i];
            let possible =
                member.object && member.leaving == Leaving::No && spend(&mut state.faults.deletions);
            if possible {
                member.leaving = Leaving::DeletedByUser;
            }
            possible
        }
        Step::UserScales(wanted) => {
            let possible = wanted != state.wanted && spend(&mut state.faults.edits);
            if possible {
                state.wanted = wanted;
            }
            possible
        }
        _ => false,
    }
}

fn spend(budget: &mut u8) -> bool {
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or(0);
    left.is_some()
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observe { patience_is_over: false } => write!(f, "the operator looks"),
            Self::Observe { patience_is_over: true } => write!(f, "the operator looks, its patience is over"),
            Self::Call => write!(f, "call"),
            Self::LoseAnswer => write!(f, "call, and the answer is lost"),
            Self::GiveUp => write!(f, "the call is given up, but still under way"),
            Self::CrashOperator => write!(f, "the operator dies"),
            Self::Land => write!(f, "the call that was given up lands"),
            Self::Start(i) => write!(f, "m{i} starts"),
            Self::Despair(i) => write!(f, "m{i} can not start, and has been restarted often"),
            Self::Replicate(i) => write!(f, "m{i} catches up"),
            Self::CrashMember(i) => write!(f, "m{i} crashes"),
            Self::LosePod(i) => write!(f, "m{i} loses its Pod"),
            Self::CrashForGood(i) => write!(f, "m{i} crashes, and at every start from now on"),
            Self::LoseVolume(i) => write!(f, "m{i} loses its volume"),
            Self::Write(quorum) => write!(f, "a write is acknowledged, it is on {quorum:?}"),
            Self::UserDeletes(i) => write!(f, "the user deletes m{i}"),
            Self::UserScales(n) => write!(f, "the user asks for {n} members"),
        }
    }
}

/// Whether etcd lists the members that were asked for, and nothing is left to do.
pub(super) fn is_converged(state: &State) -> bool {
    let objects = state.which(|m| m.object);
    state.formed
        && state.target == state.wanted
        && objects.count() == usize::from(state.wanted)
        && state.voters() == objects
        && state.members.iter().all(|m| m.leaving == Leaving::No && m.row != Row::Learner)
        && state.up() == objects
}
