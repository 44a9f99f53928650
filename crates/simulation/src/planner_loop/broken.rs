//! How an operator behaves that is broken on purpose; one that is not behaves as it should.

use api::EtcdMemberStatus;
use etcd::Membership;
use jiff::Timestamp;
use planner::pass::{Conduct, Sound};
use planner::{Action, ClusterView, Look, MemberView, Plan, Seen};

use crate::mutations::{Mutation, NONE};

/// An operator with a flaw.
pub struct Broken {
    pub mutation: &'static Mutation,
    /// The last list of the cluster, for one that works with old ones.
    pub list: Option<Seen<Membership>>,
}

impl Conduct for Broken {
    fn plan(&self, view: &mut ClusterView, now: Timestamp) -> Plan {
        if std::ptr::eq(self.mutation, &raw const NONE) {
            return Sound.plan(view, now);
        }
        if view.etcd.membership.is_none() {
            view.etcd.membership.clone_from(&self.list);
        }
        let mut believed = view.clone();
        (self.mutation.before)(&mut believed);
        let mut plan = planner::plan(&believed, now);
        (self.mutation.after)(&believed, &mut plan);
        plan
    }

    fn looks(&self, view: &ClusterView, action: &Action) -> Vec<Look> {
        if (self.mutation.blind)(action) { vec![] } else { Sound.looks(view, action) }
    }

    fn look_before_record(&self, member: &MemberView, status: &EtcdMemberStatus) -> Option<Look> {
        Sound.look_before_record(member, status).filter(|_| !self.mutation.records_unseen)
    }

    fn goes_on(&self) -> bool {
        !self.mutation.stops
    }
}
