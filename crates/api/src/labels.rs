//! Labels, annotations and finalizers on the objects of a cluster.

use std::collections::BTreeMap;

/// Keys that start with this belong to the operator alone.
pub const PREFIX: &str = "etcd-operator.cozystack.io/";

pub const NAME: &str = "app.kubernetes.io/name";
pub const INSTANCE: &str = "app.kubernetes.io/instance";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Carries the member's name on the member, its Pod and its claim.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Carries the cluster's name; every selector of ours keys on it.
pub const CLUSTER: &str = "etcd-operator.cozystack.io/cluster";
/// On Pods, `voter` while etcd counts the member as one; absent (never empty) for learners.
pub const ROLE: &str = "etcd-operator.cozystack.io/role";

/// Value of [`NAME`].
pub const ETCD: &str = "etcd";
/// Value of [`MANAGED_BY`].
pub const OPERATOR: &str = "etcd-operator";
/// Value of [`ROLE`].
pub const VOTER: &str = "voter";

/// Holds an EtcdMember until etcd has forgotten it.
pub const FINALIZER: &str = "etcd-operator.cozystack.io/member-cleanup";

/// Annotations: how an adopted object is treated, and what etcd finds when it starts.
pub mod annotation {
    /// On an EtcdMember: the headless Service its DNS name uses instead of the cluster's.
    pub const HEADLESS_SERVICE_NAME: &str = "etcd-operator.cozystack.io/headless-service-name";
    /// On an EtcdMember: directory below the volume's root that holds the data.
    pub const DATA_DIR_SUBPATH: &str = "etcd-operator.cozystack.io/data-dir-subpath";
    /// On a Pod: the UID of the EtcdMember it was made for, for the day on which its owner and the member's status are lost.
    pub const MEMBER_UID: &str = "etcd-operator.cozystack.io/member-uid";
    /// On a Pod: its claim was made right before it, so that nothing can have been written there before.
    pub const FIRST_START: &str = "etcd-operator.cozystack.io/first-start";
    /// On an EtcdMember that was made for another EtcdCluster than its owner: the UID of an owner that was seen after it had
    /// taken the member up.
    pub const ADOPTED_BY: &str = "etcd-operator.cozystack.io/adopted-by";
    /// On an EtcdMember that has been paused: it has data, whatever becomes of its status. `unconfirmed`, if etcd did not say
    /// that it was the last voter.
    pub const HAS_DATA: &str = "etcd-operator.cozystack.io/has-data";
    /// On an EtcdMember: the operator itself has decided to take it out, and not a user. Set right before it is deleted.
    pub const TAKEN_OUT: &str = "etcd-operator.cozystack.io/taken-out";
    /// On a member's first Pod: the value of `--initial-cluster` at the next start of etcd.
    pub const INITIAL_CLUSTER: &str = "etcd-operator.cozystack.io/initial-cluster";
    /// On a member's first Pod: the value of `--initial-cluster-state` at the next start of etcd.
    pub const INITIAL_CLUSTER_STATE: &str = "etcd-operator.cozystack.io/initial-cluster-state";
    /// On an EtcdCluster: `trafficDistribution` of the client Service. On that Service: what was set there because of it.
    pub const CLIENT_TRAFFIC_DISTRIBUTION: &str =
        "etcd-operator.cozystack.io/client-service-traffic-distribution";
    /// On an EtcdCluster: exactly `true` lets the peers use self-signed certificates.
    pub const PEER_AUTO_TLS: &str = "etcd-operator.cozystack.io/peer-auto-tls";
}

/// Labels of everything that belongs to a cluster.
pub fn for_cluster(cluster: &str) -> BTreeMap<String, String> {
    [(NAME, ETCD), (INSTANCE, cluster), (MANAGED_BY, OPERATOR), (CLUSTER, cluster)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Labels of a member, its Pod and its claim.
pub fn for_member(cluster: &str, member: &str) -> BTreeMap<String, String> {
    let mut labels = for_cluster(cluster);
    labels.insert(COMPONENT.to_owned(), member.to_owned());
    labels
}

/// What selects the headless Service's Pods.
pub fn select_cluster(cluster: &str) -> BTreeMap<String, String> {
    [(CLUSTER.to_owned(), cluster.to_owned())].into()
}

/// `status.selector` of an EtcdCluster, for `/scale`.
pub fn cluster_selector(cluster: &str) -> String {
    format!("{CLUSTER}={cluster}")
}

/// `status.selector` of an EtcdMember, for `/scale`.
pub fn member_selector(cluster: &str, member: &str) -> String {
    format!("{CLUSTER}={cluster},{COMPONENT}={member}")
}

/// The value of [`annotation::DATA_DIR_SUBPATH`] if it is safe to use as a directory name, else `None`.
pub fn data_dir_subpath(value: &str) -> Option<&str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let safe = value.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && value.bytes().all(plain)
        && !value.contains("..");
    safe.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_carries_its_clusters_labels_and_its_name() {
        let labels = for_member("my-etcd", "my-etcd-abcde");
        assert_eq!(labels[COMPONENT], "my-etcd-abcde");
        assert!(for_cluster("my-etcd").iter().all(|(k, v)| labels.get(k) == Some(v)));
    }

    #[test]
    fn only_plain_directory_names_are_taken() {
        for good in ["default.etcd", "a", "0_x-1"] {
            assert_eq!(data_dir_subpath(good), Some(good));
        }
        for bad in ["", "../../etc", "a/b", "..", "/abs", ".hidden", "with space", "a..b"] {
            assert_eq!(data_dir_subpath(bad), None, "{bad}");
        }
    }
}
