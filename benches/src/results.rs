//! Everything that was measured in one run, as it is written down.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use crate::fleet::Fleet;
use crate::picture;
use crate::ready::Comparison;
use crate::rest::Rest;
use crate::size::Size;
use crate::table;
use crate::target::Target;
use crate::timeline::Timeline;

/// The results of one run, kind by kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub run: Run,
    pub ready: Vec<Comparison>,
    pub timelines: Vec<Timeline>,
    pub rest: Vec<Rest>,
    pub fleets: Vec<Fleet>,
    pub size: Option<Size>,
}

/// What was measured, when and on what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub date: String,
    pub commit: String,
    pub operator: String,
    pub kubernetes: String,
    pub machine: String,
}

impl Run {
    pub async fn describe(target: &Target) -> Result<Self> {
        Ok(Self {
            date: Timestamp::now().round(Unit::Second)?.to_string(),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            operator: target.image().await?,
            kubernetes: target.client.apiserver_version().await?.git_version,
            machine: machine(),
        })
    }
}

/// The commit of this checkout, with a plus if it was changed since.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(e2e::command::checkout("")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    Some(format!("{}{}", git(&["rev-parse", "--short=12", "HEAD"])?, if changed { "+" } else { "" }))
}

fn machine() -> String {
    let find = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line =
            text.lines().find_map(|line| Some(line.strip_prefix(key)?.split_once(':')?.1.trim().to_owned()));
        line.unwrap_or_else(|| "unknown".to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = find("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or_default();
    let model = find("/proc/cpuinfo", "model name");
    format!("{cores} cores ({model}), {} GB of memory, Linux {}", memory / 1_000_000, kernel.trim())
}

/// Results and where they are kept.
pub struct Record {
    pub folder: PathBuf,
    pub results: Results,
}

impl Record {
    /// A new folder below `root`, named after the time.
    pub fn begin(root: &Path, run: Run) -> Result<Self> {
        let folder = root.join(run.date.replace(':', ""));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder, results: Results { run, ..Results::default() } })
    }

    /// Writes everything there is so far: a run that fails after an hour has not been for nothing.
    pub fn save(&self) -> Result<()> {
        let write = |name: &str, text: String| {
            let path = self.folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let results = &self.results;
        write("results.json", serde_json::to_string_pretty(results)?)?;
        write("tables.txt", table::all(results, table::Style::Terminal))?;
        for (name, picture) in pictures(results) {
            write(name, picture)?;
        }
        Ok(())
    }
}

/// The pictures of what was measured.
pub fn pictures(results: &Results) -> Vec<(&'static str, String)> {
    let mut pictures = Vec::new();
    if !results.timelines.is_empty() {
        pictures.push(("bootstrap.svg", picture::timeline(&results.timelines)));
    }
    if !results.ready.is_empty() {
        pictures.push(("ready.svg", picture::compared(&results.ready)));
    }
    if !results.fleets.is_empty() {
        pictures.push(("fleet.svg", picture::growth(&results.fleets)));
    }
    pictures
}
