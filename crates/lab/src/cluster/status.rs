//! `lab status`: what runs, in words; whether all of it does, as the exit code.

use std::fmt::Write;

use anyhow::Result;

use super::{
    api::{self, node_is_ready},
    control_plane,
    down::{self, Leftovers},
    node,
};
use crate::{
    addresses::{self, Node},
    image::bundled,
    paths::Paths,
    state::State,
    sys::{mounts, network, process::Process},
};

/// The report, and whether everything is as `lab up` left it.
pub fn report(paths: &Paths) -> Result<(String, bool)> {
    let Some(state) = State::load(paths)?.filter(State::is_current) else {
        return Ok((not_running(&down::leftovers(paths)?), false));
    };
    let mut text = String::new();
    let mut healthy = true;
    let cluster = api::connect(paths)?;
    match cluster.version() {
        Ok(version) => writeln!(text, "Kubernetes {version} at {}", addresses::api_url())?,
        Err(error) => {
            healthy = false;
            writeln!(text, "the API server at {} does not answer: {error:#}", addresses::api_url())?;
        }
    }
    let images = bundled::etcd_images()?;
    let versions: Vec<_> = images.iter().filter_map(|image| image.rsplit(":v").next()).collect();
    writeln!(text, "etcd images {}", versions.join(", "))?;
    writeln!(text, "directory {}", paths.root().display())?;
    writeln!(text, "\nCONTROL PLANE")?;
    for name in control_plane::COMPONENTS {
        healthy &= line(&mut text, name, state.process(name))?;
    }
    let nodes = cluster.nodes().unwrap_or_default();
    for node in Node::all(state.nodes) {
        let found = nodes.iter().find(|n| n.metadata.name.as_deref() == Some(&node.name()));
        let ready = found.is_some_and(node_is_ready);
        healthy &= ready;
        writeln!(
            text,
            "\n{} {} {} {}{}",
            node.name().to_uppercase(),
            node.address(),
            node.zone(),
            if ready { "ready" } else { "NOT READY" },
            if network::is_cut(node) { ", network cut" } else { "" },
        )?;
        for daemon in node::DAEMONS {
            let name = node::daemon(node, daemon);
            healthy &= line(&mut text, daemon, state.process(&name))?;
        }
    }
    let loops = mounts::loop_devices(&paths.volumes());
    let mounts = mounts::below(paths.root())?;
    writeln!(text, "\nvolumes {}, mounts {}", loops.len(), mounts.len())?;
    Ok((text, healthy))
}

fn line(text: &mut String, name: &str, process: Option<&Process>) -> Result<bool> {
    let alive = process.filter(|process| process.is_alive());
    match alive {
        Some(process) => {
            let memory = process.memory().unwrap_or_default();
            writeln!(text, "  {name:<24} pid {:<8} {memory:>4} MiB", process.pid)?;
        }
        None => writeln!(text, "  {name:<24} stopped")?,
    }
    Ok(alive.is_some())
}

fn not_running(left: &Leftovers) -> String {
    if !left.any() {
        return "the lab is not running: start it with `lab up`\n".into();
    }
    format!(
        "the lab is not running, but an earlier one left {} processes, {} mounts, {} loop devices, {} network links \
         and {} cgroups: `lab up` or `lab down` clears them away\n",
        left.processes.len(),
        left.mounts.len(),
        left.loops.len(),
        left.links.len(),
        left.cgroups.len(),
    )
}
