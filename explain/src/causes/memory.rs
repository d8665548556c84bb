//! Buffer memory.

use super::per_request;
use crate::{Finding, Window};

/// Multiple of the requests in the daemon that the kernel has at least, if most wait for an entry.
const WAITING_MIN: f64 = 2.0;
/// Least number of requests in the daemon, if its entries are what there are too few of: the smallest memory allows 16 of 256 KiB on two
/// CPUs. With fewer the cores are what keeps requests in the kernel: one that waits for a lock sleeps as the kernel sees it.
const TAKEN_MIN: f64 = 4.0;
/// Share of their time that the cores sleep at least then: they would fetch more if they could.
const ASLEEP_MIN: f64 = 0.25;

/// Requests that wait for a buffer, or in the kernel for an entry, of which memory allows only so many.
pub fn find(window: &Window) -> Option<Finding> {
    find_entries(window).or_else(|| find_buffers(window))
}

fn find_entries(window: &Window) -> Option<Finding> {
    let (in_kernel, in_daemon) = (window.kernel_occupancy()?, window.occupancy());
    if in_daemon < TAKEN_MIN || in_kernel < WAITING_MIN * in_daemon || window.asleep().1 < ASLEEP_MIN {
        return None;
    }
    let evidence = vec![
        format!("the kernel has {in_kernel:.1} requests, the daemon has taken {in_daemon:.1} of them"),
        format!(
            "all buffers together may have {} MiB, which bounds how many are taken",
            window.after.memory.bytes_max >> 20
        ),
    ];
    let resource = "entries for requests (memory_max)".into();
    Some(Finding::new("memory", resource, window, window.transport_ns(), evidence, "raise memory_max"))
}

fn find_buffers(window: &Window) -> Option<Finding> {
    let evidence = vec![
        format!("a request waits {} for a buffer", per_request(window, &["buffer"])),
        format!("all buffers together may have {} MiB", window.after.memory.bytes_max >> 20),
    ];
    let next = "raise memory_max";
    let waited_ns = window.stage_ns(&["buffer"]);
    Some(Finding::new("memory", "buffers (memory_max)".into(), window, waited_ns, evidence, next))
}
