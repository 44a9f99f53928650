//! Faults of volumes: full, damaged, empty or slow. All act on the mounted file system, under the feet of the Pod.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::{fs::FallocateFlags, io::Errno};

use crate::{cli, cluster::api, paths::Paths, provisioner::disk::Disk, state::State, sys::throttle};

/// The file that takes up all space.
const FILLER: &str = ".lab-fill";

pub fn run(paths: &Paths, args: cli::Volume) -> Result<()> {
    State::running(paths)?;
    match args {
        cli::Volume::Fill { claim } => {
            let bytes = fill(find(paths, &claim)?.mount_point())?;
            eprintln!("  {} MiB filled, nothing left", bytes >> 20);
            Ok(())
        }
        cli::Volume::Drain { claim } => {
            match fs::remove_file(find(paths, &claim)?.mount_point().join(FILLER)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    bail!("claim {} was not filled", claim.claim)
                }
                other => other.context("cannot free the space"),
            }
        }
        cli::Volume::Corrupt { claim, file } => {
            let disk = find(paths, &claim)?;
            let file = match file {
                Some(file) => disk.mount_point().join(file.strip_prefix("/").unwrap_or(&file)),
                None => largest(disk.mount_point())?.context("the volume has no files to corrupt")?,
            };
            corrupt(&file)?;
            eprintln!("  overwrote parts of {}", file.strip_prefix(disk.mount_point())?.display());
            Ok(())
        }
        cli::Volume::Wipe { claim } => wipe(find(paths, &claim)?.mount_point()),
        cli::Volume::Throttle { claim, iops } => throttle::set(&find(paths, &claim)?.device()?, iops),
    }
}

/// The disk behind a claim.
fn find(paths: &Paths, claim: &cli::Claim) -> Result<Disk> {
    let found = api::connect(paths)?.claim(&claim.namespace, &claim.claim)?;
    let Some(volume) = found.spec.and_then(|spec| spec.volume_name) else {
        bail!("claim {}/{} has no volume yet", claim.namespace, claim.claim);
    };
    let disk = Disk::new(paths, &volume);
    if !disk.mount_point().exists() {
        bail!("volume {volume} of claim {}/{} was not made by the lab", claim.namespace, claim.claim);
    }
    Ok(disk)
}

/// Reserves space without writing it, in ever smaller pieces until not one block is left.
fn fill(dir: &Path) -> Result<u64> {
    let file = File::options().create(true).append(true).open(dir.join(FILLER))?;
    let mut size = file.metadata()?.len();
    let before = size;
    let mut piece = 1u64 << 30;
    while piece >= 4096 {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), size, piece) {
            Ok(()) => size += piece,
            Err(Errno::NOSPC) => piece /= 2,
            Err(error) => return Err(error).context("cannot reserve space"),
        }
    }
    Ok(size - before)
}

fn files(dir: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            found.extend(files(&entry.path())?);
        } else if meta.is_file() && entry.file_name() != FILLER {
            found.push((entry.path(), meta.len()));
        }
    }
    Ok(found)
}

fn largest(dir: &Path) -> Result<Option<PathBuf>> {
    Ok(files(dir)?.into_iter().max_by_key(|(path, size)| (*size, path.clone())).map(|(path, _)| path))
}

/// Writes noise over 16 pages spread evenly over the file, the first one included. Its size stays.
fn corrupt(file: &Path) -> Result<()> {
    const PAGE: u64 = 4096;
    let mut handle =
        File::options().write(true).open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let size = handle.metadata()?.len();
    if size == 0 {
        bail!("{} is empty: there is nothing to corrupt", file.display());
    }
    let noise: Vec<u8> = (0..PAGE).map(|i| (i as u8).wrapping_mul(167) ^ 0xA5).collect();
    for part in 0..16 {
        let start = size / 16 * part / PAGE * PAGE;
        let length = PAGE.min(size - start) as usize;
        handle.seek(SeekFrom::Start(start))?;
        handle.write_all(&noise[..length])?;
    }
    handle.sync_all().context("cannot write the damage to disk")
}

fn wipe(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_changes_content_but_not_size() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("db");
        fs::write(&file, vec![0; 100_000]).unwrap();
        corrupt(&file).unwrap();
        let after = fs::read(&file).unwrap();
        assert_eq!(after.len(), 100_000);
        assert_ne!(after[..4096], [0; 4096]);
        assert!(after.contains(&0));
    }

    #[test]
    fn the_largest_file_is_found_in_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("member/snap")).unwrap();
        fs::write(dir.path().join("small"), "x").unwrap();
        fs::write(dir.path().join("member/snap/db"), "large").unwrap();
        fs::write(dir.path().join(FILLER), "the filler does not count").unwrap();
        assert_eq!(largest(dir.path()).unwrap().unwrap(), dir.path().join("member/snap/db"));
    }

    #[test]
    fn wiping_leaves_the_directory_itself() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("c"), "x").unwrap();
        wipe(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
