//! One node: its namespace, cgroups and daemons. Power on and power off are the same whether a node is new, was
//! stopped on purpose or was found dead.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    images,
    node_config::{self, Timings},
    pki::{self, Pki},
    seed,
};
use crate::{
    addresses::{Node, POD_NETWORK},
    paths::{NodePaths, Paths},
    state::State,
    sys::{
        cgroup::Cgroups,
        command, network,
        process::{self, Launch, Place, Process},
    },
    tools::Toolbox,
};

/// Shims put their sockets here, whichever containerd they belong to.
const SHIM_SOCKETS: &str = "/run/containerd/s/";

/// The daemons of a node, in the order of their start.
pub const DAEMONS: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];

/// Name of a node's daemon in the lab's records and logs.
pub fn daemon(node: Node, daemon: &str) -> String {
    format!("{}-{daemon}", node.name())
}

pub fn is_on(node: Node, state: &State) -> bool {
    DAEMONS.iter().all(|name| state.is_alive(&daemon(node, name)))
}

/// Everything a node needs before its daemons start: files, credentials, cgroups, network.
pub fn prepare(node: Node, paths: &Paths, seed: &Path, fast: bool) -> Result<()> {
    let own = paths.node(node);
    for dir in [own.root(), &own.cni_config(), &own.kubelet_root(), &own.pod_logs(), &own.volume_plugins()] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    seed::plant(seed, &own.containerd_root())?;
    let pki = Pki::open(paths);
    if !pki.cert(&node.name()).exists() {
        pki.add_node(node, paths)?;
    }
    let cni = own.cni_config().join("10-lab.conflist");
    fs::write(own.containerd_config(), node_config::containerd(&own))?;
    fs::write(cni, serde_json::to_vec_pretty(&node_config::cni(node, &own))?)?;
    fs::write(own.resolv_conf(), node_config::resolv_conf())?;
    let kubelet = node_config::kubelet(node, &own, &pki, Timings::new(fast));
    fs::write(own.kubelet_config(), serde_json::to_vec_pretty(&kubelet)?)?;
    Cgroups::detect()?.create(&node.cgroup())?;
    network::ensure_node(node, &own.netns())
}

/// A node that is being started. Its processes are recorded by the caller, because several nodes start at a time.
pub struct Start<'a> {
    node: Node,
    paths: &'a Paths,
    own: NodePaths,
    place: Place,
    pub started: Vec<Process>,
}

impl<'a> Start<'a> {
    pub fn new(node: Node, paths: &'a Paths) -> Self {
        let own = paths.node(node);
        let place = Place { cgroup: node.cgroup(), netns: Some(own.netns()) };
        Self { node, paths, own, place, started: Vec::new() }
    }

    fn launch(&mut self, name: &str, program: &Path, args: Vec<String>) -> Result<()> {
        let name = daemon(self.node, name);
        let log = self.paths.log(&name);
        let launch = Launch { name: &name, program, args, place: &self.place, log: &log };
        self.started.push(Process::launch(&launch)?);
        Ok(())
    }

    /// Starts containerd, unless it runs, and gives it the images it lacks.
    pub fn runtime(&mut self, state: &State, archives: &[images::Archive]) -> Result<()> {
        let name = daemon(self.node, "containerd");
        if !state.is_alive(&name) {
            let args = vec![format!("--config={}", self.own.containerd_config().display())];
            self.launch("containerd", Path::new("/usr/bin/containerd"), args)?;
        }
        let process =
            self.started.first().or_else(|| state.process(&name)).context("containerd was not started")?;
        await_containerd(&self.own.containerd_socket(), process, &self.paths.log(&name))?;
        images::import(self.node, &self.own, archives)
    }

    /// Starts kubelet and kube-proxy, unless they run.
    pub fn join(&mut self, state: &State, tools: &Toolbox) -> Result<()> {
        if !state.is_alive(&daemon(self.node, "kubelet")) {
            let kubeconfig = self.paths.kubeconfig(&self.node.name());
            let args = node_config::kubelet_args(self.node, &self.own, &kubeconfig);
            self.launch("kubelet", tools.kubernetes("kubelet")?, args)?;
        }
        if !state.is_alive(&daemon(self.node, "kube-proxy")) {
            self.launch("kube-proxy", tools.kubernetes("kube-proxy")?, proxy_args(self.node, self.paths))?;
        }
        Ok(())
    }
}

/// Waits until a containerd that was just started answers.
pub fn await_containerd(socket: &Path, process: &Process, log: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !command::succeeds("ctr", &[Path::new("--address"), socket, Path::new("version")]) {
        if !process.is_alive() || Instant::now() > deadline {
            bail!(
                "{} does not answer; the end of {}:\n{}",
                process.name,
                log.display(),
                process::last_words(log, 5)
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn proxy_args(node: Node, paths: &Paths) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", paths.kubeconfig(pki::PROXY).display()),
        format!("--hostname-override={}", node.name()),
        "--proxy-mode=iptables".into(),
        format!("--cluster-cidr={POD_NETWORK}"),
        // Connection tracking limits are the machine's, not the node's.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
        // Services of a test come and go quickly; follow them quickly.
        "--iptables-min-sync-period=100ms".into(),
    ]
}

/// Power off: kills every process of the node at once. Its disk, namespace and cable stay.
pub fn power_off(node: Node) -> Result<()> {
    let cgroups = Cgroups::detect()?;
    let sockets = shim_sockets(&cgroups.processes(&node.cgroup()));
    cgroups.kill(&node.cgroup())?;
    for socket in sockets {
        // A killed shim cannot remove its own.
        let _ = fs::remove_file(socket);
    }
    Ok(())
}

/// The kernel lists Unix sockets by network namespace, so that of containerd or a shim shows all of the node's.
fn shim_sockets(pids: &[u32]) -> Vec<String> {
    let daemon = |pid: &&u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.starts_with("containerd"))
    };
    let Some(pid) = pids.iter().find(daemon) else { return Vec::new() };
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let paths = table.lines().filter_map(|line| line.split_whitespace().nth(7));
    paths.filter(|path| path.starts_with(SHIM_SOCKETS)).map(str::to_owned).collect()
}
