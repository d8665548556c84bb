//! Limits of a volume at work, a pure core that says what may pass and when; no clock, lock or task.
//!
//! Each limit is a generic cell rate algorithm (ITU-T I.371, as a virtual schedule): it has a time at which all that has passed
//! would have been paid for at its rate, and lets something pass while that time is no further ahead of now than the burst. What
//! has to wait stands in one of two lines, one for reads and one for changes, so that neither waits for a limit that is the
//! other's alone. A line is served in order of arrival; limits that both share go to whoever has waited longer.

use base::limits::LIMIT_BURST_MS;
use base::{Limit, Limits};
use runtime::seeded::{Bug, active};
use std::collections::VecDeque;

/// A part of the limits that an operation takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its line.
    pub line: Line,
    /// Bytes that it reads or writes.
    pub bytes: u64,
}

/// A line in which operations wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// The line of operations that change nothing.
    Reads,
    /// The line of operations that change something.
    Changes,
}

/// An operation that waits, by the order of its arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// The answer to a waiting operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Pass; it no longer waits.
    Pass,
    /// Ask again at this time, in nanoseconds, or when those before it have changed.
    At(u64),
    /// Ask again when those before it have changed.
    Behind,
}

/// One limit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Units per second; 0: no limit.
    rate: u64,
    /// The time at which all that has passed is paid for, in nanoseconds.
    paid_ns: u64,
    /// The part by which the last payment was too little, in units times 10^9 / `rate`: no rounding adds up.
    remainder: u128,
}

impl Bucket {
    /// The earliest time at which something may pass.
    fn opens_ns(&self, burst_ns: u64) -> u64 {
        if self.rate == 0 { 0 } else { self.paid_ns.saturating_sub(burst_ns) }
    }
    fn take(&mut self, now_ns: u64, units: u64) {
        if self.rate == 0 {
            return;
        }
        let owed = u128::from(units) * 1_000_000_000 + self.remainder;
        let rate = u128::from(self.rate);
        assert!(rate > 0, "a limit of nothing is none");
        self.remainder = owed % rate;
        self.paid_ns = self.paid_ns.max(now_ns).saturating_add(u64::try_from(owed / rate).unwrap_or(u64::MAX));
    }
}

/// A volume's limits at work.
pub struct Core {
    /// Buckets for all operations, for reads, for changes; each by operations and by bytes.
    buckets: [[Bucket; 2]; 3],
    burst_ns: u64,
    /// Reads and changes that wait, longest first.
    lines: [VecDeque<(Ticket, Asked)>; 2],
    next: u64,
}

/// The limits by operations and by bytes: for all, for reads, for changes.
const RATES: [[Limit; 2]; 3] = [
    [Limit::Iops, Limit::Bandwidth],
    [Limit::ReadIops, Limit::ReadBandwidth],
    [Limit::WriteIops, Limit::WriteBandwidth],
];

impl Core {
    /// Limits under which nothing has passed yet.
    pub fn new(limits: &Limits, now_ns: u64) -> Core {
        let bucket = |limit: Limit| Bucket { rate: limits.get(limit).unwrap_or(0), paid_ns: now_ns, remainder: 0 };
        Core {
            buckets: RATES.map(|pair| pair.map(bucket)),
            burst_ns: limits.get(Limit::Burst).unwrap_or(LIMIT_BURST_MS) * 1_000_000,
            lines: [VecDeque::new(), VecDeque::new()],
            next: 0,
        }
    }
    /// Puts other limits in place of these. What waits keeps its place.
    pub fn change(&mut self, limits: &Limits, now_ns: u64) {
        let Core { buckets, burst_ns, .. } = Core::new(limits, now_ns);
        for (own, new) in self.buckets.iter_mut().flatten().zip(buckets.into_iter().flatten()) {
            // A limit that stays has not forgotten what has passed: nobody gets a burst by setting it again.
            let is_kept = own.rate == new.rate;
            *own = if is_kept { *own } else { new };
        }
        self.burst_ns = burst_ns;
    }
    /// Lets an operation pass, which then has been counted, or has it wait.
    pub fn arrive(&mut self, asked: Asked, now_ns: u64) -> Option<Ticket> {
        let is_first = self.lines[asked.line as usize].is_empty();
        if is_first && self.opens_ns(asked) <= now_ns && !self.is_overtaken(asked.line, None, now_ns) {
            self.take(asked, now_ns);
            return None;
        }
        let ticket = Ticket(self.next);
        assert!(self.lines.iter().filter_map(VecDeque::back).all(|(waits, _)| *waits < ticket), "it came last");
        self.next += 1;
        self.lines[asked.line as usize].push_back((ticket, asked));
        Some(ticket)
    }
    /// Says whether an operation of this line may pass now.
    pub fn turn(&mut self, line: Line, ticket: Ticket, now_ns: u64) -> Turn {
        let first = self.lines[line as usize].front().copied();
        let Some((_, asked)) = first.filter(|(first, _)| *first == ticket) else { return Turn::Behind };
        let opens_ns = self.opens_ns(asked);
        if opens_ns > now_ns {
            return Turn::At(opens_ns);
        }
        if self.is_overtaken(line, Some(ticket), now_ns) {
            return Turn::Behind;
        }
        let passed = self.lines[line as usize].pop_front();
        assert!(passed.is_some_and(|(first, _)| first == ticket), "the first of its line passes");
        self.take(asked, now_ns);
        Turn::Pass
    }
    /// Takes an operation out that no longer waits. True if it did.
    pub fn leave(&mut self, line: Line, ticket: Ticket) -> bool {
        let waiting = &mut self.lines[line as usize];
        let before = waiting.len();
        if active(Bug::PlaceKept) {
            return false;
        }
        waiting.retain(|(other, _)| *other != ticket);
        waiting.len() < before
    }
    /// The first operation of each line.
    pub fn first(&self) -> impl Iterator<Item = Ticket> {
        self.lines.iter().filter_map(|line| line.front().map(|(ticket, _)| *ticket))
    }
    /// The number of operations that wait.
    pub fn waiting(&self) -> usize {
        self.lines.iter().map(VecDeque::len).sum()
    }

    /// The limits that something of a line takes from.
    fn of(line: Line) -> [usize; 2] {
        [0, 1 + line as usize]
    }
    fn opens_ns(&self, asked: Asked) -> u64 {
        let of = Core::of(asked.line).into_iter().flat_map(|row| {
            let [operations, bytes] = &self.buckets[row];
            // What reads and writes nothing does not wait for those that do.
            [operations.opens_ns(self.burst_ns), if asked.bytes > 0 { bytes.opens_ns(self.burst_ns) } else { 0 }]
        });
        of.max().unwrap_or(0)
    }
    fn take(&mut self, asked: Asked, now_ns: u64) {
        for row in Core::of(asked.line) {
            let [operations, bytes] = &mut self.buckets[row];
            operations.take(now_ns, 1);
            bytes.take(now_ns, asked.bytes);
        }
    }
    /// True if the first of the other line has waited longer and may pass too.
    fn is_overtaken(&self, line: Line, ticket: Option<Ticket>, now_ns: u64) -> bool {
        let other = if line == Line::Reads { Line::Changes } else { Line::Reads };
        let first = self.lines[other as usize].front();
        first.is_some_and(|(first, asked)| ticket.is_none_or(|own| *first < own) && self.opens_ns(*asked) <= now_ns)
    }
}
