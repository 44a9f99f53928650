//! What a seed decides before the run begins: the cluster that is asked for, the temper of the world, and every incident
//! with its time. Written down as a list, so that a failing run can be shortened by striking incidents out.

use std::fmt;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::Millis;

/// Seconds, in the world's unit.
pub const SECOND: Millis = 1000;
/// Minutes, in the world's unit.
pub const MINUTE: Millis = 60 * SECOND;

/// A whole run, before it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    pub seed: u64,
    pub temper: Temper,
    pub clusters: Vec<Wish>,
    /// In order of time.
    pub incidents: Vec<Timed>,
    /// When all standing faults are lifted and nothing new happens.
    pub calm_at: Millis,
}

/// How the world behaves throughout a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Temper {
    pub nodes: usize,
    /// Volumes that can only be used on the node they were made on.
    pub local_volumes: bool,
    /// Longest usual time until a Pod's container runs.
    pub slowest_start: Millis,
    pub slowest_bind: Millis,
    /// Longest usual delay of a watch event.
    pub slowest_watch: Millis,
    /// How long a silent node is waited for before its Pods are deleted.
    pub node_patience: Millis,
    /// `--lost-member-timeout` of the operator.
    pub lost_member_timeout: Option<Millis>,
    /// Addresses of dead Pods are given to new ones at once.
    pub reuses_addresses: bool,
    /// Milliseconds between two writes of the clients.
    pub write_period: Millis,
}

/// A cluster a user asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    pub name: String,
    pub replicas: i32,
    pub memory: bool,
    pub version: &'static str,
    pub at: Millis,
}

/// An incident and its moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    pub at: Millis,
    pub incident: Incident,
}

/// Which of several: taken modulo however many there are when it happens.
pub type Pick = usize;

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
    DeleteMember {
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

    KillContainer {
        pick: Pick,
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

/// What a user changes in a spec, apart from the number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    Version,
    Resources,
    Options,
    Deadline,
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

impl Script {
    /// Everything that follows from a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let temper = Temper::draw(&mut rng);
        let clusters = wishes(&mut rng);
        let calm_at = rng.random_range(60..=360) * SECOND;
        let incidents = incidents(&mut rng, &temper, calm_at);
        Self { seed, temper, clusters, incidents, calm_at }
    }

    /// The same run without some of its incidents.
    pub fn without(&self, strike: impl Fn(usize) -> bool) -> Self {
        let kept = self.incidents.iter().enumerate().filter(|(i, _)| !strike(*i));
        Self { incidents: kept.map(|(_, t)| t.clone()).collect(), ..self.clone() }
    }
}

impl Temper {
    fn draw(rng: &mut StdRng) -> Self {
        Self {
            nodes: rng.random_range(3..=5),
            local_volumes: rng.random_bool(0.3),
            slowest_start: one_of(rng, &[1500, 3000, 8000, 25_000]),
            slowest_bind: one_of(rng, &[200, 1000, 10_000]),
            slowest_watch: one_of(rng, &[10, 50, 300, 2000]),
            node_patience: one_of(rng, &[30 * SECOND, 100 * SECOND, 300 * SECOND]),
            lost_member_timeout: one_of(rng, &[Some(20 * SECOND), Some(MINUTE), Some(5 * MINUTE), None]),
            reuses_addresses: rng.random_bool(0.3),
            write_period: one_of(rng, &[150, 400, 1000]),
        }
    }

    /// A patient world in which nothing is left to chance but short delays.
    pub fn gentle() -> Self {
        Self {
            nodes: 4,
            local_volumes: false,
            slowest_start: 1500,
            slowest_bind: 200,
            slowest_watch: 20,
            node_patience: 30 * SECOND,
            lost_member_timeout: Some(MINUTE),
            reuses_addresses: false,
            write_period: 400,
        }
    }
}

fn one_of<T: Copy>(rng: &mut StdRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

fn wishes(rng: &mut StdRng) -> Vec<Wish> {
    let count = if rng.random_bool(0.2) { 2 } else { 1 };
    (0..count)
        .map(|index| {
            let memory = rng.random_bool(0.25);
            let sizes: &[i32] = if memory { &[1, 1, 3, 3, 3, 5] } else { &[0, 1, 1, 2, 3, 3, 3, 3, 5] };
            Wish {
                name: ["c", "d"][index].to_owned(),
                replicas: one_of(rng, sizes),
                memory,
                version: one_of(rng, &["3.6.16", "3.6.16", "3.6.16", "3.5.35"]),
                at: rng.random_range(0..2000),
            }
        })
        .collect()
}

/// Incidents come in bursts: what hurts is the second one while the first is being dealt with.
fn incidents(rng: &mut StdRng, temper: &Temper, calm_at: Millis) -> Vec<Timed> {
    let mut incidents = vec![];
    let bursts = rng.random_range(1..=6);
    for _ in 0..bursts {
        let mut at = rng.random_range(0..calm_at);
        let pause = one_of(rng, &[50, 400, 3000, 12_000]);
        for _ in 0..rng.random_range(1..=5) {
            let incident = Incident::draw(rng, temper);
            let back = incident.counterpart(rng).map(|end| (at + rng.random_range(500..90_000), end));
            incidents.push(Timed { at, incident });
            incidents.extend(back.map(|(at, incident)| Timed { at, incident }));
            at += rng.random_range(0..=pause);
        }
    }
    // Calls go wrong all the time, most often while something else does too.
    for _ in 0..rng.random_range(0..=8) {
        let near = incidents.choose(rng).map_or(0, |t| t.at);
        let at = near + rng.random_range(0..5000);
        let incident = Incident::Call { skip: rng.random_range(0..12), fate: Fate::draw(rng) };
        incidents.push(Timed { at, incident });
    }
    incidents.retain(|t| t.at < calm_at);
    incidents.sort_by_key(|t| t.at);
    incidents
}

impl Incident {
    fn draw(rng: &mut StdRng, temper: &Temper) -> Self {
        let cluster = rng.random_range(0..2);
        let pick = rng.random_range(0..60);
        let node = rng.random_range(0..temper.nodes);
        match rng.random_range(0..100) {
            0..17 => Self::Scale { cluster, replicas: one_of(rng, &[0, 1, 1, 2, 3, 3, 3, 4, 5, 5]) },
            17..21 => Self::Edit {
                cluster,
                what: one_of(rng, &[Edit::Version, Edit::Resources, Edit::Options, Edit::Deadline]),
            },
            21..24 => Self::DeleteCluster {
                cluster,
                how: one_of(
                    rng,
                    &[
                        Propagation::Background,
                        Propagation::Background,
                        Propagation::Foreground,
                        Propagation::Orphan,
                    ],
                ),
            },
            24..27 => Self::Recreate { cluster },
            27..34 => Self::DeleteMember { pick },
            34..36 => Self::StripMember { pick },
            36..42 => Self::DeletePod { pick, force: rng.random_bool(0.3) },
            42..45 => Self::DeleteVolume { pick },
            45..47 => Self::SwapVolume { pick },
            47 => Self::DeleteService { pick },
            48 => Self::DeleteBudget { pick },
            49 => Self::Unlabel { pick },
            50..56 => Self::KillContainer { pick },
            56..60 => Self::Evict { pick },
            60..66 => Self::NodeDies { node },
            66..71 => Self::NodeCut { node },
            71..73 => Self::NodeLost { node },
            73..75 => Self::LinkCut { a: node, b: rng.random_range(0..temper.nodes) },
            75..78 => Self::WipeDisk { pick },
            78..80 => Self::CorruptDisk { pick },
            80 => Self::FillDisk { pick },
            81..86 => Self::Crash { back: rng.random_range(500..20_000) },
            86..89 => Self::Depose { linger: rng.random_range(100..4000) },
            89..93 => Self::WatchLag {
                kind: rng.random_range(0..6),
                by: rng.random_range(500..10_000),
                lasts: rng.random_range(2000..40_000),
            },
            93..95 => Self::WatchRestart { kind: rng.random_range(0..6) },
            95..97 => Self::ApiDown { lasts: rng.random_range(500..30_000) },
            97 => Self::ClockJump { by: rng.random_range(-30_000..30_000) },
            _ => Self::Call { skip: rng.random_range(0..6), fate: Fate::draw(rng) },
        }
    }

    /// What usually ends it.
    fn counterpart(&self, rng: &mut StdRng) -> Option<Self> {
        match self {
            Self::NodeDies { node } => Some(Self::NodeReturns { node: *node }),
            Self::NodeCut { node } => Some(Self::NodeHeals { node: *node }),
            Self::DeleteCluster { cluster, .. } if rng.random_bool(0.7) => {
                Some(Self::Recreate { cluster: *cluster })
            }
            Self::Scale { cluster, replicas: 0 } => {
                Some(Self::Scale { cluster: *cluster, replicas: one_of(rng, &[1, 3]) })
            }
            _ => None,
        }
    }

    /// The name of the kind, for statistics.
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
    }
}

impl Fate {
    fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..6) {
            0 => Self::AnswerLost,
            1 => Self::RequestLost,
            2 => Self::Late(rng.random_range(500..15_000)),
            3 => Self::Slow(rng.random_range(200..9000)),
            4 => Self::DieBefore,
            _ => Self::DieAfter,
        }
    }
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3}s {:?}", self.at as f64 / 1000.0, self.incident)
    }
}
