//! Which images nodes have: the bundled ones and those given to `lab load`, imported only where they are missing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    addresses::Node,
    image::archive,
    paths::{NodePaths, Paths},
    sys::command,
};

/// An archive and the images in it, by name and digest.
#[derive(Clone, Debug)]
pub struct Archive {
    pub path: PathBuf,
    pub images: Vec<(String, String)>,
}

impl Archive {
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), images: archive::contents(path)? })
    }
}

/// Archives given to `lab load` so far.
pub fn loaded(paths: &Paths) -> Result<Vec<Archive>> {
    let Ok(entries) = fs::read_dir(paths.images()) else { return Ok(Vec::new()) };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|path| Archive::open(path)).collect()
}

/// Keeps a copy of an archive for nodes that join or return later, in place of older ones of the same images.
pub fn keep(paths: &Paths, archive: &Archive) -> Result<()> {
    let dir = paths.images();
    fs::create_dir_all(&dir)?;
    let name = match archive.images.first() {
        Some((name, _)) => name.replace(['/', ':'], "_"),
        None => archive.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let (target, partial) = (dir.join(format!("{name}.tar")), dir.join(format!(".{name}.partial")));
    fs::copy(&archive.path, &partial)
        .and_then(|_| fs::rename(&partial, &target))
        .with_context(|| format!("cannot keep a copy of {}", archive.path.display()))
}

/// Imports what the node does not have yet. Returns quickly when it has everything.
pub fn import(node: Node, own: &NodePaths, archives: &[Archive]) -> Result<()> {
    import_all(&own.containerd_socket(), archives)
        .with_context(|| format!("cannot give {} its images", node.name()))
}

/// The same for any containerd.
pub fn import_all(socket: &Path, archives: &[Archive]) -> Result<()> {
    let present = ctr(socket, &["images", "list"])?;
    for archive in archives.iter().filter(|archive| !has_all(&present, &archive.images)) {
        ctr(socket, &["images", "import", &archive.path.to_string_lossy()])
            .with_context(|| format!("cannot import {}", archive.path.display()))?;
    }
    Ok(())
}

/// Reads `ctr images list`: name, media type, digest, and more.
fn has_all(listing: &str, images: &[(String, String)]) -> bool {
    let has = |name: &str, digest: &str| {
        listing.lines().any(|line| {
            let mut fields = line.split_whitespace();
            fields.next() == Some(name) && fields.nth(1) == Some(digest)
        })
    };
    !images.is_empty() && images.iter().all(|(name, digest)| has(name, digest))
}

/// Talks to a containerd, where Kubernetes keeps its images and containers.
pub fn ctr(socket: &Path, args: &[&str]) -> Result<String> {
    let mut line = vec!["--address", socket.to_str().unwrap_or_default(), "--namespace", "k8s.io"];
    line.extend(args);
    command::run("ctr", &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_present_only_with_the_same_digest() {
        let listing = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n\
                       quay.io/coreos/etcd:v3.6.16 application/x sha256:aa 1 MiB linux/amd64 io\n";
        let image = |digest: &str| vec![("quay.io/coreos/etcd:v3.6.16".to_owned(), digest.to_owned())];
        assert!(has_all(listing, &image("sha256:aa")));
        assert!(!has_all(listing, &image("sha256:bb")));
        // An archive that does not tell what it holds is imported to be sure.
        assert!(!has_all(listing, &[]));
    }
}
