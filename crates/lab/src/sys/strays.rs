//! Files that the daemons of a node put outside the lab's directory, at places they do not let us choose.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use super::PREFIX;

/// Links to the Pods' logs, made by every kubelet.
const LOG_LINKS: &str = "/var/log/containers";
/// What the network plugins answered, kept by containerd.
const NETWORK_RESULTS: &str = "/var/lib/cni/results";

/// Where a kubelet waits for device plugins.
const DEVICE_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// Directories that these daemons make, children first; removed only when nobody has put anything into them.
const DIRECTORIES: [&str; 7] = [
    LOG_LINKS,
    NETWORK_RESULTS,
    "/var/lib/cni",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet",
    "/run/containerd/s",
    "/run/containerd",
];

/// Removes all strays of a lab in `dir`. What is not ours stays.
pub fn remove(dir: &Path) {
    let links = entries(Path::new(LOG_LINKS)).into_iter();
    let ours = links.filter(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(dir)));
    let results = network_results(&entries(Path::new(NETWORK_RESULTS)));
    for stray in ours.chain(results) {
        // A stray that stays is untidy, not wrong.
        let _ = fs::remove_file(stray);
    }
    // Every kubelet takes this one over, so it is removed only when no kubelet is behind it any more.
    if UnixStream::connect(DEVICE_SOCKET).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(DEVICE_SOCKET);
    }
    for dir in DIRECTORIES {
        let _ = fs::remove_dir(dir);
    }
}

/// Results are named `<network>-<sandbox>-<interface>`. Those for the loopback interface do not carry our network's
/// name, but the same sandbox.
fn network_results(files: &[PathBuf]) -> Vec<PathBuf> {
    let sandbox = |file: &PathBuf| -> Option<(bool, String)> {
        let name = file.file_name()?.to_str()?;
        let mut parts = name.rsplitn(3, '-').skip(1);
        let id = parts.next()?.to_owned();
        Some((parts.next()?.starts_with(PREFIX), id))
    };
    let ours: BTreeSet<String> =
        files.iter().filter_map(sandbox).filter(|(ours, _)| *ours).map(|(_, id)| id).collect();
    let is_ours = |file: &&PathBuf| sandbox(file).is_some_and(|(_, id)| ours.contains(&id));
    files.iter().filter(is_ours).cloned().collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_of_our_sandboxes_are_ours() {
        let files: Vec<PathBuf> =
            ["etcdlab-node1-aa-eth0", "cni-loopback-aa-lo", "cni-loopback-bb-lo", "podman-bb-eth0", "odd"]
                .map(|name| Path::new(NETWORK_RESULTS).join(name))
                .into();
        assert_eq!(network_results(&files), files[..2]);
    }
}
