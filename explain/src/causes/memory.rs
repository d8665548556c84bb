//! Buffer memory.

use super::per_request;
use crate::{Finding, Window};

/// Requests that wait for a buffer.
pub fn find(window: &Window) -> Option<Finding> {
    let evidence = vec![
        format!("a request waits {} for a buffer", per_request(window, &["buffer"])),
        format!("all buffers together may have {} MiB", window.after.memory.bytes_max >> 20),
    ];
    let next = "raise memory_max";
    let waited_ns = window.stage_ns(&["buffer"]);
    Some(Finding::new("memory", "buffers (memory_max)".into(), window, waited_ns, evidence, next))
}
