//! The figures of a core and of its I/O. The core counts them itself, without a shared cache line; anyone may read them
//! (decision D6).

use super::cores::Cores;
use super::pool::PoolSummary;
use super::stamps::Stamps;
use crate::OBSERVED;
use crate::classes::{self, DEPTHS, SIZES};
use crate::histogram::{Histogram, Summary, bump};
use crate::stamp::Stamp;
use crate::transfer::Purpose;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Runs of tasks per timed run: two clock reads each time would cost more than short runs do.
const RUN_SAMPLE: u64 = 64;

/// The kind of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Reading.
    Read,
    /// Writing, durable or not.
    Write,
    /// Making what was written durable.
    Flush,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 3] = [Verb::Read, Verb::Write, Verb::Flush];
    /// The verb's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Flush => "flush",
        }
    }
}

const CLASSES: usize = Purpose::ALL.len() * Verb::ALL.len() * SIZES * DEPTHS;

/// A class of I/O: purpose, verb, size and depth. Times of different classes don't compare.
#[derive(Clone, Copy)]
pub(super) struct IoClass(usize);

impl IoClass {
    /// The class of a transfer of this many bytes, at depth 1.
    pub fn of(purpose: Purpose, verb: Verb, bytes: usize) -> IoClass {
        IoClass(((purpose as usize * Verb::ALL.len() + verb as usize) * SIZES + classes::size(bytes)) * DEPTHS)
    }
    /// The class, for a transfer that is one of `depth` of its core under way.
    pub fn at_depth(self, depth: usize) -> IoClass {
        IoClass(self.0 - self.0 % DEPTHS + classes::depth(depth))
    }
    fn parts(self) -> (Purpose, Verb, u64, u64) {
        let (rest, depth) = (self.0 / DEPTHS, self.0 % DEPTHS);
        let (rest, size) = (rest / SIZES, rest % SIZES);
        let (purpose, verb) = (rest / Verb::ALL.len(), rest % Verb::ALL.len());
        (Purpose::ALL[purpose], Verb::ALL[verb], classes::bytes_max(size), classes::depth_min(depth))
    }
}

/// The figures of one class.
#[derive(Default)]
struct ClassFigures {
    took: Histogram,
    bytes: AtomicU64,
}

struct Classes(Box<[OnceLock<Box<ClassFigures>>]>);

impl Default for Classes {
    fn default() -> Classes {
        Classes((0..CLASSES).map(|_| OnceLock::new()).collect())
    }
}

/// One core's figures; written by its thread only.
#[derive(Default)]
pub(super) struct Figures {
    turns: AtomicU64,
    sleeps: AtomicU64,
    runs: AtomicU64,
    run: Histogram,
    /// Figures of I/O by class; most classes never come and have none.
    io: Classes,
    stamps: Arc<Stamps>,
}

impl Figures {
    /// Figures of a core whose times come from `stamps`.
    pub fn new(stamps: Arc<Stamps>) -> Figures {
        Figures { stamps, ..Figures::default() }
    }
    /// The time for the statistics of this module.
    pub fn stamp_ns(&self) -> u64 {
        if OBSERVED { self.stamps.now_ns() } else { 0 }
    }
    /// The time for decisions, which a build without observation makes too.
    pub fn control_ns(&self) -> u64 {
        self.stamps.now_ns()
    }
    /// The time as the ledger counts it.
    pub fn stamp(&self) -> Stamp {
        if OBSERVED { self.stamps.stamp() } else { Stamp(0) }
    }
    /// The time as the ledger counts it, and in nanoseconds for decisions, by one reading.
    pub fn now(&self) -> (Stamp, u64) {
        self.stamps.now()
    }
    /// Counts a turn of the reactor.
    pub fn turn(&self) {
        bump(&self.turns, 1);
    }
    /// Counts a sleep of the core. Returns the number of sleeps since its start.
    pub fn sleep(&self) -> u64 {
        bump(&self.sleeps, 1)
    }
    /// Number of turns so far.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
    /// Counts a run of a task. True if the run is to be timed.
    pub fn run(&self) -> bool {
        OBSERVED && bump(&self.runs, 1).is_multiple_of(RUN_SAMPLE)
    }
    /// Records a timed run that has ended.
    pub fn ran_since(&self, start_ns: u64) {
        self.run.record(self.stamp_ns().saturating_sub(start_ns));
    }
    /// Records an I/O that succeeded, and its duration.
    pub fn io(&self, class: IoClass, bytes: usize, took_ns: u64) {
        if OBSERVED {
            let figures = self.io.0[class.0].get_or_init(Box::default);
            figures.took.record(took_ns);
            bump(&figures.bytes, bytes as u64);
        }
    }
    fn io_summaries(&self) -> impl Iterator<Item = (IoClass, &ClassFigures)> {
        let classes = self.io.0.iter().enumerate();
        classes.filter_map(|(class, figures)| Some((IoClass(class), &**figures.get()?)))
    }
    fn of_verb(&self, verb: Verb) -> Summary {
        let mut summary = Summary::default();
        let classes = self.io_summaries().filter(|(class, _)| class.parts().1 == verb);
        classes.for_each(|(_, figures)| figures.took.add_to(&mut summary));
        summary
    }
    fn summary(&self) -> CoreSummary {
        CoreSummary {
            turns: self.turns(),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            runs: self.runs.load(Ordering::Relaxed),
            run: self.run.summary(),
            read: self.of_verb(Verb::Read),
            write: self.of_verb(Verb::Write),
            flush: self.of_verb(Verb::Flush),
        }
    }
}

/// The figures of one core since its start.
#[derive(Clone)]
pub struct CoreSummary {
    /// Number of turns of the reactor.
    pub turns: u64,
    /// Number of times that it had nothing to do.
    pub sleeps: u64,
    /// Number of runs of tasks.
    pub runs: u64,
    /// Durations for which tasks kept the core (a sample).
    pub run: Summary,
    /// Durations of device reads, from submission to completion.
    pub read: Summary,
    /// Durations of device writes.
    pub write: Summary,
    /// Durations of device flushes.
    pub flush: Summary,
}

/// A reader of the figures of a running or stopped world; cheap to clone.
#[derive(Clone)]
pub struct Probe(pub(super) Arc<Cores>);

impl Probe {
    /// The figures of each core.
    pub fn cores(&self) -> Vec<CoreSummary> {
        self.0.world.figures.iter().map(|figures| figures.summary()).collect()
    }
    /// The figures of the pool for jobs that clients wait for.
    pub fn pool(&self) -> PoolSummary {
        self.0.pool.summary()
    }
    /// The figures of the pool for all other jobs.
    pub fn background(&self) -> PoolSummary {
        self.0.background.summary()
    }
    /// The figures of all classes of I/O that ever came, over all cores.
    pub fn io(&self) -> Vec<IoSummary> {
        let mut classes: BTreeMap<usize, (Summary, u64)> = BTreeMap::new();
        for (class, figures) in self.0.world.figures.iter().flat_map(|figures| figures.io_summaries()) {
            let (took, bytes) = classes.entry(class.0).or_default();
            figures.took.add_to(took);
            *bytes += figures.bytes.load(Ordering::Relaxed);
        }
        let told = |(class, (took, bytes))| {
            let (purpose, verb, bytes_max, depth) = IoClass(class).parts();
            IoSummary { purpose, verb, bytes_max, depth, took, bytes }
        };
        classes.into_iter().map(told).collect()
    }
}

/// The figures of a class of I/O since the start.
#[derive(Clone)]
pub struct IoSummary {
    /// The work that the transfers were a part of.
    pub purpose: Purpose,
    /// Reading, writing or flushing.
    pub verb: Verb,
    /// Largest size of the class in bytes, and more for the last one (1 MiB); each class has four times the size of the
    /// one before.
    pub bytes_max: u64,
    /// Least number of transfers of the core that were under way, itself included; twice that is the next class.
    pub depth: u64,
    /// Durations from the hand-over to the kernel until the core learnt of the end.
    pub took: Summary,
    /// Bytes transferred.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_know_their_parts() {
        for purpose in Purpose::ALL {
            for verb in Verb::ALL {
                for (bytes, bytes_max) in [(0, 4096), (4096, 4096), (8192, 16384), (65536, 65536), (1 << 20, 1 << 20)] {
                    for (depth, least) in [(1, 1), (3, 2), (31, 16), (1000, 32)] {
                        let class = IoClass::of(purpose, verb, bytes).at_depth(7).at_depth(depth);
                        assert_eq!(class.parts(), (purpose, verb, bytes_max, least));
                    }
                }
            }
        }
    }
}
