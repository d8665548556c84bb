//! Pauses before a connection is tried again: longer each time, and never the same for two who lost one at the same moment.
//!
//! Promises: the first is below 15 ms, none is over 1.5 s, and one that is tried for ever costs next to nothing. Absent by design: waiting.

use runtime::Random;

/// Shortest and longest pause, but for the jitter of a half.
const PAUSE_NS_MIN: u64 = 10_000_000;
const PAUSE_NS_MAX: u64 = 1_000_000_000;

/// The pauses of one connection.
pub struct Pauses {
    next_ns: u64,
}

impl Pauses {
    /// Those of a connection that was not tried yet.
    pub fn new() -> Pauses {
        Pauses { next_ns: PAUSE_NS_MIN }
    }
    /// Nanoseconds until the next attempt, after one that lasted so long: one that was good for a second begins anew.
    pub fn next_ns(&mut self, random: &dyn Random, lasted_ns: u64) -> u64 {
        if lasted_ns > PAUSE_NS_MAX {
            self.next_ns = PAUSE_NS_MIN;
        }
        let pause_ns = self.next_ns;
        self.next_ns = (pause_ns * 2).min(PAUSE_NS_MAX);
        pause_ns / 2 + random.next_u64() % pause_ns
    }
}
