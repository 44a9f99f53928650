//! CEL rules: read once, evaluated as the API server does. An evaluation that fails counts as a refusal.

use std::borrow::Cow;
use std::cmp::Ordering;

use api::quantity;
use serde_json::{Number, Value};

use super::parser::{Comparison, Expr, parse};

/// One rule of a schema.
#[derive(Clone, Debug)]
pub struct Rule {
    expression: Expr,
    pub message: String,
    /// Mentions `oldSelf`: asked only where there is an old value.
    pub is_about_change: bool,
}

impl Rule {
    pub fn new(rule: &Value) -> Option<Self> {
        let text = rule["rule"].as_str()?;
        let message = rule["message"].as_str().unwrap_or(text).to_owned();
        Some(Self { expression: parse(text)?, message, is_about_change: text.contains("oldSelf") })
    }

    pub fn holds(&self, value: &Value, old: Option<&Value>) -> bool {
        let scope = Scope { value, old: old.unwrap_or(&Value::Null) };
        scope.truth(&self.expression).unwrap_or(false)
    }
}

/// A value while it is computed with.
#[derive(Clone, Debug, PartialEq)]
enum Cel<'a> {
    Json(Cow<'a, Value>),
    Quantity(quantity::Value),
}

/// Something CEL has no answer for, such as a field that is not there.
#[derive(Debug)]
struct NoAnswer;

struct Scope<'a> {
    value: &'a Value,
    old: &'a Value,
}

impl<'a> Scope<'a> {
    fn evaluate(&self, expression: &Expr) -> Result<Cel<'a>, NoAnswer> {
        match expression {
            Expr::Bool(value) => Ok(truth(*value)),
            Expr::Int(value) => Ok(int(*value)),
            Expr::Text(value) => Ok(text(value.clone())),
            Expr::Variable(name) => match name.as_str() {
                "self" => Ok(Cel::Json(Cow::Borrowed(self.value))),
                "oldSelf" => Ok(Cel::Json(Cow::Borrowed(self.old))),
                _ => Err(NoAnswer),
            },
            Expr::Field(of, name) => field(json(self.evaluate(of)?)?, name).map(Cel::Json).ok_or(NoAnswer),
            Expr::Has(of, name) => Ok(truth(json(self.evaluate(of)?)?.get(name).is_some())),
            Expr::Call(target, name, arguments) => self.call(target.as_deref(), name, arguments),
            Expr::Matches(of, pattern) => {
                let value = json(self.evaluate(of)?)?;
                Ok(truth(pattern.is_match(value.as_str().ok_or(NoAnswer)?)))
            }
            Expr::Not(inner) => Ok(truth(!self.truth(inner)?)),
            Expr::And(left, right) => self.either(left, right, false),
            Expr::Or(left, right) => self.either(left, right, true),
            Expr::Compare(left, comparison, right) => {
                compare(&self.evaluate(left)?, *comparison, &self.evaluate(right)?)
            }
        }
    }

    /// One side that decides is enough, even if the other has no answer.
    fn either(&self, left: &Expr, right: &Expr, decides: bool) -> Result<Cel<'a>, NoAnswer> {
        let left = self.truth(left);
        if matches!(left, Ok(value) if value == decides) {
            return Ok(truth(decides));
        }
        match (left, self.truth(right)?) {
            (_, right) if right == decides => Ok(truth(decides)),
            (Ok(_), right) => Ok(truth(right)),
            (Err(none), _) => Err(none),
        }
    }

    fn truth(&self, expression: &Expr) -> Result<bool, NoAnswer> {
        json(self.evaluate(expression)?)?.as_bool().ok_or(NoAnswer)
    }

    fn call(&self, target: Option<&Expr>, name: &str, arguments: &[Expr]) -> Result<Cel<'a>, NoAnswer> {
        let target = target.map(|target| self.evaluate(target)).transpose()?;
        let argument = arguments.first().map(|argument| self.evaluate(argument)).transpose()?;
        match (target, name, argument) {
            (None, _, Some(Cel::Json(argument))) => convert(name, &argument),
            (Some(Cel::Quantity(a)), "isGreaterThan", Some(Cel::Quantity(b))) => Ok(truth(a > b)),
            (Some(Cel::Quantity(a)), "compareTo", Some(Cel::Quantity(b))) => Ok(int(a.cmp(&b) as i64)),
            (Some(Cel::Json(a)), "contains", Some(Cel::Json(b))) => match (a.as_str(), b.as_str()) {
                (Some(a), Some(b)) => Ok(truth(a.contains(b))),
                _ => Err(NoAnswer),
            },
            (Some(Cel::Json(value)), "size", None) => {
                let length = value.as_str().ok_or(NoAnswer)?.chars().count();
                Ok(int(i64::try_from(length).unwrap_or(i64::MAX)))
            }
            _ => Err(NoAnswer),
        }
    }
}

/// The functions without a receiver.
fn convert(name: &str, argument: &Value) -> Result<Cel<'static>, NoAnswer> {
    match (name, argument) {
        ("string", Value::Number(number)) => Ok(text(number.to_string())),
        ("string", Value::String(same)) => Ok(text(same.clone())),
        ("isQuantity", Value::String(text)) => Ok(truth(quantity::parse(text).is_some())),
        ("quantity", Value::String(text)) => quantity::parse(text).map(Cel::Quantity).ok_or(NoAnswer),
        _ => Err(NoAnswer),
    }
}

fn field<'a>(of: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match of {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.get(name).cloned().map(Cow::Owned),
    }
}

fn compare<'a>(left: &Cel<'_>, comparison: Comparison, right: &Cel<'_>) -> Result<Cel<'a>, NoAnswer> {
    match comparison {
        Comparison::Equal => return Ok(truth(left == right)),
        Comparison::NotEqual => return Ok(truth(left != right)),
        _ => {}
    }
    let (Cel::Json(left), Cel::Json(right)) = (left, right) else { return Err(NoAnswer) };
    let order = match (&**left, &**right) {
        (Value::Number(a), Value::Number(b)) => a.as_i64().cmp(&b.as_i64()),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => return Err(NoAnswer),
    };
    Ok(truth(match comparison {
        Comparison::Less => order == Ordering::Less,
        Comparison::AtMost => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

fn json(value: Cel<'_>) -> Result<Cow<'_, Value>, NoAnswer> {
    match value {
        Cel::Json(value) => Ok(value),
        Cel::Quantity(_) => Err(NoAnswer),
    }
}

fn truth(value: bool) -> Cel<'static> {
    Cel::Json(Cow::Owned(Value::Bool(value)))
}

fn int(value: i64) -> Cel<'static> {
    Cel::Json(Cow::Owned(Value::Number(Number::from(value))))
}

fn text(value: String) -> Cel<'static> {
    Cel::Json(Cow::Owned(Value::String(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(rule: &str, value: &Value) -> bool {
        Rule::new(&json!({ "rule": rule })).unwrap().holds(value, None)
    }

    #[test]
    fn a_guard_protects_what_is_not_there() {
        let rule = "!has(self.a) || self.a.b == 1";
        assert!(holds(rule, &json!({})));
        assert!(holds(rule, &json!({ "a": { "b": 1 } })));
        assert!(!holds(rule, &json!({ "a": { "b": 2 } })));
        assert!(!holds(rule, &json!({ "a": {} })), "no answer is a refusal");
        assert!(holds("self.a.b == 1 || !has(self.a)", &json!({})), "the other side decides");
        assert!(!holds("self.a.b == 1 && !has(self.a)", &json!({})));
    }

    #[test]
    fn quantities_text_and_numbers() {
        assert!(holds("quantity(string(self)).isGreaterThan(quantity('0'))", &json!(1)));
        assert!(holds("quantity(string(self)).compareTo(quantity('1024Mi')) >= 0", &json!("1Gi")));
        assert!(!holds("isQuantity(string(self))", &json!("many")));
        assert!(holds("self.size() <= 3 && !self.contains('.')", &json!("abc")));
        assert!(!holds("self.size() <= 3", &json!("abcd")));
        assert!(holds("self.matches('^[0-9]+[.][0-9]+$')", &json!("3.6")));
        assert!(!holds("self.matches('^[0-9]+[.][0-9]+$')", &json!("v3.6")));
        assert!(!holds("self.matches('^3$')", &json!(3)), "a number is no text");
    }

    #[test]
    fn what_is_not_understood_is_no_rule() {
        for text in ["self.exists(x, x == 1", "self ?? 1", "self.a ==", "has(self)", "self.matches('(')"] {
            assert!(Rule::new(&json!({ "rule": text })).is_none(), "{text}");
        }
    }
}
