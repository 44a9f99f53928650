//! One volume on this machine: a sparse file, a file system in it, a mount. Every operation can be repeated.
//!
//! XFS, because it grows while mounted with no more than CAP_SYS_ADMIN; ext4 also asks for CAP_SYS_RESOURCE, which
//! virtual machines often withhold.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    paths::Paths,
    sys::{command, mounts, throttle},
};

/// Below this XFS has no room for its own structures.
pub const MIN_SIZE: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct Disk {
    name: String,
    image: PathBuf,
    mount: PathBuf,
}

impl Disk {
    pub fn new(paths: &Paths, name: &str) -> Self {
        let dir = paths.volumes();
        Self { name: name.to_owned(), image: dir.join(format!("{name}.img")), mount: dir.join(name) }
    }

    /// Where its files are.
    pub fn mount_point(&self) -> &Path {
        &self.mount
    }

    /// Makes and mounts the volume with room for `size` bytes, file system structures included.
    pub fn create(&self, size: u64) -> Result<()> {
        if mounts::is_mount_point(&self.mount)? {
            return Ok(());
        }
        // Anything here is from an attempt that did not get as far as the mount.
        let file =
            File::create(&self.image).with_context(|| format!("cannot make {}", self.image.display()))?;
        file.set_len(size.max(MIN_SIZE))?;
        drop(file);
        // Small log and one allocation group: the usual ones would take a good part of a small volume, and mkfs
        // calls anything smaller "unsupported". Growth adds groups by itself.
        let image = self.image.to_string_lossy();
        command::run(
            "mkfs.xfs",
            &["-q", "-f", "-K", "--unsupported", "-l", "size=8m", "-d", "agcount=1", &image],
        )?;
        fs::create_dir_all(&self.mount)?;
        command::run("mount", &["-o", "loop", &image, &self.mount.to_string_lossy()])?;
        Ok(())
    }

    /// Grows the mounted volume; never shrinks it.
    pub fn grow(&self, size: u64) -> Result<()> {
        let file = File::options().write(true).open(&self.image);
        let file = file.with_context(|| format!("volume {} has no image", self.name))?;
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        let device = self.device()?;
        command::run("losetup", &[Path::new("-c"), &device])?;
        command::run("xfs_growfs", &[&self.mount])?;
        // The API would report success whatever happened here, so look at the file system itself.
        let stat = rustix::fs::statvfs(&self.mount)?;
        let total = stat.f_blocks * stat.f_frsize;
        if total < size / 10 * 9 {
            bail!("volume {} did not grow: its file system has {total} of {size} bytes", self.name);
        }
        Ok(())
    }

    /// The loop device behind the mount.
    pub fn device(&self) -> Result<PathBuf> {
        let devices = mounts::loop_devices(&self.image);
        match devices.into_iter().next() {
            Some((device, _)) => Ok(device),
            None => bail!("volume {} is not mounted: no loop device has {}", self.name, self.image.display()),
        }
    }

    /// Unmounts the volume and removes its data.
    pub fn remove(&self) -> Result<()> {
        if let Ok(device) = self.device() {
            throttle::clear(&device);
        }
        if mounts::is_mount_point(&self.mount)? {
            mounts::unmount(&self.mount);
        }
        let gone = |result: std::io::Result<()>| match result {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        gone(fs::remove_dir(&self.mount))
            .and_then(|()| gone(fs::remove_file(&self.image)))
            .with_context(|| format!("cannot remove volume {}", self.name))
    }
}
