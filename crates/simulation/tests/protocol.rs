//! The membership protocol, searched to the end: for each scenario every order of the operator's calls, of starts and
//! crashes, and of as many faults as the scenario allows. First the operator itself, which breaks no rule; then operators
//! with one rule broken, each of which the search catches.
//!
//! `cargo test -p simulation --test protocol -- --nocapture` shows how much was searched, and the way into each trouble.

use simulation::protocol::{Etcd, Faults, Scenario, Search, Variant, rule};

const NONE: Faults =
    Faults { operator: 0, late: 0, crashes: 0, pods: 0, loops: 0, volumes: 0, deletions: 0, edits: 0 };
/// An etcd that trusts the operator to know what it does.
const TRUSTING: Etcd = Etcd { strict: false, max_learners: 8 };

/// Searches everything and expects no rule to be broken.
fn holds(name: &str, scenario: Scenario) {
    let search = Search::all(scenario);
    println!("{name}: {search}");
    let broken: Vec<_> = search.counterexamples.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{name}: {}", broken.join("\n"));
}

/// Searches until `rule` is broken and shows how.
fn breaks(rule: &'static str, scenario: Scenario) -> String {
    let search = Search::breaking(scenario, rule);
    let found = search.counterexamples.iter().find(|found| found.rule == rule);
    let Some(found) = found else {
        panic!("{:?}: {search}, and nothing found against: {rule}", scenario.variant);
    };
    let way = found.to_string();
    println!("{:?}: {search}\n{way}", scenario.variant);
    way
}

#[test]
fn a_cluster_of_three_forms_through_crashes_lost_answers_and_a_lost_volume() {
    let faults = Faults { operator: 1, crashes: 1, volumes: 1, ..NONE };
    holds("forming", Scenario { members: 0, wanted: 3, faults, ..Scenario::default() });
}

#[test]
fn a_cluster_of_three_forms_through_late_calls_and_a_lost_volume() {
    let faults = Faults { operator: 1, late: 1, volumes: 1, ..NONE };
    holds("forming with late calls", Scenario { members: 0, wanted: 3, faults, ..Scenario::default() });
}

#[test]
fn a_cluster_of_four_forms_through_crashes_and_lost_answers() {
    let faults = Faults { operator: 2, crashes: 2, ..NONE };
    holds("forming four", Scenario { members: 0, wanted: 4, faults, ..Scenario::default() });
}

#[test]
fn a_cluster_whose_etcd_takes_one_learner_at_a_time_grows_to_three() {
    let faults = Faults { operator: 1, late: 1, crashes: 1, ..NONE };
    let etcd = Etcd { strict: true, max_learners: 1 };
    holds("one learner at a time", Scenario { members: 1, wanted: 3, faults, etcd, ..Scenario::default() });
}

#[test]
fn a_cluster_of_three_is_scaled_to_any_size_up_to_four() {
    let faults = Faults { operator: 1, late: 1, crashes: 1, edits: 1, ..NONE };
    holds("scaling", Scenario { faults, most: 4, ..Scenario::default() });
}

#[test]
fn a_change_of_mind_half_way_is_survived() {
    let faults = Faults { operator: 1, crashes: 1, edits: 2, ..NONE };
    holds("scaling twice", Scenario { faults, most: 4, ..Scenario::default() });
}

#[test]
fn members_that_are_broken_or_lost_are_replaced_and_no_write_is() {
    let faults = Faults { operator: 1, crashes: 1, loops: 1, volumes: 1, ..NONE };
    holds("healing", Scenario { faults, writes: true, ..Scenario::default() });
}

#[test]
fn a_cluster_of_four_heals_without_losing_a_write() {
    let faults = Faults { crashes: 1, loops: 1, volumes: 1, ..NONE };
    holds("healing four", Scenario { members: 4, wanted: 4, faults, writes: true, ..Scenario::default() });
}

#[test]
fn members_that_users_delete_are_replaced() {
    let faults = Faults { operator: 1, late: 1, crashes: 1, pods: 1, deletions: 1, ..NONE };
    holds("deletions", Scenario { faults, ..Scenario::default() });
}

#[test]
fn the_only_member_is_never_given_up() {
    let faults = Faults { operator: 1, late: 1, crashes: 1, loops: 1, deletions: 1, ..NONE };
    let writes = true;
    holds("one member", Scenario { members: 1, wanted: 1, faults, writes, ..Scenario::default() });
}

#[test]
fn the_quorum_is_safe_even_if_etcd_would_let_it_go() {
    let faults = Faults { operator: 1, crashes: 1, deletions: 1, edits: 1, ..NONE };
    holds("trusting etcd", Scenario { faults, etcd: TRUSTING, ..Scenario::default() });
}

#[test]
fn broken_joining_with_a_vote_costs_the_quorum() {
    let scenario = Scenario { members: 1, wanted: 3, variant: Variant::VotingAdd, ..Scenario::default() };
    let way = breaks(rule::QUORUM, scenario);
    assert!(way.contains("AddVoter"), "{way}");
}

#[test]
fn broken_promoting_a_silent_learner_costs_the_quorum() {
    let faults = Faults { crashes: 1, ..NONE };
    let variant = Variant::PromoteSilent;
    let way =
        breaks(rule::QUORUM, Scenario { members: 1, wanted: 2, faults, variant, ..Scenario::default() });
    assert!(way.contains("crashes"), "{way}");
}

#[test]
fn broken_promoting_before_pending_members_are_told_never_ends() {
    let variant = Variant::PromoteBeforePending;
    breaks(rule::CONVERGENCE, Scenario { members: 1, wanted: 2, variant, ..Scenario::default() });
}

#[test]
fn broken_removal_without_looking_for_a_quorum_costs_it() {
    let faults = Faults { crashes: 1, deletions: 1, ..NONE };
    let variant = Variant::RemoveUnchecked;
    breaks(rule::QUORUM, Scenario { faults, etcd: TRUSTING, variant, ..Scenario::default() });
}

#[test]
fn broken_two_removals_on_one_list_are_two_disruptions() {
    let faults = Faults { deletions: 2, ..NONE };
    let way =
        breaks(rule::DISRUPTION, Scenario { faults, variant: Variant::RemoveTwo, ..Scenario::default() });
    assert!(way.contains("Remove { member: 0 }, Remove { member: 1 }"), "{way}");
}

#[test]
fn broken_release_before_etcd_let_go_deletes_the_volume_of_a_voter() {
    let faults = Faults { deletions: 1, ..NONE };
    let variant = Variant::ReleaseBeforeRemoval;
    breaks(rule::VOLUME, Scenario { faults, variant, ..Scenario::default() });
}

#[test]
fn broken_healing_without_etcd_deletes_the_only_copy() {
    let faults = Faults { loops: 1, ..NONE };
    let variant = Variant::HealUnchecked;
    let scenario = Scenario { members: 1, wanted: 1, faults, writes: true, variant, ..Scenario::default() };
    breaks(rule::VOLUME, scenario);
    breaks(rule::WRITE, scenario);
}

#[test]
fn broken_blank_volume_for_a_member_that_had_joined_loses_an_acknowledged_write() {
    let faults = Faults { volumes: 1, ..NONE };
    let variant = Variant::BlankVolume;
    let scenario = Scenario { faults, writes: true, variant, ..Scenario::default() };
    breaks(rule::BLANK, scenario);
    let way = breaks(rule::WRITE, scenario);
    assert!(way.contains("a write is acknowledged") && way.contains("loses its volume"), "{way}");
}

#[test]
fn broken_new_after_formation_forms_a_second_cluster() {
    let faults = Faults { volumes: 1, ..NONE };
    breaks(rule::BOOTSTRAP, Scenario { faults, variant: Variant::NewAfterFormation, ..Scenario::default() });
}

#[test]
fn broken_second_seed_forms_a_second_cluster() {
    let variant = Variant::SecondSeed;
    breaks(rule::BOOTSTRAP, Scenario { members: 0, variant, ..Scenario::default() });
}

#[test]
fn broken_not_found_taken_for_an_error_never_ends() {
    let faults = Faults { operator: 1, deletions: 1, ..NONE };
    breaks(rule::CONVERGENCE, Scenario { faults, variant: Variant::NotFoundIsError, ..Scenario::default() });
}

#[test]
fn broken_orphans_that_stay_keep_etcd_from_being_what_was_asked_for() {
    let faults = Faults { late: 1, deletions: 1, ..NONE };
    let variant = Variant::OrphansStay;
    breaks(rule::CONVERGENCE, Scenario { members: 1, wanted: 2, faults, variant, ..Scenario::default() });
}

/// Defects that the search has found in the operator, each in the smallest scenario that had it.
mod found {
    use super::*;

    #[test]
    fn a_seed_whose_creation_lands_late_formed_a_second_cluster() {
        let faults = Faults { late: 1, ..NONE };
        holds("a seed that lands late", Scenario { members: 0, faults, ..Scenario::default() });
    }

    #[test]
    fn t7_a_voter_whose_id_was_not_stored_yet_got_a_blank_volume() {
        let faults = Faults { operator: 1, volumes: 1, ..NONE };
        holds("a voter on record", Scenario { members: 2, faults, writes: true, ..Scenario::default() });
    }

    #[test]
    fn a_sound_seed_was_given_up_because_of_the_claim_it_had_before_it_ran() {
        let faults = Faults { operator: 1, volumes: 1, ..NONE };
        holds("the claim before the first start", Scenario { members: 0, faults, ..Scenario::default() });
    }

    #[test]
    fn h11_a_broken_member_and_one_that_waited_to_leave_waited_for_each_other() {
        let faults = Faults { loops: 1, deletions: 1, ..NONE };
        holds("one broken, one leaving", Scenario { faults, ..Scenario::default() });
    }

    #[test]
    fn two_pending_members_wedged_an_etcd_that_takes_one_learner() {
        let faults = Faults { late: 1, ..NONE };
        let etcd = Etcd { strict: true, max_learners: 1 };
        holds("two pending, one learner", Scenario { members: 1, faults, etcd, ..Scenario::default() });
    }
}
