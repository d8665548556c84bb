//! CPU time before all other programs of the machine: a verdict on what these do would be right, and no use here.

use crate::flash::undo::Undo;
use std::path::Path;
use std::time::Duration;

/// The control groups of version 1 for CPUs.
const GROUPS: &str = "/sys/fs/cgroup/cpu";
/// The highest weight that the kernel allows; a group has 1024 by itself.
const SHARES: &str = "262144";
/// Microseconds of each second for which what is ahead of all others may run: without any, there is no such thing in a group.
const AHEAD_US: &str = "600000";
/// Attempts to get that share: five seconds.
const TRIES_MAX: u32 = 50;

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
    // The group of a run that has just ended keeps its share for a moment.
    let mut tries = 0;
    while Path::new(&ahead).exists()
        && let Err(error) = std::fs::write(&ahead, AHEAD_US)
    {
        tries += 1;
        if tries > TRIES_MAX {
            return Err(format!("{ahead}: {error}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    for (name, value) in [("cpu.shares", SHARES), ("cgroup.procs", &std::process::id().to_string())] {
        let path = format!("{group}/{name}");
        std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
