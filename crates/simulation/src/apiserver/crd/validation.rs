//! Validation against a schema and its rules. A value that did not change is not asked again, except by rules about
//! change.

use serde_json::Value;

use super::schema::Schema;

/// Adds what the schema has against `value`.
pub fn check(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, problems: &mut Vec<String>) {
    if old == Some(value) {
        return;
    }
    if !has_type(schema, value) {
        let wanted = schema.type_.as_deref().unwrap_or("integer or string");
        problems.push(format!("{path}: Invalid value: must be of type {wanted}"));
        return;
    }
    if let Some(problem) = problem_of_scalar(schema, value) {
        problems.push(format!("{path}: {problem}"));
    }
    match value {
        Value::Object(fields) => {
            for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
                problems.push(format!("{}: Required value", below(path, name)));
            }
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    check(schema, value, old.and_then(|old| old.get(name)), &below(path, name), problems);
                }
            }
        }
        Value::Array(values) => {
            let many = values.len() as u64;
            if schema.max_items.is_some_and(|most| many > most)
                || schema.min_items.is_some_and(|least| many < least)
            {
                problems.push(format!("{path}: Invalid value: wrong number of items: {many}"));
            }
            for (index, value) in values.iter().enumerate() {
                if let Some(items) = &schema.items {
                    check(items, value, None, &format!("{path}[{index}]"), problems);
                }
            }
        }
        _ => {}
    }
}

fn has_type(schema: &Schema, value: &Value) -> bool {
    if schema.int_or_string {
        return value.is_i64() || value.is_string();
    }
    match schema.type_.as_deref() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        _ => !value.is_null(),
    }
}

fn problem_of_scalar(schema: &Schema, value: &Value) -> Option<String> {
    if let Some(allowed) = &schema.allowed
        && !allowed.contains(value)
    {
        return Some(format!("Unsupported value: {value}"));
    }
    if let Some(number) = value.as_f64() {
        let small = schema.minimum.is_some_and(|least| number < least);
        let large = schema.maximum.is_some_and(|most| number > most);
        let wide = schema.format.as_deref() == Some("int32")
            && value.as_i64().is_some_and(|number| i32::try_from(number).is_err());
        return (small || large || wide).then(|| format!("Invalid value: {number}: out of range"));
    }
    let text = value.as_str()?;
    let length = text.chars().count() as u64;
    if schema.min_length.is_some_and(|least| length < least) {
        return Some(format!("Invalid value: {text:?}: too short"));
    }
    if schema.max_length.is_some_and(|most| length > most) {
        return Some("Too long".to_owned());
    }
    if schema.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
        return Some(format!("Invalid value: {text:?}: should match the pattern"));
    }
    let is_time = schema.format.as_deref() == Some("date-time");
    (is_time && text.parse::<jiff::Timestamp>().is_err())
        .then(|| format!("Invalid value: {text:?}: no date-time"))
}

/// Adds what the rules have against `value`.
pub fn check_rules(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    problems: &mut Vec<String>,
) {
    for rule in &schema.rules {
        let unchanged = old == Some(value);
        let asked = if rule.is_about_change { old.is_some() } else { !unchanged };
        if asked && !rule.holds(value, old) {
            problems.push(format!("{path}: Invalid value: {}", rule.message));
        }
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.field(name) {
                    check_rules(
                        schema,
                        value,
                        old.and_then(|old| old.get(name)),
                        &below(path, name),
                        problems,
                    );
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                if let Some(items) = &schema.items {
                    check_rules(items, value, None, path, problems);
                }
            }
        }
        _ => {}
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
