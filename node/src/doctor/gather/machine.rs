//! CPUs, kernel, clock, and what else there is once in a machine.

use super::{Tree, add};
use crate::doctor::facts::{Clock, Frequency, Fuse, Hypervisor, Idle, IdleState, Iommu, Kernel, Swap};
use rustix::fs::{Access, access};
use std::path::Path;

const CPUS: &str = "sys/devices/system/cpu";
/// The thread of a daemon that bounds the time of waking up; it runs only if the kernel takes that from its user.
const WATCHER: &str = "sinter-pm-qos";
/// Makers of virtual machines, by DMI, where the processor has no flag for it.
const MAKERS: [&str; 4] = ["QEMU", "VMware, Inc.", "Xen", "innotek GmbH"];

/// Names such as `cpu7`, or `state0` of one.
fn numbered(names: Option<Vec<String>>, prefix: &str) -> Vec<String> {
    let is_one = |name: &String| {
        let number = name.strip_prefix(prefix).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    names.unwrap_or_default().into_iter().filter(is_one).collect()
}

pub(super) fn cpus(tree: &Tree) -> Option<u64> {
    let stat = tree.text("proc/stat")?;
    let lines = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let count = lines.filter(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit())).count() as u64;
    Some(count).filter(|count| *count > 0)
}

pub(super) fn idle(tree: &Tree, daemon: Option<u32>) -> Idle {
    let mut states: Vec<IdleState> = Vec::new();
    for cpu in numbered(tree.names(CPUS), "cpu") {
        let directory = Path::new(CPUS).join(cpu).join("cpuidle");
        for state in numbered(tree.names(&directory), "state") {
            let directory = directory.join(state);
            let (Some(name), Some(exit_us)) =
                (tree.text(directory.join("name")), tree.number(directory.join("latency")))
            else {
                continue;
            };
            let disabled = tree.number::<u64>(directory.join("disable")).is_some_and(|number| number != 0);
            match states.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.exit_us = known.exit_us.max(exit_us);
                    known.disabled &= disabled;
                }
                None => states.push(IdleState { name, exit_us, disabled }),
            }
        }
    }
    Idle { driver: tree.text(format!("{CPUS}/cpuidle/current_driver")), states, bounded: bounded(tree, daemon) }
}

/// True if the daemon, or one that this user would start, may bound the time of waking up.
fn bounded(tree: &Tree, daemon: Option<u32>) -> Option<bool> {
    let Some(daemon) = daemon else {
        let path = "dev/cpu_dma_latency";
        return match access(tree.at(path), Access::WRITE_OK) {
            Ok(()) => Some(true),
            // Another user may.
            Err(_) if tree.has(path) => None,
            Err(_) => Some(false),
        };
    };
    let tasks = format!("proc/{daemon}/task");
    let threads = tree.names(&tasks).filter(|threads| !threads.is_empty())?;
    let is_watcher = |thread: &String| tree.text(format!("{tasks}/{thread}/comm")).is_some_and(|name| name == WATCHER);
    Some(threads.iter().any(is_watcher))
}

pub(super) fn frequency(tree: &Tree) -> Frequency {
    let mut found = Frequency::default();
    for cpu in numbered(tree.names(CPUS), "cpu") {
        let of = |file: &str| tree.text(Path::new(CPUS).join(&cpu).join("cpufreq").join(file));
        add(&mut found.drivers, of("scaling_driver"));
        add(&mut found.governors, of("scaling_governor"));
        add(&mut found.preferences, of("energy_performance_preference"));
    }
    found
}

pub(super) fn iommu(tree: &Tree) -> Iommu {
    let mut types = Vec::new();
    for group in tree.names("sys/kernel/iommu_groups").unwrap_or_default() {
        add(&mut types, tree.text(format!("sys/kernel/iommu_groups/{group}/type")));
    }
    Iommu { names: tree.names("sys/class/iommu"), types }
}

pub(super) fn kernel(tree: &Tree) -> Kernel {
    let release = tree.text("proc/sys/kernel/osrelease").unwrap_or_default();
    // `6.1.0-18-amd64`, `7.0-rc3`.
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    };
    Kernel { version, uring_disabled: tree.number("proc/sys/kernel/io_uring_disabled") }
}

pub(super) fn fuse(tree: &Tree) -> Fuse {
    let list = tree.text("proc/filesystems");
    Fuse {
        known: list.map(|list| list.lines().any(|line| line.split_whitespace().next_back() == Some("fuse"))),
        device: tree.names("dev").map(|names| names.iter().any(|name| name == "fuse")),
        uring: tree.text("sys/module/fuse/parameters/enable_uring"),
    }
}

pub(super) fn clock(tree: &Tree) -> Clock {
    let of = |file: &str| tree.text(format!("sys/devices/system/clocksource/clocksource0/{file}"));
    let available = of("available_clocksource").unwrap_or_default();
    Clock { source: of("current_clocksource"), available: available.split_whitespace().map(str::to_string).collect() }
}

pub(super) fn hypervisor(tree: &Tree) -> Option<Hypervisor> {
    let cpus = tree.text("proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags"));
    let flagged = flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let maker = tree.text("sys/class/dmi/id/sys_vendor");
    let by_name = maker.as_deref().is_some_and(|maker| MAKERS.contains(&maker));
    let kind = tree.text("sys/hypervisor/type");
    (flagged || by_name || kind.is_some()).then(|| Hypervisor { maker: maker.or(kind) })
}

pub(super) fn swap(tree: &Tree) -> Option<Vec<Swap>> {
    let table = tree.text("proc/swaps")?;
    let mut lines = table.lines();
    lines.next().filter(|header| header.starts_with("Filename"))?;
    let area = |line: &str| {
        let mut fields = line.split_whitespace();
        let (name, used) = (fields.next()?, fields.nth(2)?);
        Some(Swap { name: name.to_string(), used_bytes: used.parse::<u64>().ok()?.checked_mul(1024)? })
    };
    Some(lines.filter_map(area).collect())
}

/// True if systemd trims mounted file systems; None without systemd.
pub(super) fn trim_timer(tree: &Tree) -> Option<bool> {
    let on = |directory: &&str| tree.has(format!("{directory}/systemd/system/timers.target.wants/fstrim.timer"));
    tree.has("run/systemd/system").then(|| ["etc", "usr/lib", "lib"].iter().any(on))
}
