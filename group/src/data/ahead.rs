//! Prefetch for small files: the device begins to read a file when a client opens it, before the client asks for its
//! bytes.
//!
//! Prefetching is a guess that the client will read the whole file with its first read. A score switches it on and off:
//! it rises if one read (of at most 1 MiB) asks for all of a file that was opened, and falls if the file is closed
//! without such a read. Files of all sizes count. Correctness never depends on the guess: a prefetched read is used
//! only if its place still is the place of the file's blocks when the client reads, and its checksums are verified
//! then. At most 32 reads of at most 128 KiB each are kept.

use base::limits::{BULK_BYTES_MIN, IO_BYTES_MAX};
use base::{Ino, Place, VolumeId};
use runtime::{Lock, Transfer};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Largest file that is prefetched. A larger file may be opened for any part of it.
pub(crate) const FILE_BYTES_MAX: u64 = BULK_BYTES_MIN as u64;
const _: () = assert!(FILE_BYTES_MAX as usize <= IO_BYTES_MAX);
/// Largest number of prefetched reads kept: enough to keep a flash device busy. A file's read usually follows its open
/// soon, so the oldest one is dropped if there are more.
const READS_MAX: usize = 32;
/// Number of slots for files that were opened, and neither read by one whole read nor closed since. Files whose numbers
/// fall into the same slot displace each other.
const FILES: usize = 256;
/// The score rises by 1 for a file that one read asks for as a whole, and falls by this for a file that is closed
/// without such a read: a wasted prefetch costs the device and a core about five times what a useful one saves the
/// client.
const IN_VAIN: u32 = 5;
/// Files are prefetched while the score is at least this.
const ENOUGH: u32 = 16;
/// Highest score: bounded, so that a change of the clients' habits shows after a few files.
const MOST: u32 = 32;
const _: () = assert!(IN_VAIN < ENOUGH && ENOUGH <= MOST);

/// The files that were opened lately, their score, and the reads that were begun for them.
pub(crate) struct Ahead {
    opened: [AtomicU64; FILES],
    score: AtomicU32,
    /// Number of `reads`: a reader that finds 0 need not take the lock.
    count: AtomicUsize,
    reads: Lock<VecDeque<Read>>,
}

/// A prefetched read of a file's blocks, under way or done.
pub(crate) struct Read {
    pub volume: VolumeId,
    pub ino: Ino,
    pub place: Place,
    pub blocks: u32,
    /// The place where they are read: theirs, or that of a copy of them.
    pub at: Place,
    pub transfer: Transfer,
}

impl Ahead {
    pub fn new() -> Ahead {
        Ahead {
            opened: [const { AtomicU64::new(0) }; FILES],
            score: AtomicU32::new(0),
            count: AtomicUsize::new(0),
            reads: Lock::new("ahead", VecDeque::with_capacity(READS_MAX)),
        }
    }
    /// Notes that a client opens a file, of any size. True if small files should be prefetched now.
    pub fn opened(&self, ino: Ino) -> bool {
        self.slot(ino).store(ino.0, Ordering::Relaxed);
        self.score.load(Ordering::Relaxed) >= ENOUGH
    }
    /// Keeps a prefetched read for the client that opened the file; drops the oldest if there are too many.
    pub fn keep(&self, read: Read) {
        let mut reads = self.reads.lock();
        if reads.len() == READS_MAX {
            reads.pop_front();
        }
        reads.push_back(read);
        assert!(reads.len() <= READS_MAX, "{} reads are kept", reads.len());
        self.count.store(reads.len(), Ordering::Relaxed);
    }
    /// Notes that one read of a client asks for a whole file. Raises the score if this is the first such read since the
    /// open, and hands over the file's prefetched read, if any.
    pub fn take(&self, volume: VolumeId, ino: Ino) -> Option<Read> {
        if self.forget(ino) {
            let score = self.score.load(Ordering::Relaxed);
            self.score.store((score + 1).min(MOST), Ordering::Relaxed);
        }
        self.take_read(volume, ino)
    }
    /// Notes that a client closes a file. Lowers the score if no read asked for all of the file since its open, and
    /// drops the file's prefetched read.
    pub fn closed(&self, volume: VolumeId, ino: Ino) {
        if self.forget(ino) {
            let score = self.score.load(Ordering::Relaxed);
            self.score.store(score.saturating_sub(IN_VAIN), Ordering::Relaxed);
        }
        drop(self.take_read(volume, ino));
    }
    /// Clears the file's slot. True if the file was opened, and neither read by one whole read nor closed since.
    fn forget(&self, ino: Ino) -> bool {
        let slot = self.slot(ino);
        let is_there = slot.load(Ordering::Relaxed) == ino.0;
        if is_there {
            slot.store(0, Ordering::Relaxed);
        }
        is_there
    }
    fn take_read(&self, volume: VolumeId, ino: Ino) -> Option<Read> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut reads = self.reads.lock();
        let at = reads.iter().position(|read| (read.volume, read.ino) == (volume, ino))?;
        let read = reads.remove(at);
        self.count.store(reads.len(), Ordering::Relaxed);
        read
    }
    fn slot(&self, ino: Ino) -> &AtomicU64 {
        // The low bits name the group, which is the same for files of one directory: the sequence number is mixed in.
        &self.opened[(ino.0 ^ ino.0 >> 20) as usize % FILES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::GroupId;

    #[test]
    fn files_are_read_ahead_while_most_that_are_opened_are_read() {
        let (ahead, volume) = (Ahead::new(), VolumeId(1));
        let ino = |number| Ino::new(number, GroupId(3));
        // Opens one after the other: how many of them would be read ahead.
        let open = |files: std::ops::Range<u64>, read: fn(u64) -> bool| {
            let mut count = 0;
            for number in files {
                count += usize::from(ahead.opened(ino(number)));
                if read(number) {
                    assert!(ahead.take(volume, ino(number)).is_none(), "nothing was kept");
                }
                ahead.closed(volume, ino(number));
            }
            count
        };
        assert_eq!(open(1..17, |_| true), 0, "that may be chance");
        assert_eq!(open(17..100, |_| true), 83);
        assert_eq!(open(100..200, |number| number % 10 != 0), 100, "one in ten does not matter");
        assert!(open(200..300, |_| false) <= 4, "they are cached elsewhere, or written");
        assert_eq!(open(300..400, |number| number % 2 == 0), 0);
        assert!(open(400..500, |_| true) >= 80);
    }
}
