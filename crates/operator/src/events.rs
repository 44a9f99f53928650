//! Events that users read in `kubectl describe`. What is said again within a few minutes becomes a series of the first one.
//! Little is kept of each: a thousand new clusters say ten thousand things.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

const CONTROLLER: &str = "etcd-operator";
/// What Kubernetes' own components take for the same series.
const SERIES: Duration = Duration::from_secs(360);
/// Beyond that, a repetition may become an Event of its own.
const REMEMBERED: usize = 1024;
/// Events on their way at the same time: what clusters need goes first, and connections cost memory.
const AT_ONCE: usize = 8;

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

/// Tells it.
#[derive(Clone)]
pub struct Announcer {
    client: Client,
    instance: String,
    said: Arc<Mutex<HashMap<u64, Said>>>,
    turns: Arc<Semaphore>,
}

/// An Event that may become a series.
#[derive(Clone, Debug)]
struct Said {
    name: String,
    times: i32,
    last: Instant,
}

impl Announcer {
    /// `instance` is the Pod that speaks.
    pub fn new(client: Client, instance: Option<String>) -> Self {
        let instance = instance.unwrap_or_else(|| CONTROLLER.to_owned());
        Self { client, instance, said: Arc::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Publishes it, or counts it where it has just been published.
    pub async fn tell(&self, news: News) -> kube::Result<()> {
        // Nobody closes it.
        let _turn = self.turns.acquire().await;
        let namespace = news.about.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let key = fingerprint(&news);
        let before = self.said().get(&key).filter(|said| said.last.elapsed() < SERIES).cloned();
        let said = match before {
            Some(said) => Said { times: said.times + 1, last: Instant::now(), ..said },
            None => Said { name: name(&news), times: 1, last: Instant::now() },
        };
        if said.times > 1 {
            let series = json!({ "count": said.times, "lastObservedTime": MicroTime(Timestamp::now()) });
            let patch = Patch::Merge(json!({ "series": series }));
            events.patch(&said.name, &PatchParams::default(), &patch).await?;
        } else {
            events.create(&PostParams::default(), &self.event(news, &said.name)).await?;
        }
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
    format!("{about}.{:x}", Timestamp::now().as_nanosecond())
}

fn fingerprint(news: &News) -> u64 {
    let mut hasher = DefaultHasher::new();
    let who = |o: &ObjectReference| (o.kind.clone(), o.namespace.clone(), o.name.clone(), o.uid.clone());
    (news.tone, &news.reason, &news.note, who(&news.about), news.related.as_ref().map(who)).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn what_is_remembered_has_a_limit() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let announcer = Announcer::new(Client::try_from(config).unwrap(), None);
        for key in 0..5000 {
            announcer.remember(key, Said { name: String::new(), times: 1, last: Instant::now() });
        }
        assert!(announcer.said().len() <= REMEMBERED);
    }
}
