//! Why a step of a pass was not taken.

use kube::core::Status;

use crate::sentence;

use super::request::Failure;

/// The reason, in words for people.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The object has changed since it was read; the next pass decides anew.
    #[error("{0} has changed in the meantime")]
    Stale(String),

    /// It is ours, and somebody had changed its labels; the next pass sees it.
    #[error("{0} had lost the labels of its cluster; they were put back")]
    Relabelled(String),

    /// The API server said no.
    #[error("{}", sentence::answered(object, status))]
    Api { object: String, status: Box<Status> },

    /// It could not be asked.
    #[error("{object}: {why}")]
    Unreachable { object: String, why: String },

    /// It did not answer in time.
    #[error("{}", sentence::silence(.0))]
    Timeout(String),

    /// etcd said no, or nothing.
    #[error("{action}: {source}")]
    Etcd { action: &'static str, source: etcd::Error },

    /// Only a user can put it right.
    #[error("{0}")]
    Refused(String),

    /// Another replica may be leading.
    #[error("the lease has run out, another replica may be leading")]
    Deposed,
}

impl Error {
    /// What a failed request about that object means, if nothing better is known.
    pub fn of(object: String, failure: Failure) -> Self {
        match failure {
            Failure::Refused(status) => Self::Api { object, status },
            Failure::Unreachable(why) => Self::Unreachable { object, why },
            Failure::Timeout => Self::Timeout(object),
            Failure::Etcd(source) => Self::Etcd { action: "asking etcd", source },
            Failure::Deposed => Self::Deposed,
        }
    }

    /// What the API server refused, and why, if it was that: the object and a sentence for its cluster's conditions.
    pub fn refusal(&self) -> Option<(String, String)> {
        match self {
            Self::Api { object, .. } if !self.is_terminating() => Some((object.clone(), self.to_string())),
            Self::Refused(why) => {
                Some((why.split(" is there").next().unwrap_or(why).to_owned(), why.clone()))
            }
            _ => None,
        }
    }

    /// Whether the API server refuses new objects because their namespace is being deleted.
    pub fn is_terminating(&self) -> bool {
        matches!(self, Self::Api { status, .. } if is_terminating(status))
    }

    /// Whether the world was not as the step rests on.
    pub(super) fn is_contradiction(&self) -> bool {
        matches!(self, Self::Relabelled(_) | Self::Stale(_))
    }
}

/// Whether the API server refuses new objects because their namespace is being deleted.
pub fn is_terminating(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|d| &d.causes);
    causes.any(|c| c.reason == "NamespaceTerminating")
}
