//! A structural schema: pruning and defaulting.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::cel::Rule;

/// The part of OpenAPI v3 that our CRDs use.
#[derive(Debug, Default)]
pub struct Schema {
    pub type_: Option<String>,
    pub format: Option<String>,
    pub int_or_string: bool,
    preserves_unknown: bool,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    pub required: Vec<String>,
    pub allowed: Option<Vec<Value>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub pattern: Option<Regex>,
    pub default: Option<Value>,
    pub rules: Vec<Rule>,
}

impl Schema {
    pub fn new(schema: &Value) -> Self {
        let text = |key: &str| schema[key].as_str().map(str::to_owned);
        let flag = |key: &str| schema[key] == Value::Bool(true);
        let list = |key: &str| schema[key].as_array().cloned().unwrap_or_default();
        let inner = |key: &str| schema[key].as_object().map(|_| Box::new(Self::new(&schema[key])));
        let properties = schema["properties"].as_object().into_iter().flatten();
        Self {
            type_: text("type"),
            format: text("format"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            properties: properties.map(|(name, schema)| (name.clone(), Self::new(schema))).collect(),
            additional: inner("additionalProperties"),
            items: inner("items"),
            required: list("required").iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            allowed: schema["enum"].as_array().cloned(),
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            min_length: schema["minLength"].as_u64(),
            max_length: schema["maxLength"].as_u64(),
            min_items: schema["minItems"].as_u64(),
            max_items: schema["maxItems"].as_u64(),
            pattern: schema["pattern"].as_str().and_then(|pattern| Regex::new(pattern).ok()),
            default: schema.get("default").cloned(),
            rules: list("x-kubernetes-validations").iter().filter_map(Rule::new).collect(),
        }
    }

    /// Prunes a whole object: what every object has is not in the schema.
    pub fn prune_root(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        let own = ["apiVersion", "kind", "metadata"];
        fields.retain(|name, _| own.contains(&name.as_str()) || self.properties.contains_key(name));
        for (name, value) in fields.iter_mut().filter(|(name, _)| !own.contains(&name.as_str())) {
            if let Some(schema) = self.properties.get(name) {
                schema.prune(value);
            }
        }
    }

    fn prune(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if self.additional.is_none() && !self.preserves_unknown {
                    fields.retain(|name, _| self.properties.contains_key(name));
                }
                self.each(fields, Self::prune);
            }
            Value::Array(values) => {
                if let Some(items) = &self.items {
                    values.iter_mut().for_each(|value| items.prune(value));
                }
            }
            _ => {}
        }
    }

    /// Fills in defaults. Null counts as absent where there is a default.
    pub fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, schema) in &self.properties {
                    let Some(default) = &schema.default else { continue };
                    if fields.get(name).is_none_or(Value::is_null) {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                self.each(fields, Self::fill);
            }
            Value::Array(values) => {
                if let Some(items) = &self.items {
                    values.iter_mut().for_each(|value| items.fill(value));
                }
            }
            _ => {}
        }
    }

    /// The schema of a field of an object.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    fn each(&self, fields: &mut Map<String, Value>, f: impl Fn(&Self, &mut Value)) {
        for (name, value) in fields {
            if let Some(schema) = self.field(name) {
                f(schema, value);
            }
        }
    }

    #[cfg(test)]
    pub fn count_rules(&self) -> usize {
        let inner = self.properties.values().chain(self.items.as_deref()).chain(self.additional.as_deref());
        self.rules.len() + inner.map(Self::count_rules).sum::<usize>()
    }
}
