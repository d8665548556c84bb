//! Whole requests with the times of their stages: the last ones of each core, a sample of all, and the slowest of each
//! minute. One thread writes, anyone reads, without a lock.
//!
//! A slot is written between two changes of its number (a sequence lock, as in Lameter, "Effective synchronization on
//! Linux/NUMA systems", 2005): a reader that sees the number change has read a mixture, and drops it.

use super::span::STAGES;
use super::{OpRow, Span};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Mean number of requests for each one in the sample. The quantiles of a stage within ten seconds of a busy core then rest
/// on some thousand requests, and sampling one costs a request less than an instruction.
const SAMPLE: u64 = 64;
/// Number of requests in the sample of each core: those of a second of a busy core, far more than come between two looks.
const SAMPLES: usize = 1024;
/// Number of operations in the history of each core (mission G3: as many as in the history that cost Gluster 15,000
/// IOPS).
const HISTORY: usize = 1024;
/// Number of the slowest requests that are kept of each minute.
const SLOWEST: usize = 16;

/// The caller of a request, and its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// The inode; 0 if the request is about none.
    pub ino: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's thread, as this daemon sees it; 0 if it does not.
    pub thread: u32,
    /// The number that the kernel has given the request; 0 if it came in another way.
    pub request: u64,
}

/// A whole request, in the ledger's unit of time.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub row: OpRow,
    pub end: u64,
    pub total: u64,
    pub stages: [u64; STAGES],
    pub subject: Subject,
}

#[derive(Default)]
struct Slot {
    /// Odd while the slot is being written; 0: never written.
    number: AtomicU64,
    row: AtomicU64,
    end: AtomicU64,
    total: AtomicU64,
    ino: AtomicU64,
    /// The user in the upper half, the thread in the lower.
    caller: AtomicU64,
    request: AtomicU64,
    met: AtomicU64,
    stages: [AtomicU64; STAGES],
}

fn slots<const N: usize>() -> Box<[Slot; N]> {
    let slots: Box<[Slot]> = (0..N).map(|_| Slot::default()).collect();
    slots.try_into().ok().expect("there are as many")
}

impl Slot {
    fn write(&self, row: OpRow, span: &Span, subject: Subject) {
        let number = self.number.load(Ordering::Relaxed);
        self.number.store(number + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let end = span.last.get().0;
        self.row.store(row as u64, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.total.store(end - span.start.0, Ordering::Relaxed);
        self.ino.store(subject.ino, Ordering::Relaxed);
        self.caller.store(u64::from(subject.uid) << 32 | u64::from(subject.thread), Ordering::Relaxed);
        self.request.store(subject.request, Ordering::Relaxed);
        let mut met = span.met.get();
        self.met.store(met, Ordering::Relaxed);
        while met != 0 {
            let stage = met.trailing_zeros() as usize;
            let Some(spent) = span.stages.get(stage) else { break };
            self.stages[stage].store(spent.get(), Ordering::Relaxed);
            met &= met - 1;
        }
        self.number.store(number + 2, Ordering::Release);
    }
    /// The slot's request; None if there is none, or if it is just being changed.
    fn read(&self) -> Option<Whole> {
        let number = self.number.load(Ordering::Acquire);
        if number == 0 || !number.is_multiple_of(2) {
            return None;
        }
        let [row, end, total, ino, caller, request, met] =
            [&self.row, &self.end, &self.total, &self.ino, &self.caller, &self.request, &self.met]
                .map(|cell| cell.load(Ordering::Relaxed));
        let mut stages = [0; STAGES];
        for (stage, spent) in stages.iter_mut().enumerate().filter(|(stage, _)| met >> stage & 1 == 1) {
            *spent = self.stages[stage].load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let subject = Subject { ino, uid: (caller >> 32) as u32, thread: caller as u32, request };
        let whole = Whole { row: row as OpRow, end, total, stages, subject };
        (self.number.load(Ordering::Relaxed) == number).then_some(whole)
    }
}

/// The whole requests that one core keeps.
pub(super) struct KeptByCore {
    history: Box<[Slot; HISTORY]>,
    recorded: AtomicU64,
    samples: Box<[Slot; SAMPLES]>,
    sampled: AtomicU64,
    /// Number of requests until the next one of the sample.
    left: AtomicU64,
    /// The slowest of this minute and of the one before, by turns.
    slowest: [Box<[Slot; SLOWEST]>; 2],
    minute: AtomicU64,
    minute_end: AtomicU64,
    /// Number of slots of this minute that are taken.
    taken: AtomicU64,
    /// The least time of the slowest of this minute; 0 while there is room for more.
    least: AtomicU64,
}

impl Default for KeptByCore {
    fn default() -> KeptByCore {
        let zero = || AtomicU64::new(0);
        KeptByCore {
            history: slots(),
            recorded: zero(),
            samples: slots(),
            sampled: zero(),
            left: AtomicU64::new(1),
            slowest: [slots(), slots()],
            minute: zero(),
            minute_end: zero(),
            taken: zero(),
            least: zero(),
        }
    }
}

impl KeptByCore {
    /// Keeps a request that has ended. `minute`: the length of a minute in the ledger's unit.
    #[inline]
    pub fn keep(&self, row: OpRow, span: &Span, subject: Subject, minute: impl Fn() -> u64) {
        let recorded = self.recorded.load(Ordering::Relaxed);
        self.history[recorded as usize % HISTORY].write(row, span, subject);
        self.recorded.store(recorded + 1, Ordering::Release);
        let left = self.left.load(Ordering::Relaxed) - 1;
        self.left.store(left, Ordering::Relaxed);
        if left == 0 {
            self.sample(row, span, subject);
        }
        let end = span.last.get().0;
        if end >= self.minute_end.load(Ordering::Relaxed) {
            self.begin_minute(end + minute());
        }
        let total = end - span.start.0;
        if total > self.least.load(Ordering::Relaxed) {
            self.keep_slow(row, span, subject);
        }
    }
    #[cold]
    fn sample(&self, row: OpRow, span: &Span, subject: Subject) {
        let sampled = self.sampled.load(Ordering::Relaxed);
        // Gaps that follow no period of the load: a multiplicative hash of their number (Knuth, 6.4), on the mean `SAMPLE`.
        let gap = SAMPLE / 2 + (sampled.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % SAMPLE;
        self.left.store(gap, Ordering::Relaxed);
        self.samples[sampled as usize % SAMPLES].write(row, span, subject);
        self.sampled.store(sampled + 1, Ordering::Release);
    }
    #[cold]
    fn begin_minute(&self, minute_end: u64) {
        self.minute.store(self.minute.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.minute_end.store(minute_end, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.least.store(0, Ordering::Relaxed);
    }
    #[cold]
    fn keep_slow(&self, row: OpRow, span: &Span, subject: Subject) {
        let slots = &self.slowest[self.minute.load(Ordering::Relaxed) as usize % 2];
        let taken = self.taken.load(Ordering::Relaxed) as usize;
        let total = |slot: &Slot| slot.total.load(Ordering::Relaxed);
        if taken < SLOWEST {
            slots[taken].write(row, span, subject);
            self.taken.store(taken as u64 + 1, Ordering::Relaxed);
        } else if let Some(quickest) = slots.iter().min_by_key(|slot| total(slot)) {
            quickest.write(row, span, subject);
        }
        if taken + 1 >= SLOWEST {
            self.least.store(slots.iter().map(total).min().unwrap_or(0), Ordering::Relaxed);
        }
    }
    /// The last requests.
    pub fn history(&self) -> impl Iterator<Item = Whole> {
        self.history.iter().filter_map(Slot::read)
    }
    /// The requests of the sample from number `from` on, as far as they are still there, and the number of the next one.
    pub fn samples(&self, from: u64) -> (Vec<Whole>, u64) {
        let sampled = self.sampled.load(Ordering::Acquire);
        let first = from.max(sampled.saturating_sub(SAMPLES as u64));
        ((first..sampled).filter_map(|number| self.samples[number as usize % SAMPLES].read()).collect(), sampled)
    }
    /// The slowest requests of this minute and of the one before; of a core with few requests also older ones.
    pub fn slowest(&self) -> impl Iterator<Item = Whole> {
        let minute = self.minute.load(Ordering::Relaxed) as usize % 2;
        let taken = self.taken.load(Ordering::Relaxed) as usize;
        let before = self.slowest[1 - minute].iter();
        self.slowest[minute].iter().take(taken).chain(before).filter_map(Slot::read)
    }
}
