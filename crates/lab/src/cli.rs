//! The command line: what can be asked, in the words of `--help`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

/// A real Kubernetes on one machine, for development and tests
///
/// Builds Kubernetes from source once, then starts as many nodes as you like, each with its own network, kubelet and
/// containers. Everything lives below LAB_DIR (/var/lib/etcd-operator-lab) and goes away with `lab down`.
#[derive(Debug, Parser)]
#[command(name = "lab", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the cluster, repair it, or add nodes to it
    Up(Up),
    /// Remove the cluster and everything it made, volumes included
    Down,
    /// Show what runs; fails unless everything does
    Status,
    /// Print shell lines that point kubectl and helm at the lab: eval "$(lab env)"
    Env,
    /// Build what the lab consists of, without starting it
    Tools,
    /// Import image archives on every node
    Load {
        /// Archives, as written by `lab image` or `docker save`
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Assemble an image from a FROM scratch Dockerfile, without Docker
    Image(Image),
    /// Show logs: the end of all of them, or of one component
    Logs(Logs),
    /// Stop, start, cut off or slow down a node
    #[command(subcommand)]
    Node(Node),
    /// Do something to a container
    #[command(subcommand)]
    Container(Container),
    /// Fill, damage or slow down a volume
    #[command(subcommand)]
    Volume(Volume),
    /// Make volumes for claims until stopped (run by `lab up`)
    #[command(hide = true)]
    Provisioner,
    /// Become a program inside a node (run by the lab itself)
    #[command(hide = true)]
    Enter {
        #[arg(long)]
        cgroup: String,
        #[arg(long)]
        netns: Option<PathBuf>,
        #[arg(last = true, required = true)]
        line: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub struct Up {
    /// Number of nodes [default: 1, or as many as there are]
    #[arg(long)]
    pub nodes: Option<u8>,
    /// Notice a lost node in about 2 s instead of 9, for twice the CPU time at rest
    #[arg(long)]
    pub fast_failure_detection: bool,
}

#[derive(Debug, Args)]
pub struct Image {
    /// The recipe
    #[arg(long, default_value = "Dockerfile")]
    pub file: PathBuf,
    /// Directory that COPY reads from
    #[arg(long, default_value = ".")]
    pub context: PathBuf,
    /// Name of the image, with its tag
    #[arg(long)]
    pub tag: String,
    /// Archive to write
    #[arg(long)]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// For example kube-apiserver, node1-kubelet, provisioner
    pub component: Option<String>,
    /// Keep printing what is added
    #[arg(short, long, requires = "component")]
    pub follow: bool,
    /// Lines to begin with
    #[arg(short = 'n', long, default_value_t = 20)]
    pub lines: usize,
}

#[derive(Debug, Subcommand)]
pub enum Node {
    /// Power off: kill everything on the node at once
    Stop { node: String },
    /// Power on again, and wait until the node is ready
    Start { node: String },
    /// Unplug the node's network; what runs on it goes on running
    Cut { node: String },
    /// Plug it in again
    Heal { node: String },
    /// Delay the node's packets; 0 ends it
    Delay {
        node: String,
        /// Milliseconds added to each round trip
        #[arg(long)]
        ms: u32,
    },
    /// Run a program in the node's network, where Services and cluster DNS work
    Exec {
        node: String,
        #[arg(last = true, required = true)]
        line: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Container {
    /// Kill a container's processes; the kubelet starts it anew
    Kill(Target),
    /// Stop a container's processes where they are: it accepts connections and answers none
    Freeze(Target),
    /// Let a frozen container go on
    Thaw(Target),
}

#[derive(Debug, Args)]
pub struct Target {
    pub pod: String,
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Which one, when the Pod has several
    #[arg(short, long)]
    pub container: Option<String>,
}

#[derive(Debug, Args)]
pub struct Claim {
    /// Name of the PersistentVolumeClaim
    pub claim: String,
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
}

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Use up all free space
    Fill {
        #[command(flatten)]
        claim: Claim,
    },
    /// Give the space back that `fill` used up
    Drain {
        #[command(flatten)]
        claim: Claim,
    },
    /// Overwrite parts of a file with noise
    Corrupt {
        #[command(flatten)]
        claim: Claim,
        /// Path inside the volume [default: the largest file]
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Remove all files
    Wipe {
        #[command(flatten)]
        claim: Claim,
    },
    /// Limit the speed of the disk; 0 ends it
    Throttle {
        #[command(flatten)]
        claim: Claim,
        /// Writes and reads per second
        #[arg(long)]
        iops: u64,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_in_a_node_keeps_its_own_flags() {
        let cli = Cli::parse_from(["lab", "node", "exec", "node1", "--", "curl", "-k", "https://10.96.0.1"]);
        let Command::Node(Node::Exec { line, .. }) = cli.command else { panic!("not an exec") };
        assert_eq!(line, ["curl", "-k", "https://10.96.0.1"]);
    }
}
