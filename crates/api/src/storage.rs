//! Where a member keeps its data.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a member keeps its data and how much of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Size of each member's volume or, with medium Memory, the limit of its tmpfs. It may grow but never shrink;
    /// volumes that exist already keep their size.
    #[serde(default = "default_size")]
    pub size: Quantity,

    /// Kind of storage: empty for a PersistentVolumeClaim per member, Memory for a tmpfs that lives and dies with
    /// the Pod. Cannot be changed later.
    #[serde(default)]
    pub medium: StorageMedium,

    /// StorageClass of the claims. Absent means the default class of the Kubernetes cluster, an empty string means no
    /// dynamic provisioning. Ignored for medium Memory. Cannot be added, removed or changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

impl Default for StorageSpec {
    fn default() -> Self {
        Self { size: default_size(), medium: StorageMedium::default(), storage_class_name: None }
    }
}

/// Kind of storage behind a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageMedium {
    /// A PersistentVolumeClaim per member; `""` on the wire.
    #[default]
    #[serde(rename = "")]
    Pvc,
    /// A tmpfs inside the Pod.
    Memory,
}

impl StorageMedium {
    pub fn is_memory(self) -> bool {
        self == Self::Memory
    }
}

fn default_size() -> Quantity {
    Quantity("1Gi".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_empty_object_is_a_gigabyte_on_a_claim() {
        let storage: StorageSpec = serde_json::from_value(json!({})).unwrap();
        assert_eq!(storage, StorageSpec::default());
        assert_eq!(serde_json::to_value(storage).unwrap(), json!({"size": "1Gi", "medium": ""}));
    }

    #[test]
    fn class_name_has_three_values() {
        for value in [
            json!({"size": "1Gi", "medium": ""}),
            json!({"size": "1Gi", "medium": "", "storageClassName": ""}),
        ] {
            let storage: StorageSpec = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(storage).unwrap(), value);
        }
    }

    #[test]
    fn a_yaml_integer_is_a_size() {
        let storage: StorageSpec =
            serde_json::from_value(json!({"size": 1073741824, "medium": "Memory"})).unwrap();
        assert_eq!(storage.size.0, "1073741824");
        assert!(storage.medium.is_memory());
    }
}
