//! The kinds of objects that a pass reads and writes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    Cluster,
    Member,
    Pod,
    Claim,
    Service,
    Budget,
    Volume,
    Node,
}

impl Kind {
    /// Whether its objects are in a namespace.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::Volume | Self::Node)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "EtcdCluster",
            Self::Member => "EtcdMember",
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
            Self::Service => "Service",
            Self::Budget => "PodDisruptionBudget",
            Self::Volume => "PersistentVolume",
            Self::Node => "Node",
        })
    }
}
