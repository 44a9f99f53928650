//! Control groups: every node is one subtree, so "power off" means "kill what is in the subtree".
//!
//! Works with cgroup v1 (also beside an unused v2, "hybrid") and with v2 alone.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{PREFIX, process};

/// The hierarchies of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// One mount point for each controller. Beside them there may be a unified hierarchy without controllers, in
    /// which the container runtime makes groups all the same.
    V1 {
        controllers: Vec<PathBuf>,
        unified: Option<PathBuf>,
    },
    V2(PathBuf),
}

/// The child of a node's group that holds its daemons; containers go beside it, below `kubepods`.
const SYSTEM: &str = "system";

impl Cgroups {
    pub fn detect() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
        Self::parse(&mounts)
    }

    fn parse(mounts: &str) -> Result<Self> {
        let of_type = |kind: &str| -> Vec<PathBuf> {
            let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            fields.filter(|f| f.get(2) == Some(&kind)).map(|f| PathBuf::from(f[1])).collect()
        };
        let (v1, unified) = (of_type("cgroup"), of_type("cgroup2").into_iter().next());
        let has = |controller: &str| {
            v1.iter()
                .filter_map(|p| p.file_name())
                .any(|n| n.to_string_lossy().split(',').any(|c| c == controller))
        };
        if !v1.is_empty() {
            let missing: Vec<_> =
                ["cpu", "cpuset", "memory", "pids"].into_iter().filter(|name| !has(name)).collect();
            if !missing.is_empty() {
                bail!(
                    "the cgroup controllers {} are not mounted, and a kubelet needs them",
                    missing.join(", ")
                );
            }
            return Ok(Self::V1 { controllers: v1, unified });
        }
        match unified {
            Some(root) => Ok(Self::V2(root)),
            None => bail!("no cgroups are mounted on this machine: mount cgroup2 at /sys/fs/cgroup"),
        }
    }

    /// The hierarchies that control something.
    fn roots(&self) -> Vec<&Path> {
        match self {
            Self::V1 { controllers, .. } => controllers.iter().map(PathBuf::as_path).collect(),
            Self::V2(root) => vec![root.as_path()],
        }
    }

    /// All hierarchies in which there may be groups of ours.
    fn all_roots(&self) -> Vec<&Path> {
        let mut roots = self.roots();
        if let Self::V1 { unified: Some(unified), .. } = self {
            roots.push(unified);
        }
        roots
    }

    /// Any one hierarchy lists all processes of a node, because they enter all of them together.
    fn census(&self) -> &Path {
        match self {
            Self::V1 { controllers, .. } => {
                controllers.iter().find(|r| r.ends_with("pids")).unwrap_or(&controllers[0])
            }
            Self::V2(root) => root,
        }
    }

    /// Makes the group of a node, and below it the one for its daemons.
    pub fn create(&self, name: &str) -> Result<()> {
        for root in self.roots() {
            let (node, system) = (root.join(name), root.join(name).join(SYSTEM));
            fs::create_dir_all(&system)
                .with_context(|| format!("cannot make the cgroup {}", system.display()))?;
            match self {
                Self::V1 { .. } if root.join("cpuset.cpus").exists() => {
                    // A fresh v1 cpuset is empty and refuses processes.
                    for file in ["cpuset.cpus", "cpuset.mems"] {
                        let all = fs::read_to_string(root.join(file))?;
                        fs::write(node.join(file), &all)?;
                        fs::write(system.join(file), &all)?;
                    }
                }
                Self::V1 { .. } => {}
                Self::V2(_) => {
                    for group in [root, &node] {
                        let available = fs::read_to_string(group.join("cgroup.controllers"))?;
                        let wanted: Vec<_> =
                            available.split_whitespace().map(|name| format!("+{name}")).collect();
                        let control = group.join("cgroup.subtree_control");
                        fs::write(&control, wanted.join(" "))
                            .with_context(|| format!("cannot enable controllers in {}", control.display()))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves the calling process into the daemons' group of a node.
    pub fn enter(&self, name: &str) -> Result<()> {
        let me = std::process::id().to_string();
        for root in self.roots() {
            let procs = root.join(name).join(SYSTEM).join("cgroup.procs");
            fs::write(&procs, &me).with_context(|| format!("cannot enter the cgroup {}", procs.display()))?;
        }
        Ok(())
    }

    pub fn processes(&self, name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        for group in subtree(&self.census().join(name)) {
            let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            found.extend(listed.lines().filter_map(|line| line.parse::<u32>().ok()));
        }
        found
    }

    /// Power off: kills everything in a node's subtree until nothing is left, new children included.
    pub fn kill(&self, name: &str) -> Result<()> {
        for _ in 0..500 {
            let pids = self.processes(name);
            if pids.is_empty() {
                return Ok(());
            }
            pids.into_iter().for_each(process::kill);
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = self.processes(name);
        bail!("processes {left:?} of {name} did not end within 5 s of SIGKILL (stuck in the kernel?)")
    }

    /// Removes a node's groups; containers' groups below it too.
    pub fn remove(&self, name: &str) -> Result<()> {
        for root in self.all_roots() {
            for group in subtree(&root.join(name)).into_iter().rev() {
                remove_group(&group)?;
            }
        }
        Ok(())
    }

    /// Names of the groups that the lab made, whatever its records say.
    pub fn ours(&self) -> Vec<String> {
        let mut names: Vec<String> = self.all_roots().into_iter().flat_map(children).collect();
        names.retain(|name| name.starts_with(PREFIX));
        names.sort();
        names.dedup();
        names
    }
}

/// A group that was just emptied stays busy for a moment while the kernel finishes the exits.
fn remove_group(group: &Path) -> Result<()> {
    for attempt in 0.. {
        match fs::remove_dir(group) {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) if attempt >= 200 => {
                return Err(e).with_context(|| format!("cannot remove the cgroup {}", group.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Ok(())
}

fn children(group: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(group) else { return Vec::new() };
    let dirs = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    dirs.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// A group and all below it, parents first.
fn subtree(group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut queue = vec![group.to_path_buf()];
    while let Some(next) = queue.pop() {
        if next.is_dir() {
            queue.extend(children(&next).into_iter().map(|name| next.join(name)));
            found.push(next);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_machines_use_v1() {
        let mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw 0 0\n\
                      cgroup /sys/fs/cgroup/pids cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Cgroups::parse(mounts).unwrap();
        assert_eq!((found.roots().len(), found.all_roots().len()), (4, 5));
        assert_eq!(found.census(), Path::new("/sys/fs/cgroup/pids"));
    }

    #[test]
    fn unified_machines_use_v2() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(Cgroups::parse(mounts).unwrap(), Cgroups::V2("/sys/fs/cgroup".into()));
    }

    #[test]
    fn a_missing_controller_is_named() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw 0 0\n";
        assert!(Cgroups::parse(mounts).unwrap_err().to_string().contains("pids"));
    }
}
