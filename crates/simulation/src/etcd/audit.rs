//! What etcd itself can not know but the world must: what was promised to users, which volumes carried it, and whether one
//! history became two. The model's behaviour never depends on any of this.

use std::collections::{BTreeMap, BTreeSet};

use super::process::Process;
use super::store::{Data, Keys};
use super::{DiskId, Etcds, Millis, ProcessId};

/// A cluster was formed: `new` on an empty disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formation {
    pub at: Millis,
    pub process: ProcessId,
    pub disk: DiskId,
    pub token: String,
    pub cluster: u64,
    pub member: u64,
    /// Something had been acknowledged to a user of a cluster of this id before.
    pub over_acknowledged: bool,
    /// Voters of a cluster of this id had their data elsewhere.
    pub impostor: bool,
}

/// A member that had run before joined again without its data (T7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amnesia {
    pub at: Millis,
    pub process: ProcessId,
    pub disk: DiskId,
    pub cluster: u64,
    pub member: u64,
    pub voter: bool,
}

/// Two different entries were committed at one index of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    pub at: Millis,
    pub cluster: u64,
    pub index: u64,
}

/// The volumes behind the voters of a cluster's newest configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volumes {
    pub voters: usize,
    pub surviving: usize,
}

impl Volumes {
    pub fn is_quorum(&self) -> bool {
        self.voters > 0 && self.surviving > self.voters / 2
    }
}

/// Acknowledged writes that a cluster can not give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrites {
    pub cluster: u64,
    pub keys: Vec<u64>,
    /// When the volumes of a quorum had been destroyed. `None`: they never were, so there is no excuse.
    pub disaster: Option<Millis>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    /// Per cluster the ids of the committed entries.
    committed: BTreeMap<u64, Vec<u64>>,
    acknowledged: BTreeMap<u64, Keys>,
    /// Per cluster the index and the voters of the newest configuration.
    voters: BTreeMap<u64, (u64, BTreeSet<u64>)>,
    /// Where each member keeps what it has promised: a disk, and how often it had been wiped by then.
    homes: BTreeMap<(u64, u64), (DiskId, u64)>,
    disasters: BTreeMap<u64, Millis>,
    formations: Vec<Formation>,
    amnesia: Vec<Amnesia>,
    splits: BTreeMap<u64, Split>,
}

impl Audit {
    pub fn form(&mut self, now: Millis, process: &Process, data: &Data) {
        let over = self.acknowledged.get(&data.cluster).is_some_and(|keys| !keys.is_empty());
        self.formations.push(Formation {
            at: now,
            process: process.id.clone(),
            disk: process.disk.clone(),
            token: process.flags.token.clone(),
            cluster: data.cluster,
            member: data.member,
            over_acknowledged: over,
            impostor: data.impostor,
        });
        if data.impostor {
            return;
        }
        // The same name and token give the same ids: what is known of a life before is not about this one.
        self.voters.remove(&data.cluster);
        self.homes.retain(|(cluster, _), _| *cluster != data.cluster);
    }

    pub fn join(&mut self, now: Millis, process: &Process, data: &Data) {
        if !data.impostor && self.homes.contains_key(&(data.cluster, data.member)) {
            self.amnesia.push(Amnesia {
                at: now,
                process: process.id.clone(),
                disk: process.disk.clone(),
                cluster: data.cluster,
                member: data.member,
                voter: data.told.get(&data.member).is_some_and(|row| !row.learner),
            });
        }
    }

    /// A voter's home is the first one: what it promised there is not kept anywhere else.
    pub fn settle(&mut self, process: &Process, data: &Data, generation: u64) {
        if data.impostor {
            return;
        }
        let member = (data.cluster, data.member);
        let promised = data.told.get(&data.member).is_none_or(|row| !row.learner);
        if !promised || !self.homes.contains_key(&member) {
            self.homes.insert(member, (process.disk.clone(), generation));
        }
    }

    /// What an impostor acknowledges was written to nobody's cluster.
    pub fn acknowledge(&mut self, data: &Data, key: u64) {
        if data.impostor {
            return;
        }
        let cluster = data.cluster;
        self.acknowledged.entry(cluster).or_default().insert(key);
    }

    /// A leader commits up to `index`.
    pub fn commit(&mut self, now: Millis, data: &Data, index: u64) {
        if data.impostor {
            let split = Split { at: now, cluster: data.cluster, index };
            self.splits.entry(data.cluster).or_insert(split);
            return;
        }
        let history = self.committed.entry(data.cluster).or_default();
        for index in data.commit.min(history.len() as u64) + 1..=index {
            let Some(entry) = data.log.get(index) else { continue };
            let at = (index - 1) as usize;
            match history.get(at) {
                Some(known) if *known == entry.id || *known == 0 => history[at] = entry.id,
                Some(_) => {
                    let split = Split { at: now, cluster: data.cluster, index };
                    self.splits.entry(data.cluster).or_insert(split);
                    history.truncate(at);
                    history.push(entry.id);
                }
                None => {
                    history.resize(at, 0);
                    history.push(entry.id);
                }
            }
        }
    }

    pub fn configure(&mut self, data: &Data) {
        if data.impostor {
            return;
        }
        let newest = self.voters.entry(data.cluster).or_default();
        if data.state.index >= newest.0 {
            newest.0 = data.state.index;
            if !newest.1.iter().copied().eq(data.state.voters()) {
                newest.1 = data.state.voters().collect();
            }
        }
    }
}

impl Etcds {
    /// The ids of all clusters that were ever formed and not forgotten.
    pub fn clusters(&self) -> impl Iterator<Item = u64> {
        self.audit.voters.keys().copied()
    }

    /// The cluster and member id of a process that has come up.
    pub fn identity(&self, process: &ProcessId) -> Option<(u64, u64)> {
        let process = &self.processes[self.index(process)?];
        process.booted().then_some((process.data.cluster, process.data.member))
    }

    /// Whether it has formed a cluster of its own under the ids of one that lives elsewhere.
    pub fn is_impostor(&self, process: &ProcessId) -> bool {
        self.index(process).is_some_and(|at| self.processes[at].data.impostor)
    }

    /// Where a member still has what it has promised.
    pub fn home(&self, (cluster, member): (u64, u64)) -> Option<&DiskId> {
        let (home, generation) = self.audit.homes.get(&(cluster, member))?;
        let sound = self.disks.get(home).is_some_and(|disk| disk.generation == *generation && !disk.corrupt);
        sound.then_some(home)
    }

    /// Disks that hold what voters of a cluster have promised.
    pub fn homes(&self, cluster: u64) -> impl Iterator<Item = &DiskId> {
        let voters = self.voters(cluster);
        let homes = self.audit.homes.iter();
        let of = homes.filter(move |((known, member), _)| *known == cluster && voters.contains(member));
        of.filter_map(|(_, (home, generation))| {
            self.disks.get(home).is_some_and(|disk| disk.generation == *generation).then_some(home)
        })
    }

    /// Who serves now, as cluster and member.
    pub fn serving_members(&self) -> impl Iterator<Item = (u64, u64)> {
        let serving = self.processes.iter().filter(|process| process.serves() && !process.data.impostor);
        serving.map(|process| (process.data.cluster, process.data.member))
    }

    /// Whether every host reaches every other.
    pub fn network_is_whole(&self) -> bool {
        self.network.is_whole()
    }

    /// Whether a voter was killed before it had written down the last change, and waits for somebody who is out.
    pub fn forgets(&self, cluster: u64) -> bool {
        let newest = self.voters(cluster);
        let members = self.processes.iter().filter(|process| process.data.cluster == cluster);
        let mut voters = members.filter(|process| newest.contains(&process.data.member));
        voters.any(|process| process.data.config.voters().any(|id| !newest.contains(&id)))
    }

    /// The voters of the newest configuration that was committed.
    pub fn voters(&self, cluster: u64) -> Vec<u64> {
        self.audit
            .voters
            .get(&cluster)
            .map(|(_, voters)| voters.iter().copied().collect())
            .unwrap_or_default()
    }

    /// The leaders that have a quorum behind them, newest first. More than one is a split.
    pub fn leaders(&self, cluster: u64) -> Vec<ProcessId> {
        let mut leaders: Vec<&Process> = (0..self.processes.len())
            .filter(|&at| {
                let process = &self.processes[at];
                process.data.cluster == cluster
                    && !process.data.impostor
                    && process.leads.is_some()
                    && self.confirmed_leader(at).is_some()
            })
            .map(|at| &self.processes[at])
            .collect();
        leaders.sort_by_key(|process| std::cmp::Reverse(process.data.term));
        leaders.into_iter().map(|process| process.id.clone()).collect()
    }

    /// Whether writes can be committed, and how many voters serve clients.
    pub fn quorum_serves(&self, cluster: u64) -> bool {
        let voters = self.voters(cluster);
        let serving = self.processes.iter().filter(|process| {
            process.serves()
                && !process.data.impostor
                && process.data.cluster == cluster
                && voters.contains(&process.data.member)
        });
        serving.count() > voters.len() / 2 && !self.leaders(cluster).is_empty()
    }

    /// The user has deleted the cluster: nothing is expected of it any more.
    pub fn forget_cluster(&mut self, cluster: u64) {
        self.audit.acknowledged.remove(&cluster);
        self.audit.voters.remove(&cluster);
        self.audit.committed.remove(&cluster);
        self.audit.homes.retain(|(known, _), _| *known != cluster);
    }

    pub fn acknowledged(&self, cluster: u64) -> Option<&Keys> {
        self.audit.acknowledged.get(&cluster)
    }

    pub fn formations(&self) -> &[Formation] {
        &self.audit.formations
    }

    /// Formations that are one too many: under a token that had formed another cluster before, or of a member that had
    /// been formed before.
    pub fn formed_again(&self) -> impl Iterator<Item = &Formation> {
        let all = &self.audit.formations;
        all.iter().enumerate().filter_map(move |(nth, formation)| {
            let before = |first: &Formation| {
                first.token == formation.token
                    && (first.cluster != formation.cluster || first.member == formation.member)
            };
            all[..nth].iter().any(before).then_some(formation)
        })
    }

    pub fn amnesia(&self) -> &[Amnesia] {
        &self.audit.amnesia
    }

    /// Clusters with two histories.
    pub fn splits(&self) -> impl Iterator<Item = &Split> {
        self.audit.splits.values()
    }

    /// How many of the voters' volumes still hold what their voters have promised.
    pub fn volumes(&self, cluster: u64) -> Volumes {
        let voters = self.voters(cluster);
        let survives = |member: &&u64| {
            self.audit.homes.get(&(cluster, **member)).is_some_and(|(home, generation)| {
                self.disks.get(home).is_some_and(|disk| disk.generation == *generation && !disk.corrupt)
            })
        };
        Volumes { voters: voters.len(), surviving: voters.iter().filter(survives).count() }
    }

    /// When the volumes of a quorum had been destroyed, if they ever were.
    pub fn disaster(&self, cluster: u64) -> Option<Millis> {
        self.audit.disasters.get(&cluster).copied()
    }

    pub(super) fn notice_destruction(&mut self) {
        let clusters: Vec<u64> = self.clusters().collect();
        for cluster in clusters {
            if !self.volumes(cluster).is_quorum() {
                self.audit.disasters.entry(cluster).or_insert(self.clock);
            }
        }
    }

    /// Acknowledged writes that are gone: a leader that can commit does not have them, or, without such a leader, no
    /// volume has them.
    pub fn lost_writes(&self) -> Vec<LostWrites> {
        let lost = self.audit.acknowledged.iter().filter_map(|(&cluster, acknowledged)| {
            let keys = self.lost_keys(cluster, acknowledged);
            let disaster = self.audit.disasters.get(&cluster).copied();
            (!keys.is_empty()).then_some(LostWrites { cluster, keys, disaster })
        });
        lost.collect()
    }

    fn lost_keys(&self, cluster: u64, acknowledged: &Keys) -> Vec<u64> {
        let leader = self.leaders(cluster).first().and_then(|id| self.index(id));
        let copies: Vec<&Data> = match leader {
            Some(at) => vec![&self.processes[at].data],
            None => self.copies(cluster).collect(),
        };
        if copies.iter().any(|data| acknowledged.is_subset(&data.state.keys)) {
            return Vec::new();
        }
        acknowledged.iter().filter(|&key| !copies.iter().any(|data| data.holds(key))).collect()
    }

    fn copies(&self, cluster: u64) -> impl Iterator<Item = &Data> {
        let sound = |disk: &DiskId| self.disks.get(disk).is_some_and(|d| !d.corrupt && !d.doomed);
        let running = self.processes.iter().filter(move |p| p.booted() && sound(&p.disk)).map(|p| &p.data);
        let resting = self.disks.values().filter(|disk| !disk.corrupt).filter_map(|disk| disk.data.as_ref());
        running.chain(resting).filter(move |data| data.cluster == cluster && !data.impostor)
    }
}
