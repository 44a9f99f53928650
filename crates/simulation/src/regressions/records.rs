//! Days on which what is on record was wrong, late or lost.

use super::{day, usual, wish};
use crate::scenarios::Scenario;
use crate::script::{Edit, Fate, Incident, Propagation, Temper, Wish};

pub(super) fn vote_before_record() -> Scenario {
    let temper = Temper { nodes: 3, slowest_start: 3000, slowest_bind: 200, slowest_watch: 50, ..usual() };
    day(
        ("regression-vote-before-record", "rule 3: promoted before it was stored that it had joined (T7)"),
        (148, 254_000),
        Temper {
            node_patience: 30_000,
            lost_member_timeout: Some(20_000),
            reuses_addresses: false,
            write_period: 150,
            ..temper
        },
        vec![wish("c", 3, "3.5.35", 1404)],
        vec![
            (13_145, Incident::NodeDies { node: 0 }),
            (13_237, Incident::ApiDown { lasts: 23_066 }),
            (14_103, Incident::NodeReturns { node: 0 }),
            (14_844, Incident::Call { skip: 1, fate: Fate::DieAfter }),
            (17_282, Incident::Call { skip: 1, fate: Fate::AnswerLost }),
            (39_953, Incident::DeleteVolume { pick: 34 }),
            (40_000, Incident::WipeDisk { pick: 42 }),
            (40_009, Incident::Depose { linger: 2104 }),
        ],
    )
}

pub(super) fn formed_but_not_recorded() -> Scenario {
    day(
        (
            "regression-formed-but-not-recorded",
            "rule 4: a seed was let go while the record that it had formed was on its way",
        ),
        (2_019_268, 210_000),
        Temper {
            nodes: 3,
            slowest_bind: 200,
            node_patience: 100_000,
            lost_member_timeout: Some(60_000),
            reuses_addresses: false,
            write_period: 1000,
            ..usual()
        },
        vec![wish("c", 1, "3.6.16", 1681)],
        vec![
            (4604, Incident::Call { skip: 3, fate: Fate::Late(10_651) }),
            (11_221, Incident::DeleteMember { pick: 17 }),
            (14_196, Incident::Call { skip: 0, fate: Fate::Late(7654) }),
        ],
    )
}

pub(super) fn gone_before_it_was_recorded() -> Scenario {
    day(
        (
            "regression-gone-before-it-was-recorded",
            "rule 8: a seed whose memory was gone was waited for, because it had answered once",
        ),
        (3_066_599, 72_000),
        Temper {
            nodes: 3,
            slowest_start: 25_000,
            slowest_bind: 200,
            slowest_watch: 2000,
            write_period: 150,
            ..usual()
        },
        vec![Wish { memory: true, ..wish("c", 5, "3.5.35", 408) }],
        vec![
            (7290, Incident::Call { skip: 3, fate: Fate::RequestLost }),
            (7513, Incident::Call { skip: 4, fate: Fate::AnswerLost }),
            (8181, Incident::Scale { cluster: 0, replicas: 5 }),
            (16_528, Incident::Evict { pick: 7 }),
        ],
    )
}

pub(super) fn settled_before_it_was_recorded() -> Scenario {
    day(
        (
            "regression-settled-before-it-was-recorded",
            "rule 8: a seed that lost its memory could not begin anew, though nobody knew that it had formed",
        ),
        (3_063_731, 67_000),
        Temper {
            nodes: 5,
            slowest_start: 25_000,
            slowest_bind: 200,
            lost_member_timeout: None,
            reuses_addresses: false,
            ..usual()
        },
        vec![Wish { memory: true, ..wish("c", 5, "3.6.16", 905) }, wish("d", 5, "3.5.35", 1356)],
        vec![
            (3793, Incident::ClockJump { by: -18_912 }),
            (3969, Incident::DeletePod { pick: 29, force: false }),
            (4138, Incident::Evict { pick: 27 }),
            (4432, Incident::DeleteMember { pick: 32 }),
            (4754, Incident::Call { skip: 0, fate: Fate::RequestLost }),
            (6323, Incident::Call { skip: 7, fate: Fate::AnswerLost }),
            (10_017, Incident::Call { skip: 8, fate: Fate::DieAfter }),
            (17_497, Incident::NodeDies { node: 3 }),
        ],
    )
}

pub(super) fn answered_by_a_stranger() -> Scenario {
    day(
        (
            "regression-answered-by-a-stranger",
            "rule 6: another cluster's etcd had got a lost member's address, and was asked and believed",
        ),
        // Drawn as seed 5006442. Since the operator also looks at claims and does not wait for who has left, it takes other
        // luck and other moments to show.
        (77, 134_000),
        Temper {
            nodes: 3,
            slowest_start: 3000,
            slowest_bind: 10_000,
            slowest_watch: 10,
            lost_member_timeout: Some(20_000),
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 1868), Wish { memory: true, ..wish("d", 3, "3.6.16", 724) }],
        vec![
            (72_591, Incident::Scale { cluster: 1, replicas: 4 }),
            (78_576, Incident::NodeDies { node: 2 }),
            (86_198, Incident::DeleteMember { pick: 55 }),
            (86_878, Incident::DeletePod { pick: 32, force: false }),
            (88_438, Incident::NodeCut { node: 0 }),
            (89_137, Incident::NodeCut { node: 2 }),
            (89_139, Incident::DeleteCluster { cluster: 0, how: Propagation::Background }),
            (96_445, Incident::NodeHeals { node: 0 }),
            (119_940, Incident::Recreate { cluster: 0 }),
            (126_986, Incident::Scale { cluster: 1, replicas: 1 }),
            (129_431, Incident::NodeDies { node: 1 }),
            (130_811, Incident::ApiDown { lasts: 21_683 }),
            (134_407, Incident::DeletePod { pick: 40, force: true }),
        ],
    )
}

pub(super) fn joined_on_an_unseen_claim() -> Scenario {
    day(
        (
            "regression-joined-on-an-unseen-claim",
            "rule 8: a seed was on record without its claim, so that another claim was taken for its own",
        ),
        (5_020_907, 82_000),
        Temper {
            nodes: 3,
            slowest_start: 3000,
            slowest_bind: 10_000,
            slowest_watch: 2000,
            reuses_addresses: false,
            write_period: 1000,
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 1579)],
        vec![
            (608, Incident::DeletePod { pick: 13, force: false }),
            (655, Incident::DeleteMember { pick: 42 }),
            (757, Incident::Call { skip: 6, fate: Fate::RequestLost }),
            (3074, Incident::Call { skip: 6, fate: Fate::RequestLost }),
            (3262, Incident::KillContainer { pick: 15 }),
            (3264, Incident::Unlabel { pick: 13 }),
            (3276, Incident::Scale { cluster: 0, replicas: 2 }),
            (22_155, Incident::Scale { cluster: 1, replicas: 1 }),
            (23_780, Incident::Evict { pick: 59 }),
            (27_404, Incident::SwapVolume { pick: 18 }),
        ],
    )
}

pub(super) fn joined_on_another_claim() -> Scenario {
    day(
        (
            "regression-joined-on-another-claim",
            "rule 8: a seed was on record with the claim it had before its first start",
        ),
        (7_008_723, 353_000),
        Temper {
            local_volumes: true,
            slowest_start: 25_000,
            slowest_bind: 10_000,
            node_patience: 100_000,
            lost_member_timeout: Some(60_000),
            reuses_addresses: false,
            write_period: 150,
            ..usual()
        },
        vec![wish("c", 3, "3.6.16", 1469), wish("d", 1, "3.6.16", 600)],
        vec![(1147, Incident::Unlabel { pick: 39 }), (1165, Incident::SwapVolume { pick: 55 })],
    )
}

pub(super) fn on_record_with_the_claim_before() -> Scenario {
    day(
        (
            "regression-late-claim",
            "rule 8: a seed was on record with a claim that was swapped before its start, and the watch had not told yet",
        ),
        // Drawn as seed 8096001. Since the last Pod ends in the pass that puts its member to sleep, at other moments, and with
        // other luck since votes are given after a look.
        (13, 66_000),
        Temper {
            slowest_start: 25_000,
            slowest_watch: 10,
            node_patience: 100_000,
            lost_member_timeout: None,
            reuses_addresses: false,
            ..usual()
        },
        vec![wish("c", 1, "3.5.35", 170)],
        vec![
            (6137, Incident::WatchLag { kind: 3, by: 8936, lasts: 23_406 }),
            (9239, Incident::Scale { cluster: 0, replicas: 0 }),
            (10_271, Incident::Call { skip: 4, fate: Fate::Slow(693) }),
            (11_073, Incident::NodeCut { node: 2 }),
            (16_100, Incident::NodeCut { node: 3 }),
            (16_706, Incident::Edit { cluster: 1, what: Edit::Resources }),
            (18_874, Incident::SwapVolume { pick: 27 }),
            (18_913, Incident::ApiDown { lasts: 1249 }),
            (29_573, Incident::Scale { cluster: 1, replicas: 4 }),
        ],
    )
}
