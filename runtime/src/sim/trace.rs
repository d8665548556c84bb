//! The trace of a simulated world: a hash over all events and, on request, the last events themselves.

use std::collections::VecDeque;
use std::fmt;

/// The kind of an event. The meanings of `subject` and `detail` of `TraceEvent` are in parentheses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceKind {
    /// A task was run (task, its core).
    Poll,
    /// A timer ended (timer, 0).
    Timer,
    /// A job of the blocking pool ran (job, 0).
    Job,
    /// A file was opened (file, its length).
    Open,
    /// A file grew (file, new length).
    Grow,
    /// Names were made durable (durable step, 0).
    Names,
    /// A read was submitted (file, offset).
    Read,
    /// A write was submitted (file, offset).
    Write,
    /// A flush was submitted (file, 0).
    Flush,
    /// A range of the device was discarded (offset, bytes).
    Discard,
    /// The operation just submitted is under way (transfer, checksum of a write's bytes).
    Transfer,
    /// A transfer ended (transfer, 1 if it failed).
    End,
    /// The requested crash came (durable step, 0).
    Crash,
    /// A connection was made (the client's end, the server's).
    Connect,
    /// Bytes came from an end to the other (end, bytes).
    Arrive,
    /// A connection broke for an end (end, 0).
    Break,
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// Simulated time.
    pub at_ns: u64,
    /// The kind of event.
    pub kind: TraceKind,
    /// The object that it is about; see `TraceKind`.
    pub subject: u64,
    /// More about it; see `TraceKind`.
    pub detail: u64,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>15} {:?} {} {}", self.at_ns, self.kind, self.subject, self.detail)
    }
}

/// Hashes all events and keeps the last `events_max`.
#[derive(Default)]
pub(super) struct Trace {
    hash: u64,
    count: u64,
    events: VecDeque<TraceEvent>,
    events_max: usize,
}

impl Trace {
    /// Keeps the last `events_max` events from now on.
    pub(super) fn keep(&mut self, events_max: usize) {
        self.events_max = events_max;
    }
    /// Adds an event.
    pub(super) fn note(&mut self, event: TraceEvent) {
        self.count += 1;
        for word in [event.at_ns, event.kind as u64, event.subject, event.detail] {
            // The multiplier is 2^64 / the golden ratio, odd; the rotation brings high bits, which multiplying mixes
            // best, down to where the next word meets them.
            self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        if self.events_max > 0 {
            if self.events.len() >= self.events_max {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
    }
    /// The hash over all events so far.
    pub(super) fn fingerprint(&self) -> u64 {
        self.hash
    }
    /// Number of events so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
    /// The last events, oldest first.
    pub(super) fn events(&self) -> Vec<TraceEvent> {
        self.events.iter().copied().collect()
    }
}
