//! Delete: at once, after a grace period, or once the finalizers are gone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kind::POD;
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
        let old = self.existing(kind, namespace, name)?;
        options.check(kind, &old)?;
        let mut object = (*old).clone();
        let waits = match self.mark_graceful(now, kind, &mut object, options) {
            Grace::Unchanged => return Ok(Deletion::Pending(object)),
            Grace::Running => true,
            Grace::None => false,
        };
        let finalizers = options.finalizers(&object);
        meta::set_finalizers(&mut object, &finalizers);
        if !waits && finalizers.is_empty() {
            self.commit(now, Id::of(kind, &old), None);
            return Ok(Deletion::Gone(object));
        }
        if !waits {
            self.mark_finalizing(now, &mut object);
        }
        Ok(Deletion::Pending(self.store_changed(now, kind, &old, object)))
    }

    /// A Pod on a node is given time; its kubelet ends that time with a delete of its own.
    fn mark_graceful(&self, now: Millis, kind: Kind, object: &mut Value, options: &DeleteOptions) -> Grace {
        if kind != POD {
            return Grace::None;
        }
        let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
        if meta::is_terminating(object) {
            // The time can be made shorter, never longer.
            let left = meta::grace(object).unwrap_or_default();
            match asked {
                Some(asked) if asked < left => {}
                _ if left > 0 => return Grace::Unchanged,
                _ => return Grace::None,
            }
        }
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
        let ended = ["Failed", "Succeeded"].contains(&object["status"]["phase"].as_str().unwrap_or_default());
        let seconds = if unscheduled || ended { 0 } else { asked.unwrap_or(own) };
        if seconds == 0 {
            return Grace::None;
        }
        bump_generation(object);
        let end = now + u64::try_from(seconds).unwrap_or_default() * 1000;
        meta::set(object, "deletionTimestamp", self.timestamp(end));
        meta::set(object, "deletionGracePeriodSeconds", json!(seconds));
        Grace::Running
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

enum Grace {
    /// Deletion is under way already and this request changes nothing.
    Unchanged,
    Running,
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
    fn finalizers(&self, object: &Value) -> Vec<String> {
        let mut finalizers = meta::finalizers(object);
        let Some(propagation) = self.propagation else { return finalizers };
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
