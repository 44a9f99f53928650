//! The questions of a pass: what each etcd says about itself, the linearizable list, and whether volumes can be used anywhere.
//! Nothing is decided here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use api::ids;
use serde_json::Value;

use crate::stranded::{self, has_no_node};
use crate::{ClusterView, Kind, MemberView, Seen, endpoint, is_minority, voters};

use super::request::{Answer, EtcdCall, Failure, Request};
use super::{Desk, Memory, Ticket};

/// How long a list is waited for from members that are too few to have one. What we know of the voters may be old, so
/// they are asked all the same; but a lost quorum has to be told within a second.
const HASTE: Duration = Duration::from_millis(300);
/// Nodes come and go slowly, beside the time a Pod is waited for.
const FRESH: Duration = Duration::from_secs(20);

/// Questions under way.
#[derive(Debug)]
pub(super) struct Questions {
    /// Statuses that have been asked for, by the number of the member.
    statuses: BTreeMap<Ticket, usize>,
    stage: Stage,
    /// So many voters have been asked for the list.
    asked: usize,
    failure: Option<etcd::Error>,
    /// Volumes whose Pod has no node, with the number of the member.
    volumes: VecDeque<(usize, String)>,
}

#[derive(Debug)]
enum Stage {
    /// Those who stay are waited for.
    Statuses,
    /// The list is asked for, of one after the other.
    List { voters: VecDeque<String>, limit: Option<Duration>, asked: Option<(Ticket, String)>, again: bool },
    /// Whoever leaves is waited for only if it is still in.
    Leaving { again: bool },
    /// Volumes, and for each the nodes there are.
    Volumes { asked: Option<Ticket>, volume: Option<Value> },
}

impl Questions {
    /// Everybody at once. Whoever has left etcd is shutting down and slow to answer, so nobody waits for its word.
    pub fn begin(view: &ClusterView, desk: &mut Desk) -> Self {
        let mut statuses = BTreeMap::new();
        if view.is_supported() {
            for (index, member) in view.members.iter().enumerate() {
                if let Some(at) = endpoint(view, member) {
                    let request = Request::Etcd { at, call: EtcdCall::Status };
                    statuses.insert(desk.ask(request), index);
                }
            }
        }
        let volume = |m: &MemberView| m.volume.as_ref().and_then(|c| c.spec.as_ref()?.volume_name.clone());
        let homeless = |m: &&MemberView| m.pod.as_ref().is_some_and(has_no_node);
        let members = view.members.iter().enumerate().filter(|(_, m)| homeless(m));
        let volumes = members.filter_map(|(index, m)| Some((index, volume(m)?))).collect();
        Self { statuses, stage: Stage::Statuses, asked: 0, failure: None, volumes }
    }

    /// Takes an answer in.
    pub fn hear(
        &mut self,
        ticket: Ticket,
        answer: Result<Answer, Failure>,
        view: &mut ClusterView,
        memory: &mut Memory,
        now: Duration,
    ) {
        if let Some(index) = self.statuses.remove(&ticket) {
            let name = view.members[index].name().to_owned();
            view.members[index].etcd = Some(match answer {
                Ok(Answer::Status(status)) if is_anothers(view, index, &status) => {
                    Err(etcd::Error::Unreachable { member: name })
                }
                Ok(Answer::Status(status)) => Ok(status),
                Err(Failure::Etcd(error)) => Err(error),
                _ => Err(EtcdCall::Status.silence(&name)),
            });
            return;
        }
        match &mut self.stage {
            Stage::List { voters, limit, asked, .. } => {
                let Some((_, from)) = asked.take_if(|(asked, _)| *asked == ticket) else { return };
                match answer {
                    Ok(Answer::Members(fact)) => {
                        memory.confirmed = Some(now);
                        view.etcd.membership = Some(Seen { fact, from });
                        voters.clear();
                    }
                    Err(Failure::Etcd(error)) => self.failure = Some(error),
                    _ => self.failure = Some(EtcdCall::Members { limit: *limit }.silence(&from)),
                }
            }
            Stage::Volumes { asked, volume } if *asked == Some(ticket) => {
                *asked = None;
                let Some((index, name)) = self.volumes.front().cloned() else { return };
                let found = match (volume.take(), answer) {
                    (None, Ok(Answer::Object(found))) => {
                        *volume = Some(found);
                        return;
                    }
                    (Some(found), Ok(Answer::Objects(nodes))) => stranded::judge(&found, &nodes),
                    // Not known: better a member that is waited for than one that is given up.
                    _ => false,
                };
                memory.stranded.retain(|_, (at, _)| now.saturating_sub(*at) < FRESH);
                memory.stranded.insert(name, (now, found));
                view.members[index].stranded = found;
                self.volumes.pop_front();
            }
            _ => {}
        }
    }

    /// Asks what is to be asked next. True when everything is known that matters.
    pub fn go_on(&mut self, view: &mut ClusterView, memory: &Memory, desk: &mut Desk, now: Duration) -> bool {
        loop {
            match &mut self.stage {
                Stage::Statuses => {
                    if self.waits_for(view, |m| !m.is_deleting()) {
                        return false;
                    }
                    self.stage = self.rank(view, false);
                }
                Stage::List { voters, limit, asked, again } => {
                    if asked.is_some() {
                        return false;
                    }
                    let Some(name) = voters.pop_front() else {
                        self.stage = Stage::Leaving { again: *again };
                        continue;
                    };
                    let member = view.members.iter().find(|m| m.name() == name);
                    if let Some(at) = member.and_then(|m| endpoint(view, m)) {
                        let call = EtcdCall::Members { limit: *limit };
                        let ticket = desk.ask(Request::Etcd { at, call });
                        *asked = Some((ticket, name));
                        return false;
                    }
                }
                Stage::Leaving { again } => {
                    let again = *again;
                    let list = view.etcd.membership.as_ref().map(|seen| &seen.fact);
                    if self.waits_for(view, |m| list.is_none_or(|list| m.row_in(list).is_some())) {
                        return false;
                    }
                    if view.etcd.membership.is_none() && !again && voters(view).len() > self.asked {
                        self.stage = self.rank(view, true);
                        continue;
                    }
                    if view.etcd.membership.is_none() {
                        view.etcd.failure = self.failure.take().or_else(|| first_failure(view));
                    }
                    self.stage = Stage::Volumes { asked: None, volume: None };
                }
                Stage::Volumes { asked, volume } => {
                    if asked.is_some() {
                        return false;
                    }
                    let Some((index, name)) = self.volumes.front() else { return true };
                    let known = memory.stranded.get(name);
                    if let Some((_, known)) = known.filter(|(at, _)| now.saturating_sub(*at) < FRESH) {
                        view.members[*index].stranded = *known;
                        self.volumes.pop_front();
                        continue;
                    }
                    *asked = Some(desk.ask(match volume {
                        None => Request::Get { kind: Kind::Volume, name: name.clone() },
                        Some(_) => Request::List { kind: Kind::Node, cluster: None },
                    }));
                    return false;
                }
            }
        }
    }

    fn waits_for(&self, view: &ClusterView, matters: impl Fn(&MemberView) -> bool) -> bool {
        self.statuses.values().any(|&index| matters(&view.members[index]))
    }

    fn rank(&mut self, view: &ClusterView, again: bool) -> Stage {
        let voters: VecDeque<_> = voters(view).iter().map(|m| m.name().to_owned()).collect();
        self.asked = voters.len();
        let limit = is_minority(view, voters.len()).then_some(HASTE);
        Stage::List { voters, limit, asked: None, again }
    }
}

/// Whether it was another member of the cluster that answered: a Pod that has ended has given its address back, and a
/// neighbour may have it now. A member that is not on record yet is whoever answers, unless somebody else is on record as that.
fn is_anothers(view: &ClusterView, index: usize, status: &etcd::Status) -> bool {
    let is_recorded = |m: &MemberView| {
        let id = m.member.status.as_ref().and_then(|s| s.member_id.as_deref());
        id.and_then(ids::parse) == Some(status.member_id)
    };
    let mut others = view.members.iter().enumerate().filter(|(other, _)| *other != index);
    !is_recorded(&view.members[index]) && others.any(|(_, m)| is_recorded(m))
}

fn first_failure(view: &ClusterView) -> Option<etcd::Error> {
    view.members.iter().find_map(|m| m.etcd.as_ref()?.as_ref().err().cloned())
}
