//! The fault layer: answers chosen operations with an error, as a broken system below would. For operators and tests.

use super::{Call, Down};
use base::{Error, Kind};
use runtime::Runtime;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fault of one operation, or of all.
pub struct Fault {
    operation: Option<String>,
    kind: Kind,
    every: u64,
    seen: AtomicU64,
}

impl Fault {
    /// Fails every `every`th operation (at least 1) of this name, or of all names, with `kind`.
    pub fn new(operation: Option<String>, kind: Kind, every: u64) -> Fault {
        Fault { operation, kind, every: every.max(1), seen: AtomicU64::new(0) }
    }
    pub(super) fn down(&self, _: &Runtime, call: &Call) -> Down {
        let chosen = self.operation.as_ref().is_none_or(|name| name == call.op.name());
        if !chosen || !(self.seen.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every) {
            return Down::Pass;
        }
        Down::Answer(Err(Error::new(self.kind, "the fault layer answered")))
    }
}
