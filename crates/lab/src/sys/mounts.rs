//! Mounts and loop devices below the lab's directory: what there is, and how to take all of it away.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::command;

/// Mount points below `dir`, in the order in which they can be unmounted.
pub fn below(dir: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mut points = parse(&table, dir);
    points.reverse();
    Ok(points)
}

pub fn is_mount_point(path: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    Ok(parse(&table, path).iter().any(|point| point == path))
}

/// Later mounts may lie on top of earlier ones, so the order of the table matters.
fn parse(table: &str, dir: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    points.filter(|point| point.starts_with(dir)).collect()
}

/// The kernel writes blanks and backslashes in a path as octal escapes.
fn unescape(field: &str) -> PathBuf {
    let text =
        field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\");
    PathBuf::from(text)
}

/// Unmounts everything below `dir`.
pub fn unmount_all(dir: &Path) -> Result<()> {
    for _ in 0..20 {
        let points = below(dir)?;
        if points.is_empty() {
            return Ok(());
        }
        for point in &points {
            unmount(point);
        }
        if !below(dir)?.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let left = below(dir)?;
    bail!("cannot unmount {} mounts below {}: {left:?}", left.len(), dir.display())
}

/// Unmounts one mount point, detaching it when something still holds it open.
pub fn unmount(point: &Path) {
    if !command::succeeds("umount", &[point]) {
        command::succeeds("umount", &[Path::new("-l"), point]);
    }
}

/// Loop devices whose backing file lies below `dir`, with that file.
pub fn loop_devices(dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let devices = entries.flatten().filter_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((Path::new("/dev").join(entry.file_name()), PathBuf::from(file.trim_end())))
    });
    // A removed backing file is shown with " (deleted)" behind its name, which still starts with the directory.
    devices.filter(|(_, file)| file.starts_with(dir)).collect()
}

/// Frees loop devices that a killed run left behind; unmounting frees the others by itself.
pub fn detach_loops(dir: &Path) -> Result<()> {
    for _ in 0..100 {
        let devices = loop_devices(dir);
        if devices.is_empty() {
            return Ok(());
        }
        for (device, _) in devices {
            command::succeeds("losetup", &[Path::new("-d"), &device]);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("loop devices stay busy: {:?}", loop_devices(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                         30 22 7:0 / /lab/volumes/a rw - xfs /dev/loop0 rw\n\
                         31 22 0:4 / /lab/nodes/x\\040y rw - tmpfs tmpfs rw\n\
                         32 22 0:5 / /laboratory rw - tmpfs tmpfs rw\n";

    #[test]
    fn only_mounts_below_the_directory_count() {
        assert_eq!(
            parse(TABLE, Path::new("/lab")),
            [PathBuf::from("/lab/volumes/a"), PathBuf::from("/lab/nodes/x y")]
        );
    }
}
