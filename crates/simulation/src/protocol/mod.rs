//! The membership protocol alone, as a state machine small enough to be searched exhaustively: every order of calls,
//! starts, crashes, lost answers and lost volumes, for up to four members. The decisions are the operator's own
//! (`operator` asks the planner), the world around it is a few bits per member (`world`).
//!
//! A pass of the operator is one look followed by its calls, one step each, with the status written last. In between
//! anything may happen. Not modelled: leaders and elections (a quorum that runs has a leader), partitions, a cache that
//! is older than the truth when a pass begins, pausing, and memory-backed volumes; the simulation has them.

mod operator;
mod search;
mod state;
mod step;
mod variant;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};

use stateright::{Model, Property};

use operator::Operator;
use state::{Member, Members, NAMES, Pod, Row, State, Volume};

pub use search::{Counterexample, Search};
pub use state::Faults;
pub use step::Step;
pub use variant::Variant;
pub use world::Etcd;

/// The rules that hold in every state.
pub mod rule {
    pub const QUORUM: &str = "no call of ours leaves fewer than a quorum of voters able to serve";
    pub const VOLUME: &str = "a volume goes only after etcd confirmed that its member is out";
    pub const BOOTSTRAP: &str = "the cluster is bootstrapped once";
    pub const BLANK: &str = "a voter never gets a blank volume";
    pub const WRITE: &str = "an acknowledged write survives as long as a quorum of volumes does";
    pub const DISRUPTION: &str =
        "at most one voluntary disruption is in flight, as far as the operator can know";
    pub const CONVERGENCE: &str = "without further faults the cluster becomes what was asked for";
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Voters that are up and known when it begins; 0 begins with a cluster object alone.
    pub members: u8,
    /// `spec.replicas` when it begins.
    pub wanted: u8,
    pub faults: Faults,
    /// The most members that the user asks for. A name is left for a replacement that must join before the last voter
    /// leaves.
    pub most: u8,
    /// Whether a client writes.
    pub writes: bool,
    pub etcd: Etcd,
    pub variant: Variant,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            members: 3,
            wanted: 3,
            faults: Faults::default(),
            most: 3,
            writes: false,
            etcd: Etcd { strict: true, max_learners: 8 },
            variant: Variant::Faithful,
        }
    }
}

/// The protocol as stateright sees it.
pub struct Protocol {
    scenario: Scenario,
    operator: Operator,
    calm: search::Calm,
    broken: [AtomicBool; 7],
}

impl Protocol {
    pub fn new(scenario: Scenario) -> Self {
        let operator = Operator::new(scenario.variant, scenario.etcd.max_learners);
        Self { scenario, operator, calm: search::Calm::default(), broken: Default::default() }
    }

    /// Only the first breach of a rule counts: stateright would keep the last it met, which is not the shortest.
    fn holds(&self, rule: usize, holds: impl FnOnce() -> bool) -> bool {
        self.broken[rule].load(Ordering::Relaxed)
            || holds()
            || self.broken[rule].swap(true, Ordering::Relaxed)
    }

    fn first(&self) -> State {
        let Scenario { members, wanted, faults, .. } = self.scenario;
        let all = Members::of(|i| i < usize::from(members));
        let settled = |i: usize| Member {
            object: true,
            seed: i == 0,
            told: Some(Members::of(|j| j <= i)),
            joined: true,
            claim: state::Claim::Same,
            pod: Some(Pod { told: Members::of(|j| j <= i), new: i == 0 }),
            up: true,
            volume: Volume::Data,
            row: Row::Voter,
            named: true,
            ..Member::default()
        };
        State {
            members: std::array::from_fn(|i| if all.has(i) { settled(i) } else { Member::default() }),
            wanted,
            target: members,
            formed: members > 0,
            faults,
            ..State::default()
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.first()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.operator_steps(state, steps);
        for member in 0..NAMES {
            steps.extend([
                Step::Start(member),
                Step::Despair(member),
                Step::Replicate(member),
                Step::CrashMember(member),
                Step::LosePod(member),
                Step::CrashForGood(member),
                Step::LoseVolume(member),
                Step::UserDeletes(member),
            ]);
        }
        if self.scenario.writes {
            steps.extend(Members::every().map(Step::Write));
        }
        steps.extend((1..=self.scenario.most).map(Step::UserScales));
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        self.take(state, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(rule::QUORUM, |m: &Self, s: &State| m.holds(0, || !s.harm.quorum)),
            Property::always(rule::VOLUME, |m: &Self, s: &State| m.holds(1, || !s.harm.volume)),
            Property::always(rule::BOOTSTRAP, |m: &Self, s: &State| m.holds(2, || !s.harm.bootstrap)),
            Property::always(rule::BLANK, |m: &Self, s: &State| m.holds(3, || !s.harm.blank)),
            Property::always(rule::WRITE, |m: &Self, s: &State| m.holds(4, || !s.has_lost_the_write())),
            Property::always(rule::DISRUPTION, |m: &Self, s: &State| m.holds(5, || !s.harm.disruption)),
            Property::always(rule::CONVERGENCE, |m: &Self, s: &State| m.holds(6, || m.converges(s))),
        ]
    }
}
