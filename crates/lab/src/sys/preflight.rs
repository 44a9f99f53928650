//! What must hold before anything is touched: root, disk space, kernel features, free ports, Debian packages.
//! Every refusal is one sentence that says what to do.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
};

use anyhow::{Context, Result, bail};

use super::command;
use crate::{addresses, progress::Progress};

/// Room for one node's images and volumes, below which a kubelet starts to evict Pods.
const MIN_FREE: u64 = 5 << 30;

/// A program we call and the Debian package that brings it.
///
/// The last one is not for the lab itself: it compiles the static binaries that go into images for it.
const NEEDED: [(&str, &str); 9] = [
    ("/usr/bin/containerd", "containerd"),
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/sbin/iptables", "iptables"),
    ("/usr/sbin/mkfs.xfs", "xfsprogs"),
    ("/usr/sbin/xfs_growfs", "xfsprogs"),
    ("/usr/sbin/ip", "iproute2"),
    ("/usr/bin/nsenter", "util-linux"),
    ("/usr/bin/musl-gcc", "musl-tools"),
];

pub fn root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("the lab makes namespaces, mounts and cgroups: run it as root")
}

pub fn disk_space(dir: &Path) -> Result<()> {
    let existing = dir.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let stat =
        rustix::fs::statvfs(existing).with_context(|| format!("cannot examine {}", existing.display()))?;
    let free = stat.f_bavail * stat.f_frsize;
    if free >= MIN_FREE {
        return Ok(());
    }
    bail!(
        "only {} MiB are free on the file system of {}, and the lab needs {} MiB: free some, or set LAB_DIR",
        free >> 20,
        dir.display(),
        MIN_FREE >> 20
    )
}

pub fn kernel() -> Result<()> {
    let known = fs::read_to_string("/proc/filesystems").context("cannot read /proc/filesystems")?;
    let has = |name: &str| known.lines().any(|line| line.split_whitespace().next_back() == Some(name));
    for name in ["overlay", "xfs"] {
        if !has(name) && !command::succeeds("modprobe", &[name]) {
            bail!("this kernel has no {name} file system, which the lab needs");
        }
    }
    if !Path::new(super::network::BRIDGE_FILTER).exists() && !command::succeeds("modprobe", &["br_netfilter"])
    {
        bail!("this kernel has no br_netfilter, without which Services cannot work between Pods of one node");
    }
    if !Path::new("/dev/loop-control").exists() && !command::succeeds("modprobe", &["loop"]) {
        bail!("this kernel has no loop devices, which the lab's volumes need");
    }
    Ok(())
}

/// Ports of the control plane, before it is started for the first time.
pub fn ports() -> Result<()> {
    let local = [
        addresses::ETCD_CLIENT_PORT,
        addresses::ETCD_PEER_PORT,
        addresses::CONTROLLER_MANAGER_PORT,
        addresses::SCHEDULER_PORT,
    ];
    for port in local {
        port_free(IpAddr::V4(Ipv4Addr::LOCALHOST), port)?;
    }
    port_free(IpAddr::V4(addresses::BRIDGE_ADDRESS), addresses::API_PORT)
}

fn port_free(address: IpAddr, port: u16) -> Result<()> {
    match TcpListener::bind(SocketAddr::new(address, port)) {
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            bail!(
                "port {port} on {address} is in use by another program (`ss -ltnp sport = :{port}` shows it): stop it first"
            )
        }
        // Any other failure is the control plane's own to report.
        _ => Ok(()),
    }
}

/// Installs the Debian packages that are missing.
pub fn packages(progress: &Progress) -> Result<()> {
    let missing = missing(|path| Path::new(path).exists());
    if missing.is_empty() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "the packages {} are missing and this is not Debian: install their equivalents",
            missing.join(", ")
        );
    }
    let step = progress.step(&format!("installing {}", missing.join(", ")));
    apt(&["update"]).context("cannot refresh the package lists")?;
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(&missing);
    apt(&args).with_context(|| format!("cannot install {}", missing.join(", ")))?;
    step.done();
    Ok(())
}

fn missing(exists: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        NEEDED.iter().filter(|(path, _)| !exists(path)).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn apt(args: &[&str]) -> Result<()> {
    let mut apt = command::command("apt-get", args);
    apt.arg("--quiet=2").env("DEBIAN_FRONTEND", "noninteractive");
    let output = apt.stdin(Stdio::null()).output().context("cannot run apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("`{}` failed: {}", command::describe(&apt), command::tail(said.trim(), 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_package_is_named_once() {
        assert!(missing(|_| true).is_empty());
        assert_eq!(missing(|path| !path.contains("xfs")), ["xfsprogs"]);
    }

    #[test]
    fn a_port_in_use_is_refused_in_one_sentence() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = port_free(IpAddr::V4(Ipv4Addr::LOCALHOST), port).unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {port} on 127.0.0.1 is in use")), "{error}");
    }
}
