//! The seam between what any controller needs and what one is about. A controller says which kinds it knows and what one pass
//! over one key is; watches, cache, queue, workers, backoff, draining and metrics come from here, and are the same for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::runtime::cache::{Cache, Group, Key};
use crate::runtime::metrics::{ControllerMetrics, Metrics};
use crate::runtime::queue::Queue;
use crate::runtime::watch::{Pending, Watches};

/// How long a key waits after its first failed pass; with every further one twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The longest.
const BACKOFF_LAST: Duration = Duration::from_secs(300);

/// Looks after the objects of one kind, and what belongs to them.
pub trait Controller: Send + Sync + 'static {
    /// The kinds it knows.
    type Kinds: Group;
    /// Its name in metrics: that which the Go operator's controller of this kind has.
    const NAME: &'static str;

    /// One pass over one key: observe, plan, act, report. It ends by itself: every call in it has a limit.
    fn pass(&self, key: &Key) -> impl Future<Output = Passed> + Send;
}

/// What came of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub succeeded: bool,
    pub requeue: Requeue,
}

/// When a key is looked at again if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Not before something happens.
    Never,
    After(Duration),
    /// Later and later, as long as passes fail.
    Backoff,
}

impl Passed {
    /// There is nothing to do until something happens.
    pub const DONE: Self = Self { succeeded: true, requeue: Requeue::Never };
    /// It did not work out, and is tried again.
    pub const FAILED: Self = Self { succeeded: false, requeue: Requeue::Backoff };
}

/// Starts the workers of a controller.
type Begin = Box<dyn FnOnce(&mut Workers) + Send>;

/// The controllers of a process. They watch from the beginning, so that a stand-by takes over with filled caches; they work
/// once they are told to begin.
pub struct Controllers {
    watches: Watches,
    pending: Arc<Pending>,
    metrics: Arc<Metrics>,
    waiting: Vec<Begin>,
}

impl Controllers {
    /// None yet. Without `namespaces`, all of them are watched. Needs a runtime.
    pub fn new(client: Client, namespaces: Vec<String>, metrics: Arc<Metrics>) -> Self {
        let pending = Arc::new(Pending::default());
        let watches = Watches::new(client, namespaces, pending.clone());
        Self { watches, pending, metrics, waiting: vec![] }
    }

    /// What is still to be listed before work can begin.
    pub fn pending(&self) -> Arc<Pending> {
        self.pending.clone()
    }

    /// Adds a controller that is made with its cache. Keys are worked on by so many workers at the same time.
    pub fn add<C: Controller>(&mut self, workers: u16, make: impl FnOnce(Arc<Cache<C::Kinds>>) -> C) {
        let (cache, queue) = (Arc::new(Cache::default()), Arc::new(Queue::default()));
        self.watches.follow(&cache, &queue);
        let metrics = self.metrics.controller(C::NAME);
        let (counted, waiting) = (metrics.clone(), queue.clone());
        self.metrics.at_scrape(move || counted.set_depth(waiting.depth()));
        let work = Arc::new(Work { controller: make(cache), queue, metrics, failures: Mutex::default() });
        self.waiting.push(Box::new(move |running| {
            for _ in 0..workers {
                running.tasks.spawn(work.clone().run(running.stopped.subscribe()));
            }
        }));
    }

    /// Lets all of them work.
    pub fn begin(&mut self, workers: &mut Workers) {
        for begin in self.waiting.drain(..) {
            begin(workers);
        }
    }
}

/// Everybody who works.
#[derive(Default)]
pub struct Workers {
    tasks: JoinSet<()>,
    stopped: watch::Sender<bool>,
}

impl Workers {
    /// Begins nothing new, and lets passes under way end. A pass that was cut off is safe, one that has ended is tidier.
    pub async fn drain(&mut self, limit: Duration) {
        self.stopped.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await;
    }

    /// Ends whatever is under way.
    pub async fn abort(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// One controller at work.
struct Work<C> {
    controller: C,
    queue: Arc<Queue<Key>>,
    metrics: ControllerMetrics,
    /// How often the last passes over a key have failed.
    failures: Mutex<HashMap<Key, u32>>,
}

impl<C: Controller> Work<C> {
    async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        loop {
            let key = tokio::select! {
                key = self.queue.next() => key,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
            let began = Instant::now();
            let passed = self.controller.pass(&key).await;
            self.metrics.pass(began.elapsed(), passed.succeeded);
            let again = self.again(&key, passed.requeue);
            self.queue.done(key, again);
        }
    }

    fn again(&self, key: &Key, requeue: Requeue) -> Option<Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if requeue != Requeue::Backoff {
            failures.remove(key);
        }
        match requeue {
            Requeue::Never => None,
            Requeue::After(delay) => Some(delay),
            Requeue::Backoff => {
                let count = failures.entry(key.clone()).or_default();
                let delay = BACKOFF_FIRST.saturating_mul(1 << (*count).min(16));
                *count = count.saturating_add(1);
                Some(delay.min(BACKOFF_LAST))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kinds::Clusters;

    struct Fails;

    impl Controller for Fails {
        type Kinds = Clusters;
        const NAME: &'static str = "test";

        async fn pass(&self, _: &Key) -> Passed {
            Passed::FAILED
        }
    }

    #[test]
    fn what_fails_is_tried_later_and_later_until_it_succeeds() {
        let metrics = Metrics::default().controller(Fails::NAME);
        let work = Work { controller: Fails, queue: Arc::default(), metrics, failures: Mutex::default() };
        let key = Key { namespace: "ns".into(), name: "c".into() };
        let waits: Vec<_> = (0..10).filter_map(|_| work.again(&key, Requeue::Backoff)).collect();
        let seconds: Vec<_> = waits.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(work.again(&key, Requeue::Never), None);
        assert_eq!(work.again(&key, Requeue::Backoff), Some(BACKOFF_FIRST));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_stop_begins_nothing_new() {
        let metrics = Metrics::default().controller(Fails::NAME);
        let work =
            Arc::new(Work { controller: Fails, queue: Arc::default(), metrics, failures: Mutex::default() });
        let mut workers = Workers::default();
        workers.tasks.spawn(work.clone().run(workers.stopped.subscribe()));
        let began = Instant::now();
        workers.drain(Duration::from_secs(60)).await;
        assert!(began.elapsed() < Duration::from_secs(1) && workers.tasks.is_empty());
    }
}
