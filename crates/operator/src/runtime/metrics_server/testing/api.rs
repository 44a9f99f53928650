//! An API server that knows two tokens and answers reviews, for tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use kube::Client;
use serde_json::{Value, json};

/// How it behaves.
#[derive(Clone, Copy, Default, PartialEq)]
pub enum Mood {
    #[default]
    Answers,
    /// Tokens are nobody's, with an error that says so.
    Complains,
    /// The reviews of this kind are not for the operator to make.
    Forbids(&'static str),
    /// What it sends is no review.
    Babbles,
    /// The second question is allowed and denied at once.
    Contradicts,
    /// No answer to questions of this kind, ever.
    Silent(&'static str),
    /// There is no server.
    Absent,
}

/// The server and what it was asked.
#[derive(Clone, Default)]
pub struct FakeApi {
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<Value>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeApi {
    pub fn turn(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }

    /// The bodies of all requests so far.
    pub fn asked(&self) -> Vec<Value> {
        lock(&self.asked).clone()
    }

    pub fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let this = this.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = to_bytes(Body::new(body), usize::MAX).await.map_err(std::io::Error::other)?;
                let review: Value = serde_json::from_slice(&body).map_err(std::io::Error::other)?;
                let (code, answer) = this.answer(head.uri.path(), review).await?;
                let answer = kube::client::Body::from(answer.to_string().into_bytes());
                http::Response::builder().status(code).body(answer).map_err(std::io::Error::other)
            }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, path: &str, mut review: Value) -> std::io::Result<(u16, Value)> {
        lock(&self.asked).push(review.clone());
        let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
        let mood = *lock(&self.mood);
        review["status"] = match mood {
            Mood::Absent => {
                return Err(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "no server"));
            }
            Mood::Silent(of) if of == kind => {
                tokio::time::sleep(Duration::from_hours(1)).await;
                return Err(std::io::Error::other("too late"));
            }
            Mood::Forbids(of) if of == kind => {
                let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                    "reason": "Forbidden", "message": format!("{kind} is forbidden"), "metadata": {} });
                return Ok((403, status));
            }
            Mood::Babbles => return Ok((200, json!("how are you"))),
            Mood::Complains => json!({ "error": "invalid bearer token" }),
            _ if kind == "tokenreviews" => owner(review["spec"]["token"].as_str()),
            mood => {
                let allowed = review["spec"]["user"] == "scraper";
                json!({ "allowed": allowed, "denied": mood == Mood::Contradicts })
            }
        };
        Ok((201, review))
    }
}

fn owner(token: Option<&str>) -> Value {
    match token {
        Some(token @ ("scraper" | "guest")) => json!({
            "authenticated": true,
            "user": { "username": token, "uid": "7", "groups": ["g"], "extra": { "pod": ["p"] } },
        }),
        _ => json!({ "authenticated": false }),
    }
}
