//! Labels and annotations a user adds to everything the operator makes for a cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::PREFIX;

/// Labels and annotations for every object that is created for this cluster. Keys the operator sets itself win, and
/// keys that start with etcd-operator.cozystack.io/ are dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalMetadata {
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Adds `extra` below `own`. Reserved keys are dropped even without a collision: they would steer a member's DNS name
/// and data directory. `None` stays `None` when there is nothing to say, so that the map is absent on the object.
pub fn merge(
    own: Option<BTreeMap<String, String>>,
    extra: &BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    let mut merged: BTreeMap<String, String> = extra
        .iter()
        .filter(|(key, _)| !key.starts_with(PREFIX))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    merged.extend(own.unwrap_or_default());
    Some(merged).filter(|map| !map.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn our_own_keys_win_and_reserved_ones_are_dropped() {
        let own = map(&[("app.kubernetes.io/name", "etcd")]);
        let extra = map(&[
            ("app.kubernetes.io/name", "mine"),
            ("team", "a"),
            ("etcd-operator.cozystack.io/data-dir-subpath", "../.."),
        ]);
        assert_eq!(merge(Some(own), &extra), Some(map(&[("app.kubernetes.io/name", "etcd"), ("team", "a")])));
    }

    #[test]
    fn nothing_to_say_means_absent() {
        assert_eq!(merge(None, &BTreeMap::new()), None);
        assert_eq!(merge(Some(BTreeMap::new()), &map(&[("etcd-operator.cozystack.io/role", "voter")])), None);
    }
}
