//! Builds what the cache lacks, and finds what it has.
//!
//! A cache entry is a directory named by its content key. It is built elsewhere and moved into place whole, so a
//! build that was interrupted leaves nothing that could be taken for a result.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};

use super::catalogue::{self, Module, Tool};
use crate::{progress::Progress, sys::command};

/// All tools, ready to run.
#[derive(Debug)]
pub struct Toolbox {
    /// By module name and program name.
    programs: BTreeMap<(&'static str, &'static str), PathBuf>,
}

impl Toolbox {
    /// Builds what is missing below `cache`, then knows where everything is.
    pub fn ensure(cache: &Path, progress: &Progress) -> Result<Self> {
        let go = Go::find()?;
        let mut programs = BTreeMap::new();
        let mut missing = Vec::new();
        for tool in catalogue::all() {
            let entry = Entry::new(cache, tool, &go.version)?;
            if !entry.program().exists() {
                missing.push(entry.clone());
            }
            programs.insert((tool.module.name, tool.name), entry.program());
        }
        if !missing.is_empty() {
            build_all(&go, &missing, progress)?;
        }
        Ok(Self { programs })
    }

    pub fn program(&self, module: &str, name: &str) -> Result<&Path> {
        self.programs
            .iter()
            .find(|((m, n), _)| *m == module && *n == name)
            .map(|(_, path)| path.as_path())
            .ok_or_else(|| anyhow!("the lab has no program {name} of {module}"))
    }

    pub fn kubernetes(&self, name: &str) -> Result<&Path> {
        self.program("kubernetes", name)
    }

    /// The etcd release that the lab's own control plane runs on.
    pub fn own_etcd() -> &'static Module {
        &catalogue::ETCD[0]
    }

    /// What a user of the lab wants on the search path.
    pub fn for_users(&self) -> Result<Vec<&Path>> {
        let own = Self::own_etcd().name;
        let wanted = [("kubernetes", "kubectl"), ("helm", "helm"), (own, "etcdctl"), (own, "etcdutl")];
        wanted.iter().map(|(module, name)| self.program(module, name)).collect()
    }
}

/// The compiler.
struct Go {
    program: PathBuf,
    version: String,
}

impl Go {
    fn find() -> Result<Self> {
        let usual = ["/usr/local/go/bin/go", "/usr/lib/go/bin/go"].map(PathBuf::from);
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        let mut candidates = std::env::split_paths(&on_path).map(|dir| dir.join("go")).chain(usual);
        let Some(program) = candidates.find(|path| path.is_file()) else {
            bail!(
                "Go 1.26 or newer builds the lab's Kubernetes, and there is no `go` on the PATH: install it"
            )
        };
        let output = Command::new(&program).arg("version").output().context("cannot run `go version`")?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { program, version })
    }

    fn build(&self, entry: &Entry) -> Result<()> {
        let work = entry.workdir();
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
        for (name, text) in entry.tool.module.files {
            fs::write(work.join(name), text)?;
        }
        let output = Command::new(&self.program)
            .current_dir(&work)
            .arg("build")
            .args(entry.tool.build_args()?)
            .arg("-o")
            .arg(work.join("result").join(entry.tool.name))
            .arg(entry.tool.package)
            // A workspace or flags of the user must not leak into a build that is named by its inputs.
            .envs([("CGO_ENABLED", "0"), ("GOWORK", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local")])
            .stdin(Stdio::null())
            .output()
            .context("cannot run `go build`")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`go build {}` failed: {}", entry.tool.package, command::tail(said.trim(), 12));
        }
        fs::create_dir_all(entry.dir.parent().unwrap_or(&entry.dir))?;
        match fs::rename(work.join("result"), &entry.dir) {
            // Somebody else finished the same build first: theirs is as good.
            Err(_) if entry.program().exists() => {}
            other => other.with_context(|| format!("cannot move the result to {}", entry.dir.display()))?,
        }
        let _ = fs::remove_dir_all(&work);
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Entry {
    tool: Tool,
    dir: PathBuf,
    version: &'static str,
}

impl Entry {
    fn new(cache: &Path, tool: Tool, go_version: &str) -> Result<Self> {
        let version = tool.module.version()?;
        let name = format!("{}-{version}-{}", tool.name, tool.key(go_version)?);
        Ok(Self { tool, dir: cache.join("tools").join(name), version })
    }

    fn program(&self) -> PathBuf {
        self.dir.join(self.tool.name)
    }

    /// Beside the results, so that the final move stays on one file system.
    fn workdir(&self) -> PathBuf {
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        self.dir.with_file_name(format!(".{name}.{}", std::process::id()))
    }
}

/// Builds several at a time: compilation uses all cores anyway, but linking uses only one.
fn build_all(go: &Go, entries: &[Entry], progress: &Progress) -> Result<()> {
    let began = Instant::now();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 4);
    let compiler = go.version.split_whitespace().nth(2).unwrap_or("go");
    progress.note(&match entries.len() {
        few @ 1..5 => format!("building {few} of the tools from source with {compiler}"),
        many => {
            format!("building {many} tools from source with {compiler}: about 15 minutes on two cores, once")
        }
    });
    let (next, finished, failure) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..workers.min(entries.len()) {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let failed = || failure.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed().is_some() {
                        return;
                    }
                    let built = build_one(go, entry, progress, &finished, entries.len());
                    if let Err(error) = built {
                        failed().get_or_insert(error);
                        return;
                    }
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => {
            progress.note(&format!("all tools built in {}", crate::progress::seconds(began.elapsed())));
            Ok(())
        }
    }
}

fn build_one(
    go: &Go,
    entry: &Entry,
    progress: &Progress,
    finished: &AtomicUsize,
    total: usize,
) -> Result<()> {
    let mut step = progress.step(&format!("building {} {}", entry.tool.name, entry.version));
    std::thread::scope(|scope| {
        let build = scope.spawn(|| go.build(entry));
        let mut spoke = Instant::now();
        while !build.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if spoke.elapsed() > Duration::from_secs(60) {
                spoke = Instant::now();
                step.remind();
            }
        }
        build.join().unwrap_or_else(|_| Err(anyhow!("the build of {} panicked", entry.tool.name)))
    })?;
    let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
    step.rename(&format!("[{done}/{total}] {} {}", entry.tool.name, entry.version));
    step.done();
    Ok(())
}
