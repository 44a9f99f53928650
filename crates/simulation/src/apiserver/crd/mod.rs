//! Our own kinds, by their CRDs alone: what the API server prunes, fills in and refuses follows from the very schemas
//! and rules that users install, so that a change there is a change here.

mod cel;
mod parser;
mod schema;
mod validation;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::Kind;
use schema::Schema;

/// The schema of a kind; `None` for kinds without a CRD.
fn schema(kind: Kind) -> Option<&'static Schema> {
    static SCHEMAS: OnceLock<BTreeMap<&'static str, Schema>> = OnceLock::new();
    let load = || {
        let manifests = api::crd::all().unwrap_or_default();
        let schema =
            |definition: &Value| Schema::new(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        manifests.into_iter().map(|manifest| (manifest.kind, schema(&manifest.definition))).collect()
    };
    SCHEMAS.get_or_init(load).get(kind.kind).filter(|_| kind.is_custom())
}

/// Drops fields the schema does not know and fills in its defaults.
pub fn decode(kind: Kind, object: &mut Value) {
    let Some(schema) = schema(kind) else { return };
    schema.prune_root(object);
    schema.fill(object);
}

/// What the schema and its rules have against an object.
pub fn problems(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let Some(schema) = schema(kind) else { return vec![] };
    let mut problems = vec![];
    validation::check(schema, object, old, "", &mut problems);
    if problems.is_empty() {
        validation::check_rules(schema, object, old, "", &mut problems);
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kind::{ALL, ETCD_CLUSTER};
    use super::*;

    #[test]
    fn every_rule_of_every_crd_is_understood() {
        let rules = ALL.iter().filter_map(|kind| schema(*kind)).map(Schema::count_rules).sum::<usize>();
        let written = api::crd::rules::all().map(|rule| rule.places.len()).sum::<usize>();
        assert_eq!(rules, written);
    }

    #[test]
    fn unknown_fields_go_and_defaults_come() {
        let mut object = json!({
            "metadata": { "name": "c" },
            "spec": { "version": "3.6.16", "nonsense": 1, "storage": { "medium": null } },
            "nonsense": {},
        });
        decode(ETCD_CLUSTER, &mut object);
        assert_eq!(object["spec"]["replicas"], 3);
        assert_eq!(object["spec"]["progressDeadlineSeconds"], 600);
        assert_eq!(object["spec"]["storage"]["size"], "1Gi");
        assert!(object.get("nonsense").is_none() && object["spec"].get("nonsense").is_none());
    }
}
