//! Condition types, their reasons, and the one way to write them.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// EtcdCluster: a quorum serves.
pub const AVAILABLE: &str = "Available";
/// EtcdCluster: the target is not reached yet and the operator works on it.
pub const PROGRESSING: &str = "Progressing";
/// EtcdCluster: it serves, but not with all its members.
pub const DEGRADED: &str = "Degraded";
/// EtcdMember: its Pod is ready and etcd knows it. EtcdSnapshot: the snapshot is stored.
pub const READY: &str = "Ready";
/// EtcdMember: it runs another version than its spec says.
pub const VERSION_DRIFTED: &str = "VersionDrifted";
/// EtcdCluster: etcd has raised its NOSPACE alarm and refuses writes. Present once it has been raised.
pub const NO_SPACE: &str = "NoSpace";
/// EtcdCluster: etcd has raised its CORRUPT alarm. Present once it has been raised.
pub const CORRUPT: &str = "Corrupt";
/// EtcdDefrag: whether the run may proceed.
pub const DEFRAG_CHECKED: &str = "DefragChecked";

/// Every reason a condition of ours can carry.
pub mod reason {
    pub const CLUSTER_DISCOVERED: &str = "ClusterDiscovered";
    pub const QUORUM_HEALTHY: &str = "QuorumHealthy";
    pub const QUORUM_AVAILABLE: &str = "QuorumAvailable";
    pub const QUORUM_LOST: &str = "QuorumLost";
    /// Nothing is left that holds the cluster's data.
    pub const ALL_MEMBERS_LOST: &str = "AllMembersLost";
    /// etcd has raised the alarm.
    pub const ALARM_RAISED: &str = "AlarmRaised";
    /// The alarm was raised before and is not any more.
    pub const NO_ALARM: &str = "NoAlarm";
    pub const PAUSED: &str = "Paused";
    pub const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";
    pub const AUTH_REQUIRED_NOT_CONFIGURED: &str = "AuthRequiredNotConfigured";
    pub const AUTH_CREDENTIALS_REJECTED: &str = "AuthCredentialsRejected";
    pub const BOOTSTRAP_FAILED: &str = "BootstrapFailed";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    pub const CERT_MANAGER_NOT_INSTALLED: &str = "CertManagerNotInstalled";

    pub const INITIAL_SNAPSHOT: &str = "InitialSnapshot";
    pub const WAITING_FOR_SEED: &str = "WaitingForSeed";
    pub const SPEC_CHANGED: &str = "SpecChanged";
    pub const RETRY_AFTER_DEADLINE: &str = "RetryAfterDeadline";
    pub const RECONCILED: &str = "Reconciled";
    /// A target that was reached before is being reached again, or is worked on after the seed came up.
    pub const RECONCILING: &str = "Reconciling";
    /// The spec asks for something this version of the operator does not do; nothing is touched.
    pub const UNSUPPORTED: &str = "Unsupported";
    /// An object of the cluster can not be read; nothing is touched, and nothing is known. Added by this project.
    pub const UNREADABLE: &str = "Unreadable";

    pub const MEMBERS_UNHEALTHY: &str = "MembersUnhealthy";
    /// Everything that was asked for is there, but something around it only a user can put right.
    pub const BLOCKED: &str = "Blocked";
    /// Members are of more than one etcd cluster, or of another one than this object's; everything is held.
    pub const IDENTITY_CONFLICT: &str = "IdentityConflict";
    /// The spec does not fit the members that were there before it; everything is held.
    pub const SPEC_CONFLICT: &str = "SpecConflict";
    /// Members contradict each other in a way that needs two etcd clusters under one name; everything is held.
    pub const MEMBERS_DISAGREE: &str = "MembersDisagree";
    /// Something of an earlier cluster of this name is still there, and nothing is formed beside it.
    pub const WAITING_FOR_LEFTOVERS: &str = "WaitingForLeftovers";

    /// The cluster is being deleted. Added by this project.
    pub const DELETING: &str = "Deleting";
    pub const POD_NOT_READY: &str = "PodNotReady";
    pub const DISCOVERING_MEMBER_ID: &str = "DiscoveringMemberID";
    /// etcd does not list the member any more, or another cluster's etcd answers in its place.
    pub const NOT_IN_CLUSTER: &str = "NotInCluster";
    pub const POD_READY: &str = "PodReady";
    pub const VERSION_MATCHED: &str = "VersionMatched";
    pub const VERSION_MISMATCH: &str = "VersionMismatch";

    pub const JOB_CREATED: &str = "JobCreated";
    pub const JOB_RUNNING: &str = "JobRunning";
    pub const SNAPSHOT_STORED: &str = "SnapshotStored";
    pub const OPERATOR_IMAGE_NOT_CONFIGURED: &str = "OperatorImageNotConfigured";
    pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
    pub const AUTH_LATCH_TIMEOUT: &str = "AuthLatchTimeout";
    pub const SNAPSHOT_JOB_LOST: &str = "SnapshotJobLost";
    pub const JOB_FAILED: &str = "JobFailed";

    pub const QUEUED: &str = "Queued";
    pub const CLUSTER_NOT_HEALTHY: &str = "ClusterNotHealthy";
    pub const MEMBER_GONE: &str = "MemberGone";
    pub const BELOW_THRESHOLD: &str = "BelowThreshold";
    pub const RPC_ERROR: &str = "RPCError";
    pub const AFTER_SIZE_UNAVAILABLE: &str = "AfterSizeUnavailable";
    pub const MEMBER_FAILED: &str = "MemberFailed";
}

/// What a condition is about to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    pub type_: &'static str,
    pub status: Status,
    pub reason: &'static str,
    pub message: String,
    /// `metadata.generation` of the object this was concluded from.
    pub observed_generation: Option<i64>,
}

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

impl NewCondition {
    pub fn new(
        type_: &'static str,
        status: impl Into<Status>,
        reason: &'static str,
        message: impl Into<String>,
        observed_generation: Option<i64>,
    ) -> Self {
        Self { type_, status: status.into(), reason, message: message.into(), observed_generation }
    }

    fn is_said_by(&self, old: &Condition) -> bool {
        old.status == self.status.as_str()
            && old.reason == self.reason
            && old.message == self.message
            && old.observed_generation == self.observed_generation
    }
}

/// Says `new` in `conditions` and returns whether that changed anything. `lastTransitionTime` moves only when the
/// status flips. A condition keeps its place in the list, so that a repeated write compares equal.
pub fn set_condition(conditions: &mut Vec<Condition>, new: NewCondition, now: Timestamp) -> bool {
    let old = conditions.iter_mut().find(|old| old.type_ == new.type_);
    if old.as_ref().is_some_and(|old| new.is_said_by(old)) {
        return false;
    }
    let status = new.status.as_str();
    let flipped = old.as_ref().is_none_or(|old| old.status != status);
    let last_transition_time = match &old {
        Some(old) if !flipped => old.last_transition_time.clone(),
        _ => wire_time(now),
    };
    let condition = Condition {
        last_transition_time,
        message: new.message,
        observed_generation: new.observed_generation,
        reason: new.reason.to_owned(),
        status: status.to_owned(),
        type_: new.type_.to_owned(),
    };
    match old {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    true
}

/// `now` as it comes back from the API server, which keeps whole seconds.
pub fn wire_time(now: Timestamp) -> Time {
    Time(
        now.round(jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor))
            .unwrap_or(now),
    )
}

/// The condition of that type, if it was ever set.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of that type is `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn available(status: bool, message: &str, generation: i64) -> NewCondition {
        let reason = if status { reason::QUORUM_HEALTHY } else { reason::QUORUM_LOST };
        NewCondition::new(AVAILABLE, status, reason, message, Some(generation))
    }

    #[test]
    fn time_moves_only_when_the_status_flips() {
        let mut conditions = vec![];
        assert!(set_condition(&mut conditions, available(true, "a", 1), at(10)));
        assert!(set_condition(&mut conditions, available(true, "b", 1), at(20)));
        assert_eq!(conditions[0].last_transition_time.0, at(10));
        assert_eq!(conditions[0].message, "b");
        assert!(set_condition(&mut conditions, available(false, "c", 1), at(30)));
        assert_eq!(conditions[0].last_transition_time.0, at(30));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let mut conditions = vec![];
        set_condition(&mut conditions, available(true, "a", 1), at(10));
        let before = conditions.clone();
        assert!(!set_condition(&mut conditions, available(true, "a", 1), at(99)));
        assert_eq!(conditions, before);
        assert!(set_condition(&mut conditions, available(true, "a", 2), at(99)), "a new generation is news");
        assert_eq!(conditions[0].last_transition_time.0, at(10));
    }

    #[test]
    fn types_keep_their_place() {
        let mut conditions = vec![];
        set_condition(&mut conditions, available(true, "", 1), at(1));
        set_condition(
            &mut conditions,
            NewCondition::new(DEGRADED, false, reason::QUORUM_HEALTHY, "", None),
            at(1),
        );
        set_condition(&mut conditions, available(false, "", 1), at(2));
        assert_eq!(conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), [AVAILABLE, DEGRADED]);
        assert!(!is_true(&conditions, AVAILABLE));
    }

    #[test]
    fn times_are_whole_seconds_like_on_the_wire() {
        let now: Timestamp = "2026-11-15T20:17:14.987654321Z".parse().unwrap();
        let mut conditions = vec![];
        set_condition(&mut conditions, available(true, "", 1), now);
        let read_back: Vec<Condition> =
            serde_json::from_value(serde_json::to_value(&conditions).unwrap()).unwrap();
        assert_eq!(conditions, read_back);
    }
}
