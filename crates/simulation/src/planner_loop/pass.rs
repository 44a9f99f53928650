//! One pass over one cluster, call by call: observe, plan, act, report, with the semantics of the operator's own code.
//! Between any two calls the world goes on.

use etcd::{Endpoint, Membership};
use operator::cache::{Entry, Key};
use operator::observe::{self, endpoint, is_minority, voters};
use planner::{ClusterView, MemberView, Plan, Seen, Settings};

use super::call::{Answer, Call, EtcdCall, Failure};
use super::memory::{Outcome, Stop};
use crate::Millis;

/// As in the operator: how long a list is waited for from members that are too few to have one.
const HASTE: Millis = 300;

/// Where a pass stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    AskStatus,
    AskMembers(usize),
    Decide,
    Act(usize),
    Report(usize),
}

/// A pass under way.
pub struct Pass {
    pub began: Millis,
    pub view: ClusterView,
    pub plan: Plan,
    pub phase: Phase,
    pub outcome: Outcome,
    pub stop: Option<Stop>,
    /// Members that leave and have not answered yet; nobody waits for those that are out.
    pub unheard: Vec<(usize, etcd::Error)>,
    /// Whom to ask for the list, in order.
    voters: Vec<String>,
    hasty: bool,
    failure: Option<etcd::Error>,
    /// When a quorum confirmed itself.
    pub quorum_at: Option<Millis>,
    /// The linearizable list was read in this very pass.
    pub list_read: bool,
    /// So many live looks before the step at hand have been taken.
    pub looked: usize,
    /// So many have found the cluster not healthy enough for the step at hand.
    pub declined: usize,
    /// The actions that failed or were held back.
    pub failed: Vec<planner::Action>,
    /// A status could not be written.
    pub unreported: bool,
    /// What was refused in this pass, by object.
    pub refused: std::collections::BTreeMap<String, String>,
}

impl Pass {
    pub fn begin(
        now: Millis,
        key: &Key,
        entry: Entry,
        quorum_at: Option<Millis>,
        settings: Settings,
        entropy: u64,
    ) -> Self {
        Self {
            began: now,
            view: observe::view(key, entry, settings, entropy),
            plan: Plan::default(),
            phase: Phase::AskStatus,
            outcome: Outcome::default(),
            stop: None,
            unheard: vec![],
            voters: vec![],
            hasty: false,
            failure: None,
            quorum_at,
            list_read: false,
            looked: 0,
            declined: 0,
            failed: vec![],
            unreported: false,
            refused: std::collections::BTreeMap::new(),
        }
    }

    /// Where a member is, and which cluster's answer is believed there.
    fn endpoint(&self, member: &MemberView, anyones: bool) -> Option<Endpoint> {
        let at = endpoint(&self.view, member)?;
        Some(if anyones { Endpoint { cluster: None, ..at } } else { at })
    }

    /// Everybody that can be asked for their status.
    pub fn to_ask(&self, anyones: bool) -> Vec<(usize, Endpoint)> {
        let asks = self.view.living_cluster().is_some();
        let members = self.view.members.iter().enumerate().filter(|_| asks);
        members.filter_map(|(index, member)| Some((index, self.endpoint(member, anyones)?))).collect()
    }

    /// Waits for those that leave, unless the list shows that they are out. True if there was somebody to wait for.
    pub fn hear_leaving(&mut self) -> bool {
        let list = self.view.etcd.membership.as_ref().map(|seen| &seen.fact);
        let is_in = |member: &MemberView| list.is_none_or(|list| member.row_in(list).is_some());
        let unheard = std::mem::take(&mut self.unheard);
        if !unheard.iter().any(|(index, _)| is_in(&self.view.members[*index])) {
            return false;
        }
        for (index, error) in unheard {
            self.view.members[index].etcd = Some(Err(error));
        }
        true
    }

    /// All statuses are in: whom to ask for the list, the leader first.
    pub fn rank_voters(&mut self) {
        self.voters = voters(&self.view).iter().map(|member| member.name().to_owned()).collect();
        self.hasty = is_minority(&self.view, self.voters.len());
        self.phase = Phase::AskMembers(0);
    }

    /// The next question for the list, or `None` when there is nobody left to ask.
    pub fn ask_members(&self, index: usize, anyones: bool) -> Option<Call> {
        let name = self.voters.get(index)?;
        let member = self.view.members.iter().find(|m| m.name() == name)?;
        Some(Call::Etcd(self.endpoint(member, anyones)?, EtcdCall::Members))
    }

    /// How long that question is waited for.
    pub fn members_limit(&self) -> Millis {
        if self.hasty { HASTE } else { super::call::READ_LIMIT }
    }

    /// Takes the answer in. True when no further question is needed.
    pub fn hear_members(&mut self, index: usize, answer: Result<Answer, Failure>, now: Millis) -> bool {
        match answer {
            Ok(Answer::Members(fact)) => {
                self.list_read = true;
                self.quorum_at = Some(now);
                self.take_list(index, fact);
                true
            }
            Err(Failure::Etcd(error)) => {
                self.failure = Some(error);
                false
            }
            _ => false,
        }
    }

    fn take_list(&mut self, index: usize, fact: Membership) {
        self.view.etcd.membership = Some(Seen { fact, from: self.voters[index].clone() });
    }

    /// Nobody gave a list: why.
    pub fn no_list(&mut self) {
        let first = || self.view.members.iter().find_map(|m| m.etcd.as_ref()?.as_ref().err().cloned());
        self.view.etcd.failure = self.failure.take().or_else(first);
    }
}
