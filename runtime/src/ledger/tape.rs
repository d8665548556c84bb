//! Tapes: while somebody records, each core puts every request's words and times on a ring of its own, and whoever records takes
//! them off.
//!
//! Promises: a core never waits for who takes: what finds no room is dropped and counted. One thread puts, one takes; neither
//! holds a lock, and none allocates. What the words mean is known to those who put and take them.

use super::{Span, Stage};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of words of a request, besides its times.
pub const TAPED_WORDS: usize = 9;
/// Words of a slot: these, and beginning, end, and the parts of device and reply.
const SLOT_WORDS: usize = TAPED_WORDS + 4;
/// Number of requests that a tape holds: those of a tenth of a second of the busiest core, several times what comes between two
/// looks, in 1.5 MiB.
const SLOTS: usize = 1 << 14;

type Slot = [AtomicU64; SLOT_WORDS];

/// The stages of a request in which a device works for it.
const AT_DEVICE: [Stage; 3] = [Stage::Write, Stage::Flush, Stage::Read];

/// A request on a tape, in the ledger's unit of time.
#[derive(Clone, Copy)]
pub(super) struct OnTape {
    pub start: u64,
    pub end: u64,
    pub device: u64,
    pub reply: u64,
    pub words: [u64; TAPED_WORDS],
}

/// One core's tape.
#[derive(Default)]
struct Tape {
    /// Made when somebody records for the first time.
    slots: OnceLock<Box<[Slot]>>,
    put: AtomicU64,
    taken: AtomicU64,
    dropped: AtomicU64,
}

impl Tape {
    fn put(&self, words: [u64; SLOT_WORDS]) {
        let put = self.put.load(Ordering::Relaxed);
        let has_room = put - self.taken.load(Ordering::Acquire) < SLOTS as u64;
        let Some(slots) = self.slots.get().filter(|_| has_room) else {
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return;
        };
        let slot = &slots[put as usize % SLOTS];
        slot.iter().zip(words).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
        self.put.store(put + 1, Ordering::Release);
    }
    fn take(&self, into: &mut Vec<OnTape>) {
        let Some(slots) = self.slots.get() else { return };
        let put = self.put.load(Ordering::Acquire);
        let taken = self.taken.load(Ordering::Relaxed);
        into.extend((taken..put).map(|number| {
            let slot = &slots[number as usize % SLOTS];
            let word = |at: usize| slot[at].load(Ordering::Relaxed);
            let words = std::array::from_fn(|at| word(4 + at));
            OnTape { start: word(0), end: word(1), device: word(2), reply: word(3), words }
        }));
        self.taken.store(put, Ordering::Release);
    }
}

/// The tapes of all cores.
pub(super) struct Tapes {
    running: AtomicBool,
    key: [AtomicU64; 2],
    cores: Box<[Tape]>,
}

impl Tapes {
    pub fn new(cores: usize) -> Tapes {
        let cores = (0..cores).map(|_| Tape::default()).collect();
        Tapes { running: AtomicBool::new(false), key: Default::default(), cores }
    }
    /// The key of who records now; None: nobody does.
    #[inline]
    pub fn key(&self) -> Option<[u64; 2]> {
        // The key was stored before.
        self.running.load(Ordering::Acquire).then(|| self.key.each_ref().map(|half| half.load(Ordering::Relaxed)))
    }
    pub fn put(&self, core: usize, span: &Span, words: &[u64; TAPED_WORDS]) {
        let spent = |stage: Stage| span.stages.get(stage as usize).map_or(0, Cell::get);
        let device = AT_DEVICE.into_iter().map(spent).sum();
        let mut slot = [0; SLOT_WORDS];
        slot[..4].copy_from_slice(&[span.start.0, span.last.get().0, device, spent(Stage::Reply)]);
        slot[4..].copy_from_slice(words);
        self.cores[core].put(slot);
    }
    /// Begins with empty tapes.
    pub fn start(&self, key: [u64; 2]) {
        for tape in &self.cores {
            tape.slots.get_or_init(|| (0..SLOTS).map(|_| Slot::default()).collect());
        }
        drop(self.take());
        self.key.iter().zip(key).for_each(|(half, new)| half.store(new, Ordering::Relaxed));
        self.running.store(true, Ordering::Release);
    }
    /// Ends, and forgets the key.
    pub fn stop(&self) {
        self.running.store(false, Ordering::Relaxed);
        self.key.iter().for_each(|half| half.store(0, Ordering::Relaxed));
    }
    /// All that has come since this was called last. To be called by one thread at a time.
    pub fn take(&self) -> Vec<OnTape> {
        let mut all = Vec::new();
        self.cores.iter().for_each(|tape| tape.take(&mut all));
        all
    }
    /// Number of requests that were dropped, ever.
    pub fn dropped(&self) -> u64 {
        self.cores.iter().map(|tape| tape.dropped.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    fn put(tapes: &Tapes, number: u64) {
        let span = Span::start(Stamp(number));
        span.mark(Stage::Read, Stamp(number + 2));
        span.mark(Stage::Reply, Stamp(number + 5));
        tapes.put(0, &span, &[number; TAPED_WORDS]);
    }

    #[test]
    fn what_was_put_is_taken_once_with_its_times() {
        let tapes = Tapes::new(2);
        assert_eq!(tapes.key(), None);
        tapes.start([1, 2]);
        assert_eq!(tapes.key(), Some([1, 2]));
        put(&tapes, 7);
        let taken = tapes.take();
        assert_eq!(taken.len(), 1);
        let OnTape { start, end, device, reply, words } = taken[0];
        assert_eq!((start, end, device, reply, words), (7, 12, 2, 3, [7; TAPED_WORDS]));
        assert!(tapes.take().is_empty());
        tapes.stop();
        assert_eq!(tapes.key(), None);
    }

    #[test]
    fn who_does_not_take_loses_the_last_ones_and_is_told() {
        let tapes = Tapes::new(1);
        tapes.start([0; 2]);
        (0..SLOTS as u64 + 3).for_each(|number| put(&tapes, number));
        assert_eq!(tapes.dropped(), 3);
        let taken = tapes.take();
        assert_eq!((taken.len(), taken[SLOTS - 1].start), (SLOTS, SLOTS as u64 - 1));
        put(&tapes, 9);
        assert_eq!((tapes.take().len(), tapes.dropped()), (1, 3));
        // Requests left on the tapes don't belong to the next recording.
        put(&tapes, 9);
        tapes.start([0; 2]);
        assert!(tapes.take().is_empty());
    }

    #[test]
    fn a_taker_beside_the_core_misses_nothing_and_sees_no_mixture() {
        let tapes = Tapes::new(1);
        tapes.start([0; 2]);
        std::thread::scope(|scope| {
            let putting = scope.spawn(|| (0..300_000).for_each(|number| put(&tapes, number)));
            let (mut taken, mut before) = (0, None);
            while !putting.is_finished() || tapes.put_count() > taken {
                for one in tapes.take() {
                    assert_eq!((one.end, one.words), (one.start + 5, [one.start; TAPED_WORDS]));
                    assert!(before < Some(one.start), "in order");
                    before = Some(one.start);
                    taken += 1;
                }
            }
            assert_eq!(taken + tapes.dropped(), 300_000);
        });
    }

    impl Tapes {
        fn put_count(&self) -> u64 {
            self.cores[0].put.load(Ordering::Relaxed)
        }
    }
}
