//! Control groups of a process, of both versions.

use super::Tree;
use crate::doctor::facts::{CpuQuota, Group};
use crate::host::{MountEntry, parse_mounts};
use std::path::{Path, PathBuf};

/// Limits of I/O of version 1: the file's name, and the word of version 2 for it.
const IO_FILES: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
];
/// Version 1 says "no limit" by a number near 2^63.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The groups of a process and all above them that limit anything; None if the process's groups are not known.
pub(super) fn of(tree: &Tree, process: &str) -> Option<Vec<Group>> {
    let lines = tree.text(format!("{process}/cgroup"))?;
    let table = tree.bytes("proc/self/mountinfo")?;
    let mounts: Vec<MountEntry> =
        parse_mounts(&table).into_iter().filter(|mount| mount.kind.starts_with("cgroup")).collect();
    Some(lines.lines().flat_map(|line| of_line(tree, &mounts, line)).collect())
}

/// A line of /proc/self/cgroup: `0::/a/b` (version 2), or `4:cpu,cpuacct:/a/b` (version 1).
fn of_line(tree: &Tree, mounts: &[MountEntry], line: &str) -> Vec<Group> {
    let mut parts = line.splitn(3, ':');
    let (Some(hierarchy), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        return Vec::new();
    };
    let is_second = hierarchy == "0" && controllers.is_empty();
    let holds = |mount: &&MountEntry| match is_second {
        true => mount.kind == "cgroup2",
        false => {
            mount.kind == "cgroup" && controllers.split(',').all(|name| mount.options.split(',').any(|own| own == name))
        }
    };
    let Some(mount) = mounts.iter().find(holds) else { return Vec::new() };
    let path = Path::new(path.trim_start_matches('/'));
    let directories = path.ancestors().map(|above| match above.as_os_str().is_empty() {
        true => mount.point.clone(),
        false => mount.point.join(above),
    });
    let read = |directory: PathBuf| match is_second {
        true => second(tree, &directory),
        false => first(tree, &directory, controllers),
    };
    directories.map(read).filter(limits_anything).collect()
}

fn limits_anything(group: &Group) -> bool {
    !group.io.is_empty() || group.cpu.is_some() || group.memory_bytes_max.is_some() || group.memory_bytes_high.is_some()
}

/// A group of version 2.
fn second(tree: &Tree, directory: &Path) -> Group {
    let io = tree.text(directory.join("io.max")).unwrap_or_default();
    let io = io.lines().filter_map(|line| {
        let (number, limits) = line.split_once(' ')?;
        let limits: Vec<&str> = limits.split_whitespace().filter(|limit| !limit.ends_with("=max")).collect();
        (!limits.is_empty()).then(|| (number.to_string(), limits.join(" ")))
    });
    let cpu = tree.text(directory.join("cpu.max")).and_then(|text| {
        let (us, period_us) = text.split_once(' ')?;
        quota(us.parse().ok()?, period_us.parse().ok()?)
    });
    Group {
        path: directory.display().to_string(),
        io: io.collect(),
        cpu,
        throttled: throttled(tree, directory),
        memory_bytes_max: tree.number(directory.join("memory.max")),
        memory_bytes_high: tree.number(directory.join("memory.high")),
    }
}

/// A group of version 1, with the limits of these controllers.
fn first(tree: &Tree, directory: &Path, controllers: &str) -> Group {
    let has = |name: &str| controllers.split(',').any(|own| own == name);
    let mut group = Group { path: directory.display().to_string(), ..Group::default() };
    if has("blkio") {
        for (file, word) in IO_FILES {
            for line in tree.text(directory.join(file)).unwrap_or_default().lines() {
                let Some((number, limit)) = line.split_once(' ') else { continue };
                let limit = format!("{word}={}", limit.trim());
                match group.io.iter_mut().find(|(known, _)| known == number) {
                    Some((_, limits)) => *limits += &format!(" {limit}"),
                    None => group.io.push((number.to_string(), limit)),
                }
            }
        }
    }
    if has("cpu") {
        // Without a quota it is -1, which does not parse.
        let us: Option<u64> = tree.number(directory.join("cpu.cfs_quota_us"));
        let period_us = tree.number(directory.join("cpu.cfs_period_us"));
        group.cpu = us.zip(period_us).and_then(|(us, period_us)| quota(us, period_us));
        group.throttled = throttled(tree, directory);
    }
    if has("memory") {
        let most: Option<u64> = tree.number(directory.join("memory.limit_in_bytes"));
        group.memory_bytes_max = most.filter(|most| *most < NO_LIMIT_BYTES);
    }
    group
}

fn quota(us: u64, period_us: u64) -> Option<CpuQuota> {
    (period_us > 0).then_some(CpuQuota { us, period_us })
}

fn throttled(tree: &Tree, directory: &Path) -> Option<u64> {
    let stat = tree.text(directory.join("cpu.stat"))?;
    stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.trim().parse().ok()
}
