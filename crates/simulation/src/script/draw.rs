//! From a seed to a script: what is drawn, and how often. A seed means another day as soon as anything here changes.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::{Edit, Fate, Incident, MINUTE, Pick, Propagation, SECOND, Script, Temper, Timed, Verb, Wish};
use crate::Millis;

impl Script {
    /// Everything that follows from a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let temper = Temper::draw(&mut rng);
        let clusters = wishes(&mut rng);
        let calm_at = rng.random_range(60..=360) * SECOND;
        let mut incidents = incidents(&mut rng, &temper, calm_at);
        // From a stream of its own, so that what was drawn before stays.
        incidents.extend(walls(&mut StdRng::seed_from_u64(seed ^ 0xba44_1e45), calm_at));
        incidents.sort_by_key(|t| t.at);
        Self { seed, temper, clusters, incidents, calm_at }
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
            backoff: one_of(
                rng,
                &[(10 * SECOND, 5 * MINUTE), (10 * SECOND, 5 * MINUTE), (SECOND, 5 * MINUTE)],
            ),
            namespaced: rng.random_bool(0.3),
            clocks: one_of(rng, &[0, 2 * SECOND, 15 * MINUTE]),
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
            backoff: (10 * SECOND, 5 * MINUTE),
            namespaced: false,
            clocks: 0,
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
                name: if index == 0 { "c" } else { one_of(rng, &["d", "e"]) }.to_owned(),
                replicas: one_of(rng, sizes),
                memory,
                version: one_of(rng, &["3.6.16", "3.6.16", "3.6.16", "3.5.35"]),
                at: rng.random_range(0..2000),
                predecessor: rng.random_bool(0.2),
                too_much: rng.random_bool(0.03),
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
            let along = incident.companions(rng);
            incidents.push(Timed { at, incident });
            incidents.extend(back.map(|(at, incident)| Timed { at, incident }));
            incidents.extend(along.into_iter().map(|(after, incident)| Timed { at: at + after, incident }));
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

/// Policies and tools of others: rare, but they stay for long.
fn walls(rng: &mut StdRng, calm_at: Millis) -> Vec<Timed> {
    let mut walls = vec![];
    let pick = rng.random_range(0..60);
    if rng.random_bool(0.1) {
        // Half of them were there before the cluster.
        let at = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..calm_at) };
        let lasts = rng.random_range(10_000..calm_at);
        walls.push(Timed { at, incident: Incident::Shut { cluster: pick, lasts } });
        let during = at + rng.random_range(5000..60_000);
        let along = match rng.random_range(0..4) {
            0 => Incident::DeletePod { pick, force: false },
            1 => Incident::Scale { cluster: pick, replicas: one_of(rng, &[0, 1, 3]) },
            _ => Incident::DeleteMember { pick },
        };
        walls.push(Timed { at: during, incident: along });
    }
    if rng.random_bool(0.08) {
        let at = rng.random_range(5000..calm_at);
        walls.push(Timed { at, incident: Incident::HoldMember { pick } });
        let after = at + rng.random_range(0..30_000);
        let goes = match rng.random_range(0..3) {
            0 => Incident::Scale { cluster: pick, replicas: one_of(rng, &[0, 1]) },
            _ => Incident::DeleteMember { pick },
        };
        walls.push(Timed { at: after, incident: goes });
    }
    // A quota that stands for minutes: nobody can be added, and somebody else needs a Pod meanwhile.
    if rng.random_bool(0.04) {
        let at = rng.random_range(10_000..calm_at);
        let refuse = Incident::Refuse { kind: 3, verb: Verb::Create, only: None, lasts: 4 * MINUTE };
        let along = [
            (0, refuse),
            (1000, Incident::Scale { cluster: pick, replicas: 5 }),
            (rng.random_range(5000..30_000), Incident::DeletePod { pick, force: false }),
        ];
        walls.extend(along.map(|(after, incident)| Timed { at: at + after, incident }));
    }
    walls.retain(|t| t.at < calm_at);
    walls
}

impl Incident {
    fn draw(rng: &mut StdRng, temper: &Temper) -> Self {
        let cluster = rng.random_range(0..2);
        let pick = rng.random_range(0..60);
        let node = rng.random_range(0..temper.nodes);
        match rng.random_range(0..146) {
            0..17 => Self::Scale { cluster, replicas: one_of(rng, &[0, 1, 1, 2, 3, 3, 3, 4, 5, 5]) },
            17..21 => Self::Edit {
                cluster,
                what: one_of(
                    rng,
                    &[Edit::Version, Edit::Resources, Edit::Options, Edit::Deadline, Edit::TooMuch],
                ),
            },
            21..24 => Self::DeleteCluster {
                cluster,
                how: one_of(
                    rng,
                    &[
                        Propagation::Background,
                        Propagation::Foreground,
                        Propagation::Orphan,
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
            97 => {
                let most = one_of(rng, &[30_000, 900_000]);
                Self::ClockJump { by: rng.random_range(-most..most) }
            }
            98..100 => Self::Call { skip: rng.random_range(0..6), fate: Fate::draw(rng) },
            100..104 => Self::LoseStatus { cluster },
            104..108 => Self::LoseMemberStatus { pick },
            108..113 => Self::Disown { kind: rng.random_range(0..5), pick },
            113..115 => Self::OrphanMember { pick },
            115..122 => Self::refuse(rng, pick),
            122..124 => Self::Revert {
                kind: rng.random_range(0..3),
                pick,
                late: rng.random_bool(0.5),
                lasts: rng.random_range(10_000..120_000),
            },
            124..126 => Self::FailPods { lasts: rng.random_range(5000..90_000) },
            126..130 => Self::Reboot { node, back: rng.random_range(1000..15_000) },
            130..134 => {
                Self::Storm { pick, times: rng.random_range(2..9), every: one_of(rng, &[3000, 9000, 25_000]) }
            }
            134..136 => Self::Veteran { pick, restarts: rng.random_range(3..12) },
            136..138 => Self::Flap { pick, lasts: rng.random_range(3000..60_000) },
            138..141 => Self::NoRoom { lasts: rng.random_range(10_000..240_000) },
            141..144 => Self::Deafen { pick },
            _ => Self::Relabel { pick },
        }
    }

    /// What usually ends it.
    fn counterpart(&self, rng: &mut StdRng) -> Option<Self> {
        match self {
            Self::NodeDies { node } => Some(Self::NodeReturns { node: *node }),
            Self::NodeCut { node } => Some(Self::NodeHeals { node: *node }),
            Self::DeleteCluster { cluster, how } if rng.random_bool(0.8) => {
                let changed = *how == Propagation::Orphan && rng.random_bool(0.4);
                Some(match changed {
                    true => Self::RecreateAs {
                        cluster: *cluster,
                        replicas: Some(one_of(rng, &[0, 1, 2, 3, 5])),
                        other_medium: rng.random_bool(0.15),
                    },
                    false => Self::Recreate { cluster: *cluster },
                })
            }
            Self::Scale { cluster, replicas: 0 } => {
                Some(Self::Scale { cluster: *cluster, replicas: one_of(rng, &[1, 3]) })
            }
            _ => None,
        }
    }

    /// A quota on claims, a policy against Pods, a webhook that is down: half of all refusals are one of these.
    fn refuse(rng: &mut StdRng, pick: Pick) -> Self {
        let (kind, verb) = one_of(
            rng,
            &[
                (3, Verb::Create),
                (3, Verb::Create),
                (2, Verb::Create),
                (1, Verb::Status),
                (1, Verb::Status),
                (0, Verb::Status),
                (1, Verb::Create),
                (1, Verb::Patch),
                (1, Verb::Delete),
                (2, Verb::Patch),
                (2, Verb::Delete),
                (4, Verb::Create),
                (4, Verb::Patch),
                (5, Verb::Create),
                (5, Verb::Patch),
            ],
        );
        // What does not exist yet has no name to be refused by.
        let only = (verb != Verb::Create && rng.random_bool(0.6)).then_some(pick);
        Self::Refuse { kind, verb, only, lasts: rng.random_range(5000..240_000) }
    }

    /// What makes it hurt, often enough: each a while after it.
    fn companions(&self, rng: &mut StdRng) -> Vec<(Millis, Self)> {
        if rng.random_bool(0.45) {
            return vec![];
        }
        let pick = rng.random_range(0..60);
        let soon = rng.random_range(100..4000);
        let later = soon + rng.random_range(500..20_000);
        match self {
            // More members are wanted than there may be claims, and then somebody else needs help.
            Self::Refuse { kind: 3, .. } => vec![
                (soon, Self::Scale { cluster: pick, replicas: 5 }),
                (later, Self::DeletePod { pick, force: false }),
            ],
            Self::Refuse { kind: 1, verb: Verb::Status, only, .. } => {
                let pick = only.unwrap_or(pick);
                vec![(soon, Self::Scale { cluster: pick, replicas: 3 }), (later, Self::DeleteVolume { pick })]
            }
            Self::Refuse { .. } => vec![(soon, Self::DeletePod { pick, force: false })],
            Self::LoseMemberStatus { pick } => match rng.random_range(0..3) {
                0 => vec![(soon / 10, Self::DeleteVolume { pick: *pick })],
                1 => vec![(soon / 10, Self::DeletePod { pick: *pick, force: false })],
                _ => vec![(soon / 10, Self::DeleteMember { pick: *pick })],
            },
            Self::LoseStatus { cluster } => match rng.random_range(0..4) {
                0 => vec![(soon, Self::Scale { cluster: *cluster, replicas: one_of(rng, &[0, 1, 5]) })],
                1 => vec![(soon, Self::DeleteMember { pick })],
                2 => vec![(soon, Self::Crash { back: 1000 })],
                _ => vec![(later, Self::LoseStatus { cluster: *cluster })],
            },
            Self::DeleteCluster { how: Propagation::Orphan, .. } => match rng.random_range(0..3) {
                0 => vec![(soon, Self::DeletePod { pick, force: false })],
                1 => {
                    vec![(later, Self::KillContainer { pick }), (later + soon, Self::KillContainer { pick })]
                }
                _ => vec![(later, Self::Crash { back: 1000 })],
            },
            Self::Reboot { .. } | Self::WipeDisk { .. } => match rng.random_range(0..3) {
                0 => vec![(soon, Self::DeleteMember { pick })],
                1 => vec![(soon, Self::Scale { cluster: pick, replicas: 1 })],
                _ => vec![(soon, Self::Scale { cluster: pick, replicas: 5 })],
            },
            Self::Veteran { pick, .. } => {
                vec![(soon, Self::Flap { pick: *pick, lasts: 3000 + later })]
            }
            Self::NoRoom { .. } | Self::FailPods { .. } => match rng.random_range(0..2) {
                0 => vec![(soon, Self::DeletePod { pick, force: false })],
                _ => vec![(soon, Self::Evict { pick })],
            },
            _ => vec![],
        }
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
