//! Does the target still say what the spec says?
//!
//! Equality is by meaning, as in Kubernetes: an absent list or map equals an empty one, quantities are equal by value,
//! but an absent struct is not an empty one (`options` is not `options: {}`). A stricter comparison would find a change
//! in every cluster the Go operator wrote, again and again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use serde_json::Value;

use crate::{EtcdClusterSpec, MemberTemplate, ObservedSpec, quantity};

impl ObservedSpec {
    /// The part of `spec` that becomes the target. Presence is copied as it is.
    pub fn from_spec(spec: &EtcdClusterSpec) -> Self {
        Self {
            replicas: spec.replicas(),
            version: spec.version.clone(),
            storage: spec.storage.clone(),
            resources: spec.resources.clone(),
            affinity: spec.affinity.clone(),
            topology_spread_constraints: spec.topology_spread_constraints.clone(),
            additional_metadata: spec.additional_metadata.clone(),
            options: spec.options.clone(),
            image_pull_secrets: spec.image_pull_secrets.clone(),
        }
    }

    /// Whether `spec` asks for this target.
    pub fn matches(&self, spec: &EtcdClusterSpec) -> bool {
        self.changes_to(&Self::from_spec(spec)).is_empty()
    }

    /// What differs in `other`, field by field, in words: `replicas 3 → 5`.
    pub fn changes_to(&self, other: &Self) -> Vec<String> {
        let ((replicas, template), (wanted, wanted_template)) = (self.parts(), other.parts());
        let scaled = (replicas != wanted).then(|| format!("replicas {replicas} → {wanted}"));
        scaled.into_iter().chain(template.changes_to(&wanted_template)).collect()
    }

    /// How many members, and what of each of them the spec alone decides.
    pub(crate) fn parts(&self) -> (i32, MemberTemplate) {
        let Self {
            replicas,
            version,
            storage,
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
        } = self.clone();
        let template = MemberTemplate {
            version,
            storage,
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
            tls: None,
        };
        (replicas, template)
    }
}

/// `resources` is the one struct whose absence equals emptiness: the Go operator always writes `resources: {}`.
pub(crate) fn same_resources(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    let empty = ResourceRequirements::default();
    let (a, b) = (a.unwrap_or(&empty), b.unwrap_or(&empty));
    same_quantities(a.requests.as_ref(), b.requests.as_ref())
        && same_quantities(a.limits.as_ref(), b.limits.as_ref())
        && a.claims.as_deref().unwrap_or_default() == b.claims.as_deref().unwrap_or_default()
}

fn same_quantities(a: Option<&BTreeMap<String, Quantity>>, b: Option<&BTreeMap<String, Quantity>>) -> bool {
    let empty = BTreeMap::new();
    let (a, b) = (a.unwrap_or(&empty), b.unwrap_or(&empty));
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| quantity::equal(a, b)))
}

/// Compares core types through their JSON form, without empty lists and maps.
pub(crate) fn same_meaning<T: Serialize + PartialEq>(a: &T, b: &T) -> bool {
    if a == b {
        return true;
    }
    match (serde_json::to_value(a), serde_json::to_value(b)) {
        (Ok(a), Ok(b)) => without_empties(a) == without_empties(b),
        _ => false,
    }
}

/// In JSON an empty map looks like an empty struct. The only maps inside affinity and spread constraints are
/// `matchLabels`; a label selector `{}` selects everything and must not be taken for an absent one.
fn without_empties(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(without_empties).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(key, value)| match value {
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(map) => key != "matchLabels" || !map.is_empty(),
                    _ => true,
                })
                .map(|(key, value)| (key, without_empties(value)))
                .collect(),
        ),
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Takes whole values so that a call reads as the sentence it checks.
    #[allow(clippy::needless_pass_by_value)]
    fn equal(a: Value, b: Value) -> bool {
        let (a, b) = (spec(&a), spec(&b));
        let there = ObservedSpec::from_spec(&a).matches(&b);
        assert_eq!(there, ObservedSpec::from_spec(&b).matches(&a), "symmetric");
        there
    }

    fn spec(value: &Value) -> EtcdClusterSpec {
        let mut whole = json!({"version": "3.6.16"});
        whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_snapshot_matches_its_spec() {
        let full = json!({
            "replicas": 5, "resources": {"limits": {"cpu": 1}}, "options": {}, "additionalMetadata": {"labels": {"a": "b"}},
            "affinity": {"podAntiAffinity": {}}, "imagePullSecrets": [{"name": "x"}],
        });
        assert!(equal(full.clone(), full));
    }

    #[test]
    fn absent_replicas_are_three() {
        assert!(equal(json!({}), json!({"replicas": 3})));
        assert!(!equal(json!({}), json!({"replicas": 0})));
    }

    #[test]
    fn quantities_count_by_value() {
        assert!(equal(json!({"storage": {"size": "1Gi"}}), json!({"storage": {"size": "1024Mi"}})));
        assert!(equal(
            json!({"resources": {"requests": {"cpu": "1"}}}),
            json!({"resources": {"requests": {"cpu": "1000m"}}})
        ));
        assert!(!equal(json!({"storage": {"size": "1Gi"}}), json!({"storage": {"size": "1G"}})));
        assert!(!equal(
            json!({"resources": {"requests": {"cpu": "1"}}}),
            json!({"resources": {"limits": {"cpu": "1"}}})
        ));
    }

    #[test]
    fn absent_resources_are_empty_resources() {
        assert!(equal(json!({}), json!({"resources": {}})));
        assert!(equal(json!({}), json!({"resources": {"limits": {}, "requests": {}, "claims": []}})));
    }

    #[test]
    fn absent_lists_and_maps_are_empty_ones() {
        assert!(equal(json!({}), json!({"topologySpreadConstraints": [], "imagePullSecrets": []})));
        assert!(equal(json!({"additionalMetadata": {"labels": {}}}), json!({"additionalMetadata": {}})));
        let term = |selector: Value| {
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": "zone", "labelSelector": selector}]}}})
        };
        assert!(equal(term(json!({})), term(json!({"matchLabels": {}, "matchExpressions": []}))));
    }

    #[test]
    fn absent_structs_are_not_empty_ones() {
        assert!(!equal(json!({}), json!({"options": {}})));
        assert!(!equal(json!({}), json!({"affinity": {}})));
        assert!(!equal(json!({}), json!({"additionalMetadata": {}})));
        let spread = |extra: Value| {
            let mut one = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
            one.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({"topologySpreadConstraints": [one]})
        };
        assert!(
            !equal(spread(json!({})), spread(json!({"labelSelector": {}}))),
            "selects nothing, selects everything"
        );
    }

    #[test]
    fn the_storage_class_is_not_compared() {
        assert!(equal(json!({}), json!({"storage": {"storageClassName": "fast"}})));
        assert!(!equal(json!({}), json!({"storage": {"medium": "Memory"}})));
    }
}
