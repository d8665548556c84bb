//! Time. Durations and deadlines use a clock that never goes back; wall time is only for timestamps of files.

use base::Time;
use std::future::Future;
use std::pin::Pin;

/// A future that ends when its time is over.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The two clocks and timers.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment; never goes back, and includes suspended time (CLOCK_BOOTTIME, rule Q4).
    fn now_ns(&self) -> u64;
    /// Wall time; may jump forward or back.
    fn wall(&self) -> Time;
    /// Ends after at least `ns` nanoseconds. Only to be awaited on a core's task.
    fn sleep(&self, ns: u64) -> Sleep;
}
