//! One of the two servers, and what a client has seen of it.

use std::collections::BTreeMap;

use anyhow::Result;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
use simulation::apiserver::Kind;

pub struct Side {
    pub client: Client,
    pub namespace: String,
    /// Every version of every object that was seen, by kind and name.
    seen: BTreeMap<(Kind, String), Vec<Value>>,
}

/// What a server said.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

/// A request without what differs between the two servers.
pub struct Question {
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub accept: &'static str,
    pub body: Option<Value>,
}

impl Side {
    pub fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, seen: BTreeMap::new() }
    }

    pub fn path(&self, kind: Kind, name: Option<&str>, sub: Option<&str>) -> String {
        let root = if kind.group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}", kind.api_version())
        };
        let mut path = format!("{root}/namespaces/{}/{}", self.namespace, kind.plural);
        for part in [name, sub].into_iter().flatten() {
            path = format!("{path}/{part}");
        }
        path
    }

    pub async fn ask(&self, question: &Question) -> Result<Answer> {
        let body = question.body.as_ref().map(Value::to_string).unwrap_or_default();
        let request = http::Request::builder()
            .method(question.method)
            .uri(&question.path)
            .header("content-type", question.content_type)
            .header("accept", question.accept)
            .body(body.into_bytes().into())?;
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes);
        Ok(Answer { code, body: body.unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))) })
    }

    pub async fn get(&self, path: String) -> Result<Answer> {
        let json = "application/json";
        self.ask(&Question { method: "GET", path, content_type: json, accept: json, body: None }).await
    }

    /// Removes an object at once, whatever holds it.
    pub async fn discard(&self, kind: Kind, name: &str, release: Value) -> Result<()> {
        let path = self.path(kind, Some(name), None);
        let ask = |method, content_type, body| Question {
            method,
            path: path.clone(),
            content_type,
            accept: "application/json",
            body: Some(body),
        };
        self.ask(&ask("PATCH", "application/merge-patch+json", release)).await?;
        self.ask(&ask("DELETE", "application/json", json!({ "gracePeriodSeconds": 0 }))).await?;
        Ok(())
    }

    /// All events of a watch that lasts so long.
    pub async fn watch(&self, kind: Kind, since: &str, selector: &str, seconds: u32) -> Result<Vec<Value>> {
        let query =
            format!("watch=true&timeoutSeconds={seconds}&resourceVersion={since}&labelSelector={selector}");
        let path = format!("{}?{query}", self.path(kind, None, None));
        let request = http::Request::get(path).body(vec![].into())?;
        let bytes = self.client.send(request).await?.into_body().collect().await?.to_bytes();
        let lines = String::from_utf8_lossy(&bytes).into_owned();
        let events = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(events.into_iter().filter(|event| is_ours(&event["object"])).collect())
    }

    /// Remembers an object. Whether its version is new.
    pub fn remember(&mut self, kind: Kind, object: &Value) -> bool {
        let Some(name) = object["metadata"]["name"].as_str() else { return false };
        if object["kind"] != kind.kind {
            return false;
        }
        let versions = self.seen.entry((kind, name.to_owned())).or_default();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        if versions.iter().any(|known| version(known) == version(object)) {
            return false;
        }
        versions.push(object.clone());
        true
    }

    pub fn latest(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.seen.get(&(kind, name.to_owned()))?.last()
    }

    pub fn stale(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.seen.get(&(kind, name.to_owned()))?.iter().rev().nth(1)
    }
}

impl Answer {
    /// What both servers must agree on.
    pub fn comparable(&self, kind: Kind) -> Value {
        let body = match self.body["kind"].as_str() {
            Some("Status") if self.code >= 400 => json!({ "reason": self.body["reason"] }),
            Some("Status") => {
                json!({ "status": self.body["status"], "details": without_uid(&self.body["details"]) })
            }
            Some(list) if list.ends_with("List") => {
                let items = self.body["items"].as_array().into_iter().flatten().filter(|item| is_ours(item));
                json!({ "items": items.map(|item| comparable(kind, item)).collect::<Vec<_>>() })
            }
            _ => comparable(kind, &self.body),
        };
        json!({ "code": self.code, "body": body })
    }
}

/// The real one emits Events of its own, about the addresses of Services.
fn is_ours(object: &Value) -> bool {
    object["action"] != "ClusterIPAllocation"
}

fn without_uid(details: &Value) -> Value {
    let mut details = details.clone();
    if let Some(details) = details.as_object_mut() {
        details.remove("uid");
    }
    details
}

/// An object without what must differ: identities, versions, times, addresses.
pub fn comparable(kind: Kind, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut()
        && fields.get("kind").is_none_or(|found| found == kind.kind)
    {
        fields.remove("kind");
        fields.remove("apiVersion");
        // What the older group knows of an Event, shown empty in the newer.
        fields.retain(|name, _| !name.starts_with("deprecated"));
    }
    let generated = object["metadata"]["generateName"].as_str().map(|base| format!("{base}*"));
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "managedFields", "selfLink", "namespace"] {
            metadata.remove(field);
        }
        for field in ["creationTimestamp", "deletionTimestamp"] {
            metadata.entry(field).and_modify(|time| *time = json!("a time"));
        }
        if let Some(generated) = generated {
            metadata.insert("name".into(), json!(generated));
        }
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner["uid"] = json!("an identity");
        }
    }
    // Without its controller, the plugin that names service accounts is off.
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("serviceAccount");
        spec.remove("serviceAccountName");
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("qosClass");
    }
    if object["spec"]["clusterIP"].as_str().is_some_and(|address| address != "None") {
        object["spec"]["clusterIP"] = json!("an address");
        object["spec"]["clusterIPs"] = json!(["an address"]);
    }
    object
}
