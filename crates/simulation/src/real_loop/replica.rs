//! One replica of the operator: its watches, its queue and its workers, put together as its `run` does, without the
//! process around it. Dropping it is the end of the process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use operator::cluster::reconcile::Reconciler;
use operator::cluster::report::Reporter;
use operator::runtime::ambient::Ambient;
use operator::runtime::controller::{Controllers, Workers};
use operator::runtime::events::Announcer;
use operator::runtime::leader::Mandate;
use operator::runtime::metrics::Metrics;
use operator::runtime::requests::Network;
use planner::Settings;
use rand::RngExt as _;
use tokio::task::JoinSet;

use super::Stage;
use super::etcd_client::EtcdClient;
use crate::world::NAMESPACE;

/// Clusters worked on at the same time.
const WORKERS: u16 = 4;

/// A replica at work.
pub struct Replica {
    _task: JoinSet<()>,
}

impl Replica {
    pub fn start(stage: &Stage, name: &str) -> Self {
        let client = stage.api.client(name, NAMESPACE);
        let mut controllers = controllers(stage, &client);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while !controllers.pending().is_synced() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut workers = Workers::default();
            controllers.begin(&mut workers);
            std::future::pending::<()>().await;
        });
        Self { _task: task }
    }
}

fn controllers(stage: &Stage, client: &kube::Client) -> Controllers {
    let etcd: Arc<dyn etcd::Etcd> = Arc::new(EtcdClient { stage: stage.clone() });
    let network = Network { client: client.clone(), etcd, mandate: Mandate::default() };
    let reporter = Reporter { announcer: Announcer::new(client.clone(), None) };
    let timeout = stage.lost_member_timeout;
    let settings = Settings {
        lost_member_timeout: timeout
            .map(|ms| SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
        ..Settings::default()
    };
    let ambient = Arc::new(Simulated { stage: stage.clone() });
    let metrics = Arc::new(Metrics::default());
    let mut all = Controllers::new(client.clone(), vec![], metrics.clone());
    all.add(WORKERS, |cache| Reconciler::new(cache, network, reporter, metrics, settings, ambient));
    all
}

/// The world's time, by the operator's own clock, and the world's chance.
struct Simulated {
    stage: Stage,
}

impl Ambient for Simulated {
    fn now(&self) -> Timestamp {
        let (now, skew) = (self.stage.now(), self.stage.skew.load(Ordering::Relaxed));
        let wall = self.stage.world().api().time(now);
        wall + SignedDuration::from_millis(skew)
    }

    fn entropy(&self) -> u64 {
        self.stage.world().rng.random()
    }
}
