//! The ledger of where requests spend their time. Each request carries a span; at its end, the core that served the
//! request adds the span to the core's own histograms, and keeps some requests whole. No cache line is shared on the way
//! (mission G3, N1; decision D6).

mod kept;
mod rows;
mod span;
mod stage;
mod tape;

pub use kept::Subject;
pub use rows::Rows;
pub use span::{Arrival, Phases, Span};
pub use stage::Stage;
pub use tape::TAPED_WORDS;

use crate::OBSERVED;
use crate::histogram::{Cells, Summary, bump};
use crate::real::Stamps;
use crate::stamp::{Lapse, Stamp, Unit};
use base::Kind;
use base::ablated::{Ablation, OneMutex, is_on};
use span::STAGES;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Length of a minute, for which the slowest requests are kept.
const MINUTE_NS: u64 = 60_000_000_000;

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
    /// The mutex of a history that all cores share.
    history: OneMutex,
    tapes: tape::Tapes,
}

struct CoreLedger {
    /// Rows by operation. An operation that never runs takes no memory: a row has 86 KiB, and most ledgers see few
    /// operations.
    rows: Box<[OnceLock<Box<Row>>]>,
    kept: kept::KeptByCore,
    /// Numbers of errors by operation and kind.
    errors: Box<[[AtomicU64; Kind::ALL.len()]]>,
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
        let rows = || names.iter().map(|_| OnceLock::new()).collect();
        let errors = || names.iter().map(|_| [const { AtomicU64::new(0) }; Kind::ALL.len()]).collect();
        let core = || CoreLedger { rows: rows(), kept: kept::KeptByCore::default(), errors: errors() };
        let (counts_ticks, tapes) = (stamps.is_some(), tape::Tapes::new(cores));
        let cores = (0..cores).map(|_| core()).collect();
        let shared = Shared { names, stamps, cores, history: OneMutex::default(), tapes };
        Ledger { counts_ticks, shared: Arc::new(shared) }
    }
    /// True if the ledger's timestamps are the processor's ticks.
    #[inline]
    pub(crate) fn counts_ticks(&self) -> bool {
        self.counts_ticks
    }
    fn unit(&self) -> Unit {
        self.shared.stamps.as_ref().map_or(Unit::NS, |stamps| stamps.unit())
    }
    /// Converts a duration in the ledger's unit to nanoseconds.
    pub fn ns(&self, lapse: Lapse) -> u64 {
        self.unit().ns(lapse.0)
    }
    /// Converts nanoseconds to the ledger's unit.
    pub fn lapse(&self, ns: u64) -> Lapse {
        Lapse(self.unit().count(ns))
    }
    /// The row of an operation's name.
    pub fn row(&self, name: &str) -> OpRow {
        self.known_row(name).expect("every operation has a row")
    }
    fn known_row(&self, name: &str) -> Option<OpRow> {
        self.shared.names.iter().position(|&known| known == name)
    }
    /// The stages of a request so far that took any time, with their nanoseconds.
    pub fn stages_ns(&self, span: &Span) -> impl Iterator<Item = (Stage, u64)> {
        let unit = self.unit();
        span.spent().map(move |(stage, spent)| (stage, unit.ns(spent.0)))
    }
    /// Ends a span at `now`; only to be called by the thread of core `core`.
    #[inline]
    pub fn record(&self, core: usize, row: OpRow, span: &Span, subject: Subject, now: Stamp) {
        if !OBSERVED {
            return;
        }
        span.mark(Stage::Reply, now);
        let ledger = &self.shared.cores[core];
        let figures = ledger.rows[row].get_or_init(Box::default);
        figures.total.record(span.last.get().0 - span.start.0);
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
        let _history = self.shared.history.hold(Ablation::History);
        let kept = if is_on(Ablation::History) { &self.shared.cores[0].kept } else { &ledger.kept };
        kept.keep(row, span, subject, || self.lapse(MINUTE_NS).0);
    }
    /// Counts an error by which an operation was answered; only to be called by the thread of core `core`.
    #[cold]
    pub fn failed(&self, core: usize, row: OpRow, kind: Kind) {
        let position = Kind::ALL.iter().position(|known| *known == kind).expect("the list has all kinds");
        bump(&self.shared.cores[core].errors[row][position], 1);
    }
    /// The durations of all requests so far, over all cores, by a class of their operations; those without one are left out.
    pub fn durations<const CLASSES: usize>(&self, class_of: impl Fn(&str) -> Option<usize>) -> [Summary; CLASSES] {
        let mut classes = std::array::from_fn(|_| Summary::of(self.unit()));
        for (row, name) in self.shared.names.iter().enumerate() {
            let Some(class) = class_of(name) else { continue };
            for core in &self.shared.cores {
                core.rows[row].get().into_iter().for_each(|row| row.total.add_to(&mut classes[class]));
            }
        }
        classes
    }
    /// The figures of all operations so far, over all cores, without operations that never ran.
    pub fn profile(&self) -> Vec<OpProfile> {
        let unit = self.unit();
        let rows = self.shared.names.iter().enumerate().map(|(row, &name)| {
            let mut profile =
                OpProfile { name, total: Summary::of(unit), stages: Vec::new(), hops: 0, errors: self.errors(row) };
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
    fn errors(&self, row: OpRow) -> Vec<(Kind, u64)> {
        let of = |position: usize| {
            self.shared.cores.iter().map(|core| core.errors[row][position].load(Ordering::Relaxed)).sum::<u64>()
        };
        let counts = Kind::ALL.into_iter().enumerate().map(|(position, kind)| (kind, of(position)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
    /// The last operations of every core, oldest first.
    pub fn history(&self) -> Vec<Kept> {
        self.told(self.shared.cores.iter().flat_map(|core| core.kept.history()).collect())
    }
    /// The slowest operations of the last two minutes before `now_ns`, oldest first: of every core up to 16 of its present
    /// minute, and up to 16 of the one before.
    pub fn slowest(&self, now_ns: u64) -> Vec<Kept> {
        let mut kept = self.told(self.shared.cores.iter().flat_map(|core| core.kept.slowest()).collect());
        kept.retain(|one| one.end_ns + 2 * MINUTE_NS >= now_ns);
        kept
    }
    /// The operations of the sample that have come since `sampled` was last used, oldest first: about one in 64. Those that
    /// more than a thousand others have followed on their core since then are lost.
    pub fn samples(&self, sampled: &mut Sampled) -> Vec<Kept> {
        sampled.0.resize(self.shared.cores.len(), 0);
        let mut all = Vec::new();
        for (core, from) in self.shared.cores.iter().zip(&mut sampled.0) {
            let (some, next) = core.kept.samples(*from);
            all.extend(some);
            *from = next;
        }
        self.told(all)
    }
    /// The key of who records requests now; None: nobody does.
    #[inline]
    pub fn tape_key(&self) -> Option<[u64; 2]> {
        if OBSERVED { self.shared.tapes.key() } else { None }
    }
    /// Puts a request that has ended on the tape of core `core`; only to be called by its thread. Where there is no room it is
    /// dropped and counted.
    pub fn tape(&self, core: usize, span: &Span, words: &[u64; TAPED_WORDS]) {
        self.shared.tapes.put(core, span, words);
    }
    /// Begins to record, with empty tapes; who puts requests on them gets `key`. The beginning, on the monotonic clock, is
    /// `now_ns`: what began before it is not told.
    pub fn start_tapes(&self, key: [u64; 2], now_ns: u64) -> Taping {
        self.shared.tapes.start(key);
        Taping { ledger: self.clone(), began_ns: now_ns, dropped_before: self.shared.tapes.dropped() }
    }
    fn at_ns(&self, stamp: u64) -> u64 {
        self.shared.stamps.as_ref().map_or(stamp, |stamps| stamps.ns_at(stamp))
    }
    fn told(&self, mut all: Vec<kept::Whole>) -> Vec<Kept> {
        let unit = self.unit();
        all.sort_by_key(|whole| whole.end);
        let told = |whole: kept::Whole| Kept {
            name: self.shared.names[whole.row],
            end_ns: self.at_ns(whole.end),
            total_ns: unit.ns(whole.total),
            stages: (Stage::ALL.into_iter().zip(whole.stages))
                .filter(|&(_, spent)| spent > 0)
                .map(|(stage, spent)| (stage, unit.ns(spent)))
                .collect(),
            subject: whole.subject,
        };
        all.into_iter().map(told).collect()
    }
}

/// A whole operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The operation.
    pub name: &'static str,
    /// Its end on the monotonic clock, in nanoseconds.
    pub end_ns: u64,
    /// Its duration.
    pub total_ns: u64,
    /// The nanoseconds of the stages that took any time, in the order in which requests meet them; their sum is the
    /// duration, but for rounding.
    pub stages: Vec<(Stage, u64)>,
    /// Its caller, and the inode that it is about.
    pub subject: Subject,
}

/// A recording under way; it ends when this is dropped. There is one at a time.
pub struct Taping {
    ledger: Ledger,
    began_ns: u64,
    dropped_before: u64,
}

/// A recorded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taped {
    /// Its arrival, in nanoseconds after the beginning of the recording.
    pub start_ns: u64,
    /// Its duration.
    pub duration_ns: u64,
    /// The part of it for which a device worked for it.
    pub device_ns: u64,
    /// The part of it in which the reply was handed over.
    pub reply_ns: u64,
    /// Its words.
    pub words: [u64; TAPED_WORDS],
}

impl Taping {
    /// The requests that have ended since this was called last.
    pub fn take(&mut self) -> Vec<Taped> {
        let (ledger, unit) = (&self.ledger, self.ledger.unit());
        let told = |one: tape::OnTape| {
            let start_ns = ledger.at_ns(one.start).checked_sub(self.began_ns)?;
            let [duration_ns, device_ns, reply_ns] =
                [one.end - one.start, one.device, one.reply].map(|lapse| unit.ns(lapse));
            Some(Taped { start_ns, duration_ns, device_ns, reply_ns, words: one.words })
        };
        ledger.shared.tapes.take().into_iter().filter_map(told).collect()
    }
    /// Number of requests that were dropped because nobody took them in time.
    pub fn dropped(&self) -> u64 {
        self.ledger.shared.tapes.dropped() - self.dropped_before
    }
    /// The time since its beginning, by the monotonic clock.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns)
    }
}

impl Drop for Taping {
    fn drop(&mut self) {
        self.ledger.shared.tapes.stop();
    }
}

/// A place in the samples of all cores; by default before the first.
#[derive(Clone, Default)]
pub struct Sampled(Vec<u64>);

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
    /// Numbers of errors, of the kinds that there were.
    pub errors: Vec<(Kind, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of all requests, and the nanoseconds that they took together.
    fn totals(ledger: &Ledger) -> (u64, u64) {
        let [all] = ledger.durations(|_| Some(0));
        (all.count(), all.sum_ns())
    }

    /// The stages of the ledger's only operation: which, how often, how long.
    fn told(ledger: &Ledger) -> Vec<(Stage, u64, u64)> {
        let stages = ledger.profile().remove(0).stages;
        stages.iter().map(|(stage, summary)| (*stage, summary.count(), summary.sum_ns())).collect()
    }

    fn last(ledger: &Ledger) -> Vec<(&'static str, u64, u64)> {
        ledger.history().iter().map(|kept| (kept.name, kept.end_ns, kept.total_ns)).collect()
    }

    /// Records an operation that took so long up to `end`, all of it in `Order`.
    fn record(ledger: &Ledger, row: OpRow, took: u64, end: u64) {
        let span = Span::start(Stamp(end - took));
        span.mark(Stage::Order, Stamp(end));
        let subject = Subject { ino: end, uid: 1, thread: 2, request: 6 };
        ledger.record(0, row, &span, subject, Stamp(end));
    }

    #[test]
    fn the_history_has_the_last_with_their_stages_and_callers() {
        let ledger = Ledger::new(1, &["read", "write"]);
        (1..=3000).for_each(|number| record(&ledger, number as usize % 2, 7, 10 * number));
        let history = ledger.history();
        assert_eq!((history.len(), history[0].end_ns), (1024, 10 * (3000 - 1023)));
        let subject = Subject { ino: 30_000, uid: 1, thread: 2, request: 6 };
        let kept = Kept { name: "read", end_ns: 30_000, total_ns: 7, stages: vec![(Stage::Order, 7)], subject };
        assert_eq!(history.last(), Some(&kept));
    }

    #[test]
    fn one_in_64_is_sampled_whatever_the_loads_period() {
        let ledger = Ledger::new(1, &["read", "write"]);
        let (mut sampled, mut all) = (Sampled::default(), Vec::new());
        for number in 1..=64_000 {
            record(&ledger, usize::from(number % 64 == 0), 7, 10 * number);
            if number % 6400 == 0 {
                all.extend(ledger.samples(&mut sampled));
            }
        }
        assert!((950..1050).contains(&all.len()), "{} of 1000", all.len());
        let rare = all.iter().filter(|kept| kept.name == "write").count();
        assert!((5..30).contains(&rare), "{rare} of 15");
        assert!(ledger.samples(&mut sampled).is_empty(), "each is told once");
    }

    #[test]
    fn the_slowest_of_each_minute_are_kept() {
        let ledger = Ledger::new(1, &["read"]);
        // One operation each 100 ms takes as long as its number says, for three minutes.
        let times = || (1..=1800u64).map(|number| (number * 7919) % 1801);
        for (number, took) in (1..).zip(times()) {
            record(&ledger, 0, took, number * 100_000_000);
        }
        let kept: Vec<u64> = ledger.slowest(180_000_000_000).iter().map(|kept| kept.total_ns).collect();
        assert!((17..=32).contains(&kept.len()), "{}", kept.len());
        let slowest = times().skip(1201).max().expect("there are some");
        assert!(kept.contains(&slowest), "{slowest} in {kept:?}");
        let mut quick: Vec<u64> = times().collect();
        quick.sort_unstable();
        assert!(kept.iter().all(|took| *took > quick[quick.len() / 2]), "{kept:?}");
        // An hour without requests later, none of them is of the last two minutes.
        assert_eq!(ledger.slowest(3_780_000_000_000), []);
        // One that comes then is, however quick.
        record(&ledger, 0, 3, 3_780_000_000_000);
        assert_eq!(ledger.slowest(3_780_000_000_001).iter().map(|kept| kept.total_ns).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_reader_beside_the_writer_sees_no_mixture() {
        let ledger = Ledger::new(1, &["read"]);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| (1..=200_000).for_each(|number| record(&ledger, 0, number, 10 * number)));
            while !writing.is_finished() {
                for kept in ledger.history().iter().chain(&ledger.slowest(0)) {
                    assert_eq!((kept.end_ns, kept.subject.ino), (10 * kept.total_ns, 10 * kept.total_ns));
                    assert_eq!(kept.stages, [(Stage::Order, kept.total_ns)]);
                }
            }
        });
    }

    #[test]
    fn every_nanosecond_belongs_to_one_stage() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(Stamp(100));
        span.mark(Stage::Front, Stamp(150));
        span.mark_commit(Phases { write: Lapse(300), flush: Lapse(200), ended: Stamp(1100) }, Stamp(1150));
        ledger.record(0, 0, &span, Subject::default(), Stamp(1200));
        let sum: u64 = told(&ledger).iter().map(|&(_, _, sum)| sum).sum();
        assert_eq!(sum, ledger.profile()[0].total.sum_ns());
        let of = |wanted| told(&ledger).iter().find(|(stage, ..)| *stage == wanted).map(|&(_, _, sum)| sum);
        assert_eq!((of(Stage::Write), of(Stage::Flush), of(Stage::Queue)), (Some(300), Some(200), Some(450)));
        assert_eq!((of(Stage::Core), of(Stage::Reply)), (Some(50), Some(50)));
        assert_eq!(last(&ledger), [("write", 1200, 1100)]);
        assert_eq!(totals(&ledger), (1, 1100));
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
        ledger.record(0, 0, &span, Subject::default(), Stamp(170));
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
        span.mark_commit(Phases { write: Lapse(10), flush: Lapse(0), ended: Stamp(170) }, Stamp(170));
        ledger.record(0, 0, &span, Subject::default(), Stamp(170));
        assert_eq!(told(&ledger), [(Stage::Front, 1, 40), (Stage::Order, 1, 20), (Stage::Write, 1, 10)]);
    }

    #[test]
    fn time_that_goes_back_between_processors_is_nobodys() {
        let ledger = Ledger::new(1, &["write"]);
        let span = Span::start(Stamp(100));
        span.mark(Stage::Front, Stamp(150));
        span.mark(Stage::Order, Stamp(120));
        span.mark_commit(Phases { write: Lapse(40), flush: Lapse(0), ended: Stamp(130) }, Stamp(130));
        ledger.record(0, 0, &span, Subject::default(), Stamp(140));
        assert_eq!(told(&ledger), [(Stage::Front, 1, 50)]);
        assert_eq!(last(&ledger), [("write", 150, 50)]);
    }

    #[test]
    fn a_read_that_was_held_back_tells_so() {
        let ledger = Ledger::new(1, &["read"]);
        for (held_ns, end) in [(0, 200), (30, 200), (500, 150)] {
            let span = Span::start(Stamp(100));
            if held_ns > 0 {
                span.mark_first(Stage::Held, ledger.lapse(held_ns), Stamp(end));
            }
            span.mark(Stage::Read, Stamp(end));
            ledger.record(0, 0, &span, Subject::default(), Stamp(end));
        }
        assert_eq!(told(&ledger), [(Stage::Held, 2, 30 + 50), (Stage::Read, 2, 100 + 70)]);
    }

    #[test]
    fn what_has_ended_before_the_core_came_is_the_cores_wait() {
        let ledger = Ledger::new(1, &["read"]);
        for ended in [150, 0, 300] {
            let span = Span::start(Stamp(100));
            span.mark_ended(Stage::Read, Stamp(ended), Stamp(200));
            ledger.record(0, 0, &span, Subject::default(), Stamp(200));
        }
        assert_eq!(told(&ledger), [(Stage::Core, 1, 50), (Stage::Read, 3, 50 + 100 + 100)]);
    }

    #[test]
    fn what_was_counted_in_ticks_is_told_in_nanoseconds() {
        // Four ticks are a nanosecond; tick 1000 was at 50 ns.
        let ledger = Ledger::in_ticks(2, &["read", "write"], Arc::new(Stamps::of(1000, 50, 1 << 30)));
        for (core, ticks) in [(0, 400), (1, 800)] {
            let span = Span::of(Arrival::at(Stamp(2000)).hopped());
            span.mark(Stage::Order, Stamp(2040));
            span.mark_first(Stage::Held, ledger.lapse(20), Stamp(2000 + ticks));
            span.mark(Stage::Read, Stamp(2000 + ticks));
            span.hop();
            ledger.record(core, 1, &span, Subject::default(), Stamp(2000 + ticks));
        }
        assert_eq!(told(&ledger), [(Stage::Order, 2, 20), (Stage::Held, 2, 40), (Stage::Read, 2, 70 + 170)]);
        assert_eq!(last(&ledger), [("write", 400, 100), ("write", 500, 200)]);
        assert_eq!(totals(&ledger), (2, 300));
        let profile = ledger.profile().remove(0);
        assert_eq!((profile.name, profile.hops), ("write", 4));
        let total = profile.total;
        assert_eq!((total.mean_ns(), total.max_ns(), total.sum_ns()), (150, 200, 300));
        assert!((88..=100).contains(&total.min_ns()), "{}", total.min_ns());
        assert!((100..=112).contains(&total.quantile_ns(0.5)), "{}", total.quantile_ns(0.5));
    }

    #[test]
    fn errors_are_counted_by_operation_and_kind() {
        let ledger = Ledger::new(2, &["read", "write"]);
        for core in 0..2 {
            ledger.failed(core, 1, Kind::NoSpace);
            ledger.failed(core, 1, Kind::Host);
            ledger.record(core, 1, &Span::start(Stamp(0)), Subject::default(), Stamp(7));
        }
        ledger.failed(0, 1, Kind::NotFound);
        ledger.record(0, 0, &Span::start(Stamp(0)), Subject::default(), Stamp(7));
        let errors: Vec<_> = ledger.profile().into_iter().map(|profile| (profile.name, profile.errors)).collect();
        let write = vec![(Kind::NotFound, 1), (Kind::NoSpace, 2), (Kind::Host, 2)];
        assert_eq!(errors, [("read", vec![]), ("write", write)]);
    }

    #[test]
    fn an_operation_that_never_ran_takes_no_memory() {
        let ledger = Ledger::new(2, &["read", "write"]);
        let used = || ledger.shared.cores.iter().flat_map(|core| &core.rows).filter_map(OnceLock::get).count();
        assert_eq!((used(), totals(&ledger), ledger.profile().len()), (0, (0, 0), 0));
        ledger.record(1, 1, &Span::start(Stamp(0)), Subject::default(), Stamp(7));
        assert_eq!((used(), totals(&ledger), ledger.profile()[0].name), (1, (1, 7), "write"));
    }

    #[test]
    fn ticks_that_are_not_trusted_are_not_counted() {
        let ledger = Ledger::in_ticks(1, &["read"], Arc::new(Stamps::default()));
        assert!(!ledger.counts_ticks());
        assert_eq!(ledger.lapse(7), Lapse(7));
    }
}
