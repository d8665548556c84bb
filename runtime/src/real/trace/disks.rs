//! The block devices below a directory or a device, down to those that carry out I/O: from partitions to their disk, from
//! loop devices to what their file lies on, from joined devices to their parts. From /sys alone.

use super::account::kernel_number;
use crate::disk::DEVICE;
use crate::real::Directory;
use rustix::fs::{major, minor};
use std::collections::BTreeMap;
use std::fs::{canonicalize, metadata, read_dir, read_to_string};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most devices that are followed: a pool of that many disks has more than anybody reads in a table.
const DISKS_MAX: usize = 64;

/// A block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The kernel's number.
    pub number: u32,
    /// The name in /dev.
    pub name: String,
    directory: PathBuf,
}

impl Disk {
    /// Number of I/Os that it has carried out since the machine started.
    pub fn requests(&self) -> u64 {
        // Reads, writes, discards and flushes come first of their groups.
        let fields = read_to_string(self.directory.join("stat")).unwrap_or_default();
        let fields: Vec<u64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        [0, 4, 11, 15].into_iter().filter_map(|at| fields.get(at)).sum()
    }
}

/// The devices below a brick: of its directory, and of its own device if it has one.
pub fn below(brick: &Directory) -> Vec<Disk> {
    let mut found = BTreeMap::new();
    if let Ok(directory) = metadata(brick.at("")) {
        follow(directory.dev(), &mut found);
    }
    match metadata(brick.at(DEVICE)) {
        Ok(device) if device.file_type().is_block_device() => follow(device.rdev(), &mut found),
        _ => {}
    }
    found.into_values().collect()
}

/// Adds a device and all below it. What /sys does not know is left out.
fn follow(device: u64, found: &mut BTreeMap<u32, Disk>) {
    if major(device) == 0 {
        // File systems over several devices, and those without any, have numbers of their own.
        return source_of(device).into_iter().for_each(|source| follow(source, found));
    }
    let Ok(mut directory) = canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))) else { return };
    if directory.join("partition").exists() {
        directory.pop();
    }
    let Some((whole, number)) = number_of(&directory) else { return };
    if found.contains_key(&number) || found.len() >= DISKS_MAX {
        return;
    }
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    assert!(kernel_number(major(whole), minor(whole)) == number, "a whole device");
    let backing = read_to_string(directory.join("loop/backing_file"));
    let parts = read_dir(directory.join("slaves"));
    found.insert(number, Disk { number, name, directory });
    if let Ok(file) = backing.map(|path| metadata(path.trim_end_matches('\n'))).and_then(|file| file) {
        follow(if file.file_type().is_block_device() { file.rdev() } else { file.dev() }, found);
    }
    for part in parts.into_iter().flatten().flatten() {
        number_of(&part.path()).into_iter().for_each(|(part, _)| follow(part, found));
    }
}

/// The number in a device's directory of /sys, as programs and as the kernel write it.
fn number_of(directory: &Path) -> Option<(u64, u32)> {
    let text = read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    Some((rustix::fs::makedev(major, minor), kernel_number(major, minor)))
}

/// The device that a file system with a number of its own is mounted from, if it names one.
fn source_of(device: u64) -> Option<u64> {
    let table = read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{}:{}", major(device), minor(device));
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    let source = metadata(line.split_once(" - ")?.1.split(' ').nth(1)?).ok()?;
    source.file_type().is_block_device().then(|| source.rdev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_leads_to_the_disk_of_its_file_system() {
        // Tests of devices have the temporary directory on one.
        let directory = Directory::open(&std::env::temp_dir()).expect("it is there");
        let disks = below(&directory);
        let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert!(!names.is_empty(), "the temporary directory lies on a block device");
        for disk in &disks {
            assert!(Path::new("/sys/block").join(&disk.name).exists(), "no partition is told: {names:?}");
        }
        assert!(disks.iter().map(Disk::requests).sum::<u64>() > 0);
    }

    #[test]
    fn what_lies_on_no_device_leads_nowhere() {
        let mut found = BTreeMap::new();
        follow(metadata("/proc").expect("mounted").dev(), &mut found);
        follow(rustix::fs::makedev(4000, 1), &mut found);
        assert_eq!(found, BTreeMap::new());
    }
}
