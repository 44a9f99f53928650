//! The lab's network: one bridge in the root namespace, one namespace and cable for each node.
//!
//! Nothing is forwarded or translated in the root namespace: Pods reach one another, the API server and nothing
//! outside this machine, and no firewall rule of the machine is touched.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use super::{PREFIX, command};
use crate::addresses::{self, BRIDGE_ADDRESS, NODE_NETWORK, Node};

/// With this on, a firewall that drops forwarded packets would also drop those between two nodes.
pub const BRIDGE_FILTER: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

pub fn link_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// Makes the bridge, unless it is there; refuses when its network is already somebody else's.
pub fn ensure_bridge() -> Result<()> {
    let bridge = addresses::bridge();
    if link_exists(&bridge) {
        return Ok(());
    }
    let routes = command::run("ip", &["-4", "route", "show", "match", &BRIDGE_ADDRESS.to_string()])?;
    if let Some(route) = routes.lines().find(|line| !line.starts_with("default")) {
        bail!(
            "the lab needs the network {NODE_NETWORK}, but this machine already routes it: {}",
            route.trim()
        );
    }
    batch(&[
        format!("link add {bridge} type bridge"),
        format!("addr add {BRIDGE_ADDRESS}/24 dev {bridge}"),
        format!("link set {bridge} up"),
    ])
    .context("cannot make the lab's bridge")
}

/// Makes a node's namespace, held open by a mount on `netns`, and plugs it into the bridge.
pub fn ensure_node(node: Node, netns: &Path) -> Result<()> {
    let (cable, inner) = (node.cable(), format!("{PREFIX}-i{}", node.0));
    if !super::mounts::is_mount_point(netns)? {
        fs::write(netns, "").with_context(|| format!("cannot write {}", netns.display()))?;
        command::run("unshare", &[&format!("--net={}", netns.display()), "true"])
            .with_context(|| format!("cannot make the network namespace of {}", node.name()))?;
    }
    if link_exists(&cable) {
        return Ok(());
    }
    batch(&[
        format!("link add {cable} type veth peer name {inner}"),
        format!("link set {inner} netns {}", netns.display()),
        format!("link set {cable} master {} up", addresses::bridge()),
        format!("route replace {} via {}", node.pod_network(), node.address()),
    ])
    .with_context(|| format!("cannot connect {}", node.name()))?;
    inside(
        netns,
        &format!(
            "ip link set lo up && ip link set {inner} name eth0 && ip addr add {}/24 dev eth0 && ip link set eth0 up \
             && ip route add default via {BRIDGE_ADDRESS} \
             && echo 1 >/proc/sys/net/ipv4/ip_forward && echo 1 >{BRIDGE_FILTER}",
            node.address()
        ),
    )
    .with_context(|| format!("cannot set up the network inside {}", node.name()))?;
    Ok(())
}

/// Tells a node the way to the Pods of all the others.
pub fn route_to_peers(node: Node, netns: &Path, count: u8) -> Result<()> {
    let routes: Vec<_> = Node::all(count)
        .filter(|peer| *peer != node)
        .map(|peer| format!("ip route replace {} via {}", peer.pod_network(), peer.address()))
        .collect();
    if routes.is_empty() {
        return Ok(());
    }
    inside(netns, &routes.join(" && ")).map(drop)
}

/// Runs a shell line in a node's network. `ip netns exec` would hide the cgroups from what it starts.
fn inside(netns: &Path, line: &str) -> Result<String> {
    command::run("nsenter", &[&format!("--net={}", netns.display()), "sh", "-c", line])
}

/// Pulls the cable: carrier is lost, while addresses and routes inside the node survive.
pub fn cut(node: Node) -> Result<()> {
    command::run("ip", &["link", "set", &node.cable(), "down"]).map(drop)
}

/// Plugs the cable in again.
pub fn heal(node: Node) -> Result<()> {
    command::run("ip", &["link", "set", &node.cable(), "up"]).map(drop)
}

pub fn is_cut(node: Node) -> bool {
    let flags = fs::read_to_string(format!("/sys/class/net/{}/flags", node.cable())).unwrap_or_default();
    let up = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 == 1);
    !up
}

/// Delays everything a node sends and receives by `ms` milliseconds; 0 takes the delay away.
pub fn delay(node: Node, netns: &Path, ms: u32) -> Result<()> {
    let netns = format!("--net={}", netns.display());
    let ends: [(&str, Vec<&str>); 2] = [(&node.cable(), vec!["tc"]), ("eth0", vec!["nsenter", &netns, "tc"])];
    for (device, prefix) in ends {
        let run = |rest: &[&str]| {
            let line: Vec<&str> = prefix[1..].iter().copied().chain(rest.iter().copied()).collect();
            command::run(prefix[0], &line)
        };
        if ms == 0 {
            // Fails when there is no delay to take away, which is the state asked for.
            let _ = run(&["qdisc", "del", "dev", device, "root"]);
            continue;
        }
        // Half on each end, so that a round trip takes the whole.
        let half = format!("{}us", u64::from(ms) * 500);
        let set = run(&["qdisc", "replace", "dev", device, "root", "netem", "delay", &half]);
        if let Err(error) = set {
            if error.to_string().contains("qdisc kind is unknown") {
                bail!("this kernel has no netem queueing discipline, so the lab cannot delay packets on it");
            }
            return Err(error).with_context(|| format!("cannot delay the network of {}", node.name()));
        }
    }
    Ok(())
}

/// Removes the bridge and every cable of ours.
pub fn remove_all() -> Result<()> {
    for link in links() {
        command::succeeds("ip", &["link", "delete", &link]);
    }
    let left = links();
    if left.is_empty() { Ok(()) } else { bail!("cannot remove the network links {left:?}") }
}

pub fn links() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

fn batch(lines: &[String]) -> Result<()> {
    command::run_with_input("ip", &["-batch", "-"], &lines.join("\n")).map(drop)
}
