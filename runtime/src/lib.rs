//! The interfaces to the operating system. Clock, disk, net, tasks and randomness are traits with a real and a simulated
//! implementation; buffers, locks, queues, histograms and ledgers measure themselves.
//!
//! Promises: no package between this one and the fronts names the operating system; every wait can be accounted for
//! (decision D6); the same code runs under a seed that replays exactly (decision D9). Absent by design: no knowledge of
//! records, inodes or protocols.

mod accepts;
pub mod budget;
pub mod buffer;
pub mod classes;
pub mod clock;
pub mod disk;
pub mod event;
pub mod histogram;
pub mod ledger;
pub mod lock;
pub mod net;
pub mod noop;
pub mod random;
pub mod real;
pub mod sim;
pub mod stamp;
mod stream;
pub mod sync;
pub mod tasks;
pub mod transfer;

use base::{Kind, Result};
use std::sync::Arc;

pub use accepts::{Accepting, Connecting};
pub use base::seeded;
pub use budget::Budget;
pub use buffer::{Buf, Need, Shared, Slabs, Slice};
pub use clock::Clock;
pub use disk::{Disk, FileId, OpenMode};
pub use event::Event;
pub use histogram::Histogram;
pub use ledger::{Arrival, Ledger, Span, Stage, Subject};
pub use lock::Lock;
pub use net::{Address, ConnectionId, ListenerId, Net};
pub use random::Random;
pub use stamp::{Lapse, Stamp};
pub use stream::{Receiving, Sending};
pub use tasks::Tasks;
pub use transfer::{Done, Purpose, Request, Start, Transfer};

/// False in a build of the workshop that leaves out all observation of requests (feature `unobserved`). Code under this
/// condition costs nothing there, and must change nothing but figures.
pub const OBSERVED: bool = !cfg!(feature = "unobserved");

/// Pause between two attempts of a request that finds no buffer: about as long as a device's I/O holds buffers.
const MEMORY_PAUSE_NS: u64 = 1_000_000;
/// Longest wait for a buffer in all. Within this time even a disk that is much too slow ends all requests that hold
/// buffers, so more waiting would not help, and the answer is ENOMEM.
const MEMORY_WAIT_NS_MAX: u64 = 30_000_000_000;

/// The world as one handle; cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The brick's files.
    pub disk: Arc<dyn Disk>,
    /// Connections to other processes.
    pub net: Arc<dyn Net>,
    /// Cores and the blocking pool.
    pub tasks: Arc<dyn Tasks>,
    /// Randomness that the seed controls.
    pub random: Arc<dyn Random>,
    /// Aligned buffers.
    pub slabs: Arc<Slabs>,
    /// The ledger in which requests leave their times.
    pub ledger: Ledger,
    /// The budget of background work.
    pub budget: Arc<Budget>,
}

impl Runtime {
    /// A timestamp for a span: for statistics only, no decision may depend on it.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        if !OBSERVED {
            Stamp(0)
        } else if self.ledger.counts_ticks() {
            Stamp(real::ticks())
        } else {
            self.clock_stamp()
        }
    }
    /// The timestamp from the clock, for machines whose ticks are not trusted. Out of line, since it costs more in any
    /// case.
    #[cold]
    fn clock_stamp(&self) -> Stamp {
        Stamp(self.clock.now_ns())
    }
    /// Starts a task on a core, which makes its future there.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, core: usize, make: impl FnOnce() -> F + Send + 'static) {
        self.tasks.spawn(core, Box::new(move || -> tasks::Local { Box::pin(make()) }));
    }
    /// A buffer of `length` bytes (at most 1 MiB) for the program's own work, for which clients wait. Errors: `Host`
    /// when `memory_max` is reached.
    pub fn buffer(&self, length: usize) -> Result<Buf> {
        self.slabs.take_own(self.tasks.core(), length)
    }
    /// The same for work without which clients stand still: waits while there is none. Errors: `Host` after half a minute.
    pub async fn own_buffer(&self, length: usize) -> Result<Buf> {
        match self.buffer(length) {
            Err(error) if error.kind == Kind::Host => self.wait_for_buffer(|| self.buffer(length)).await,
            taken => taken,
        }
    }
    /// A buffer of `length` bytes (at most 1 MiB) for a client's request, from the calling core's slab. Waits while
    /// there is none: full memory slows clients down before it refuses them (back-pressure). The wait is booked in
    /// `span`. Errors: `Host` after half a minute.
    pub async fn client_buffer(&self, length: usize, need: Need, span: Option<&Span>) -> Result<Buf> {
        match self.slabs.take(self.tasks.core(), length, need) {
            Err(error) if error.kind == Kind::Host => {
                let taken = self.wait_for_buffer(|| self.slabs.take(self.tasks.core(), length, need)).await;
                span.inspect(|span| span.mark(Stage::Buffer, self.stamp()));
                taken
            }
            taken => taken,
        }
    }
    async fn wait_for_buffer(&self, take: impl Fn() -> Result<Buf>) -> Result<Buf> {
        let mut waited_ns = 0;
        loop {
            self.clock.sleep(MEMORY_PAUSE_NS).await;
            waited_ns += MEMORY_PAUSE_NS;
            match take() {
                Err(error) if error.kind == Kind::Host && waited_ns < MEMORY_WAIT_NS_MAX => (),
                taken => return taken,
            }
        }
    }
}
