//! The connection's queues on the cores' rings: one queue per CPU that the machine may have, each with entries that
//! carry requests and answers. This module decides how many entries there are and has their memory; it does not know
//! their content.
//!
//! Promise: a mount asks the kernel for queues only when it has the memory for all their entries. If one queue had no
//! entry, no request would come at all.

use base::ablated::{Ablation, is_on, workers};
use base::limits::IO_BYTES_MAX;
use base::{Error, Kind, Result};
use runtime::real::{HEAD_BYTES, RingEntry, core_of_cpu};
use runtime::{Buf, Need, Runtime};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest number of entries of a queue. A queue serves the clients of one CPU; a device reaches its full speed with 32
/// to 64 requests of all CPUs. Further requests wait in the kernel.
const DEPTH_MAX: usize = 32;

/// Share of the memory for buffers that all entries together may take: one part in 8. Each entry holds 1 MiB as long as
/// its mount lives, even while requests are small. Clients' requests may then still use three times as much (decision
/// 0017).
const SHARE: u64 = 8;

/// The file that lists the CPUs that the machine may have. The kernel wants as many queues.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The file that holds `Y` if the kernel's administrator allows rings.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// True if the kernel is set to deliver requests in ring entries.
pub fn rings_are_on() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y")
}

/// The way in which a mount's requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Requests are read from `/dev/fuse`.
    Device,
    /// Requests come in entries of the cores' rings.
    Rings,
}

/// The number of entries that the mounts of a brick may still take.
pub struct Entries {
    left: AtomicUsize,
}

impl Entries {
    /// The number that the memory for buffers allows.
    pub fn of(runtime: &Runtime) -> Arc<Entries> {
        // The program's own part of all buffers is a quarter.
        let all_bytes = 4 * runtime.slabs.own_bytes_max();
        Arc::new(Entries { left: AtomicUsize::new((all_bytes / SHARE) as usize / IO_BYTES_MAX) })
    }
    /// Takes the same number of entries for each queue; returns that number, zero if there are too few left.
    fn take(&self, queues: usize) -> usize {
        let depth = |left: usize| (left / queues).min(DEPTH_MAX);
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - queues * depth(left)));
        depth(taken.unwrap_or_else(|left| left))
    }
}

/// A mount's entries, as a number; given back when it is dropped.
pub struct Taken {
    entries: Arc<Entries>,
    count: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.entries.left.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// The memory of a mount's queues.
pub struct Rings {
    /// Heads and payloads, by queue.
    queues: Vec<Vec<(Buf, Buf)>>,
    taken: Taken,
}

impl Rings {
    /// Takes the memory. Errors: `Host` if there is too little, or if the number of queues can't be found out.
    pub fn new(runtime: &Runtime, entries: &Arc<Entries>) -> Result<Rings> {
        let text = std::fs::read_to_string(POSSIBLE)
            .map_err(|error| Error::new(Kind::Host, "the number of CPUs can't be read").with(error))?;
        let count =
            count(&text).ok_or_else(|| Error::new(Kind::Host, "the number of CPUs can't be read").with(&text))?;
        let depth = entries.take(count);
        let taken = Taken { entries: entries.clone(), count: count * depth };
        if depth == 0 {
            let error = Error::new(Kind::Host, "memory_max leaves no room for io_uring's entries");
            return Err(error.with(format!("at least one MiB for each of {count} CPUs")));
        }
        let queue = |cpu| (0..depth).map(|_| memory(runtime, cpu)).collect::<Result<Vec<_>>>();
        Ok(Rings { queues: (0..count).map(queue).collect::<Result<_>>()?, taken })
    }
    /// Number of entries of all queues.
    pub fn entries(&self) -> usize {
        self.taken.count
    }
    /// Number of entries of each queue.
    pub fn depth(&self) -> usize {
        self.queues.first().map_or(0, Vec::len)
    }
    /// The entries for a connection, each with the core that serves its queue, and the number taken for them.
    pub fn into_entries(self, runtime: &Runtime, devices: &[Arc<File>]) -> (Vec<(usize, RingEntry)>, Taken) {
        let of_queue = |(cpu, memory): (usize, Vec<(Buf, Buf)>)| {
            let core = serving_core(cpu, runtime);
            let entry = move |(head, payload)| (core, RingEntry::new(devices[core].clone(), cpu as u16, head, payload));
            memory.into_iter().map(entry)
        };
        (self.queues.into_iter().enumerate().flat_map(of_queue).collect(), self.taken)
    }
}

/// The core that serves a CPU's queue.
fn serving_core(cpu: usize, runtime: &Runtime) -> usize {
    if is_on(Ablation::Queue) { 0 } else { core_of_cpu(cpu, runtime.tasks.cores() - workers()) }
}

fn memory(runtime: &Runtime, cpu: usize) -> Result<(Buf, Buf)> {
    let core = serving_core(cpu, runtime);
    let take = |length| runtime.slabs.take(core, length, Need::Finishing);
    Ok((take(HEAD_BYTES)?, take(IO_BYTES_MAX)?))
}

/// The number of CPUs in a list such as "0-3,8".
fn count(list: &str) -> Option<usize> {
    let of_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    };
    list.trim().split(',').map(of_range).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted() {
        assert_eq!(count("0-1\n"), Some(2));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(["", "a", "3-1", "0-"].map(count), [None; 4]);
    }

    #[test]
    fn mounts_share_the_entries_and_give_them_back() {
        let entries = Arc::new(Entries { left: AtomicUsize::new(100) });
        let take = |queues| {
            let depth = entries.take(queues);
            (depth, Taken { entries: entries.clone(), count: queues * depth })
        };
        let first = take(2);
        assert_eq!(first.0, DEPTH_MAX);
        let second = take(4);
        assert_eq!(second.0, 9);
        assert_eq!(take(1).0, 0, "all are taken");
        drop(first);
        assert_eq!(take(65).0, 0, "not one for each queue");
        assert_eq!(take(2).0, 32);
        drop(second);
        assert_eq!(entries.left.load(Ordering::Relaxed), 100);
    }
}
