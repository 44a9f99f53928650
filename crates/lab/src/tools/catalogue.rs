//! What is built: each tool's module, package, and the version stamped into it.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Flags of every build. Changing them changes every cache key.
const FLAGS: [&str; 3] = ["-mod=readonly", "-trimpath", "-buildvcs=false"];

/// A directory below `crates/lab/tools`, compiled into the lab so that the program needs no checkout.
#[derive(Debug)]
pub struct Module {
    pub name: &'static str,
    /// The dependency whose version is the tool's version; our own programs have none.
    subject: Option<&'static str>,
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! pinned {
    ($dir:literal) => {
        &[
            ("go.mod", include_str!(concat!("../../tools/", $dir, "/go.mod"))),
            ("go.sum", include_str!(concat!("../../tools/", $dir, "/go.sum"))),
        ]
    };
}

static KUBERNETES: Module =
    Module { name: "kubernetes", subject: Some("k8s.io/kubernetes"), files: pinned!("kubernetes") };
static COREDNS: Module = Module {
    name: "coredns",
    subject: Some("github.com/coredns/coredns"),
    files: &[
        ("go.mod", include_str!("../../tools/coredns/go.mod")),
        ("go.sum", include_str!("../../tools/coredns/go.sum")),
        ("main.go", include_str!("../../tools/coredns/main.go")),
    ],
};
static HELM: Module = Module { name: "helm", subject: Some("helm.sh/helm/v3"), files: pinned!("helm") };
static PAUSE: Module = Module {
    name: "pause",
    subject: None,
    files: &[
        ("go.mod", include_str!("../../tools/pause/go.mod")),
        ("main.go", include_str!("../../tools/pause/main.go")),
    ],
};

static TOOLBOX: Module = Module {
    name: "toolbox",
    subject: None,
    files: &[
        ("go.mod", include_str!("../../tools/toolbox/go.mod")),
        ("main.go", include_str!("../../tools/toolbox/main.go")),
    ],
};

/// The etcd releases of the lab, the one that Kubernetes itself runs on first.
pub static ETCD: [Module; 4] = [
    Module { name: "etcd-3.6", subject: Some(ETCD_SERVER), files: pinned!("etcd-3.6") },
    Module { name: "etcd-3.5", subject: Some(ETCD_SERVER), files: pinned!("etcd-3.5") },
    Module { name: "etcd-3.6-previous", subject: Some(ETCD_SERVER), files: pinned!("etcd-3.6-previous") },
    Module { name: "etcd-3.7", subject: Some(ETCD_SERVER), files: pinned!("etcd-3.7") },
];
const ETCD_SERVER: &str = "go.etcd.io/etcd/server/v3";

/// The three programs of an etcd release and their packages.
pub const ETCD_PROGRAMS: [(&str, &str); 3] = [
    ("etcd", ETCD_SERVER),
    ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
];

/// One program to build.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    pub name: &'static str,
    pub package: &'static str,
    pub module: &'static Module,
}

impl Module {
    fn file(&self, name: &str) -> &'static str {
        self.files.iter().find(|(file, _)| *file == name).map_or("", |(_, text)| text)
    }

    /// The pinned version, without its `v`.
    pub fn version(&self) -> Result<&'static str> {
        let Some(subject) = self.subject else { return Ok("1") };
        pinned_version(self.file("go.mod"), subject)
            .with_context(|| format!("crates/lab/tools/{}/go.mod does not pin {subject}", self.name))
    }
}

impl Tool {
    /// Arguments of `go build`, the version stamp among them.
    pub fn build_args(&self) -> Result<Vec<String>> {
        let version = self.module.version()?;
        let mut args: Vec<String> = FLAGS.map(str::to_owned).into();
        args.push(format!("-ldflags=-s -w{}", stamp(self.module.name, version)));
        Ok(args)
    }

    /// What `go build` calls the program: the last part of its package that is not a version.
    pub fn binary(&self) -> &'static str {
        match self.package {
            "." => self.module.name,
            package => package.rsplit('/').find(|part| !matches!(*part, "v3")).unwrap_or(self.name),
        }
    }

    /// Names the result by everything that goes into it.
    pub fn key(&self, go_version: &str) -> Result<String> {
        let mut hash = Sha256::new();
        let mut feed = |part: &str| {
            // With its length, so that no two lists of parts read the same.
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        };
        feed(go_version);
        feed(self.name);
        feed(self.package);
        self.build_args()?.iter().for_each(|arg| feed(arg));
        for (name, text) in self.module.files {
            feed(name);
            feed(text);
        }
        Ok(hex(&hash.finalize())[..16].to_owned())
    }
}

/// Every tool, what the control plane needs first: builds start in this order.
pub fn all() -> Vec<Tool> {
    let kubernetes = [
        ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
        ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ];
    let mut tools: Vec<Tool> =
        kubernetes.map(|(name, package)| Tool { name, package, module: &KUBERNETES }).into();
    for module in &ETCD {
        tools.extend(ETCD_PROGRAMS.map(|(name, package)| Tool { name, package, module }));
    }
    tools.push(Tool { name: "coredns", package: ".", module: &COREDNS });
    tools.push(Tool { name: "helm", package: "helm.sh/helm/v3/cmd/helm", module: &HELM });
    tools.push(Tool { name: "pause", package: ".", module: &PAUSE });
    tools.push(Tool { name: "toolbox", package: ".", module: &TOOLBOX });
    tools
}

/// Linker options that make a program tell its version; etcd and CoreDNS carry theirs in the source.
fn stamp(module: &str, version: &str) -> String {
    match module {
        "kubernetes" => {
            let mut parts = version.split('.');
            let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let base = "k8s.io/component-base/version.git";
            format!(
                " -X {base}Version=v{version} -X {base}Major={major} -X {base}Minor={minor} -X {base}TreeState=clean \
                 -X k8s.io/client-go/pkg/version.gitVersion=v{version}"
            )
        }
        "helm" => format!(" -X helm.sh/helm/v3/internal/version.version=v{version}"),
        _ => String::new(),
    }
}

/// Version of a dependency in a `go.mod`, from a `require` line or block.
fn pinned_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix(module)?.trim().strip_prefix('v')?.split_whitespace().next()
    })
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn versions_come_from_go_mod() {
        let block = "require (\n\tgo.etcd.io/etcd/etcdctl/v3 v3.6.1\n\tgo.etcd.io/etcd/server/v3 v3.6.2 // indirect\n)";
        assert_eq!(pinned_version(block, ETCD_SERVER), Some("3.6.2"));
        assert_eq!(pinned_version("require k8s.io/kubernetes v1.36.3", "k8s.io/kubernetes"), Some("1.36.3"));
        assert_eq!(pinned_version(block, "helm.sh/helm/v3"), None);
    }

    #[test]
    fn every_module_pins_its_version_and_sums() {
        for tool in all() {
            let version = tool.module.version().unwrap();
            if let Some(subject) = tool.module.subject {
                let line = format!("{subject} v{version} h1:");
                assert!(tool.module.file("go.sum").contains(&line), "{}", tool.module.name);
            }
        }
    }

    #[test]
    fn two_patch_levels_of_one_minor_are_there_to_upgrade_between() {
        let versions: BTreeSet<_> = ETCD.iter().map(|module| module.version().unwrap()).collect();
        assert_eq!(versions.len(), 4);
        assert_eq!(versions.iter().filter(|v| v.starts_with("3.6.")).count(), 2);
        for minor in ["3.5.", "3.7."] {
            assert!(versions.iter().any(|v| v.starts_with(minor)), "{minor}");
        }
    }

    #[test]
    fn a_key_depends_on_compiler_and_tool_and_nothing_else() {
        let tools = all();
        let keys: BTreeSet<_> = tools.iter().map(|tool| tool.key("go1").unwrap()).collect();
        assert_eq!(keys.len(), tools.len());
        assert_eq!(tools[0].key("go1").unwrap(), tools[0].key("go1").unwrap());
        assert_ne!(tools[0].key("go1").unwrap(), tools[0].key("go2").unwrap());
    }

    #[test]
    fn programs_are_found_under_the_names_go_gives_them() {
        let named = |name: &str| all().into_iter().find(|tool| tool.name == name).unwrap().binary();
        assert_eq!(named("kubelet"), "kubelet");
        assert_eq!(named("etcd"), "server");
        assert_eq!(named("etcdctl"), "etcdctl");
        assert_eq!(named("helm"), "helm");
        assert_eq!(named("pause"), "pause");
    }

    #[test]
    fn kubernetes_knows_its_version() {
        let args = all()[0].build_args().unwrap().join(" ");
        assert!(args.contains("gitMajor=1 "), "{args}");
        assert!(args.contains("gitMinor=36 "), "{args}");
    }
}
