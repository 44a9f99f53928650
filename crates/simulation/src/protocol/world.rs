//! What happens in the world: calls of the operator taking effect, members starting, faults. etcd and the API server are
//! as adversarial as they may be: a learner gets its vote with the last write missing, a write is on no more volumes than
//! it has to be, and a call that was given up lands whenever it hurts most.

use super::state::{Claim, Leaving, Member, Members, Op, Row, State, Volume};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Refused,
    /// etcd has a quorum, but has not brought it up to date: the entry of this call can not be committed before the
    /// entries in front of it.
    NotYet,
}

/// What etcd itself refuses.
#[derive(Clone, Copy, Debug)]
pub struct Etcd {
    /// `--strict-reconfig-check`, on unless switched off.
    pub strict: bool,
    pub max_learners: usize,
}

impl State {
    /// Carries out a call that was decided when `seen` served.
    pub fn carry_out(&mut self, etcd: Etcd, op: Op, seen: Members) -> Outcome {
        match op {
            Op::AddLearner { .. } | Op::AddVoter { .. } | Op::Promote { .. } | Op::Remove { .. } => {
                self.change_membership(etcd, op, seen)
            }
            Op::ReportMembers { joined, claims, gone } => {
                self.report(joined, claims, gone);
                Outcome::Done
            }
            Op::ReportCluster { target, formed } => {
                (self.target, self.formed) = (target, formed);
                Outcome::Done
            }
            _ => self.change_object(op, seen),
        }
    }

    fn report(&mut self, joined: Members, claims: Members, gone: Members) {
        for (i, member) in self.members.iter_mut().enumerate().filter(|(_, m)| m.object) {
            member.joined |= joined.has(i);
            if gone.has(i) {
                member.claim = Claim::Another;
            } else if claims.has(i) {
                member.claim = Claim::Same;
            }
        }
    }

    fn change_object(&mut self, op: Op, seen: Members) -> Outcome {
        let Some(index) = op.member() else { return Outcome::Refused };
        let had_quorum = self.has_quorum();
        let member = &mut self.members[index];
        let possible = match op {
            Op::Create { .. } => !member.object,
            Op::CreateVolume { .. } => member.object && member.volume == Volume::None,
            Op::CreatePod { .. } => member.object && member.pod.is_none(),
            Op::Release { .. } => member.object && member.leaving != Leaving::No,
            _ => member.object,
        };
        if !possible {
            return Outcome::Refused;
        }
        match op {
            Op::Create { seed, .. } => {
                let told = seed.then(|| Members::only(index));
                *member = Member { object: true, seed, told, ..*member };
            }
            Op::Wire { told, .. } => member.told = Some(told),
            Op::Delete { .. } if member.leaving == Leaving::No => member.leaving = Leaving::Decided,
            Op::CreateVolume { .. } => member.volume = Volume::Blank,
            Op::CreatePod { pod, .. } => member.pod = Some(pod),
            Op::DeletePod { .. } => {
                member.end_pod();
                if had_quorum {
                    self.blame(seen.without(index));
                }
            }
            Op::Release { .. } => self.release(index),
            _ => {}
        }
        Outcome::Done
    }

    /// The finalizer goes, and the garbage collector takes the Pod and the volume.
    fn release(&mut self, index: usize) {
        let member = &mut self.members[index];
        if !self.formed {
            // The user deleted the seed before anybody had heard of its cluster: that cluster never was.
            member.remove();
        }
        self.harm.volume |= member.volume == Volume::Data && member.row == Row::Voter;
        // At once, which is the worst: nobody is saved by a slow collector.
        *member = Member { row: member.row, named: member.named, ..Member::default() };
    }

    fn change_membership(&mut self, etcd: Etcd, op: Op, seen: Members) -> Outcome {
        let Some(index) = op.member() else { return Outcome::Refused };
        if !self.has_quorum() || !self.etcd_agrees(etcd, op, index) {
            return Outcome::Refused;
        }
        let up_to_date = self.which(|m| m.up && (m.written || !self.acknowledged));
        if !self.voters().served_by(up_to_date) {
            return Outcome::NotYet;
        }
        let member = &mut self.members[index];
        match op {
            Op::AddLearner { .. } => (member.row, member.named) = (Row::Learner, false),
            Op::AddVoter { .. } => (member.row, member.named) = (Row::Voter, false),
            Op::Promote { .. } => member.row = Row::Voter,
            _ => member.remove(),
        }
        self.blame(seen);
        Outcome::Done
    }

    /// The checks etcd makes before it proposes a change. That a learner answers is not among them: the leader only
    /// remembers how far it had come.
    fn etcd_agrees(&self, etcd: Etcd, op: Op, index: usize) -> bool {
        let member = &self.members[index];
        let voters = self.voters();
        match op {
            Op::AddLearner { .. } => {
                member.row == Row::None && self.which(|m| m.row == Row::Learner).count() < etcd.max_learners
            }
            Op::AddVoter { .. } => member.row == Row::None,
            Op::Promote { .. } => member.row == Row::Learner && member.volume == Volume::Data,
            _ if member.row != Row::Voter => member.row == Row::Learner,
            _ => {
                let others = voters.without(index);
                let started = self.which(|m| m.named).and(others).count();
                let connected = voters.and(self.up()).count();
                !etcd.strict
                    || (started >= others.quorum() && (!member.up || connected > 1 + others.count() / 2))
            }
        }
    }

    /// Whether a call of ours has just cost a quorum that was there. Who fell silent after the call was decided is not
    /// held against it.
    fn blame(&mut self, seen: Members) {
        let voters = self.voters();
        let able = self.up().or(seen);
        self.harm.quorum |= !voters.is_empty() && !voters.served_by(able);
    }

    /// The kubelet has tried often enough to start an etcd that can not run.
    pub fn despair(&mut self, index: usize) -> bool {
        let member = &self.members[index];
        let tried = member.pod.is_some() && !member.up && !member.restarted && member.volume != Volume::None;
        let hopeless = tried && !self.clone().start(index);
        self.members[index].restarted |= hopeless;
        hopeless
    }

    /// The kubelet starts a Pod's etcd. False if it can not run.
    pub fn start(&mut self, index: usize) -> bool {
        let member = &self.members[index];
        let Some(pod) = member.pod.filter(|_| !member.up && !member.looping) else { return false };
        let rows = self.rows();
        let forms = pod.new && member.volume == Volume::Blank;
        let joins = pod.told == rows && rows.has(index) && !rows.without(index).and(self.up()).is_empty();
        match member.volume {
            // The flags are ignored once there is a log.
            Volume::Data if rows.has(index) => {}
            Volume::Blank if forms && (self.formed || !rows.is_empty()) => {
                let again = !self.harm.bootstrap;
                self.harm.bootstrap = true;
                return again;
            }
            Volume::Blank if forms => self.members[index].row = Row::Voter,
            Volume::Blank if joins && !pod.new => self.harm.blank |= self.members[index].row == Row::Voter,
            _ => return false,
        }
        let member = &mut self.members[index];
        (member.up, member.volume) = (true, Volume::Data);
        member.named |= forms;
        true
    }

    /// Members that run tell the cluster their names as soon as there is a quorum to remember them.
    pub fn publish(&mut self) {
        if self.has_quorum() {
            self.members.iter_mut().filter(|m| m.up).for_each(|m| m.named = true);
        }
    }

    /// The leader brings a member up to date.
    pub fn replicate(&mut self, index: usize) -> bool {
        let member = &self.members[index];
        let source = !self.voters().and(self.which(|m| m.up && m.written)).is_empty();
        let news = member.up && !member.written && self.acknowledged && source && self.has_quorum();
        self.members[index].written |= news;
        news
    }

    pub fn lose_volume(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.end_pod();
        (member.volume, member.written) = (Volume::None, false);
        if member.claim == Claim::Same {
            member.claim = Claim::Another;
        }
        for op in &mut self.plan {
            if let Op::ReportMembers { claims, gone, .. } = op
                && claims.has(index)
            {
                (*claims, *gone) = (claims.without(index), gone.with(index));
            }
        }
        if !self.formed {
            // With its only disk goes a cluster that nobody has heard of.
            self.members[index].remove();
        }
        let intact = self.which(|m| m.volume == Volume::Data);
        self.excused |= self.acknowledged && !self.voters().served_by(intact);
    }

    /// Whether a client could read etcd without its acknowledged write, or find it nowhere.
    pub fn has_lost_the_write(&self) -> bool {
        let voters = self.voters();
        let unaware = self.which(|m| m.volume == Volume::Data && !m.written);
        let nowhere = self.which(|m| m.written).is_empty();
        self.acknowledged && !self.excused && (voters.served_by(unaware) || nowhere)
    }
}

impl Member {
    /// The Pod is gone, and with it all that the kubelet knew.
    pub fn end_pod(&mut self) {
        self.pod = None;
        (self.up, self.looping, self.restarted) = (false, false, false);
    }

    /// etcd takes the member off its list; its process ends and its log is worth nothing.
    fn remove(&mut self) {
        (self.row, self.named, self.up) = (Row::None, false, false);
        if self.volume == Volume::Data {
            (self.volume, self.written) = (Volume::Removed, false);
        }
    }
}
