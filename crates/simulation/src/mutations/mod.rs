//! Deliberately broken operators. Each breaks one rule that somebody once broke for real; the simulation has to notice
//! every one of them, or it proves nothing about the operator that is not broken.

mod beliefs;
mod deeds;
mod plans;

use planner::{Action, ClusterView, Plan, Release};

use crate::planner_loop::Call;

/// One way to be broken.
pub struct Mutation {
    pub name: &'static str,
    /// The trap it falls into.
    pub trap: &'static str,
    /// What it believes instead of what it saw.
    pub before: fn(&mut ClusterView),
    /// What it plans instead of what is right.
    pub after: fn(&ClusterView, &mut Plan),
    /// What it does instead of what it planned.
    pub call: fn(&ClusterView, &Action, Call) -> Call,
    /// Works with an old list when it has no new one.
    pub keeps_list: bool,
    /// Believes whoever has a member's address.
    pub believes_strangers: bool,
    /// Takes the listing of one namespace for that of all.
    pub sweeps: bool,
    /// Whether days with a name do not count for it: unscripted seeds alone have to find it.
    pub unscripted: bool,
    /// Puts a member on record with the claim in its cache, without a live look at it.
    pub records_unseen: bool,
    /// Takes no live look before it does that.
    pub blind: fn(&Action) -> bool,
    /// Ends a pass at the first step that fails, or is not tried again yet.
    pub stops: bool,
}

/// The operator as it is.
pub static NONE: Mutation = Mutation::new("none", "the operator as it is");

impl Mutation {
    const fn new(name: &'static str, trap: &'static str) -> Self {
        Self {
            name,
            trap,
            before: |_| {},
            after: |_, _| {},
            call: |_, _, call| call,
            keeps_list: false,
            believes_strangers: false,
            records_unseen: false,
            blind: |_| false,
            stops: false,
            sweeps: false,
            unscripted: false,
        }
    }

    const fn believing(mut self, before: fn(&mut ClusterView)) -> Self {
        self.before = before;
        self
    }

    const fn planning(mut self, after: fn(&ClusterView, &mut Plan)) -> Self {
        self.after = after;
        self
    }

    const fn doing(mut self, call: fn(&ClusterView, &Action, Call) -> Call) -> Self {
        self.call = call;
        self
    }

    const fn with_an_old_list(mut self) -> Self {
        self.keeps_list = true;
        self
    }

    const fn believing_strangers(mut self) -> Self {
        self.believes_strangers = true;
        self
    }

    const fn stopping(mut self) -> Self {
        self.stops = true;
        self
    }

    const fn blindly(self) -> Self {
        self.blind_to(|_| true)
    }

    const fn blind_to(mut self, what: fn(&Action) -> bool) -> Self {
        self.blind = what;
        self
    }

    const fn sweeping(mut self) -> Self {
        self.sweeps = true;
        self
    }

    const fn by_seeds_alone(mut self) -> Self {
        self.unscripted = true;
        self
    }

    const fn recording_unseen(mut self) -> Self {
        self.records_unseen = true;
        self
    }
}

/// Every broken operator.
pub fn all() -> &'static [Mutation] {
    static ALL: [Mutation; 43] = [
        Mutation::new("heals-without-quorum", "T1: crash-looping members go, whoever else is there")
            .planning(plans::heals_without_quorum)
            .blindly(),
        Mutation::new("frozen-status", "T2: no answer from etcd, no new status")
            .planning(plans::frozen_status),
        Mutation::new("remove-once", "T3: a member that is out already keeps its finalizer")
            .planning(plans::remove_once),
        Mutation::new("ended-pods-stay", "T4: only an absent Pod is made anew")
            .believing(beliefs::ended_pods_run),
        Mutation::new("blank-volume", "T7: a volume that is gone is made anew")
            .believing(beliefs::never_joined_without_volume)
            .blindly(),
        Mutation::new("late-claim", "T7: a member is on record with the claim that was there before")
            .recording_unseen(),
        Mutation::new("orphans-stay", "T9: what etcd lists and nobody stands for stays")
            .planning(plans::orphans_stay),
        Mutation::new("no-finalizer", "T9: members are born without their finalizer")
            .planning(plans::no_guard)
            .doing(deeds::born_without_finalizer),
        Mutation::new(
            "takes-out-unrecorded",
            "T24: whom the operator takes out looks like one a user deleted",
        )
        .believing(beliefs::nobody_was_taken_out),
        Mutation::new("empty-by-the-cache", "T24: what is not in the cache is gone").blind_to(|action| {
            matches!(
                action,
                Action::ReleaseMember { because: Release::ClusterDeleted { empty: true, .. }, .. }
            )
        }),
        Mutation::new("parent-by-name", "T10: whoever has the cluster's name belongs to it")
            .believing(beliefs::parent_by_name)
            .blindly(),
        Mutation::new("restless-message", "T11: a message that differs each time")
            .planning(plans::restless_message),
        Mutation::new("bootstrap-over-loss", "T12: nothing left, so begin anew")
            .believing(beliefs::never_formed)
            .blindly(),
        Mutation::new("stale-list", "T13: a joiner that was overtaken is not told")
            .planning(plans::stale_list),
        Mutation::new("labels-stay", "T19: a Pod's role is what it was born with")
            .planning(plans::labels_stay),
        Mutation::new("newest-leaves", "T22: the newest leaves, however well it is")
            .planning(plans::newest_leaves)
            .blindly(),
        Mutation::new("two-seeds", "H1: more than one seed").planning(plans::two_seeds).blindly(),
        Mutation::new("voting-add", "H3: joiners vote before they run").doing(deeds::voting_add),
        Mutation::new("no-promotion", "H4: the last learner is never promoted").planning(plans::no_promotion),
        Mutation::new("promote-first", "H5: learners are promoted before a pending one is told whom to join")
            .planning(plans::promote_first),
        Mutation::new(
            "list-from-objects",
            "H6: the list a joiner gets is made of objects, and is short of the other joiners",
        )
        .doing(deeds::list_from_objects),
        Mutation::new("two-leave", "H11: the next one leaves while one is leaving")
            .planning(plans::two_leave)
            .blindly(),
        Mutation::new("pause-deletes", "H26: the last member is deleted instead of put to sleep")
            .planning(plans::pause_deletes)
            .blindly(),
        Mutation::new("memory-starts-again", "H27: a member in memory gets another Pod")
            .believing(beliefs::memory_never_had_a_pod)
            .blindly(),
        Mutation::new("budget-stays", "H28: the budget is made once").planning(plans::budget_stays),
        Mutation::new("new-forever", "H31: a seed may form a cluster at every start")
            .believing(beliefs::seeds_are_settled)
            .doing(deeds::seeds_start_new),
        Mutation::new("release-without-quorum", "rule 4: no answer from etcd is taken for a yes")
            .planning(plans::release_without_quorum)
            .blindly(),
        Mutation::new("removal-in-memory", "a removal that is nowhere on disk when the volume goes")
            .planning(plans::removal_in_memory),
        Mutation::new("any-answer", "rule 7: whoever has a member's address is believed")
            .believing_strangers()
            .by_seeds_alone(),
        Mutation::new("old-list", "rule 7: the list of an earlier pass will do").with_an_old_list(),
        Mutation::new("optimist", "rule 6: no quorum is said to be one").planning(plans::optimist),
        Mutation::new("all-at-once", "rule 1: every Pod is restarted to apply an edit")
            .planning(plans::all_at_once)
            .blindly(),
        Mutation::new("adopts-any-orphan", "T25: whoever has no owner belongs to the cluster")
            .believing(beliefs::any_orphan_fits)
            .by_seeds_alone(),
        Mutation::new("seeds-beside-orphans", "T25: what was left behind is not there")
            .believing(beliefs::no_orphans)
            .blindly()
            .by_seeds_alone(),
        Mutation::new("forgets-with-the-status", "T26: without a status nothing was ever formed")
            .believing(beliefs::nothing_without_status)
            .blindly()
            .by_seeds_alone(),
        Mutation::new("heals-a-server", "T27: who was restarted often is broken, whether it serves or not")
            .planning(plans::heals_a_server)
            .blindly()
            .by_seeds_alone(),
        Mutation::new("gives-up-the-homeless", "T27: a Pod that finds no room has lost its data")
            .planning(plans::gives_up_the_homeless)
            .blindly()
            .by_seeds_alone(),
        Mutation::new("believes-an-impostor", "T28: who is not on the list is not there")
            .believing(beliefs::only_the_list)
            .by_seeds_alone(),
        Mutation::new(
            "stops-at-the-first-failure",
            "T32: what one member is refused keeps the others waiting",
        )
        .stopping()
        .by_seeds_alone(),
        Mutation::new("sweeps-all-namespaces", "T30: the listing of one namespace empties the others")
            .sweeping()
            .by_seeds_alone(),
        Mutation::new("lets-an-unreached-seed-go", "what the operator has never reached has nothing to keep")
            .planning(plans::lets_an_unreached_seed_go)
            .by_seeds_alone(),
        Mutation::new(
            "waits-for-a-held-object",
            "a member that somebody else's finalizer keeps is waited for",
        )
        .believing(beliefs::held_by_us)
        .by_seeds_alone(),
        Mutation::new("votes-before-the-record", "T7: who serves gets its vote at once")
            .planning(plans::votes_before_the_record)
            .blindly()
            .by_seeds_alone(),
    ];
    &ALL
}
