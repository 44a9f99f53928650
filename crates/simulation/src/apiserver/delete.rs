//! Delete: at once, after a grace period, or once the finalizers are gone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kind::{EVENT, POD};
use super::{ApiError, ApiServer, Id, Kind, Millis, meta};

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// How to delete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    /// Only this very object.
    pub uid: Option<String>,
    /// Only this version of it.
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
    /// Zero is what the kubelet sends when a Pod's processes have ended, and what `--force` sends.
    pub grace_period_seconds: Option<i64>,
}

/// What happens to the dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What became of a delete.
#[derive(Clone, Debug, PartialEq)]
pub enum Deletion {
    /// It is gone; this is how it last was.
    Gone(Value),
    /// It is marked, and waits for its kubelet or its finalizers.
    Pending(Value),
}

impl ApiServer {
    pub fn delete(
        &mut self,
        now: Millis,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deletion, ApiError> {
        let mut old = self.existing(kind, namespace, name)?;
        options.check(kind, &old)?;
        let mut object = (*old).clone();
        let grace = self.mark_graceful(now, kind, &mut object, options);
        if grace == Grace::Unchanged {
            return Ok(Deletion::Pending(object));
        }
        let finalizers = options.finalizers(kind, &object);
        meta::set_finalizers(&mut object, &finalizers);
        if grace == Grace::None && !finalizers.is_empty() {
            self.mark_finalizing(now, &mut object);
        }
        if grace == Grace::Running || !finalizers.is_empty() {
            return Ok(Deletion::Pending(self.store_changed(now, kind, &old, object)));
        }
        if grace == Grace::Over {
            self.store_changed(now, kind, &old, object);
            old = self.existing(kind, namespace, name)?;
        } else if !meta::finalizers(&old).is_empty() && options.resource_version.is_some() {
            // What the real one says when the request itself takes the last finalizer off: it forgets the version it
            // has just compared.
            return Err(ApiError::conflict(
                kind,
                name,
                "Precondition failed: ResourceVersion in precondition: ",
            ));
        }
        self.commit(now, Id::of(kind, &old), None);
        let mut last = (*old).clone();
        meta::set(&mut last, "resourceVersion", json!(self.revision.to_string()));
        Ok(Deletion::Gone(last))
    }

    /// A Pod on a node is given time; its kubelet ends that time with a delete of its own.
    fn mark_graceful(&self, now: Millis, kind: Kind, object: &mut Value, options: &DeleteOptions) -> Grace {
        if kind != POD {
            return Grace::None;
        }
        let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
        let seconds = if meta::is_terminating(object) {
            // The time can be made shorter, never longer.
            match (meta::grace(object).unwrap_or_default(), options.grace_period_seconds) {
                (0, _) => return Grace::None,
                (left, Some(asked)) if asked < left => asked,
                _ => return Grace::Unchanged,
            }
        } else {
            bump_generation(object);
            let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
            let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            let ended = ["Failed", "Succeeded"].contains(&phase);
            if unscheduled || ended { 0 } else { asked.unwrap_or(own) }
        };
        let end = now + u64::try_from(seconds).unwrap_or_default() * 1000;
        meta::set(object, "deletionTimestamp", self.timestamp(end));
        meta::set(object, "deletionGracePeriodSeconds", json!(seconds));
        if seconds > 0 { Grace::Running } else { Grace::Over }
    }

    /// Only the finalizers keep it from now on.
    fn mark_finalizing(&self, now: Millis, object: &mut Value) {
        if meta::grace(object).is_none() {
            bump_generation(object);
        }
        if !meta::is_terminating(object) {
            meta::set(object, "deletionTimestamp", self.timestamp(now));
        }
        meta::set(object, "deletionGracePeriodSeconds", json!(0));
    }

    fn store_changed(&mut self, now: Millis, kind: Kind, old: &Arc<Value>, object: Value) -> Value {
        if object == **old {
            return object;
        }
        let stored = self.commit(now, Id::of(kind, old), Some(object));
        stored.map(|object| (*object).clone()).unwrap_or_default()
    }
}

/// How far the grace period is.
#[derive(PartialEq, Eq)]
enum Grace {
    /// Deletion is under way already and this request changes nothing.
    Unchanged,
    Running,
    /// It has none left: it is marked first and then removed, which watches see as two events.
    Over,
    /// The kind knows no such thing, or the mark is there already.
    None,
}

impl DeleteOptions {
    fn check(&self, kind: Kind, object: &Value) -> Result<(), ApiError> {
        let name = meta::name(object);
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != meta::uid(object)) {
            return Err(ApiError::other_uid(kind, name, uid, meta::uid(object)));
        }
        let found = meta::text(object, "resourceVersion");
        match self.resource_version.as_deref().filter(|version| *version != found) {
            Some(version) => {
                let why = format!(
                    "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {found}"
                );
                Err(ApiError::conflict(kind, name, &why))
            }
            None => Ok(()),
        }
    }

    /// The wish about dependents is kept as a finalizer; without a wish the one that is there stays.
    fn finalizers(&self, kind: Kind, object: &Value) -> Vec<String> {
        let mut finalizers = meta::finalizers(object);
        // Nothing ever depends on an Event.
        let Some(propagation) = self.propagation.filter(|_| kind != EVENT) else { return finalizers };
        finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
        match propagation {
            Propagation::Background => {}
            Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
            Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
        }
        finalizers
    }
}

fn bump_generation(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        meta::set(object, "generation", json!(generation + 1));
    }
}
