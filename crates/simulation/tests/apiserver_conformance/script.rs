//! Random requests. A request is chosen once and then made out for each server from what a client has seen of that one.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use simulation::apiserver::Kind;
use simulation::apiserver::kind::EVENT;

use crate::bodies::{KINDS, changes, contents, metadata_changes, status_changes};
use crate::side::{Question, Side};

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// One request.
#[derive(Clone, Debug)]
pub struct Op {
    pub kind: Kind,
    pub name: String,
    what: What,
    uid: Pick,
    version: Pick,
}

/// A precondition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    Absent,
    Right,
    Wrong,
}

#[derive(Clone, Debug)]
enum What {
    Create { body: Value, generate: bool, owner: Option<Kind> },
    Replace { change: Value, sub: Option<&'static str> },
    Patch { change: Value, sub: Option<&'static str> },
    Delete { propagation: Option<&'static str>, grace: Option<i64> },
    Get { metadata_only: bool, sub: Option<&'static str> },
    List { selector: &'static str },
}

/// The requests of a seed.
pub fn script(seed: u64, length: usize) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..length).map(|_| op(&mut rng)).collect()
}

fn op(rng: &mut SmallRng) -> Op {
    let kind = one(rng, &KINDS);
    let name = one(rng, &["a", "b"]).to_owned();
    let sub = if kind.status { Some("status") } else { None };
    let what = match rng.random_range(0..100) {
        0..25 => {
            let mut bodies = contents(kind);
            // Most are good.
            let index = if rng.random_bool(0.6) { 0 } else { rng.random_range(0..bodies.len()) };
            let mut body = bodies.swap_remove(index);
            if rng.random_bool(0.5) {
                let change = one(rng, &metadata_changes());
                if change["metadata"].get("name").is_none() {
                    body["metadata"] = change["metadata"].clone();
                }
            }
            let owner = rng.random_bool(0.2).then(|| one(rng, &KINDS));
            What::Create { body, generate: rng.random_bool(0.1), owner }
        }
        25..40 => What::Replace { change: change(rng, kind), sub: None },
        40..45 => What::Replace { change: one(rng, &status_changes(kind)), sub },
        45..65 => What::Patch { change: change(rng, kind), sub: None },
        65..72 => What::Patch { change: one(rng, &status_changes(kind)), sub },
        72..76 if kind.scale => {
            let replicas = json!({ "spec": { "replicas": one(rng, &[0, 1, 5, -1]) } });
            let sub = Some("scale");
            one(rng, &[What::Patch { change: replicas, sub }, What::Get { metadata_only: false, sub }])
        }
        76..92 => What::Delete {
            propagation: one(rng, &[None, None, Some("Background"), Some("Foreground"), Some("Orphan")]),
            grace: one(rng, &[None, None, Some(0), Some(5), Some(60), Some(-3)]),
        },
        92..96 => What::Get { metadata_only: rng.random_bool(0.5), sub: None },
        _ => What::List { selector: one(rng, &["", "app", "app=a", "app!=a", "app%20in%20(a,b)", "!app"]) },
    };
    let version = match &what {
        What::Replace { .. } => one(rng, &[Pick::Right, Pick::Right, Pick::Right, Pick::Wrong, Pick::Absent]),
        _ => one(rng, &[Pick::Absent, Pick::Absent, Pick::Absent, Pick::Right, Pick::Wrong]),
    };
    let uid = match &what {
        What::Replace { .. } => one(rng, &[Pick::Right, Pick::Right, Pick::Absent, Pick::Wrong]),
        _ => one(rng, &[Pick::Absent, Pick::Absent, Pick::Right, Pick::Right, Pick::Wrong]),
    };
    Op { kind, name, what, uid, version }
}

fn change(rng: &mut SmallRng, kind: Kind) -> Value {
    let metadata = rng.random_bool(0.5);
    one(rng, &if metadata { metadata_changes() } else { changes(kind) })
}

fn one<T: Clone>(rng: &mut SmallRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())].clone()
}

impl Op {
    pub fn is_generated(&self) -> bool {
        matches!(self.what, What::Create { generate: true, .. })
    }

    /// A scale that changes nothing still changes the record of who manages which field.
    pub fn is_scale(&self) -> bool {
        matches!(self.what, What::Patch { sub: Some("scale"), .. })
    }

    /// The request, made out for one server. `None` where there is nothing to replace yet.
    pub fn question(&self, side: &Side) -> Option<Question> {
        let question = |method, name: Option<&str>, sub, content_type, body| {
            let path = side.path(self.kind, name, sub);
            Some(Question { method, path, content_type, accept: JSON, body })
        };
        let named = Some(self.name.as_str());
        match &self.what {
            What::Create { body, generate, owner } => {
                let body = self.create_body(side, body.clone(), *generate, *owner);
                question("POST", None, None, JSON, Some(body))
            }
            What::Replace { change, sub } => {
                let mut body = side.latest(self.kind, &self.name)?.clone();
                merge(&mut body, change);
                self.set_preconditions(side, &mut body["metadata"], change);
                question("PUT", named, *sub, JSON, Some(body))
            }
            What::Patch { change, sub } => {
                let mut body = change.clone();
                let mut metadata = body["metadata"].take();
                if metadata.is_null() {
                    metadata = json!({});
                }
                self.set_preconditions(side, &mut metadata, change);
                body["metadata"] = metadata;
                question("PATCH", named, *sub, MERGE_PATCH, Some(body))
            }
            What::Delete { propagation, grace } => {
                let mut preconditions = json!({});
                self.set_preconditions(side, &mut preconditions, &Value::Null);
                let mut body = json!({ "preconditions": preconditions });
                if let Some(propagation) = propagation {
                    body["propagationPolicy"] = json!(propagation);
                }
                if let Some(grace) = grace {
                    body["gracePeriodSeconds"] = json!(grace);
                }
                question("DELETE", named, None, JSON, Some(body))
            }
            What::Get { metadata_only, sub } => {
                let question = question("GET", named, *sub, JSON, None)?;
                Some(Question { accept: if *metadata_only { METADATA_ONLY } else { JSON }, ..question })
            }
            What::List { selector } => {
                let question = question("GET", None, None, JSON, None)?;
                Some(Question { path: format!("{}?labelSelector={selector}", question.path), ..question })
            }
        }
    }

    fn create_body(&self, side: &Side, mut body: Value, generate: bool, owner: Option<Kind>) -> Value {
        body["apiVersion"] = json!(self.kind.api_version());
        body["kind"] = json!(self.kind.kind);
        if self.kind == EVENT && self.uid != Pick::Wrong {
            body["regarding"] = json!({ "kind": "Pod", "name": "a", "namespace": side.namespace });
        }
        if generate {
            body["metadata"]["generateName"] = json!("made-");
        } else {
            body["metadata"]["name"] = json!(self.name);
        }
        if self.version == Pick::Wrong && self.uid == Pick::Wrong {
            body["metadata"]["resourceVersion"] = json!("5");
        }
        if let Some(owner) = owner {
            let uid =
                side.latest(owner, "a").map_or(json!("nobody"), |owner| owner["metadata"]["uid"].clone());
            let reference =
                json!({ "apiVersion": owner.api_version(), "kind": owner.kind, "name": "a", "uid": uid });
            body["metadata"]["ownerReferences"] = json!([reference]);
        }
        body
    }

    /// Wrong is an older version, or an identity nobody has.
    fn set_preconditions(&self, side: &Side, target: &mut Value, change: &Value) {
        let latest = side.latest(self.kind, &self.name);
        let told = |field: &str| change["metadata"].get(field).is_some();
        let of = |object: Option<&Value>, field: &str| object.map(|object| object["metadata"][field].clone());
        if !told("uid") {
            match self.uid {
                Pick::Absent => remove(target, "uid"),
                Pick::Right => target["uid"] = of(latest, "uid").unwrap_or(json!("none")),
                Pick::Wrong => target["uid"] = json!("11111111-2222-4333-8444-555555555555"),
            }
        }
        if !told("resourceVersion") {
            let stale = side.stale(self.kind, &self.name);
            match self.version {
                Pick::Absent => remove(target, "resourceVersion"),
                Pick::Right => {
                    target["resourceVersion"] = of(latest, "resourceVersion").unwrap_or(json!("2"))
                }
                Pick::Wrong => target["resourceVersion"] = of(stale, "resourceVersion").unwrap_or(json!("1")),
            }
        }
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.remove(field);
    }
}

/// A client that edits what it has seen before it sends it back.
fn merge(target: &mut Value, change: &Value) {
    let (Some(target_fields), Some(change_fields)) = (target.as_object_mut(), change.as_object()) else {
        *target = change.clone();
        return;
    };
    for (name, value) in change_fields {
        if value.is_null() {
            target_fields.remove(name);
        } else {
            merge(target_fields.entry(name.clone()).or_insert(json!({})), value);
        }
    }
}
