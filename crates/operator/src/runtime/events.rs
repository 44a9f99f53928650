//! Events that users read in `kubectl describe`. What is said again within a few minutes becomes a series of the first one.
//! Little is kept of each: a thousand new clusters say ten thousand things. Nobody waits for an Event: they stand in a line
//! that has an end, and every call has a limit.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::EtcdMember;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::runtime::requests::{is_reason, is_terminating};
use crate::runtime::sentence::refusal;
use planner::pass::API_LIMIT;
use planner::sentence::{cut, silence};

const CONTROLLER: &str = "etcd-operator";
/// What Kubernetes' own components take for the same series.
const SERIES: Duration = Duration::from_secs(360);
/// Beyond that, a repetition may become an Event of its own.
const REMEMBERED: usize = 1024;
/// Events on their way at the same time: what clusters need goes first, and connections cost memory.
const AT_ONCE: usize = 8;
/// Events that wait. What comes on top of that is only in the log.
const WAITING: usize = 4096;
/// The API server refuses longer notes, in bytes (T36).
const LONGEST_NOTE: usize = 1024;
/// The same for reason, action and reporting instance.
const LONGEST_WORD: usize = 128;
/// Leaves room for the time in the name of an Event.
const LONGEST_NAME: usize = 220;

/// How a user should take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tone {
    Normal,
    Warning,
}

/// Something to tell.
#[derive(Clone, Debug)]
pub struct News {
    pub tone: Tone,
    pub reason: String,
    pub note: String,
    /// What it is told about.
    pub about: ObjectReference,
    /// What else has to do with it.
    pub related: Option<ObjectReference>,
}

impl News {
    /// The same, told about the member it has to do with.
    fn about_its_member(&self) -> Option<Self> {
        let member = self.related.clone().filter(|r| r.kind.as_deref() == Some(&EtcdMember::kind(&())))?;
        let namespace = member.namespace.clone().or_else(|| self.about.namespace.clone());
        let about = ObjectReference { namespace, ..member };
        Some(Self { about, related: Some(self.about.clone()), ..self.clone() })
    }

    /// Within the limits of the API server.
    fn cut(self) -> Self {
        let (reason, note) = (cut(&self.reason, LONGEST_WORD), cut(&self.note, LONGEST_NOTE));
        Self { reason, note, ..self }
    }
}

/// Tells it.
#[derive(Clone)]
pub struct Announcer {
    line: mpsc::Sender<News>,
    left_out: Arc<AtomicU64>,
}

impl Announcer {
    /// `instance` is the Pod that speaks. Needs a runtime: a task of its own publishes, until the last clone is dropped.
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
        let (line, mut waiting) = mpsc::channel(WAITING);
        let publisher = Publisher { client, instance: cut(&instance, LONGEST_WORD), said: Mutex::default() };
        tokio::spawn(async move {
            let waiting = stream::poll_fn(|context| waiting.poll_recv(context));
            waiting.for_each_concurrent(AT_ONCE, |news| publisher.publish(news)).await;
        });
        Self { line, left_out: Arc::default() }
    }

    /// Puts it in the line, and what is about a member of the cluster there as well, so that whoever describes the member
    /// reads it. Where the line is full, it is left out.
    pub fn tell(&self, news: News) {
        for news in news.about_its_member().into_iter().chain([news]) {
            if let Err(error) = self.line.try_send(news.cut()) {
                let (left_out, News { reason, note, .. }) =
                    (self.left_out.fetch_add(1, Ordering::Relaxed) + 1, error.into_inner());
                warn!(left_out, reason, "too many Events wait to be published, this one is left out: {note}");
            }
        }
    }
}

/// Publishes what stands in the line.
struct Publisher {
    client: Client,
    instance: String,
    said: Mutex<HashMap<u64, Said>>,
}

/// An Event that may become a series.
#[derive(Clone, Debug)]
struct Said {
    name: String,
    times: i32,
    last: Instant,
}

impl Publisher {
    /// Publishes it, or says in the log why that was not possible.
    async fn publish(&self, news: News) {
        let (reason, note) = (news.reason.clone(), news.note.clone());
        let what = format!("Event about {}", described(&news.about));
        let why = match tokio::time::timeout(API_LIMIT, self.say(news)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) if is_terminating(&error) => {
                return debug!(reason, "{}: {note}", refusal(&what, &error));
            }
            Ok(Err(error)) => refusal(&what, &error),
            Err(_) => silence(&what),
        };
        warn!(reason, note, "an Event could not be published: {why}");
    }

    /// Publishes it, or counts it where it has just been published.
    async fn say(&self, news: News) -> kube::Result<()> {
        let namespace = news.about.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let key = fingerprint(&news);
        let before = self.said().get(&key).filter(|said| said.last.elapsed() < SERIES).cloned();
        if let Some(said) = before {
            let said = Said { times: said.times + 1, last: Instant::now(), ..said };
            let series = json!({ "count": said.times, "lastObservedTime": MicroTime(Timestamp::now()) });
            let patch = Patch::Merge(json!({ "series": series }));
            match events.patch(&said.name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    self.remember(key, said);
                    return Ok(());
                }
                // Somebody deleted it: it is said anew.
                Err(error) if is_reason(&error, "NotFound") => {}
                Err(error) => return Err(error),
            }
        }
        let said = Said { name: name(&news), times: 1, last: Instant::now() };
        events.create(&PostParams::default(), &self.event(news, &said.name)).await?;
        self.remember(key, said);
        Ok(())
    }

    fn event(&self, news: News, name: &str) -> Event {
        let namespace = news.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            type_: Some(format!("{:?}", news.tone)),
            action: Some(news.reason.clone()),
            reason: Some(news.reason),
            note: Some(news.note),
            event_time: Some(MicroTime(Timestamp::now())),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(news.about),
            related: news.related,
            ..Event::default()
        }
    }

    fn remember(&self, key: u64, said: Said) {
        let mut all = self.said();
        if all.len() >= REMEMBERED {
            all.retain(|_, said| said.last.elapsed() < SERIES);
        }
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(key, said);
    }

    fn said(&self) -> MutexGuard<'_, HashMap<u64, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(news: &News) -> String {
    let about = news.about.name.as_deref().unwrap_or(CONTROLLER);
    let about: String = about.chars().take(LONGEST_NAME).collect();
    format!("{about}.{:x}", Timestamp::now().as_nanosecond())
}

/// `EtcdCluster my-etcd`.
fn described(object: &ObjectReference) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    format!("{} {}", word(&object.kind), word(&object.name))
}

fn fingerprint(news: &News) -> u64 {
    let mut hasher = DefaultHasher::new();
    let who = |o: &ObjectReference| (o.kind.clone(), o.namespace.clone(), o.name.clone(), o.uid.clone());
    (news.tone, &news.reason, &news.note, who(&news.about), news.related.as_ref().map(who)).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::*;

    fn news(note: &str) -> News {
        let about = ObjectReference { name: Some("c".into()), ..ObjectReference::default() };
        News { tone: Tone::Warning, reason: "Blocked".into(), note: note.into(), about, related: None }
    }

    #[test]
    fn the_same_words_are_a_series_and_others_are_not() {
        assert_eq!(fingerprint(&news("a")), fingerprint(&news("a")));
        assert_ne!(fingerprint(&news("a")), fingerprint(&news("b")));
        let related = Some(ObjectReference { name: Some("c-1".into()), ..ObjectReference::default() });
        assert_ne!(fingerprint(&news("a")), fingerprint(&News { related, ..news("a") }));
    }

    fn publisher(server: &Server) -> Publisher {
        Publisher { client: server.client(), instance: CONTROLLER.to_owned(), said: Mutex::default() }
    }

    #[tokio::test]
    async fn what_is_remembered_has_a_limit() {
        let publisher = publisher(&Server::default());
        for key in 0..5000 {
            publisher.remember(key, Said { name: String::new(), times: 1, last: Instant::now() });
        }
        assert!(publisher.said().len() <= REMEMBERED);
    }

    /// An API server that keeps the Events it is given, refuses those that are too long as the real one does, and does not
    /// answer while it is told to be silent.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Vec<Event>>>, Arc<AtomicU64>);

    impl Server {
        fn announcer(&self) -> Announcer {
            Announcer::new(self.client(), None)
        }

        fn client(&self) -> Client {
            let this = self.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let this = this.clone();
                async move { Ok::<_, std::io::Error>(this.answer(request).await) }
            });
            Client::new(service, "ns")
        }

        /// The next so many requests are not answered.
        fn silent(self, requests: u64) -> Self {
            self.1.store(requests, Ordering::Relaxed);
            self
        }

        async fn answer(&self, request: http::Request<Body>) -> http::Response<Body> {
            if self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                return std::future::pending().await;
            }
            let sent = request.into_body().collect_bytes().await.unwrap();
            let event: Event = serde_json::from_slice(&sent).unwrap();
            if event.note.as_ref().is_none_or(|note| note.len() > 1024) {
                let status = json!({ "kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid",
                    "message": "Event is invalid", "details": { "causes": [
                        { "field": "note", "message": "can have at most 1024 bytes" }] } });
                let body = Body::from(status.to_string().into_bytes());
                return http::Response::builder().status(422).body(body).unwrap();
            }
            self.0.lock().unwrap().push(event);
            http::Response::new(Body::from(sent.to_vec()))
        }

        /// What was published, when nothing is under way any more.
        async fn events(&self) -> Vec<Event> {
            tokio::time::sleep(10 * API_LIMIT).await;
            self.0.lock().unwrap().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn t36_words_that_are_too_long_are_cut_and_not_lost() {
        let server = Server::default();
        let announcer = server.announcer();
        announcer.tell(News { reason: "r".repeat(200), ..news(&"é".repeat(1000)) });
        announcer.tell(news("short"));
        let events = server.events().await;
        assert_eq!(events.len(), 2, "{events:?}");
        let (long, short) = (&events[0], &events[1]);
        let note = long.note.as_deref().unwrap();
        assert!((1000..=1024).contains(&note.len()) && note.ends_with("é…"), "{note}");
        let words = [&long.reason, &long.action, &long.reporting_instance];
        assert!(words.iter().all(|word| word.as_ref().is_some_and(|word| word.len() <= 128)), "{long:?}");
        assert_eq!(short.note.as_deref(), Some("short"));
    }

    #[tokio::test(start_paused = true)]
    async fn t36_a_server_that_is_silent_holds_up_nobody_and_the_line_has_an_end() {
        let server = Server::default().silent(u64::MAX);
        let announcer = server.announcer();
        for n in 0..2 * WAITING {
            announcer.tell(news(&n.to_string()));
        }
        let left_out = usize::try_from(announcer.left_out.load(Ordering::Relaxed)).unwrap();
        assert_eq!(left_out, WAITING, "what does not fit is counted");
    }

    #[tokio::test(start_paused = true)]
    async fn t36_a_call_without_an_answer_is_given_up() {
        let calls = u64::try_from(AT_ONCE).unwrap();
        let server = Server::default().silent(calls);
        let announcer = server.announcer();
        for n in 0..=AT_ONCE {
            announcer.tell(news(&n.to_string()));
        }
        assert_eq!(server.events().await.len(), 1, "after the others have had their time");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_a_member_is_told_about_the_member_as_well() {
        let server = Server::default();
        let member = EtcdMember::new("c-1", api::EtcdMemberSpec::default()).object_ref(&());
        let about = ObjectReference { namespace: Some("ns".into()), ..news("").about };
        server.announcer().tell(News { related: Some(member), about, ..news("made") });
        let told = server.events().await;
        let about = |event: &Event| {
            let about = event.regarding.clone().unwrap();
            (
                about.namespace.unwrap(),
                about.name.unwrap(),
                event.related.clone().and_then(|r| r.name).unwrap(),
            )
        };
        let mut told: Vec<_> = told.iter().map(about).collect();
        told.sort();
        let row = |name: &str, related: &str| ("ns".to_owned(), name.to_owned(), related.to_owned());
        assert_eq!(told, [row("c", "c-1"), row("c-1", "c")]);
    }

    #[tokio::test(start_paused = true)]
    async fn t36_what_could_not_be_published_is_in_the_log_as_a_sentence() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        publisher(&Server::default()).publish(news(&"words of ours ".repeat(100))).await;
        publisher(&Server::default().silent(1)).publish(news("other words")).await;
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let (refused, silent) = log.trim().split_once('\n').unwrap();
        assert!(
            refused.contains("words of ours") && refused.contains("can have at most 1024 bytes"),
            "{log}"
        );
        assert!(silent.contains("other words") && silent.contains("did not answer in time"), "{log}");
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
