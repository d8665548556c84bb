//! The delay layer: holds chosen operations for a time, as a slow system below would. For operators and tests.

use super::{Call, Down};
use base::Operations;
use runtime::Runtime;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest time until an operation is let go after the stack has changed: an operator waits for it.
const NOTICED_WITHIN_NS: u64 = 100_000_000;

/// A delay for some operations.
pub struct Delay {
    operations: Operations,
    ns: u64,
}

impl Delay {
    /// Delays these operations by `ns` nanoseconds.
    pub fn new(operations: Operations, ns: u64) -> Delay {
        Delay { operations, ns }
    }
    pub(super) async fn down(&self, runtime: &Runtime, call: &Call, replaced: &AtomicBool) -> Down {
        let mut left_ns = if self.operations.include(&call.op) { self.ns } else { 0 };
        while left_ns > 0 && !replaced.load(Ordering::Relaxed) {
            let part_ns = left_ns.min(NOTICED_WITHIN_NS);
            runtime.clock.sleep(part_ns).await;
            left_ns -= part_ns;
        }
        Down::Pass
    }
}
