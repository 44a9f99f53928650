//! The address plan: which name and address everything in the lab has, as plain values.
//!
//! Node *i* is `node<i>`, has the address 10.77.0.(10+i) on the lab's bridge and the Pods 10.244.*i*.0/24.

use std::net::Ipv4Addr;

use anyhow::{Result, bail};

use crate::sys::PREFIX;

/// The lab's end of the bridge: the control plane listens here, and nowhere else.
pub const BRIDGE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const NODE_NETWORK: &str = "10.77.0.0/24";
pub const POD_NETWORK: &str = "10.244.0.0/16";
pub const SERVICE_NETWORK: &str = "10.96.0.0/16";
/// First address of the Service network: `kubernetes.default`.
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub const DNS_DOMAIN: &str = "cluster.local";

pub const API_PORT: u16 = 6443;
/// Kubernetes' own etcd keeps clear of the ports that an etcd of the user would have.
pub const ETCD_CLIENT_PORT: u16 = 23790;
pub const ETCD_PEER_PORT: u16 = 23800;
pub const CONTROLLER_MANAGER_PORT: u16 = 10257;
pub const SCHEDULER_PORT: u16 = 10259;

/// More kubelets than this are no use on the machines the lab is made for.
pub const MAX_NODES: u8 = 20;

pub fn bridge() -> String {
    format!("{PREFIX}0")
}

pub fn api_url() -> String {
    format!("https://{BRIDGE_ADDRESS}:{API_PORT}")
}

/// One node of the lab, by number (from 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u8);

impl Node {
    pub fn all(count: u8) -> impl Iterator<Item = Self> {
        (1..=count).map(Self)
    }

    /// Finds a node by its Kubernetes name.
    pub fn by_name(name: &str, count: u8) -> Result<Self> {
        match Self::all(count).find(|node| node.name() == name) {
            Some(node) => Ok(node),
            None => {
                let known: Vec<_> = Self::all(count).map(|node| node.name()).collect();
                bail!("there is no node {name:?}; this lab has {}", known.join(", "))
            }
        }
    }

    pub fn name(self) -> String {
        format!("node{}", self.0)
    }

    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 10 + self.0)
    }

    pub fn pod_network(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    pub fn cgroup(self) -> String {
        format!("{PREFIX}-{}", self.name())
    }

    /// Host end of the cable; the other end is `eth0` inside the node.
    pub fn cable(self) -> String {
        format!("{PREFIX}-n{}", self.0)
    }

    /// Three zones in turn, so that several nodes always span at least two.
    pub fn zone(self) -> &'static str {
        ["zone-a", "zone-b", "zone-c"][usize::from(self.0 - 1) % 3]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nodes_never_share_an_address_or_a_name() {
        let nodes: Vec<_> = Node::all(MAX_NODES).collect();
        let distinct = |f: fn(&Node) -> String| nodes.iter().map(f).collect::<BTreeSet<_>>().len();
        for count in [
            distinct(|n| n.name()),
            distinct(|n| n.address().to_string()),
            distinct(|n| n.pod_network()),
            distinct(|n| n.cgroup()),
            distinct(|n| n.cable()),
        ] {
            assert_eq!(count, usize::from(MAX_NODES));
        }
        assert!(nodes.iter().all(|n| n.address() != BRIDGE_ADDRESS));
    }

    #[test]
    fn interface_names_fit_the_kernel() {
        assert!(Node::all(MAX_NODES).all(|n| n.cable().len() <= 15));
        assert!(bridge().len() <= 15);
    }

    #[test]
    fn several_nodes_span_several_zones() {
        let zones: BTreeSet<_> = Node::all(2).map(Node::zone).collect();
        assert_eq!(zones.len(), 2);
    }

    #[test]
    fn an_unknown_node_is_answered_with_the_known_ones() {
        assert_eq!(Node::by_name("node2", 3).unwrap(), Node(2));
        let error = Node::by_name("node9", 2).unwrap_err().to_string();
        assert_eq!(error, "there is no node \"node9\"; this lab has node1, node2");
    }
}
