//! Faults that only the lab can make: nodes without power or network.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

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
    pub fn begin(fault: Fault, node: &str) -> Result<Self> {
        let verb = match fault {
            Fault::PowerLoss => "stop",
            Fault::NetworkLoss => "cut",
        };
        lab(&["node", verb, node])?;
        Ok(Self { fault, node: node.to_owned(), over: false })
    }

    pub fn end(mut self) -> Result<()> {
        self.mend()
    }

    fn mend(&mut self) -> Result<()> {
        self.over = true;
        let verb = match self.fault {
            Fault::PowerLoss => "start",
            Fault::NetworkLoss => "heal",
        };
        lab(&["node", verb, &self.node])
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        if !self.over
            && let Err(error) = self.mend()
        {
            eprintln!("{} could not be brought back: {error:#}", self.node);
        }
    }
}

/// Blocks on purpose: faults are made and mended also where nothing can be awaited.
fn lab(args: &[&str]) -> Result<()> {
    let output = Command::new("lab")
        .args(args)
        .output()
        .context("cannot run lab: these tests need it on PATH (`lab env` prints the setting)")?;
    if !output.status.success() {
        bail!("`lab {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
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
