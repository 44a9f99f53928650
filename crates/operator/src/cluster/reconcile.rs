//! Plays the passes of clusters: what each asks is sent, what comes back is handed to it, and what it tells is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use planner::Settings;
use planner::pass::{Around, Change, Memory, Pass, Sound, Step, Told};
use tokio::time::Instant;

use crate::cluster::observe;
use crate::cluster::report::Reporter;
use crate::runtime::ambient::Ambient;
use crate::runtime::cache::{Cache, Key, Known};
use crate::runtime::leader::Mandate;
use crate::runtime::metrics::Metrics;
use crate::runtime::requests::Network;

/// Looks after clusters.
pub struct Reconciler {
    pub cache: Arc<Cache>,
    pub network: Network,
    pub reporter: Reporter,
    pub metrics: Arc<Metrics>,
    pub mandate: Mandate,
    pub settings: Settings,
    pub ambient: Arc<dyn Ambient>,
    pub memory: Mutex<HashMap<Key, Memory>>,
    /// A clock that only goes forward.
    pub started: Instant,
}

impl Reconciler {
    /// Runs one pass. Returns when to come back without an event; `None` when the cluster is gone.
    pub async fn pass(&self, key: &Key) -> Option<Duration> {
        let began = Instant::now();
        let mut entry = self.cache.entry(key);
        if entry.clusters.is_empty() && entry.members.is_empty() && entry.malformed.is_empty() {
            self.memory().remove(key);
            return None;
        }
        let memory = self.memory().get(key).cloned().unwrap_or_default();
        let known = Known { cache: &self.cache, namespace: &key.namespace };
        let mut pass = match entry.malformed.pop_first() {
            Some((object, why)) => {
                let cluster = entry.clusters.remove(&key.name);
                let of = (key.namespace.as_str(), key.name.as_str());
                Pass::unreadable(of, cluster, (&object, &why), memory, Sound, &self.around(&known))
            }
            None => {
                let view = observe::view(key, entry, self.settings.clone(), self.ambient.entropy());
                Pass::begin(view, memory, Sound, &self.around(&known))
            }
        };
        self.play(key, &mut pass).await;
        let end = pass.end();
        self.metrics.pass(began.elapsed(), end.succeeded);
        self.memory().insert(key.clone(), end.memory);
        Some(end.again)
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

    fn around<'a>(&self, known: &'a Known<'_>) -> Around<'a> {
        let (now, wall) = (self.started.elapsed(), self.ambient.now());
        Around { now, wall, leads: self.mandate.holds(), cache: known }
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
