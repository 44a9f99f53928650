//! What was seen of the planner: which actions, which reasons to wait, which conditions, how often.

use std::collections::BTreeMap;

use planner::{Action, Plan};

/// Counters by name.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    pub counts: BTreeMap<String, u64>,
}

impl Coverage {
    fn count(&mut self, what: String) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A plan was made.
    pub fn planned(&mut self, plan: &Plan) {
        self.count(format!("next {:?}", plan.next));
        if let Some(what) = &plan.waiting_for {
            self.count(format!("wait: {}", anonymous(what)));
        }
        if let Some(about) = &plan.complaint {
            self.count(format!("complaint: {}", anonymous(about)));
        }
        for condition in plan.cluster_status.iter().flat_map(|s| &s.conditions) {
            self.count(format!("condition {}={}/{}", condition.type_, condition.status, condition.reason));
        }
    }

    /// An action was carried out.
    pub fn done(&mut self, action: &Action) {
        let text = format!("{action:?}");
        let kind = text.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
        let detail = match action {
            Action::DeleteMember { because: planner::Leaving::Surplus { .. }, .. } => "(surplus)",
            Action::DeleteMember { because: planner::Leaving::Outdated, .. } => "(outdated)",
            Action::DeleteMember { .. } => "(broken)",
            Action::ReleaseMember { because: planner::Release::OutOfEtcd, .. } => "(out of etcd)",
            Action::ReleaseMember { because: planner::Release::NeverFormed, .. } => "(never formed)",
            Action::ReleaseMember { because: planner::Release::Outsider, .. } => "(outsider)",
            Action::ReleaseMember { .. } => "(cluster deleted)",
            _ => "",
        };
        self.count(format!("action {kind}{detail}"));
    }

    /// Something failed.
    pub fn failed(&mut self, why: &impl std::fmt::Debug) {
        let text = format!("{why:?}");
        let kind: String = text.chars().take_while(|c| *c != '{' && *c != '"').collect();
        self.count(format!("failure {}", kind.trim()));
    }

    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }
}

/// The text without names and numbers, so that the same reason counts as one.
fn anonymous(text: &str) -> String {
    let plain = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let member = bare.len() == 7 && (bare.starts_with("c-") || bare.starts_with("d-"));
        if member || bare.starts_with("data-") { "<member>".to_owned() } else { digits(word) }
    };
    text.split(' ').map(plain).collect::<Vec<_>>().join(" ")
}

fn digits(word: &str) -> String {
    if word.chars().any(|c| c.is_ascii_digit()) { "<n>".to_owned() } else { word.to_owned() }
}
