//! The files of which the kernel may have pages: those that were read or written through its page cache lately.
//!
//! Promises: a file of which anything went through the page cache within the last minute is among them. Other files may
//! be among them too, since files share bits; such a false positive costs a notice. Before a write that bypasses the
//! page cache, the kernel itself forgets its pages of the range, so only pages that are read while the write is under
//! way can be stale. A minute is longer than any such request waits in the kernel. Byte ranges and request numbers of
//! the last requests through the page cache are kept as well: a page that the kernel asked for well before a bypassing
//! write was locked when that write began, so the kernel has forgotten the page since.

use base::Ino;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Bits of a set, a power of two. The sets of a mount take 24 KiB.
const BITS: usize = 1 << 16;

/// Shortest time for which a file stays in the set.
const KEPT_NS: u64 = 60_000_000_000;

/// Number of requests through the page cache that each core remembers.
const LAST_COUNT: usize = 256;

/// Uncertainty of the order of request numbers. The kernel forgets pages first, and then numbers the write that
/// bypasses them. Numbers ascend in steps of two, so this allows for 64 other requests in between, which take at least
/// 64 microseconds.
const UNSURE: u64 = 2 * 64;

/// Sets of files, as bits.
pub struct Recent {
    /// The sets of the current period and of the one before; `current` says which is which.
    periods: [Set; 2],
    current: AtomicUsize,
    begun_ns: AtomicU64,
    /// True if the kernel does not forget pages before a write that bypasses them: then no file leaves the set either.
    forever: bool,
    /// Files that were read through the page cache since the mount began: their pages may be mapped.
    read: Set,
    /// The last requests through the page cache, by core.
    last: Box<[Mutex<Last>]>,
}

/// Bytes that went through the page cache, and the number of their request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    pub ino: Ino,
    pub first: u64,
    pub end: u64,
    pub unique: u64,
}

/// A ring of requests: the youngest lies before `next`.
struct Last {
    passed: Box<[Passed; LAST_COUNT]>,
    next: usize,
}

impl Last {
    fn new() -> Last {
        Last { passed: Box::new([Passed { ino: Ino(0), first: 0, end: 0, unique: 0 }; LAST_COUNT]), next: 0 }
    }
    /// True if some of the bytes may have gone through the page cache after the request `unique` began, or if that was
    /// too long ago to know.
    fn may_overtake(&self, ino: Ino, bytes: &Range<u64>, unique: u64) -> bool {
        let is_late = |passed: &Passed| passed.unique + UNSURE > unique;
        is_late(&self.passed[self.next])
            || self.passed.iter().any(|passed| {
                passed.ino == ino && passed.first < bytes.end && bytes.start < passed.end && is_late(passed)
            })
    }
}

struct Set(Box<[AtomicU64]>);

impl Set {
    fn new() -> Set {
        Set((0..BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
    fn place(&self, ino: Ino) -> (&AtomicU64, u64) {
        // The upper bits of the product depend on all bits of the number.
        let bit = (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS.trailing_zeros())) as usize;
        (&self.0[bit / 64], 1 << (bit % 64))
    }
    fn has(&self, ino: Ino) -> bool {
        let (word, bit) = self.place(ino);
        word.load(Ordering::Acquire) & bit != 0
    }
    fn add(&self, ino: Ino) {
        let (word, bit) = self.place(ino);
        // Read first: if the bit is set already, the cache line is not taken exclusively.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }
    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Recent {
    /// An empty set. `forever`: files are never removed.
    pub fn new(cores: usize, forever: bool, now_ns: u64) -> Recent {
        Recent {
            periods: [Set::new(), Set::new()],
            current: AtomicUsize::new(0),
            begun_ns: AtomicU64::new(now_ns),
            forever,
            read: Set::new(),
            last: (0..cores).map(|_| Mutex::new(Last::new())).collect(),
        }
    }
    fn last(&self, core: usize) -> MutexGuard<'_, Last> {
        self.last[core].lock().expect("no panic while held")
    }
    /// Notes that bytes of a file are about to go through the page cache, on a core.
    pub fn cached(&self, core: usize, passed: Passed) {
        self.periods[self.current.load(Ordering::Acquire)].add(passed.ino);
        let mut last = self.last(core);
        let next = last.next;
        last.passed[next] = passed;
        last.next = (next + 1) % LAST_COUNT;
    }
    /// Notes that the file is about to be read through the page cache.
    pub fn read(&self, core: usize, passed: Passed) {
        self.cached(core, passed);
        self.read.add(passed.ino);
    }
    /// False if none of these bytes went through the page cache since the write `unique`, which bypasses it, began.
    pub fn may_overtake(&self, ino: Ino, bytes: Range<u64>, unique: u64) -> bool {
        self.forever || (0..self.last.len()).any(|core| self.last(core).may_overtake(ino, &bytes, unique))
    }
    /// False if no page of the file can be mapped.
    pub fn may_be_mapped(&self, ino: Ino) -> bool {
        self.read.has(ino)
    }
    /// False if nothing of the file went through the page cache lately.
    pub fn may_have_pages(&self, ino: Ino, now_ns: impl FnOnce() -> u64) -> bool {
        if !self.periods.iter().any(|period| period.has(ino)) {
            return false;
        }
        self.turn(now_ns());
        true
    }
    /// Begins another period if the present one is over.
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

    fn passed(ino: Ino, unique: u64) -> Passed {
        Passed { ino, first: 4096, end: 8192, unique }
    }

    #[test]
    fn what_passed_beside_a_write_is_known() {
        let recent = Recent::new(2, false, 0);
        let (file, begun) = (Ino(5 << 20), 10_000);
        let may = |bytes| recent.may_overtake(file, bytes, begun);
        recent.cached(0, passed(file, begun - UNSURE));
        recent.read(1, passed(Ino(6 << 20), begun + 2));
        assert!(!may(0..1 << 20), "long before it, and another file");
        recent.read(1, passed(file, begun + 2 - UNSURE));
        assert!(may(0..4097) && may(8191..8192) && !may(0..4096) && !may(8192..9000));
        assert!(!recent.may_overtake(file, 4096..8192, begun + 2), "before a later one");
        (0..LAST_COUNT as u64).for_each(|number| recent.cached(0, passed(Ino(7 << 20), begun + 2 * number)));
        assert!(may(0..4096), "nobody knows what passed before these");
    }

    #[test]
    fn files_are_kept_in_mind_for_a_minute_at_least_and_not_for_ever() {
        let recent = Recent::new(1, false, 0);
        let (file, other) = (Ino(5 << 20), Ino(6 << 20));
        assert!(!recent.may_have_pages(file, || unreachable!("costs no look at the clock")));
        recent.cached(0, passed(file, 2));
        assert!(!recent.may_have_pages(other, || 0));
        assert!(recent.may_have_pages(file, || KEPT_NS - 1));
        recent.cached(0, passed(other, 2));
        assert!(recent.may_have_pages(file, || KEPT_NS), "the period is over with this");
        recent.cached(0, passed(other, 2));
        assert!(recent.may_have_pages(file, || 2 * KEPT_NS - 1));
        assert!(recent.may_have_pages(file, || 2 * KEPT_NS));
        assert!(!recent.may_have_pages(file, || 2 * KEPT_NS));
        assert!(recent.may_have_pages(other, || 2 * KEPT_NS), "seen in the period before");
        assert!(!recent.may_be_mapped(file), "it was not read");
    }

    #[test]
    fn nothing_is_forgotten_where_the_kernel_forgets_nothing() {
        let recent = Recent::new(1, true, 0);
        recent.read(0, passed(Ino(7), 2));
        assert!((1..9).all(|minute| recent.may_have_pages(Ino(7), || minute * KEPT_NS)));
        assert!(recent.may_be_mapped(Ino(7)) && recent.may_overtake(Ino(7), 0..1, u64::MAX));
    }
}
