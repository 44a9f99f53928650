//! Addresses for simulated members: a whole network that this machine answers for, without an interface for each. Loopback
//! addresses would do for etcd, but Kubernetes refuses to publish them.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Clear of the lab's own networks.
const NETWORK: &str = "10.245.0.0/16";

/// The route, for as long as this lives.
pub struct Network(());

impl Network {
    pub fn open() -> Result<Self> {
        ip(&["route", "replace", "local", NETWORK, "dev", "lo"])?;
        Ok(Self(()))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = ip(&["route", "del", "local", NETWORK, "dev", "lo"]) {
            eprintln!("  ! {error:#}");
        }
    }
}

fn ip(args: &[&str]) -> Result<()> {
    let line = format!("ip {}", args.join(" "));
    let output = Command::new("ip").args(args).output().with_context(|| format!("cannot run `{line}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{line}` failed (it needs root): {}", said.trim());
    Ok(())
}
