//! One state of the protocol, small enough that millions of them can be told apart: who exists, who runs, what is on the
//! volumes, what etcd lists, and what the operator is in the middle of.

use std::fmt;

/// Names that can be in use at the same time. A name is free again when nothing is left of its member.
pub const NAMES: usize = 4;

/// Some of the members.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Members(u8);

impl Members {
    pub fn of(keep: impl Fn(usize) -> bool) -> Self {
        (0..NAMES).filter(|i| keep(*i)).fold(Self::default(), Self::with)
    }

    pub fn only(member: usize) -> Self {
        Self(1 << member)
    }

    #[must_use]
    pub fn with(self, member: usize) -> Self {
        Self(self.0 | 1 << member)
    }

    #[must_use]
    pub fn without(self, member: usize) -> Self {
        Self(self.0 & !(1 << member))
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, member: usize) -> bool {
        self.0 & (1 << member) != 0
    }

    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many of these make a majority.
    pub fn quorum(self) -> usize {
        self.count() / 2 + 1
    }

    /// Whether `able` contains a majority of these.
    pub fn served_by(self, able: Self) -> bool {
        self.and(able).count() >= self.quorum()
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..NAMES).filter(move |i| self.has(*i))
    }

    /// Every set of members, the empty one included.
    pub fn every() -> impl Iterator<Item = Self> {
        (0..1u8 << NAMES).map(Self)
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|i| format!("m{i}")).collect();
        write!(f, "{{{}}}", names.join(","))
    }
}

/// Whether a member is on its way out, and who said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Leaving {
    #[default]
    No,
    Decided,
    DeletedByUser,
}

/// What is on a member's volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Volume {
    #[default]
    None,
    Blank,
    /// The log of a member that etcd knows.
    Data,
    /// The log of a member that etcd has removed: etcd does not start on it again.
    Removed,
}

/// How the claim remembered in the member's status relates to the volume that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claim {
    #[default]
    Unknown,
    Same,
    Another,
}

/// What etcd's list says of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Row {
    #[default]
    None,
    Learner,
    Voter,
}

/// The flags a Pod was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// `--initial-cluster`
    pub told: Members,
    /// `--initial-cluster-state=new`
    pub new: bool,
}

/// One name and everything that goes by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Member {
    /// There is an EtcdMember of this name.
    pub object: bool,
    pub seed: bool,
    /// `spec.initialCluster`; absent while pending.
    pub told: Option<Members>,
    pub leaving: Leaving,
    /// `status.memberID` is stored.
    pub joined: bool,
    pub claim: Claim,
    pub pod: Option<Pod>,
    /// Its etcd dies at every start.
    pub looping: bool,
    /// The kubelet has restarted its etcd more often than the operator has patience for; counted as long as the Pod
    /// lives.
    pub restarted: bool,
    /// Its etcd runs and answers.
    pub up: bool,
    pub volume: Volume,
    /// The write that clients watch is on the volume.
    pub written: bool,
    pub row: Row,
    /// The row carries the member's name: its etcd has run.
    pub named: bool,
}

/// One call of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Create {
        member: usize,
        seed: bool,
    },
    Wire {
        member: usize,
        told: Members,
    },
    Delete {
        member: usize,
    },
    Release {
        member: usize,
    },
    CreateVolume {
        member: usize,
    },
    CreatePod {
        member: usize,
        pod: Pod,
    },
    DeletePod {
        member: usize,
    },
    AddLearner {
        member: usize,
    },
    /// No operator of ours does this; a broken one may.
    AddVoter {
        member: usize,
    },
    Promote {
        member: usize,
    },
    Remove {
        member: usize,
    },
    /// Statuses of members: who has joined, whose claim was seen, whose claim was seen and is gone since.
    ReportMembers {
        joined: Members,
        claims: Members,
        gone: Members,
    },
    ReportCluster {
        target: u8,
        formed: bool,
    },
}

impl Op {
    pub fn member(self) -> Option<usize> {
        match self {
            Self::Create { member, .. }
            | Self::Wire { member, .. }
            | Self::Delete { member }
            | Self::Release { member }
            | Self::CreateVolume { member }
            | Self::CreatePod { member, .. }
            | Self::DeletePod { member }
            | Self::AddLearner { member }
            | Self::AddVoter { member }
            | Self::Promote { member }
            | Self::Remove { member } => Some(member),
            Self::ReportMembers { .. } | Self::ReportCluster { .. } => None,
        }
    }

    pub fn is_report(self) -> bool {
        self.member().is_none()
    }
}

/// Rules that were broken on the way here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Harm {
    /// A call of ours left fewer than a quorum of the voters able to serve.
    pub quorum: bool,
    /// A volume with data was given up while etcd counted on its member. A learner is not counted on: a call that lands
    /// late can bring one back to the list after etcd confirmed that it is out.
    pub volume: bool,
    /// A second cluster was formed.
    pub bootstrap: bool,
    /// A voter came back on a blank volume.
    pub blank: bool,
    /// A pass began to take a voter down or out while another was.
    pub disruption: bool,
}

/// How often each thing may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The operator dies between two calls, or an answer is lost.
    pub operator: u8,
    /// A call is given up and lands later.
    pub late: u8,
    /// etcd dies and is started again.
    pub crashes: u8,
    /// A Pod is gone, its volume is not.
    pub pods: u8,
    /// etcd dies at every start from now on.
    pub loops: u8,
    /// A volume is gone.
    pub volumes: u8,
    /// The user deletes an EtcdMember.
    pub deletions: u8,
    /// The user asks for another number of members.
    pub edits: u8,
}

/// Everything there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub members: [Member; NAMES],
    /// `spec.replicas`
    pub wanted: u8,
    /// `status.observed.replicas`; 0 before the first pass.
    pub target: u8,
    /// `status.clusterID` is stored.
    pub formed: bool,
    /// The calls that are left of the operator's present pass, and who served when they were decided.
    pub plan: Vec<Op>,
    pub seen: Members,
    /// A call that the operator has given up and that will land some time, and who served when it was decided.
    pub late: Option<(Op, Members)>,
    /// A client was told that its write is safe.
    pub acknowledged: bool,
    /// Nobody can ask for the write any more: faults took a quorum of the volumes.
    pub excused: bool,
    pub harm: Harm,
    pub faults: Faults,
}

impl State {
    pub fn which(&self, keep: impl Fn(&Member) -> bool) -> Members {
        Members::of(|i| keep(&self.members[i]))
    }

    pub fn voters(&self) -> Members {
        self.which(|m| m.row == Row::Voter)
    }

    pub fn rows(&self) -> Members {
        self.which(|m| m.row != Row::None)
    }

    pub fn up(&self) -> Members {
        self.which(|m| m.up)
    }

    /// Whether etcd has a leader and can commit.
    pub fn has_quorum(&self) -> bool {
        self.voters().served_by(self.up())
    }

    /// A name that nothing and nobody refers to.
    pub fn free_name(&self) -> Option<usize> {
        let late = self.late.map(|(op, _)| op);
        let spoken_of = |i| self.plan.iter().chain(&late).any(|op| op.member() == Some(i));
        (0..NAMES).find(|i| self.members[*i] == Member::default() && !spoken_of(*i))
    }
}
