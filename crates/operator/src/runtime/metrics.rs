//! What the operator counts about itself: under names of its own, and under those of controller-runtime, which dashboards
//! and alerts made for the Go operator read.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::runtime::leader::LEASE;

/// The Go operator's name for what reconciles clusters.
const CONTROLLER: &str = "etcdcluster";
/// Those of controller-runtime.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// See the module's description.
pub struct Metrics {
    registry: Registry,
    passes: Family<Outcome, Counter>,
    seconds: Histogram,
    reconciled: Family<Outcome, Counter>,
    errors: Counter,
    reconcile_seconds: Histogram,
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
#[allow(non_camel_case_types)]
enum PassResult {
    success,
    error,
    requeue,
    requeue_after,
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
        registry.register("etcd_operator_clusters", "Clusters known", clusters.clone());
        registry.register("etcd_operator_queue_depth", "Clusters waiting for a worker", queue_depth.clone());
        registry.sub_registry_with_label(("version".into(), env!("CARGO_PKG_VERSION").into())).register(
            "etcd_operator_build_info",
            "The version that runs",
            build.clone(),
        );

        let reconciled = Family::<Outcome, Counter>::default();
        for result in [PassResult::success, PassResult::error, PassResult::requeue, PassResult::requeue_after]
        {
            drop(reconciled.get_or_create(&Outcome { result }));
        }
        let (errors, reconcile_seconds) = (Counter::default(), Histogram::new(BUCKETS));
        registry.sub_registry_with_label(("name".into(), LEASE.into())).register(
            "leader_election_master_status",
            "1 on the replica that acts",
            leader.clone(),
        );
        let controller = registry.sub_registry_with_label(("controller".into(), CONTROLLER.into()));
        // A counter's name gets its _total when it is written.
        controller.register("controller_runtime_reconcile", "Passes, by result", reconciled.clone());
        controller.register("controller_runtime_reconcile_errors", "Passes that failed", errors.clone());
        let help = "Time one pass takes";
        controller.register("controller_runtime_reconcile_time_seconds", help, reconcile_seconds.clone());
        controller.sub_registry_with_label(("name".into(), CONTROLLER.into())).register(
            "workqueue_depth",
            "Clusters waiting for a worker",
            queue_depth.clone(),
        );
        Self {
            registry,
            passes,
            seconds,
            reconciled,
            errors,
            reconcile_seconds,
            leader,
            clusters,
            queue_depth,
            _build: build,
        }
    }
}

impl Metrics {
    /// One pass over one cluster has ended.
    pub fn pass(&self, took: Duration, succeeded: bool) {
        let result = if succeeded { PassResult::success } else { PassResult::error };
        let outcome = Outcome { result };
        self.passes.get_or_create(&outcome).inc();
        self.reconciled.get_or_create(&outcome).inc();
        if !succeeded {
            self.errors.inc();
        }
        self.seconds.observe(took.as_secs_f64());
        self.reconcile_seconds.observe(took.as_secs_f64());
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

    /// Whatever reads the Go operator's metrics finds these lines.
    #[test]
    fn dashboards_of_controller_runtime_find_their_metrics() {
        let metrics = Metrics::default();
        metrics.pass(Duration::from_millis(3), true);
        metrics.pass(Duration::from_millis(3), false);
        metrics.leader.set(1);
        metrics.queue_depth.set(7);
        let text = metrics.render();
        let lines: Vec<&str> = text.lines().collect();
        for line in [
            r#"leader_election_master_status{name="aa20b3a9.etcd-operator.cozystack.io"} 1"#,
            r#"controller_runtime_reconcile_total{controller="etcdcluster",result="success"} 1"#,
            r#"controller_runtime_reconcile_total{controller="etcdcluster",result="error"} 1"#,
            r#"controller_runtime_reconcile_total{controller="etcdcluster",result="requeue"} 0"#,
            r#"controller_runtime_reconcile_total{controller="etcdcluster",result="requeue_after"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="etcdcluster"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="etcdcluster"} 2"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{controller="etcdcluster",le="0.005"} 2"#,
            r#"workqueue_depth{controller="etcdcluster",name="etcdcluster"} 7"#,
            "etcd_operator_queue_depth 7",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{text}");
        }
    }
}
