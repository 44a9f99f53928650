//! What the operator costs, seen from outside, so that any operator can be measured: its requests are counted by the API
//! server, its calls by etcd, its processor time and memory by the kernel.

mod etcd_calls;
mod process;
mod requests;

pub use etcd_calls::etcd_calls;
pub use process::Process;
pub use requests::{Requests, without_lease};

use std::collections::BTreeMap;

/// Counts by name: verbs of requests, methods of calls.
pub type Counts = BTreeMap<String, u64>;

/// What was counted between two looks. What was not there at the first look began at zero.
pub fn difference(before: &Counts, after: &Counts) -> Counts {
    let since = |(name, count): (&String, &u64)| {
        let more = count.saturating_sub(before.get(name).copied().unwrap_or_default());
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(since).collect()
}

/// One line of a metrics page: `name{key="value",…} 12`.
struct Line<'a> {
    labels: &'a str,
    value: f64,
}

impl<'a> Line<'a> {
    /// The lines of one metric.
    fn all(page: &'a str, metric: &'a str) -> impl Iterator<Item = Line<'a>> {
        page.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(metric)?.strip_prefix('{')?.rsplit_once("} ")?;
            Some(Line { labels, value: value.split(' ').next()?.parse().ok()? })
        })
    }

    fn label(&self, key: &str) -> Option<&'a str> {
        let mut pairs = self.labels.split("\",").filter_map(|pair| pair.split_once("=\""));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value.trim_end_matches('"'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_name_and_label() {
        let page =
            "# HELP x y\nx_total{a=\"1\",b=\"two\"} 12\nx_total_more{a=\"1\"} 3\nx_total{a=\"2\"} 1e+03\n";
        let lines: Vec<_> = Line::all(page, "x_total").collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].label("b"), lines[0].value), (Some("two"), 12.0));
        assert_eq!((lines[1].label("a"), lines[1].value), (Some("2"), 1000.0));
        assert_eq!(lines[1].label("b"), None);
    }

    #[test]
    fn only_what_was_added_counts() {
        let before = Counts::from([("get".into(), 3), ("list".into(), 2)]);
        let after = Counts::from([("get".into(), 5), ("list".into(), 2), ("patch".into(), 1)]);
        assert_eq!(difference(&before, &after), Counts::from([("get".into(), 2), ("patch".into(), 1)]));
    }
}
