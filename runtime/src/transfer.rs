//! One device I/O as a future. Its slot owns the buffers until the device is done with them, whatever happens to the
//! future. Slots are recycled, so that a warm I/O allocates nothing.

use crate::buffer::{Buf, Slice};
use crate::disk::FileId;
use crate::stamp::Stamp;
use crate::sync::Mutex;
use base::Result;
use base::seeded::{Bug, active};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A request to a device. Offsets and lengths are multiples of 4 KiB.
pub enum Request {
    /// Fill the buffer (its length) from `offset`. Reading past the end of the file is an error.
    Read { file: FileId, offset: u64, buffer: Buf, start: Start },
    /// Write the slices one after the other from `offset`. `durable`: the write itself is durable when done
    /// (FUA or the kernel's write-and-flush; rule U1 says when that is enough).
    Write { file: FileId, offset: u64, slices: Vec<Slice>, durable: bool },
    /// Make every write of this file that completed before the submission durable.
    Flush { file: FileId },
}

/// The moment at which a small read is submitted to the device. Large transfers (from `BULK_BYTES_MIN` on) are always
/// under a concurrency limit, except durable writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Immediately: pieces of a larger read, and reads that more than one client may wait for.
    AtOnce,
    /// Paced: under the concurrency limit. A read for which a client waits.
    Paced,
}

/// The work that a transfer is a part of, for the figures of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    /// Reads that clients wait for, and those made ahead of them.
    Client,
    /// Writes of the log, and its flushes.
    Log,
    /// Large writes of clients, which go past the log.
    Bulk,
    /// Moving live blocks, to free segments or to put files together.
    Cleaner,
    /// Summaries, superblocks and segments that are made ready.
    Checkpoint,
    /// Reading everything again, to find what has rotted.
    Scrub,
    /// Reads of a hard disk that clients wait for: their times say nothing of flash.
    Disk,
    /// All else that hard disks do.
    Destage,
    /// All else: opening, repair, growing.
    #[default]
    Other,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Purpose; 9] = [
        Purpose::Client,
        Purpose::Log,
        Purpose::Bulk,
        Purpose::Cleaner,
        Purpose::Checkpoint,
        Purpose::Scrub,
        Purpose::Disk,
        Purpose::Destage,
        Purpose::Other,
    ];
    /// The purpose that the same work has on a hard disk.
    pub fn on_disk(self) -> Purpose {
        match self {
            Purpose::Client => Purpose::Disk,
            _ => Purpose::Destage,
        }
    }
    /// The purpose's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Client => "client",
            Purpose::Log => "log",
            Purpose::Bulk => "bulk",
            Purpose::Cleaner => "cleaner",
            Purpose::Checkpoint => "checkpoint",
            Purpose::Scrub => "scrub",
            Purpose::Disk => "disk",
            Purpose::Destage => "destage",
            Purpose::Other => "other",
        }
    }
}

/// A finished I/O, with its buffers.
pub struct Done {
    /// Ok if all bytes were transferred.
    pub result: Result<()>,
    /// The buffer of a read.
    pub buffer: Option<Buf>,
    /// The slices of a write (an empty vector otherwise), so that the allocation can be used again.
    pub slices: Vec<Slice>,
    /// Nanoseconds for which the transfer was held back from the device.
    pub held_ns: u64,
    /// The time at which the core learnt of its end; 0 if that is not known.
    pub ended: Stamp,
}

/// The shared half of a transfer: the performer of the I/O fills it and calls `finish`.
pub struct Slot {
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    request: Option<Request>,
    done: Option<Done>,
    waker: Option<Waker>,
    held_ns: u64,
    purpose: Purpose,
}

impl Slot {
    /// Runs `with` on the request, which stays in the slot while the device works on it.
    pub fn with_request<R>(&self, with: impl FnOnce(&mut Request) -> R) -> R {
        self.with_purpose(|request, _| with(request))
    }
    /// Runs `with` on the request, as `with_request` does, and on its purpose.
    pub fn with_purpose<R>(&self, with: impl FnOnce(&mut Request, Purpose) -> R) -> R {
        let mut state = self.state.lock().expect("no panic while held");
        let purpose = state.purpose;
        with(state.request.as_mut().expect("a submitted slot holds its request"), purpose)
    }
    /// Notes for how many nanoseconds the transfer was held back before the device saw it.
    pub fn held_for(&self, ns: u64) {
        self.state.lock().expect("no panic while held").held_ns = ns;
    }
    /// Ends the transfer: takes the buffers out of the request and wakes the future.
    pub fn finish(&self, result: Result<()>) {
        self.finish_at(result, Stamp(0));
    }
    /// Ends the transfer as `finish`, of whose end the core has learnt at `ended`.
    pub fn finish_at(&self, result: Result<()>, ended: Stamp) {
        let mut state = self.state.lock().expect("no panic while held");
        let request = state.request.take().expect("a transfer ends once");
        let (buffer, slices) = match request {
            Request::Read { buffer, .. } => (Some(buffer), Vec::new()),
            Request::Write { slices, .. } => (None, slices),
            Request::Flush { .. } => (None, Vec::new()),
        };
        let held_ns = std::mem::take(&mut state.held_ns);
        state.done = Some(Done { result, buffer, slices, held_ns, ended });
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// Recycles slots; one per core, so its mutex is uncontended.
#[derive(Default)]
pub struct SlotPool {
    free: Mutex<Vec<Arc<Slot>>>,
}

impl SlotPool {
    /// An empty pool.
    pub fn new() -> Arc<SlotPool> {
        Arc::new(SlotPool::default())
    }
    /// A slot that holds `request`, and the future that waits for it.
    pub fn start(self: &Arc<SlotPool>, purpose: Purpose, request: Request) -> (Arc<Slot>, Transfer) {
        let recycled = self.free.lock().expect("no panic while held").pop();
        let slot = recycled.unwrap_or_else(|| Arc::new(Slot { state: Mutex::default() }));
        let mut state = slot.state.lock().expect("no panic while held");
        (state.request, state.purpose) = (Some(request), purpose);
        drop(state);
        (slot.clone(), Transfer { slot, pool: self.clone() })
    }
}

/// The future of one I/O. Dropping it does not stop the I/O; the slot keeps the buffers until the I/O ends.
pub struct Transfer {
    slot: Arc<Slot>,
    pool: Arc<SlotPool>,
}

impl Future for Transfer {
    type Output = Done;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        let mut state = self.slot.state.lock().expect("no panic while held");
        match state.done.take() {
            Some(done) => Poll::Ready(done),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let idle = {
            let mut state = self.slot.state.lock().expect("no panic while held");
            state.waker = None;
            state.request.is_none() && state.done.is_none()
        };
        // The performer drops its handle right after `finish`. A slot whose performer still holds it is not recycled,
        // but freed.
        if (idle && Arc::strong_count(&self.slot) == 1) || active(Bug::SlotFreedEarly) {
            self.pool.free.lock().expect("no panic while held").push(self.slot.clone());
        }
    }
}
