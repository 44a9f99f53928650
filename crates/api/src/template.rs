//! What a member is made from: all that an EtcdMember takes over from the target of its cluster, and that its Pod and its
//! claim are made from later. It stands in the EtcdMember from then on, so that a member does not change when its cluster does.
//!
//! What is to reach members begins here: a new field of the template does not compile until it is said where it comes from, where
//! an EtcdMember keeps it, and whether a member that was made with another value is out of date.

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, TopologySpreadConstraint,
};
use kube::ResourceExt as _;

use crate::labels::annotation;
use crate::semantic::{same_meaning, same_resources};
use crate::{
    AdditionalMetadata, EtcdCluster, EtcdMemberSpec, EtcdOptions, MemberTls, ObservedSpec, StorageSpec,
    quantity,
};

/// What a member is made from, whoever it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberTemplate {
    pub version: String,
    pub storage: StorageSpec,
    pub resources: Option<ResourceRequirements>,
    pub affinity: Option<Affinity>,
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    pub additional_metadata: Option<AdditionalMetadata>,
    pub options: Option<EtcdOptions>,
    pub image_pull_secrets: Vec<LocalObjectReference>,
    pub tls: Option<MemberTls>,
}

impl MemberTemplate {
    /// What the cluster's next member is made from, now that the target is this.
    pub fn from_target(target: &ObservedSpec, cluster: &EtcdCluster) -> Self {
        Self { tls: peer_auto_tls(cluster), ..target.parts().1 }
    }

    /// What this member was made from.
    pub fn of_member(spec: &EtcdMemberSpec) -> Self {
        let EtcdMemberSpec {
            version,
            storage,
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
            tls,
            // Who it is, how it begins, and whether it sleeps.
            cluster_name: _,
            cluster_token: _,
            initial_cluster: _,
            bootstrap: _,
            restore: _,
            dormant: _,
            replicas: _,
        } = spec.clone();
        Self {
            version,
            storage,
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
            tls,
        }
    }

    /// A member made from this: pending, until it is told whom to join.
    pub fn into_member(self, cluster_name: String, cluster_token: String) -> EtcdMemberSpec {
        let Self {
            version,
            storage,
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
            tls,
        } = self;
        EtcdMemberSpec {
            version,
            storage,
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
            tls,
            cluster_name,
            cluster_token,
            initial_cluster: String::new(),
            bootstrap: false,
            restore: None,
            dormant: false,
            replicas: None,
        }
    }

    /// What differs in `other`, field by field, in words: `version 3.5.35 → 3.6.16`. Empty: a member made from this is up to
    /// date if `other` is what members are made from today.
    pub fn changes_to(&self, other: &Self) -> Vec<String> {
        let Self {
            version,
            storage: StorageSpec { size, medium, storage_class_name: _ },
            resources,
            affinity,
            topology_spread_constraints,
            additional_metadata,
            options,
            image_pull_secrets,
            // Like the storage class, it stays for a cluster's whole life: who speaks otherwise than the peers never meets them.
            tls: _,
        } = self;
        let changed = |same: bool, what: &str| (!same).then(|| what.to_owned());
        [
            (*version != other.version).then(|| format!("version {version} → {}", other.version)),
            (!quantity::equal(size, &other.storage.size))
                .then(|| format!("storage.size {} → {}", size.0, other.storage.size.0)),
            changed(*medium == other.storage.medium, "storage.medium"),
            changed(same_resources(resources.as_ref(), other.resources.as_ref()), "resources"),
            changed(same_meaning(affinity, &other.affinity), "affinity"),
            changed(
                same_meaning(topology_spread_constraints, &other.topology_spread_constraints),
                "topologySpreadConstraints",
            ),
            changed(*additional_metadata == other.additional_metadata, "additionalMetadata"),
            changed(*options == other.options, "options"),
            changed(*image_pull_secrets == other.image_pull_secrets, "imagePullSecrets"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// H42: adopted peers may speak TLS with certificates of their own making; who joins them has to do the same.
fn peer_auto_tls(cluster: &EtcdCluster) -> Option<MemberTls> {
    let wanted = cluster.annotations().get(annotation::PEER_AUTO_TLS).is_some_and(|value| value == "true");
    wanted.then(|| MemberTls { peer_auto_tls: true, ..MemberTls::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn full() -> (ObservedSpec, EtcdCluster) {
        let target = json!({
            "replicas": 5, "version": "3.6.16",
            "storage": { "size": "2Gi", "medium": "", "storageClassName": "fast" },
            "resources": { "limits": { "cpu": "1" } }, "affinity": { "podAntiAffinity": {} },
            "topologySpreadConstraints": [
                { "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" },
            ],
            "additionalMetadata": { "labels": { "a": "b" } }, "options": { "snapshotCount": 5 },
            "imagePullSecrets": [{ "name": "x" }],
        });
        let mut cluster = EtcdCluster::test("ns", "c");
        cluster.annotations_mut().insert(annotation::PEER_AUTO_TLS.into(), "true".into());
        (serde_json::from_value(target).unwrap(), cluster)
    }

    #[test]
    fn a_member_keeps_all_that_it_is_made_from() {
        let (target, cluster) = full();
        let template = MemberTemplate::from_target(&target, &cluster);
        let member = template.clone().into_member("c".into(), "token".into());
        assert_eq!(MemberTemplate::of_member(&member), template);
        assert!(member.is_pending() && member.peer_tls());
        let (target, member) = (serde_json::to_value(target).unwrap(), serde_json::to_value(member).unwrap());
        for (field, value) in target.as_object().unwrap().iter().filter(|(field, _)| *field != "replicas") {
            assert_eq!(member[field], *value, "{field}");
        }
    }

    #[test]
    fn a_member_is_up_to_date_until_a_field_of_the_target_says_something_else() {
        let (target, cluster) = full();
        let made = MemberTemplate::from_target(&target, &cluster);
        let other = |change: &dyn Fn(&mut ObservedSpec)| {
            let mut other = target.clone();
            change(&mut other);
            made.changes_to(&MemberTemplate::from_target(&other, &cluster))
        };
        assert_eq!(other(&|t| t.replicas = 1), [""; 0]);
        assert_eq!(other(&|t| t.storage.size.0 = "2048Mi".into()), [""; 0], "the same size in other words");
        assert_eq!(other(&|t| t.version = "3.7.3".into()), ["version 3.6.16 → 3.7.3"]);
        assert_eq!(other(&|t| t.storage.size.0 = "3Gi".into()), ["storage.size 2Gi → 3Gi"]);
        assert_eq!(other(&|t| t.storage.medium = crate::StorageMedium::Memory), ["storage.medium"]);
        assert_eq!(other(&|t| t.resources = None), ["resources"]);
        assert_eq!(other(&|t| t.affinity = None), ["affinity"]);
        assert_eq!(other(&|t| t.topology_spread_constraints.clear()), ["topologySpreadConstraints"]);
        assert_eq!(other(&|t| t.additional_metadata = None), ["additionalMetadata"]);
        assert_eq!(other(&|t| t.options = None), ["options"]);
        assert_eq!(other(&|t| t.image_pull_secrets.clear()), ["imagePullSecrets"]);
    }
}
