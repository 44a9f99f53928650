//! Authentication inside etcd.

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::is_false;

/// Authentication inside etcd: one user, root, with etcd's built-in role of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// Turn authentication on once the cluster has converged. Needs TLS on the client plane.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enabled: bool,

    /// Secret of type kubernetes.io/basic-auth whose key password is the password of root. The key username is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_credentials_secret_ref: Option<LocalObjectReference>,
}
