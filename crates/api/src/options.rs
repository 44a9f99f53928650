//! The etcd settings a user may choose. A closed set on purpose: the operator must understand every flag it passes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of etcd itself. What is absent stays at etcd's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdOptions {
    /// Size of the database at which etcd stops accepting writes, in bytes; 0 is etcd's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quota_backend_bytes: Option<i64>,

    /// How the history of keys is compacted: by age (periodic) or by number of revisions (revision).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction_mode: Option<AutoCompactionMode>,

    /// How much history is kept: a duration such as 5m or 1h30m, or a plain number (hours for periodic, revisions for
    /// revision).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$|^[0-9]+$"))]
    pub auto_compaction_retention: Option<String>,

    /// Number of committed transactions after which etcd writes a snapshot of its log to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub snapshot_count: Option<i64>,
}

/// What etcd's automatic compaction counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoCompactionMode {
    Periodic,
    Revision,
}

impl AutoCompactionMode {
    /// The value of `--auto-compaction-mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Revision => "revision",
        }
    }
}
