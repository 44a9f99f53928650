//! Days that once broke a rule, shortened, with the number of the seed they came from. What was wrong is fixed; they are
//! played for ever. Written out, because a seed means another day as soon as the way days are drawn changes.

mod leaving;
mod records;
mod starting;

use crate::Millis;
use crate::scenarios::Scenario;
use crate::script::{Incident, Script, Temper, Timed, Wish};

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![
        leaving::two_left_at_once(),
        starting::label_put_back(),
        starting::seed_taken_back(),
        records::vote_before_record(),
        leaving::leaving_held_up_by_a_broken_one(),
        leaving::leaving_held_up_by_an_orphan(),
        starting::memory_gone_before_formation(),
        leaving::removal_in_memory(),
        leaving::healthy_one_left(),
        starting::clock_set_back(),
        starting::joiner_tied_to_a_lost_node(),
        leaving::woken_before_it_slept(),
        leaving::broken_one_in_the_way(),
        leaving::paused_and_deleted(),
        leaving::orphan_out_in_memory(),
        records::formed_but_not_recorded(),
        records::gone_before_it_was_recorded(),
        records::settled_before_it_was_recorded(),
        records::answered_by_a_stranger(),
        records::joined_on_an_unseen_claim(),
        records::joined_on_another_claim(),
        records::on_record_with_the_claim_before(),
        leaving::could_not_leave_to_sleep(),
        leaving::taken_out_and_left_behind(),
        leaving::empty_by_the_cache(),
    ]
}

/// What a day had in common with most others.
fn usual() -> Temper {
    Temper {
        nodes: 4,
        local_volumes: false,
        slowest_start: 8000,
        slowest_bind: 1000,
        slowest_watch: 300,
        node_patience: 300_000,
        lost_member_timeout: Some(300_000),
        reuses_addresses: true,
        write_period: 400,
        backoff: (10_000, 300_000),
        namespaced: false,
        clocks: 0,
    }
}

fn wish(name: &str, replicas: i32, version: &'static str, at: Millis) -> Wish {
    Wish { name: name.to_owned(), replicas, memory: false, version, at, predecessor: false, too_much: false }
}

fn day(
    (name, about): (&'static str, &'static str),
    (seed, calm_at): (u64, Millis),
    temper: Temper,
    clusters: Vec<Wish>,
    incidents: Vec<(Millis, Incident)>,
) -> Scenario {
    let incidents = incidents.into_iter().map(|(at, incident)| Timed { at, incident }).collect();
    Scenario { name, about, script: Script { seed, temper, clusters, incidents, calm_at } }
}
