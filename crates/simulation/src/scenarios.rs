//! Named scripts: days that somebody had, written down.

use crate::regressions;
use crate::script::{Fate, Incident, MINUTE, Propagation, SECOND, Script, Temper, Timed, Wish};

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
    ];
    all.extend(regressions::all());
    all
}

fn at(seconds: u64, incident: Incident) -> Timed {
    Timed { at: seconds * SECOND, incident }
}

fn wish(replicas: i32, memory: bool) -> Wish {
    Wish { name: "c".to_owned(), replicas, memory, version: "3.6.16", at: 10, predecessor: false }
}

fn scenario(name: &'static str, about: &'static str, wish: Wish, incidents: Vec<Timed>) -> Scenario {
    let calm_at = incidents.last().map_or(MINUTE, |t| t.at + MINUTE);
    let script = Script { seed: 1, temper: Temper::gentle(), clusters: vec![wish], incidents, calm_at };
    Scenario { name, about, script }
}
