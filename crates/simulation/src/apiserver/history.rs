//! The event log: every change of every object in order, until it is compacted away.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::{Kind, Millis, Selector, meta};

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub change: Change,
    /// A deleted object is shown as it last was, with the version of its deletion.
    pub object: Arc<Value>,
    pub revision: u64,
    /// When it happened.
    pub at: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One write. At least one of `before` and `after` is there.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub revision: u64,
    pub at: Millis,
    pub kind: Kind,
    pub before: Option<Arc<Value>>,
    pub after: Option<Arc<Value>>,
}

/// All writes since the last compaction.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    writes: Vec<Write>,
    /// Up to and including this revision nothing is known any more.
    compacted: u64,
}

impl History {
    pub fn push(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision);
        self.writes.retain(|write| write.revision > revision);
    }

    /// What a watch of these objects that has seen everything up to `revision` has to be told.
    pub fn since(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &Selector,
        revision: u64,
    ) -> Result<Vec<Event>, ApiError> {
        if revision < self.compacted {
            return Err(ApiError::expired(revision, self.compacted));
        }
        let first = self.writes.partition_point(|write| write.revision <= revision);
        let selected = |object: &Value| {
            namespace.is_none_or(|ns| meta::text(object, "namespace") == ns) && selector.matches(object)
        };
        Ok(self.writes[first..]
            .iter()
            .filter(|w| w.kind == kind)
            .filter_map(|w| w.seen_by(&selected))
            .collect())
    }
}

impl Write {
    /// How a watch sees it: an object that leaves the selector is deleted for it, one that enters is new.
    fn seen_by(&self, selected: &impl Fn(&Value) -> bool) -> Option<Event> {
        let before = self.before.as_ref().filter(|object| selected(object));
        let after = self.after.as_ref().filter(|object| selected(object));
        let (change, object) = match (before, after) {
            (None, None) => return None,
            (None, Some(after)) => (Change::Added, after.clone()),
            (Some(_), Some(after)) => (Change::Modified, after.clone()),
            (Some(before), None) => (Change::Deleted, self.at_deletion(before)),
        };
        Some(Event { change, object, revision: self.revision, at: self.at })
    }

    fn at_deletion(&self, last: &Value) -> Arc<Value> {
        let mut last = last.clone();
        meta::set(&mut last, "resourceVersion", json!(self.revision.to_string()));
        Arc::new(last)
    }
}
