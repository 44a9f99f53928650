//! Shapes the derives cannot express: quantities, references, conditions, defaults, merge behaviour.

use serde_json::{Map, Value, json};

const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Fields whose schema is a core type of Kubernetes.
const CORE: [&str; 3] = ["affinity", "resources", "topologySpreadConstraints"];

/// Brings the derived schema of `kind` into its final shape.
pub(super) fn shape(kind: &str, root: &mut Value) {
    walk(root, &mut |schema| {
        // An absent value is absent; null is not another way to say it.
        schema.remove("nullable");
        if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            values.retain(|value| !value.is_null());
        }
        unwrap_description(schema);
        quantity(schema);
        merge_like_core(schema);
    });
    if let Some(root) = root.as_object_mut() {
        root.remove("title");
        // A rule says it with a better message.
        root.remove("required");
    }
    references(root);
    conditions(root);
    let paths: &[(&str, &str, Value)] = match kind {
        "EtcdCluster" => {
            &[("spec.replicas", "default", json!(3)), ("spec.progressDeadlineSeconds", "default", json!(600))]
        }
        "EtcdMember" => &[("spec.replicas", "default", json!(1))],
        "EtcdDefrag" => &[
            ("status.members", "x-kubernetes-list-type", json!("map")),
            ("status.members", "x-kubernetes-list-map-keys", json!(["name"])),
        ],
        _ => &[],
    };
    for (path, key, value) in paths {
        if let Some(schema) = at(root, path) {
            schema.insert((*key).to_owned(), value.clone());
        }
    }
    // Users write the spec of a cluster and nothing else that holds a core type: explain those there, once.
    for path in ["status.observed", "spec"] {
        if (kind, path) != ("EtcdCluster", "spec") {
            forget_core_descriptions(at(root, path));
        }
    }
}

/// The schema at a dotted path of property names below `root`.
pub(super) fn at<'a>(root: &'a mut Value, path: &str) -> Option<&'a mut Map<String, Value>> {
    path.split('.')
        .filter(|name| !name.is_empty())
        .try_fold(root, |schema, name| schema.get_mut("properties")?.get_mut(name))?
        .as_object_mut()
}

/// Calls `f` for every schema below and including `schema`, children first.
fn walk(schema: &mut Value, f: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| walk(property, f));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key) {
            walk(inner, f);
        }
    }
    f(schema);
}

/// Line ends of the source mean nothing to `kubectl explain`, blank lines do.
fn unwrap_description(schema: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text =
            text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    }
}

fn quantity(schema: &mut Map<String, Value>) {
    if schema.contains_key("x-kubernetes-int-or-string") {
        schema.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
        schema.insert("pattern".to_owned(), json!(QUANTITY_PATTERN));
    }
}

/// How server-side apply merges the parts of core types, as it does in a Pod.
fn merge_like_core(schema: &mut Map<String, Value>) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        let Some(property) = property.as_object_mut() else { continue };
        let object = property.contains_key("properties");
        match name.as_str() {
            "labelSelector" | "namespaceSelector" | "preference" if object => {
                property.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
            }
            "requiredDuringSchedulingIgnoredDuringExecution" if object => {
                property.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
            }
            "nodeSelectorTerms" => {
                if let Some(items) = property.get_mut("items").and_then(Value::as_object_mut) {
                    items.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
                }
            }
            "claims" => {
                property.insert("x-kubernetes-list-type".to_owned(), json!("map"));
                property.insert("x-kubernetes-list-map-keys".to_owned(), json!(["name"]));
            }
            _ => {}
        }
    }
}

/// A LocalObjectReference: `…Ref` fields without a kind, and the image pull Secrets.
fn references(root: &mut Value) {
    walk(root, &mut |schema| {
        let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
        for (name, property) in properties {
            let what = match name.as_str() {
                "imagePullSecrets" => "Name of the Secret.",
                "clusterRef" => "Name of the EtcdCluster.",
                name if name.ends_with("SecretRef") || name == "secretRef" => "Name of the Secret.",
                _ => continue,
            };
            let reference =
                if property.get("items").is_some() { property.get_mut("items") } else { Some(property) };
            if let Some(reference) = reference.and_then(Value::as_object_mut) {
                reference.remove("required");
                reference.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
                reference.insert(
                    "properties".to_owned(),
                    json!({"name": {"type": "string", "default": "", "description": what}}),
                );
            }
        }
    });
}

/// The standard condition with its limits. The list is atomic on purpose: merge patches replace it as a whole.
fn conditions(root: &mut Value) {
    let Some(items) = at(root, "status.conditions").and_then(|list| list.get_mut("items")) else { return };
    *items = json!({
        "type": "object",
        "description": "One aspect of the object's state.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {
                "type": "string", "format": "date-time",
                "description": "When the status changed last.",
            },
            "message": {
                "type": "string", "maxLength": 32768,
                "description": "The details, for people. May be empty.",
            },
            "observedGeneration": {
                "type": "integer", "format": "int64", "minimum": 0,
                "description": "The metadata.generation this was concluded from.",
            },
            "reason": {
                "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "Why, in one word, for programs.",
            },
            "status": {
                "type": "string", "enum": ["True", "False", "Unknown"],
                "description": "True, False or Unknown.",
            },
            "type": {
                "type": "string", "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                "description": "What it is about.",
            },
        },
    });
}

fn forget_core_descriptions(schema: Option<&mut Map<String, Value>>) {
    let properties = schema.and_then(|schema| schema.get_mut("properties")).and_then(Value::as_object_mut);
    for (_, core) in properties.into_iter().flatten().filter(|(name, _)| CORE.contains(&name.as_str())) {
        let own = core.get("description").cloned();
        walk(core, &mut |schema| {
            schema.remove("description");
        });
        if let (Some(own), Some(core)) = (own, core.as_object_mut()) {
            core.insert("description".to_owned(), own);
        }
    }
}
