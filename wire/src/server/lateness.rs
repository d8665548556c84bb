//! The time by which a server's cores are late to look at what has come. A request that waits for that is not noticed by the server
//! yet, so its client would blame the way to it.
//!
//! Each core that is asked for something sets itself an alarm now and then, and sees how late it is: as late as a request that comes at
//! that moment. Promise: a core that is asked for nothing does not wake for it. Absent by design: why a core is late.

use super::Door;
use crate::server::Service;
use runtime::Event;
use runtime::tasks::either;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Mean time between two alarms of a core: 50 a second cost it a thousandth of its time.
const ALARM_NS: u64 = 20_000_000;
/// Lateness that counts as none: an alarm that wakes a core which has nothing to do is late by 50 to 150 us by itself, and a request is
/// not.
const LATE_NS_MIN: u64 = 200_000;

/// The alarms of all cores so far.
#[derive(Default)]
pub(super) struct Lateness {
    alarms: AtomicU64,
    late_ns: AtomicU64,
    cores: Vec<Asked>,
}

/// A core's mark that something was asked for since its last alarm was set.
#[derive(Default)]
struct Asked {
    is_asked: AtomicBool,
    came: Event,
}

impl Lateness {
    pub fn new(cores: usize) -> Lateness {
        Lateness { cores: (0..cores).map(|_| Asked::default()).collect(), ..Lateness::default() }
    }
    /// Notes that a core was asked for something.
    pub fn asked(&self, core: usize) {
        // Read first: most requests find it set, and leave the line where it is.
        let Asked { is_asked, came } = &self.cores[core];
        if !is_asked.load(Ordering::Relaxed) {
            is_asked.store(true, Ordering::Relaxed);
            came.notify();
        }
    }
    /// The number of alarms so far, and the sum of the nanoseconds by which they were late.
    pub fn sums(&self) -> (u64, u64) {
        (self.alarms.load(Ordering::Relaxed), self.late_ns.load(Ordering::Relaxed))
    }
    fn note(&self, (alarms, late_ns): (u64, u64)) {
        self.alarms.fetch_add(alarms, Ordering::Relaxed);
        self.late_ns.fetch_add(late_ns, Ordering::Relaxed);
    }
}

/// The number of alarms for which one counts that was late by so much, and the sum of their lateness: those that were due meanwhile are
/// counted with it, else a core that is away for long would be seen less often than one that is not.
fn with_missed(late_ns: u64) -> (u64, u64) {
    let late_ns = if late_ns < LATE_NS_MIN { 0 } else { late_ns };
    let missed = late_ns / ALARM_NS;
    (1 + missed, late_ns * (1 + missed) - ALARM_NS * missed * (missed + 1) / 2)
}

/// Watches a core until the door is closed.
pub(super) async fn watch<S: Service>(door: Arc<Door<S>>, core: usize) {
    let (clock, Asked { is_asked, came }) = (&door.runtime().clock, &door.lateness.cores[core]);
    loop {
        let (stop, ticket) = (door.closed.ticket(), came.ticket());
        if door.is_closed() {
            return;
        }
        if !is_asked.swap(false, Ordering::Relaxed) {
            either(door.closed.after(stop), came.after(ticket)).await;
            continue;
        }
        // Whatever a core does at intervals is not met each time.
        let wait_ns = ALARM_NS / 2 + door.runtime().random.next_u64() % ALARM_NS;
        let due_ns = clock.now_ns() + wait_ns;
        either(door.closed.after(stop), clock.sleep(wait_ns)).await;
        if !door.is_closed() {
            door.lateness.note(with_missed(clock.now_ns().saturating_sub(due_ns)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_that_a_core_has_slept_through_count() {
        const MS: u64 = 1_000_000;
        for (late_ms, alarms, sum_ms) in [(0, 1, 0), (19, 1, 19), (20, 2, 20), (50, 3, 50 + 30 + 10), (100, 6, 300)] {
            assert_eq!(with_missed(late_ms * MS), (alarms, sum_ms * MS), "{late_ms} ms");
        }
        assert_eq!(with_missed(LATE_NS_MIN - 1), (1, 0), "the alarm itself");
    }
}
