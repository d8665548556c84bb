//! The machine's own figures, from /proc and /sys. Whatever can't be read or is no number is left out.

use crate::doctor::facts::{Layer, Role};
use crate::doctor::gather::{Tree, layers};
use crate::proc::{self, DiskLine, Number};
use explain::snapshot::{Disk, Process, Thread};
use rustix::fs::{Mode, OFlags, major, minor, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// Bytes of a sector in /proc/diskstats, whatever the device's are.
const SECTOR: u64 = 512;
/// Nanoseconds of a tick in /proc/stat (USER_HZ is 100 on every Linux).
const TICK_NS: u64 = 10_000_000;
/// The device that holds a brick, and the disk at its bottom, below partitions, loop devices and mappings. Of several disks
/// below one device, the first.
#[derive(Clone, Copy)]
pub struct Disks {
    device: Number,
    bottom: Number,
}

impl Disks {
    /// Those of a brick: from its link `device` down, or from the file system with its directory.
    pub fn of(data: &Path) -> Option<Disks> {
        let tree = Tree::new("/");
        let layers = match fs::metadata(data.join("device")) {
            Ok(found) => layers::of_number(&tree, &format!("{}:{}", major(found.st_rdev()), minor(found.st_rdev()))),
            Err(_) => layers::of_path(&tree, data),
        };
        let mut blocks = layers.iter().filter_map(|layer| match layer {
            Layer::Block(block) => Some(block),
            Layer::Host(_) => None,
        });
        let first = blocks.next()?;
        let bottom = [first].into_iter().chain(blocks).find(|block| block.role == Role::Disk).unwrap_or(first);
        Some(Disks { device: number(&first.number)?, bottom: number(&bottom.number)? })
    }
    /// Their figures now.
    pub fn figures(self) -> Option<Disk> {
        disk_in(&fs::read_to_string("/proc/diskstats").ok()?, self.device, self.bottom)
    }
}

fn number(text: &str) -> Option<Number> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn disk_in(table: &str, device: Number, bottom: Number) -> Option<Disk> {
    let line = |wanted: Number| proc::disk_lines(table).find(|line| line.number == wanted);
    let (own, below) = (line(device)?, line(bottom)?);
    // Older kernels lack the last ones.
    let at = |line: &DiskLine<'_>, place: usize| line.figure(place).unwrap_or(0);
    Some(Disk {
        name: own.name.to_string(),
        requests: [0, 4, 15].map(|place| at(&own, place)),
        bytes: [2, 6].map(|place| at(&own, place) * SECTOR),
        took_ms: [3, 7, 16].map(|place| at(&own, place)),
        bottom: below.name.to_string(),
        bottom_bytes: [2, 6].map(|place| at(&below, place) * SECTOR),
        bottom_requests: [0, 4].map(|place| at(&below, place)),
    })
}

/// This process's figures.
pub fn process() -> Process {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Process {
        io_bytes: proc::moved_bytes(&read("/proc/self/io")).unwrap_or_default(),
        threads: threads(),
        steal_ns: steal_ns(&read("/proc/stat")),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
    }
}

/// The threads of this process.
pub fn threads() -> Vec<Thread> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let thread = |entry: fs::DirEntry| {
        let times = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let mut times = times.split_whitespace().map_while(|word| word.parse().ok());
        Some(Thread {
            name: fs::read_to_string(entry.path().join("comm")).ok()?.trim().to_string(),
            id: entry.file_name().to_str()?.parse().ok()?,
            run_ns: times.next()?,
            wait_ns: times.next()?,
        })
    };
    tasks.flatten().filter_map(thread).collect()
}

fn steal_ns(stat: &str) -> u64 {
    proc::cpu_ticks(stat).map_or(0, |ticks| ticks.stolen * TICK_NS)
}

/// The kernel's control files of FUSE connections, on a file system that is mounted nowhere.
pub struct FuseControl(OwnedFd);

impl FuseControl {
    /// Opens them; none if the kernel refuses that.
    pub fn open() -> Option<FuseControl> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
        fsconfig_create(&context).ok()?;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
        Some(FuseControl(root))
    }
    /// Number of requests of a connection that wait for its daemon, or are with it. `number`: of the mount (`0:50`).
    pub fn waiting(&self, number: &str) -> Option<u64> {
        let (_, minor) = number.split_once(':')?;
        let path = format!("{minor}/waiting");
        let file = openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
   7       0 loop0 10 0 80 5 20 0 160 9 0 14 14 0 0 0 0 3 7
 254       0 vda 100 2 800 50 200 3 1600 90 0 140 140 0 0 0 0 30 70
 254       1 vda1 1 0 8 1
 junk
 254 x y
";

    #[test]
    fn diskstats_are_read_by_number() {
        let disk = disk_in(TABLE, (7, 0), (254, 0)).expect("both are there");
        assert_eq!((&*disk.name, &*disk.bottom), ("loop0", "vda"));
        assert_eq!((disk.requests, disk.took_ms, disk.bytes), ([10, 20, 3], [5, 9, 7], [80 * 512, 160 * 512]));
        assert_eq!((disk.bottom_bytes, disk.bottom_requests), ([800 * 512, 1600 * 512], [100, 200]));
        let short = disk_in(TABLE, (254, 1), (254, 1)).expect("a kernel that tells less");
        assert_eq!((short.requests, short.took_ms), ([1, 0, 0], [1, 0, 0]));
        assert!(disk_in(TABLE, (8, 0), (254, 0)).is_none() && disk_in("", (7, 0), (7, 0)).is_none());
    }

    #[test]
    fn stolen_time_is_the_eighth_of_the_first_line() {
        assert_eq!(steal_ns("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 99 0 0\n"), 80_000_000);
        assert_eq!((steal_ns(""), steal_ns("cpu  1 2\n"), steal_ns("cpu  a b c d e f g h\n")), (0, 0, 0));
    }

    #[test]
    fn this_process_is_found() {
        let process = process();
        assert!(process.threads.iter().any(|thread| thread.run_ns > 0), "{process:?}");
        assert!(process.cpus > 0);
    }
}
