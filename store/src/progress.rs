//! How far long work has come, for whoever waits for it. Who is told decides what to show, and how often.

use std::sync::Arc;

/// A moment of long work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is being done.
    pub what: &'static str,
    /// So much of it is done.
    pub done: u64,
    /// Of so much; 0 = nobody knows.
    pub of: u64,
}

impl Step {
    /// Begins something of which nobody knows how long it takes.
    pub fn begin(what: &'static str) -> Step {
        Step { what, done: 0, of: 0 }
    }
}

/// Who is told; called often, so it must be quick.
pub type Tell = Arc<dyn Fn(Step) + Send + Sync>;

/// Tells nobody.
pub fn nobody() -> Tell {
    Arc::new(|_| ())
}
