//! Time to ready: from the user's call to the moment the cluster is what was asked for, beside the same done by hand in
//! the same run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::{EtcdClusterSpec, names};
use e2e::{Cluster, in_memory, on_volumes};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde::{Deserialize, Serialize};

use crate::hand::ByHand;
use crate::progress::Step;
use crate::stage::{Stage, World};
use crate::stats::Sample;
use crate::target::Target;
use crate::template::Template;

/// etcd refuses to add and remove members before its voters have been connected for five seconds. Whoever waits that
/// long between two wishes does not meet the rule, and it is not what is measured.
const CALM: Duration = Duration::from_millis(6500);

/// Where members keep their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    Volumes,
    Memory,
}

impl Medium {
    pub fn spec(self, replicas: i32) -> EtcdClusterSpec {
        let spec = match self {
            Self::Volumes => on_volumes(replicas),
            Self::Memory => in_memory(replicas),
        };
        // Thirty members have to fit on a node with two cores.
        let small = [("cpu", "10m"), ("memory", "32Mi")].map(|(k, v)| (k.to_owned(), Quantity(v.to_owned())));
        let resources = ResourceRequirements { requests: Some(small.into()), ..Default::default() };
        EtcdClusterSpec { resources: Some(resources), ..spec }
    }
}

/// One thing a user asks for, with the operator and by hand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub scenario: String,
    pub medium: Medium,
    /// Seconds.
    pub operator: Sample,
    /// Seconds by hand.
    pub floor: Sample,
}

/// What a user asks for, in the order of a cluster's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scenario {
    ApplyOne,
    OneToThree,
    ApplyThree,
    ThreeToFive,
    FiveToThree,
    /// Without a floor: nobody tells anybody by hand.
    LossTold,
    LossReplaced,
    Pause,
    Resume,
}

impl Scenario {
    fn text(self) -> &'static str {
        match self {
            Self::ApplyOne => "apply, one member",
            Self::OneToThree => "one member → three",
            Self::ApplyThree => "apply, three members",
            Self::ThreeToFive => "three members → five",
            Self::FiveToThree => "five members → three",
            Self::LossTold => "a lost member told",
            Self::LossReplaced => "a lost member replaced",
            Self::Pause => "pause, three members → none",
            Self::Resume => "resume, none → three",
        }
    }
}

/// Seconds by scenario.
type Times = BTreeMap<Scenario, f64>;

/// All scenarios on one medium, `repeat` times, turn and turn about.
pub async fn measure(target: &Target, medium: Medium, repeat: usize) -> Result<Vec<Comparison>> {
    let mut comparisons: BTreeMap<Scenario, Comparison> = BTreeMap::new();
    for round in 1..=repeat {
        let step = Step::begin(format!("{medium:?}, round {round} of {repeat}, with the operator"));
        let (times, template) = with_operator(target, medium, &step).await?;
        step.done(&summary(&times));
        let step = Step::begin(format!("{medium:?}, round {round} of {repeat}, by hand"));
        let floors = by_hand(target, medium, &template, &step).await?;
        step.done(&summary(&floors));
        for (scenario, seconds) in &times {
            let entry = comparisons.entry(*scenario).or_insert_with(|| Comparison {
                scenario: scenario.text().to_owned(),
                medium,
                operator: Sample::default(),
                floor: Sample::default(),
            });
            entry.operator.push(*seconds);
            if let Some(floor) = floors.get(scenario) {
                entry.floor.push(*floor);
            }
        }
    }
    Ok(comparisons.into_values().collect())
}

fn summary(times: &Times) -> String {
    times.values().map(|seconds| format!("{seconds:.2}")).collect::<Vec<_>>().join(" ")
}

/// A cluster's whole life, one wish after the other.
async fn with_operator(target: &Target, medium: Medium, step: &Step) -> Result<(Times, Template)> {
    let stage = Stage::open(&target.client).await?;
    let mut times = Times::new();

    let began = Instant::now();
    let small = stage.arena.create("small", medium.spec(1)).await?;
    times.insert(Scenario::ApplyOne, settled(&stage, &small, 1, began).await?);
    let template = template(&stage, &small)?;
    calm().await;
    times.insert(Scenario::OneToThree, scale(&stage, &small, 3).await?);
    stage.remove("small").await?;
    step.far(&summary(&times));

    let began = Instant::now();
    let cluster = stage.arena.create("my-etcd", medium.spec(3)).await?;
    times.insert(Scenario::ApplyThree, settled(&stage, &cluster, 3, began).await?);
    calm().await;
    times.insert(Scenario::ThreeToFive, scale(&stage, &cluster, 5).await?);
    calm().await;
    times.insert(Scenario::FiveToThree, scale(&stage, &cluster, 3).await?);
    step.far(&summary(&times));
    calm().await;
    let (told, replaced) = replace(&stage, &cluster, medium).await?;
    times.insert(Scenario::LossTold, told);
    times.insert(Scenario::LossReplaced, replaced);
    // What was in memory does not survive a pause.
    if medium == Medium::Volumes {
        calm().await;
        times.insert(Scenario::Pause, pause(&stage, &cluster).await?);
        times.insert(Scenario::Resume, scale(&stage, &cluster, 3).await?);
    }
    stage.close().await?;
    Ok((times, template))
}

/// The same life without an operator.
async fn by_hand(target: &Target, medium: Medium, template: &Template, step: &Step) -> Result<Times> {
    let stage = Stage::open(&target.client).await?;
    let mut times = Times::new();
    let since = |began: Instant| began.elapsed().as_secs_f64();

    let began = Instant::now();
    let mut small = ByHand::form(&stage, template, "small", 1).await?;
    times.insert(Scenario::ApplyOne, since(began));
    calm().await;
    let began = Instant::now();
    small.grow(3).await?;
    times.insert(Scenario::OneToThree, since(began));
    small.shrink(0).await?;
    step.far(&summary(&times));

    let began = Instant::now();
    let mut cluster = ByHand::form(&stage, template, "my-etcd", 3).await?;
    times.insert(Scenario::ApplyThree, since(began));
    calm().await;
    let began = Instant::now();
    cluster.grow(5).await?;
    times.insert(Scenario::ThreeToFive, since(began));
    calm().await;
    let began = Instant::now();
    cluster.shrink(3).await?;
    times.insert(Scenario::FiveToThree, since(began));
    step.far(&summary(&times));
    calm().await;
    let began = Instant::now();
    cluster.replace_newest().await?;
    times.insert(Scenario::LossReplaced, since(began));
    if medium == Medium::Volumes {
        calm().await;
        let began = Instant::now();
        cluster.shrink(0).await?;
        times.insert(Scenario::Pause, since(began));
        let began = Instant::now();
        cluster.resume(3).await?;
        times.insert(Scenario::Resume, since(began));
    }
    stage.close().await?;
    Ok(times)
}

async fn calm() {
    tokio::time::sleep(CALM).await;
}

async fn settled(stage: &Stage, cluster: &Cluster, replicas: i32, began: Instant) -> Result<f64> {
    let what = format!("{} to have {replicas} members", cluster.name);
    let at = stage.until(&what, |world| world.is_settled(&cluster.name, replicas)).await?;
    Ok((at - began).as_secs_f64())
}

async fn scale(stage: &Stage, cluster: &Cluster, replicas: i32) -> Result<f64> {
    let began = Instant::now();
    cluster.scale(replicas).await?;
    settled(stage, cluster, replicas, began).await
}

async fn pause(stage: &Stage, cluster: &Cluster) -> Result<f64> {
    let began = Instant::now();
    cluster.scale(0).await?;
    let paused = |world: &World| {
        world.ready_members(&cluster.name) == 0 && world.pods_of(&cluster.name).next().is_none()
    };
    Ok((stage.until("a pause", paused).await? - began).as_secs_f64())
}

/// Takes the newest member's data away, suddenly: while a Pod ends with grace it still holds what it has, and nobody may
/// call its member lost. Returns when the cluster said so, and when another had taken its place.
async fn replace(stage: &Stage, cluster: &Cluster, medium: Medium) -> Result<(f64, f64)> {
    let victim = cluster.members().await?.last().context("the cluster has no members")?.name_any();
    let arena = &stage.arena;
    let began = Instant::now();
    if medium == Medium::Volumes {
        let claim = names::pvc(&victim);
        arena.api::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await?;
    }
    arena.api::<Pod>().delete(&victim, &DeleteParams::default().grace_period(0)).await?;
    let told = stage.until("a loss to be told", |world| world.ready_members(&cluster.name) < 3).await?;
    let replaced = stage
        .until("a lost member to be replaced", |world| {
            !world.members.contains_key(&victim) && world.is_settled(&cluster.name, 3)
        })
        .await?;
    Ok(((told - began).as_secs_f64(), (replaced - began).as_secs_f64()))
}

/// The pattern for the floor, from the first member.
pub fn template(stage: &Stage, cluster: &Cluster) -> Result<Template> {
    let world = stage.world();
    let pod = world.pods_of(&cluster.name).next().context("the cluster has no Pod")?;
    Template::of(pod, world.claims.get(&names::pvc(&pod.name_any())))
}
