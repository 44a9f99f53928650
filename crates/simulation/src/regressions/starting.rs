//! Days on which members begin, or try to.

use super::{day, usual, wish};
use crate::scenarios::Scenario;
use crate::script::{Edit, Fate, Incident, Temper, Wish};

pub(super) fn label_put_back() -> Scenario {
    day(
        ("regression-label-back", "rule 8: an object that got its label back stayed unseen"),
        (22, 126_000),
        Temper { nodes: 5, slowest_start: 3000, slowest_bind: 200, slowest_watch: 10, ..usual() },
        vec![wish("c", 3, "3.6.16", 1974)],
        vec![(109_956, Incident::Unlabel { pick: 40 })],
    )
}

pub(super) fn seed_taken_back() -> Scenario {
    let temper = Temper { nodes: 3, slowest_bind: 10_000, slowest_watch: 2000, write_period: 150, ..usual() };
    day(
        ("regression-seed-taken-back", "rule 4: a seed that had formed was let go as one that never did"),
        (6, 359_000),
        Temper { node_patience: 30_000, lost_member_timeout: None, ..temper },
        vec![wish("c", 3, "3.6.16", 320)],
        vec![(11_436, Incident::DeleteMember { pick: 38 })],
    )
}

pub(super) fn memory_gone_before_formation() -> Scenario {
    let in_memory = |name, replicas, at| Wish { memory: true, ..wish(name, replicas, "3.5.35", at) };
    day(
        (
            "regression-memory-seed-gone",
            "rule 8: a seed in memory that lost its Pod early was never replaced",
        ),
        (183, 253_000),
        Temper {
            slowest_start: 25_000,
            slowest_watch: 10,
            node_patience: 100_000,
            reuses_addresses: false,
            ..usual()
        },
        vec![in_memory("c", 5, 827), in_memory("d", 3, 1229)],
        vec![(9130, Incident::DeletePod { pick: 15, force: false })],
    )
}

pub(super) fn clock_set_back() -> Scenario {
    day(
        (
            "regression-clock-set-back",
            "rule 6: a clock that was set back made an old confirmation look like a new one",
        ),
        (1_003_661, 297_000),
        Temper {
            nodes: 3,
            slowest_start: 1500,
            slowest_bind: 10_000,
            slowest_watch: 10,
            node_patience: 100_000,
            lost_member_timeout: None,
            reuses_addresses: false,
            ..usual()
        },
        vec![wish("c", 2, "3.6.16", 833), wish("d", 1, "3.6.16", 1062)],
        vec![
            (63_175, Incident::WipeDisk { pick: 22 }),
            (75_216, Incident::Scale { cluster: 1, replicas: 2 }),
            (75_313, Incident::WatchLag { kind: 4, by: 7728, lasts: 31_369 }),
            (233_768, Incident::Edit { cluster: 0, what: Edit::Version }),
            (237_364, Incident::NodeDies { node: 2 }),
            (247_972, Incident::Scale { cluster: 0, replicas: 3 }),
            (259_029, Incident::NodeCut { node: 0 }),
            (268_906, Incident::ClockJump { by: -16_244 }),
        ],
    )
}

pub(super) fn joiner_tied_to_a_lost_node() -> Scenario {
    day(
        (
            "regression-joiner-tied",
            "rule 8: a joiner whose volume was on a lost node was waited for for ever",
        ),
        (1_003_936, 140_000),
        Temper {
            nodes: 3,
            local_volumes: true,
            slowest_start: 25_000,
            slowest_bind: 200,
            slowest_watch: 2000,
            lost_member_timeout: Some(60_000),
            reuses_addresses: false,
            write_period: 1000,
            ..usual()
        },
        vec![wish("c", 0, "3.6.16", 40)],
        vec![
            (16_475, Incident::NodeDies { node: 1 }),
            (17_824, Incident::Scale { cluster: 1, replicas: 4 }),
            (19_821, Incident::ClockJump { by: 24_267 }),
            (22_783, Incident::NodeCut { node: 0 }),
            (25_400, Incident::Call { skip: 10, fate: Fate::Late(3035) }),
            (27_804, Incident::Call { skip: 2, fate: Fate::Late(10_443) }),
            (58_327, Incident::NodeHeals { node: 0 }),
            (68_783, Incident::NodeCut { node: 1 }),
            (68_819, Incident::DeleteMember { pick: 50 }),
            (68_832, Incident::NodeCut { node: 1 }),
            (68_866, Incident::NodeDies { node: 2 }),
            (68_894, Incident::Call { skip: 5, fate: Fate::Late(10_209) }),
            (70_982, Incident::NodeHeals { node: 1 }),
            (72_599, Incident::Call { skip: 11, fate: Fate::Slow(5364) }),
            (102_943, Incident::NodeReturns { node: 2 }),
            (104_170, Incident::NodeReturns { node: 1 }),
            (114_411, Incident::NodeLost { node: 2 }),
        ],
    )
}
