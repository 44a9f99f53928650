//! Everything outside the operator: the API server's objects, nodes with kubelets and volumes, etcd, users and faults.
//! It moves from one entry of its agenda to the next; what the operator does comes in between, through the same API
//! server and the same etcd.

pub mod agenda;
mod clients;
pub mod control;
pub(crate) mod incidents;
mod kubelet;
pub mod ledger;
mod nodes;
pub mod pod_run;
mod scheduler;
mod users;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd::Endpoint;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::Millis;
use crate::apiserver::kind::{CLAIM, ETCD_CLUSTER, ETCD_MEMBER, POD};
use crate::apiserver::{ApiServer, Change, DeleteOptions, Kind, Propagation, Selector, Sub};
use crate::etcd::{DiskId, Etcds, ProcessId, Request, Response};
use crate::script::{Fate, Script, Temper, Wish};

use agenda::{Agenda, Event};
use ledger::Ledger;
use nodes::Node;
use pod_run::PodRun;
use volumes::Disk;

/// Nearly all there is lives here.
pub const NAMESPACE: &str = "ns";
/// Cluster `e` and all that belongs to it lives here.
pub const OTHER_NAMESPACE: &str = "other";
/// How much of the past is told when something went wrong.
const MEMORY: usize = 2000;
/// etcd's time goes on at least this often.
const TICK: Millis = 250;

/// One simulated Kubernetes with its nodes, its etcd clusters and its users.
pub struct World {
    pub now: Millis,
    pub script: Script,
    pub temper: Temper,
    pub rng: StdRng,
    pub api: Arc<Mutex<ApiServer>>,
    pub etcds: Etcds,
    pub agenda: Agenda,
    pub pods: BTreeMap<String, PodRun>,
    pub disks: BTreeMap<DiskId, Disk>,
    pub nodes: Vec<Node>,
    /// What users ask for by now, in the order of the script.
    wishes: Vec<Wish>,
    pub control: control::Control,
    cut_links: BTreeSet<(usize, usize)>,
    free_addresses: Vec<String>,
    generation: u64,
    /// What the kubelet and the others have seen of the API server.
    seen: u64,
    garbage_due: bool,
    pub ledger: Ledger,
    /// Fates of calls to come, each after so many more calls.
    fates: VecDeque<(usize, Fate)>,
    pub api_down_until: Millis,
    /// Per kind: added delay, and until when.
    pub watch_lag: [(Millis, Millis); 6],
    /// What was asked of the driver.
    pub orders: VecDeque<Order>,
    pub faults_injected: BTreeMap<String, u64>,
    pub calm: bool,
    /// Something that can only be a mistake of the simulation itself.
    pub broken_model: Option<String>,
    history: Option<VecDeque<String>>,
    pub key: u64,
    /// Users disarm alarms.
    disarm: bool,
}

/// What an incident asks of whoever runs the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Crash { back: Millis },
    Depose { linger: Millis },
    RestartWatch(usize),
    SkewClock(i64),
    Calm,
}

/// The kinds the operator watches, in the order incidents number them.
pub const WATCHED: [Kind; 6] =
    [ETCD_CLUSTER, ETCD_MEMBER, POD, CLAIM, crate::apiserver::kind::SERVICE, crate::apiserver::kind::BUDGET];

impl World {
    pub fn new(script: Script, telling: bool) -> Self {
        let temper = script.temper.clone();
        let mut agenda = Agenda::default();
        for (index, wish) in script.clusters.iter().enumerate() {
            agenda.put(wish.at, Event::Wish(index));
        }
        for (index, timed) in script.incidents.iter().enumerate() {
            agenda.put(timed.at, Event::Incident(index));
        }
        agenda.put(script.calm_at, Event::Calm);
        agenda.put(1, Event::Tick);
        agenda.put(50, Event::Write);
        let mut world = Self {
            now: 0,
            // Not the stream the script was drawn from: striking an incident out must not move everything else.
            rng: StdRng::seed_from_u64(script.seed ^ 0x5eed_0f7e),
            api: Arc::default(),
            etcds: Etcds::default(),
            agenda,
            pods: BTreeMap::new(),
            disks: BTreeMap::new(),
            nodes: vec![],
            wishes: script.clusters.clone(),
            control: control::Control::default(),
            cut_links: BTreeSet::new(),
            free_addresses: vec![],
            generation: 0,
            seen: 0,
            garbage_due: false,
            ledger: Ledger::default(),
            fates: VecDeque::new(),
            api_down_until: 0,
            watch_lag: [(0, 0); 6],
            orders: VecDeque::new(),
            faults_injected: BTreeMap::new(),
            calm: false,
            broken_model: None,
            history: telling.then(VecDeque::new),
            key: 0,
            disarm: false,
            temper,
            script,
        };
        for node in 0..world.temper.nodes {
            let fresh = world.new_node(format!("node-{node}"));
            world.nodes.push(fresh);
        }
        world
    }

    pub fn api(&self) -> MutexGuard<'_, ApiServer> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A random duration or index, both ends included.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        self.rng.random_range(least..=most.max(least))
    }

    /// Moves on to a moment.
    pub fn advance(&mut self, to: Millis) {
        if to > self.now {
            self.now = to;
            self.etcds.tick(to, &mut self.rng);
            self.notice_exits();
        }
    }

    fn notice_exits(&mut self) {
        for (process, words) in self.etcds.exited(self.now) {
            self.etcd_exits(&process, &words);
        }
    }

    /// Does what the agenda says, if it is the world's business; hands it back if it is the operator's.
    pub fn handle(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Tick => {
                let at = self.now + TICK;
                self.agenda.put(at, Event::Tick);
            }
            Event::Write => self.client_writes(),
            Event::Collect => self.collect_garbage(),
            Event::Incident(index) => self.incident(index),
            Event::Calm => self.calm_down(),
            Event::Pod(uid, event) => self.pod_event(&uid, event),
            Event::Bind(uid) => self.bind(&uid),
            Event::NodeUnready(node, silence) => self.node_unready(node, silence),
            Event::NodeDrained(node, silence) => self.node_drained(node, silence),
            Event::Wish(index) => self.make_cluster(index),
            Event::Kill(uid) => self.kill(&uid, "killed"),
            Event::Undo(number) => self.undo(number),
            Event::NodeUp(node, silence) => self.node_up(node, silence),
            operators => return Some(operators),
        }
        None
    }

    /// Lets the control plane see what has been written since it last looked.
    pub fn settle(&mut self) {
        self.notice_exits();
        while self.api().revision() > self.seen {
            let from = self.seen;
            let newest = self.api().revision();
            self.seen = newest;
            for kind in [POD, CLAIM, ETCD_MEMBER, ETCD_CLUSTER] {
                let events = self.api().watch_since(kind, None, &Selector::all(), from).unwrap_or_default();
                for event in events {
                    self.object_changed(kind, event.change, &event.object);
                }
            }
            self.release_claims();
            if !self.garbage_due {
                self.garbage_due = true;
                let at = self.now + self.within(20, 1500);
                self.agenda.put(at, Event::Collect);
            }
        }
    }

    fn object_changed(&mut self, kind: Kind, change: Change, object: &Value) {
        let uid = uid_of(object);
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        match (kind, change) {
            (POD, Change::Added) => self.pod_appears(object),
            (POD, Change::Modified) if deleting => self.pod_is_deleted(&uid),
            (POD, Change::Deleted) => self.pod_disappears(&uid),
            (CLAIM, Change::Added) => self.claim_appears(object),
            (CLAIM, Change::Deleted) => self.claim_disappears(object),
            (ETCD_MEMBER, _) => self.ledger.member_changed(self.now, change, object),
            (ETCD_CLUSTER, _) => {
                let known = self.ledger.clusters.get(&uid).and_then(|fact| fact.id);
                let lost = known.is_some_and(|id| self.etcds.disaster(id).is_some());
                self.ledger.cluster_changed(self.now, change, object, lost);
            }
            _ => {}
        }
    }

    fn collect_garbage(&mut self) {
        let now = self.now;
        self.garbage_due = false;
        let done = self.api().collect_garbage(now);
        if done > 0 {
            self.note(|_| format!("garbage collector: {done} chores"));
            self.garbage_due = true;
            let at = self.now + self.within(20, 1500);
            self.agenda.put(at, Event::Collect);
        }
    }

    fn calm_down(&mut self) {
        self.note(|_| "all faults are lifted".to_owned());
        self.calm = true;
        self.fates.clear();
        self.api_down_until = 0;
        self.watch_lag = [(0, 0); 6];
        self.control = control::Control::default();
        self.calm_nodes();
        self.relabel_all();
        self.ask_for_less();
        self.make_room();
        self.let_go();
        self.orders.push_back(Order::Calm);
    }

    /// The process behind an address, if there is one.
    pub fn process_at(&self, address: &str) -> Option<ProcessId> {
        let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
        let pod = self.pods.values().find(|p| p.ip.as_deref() == Some(ip) && p.process.is_some())?;
        pod.process.clone()
    }

    /// Asks whoever has the address by now. As in the operator's client, an answer from another cluster is none.
    pub fn ask_etcd(&mut self, at: &Endpoint, request: Request) -> Result<Response, etcd::Error> {
        let Some(process) = self.process_at(&at.address) else {
            return Err(etcd::Error::Unreachable { member: at.member().to_owned() });
        };
        let linearizable = request == Request::Members;
        let answer = self.etcds.call(self.now, &process.0, request)?;
        let cluster = self.etcds.identity(&process).map_or(0, |(cluster, _)| cluster);
        // Only a quorum has a list to give, even if it is gone in the same moment.
        if linearizable && !self.etcds.is_impostor(&process) {
            self.ledger.quorum_at.insert(cluster, self.now);
        }
        at.believe(cluster).map(|()| answer)
    }

    /// Whether a call gets through to the machine it goes to.
    pub fn reaches_address(&self, address: &str) -> bool {
        let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
        // Whoever had it before does not matter.
        let has = |p: &&PodRun| p.ip.as_deref() == Some(ip) && p.stage != pod_run::Stage::Ended;
        let shut =
            |p: &PodRun| self.control.shut.iter().any(|(c, until)| *c == p.cluster && self.now < *until);
        let mut behind = self.pods.values().filter(has);
        behind.all(|p| !shut(p) && p.node.is_none_or(|node| self.nodes[node].is_reachable()))
    }

    /// What becomes of the operator's next call.
    pub fn fate(&mut self) -> Option<Fate> {
        let next = self.fates.front_mut()?;
        if next.0 > 0 {
            next.0 -= 1;
            return None;
        }
        let (_, fate) = self.fates.pop_front()?;
        self.note(|_| format!("the next call: {fate:?}"));
        Some(fate)
    }

    /// Writes something into the history, if one is kept.
    pub fn note(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.history.is_none() {
            return;
        }
        let line = format!("{:>9.3}s  {}", self.now as f64 / 1000.0, what(self));
        if let Some(history) = &mut self.history {
            if history.len() == MEMORY {
                history.pop_front();
            }
            history.push_back(line);
        }
    }

    /// Whether a history is kept.
    pub fn is_told(&self) -> bool {
        self.history.is_some()
    }

    pub fn history(&self) -> impl Iterator<Item = &String> {
        self.history.iter().flatten()
    }

    pub fn timestamp(&self) -> Timestamp {
        self.api().time(self.now)
    }
}

/// Objects, as the control plane reads and writes them: without faults and without delay.
impl World {
    pub fn object(&self, kind: Kind, name: &str) -> Option<Arc<Value>> {
        self.api().peek(kind, namespace(name), name).cloned()
    }

    pub fn objects(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.api().objects_of(kind, None).cloned().collect()
    }

    fn patch_status(&mut self, kind: Kind, name: &str, patch: &Value) {
        // Gone, or another of the same name: then there is nobody to tell.
        let _ = self.api().patch_merge(self.now, kind, namespace(name), name, patch, Some(Sub::Status));
    }

    fn patch_object(&mut self, kind: Kind, name: &str, patch: &Value) {
        let _ = self.api().patch_merge(self.now, kind, namespace(name), name, patch, None);
    }

    fn delete_object(
        &mut self,
        kind: Kind,
        name: &str,
        uid: Option<&str>,
        propagation: Option<Propagation>,
        now: bool,
    ) {
        let options = DeleteOptions {
            uid: uid.map(str::to_owned),
            propagation,
            grace_period_seconds: now.then_some(0),
            ..DeleteOptions::default()
        };
        let _ = self.api().delete(self.now, kind, namespace(name), name, &options);
    }
}

/// Where an object of this name lives. Names tell it: all of a cluster's begin with the cluster's.
pub fn namespace(name: &str) -> &'static str {
    let bare = name.strip_prefix("data-").unwrap_or(name);
    if bare == "e" || bare.starts_with("e-") { OTHER_NAMESPACE } else { NAMESPACE }
}

pub fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

pub fn uid_of(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// A moment as it stands in objects.
pub fn wire(at: Millis) -> String {
    wire_signed(i64::try_from(at).unwrap_or(i64::MAX))
}

/// The same, also for a clock that is before the beginning of the world.
fn wire_signed(at: i64) -> String {
    let beginning = ApiServer::default().time(0);
    (beginning + jiff::SignedDuration::from_millis(at)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
