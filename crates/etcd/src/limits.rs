//! How long an answer is waited for.

use std::time::Duration;

/// Local answer: a member that needs longer is not well.
pub const STATUS_LIMIT: Duration = Duration::from_millis(1000);
/// One round through the quorum.
pub const READ_LIMIT: Duration = Duration::from_secs(2);
/// A write through the quorum.
pub const WRITE_LIMIT: Duration = Duration::from_secs(5);
