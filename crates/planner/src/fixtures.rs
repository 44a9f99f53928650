//! A small world for tests: views built from values, and actions that come true at once. What it can not do (time,
//! failures, races) is the business of a simulation.

use api::{EtcdCluster, EtcdMember, labels, names};
use etcd::{Membership, Status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateWaiting, ContainerStatus, PersistentVolumeClaim, Pod, PodCondition,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};

use crate::{Action, ClusterView, MemberView, Plan, Seen, plan};

/// Well after every fixture was created.
pub(crate) fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

/// A cluster with its members, where everything that is planned happens.
#[derive(Clone)]
pub(crate) struct World {
    pub view: ClusterView,
    serial: u64,
    stopped: Vec<etcd::Member>,
}

impl World {
    pub fn new(cluster: EtcdCluster) -> Self {
        let view = ClusterView {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            cluster: Some(cluster),
            entropy: 7,
            ..ClusterView::default()
        };
        Self { view, serial: 100, stopped: vec![] }
    }

    /// A cluster of the wanted size, at rest.
    pub fn settled(cluster: EtcdCluster) -> Self {
        let mut world = Self::new(cluster);
        world.settle();
        world
    }

    pub fn plan(&self) -> Plan {
        plan(&self.view, now())
    }

    /// One pass: everything planned comes true. Returns what was done.
    pub fn pass(&mut self) -> Vec<Action> {
        let plan = self.plan();
        for action in &plan.actions {
            self.apply(action);
        }
        for member in &mut self.view.members {
            if let Some(status) = plan.member_statuses.get(member.name()) {
                member.member.status = Some(status.clone());
            }
        }
        if let (Some(cluster), Some(status)) = (&mut self.view.cluster, plan.cluster_status) {
            cluster.status = Some(status);
        }
        self.view.entropy += 1;
        plan.actions
    }

    /// Changes the number of members the user asks for and lets it happen.
    pub fn scale(&mut self, replicas: i32) -> Vec<Action> {
        self.view.cluster.as_mut().unwrap().spec.replicas = Some(replicas);
        self.settle()
    }

    /// Asks for that many members, and has the target taken up already.
    pub fn aim_at(&mut self, replicas: i32) {
        let cluster = self.view.cluster.as_mut().unwrap();
        cluster.spec.replicas = Some(replicas);
        cluster.status.as_mut().unwrap().observed.as_mut().unwrap().replicas = replicas;
    }

    /// Passes until nothing is left to do. Returns everything that was done.
    pub fn settle(&mut self) -> Vec<Action> {
        let mut all = vec![];
        for _ in 0..100 {
            let before = (self.view.cluster.clone(), self.member_objects());
            let done = self.pass();
            let quiet = done.is_empty() && before == (self.view.cluster.clone(), self.member_objects());
            all.extend(done);
            if quiet {
                return all;
            }
        }
        panic!("still busy after 100 passes: {:#?}", self.plan());
    }

    fn member_objects(&self) -> Vec<EtcdMember> {
        self.view.members.iter().map(|m| m.member.clone()).collect()
    }

    pub fn member(&mut self, index: usize) -> &mut MemberView {
        &mut self.view.members[index]
    }

    pub fn status(&self) -> api::EtcdClusterStatus {
        self.plan().cluster_status.unwrap_or_default()
    }

    /// The condition as `status/reason`.
    pub fn condition(&self, type_: &str) -> String {
        let status = self.status();
        let found = api::conditions::find(&status.conditions, type_);
        found.map_or_else(String::new, |c| format!("{}/{}", c.status, c.reason))
    }

    pub fn rows(&mut self) -> &mut Vec<etcd::Member> {
        let name = self.view.members.first().map(|m| m.name().to_owned()).unwrap_or_default();
        let empty = Seen { fact: Membership { cluster_id: 0xc1, members: vec![] }, from: name };
        &mut self.view.etcd.membership.get_or_insert(empty).fact.members
    }

    pub fn membership(&mut self) -> &Membership {
        self.rows();
        &self.view.etcd.membership.as_ref().unwrap().fact
    }

    /// etcd stops answering, Pods stay as they are.
    pub fn silence_etcd(&mut self) {
        self.view.etcd.membership = None;
        for member in &mut self.view.members {
            member.etcd = Some(Err(etcd::Error::Unreachable { member: member.name().to_owned() }));
        }
    }

    fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::CreateService(service) if service.name_any() == self.view.name => {
                self.view.headless_service = Some((**service).clone());
            }
            Action::CreateService(service) => self.view.client_service = Some((**service).clone()),
            Action::RepairService { .. } => panic!("nothing to repair in a world of one's own: {action:?}"),
            Action::CreateBudget(budget) => self.view.budget = Some((**budget).clone()),
            Action::ResizeBudget { min_available, .. } => {
                let spec = self.view.budget.as_mut().unwrap().spec.as_mut().unwrap();
                spec.min_available = Some(IntOrString::Int(*min_available));
                spec.max_unavailable = None;
            }
            Action::DeleteBudget { .. } => self.view.budget = None,
            Action::AdoptMember { name, owners, .. } => {
                self.find(name).member.metadata.owner_references = Some(owners.clone());
            }
            Action::AdoptService { name, owners, .. } => {
                let services = [&mut self.view.headless_service, &mut self.view.client_service];
                let found = services.into_iter().flatten().find(|s| s.name_any() == *name);
                found.unwrap().metadata.owner_references = Some(owners.clone());
            }
            Action::AdoptBudget { owners, .. } => {
                self.view.budget.as_mut().unwrap().metadata.owner_references = Some(owners.clone());
            }
            Action::AdoptPod { name, owners, .. } => {
                self.find(name).pod.as_mut().unwrap().metadata.owner_references = Some(owners.clone());
            }
            Action::AdoptVolume { name, owners, .. } => {
                let member = names::member_of_pvc(name).unwrap();
                self.find(member).volume.as_mut().unwrap().metadata.owner_references = Some(owners.clone());
            }
            Action::ConfirmMember { name, cluster, .. } => {
                let notes = self.find(name).member.metadata.annotations.get_or_insert_default();
                notes.insert(labels::annotation::ADOPTED_BY.to_owned(), cluster.clone());
            }
            Action::RetainMember { name, .. } => {
                let notes = self.find(name).member.metadata.annotations.get_or_insert_default();
                notes.remove(labels::annotation::TAKEN_OUT);
            }
            Action::SetDormant { name, dormant, confirmed, .. } => {
                let member = &mut self.find(name).member;
                member.spec.dormant = *dormant;
                let notes = member.metadata.annotations.get_or_insert_default();
                notes.insert(labels::annotation::HAS_DATA.to_owned(), crate::has_data(*confirmed).to_owned());
            }
            Action::DeletePod { name, .. } => {
                let member = self.find(name);
                member.pod = None;
                member.etcd = None;
                if self.view.members.iter().all(|m| m.pod.is_none()) {
                    self.stopped = self.rows().clone();
                    self.view.etcd.membership = None;
                }
            }
            Action::MoveLeader { .. } | Action::PersistMembership | Action::SeekLost { .. } => {}
            Action::CreateMember(member) => {
                let mut member = (**member).clone();
                member.metadata.uid = Some(format!("uid-{}", self.next()));
                member.metadata.creation_timestamp = Some(api::conditions::wire_time(now()));
                self.view.members.push(MemberView { member, ..MemberView::default() });
            }
            Action::WireMember { name, initial_cluster, .. } => {
                self.find(name).member.spec.initial_cluster.clone_from(initial_cluster);
            }
            Action::DeleteMember { name, .. } => {
                let at = api::conditions::wire_time(now());
                self.find(name).member.metadata.deletion_timestamp = Some(at);
            }
            Action::LabelMember { name, labels, .. } => {
                self.find(name).member.metadata.labels = Some(labels.clone());
            }
            Action::GuardMember { name, finalizers, .. } => {
                self.find(name).member.metadata.finalizers = Some(finalizers.clone());
            }
            Action::ReleaseMember { name, .. } => self.view.members.retain(|m| m.name() != name),
            Action::CreateVolume(claim) => self.bind(claim),
            Action::CreatePod(pod) => self.start(pod),
            Action::LabelPod { name, voter, .. } => {
                let pod = self.find(name).pod.as_mut().unwrap();
                if *voter {
                    pod.labels_mut().insert(labels::ROLE.into(), labels::VOTER.into());
                } else {
                    pod.labels_mut().remove(labels::ROLE);
                }
            }
            Action::WithdrawPod { name, .. } => {
                let member = self.find(name);
                let annotations = member.pod.as_mut().unwrap().annotations_mut();
                annotations.insert(
                    labels::annotation::INITIAL_CLUSTER_STATE.into(),
                    crate::command::WITHDRAWN.into(),
                );
                member.seen.withdrawn = Some(jiff::SignedDuration::from_mins(1));
            }
            Action::SettlePod { name, initial_cluster, .. } => {
                let annotations = self.find(name).pod.as_mut().unwrap().annotations_mut();
                annotations.insert(labels::annotation::INITIAL_CLUSTER.into(), initial_cluster.clone());
                annotations.insert(labels::annotation::INITIAL_CLUSTER_STATE.into(), "existing".into());
            }
            Action::AddLearner { peer_url, .. } => {
                let id = self.next();
                let row = etcd::Member {
                    id,
                    name: String::new(),
                    peer_urls: vec![peer_url.clone()],
                    is_learner: true,
                };
                self.rows().push(row);
            }
            Action::Promote { id, .. } => {
                for row in self.rows().iter_mut().filter(|r| r.id == *id) {
                    row.is_learner = false;
                }
            }
            Action::RemoveFromEtcd { id, .. } | Action::RemoveOrphan { id, .. } => {
                self.rows().retain(|r| r.id != *id);
            }
        }
    }

    fn find(&mut self, name: &str) -> &mut MemberView {
        self.view.members.iter_mut().find(|m| m.name() == name).unwrap()
    }

    fn bind(&mut self, claim: &PersistentVolumeClaim) {
        let uid = format!("uid-{}", self.next());
        let owner = self.view.members.iter_mut().find(|m| names::pvc(m.name()) == claim.name_any()).unwrap();
        let mut claim = claim.clone();
        claim.metadata.uid = Some(uid);
        owner.volume = Some(claim);
    }

    /// The Pod runs, is ready, and its etcd serves; a seed forms its cluster.
    fn start(&mut self, pod: &Pod) {
        let (uid, id) = (format!("uid-{}", self.next()), self.next());
        let member = self.find(&pod.name_any());
        let (name, url, seed) = (member.name().to_owned(), member.peer_url(), member.member.spec.bootstrap);
        member.pod = Some(ready_pod(pod.clone(), &uid));
        // What etcd finds on a volume: the membership it was stopped with, or nothing.
        let stopped = self.stopped.clone();
        let rows = self.rows();
        if rows.is_empty() && !stopped.is_empty() {
            *rows = stopped;
        }
        if seed && rows.is_empty() {
            rows.push(etcd::Member {
                id,
                name: name.clone(),
                peer_urls: vec![url.clone()],
                is_learner: false,
            });
        }
        let row = rows.iter_mut().find(|r| r.peer_urls.contains(&url)).unwrap();
        row.name.clone_from(&name);
        let status = serving(row);
        self.find(&name).etcd = Some(Ok(status));
    }
}

/// What a healthy member answers.
pub(crate) fn serving(row: &etcd::Member) -> Status {
    Status {
        cluster_id: 0xc1,
        member_id: row.id,
        version: api::fixtures::VERSION.to_owned(),
        leader: 1,
        is_learner: row.is_learner,
        db_size: 0,
        raft_term: 1,
        raft_applied_index: 1,
        errors: vec![],
    }
}

fn ready_pod(mut pod: Pod, uid: &str) -> Pod {
    pod.metadata.uid = Some(uid.to_owned());
    pod.status = Some(PodStatus {
        phase: Some("Running".into()),
        pod_ip: Some("10.0.0.1".into()),
        conditions: Some(vec![PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            ..PodCondition::default()
        }]),
        container_statuses: Some(vec![ContainerStatus { name: "etcd".into(), ..ContainerStatus::default() }]),
        ..PodStatus::default()
    });
    pod
}

/// Takes a Pod's readiness away.
pub(crate) fn unready(pod: &mut Pod) {
    for condition in pod.status.iter_mut().flat_map(|s| s.conditions.iter_mut().flatten()) {
        condition.status = "False".into();
    }
}

/// etcd is down between two crashes.
pub(crate) fn crash_looping(pod: &mut Pod) {
    let waiting = ContainerStateWaiting { reason: Some("CrashLoopBackOff".to_owned()), message: None };
    let etcd = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
    etcd.restart_count = 5;
    etcd.state = Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() });
}

/// Makes `object` belong to somebody else.
pub(crate) fn estrange<K: Resource>(object: &mut K) {
    for owner in object.meta_mut().owner_references.iter_mut().flatten() {
        owner.uid = "somebody-else".into();
    }
}
