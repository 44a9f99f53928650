//! One thing that is done: what must be true right before it, which request is made, and what each answer means. It can be
//! repeated, and "already so" is success.

use std::collections::VecDeque;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::Kind;
use crate::evidence::{Contradiction, Look, occupied};

use super::error::Error;
use super::request::{Answer, Failure, Request};

/// What a cache should know without waiting for its watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object is like this now.
    Wrote { kind: Kind, object: Value },
    /// The object of this UID is gone.
    Gone { kind: Kind, name: String, uid: String },
}

/// How an operation ended.
#[derive(Debug, PartialEq)]
pub(super) struct Ended {
    pub change: Option<Change>,
    pub result: Result<(), Error>,
}

/// An operation under way.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// What it is called if etcd declines.
    doing: &'static str,
    /// What has to be looked at first, in order.
    looks: VecDeque<Look>,
    /// What has to be on record before the request is made.
    record: Option<Request>,
    /// What that has made of the object.
    noted: Option<Change>,
    /// The request; of several, the next one is made if etcd finds itself not healthy enough for the one before. None, if the
    /// looks are all.
    requests: VecDeque<Request>,
    /// What is to be made, to tell it from what has its name.
    wanted: Option<ObjectMeta>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The looks, and then the request.
    Ahead,
    /// Something of that name is there; whose is it?
    Explain { what: String, kind: Kind, name: String },
    /// An object of ours has lost its labels: this request puts them back.
    Relabel { what: String, patch: Request },
}

impl Operation {
    pub fn new(requests: impl IntoIterator<Item = Request>) -> Self {
        let requests = requests.into_iter().collect();
        let (looks, stage) = (VecDeque::new(), Stage::Ahead);
        Self { doing: "asking etcd", looks, record: None, noted: None, requests, wanted: None, stage }
    }

    /// With the words for what etcd is asked for.
    pub fn called(mut self, doing: &'static str) -> Self {
        self.doing = doing;
        self
    }

    /// With what has to be looked at first.
    pub fn after(mut self, looks: Vec<Look>) -> Self {
        self.looks = looks.into();
        self
    }

    /// With a patch that goes on record right before, or nothing is done.
    pub fn recording(mut self, record: Request) -> Self {
        self.record = Some(record);
        self
    }

    /// With what is to be made.
    pub fn making(mut self, wanted: &ObjectMeta) -> Self {
        self.wanted = Some(wanted.clone());
        self
    }

    /// What is asked now; `None` when there is nothing left to ask.
    pub fn request(&self) -> Option<Request> {
        match &self.stage {
            Stage::Ahead => match self.looks.front() {
                Some(look) => Some(Request::look(look.kind, &look.which)),
                None => self.record.as_ref().or(self.requests.front()).cloned(),
            },
            Stage::Explain { kind, name, .. } => Some(Request::Get { kind: *kind, name: name.clone() }),
            Stage::Relabel { patch, .. } => Some(patch.clone()),
        }
    }

    /// Whether what is asked now is the operation itself, and not a look before or after it.
    pub fn is_at_work(&self) -> bool {
        matches!(self.stage, Stage::Ahead) && self.looks.is_empty()
    }

    /// Takes the answer to [`request`](Self::request) in. Something when the operation has come to its end.
    pub fn hear(&mut self, answer: Result<Answer, Failure>) -> Option<Ended> {
        match self.stage.clone() {
            Stage::Ahead => match self.looks.pop_front() {
                Some(look) => self.judge(&look, answer),
                None => match self.record.take() {
                    Some(record) => self.recorded(&record, answer),
                    None => self.conclude(answer),
                },
            },
            Stage::Explain { what, kind, name } => self.explain(what, kind, &name, answer),
            Stage::Relabel { what, patch } => match meaning(&patch, answer) {
                Ok(change) => Some(Ended { change, result: Err(Error::Relabelled(what)) }),
                Err(error) => failed(error),
            },
        }
    }

    fn judge(&mut self, look: &Look, answer: Result<Answer, Failure>) -> Option<Ended> {
        let found = match found(answer) {
            Ok(found) => found,
            Err(failure) => return failed(Error::of(look.what(), failure)),
        };
        match look.judge(&found) {
            Ok(()) if self.request().is_none() => Some(Ended { change: None, result: Ok(()) }),
            Ok(()) => None,
            Err(contradiction) => {
                let name = found.first().and_then(|o| o["metadata"]["name"].as_str()).unwrap_or_default();
                self.contradicted(contradiction, look.what(), look.kind, name)
            }
        }
    }

    fn contradicted(&mut self, by: Contradiction, what: String, kind: Kind, name: &str) -> Option<Ended> {
        match by {
            Contradiction::Stale(what) => failed(Error::Stale(what)),
            Contradiction::Refused(why) => failed(Error::Refused(why)),
            Contradiction::Unlabelled { uid, labels } => {
                let patch = json!({ "metadata": { "uid": uid, "labels": labels } });
                let patch = Request::Patch { kind, name: name.to_owned(), patch };
                self.stage = Stage::Relabel { what, patch };
                None
            }
        }
    }

    /// Whether it is on record now. What somebody takes off right away is not; and what is gone can be neither noted nor deleted.
    fn recorded(&mut self, record: &Request, answer: Result<Answer, Failure>) -> Option<Ended> {
        let is_gone = matches!(&answer, Err(failure) if failure.is_reason("NotFound"));
        if let (true, Some(deletion @ Request::Delete { .. })) = (is_gone, self.requests.front()) {
            let change = meaning(deletion, answer).ok().flatten();
            return Some(Ended { change, result: Ok(()) });
        }
        let change = match meaning(record, answer) {
            Ok(change) => change,
            Err(error) => return failed(error),
        };
        if let (Request::Patch { patch, .. }, Some(Change::Wrote { object, .. })) = (record, &change) {
            let mut wanted = patch["metadata"]["annotations"].as_object().into_iter().flatten();
            if let Some((key, _)) =
                wanted.find(|(key, value)| object["metadata"]["annotations"][key] != **value)
            {
                let (what, key) = (record.what(), key.clone());
                let why =
                    format!("{what} does not keep the annotation {key}; a webhook seems to take it off");
                return Some(Ended { change, result: Err(Error::Refused(why)) });
            }
        }
        self.noted = change;
        None
    }

    fn conclude(&mut self, answer: Result<Answer, Failure>) -> Option<Ended> {
        let noted = self.noted.take();
        let mut ended = self.conclusion(answer)?;
        if ended.result.is_err() && ended.change.is_none() {
            ended.change = noted;
        }
        Some(ended)
    }

    fn conclusion(&mut self, answer: Result<Answer, Failure>) -> Option<Ended> {
        let request = self.requests.pop_front()?;
        // Whoever is asked judges by its own connections; the next one may know better.
        let declined = matches!(&answer, Err(Failure::Etcd(etcd::Error::Unhealthy)));
        if declined && !self.requests.is_empty() {
            return None;
        }
        if let (Request::Create { kind, .. }, Err(failure), Some(wanted)) = (&request, &answer, &self.wanted)
            && failure.is_reason("AlreadyExists")
        {
            let (what, name) = (request.what(), wanted.name.clone().unwrap_or_default());
            self.stage = Stage::Explain { what, kind: *kind, name };
            return None;
        }
        Some(match meaning(&request, answer) {
            Ok(change) => Ended { change, result: Ok(()) },
            Err(Error::Etcd { source, .. }) => {
                Ended { change: None, result: Err(Error::Etcd { action: self.doing, source }) }
            }
            Err(error) => Ended { change: None, result: Err(error) },
        })
    }

    /// Why an object of that name is there although the cache does not have it. If only its labels are wrong, they are put
    /// back.
    fn explain(
        &mut self,
        what: String,
        kind: Kind,
        name: &str,
        answer: Result<Answer, Failure>,
    ) -> Option<Ended> {
        let found = match found(answer) {
            Ok(found) => found,
            Err(failure) => return failed(Error::of(what, failure)),
        };
        let (Some(found), Some(wanted)) = (found.first(), &self.wanted) else {
            return failed(Error::Stale(what));
        };
        let contradiction = occupied(&what, wanted, found);
        self.contradicted(contradiction, what, kind, name)
    }
}

fn failed(error: Error) -> Option<Ended> {
    Some(Ended { change: None, result: Err(error) })
}

fn found(answer: Result<Answer, Failure>) -> Result<Vec<Value>, Failure> {
    match answer {
        Ok(Answer::Object(object)) => Ok(vec![object]),
        Ok(Answer::Objects(objects)) => Ok(objects),
        Ok(_) => Ok(vec![]),
        Err(failure) if failure.is_reason("NotFound") => Ok(vec![]),
        Err(failure) => Err(failure),
    }
}

/// What the answer to a request that changes something means.
fn meaning(request: &Request, answer: Result<Answer, Failure>) -> Result<Option<Change>, Error> {
    let failure = match (request, answer) {
        // The next pass must see that it is leaving, or it could choose another one to leave (rule 2); and that it is gone,
        // or it would delete it again and again until the watch has told of it.
        (Request::Delete { kind, name, uid }, Ok(answer)) => {
            let leaving = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
            return Ok(Some(match answer {
                Answer::Object(object) if leaving(&object) => Change::Wrote { kind: *kind, object },
                _ => Change::Gone { kind: *kind, name: name.clone(), uid: uid.clone() },
            }));
        }
        (
            Request::Create { kind, .. } | Request::Patch { kind, .. } | Request::ReplaceStatus { kind, .. },
            Ok(Answer::Object(object)),
        ) => return Ok(Some(Change::Wrote { kind: *kind, object })),
        (_, Ok(_)) => return Ok(None),
        (_, Err(failure)) => failure,
    };
    match request {
        _ if failure == Failure::Deposed => Err(Error::Deposed),
        Request::Delete { kind, name, uid } if failure.is_reason("NotFound") => {
            Ok(Some(Change::Gone { kind: *kind, name: name.clone(), uid: uid.clone() }))
        }
        Request::Delete { .. } if failure.is_reason("Conflict") => Err(Error::Stale(request.what())),
        Request::Patch { .. } | Request::ReplaceStatus { .. }
            if failure.is_reason("Conflict")
                || failure.is_reason("NotFound")
                || failure.is_about_another_object() =>
        {
            Err(Error::Stale(request.what()))
        }
        Request::Etcd { at, call } => Err(Error::Etcd {
            action: "asking etcd",
            source: match failure {
                Failure::Etcd(source) => source,
                _ => call.silence(at.member()),
            },
        }),
        _ => Err(Error::of(request.what(), failure)),
    }
}
