//! Writes statuses, each only if it says something new. One that can not be written keeps none of the others (T32), except
//! that the id of a cluster is on record after its members (T7).

use std::collections::BTreeMap;

use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::evidence::{looks_before_loss, without_loss};
use crate::{ClusterView, Kind, Plan};

use super::error::Error;
use super::operation::{Change, Ended, Operation};
use super::request::{Answer, Failure, Request};
use super::translation::wire;
use super::{Around, Conduct, Desk, Ticket, Told};

/// Statuses under way: the members' in the order of the view, the cluster's last.
#[derive(Debug, Default)]
pub(super) struct Records {
    index: usize,
    operation: Option<Operation>,
    asked: Option<Ticket>,
    /// The first one counts.
    pub failure: Option<Error>,
}

impl Records {
    /// Asks what is to be asked next. True when nothing is left to write.
    pub fn go_on<C: Conduct>(
        &mut self,
        view: &ClusterView,
        plan: &Plan,
        conduct: &C,
        desk: &mut Desk,
        around: &Around,
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
            match self.next(view, plan, conduct, desk) {
                Ok(Some(operation)) => self.operation = Some(operation),
                Ok(None) => self.written(view, plan, desk),
                Err(error) => self.failed(error),
            }
        }
    }

    /// The status whose turn it is; `None` if it says nothing new.
    fn next<C: Conduct>(
        &self,
        view: &ClusterView,
        plan: &Plan,
        conduct: &C,
        desk: &Desk,
    ) -> Result<Option<Operation>, Error> {
        if let Some(member) = view.members.get(self.index) {
            let Some(status) = plan.member_statuses.get(member.name()) else { return Ok(None) };
            let operation = status_of(Kind::Member, &member.member, status, desk)?;
            let look = conduct.look_before_record(member, status);
            return Ok(operation.map(|operation| operation.after(look.into_iter().collect())));
        }
        let (Some(cluster), Some(status)) = (&view.cluster, &plan.cluster_status) else { return Ok(None) };
        let recorded = cluster.status.as_ref().and_then(|s| s.cluster_id.as_ref());
        if self.failure.is_some() && recorded != status.cluster_id.as_ref() {
            return Ok(None);
        }
        let operation = status_of(Kind::Cluster, cluster, status, desk)?;
        Ok(operation.map(|operation| operation.after(looks_before_loss(view, status))))
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
            Ok(()) => self.written(view, plan, desk),
            // That nobody answers is true all the same, and is told.
            Err(error) if looked && self.index == view.members.len() => {
                plan.cluster_status =
                    plan.cluster_status.as_ref().map(|s| without_loss(s, &error.to_string()));
                self.failure.get_or_insert(error);
            }
            Err(error) => self.failed(error),
        }
    }

    fn written(&mut self, view: &ClusterView, plan: &Plan, desk: &mut Desk) {
        if self.index == view.members.len() && plan.cluster_status.is_some() {
            desk.tell(Told::Reported);
        }
        self.index += 1;
    }

    fn failed(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.index += 1;
    }
}

/// The write of a status that differs from the one seen. An action of this pass may have changed the rest of the object since;
/// a status that somebody else changed since is not overwritten.
fn status_of<K>(kind: Kind, seen: &K, status: &K::Status, desk: &Desk) -> Result<Option<Operation>, Error>
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
    let name = seen.meta().name.clone().unwrap_or_default();
    let mut object = desk.newest::<K>(seen.meta().uid.as_deref()).unwrap_or_else(|| seen.clone());
    if object.status() != seen.status() {
        return Err(Error::Stale(format!("status of {kind} {name}")));
    }
    *object.status_mut() = Some(status.clone());
    Ok(Some(Operation::new([Request::ReplaceStatus { kind, name, object: wire(&object)? }])))
}

/// What this pass has written of the objects whose statuses it writes, by UID.
#[derive(Debug, Default)]
pub(super) struct Newest {
    objects: BTreeMap<String, Value>,
}

impl Newest {
    pub fn note(&mut self, change: &Change) {
        if let Change::Wrote { kind: Kind::Member | Kind::Cluster, object } = change
            && let Some(uid) = object["metadata"]["uid"].as_str()
        {
            self.objects.insert(uid.to_owned(), object.clone());
        }
    }

    pub fn get<K: DeserializeOwned>(&self, uid: Option<&str>) -> Option<K> {
        K::deserialize(self.objects.get(uid?)?).ok()
    }
}
