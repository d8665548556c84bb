//! The ends of simulated connections: what a kernel holds for each, and how bytes go from one to the other.

use super::host::Host;
use super::links::{State, broken_off};
use super::trace::TraceKind;
use crate::net::{ConnectionId, DEAD_AFTER_NS, closed};
use crate::stream::{Step, Stream};
use base::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Largest number of bytes that travel together.
const SEGMENT_BYTES_MAX: u64 = 64 << 10;
/// Time between two bytes that trickle.
const TRICKLE_NS: u64 = 1_000_000;

/// Time after which a kernel that has heard nothing asks the other one.
const ASK_NS: u64 = DEAD_AFTER_NS / 3;

/// One end of a connection.
pub(super) struct End {
    pub host: Arc<Host>,
    pub stream: Arc<Stream>,
    other: ConnectionId,
    /// Numbers of this end's host and of the other's.
    pub from: usize,
    pub to: usize,
    pub is_local: bool,
    /// Bytes that have come and were not received yet.
    arrived: VecDeque<u8>,
    /// The end of what comes, behind these.
    incoming_end: Option<Result<()>>,
    /// The error of each further send.
    outgoing_end: Option<Error>,
    /// Segments on their way to the other end.
    pub flying: VecDeque<Segment>,
    /// Their bytes.
    flying_bytes: usize,
    /// The time at which the last of it arrives.
    pub arrives_ns: u64,
    /// True if it can't arrive at present.
    pub stuck: bool,
    /// True if the other end takes nothing more at present.
    pub is_full: bool,
    /// True if the process has closed it, or was killed: it is there until all has arrived.
    pub closed: bool,
    /// True if the kernel will look after it soon.
    pub pumps: bool,
    /// The time since which it has been in trouble.
    pub troubled_ns: Option<u64>,
    pub retransmits: u64,
}

/// A part of what travels.
pub(super) enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset,
}

impl Segment {
    pub fn length(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::End | Segment::Reset => 0,
        }
    }
}

/// The way in which an end is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Close {
    /// Its process wants it.
    Wanted,
    /// The kernel does it, because the process was killed.
    Killed,
    /// The same, and not all that was sent leaves.
    Cut,
}

impl End {
    pub fn new(host: Arc<Host>, other: ConnectionId, (from, to): (usize, usize), is_local: bool) -> End {
        End {
            host,
            stream: Arc::default(),
            other,
            from,
            to,
            is_local,
            arrived: VecDeque::new(),
            incoming_end: None,
            outgoing_end: None,
            flying: VecDeque::new(),
            flying_bytes: 0,
            arrives_ns: 0,
            stuck: false,
            is_full: false,
            closed: false,
            pumps: false,
            troubled_ns: None,
            retransmits: 0,
        }
    }
}

impl State {
    /// The kernel looks after an end.
    pub fn pump_now(&mut self, id: ConnectionId) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        end.pumps = false;
        if end.closed {
            return;
        }
        self.give(id);
        while self.take(id) {}
    }
    /// Gives what has come to the receive that waits.
    fn give(&mut self, id: ConnectionId) {
        let end = self.ends.get_mut(&id).expect("the caller looked");
        if !end.stream.is_receiving() {
            return;
        }
        if end.arrived.is_empty() {
            let Some(over) = end.incoming_end.clone() else { return };
            let step = end.stream.received(over.map(|()| 0));
            assert!(step == Step::Rest, "nothing is received behind the end");
            return;
        }
        let came = end.arrived.len() as u64;
        // The reader may be faster than the bytes.
        let count = if self.rng.one_in(4) { 1 + self.rng.below(came) } else { came } as usize;
        let count = end.stream.with_room(|room| {
            let count = count.min(room.len());
            room.iter_mut().zip(end.arrived.drain(..count)).for_each(|(to, byte)| *to = byte);
            count
        });
        let (other, from, to) = (end.other, end.from, end.to);
        if end.stream.received(Ok(count)) == Step::Issue {
            self.pump(id, 500);
        }
        // The other end learns that there is room.
        let delay_ns = self.arrival_ns(from, to, 0) - self.now();
        if self.ends.get(&other).is_some_and(|other| other.is_full) {
            self.pump(other, delay_ns);
        }
    }
    /// Takes some bytes of the send that waits. False if there is none, or no room.
    fn take(&mut self, id: ConnectionId) -> bool {
        let end = &self.ends[&id];
        if !end.stream.is_sending() {
            return false;
        }
        if let Some(error) = &end.outgoing_end {
            return end.stream.sent(Err(error.clone())) == Step::Issue;
        }
        let waiting = self.ends.get(&end.other).map_or(0, |other| other.arrived.len());
        let room = self.window.saturating_sub(end.flying_bytes + waiting);
        let (from, to) = (end.from, end.to);
        if room == 0 {
            self.ends.get_mut(&id).expect("just seen").is_full = true;
            self.look(id, 0);
            return false;
        }
        let most = if self.way(from, to).plan.trickles { 1 } else { 1 + self.rng.below(SEGMENT_BYTES_MAX) as usize };
        let end = self.ends.get_mut(&id).expect("just seen");
        if std::mem::take(&mut end.is_full) {
            end.troubled_ns = None;
        }
        let bytes = end.stream.with_rest(|slices, sent| {
            let (mut bytes, mut skip) = (Vec::new(), sent);
            for slice in slices {
                let from = skip.min(slice.len());
                skip -= from;
                let count = (slice.len() - from).min(most.min(room) - bytes.len());
                bytes.extend_from_slice(&slice[from..from + count]);
            }
            bytes
        });
        let goes_on = end.stream.sent(Ok(bytes.len())) == Step::Issue;
        self.fly(id, Segment::Bytes(bytes));
        goes_on
    }
    /// Sends a segment on its way.
    fn fly(&mut self, id: ConnectionId, segment: Segment) {
        let end = &self.ends[&id];
        let (from, to, before_ns) = (end.from, end.to, end.arrives_ns);
        let gap_ns = if self.way(from, to).plan.trickles { TRICKLE_NS } else { 1 };
        let at_ns = self.arrival_ns(from, to, segment.length()).max(before_ns + gap_ns);
        let end = self.ends.get_mut(&id).expect("just seen");
        end.flying_bytes += segment.length();
        end.flying.push_back(segment);
        end.arrives_ns = at_ns;
        if !end.stuck {
            self.arrive_at(id, at_ns);
        }
    }
    /// The first segment from an end arrives, if nothing keeps it.
    pub fn arrive(&mut self, id: ConnectionId) {
        let Some(end) = self.ends.get(&id) else { return };
        let (from, to, other, is_stuck) = (end.from, end.to, end.other, end.stuck);
        if is_stuck || end.flying.is_empty() {
            return;
        }
        if self.way(from, to).is_blocked() || self.is_down(to) {
            let end = self.ends.get_mut(&id).expect("just seen");
            end.stuck = true;
            end.retransmits += 1;
            return self.look(id, 0);
        }
        let end = self.ends.get_mut(&id).expect("just seen");
        let segment = end.flying.pop_front().expect("just seen");
        end.flying_bytes -= segment.length();
        let is_last = end.closed && end.flying.is_empty();
        if !self.way(to, from).is_blocked() {
            // Its arrival is acknowledged.
            self.ends.get_mut(&id).expect("just seen").troubled_ns = None;
        }
        if is_last {
            self.ends.remove(&id);
        }
        self.note(TraceKind::Arrive, id, segment.length() as u64);
        let is_open = self.ends.get(&other).is_some_and(|other| !other.closed);
        match segment {
            Segment::Bytes(bytes) if is_open => self.deliver(id, other, (from, to), &bytes),
            Segment::Bytes(_) => {
                // Nobody is there to take them, and the kernel there says so.
                let at_ns = self.arrival_ns(to, from, 0);
                self.break_at(id, at_ns, broken_off());
            }
            Segment::End if is_open => {
                let other_end = self.ends.get_mut(&other).expect("just seen");
                other_end.incoming_end.get_or_insert(Ok(()));
                self.pump(other, 200);
            }
            Segment::Reset if is_open => self.break_end(other, &broken_off()),
            Segment::End | Segment::Reset => {}
        }
    }
    /// Brings bytes to the other end, as far as no reset comes before.
    fn deliver(&mut self, id: ConnectionId, other: ConnectionId, (from, to): (usize, usize), bytes: &[u8]) {
        let way = self.way(from, to);
        let through = way.reset_after.map_or(bytes.len(), |left| bytes.len().min(left as usize));
        let breaks = through < bytes.len();
        way.reset_after = way.reset_after.filter(|_| !breaks).map(|left| left - through as u64);
        let end = self.ends.get_mut(&other).expect("the caller looked");
        end.arrived.extend(&bytes[..through]);
        self.pump(other, 200);
        if breaks {
            self.break_end(other, &broken_off());
            self.break_end(id, &broken_off());
        }
    }
    /// True if the other end does not know the connection any more, and this one has not been told of its end.
    pub fn is_alone(&self, end: &End) -> bool {
        let is_over = |other: &End| other.outgoing_end.is_some();
        end.incoming_end.is_none() && self.ends.get(&end.other).is_none_or(is_over)
    }
    /// Ends a connection for one end: what has come can still be received, what is on its way is lost.
    pub fn break_end(&mut self, id: ConnectionId, error: &Error) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        end.incoming_end.get_or_insert_with(|| Err(error.clone()));
        end.outgoing_end.get_or_insert_with(|| error.clone());
        end.flying.clear();
        end.flying_bytes = 0;
        let other = end.other;
        self.note(TraceKind::Break, id, 0);
        self.look(other, ASK_NS);
        if self.ends[&id].closed {
            self.ends.remove(&id);
        } else {
            self.pump(id, 200);
        }
    }
    /// Closes an end. What was sent before still arrives, unless it was cut.
    pub fn close(&mut self, id: ConnectionId, close: Close) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        if std::mem::replace(&mut end.closed, true) {
            return;
        }
        let is_over = end.outgoing_end.is_some();
        end.stream.end(&closed());
        if end.stream.is_receiving() {
            assert!(end.stream.received(Err(closed())) == Step::Rest, "nothing goes on behind the end");
        }
        if end.stream.is_sending() {
            assert!(end.stream.sent(Err(closed())) == Step::Rest, "nothing goes on behind the end");
        }
        // A kernel breaks off a connection whose bytes nobody has read.
        let resets = !end.arrived.is_empty() || close == Close::Cut;
        end.arrived.clear();
        if close == Close::Cut {
            let kept = self.rng.below(end.flying.len() as u64 + 1) as usize;
            end.flying.truncate(kept);
            end.flying_bytes = end.flying.iter().map(Segment::length).sum();
        }
        if is_over {
            self.ends.remove(&id);
            return;
        }
        self.fly(id, if resets { Segment::Reset } else { Segment::End });
        // A kernel does not try for ever either.
        self.look(id, 0);
        self.look(id, DEAD_AFTER_NS);
    }
}
