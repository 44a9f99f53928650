//! Code size: what is shipped, and how long it takes to build it from nothing.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::progress::Step;

/// Bytes of binary and image, and the time of a cold build.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Size {
    pub binary_bytes: u64,
    /// The archive, with whatever else is in the image.
    pub image_bytes: u64,
    /// Of the binary with all its dependencies, as it is shipped.
    pub cold_build_seconds: Option<f64>,
}

pub fn measure(manager: &Path, image: &Path, cold_build: bool) -> Result<Size> {
    let bytes = |path: &Path| {
        let file =
            fs::metadata(path).with_context(|| format!("{} is not there: `make image`", path.display()));
        file.map(|file| file.len())
    };
    let cold_build_seconds = cold_build.then(build).transpose()?;
    Ok(Size { binary_bytes: bytes(manager)?, image_bytes: bytes(image)?, cold_build_seconds })
}

/// Builds into an empty folder, with sources that have been fetched before.
fn build() -> Result<f64> {
    let step = Step::begin("a build from nothing");
    let checkout = e2e::command::checkout("");
    let folder = std::env::temp_dir().join(format!("etcd-operator-cold-build-{}", std::process::id()));
    let began = Instant::now();
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--locked", "--package", "operator", "--bin", "manager"])
        .args(["--target", "x86_64-unknown-linux-musl", "--target-dir"])
        .arg(&folder)
        .current_dir(checkout)
        .status();
    let seconds = began.elapsed().as_secs_f64();
    // Gigabytes that nobody needs again.
    fs::remove_dir_all(&folder).context("removing the cold build")?;
    ensure!(status?.success(), "the operator does not build");
    step.done(&format!("{seconds:.0} s"));
    Ok(seconds)
}
