//! Processor time and memory of one process of this machine, from the kernel.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds of processor time since it began.
    pub cpu_seconds: f64,
    /// Resident memory now, and the most there ever was.
    pub resident_bytes: u64,
    pub peak_bytes: u64,
}

/// A process of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    /// The one that runs in a Pod, if the Pod runs on this machine: its cgroup is named after the container.
    pub fn of_pod(pod: &Pod) -> Result<Self> {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let first = containers.into_iter().find_map(|c| c.container_id.as_deref()?.split_once("://"));
        let (_, id) = first.context("the operator's Pod has no running container")?;
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end while it is looked at.
            let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            if cgroups.contains(id) {
                return Ok(Self(pid));
            }
        }
        bail!("the operator does not run on this machine: its processor time and memory can not be read")
    }

    fn file(self, name: &str) -> Result<String> {
        let path = PathBuf::from(format!("/proc/{}/{name}", self.0));
        fs::read_to_string(&path)
            .with_context(|| format!("the measured process has ended: {}", path.display()))
    }

    pub fn usage(self) -> Result<Usage> {
        let status = self.file("status")?;
        Ok(Usage {
            cpu_seconds: self.cpu_seconds()?,
            resident_bytes: bytes(&status, "VmRSS")?,
            peak_bytes: bytes(&status, "VmHWM")?,
        })
    }

    /// The sum over its threads: the kernel keeps it by the nanosecond there, and by the hundredth of a second elsewhere,
    /// which is more than an operator at rest uses.
    fn cpu_seconds(self) -> Result<f64> {
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.0))? {
            // A thread may end while it is looked at.
            let Ok(line) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            nanoseconds += line.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default();
        }
        Ok(nanoseconds / 1e9)
    }
}

/// `VmRSS:     1234 kB`.
fn bytes(status: &str, key: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(number.with_context(|| format!("no {key} in the status of the measured process"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        let me = Process(std::process::id());
        let before = me.usage().unwrap();
        let mut sum = 0_u64;
        while me.usage().unwrap().cpu_seconds < before.cpu_seconds + 0.02 {
            sum = sum.wrapping_add(1);
        }
        assert!(sum > 0);
        assert!(before.resident_bytes > 100_000 && before.peak_bytes >= before.resident_bytes);
    }

    #[test]
    fn a_process_that_has_ended_is_an_error_and_not_zero() {
        assert!(Process(u32::MAX).usage().is_err());
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(bytes("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS").unwrap(), 1234 * 1024);
        assert!(bytes("Name:\tx\n", "VmRSS").is_err());
    }
}
