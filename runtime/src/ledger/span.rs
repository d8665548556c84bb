//! The times of one request.

use super::Stage;
use crate::OBSERVED;
use crate::stamp::{Lapse, Stamp};
use std::cell::Cell;

/// Number of stages; 0 in a build without observation, where neither spans nor ledgers hold times.
pub(super) const STAGES: usize = if OBSERVED { Stage::ALL.len() } else { 0 };

/// The time at which a request arrived (on /dev/fuse: at which reading it began), and how many threads have handed it
/// on since. It stands for the request's `Span` until that is made, since it takes an eighth of a span's memory.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    at: Stamp,
    taken: Stamp,
    hops: u32,
}

impl Arrival {
    /// An arrival at `now`.
    pub fn at(now: Stamp) -> Arrival {
        Arrival { at: now, taken: now, hops: 0 }
    }
    /// Notes that the task which handles the request runs: until `now` it has waited for its core.
    pub fn taken(self, now: Stamp) -> Arrival {
        Arrival { taken: now, ..self }
    }
    /// Notes that another thread takes the request over.
    pub fn hopped(self) -> Arrival {
        Arrival { hops: self.hops + 1, ..self }
    }
}

/// The last commit as its leader has seen it.
#[derive(Clone, Copy, Default)]
pub struct Phases {
    /// Duration of the device write.
    pub write: Lapse,
    /// Duration of the device flush; 0 if there was none.
    pub flush: Lapse,
    /// The time at which the leader learnt of the end.
    pub ended: Stamp,
}

/// A bit beyond those of the stages: the request has changed threads.
pub(super) const HOPPED: u64 = 1 << 63;

/// The times of one request, in the ledger's unit; lives in the task that serves it.
#[derive(Clone, Debug)]
pub struct Span {
    pub(super) start: Stamp,
    pub(super) last: Cell<Stamp>,
    pub(super) stages: [Cell<u64>; STAGES],
    /// A bit for each stage that took any time, since most requests go through few; and `HOPPED`.
    pub(super) met: Cell<u64>,
    pub(super) hops: Cell<u32>,
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
        span.mark(Stage::Core, arrival.taken);
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
    /// Books the time since the last mark on the phases of a commit. The leader's times for write and flush, and the time
    /// at which it learnt of their end, are known; `Queue` gets what came before, and `Core` what came after (decision
    /// D3: a follower's ledger is complete).
    pub fn mark_commit(&self, Phases { write, flush, ended }: Phases, now: Stamp) {
        if !OBSERVED {
            return;
        }
        let spent = ended.min(now).since(self.last.get()).0;
        let flush = flush.0.min(spent);
        let write = write.0.min(spent - flush);
        self.add(Stage::Flush, flush);
        self.add(Stage::Write, write);
        self.add(Stage::Queue, spent - flush - write);
        self.last.set(Stamp(self.last.get().0 + spent));
        self.mark(Stage::Core, now);
    }
    /// Books `part`, the first part of the time since the last mark, on `stage`: a wait that few requests meet.
    #[cold]
    pub fn mark_first(&self, stage: Stage, part: Lapse, now: Stamp) {
        self.mark(stage, Stamp(self.last.get().0.saturating_add(part.0)).min(now));
    }
    /// Books the time since the last mark on `stage` up to `ended`, the time at which what the request waited for had
    /// ended, and the rest on `Core`. An end that is not known (0) is `now`.
    #[inline]
    pub fn mark_ended(&self, stage: Stage, ended: Stamp, now: Stamp) {
        if ended == Stamp(0) {
            return self.mark(stage, now);
        }
        self.mark(stage, ended.min(now));
        self.mark(Stage::Core, now);
    }
    /// Books the time since the last mark on stages of which another process has told, as far as it goes, and the rest of it up to
    /// `ended`, when its answer came, on `way`; then `Core` until `now`. Returns the part that the other process has told of, and the rest.
    pub fn mark_answer(
        &self,
        told: impl Iterator<Item = (Stage, Lapse)>,
        way: Stage,
        ended: Stamp,
        now: Stamp,
    ) -> (Lapse, Lapse) {
        let all = ended.min(now).since(self.last.get()).0;
        let mut left = all;
        for (stage, spent) in told {
            // The clocks of two machines need not agree.
            let spent = spent.0.min(left);
            self.add(stage, spent);
            left -= spent;
        }
        self.add(way, left);
        self.last.set(Stamp(self.last.get().0 + all));
        self.mark(Stage::Core, now);
        (Lapse(all - left), Lapse(left))
    }
    /// The stages that took any time so far.
    pub(super) fn spent(&self) -> impl Iterator<Item = (Stage, Lapse)> {
        let all = Stage::ALL.into_iter().zip(&self.stages).map(|(stage, spent)| (stage, Lapse(spent.get())));
        all.filter(|(_, spent)| spent.0 > 0)
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
