//! etcd, API server, controller manager and scheduler, as processes of this machine that listen on its loopback
//! and the lab's bridge only.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, bail};
use serde_json::json;

use super::{
    api,
    node_config::Timings,
    pki::{self, Pki},
};
use crate::{
    addresses::{
        self, API_PORT, BRIDGE_ADDRESS, CONTROLLER_MANAGER_PORT, ETCD_CLIENT_PORT, ETCD_PEER_PORT,
        POD_NETWORK, SCHEDULER_PORT, SERVICE_NETWORK,
    },
    paths::Paths,
    provisioner,
    state::State,
    sys::{
        PREFIX,
        cgroup::Cgroups,
        process::{self, Launch, Place, Process},
    },
    tools::Toolbox,
};

pub const ETCD: &str = "etcd";
pub const API_SERVER: &str = "kube-apiserver";
/// All of it, in the order of its start.
pub const COMPONENTS: [&str; 5] =
    [ETCD, API_SERVER, pki::CONTROLLER_MANAGER, pki::SCHEDULER, provisioner::PROCESS];

/// How long the API server may take; a busy machine of two cores needs about 10 s.
const API_LIMIT: Duration = Duration::from_secs(120);

/// Starts what does not run, and returns once the API server is ready.
pub fn ensure(paths: &Paths, tools: &Toolbox, state: &mut State) -> Result<()> {
    Cgroups::detect()?.create(&place().cgroup)?;
    let pki = Pki::open(paths);
    let timings = Timings::new(state.fast_failure_detection);
    start(paths, state, ETCD, tools.program(Toolbox::own_etcd().name, ETCD)?, etcd_args(paths, &pki))?;
    start(paths, state, API_SERVER, tools.kubernetes(API_SERVER)?, api_server_args(&pki))?;
    await_api(paths, state)?;
    let scheduler_config = paths.pki().join("scheduler.json");
    fs::write(&scheduler_config, serde_json::to_vec_pretty(&scheduler(paths))?)?;
    let name = pki::CONTROLLER_MANAGER;
    start(paths, state, name, tools.kubernetes(name)?, controller_manager_args(paths, &pki, timings))?;
    let name = pki::SCHEDULER;
    start(paths, state, name, tools.kubernetes(name)?, scheduler_args(paths, &scheduler_config))
}

fn start(paths: &Paths, state: &mut State, name: &str, program: &Path, args: Vec<String>) -> Result<()> {
    if state.is_alive(name) {
        return Ok(());
    }
    let log = paths.log(name);
    state.record(Process::launch(&Launch { name, program, args, place: &place(), log: &log })?);
    state.save(paths)
}

/// The control plane shares a cgroup, so that it is found even when the record of it is lost.
fn place() -> Place {
    Place { cgroup: format!("{PREFIX}-control-plane"), netns: None }
}

/// The lab's own controller for volumes, a process like the others.
pub fn ensure_provisioner(paths: &Paths, state: &mut State) -> Result<()> {
    let me = process::own_program()?;
    start(paths, state, provisioner::PROCESS, &me, vec!["provisioner".into()])
}

fn await_api(paths: &Paths, state: &State) -> Result<()> {
    let ready = api::connect(paths)?
        .await_ready(API_LIMIT, || [ETCD, API_SERVER].into_iter().find(|name| !state.is_alive(name)));
    let Err(problem) = ready else { return Ok(()) };
    let component = problem.dead.unwrap_or(API_SERVER);
    let log = paths.log(component);
    bail!(
        "the API server did not become ready: {problem}; the end of {}:\n{}",
        log.display(),
        process::last_words(&log, 5)
    )
}

fn etcd_args(paths: &Paths, pki: &Pki) -> Vec<String> {
    let client = format!("https://127.0.0.1:{ETCD_CLIENT_PORT}");
    let peer = format!("http://127.0.0.1:{ETCD_PEER_PORT}");
    vec![
        "--name=lab".into(),
        format!("--data-dir={}", paths.etcd_data().display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=lab={peer}"),
        "--client-cert-auth".into(),
        format!("--trusted-ca-file={}", pki.cert("ca").display()),
        format!("--cert-file={}", pki.cert(ETCD).display()),
        format!("--key-file={}", pki.key(ETCD).display()),
        // Nobody needs this data after a power cut, and every write of the API server waits for it.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

fn api_server_args(pki: &Pki) -> Vec<String> {
    let cert = |flag: &str, file: &str| format!("--{flag}={}", pki.cert(file).display());
    let key = |flag: &str, file: &str| format!("--{flag}={}", pki.key(file).display());
    vec![
        format!("--bind-address={BRIDGE_ADDRESS}"),
        format!("--advertise-address={BRIDGE_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        cert("client-ca-file", "ca"),
        cert("tls-cert-file", "apiserver"),
        key("tls-private-key-file", "apiserver"),
        format!("--etcd-servers=https://127.0.0.1:{ETCD_CLIENT_PORT}"),
        cert("etcd-cafile", "ca"),
        cert("etcd-certfile", "apiserver-etcd-client"),
        key("etcd-keyfile", "apiserver-etcd-client"),
        cert("kubelet-certificate-authority", "ca"),
        cert("kubelet-client-certificate", "apiserver-kubelet-client"),
        key("kubelet-client-key", "apiserver-kubelet-client"),
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--service-account-issuer=https://kubernetes.default.svc.{}", addresses::DNS_DOMAIN),
        format!("--service-account-key-file={}", pki.public_key("service-account").display()),
        key("service-account-signing-key-file", "service-account"),
        format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        cert("requestheader-client-ca-file", "ca"),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        cert("proxy-client-cert-file", "front-proxy-client"),
        key("proxy-client-key-file", "front-proxy-client"),
        // The root namespace has no kube-proxy: webhooks are dialled by Pod address.
        "--enable-aggregator-routing=true".into(),
        "--default-not-ready-toleration-seconds=10".into(),
        "--default-unreachable-toleration-seconds=10".into(),
        "--profiling=false".into(),
    ]
}

fn controller_manager_args(paths: &Paths, pki: &Pki, timings: Timings) -> Vec<String> {
    let mut args = kubeconfig_args(paths, pki::CONTROLLER_MANAGER);
    args.push(format!("--kubeconfig={}", paths.kubeconfig(pki::CONTROLLER_MANAGER).display()));
    args.extend([
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={CONTROLLER_MANAGER_PORT}"),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", pki.key("service-account").display()),
        format!("--root-ca-file={}", pki.cert("ca").display()),
        format!("--cluster-signing-cert-file={}", pki.cert("ca").display()),
        format!("--cluster-signing-key-file={}", pki.key("ca").display()),
        // The Pod network of a node follows from its number, see `addresses`.
        "--allocate-node-cidrs=false".into(),
        format!("--cluster-cidr={POD_NETWORK}"),
        format!("--node-monitor-grace-period={}", timings.grace),
        format!("--node-monitor-period={}", timings.monitor),
        // The default lies outside the lab's directory.
        format!("--flex-volume-plugin-dir={}", paths.root().join("volumeplugins").display()),
        "--kube-api-qps=100".into(),
        "--kube-api-burst=200".into(),
        "--profiling=false".into(),
    ]);
    args
}

/// A Pod that could not be placed is tried again soon: waiting minutes teaches a test nothing.
fn scheduler(paths: &Paths) -> serde_json::Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false },
        "clientConnection": { "kubeconfig": paths.kubeconfig(pki::SCHEDULER), "qps": 100, "burst": 200 },
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
    })
}

fn scheduler_args(paths: &Paths, config: &Path) -> Vec<String> {
    let mut args = kubeconfig_args(paths, pki::SCHEDULER);
    args.extend([
        format!("--config={}", config.display()),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={SCHEDULER_PORT}"),
    ]);
    args
}

fn kubeconfig_args(paths: &Paths, user: &str) -> Vec<String> {
    let file = paths.kubeconfig(user);
    ["authentication", "authorization"].map(|what| format!("--{what}-kubeconfig={}", file.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_listens_beyond_this_machine() {
        let paths = Paths::new("/var/lib/lab-test".into()).unwrap();
        let pki = Pki::open(&paths);
        let all = [
            etcd_args(&paths, &pki),
            api_server_args(&pki),
            controller_manager_args(&paths, &pki, Timings::new(true)),
            scheduler_args(&paths, Path::new("/x")),
        ]
        .concat();
        let local = ["127.0.0.1", "10.77.0.1"];
        for arg in all.iter().filter(|arg| arg.contains("bind-address") || arg.contains("listen-")) {
            assert!(local.iter().any(|address| arg.contains(address)), "{arg}");
        }
    }
}
