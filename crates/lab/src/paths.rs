//! Where the lab keeps things: its own directory, and the cache that outlives it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::addresses::Node;

const DEFAULT_DIR: &str = "/var/lib/etcd-operator-lab";
/// Unix sockets below the directory must fit the kernel's 107 bytes.
const MAX_DIR: usize = 50;

/// The lab's directory (`LAB_DIR`). `lab down` removes it with everything in it.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    pub fn from_env() -> Result<Self> {
        Self::new(std::env::var_os("LAB_DIR").map_or_else(|| DEFAULT_DIR.into(), PathBuf::from))
    }

    pub fn new(root: PathBuf) -> Result<Self> {
        if !root.is_absolute() || root.components().count() < 3 {
            bail!("LAB_DIR is {}: give an absolute path, at least two levels deep", root.display());
        }
        if root.as_os_str().len() > MAX_DIR {
            bail!(
                "LAB_DIR is {}: longer than {MAX_DIR} bytes, too long for the sockets below it",
                root.display()
            );
        }
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn state(&self) -> PathBuf {
        self.root.join("state.json")
    }

    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Credentials of the administrator: the file for `KUBECONFIG`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.pki().join(format!("{user}.kubeconfig"))
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    pub fn etcd_data(&self) -> PathBuf {
        self.root.join("etcd")
    }

    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Archives given to `lab load`, kept for nodes that join or return later.
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    pub fn node(&self, node: Node) -> NodePaths {
        NodePaths { root: self.root.join("nodes").join(node.name()) }
    }
}

/// The part of the directory that belongs to one node.
#[derive(Clone, Debug)]
pub struct NodePaths {
    root: PathBuf,
}

impl NodePaths {
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn netns(&self) -> PathBuf {
        self.root.join("netns")
    }

    pub fn containerd_config(&self) -> PathBuf {
        self.root.join("containerd.toml")
    }

    pub fn containerd_socket(&self) -> PathBuf {
        self.root.join("containerd.sock")
    }

    pub fn containerd_root(&self) -> PathBuf {
        self.root.join("containerd")
    }

    pub fn containerd_state(&self) -> PathBuf {
        self.root.join("run")
    }

    pub fn runc_state(&self) -> PathBuf {
        self.root.join("runc")
    }

    pub fn cni_config(&self) -> PathBuf {
        self.root.join("cni")
    }

    pub fn cni_addresses(&self) -> PathBuf {
        self.root.join("addresses")
    }

    pub fn kubelet_config(&self) -> PathBuf {
        self.root.join("kubelet.json")
    }

    pub fn kubelet_root(&self) -> PathBuf {
        self.root.join("kubelet")
    }

    pub fn pod_logs(&self) -> PathBuf {
        self.root.join("podlogs")
    }

    pub fn volume_plugins(&self) -> PathBuf {
        self.root.join("volumeplugins")
    }

    pub fn resolv_conf(&self) -> PathBuf {
        self.root.join("resolv.conf")
    }
}

/// The user's cache of tools and images, named by content and safe to delete at any time.
pub fn cache_dir() -> Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    choose_cache(var("ETCD_OPERATOR_CACHE"), var("XDG_CACHE_HOME"), var("HOME"))
}

fn choose_cache(own: Option<PathBuf>, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf> {
    own.or_else(|| xdg.map(|dir| dir.join("etcd-operator")))
        .or_else(|| home.map(|dir| dir.join(".cache/etcd-operator")))
        .context("no place for the tool cache: set ETCD_OPERATOR_CACHE or HOME")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dangerous_directory_is_refused() {
        for dir in ["/", "/var", "relative/dir"] {
            assert!(Paths::new(dir.into()).is_err(), "{dir}");
        }
        assert!(Paths::new(format!("/var/{}", "x".repeat(60)).into()).is_err());
        assert!(Paths::new(DEFAULT_DIR.into()).is_ok());
    }

    #[test]
    fn sockets_fit_the_kernel_even_in_the_longest_directory() {
        let root = format!("/{}/{}", "d".repeat(10), "x".repeat(MAX_DIR - 12));
        let node = Paths::new(root.into()).unwrap().node(Node(20));
        let longest = node.kubelet_root().join("plugins_registry/some-plugin.sock");
        assert!(longest.as_os_str().len() < 108, "{}", longest.display());
    }

    #[test]
    fn the_most_specific_cache_setting_wins() {
        let path = |p: &str| Some(PathBuf::from(p));
        assert_eq!(choose_cache(path("/a"), path("/b"), path("/c")).unwrap(), Path::new("/a"));
        assert_eq!(choose_cache(None, path("/b"), path("/c")).unwrap(), Path::new("/b/etcd-operator"));
        assert_eq!(choose_cache(None, None, path("/c")).unwrap(), Path::new("/c/.cache/etcd-operator"));
        assert!(choose_cache(None, None, None).is_err());
    }
}
