//! What every Kubernetes has inside: the proxy's rights, cluster DNS, a default StorageClass.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    addresses::{DNS_DOMAIN, DNS_SERVICE},
    image::bundled,
    paths::Paths,
    provisioner,
    sys::command,
    tools::Toolbox,
};

pub const DNS_NAMESPACE: &str = "kube-system";
pub const DNS_NAME: &str = "coredns";

/// Applies all of it; objects that are already as they should be stay untouched.
pub fn apply(paths: &Paths, tools: &Toolbox, nodes: u8) -> Result<()> {
    let items: Vec<Value> = [proxy_rights(), dns_rights(), dns(nodes), storage_class()].concat();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let kubeconfig = format!("--kubeconfig={}", paths.admin_kubeconfig().display());
    let args = [&kubeconfig, "apply", "--server-side", "--force-conflicts", "--field-manager=lab", "-f", "-"];
    let kubectl = tools.kubernetes("kubectl")?.to_string_lossy().into_owned();
    command::run_with_input(&kubectl, &args, &list.to_string()).context("cannot set up DNS and storage")?;
    Ok(())
}

/// One certificate serves the proxies of all nodes.
fn proxy_rights() -> Vec<Value> {
    vec![json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "lab:kube-proxy" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy" }],
    })]
}

fn dns_rights() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["list", "watch"] });
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": DNS_NAME, "namespace": DNS_NAMESPACE },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "lab:coredns" },
            "rules": [
                rule("", &["services", "pods", "namespaces"]),
                rule("discovery.k8s.io", &["endpointslices"]),
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "lab:coredns" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lab:coredns" },
            "subjects": [{ "kind": "ServiceAccount", "name": DNS_NAME, "namespace": DNS_NAMESPACE }],
        }),
    ]
}

/// Short times to live, or an etcd member that just started would be looked up as absent for half a minute. Names
/// outside the cluster do not exist: the lab answers at once instead of asking anybody.
fn corefile() -> String {
    format!(
        "{DNS_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{\n    errors\n    health\n    ready\n    \
         kubernetes {DNS_DOMAIN} in-addr.arpa ip6.arpa {{\n        pods insecure\n        ttl 5\n    }}\n    \
         cache {{\n        success 9984 5\n        denial 9984 1\n    }}\n}}\n\
         .:53 {{\n    errors\n    template ANY ANY {{\n        rcode NXDOMAIN\n    }}\n}}\n"
    )
}

fn dns(nodes: u8) -> Vec<Value> {
    let labels = json!({ "k8s-app": "kube-dns" });
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": DNS_NAME, "namespace": DNS_NAMESPACE },
            "data": { "Corefile": corefile() },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "kube-dns", "namespace": DNS_NAMESPACE, "labels": labels },
            "spec": {
                "clusterIP": DNS_SERVICE,
                "selector": labels,
                "ports": [
                    { "name": "dns", "port": 53, "protocol": "UDP" },
                    { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
                ],
            },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": DNS_NAME, "namespace": DNS_NAMESPACE, "labels": labels },
            "spec": {
                // A second replica on another node, so that DNS survives the loss of one.
                "replicas": nodes.clamp(1, 2),
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": dns_pod(&labels) },
            },
        }),
    ]
}

fn dns_pod(labels: &Value) -> Value {
    let probe =
        |path: &str, port: u16| json!({ "httpGet": { "path": path, "port": port }, "periodSeconds": 2 });
    json!({
        "serviceAccountName": DNS_NAME,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
        ]}},
        "containers": [{
            "name": DNS_NAME,
            "image": bundled::COREDNS,
            "imagePullPolicy": "Never",
            "args": ["-conf", "/etc/coredns/Corefile"],
            "resources": { "requests": { "cpu": "20m", "memory": "40Mi" }, "limits": { "memory": "170Mi" } },
            "volumeMounts": [{ "name": "config", "mountPath": "/etc/coredns", "readOnly": true }],
            "readinessProbe": probe("/ready", 8181),
            "livenessProbe": probe("/health", 8080),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "add": ["NET_BIND_SERVICE"], "drop": ["ALL"] },
            },
        }],
        "volumes": [{ "name": "config", "configMap": { "name": DNS_NAME } }],
    })
}

fn storage_class() -> Vec<Value> {
    vec![json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": provisioner::STORAGE_CLASS,
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": provisioner::NAME,
        "allowVolumeExpansion": true,
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    })]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_has_one_replica_for_each_of_two_nodes() {
        let replicas = |nodes| dns(nodes)[2]["spec"]["replicas"].clone();
        assert_eq!((replicas(1), replicas(2), replicas(3)), (json!(1), json!(2), json!(2)));
    }

    #[test]
    fn dns_forwards_nothing() {
        let text = corefile();
        assert!(!text.contains("forward"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
