//! Where a Pod may run, and where it had better.

use api::{MemberTemplate, labels};
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodAntiAffinity, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Without a wish of the user's, members of a cluster prefer different nodes and zones.
pub(super) fn affinity(template: &MemberTemplate, cluster: &str) -> Option<Affinity> {
    if template.affinity.is_some() || !template.topology_spread_constraints.is_empty() {
        return template.affinity.clone();
    }
    let apart = |weight, key: &str| WeightedPodAffinityTerm {
        weight,
        pod_affinity_term: PodAffinityTerm {
            topology_key: key.to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(labels::select_cluster(cluster)),
                match_expressions: None,
            }),
            ..PodAffinityTerm::default()
        },
    };
    Some(Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                apart(100, "kubernetes.io/hostname"),
                apart(50, "topology.kubernetes.io/zone"),
            ]),
            required_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    })
}
