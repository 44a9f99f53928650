//! Carries the actions of a plan out, one after the other, and leaves out what waits for one that failed (T32).

use std::collections::BTreeMap;

use crate::{Action, ClusterView, Plan};

use super::error::Error;
use super::memory::Outcome;
use super::operation::{Ended, Operation};
use super::request::{Answer, Failure};
use super::{Around, Conduct, Desk, Memory, Ticket, Told};

/// What actions are carried out with.
pub(super) struct Context<'a, C> {
    pub view: &'a ClusterView,
    pub plan: &'a Plan,
    pub memory: &'a mut Memory,
    pub conduct: &'a C,
    pub desk: &'a mut Desk,
    pub around: &'a Around<'a>,
}

/// Actions under way.
#[derive(Debug)]
pub(super) struct Steps {
    index: usize,
    operation: Option<Operation>,
    asked: Option<Ticket>,
    /// Those that failed or were held back, by their number.
    undone: Vec<usize>,
    /// What was refused in the pass before: it stands until it is tried again.
    refused: BTreeMap<String, String>,
    pub outcome: Outcome,
    /// The first one counts.
    pub failure: Option<Error>,
}

impl Steps {
    pub fn begin(memory: &mut Memory) -> Self {
        Self {
            index: 0,
            operation: None,
            asked: None,
            undone: vec![],
            refused: std::mem::take(&mut memory.refused),
            outcome: Outcome::default(),
            failure: None,
        }
    }

    /// The action whose own request is being answered, or about to be made.
    pub fn at_work<'p>(&self, plan: &'p Plan) -> Option<&'p Action> {
        self.operation
            .as_ref()
            .filter(|operation| operation.is_at_work())
            .and_then(|_| plan.actions.get(self.index))
    }

    /// Asks what is to be asked next. True when nothing is left to do.
    pub fn go_on<C: Conduct>(&mut self, context: &mut Context<'_, C>) -> bool {
        loop {
            if self.asked.is_some() {
                return false;
            }
            let Some(action) = context.plan.actions.get(self.index) else { return true };
            if let Some(operation) = &self.operation {
                // A process may have stood still since it began.
                if !context.around.leads {
                    self.end(Err(Error::Deposed), context);
                } else if let Some(request) = operation.request() {
                    self.asked = Some(context.desk.ask(request));
                } else {
                    self.end(Ok(()), context);
                }
                continue;
            }
            if self.undone.iter().any(|&earlier| action.waits_for(&context.plan.actions[earlier])) {
                self.index += 1;
            } else if let Some(pause) = context.memory.restraint.holds_back(action, context.around.now) {
                self.outcome.held_back = Some(self.outcome.held_back.map_or(pause, |known| known.min(pause)));
                let about = |object: &&String| action.member().is_none_or(|name| object.ends_with(name));
                let stands = self.refused.iter().filter(|(object, _)| about(object));
                context.memory.refused.extend(stands.map(|(object, why)| (object.clone(), why.clone())));
                self.leave_undone(context);
            } else if !context.around.leads {
                self.end(Err(Error::Deposed), context);
            } else {
                match action.operation(context.view, context.conduct.looks(context.view, action)) {
                    Ok(operation) => self.operation = Some(operation),
                    Err(error) => self.end(Err(error), context),
                }
            }
        }
    }

    /// Takes an answer in.
    pub fn hear<C: Conduct>(
        &mut self,
        ticket: Ticket,
        answer: Result<Answer, Failure>,
        context: &mut Context<'_, C>,
    ) {
        let Some(operation) = self.operation.as_mut().filter(|_| self.asked == Some(ticket)) else { return };
        self.asked = None;
        if let Some(Ended { change, result }) = operation.hear(answer) {
            context.desk.changed(change);
            self.end(result, context);
        }
    }

    fn end<C: Conduct>(&mut self, result: Result<(), Error>, context: &mut Context<'_, C>) {
        self.operation = None;
        let Some(action) = context.plan.actions.get(self.index) else { return };
        let error = match result {
            Ok(()) => {
                self.outcome.progressed |= action.is_progress();
                context.desk.tell(Told::Done(action.clone()));
                if let Some(about) = context.memory.restraint.done(action, context.around.now) {
                    context.desk.tell(Told::Complaint(about));
                }
                self.index += 1;
                return;
            }
            Err(error) => error,
        };
        context.desk.tell(Told::Failed { what: Some(action.clone()), error: error.clone() });
        let refusal = error.refusal();
        if refusal.is_some() || error.is_contradiction() {
            let hopeless = context.memory.restraint.refused(action, context.around.now);
            if let Some(deed) = hopeless.filter(|_| error.is_contradiction()) {
                let about = format!("a step can not be taken again and again ({deed}): {error}");
                context.desk.tell(Told::Complaint(about));
            }
        }
        context.memory.refused.extend(refusal);
        self.failure.get_or_insert(error);
        self.leave_undone(context);
    }

    fn leave_undone<C: Conduct>(&mut self, context: &Context<'_, C>) {
        self.undone.push(self.index);
        self.index = if context.conduct.goes_on() { self.index + 1 } else { context.plan.actions.len() };
    }
}
