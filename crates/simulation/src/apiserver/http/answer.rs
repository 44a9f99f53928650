//! From a request to the server's answer.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};

use super::super::{ApiError, DeleteOptions, Deletion, Kind, Millis, Propagation, Sub};
use super::route::Request;
use super::stream::Watch;
use super::{Response, Shared, Verb, lock};

pub fn answer(shared: &Shared, client: &str, request: Request, lag: Millis) -> Response {
    if request.verb == Verb::Watch {
        return match Watch::open(shared, client, &request, lag) {
            Ok(watch) => respond(StatusCode::OK, StreamBody::new(watch.frames()).boxed_unsync()),
            Err(refusal) => self::refusal(&refusal),
        };
    }
    match read_or_write(shared, request) {
        Ok((true, body)) => full(StatusCode::CREATED, &body),
        Ok((false, body)) => full(StatusCode::OK, &body),
        Err(refusal) => self::refusal(&refusal),
    }
}

pub fn refusal(refusal: &ApiError) -> Response {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    full(code, &refusal.status())
}

fn full(code: StatusCode, body: &Value) -> Response {
    let body = Full::new(Bytes::from(body.to_string()));
    respond(code, body.map_err(|never| match never {}).boxed_unsync())
}

fn respond(
    code: StatusCode,
    body: http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>,
) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

/// Whether something was created, and the body of the answer.
fn read_or_write(shared: &Shared, request: Request) -> Result<(bool, Value), ApiError> {
    let Request { verb, kind, sub, body, metadata_only, .. } = request;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let name = request.name.as_deref().unwrap_or_default();
    let may_create = [Verb::Create, Verb::Update].contains(&verb);
    let creates = shared.with(|server, _| may_create && server.peek(kind, namespace, name).is_none());
    let object = shared.with(|server, now| match verb {
        Verb::Get if sub == Some(Sub::Scale) => server.scale(kind, namespace, name),
        Verb::Get => server.get(kind, namespace, name),
        Verb::List | Verb::Watch => {
            let (mut items, revision) = server.list(kind, request.namespace.as_deref(), &request.selector);
            if metadata_only {
                items = items.iter().map(partial).collect();
            }
            Ok(list(kind, &items, revision, metadata_only))
        }
        Verb::Create => server.create(now, kind, namespace, body, &mut *lock(&shared.0.rng)),
        Verb::Update => server.update(now, kind, namespace, name, body, sub),
        Verb::Patch => server.patch_merge(now, kind, namespace, name, &body, sub),
        Verb::Delete => {
            let options = delete_options(&body)?;
            Ok(match server.delete(now, kind, namespace, name, &options)? {
                Deletion::Pending(object) => object,
                Deletion::Gone(object) if kind.returns_deleted() => object,
                Deletion::Gone(object) => success(kind, &object),
            })
        }
    })?;
    let whole = verb == Verb::List || object["kind"] != kind.kind;
    Ok((creates, if metadata_only && !whole { partial(&object) } else { object }))
}

/// What is left of an object for a client that wants its metadata only.
pub fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn list(kind: Kind, items: &[Value], revision: u64, metadata_only: bool) -> Value {
    let metadata = json!({ "resourceVersion": revision.to_string() });
    let (kind, version) = if metadata_only {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", kind.kind), kind.api_version())
    };
    json!({ "kind": kind, "apiVersion": version, "metadata": metadata, "items": items })
}

fn success(kind: Kind, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut details = json!({ "name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"] });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

fn delete_options(body: &Value) -> Result<DeleteOptions, ApiError> {
    let propagation = match body["propagationPolicy"].as_str() {
        None => None,
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => return Err(ApiError::bad_request(format!("propagationPolicy {other} is not known"))),
    };
    if body.get("dryRun").is_some_and(|value| !value.is_null()) {
        return Err(ApiError::bad_request("dry runs are not simulated"));
    }
    let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
    Ok(DeleteOptions {
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation,
        grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
    })
}
