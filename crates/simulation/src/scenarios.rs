//! Named scripts: days that somebody had, written down.

use crate::regressions;
use crate::script::{Fate, Incident, MINUTE, Propagation, SECOND, Script, Temper, Timed, Verb, Wish};

/// A script with a name.
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    pub script: Script,
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    let three = || wish(3, false);
    let mut all = vec![
        scenario("birth", "three members, no faults", three(), vec![]),
        scenario("one", "one member, no faults", wish(1, false), vec![]),
        scenario(
            "grow-and-shrink",
            "1, 3, 5, 2, 1",
            wish(1, false),
            vec![
                at(60, Incident::Scale { cluster: 0, replicas: 3 }),
                at(120, Incident::Scale { cluster: 0, replicas: 5 }),
                at(200, Incident::Scale { cluster: 0, replicas: 2 }),
                at(300, Incident::Scale { cluster: 0, replicas: 1 }),
            ],
        ),
        scenario(
            "pause",
            "asleep and awake again",
            three(),
            vec![
                at(60, Incident::Scale { cluster: 0, replicas: 0 }),
                at(200, Incident::Scale { cluster: 0, replicas: 3 }),
            ],
        ),
        scenario(
            "node-dies",
            "a node dies and comes back",
            three(),
            vec![at(60, Incident::NodeDies { node: 0 }), at(90, Incident::NodeReturns { node: 0 })],
        ),
        scenario(
            "every-member",
            "each member is deleted in turn",
            three(),
            vec![
                at(60, Incident::DeleteMember { pick: 0 }),
                at(120, Incident::DeleteMember { pick: 0 }),
                at(180, Incident::DeleteMember { pick: 0 }),
            ],
        ),
        scenario(
            "volume-gone",
            "a volume is deleted",
            three(),
            vec![at(60, Incident::DeleteVolume { pick: 1 })],
        ),
        scenario(
            "fewer-while-one-is-down",
            "scaled down while a node is down",
            wish(5, false),
            vec![
                at(60, Incident::NodeDies { node: 0 }),
                at(160, Incident::Scale { cluster: 0, replicas: 3 }),
                at(240, Incident::NodeReturns { node: 0 }),
            ],
        ),
        scenario(
            "edited",
            "options are edited while everything is well",
            three(),
            vec![at(60, Incident::Edit { cluster: 0, what: crate::script::Edit::Options })],
        ),
        scenario(
            "memory-pod-gone",
            "a member in memory loses its Pod",
            wish(3, true),
            vec![at(60, Incident::DeletePod { pick: 1, force: false })],
        ),
        scenario(
            "same-name",
            "deleted and made again under the same name",
            three(),
            vec![
                at(60, Incident::DeleteCluster { cluster: 0, how: Propagation::Background }),
                at(61, Incident::Recreate { cluster: 0 }),
            ],
        ),
        scenario(
            "same-name-late",
            "made again under the same name while a call for the predecessor is still on its way",
            wish(1, false),
            vec![
                at(59, Incident::Call { skip: 0, fate: Fate::Late(7500) }),
                at(60, Incident::DeleteCluster { cluster: 0, how: Propagation::Background }),
                at(61, Incident::Recreate { cluster: 0 }),
            ],
        ),
        scenario(
            "orphaned-and-applied-again",
            "T25: deleted with everything left behind, then applied again",
            three(),
            orphaned_and_applied_again(),
        ),
        scenario(
            "orphaned-and-applied-again-one",
            "T25: the same with one member",
            wish(1, false),
            orphaned_and_applied_again(),
        ),
        scenario(
            "orphaned-and-applied-again-memory",
            "T25: the same in memory",
            wish(3, true),
            orphaned_and_applied_again(),
        ),
        scenario(
            "orphaned-asleep",
            "T25: paused, left behind, applied again and woken",
            wish(1, false),
            vec![
                at(60, Incident::Scale { cluster: 0, replicas: 0 }),
                at(120, Incident::DeleteCluster { cluster: 0, how: Propagation::Orphan }),
                at(130, Incident::Recreate { cluster: 0 }),
            ],
        ),
        scenario(
            "orphaned-and-applied-in-memory",
            "T25: left behind on volumes, applied again in memory",
            three(),
            vec![
                at(60, Incident::DeleteCluster { cluster: 0, how: Propagation::Orphan }),
                at(70, Incident::RecreateAs { cluster: 0, replicas: None, other_medium: true }),
            ],
        ),
        scenario(
            "status-lost",
            "T26: /status of a healthy cluster is emptied",
            three(),
            vec![at(60, Incident::LoseStatus { cluster: 0 })],
        ),
        scenario(
            "status-lost-asleep",
            "T26: the same while it is paused, and woken after that",
            three(),
            vec![
                at(60, Incident::Scale { cluster: 0, replicas: 0 }),
                at(150, Incident::LoseStatus { cluster: 0 }),
                at(200, Incident::Scale { cluster: 0, replicas: 3 }),
            ],
        ),
        scenario(
            "killed-again-and-again",
            "T27: a container is killed six times and serves in between",
            three(),
            vec![at(60, Incident::Storm { pick: 1, times: 12, every: 25 * SECOND })],
        ),
        scenario(
            "no-room-for-a-while",
            "T27: a member's Pod finds no room, its volume is well",
            three(),
            vec![
                at(60, Incident::NoRoom { lasts: 200 * SECOND }),
                at(62, Incident::DeletePod { pick: 1, force: false }),
                at(250, Incident::Call { skip: 0, fate: Fate::Slow(200) }),
            ],
        ),
        scenario(
            "quota-on-claims",
            "T32: no claim for a new member, and another member's Pod is deleted",
            three(),
            vec![
                at(60, Incident::Refuse { kind: 3, verb: Verb::Create, only: None, lasts: 240 * SECOND }),
                at(61, Incident::Scale { cluster: 0, replicas: 5 }),
                at(75, Incident::DeletePod { pick: 1, force: false }),
                at(280, Incident::Call { skip: 0, fate: Fate::Slow(200) }),
            ],
        ),
        scenario(
            "reverted",
            "T35: a webhook undoes every patch of a Service",
            three(),
            vec![at(60, Incident::Revert { kind: 0, pick: 0, late: false, lasts: 60 * SECOND })],
        ),
        scenario(
            "no-pod-is-taken",
            "T35: kubelets fail every new Pod for a while",
            three(),
            vec![
                at(60, Incident::FailPods { lasts: 50 * SECOND }),
                at(61, Incident::DeletePod { pick: 1, force: false }),
            ],
        ),
    ];
    all.extend(regressions::all());
    all
}

/// After a while: somebody has to see that it was gone.
fn orphaned_and_applied_again() -> Vec<Timed> {
    vec![
        at(60, Incident::DeleteCluster { cluster: 0, how: Propagation::Orphan }),
        at(70, Incident::Recreate { cluster: 0 }),
    ]
}

fn at(seconds: u64, incident: Incident) -> Timed {
    Timed { at: seconds * SECOND, incident }
}

fn wish(replicas: i32, memory: bool) -> Wish {
    Wish {
        name: "c".to_owned(),
        replicas,
        memory,
        version: "3.6.16",
        at: 10,
        predecessor: false,
        too_much: false,
    }
}

fn scenario(name: &'static str, about: &'static str, wish: Wish, incidents: Vec<Timed>) -> Scenario {
    let calm_at = incidents.last().map_or(MINUTE, |t| t.at + MINUTE);
    let script = Script { seed: 1, temper: Temper::gentle(), clusters: vec![wish], incidents, calm_at };
    Scenario { name, about, script }
}
