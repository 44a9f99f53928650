//! What can happen to a request on its way.

use super::super::{ApiError, Kind, Millis, Sub};

/// Decides what happens to each request.
pub trait Hook: Send + Sync {
    fn fate(&self, call: &Call<'_>) -> Fate;
}

/// A request, as the hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Who asks.
    pub client: &'a str,
    pub verb: Verb,
    pub kind: Kind,
    /// `None`: all of them, or none because the kind has none.
    pub namespace: Option<&'a str>,
    pub name: Option<&'a str>,
    pub sub: Option<Sub>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete)
    }
}

/// What happens to one request. One that is delayed arrives even if its sender has given up by then.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// It takes this long to reach the server.
    pub before: Millis,
    pub outcome: Outcome,
    /// The answer takes this long to come back.
    pub after: Millis,
    /// A watch that this request opens tells everything this much later.
    pub lag: Millis,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Pass,
    /// The server answers with an error and does nothing.
    Refuse(ApiError),
    /// The server never sees it.
    Unreachable(Silence),
    /// The server does it, and the client never learns.
    LoseAnswer(Silence),
}

/// How no answer looks to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The connection breaks.
    Reset,
    /// Nothing, for ever: the client has to time out.
    Hang,
}

impl Fate {
    pub fn pass() -> Self {
        Self { before: 0, outcome: Outcome::Pass, after: 0, lag: 0 }
    }

    /// The request arrives late.
    pub fn delayed(by: Millis) -> Self {
        Self { before: by, ..Self::pass() }
    }

    pub fn refused(error: ApiError) -> Self {
        Self { outcome: Outcome::Refuse(error), ..Self::pass() }
    }

    pub fn unreachable(silence: Silence) -> Self {
        Self { outcome: Outcome::Unreachable(silence), ..Self::pass() }
    }

    pub fn answer_lost(silence: Silence) -> Self {
        Self { outcome: Outcome::LoseAnswer(silence), ..Self::pass() }
    }

    pub(super) fn is_immediate(&self) -> bool {
        self.before == 0 && self.after == 0
    }
}

/// Nothing happens to any request.
pub struct Calm;

impl Hook for Calm {
    fn fate(&self, _: &Call<'_>) -> Fate {
        Fate::pass()
    }
}
