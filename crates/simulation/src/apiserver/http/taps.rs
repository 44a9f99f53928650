//! The watches that are open, and what is done to them.

use std::sync::{Arc, Mutex, Weak};

use super::super::{Kind, Millis};
use super::lock;

/// Which watches; by default all.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    pub client: Option<String>,
    pub kind: Option<Kind>,
}

/// What is done to watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing is told until further notice, not even bookmarks.
    Hold,
    /// Everything is told this much later.
    Lag(Millis),
    /// Everything is told as it comes, and what was held back at once.
    Flow,
    /// Like `Flow`, but of what was held back only the last state of each object is told.
    Coalesce,
    /// The stream ends in good order, as it does every few minutes: the client resumes where it was.
    Close,
    /// The connection breaks: the client resumes where it was.
    Break,
    /// The client's version is too old: it has to list again.
    Expire,
}

/// What a stream is told to do.
#[derive(Clone, Copy, Debug)]
pub struct Tap {
    pub held: bool,
    pub lag: Millis,
    pub coalesce: bool,
    pub ending: Option<Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Close,
    Break,
    Expire,
}

/// All open watches, in the order they were opened.
#[derive(Default)]
pub struct Taps {
    open: Vec<(Arc<str>, Kind, Weak<Mutex<Tap>>)>,
}

impl Taps {
    pub fn open(&mut self, client: &str, kind: Kind, lag: Millis) -> Arc<Mutex<Tap>> {
        self.open.retain(|(_, _, tap)| tap.strong_count() > 0);
        let tap = Arc::new(Mutex::new(Tap { held: false, lag, coalesce: false, ending: None }));
        self.open.push((client.into(), kind, Arc::downgrade(&tap)));
        tap
    }

    pub fn disturb(&mut self, which: &Watchers, how: Disturbance) -> usize {
        let mut met = 0;
        for (client, kind, tap) in &self.open {
            let meant = which.client.as_deref().is_none_or(|c| c == &**client)
                && which.kind.is_none_or(|k| k == *kind);
            if let Some(tap) = tap.upgrade().filter(|_| meant) {
                lock(&tap).disturb(how);
                met += 1;
            }
        }
        met
    }
}

impl Tap {
    fn disturb(&mut self, how: Disturbance) {
        match how {
            Disturbance::Hold => self.held = true,
            Disturbance::Lag(lag) => (self.held, self.lag) = (false, lag),
            Disturbance::Flow => (self.held, self.lag, self.coalesce) = (false, 0, false),
            Disturbance::Coalesce => (self.held, self.lag, self.coalesce) = (false, 0, true),
            Disturbance::Close => self.ending = Some(Ending::Close),
            Disturbance::Break => self.ending = Some(Ending::Break),
            Disturbance::Expire => self.ending = Some(Ending::Expire),
        }
    }
}
