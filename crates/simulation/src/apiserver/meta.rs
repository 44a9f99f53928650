//! Reading and writing `metadata` of untyped objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value, json};

/// A string of the metadata; empty if absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    text(object, "name")
}

pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// The resourceVersion as a number; zero if absent.
pub fn version(object: &Value) -> u64 {
    text(object, "resourceVersion").parse().unwrap_or_default()
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// Deletion has been asked for.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub fn grace(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

pub fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(|f| f.as_str().map(str::to_owned)).collect()
}

pub fn owners(object: &Value) -> Vec<OwnerReference> {
    serde_json::from_value(object["metadata"]["ownerReferences"].clone()).unwrap_or_default()
}

/// Sets a field; null, empty lists and empty maps remove it.
pub fn set(object: &mut Value, field: &str, value: Value) {
    let Some(metadata) = metadata(object) else { return };
    if is_empty(&value) {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), value);
    }
}

pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    set(object, "finalizers", json!(finalizers));
}

/// Takes a field over from another version of the object, or its absence.
pub fn copy(object: &mut Value, from: &Value, field: &str) {
    set(object, field, from["metadata"][field].clone());
}

/// Brings metadata into the shape the API server stores: known fields only, nothing empty. The record of who manages
/// which field is not kept: nobody here applies.
pub fn normalize(object: &mut Value) -> Result<(), serde_json::Error> {
    let mut given = object.get("metadata").filter(|m| !m.is_null()).cloned().unwrap_or_else(|| json!({}));
    for map in ["labels", "annotations"] {
        let values = given.get_mut(map).and_then(Value::as_object_mut).into_iter().flatten();
        values.filter(|(_, value)| value.is_null()).for_each(|(_, value)| *value = json!(""));
    }
    let typed: ObjectMeta = serde_json::from_value(given)?;
    let mut metadata = serde_json::to_value(typed)?;
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|name, value| !is_empty(value) && name != "managedFields" && name != "selfLink");
    }
    if let Some(object) = object.as_object_mut() {
        object.insert("metadata".to_owned(), metadata);
    }
    Ok(())
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}
