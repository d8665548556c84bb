//! Floor 1: what the code runs on. Clock, disk, tasks and randomness are traits with a real and a simulated
//! implementation; buffers, locks, queues, histograms and ledgers are measured by construction.
//!
//! Promises: nothing above this room names the operating system; every wait can be accounted for (decision D6);
//! the same code runs under a seed that replays exactly (decision D9).
//! Absent by design: no knowledge of records, inodes or protocols.

pub mod buffer;
pub mod clock;
pub mod disk;
pub mod event;
pub mod histogram;
pub mod ledger;
pub mod lock;
pub mod noop;
pub mod random;
pub mod real;
pub mod sim;
pub mod tasks;
pub mod transfer;

use std::sync::Arc;

pub use base::seeded;
pub use buffer::{Buf, Shared, Slabs, Slice};
pub use clock::Clock;
pub use disk::{Disk, FileId, OpenMode};
pub use event::Event;
pub use histogram::Histogram;
pub use ledger::{Ledger, Span, Stage};
pub use lock::Lock;
pub use random::Random;
pub use tasks::Tasks;
pub use transfer::{Done, Request, Transfer};

/// The world as one handle; cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The brick's files.
    pub disk: Arc<dyn Disk>,
    /// Cores and the blocking pool.
    pub tasks: Arc<dyn Tasks>,
    /// Randomness that the seed controls.
    pub random: Arc<dyn Random>,
    /// Aligned buffers.
    pub slabs: Arc<Slabs>,
    /// Where requests leave their times.
    pub ledger: Arc<Ledger>,
}

impl Runtime {
    /// A buffer of at least `length` bytes from the calling core's slab, its length set to `length`.
    /// Errors: `Host` when `memory_max` is reached.
    pub fn buffer(&self, length: usize) -> base::Result<Buf> {
        self.slabs.take(self.tasks.core(), length)
    }
}
