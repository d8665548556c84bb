//! Readers in flight (rule K8): a freed segment is not written again before every reader that looked up a place in it
//! has ended. The scheme is that of sleepable read-copy-update (SRCU): readers count themselves on their core, in one
//! of two epochs ("phases"). Freeing ends a phase and waits until the count of its readers is zero.

use base::seeded::{Bug, active};
use runtime::sync::{AtomicU64, AtomicUsize};
use std::sync::atomic::Ordering;

/// A core's counts of readers, by phase. Aligned to two cache lines, because processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Count([AtomicU64; 2]);

/// Counts of readers; see the module.
pub struct Pins {
    cores: Vec<Count>,
    phase: AtomicUsize,
}

/// A reader's pin: taken before the reader looks up a place, dropped when it has read there.
pub struct Pin<'a> {
    count: &'a AtomicU64,
}

impl Pins {
    /// Counts for `cores` cores, without readers.
    pub fn new(cores: usize) -> Pins {
        Pins { cores: (0..cores).map(|_| Count::default()).collect(), phase: AtomicUsize::new(0) }
    }
    /// Counts a reader that begins on `core`.
    pub fn pin(&self, core: usize) -> Pin<'_> {
        let phase = self.phase.load(Ordering::Acquire);
        let count = &self.cores[core].0[phase % 2];
        // The look-up that follows takes a lock, so it comes after this count.
        count.fetch_add(1, Ordering::AcqRel);
        Pin { count }
    }
    /// True if no reader of the phase before the present one is left.
    fn ended(&self) -> bool {
        let before = (self.phase.load(Ordering::Acquire) + 1) % 2;
        self.cores.iter().all(|core| core.0[before].load(Ordering::Acquire) == 0)
    }
    /// Ends the present phase. Only to be called when the phase before it has `ended`.
    fn end_phase(&self) {
        self.phase.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a reader is counted before it ends");
    }
}

/// Places that were freed and may still be read: `since` the phase began, or `waiting` for the readers of the phase
/// before. Guarded by one lock. A place is added only after no new reader can look it up.
pub struct Leaving<T> {
    since: Vec<T>,
    waiting: Vec<T>,
}

impl<T> Default for Leaving<T> {
    fn default() -> Leaving<T> {
        Leaving { since: Vec::new(), waiting: Vec::new() }
    }
}

impl<T> Leaving<T> {
    /// Adds places that were freed.
    pub fn extend(&mut self, freed: impl IntoIterator<Item = T>) {
        self.since.extend(freed);
    }
    /// The number of places that may still be read.
    pub fn count(&self) -> usize {
        self.since.len() + self.waiting.len()
    }
    /// Takes out the places that have no readers any more.
    pub fn take_unread(&mut self, pins: &Pins) -> Vec<T> {
        let ended = || pins.ended() || active(Bug::PinIgnored);
        if !ended() {
            return Vec::new();
        }
        let unread = std::mem::take(&mut self.waiting);
        if self.since.is_empty() {
            return unread;
        }
        self.waiting = std::mem::take(&mut self.since);
        pins.end_phase();
        // Mostly no reader is left at this moment.
        let late = active(Bug::PinsReadEarly) || ended();
        let more = if late { std::mem::take(&mut self.waiting) } else { Vec::new() };
        unread.into_iter().chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_with_its_last_reader() {
        let pins = Pins::new(2);
        let (first, second) = (pins.pin(0), pins.pin(1));
        assert!(pins.ended());
        pins.end_phase();
        assert!(!pins.ended());
        let third = pins.pin(0);
        drop(first);
        assert!(!pins.ended());
        drop(second);
        assert!(pins.ended(), "the third reader came after the phase");
        pins.end_phase();
        assert!(!pins.ended());
        drop(third);
        assert!(pins.ended());
    }
}
