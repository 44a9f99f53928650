//! A fleet: hundreds of clusters on the real API server, with stand-ins for what would need hundreds of machines: the
//! kubelets, the volumes and etcd itself. What is measured is the operator, as a process of this machine.

mod kubelet;
mod members;
mod network;
mod operator;
mod volumes;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::{EtcdClusterSpec, StorageSpec};
use e2e::on_volumes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Affinity, Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::meter::{Process, Requests, difference};
use crate::progress::{Step, chapter};
use crate::rest::Rest;
use crate::stage::{LIMIT, Stage, World};
use crate::stats::Sample;
use crate::target::Target;
use crate::timeline::waits;
use kubelet::Kubelet;
use members::Members;
use network::Network;
use operator::{Launch, Running};

const AT_ONCE: usize = 32;
/// Members that are lost, one after the other.
const LOSSES: usize = 10;
const RETRIES: usize = 30;
/// A thousand clusters take a while on two cores.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What a fleet of one size costs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fleet {
    pub clusters: usize,
    /// From the start of the operator, which finds all of them new, to the last one that is ready.
    pub converge_seconds: f64,
    pub converge_cpu_seconds: f64,
    /// What the members waited for meanwhile, see [`WAITS`](crate::timeline::WAITS).
    pub waits: BTreeMap<String, f64>,
    pub resident_bytes: u64,
    pub peak_bytes: u64,
    pub rest: Rest,
    /// From the loss of a member to the status that tells of it.
    pub loss_seconds: Sample,
    /// From the start of a second operator to the last cluster whose etcd was asked.
    pub restart_seconds: f64,
    /// The second operator's memory then.
    pub restarted_bytes: u64,
}

/// Measures fleets of all sizes, one after the other, and hands over each as soon as it is there.
pub async fn measure(
    target: &Target,
    manager: &Path,
    folder: &Path,
    sizes: &[usize],
    window: Duration,
    mut measured: impl FnMut(Fleet) -> Result<()>,
) -> Result<()> {
    let _network = Network::open()?;
    let members = Members::default();
    let listener =
        TcpListener::bind(("0.0.0.0", 2379)).await.context("port 2379 of this machine is in use")?;
    let mut background = JoinSet::new();
    let server = members.clone();
    background.spawn(async move {
        if let Err(error) = server.serve(listener).await {
            eprintln!("  ! the simulated members have ended: {error:#}");
        }
    });
    let kubelet = Kubelet::new(&target.client, &members);
    let _beating = kubelet.join().await?;
    volumes::open(&target.client).await?;
    let replicas = target.scale(0).await?;
    let account = target.service_account().await?;
    let requests = Requests::open(&target.client, &target.deployment.namespace, &account).await?;
    let launch = Launch::prepare(target, manager, folder).await?;

    let site = Site { target, members, kubelet, requests, launch, window };
    let mut outcome = Ok(());
    for &clusters in sizes {
        chapter(&format!("A fleet of {clusters} clusters"));
        outcome = site.measure(clusters).await.and_then(&mut measured);
        if outcome.is_err() {
            break;
        }
    }
    site.requests.close().await?;
    site.kubelet.leave().await?;
    volumes::close(&target.client).await?;
    target.scale(replicas).await?;
    outcome
}

/// Where fleets are.
struct Site<'a> {
    target: &'a Target,
    members: Members,
    kubelet: Kubelet,
    requests: Requests,
    launch: Launch,
    window: Duration,
}

impl Site<'_> {
    async fn measure(&self, clusters: usize) -> Result<Fleet> {
        let stage = Stage::open(&self.target.client).await?;
        let namespace = stage.arena.namespace.clone();
        let left = format!("the fleet is left as it is, in namespace {namespace}");
        tokio::select! {
            measured = self.measure_in(stage, clusters) => measured.context(left),
            _ = tokio::signal::ctrl_c() => {
                // The operator in the cluster is started again and cleans up what finalizers hold.
                let namespaces: Api<Namespace> = Api::all(self.target.client.clone());
                namespaces.delete(&namespace, &DeleteParams::default()).await?;
                bail!("interrupted; namespace {namespace} is being deleted");
            }
        }
    }

    async fn measure_in(&self, stage: Stage, clusters: usize) -> Result<Fleet> {
        let namespace = stage.arena.namespace.clone();
        let mut stand_ins = JoinSet::new();
        stand_ins.spawn(self.kubelet.clone().run(namespace.clone()));
        stand_ins.spawn(volumes::run(self.target.client.clone(), namespace));
        self.declare(&stage, clusters).await?;

        let mut fleet = Fleet { clusters, ..Fleet::default() };
        let step = Step::begin(format!("{clusters} clusters from cold"));
        let began = Instant::now();
        let running = self.launch.start()?;
        self.ready(&stage, &running, clusters, &step).await?;
        fleet.converge_seconds = began.elapsed().as_secs_f64();
        fleet.converge_cpu_seconds = running.process()?.usage()?.cpu_seconds;
        fleet.waits = waits(&stage.journal(), began);
        step.done(&format!("{:.1} s", fleet.converge_seconds));

        fleet.rest = self.rest(running.process()?, clusters).await?;
        let usage = running.process()?.usage()?;
        (fleet.resident_bytes, fleet.peak_bytes) = (usage.resident_bytes, usage.peak_bytes);
        fleet.loss_seconds = self.lose(&stage).await?;

        let step = Step::begin("operator restarted");
        running.stop().await?;
        self.members.forget_asked();
        let began = Instant::now();
        let running = self.launch.start()?;
        self.all_asked(&running, clusters).await?;
        fleet.restart_seconds = began.elapsed().as_secs_f64();
        fleet.restarted_bytes = running.process()?.usage()?.resident_bytes;
        step.done(&format!("{:.1} s until all are known", fleet.restart_seconds));

        let step = Step::begin("fleet removed");
        stage.raze().await?;
        running.stop().await?;
        volumes::clear(&self.target.client).await?;
        self.members.clear();
        step.done("gone");
        Ok(fleet)
    }

    /// Creates the objects; nobody looks at them yet.
    async fn declare(&self, stage: &Stage, clusters: usize) -> Result<()> {
        let step = Step::begin(format!("{clusters} EtcdClusters declared"));
        let spec = spec()?;
        let create = |number: usize| {
            let (arena, spec) = (stage.arena.clone(), spec.clone());
            async move { arena.create(&format!("c{number:04}"), spec).await.map(drop) }
        };
        stream::iter((0..clusters).map(create)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        stage.until("all to be seen", |world| world.clusters.len() == clusters).await?;
        step.done("declared");
        Ok(())
    }

    async fn ready(&self, stage: &Stage, running: &Running, clusters: usize, step: &Step) -> Result<()> {
        let began = Instant::now();
        loop {
            let ready = stage.world().clusters.values().filter(|c| is_whole(c)).count();
            if ready == clusters {
                return Ok(());
            }
            let news = stage.until("more clusters", |world| {
                world.clusters.values().filter(|c| is_whole(c)).count() > ready + clusters / 20
                    || world.clusters.values().all(is_whole)
            });
            let _ = tokio::time::timeout(Duration::from_secs(20), news).await;
            step.far(&format!("{ready} of {clusters} ready"));
            running.process()?;
            if began.elapsed() > PATIENCE {
                bail!("{ready} of {clusters} clusters were ready after {} s", PATIENCE.as_secs());
            }
        }
    }

    async fn rest(&self, process: Process, clusters: usize) -> Result<Rest> {
        let step = Step::begin(format!("at rest, {} s", self.window.as_secs()));
        self.requests.cease().await?;
        let began = Instant::now();
        let before = (self.requests.count().await?, self.members.calls(), process.usage()?);
        tokio::time::sleep(self.window).await;
        let after = (self.requests.count().await?, self.members.calls(), process.usage()?);
        let rest = Rest {
            what: format!("a fleet of {clusters}"),
            clusters,
            seconds: began.elapsed().as_secs_f64(),
            requests: difference(&before.0, &after.0),
            etcd_calls: difference(&before.1, &after.1),
            cpu_seconds: after.2.cpu_seconds - before.2.cpu_seconds,
            resident_bytes: after.2.resident_bytes,
        };
        step.done(&format!("{:.2} CPU seconds a minute", rest.cpu_per_minute()));
        Ok(rest)
    }

    /// Loses single members of single clusters, and gives them back.
    async fn lose(&self, stage: &Stage) -> Result<Sample> {
        let step = Step::begin(format!("{LOSSES} members lost, one after the other"));
        let mut sample = Sample::default();
        let clusters: Vec<String> = stage.world().clusters.keys().cloned().collect();
        for name in clusters.iter().step_by((clusters.len() / LOSSES).max(1)).take(LOSSES) {
            let ours = ListParams::default().labels(&api::labels::cluster_selector(name)).limit(1);
            let pods = stage.arena.api::<Pod>().list(&ours).await?.items;
            let victim = pods.first().with_context(|| format!("{name} has no Pods"))?;
            let began = Instant::now();
            self.kubelet.silence(victim, true).await?;
            let told = stage.until("a loss to be told", |world| world.ready_members(name) == 2).await?;
            sample.push((told - began).as_secs_f64());
            self.kubelet.silence(victim, false).await?;
            stage.until("a member to be back", |world| is_whole_in(world, name)).await?;
        }
        step.done(&sample.show());
        Ok(sample)
    }

    /// Waits until every cluster's etcd has been asked.
    async fn all_asked(&self, running: &Running, clusters: usize) -> Result<()> {
        let began = Instant::now();
        while self.members.asked() < clusters {
            running.process()?;
            if began.elapsed() > LIMIT {
                bail!("{} of {clusters} clusters were asked", self.members.asked());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

/// Repeats what a busy API server did not manage: a stand-in that gives up would be a kubelet that has died.
async fn persistently<F: Future<Output = Result<()>>>(what: String, work: impl Fn() -> F) {
    for _ in 0..RETRIES {
        match work().await {
            Ok(()) => return,
            Err(error) => eprintln!("  ! {what}: {error}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Takes an answer with that reason for a success: what was to be made is there, what was to go is gone.
fn unless<T>(reason: &str, answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.reason == reason => Ok(()),
        other => other.map(drop),
    }
}

fn is_whole(cluster: &api::EtcdCluster) -> bool {
    let Some(status) = &cluster.status else { return false };
    status.ready_members == 3 && api::conditions::is_true(&status.conditions, api::conditions::AVAILABLE)
}

fn is_whole_in(world: &World, name: &str) -> bool {
    world.clusters.get(name).is_some_and(is_whole)
}

/// Three members on volumes, on the stand-in's nodes and no others.
fn spec() -> Result<EtcdClusterSpec> {
    let spec = on_volumes(3);
    let term = json!({ "matchExpressions": [{ "key": kubelet::LABEL, "operator": "Exists" }] });
    let affinity: Affinity = serde_json::from_value(json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } }))?;
    let storage = StorageSpec { storage_class_name: Some(volumes::CLASS.to_owned()), ..spec.storage.clone() };
    Ok(EtcdClusterSpec { storage, affinity: Some(affinity), ..spec })
}
