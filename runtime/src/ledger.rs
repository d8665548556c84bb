//! The ledger of where requests spend their time. Each request carries a span; at its end, the core that served the
//! request adds the span to the core's own histograms and history. No cache line is shared on the way (mission G3, N1;
//! decision D6).

use crate::OBSERVED;
use crate::histogram::{Cells, Summary};
use crate::real::Stamps;
use crate::stamp::{Lapse, Stamp, Unit};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Named places where a request spends time; every nanosecond of it belongs to exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Parsing the request, and time that no other stage claims.
    Front,
    /// Passing the stack of layers.
    Layers,
    /// Waiting for admission: bytes ordered but not yet written are bounded.
    Admit,
    /// Waiting for an overlapping range of the same file.
    Range,
    /// Evaluation, ordering and insertion into the overlay, under the group's lock.
    Order,
    /// Reading the index after a miss.
    Index,
    /// Waiting in the log until the batch is formed and submitted; for a read, waiting under the concurrency limit of
    /// the device.
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

/// Number of stages; 0 in a build without observation, where neither spans nor ledgers hold times.
const STAGES: usize = if OBSERVED { Stage::ALL.len() } else { 0 };

/// The time at which a request arrived (on /dev/fuse: at which reading it began), and how many threads have handed it
/// on since. It stands for the request's `Span` until that is made, since it takes an eighth of a span's memory.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    at: Stamp,
    hops: u32,
}

impl Arrival {
    /// An arrival at `now`.
    pub fn at(now: Stamp) -> Arrival {
        Arrival { at: now, hops: 0 }
    }
    /// Notes that another thread takes the request over.
    pub fn hopped(self) -> Arrival {
        Arrival { hops: self.hops + 1, ..self }
    }
}

/// A bit beyond those of the stages: the request has changed threads.
const HOPPED: u64 = 1 << 63;

/// The times of one request, in the ledger's unit; lives in the task that serves it.
#[derive(Clone, Debug)]
pub struct Span {
    start: Stamp,
    last: Cell<Stamp>,
    stages: [Cell<u64>; STAGES],
    /// A bit for each stage that took any time, since most requests go through few; and `HOPPED`.
    met: Cell<u64>,
    hops: Cell<u32>,
}

impl Span {
    /// Starts the clock at `now`.
    #[inline]
    pub fn start(now: Stamp) -> Span {
        Span { start: now, last: Cell::new(now), stages: Default::default(), met: Cell::new(0), hops: Cell::new(0) }
    }
    /// A span that starts at the request's arrival and includes the thread changes since then.
    #[inline]
    pub fn of(arrival: Arrival) -> Span {
        let span = Span::start(arrival.at);
        if arrival.hops > 0 {
            span.hop_times(arrival.hops);
        }
        span
    }
    /// Books all time since the last mark on `stage`.
    #[inline]
    pub fn mark(&self, stage: Stage, now: Stamp) {
        if !OBSERVED {
            return;
        }
        let last = self.last.get();
        if now > last {
            self.last.set(now);
            self.add(stage, now.since(last).0);
        }
    }
    /// Books the time since the last mark on the phases of a commit. The leader's times for write and flush are known;
    /// `Queue` gets the rest (decision D3: a follower's ledger is complete).
    pub fn mark_commit(&self, write: Lapse, flush: Lapse, now: Stamp) {
        if !OBSERVED {
            return;
        }
        let spent = now.since(self.last.get()).0;
        let flush = flush.0.min(spent);
        let write = write.0.min(spent - flush);
        self.add(Stage::Flush, flush);
        self.add(Stage::Write, write);
        self.add(Stage::Queue, spent - flush - write);
        self.last.set(Stamp(self.last.get().0 + spent));
    }
    /// Books `held`, the first part of the time since the last mark, on `Queue`: for that time a transfer was held back
    /// from the device, which happens to few.
    #[cold]
    pub fn mark_held(&self, held: Lapse, now: Stamp) {
        self.mark(Stage::Queue, Stamp(self.last.get().0.saturating_add(held.0)).min(now));
    }
    #[inline]
    fn add(&self, stage: Stage, spent: u64) {
        if spent > 0 {
            let cell = &self.stages[stage as usize];
            cell.set(cell.get() + spent);
            self.met.set(self.met.get() | 1 << stage as u64);
        }
    }
    /// Takes over the times of a copy of this span, on which the request went on.
    pub fn take_over(&self, copy: &Span) {
        self.last.set(copy.last.get());
        self.stages.iter().zip(&copy.stages).for_each(|(own, other)| own.set(other.get()));
        self.met.set(copy.met.get());
        self.hops.set(copy.hops.get());
    }
    /// Notes that another thread does a part of the request, or takes it over.
    pub fn hop(&self) {
        self.hop_times(1);
    }
    fn hop_times(&self, times: u32) {
        self.hops.set(self.hops.get() + times);
        self.met.set(self.met.get() | HOPPED);
    }
}

/// The number of an operation's row: the position of its name in the list given to `Ledger::new`.
pub type OpRow = usize;

/// The ledgers of all cores; cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    /// True if there are `stamps`. Read for every timestamp, so it lies where no indirection is needed.
    counts_ticks: bool,
    shared: Arc<Shared>,
}

struct Shared {
    names: &'static [&'static str],
    /// The reader of the processor's ticks, if the ledger counts those. None: it counts nanoseconds of the clock.
    stamps: Option<Arc<Stamps>>,
    cores: Box<[CoreLedger]>,
}

struct CoreLedger {
    /// Rows by operation. An operation that never runs takes no memory: a row has 53 KiB, and most ledgers see few
    /// operations.
    rows: Box<[OnceLock<Box<Row>>]>,
    history: Box<[HistorySlot; HISTORY]>,
    recorded: AtomicU64,
}

#[derive(Default)]
struct Row {
    total: Cells,
    stages: [Cells; STAGES],
    hops: AtomicU64,
}

impl Row {
    #[cold]
    fn hopped(&self, hops: u32) {
        self.hops.store(self.hops.load(Ordering::Relaxed) + u64::from(hops), Ordering::Relaxed);
    }
}

/// Number of operations in the history of each core (mission G3: as many as in the history that cost Gluster 15,000
/// IOPS).
const HISTORY: usize = 1024;

#[derive(Default)]
struct HistorySlot {
    row: AtomicU64,
    end: AtomicU64,
    total: AtomicU64,
}

fn history() -> Box<[HistorySlot; HISTORY]> {
    let slots: Box<[HistorySlot]> = (0..HISTORY).map(|_| HistorySlot::default()).collect();
    slots.try_into().ok().expect("there are as many")
}

impl Ledger {
    /// Ledgers for `cores` cores, in nanoseconds; `names` lists the operations.
    pub fn new(cores: usize, names: &'static [&'static str]) -> Ledger {
        Ledger::with(cores, names, None)
    }
    /// Ledgers in ticks as `stamps` reads them, if it trusts the counter; else in nanoseconds.
    pub fn in_ticks(cores: usize, names: &'static [&'static str], stamps: Arc<Stamps>) -> Ledger {
        Ledger::with(cores, names, Some(stamps).filter(|stamps| stamps.are_trusted()))
    }
    fn with(cores: usize, names: &'static [&'static str], stamps: Option<Arc<Stamps>>) -> Ledger {
        let core = || CoreLedger {
            rows: names.iter().map(|_| OnceLock::new()).collect(),
            history: history(),
            recorded: AtomicU64::new(0),
        };
        let counts_ticks = stamps.is_some();
        let cores = (0..cores).map(|_| core()).collect();
        Ledger { counts_ticks, shared: Arc::new(Shared { names, stamps, cores }) }
    }
    /// True if the ledger's timestamps are the processor's ticks.
    #[inline]
    pub(crate) fn counts_ticks(&self) -> bool {
        self.counts_ticks
    }
    fn unit(&self) -> Unit {
        self.shared.stamps.as_ref().map_or(Unit::NS, |stamps| stamps.unit())
    }
    /// Converts nanoseconds to the ledger's unit.
    pub fn lapse(&self, ns: u64) -> Lapse {
        Lapse(self.unit().count(ns))
    }
    /// The row of an operation's name.
    pub fn row(&self, name: &str) -> OpRow {
        self.shared.names.iter().position(|&known| known == name).expect("every operation has a row")
    }
    /// Ends a span at `now`; only to be called by the thread of core `core`.
    #[inline]
    pub fn record(&self, core: usize, row: OpRow, span: &Span, now: Stamp) {
        if !OBSERVED {
            return;
        }
        span.mark(Stage::Reply, now);
        let ledger = &self.shared.cores[core];
        let figures = ledger.rows[row].get_or_init(Box::default);
        let end = span.last.get();
        let total = end.0 - span.start.0;
        figures.total.record(total);
        let mut met = span.met.get();
        while met != 0 {
            let stage = met.trailing_zeros() as usize;
            let Some(spent) = span.stages.get(stage) else {
                figures.hopped(span.hops.get());
                break;
            };
            figures.stages[stage].record(spent.get());
            met &= met - 1;
        }
        let recorded = ledger.recorded.load(Ordering::Relaxed);
        let slot = &ledger.history[recorded as usize % HISTORY];
        slot.row.store(row as u64, Ordering::Relaxed);
        slot.end.store(end.0, Ordering::Relaxed);
        slot.total.store(total, Ordering::Relaxed);
        ledger.recorded.store(recorded + 1, Ordering::Release);
    }
    /// Number of all requests so far, and the nanoseconds that they took together. The nanoseconds may fall a little
    /// when the length of a tick becomes known better. Cheap enough for many calls per second.
    pub fn totals(&self) -> (u64, u64) {
        let count = self.shared.cores.iter().map(|core| core.recorded.load(Ordering::Acquire)).sum();
        let sum = self
            .shared
            .cores
            .iter()
            .flat_map(|core| &core.rows)
            .filter_map(OnceLock::get)
            .map(|row| row.total.sum())
            .sum();
        (count, self.unit().ns(sum))
    }
    /// The figures of all operations so far, over all cores, without operations that never ran.
    pub fn profile(&self) -> Vec<OpProfile> {
        let unit = self.unit();
        let rows = self.shared.names.iter().enumerate().map(|(row, &name)| {
            let mut profile = OpProfile { name, total: Summary::of(unit), stages: Vec::new(), hops: 0 };
            let mut stages = vec![Summary::of(unit); STAGES];
            for row in self.shared.cores.iter().filter_map(|core| core.rows[row].get()) {
                row.total.add_to(&mut profile.total);
                for (cells, summary) in row.stages.iter().zip(&mut stages) {
                    cells.add_to(summary);
                }
                profile.hops += row.hops.load(Ordering::Relaxed);
            }
            let named = Stage::ALL.into_iter().zip(stages);
            profile.stages = named.filter(|(_, summary)| summary.count() > 0).collect();
            profile
        });
        rows.filter(|profile| profile.total.count() > 0).collect()
    }
    /// The last operations of every core, oldest first: name, end on the monotonic clock, duration (nanoseconds).
    pub fn history(&self) -> Vec<(&'static str, u64, u64)> {
        let unit = self.unit();
        let at_ns = |end| self.shared.stamps.as_ref().map_or(end, |stamps| stamps.ns_at(end));
        let mut all = Vec::new();
        for core in &self.shared.cores {
            let recorded = core.recorded.load(Ordering::Acquire) as usize;
            for slot in &core.history[..recorded.min(HISTORY)] {
                let name = self.shared.names[slot.row.load(Ordering::Relaxed) as usize];
                let (end, total) = (slot.end.load(Ordering::Relaxed), slot.total.load(Ordering::Relaxed));
                all.push((name, at_ns(end), unit.ns(total)));
            }
        }
        all.sort_by_key(|&(_, end_ns, _)| end_ns);
        all
    }
}

/// The figures of one operation.
pub struct OpProfile {
    /// The operation.
    pub name: &'static str,
    /// Durations of whole requests.
    pub total: Summary,
    /// Durations of stages that took any time.
    pub stages: Vec<(Stage, Summary)>,
    /// Number of changes of thread, over all requests.
    pub hops: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stages of the ledger's only operation: which, how often, how long.
    fn told(ledger: &Ledger) -> Vec<(Stage, u64, u64)> {
        let stages = ledger.profile().remove(0).stages;
        stages.iter().map(|(stage, summary)| (*stage, summary.count(), summary.sum_ns())).collect()
    }

    #[test]
    fn every_nanosecond_belongs_to_one_stage() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(Stamp(100));
        span.mark(Stage::Front, Stamp(150));
        span.mark_commit(Lapse(300), Lapse(200), Stamp(1150));
        ledger.record(0, 0, &span, Stamp(1200));
        let sum: u64 = told(&ledger).iter().map(|&(_, _, sum)| sum).sum();
        assert_eq!(sum, ledger.profile()[0].total.sum_ns());
        let of = |wanted| told(&ledger).iter().find(|(stage, ..)| *stage == wanted).map(|&(_, _, sum)| sum);
        assert_eq!((of(Stage::Write), of(Stage::Flush), of(Stage::Queue)), (Some(300), Some(200), Some(500)));
        assert_eq!(ledger.history(), [("write", 1200, 1100)]);
        assert_eq!(ledger.totals(), (1, 1100));
    }

    #[test]
    fn a_span_goes_on_where_its_copy_has_ended() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(Stamp(100));
        span.mark(Stage::Front, Stamp(110));
        let copy = span.clone();
        copy.mark(Stage::Order, Stamp(130));
        copy.hop();
        span.take_over(&copy);
        span.mark(Stage::Read, Stamp(170));
        ledger.record(0, 0, &span, Stamp(170));
        assert_eq!(told(&ledger), [(Stage::Front, 1, 10), (Stage::Order, 1, 20), (Stage::Read, 1, 40)]);
        assert_eq!(ledger.profile()[0].hops, 1);
    }

    #[test]
    fn a_stage_counts_once_for_a_request_and_not_at_all_without_time() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(Stamp(100));
        for (stage, now) in [(Stage::Front, 110), (Stage::Order, 130), (Stage::Front, 160), (Stage::Range, 160)] {
            span.mark(stage, Stamp(now));
        }
        span.mark_commit(Lapse(10), Lapse(0), Stamp(170));
        ledger.record(0, 0, &span, Stamp(170));
        assert_eq!(told(&ledger), [(Stage::Front, 1, 40), (Stage::Order, 1, 20), (Stage::Write, 1, 10)]);
    }

    #[test]
    fn time_that_goes_back_between_processors_is_nobodys() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(Stamp(100));
        span.mark(Stage::Front, Stamp(150));
        span.mark(Stage::Order, Stamp(120));
        span.mark_commit(Lapse(40), Lapse(0), Stamp(130));
        ledger.record(0, 0, &span, Stamp(140));
        assert_eq!(told(&ledger), [(Stage::Front, 1, 50)]);
        assert_eq!(ledger.history(), [("write", 150, 50)]);
    }

    #[test]
    fn a_read_that_was_held_back_tells_so() {
        let ledger = Ledger::new(1, &["read"]);
        for (held_ns, end) in [(0, 200), (30, 200), (500, 150)] {
            let span = Span::start(Stamp(100));
            if held_ns > 0 {
                span.mark_held(ledger.lapse(held_ns), Stamp(end));
            }
            span.mark(Stage::Read, Stamp(end));
            ledger.record(0, 0, &span, Stamp(end));
        }
        assert_eq!(told(&ledger), [(Stage::Queue, 2, 30 + 50), (Stage::Read, 2, 100 + 70)]);
    }

    #[test]
    fn what_was_counted_in_ticks_is_told_in_nanoseconds() {
        // Four ticks are a nanosecond; tick 1000 was at 50 ns.
        let ledger = Ledger::in_ticks(2, &["read", "write"], Arc::new(Stamps::of(1000, 50, 1 << 30)));
        for (core, ticks) in [(0, 400), (1, 800)] {
            let span = Span::of(Arrival::at(Stamp(2000)).hopped());
            span.mark(Stage::Order, Stamp(2040));
            span.mark_held(ledger.lapse(20), Stamp(2000 + ticks));
            span.mark(Stage::Read, Stamp(2000 + ticks));
            span.hop();
            ledger.record(core, 1, &span, Stamp(2000 + ticks));
        }
        assert_eq!(told(&ledger), [(Stage::Order, 2, 20), (Stage::Queue, 2, 40), (Stage::Read, 2, 70 + 170)]);
        assert_eq!(ledger.history(), [("write", 400, 100), ("write", 500, 200)]);
        assert_eq!(ledger.totals(), (2, 300));
        let profile = ledger.profile().remove(0);
        assert_eq!((profile.name, profile.hops), ("write", 4));
        let total = profile.total;
        assert_eq!((total.mean_ns(), total.max_ns(), total.sum_ns()), (150, 200, 300));
        assert!((88..=100).contains(&total.min_ns()), "{}", total.min_ns());
        assert!((100..=112).contains(&total.quantile_ns(0.5)), "{}", total.quantile_ns(0.5));
    }

    #[test]
    fn an_operation_that_never_ran_takes_no_memory() {
        let ledger = Ledger::new(2, &["read", "write"]);
        let used = || ledger.shared.cores.iter().flat_map(|core| &core.rows).filter_map(OnceLock::get).count();
        assert_eq!((used(), ledger.totals(), ledger.profile().len()), (0, (0, 0), 0));
        ledger.record(1, 1, &Span::start(Stamp(0)), Stamp(7));
        assert_eq!((used(), ledger.totals(), ledger.profile()[0].name), (1, (1, 7), "write"));
    }

    #[test]
    fn ticks_that_are_not_trusted_are_not_counted() {
        let ledger = Ledger::in_ticks(1, &["read"], Arc::new(Stamps::default()));
        assert!(!ledger.counts_ticks());
        assert_eq!(ledger.lapse(7), Lapse(7));
    }
}
