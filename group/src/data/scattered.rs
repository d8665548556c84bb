//! Large reads whose blocks were found in many pieces: a flash device reads them at its rate of small reads, a fifth of
//! that of large ones. Their blocks are offered to `agents::defragment`, which writes them anew in one piece.

use base::limits::BLOCK_BYTES;
use base::{Ino, Life, Place, VolumeId};
use runtime::{Event, Lock, Slice};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smallest read that tells of a reader in order: what the kernel reads ahead.
const BLOCKS_MIN: u32 = ((128 << 10) / BLOCK_BYTES) as u32;

/// Mean piece below which the device's rate of small reads is the bound, not that of bytes: a flash device reads about
/// 40 pieces in the time of one MiB.
const PIECE_BLOCKS_MAX: u32 = ((32 << 10) / BLOCK_BYTES) as u32;

/// Reads kept for the task; each keeps up to 1 MiB of buffers from other use. What comes when there are so many is left
/// for the next reader.
const READS_MAX: usize = 16;

/// One block of a scattered read.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// The block's number in the read, from 0.
    pub at: u32,
    pub place: Place,
    pub crc: u32,
    /// The life of the segment of `place`.
    pub life: Life,
}

/// A read that found its blocks scattered.
pub(crate) struct Scattered {
    pub volume: VolumeId,
    pub ino: Ino,
    /// The file's block at which the read began.
    pub first: u64,
    /// The blocks that lie on the device, in order.
    pub pieces: Vec<Piece>,
    /// Their bytes, one after the other. A copy: while the task has the memory that the client lent, the client has no answer.
    pub blocks: Slice,
}

/// The reads whose blocks wait to be put together, and how many blocks may be.
pub(crate) struct Reads {
    waiting: Lock<VecDeque<Scattered>>,
    /// Notified when a read has come.
    pub came: Event,
    /// Blocks put together since start.
    moved: AtomicU64,
}

/// True if a read of `blocks` blocks in `pieces` pieces is worth putting together.
pub(crate) fn is_scattered(blocks: u32, pieces: usize) -> bool {
    blocks >= BLOCKS_MIN && pieces as u64 * u64::from(PIECE_BLOCKS_MAX) >= u64::from(blocks)
}

impl Reads {
    pub fn new() -> Reads {
        Reads { waiting: Lock::new("scattered", VecDeque::new()), came: Event::new(), moved: AtomicU64::new(0) }
    }
    /// True if a read that is offered now is dropped.
    pub fn is_full(&self) -> bool {
        self.waiting.lock().len() >= READS_MAX
    }
    /// Offers a read; drops it if many wait already.
    pub fn offer(&self, read: Scattered) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < READS_MAX {
            waiting.push_back(read);
            drop(waiting);
            self.came.notify();
        }
    }
    /// Takes the read that has waited longest.
    pub fn take(&self) -> Option<Scattered> {
        self.waiting.lock().pop_front()
    }
    /// Drops all that wait.
    pub fn clear(&self) {
        self.waiting.lock().clear();
    }
    /// Notes that blocks were put together.
    pub fn note_moved(&self, blocks: u64) {
        self.moved.fetch_add(blocks, Ordering::Relaxed);
    }
    /// Blocks put together since start.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}
