//! Days on which members leave, are paused or are replaced.

use super::{day, usual, wish};
use crate::scenarios::Scenario;
use crate::script::{Edit, Fate, Incident, Propagation, Temper, Verb};

pub(super) fn two_left_at_once() -> Scenario {
    day(
        ("regression-two-leave", "rule 2: a delete was not in the cache, so the next pass chose another one"),
        (115, 257_000),
        Temper { slowest_bind: 10_000, lost_member_timeout: Some(60_000), ..usual() },
        vec![wish("c", 3, "3.6.16", 1933)],
        vec![
            (145, Incident::Edit { cluster: 1, what: Edit::Resources }),
            (2643, Incident::Scale { cluster: 0, replicas: 5 }),
            (13_050, Incident::Scale { cluster: 1, replicas: 4 }),
            (24_330, Incident::NodeCut { node: 3 }),
            (28_724, Incident::Call { skip: 1, fate: Fate::DieAfter }),
            (48_766, Incident::NodeHeals { node: 3 }),
            (155_849, Incident::DeleteMember { pick: 11 }),
            (155_891, Incident::DeleteMember { pick: 45 }),
            (156_276, Incident::Edit { cluster: 0, what: Edit::Version }),
            (232_855, Incident::DeletePod { pick: 59, force: false }),
            (232_865, Incident::Recreate { cluster: 1 }),
            (232_899, Incident::Scale { cluster: 1, replicas: 3 }),
            (232_928, Incident::LinkCut { a: 3, b: 2 }),
        ],
    )
}

pub(super) fn leaving_held_up_by_a_broken_one() -> Scenario {
    day(
        (
            "regression-held-up-by-broken",
            "rule 8: one could not leave, so a broken one was not replaced, so ...",
        ),
        (156, 229_000),
        Temper {
            nodes: 3,
            local_volumes: true,
            slowest_start: 25_000,
            slowest_bind: 200,
            write_period: 1000,
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 394)],
        vec![
            (13_108, Incident::Scale { cluster: 1, replicas: 1 }),
            (46_552, Incident::Depose { linger: 2600 }),
            (55_965, Incident::DeleteVolume { pick: 34 }),
        ],
    )
}

pub(super) fn leaving_held_up_by_an_orphan() -> Scenario {
    let temper = Temper { slowest_start: 3000, slowest_bind: 200, node_patience: 30_000, ..usual() };
    day(
        (
            "regression-held-up-by-orphan",
            "rule 8: one could not leave because of an orphan, which waited for it",
        ),
        (234, 243_000),
        Temper { lost_member_timeout: None, write_period: 1000, ..temper },
        vec![wish("c", 0, "3.5.35", 1972), wish("d", 3, "3.6.16", 928)],
        vec![
            (165_635, Incident::NodeLost { node: 0 }),
            (216_645, Incident::StripMember { pick: 10 }),
            (223_893, Incident::DeleteMember { pick: 28 }),
        ],
    )
}

pub(super) fn removal_in_memory() -> Scenario {
    day(
        (
            "regression-removal-in-memory",
            "rule 8: killed after the last other voter was out, it waited for that one's vote for ever",
        ),
        (1_000_106, 337_000),
        Temper {
            nodes: 5,
            local_volumes: true,
            slowest_start: 3000,
            slowest_watch: 50,
            node_patience: 100_000,
            lost_member_timeout: None,
            ..usual()
        },
        vec![wish("c", 5, "3.6.16", 395)],
        vec![
            (94_249, Incident::Scale { cluster: 0, replicas: 0 }),
            (320_357, Incident::Scale { cluster: 0, replicas: 2 }),
        ],
    )
}

pub(super) fn healthy_one_left() -> Scenario {
    day(
        (
            "regression-healthy-one-left",
            "rule 1: of two that were not ready the one left that served, and not the silent one (T22)",
        ),
        (1_003_508, 151_000),
        Temper {
            slowest_bind: 200,
            slowest_watch: 2000,
            node_patience: 100_000,
            lost_member_timeout: None,
            reuses_addresses: false,
            write_period: 150,
            ..usual()
        },
        vec![wish("c", 5, "3.6.16", 849)],
        vec![
            (100_674, Incident::KillContainer { pick: 32 }),
            (101_071, Incident::CorruptDisk { pick: 25 }),
            (101_073, Incident::Call { skip: 3, fate: Fate::DieBefore }),
            (101_189, Incident::DeletePod { pick: 15, force: true }),
            (101_365, Incident::Scale { cluster: 0, replicas: 0 }),
            (101_567, Incident::NodeDies { node: 2 }),
            (109_123, Incident::Call { skip: 9, fate: Fate::Slow(7795) }),
            (117_374, Incident::NodeCut { node: 0 }),
        ],
    )
}

pub(super) fn broken_one_in_the_way() -> Scenario {
    day(
        (
            "regression-broken-one-in-the-way",
            "rule 8: a broken last voter that had to stay kept others from joining",
        ),
        (1_014_549, 355_000),
        Temper {
            nodes: 5,
            slowest_start: 3000,
            slowest_bind: 200,
            slowest_watch: 50,
            node_patience: 30_000,
            lost_member_timeout: None,
            reuses_addresses: false,
            write_period: 1000,
            ..usual()
        },
        vec![wish("c", 5, "3.5.35", 1662)],
        vec![
            (2261, Incident::KillContainer { pick: 1 }),
            (5910, Incident::Crash { back: 641 }),
            (13_025, Incident::Unlabel { pick: 33 }),
            (14_072, Incident::DeleteMember { pick: 57 }),
        ],
    )
}

pub(super) fn paused_and_deleted() -> Scenario {
    day(
        (
            "regression-paused-and-deleted",
            "rule 8: the last member was deleted while it was to sleep, and stayed awake",
        ),
        (1_038_884, 117_000),
        Temper {
            slowest_bind: 200,
            slowest_watch: 2000,
            node_patience: 30_000,
            reuses_addresses: false,
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 814), wish("d", 2, "3.5.35", 642)],
        vec![
            (42_520, Incident::WatchLag { kind: 2, by: 1482, lasts: 33_734 }),
            (45_452, Incident::DeleteCluster { cluster: 0, how: Propagation::Background }),
            (47_962, Incident::NodeHeals { node: 3 }),
            (55_082, Incident::NodeDies { node: 3 }),
            (55_898, Incident::NodeReturns { node: 3 }),
            (60_131, Incident::WatchRestart { kind: 4 }),
            (73_620, Incident::Scale { cluster: 1, replicas: 0 }),
            (73_669, Incident::StripMember { pick: 49 }),
            (73_989, Incident::Evict { pick: 20 }),
            (74_293, Incident::DeleteMember { pick: 29 }),
        ],
    )
}

pub(super) fn orphan_out_in_memory() -> Scenario {
    day(
        (
            "regression-orphan-out-in-memory",
            "rule 8: an orphan was out of etcd, but not on the disk of the survivor that was killed just then",
        ),
        (1_052_876, 274_000),
        Temper {
            nodes: 3,
            local_volumes: true,
            slowest_start: 1500,
            slowest_watch: 10,
            node_patience: 100_000,
            lost_member_timeout: Some(20_000),
            reuses_addresses: false,
            write_period: 150,
            ..usual()
        },
        vec![wish("c", 2, "3.5.35", 262)],
        vec![(156_679, Incident::StripMember { pick: 6 }), (156_726, Incident::Evict { pick: 52 })],
    )
}

pub(super) fn could_not_leave_to_sleep() -> Scenario {
    day(
        (
            "regression-not-asleep",
            "rule 8: a cluster was said to be paused whose last two members could not leave without a quorum",
        ),
        (9_014_562, 60_000),
        Temper {
            nodes: 5,
            local_volumes: true,
            slowest_start: 25_000,
            slowest_bind: 10_000,
            reuses_addresses: false,
            write_period: 1000,
            ..usual()
        },
        vec![wish("c", 2, "3.6.16", 1304)],
        vec![
            (27_805, Incident::Evict { pick: 47 }),
            (38_523, Incident::Scale { cluster: 1, replicas: 2 }),
            (39_755, Incident::Scale { cluster: 0, replicas: 0 }),
            (47_557, Incident::DeleteMember { pick: 44 }),
            (47_560, Incident::WipeDisk { pick: 57 }),
        ],
    )
}

pub(super) fn empty_by_the_cache() -> Scenario {
    day(
        (
            "regression-empty-by-the-cache",
            "rule 4: nothing seemed to be left of a member that was kept for its data, because its claim had lost its label",
        ),
        (800_051_060, 208_000),
        Temper {
            nodes: 3,
            slowest_bind: 10_000,
            node_patience: 30_000,
            lost_member_timeout: Some(60_000),
            reuses_addresses: false,
            ..usual()
        },
        vec![wish("c", 3, "3.5.35", 1299)],
        vec![
            (98_375, Incident::Refuse { kind: 1, verb: Verb::Status, only: None, lasts: 83_380 }),
            (100_372, Incident::Scale { cluster: 35, replicas: 1 }),
            (131_942, Incident::DeleteMember { pick: 31 }),
            (133_355, Incident::DeleteCluster { cluster: 1, how: Propagation::Orphan }),
            (136_929, Incident::DeletePod { pick: 17, force: false }),
            (176_130, Incident::Relabel { pick: 45 }),
        ],
    )
}

pub(super) fn taken_out_and_left_behind() -> Scenario {
    day(
        (
            "regression-taken-out-and-left-behind",
            "rule 4: whom a scale-down had chosen went with the last member that its user deleted, who had orphaned the cluster",
        ),
        (700_007_423, 355_000),
        Temper {
            nodes: 3,
            slowest_start: 1500,
            slowest_watch: 2000,
            node_patience: 100_000,
            lost_member_timeout: Some(60_000),
            backoff: (1000, 300_000),
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 727)],
        vec![
            (42_799, Incident::Scale { cluster: 0, replicas: 1 }),
            (43_504, Incident::Refuse { kind: 1, verb: Verb::Status, only: Some(27), lasts: 118_909 }),
            (120_876, Incident::DeleteCluster { cluster: 0, how: Propagation::Orphan }),
            (122_342, Incident::DeleteMember { pick: 23 }),
        ],
    )
}

pub(super) fn woken_before_it_slept() -> Scenario {
    day(
        (
            "regression-woken-before-it-slept",
            "rule 1: a member was woken, and its Pod ended in the same breath",
        ),
        (111, 136_000),
        Temper {
            local_volumes: true,
            slowest_start: 1500,
            slowest_bind: 200,
            slowest_watch: 10,
            node_patience: 30_000,
            lost_member_timeout: Some(60_000),
            reuses_addresses: false,
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 1683)],
        vec![
            (99_694, Incident::ApiDown { lasts: 5066 }),
            (100_578, Incident::NodeReturns { node: 1 }),
            (101_042, Incident::Call { skip: 1, fate: Fate::Slow(1743) }),
            (111_921, Incident::Scale { cluster: 0, replicas: 5 }),
            (116_660, Incident::Scale { cluster: 1, replicas: 0 }),
            (120_268, Incident::Scale { cluster: 1, replicas: 2 }),
        ],
    )
}
