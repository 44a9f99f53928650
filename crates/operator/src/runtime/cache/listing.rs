//! Who says something about an object, and whether that is more than what is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::stored::{State, Stored};

/// One full listing of one kind in one scope, and the watch that follows it.
#[derive(Debug)]
pub struct Listing {
    scope: Option<Arc<str>>,
    pub(super) number: u64,
    pub(super) began: Instant,
}

impl Listing {
    /// `scope` is a namespace; none means all of them.
    pub fn first(scope: Option<&str>) -> Self {
        Self::begin(scope.map(Arc::from))
    }

    /// The one that follows it, of the same kind in the same scope.
    pub fn next(&self) -> Self {
        Self::begin(self.scope.clone())
    }

    /// No two listings of a process have the same number.
    fn begin(scope: Option<Arc<str>>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self { scope, number: LAST.fetch_add(1, Ordering::Relaxed) + 1, began: Instant::now() }
    }

    /// Only there does it know what is gone (T30).
    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.scope.as_deref().is_none_or(|scope| scope == namespace)
    }
}

/// Who says it.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// An event of a watch, after this listing.
    Watch(&'a Listing),
    Listing(&'a Listing),
    /// The answer to a write of ours.
    Answer,
}

/// What to do with another version of an object that is known.
pub(super) enum Verdict {
    Replace,
    Keep,
    /// Keep, and remember the other one until the next listing.
    SetAside,
}

impl Source<'_> {
    pub(super) fn listing(self) -> u64 {
        match self {
            Self::Watch(listing) | Self::Listing(listing) => listing.number,
            Self::Answer => 0,
        }
    }

    pub(super) fn judge(self, known: &Stored, new: &State) -> Verdict {
        match self {
            _ if known.state.is_older_than(new) => Verdict::Replace,
            Self::Listing(listing) if !known.is_written_since(listing.began) => Verdict::Replace,
            Self::Answer if known.state != *new => Verdict::SetAside,
            _ => Verdict::Keep,
        }
    }
}
