//! The daemon's memory when nobody sets it: a quarter of what this process may use, which is the machine's memory or
//! the tightest limit of its control groups (rule F5).

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Share of `memory_max` for I/O buffers and the read cache: at most a half. The index's caches get an eighth; the
/// groups' caches and overlays have the rest (`group::Options::for_memory`: a quarter, and twice a sixteenth while a
/// checkpoint runs).
const BUFFERS_SHARE: u64 = 2;
/// Buffers have all of their half up to here: it does for 64 requests of a MiB on each of 8 cores, with as much again for
/// what they write and the house's own. Of a larger half they have this or half of it (more cores want more), the read cache
/// the rest.
const BUFFERS_ENOUGH_BYTES: u64 = 1 << 30;

/// The parts of `memory_max` for I/O buffers and for the read cache.
pub fn buffer_shares(memory_max: u64) -> (u64, u64) {
    let both = memory_max / BUFFERS_SHARE;
    let buffers = both.min(BUFFERS_ENOUGH_BYTES.max(both / 2));
    (buffers, both - buffers)
}

/// The default's share of what there is.
const SHARE: u64 = 4;
/// Assumed memory if neither limit nor memory can be read: that of a small server.
const ASSUMED_BYTES: u64 = 4 << 30;

/// The default of `--memory-max`, in bytes.
pub fn default_max_bytes() -> u64 {
    available_bytes(Path::new("/")) / SHARE
}

/// Bytes that this process may use.
pub fn available() -> u64 {
    available_bytes(Path::new("/"))
}

/// The least of memory and limits, below `root` (`/`, or a made-up tree in tests).
fn available_bytes(root: &Path) -> u64 {
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limit_files(root, line)).filter_map(|file| read_limit(&file));
    limits.chain(machine_bytes(root)).min().unwrap_or(ASSUMED_BYTES)
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let info = read_to_string(root.join("proc/meminfo")).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// Files with the limits of the group in a line of /proc/self/cgroup and of all groups above it: `0::/a/b` (version 2),
/// or `4:memory:/a/b` (version 1).
fn limit_files(root: &Path, line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (Some(hierarchy), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (mount, file) = match (hierarchy, controllers) {
        ("0", "") => ("sys/fs/cgroup", "memory.max"),
        (_, controllers) if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().map(|group| root.join(mount).join(group).join(file)).collect()
}

/// A limit; nothing for `max`, which does not parse, and for version 1's "no limit", a number near 2^63 that loses
/// against the machine's memory.
fn read_limit(file: &Path) -> Option<u64> {
    read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn available(files: &[(&str, &str)]) -> u64 {
        let scratch = Scratch::new();
        for (path, text) in files {
            let path = scratch.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below the scratch directory")).expect("writable");
            std::fs::write(path, text).expect("writable");
        }
        available_bytes(scratch.path())
    }

    const MEMORY: (&str, &str) = ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_limits_the_machine_counts() {
        assert_eq!(available(&[MEMORY]), 8 << 30);
        assert_eq!(available(&[]), ASSUMED_BYTES);
        let max = [MEMORY, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(available(&max), 8 << 30);
    }

    #[test]
    fn the_tightest_limit_counts() {
        let version_2 = [
            MEMORY,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.max", "2147483648\n"),
        ];
        assert_eq!(available(&version_2), 1 << 30);
        let version_1 = [
            MEMORY,
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n"),
        ];
        assert_eq!(available(&version_1), 512 << 20);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(default_max_bytes() > 16 << 20);
    }
}
