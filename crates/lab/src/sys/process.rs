//! Long-running processes: started in a cgroup of the lab, so that they outlive the command that started them and are
//! found again whatever happens, and known by process id **and** start time, so that an id which the kernel gave to
//! somebody else is never taken for one of ours.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::{cgroup::Cgroups, command};

/// A process of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub name: String,
    pub pid: u32,
    /// Start time in clock ticks since boot, as the kernel tells it.
    pub started: u64,
}

/// Where a process runs: the cgroup by which the lab finds it again, and the network of a node, if it is part of one.
#[derive(Clone, Debug)]
pub struct Place {
    pub cgroup: String,
    pub netns: Option<PathBuf>,
}

pub struct Launch<'a> {
    pub name: &'a str,
    pub program: &'a Path,
    pub args: Vec<String>,
    pub place: &'a Place,
    pub log: &'a Path,
}

impl Process {
    /// Starts a process in a session of its own, its output appended to the log.
    ///
    /// The lab runs itself as [`enter`], and that, `setsid` and `nsenter` each replace themselves with the next, so
    /// the id we get is the program's own.
    pub fn launch(launch: &Launch<'_>) -> Result<Self> {
        let log = File::options().create(true).append(true).open(launch.log);
        let log = log.with_context(|| format!("cannot open the log {}", launch.log.display()))?;
        let me = own_program()?;
        let mut line: Vec<OsString> = vec!["enter".into(), "--cgroup".into(), (&launch.place.cgroup).into()];
        if let Some(netns) = &launch.place.netns {
            line.extend(["--netns".into(), netns.into()]);
        }
        line.extend(["--".into(), launch.program.into()]);
        line.extend(launch.args.iter().map(OsString::from));
        let child = command::command(&me.to_string_lossy(), &line)
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .with_context(|| format!("cannot start {}", launch.name))?;
        let pid = child.id();
        let started =
            start_time(pid).with_context(|| format!("{} ended as soon as it started", launch.name))?;
        Ok(Self { name: launch.name.to_owned(), pid, started })
    }

    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Asks the process to end, and waits until it has.
    pub fn terminate(&self, limit: Duration) -> Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed()).filter(|_| self.is_alive());
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).with_context(|| format!("cannot signal {}", self.name))?;
        }
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() > deadline {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Resident memory in MiB.
    pub fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
    }
}

/// The lab's program file. When it was rebuilt meanwhile, the kernel calls the old one
/// "deleted"; the new one serves as well.
pub fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find the lab's own program file")?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), PathBuf::from))
}

/// Becomes `line`, in a session of its own, at a place: the hidden command behind [`Process::launch`].
pub fn enter(place: &Place, line: &[OsString]) -> Result<()> {
    Cgroups::detect()?.enter(&place.cgroup)?;
    let mut all: Vec<OsString> = Vec::new();
    if let Some(netns) = &place.netns {
        // Not `ip netns exec`: that would also mount a fresh /sys, in which the cgroup tree is empty.
        all.extend(["nsenter".into(), format!("--net={}", netns.display()).into()]);
    }
    all.extend(line.iter().cloned());
    Err(command::command("setsid", &all).exec()).context("cannot run setsid")
}

/// Signals a process id that a cgroup just listed as ours.
pub fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Start time of a live process; `None` when it is gone or only waits to be reaped.
pub fn start_time(pid: u32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name field may hold spaces and parentheses, so fields are counted from its closing parenthesis.
fn parse_stat(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The last lines of a log file, for error messages.
pub fn last_words(log: &Path, lines: usize) -> String {
    fs::read(log).map(|bytes| command::tail(&String::from_utf8_lossy(&bytes), lines)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_survives_odd_process_names() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 100 1";
        assert_eq!(parse_stat(stat), Some(12345));
    }

    #[test]
    fn a_zombie_counts_as_gone() {
        let stat = "42 (x) Z 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 100 1";
        assert_eq!(parse_stat(stat), None);
    }

    #[test]
    fn a_reused_id_is_not_ours() {
        let pid = std::process::id();
        let started = start_time(pid).unwrap();
        assert!(Process { name: "me".into(), pid, started }.is_alive());
        assert!(!Process { name: "other".into(), pid, started: started + 1 }.is_alive());
    }
}
