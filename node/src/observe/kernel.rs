//! The machine's own figures, from /proc and /sys. Whatever can't be read or is no number is left out.

use explain::snapshot::{Disk, Process, Thread};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector in /proc/diskstats, whatever the device's are.
const SECTOR: u64 = 512;
/// Nanoseconds of a tick in /proc/stat (USER_HZ is 100 on every Linux).
const TICK_NS: u64 = 10_000_000;
/// Most steps from a device down to its disk: partitions, loop devices and mappings above each other.
const STEPS_MAX: usize = 8;

/// A block device: major and minor number.
type Number = (u32, u32);

fn number(device: u64) -> Number {
    (libc::major(device), libc::minor(device))
}

/// The device that holds a brick: that of its link `device`, or that of the file system with its directory.
pub fn device_of(data: &Path) -> Option<Number> {
    if let Ok(found) = fs::metadata(data.join("device")) {
        return Some(number(found.st_rdev()));
    }
    let of_directory = number(fs::metadata(data).ok()?.st_dev());
    if sys(of_directory).exists() {
        return Some(of_directory);
    }
    // File systems such as btrfs number themselves: the mount table names their device.
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let wanted = format!("{}:{}", of_directory.0, of_directory.1);
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&*wanted))?;
    let source = line.split(" - ").nth(1)?.split(' ').nth(1)?;
    Some(number(fs::metadata(source).ok()?.st_rdev())).filter(|&found| sys(found).exists())
}

fn sys((major, minor): Number) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn read_number(path: &Path) -> Option<Number> {
    let text = fs::read_to_string(path).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The disk at the bottom of a device: below partitions, loop devices and mappings.
fn bottom_of(mut device: Number) -> Number {
    for _ in 0..STEPS_MAX {
        let at = sys(device);
        let slave = || fs::read_dir(at.join("slaves")).ok()?.flatten().next().map(|entry| entry.path().join("dev"));
        let below = if at.join("partition").exists() {
            // A partition's directory lies in its disk's.
            at.canonicalize().ok().and_then(|at| read_number(&at.parent()?.join("dev")))
        } else if let Ok(file) = fs::read_to_string(at.join("loop/backing_file")) {
            fs::metadata(file.trim()).ok().map(|found| number(found.st_dev())).filter(|&found| sys(found).exists())
        } else {
            slave().and_then(|path| read_number(&path))
        };
        match below {
            Some(below) => device = below,
            None => break,
        }
    }
    device
}

/// The line of a device in /proc/diskstats: its name and numbers.
fn stats_of(table: &str, device: Number) -> Option<(String, Vec<u64>)> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let found = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next()?;
        (found == device).then(|| (name.to_string(), words.map(|word| word.parse().unwrap_or(0)).collect()))
    })
}

/// The figures of a device and of the disk at its bottom.
pub fn disk(device: Number) -> Option<Disk> {
    let table = fs::read_to_string("/proc/diskstats").ok()?;
    disk_in(&table, device, bottom_of(device))
}

fn disk_in(table: &str, device: Number, bottom: Number) -> Option<Disk> {
    let (name, own) = stats_of(table, device)?;
    let (bottom, below) = stats_of(table, bottom)?;
    // Documentation/admin-guide/iostats.rst gives their order. Older kernels lack the last ones.
    let at = |numbers: &[u64], place: usize| numbers.get(place).copied().unwrap_or(0);
    Some(Disk {
        name,
        requests: [0, 4, 15].map(|place| at(&own, place)),
        bytes: [2, 6].map(|place| at(&own, place) * SECTOR),
        took_ms: [3, 7, 16].map(|place| at(&own, place)),
        bottom,
        bottom_bytes: [2, 6].map(|place| at(&below, place) * SECTOR),
        bottom_requests: [0, 4].map(|place| at(&below, place)),
    })
}

/// This process's figures.
pub fn process() -> Process {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let io: BTreeMap<&str, u64> = io
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    let bytes = |name: &str| io.get(name).copied().unwrap_or(0);
    Process {
        io_bytes: [bytes("read_bytes"), bytes("write_bytes")],
        threads: threads(),
        steal_ns: steal_ns(&fs::read_to_string("/proc/stat").unwrap_or_default()),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
    }
}

fn threads() -> Vec<Thread> {
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
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let steal = all.and_then(|all| all.split_whitespace().nth(7)?.parse::<u64>().ok());
    steal.unwrap_or(0) * TICK_NS
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
