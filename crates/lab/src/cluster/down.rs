//! `lab down`: takes everything of the lab away, found by name and place rather than by record, so that it works
//! after a crash, a kill or a damaged state file just as well.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use super::node;
use crate::{
    addresses::{MAX_NODES, Node},
    paths::Paths,
    state::{State, boot_id},
    sys::{cgroup::Cgroups, mounts, network, strays, throttle},
};

/// What of a lab is on the machine.
#[derive(Debug, Default)]
pub struct Leftovers {
    pub processes: Vec<String>,
    pub mounts: Vec<PathBuf>,
    pub loops: Vec<PathBuf>,
    pub links: Vec<String>,
    pub cgroups: Vec<String>,
    pub directory: bool,
}

impl Leftovers {
    pub fn any(&self) -> bool {
        self.directory
            || !(self.processes.is_empty()
                && self.mounts.is_empty()
                && self.loops.is_empty()
                && self.links.is_empty()
                && self.cgroups.is_empty())
    }
}

pub fn leftovers(paths: &Paths) -> Result<Leftovers> {
    let state = State::load(paths).ok().flatten().unwrap_or_default();
    let mut processes = Vec::new();
    if state.boot == boot_id() {
        processes.extend(state.processes.iter().filter(|p| p.is_alive()).map(|p| p.name.clone()));
    }
    Ok(Leftovers {
        processes,
        mounts: mounts::below(paths.root())?,
        loops: mounts::loop_devices(paths.root()).into_iter().map(|(device, _)| device).collect(),
        links: network::links(),
        cgroups: Cgroups::detect().map(|groups| groups.ours()).unwrap_or_default(),
        directory: paths.root().exists(),
    })
}

/// Removes everything, volumes and their data included.
pub fn clean(paths: &Paths) -> Result<()> {
    let state = State::load(paths).ok().flatten().unwrap_or_default();
    // Nothing here is worth a graceful end: all data goes with it.
    let cgroups = Cgroups::detect()?;
    for node in Node::all(MAX_NODES) {
        node::power_off(node)?;
    }
    for name in cgroups.ours() {
        cgroups.kill(&name)?;
    }
    for (device, _) in mounts::loop_devices(paths.root()) {
        throttle::clear(&device);
    }
    mounts::unmount_all(paths.root())?;
    mounts::detach_loops(paths.root())?;
    network::remove_all()?;
    for name in cgroups.ours() {
        cgroups.remove(&name)?;
    }
    for (file, value) in state.settings.iter().filter(|_| state.boot == boot_id()) {
        fs::write(file, value).with_context(|| format!("cannot set {} back to {value}", file.display()))?;
    }
    strays::remove(paths.root());
    match fs::remove_dir_all(paths.root()) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", paths.root().display()))
        }
        _ => Ok(()),
    }
}
