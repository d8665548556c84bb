//! Where the microseconds went: each request carries a span; at its end the core that served it adds the span to
//! its own histograms and history. No cache line is shared on the way (mission G3, N1; decision D6).

use crate::OBSERVED;
use crate::clock::Clock;
use crate::histogram::{Histogram, Summary};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Named places where a request spends time; every nanosecond of it belongs to exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Parsing the request, and whatever no other stage claims.
    Front,
    /// Passing the layers above the router.
    Layers,
    /// Waiting for admission: bytes ordered but not yet written are bounded.
    Admit,
    /// Waiting for an overlapping range of the same file.
    Range,
    /// Evaluate, order and overlay insert, under the group's lock.
    Order,
    /// Reading the index after a miss.
    Index,
    /// Waiting in the log for the batch to be formed and submitted; of a read, until the device needs it.
    Queue,
    /// The batch's device write.
    Write,
    /// The device flush.
    Flush,
    /// Reading data from the device.
    Read,
    /// Computing and comparing checksums.
    Verify,
    /// Handing the reply to the client.
    Reply,
}

impl Stage {
    /// All stages, in the order in which a request meets them.
    pub const ALL: [Stage; 12] = [
        Stage::Front,
        Stage::Layers,
        Stage::Admit,
        Stage::Range,
        Stage::Order,
        Stage::Index,
        Stage::Queue,
        Stage::Write,
        Stage::Flush,
        Stage::Read,
        Stage::Verify,
        Stage::Reply,
    ];
    /// The stage's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Front => "front",
            Stage::Layers => "layers",
            Stage::Admit => "admit",
            Stage::Range => "range",
            Stage::Order => "order",
            Stage::Index => "index",
            Stage::Queue => "queue",
            Stage::Write => "write",
            Stage::Flush => "flush",
            Stage::Read => "read",
            Stage::Verify => "verify",
            Stage::Reply => "reply",
        }
    }
}

/// None in a build without observation: neither spans nor ledgers hold times there.
const STAGES: usize = if OBSERVED { Stage::ALL.len() } else { 0 };

/// The times of one request; lives in the task that serves it.
#[derive(Debug)]
pub struct Span {
    start_ns: u64,
    last_ns: Cell<u64>,
    stages_ns: [Cell<u64>; STAGES],
    hops: Cell<u32>,
}

impl Span {
    /// Starts the clock at `now_ns`.
    pub fn start(now_ns: u64) -> Span {
        Span { start_ns: now_ns, last_ns: Cell::new(now_ns), stages_ns: Default::default(), hops: Cell::new(0) }
    }
    /// All time since the last mark went to `stage`.
    #[inline]
    pub fn mark(&self, stage: Stage, now_ns: u64) {
        if !OBSERVED {
            return;
        }
        let spent = now_ns.saturating_sub(self.last_ns.get());
        self.add(stage, spent);
        self.last_ns.set(self.last_ns.get() + spent);
    }
    /// Of the time since the last mark, the leader's phases are known: they get their part, `Queue` the rest
    /// (decision D3: a follower's ledger is complete).
    pub fn mark_commit(&self, write_ns: u64, flush_ns: u64, now_ns: u64) {
        if !OBSERVED {
            return;
        }
        let spent = now_ns.saturating_sub(self.last_ns.get());
        let flush = flush_ns.min(spent);
        let write = write_ns.min(spent - flush);
        self.add(Stage::Flush, flush);
        self.add(Stage::Write, write);
        self.add(Stage::Queue, spent - flush - write);
        self.last_ns.set(self.last_ns.get() + spent);
    }
    /// The time since the last mark went to a device read; before the device saw it, it was held back for `held_ns`.
    pub fn mark_read(&self, held_ns: u64, now_ns: u64) {
        if held_ns > 0 {
            self.mark(Stage::Queue, self.last_ns.get().saturating_add(held_ns).min(now_ns));
        }
        self.mark(Stage::Read, now_ns);
    }
    fn add(&self, stage: Stage, ns: u64) {
        let cell = &self.stages_ns[stage as usize];
        cell.set(cell.get() + ns);
    }
    /// Another thread does a part of the request, or goes on with it.
    pub fn hop(&self) {
        self.hops.set(self.hops.get() + 1);
    }
}

/// Operations that are told apart: one row per name, in the order of first use by `Ledger::new`.
pub type OpRow = usize;

/// The ledgers of all cores.
pub struct Ledger {
    names: &'static [&'static str],
    cores: Vec<CoreLedger>,
}

struct CoreLedger {
    rows: Vec<Row>,
    history: Box<[HistorySlot]>,
    recorded: AtomicU64,
}

struct Row {
    total: Histogram,
    stages: [Histogram; STAGES],
    hops: AtomicU64,
}

/// Operations remembered per core (mission G3: the same length as the history that cost Gluster 15,000 IOPS).
const HISTORY: usize = 1024;

#[derive(Default)]
struct HistorySlot {
    row: AtomicU64,
    end_ns: AtomicU64,
    total_ns: AtomicU64,
}

impl Ledger {
    /// Ledgers for `cores` cores; `names` lists the operations.
    pub fn new(cores: usize, names: &'static [&'static str]) -> Ledger {
        let row = || Row { total: Histogram::default(), stages: Default::default(), hops: AtomicU64::new(0) };
        let core = || CoreLedger {
            rows: names.iter().map(|_| row()).collect(),
            history: (0..HISTORY).map(|_| HistorySlot::default()).collect(),
            recorded: AtomicU64::new(0),
        };
        Ledger { names, cores: (0..cores).map(|_| core()).collect() }
    }
    /// The row of an operation's name.
    pub fn row(&self, name: &str) -> OpRow {
        self.names.iter().position(|&known| known == name).expect("every operation has a row")
    }
    /// Ends a span: to be called on core `core`, by its own thread only.
    pub fn record(&self, core: usize, row: OpRow, span: &Span, clock: &dyn Clock) {
        if !OBSERVED {
            return;
        }
        let now_ns = clock.stamp_ns();
        span.mark(Stage::Reply, now_ns);
        let ledger = &self.cores[core];
        let figures = &ledger.rows[row];
        let total_ns = now_ns.saturating_sub(span.start_ns);
        figures.total.record(total_ns);
        for (histogram, ns) in figures.stages.iter().zip(&span.stages_ns) {
            if ns.get() > 0 {
                histogram.record(ns.get());
            }
        }
        if span.hops.get() > 0 {
            let hops = figures.hops.load(Ordering::Relaxed) + u64::from(span.hops.get());
            figures.hops.store(hops, Ordering::Relaxed);
        }
        let recorded = ledger.recorded.load(Ordering::Relaxed);
        let slot = &ledger.history[recorded as usize % HISTORY];
        slot.row.store(row as u64, Ordering::Relaxed);
        slot.end_ns.store(now_ns, Ordering::Relaxed);
        slot.total_ns.store(total_ns, Ordering::Relaxed);
        ledger.recorded.store(recorded + 1, Ordering::Release);
    }
    /// All requests so far: how many, and the nanoseconds that they took together. Cheap enough for many times a second.
    pub fn totals(&self) -> (u64, u64) {
        let totals = self.cores.iter().flat_map(|core| {
            let recorded = core.recorded.load(Ordering::Acquire);
            let sums = core.rows.iter().map(|row| row.total.sum_ns());
            std::iter::once((recorded, 0)).chain(sums.map(|sum| (0, sum)))
        });
        totals.fold((0, 0), |(count, sum), (more, ns)| (count + more, sum + ns))
    }
    /// Everything so far, over all cores; operations that never ran are left out.
    pub fn profile(&self) -> Vec<OpProfile> {
        let rows = self.names.iter().enumerate().map(|(row, &name)| {
            let mut profile = OpProfile { name, total: Summary::default(), stages: Vec::new(), hops: 0 };
            let mut stages = vec![Summary::default(); STAGES];
            for core in &self.cores {
                core.rows[row].total.add_to(&mut profile.total);
                for (stage, summary) in stages.iter_mut().enumerate() {
                    core.rows[row].stages[stage].add_to(summary);
                }
                profile.hops += core.rows[row].hops.load(Ordering::Relaxed);
            }
            let named = Stage::ALL.into_iter().zip(stages);
            profile.stages = named.filter(|(_, summary)| summary.count() > 0).collect();
            profile
        });
        rows.filter(|profile| profile.total.count() > 0).collect()
    }
    /// The last operations of every core, oldest first: name, end on the monotonic clock, duration (nanoseconds).
    pub fn history(&self) -> Vec<(&'static str, u64, u64)> {
        let mut all = Vec::new();
        for core in &self.cores {
            let recorded = core.recorded.load(Ordering::Acquire) as usize;
            for slot in &core.history[..recorded.min(HISTORY)] {
                let name = self.names[slot.row.load(Ordering::Relaxed) as usize];
                all.push((name, slot.end_ns.load(Ordering::Relaxed), slot.total_ns.load(Ordering::Relaxed)));
            }
        }
        all.sort_by_key(|&(_, end_ns, _)| end_ns);
        all
    }
}

/// One operation's figures.
pub struct OpProfile {
    /// The operation.
    pub name: &'static str,
    /// Whole requests.
    pub total: Summary,
    /// Stages that took any time.
    pub stages: Vec<(Stage, Summary)>,
    /// Changes of thread, over all requests.
    pub hops: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noop::StillClock;

    #[test]
    fn every_nanosecond_belongs_to_one_stage() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(100);
        span.mark(Stage::Front, 150);
        span.mark_commit(300, 200, 1150);
        ledger.record(0, 0, &span, &StillClock(1200));
        let profile = ledger.profile();
        let sum: u64 = profile[0].stages.iter().map(|(_, summary)| summary.sum_ns()).sum();
        assert_eq!(sum, profile[0].total.sum_ns());
        let of = |wanted| profile[0].stages.iter().find(|(stage, _)| *stage == wanted).map(|(_, s)| s.sum_ns());
        assert_eq!((of(Stage::Write), of(Stage::Flush), of(Stage::Queue)), (Some(300), Some(200), Some(500)));
        assert_eq!(ledger.history(), [("write", 1200, 1100)]);
        assert_eq!(ledger.totals(), (1, 1100));
    }

    #[test]
    fn a_stage_counts_once_for_a_request_and_not_at_all_without_time() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(100);
        for (stage, now_ns) in [(Stage::Front, 110), (Stage::Order, 130), (Stage::Front, 160), (Stage::Range, 160)] {
            span.mark(stage, now_ns);
        }
        span.mark_commit(10, 0, 170);
        ledger.record(0, 0, &span, &StillClock(170));
        let profile = ledger.profile();
        let told = |(stage, summary): &(Stage, Summary)| (*stage, summary.count(), summary.sum_ns());
        let stages: Vec<_> = profile[0].stages.iter().map(told).collect();
        assert_eq!(stages, [(Stage::Front, 1, 40), (Stage::Order, 1, 20), (Stage::Write, 1, 10)]);
    }

    #[test]
    fn a_read_that_was_held_back_tells_so() {
        let ledger = Ledger::new(1, &["read"]);
        for (held_ns, end_ns) in [(0, 200), (30, 200), (500, 150)] {
            let span = Span::start(100);
            span.mark_read(held_ns, end_ns);
            ledger.record(0, 0, &span, &StillClock(end_ns));
        }
        let profile = ledger.profile();
        let sums: Vec<_> = profile[0].stages.iter().map(|(stage, summary)| (*stage, summary.sum_ns())).collect();
        assert_eq!(sums, [(Stage::Queue, 30 + 50), (Stage::Read, 100 + 70)]);
    }
}
