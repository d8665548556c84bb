//! Whose pages the kernel may have: files that were read or written through its page cache.
//!
//! Promise: a file of which something went through the page cache within the last minute is among them. Others may be:
//! files share bits, and being wrong that way costs a notice.
//! Before a write past the page cache, the kernel forgets the pages of its range by itself. What it has of them afterwards
//! came beside that write: hence a minute, which is more than a request ever waits in the kernel.

use base::Ino;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bits of a set; a power of two. The sets of a mount take 24 KiB.
const BITS: usize = 1 << 16;

/// How long files are kept in mind at least.
const KEPT_NS: u64 = 60_000_000_000;

/// Sets of files, by bits.
pub struct Recent {
    /// Of this period and of the one before; which is which, `current` tells.
    periods: [Set; 2],
    current: AtomicUsize,
    begun_ns: AtomicU64,
    /// The kernel does not forget pages before a write past them, so neither is anything forgotten here.
    forever: bool,
    /// Files that were read through the page cache since the mount began: their pages may be mapped.
    read: Set,
}

struct Set(Box<[AtomicU64]>);

impl Set {
    fn new() -> Set {
        Set((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
    fn place(&self, ino: Ino) -> (&AtomicU64, u64) {
        // By a multiplication whose upper bits depend on all of the number.
        let bit = (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS.trailing_zeros())) as usize;
        (&self.0[bit / 64], 1 << (bit % 64))
    }
    fn has(&self, ino: Ino) -> bool {
        let (word, bit) = self.place(ino);
        word.load(Ordering::Acquire) & bit != 0
    }
    fn add(&self, ino: Ino) {
        let (word, bit) = self.place(ino);
        // What is there already costs no exclusive line.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }
    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Recent {
    /// No file yet. `forever`: files stay.
    pub fn new(forever: bool, now_ns: u64) -> Recent {
        Recent {
            periods: [Set::new(), Set::new()],
            current: AtomicUsize::new(0),
            begun_ns: AtomicU64::new(now_ns),
            forever,
            read: Set::new(),
        }
    }
    /// Something of the file is about to go through the page cache.
    pub fn cached(&self, ino: Ino) {
        self.periods[self.current.load(Ordering::Acquire)].add(ino);
    }
    /// The file is about to be read through the page cache.
    pub fn read(&self, ino: Ino) {
        self.cached(ino);
        self.read.add(ino);
    }
    /// False if no page of the file can be mapped.
    pub fn may_be_mapped(&self, ino: Ino) -> bool {
        self.read.has(ino)
    }
    /// False if nothing of the file went through the page cache of late.
    pub fn may_have_pages(&self, ino: Ino, now_ns: impl FnOnce() -> u64) -> bool {
        if !self.periods.iter().any(|period| period.has(ino)) {
            return false;
        }
        self.turn(now_ns());
        true
    }
    /// Begins another period if this one is over.
    fn turn(&self, now_ns: u64) {
        let begun_ns = self.begun_ns.load(Ordering::Relaxed);
        if self.forever || now_ns.saturating_sub(begun_ns) < KEPT_NS {
            return;
        }
        let is_ours = self.begun_ns.compare_exchange(begun_ns, now_ns, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ours {
            let other = 1 - self.current.load(Ordering::Acquire);
            self.periods[other].clear();
            self.current.store(other, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_in_mind_for_a_minute_at_least_and_not_for_ever() {
        let recent = Recent::new(false, 0);
        let (file, other) = (Ino(5 << 20), Ino(6 << 20));
        assert!(!recent.may_have_pages(file, || unreachable!("costs no look at the clock")));
        recent.cached(file);
        assert!(!recent.may_have_pages(other, || 0));
        assert!(recent.may_have_pages(file, || KEPT_NS - 1));
        recent.cached(other);
        assert!(recent.may_have_pages(file, || KEPT_NS), "the period is over with this");
        recent.cached(other);
        assert!(recent.may_have_pages(file, || 2 * KEPT_NS - 1));
        assert!(recent.may_have_pages(file, || 2 * KEPT_NS));
        assert!(!recent.may_have_pages(file, || 2 * KEPT_NS));
        assert!(recent.may_have_pages(other, || 2 * KEPT_NS), "seen in the period before");
        assert!(!recent.may_be_mapped(file), "it was not read");
    }

    #[test]
    fn nothing_is_forgotten_where_the_kernel_forgets_nothing() {
        let recent = Recent::new(true, 0);
        recent.read(Ino(7));
        assert!((1..9).all(|minute| recent.may_have_pages(Ino(7), || minute * KEPT_NS)));
        assert!(recent.may_be_mapped(Ino(7)));
    }
}
