//! Names of the objects that belong to a cluster or a member, and the addresses made of them.

/// Port clients talk to.
pub const CLIENT_PORT: i32 = 2379;
/// Port members talk to each other on.
pub const PEER_PORT: i32 = 2380;

/// Service that gives every member its DNS name.
pub fn headless_service(cluster: &str) -> String {
    cluster.to_owned()
}

/// Service clients connect to.
pub fn client_service(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// PodDisruptionBudget of a cluster.
pub fn budget(cluster: &str) -> String {
    cluster.to_owned()
}

/// `generateName` of a cluster's members; five random characters follow.
pub fn member_prefix(cluster: &str) -> String {
    format!("{cluster}-")
}

/// PersistentVolumeClaim of a member.
pub fn pvc(member: &str) -> String {
    format!("data-{member}")
}

/// The member that a PersistentVolumeClaim of ours is named after.
pub fn member_of_pvc(claim: &str) -> Option<&str> {
    claim.strip_prefix("data-")
}

/// cert-manager Certificate of the client plane's server side.
pub fn server_certificate(cluster: &str) -> String {
    format!("{cluster}-server")
}

/// cert-manager Certificate the operator presents to etcd.
pub fn operator_client_certificate(cluster: &str) -> String {
    format!("{cluster}-operator-client")
}

/// cert-manager Certificate of the peer plane.
pub fn peer_certificate(cluster: &str) -> String {
    format!("{cluster}-peer")
}

/// Secret behind a cert-manager Certificate of ours.
pub fn certificate_secret(certificate: &str) -> String {
    format!("{certificate}-tls")
}

/// Job that takes a snapshot.
pub fn snapshot_job(snapshot: &str) -> String {
    format!("{snapshot}-snapshot")
}

/// DNS name of a member, as it stands in its URLs and certificates.
pub fn dns_name(member: &str, service: &str, namespace: &str) -> String {
    format!("{member}.{service}.{namespace}.svc")
}

/// Where other members reach a member.
pub fn peer_url(https: bool, member: &str, service: &str, namespace: &str) -> String {
    format!("{}://{}:{PEER_PORT}", scheme(https), dns_name(member, service, namespace))
}

/// Where clients reach a member.
pub fn client_url(https: bool, member: &str, service: &str, namespace: &str) -> String {
    format!("{}://{}:{CLIENT_PORT}", scheme(https), dns_name(member, service, namespace))
}

/// Value of `--initial-cluster-token` for a cluster of our own; adopted clusters keep theirs.
pub fn cluster_token(namespace: &str, name: &str, uid: &str) -> String {
    format!("{namespace}-{name}-{uid}")
}

/// `http` or `https`.
pub fn scheme(https: bool) -> &'static str {
    if https { "https" } else { "http" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_the_go_operator_wrote_them() {
        assert_eq!(
            peer_url(false, "mem-2qlsl", &headless_service("mem"), "default"),
            "http://mem-2qlsl.mem.default.svc:2380"
        );
        assert_eq!(client_url(true, "a-b", "legacy", "ns"), "https://a-b.legacy.ns.svc:2379");
    }

    #[test]
    fn derived_names() {
        assert_eq!(client_service("my-etcd"), "my-etcd-client");
        assert_eq!(pvc("my-etcd-abcde"), "data-my-etcd-abcde");
        assert_eq!(certificate_secret(&operator_client_certificate("c")), "c-operator-client-tls");
        assert_eq!(cluster_token("default", "mem", "8cef"), "default-mem-8cef");
    }
}
