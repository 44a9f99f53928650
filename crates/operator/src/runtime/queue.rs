//! The work queue. A key is in it once, is worked on by one worker at a time, and comes back when it was touched in the
//! meantime or its time has come.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Keys that are to be worked on, each by one worker at a time.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    ready: VecDeque<K>,
    timers: BTreeSet<(Instant, K)>,
    keys: HashMap<K, Slot>,
}

#[derive(Default)]
struct Slot {
    queued: bool,
    running: bool,
    /// Touched while running: the pass under way may have seen the state before.
    dirty: bool,
    due: Option<Instant>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State { ready: VecDeque::new(), timers: BTreeSet::new(), keys: HashMap::new() };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<K: Clone + Eq + Ord + Hash> Queue<K> {
    /// Something happened to this key.
    pub fn add(&self, key: K) {
        self.lock().make_ready(key);
        self.changed.notify_one();
    }

    /// The next key to work on. [`Queue::done`] must follow.
    pub async fn next(&self) -> K {
        loop {
            let due = {
                let mut state = self.lock();
                state.fire(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    let slot = state.keys.entry(key.clone()).or_default();
                    slot.queued = false;
                    slot.running = true;
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.timers.first().map(|(due, _)| *due)
            };
            match due {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Ends the work on a key. It comes back after `again`, or at once if it was touched in the meantime.
    pub fn done(&self, key: K, again: Option<Duration>) {
        let mut state = self.lock();
        let slot = state.keys.entry(key.clone()).or_default();
        slot.running = false;
        if std::mem::take(&mut slot.dirty) {
            state.make_ready(key);
        } else if let Some(delay) = again {
            let due = Instant::now() + delay;
            slot.due = Some(due);
            state.timers.insert((due, key));
        } else {
            state.keys.remove(&key);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Keys that wait for a worker now.
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Ord + Hash> State<K> {
    fn make_ready(&mut self, key: K) {
        let slot = self.keys.entry(key.clone()).or_default();
        if let Some(due) = slot.due.take() {
            self.timers.remove(&(due, key.clone()));
        }
        if slot.running {
            slot.dirty = true;
        } else if !slot.queued {
            slot.queued = true;
            self.ready.push_back(key);
        }
    }

    fn fire(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.make_ready(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_handed_out_once_however_often_it_is_touched() {
        let queue = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!((queue.next().await, queue.next().await), ("a", "b"));
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_touched_while_it_is_worked_on_comes_back_after_it_is_done() {
        let queue = Queue::default();
        queue.add("a");
        let key = queue.next().await;
        queue.add("a");
        assert!(
            tokio::time::timeout(Duration::from_secs(1), queue.next()).await.is_err(),
            "one worker a key"
        );
        queue.done(key, Some(Duration::from_secs(3600)));
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_back_when_its_time_has_come() {
        let queue = Queue::default();
        queue.add("a");
        let key = queue.next().await;
        queue.done(key, Some(Duration::from_secs(30)));
        let before = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_beats_the_timer_and_the_timer_is_forgotten() {
        let queue = Queue::default();
        queue.add("a");
        let key = queue.next().await;
        queue.done(key, Some(Duration::from_secs(30)));
        queue.add("a");
        let key = queue.next().await;
        queue.done(key, None);
        assert!(tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err());
    }
}
