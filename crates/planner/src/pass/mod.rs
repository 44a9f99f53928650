//! One pass over one cluster, as a machine without a network: it says what it asks, takes the answers in, and goes from
//! observing to planning, acting and reporting. The operator plays it with a Kubernetes client and connections to etcd, the
//! simulation call by call with faults in between. What must be true before an action, which request carries it out, what
//! each answer means, and when to come back: all of that stands here, once.

mod act;
mod error;
mod memory;
mod observe;
mod operation;
mod report;
mod request;
mod translation;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use api::{EtcdCluster, EtcdMemberStatus};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::evidence::{self, Look};
use crate::{Action, ClusterView, Kind, MemberView, Plan};

use act::{Context, Steps};
use memory::Outcome;
use observe::Questions;
use report::Records;

pub use error::{Error, is_terminating};
pub use memory::Memory;
pub use operation::Change;
pub use request::{API_LIMIT, Answer, EtcdCall, Failure, Request};

/// What a pass needs from outside at every turn.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// A clock that only goes forward.
    pub now: Duration,
    /// The clock on the wall.
    pub wall: Timestamp,
    /// Whether this replica leads.
    pub leads: bool,
    /// What has been heard of objects since the pass began.
    pub cache: &'a dyn Latest,
}

/// Where the newest known version of an object is found.
pub trait Latest {
    /// The newest version of that EtcdCluster or EtcdMember, if it is known.
    fn latest(&self, kind: Kind, name: &str) -> Option<Value>;
}

/// Nothing is heard of anything.
impl Latest for () {
    fn latest(&self, _: Kind, _: &str) -> Option<Value> {
        None
    }
}

/// Which answer belongs to which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What a pass wants next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Make this request, and hand its answer to [`Pass::hear`]; and ask again, several can be under way.
    Ask(Ticket, Request),
    /// Nothing can be done before the next answer.
    Wait,
    /// The pass has come to its end.
    Over,
}

/// What whoever plays a pass should know of, in order.
#[derive(Clone, Debug)]
pub enum Told {
    /// The plan has been made.
    Planned,
    /// What the cluster waits for now.
    Waiting(String),
    /// Something only a user can change.
    Complaint(String),
    /// An object can not be read (kind and name), and why.
    Unreadable { object: String, why: String },
    /// An action was carried out.
    Done(Action),
    /// An action, or without one a status, was not.
    Failed { what: Option<Action>, error: Error },
    /// What a cache should know.
    Changed(Change),
    /// The status of the cluster stands as the plan has it.
    Reported,
}

/// How an operator behaves. This is how it should; a simulation has others, to see whether it notices.
pub trait Conduct {
    /// Decides.
    fn plan(&self, view: &mut ClusterView, now: Timestamp) -> Plan {
        crate::plan(view, now)
    }

    /// What is looked at before an action.
    fn looks(&self, view: &ClusterView, action: &Action) -> Vec<Look> {
        action.looks(view)
    }

    /// What is looked at before a member goes on record.
    fn look_before_record(&self, member: &MemberView, status: &EtcdMemberStatus) -> Option<Look> {
        evidence::look_before_record(member, status)
    }

    /// Whether other actions are carried out after one that was not.
    fn goes_on(&self) -> bool {
        true
    }
}

/// The operator as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Conduct for Sound {}

/// A pass under way.
#[derive(Debug)]
pub struct Pass<C = Sound> {
    conduct: C,
    view: ClusterView,
    plan: Plan,
    memory: Memory,
    began: Duration,
    stage: Stage,
    outcome: Outcome,
    failure: Option<Error>,
    desk: Desk,
}

#[derive(Debug)]
enum Stage {
    Observe(Questions),
    Act(Steps),
    Report { records: Records, readable: bool },
    Over(Duration),
}

impl<C: Conduct> Pass<C> {
    /// Begins with what the cache has. `memory` is what the last pass of this cluster has [left](Self::end).
    pub fn begin(mut view: ClusterView, mut memory: Memory, conduct: C, around: &Around<'_>) -> Self {
        memory.watchman.look_at_pods(&mut view, around.now);
        let mut desk = Desk::default();
        let stage = Stage::Observe(Questions::begin(&view, &mut desk));
        Self::new(view, memory, conduct, around, stage, desk)
    }

    /// Begins where an object of the cluster (kind and name) can not be read: nothing is done, and that is said.
    pub fn unreadable(
        (namespace, name): (&str, &str),
        cluster: Option<EtcdCluster>,
        (object, why): (&str, &str),
        mut memory: Memory,
        conduct: C,
        around: &Around<'_>,
    ) -> Self {
        let mut desk = Desk::default();
        if memory.complaint.as_deref() != Some(why) {
            desk.tell(Told::Unreadable { object: object.to_owned(), why: why.to_owned() });
            memory.complaint = Some(why.to_owned());
        }
        let living = cluster.filter(|c| c.metadata.deletion_timestamp.is_none());
        let status = living.as_ref().map(|cluster| crate::unreadable(cluster, object, around.wall));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let view = ClusterView { namespace, name, cluster: living, ..ClusterView::default() };
        // What it says is told already, once.
        let stage = Stage::Report { records: Records::quiet(), readable: false };
        let mut pass = Self::new(view, memory, conduct, around, stage, desk);
        pass.plan.cluster_status = status;
        pass
    }

    fn new(
        view: ClusterView,
        memory: Memory,
        conduct: C,
        around: &Around<'_>,
        stage: Stage,
        desk: Desk,
    ) -> Self {
        Self {
            conduct,
            view,
            plan: Plan::default(),
            memory,
            began: around.now,
            stage,
            outcome: Outcome::default(),
            failure: None,
            desk,
        }
    }

    /// What is known of the cluster.
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// What was planned; nothing before [`Told::Planned`].
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// When it began.
    pub fn began(&self) -> Duration {
        self.began
    }

    /// The action that the next request, or the one under way, carries out; `None` for a look.
    pub fn at_work(&self) -> Option<&Action> {
        match &self.stage {
            Stage::Act(steps) => steps.at_work(&self.plan),
            _ => None,
        }
    }

    /// What has happened since it was last asked.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.desk.told)
    }

    /// Takes an answer in. One that nobody waits for any more is passed over.
    pub fn hear(&mut self, ticket: Ticket, answer: Result<Answer, Failure>, around: &Around<'_>) {
        let Self { conduct, view, plan, memory, desk, .. } = self;
        match &mut self.stage {
            Stage::Observe(questions) => questions.hear(ticket, answer, view, memory, around.now),
            Stage::Act(steps) => {
                steps.hear(ticket, answer, &mut Context { view, plan, memory, conduct, desk, around });
            }
            Stage::Report { records, .. } => records.hear(ticket, answer, view, plan, desk),
            Stage::Over(_) => {}
        }
    }

    /// What it wants next.
    pub fn next(&mut self, around: &Around<'_>) -> Step {
        loop {
            if let Some((ticket, request)) = self.desk.out.pop_front() {
                return Step::Ask(ticket, request);
            }
            let Self { conduct, view, plan, memory, desk, .. } = self;
            let is_complete = match &mut self.stage {
                Stage::Observe(questions) => questions.go_on(view, memory, desk, around.now),
                Stage::Act(steps) => steps.go_on(&mut Context { view, plan, memory, conduct, desk, around }),
                Stage::Report { records, .. } => records.go_on(view, plan, conduct, desk, around),
                Stage::Over(_) => return Step::Over,
            };
            if is_complete {
                self.advance(around);
            } else if self.desk.out.is_empty() {
                return Step::Wait;
            }
        }
    }

    fn advance(&mut self, around: &Around<'_>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over(Duration::ZERO)) {
            Stage::Observe(_) => {
                self.decide(around);
                Stage::Act(Steps::begin(&mut self.memory))
            }
            Stage::Act(steps) => {
                (self.outcome, self.failure) = (steps.outcome, steps.failure);
                if self.may_defer(around) {
                    Stage::Over(self.come_back(around))
                } else {
                    self.memory.deferred_since = None;
                    Stage::Report { records: Records::default(), readable: true }
                }
            }
            Stage::Report { records, readable } => {
                if let Some(error) = records.failure {
                    self.desk.tell(Told::Failed { what: None, error: error.clone() });
                    self.failure.get_or_insert(error);
                }
                Stage::Over(if readable {
                    self.come_back(around)
                } else {
                    Memory::after_unreadable(self.failure.is_none())
                })
            }
            over @ Stage::Over(_) => over,
        };
    }

    fn decide(&mut self, around: &Around<'_>) {
        let ago = |at: Duration| SignedDuration::try_from(around.now.saturating_sub(at)).ok();
        self.view.etcd.confirmed_ago = self.memory.confirmed.and_then(ago);
        self.memory.watchman.look(&mut self.view, around.now);
        self.view.refused.clone_from(&self.memory.refused);
        self.plan = self.conduct.plan(&mut self.view, around.wall);
        self.desk.tell(Told::Planned);
        if self.plan.waiting_for != self.memory.waiting_for {
            self.memory.waiting_for.clone_from(&self.plan.waiting_for);
            self.desk.told.extend(self.plan.waiting_for.clone().map(Told::Waiting));
        }
        if self.plan.complaint != self.memory.complaint {
            self.memory.complaint.clone_from(&self.plan.complaint);
            self.desk.told.extend(self.plan.complaint.clone().map(Told::Complaint));
        }
    }

    /// Whether statuses can wait for the pass that follows at once. Not after a failed action: what was seen has to be told.
    fn may_defer(&mut self, around: &Around<'_>) -> bool {
        let is_followed =
            self.failure.is_none() && self.outcome.progressed && self.outcome.held_back.is_none();
        is_followed && !self.plan.has_news(&self.view) && self.memory.may_defer(self.began, around.now)
    }

    fn come_back(&mut self, around: &Around<'_>) -> Duration {
        let (span, chance) = ((self.began, around.now), self.view.entropy);
        self.memory.come_back(self.plan.next, self.outcome, self.failure.as_ref(), span, chance)
    }

    /// What is left of a pass that is over: what to remember, when to come back, and whether all of it went well.
    pub fn end(self) -> End {
        let again = if let Stage::Over(again) = self.stage { again } else { Duration::ZERO };
        End { memory: self.memory, again, succeeded: self.failure.is_none() }
    }
}

/// What is left of a pass.
#[derive(Debug)]
pub struct End {
    pub memory: Memory,
    /// When to come back without an event.
    pub again: Duration,
    pub succeeded: bool,
}

/// What goes out, and what was written.
#[derive(Debug, Default)]
struct Desk {
    tickets: u64,
    out: VecDeque<(Ticket, Request)>,
    told: Vec<Told>,
    /// What this pass has written, by UID.
    written: BTreeMap<String, Value>,
}

impl Desk {
    fn ask(&mut self, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.out.push_back((ticket, request));
        ticket
    }

    fn tell(&mut self, told: Told) {
        self.told.push(told);
    }

    fn changed(&mut self, change: Option<Change>) {
        if let Some(change) = change {
            if let Change::Wrote { object, .. } = &change
                && let Some(uid) = object["metadata"]["uid"].as_str()
            {
                self.written.insert(uid.to_owned(), object.clone());
            }
            self.told.push(Told::Changed(change));
        }
    }
}
