//! What the lab asks of the operating system: commands, processes, cgroups, mounts and the network.
//!
//! Everything the lab makes here carries [`PREFIX`] in its name or lies below the lab's directory, so that
//! `lab down` can find all of it again without any record of what was done.

pub mod cgroup;
pub mod command;
pub mod mounts;
pub mod network;
pub mod preflight;
pub mod process;
pub mod strays;
pub mod throttle;

/// Start of the name of every interface and cgroup of ours.
pub const PREFIX: &str = "etcdlab";
