//! What the lab remembers between commands, and the lock that lets one command at a time change it.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{paths::Paths, sys::process::Process};

/// Bridge, cables and cgroups have fixed names, so the lock is the machine's, whatever `LAB_DIR` says.
const LOCK: &str = "/run/etcd-operator-lab.lock";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// `up` has not finished yet; if it never does, what it made is thrown away by the next one.
    #[default]
    Starting,
    Running,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub phase: Phase,
    /// Identifies the boot of the machine: after a restart none of the rest is true any more.
    pub boot: String,
    pub nodes: u8,
    pub fast_failure_detection: bool,
    /// Kernel settings as they were before, by file.
    pub settings: BTreeMap<PathBuf, String>,
    pub processes: Vec<Process>,
}

impl State {
    pub fn load(paths: &Paths) -> Result<Option<Self>> {
        let file = paths.state();
        match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is damaged: run `lab down`", file.display()))
                .map(Some),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// The state of a lab that is up, for commands that need one.
    pub fn running(paths: &Paths) -> Result<Self> {
        match Self::load(paths)? {
            Some(state) if state.is_current() => Ok(state),
            _ => bail!("the lab is not running: start it with `lab up`"),
        }
    }

    /// Whether this describes a completed `up` since the machine started.
    pub fn is_current(&self) -> bool {
        self.phase == Phase::Running && self.boot == boot_id()
    }

    pub fn save(&self, paths: &Paths) -> Result<()> {
        let file = paths.state();
        let partial = file.with_extension("partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, &file))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|process| process.name == name)
    }

    pub fn is_alive(&self, name: &str) -> bool {
        self.process(name).is_some_and(Process::is_alive)
    }

    /// Remembers a process in place of an earlier one of the same name.
    pub fn record(&mut self, process: Process) {
        self.processes.retain(|known| known.name != process.name);
        self.processes.push(process);
    }

    /// Changes a kernel setting. What it was is on disk before the change, so that `down` can always put it back.
    pub fn set_kernel(&mut self, paths: &Paths, file: &Path, value: &str) -> Result<()> {
        let before = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        if before.trim() == value {
            return Ok(());
        }
        self.settings.entry(file.to_path_buf()).or_insert_with(|| before.trim().to_owned());
        self.save(paths)?;
        fs::write(file, value).with_context(|| format!("cannot set {} to {value}", file.display()))
    }
}

pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Held by every command that changes the lab.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for other commands; refuses when the machine's one lab lives in another directory.
    pub fn acquire(paths: &Paths) -> Result<Self> {
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(LOCK)
            .with_context(|| format!("cannot open the lock {LOCK}"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("  … waiting for another lab command to finish");
                file.lock().with_context(|| format!("cannot lock {LOCK}"))?;
            }
            Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {LOCK}")),
        }
        let owner = PathBuf::from(fs::read_to_string(LOCK).unwrap_or_default().trim());
        if owner != paths.root() && owner.join("state.json").exists() {
            bail!(
                "this machine's lab lives in {0}: use it with LAB_DIR={0}, or end it with `LAB_DIR={0} lab down`",
                owner.display()
            );
        }
        file.set_len(0)?;
        file.write_all(paths.root().as_os_str().as_encoded_bytes())?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str, pid: u32) -> Process {
        Process { name: name.into(), pid, started: 1 }
    }

    #[test]
    fn state_survives_a_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("lab");
        fs::create_dir(&root).unwrap();
        let paths = Paths::new(root).unwrap();
        assert!(State::load(&paths).unwrap().is_none());
        let mut state = State { phase: Phase::Running, boot: boot_id(), nodes: 3, ..State::default() };
        state.record(process("etcd", 7));
        state.save(&paths).unwrap();
        assert_eq!(State::load(&paths).unwrap(), Some(state));
    }

    #[test]
    fn a_restarted_process_replaces_its_record() {
        let mut state = State::default();
        state.record(process("etcd", 7));
        state.record(process("etcd", 8));
        assert_eq!(state.processes, [process("etcd", 8)]);
    }

    #[test]
    fn an_unfinished_or_older_lab_is_not_running() {
        let starting = State { phase: Phase::Starting, boot: boot_id(), ..State::default() };
        let older = State { phase: Phase::Running, boot: "before".into(), ..State::default() };
        assert!(!starting.is_current() && !older.is_current());
    }
}
