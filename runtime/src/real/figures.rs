//! What a core has done and what the device took, counted by the core itself without a shared cache line; read by
//! anyone (decision D6).

use super::cores::Cores;
use super::pool::PoolSummary;
use super::stamps::Stamps;
use crate::OBSERVED;
use crate::histogram::{Histogram, Summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One run of a task in this many is timed: two clock reads each time would cost more than short runs do.
const RUN_SAMPLE: u64 = 64;

/// Which kind of I/O.
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
    /// Of a core whose times come from `stamps`.
    pub fn new(stamps: Arc<Stamps>) -> Figures {
        Figures { stamps, ..Figures::default() }
    }
    /// The time for what is timed here.
    pub fn stamp_ns(&self) -> u64 {
        if OBSERVED { self.stamps.now_ns() } else { 0 }
    }
    /// The time for decisions, which a build without observation makes too.
    pub fn control_ns(&self) -> u64 {
        self.stamps.now_ns()
    }
    /// A turn began.
    pub fn turn(&self) {
        bump(&self.turns);
    }
    /// The core goes to sleep, for this time since its start.
    pub fn sleep(&self) -> u64 {
        bump(&self.sleeps)
    }
    /// How many turns it took.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
    /// A task runs; true if it is to be timed.
    pub fn run(&self) -> bool {
        OBSERVED && bump(&self.runs).is_multiple_of(RUN_SAMPLE)
    }
    /// A timed run ended.
    pub fn ran_since(&self, start_ns: u64) {
        self.run.record(self.stamp_ns().saturating_sub(start_ns));
    }
    /// An I/O succeeded after this time.
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

/// What one core has done so far.
#[derive(Clone)]
pub struct CoreSummary {
    /// Rounds of the reactor.
    pub turns: u64,
    /// How often it had nothing to do.
    pub sleeps: u64,
    /// Runs of tasks.
    pub runs: u64,
    /// How long a task kept the core (a sample).
    pub run: Summary,
    /// Device reads, from submission to completion.
    pub read: Summary,
    /// Device writes.
    pub write: Summary,
    /// Device flushes.
    pub flush: Summary,
}

/// Reads the figures of a running or stopped world; cheap to clone.
#[derive(Clone)]
pub struct Probe(pub(super) Arc<Cores>);

impl Probe {
    /// Every core's figures.
    pub fn cores(&self) -> Vec<CoreSummary> {
        self.0.world.figures.iter().map(|figures| figures.summary()).collect()
    }
    /// The blocking pool's figures.
    pub fn pool(&self) -> PoolSummary {
        self.0.pool.summary()
    }
}
