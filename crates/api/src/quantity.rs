//! Kubernetes quantities as values, so that `1Gi` and `1024Mi` are the same size.
//!
//! A value is a whole number of billionths. Like Kubernetes itself, finer fractions are rounded up (away from zero: who
//! asks for something gets something) and everything above 2^63-1 counts as that. No floating point is involved.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const NANO: i128 = 1_000_000_000;
const CAP: i128 = (i64::MAX as i128) * NANO;

/// The exact value of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(i128);

impl Value {
    pub const ZERO: Self = Self(0);

    /// The value in whole units, rounded up: bytes for sizes.
    pub fn units(self) -> i64 {
        let up = self.0.rem_euclid(NANO) != 0;
        i64::try_from(self.0.div_euclid(NANO) + i128::from(up)).unwrap_or(i64::MAX)
    }
}

impl From<i64> for Value {
    fn from(units: i64) -> Self {
        Self((i128::from(units) * NANO).clamp(-CAP, CAP))
    }
}

/// Reads a quantity; `None` if Kubernetes would not take it either.
pub fn parse(text: &str) -> Option<Value> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let magnitude = scale(suffix)?.apply(whole, fraction);
    Some(Value(if negative { -magnitude } else { magnitude }))
}

/// The value of a quantity, if it has one.
pub fn value(quantity: &Quantity) -> Option<Value> {
    parse(&quantity.0)
}

/// Same value, or the same text where there is no value.
pub fn equal(a: &Quantity, b: &Quantity) -> bool {
    match (value(a), value(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a == b,
        _ => false,
    }
}

/// What a suffix does to a number: multiply to billionths, then divide by a power of ten.
#[derive(Clone, Copy)]
struct Scale {
    factor: i128,
    then_divide: u32,
}

impl Scale {
    /// Digits are taken one by one and every division rounds up; nested roundings up equal a single one, so that the
    /// result is exact for any number of digits.
    fn apply(self, whole: &str, fraction: &str) -> i128 {
        let mut below = 0;
        for digit in fraction.bytes().rev() {
            below = divide_up(digit_value(digit) * self.factor + below, 10);
        }
        let mut units: i128 = 0;
        for digit in whole.bytes() {
            units = (units * 10 + digit_value(digit)).min(CAP);
        }
        let mut total = units.saturating_mul(self.factor).saturating_add(below);
        for _ in 0..self.then_divide {
            total = divide_up(total, 10);
            if total <= 1 {
                break;
            }
        }
        total.min(CAP)
    }
}

fn scale(suffix: &str) -> Option<Scale> {
    let factor = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => NANO,
        "k" => NANO * 1_000,
        "M" => NANO * 1_000_000,
        "G" => NANO * 1_000_000_000,
        "T" => NANO * 1_000_000_000_000,
        "P" => NANO * 1_000_000_000_000_000,
        "E" => NANO * 1_000_000_000_000_000_000,
        "Ki" => NANO << 10,
        "Mi" => NANO << 20,
        "Gi" => NANO << 30,
        "Ti" => NANO << 40,
        "Pi" => NANO << 50,
        "Ei" => NANO << 60,
        _ => return exponent(suffix),
    };
    Some(Scale { factor, then_divide: 0 })
}

/// `e3`, `E-3`, …
fn exponent(suffix: &str) -> Option<Scale> {
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = power.clamp(-60, 19) + 9;
    let factor = 10_i128.pow(power.max(0).unsigned_abs());
    Some(Scale { factor, then_divide: power.min(0).unsigned_abs() })
}

fn digit_value(digit: u8) -> i128 {
    i128::from(digit - b'0')
}

fn divide_up(a: i128, b: i128) -> i128 {
    a / b + i128::from(a % b != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(a: &str, b: &str) {
        assert_eq!(parse(a), parse(b), "{a} and {b}");
        assert!(parse(a).is_some(), "{a}");
    }

    #[test]
    fn spellings_of_one_value() {
        same("1Gi", "1024Mi");
        same("1", "1000m");
        same("1.5Gi", "1536Mi");
        same("1e3", "1k");
        same("1E3", "1000");
        same("1E", "1000P");
        same("0.1", "100m");
        same(".5", "500m");
        same("5.", "5");
        same("+1", "1");
        same("0", "0Gi");
        same("1000000n", "1m");
        same("1.1Ei", "1268213655067531673.6");
    }

    #[test]
    fn order() {
        assert!(parse("1G") < parse("1Gi"));
        assert!(parse("-1") < parse("0"));
        assert!(parse("999m") < parse("1"));
    }

    #[test]
    fn too_fine_is_rounded_up_and_too_large_is_capped() {
        same("0.1n", "1n");
        same("1e-50", "1n");
        same("-0.1n", "-1n");
        same("1e19", "9223372036854775807");
        same("16Ei", "9223372036854775807");
        same("99999999999999999999999999999999999999999999999999999", "9223372036854775807");
    }

    #[test]
    fn refuses_what_is_no_quantity() {
        for bad in ["", "Gi", ".", "1.2.3", "1 Gi", "1gi", "1Zi", "e3", "1e", "1e1.5", "--1", "1K", "abc"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn units_round_up() {
        assert_eq!(parse("1Gi").map(Value::units), Some(1 << 30));
        assert_eq!(parse("1500m").map(Value::units), Some(2));
        assert_eq!(parse("-1500m").map(Value::units), Some(-1));
        assert!(parse("0") == Some(Value::ZERO));
    }

    #[test]
    fn unreadable_quantities_are_equal_only_as_text() {
        let q = |s: &str| Quantity(s.to_owned());
        assert!(equal(&q("x"), &q("x")));
        assert!(!equal(&q("x"), &q("y")));
        assert!(!equal(&q("x"), &q("1")));
    }

    proptest! {
        #[test]
        fn integers_are_themselves(n: i64) {
            prop_assert_eq!(parse(&n.to_string()).map(|v| v.0), Some(i128::from(n).max(-i128::from(i64::MAX)) * NANO));
        }

        #[test]
        fn a_binary_suffix_is_the_next_one_times_1024(n in 0_i64..1_000_000) {
            for (small, large) in [("", "Ki"), ("Ki", "Mi"), ("Mi", "Gi"), ("Gi", "Ti")] {
                prop_assert_eq!(parse(&format!("{}{small}", n * 1024)), parse(&format!("{n}{large}")));
            }
        }

        #[test]
        fn fractions_agree_with_smaller_units(whole in 0_u32.., milli in 0_u32..1000) {
            let written = format!("{whole}.{milli:03}");
            let in_milli = format!("{}m", u64::from(whole) * 1000 + u64::from(milli));
            prop_assert_eq!(parse(&written), parse(&in_milli));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn everything_the_schema_admits_has_a_value(text in "(\\+|-)?([0-9]{1,40}(\\.[0-9]{0,40})?|\\.[0-9]{1,40})([KMGTPE]i|[numkMGTPE]|[eE](\\+|-)?[0-9]{1,5})?") {
            prop_assert!(parse(&text).is_some());
        }
    }
}
