//! The figures of a core and of its I/O. The core counts them itself, without a shared cache line; anyone may read them
//! (decision D6).

use super::cores::Cores;
use super::pool::PoolSummary;
use super::stamps::Stamps;
use crate::OBSERVED;
use crate::histogram::{Histogram, Summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs of tasks per timed run: two clock reads each time would cost more than short runs do.
const RUN_SAMPLE: u64 = 64;

/// The kind of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Read,
    Write,
    Flush,
}

/// One core's figures; written by its thread only.
#[derive(Default)]
pub(super) struct Figures {
    turns: AtomicU64,
    sleeps: AtomicU64,
    runs: AtomicU64,
    run: Histogram,
    io: [Histogram; 3],
    stamps: Arc<Stamps>,
}

fn bump(cell: &AtomicU64) -> u64 {
    // One writer: a plain load and store instead of a locked add.
    let count = cell.load(Ordering::Relaxed) + 1;
    cell.store(count, Ordering::Relaxed);
    count
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
    /// Counts a turn of the reactor.
    pub fn turn(&self) {
        bump(&self.turns);
    }
    /// Counts a sleep of the core. Returns the number of sleeps since its start.
    pub fn sleep(&self) -> u64 {
        bump(&self.sleeps)
    }
    /// Number of turns so far.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
    /// Counts a run of a task. True if the run is to be timed.
    pub fn run(&self) -> bool {
        OBSERVED && bump(&self.runs).is_multiple_of(RUN_SAMPLE)
    }
    /// Records a timed run that has ended.
    pub fn ran_since(&self, start_ns: u64) {
        self.run.record(self.stamp_ns().saturating_sub(start_ns));
    }
    /// Records an I/O that succeeded, and its duration.
    pub fn io(&self, verb: Verb, took_ns: u64) {
        if OBSERVED {
            self.io[verb as usize].record(took_ns);
        }
    }
    fn summary(&self) -> CoreSummary {
        CoreSummary {
            turns: self.turns(),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            runs: self.runs.load(Ordering::Relaxed),
            run: self.run.summary(),
            read: self.io[Verb::Read as usize].summary(),
            write: self.io[Verb::Write as usize].summary(),
            flush: self.io[Verb::Flush as usize].summary(),
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
    /// The blocking pool's figures.
    pub fn pool(&self) -> PoolSummary {
        self.0.pool.summary()
    }
}
