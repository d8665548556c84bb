//! A process's limits, memory and control groups: the daemon's, or else this one's.

use super::{Tree, groups};
use crate::doctor::facts::{Limit, Process};

pub(super) fn of(tree: &Tree, daemon: Option<u32>) -> Process {
    let directory = directory(daemon);
    let limits = tree.text(format!("{directory}/limits")).unwrap_or_default();
    let status = tree.text(format!("{directory}/status")).unwrap_or_default();
    let swapped = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    let kib = swapped.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Process {
        daemon,
        open_files: limit(&limits, "Max open files"),
        locked_bytes: limit(&limits, "Max locked memory"),
        file_bytes: limit(&limits, "Max file size"),
        swapped_bytes: kib.and_then(|kib| kib.checked_mul(1024)),
        groups: groups::of(tree, &directory),
    }
}

/// The directory of a daemon, or of this process, in /proc.
pub(super) fn directory(daemon: Option<u32>) -> String {
    daemon.map_or("proc/self".to_string(), |pid| format!("proc/{pid}"))
}

/// `Max open files            1024                 524288               files`.
fn limit(table: &str, name: &str) -> Option<(Limit, Limit)> {
    let rest = table.lines().find_map(|line| line.strip_prefix(name))?;
    let number = |text: &str| match text {
        "unlimited" => Some(Limit::None),
        text => text.parse().ok().map(Limit::Of),
    };
    let mut fields = rest.split_whitespace();
    Some((number(fields.next()?)?, number(fields.next()?)?))
}
