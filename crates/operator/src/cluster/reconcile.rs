//! Plays the passes of clusters: what each asks is sent, what comes back is handed to it, and what it tells is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use planner::pass::{Around, Change, Memory, Pass, Sound, Step, Told};
use planner::{Objects, Settings};
use tokio::time::Instant;

use crate::cluster::kinds::Clusters;
use crate::cluster::report::Reporter;
use crate::runtime::ambient::Ambient;
use crate::runtime::cache::{Cache, Entry, Key, Known};
use crate::runtime::controller::{Controller, Passed, Requeue};
use crate::runtime::metrics::Metrics;
use crate::runtime::requests::Network;

/// Looks after clusters.
pub struct Reconciler {
    cache: Arc<Cache<Clusters>>,
    network: Network,
    reporter: Reporter,
    metrics: Arc<Metrics>,
    settings: Settings,
    ambient: Arc<dyn Ambient>,
    memory: Mutex<HashMap<Key, Memory>>,
    /// A clock that only goes forward.
    started: Instant,
}

impl Controller for Reconciler {
    type Kinds = Clusters;
    const NAME: &'static str = "etcdcluster";

    async fn pass(&self, key: &Key) -> Passed {
        let began = Instant::now();
        let mut entry = self.cache.entry(key);
        let objects = observe(&mut entry);
        let malformed = entry.malformed.pop_first();
        if objects.is_empty() && malformed.is_none() {
            self.memory().remove(key);
            return Passed::DONE;
        }
        let mut pass = self.begin(key, objects, malformed);
        self.play(key, &mut pass).await;
        let end = pass.end();
        self.metrics.pass(began.elapsed(), end.succeeded);
        self.memory().insert(key.clone(), end.memory);
        Passed { succeeded: end.succeeded, requeue: Requeue::After(end.again) }
    }
}

/// What the cache has of a cluster.
pub fn observe(entry: &mut Entry<Clusters>) -> Objects {
    Objects {
        clusters: entry.take(),
        members: entry.take(),
        pods: entry.take(),
        volumes: entry.take(),
        services: entry.take(),
        budgets: entry.take(),
    }
}

impl Reconciler {
    /// Remembers nothing yet.
    pub fn new(
        cache: Arc<Cache<Clusters>>,
        network: Network,
        reporter: Reporter,
        metrics: Arc<Metrics>,
        settings: Settings,
        ambient: Arc<dyn Ambient>,
    ) -> Self {
        let (memory, started) = (Mutex::default(), Instant::now());
        let known = cache.clone();
        let clusters = metrics.clusters.clone();
        metrics.at_scrape(move || {
            clusters.set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        });
        Self { cache, network, reporter, metrics, settings, ambient, memory, started }
    }

    /// A pass over these objects, or about the one that can not be read.
    fn begin(&self, key: &Key, mut objects: Objects, malformed: Option<(String, String)>) -> Pass {
        let memory = self.memory().get(key).cloned().unwrap_or_default();
        let known = Known { cache: &self.cache, namespace: &key.namespace };
        let around = self.around(&known);
        match malformed {
            Some((object, why)) => {
                let cluster = objects.clusters.remove(&key.name);
                let of = (key.namespace.as_str(), key.name.as_str());
                Pass::unreadable(of, cluster, (&object, &why), memory, Sound, &around)
            }
            None => {
                let (settings, entropy) = (self.settings.clone(), self.ambient.entropy());
                let view = objects.into_view(&key.namespace, &key.name, settings, entropy);
                Pass::begin(view, memory, Sound, &around)
            }
        }
    }

    /// Sends what the pass asks, several requests at once if it does, until it has come to its end.
    async fn play(&self, key: &Key, pass: &mut Pass) {
        let known = Known { cache: &self.cache, namespace: &key.namespace };
        let mut asked = FuturesUnordered::new();
        loop {
            let step = pass.next(&self.around(&known));
            self.take_in(key, pass);
            match step {
                Step::Ask(ticket, request) => {
                    asked.push(async move { (ticket, self.network.send(&key.namespace, &request).await) });
                }
                Step::Wait => {
                    // A pass that waits has asked somebody.
                    let Some((ticket, answer)) = asked.next().await else { return };
                    pass.hear(ticket, answer, &self.around(&known));
                }
                Step::Over => return,
            }
        }
    }

    fn around<'a>(&self, known: &'a Known<'_, Clusters>) -> Around<'a> {
        let (now, wall) = (self.started.elapsed(), self.ambient.now());
        Around { now, wall, leads: self.network.mandate.holds(), cache: known }
    }

    /// Tells what the pass tells, and keeps the cache up with what it has written.
    fn take_in(&self, key: &Key, pass: &mut Pass) {
        for told in pass.told() {
            match &told {
                Told::Changed(Change::Wrote { kind, object }) => self.cache.wrote_as(*kind, object),
                Told::Changed(Change::Gone { kind, name, uid }) => self.cache.gone_as(*kind, key, name, uid),
                told => self.reporter.tell(key, pass.view(), pass.plan(), told),
            }
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
