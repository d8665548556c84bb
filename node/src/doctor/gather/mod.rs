//! Reads the facts from /proc, /sys and /dev below a root, which tests make themselves. Promises: a file that is missing,
//! can't be read or holds junk is a fact that is not known; nothing is written, nothing is locked.

mod groups;
pub mod layers;
mod machine;
mod process;
mod window;

use super::facts::{Facts, Place, Room};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use window::Sample;

/// Bytes of a file that are looked at: more than the tables of any machine have.
const TEXT_BYTES_MAX: u64 = 8 << 20;

/// The brick that is looked at.
#[derive(Clone, Default, Debug)]
pub struct Brick {
    /// Its directory, without links.
    pub path: PathBuf,
    /// Room in the directory's file system.
    pub room: Option<Room>,
    /// Its block device, if it has one.
    pub device: Option<Device>,
    /// The daemon that serves it.
    pub daemon: Option<u32>,
}

/// A brick's block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// Its major and minor number.
    Found(u32, u32),
    /// It is not where the brick says.
    Missing,
}

/// Gathers all facts. `wait` takes the time during which changes are counted.
pub fn gather(tree: &Tree, brick: Option<&Brick>, wait: impl FnOnce()) -> Facts {
    let daemon = brick.and_then(|brick| brick.daemon);
    let before = Sample::take(tree, daemon);
    wait();
    let after = Sample::take(tree, daemon);
    Facts {
        places: brick.map(|brick| places(tree, brick)).unwrap_or_default(),
        cpus: machine::cpus(tree),
        idle: machine::idle(tree, daemon),
        frequency: machine::frequency(tree),
        iommu: machine::iommu(tree),
        kernel: machine::kernel(tree),
        fuse: machine::fuse(tree),
        huge_pages: tree.text("sys/kernel/mm/transparent_hugepage/enabled"),
        clock: machine::clock(tree),
        hypervisor: machine::hypervisor(tree),
        process: process::of(tree, daemon),
        swap: machine::swap(tree),
        trim_timer: machine::trim_timer(tree),
        window: after.since(&before, tree),
    }
}

fn places(tree: &Tree, brick: &Brick) -> Vec<Place> {
    let mut below = layers::of_path(tree, &brick.path);
    if let Some(super::facts::Layer::Host(host)) = below.first_mut() {
        host.room = brick.room;
    }
    match brick.device {
        None => vec![Place { holds: "brick", layers: below }],
        Some(device) => {
            let layers = match device {
                Device::Found(major, minor) => layers::of_number(tree, &format!("{major}:{minor}")),
                Device::Missing => Vec::new(),
            };
            vec![Place { holds: "index", layers: below }, Place { holds: "segments", layers }]
        }
    }
}

/// The tree of files below a root.
pub struct Tree(PathBuf);

impl Tree {
    /// The files below `root`: `/`, or what a test has made.
    pub fn new(root: impl Into<PathBuf>) -> Tree {
        Tree(root.into())
    }
    /// The path of a file, given from the root on.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }
    /// The bytes of a file.
    fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.at(path)).ok()?.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
    /// The text of a file, without what is white at its ends; None if that is nothing.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.bytes(path)?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim().to_string()).filter(|text| !text.is_empty())
    }
    /// The number that is all of a file's text.
    fn number<T: FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }
    /// The switch that a file's text is: 0 or 1.
    fn switch(&self, path: impl AsRef<Path>) -> Option<bool> {
        self.number::<u8>(path).filter(|number| *number <= 1).map(|number| number == 1)
    }
    /// True if there is such a file or link.
    fn has(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }
    /// The names in a directory, in order; None if it can't be listed.
    fn names(&self, path: impl AsRef<Path>) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(self.at(path)).ok()?;
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Some(names)
    }
    /// The real path of a directory to which links of sysfs lead, from the root on.
    fn resolved(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = self.0.canonicalize().ok()?;
        let real = self.at(path).canonicalize().ok()?;
        Some(real.strip_prefix(&root).ok()?.to_path_buf())
    }
}

/// Adds a text to a list unless it is there.
fn add(list: &mut Vec<String>, text: Option<String>) {
    list.extend(text.filter(|text| !list.contains(text)));
}

#[cfg(test)]
mod tests;
