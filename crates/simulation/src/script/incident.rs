//! What can happen on a day.

use super::Pick;
use crate::Millis;

/// Something that somebody does to the cluster, or that breaks. `cluster` and `pick` choose among what there is then.
#[derive(Clone, Debug, PartialEq)]
pub enum Incident {
    Scale {
        cluster: Pick,
        replicas: i32,
    },
    Edit {
        cluster: Pick,
        what: Edit,
    },
    DeleteCluster {
        cluster: Pick,
        how: Propagation,
    },
    /// Makes it again under the same name, as soon as the name is free.
    Recreate {
        cluster: Pick,
    },
    /// Like `Recreate`, with something changed: that is why people orphan and apply again.
    RecreateAs {
        cluster: Pick,
        replicas: Option<i32>,
        other_medium: bool,
    },
    /// `/status` of the cluster is empty afterwards, as when objects are restored from a backup.
    LoseStatus {
        cluster: Pick,
    },
    LoseMemberStatus {
        pick: Pick,
    },
    DeleteMember {
        pick: Pick,
    },
    /// Another tool puts its finalizer on a member, and does not take it off again.
    HoldMember {
        pick: Pick,
    },
    /// With its Pod and its claim left behind.
    OrphanMember {
        pick: Pick,
    },
    /// The owner references of a member, Pod, claim, Service or budget are gone.
    Disown {
        kind: Pick,
        pick: Pick,
    },
    /// Takes every finalizer off, as people do with what hangs.
    StripMember {
        pick: Pick,
    },
    DeletePod {
        pick: Pick,
        force: bool,
    },
    /// The claim, and the Pod that keeps it from going.
    DeleteVolume {
        pick: Pick,
    },
    /// The claim goes and another one of the same name comes, by hand.
    SwapVolume {
        pick: Pick,
    },
    DeleteService {
        pick: Pick,
    },
    DeleteBudget {
        pick: Pick,
    },
    /// Somebody takes the label off that the watches select by.
    Unlabel {
        pick: Pick,
    },
    /// Somebody gives it another cluster's name.
    Relabel {
        pick: Pick,
    },
    /// The API server refuses one verb for one kind, or for one object of it: a quota, a policy, a webhook.
    Refuse {
        kind: Pick,
        verb: Verb,
        only: Option<Pick>,
        lasts: Millis,
    },
    /// Somebody changes what the operator keeps of a kind, and undoes every patch of ours: at once, as a webhook does, or
    /// a moment later, as another controller does.
    Revert {
        kind: Pick,
        pick: Pick,
        late: bool,
        lasts: Millis,
    },

    KillContainer {
        pick: Pick,
    },
    /// The same container again and again. It serves in between.
    Storm {
        pick: Pick,
        times: u32,
        every: Millis,
    },
    /// etcd takes one of its peers for inactive, although they are connected.
    Deafen {
        pick: Pick,
    },
    /// It was restarted that often, long ago.
    Veteran {
        pick: Pick,
        restarts: u32,
    },
    /// The readiness probe fails although etcd serves.
    Flap {
        pick: Pick,
        lasts: Millis,
    },
    /// Kubelets take no new Pod: it ends as Failed before anything has run.
    FailPods {
        lasts: Millis,
    },
    /// No node has room for another Pod.
    NoRoom {
        lasts: Millis,
    },
    /// Back within seconds: Pods stay where they are, what was in memory is gone.
    Reboot {
        node: Pick,
        back: Millis,
    },
    Evict {
        pick: Pick,
    },
    NodeDies {
        node: Pick,
    },
    NodeReturns {
        node: Pick,
    },
    /// Off the network, but alive.
    NodeCut {
        node: Pick,
    },
    NodeHeals {
        node: Pick,
    },
    /// Never comes back; another one comes in its place.
    NodeLost {
        node: Pick,
    },
    /// The operator can not reach the etcd of a cluster, and its clients can: a NetworkPolicy.
    Shut {
        cluster: Pick,
        lasts: Millis,
    },
    /// The link between two nodes only.
    LinkCut {
        a: Pick,
        b: Pick,
    },
    /// The data directory is empty when etcd starts next.
    WipeDisk {
        pick: Pick,
    },
    CorruptDisk {
        pick: Pick,
    },
    FillDisk {
        pick: Pick,
    },

    /// The operator's process ends between two calls and is started again after `back` milliseconds.
    Crash {
        back: Millis,
    },
    /// What happens to one call of the operator, after `skip` more.
    Call {
        skip: usize,
        fate: Fate,
    },
    /// Another replica takes over while this one stands still; it then goes on for `linger` with what it had planned.
    Depose {
        linger: Millis,
    },
    WatchLag {
        kind: Pick,
        by: Millis,
        lasts: Millis,
    },
    WatchRestart {
        kind: Pick,
    },
    ApiDown {
        lasts: Millis,
    },
    ClockJump {
        by: i64,
    },
}

/// What can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Patch,
    Status,
    Delete,
}

/// What a user changes in a spec, apart from the number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    Version,
    Resources,
    Options,
    Deadline,
    /// More than any node has. The user notices in the end.
    TooMuch,
}

/// How an object's dependents go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out, but nobody hears of it: a timeout.
    AnswerLost,
    /// It never arrives: a timeout.
    RequestLost,
    /// A timeout, and it is carried out that much later.
    Late(Millis),
    /// The answer takes that long, but comes.
    Slow(Millis),
    DieBefore,
    DieAfter,
}

impl Incident {
    /// The name of the kind, for statistics.
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
    }
}
