//! Writes an image archive that `ctr images import`, `docker load` and `podman load` all read.
//!
//! One uncompressed layer: a node imports it without spending time on decompression. Times and owners are fixed and
//! entries sorted, so the same inputs give the same bytes and the same digest.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::dockerfile::{Copy, Recipe};
use crate::tools::catalogue::hex;

/// Counts up when the bytes written for the same recipe change.
pub const FORMAT: u32 = 1;

/// What will be at one path of the image.
#[derive(Clone, Debug)]
enum Item {
    Directory,
    File { source: PathBuf, mode: u32, owner: (u64, u64) },
}

/// Assembles `recipe` with files from `context` into the archive `output`, as the image `name`.
pub fn assemble(recipe: &Recipe, context: &Path, name: &str, output: &Path) -> Result<()> {
    let items = collect(recipe, context)?;
    let dir = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let partial = Scratch(dir.join(format!(".image-{}", std::process::id())));
    fs::create_dir_all(&partial.0).with_context(|| format!("cannot write below {}", dir.display()))?;

    let layer_file = partial.0.join("layer");
    let (layer_digest, layer_size) = write_layer(&items, &layer_file)?;
    let config = serde_json::to_vec(&config(recipe, &layer_digest))?;
    let config_digest = sha256(&config);
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config_digest, config.len() as u64),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer_digest, layer_size)],
    }))?;
    let manifest_digest = sha256(&manifest);
    let mut entry =
        descriptor("application/vnd.oci.image.manifest.v1+json", &manifest_digest, manifest.len() as u64);
    entry["annotations"] =
        json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": name });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] }))?;
    // For builders that predate the OCI layout.
    let legacy = serde_json::to_vec(
        &json!([{ "Config": blob(&config_digest), "RepoTags": [name], "Layers": [blob(&layer_digest)] }]),
    )?;

    let archive_file = partial.0.join("archive");
    let mut archive = Builder::new(BufWriter::new(File::create(&archive_file)?));
    // The index first: whoever asks what an archive holds need not read past the layers.
    append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut archive, "index.json", &index)?;
    append(&mut archive, "manifest.json", &legacy)?;
    append(&mut archive, &blob(&manifest_digest), &manifest)?;
    append(&mut archive, &blob(&config_digest), &config)?;
    let layer = File::open(&layer_file)?;
    archive.append_data(&mut header(0o644, layer_size, (0, 0)), blob(&layer_digest), layer)?;
    archive.into_inner()?.flush()?;
    fs::rename(&archive_file, output).with_context(|| format!("cannot write {}", output.display()))
}

/// A directory that goes away however the assembly ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Resolves every `COPY` to files; a later one wins over an earlier one at the same path.
fn collect(recipe: &Recipe, context: &Path) -> Result<BTreeMap<PathBuf, Item>> {
    let mut items = BTreeMap::new();
    for copy in &recipe.copies {
        for source in &copy.sources {
            let from = context.join(source.trim_start_matches('/'));
            let meta = fs::metadata(&from)
                .with_context(|| format!("COPY {source}: there is no such file in {}", context.display()))?;
            let target = Path::new(copy.target.trim_start_matches('/'));
            if meta.is_dir() {
                add_tree(&mut items, &from, target, copy)?;
                continue;
            }
            let into_dir = copy.target.ends_with('/');
            let name = from.file_name().unwrap_or_default();
            let target = if into_dir { target.join(name) } else { target.to_path_buf() };
            add_file(&mut items, &from, &target, copy)?;
        }
    }
    if let Some(dir) = &recipe.workdir {
        add_directories(&mut items, Path::new(dir.trim_start_matches('/')));
    }
    Ok(items)
}

fn add_tree(items: &mut BTreeMap<PathBuf, Item>, from: &Path, target: &Path, copy: &Copy) -> Result<()> {
    add_directories(items, target);
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let below = target.join(entry.file_name());
        if fs::metadata(entry.path())?.is_dir() {
            add_tree(items, &entry.path(), &below, copy)?;
        } else {
            add_file(items, &entry.path(), &below, copy)?;
        }
    }
    Ok(())
}

fn add_file(items: &mut BTreeMap<PathBuf, Item>, from: &Path, target: &Path, copy: &Copy) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if target.as_os_str().is_empty() {
        bail!("COPY {}: the target is the root directory; end it with a file name", from.display());
    }
    if let Some(parent) = target.parent() {
        add_directories(items, parent);
    }
    // The umask of whoever checked the sources out must not change the image.
    let executable = fs::metadata(from)?.permissions().mode() & 0o111 != 0;
    let mode = copy.mode.unwrap_or(if executable { 0o755 } else { 0o644 });
    items.insert(target.to_path_buf(), Item::File { source: from.to_path_buf(), mode, owner: copy.owner });
    Ok(())
}

fn add_directories(items: &mut BTreeMap<PathBuf, Item>, path: &Path) {
    for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        items.entry(dir.to_path_buf()).or_insert(Item::Directory);
    }
}

/// Writes the layer and returns its digest and size.
fn write_layer(items: &BTreeMap<PathBuf, Item>, file: &Path) -> Result<(String, u64)> {
    let out = Hashing { inner: BufWriter::new(File::create(file)?), hash: Sha256::new(), size: 0 };
    let mut layer = Builder::new(out);
    for (path, item) in items {
        match item {
            Item::Directory => {
                let mut header = header(0o755, 0, (0, 0));
                header.set_entry_type(EntryType::Directory);
                layer.append_data(&mut header, path, io::empty())?;
            }
            Item::File { source, mode, owner } => {
                let content =
                    File::open(source).with_context(|| format!("cannot read {}", source.display()))?;
                let size = content.metadata()?.len();
                // Read exactly what the header promises, even if the file grows meanwhile.
                layer.append_data(&mut header(*mode, size, *owner), path, content.take(size))?;
            }
        }
    }
    let mut out = layer.into_inner()?;
    out.flush()?;
    Ok((hex(&out.hash.finalize()), out.size))
}

fn config(recipe: &Recipe, layer_digest: &str) -> Value {
    let env: Vec<_> = recipe.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let ports: BTreeMap<_, _> = recipe.ports.iter().map(|port| (port, json!({}))).collect();
    let mut settings = json!({
        "Env": if env.is_empty() { vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()] } else { env },
        "WorkingDir": recipe.workdir.as_deref().unwrap_or("/"),
    });
    let mut set = |key: &str, value: Value, present: bool| {
        if present {
            settings[key] = value;
        }
    };
    set("User", json!(recipe.user), recipe.user.is_some());
    set("Entrypoint", json!(recipe.entrypoint), !recipe.entrypoint.is_empty());
    set("Cmd", json!(recipe.cmd), !recipe.cmd.is_empty());
    set("Labels", json!(recipe.labels), !recipe.labels.is_empty());
    set("ExposedPorts", json!(ports), !ports.is_empty());
    json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": settings,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
    })
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn header(mode: u32, size: u64, owner: (u64, u64)) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(owner.0);
    header.set_gid(owner.1);
    header.set_mtime(0);
    header
}

fn append<W: Write>(archive: &mut Builder<W>, path: &str, bytes: &[u8]) -> Result<()> {
    archive.append_data(&mut header(0o644, bytes.len() as u64, (0, 0)), path, bytes)?;
    Ok(())
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The images an archive holds, by name and manifest digest; empty when it is not in the OCI layout.
pub fn contents(archive: &Path) -> Result<Vec<(String, String)>> {
    let file = File::open(archive)
        .with_context(|| format!("cannot open the image archive {}", archive.display()))?;
    let mut reader = tar::Archive::new(file);
    let entries = reader.entries_with_seek();
    for entry in entries.with_context(|| format!("{} is not a tar archive", archive.display()))? {
        let mut entry = entry.with_context(|| format!("{} is damaged", archive.display()))?;
        if entry.path()?.as_ref() != Path::new("index.json") {
            continue;
        }
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        let index: Value = serde_json::from_str(&text)?;
        let manifests = index["manifests"].as_array().cloned().unwrap_or_default();
        return Ok(manifests
            .iter()
            .filter_map(|m| {
                let name = m["annotations"]["io.containerd.image.name"].as_str()?;
                Some((name.to_owned(), m["digest"].as_str()?.to_owned()))
            })
            .collect());
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (tempfile::TempDir, Recipe) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("conf")).unwrap();
        fs::write(dir.path().join("conf/b"), "b").unwrap();
        fs::write(dir.path().join("conf/a"), "a").unwrap();
        fs::write(dir.path().join("app"), "binary").unwrap();
        let text =
            "FROM scratch\nCOPY app /usr/local/bin/\nCOPY conf /etc/app\nUSER 65532\nENTRYPOINT [\"/app\"]";
        (dir, Recipe::parse(text).unwrap())
    }

    #[test]
    fn same_inputs_same_bytes() {
        let (dir, recipe) = example();
        let build = |name: &str| {
            let out = dir.path().join(name);
            assemble(&recipe, dir.path(), "localhost/app:1", &out).unwrap();
            fs::read(out).unwrap()
        };
        let first = build("one.tar");
        // A newer checkout has other times; the image has not.
        fs::write(dir.path().join("app"), "binary").unwrap();
        assert_eq!(first, build("two.tar"));
        fs::write(dir.path().join("app"), "other").unwrap();
        assert_ne!(first, build("three.tar"));
    }

    #[test]
    fn files_lie_where_copy_puts_them() {
        let (dir, recipe) = example();
        let items = collect(&recipe, dir.path()).unwrap();
        let paths: Vec<_> = items.keys().map(|p| p.display().to_string()).collect();
        assert_eq!(
            paths,
            [
                "etc",
                "etc/app",
                "etc/app/a",
                "etc/app/b",
                "usr",
                "usr/local",
                "usr/local/bin",
                "usr/local/bin/app"
            ]
        );
    }

    #[test]
    fn an_archive_tells_what_it_holds() {
        let (dir, recipe) = example();
        let out = dir.path().join("app.tar");
        assemble(&recipe, dir.path(), "localhost/app:1", &out).unwrap();
        let held = contents(&out).unwrap();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].0, "localhost/app:1");
        assert!(held[0].1.starts_with("sha256:"));
    }

    #[test]
    fn a_missing_source_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = Recipe::parse("FROM scratch\nCOPY nothing /x").unwrap();
        let error = assemble(&recipe, dir.path(), "x", &dir.path().join("x.tar")).unwrap_err();
        assert!(format!("{error:#}").contains("COPY nothing"), "{error:#}");
    }
}
