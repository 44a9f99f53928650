//! Faults of nodes: power and network.

use std::{ffi::OsString, os::unix::process::CommandExt};

use anyhow::{Context, Result, bail};

use crate::{
    addresses::Node,
    cli,
    cluster::{node, up},
    paths::Paths,
    state::State,
    sys::{command, network},
};

pub fn run(paths: &Paths, args: cli::Node) -> Result<()> {
    let state = State::running(paths)?;
    let find = |name: &str| Node::by_name(name, state.nodes);
    match args {
        cli::Node::Stop { node: name } => node::power_off(find(&name)?),
        cli::Node::Start { node: name } => start(paths, &state, find(&name)?),
        cli::Node::Cut { node: name } => network::cut(find(&name)?),
        cli::Node::Heal { node: name } => network::heal(find(&name)?),
        cli::Node::Delay { node: name, ms } => {
            let node = find(&name)?;
            network::delay(node, &paths.node(node).netns(), ms)
        }
        cli::Node::Exec { node: name, line } => exec(paths, find(&name)?, line),
    }
}

fn start(paths: &Paths, state: &State, node: Node) -> Result<()> {
    if node::is_on(node, state) {
        bail!("{} is already running", node.name());
    }
    up::start_node(paths, node)
}

/// Becomes the program, so that its exit code is ours and it may be a shell.
fn exec(paths: &Paths, node: Node, line: Vec<OsString>) -> Result<()> {
    let mut all = vec![OsString::from(format!("--net={}", paths.node(node).netns().display()))];
    all.extend(line);
    let path = std::env::var_os("PATH").unwrap_or_else(|| command::PATH.into());
    let error = std::process::Command::new("nsenter").args(all).env("PATH", path).exec();
    Err(error).context("cannot run nsenter")
}
