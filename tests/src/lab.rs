//! Faults that only the lab can make: nodes without power or network, processes that die at once.

use std::process::Command;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::command::run;
use crate::wait::{LONG, wait_for};

/// What can be taken from a node.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Everything on the node dies at once; disks stay.
    PowerLoss,
    /// Containers keep running, unseen.
    NetworkLoss,
}

/// A fault that lasts until it is ended, at the latest when this is dropped: the next test finds a whole lab.
pub struct Outage {
    fault: Fault,
    node: String,
    over: bool,
}

impl Outage {
    pub async fn begin(fault: Fault, node: &str) -> Result<Self> {
        let verb = match fault {
            Fault::PowerLoss => "stop",
            Fault::NetworkLoss => "cut",
        };
        run("lab", &["node", verb, node]).await?;
        Ok(Self { fault, node: node.to_owned(), over: false })
    }

    pub async fn end(mut self) -> Result<()> {
        run("lab", &self.remedy()).await?;
        self.over = true;
        Ok(())
    }

    fn remedy(&self) -> [&str; 3] {
        match self.fault {
            Fault::PowerLoss => ["node", "start", &self.node],
            Fault::NetworkLoss => ["node", "heal", &self.node],
        }
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        if !self.over {
            let mended = Command::new("lab").args(self.remedy()).status();
            if !mended.is_ok_and(|status| status.success()) {
                eprintln!("{} could not be brought back", self.node);
            }
        }
    }
}

/// Ends a container's process with SIGKILL.
pub async fn kill_container(namespace: &str, pod: &str, container: &str) -> Result<()> {
    run("lab", &["container", "kill", pod, "--namespace", namespace, "--container", container]).await?;
    Ok(())
}

/// A container whose processes neither run nor end, until this is dropped.
pub struct Frozen {
    target: [String; 3],
}

impl Frozen {
    pub async fn begin(namespace: &str, pod: &str) -> Result<Self> {
        let target = [pod.to_owned(), "--namespace".to_owned(), namespace.to_owned()];
        let args: Vec<_> =
            ["container", "freeze"].into_iter().chain(target.iter().map(String::as_str)).collect();
        run("lab", &args).await?;
        Ok(Self { target })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let thawed = Command::new("lab").args(["container", "thaw"]).args(&self.target).output();
        if !thawed.is_ok_and(|output| output.status.success()) {
            eprintln!("{} could not be thawed", self.target[0]);
        }
    }
}

/// Overwrites parts of the largest file on a volume, or removes all files, under the feet of whoever uses it.
pub async fn spoil(damage: Damage, namespace: &str, claim: &str) -> Result<()> {
    let verb = match damage {
        Damage::Corrupted => "corrupt",
        Damage::Emptied => "wipe",
    };
    run("lab", &["volume", verb, claim, "--namespace", namespace]).await?;
    Ok(())
}

/// What can happen to the files on a volume.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    Corrupted,
    Emptied,
}

/// The names of all nodes, once all of them are ready. Fails unless there are that many.
pub async fn nodes(client: &Client, wanted: usize) -> Result<Vec<String>> {
    let api: Api<Node> = Api::all(client.clone());
    let count = api.list(&ListParams::default()).await?.items.len();
    ensure!(
        count >= wanted,
        "these tests need {wanted} nodes, there are {count} (`lab up --nodes {wanted}`)"
    );
    wait_for("all nodes to be ready", LONG, async || {
        let nodes = api.list(&ListParams::default()).await?.items;
        for node in &nodes {
            let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
            let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
            ensure!(ready, "{} is not", node.name_any());
        }
        Ok(nodes.iter().map(ResourceExt::name_any).collect())
    })
    .await
}
