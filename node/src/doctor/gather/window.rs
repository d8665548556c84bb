//! Counters at two moments, and what they say about the time between.

use super::{Tree, process};
use crate::doctor::facts::{Transfers, Window};
use crate::proc::{self, CpuTicks, DiskLine};
use std::time::Instant;

/// Bytes of a sector in /proc/diskstats, whatever the disk has.
const SECTOR_BYTES: u64 = 512;
/// Processes whose transfers are looked at: with more, the looking would take long itself.
const PROCESSES_MAX: usize = 4096;

/// The counters at a moment.
pub(super) struct Sample {
    at: Instant,
    cpu: Option<CpuTicks>,
    swapped_pages: Option<u64>,
    disks: Vec<Transfers>,
    /// Bytes moved by the daemon and by this process.
    own_bytes: Option<u64>,
    /// Bytes moved by each other process.
    others: Vec<(u32, u64)>,
}

impl Sample {
    /// Reads the counters now.
    pub(super) fn take(tree: &Tree, daemon: Option<u32>) -> Sample {
        let own = [Some("proc/self".to_string()), daemon.map(|_| process::directory(daemon))];
        let mut own_bytes = own.into_iter().flatten().map(|directory| moved_bytes(tree, &directory));
        let pids = tree.names("proc").unwrap_or_default().into_iter().filter_map(|name| name.parse::<u32>().ok());
        let others = pids.filter(|pid| *pid != std::process::id() && Some(*pid) != daemon).take(PROCESSES_MAX);
        let others: Vec<(u32, u64)> =
            others.filter_map(|pid| Some((pid, moved_bytes(tree, &format!("proc/{pid}"))?))).collect();
        Sample {
            at: Instant::now(),
            cpu: tree.text("proc/stat").and_then(|stat| proc::cpu_ticks(&stat)),
            swapped_pages: swapped_pages(tree),
            disks: disks(tree),
            own_bytes: own_bytes.try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?))),
            others,
        }
    }

    /// Compares with an earlier moment.
    pub(super) fn since(&self, before: &Sample, tree: &Tree) -> Window {
        let percent = |cpu: CpuTicks| (cpu.all > 0).then(|| cpu.stolen as f64 * 100.0 / cpu.all as f64);
        let between = self.cpu.zip(before.cpu).map(|(now, then)| CpuTicks {
            all: now.all.saturating_sub(then.all),
            busy: now.busy.saturating_sub(then.busy),
            stolen: now.stolen.saturating_sub(then.stolen),
        });
        let moved = |(pid, bytes): &(u32, u64)| {
            let (_, then) = before.others.iter().find(|(known, _)| known == pid)?;
            Some((*pid, bytes.saturating_sub(*then)))
        };
        let most = self.others.iter().filter_map(moved).max_by_key(|(_, bytes)| *bytes);
        Window {
            ms: (self.at.duration_since(before.at).as_millis() as u64).max(1),
            stolen_percent: between.and_then(percent),
            stolen_percent_ever: self.cpu.and_then(percent),
            swapped_pages: self.swapped_pages.zip(before.swapped_pages).map(|(now, then)| now.saturating_sub(then)),
            disks: self.disks_since(before),
            own_bytes: self.own_bytes.zip(before.own_bytes).map(|(now, then)| now.saturating_sub(then)),
            other: most.and_then(|(pid, bytes)| Some((tree.text(format!("proc/{pid}/comm"))?, pid, bytes))),
        }
    }

    fn disks_since(&self, before: &Sample) -> Vec<Transfers> {
        let difference = |now: &Transfers| {
            let then = before.disks.iter().find(|then| then.name == now.name)?;
            Some(Transfers {
                name: now.name.clone(),
                bytes: now.bytes.saturating_sub(then.bytes),
                busy_ms: now.busy_ms.saturating_sub(then.busy_ms),
            })
        };
        self.disks.iter().filter_map(difference).collect()
    }
}

/// Bytes that a process has read from devices and written to them.
fn moved_bytes(tree: &Tree, directory: &str) -> Option<u64> {
    let [read, written] = proc::moved_bytes(&tree.text(format!("{directory}/io"))?)?;
    Some(read.saturating_add(written))
}

fn swapped_pages(tree: &Tree) -> Option<u64> {
    let stat = tree.text("proc/vmstat")?;
    let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some(field("pswpin ")?.saturating_add(field("pswpout ")?))
}

fn disks(tree: &Tree) -> Vec<Transfers> {
    let table = tree.text("proc/diskstats").unwrap_or_default();
    let disk = |line: DiskLine<'_>| {
        let sectors = line.figure(2)?.saturating_add(line.figure(6)?);
        Some(Transfers {
            name: line.name.to_string(),
            bytes: sectors.saturating_mul(SECTOR_BYTES),
            busy_ms: line.figure(9)?,
        })
    };
    proc::disk_lines(&table).filter_map(disk).collect()
}
