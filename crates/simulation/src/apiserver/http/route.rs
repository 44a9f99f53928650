//! From a path and a query to what is asked for.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, header};
use serde_json::Value;

use super::super::{ApiError, Kind, Selector, Sub};
use super::{Call, Verb};

/// A request that the server understands.
#[derive(Clone, Debug)]
pub struct Request {
    pub verb: Verb,
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub sub: Option<Sub>,
    pub selector: Selector,
    pub query: BTreeMap<String, String>,
    pub body: Value,
    /// The client wants `PartialObjectMetadata`.
    pub metadata_only: bool,
}

impl Request {
    pub fn call<'a>(&'a self, client: &'a str) -> Call<'a> {
        let (namespace, name) = (self.namespace.as_deref(), self.name.as_deref());
        Call { client, verb: self.verb, kind: self.kind, namespace, name, sub: self.sub }
    }

    pub fn flag(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|value| value == "true" || value == "1")
    }
}

pub fn parse(parts: &Parts, body: &Bytes) -> Result<Request, ApiError> {
    let query = query(parts.uri.query().unwrap_or_default());
    let path = Path::parse(parts.uri.path()).ok_or_else(ApiError::no_such_path)?;
    let sub = match path.sub {
        None => None,
        Some("status") if path.kind.status => Some(Sub::Status),
        Some("scale") if path.kind.scale => Some(Sub::Scale),
        Some(_) => return Err(ApiError::no_such_path()),
    };
    let watches = query.get("watch").is_some_and(|value| value == "true" || value == "1");
    let verb = match (&parts.method, path.name) {
        (&Method::GET, Some(_)) => Verb::Get,
        (&Method::GET, None) if watches => Verb::Watch,
        (&Method::GET, None) => Verb::List,
        (&Method::POST, None) => Verb::Create,
        (&Method::PUT, Some(_)) => Verb::Update,
        (&Method::PATCH, Some(_)) => Verb::Patch,
        (&Method::DELETE, Some(_)) if sub.is_none() => Verb::Delete,
        _ => return Err(ApiError::not_allowed()),
    };
    if verb.is_write() && query.contains_key("dryRun") {
        return Err(ApiError::bad_request("dry runs are not simulated"));
    }
    let has = |name: header::HeaderName, part: &str| {
        parts.headers.get(name).and_then(|v| v.to_str().ok()).is_some_and(|value| value.contains(part))
    };
    if verb == Verb::Patch && !has(header::CONTENT_TYPE, "application/merge-patch+json") {
        return Err(ApiError::unsupported("only merge patches are simulated"));
    }
    let text = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let body = match body.as_ref() {
        [] => Value::Null,
        body => serde_json::from_slice(body).map_err(|error| ApiError::bad_request(error.to_string()))?,
    };
    Ok(Request {
        verb,
        kind: path.kind,
        namespace: path.namespace.map(str::to_owned),
        name: path.name.map(str::to_owned),
        sub,
        selector: Selector::labels(text("labelSelector"))?.with_fields(text("fieldSelector"))?,
        body,
        metadata_only: has(header::ACCEPT, "as=PartialObjectMetadata"),
        query,
    })
}

struct Path<'a> {
    kind: Kind,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    sub: Option<&'a str>,
}

impl<'a> Path<'a> {
    /// `/api/v1/…` or `/apis/<group>/<version>/…`, then `[namespaces/<ns>/]<plural>[/<name>[/<sub>]]`.
    fn parse(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            _ => (None, rest),
        };
        let (plural, name, sub) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, sub] => (*plural, Some(*name), Some(*sub)),
            _ => return None,
        };
        let kind = Kind::by_plural(group, version, plural)?;
        let placed = kind.namespaced || namespace.is_none();
        let found = placed && (name.is_none() || !kind.namespaced || namespace.is_some());
        found.then_some(Self { kind, namespace, name, sub })
    }
}

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decoded(k), decoded(v)))
        .collect()
}

/// Undoes percent encoding.
fn decoded(text: &str) -> String {
    let mut bytes = vec![];
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16)).unwrap_or_default();
                let (high, low) = (digit(), digit());
                u8::try_from(high * 16 + low).unwrap_or_default()
            }
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::super::kind;
    use super::*;

    #[test]
    fn paths() {
        let found = |path| {
            Path::parse(path).map(|p| (p.kind, p.namespace.map(str::to_owned), p.name.map(str::to_owned)))
        };
        assert_eq!(found("/api/v1/pods"), Some((kind::POD, None, None)));
        let pod = Some((kind::POD, Some("ns".to_owned()), Some("p".to_owned())));
        assert_eq!(found("/api/v1/namespaces/ns/pods/p/status"), pod);
        assert_eq!(found("/api/v1/nodes/n"), Some((kind::NODE, None, Some("n".to_owned()))));
        for nowhere in ["/", "/api/v1/pods/p", "/apis/apps/v1/deployments", "/api/v1/namespaces/ns/nodes"] {
            assert_eq!(found(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn queries() {
        let query = query("labelSelector=a%2Fb+in+%28c%2Cd%29&watch=true&limit");
        assert_eq!(query["labelSelector"], "a/b in (c,d)");
        assert_eq!((query["watch"].as_str(), query["limit"].as_str()), ("true", ""));
    }
}
