//! Names: what the API server accepts, and what it makes up.

use rand::{Rng, RngExt as _};

use super::Kind;
use super::kind;

/// What `generateName` draws from: no vowels, and nothing that looks like something else.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const LONGEST_BASE: usize = 63 - SUFFIX;

pub fn generate(base: &str, rng: &mut impl Rng) -> String {
    let mut name: String = base.chars().take(LONGEST_BASE).collect();
    name.extend((0..SUFFIX).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])));
    name
}

/// A random UID in the shape of a version 4 UUID.
pub fn uid(rng: &mut impl Rng) -> String {
    let high: u64 = rng.random();
    let low: u64 = rng.random();
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

/// What is wrong with a name, if anything.
pub fn problem(kind: Kind, name: &str) -> Option<String> {
    let label = kind == kind::SERVICE;
    let longest = if label { 63 } else { 253 };
    if name.len() > longest {
        return Some(format!("metadata.name: Invalid value: must be no more than {longest} bytes"));
    }
    let mut parts = name.split('.');
    let fine = if label { is_label(name) } else { parts.all(is_label) };
    let wanted = if label { "DNS-1035 label" } else { "lowercase RFC 1123 subdomain" };
    (!fine).then(|| format!("metadata.name: Invalid value: {name:?}: a {wanted} is needed"))
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// On the oldest kinds a finalizer must have a domain, unless it is one of the API server's own.
pub fn is_finalizer(kind: Kind, text: &str) -> bool {
    let word = |text: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= 63 && text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().last())
    };
    match text.split_once('/') {
        Some((domain, name)) => domain.split('.').all(is_label) && word(name),
        None if kind.group.is_empty() || kind == kind::EVENT => {
            ["orphan", "foregroundDeletion", "kubernetes"].contains(&text)
        }
        None => word(text),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn generated_names_fit_and_follow_the_seed() {
        let make = |seed| generate(&"x".repeat(100), &mut SmallRng::seed_from_u64(seed));
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert_eq!(make(1).len(), 63);
        let uid = uid(&mut SmallRng::seed_from_u64(1));
        assert_eq!(uid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }

    #[test]
    fn names() {
        for good in ["a", "a-1", "a.b-c"] {
            assert_eq!(problem(kind::POD, good), None, "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b"] {
            assert!(problem(kind::POD, bad).is_some(), "{bad}");
        }
        assert!(problem(kind::SERVICE, "a.b").is_some());
    }

    #[test]
    fn finalizers_are_qualified() {
        for (good, bad) in
            [("etcd-operator.cozystack.io/member", "member"), ("orphan", "x/"), ("x.io/y", "/x")]
        {
            assert!(is_finalizer(kind::POD, good) && !is_finalizer(kind::POD, bad), "{good} {bad}");
        }
        assert!(is_finalizer(kind::ETCD_MEMBER, "member") && !is_finalizer(kind::ETCD_MEMBER, "x/"));
    }
}
