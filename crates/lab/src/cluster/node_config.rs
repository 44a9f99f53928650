//! The configuration files of a node: containerd, the Pod network, the kubelet. Pure text from pure values.

use serde_json::{Value, json};

use super::pki::Pki;
use crate::{
    addresses::{DNS_DOMAIN, DNS_SERVICE, Node},
    image::bundled,
    paths::NodePaths,
};

/// How soon the loss of a node is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Silence after which a node counts as lost, and how often that is looked at.
    pub grace: &'static str,
    pub monitor: &'static str,
    /// How often a kubelet reports, and how long its lease is good for.
    pub status: &'static str,
    pub lease_seconds: u32,
}

impl Timings {
    /// About 9 s by default. The fast ones, about 2 s, cost twice the CPU time at rest.
    pub fn new(fast: bool) -> Self {
        match fast {
            false => Self { grace: "8s", monitor: "1s", status: "2s", lease_seconds: 4 },
            true => Self { grace: "2s", monitor: "500ms", status: "1s", lease_seconds: 1 },
        }
    }
}

pub fn containerd(paths: &NodePaths) -> String {
    let path = |p: std::path::PathBuf| p.display().to_string();
    format!(
        r#"# Written by `lab up`.
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.opt"]

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # A machine without CAP_SYS_RESOURCE cannot lower the score of anything.
  restrict_oom_score_adj = true
  # Keeps the Pods' network namespaces below the lab's directory, where `lab down` finds them.
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{cni}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{runc}"
"#,
        root = path(paths.containerd_root()),
        state = path(paths.containerd_state()),
        runc = path(paths.runc_state()),
        socket = path(paths.containerd_socket()),
        cni = path(paths.cni_config()),
        pause = bundled::PAUSE,
    )
}

/// No masquerading: a Pod must be seen under its own address on other nodes, or the check of etcd's peer
/// certificates against the caller's address fails.
pub fn cni(node: Node, paths: &NodePaths) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": node.cgroup(),
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": node.pod_network() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                    "dataDir": paths.cni_addresses(),
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

pub fn kubelet(node: Node, paths: &NodePaths, pki: &Pki, timings: Timings) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.cert("ca") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki.cert(&node.name()),
        "tlsPrivateKeyFile": pki.key(&node.name()),
        "containerRuntimeEndpoint": format!("unix://{}", paths.containerd_socket().display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroup()),
        "failCgroupV1": false,
        "failSwapOn": false,
        // Otherwise all kubelets of the machine would share one log directory.
        "podLogsDir": paths.pod_logs(),
        "volumePluginDir": paths.volume_plugins(),
        "resolvConf": paths.resolv_conf(),
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": DNS_DOMAIN,
        "nodeStatusUpdateFrequency": timings.status,
        "nodeLeaseDurationSeconds": timings.lease_seconds,
        "crashLoopBackOff": { "maxContainerRestartPeriod": "2s" },
        "volumeStatsAggPeriod": "5s",
        "maxPods": 200,
        // Images cannot be pulled again, and a developer's disk is often nearly full: collect and evict late.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    })
}

pub fn kubelet_args(node: Node, paths: &NodePaths, kubeconfig: &std::path::Path) -> Vec<String> {
    let labels = format!("topology.kubernetes.io/zone={},topology.kubernetes.io/region=lab", node.zone());
    vec![
        format!("--config={}", paths.kubelet_config().display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--root-dir={}", paths.kubelet_root().display()),
        format!("--hostname-override={}", node.name()),
        format!("--node-ip={}", node.address()),
        format!("--node-labels={labels}"),
        "--v=1".into(),
    ]
}

/// Names outside the cluster are nobody's business here: the cluster's own DNS is the only server.
pub fn resolv_conf() -> String {
    format!("nameserver {DNS_SERVICE}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;

    fn paths() -> Paths {
        Paths::new("/var/lib/lab-test".into()).unwrap()
    }

    #[test]
    fn nodes_share_nothing() {
        let (one, two) = (paths().node(Node(1)), paths().node(Node(2)));
        assert_ne!(containerd(&one), containerd(&two));
        let (a, b) = (cni(Node(1), &one), cni(Node(2), &two));
        assert_ne!(a["name"], b["name"]);
        assert_ne!(a["plugins"][0]["ipam"], b["plugins"][0]["ipam"]);
    }

    #[test]
    fn a_pod_keeps_its_address_across_nodes() {
        let config = cni(Node(1), &paths().node(Node(1)));
        assert_eq!(config["plugins"][0]["ipMasq"], false);
    }

    #[test]
    fn kubelet_lives_in_its_own_part_of_the_machine() {
        let paths = paths();
        let config = kubelet(Node(3), &paths.node(Node(3)), &Pki::open(&paths), Timings::new(false));
        assert_eq!(config["cgroupRoot"], "/etcdlab-node3");
        assert_eq!(config["podLogsDir"], "/var/lib/lab-test/nodes/node3/podlogs");
        let args = kubelet_args(Node(3), &paths.node(Node(3)), &paths.kubeconfig("node3")).join(" ");
        assert!(args.contains("topology.kubernetes.io/zone=zone-c"), "{args}");
    }

    #[test]
    fn dns_is_the_clusters_own() {
        assert_eq!(resolv_conf(), "nameserver 10.96.0.10\n");
    }
}
