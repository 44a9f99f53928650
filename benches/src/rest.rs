//! At rest: what clusters cost that want nothing. Counted by those who are asked, over a window of time.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::burst;
use crate::foreign::Foreign;
use crate::meter::{Counts, Process, Requests, difference, etcd_calls, without_lease};
use crate::progress::Step;
use crate::ready::Medium;
use crate::stage::Stage;
use crate::target::Target;

/// A cluster alone is watched for so many windows: at rest the operator does little but begin its watches anew, which
/// falls into a short window or does not.
const ALONE: u32 = 10;

/// What some clusters cost in a window of time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rest {
    pub what: String,
    pub clusters: usize,
    pub seconds: f64,
    /// To the API server, by verb.
    pub requests: Counts,
    /// To etcd, by method.
    pub etcd_calls: Counts,
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
}

impl Rest {
    /// Requests a minute and cluster, without those for the lease of the leader election.
    pub fn requests_per_cluster(&self) -> f64 {
        self.per_cluster(without_lease(&self.requests))
    }

    pub fn calls_per_cluster(&self) -> f64 {
        self.per_cluster(self.etcd_calls.values().sum())
    }

    fn per_cluster(&self, count: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let (count, clusters) = (count as f64, self.clusters.max(1) as f64);
        count * 60.0 / self.seconds.max(1.0) / clusters
    }

    pub fn cpu_per_minute(&self) -> f64 {
        self.cpu_seconds * 60.0 / self.seconds.max(1.0)
    }
}

/// One cluster of three members, many of one, and many beside foreign objects.
pub async fn measure(
    target: &Target,
    clusters: usize,
    foreign: usize,
    window: Duration,
) -> Result<Vec<Rest>> {
    let account = target.service_account().await?;
    let requests = Requests::open(&target.client, &target.deployment.namespace, &account).await?;
    let mut results = Vec::new();

    let stage = Stage::open(&target.client).await?;
    stage.arena.create("my-etcd", Medium::Volumes.spec(3)).await?;
    stage.until("a cluster to be ready", |world| world.is_settled("my-etcd", 3)).await?;
    results.push(observe(target, &requests, &stage, "one cluster of three", 1, ALONE * window).await?);
    stage.close().await?;

    let (stage, _) = burst::apply(target, clusters).await?;
    let what = format!("{clusters} clusters of one");
    results.push(observe(target, &requests, &stage, &what, clusters, window).await?);
    if foreign > 0 {
        let others = Foreign::make(&target.client, foreign).await?;
        let what = format!("{what}, beside {foreign} foreign objects of each kind");
        results.push(observe(target, &requests, &stage, &what, clusters, window).await?);
        others.remove().await?;
    }
    stage.close().await?;
    requests.close().await?;
    Ok(results)
}

async fn observe(
    target: &Target,
    requests: &Requests,
    stage: &Stage,
    what: &str,
    clusters: usize,
    window: Duration,
) -> Result<Rest> {
    let step = Step::begin(format!("at rest: {what}, {} s", window.as_secs()));
    requests.cease().await?;
    let process = Process::of_pod(&target.pod().await?)?;
    let pods: Vec<Pod> = stage.world().pods.values().cloned().collect();
    let began = Instant::now();
    let before = (requests.count().await?, etcd_calls(&target.client, &pods).await?, process.usage()?);
    tokio::time::sleep(window).await;
    let after = (requests.count().await?, etcd_calls(&target.client, &pods).await?, process.usage()?);
    let rest = Rest {
        what: what.to_owned(),
        clusters,
        seconds: began.elapsed().as_secs_f64(),
        requests: difference(&before.0, &after.0),
        etcd_calls: difference(&before.1, &after.1),
        cpu_seconds: after.2.cpu_seconds - before.2.cpu_seconds,
        resident_bytes: after.2.resident_bytes,
    };
    step.done(&format!("{:.2} requests a minute and cluster", rest.requests_per_cluster()));
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_per_cluster_and_minute_and_the_lease_is_left_out() {
        let rest = Rest {
            clusters: 10,
            seconds: 30.0,
            requests: Counts::from([("get".into(), 5), ("lease".into(), 30)]),
            etcd_calls: Counts::from([("Status".into(), 20)]),
            cpu_seconds: 0.1,
            ..Rest::default()
        };
        assert!((rest.requests_per_cluster() - 1.0).abs() < 1e-9);
        assert!((rest.calls_per_cluster() - 4.0).abs() < 1e-9);
        assert!((rest.cpu_per_minute() - 0.2).abs() < 1e-9);
    }
}
