//! Certificates and kubeconfigs: one authority for the lab, one credential for each component, made anew by every
//! first `up` and gone with `down`.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::{
    addresses::{self, Node},
    paths::Paths,
};

/// Who a certificate is for.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// File name without its ending.
    pub file: String,
    /// The user name, to Kubernetes.
    pub name: String,
    /// The group, to Kubernetes.
    pub group: Option<&'static str>,
    pub dns: Vec<String>,
    pub ips: Vec<IpAddr>,
}

impl Subject {
    fn client(file: &str, name: &str, group: Option<&'static str>) -> Self {
        Self { file: file.into(), name: name.into(), group, ..Self::default() }
    }

    /// The kubelet's name is what the node authorizer goes by; its addresses are what the API server dials.
    pub fn node(node: Node) -> Self {
        Self {
            file: node.name(),
            name: format!("system:node:{}", node.name()),
            group: Some("system:nodes"),
            dns: vec![node.name()],
            ips: vec![IpAddr::V4(node.address())],
        }
    }

    /// Under every name by which Pods and people reach it.
    fn api_server() -> Self {
        let service = "kubernetes.default.svc";
        let names = ["kubernetes", "kubernetes.default", service, "localhost"];
        let full = format!("{service}.{}", addresses::DNS_DOMAIN);
        Self {
            file: "apiserver".into(),
            name: "kube-apiserver".into(),
            group: None,
            dns: names.iter().map(|&name| name.to_owned()).chain([full]).collect(),
            ips: vec![
                addresses::BRIDGE_ADDRESS.into(),
                addresses::API_SERVICE.into(),
                Ipv4Addr::LOCALHOST.into(),
            ],
        }
    }

    fn etcd() -> Self {
        Self {
            file: "etcd".into(),
            name: "etcd".into(),
            group: None,
            dns: vec!["localhost".into()],
            ips: vec![Ipv4Addr::LOCALHOST.into()],
        }
    }
}

/// Name of the administrator's kubeconfig below the PKI directory.
const ADMIN: &str = "admin";
pub const PROXY: &str = "kube-proxy";
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub const SCHEDULER: &str = "kube-scheduler";

/// Everything but the nodes' credentials.
fn control_plane() -> Vec<Subject> {
    vec![
        Subject::api_server(),
        Subject::etcd(),
        Subject::client("apiserver-etcd-client", "kube-apiserver", None),
        Subject::client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters")),
        Subject::client("front-proxy-client", "front-proxy-client", None),
        Subject::client(ADMIN, "lab-admin", Some("system:masters")),
        Subject::client(CONTROLLER_MANAGER, "system:kube-controller-manager", None),
        Subject::client(SCHEDULER, "system:kube-scheduler", None),
        Subject::client(PROXY, "system:kube-proxy", None),
    ]
}

/// The lab's certificate authority and what it has issued, as files.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// The files of an authority made earlier.
    pub fn open(paths: &Paths) -> Self {
        Self { dir: paths.pki() }
    }

    /// Makes the authority and the credentials of the control plane.
    pub fn create(paths: &Paths) -> Result<Self> {
        let pki = Self::open(paths);
        fs::create_dir_all(&pki.dir)?;
        fs::set_permissions(&pki.dir, fs::Permissions::from_mode(0o700))?;
        let key = KeyPair::generate()?;
        let certificate = authority().self_signed(&key)?;
        pki.write("ca", &certificate.pem(), &key.serialize_pem())?;
        // Signs service account tokens; not a certificate, but the same kind of secret.
        let tokens = KeyPair::generate()?;
        write_secret(&pki.key("service-account"), &tokens.serialize_pem())?;
        fs::write(pki.public_key("service-account"), tokens.public_key_pem())?;
        for subject in control_plane() {
            pki.issue(&subject)?;
        }
        for user in [ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY] {
            pki.write_kubeconfig(user, &paths.kubeconfig(user))?;
        }
        fs::rename(paths.kubeconfig(ADMIN), paths.admin_kubeconfig())?;
        Ok(pki)
    }

    /// Makes the credentials of a node.
    pub fn add_node(&self, node: Node, paths: &Paths) -> Result<()> {
        self.issue(&Subject::node(node))?;
        self.write_kubeconfig(&node.name(), &paths.kubeconfig(&node.name()))
    }

    pub fn cert(&self, file: &str) -> PathBuf {
        self.dir.join(format!("{file}.crt"))
    }

    pub fn key(&self, file: &str) -> PathBuf {
        self.dir.join(format!("{file}.key"))
    }

    pub fn public_key(&self, file: &str) -> PathBuf {
        self.dir.join(format!("{file}.pub"))
    }

    fn issue(&self, subject: &Subject) -> Result<()> {
        let ca_key = fs::read_to_string(self.key("ca"))?;
        let (cert, key) = issue(subject, &ca_key)
            .with_context(|| format!("cannot make the certificate of {}", subject.name))?;
        self.write(&subject.file, &cert, &key)
    }

    fn write(&self, file: &str, cert: &str, key: &str) -> Result<()> {
        fs::write(self.cert(file), cert)?;
        write_secret(&self.key(file), key)
    }

    /// Self-contained, so that it can be copied elsewhere.
    fn write_kubeconfig(&self, user: &str, target: &Path) -> Result<()> {
        let data = |path: PathBuf| -> Result<String> { Ok(base64(&fs::read(path)?)) };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "lab", "cluster": {
                "server": addresses::api_url(),
                "certificate-authority-data": data(self.cert("ca"))?,
            }}],
            "users": [{ "name": user, "user": {
                "client-certificate-data": data(self.cert(user))?,
                "client-key-data": data(self.key(user))?,
            }}],
            "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": user } }],
            "current-context": "lab",
        });
        write_secret(target, &serde_json::to_string_pretty(&config)?)
    }
}

/// What the authority's certificate says; together with its key this is all that signing needs.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "etcd-operator-lab");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn issue(subject: &Subject, ca_key: &str) -> Result<(String, String)> {
    let issuer = Issuer::new(authority(), KeyPair::from_pem(ca_key)?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(subject.dns.clone())?;
    params.subject_alt_names.extend(subject.ips.iter().copied().map(SanType::IpAddress));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, &subject.name);
    if let Some(group) = subject.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn write_secret(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Kubeconfigs carry their certificates in base64, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= chunk.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn a_kubelet_is_named_as_the_node_authorizer_expects() {
        let subject = Subject::node(Node(2));
        assert_eq!(subject.name, "system:node:node2");
        assert_eq!(subject.group, Some("system:nodes"));
        assert_eq!(subject.ips, [IpAddr::V4(Ipv4Addr::new(10, 77, 0, 12))]);
    }

    #[test]
    fn the_api_server_answers_to_the_names_pods_use() {
        let subject = Subject::api_server();
        assert!(subject.dns.contains(&"kubernetes.default.svc.cluster.local".to_owned()));
        assert!(subject.ips.contains(&IpAddr::V4(addresses::API_SERVICE)));
        assert!(subject.ips.contains(&IpAddr::V4(addresses::BRIDGE_ADDRESS)));
    }

    #[test]
    fn a_whole_pki_is_private_to_root() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path().join("lab")).unwrap();
        let pki = Pki::create(&paths).unwrap();
        pki.add_node(Node(1), &paths).unwrap();
        for secret in [pki.key("ca"), pki.key("node1"), paths.admin_kubeconfig(), paths.kubeconfig("node1")] {
            let mode = fs::metadata(&secret).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", secret.display());
        }
    }
}
