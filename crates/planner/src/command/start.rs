//! How etcd begins when it finds no data: the one moment where a wrong word forms a second cluster or lets a member back in
//! that has forgotten everything.

use std::collections::BTreeMap;

use api::labels::annotation;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use super::flags;
use crate::view::MemberView;

/// Not etcd's own variables (`ETCD_…`): etcd warns of those that a flag overrides.
const INITIAL_CLUSTER: &str = "INITIAL_CLUSTER";
const INITIAL_CLUSTER_STATE: &str = "INITIAL_CLUSTER_STATE";
/// What `--initial-cluster-state` knows, as etcd spells it.
const NEW: &str = "new";
const EXISTING: &str = "existing";
/// As `--initial-cluster-state`, instead of `new`: etcd does not know the word, and ends before it has made anything.
pub const WITHDRAWN: &str = "withdrawn";

/// How etcd begins if it finds no data. Once there is data, it reads none of this.
///
/// A command line is fixed for the life of its Pod, and what is right before a member has joined is dangerous afterwards. So a
/// first Pod reads it from its annotations, which the kubelet looks up at every start.
pub(crate) struct Start {
    initial_cluster: String,
    state: &'static str,
    /// In the command line itself.
    fixed: bool,
}

impl Start {
    /// `joined`: it may have data, whether that is on record or not.
    pub fn of(member: &MemberView, formed: bool, joined: bool) -> Self {
        let initial_cluster = if joined { alone(member) } else { member.member.spec.initial_cluster.clone() };
        let state = if starts_new(member, formed) { NEW } else { EXISTING };
        Self { initial_cluster, state, fixed: joined }
    }

    /// The values of `--initial-cluster` and `--initial-cluster-state`.
    pub fn flags(&self) -> (String, String) {
        if self.fixed {
            (self.initial_cluster.clone(), self.state.to_owned())
        } else {
            (format!("$({INITIAL_CLUSTER})"), format!("$({INITIAL_CLUSTER_STATE})"))
        }
    }

    /// What a first Pod starts with; later ones have it in their command line.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        if self.fixed {
            return BTreeMap::new();
        }
        [
            (annotation::INITIAL_CLUSTER, self.initial_cluster.as_str()),
            (annotation::INITIAL_CLUSTER_STATE, self.state),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// Where the flags of a first Pod have their values from.
    pub fn environment(&self) -> Option<Vec<EnvVar>> {
        (!self.fixed).then(|| {
            vec![
                from_annotation(INITIAL_CLUSTER, annotation::INITIAL_CLUSTER),
                from_annotation(INITIAL_CLUSTER_STATE, annotation::INITIAL_CLUSTER_STATE),
            ]
        })
    }
}

fn from_annotation(name: &str, annotation: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.annotations['{annotation}']"),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// The list of a member that has joined: with its data gone it must not come back, because under its old id it would
/// have forgotten what it voted for (T7). Alone on its list it finds nobody to join.
pub(crate) fn alone(member: &MemberView) -> String {
    format!("{}={}", member.name(), member.peer_url())
}

/// `new` only for a seed that has never been part of anything (H31): a seed that lost its data must not form a second
/// cluster with the same ids.
pub(super) fn starts_new(member: &MemberView, formed: bool) -> bool {
    member.member.spec.bootstrap && !member.has_joined() && !formed
}

/// The list a Pod would join with, wherever it has it from.
pub(crate) fn initial_cluster(pod: &Pod) -> Option<&str> {
    if let Some(list) = pod.annotations().get(annotation::INITIAL_CLUSTER) {
        return Some(list);
    }
    flags(pod).iter().find_map(|flag| flag.strip_prefix("--initial-cluster="))
}

/// Whether a Pod starts etcd as a member that exists. Of a seed, that it has formed its cluster.
pub(crate) fn is_settled(pod: &Pod) -> bool {
    if let Some(state) = pod.annotations().get(annotation::INITIAL_CLUSTER_STATE) {
        return state == EXISTING;
    }
    flags(pod).iter().any(|flag| flag == "--initial-cluster-state=existing")
}

/// Whether another operator made this Pod: ours tell etcd through annotations how to start.
pub(crate) fn is_anothers(pod: &Pod) -> bool {
    !pod.annotations().contains_key(annotation::INITIAL_CLUSTER_STATE)
        && !pod.annotations().contains_key(annotation::MEMBER_UID)
}

/// Whether etcd forms a cluster at every start of this Pod that finds no data, and nobody can tell it otherwise: so the Go
/// operator makes its seeds.
pub(crate) fn is_fixed_to_form(pod: &Pod) -> bool {
    let fixed = !pod.annotations().contains_key(annotation::INITIAL_CLUSTER_STATE);
    fixed && flags(pod).iter().any(|flag| flag == "--initial-cluster-state=new")
}

/// Whether etcd in this Pod can still be told how to start: it reads that off annotations, at every start.
pub(crate) fn can_be_told(pod: &Pod) -> bool {
    let told = format!("$({INITIAL_CLUSTER})");
    flags(pod).iter().any(|flag| flag.contains(&told))
}

/// Whether etcd in this Pod has been told not to start at all.
pub(crate) fn is_withdrawn(pod: &Pod) -> bool {
    can_be_told(pod)
        && pod.annotations().get(annotation::INITIAL_CLUSTER_STATE).is_some_and(|state| state == WITHDRAWN)
}

/// Whether a restart of etcd in this Pod could begin anew. A Pod that was made with fixed flags can not be helped.
pub(crate) fn may_begin_anew(pod: &Pod, alone: &str) -> bool {
    let value = |key: &str| pod.annotations().get(key);
    // Without them such a Pod could not start at all.
    let missing = |key: &str| can_be_told(pod) && value(key).is_none();
    value(annotation::INITIAL_CLUSTER).is_some_and(|list| list != alone)
        || value(annotation::INITIAL_CLUSTER_STATE).is_some_and(|state| state != EXISTING)
        || missing(annotation::INITIAL_CLUSTER)
        || missing(annotation::INITIAL_CLUSTER_STATE)
}
