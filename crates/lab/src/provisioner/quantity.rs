//! Kubernetes quantities of bytes, as they stand in claims: `1Gi`, `500M`, `1073741824`, `1.5Gi`.

use anyhow::{Context, Result, bail};

const UNITS: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Bytes, rounded up as Kubernetes does.
pub fn parse(text: &str) -> Result<u64> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
        .unwrap_or((text, 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        bail!("{text:?} is not a size: write for example 1Gi or 500M");
    }
    let too_large = || format!("{text:?} is larger than any disk");
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().with_context(too_large)? };
    let scale = 10u128.pow(u32::try_from(fraction.len())?);
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse()? };
    let bytes = u128::from(whole) * u128::from(unit) + (part * u128::from(unit)).div_ceil(scale);
    u64::try_from(bytes).with_context(too_large)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("1Gi", 1 << 30),
            ("256Mi", 256 << 20),
            ("1073741824", 1 << 30),
            ("1G", 1_000_000_000),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("0.1Ki", 103),
            ("0", 0),
        ] {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "Gi", ".", "-1Gi", "1.2.3", "one", "1KiB", "99999999999Ei"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
