//! What the operator counts about itself: under names of its own, and under those of controller-runtime, which dashboards
//! and alerts made for the Go operator read.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::runtime::cluster_domain::ClusterDomain;
use crate::runtime::leader::LEASE;

/// Those of controller-runtime.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    passes: Family<Outcome, Counter>,
    seconds: Histogram,
    reconciled: Family<Reconciled, Counter>,
    errors: Family<OfController, Counter>,
    reconcile_seconds: Family<OfController, Histogram, fn() -> Histogram>,
    queue_depth: Family<OfController, Gauge>,
    workqueue_depth: Family<OfQueue, Gauge>,
    pub leader: Gauge,
    pub clusters: Gauge,
    domain: Family<Domain, Gauge>,
    at_scrape: Mutex<Vec<AtScrape>>,
    _build: Gauge<u64, AtomicU64>,
}

/// Brings a gauge up to date.
type AtScrape = Box<dyn Fn() + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Domain {
    domain: String,
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: PassResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    controller: &'static str,
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
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

impl From<bool> for PassResult {
    fn from(succeeded: bool) -> Self {
        if succeeded { Self::success } else { Self::error }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let passes = Family::<Outcome, Counter>::default();
        let seconds = Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        let (leader, clusters) = (Gauge::default(), Gauge::default());
        let build = Gauge::<u64, AtomicU64>::default();
        build.set(1);
        registry.register("etcd_operator_passes", "Passes over a cluster, by result", passes.clone());
        registry.register(
            "etcd_operator_pass_seconds",
            "Time one pass over a cluster takes",
            seconds.clone(),
        );
        registry.register("etcd_operator_clusters", "Clusters known", clusters.clone());
        let domain = Family::<Domain, Gauge>::default();
        let help = "The cluster's DNS suffix, and who says so: flag, resolv.conf or default";
        registry.register("etcd_operator_cluster_domain_info", help, domain.clone());
        registry.sub_registry_with_label(("version".into(), env!("CARGO_PKG_VERSION").into())).register(
            "etcd_operator_build_info",
            "The version that runs",
            build.clone(),
        );

        let reconciled = Family::<Reconciled, Counter>::default();
        let errors = Family::<OfController, Counter>::default();
        let reconcile_seconds: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let queue_depth = Family::<OfController, Gauge>::default();
        let workqueue_depth = Family::<OfQueue, Gauge>::default();
        registry.sub_registry_with_label(("name".into(), LEASE.into())).register(
            "leader_election_master_status",
            "1 on the replica that acts",
            leader.clone(),
        );
        // A counter's name gets its _total when it is written.
        registry.register("controller_runtime_reconcile", "Passes, by result", reconciled.clone());
        registry.register("controller_runtime_reconcile_errors", "Passes that failed", errors.clone());
        let help = "Time one pass takes";
        registry.register("controller_runtime_reconcile_time_seconds", help, reconcile_seconds.clone());
        let help = "Objects waiting for a worker";
        registry.register("etcd_operator_queue_depth", help, queue_depth.clone());
        registry.register("workqueue_depth", help, workqueue_depth.clone());
        Self {
            registry,
            passes,
            seconds,
            reconciled,
            errors,
            reconcile_seconds,
            queue_depth,
            workqueue_depth,
            leader,
            clusters,
            domain,
            at_scrape: Mutex::default(),
            _build: build,
        }
    }
}

impl Metrics {
    /// This is the cluster's domain.
    pub fn cluster_domain(&self, found: &ClusterDomain) {
        let labels = Domain { domain: found.name.clone(), source: found.source.to_string() };
        self.domain.get_or_create(&labels).set(1);
    }

    /// One pass over one cluster has ended.
    pub fn pass(&self, took: Duration, succeeded: bool) {
        self.passes.get_or_create(&Outcome { result: succeeded.into() }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// What a controller of that name counts, under the names of controller-runtime.
    pub fn controller(&self, controller: &'static str) -> ControllerMetrics {
        for result in [PassResult::success, PassResult::error, PassResult::requeue, PassResult::requeue_after]
        {
            drop(self.reconciled.get_or_create(&Reconciled { controller, result }));
        }
        let of = OfController { controller };
        ControllerMetrics {
            controller,
            reconciled: self.reconciled.clone(),
            errors: self.errors.get_or_create(&of).clone(),
            seconds: self.reconcile_seconds.get_or_create(&of).clone(),
            depth: self.queue_depth.get_or_create(&of).clone(),
            workqueue_depth: self
                .workqueue_depth
                .get_or_create(&OfQueue { controller, name: controller })
                .clone(),
        }
    }

    /// Does this whenever somebody reads the metrics: what changes all the time is looked up then.
    pub fn at_scrape(&self, update: impl Fn() + Send + Sync + 'static) {
        self.at_scrape.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(update));
    }

    /// All of it in the text format.
    pub fn render(&self) -> String {
        for update in self.at_scrape.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            update();
        }
        let mut text = String::new();
        // Writing to a string can not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// What one controller counts.
#[derive(Clone)]
pub struct ControllerMetrics {
    controller: &'static str,
    reconciled: Family<Reconciled, Counter>,
    errors: Counter,
    seconds: Histogram,
    depth: Gauge,
    workqueue_depth: Gauge,
}

impl ControllerMetrics {
    /// One pass has ended.
    pub fn pass(&self, took: Duration, succeeded: bool) {
        let outcome = Reconciled { controller: self.controller, result: succeeded.into() };
        self.reconciled.get_or_create(&outcome).inc();
        if !succeeded {
            self.errors.inc();
        }
        self.seconds.observe(took.as_secs_f64());
    }

    /// So many keys wait for a worker.
    pub fn set_depth(&self, keys: usize) {
        let keys = i64::try_from(keys).unwrap_or(i64::MAX);
        self.depth.set(keys);
        self.workqueue_depth.set(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cluster_domain::Source;

    #[test]
    fn passes_are_counted_by_result() {
        let metrics = Metrics::default();
        metrics.pass(Duration::from_millis(3), true);
        metrics.pass(Duration::from_millis(3), false);
        let text = metrics.render();
        assert!(text.contains(r#"etcd_operator_passes_total{result="success"} 1"#), "{text}");
        assert!(text.contains(r#"etcd_operator_passes_total{result="error"} 1"#), "{text}");
    }

    #[test]
    fn the_domain_and_who_said_so_are_told() {
        let metrics = Metrics::default();
        metrics.cluster_domain(&ClusterDomain { name: "cozy.local".to_owned(), source: Source::ResolvConf });
        let line = r#"etcd_operator_cluster_domain_info{domain="cozy.local",source="resolv.conf"} 1"#;
        assert!(metrics.render().lines().any(|l| l == line), "{}", metrics.render());
    }

    /// Whatever reads the Go operator's metrics finds these lines.
    #[test]
    fn dashboards_of_controller_runtime_find_their_metrics() {
        let metrics = Metrics::default();
        let controller = metrics.controller("etcdcluster");
        controller.pass(Duration::from_millis(3), true);
        controller.pass(Duration::from_millis(3), false);
        metrics.leader.set(1);
        metrics.at_scrape(move || controller.set_depth(7));
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
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.005",controller="etcdcluster"} 2"#,
            r#"workqueue_depth{controller="etcdcluster",name="etcdcluster"} 7"#,
            r#"etcd_operator_queue_depth{controller="etcdcluster"} 7"#,
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{text}");
        }
    }
}
