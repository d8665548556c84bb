//! CPU time before all other programs of the machine: a verdict on what these do would be right, and no use here.

use crate::flash::undo::Undo;
use std::path::Path;

/// The control groups of version 1 for CPUs.
const GROUPS: &str = "/sys/fs/cgroup/cpu";
/// The highest weight that the kernel allows; a group has 1024 by itself.
const SHARES: &str = "262144";
/// Microseconds of each second for which what is ahead of all others may run: without any, there is no such thing in a group.
const AHEAD_US: &str = "600000";

/// Moves this process, and with it whatever it starts from now on, into a group ahead of all others. Where there are no such
/// groups, the machine must be idle by itself.
pub fn take(undo: &Undo) -> Result<(), String> {
    if !Path::new(GROUPS).join("cpu.shares").exists() {
        eprintln!("no control groups of version 1: other programs must leave the CPUs alone");
        return Ok(());
    }
    let group = format!("{GROUPS}/sinter-verdicts-{}", std::process::id());
    std::fs::create_dir(&group).map_err(|error| format!("{group}: {error}"))?;
    let moved_back = format!("for p in $(cat {group}/cgroup.procs); do echo $p >{GROUPS}/cgroup.procs; done");
    undo.add(&format!("{moved_back}; rmdir {group}"))?;
    // Kernels without real-time groups have no such file, and need none.
    let ahead = format!("{group}/cpu.rt_runtime_us");
    if Path::new(&ahead).exists() {
        std::fs::write(&ahead, AHEAD_US).map_err(|error| format!("{ahead}: {error}"))?;
    }
    for (name, value) in [("cpu.shares", SHARES), ("cgroup.procs", &std::process::id().to_string())] {
        let path = format!("{group}/{name}");
        std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
