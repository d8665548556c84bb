//! The delay layer: holds chosen operations for a time, as a slow system below would. For operators and tests.

use super::{Call, Down};
use runtime::Runtime;

/// A delay for one operation, or for all.
pub struct Delay {
    operation: Option<String>,
    ns: u64,
}

impl Delay {
    /// Delays operations of this name, or of all names, by `ns` nanoseconds.
    pub fn new(operation: Option<String>, ns: u64) -> Delay {
        Delay { operation, ns }
    }
    pub(super) async fn down(&self, runtime: &Runtime, call: &Call) -> Down {
        if self.operation.as_ref().is_none_or(|name| name == call.op.name()) {
            runtime.clock.sleep(self.ns).await;
        }
        Down::Pass
    }
}
