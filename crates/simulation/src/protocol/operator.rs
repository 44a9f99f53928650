//! The operator's own decisions. A state is shown to [`planner::plan`] as the view the operator would have of it, and
//! the plan is read back as calls: no rule is written down a second time here, so none can differ.
//!
//! What is left out of the view: Services, the disruption budget and role labels, which do not move members. Members
//! were all created in the same second, so that the order the planner treats them in is that of their names; whether a
//! voter's row has been copied to its stored status is taken for granted, since it only decides when a new target is
//! taken up.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::conditions::wire_time;
use api::labels::annotation;
use api::{EtcdCluster, EtcdMember, ids, names};
use etcd::{Membership, Status};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateWaiting, ContainerStatus, PersistentVolumeClaim, Pod as KubePod,
    PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use planner::{Action, ClusterView, MemberView, Plan, Seen, Sightings};

use super::state::{Claim, Leaving, Member, Members, NAMES, Op, Pod, Row, State, Volume};
use super::variant::Variant;

/// The name of the seed.
const SEED: usize = 0;
const NAMESPACE: &str = "ns";
const CLUSTER: &str = "c";
const CLUSTER_ID: u64 = 0xc1;
const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Longer than any patience of the planner's.
const LONG: SignedDuration = SignedDuration::from_hours(24);
/// Shorter than `LONG`, longer than nothing.
const DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// The part of a state that the operator can see, and how long it has been looking.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Sight {
    members: [Member; NAMES],
    wanted: u8,
    target: u8,
    formed: bool,
    patience_is_over: bool,
}

/// The operator's mind. Asked the same thing again, it remembers the answer.
pub struct Operator {
    variant: Variant,
    /// `--max-learners` of the Pods; etcd before 3.6 has no such flag and takes one.
    max_learners: usize,
    remembered: Mutex<HashMap<Sight, Vec<Decided>>>,
}

/// A call that is decided; which free name a new member gets is settled last.
#[derive(Clone, Copy)]
pub(super) enum Decided {
    Create { seed: bool },
    Call(Op),
}

impl Operator {
    pub fn new(variant: Variant, max_learners: usize) -> Self {
        Self { variant, max_learners, remembered: Mutex::default() }
    }

    /// Views that were different enough to ask the planner for a plan.
    pub fn views(&self) -> usize {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What the operator would do now, call by call.
    pub fn decide(&self, state: &State, patience_is_over: bool) -> Vec<Op> {
        let sight = Sight {
            members: state.members.map(|m| Member { written: false, ..m }),
            wanted: state.wanted,
            target: state.target,
            formed: state.formed,
            patience_is_over,
        };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = remembered.entry(sight).or_insert_with_key(|sight| self.ask(sight));
        let settle = |decided: &Decided| match *decided {
            // The seed's name follows from the cluster's UID: it is the same on every try.
            Decided::Create { seed: true } if self.variant != Variant::SecondSeed => {
                Some(Op::Create { member: SEED, seed: true })
            }
            // A world with all its names in use grows no further.
            Decided::Create { seed } => state.free_name().map(|member| Op::Create { member, seed }),
            Decided::Call(op) => Some(op),
        };
        decided.iter().filter_map(settle).collect()
    }

    fn ask(&self, sight: &Sight) -> Vec<Decided> {
        let mut view = self.view(sight);
        self.variant.distort_view(&mut view);
        let now = if sight.patience_is_over { NOW + LONG } else { NOW };
        let plan = planner::plan(&view, now);
        let mut decided: Vec<_> = plan.actions.iter().filter_map(call).collect();
        self.variant.distort_calls(&sight.members, sight.formed, &mut decided);
        decided.extend(reports(sight, &plan).map(Decided::Call));
        decided
    }

    fn view(&self, sight: &Sight) -> ClusterView {
        let mut cluster = EtcdCluster::test(NAMESPACE, CLUSTER).replicas(i32::from(sight.target));
        if sight.target > 0 {
            cluster = if sight.formed { cluster.formed() } else { cluster.latched() };
            let status = cluster.status.get_or_insert_default();
            status.cluster_id = sight.formed.then(|| ids::format(CLUSTER_ID));
            status.progress_deadline = Some(wire_time(NOW + DEADLINE));
        }
        cluster.spec.replicas = Some(i32::from(sight.wanted));
        let etcd = Etcd::new(sight);
        let mut view = ClusterView {
            namespace: NAMESPACE.to_owned(),
            name: CLUSTER.to_owned(),
            members: (0..NAMES)
                .filter(|i| sight.members[*i].object)
                .map(|i| self.member(&cluster, &etcd, i, &sight.members[i]))
                .collect(),
            cluster: Some(cluster),
            ..ClusterView::default()
        };
        view.etcd.membership = etcd.list();
        view
    }

    fn member(&self, cluster: &EtcdCluster, etcd: &Etcd<'_>, index: usize, seen: &Member) -> MemberView {
        let mut member = cluster.member(&suffix(index));
        member.metadata.creation_timestamp = Some(wire_time(NOW));
        member.metadata.deletion_timestamp = (seen.leaving != Leaving::No).then(|| wire_time(NOW));
        member.spec.bootstrap = seen.seed;
        member.spec.initial_cluster = seen.told.map(initial_cluster).unwrap_or_default();
        let status = member.status.get_or_insert_default();
        status.member_id = seen.joined.then(|| ids::format(id(index)));
        status.is_voter = seen.row == Row::Voter;
        // That it was told to leave is on record at once; that this comes first is for the seeds to try.
        status.role = (seen.leaving != Leaving::No).then(|| "leaving".to_owned());
        status.pvc_uid = match seen.claim {
            Claim::Unknown => None,
            Claim::Same => Some(format!("claim-{index}")),
            Claim::Another => Some("another".to_owned()),
        };
        MemberView {
            pod: seen.pod.map(|pod| self.pod(&member, seen, pod, etcd.has_quorum())),
            volume: (seen.volume != Volume::None).then(|| PersistentVolumeClaim {
                metadata: owned(&member, names::pvc(&name(index)), format!("claim-{index}")),
                ..PersistentVolumeClaim::default()
            }),
            etcd: seen.pod.map(|_| match seen.up {
                true => Ok(etcd.status(index)),
                false => Err(etcd::Error::Unreachable { member: name(index) }),
            }),
            // Whoever is down has been for a while.
            seen: Sightings {
                silent: (!seen.up).then(|| SignedDuration::from_mins(5)),
                restarts: if seen.restarted { 100 } else { 0 },
                ..Sightings::default()
            },
            member,
            ..MemberView::default()
        }
    }

    fn pod(&self, member: &EtcdMember, seen: &Member, pod: Pod, quorum: bool) -> KubePod {
        let name = member.metadata.name.clone().unwrap_or_default();
        let state = if pod.new { "new" } else { "existing" };
        let command = vec![
            "etcd".to_owned(),
            format!("--initial-cluster={}", initial_cluster(pod.told)),
            format!("--initial-cluster-state={state}"),
            format!("--max-learners={}", self.max_learners),
        ];
        let etcd = Container { name: "etcd".to_owned(), command: Some(command), ..Container::default() };
        let ready = if seen.up && quorum { "True" } else { "False" };
        KubePod {
            metadata: owned(member, name.clone(), format!("pod-{name}")),
            spec: Some(PodSpec { containers: vec![etcd], ..PodSpec::default() }),
            status: Some(PodStatus {
                phase: Some("Running".to_owned()),
                pod_ip: Some("10.0.0.1".to_owned()),
                conditions: Some(vec![PodCondition {
                    type_: "Ready".to_owned(),
                    status: ready.to_owned(),
                    ..PodCondition::default()
                }]),
                container_statuses: Some(vec![ContainerStatus {
                    name: "etcd".to_owned(),
                    ready: seen.up,
                    restart_count: if seen.restarted { 100 } else { 0 },
                    state: (seen.restarted && !seen.up).then(|| ContainerState {
                        waiting: Some(ContainerStateWaiting {
                            reason: Some("CrashLoopBackOff".to_owned()),
                            message: None,
                        }),
                        ..ContainerState::default()
                    }),
                    ..ContainerStatus::default()
                }]),
                ..PodStatus::default()
            }),
        }
    }
}

/// What etcd says to the operator.
struct Etcd<'a>(&'a [Member; NAMES]);

impl<'a> Etcd<'a> {
    fn new(sight: &'a Sight) -> Self {
        Self(&sight.members)
    }

    fn voters(&self) -> Members {
        Members::of(|i| self.0[i].row == Row::Voter)
    }

    fn up(&self) -> Members {
        Members::of(|i| self.0[i].up)
    }

    fn has_quorum(&self) -> bool {
        self.voters().served_by(self.up())
    }

    fn status(&self, index: usize) -> Status {
        let leader = self.voters().and(self.up()).iter().next();
        Status {
            cluster_id: CLUSTER_ID,
            member_id: id(index),
            version: api::fixtures::VERSION.to_owned(),
            leader: leader.filter(|_| self.has_quorum()).map_or(0, id),
            is_learner: self.0[index].row == Row::Learner,
            db_size: 0,
            raft_term: 1,
            raft_applied_index: 1,
            errors: vec![],
        }
    }

    /// The linearizable list, if there is a quorum and a voter of it that can be asked.
    fn list(&self) -> Option<Seen<Membership>> {
        let askable = |i: &usize| self.0[*i].object && self.0[*i].pod.is_some();
        let from = self.voters().and(self.up()).iter().find(askable).filter(|_| self.has_quorum())?;
        let row = |i: usize| etcd::Member {
            id: id(i),
            name: if self.0[i].named { name(i) } else { String::new() },
            peer_urls: vec![peer_url(i)],
            is_learner: self.0[i].row == Row::Learner,
        };
        let members = (0..NAMES).filter(|i| self.0[*i].row != Row::None).map(row).collect();
        Some(Seen { fact: Membership { cluster_id: CLUSTER_ID, members }, from: name(from) })
    }
}

/// The statuses that the pass would write, if they say anything new.
fn reports(sight: &Sight, plan: &Plan) -> impl Iterator<Item = Op> {
    let status = |i| plan.member_statuses.get(&name(i));
    let news = |i: &usize| {
        let (member, Some(status)) = (&sight.members[*i], status(*i)) else { return false };
        status.member_id.is_some() != member.joined || claim(*i, status.pvc_uid.as_deref()) != member.claim
    };
    let members = (0..NAMES).any(|i| news(&i)).then(|| Op::ReportMembers {
        joined: Members::of(|i| status(i).is_some_and(|s| s.member_id.is_some())),
        claims: Members::of(|i| status(i).is_some_and(|s| claim(i, s.pvc_uid.as_deref()) == Claim::Same)),
        gone: Members::default(),
    });
    let cluster = plan.cluster_status.as_ref().and_then(|status| {
        let target = status.observed.as_ref().and_then(|o| u8::try_from(o.replicas).ok()).unwrap_or(0);
        let formed = status.cluster_id.is_some();
        ((target, formed) != (sight.target, sight.formed)).then_some(Op::ReportCluster { target, formed })
    });
    members.into_iter().chain(cluster)
}

fn claim(index: usize, stored: Option<&str>) -> Claim {
    match stored {
        None => Claim::Unknown,
        Some(uid) if *uid == format!("claim-{index}") => Claim::Same,
        Some(_) => Claim::Another,
    }
}

/// The call behind an action, if it moves a member.
fn call(action: &Action) -> Option<Decided> {
    let op = match action {
        Action::CreateMember(member) => return Some(Decided::Create { seed: member.spec.bootstrap }),
        Action::WireMember { name, initial_cluster, .. } => {
            Op::Wire { member: index(name)?, told: listed(initial_cluster) }
        }
        Action::DeleteMember { name, .. } => Op::Delete { member: index(name)? },
        Action::ReleaseMember { name, .. } => Op::Release { member: index(name)? },
        Action::CreateVolume(claim) => {
            let name = claim.metadata.name.as_deref()?.strip_prefix("data-")?;
            Op::CreateVolume { member: index(name)? }
        }
        Action::CreatePod(pod) => {
            Op::CreatePod { member: index(pod.metadata.name.as_deref()?)?, pod: flags(pod)? }
        }
        Action::DeletePod { name, .. } => Op::DeletePod { member: index(name)? },
        Action::AddLearner { member, .. } => Op::AddLearner { member: index(member)? },
        Action::Promote { member, .. } => Op::Promote { member: index(member)? },
        Action::RemoveFromEtcd { member, .. } | Action::RemoveOrphan { member, .. } => {
            Op::Remove { member: index(member)? }
        }
        // These move nobody.
        Action::CreateService(_)
        | Action::RepairService { .. }
        | Action::CreateBudget(_)
        | Action::ResizeBudget { .. }
        | Action::DeleteBudget { .. }
        | Action::AdoptMember { .. }
        | Action::ConfirmMember { .. }
        | Action::RetainMember { .. }
        | Action::WithdrawPod { .. }
        | Action::AdoptService { .. }
        | Action::AdoptBudget { .. }
        | Action::AdoptPod { .. }
        | Action::AdoptVolume { .. }
        | Action::SetDormant { .. }
        | Action::SeekLost { .. }
        | Action::LabelMember { .. }
        | Action::GuardMember { .. }
        | Action::LabelPod { .. }
        | Action::SettlePod { .. }
        | Action::MoveLeader { .. }
        | Action::PersistMembership => return None,
    };
    Some(Decided::Call(op))
}

/// What a Pod starts etcd with: a first Pod has it in its annotations, a later one in its command.
fn flags(pod: &KubePod) -> Option<Pod> {
    let command = planner::etcd_container(pod)?.command.as_ref()?;
    let value = |annotation: &str, flag: &str| {
        let noted = pod.metadata.annotations.as_ref().and_then(|notes| notes.get(annotation));
        noted.map(String::as_str).or_else(|| command.iter().find_map(|given| given.strip_prefix(flag)))
    };
    let told = value(annotation::INITIAL_CLUSTER, "--initial-cluster=")?;
    let state = value(annotation::INITIAL_CLUSTER_STATE, "--initial-cluster-state=")?;
    Some(Pod { told: listed(told), new: state == "new" })
}

fn initial_cluster(members: Members) -> String {
    let entries: Vec<_> = members.iter().map(|i| format!("{}={}", name(i), peer_url(i))).collect();
    entries.join(",")
}

fn listed(initial_cluster: &str) -> Members {
    Members::of(|i| initial_cluster.split(',').any(|entry| entry == format!("{}={}", name(i), peer_url(i))))
}

fn owned(member: &EtcdMember, name: String, uid: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(NAMESPACE.to_owned()),
        uid: Some(uid),
        owner_references: member.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn suffix(index: usize) -> String {
    format!("m{index}")
}

fn name(index: usize) -> String {
    format!("{}{}", names::member_prefix(CLUSTER), suffix(index))
}

fn index(name: &str) -> Option<usize> {
    (0..NAMES).find(|i| self::name(*i) == name)
}

fn id(index: usize) -> u64 {
    index as u64 + 1
}

fn peer_url(index: usize) -> String {
    names::peer_url(false, &name(index), CLUSTER, NAMESPACE)
}
