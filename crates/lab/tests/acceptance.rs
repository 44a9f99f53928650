//! The lab's promises, checked on a real one: Pods on three nodes reach each other, nodes die and come back, cables are
//! cut and mended, volumes have their size and grow.
//!
//! Needs root and takes a minute, so it runs only when asked for:
//! `cargo test -p lab --test acceptance -- --ignored`. It uses the machine's lab, with three nodes, and leaves it up.

// A failed step ends the test; there is nobody to report it to.
#![allow(clippy::unwrap_used)]

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const NAMESPACE: &str = "lab-acceptance";
const GI: u64 = 1 << 30;

fn run(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{program} {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn lab(args: &[&str]) -> String {
    run(env!("CARGO_BIN_EXE_lab"), args, "").unwrap()
}

/// What `kubectl` says in the test's namespace.
fn try_kubectl(args: &[&str]) -> Result<String, String> {
    let dir = std::env::var("LAB_DIR").unwrap_or_else(|_| "/var/lib/etcd-operator-lab".into());
    let (program, config) = (format!("{dir}/bin/kubectl"), format!("--kubeconfig={dir}/kubeconfig"));
    let mut line = vec![config.as_str(), "--namespace", NAMESPACE];
    let (args, input) = match args {
        ["apply", text] => (&["apply", "-f", "-"][..], *text),
        other => (other, ""),
    };
    line.extend(args);
    run(&program, &line, input)
}

fn kubectl(args: &[&str]) -> String {
    try_kubectl(args).unwrap()
}

/// Runs a probe in a Pod; see `tools/toolbox`.
fn toolbox(pod: &str, args: &[&str]) -> String {
    kubectl(&[&["exec", pod, "--", "/toolbox"], args].concat())
}

fn eventually(what: &str, limit: u64, check: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(limit), "not within {limit} s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{what}: {:.1} s", began.elapsed().as_secs_f64());
    began.elapsed()
}

fn is_ready(node: &str) -> bool {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    kubectl(&["get", "node", node, "-o", path]) == "True"
}

/// One Pod on each node, as (name, node, address).
fn pods() -> Vec<(String, String, String)> {
    let columns = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{\"\\n\"}{end}";
    let listing = kubectl(&["get", "pods", "-l", "app=probe", "-o", columns]);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    listing.lines().map(words).map(|w| (w[0].clone(), w[1].clone(), w[2].clone())).collect()
}

const PROBES: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probe}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: probe
        image: localhost/lab/toolbox:1
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: probe}
spec: {selector: {app: probe}, ports: [{port: 80, targetPort: 8080}]}
"#;

const VOLUME: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: disk}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 65532}
  containers:
  - name: disk
    image: localhost/lab/toolbox:1
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;

#[test]
#[cfg_attr(not(feature = "acceptance"), ignore = "root, a minute, and the machine's lab: make test runs it")]
fn the_lab_keeps_its_promises() {
    lab(&["up", "--nodes", "3"]);
    lab(&["status"]);
    let _ = try_kubectl(&["delete", "namespace", NAMESPACE]);
    kubectl(&["create", "namespace", NAMESPACE]);

    pods_talk_across_nodes();
    a_volume_has_its_size_and_grows();
    a_killed_container_restarts();
    a_stopped_node_is_lost_and_returns();
    a_cut_node_is_lost_but_runs_on();

    kubectl(&["delete", "namespace", NAMESPACE]);
    eventually("released volumes are gone", 20, || kubectl(&["get", "pv", "-o", "name"]).is_empty());
}

fn pods_talk_across_nodes() {
    kubectl(&["apply", PROBES]);
    kubectl(&["rollout", "status", "daemonset/probe", "--timeout=60s"]);
    let pods = pods();
    assert_eq!(pods.len(), 3);
    let service = kubectl(&["get", "service", "probe", "-o", "jsonpath={.spec.clusterIP}"]);
    for (from, node, address) in &pods {
        for (to, _, target) in &pods {
            // Seen under its own address: nothing in between translates it.
            let answer = toolbox(from, &["get", &format!("http://{target}:8080/")]);
            assert!(from == to || answer == format!("{to} {address}"), "{answer} on {node}");
        }
        let name = format!("probe.{NAMESPACE}.svc");
        assert_eq!(toolbox(from, &["lookup", &name]), service);
        assert!(toolbox(from, &["get", &format!("http://{name}/")]).starts_with("probe-"));
        assert!(kubectl(&["logs", from]).contains("serving"));
    }
    let zones = kubectl(&[
        "get",
        "nodes",
        "-o",
        r"jsonpath={.items[*].metadata.labels.topology\.kubernetes\.io/zone}",
    ]);
    assert_eq!(zones, "zone-a zone-b zone-c");
}

fn a_volume_has_its_size_and_grows() {
    kubectl(&["apply", VOLUME]);
    kubectl(&["wait", "--for=condition=Ready", "pod/disk", "--timeout=60s"]);
    let written = |answer: &str| answer.split(' ').next().unwrap().parse::<u64>().unwrap();

    let answer = toolbox("disk", &["fill", "/data/first"]);
    assert!(answer.ends_with("full"), "{answer}");
    assert!((GI * 8 / 10..GI).contains(&written(&answer)), "{answer} bytes fit into 1 GiB");

    kubectl(&["patch", "pvc", "data", "-p", r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#]);
    eventually("the claim shows 2Gi", 20, || {
        kubectl(&["get", "pvc", "data", "-o", "jsonpath={.status.capacity.storage}"]) == "2Gi"
    });
    let size = written(&toolbox("disk", &["df", "/data"]));
    assert!((2 * GI * 9 / 10..=2 * GI).contains(&size), "the Pod sees {size} bytes");
    assert_eq!(toolbox("disk", &["fill", "/data/second", "536870912"]), "536870912");

    lab(&["volume", "wipe", "data", "-n", NAMESPACE]);
    lab(&["volume", "fill", "data", "-n", NAMESPACE]);
    assert_eq!(toolbox("disk", &["fill", "/data/third"]), "0 full");
    lab(&["volume", "drain", "data", "-n", NAMESPACE]);
    assert_eq!(toolbox("disk", &["fill", "/data/third", "1048576"]), "1048576");
    lab(&["volume", "corrupt", "data", "-n", NAMESPACE]);
}

fn a_killed_container_restarts() {
    lab(&["container", "kill", "disk", "-n", NAMESPACE]);
    eventually("the container restarted", 20, || {
        let path =
            "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}";
        kubectl(&["get", "pod", "disk", "-o", path]) == "1 true"
    });
}

fn a_stopped_node_is_lost_and_returns() {
    let (pod, _, address) = pods().into_iter().find(|(_, node, _)| node == "node2").unwrap();
    let (witness, ..) = pods().into_iter().find(|(_, node, _)| node == "node1").unwrap();
    lab(&["node", "stop", "node2"]);
    let url = format!("http://{address}:8080/");
    assert!(try_kubectl(&["exec", &witness, "--", "/toolbox", "get", &url]).is_err());
    eventually("node2 is lost", 30, || !is_ready("node2"));
    lab(&["node", "start", "node2"]);
    eventually("node2 is back", 30, || is_ready("node2"));
    kubectl(&["rollout", "status", "daemonset/probe", "--timeout=60s"]);
    let path = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl(&["get", "pod", &pod, "-o", path]), "1");
}

fn a_cut_node_is_lost_but_runs_on() {
    let (pod, ..) = pods().into_iter().find(|(_, node, _)| node == "node3").unwrap();
    lab(&["node", "cut", "node3"]);
    eventually("node3 is lost", 30, || !is_ready("node3"));
    let inside = lab(&["node", "exec", "node3", "--", "ip", "-brief", "address"]);
    assert!(inside.contains("10.77.0.13/24"), "{inside}");
    lab(&["node", "heal", "node3"]);
    eventually("node3 is back", 60, || is_ready("node3"));
    let path = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl(&["get", "pod", &pod, "-o", path]), "0");
    lab(&["status"]);
}
