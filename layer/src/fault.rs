//! The fault layer: answers chosen operations with an error, as a broken system below would. For operators and tests.

use super::{Call, Down};
use base::{Error, Kind, Operations};
use std::sync::atomic::{AtomicU64, Ordering};

/// A fault of some operations.
pub struct Fault {
    operations: Operations,
    kind: Kind,
    every: u64,
    seen: AtomicU64,
}

impl Fault {
    /// Fails every `every`th of these operations (at least 1) with `kind`.
    pub fn new(operations: Operations, kind: Kind, every: u64) -> Fault {
        Fault { operations, kind, every, seen: AtomicU64::new(0) }
    }
    pub(super) fn down(&self, call: &Call) -> Down {
        let chosen = self.operations.include(&call.op);
        if !chosen || !(self.seen.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every) {
            return Down::Pass;
        }
        Down::Answer(Err(Error::new(self.kind, "the fault layer answered")))
    }
}
