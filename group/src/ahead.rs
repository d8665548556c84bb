//! Small files are opened to be read: the device begins with an opened one while its client still asks for it.
//!
//! Whether they are is a guess from what clients did lately, and no promise depends on it: what was read ahead counts only
//! for the very blocks that the file has when it is read, with their checksums. At most 32 files of 128 KiB are kept.

use base::limits::BULK_BYTES_MIN;
use base::{Ino, Place, VolumeId};
use runtime::{Lock, Transfer};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Larger files may be opened for any part of them.
pub(crate) const FILE_BYTES_MAX: u64 = BULK_BYTES_MIN as u64;
/// As many reads as keep a flash device busy; more opens are soon followed by their reads.
const READS_MAX: usize = 32;
/// Opened files that are remembered; more share a slot, and one of them is forgotten.
const FILES: usize = 256;
/// An opened file that was read, all of it at once, counts for one, one that was not against so many: a read in vain costs
/// the device and a core as much as five that are awaited save their clients.
const IN_VAIN: u32 = 5;
/// From here on files are read ahead.
const ENOUGH: u32 = 16;
/// More is not counted, so that a change of habits shows after a few files.
const MOST: u32 = 32;

/// What was opened lately, and what is read of it.
pub(crate) struct Ahead {
    opened: [AtomicU64; FILES],
    score: AtomicU32,
    /// Reads that are kept: spares readers the lock.
    count: AtomicUsize,
    reads: Lock<VecDeque<Read>>,
}

/// A file's blocks on their way.
pub(crate) struct Read {
    pub volume: VolumeId,
    pub ino: Ino,
    pub place: Place,
    pub blocks: u32,
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
    /// A client opens a file. True if it will probably be read, all of it at once.
    pub fn opened(&self, ino: Ino) -> bool {
        self.slot(ino).store(ino.0, Ordering::Relaxed);
        self.score.load(Ordering::Relaxed) >= ENOUGH
    }
    /// Keeps what an opened file's client will want.
    pub fn keep(&self, read: Read) {
        let mut reads = self.reads.lock();
        if reads.len() == READS_MAX {
            reads.pop_front();
        }
        reads.push_back(read);
        self.count.store(reads.len(), Ordering::Relaxed);
    }
    /// A client reads all of a file: what is on its way.
    pub fn take(&self, volume: VolumeId, ino: Ino) -> Option<Read> {
        if self.forget(ino) {
            let score = self.score.load(Ordering::Relaxed);
            self.score.store((score + 1).min(MOST), Ordering::Relaxed);
        }
        self.take_read(volume, ino)
    }
    /// A client closes a file.
    pub fn closed(&self, volume: VolumeId, ino: Ino) {
        if self.forget(ino) {
            let score = self.score.load(Ordering::Relaxed);
            self.score.store(score.saturating_sub(IN_VAIN), Ordering::Relaxed);
        }
        drop(self.take_read(volume, ino));
    }
    /// True if it was opened, and neither read nor closed since.
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
        // The low bits name the group, of which files of one directory have the same.
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
