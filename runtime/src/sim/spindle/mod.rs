//! A hard disk of 7200 turns per minute, as a model: from requests and the times at which they come to the times at which they
//! end.
//!
//! Promises: arithmetic of integers alone, so that the same requests give the same times everywhere; the drive takes the request
//! that it can position for soonest, and an old one before that, so that none starves; it decides when it gets free, however late
//! it is asked for what has ended; data that passes below the head after a read is found in the drive's buffer; there is no write
//! cache, so a write that comes after its sector has passed waits for a turn. Absent by design: zones of different speed, bad
//! sectors, a host that is slow (time between an answer and the next request is the caller's).

mod ahead;
mod geometry;

#[cfg(test)]
mod tests;

use ahead::Ahead;
use geometry::{Geometry, ROTATION_NS};
use std::collections::VecDeque;

/// Requests among which the drive chooses: the depth of SATA's queue. Others wait in front of it, in the order of arrival.
pub const QUEUE_DEPTH: usize = 32;

/// Time from a request's arrival until the drive can act on it. It passes while the drive is busy with another.
pub const COMMAND_NS: u64 = 50_000;

/// A nanosecond of positioning counts as much as so many of age: the aged shortest access time first of Jacobson and Wilkes
/// ("Disk Scheduling Algorithms Based on Rotational Position", HP Laboratories 1991). Positioning takes at most 24 ms; who has
/// waited 1.6 s longer goes first.
const AGE_PER_POSITIONING: u64 = 64;

/// Time in which a byte of the buffer reaches the host, as a fraction: 500 MB/s.
const HOST_BYTES_PER_US: u64 = 500;

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Read bytes.
    Read,
    /// Write bytes to the platter.
    Write,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The caller's name for it.
    pub id: u64,
    /// Read or write.
    pub verb: Verb,
    /// Its first byte.
    pub offset: u64,
    /// Number of its bytes, at least 1.
    pub bytes: u64,
    /// The drive is busy with it so much longer, as when it tries a bad sector again and again.
    pub stall_ns: u64,
}

impl Ask {
    /// A request that meets no trouble.
    pub fn new(id: u64, verb: Verb, offset: u64, bytes: u64) -> Ask {
        Ask { id, verb, offset, bytes, stall_ns: 0 }
    }
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// The counts of a spindle's work: of requests that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
    /// Reads that the buffer answered, at least in part.
    pub buffered: u64,
    /// Requests for which the arm moved, but for those that went on where the one before had ended.
    pub seeks: u64,
    /// Requests that went on where the head was, but came after their sector had passed.
    pub turns_lost: u64,
    /// Time for which the drive was busy with requests.
    pub busy_ns: u64,
    /// Longest time from a request's arrival to its end.
    pub longest_ns: u64,
}

impl Counters {
    /// The counters with one more request.
    fn with(mut self, ask: &Ask, source: &Source, took_ns: u64, in_all_ns: u64) -> Counters {
        let (number, bytes) = match ask.verb {
            Verb::Read => (&mut self.reads, &mut self.read_bytes),
            Verb::Write => (&mut self.writes, &mut self.written_bytes),
        };
        *number += 1;
        *bytes += ask.bytes;
        match source {
            Source::Buffer(_) => self.buffered += 1,
            Source::Platter { seeks, turn_lost } => {
                self.seeks += u64::from(*seeks);
                self.turns_lost += u64::from(*turn_lost);
            }
        }
        self.busy_ns += took_ns;
        self.longest_ns = self.longest_ns.max(in_all_ns);
        self
    }
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    came_ns: u64,
    ask: Ask,
}

/// A request that is served.
#[derive(Clone, Copy, Debug)]
struct Current {
    id: u64,
    done_ns: u64,
    /// The counters at its end.
    counted: Counters,
}

/// The way in which the drive would serve a request if it took it now.
struct Plan {
    /// Time until the data begin to pass below the head.
    positioning_ns: u64,
    /// The time at which it ends.
    done_ns: u64,
    source: Source,
}

enum Source {
    /// The buffer, which is then so.
    Buffer(Ahead),
    /// The platter.
    Platter { seeks: bool, turn_lost: bool },
}

/// The drive's own time, in which all that it does takes as long as ever: that of a slow drive passes slowly.
#[derive(Clone, Copy, Debug)]
struct OwnTime {
    /// A moment in the caller's time, and in its own.
    callers_ns: u64,
    own_ns: u64,
    slowness: u64,
}

impl OwnTime {
    fn own(&self, callers_ns: u64) -> u64 {
        let passed_ns = callers_ns.checked_sub(self.callers_ns).expect("the caller's time never goes back");
        self.own_ns + passed_ns / self.slowness
    }
    fn callers(&self, own_ns: u64) -> u64 {
        self.callers_ns.saturating_add((own_ns - self.own_ns).saturating_mul(self.slowness))
    }
}

/// The disk. All its times are its own.
#[derive(Debug)]
pub struct Spindle {
    geometry: Geometry,
    time: OwnTime,
    /// The latest moment that the caller has told.
    now_ns: u64,
    /// The drive is free from here on.
    free_ns: u64,
    /// Requests in the order of their arrival.
    waiting: VecDeque<Waiting>,
    current: Option<Current>,
    /// Requests that have ended, but were not asked for yet.
    ended: Vec<u64>,
    /// The end of what the head passed last, unless it follows `ahead`.
    place: u64,
    ahead: Option<Ahead>,
    /// True while the head reads on for the buffer.
    follows: bool,
    counters: Counters,
}

impl Spindle {
    /// A disk of so many bytes, with its arm at byte 0.
    pub fn new(bytes: u64) -> Spindle {
        assert!(bytes > 0, "a disk has room");
        Spindle {
            geometry: Geometry { bytes },
            time: OwnTime { callers_ns: 0, own_ns: 0, slowness: 1 },
            now_ns: 0,
            free_ns: 0,
            waiting: VecDeque::new(),
            current: None,
            ended: Vec::new(),
            place: 0,
            ahead: None,
            follows: false,
            counters: Counters::default(),
        }
    }
    /// Takes a request that comes at `now_ns`. Times of calls never go back.
    pub fn queue(&mut self, now_ns: u64, ask: Ask) {
        assert!(ask.bytes > 0, "{ask:?} asks for something");
        assert!(ask.end() <= self.geometry.bytes, "{ask:?} ends on a disk of {} bytes", self.geometry.bytes);
        self.advance(now_ns);
        self.waiting.push_back(Waiting { came_ns: self.now_ns, ask });
    }
    /// Makes all that the drive does take so many times as long from `now_ns` on, what it is doing included. 1: it is well.
    pub fn set_slowness(&mut self, now_ns: u64, slowness: u64) {
        assert!(slowness > 0, "something takes some time");
        self.advance(now_ns);
        self.time = OwnTime { callers_ns: now_ns, own_ns: self.now_ns, slowness };
    }
    /// The time at which `complete` is to be called next; None while there is nothing to do. A request may end later than that:
    /// the drive has not chosen it yet.
    pub fn next_ns(&self) -> Option<u64> {
        if !self.ended.is_empty() {
            return Some(self.time.callers(self.now_ns));
        }
        let next_ns = self.current.map(|current| current.done_ns).or_else(|| self.choice_ns());
        next_ns.map(|own_ns| self.time.callers(own_ns))
    }
    /// The requests that have ended by `now_ns` and were not told before, in the order in which they ended.
    pub fn complete(&mut self, now_ns: u64) -> Vec<u64> {
        self.advance(now_ns);
        std::mem::take(&mut self.ended)
    }
    /// Counts since the start; times are the drive's own.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The time at which the drive chooses its next request.
    fn choice_ns(&self) -> Option<u64> {
        let first = self.waiting.front()?;
        Some(self.free_ns.max(first.came_ns + COMMAND_NS))
    }
    /// Does what the drive does until a moment of the caller's time.
    fn advance(&mut self, callers_ns: u64) {
        let now_ns = self.time.own(callers_ns);
        assert!(now_ns >= self.now_ns, "time goes on: {now_ns} comes after {}", self.now_ns);
        self.now_ns = now_ns;
        loop {
            if let Some(Current { id, done_ns, counted }) = self.current {
                if done_ns > now_ns {
                    return;
                }
                (self.free_ns, self.counters, self.current) = (done_ns, counted, None);
                self.ended.push(id);
            }
            match self.choice_ns() {
                Some(at_ns) if at_ns <= now_ns => self.start(at_ns),
                _ => return,
            }
        }
    }
    /// Chooses a request and begins with it.
    fn start(&mut self, at_ns: u64) {
        let seen = self.waiting.iter().take(QUEUE_DEPTH).take_while(|waiting| waiting.came_ns + COMMAND_NS <= at_ns);
        let plans = seen.map(|waiting| (self.plan(at_ns, &waiting.ask), at_ns - waiting.came_ns)).enumerate();
        let cost = |plan: &Plan, age_ns: u64| (plan.positioning_ns * AGE_PER_POSITIONING) as i64 - age_ns as i64;
        let best = plans.min_by_key(|(_, (plan, age_ns))| cost(plan, *age_ns));
        let (index, (plan, age_ns)) = best.expect("the drive chooses when a request is there");
        let Waiting { ask, .. } = self.waiting.remove(index).expect("it was just seen");
        let done_ns = plan.done_ns.saturating_add(ask.stall_ns);
        let took_ns = done_ns - at_ns;
        let counted = self.counters.with(&ask, &plan.source, took_ns, age_ns + took_ns);
        self.move_to(at_ns, &ask, plan.source, done_ns);
        self.current = Some(Current { id: ask.id, done_ns, counted });
    }
    /// Arm and buffer are from now on as they will be at the request's end.
    fn move_to(&mut self, at_ns: u64, ask: &Ask, source: Source, done_ns: u64) {
        match (source, ask.verb) {
            (Source::Buffer(ahead), _) => self.ahead = Some(ahead),
            (Source::Platter { .. }, Verb::Read) => {
                self.ahead = Some(Ahead::after(self.geometry, ask.offset, ask.end(), done_ns));
                self.follows = true;
            }
            (Source::Platter { .. }, Verb::Write) => {
                let left = self.ahead.map(|ahead| ahead.left(self.geometry, at_ns));
                // What it has of the bytes that are written is old.
                self.ahead = left.filter(|ahead| ask.end() <= ahead.first || ahead.until <= ask.offset);
                self.follows = false;
                self.place = ask.end();
            }
        }
    }
    fn plan(&self, at_ns: u64, ask: &Ask) -> Plan {
        self.plan_buffered(at_ns, ask).unwrap_or_else(|| self.plan_platter(at_ns, ask))
    }
    /// The plan for a read that begins in the buffer.
    fn plan_buffered(&self, at_ns: u64, ask: &Ask) -> Option<Plan> {
        let ahead = self.ahead.filter(|_| ask.verb == Verb::Read)?;
        let reached = ahead.reached(self.geometry, at_ns);
        if ask.offset < ahead.first || ask.offset > reached {
            return None;
        }
        let sent_ns = at_ns + ask.bytes * 1_000 / HOST_BYTES_PER_US;
        if !self.follows {
            let all = Plan { positioning_ns: 0, done_ns: sent_ns, source: Source::Buffer(ahead) };
            return (ask.end() <= reached).then_some(all);
        }
        let after = ahead.continued(self.geometry, at_ns, ask.offset, ask.end());
        let positioning_ns = if ask.end() > after.from { after.since_ns.saturating_sub(at_ns) } else { 0 };
        let done_ns = sent_ns.max(after.has_ns(self.geometry, ask.end()));
        Some(Plan { positioning_ns, done_ns, source: Source::Buffer(after) })
    }
    fn plan_platter(&self, at_ns: u64, ask: &Ask) -> Plan {
        let ahead = self.ahead.filter(|_| self.follows);
        let place = ahead.map_or(self.place, |ahead| ahead.reached(self.geometry, at_ns));
        // The head is on the track of the byte that it passed last.
        let passed = place.saturating_sub(1);
        let seek_ns = self.geometry.seek_ns(passed, ask.offset);
        let wait_ns = self.geometry.wait_ns(at_ns + seek_ns, ask.offset);
        let positioning_ns = seek_ns + wait_ns;
        let done_ns = at_ns + positioning_ns + self.geometry.transfer_ns(ask.offset, ask.end());
        let goes_on = ask.offset == place;
        let source =
            Source::Platter { seeks: seek_ns > 0 && !goes_on, turn_lost: goes_on && wait_ns > ROTATION_NS / 2 };
        Plan { positioning_ns, done_ns, source }
    }
}
