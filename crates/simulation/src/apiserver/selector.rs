//! Label and field selectors, as they stand in the query of a list or a watch.

use serde_json::Value;

use super::error::ApiError;
use super::meta;

/// What a list or a watch is limited to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    /// Also true where the label is absent.
    NotIn(String, Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl Selector {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub fn labels(text: &str) -> Result<Self, ApiError> {
        let labels = split(text).into_iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields: vec![] })
    }

    /// `metadata.name=a,spec.nodeName!=b`.
    pub fn with_fields(mut self, text: &str) -> Result<Self, ApiError> {
        for term in split(text) {
            let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = term.split_once('=') {
                (path, value.trim_start_matches('='), true)
            } else {
                return Err(ApiError::bad_request(format!("invalid field selector: {term}")));
            };
            let path = path.trim().split('.').map(str::to_owned).collect();
            self.fields.push(FieldRequirement { path, value: value.trim().to_owned(), equal });
        }
        Ok(self)
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|r| r.matches(object)) && self.fields.iter().all(|r| r.matches(object))
    }
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let is_one_of = |key: &str, values: &[String]| {
            meta::label(object, key).is_some_and(|value| values.iter().any(|v| v == value))
        };
        match self {
            Self::Exists(key) => meta::label(object, key).is_some(),
            Self::Absent(key) => meta::label(object, key).is_none(),
            Self::In(key, values) => is_one_of(key, values),
            Self::NotIn(key, values) => !is_one_of(key, values),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let found = self.path.iter().fold(object, |value, name| &value[name]);
        (found.as_str().unwrap_or_default() == self.value) == self.equal
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let terms = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    terms.map(str::trim).filter(|term| !term.is_empty()).collect()
}

fn requirement(term: &str) -> Result<Requirement, ApiError> {
    let own = |text: &str| text.trim().to_owned();
    if let Some((head, values)) = term.split_once('(') {
        let values = values.trim_end().strip_suffix(')');
        let values = values.map(|list| list.split(',').map(own).collect::<Vec<_>>());
        let words: Vec<&str> = head.split_whitespace().collect();
        return match (words.as_slice(), values) {
            ([key, "in"], Some(values)) => Ok(Requirement::In(own(key), values)),
            ([key, "notin"], Some(values)) => Ok(Requirement::NotIn(own(key), values)),
            _ => Err(unparsable(term)),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(own(key), vec![own(value)]));
    }
    if let Some((key, value)) = term.split_once('=') {
        return Ok(Requirement::In(own(key), vec![own(value.trim_start_matches('='))]));
    }
    match term.strip_prefix('!') {
        Some(key) => Ok(Requirement::Absent(own(key))),
        None if term.contains(char::is_whitespace) => Err(unparsable(term)),
        None => Ok(Requirement::Exists(own(term))),
    }
}

fn unparsable(term: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {term}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &Value) -> bool {
        let object = json!({ "metadata": { "labels": labels } });
        Selector::labels(selector).unwrap().matches(&object)
    }

    #[test]
    fn equality_sets_and_presence() {
        let labels = json!({ "a": "1", "b": "2" });
        for yes in [
            "",
            "a",
            "!c",
            "a=1",
            "a==1,b=2",
            "a!=2",
            "c!=1",
            "a in (1,3)",
            "b notin (1, 3)",
            "c notin (1)",
            "a in (1),b",
        ] {
            assert!(selects(yes, &labels), "{yes}");
        }
        for no in ["c", "!a", "a=2", "a=1,b=1", "a!=1", "a in (2,3)", "c in (1)", "b notin (2)"] {
            assert!(!selects(no, &labels), "{no}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_refused() {
        for bad in ["a b", "a within (b)", "a in (b"] {
            assert_eq!(Selector::labels(bad).unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn fields() {
        let object = json!({ "metadata": { "name": "x" }, "spec": { "nodeName": "n" } });
        let matches = |text| Selector::all().with_fields(text).unwrap().matches(&object);
        assert!(matches("metadata.name=x,spec.nodeName!=m"));
        assert!(!matches("metadata.name=y"));
        assert!(matches("spec.absent="));
    }
}
