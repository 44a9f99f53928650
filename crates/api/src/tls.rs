//! Transport security of a cluster: where the certificates of the two planes come from.

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates of the client plane (2379) and the peer plane (2380). A plane that is absent speaks plaintext.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTls {
    /// TLS between etcd and its clients, the operator included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientTls>,

    /// TLS between the members. Always mutual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerTls>,
}

impl ClusterTls {
    /// Clients must present a certificate, because the operator has a source for its own.
    pub fn client_mtls(&self) -> bool {
        self.client.as_ref().is_some_and(ClientTls::mutual)
    }
}

/// Certificates of the client plane: either Secrets you provide or certificates from cert-manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientTls {
    /// Secret with the server certificate you provide: tls.crt, tls.key and ca.crt. The certificate needs the key
    /// usages serverAuth and clientAuth; ca.crt must also hold the CA of the operator's client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_secret_ref: Option<LocalObjectReference>,

    /// Secret with the client certificate of the operator: tls.crt and tls.key. Its presence makes etcd demand a client
    /// certificate from everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_client_secret_ref: Option<LocalObjectReference>,

    /// Let cert-manager issue the certificates instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<ClientCertManager>,
}

impl ClientTls {
    /// Whether etcd demands client certificates.
    pub fn mutual(&self) -> bool {
        self.operator_client_secret_ref.is_some()
            || self.cert_manager.as_ref().is_some_and(|cm| cm.operator_client_issuer_ref.is_some())
    }
}

/// Issuers of the client plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertManager {
    /// Issuer of the server certificate.
    pub server_issuer_ref: IssuerReference,

    /// Issuer of the operator's client certificate. Its presence makes etcd demand a client certificate from everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_client_issuer_ref: Option<IssuerReference>,
}

/// Certificates of the peer plane: either a Secret you provide or a certificate from cert-manager.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerTls {
    /// Secret with the peer certificate you provide: tls.crt, tls.key and ca.crt. The certificate needs the key usages
    /// serverAuth and clientAuth and the wildcard name of the headless Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// Let cert-manager issue the certificate instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<PeerCertManager>,
}

/// Issuer of the peer plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerCertManager {
    /// Issuer of the peer certificate.
    pub issuer_ref: IssuerReference,
}

/// A cert-manager issuer, group cert-manager.io.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerReference {
    /// Name of the issuer.
    #[schemars(length(min = 1))]
    pub name: String,

    /// Issuer (in the namespace of the cluster) or ClusterIssuer.
    #[serde(default)]
    pub kind: IssuerKind,
}

/// Scope of a cert-manager issuer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IssuerKind {
    #[default]
    Issuer,
    ClusterIssuer,
}

impl IssuerKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Issuer => "Issuer",
            Self::ClusterIssuer => "ClusterIssuer",
        }
    }
}
