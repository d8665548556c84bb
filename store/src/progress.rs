//! The progress of long work, for those who wait for it. The receiver decides what to show, and how often.

use std::sync::Arc;

/// A moment of long work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The work.
    pub what: &'static str,
    /// The amount done.
    pub done: u64,
    /// The whole amount; 0 = not known.
    pub of: u64,
}

impl Step {
    /// Begins something of which nobody knows how long it takes.
    pub fn begin(what: &'static str) -> Step {
        Step { what, done: 0, of: 0 }
    }
}

/// The receiver of progress; called often, so it must be quick.
pub type Tell = Arc<dyn Fn(Step) + Send + Sync>;

/// Tells nobody.
pub fn nobody() -> Tell {
    Arc::new(|_| ())
}
