//! What the operator counts about itself.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// See the module's description.
pub struct Metrics {
    registry: Registry,
    passes: Family<Outcome, Counter>,
    seconds: Histogram,
    pub leader: Gauge,
    pub clusters: Gauge,
    pub queue_depth: Gauge<i64>,
    _build: Gauge<u64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: PassResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum PassResult {
    #[allow(non_camel_case_types)]
    success,
    #[allow(non_camel_case_types)]
    error,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let passes = Family::<Outcome, Counter>::default();
        let seconds = Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        let (leader, clusters, queue_depth) = (Gauge::default(), Gauge::default(), Gauge::default());
        let build = Gauge::<u64, AtomicU64>::default();
        build.set(1);
        registry.register("etcd_operator_passes", "Passes over a cluster, by result", passes.clone());
        registry.register("etcd_operator_pass_seconds", "Time one pass takes", seconds.clone());
        registry.register("leader_election_master_status", "1 on the replica that acts", leader.clone());
        registry.register("etcd_operator_clusters", "Clusters known", clusters.clone());
        registry.register("etcd_operator_queue_depth", "Clusters waiting for a worker", queue_depth.clone());
        registry
            .sub_registry_with_labels([("version".into(), env!("CARGO_PKG_VERSION").into())].into_iter())
            .register("etcd_operator_build_info", "The version that runs", build.clone());
        Self { registry, passes, seconds, leader, clusters, queue_depth, _build: build }
    }
}

impl Metrics {
    /// One pass over one cluster has ended.
    pub fn pass(&self, took: Duration, succeeded: bool) {
        let result = if succeeded { PassResult::success } else { PassResult::error };
        self.passes.get_or_create(&Outcome { result }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// All of it in the text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string can not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_by_result() {
        let metrics = Metrics::default();
        metrics.pass(Duration::from_millis(3), true);
        metrics.pass(Duration::from_millis(3), false);
        let text = metrics.render();
        assert!(text.contains(r#"etcd_operator_passes_total{result="success"} 1"#), "{text}");
        assert!(text.contains(r#"etcd_operator_passes_total{result="error"} 1"#), "{text}");
    }
}
