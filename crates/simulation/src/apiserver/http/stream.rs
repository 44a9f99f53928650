//! One watch: events in order, bookmarks, and an end.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::{ApiError, Change, Event, Kind, Millis, Selector, meta};
use super::answer::partial;
use super::route::Request;
use super::taps::{Ending, Tap};
use super::{Shared, lock};

/// Clients that ask for bookmarks get one about as often.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long a stream lasts that asked for nothing else.
const LIFETIME: u64 = 1800;

/// The body of the answer to a watch request.
pub struct Watch {
    shared: Shared,
    kind: Kind,
    namespace: Option<String>,
    selector: Selector,
    metadata_only: bool,
    bookmarks: Option<Instant>,
    ends: Instant,
    tap: Arc<Mutex<Tap>>,
    changed: watch::Receiver<()>,
    /// Everything up to this version was told.
    told: u64,
    ready: VecDeque<Bytes>,
    over: bool,
}

/// What to do next.
enum Step {
    Tell,
    Wait(Instant),
    End(io::Result<()>),
}

impl Watch {
    pub fn open(shared: &Shared, client: &str, request: &Request, lag: Millis) -> Result<Self, ApiError> {
        let text = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let version = match text("resourceVersion") {
            "" | "0" => None,
            version => Some(version.parse().map_err(|_| {
                ApiError::bad_request(format!("resourceVersion: Invalid value: {version:?}"))
            })?),
        };
        let lifetime = text("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0).unwrap_or(LIFETIME);
        let mut watch = Self {
            shared: shared.clone(),
            kind: request.kind,
            namespace: request.namespace.clone(),
            selector: request.selector.clone(),
            metadata_only: request.metadata_only,
            bookmarks: request.flag("allowWatchBookmarks").then(|| Instant::now() + BOOKMARK),
            ends: Instant::now() + Duration::from_secs(lifetime),
            tap: lock(&shared.0.taps).open(client, request.kind, lag),
            changed: shared.0.changed.subscribe(),
            told: version.unwrap_or_default(),
            ready: VecDeque::new(),
            over: false,
        };
        if version.is_none() || request.flag("sendInitialEvents") {
            watch.tell_all(request.flag("sendInitialEvents"));
        }
        Ok(watch)
    }

    /// Begins with what is there, as if it were all new.
    fn tell_all(&mut self, marks_end: bool) {
        let (objects, revision) =
            self.shared.with(|server, _| server.list(self.kind, self.namespace.as_deref(), &self.selector));
        for object in &objects {
            self.push(Change::Added.as_str(), object);
        }
        self.told = revision;
        if marks_end {
            let mut mark = self.bookmark();
            mark["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
            self.push("BOOKMARK", &mark);
        }
    }

    pub fn frames(self) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
        stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            watch.over |= line.is_err();
            Some((line.map(Frame::data), watch))
        })
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            if self.over {
                return None;
            }
            // Whatever changes from here on wakes the wait below.
            self.changed.borrow_and_update();
            match self.step() {
                Step::Tell => {}
                Step::End(Ok(())) => self.over = true,
                Step::End(Err(error)) => return Some(Err(error)),
                Step::Wait(until) => tokio::select! {
                    biased;
                    // A server that is gone says nothing any more.
                    gone = self.changed.changed() => if gone.is_err() { pending().await },
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    fn step(&mut self) -> Step {
        let tap = *lock(&self.tap);
        match tap.ending {
            Some(Ending::Close) => return Step::End(Ok(())),
            Some(Ending::Break) => return Step::End(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Ending::Expire) => return self.refuse(&ApiError::expired(self.told, self.told + 1)),
            None if Instant::now() >= self.ends => return Step::End(Ok(())),
            None if tap.held => return Step::Wait(self.ends),
            None => {}
        }
        let (selector, namespace) = (&self.selector, self.namespace.as_deref());
        let news = self.shared.with(|server, now| {
            let events = server.watch_since(self.kind, namespace, selector, self.told);
            events.map(|events| (events, server.revision(), now))
        });
        match news {
            Ok((events, revision, now)) => self.tell(events, revision, now, tap),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn tell(&mut self, mut events: Vec<Event>, revision: u64, now: Millis, tap: Tap) -> Step {
        let due = events.partition_point(|event| event.at + tap.lag <= now);
        let later = events.get(due).map(|event| event.at + tap.lag - now);
        events.truncate(due);
        if let Some(last) = events.last() {
            self.told = last.revision;
            if std::mem::take(&mut lock(&self.tap).coalesce) {
                events = coalesced(events);
            }
            for event in &events {
                self.push(event.change.as_str(), &event.object);
            }
            return Step::Tell;
        }
        if later.is_none() {
            self.told = self.told.max(revision);
            if self.bookmarks.is_some_and(|at| Instant::now() >= at) {
                self.bookmarks = Some(Instant::now() + BOOKMARK);
                let mark = self.bookmark();
                self.push("BOOKMARK", &mark);
                return Step::Tell;
            }
        }
        let due = later.map(|later| Instant::now() + Duration::from_millis(later));
        Step::Wait(
            [due, self.bookmarks.filter(|_| later.is_none())]
                .into_iter()
                .flatten()
                .fold(self.ends, Instant::min),
        )
    }

    fn refuse(&mut self, refusal: &ApiError) -> Step {
        self.line("ERROR", &refusal.status());
        self.over = true;
        Step::Tell
    }

    fn bookmark(&self) -> Value {
        let metadata = json!({ "resourceVersion": self.told.to_string() });
        json!({ "kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata })
    }

    fn push(&mut self, type_: &str, object: &Value) {
        if self.metadata_only && type_ != "BOOKMARK" {
            self.line(type_, &partial(object));
        } else {
            self.line(type_, object);
        }
    }

    fn line(&mut self, type_: &str, object: &Value) {
        let line = format!("{}\n", json!({ "type": type_, "object": object }));
        self.ready.push_back(Bytes::from(line));
    }
}

/// Only the last state of each object: what came and went in between was never there.
fn coalesced(events: Vec<Event>) -> Vec<Event> {
    let mut first = BTreeMap::<String, Change>::new();
    let mut last = BTreeMap::<String, Event>::new();
    for event in events {
        let uid = meta::uid(&event.object).to_owned();
        first.entry(uid.clone()).or_insert(event.change);
        last.insert(uid, event);
    }
    let mut events: Vec<Event> = last
        .into_iter()
        .filter_map(|(uid, mut event)| {
            let is_new = first.get(&uid) == Some(&Change::Added);
            match event.change {
                Change::Deleted if is_new => return None,
                Change::Deleted => {}
                _ if is_new => event.change = Change::Added,
                // It left the selector and came back: one change, seen from outside.
                _ => event.change = Change::Modified,
            }
            Some(event)
        })
        .collect();
    events.sort_by_key(|event| event.revision);
    events
}
