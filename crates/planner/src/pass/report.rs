//! Writes statuses, each only if it says something new. One that can not be written keeps none of the others (T32), except
//! that the id of a cluster is on record after its members (T7).

use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::evidence::{looks_before_loss, uid_of, without_loss};
use crate::{ClusterView, Kind, Plan};

use super::error::Error;
use super::operation::{Ended, Operation};
use super::request::{Answer, Failure, Request};
use super::translation::wire;
use super::{Around, Conduct, Desk, Ticket, Told};

/// Statuses under way: the members' in the order of the view, the cluster's last.
#[derive(Debug, Default)]
pub(super) struct Records {
    index: usize,
    operation: Option<Operation>,
    asked: Option<Ticket>,
    /// A member's status could not be written.
    unrecorded: bool,
    /// Nobody is told that the cluster's status stands.
    quiet: bool,
    /// The first one counts.
    pub failure: Option<Error>,
}

/// The status whose turn it is.
enum Turn {
    Write(Box<Operation>),
    /// It says nothing new.
    Unchanged,
    /// It has to wait for others.
    Waits,
}

impl Records {
    /// Writes without a word.
    pub fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }

    /// Asks what is to be asked next. True when nothing is left to write.
    pub fn go_on<C: Conduct>(
        &mut self,
        view: &ClusterView,
        plan: &Plan,
        conduct: &C,
        desk: &mut Desk,
        around: &Around<'_>,
    ) -> bool {
        loop {
            if self.asked.is_some() {
                return false;
            }
            if self.index > view.members.len() {
                return true;
            }
            // Statuses, too, are written only by who leads (T36).
            if !around.leads {
                self.failure.get_or_insert(Error::Deposed);
                return true;
            }
            if let Some(request) = self.operation.as_ref().and_then(Operation::request) {
                self.asked = Some(desk.ask(request));
                continue;
            }
            match self.next(view, plan, conduct, desk, around) {
                Ok(Turn::Write(operation)) => self.operation = Some(*operation),
                Ok(Turn::Unchanged) => self.written(view, desk),
                Ok(Turn::Waits) => self.index += 1,
                Err(error) => self.failed(view, error),
            }
        }
    }

    fn next<C: Conduct>(
        &self,
        view: &ClusterView,
        plan: &Plan,
        conduct: &C,
        desk: &Desk,
        around: &Around<'_>,
    ) -> Result<Turn, Error> {
        let (operation, looks) = if let Some(member) = view.members.get(self.index) {
            let Some(status) = plan.member_statuses.get(member.name()) else { return Ok(Turn::Unchanged) };
            let look = conduct.look_before_record(member, status);
            (status_of(Kind::Member, &member.member, status, desk, around)?, look.into_iter().collect())
        } else {
            let (Some(cluster), Some(status)) = (&view.cluster, &plan.cluster_status) else {
                return Ok(Turn::Waits);
            };
            let recorded = cluster.status.as_ref().and_then(|s| s.cluster_id.as_ref());
            if self.unrecorded && recorded != status.cluster_id.as_ref() {
                return Ok(Turn::Waits);
            }
            (status_of(Kind::Cluster, cluster, status, desk, around)?, looks_before_loss(view, status))
        };
        Ok(operation.map_or(Turn::Unchanged, |operation| Turn::Write(Box::new(operation.after(looks)))))
    }

    /// Takes an answer in.
    pub fn hear(
        &mut self,
        ticket: Ticket,
        answer: Result<Answer, Failure>,
        view: &ClusterView,
        plan: &mut Plan,
        desk: &mut Desk,
    ) {
        let Some(operation) = self.operation.as_mut().filter(|_| self.asked == Some(ticket)) else { return };
        self.asked = None;
        let looked = !operation.is_at_work();
        let Some(Ended { change, result }) = operation.hear(answer) else { return };
        self.operation = None;
        desk.changed(change);
        match result {
            Ok(()) => self.written(view, desk),
            // That nobody answers is true all the same, and is told.
            Err(error) if looked && self.index == view.members.len() => {
                plan.cluster_status =
                    plan.cluster_status.as_ref().map(|s| without_loss(s, &error.to_string()));
                self.failure.get_or_insert(error);
            }
            Err(error) => self.failed(view, error),
        }
    }

    fn written(&mut self, view: &ClusterView, desk: &mut Desk) {
        if self.index == view.members.len() && !self.quiet {
            desk.tell(Told::Reported);
        }
        self.index += 1;
    }

    fn failed(&mut self, view: &ClusterView, error: Error) {
        self.unrecorded |= self.index < view.members.len();
        self.failure.get_or_insert(error);
        self.index += 1;
    }
}

/// The write of a status that differs from the one seen. The rest of the object may have changed since, by an action of this
/// pass or by somebody else; a status that somebody else changed since is not overwritten.
fn status_of<K>(
    kind: Kind,
    seen: &K,
    status: &K::Status,
    desk: &Desk,
    around: &Around<'_>,
) -> Result<Option<Operation>, Error>
where
    K: HasStatus<Status: PartialEq + Clone>
        + Resource<DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned,
{
    if seen.status() == Some(status) {
        return Ok(None);
    }
    let meta = seen.meta();
    let name = meta.name.clone().unwrap_or_default();
    let known = around.cache.latest(kind, &name).filter(|o| uid_of(o) == meta.uid.as_deref());
    let newest = known.as_ref().or_else(|| desk.written.get(meta.uid.as_deref()?));
    let mut object = newest.and_then(|object| K::deserialize(object).ok()).unwrap_or_else(|| seen.clone());
    if object.status() != seen.status() {
        return Err(Error::Stale(format!("status of {kind} {name}")));
    }
    *object.status_mut() = Some(status.clone());
    Ok(Some(Operation::new([Request::ReplaceStatus { kind, name, object: wire(&object)? }])))
}
