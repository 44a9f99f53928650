//! A burst: many one-member clusters at once, beside as many bare etcd Pods on the same kubelet.

use std::time::Instant;

use anyhow::Result;
use e2e::Cluster;
use futures::future::try_join_all;

use crate::hand::ByHand;
use crate::progress::Step;
use crate::ready::{Comparison, Medium, template};
use crate::stage::{Stage, World};
use crate::stats::Sample;
use crate::target::Target;
use crate::template::Template;

/// `clusters` at once, `repeat` times, turn and turn about.
pub async fn measure(target: &Target, clusters: usize, repeat: usize) -> Result<Comparison> {
    let (mut operator, mut floor) = (Sample::default(), Sample::default());
    for round in 1..=repeat {
        let step =
            Step::begin(format!("{clusters} clusters at once, round {round} of {repeat}, with the operator"));
        let (stage, seconds) = apply(target, clusters).await?;
        operator.push(seconds);
        let pattern = template(&stage, &Cluster { arena: stage.arena.clone(), name: name(0) })?;
        stage.close().await?;
        step.done(&format!("{seconds:.2}"));

        let step = Step::begin(format!("{clusters} etcd Pods at once, round {round} of {repeat}, by hand"));
        let seconds = by_hand(target, clusters, &pattern).await?;
        floor.push(seconds);
        step.done(&format!("{seconds:.2}"));
    }
    let scenario = format!("{clusters} clusters of one member at once");
    Ok(Comparison { scenario, medium: Medium::Memory, operator, floor })
}

/// Applies them all and returns when all are ready, and after how many seconds that was.
pub async fn apply(target: &Target, clusters: usize) -> Result<(Stage, f64)> {
    let stage = Stage::open(&target.client).await?;
    let names: Vec<String> = (0..clusters).map(name).collect();
    let began = Instant::now();
    try_join_all(names.iter().map(|name| stage.arena.create(name, Medium::Memory.spec(1)))).await?;
    let all = |world: &World| names.iter().all(|name| world.is_settled(name, 1));
    let at = stage.until(&format!("{clusters} clusters to be ready"), all).await?;
    Ok((stage, (at - began).as_secs_f64()))
}

async fn by_hand(target: &Target, clusters: usize, pattern: &Template) -> Result<f64> {
    let stage = Stage::open(&target.client).await?;
    let names: Vec<String> = (0..clusters).map(name).collect();
    let began = Instant::now();
    try_join_all(names.iter().map(|name| ByHand::form(&stage, pattern, name, 1))).await?;
    let seconds = began.elapsed().as_secs_f64();
    stage.close().await?;
    Ok(seconds)
}

fn name(number: usize) -> String {
    format!("c{number:03}")
}
