//! Builds what the cache lacks, and finds what it has.
//!
//! A cache entry is a directory named by its content key. It is built elsewhere and moved into place whole, so a
//! build that was interrupted leaves nothing that could be taken for a result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};

use super::catalogue::{self, Module, Tool};
use crate::{
    progress::{Progress, Step, seconds},
    sys::command,
};

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
            programs.insert((tool.module.name, tool.name), entry.program());
            if !entry.program().exists() {
                missing.push(entry);
            }
        }
        if !missing.is_empty() {
            build_all(&go, cache, &missing, progress)?;
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

/// The place of one tool in the cache.
#[derive(Clone, Debug)]
struct Entry {
    tool: Tool,
    dir: PathBuf,
}

impl Entry {
    fn new(cache: &Path, tool: Tool, go_version: &str) -> Result<Self> {
        let name = format!("{}-{}-{}", tool.name, tool.module.version()?, tool.key(go_version)?);
        Ok(Self { tool, dir: cache.join("tools").join(name) })
    }

    fn program(&self) -> PathBuf {
        self.dir.join(self.tool.name)
    }

    /// Moves a finished program into the cache.
    fn store(&self, built: &Path) -> Result<()> {
        let whole = built.with_extension("entry");
        fs::create_dir_all(&whole)?;
        fs::rename(built, whole.join(self.tool.name))?;
        match fs::rename(&whole, &self.dir) {
            // Somebody else finished the same build first: theirs is as good.
            Err(_) if self.program().exists() => Ok(()),
            other => other.with_context(|| format!("cannot move {} into the cache", self.tool.name)),
        }
    }
}

/// Builds one module after the other, all programs of a module at once: they share most of their packages, and `go
/// build` keeps all cores busy by itself.
fn build_all(go: &Go, cache: &Path, missing: &[Entry], progress: &Progress) -> Result<()> {
    let began = Instant::now();
    let modules: BTreeSet<&str> = missing.iter().map(|entry| entry.tool.module.name).collect();
    if missing.iter().any(|entry| entry.tool.module.name == "kubernetes") {
        progress.note("building the tools from source: 10 to 15 minutes on two cores, once");
    }
    let order = catalogue::all().into_iter().map(|tool| tool.module);
    let mut done = BTreeSet::new();
    for module in order {
        if !modules.contains(module.name) || !done.insert(module.name) {
            continue;
        }
        let entries: Vec<_> = missing.iter().filter(|entry| entry.tool.module.name == module.name).collect();
        let names: Vec<_> = entries.iter().map(|entry| entry.tool.name).collect();
        let what = format!("[{}/{}] {} {}", done.len(), modules.len(), names.join(", "), module.version()?);
        let step = progress.step(&what);
        let work = cache.join("tools").join(format!(".{}.{}", module.name, std::process::id()));
        let built = go.build(module, &entries, &work, &step);
        let _ = fs::remove_dir_all(&work);
        built?;
        step.done();
    }
    progress.note(&format!("all tools built in {}", seconds(began.elapsed())));
    Ok(())
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

    fn command(&self, verb: &str, work: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(work).arg(verb).stdin(Stdio::null());
        // A workspace or flags of the user must not leak into a build that is named by its inputs.
        command.envs([("CGO_ENABLED", "0"), ("GOWORK", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local")]);
        command
    }

    fn build(&self, module: &Module, entries: &[&Entry], work: &Path, step: &Step) -> Result<()> {
        let result = work.join("result");
        let _ = fs::remove_dir_all(work);
        fs::create_dir_all(&result).with_context(|| format!("cannot make {}", result.display()))?;
        for (name, text) in module.files {
            fs::write(work.join(name), text)?;
        }
        let packages: Vec<_> = entries.iter().map(|entry| entry.tool.package).collect();
        let total = self.count_packages(work, &packages);
        let mut command = self.command("build", work);
        command.args(entries[0].tool.build_args()?);
        command.arg("-v").arg("-o").arg(format!("{}/", result.display())).args(&packages);
        let line = format!("go build {}", packages.join(" "));
        let mut child =
            command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot run `{line}`"))?;
        let said = match child.stderr.take() {
            Some(stderr) => follow(BufReader::new(stderr), total, step),
            None => String::new(),
        };
        let status = child.wait().with_context(|| format!("cannot wait for `{line}`"))?;
        if !status.success() {
            bail!("`{line}` failed: {}", command::tail(&said, 12));
        }
        entries.iter().try_for_each(|entry| entry.store(&result.join(entry.tool.binary())))
    }

    /// How many packages there are to compile, as far as that can be told.
    fn count_packages(&self, work: &Path, packages: &[&str]) -> Option<usize> {
        let output =
            self.command("list", work).args(["-mod=readonly", "-deps"]).args(packages).output().ok()?;
        output.status.success().then(|| output.stdout.iter().filter(|byte| **byte == b'\n').count())
    }
}

/// Shows how far a build is by the packages it names, and keeps what it said for when it fails.
fn follow(output: impl BufRead, total: Option<usize>, step: &Step) -> String {
    let (mut said, mut count, mut spoke) = (String::new(), 0, Instant::now());
    for line in output.lines().map_while(Result::ok) {
        said.push_str(&line);
        said.push('\n');
        // Packages are import paths; messages hold blanks.
        count += usize::from(!line.contains(' '));
        let far = match total {
            Some(total) => format!("package {count} of at most {total}"),
            None => format!("package {count}"),
        };
        step.detail(&far, spoke.elapsed() > Duration::from_secs(30));
        if spoke.elapsed() > Duration::from_secs(30) {
            spoke = Instant::now();
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_keeps_its_words() {
        let step = Progress::new().step("test");
        let said = follow("net/http\n# example.com/x\n./x.go:1: bad thing\n".as_bytes(), Some(2), &step);
        assert!(said.contains("bad thing"), "{said}");
    }

    #[test]
    fn a_result_enters_the_cache_whole() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tools")).unwrap();
        let entry = Entry::new(dir.path(), catalogue::all()[0], "go1").unwrap();
        let built = dir.path().join("program");
        fs::write(&built, "binary").unwrap();
        entry.store(&built).unwrap();
        assert_eq!(fs::read_to_string(entry.program()).unwrap(), "binary");
        // The same build, finished a second time by somebody else, changes nothing.
        fs::write(&built, "binary").unwrap();
        entry.store(&built).unwrap();
    }
}
