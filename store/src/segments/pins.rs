//! Readers in flight (rule K8): a freed segment is not written again before everybody who looked up a place in it has
//! read it. Readers count themselves on their core, in one of two phases; whoever frees ends a phase and waits until
//! its count is zero. (The scheme is that of sleepable read-copy-update.)

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Two cache lines, because processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Count([AtomicU64; 2]);

/// Counts of readers; see the module.
pub struct Pins {
    cores: Vec<Count>,
    phase: AtomicUsize,
}

/// A reader: taken before it looks up where to read, dropped when it has read.
pub struct Pin<'a> {
    count: &'a AtomicU64,
}

impl Pins {
    /// Nobody reads.
    pub fn new(cores: usize) -> Pins {
        Pins { cores: (0..cores).map(|_| Count::default()).collect(), phase: AtomicUsize::new(0) }
    }
    /// A reader on `core` begins.
    pub fn pin(&self, core: usize) -> Pin<'_> {
        let phase = self.phase.load(Ordering::Acquire);
        let count = &self.cores[core].0[phase % 2];
        // The look-up that follows takes a lock, which orders it after this.
        count.fetch_add(1, Ordering::AcqRel);
        Pin { count }
    }
    /// True if no reader of the phase before the present one is left.
    pub fn ended(&self) -> bool {
        let before = (self.phase.load(Ordering::Acquire) + 1) % 2;
        self.cores.iter().all(|core| core.0[before].load(Ordering::Acquire) == 0)
    }
    /// Ends the present phase; only when the one before it has `ended`.
    pub fn end_phase(&self) {
        self.phase.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
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
