//! The seed of a node: a containerd directory that already holds the bundled images.
//!
//! Importing the images takes a node several seconds and half a gigabyte of disk. They are the same for all nodes and
//! never change, so they are imported once into a seed in the cache, and every new node begins as a copy of it in
//! which the large files are shared by hard links.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::{
    images::{self, Archive},
    node,
};
use crate::{
    progress::Progress,
    sys::{
        PREFIX,
        cgroup::Cgroups,
        command,
        process::{Launch, Place, Process},
    },
    tools::catalogue::hex,
};

/// Short, because a socket's path must be, while a cache may lie anywhere.
const WORKSHOP: &str = "/run/etcd-operator-lab-seed";

/// The seed for these archives, made when the cache has none.
pub fn ensure(cache: &Path, archives: &[Archive], progress: &Progress) -> Result<PathBuf> {
    let seed = cache.join("seeds").join(key(archives)?);
    if seed.exists() {
        return Ok(seed);
    }
    let step = progress.step("importing the images of the lab");
    let partial = seed.with_extension(format!("partial-{}", std::process::id()));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    let made = grow(&partial, archives).and_then(|()| Ok(fs::rename(&partial, &seed)?));
    let _ = fs::remove_dir_all(&partial);
    made.context("cannot import the images of the lab")?;
    remove_others(&seed);
    step.done();
    Ok(seed)
}

/// A seed is large and quickly made again, so the cache keeps one. Nodes that grew from another keep their files.
fn remove_others(seed: &Path) {
    let all = seed.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    for other in all.map(|entry| entry.path()).filter(|path| path != seed) {
        let _ = fs::remove_dir_all(other);
    }
}

/// The layout of the directory belongs to the version of containerd.
fn key(archives: &[Archive]) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(command::run("containerd", &["--version"])?);
    for (name, digest) in archives.iter().flat_map(|archive| &archive.images) {
        hash.update(format!("{name} {digest}\n"));
    }
    Ok(hex(&hash.finalize())[..16].to_owned())
}

/// Runs a containerd just long enough to import the archives below `root`.
fn grow(root: &Path, archives: &[Archive]) -> Result<()> {
    let workshop = Path::new(WORKSHOP);
    let (config, socket) = (workshop.join("config.toml"), workshop.join("containerd.sock"));
    let _ = fs::remove_dir_all(workshop);
    fs::create_dir_all(workshop)?;
    let text = format!(
        "version = 2\nroot = {root:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \
         \"io.containerd.internal.v1.opt\"]\n[grpc]\n  address = {socket:?}\n",
        workshop.join("run"),
    );
    fs::write(&config, text)?;
    let cgroups = Cgroups::detect()?;
    let place = Place { cgroup: format!("{PREFIX}-seed"), netns: None };
    cgroups.create(&place.cgroup)?;
    let log = workshop.join("log");
    let launch = Launch {
        name: "containerd",
        program: Path::new("/usr/bin/containerd"),
        args: vec![format!("--config={}", config.display())],
        place: &place,
        log: &log,
    };
    let done = Process::launch(&launch).and_then(|process| {
        node::await_containerd(&socket, &process, &log)?;
        images::import_all(&socket, archives)?;
        // Only an orderly end leaves databases that can be copied.
        process.terminate(Duration::from_secs(20))
    });
    cgroups.kill(&place.cgroup)?;
    cgroups.remove(&place.cgroup)?;
    let _ = fs::remove_dir_all(workshop);
    done
}

/// Gives a new node its copy.
pub fn plant(seed: &Path, root: &Path) -> Result<()> {
    if root.exists() {
        return Ok(());
    }
    let partial = root.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    copy(seed, &partial)
        .and_then(|()| fs::rename(&partial, root))
        .with_context(|| format!("cannot copy {} to {}", seed.display(), root.display()))
}

/// Layers and blobs are never changed in place; databases are, so each node needs its own.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            let database = source.extension().is_some_and(|ending| ending == "db");
            // Another file system cannot share, but copying is only slower.
            if database || fs::hard_link(&source, &target).is_err() {
                fs::copy(&source, &target)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn nodes_share_layers_but_not_databases() {
        let dir = tempfile::tempdir().unwrap();
        let (seed, root) = (dir.path().join("seed"), dir.path().join("root"));
        fs::create_dir_all(seed.join("snapshots/1/fs")).unwrap();
        fs::write(seed.join("snapshots/1/fs/etcd"), "binary").unwrap();
        fs::write(seed.join("meta.db"), "database").unwrap();
        plant(&seed, &root).unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let (layer, database) = (Path::new("snapshots/1/fs/etcd"), Path::new("meta.db"));
        assert_eq!(inode(&seed.join(layer)), inode(&root.join(layer)));
        assert_ne!(inode(&seed.join(database)), inode(&root.join(database)));
        // Planting again leaves what has grown since alone.
        fs::write(root.join(database), "grown").unwrap();
        plant(&seed, &root).unwrap();
        assert_eq!(fs::read_to_string(root.join(database)).unwrap(), "grown");
    }
}
