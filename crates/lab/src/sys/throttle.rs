//! Slow disks: limits on the operations per second of a block device, where the kernel has them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{PREFIX, cgroup::Cgroups};

const FILES: [&str; 2] = ["blkio.throttle.write_iops_device", "blkio.throttle.read_iops_device"];

/// Limits a device, for the containers of today and for the kernel's own writing; 0 takes the limit away.
pub fn set(device: &Path, iops: u64) -> Result<()> {
    let Cgroups::V1 { controllers, .. } = Cgroups::detect()? else {
        bail!(
            "slowing a disk down needs the blkio controller of cgroup v1, which this machine does not have"
        );
    };
    let Some(root) = controllers.iter().find(|root| root.join(FILES[0]).exists()) else {
        bail!("this kernel cannot limit the speed of a disk (no block throttling)");
    };
    let rule = format!("{} {iops}", number(device)?);
    for file in groups(root).iter().flat_map(|group| FILES.map(|file| group.join(file))) {
        fs::write(&file, &rule).with_context(|| format!("cannot write {rule:?} to {}", file.display()))?;
    }
    Ok(())
}

/// Takes a limit away before the device is given back: the next volume with its number must not inherit it.
pub fn clear(device: &Path) {
    let Ok(Cgroups::V1 { controllers, .. }) = Cgroups::detect() else { return };
    let Ok(number) = number(device) else { return };
    let limited =
        |file: &PathBuf| fs::read_to_string(file).is_ok_and(|rules| rules.contains(&format!("{number} ")));
    if controllers.iter().flat_map(|root| FILES.map(|file| root.join(file))).any(|file| limited(&file)) {
        // Worth a try only: a device that goes away anyway is not worth failing for.
        let _ = set(device, 0);
    }
}

/// The kernel's number of a device, as `major:minor`.
fn number(device: &Path) -> Result<String> {
    let name = device.file_name().context("a device has a name")?;
    let file = Path::new("/sys/block").join(name).join("dev");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// In cgroup v1 limits are not inherited, so every group gets its own; the root one covers deferred writes.
fn groups(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_path_buf()];
    let below = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
    };
    let ours = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(PREFIX));
    let mut queue: Vec<_> = below(root).into_iter().filter(ours).collect();
    while let Some(group) = queue.pop() {
        queue.extend(below(&group));
        found.push(group);
    }
    found
}
