//! One replica of the operator: its watches, its queue and its workers, put together as its `run` does, without the
//! process around it. Dropping it is the end of the process.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use operator::cluster::reconcile::Reconciler;
use operator::cluster::report::Reporter;
use operator::runtime::ambient::Ambient;
use operator::runtime::cache::{Cache, Key};
use operator::runtime::events::Announcer;
use operator::runtime::leader::Mandate;
use operator::runtime::metrics::Metrics;
use operator::runtime::queue::Queue;
use operator::runtime::requests::Network;
use operator::runtime::watch::{Pending, Watches};
use planner::Settings;
use rand::RngExt as _;
use tokio::task::JoinSet;

use super::Stage;
use super::etcd_client::EtcdClient;
use crate::world::NAMESPACE;

/// Clusters worked on at the same time.
const WORKERS: usize = 4;

/// See the module's description.
pub struct Replica {
    _tasks: JoinSet<()>,
}

impl Replica {
    pub fn start(stage: &Stage, name: &str) -> Self {
        let client = stage.api.client(name, NAMESPACE);
        let cache = Arc::new(Cache::default());
        let queue = Arc::new(Queue::<Key>::default());
        let pending = Arc::new(Pending::default());
        let watches = Watches {
            client: client.clone(),
            namespaces: vec![],
            cache: cache.clone(),
            queue: queue.clone(),
            pending: pending.clone(),
        };
        let watching = watches.start();
        let reconciler = Arc::new(reconciler(stage, client, cache));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut watching = watching;
            while watching.join_next().await.is_some() {}
        });
        for _ in 0..WORKERS {
            let (reconciler, queue, pending) = (reconciler.clone(), queue.clone(), pending.clone());
            tasks.spawn(async move {
                while !pending.is_synced() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                loop {
                    let key = queue.next().await;
                    let again = reconciler.pass(&key).await;
                    queue.done(key, again);
                }
            });
        }
        Self { _tasks: tasks }
    }
}

fn reconciler(stage: &Stage, client: kube::Client, cache: Arc<Cache>) -> Reconciler {
    let etcd: Arc<dyn etcd::Etcd> = Arc::new(EtcdClient { stage: stage.clone() });
    let timeout = stage.lost_member_timeout;
    let settings = Settings {
        lost_member_timeout: timeout
            .map(|ms| SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
        ..Settings::default()
    };
    Reconciler {
        reporter: Reporter { announcer: Announcer::new(client.clone(), None) },
        network: Network { client, etcd },
        mandate: Mandate::default(),
        settings,
        ambient: Arc::new(Simulated { stage: stage.clone() }),
        cache,
        metrics: Arc::new(Metrics::default()),
        memory: Mutex::new(HashMap::new()),
        started: tokio::time::Instant::now(),
    }
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
