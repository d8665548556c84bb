//! Timestamps for statistics. Reading the kernel's clock costs some 50 instructions, and a request takes about seven
//! timestamps for the ledger. So the processor's tick counter is read instead, if the kernel uses that counter as its
//! own clock source. The length of a tick is calibrated against the clock now and then; it is needed only when the
//! ledger is read.

use super::clock::now_ns;
use crate::stamp::{Stamp, Unit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The file that names the source of the kernel's clocks.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// The kernel's name for the processor's counter, used while it is the same on all CPUs and never halts.
const TRUSTED: &str = "tsc";
/// Duration of the first calibration. The length of a tick is then right to a thousandth, and later to a millionth.
const FIRST: Duration = Duration::from_millis(1);
/// Shortest time between two calibrations, in nanoseconds.
const AGAIN_NS: u64 = 100_000_000;

/// Number of readings of which the quickest counts: a thread may be interrupted between clock and counter.
const READINGS: usize = 5;

/// The calibration of ticks against the nanoseconds of `now_ns`. By default it reads the clock itself.
#[derive(Default)]
pub struct Stamps {
    since_ticks: u64,
    since_ns: u64,
    /// Nanoseconds per tick, in parts of 2^32; 0: the counter is not trusted.
    scale: AtomicU64,
    /// Time of the last calibration.
    scaled_ns: AtomicU64,
}

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: all x86-64 processors have it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Zero: the counter is not trusted on this processor, hence not read.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn ticks() -> u64 {
    0
}

/// Reads the clock, and the ticks at that moment.
fn look() -> (u64, u64) {
    let reading = || {
        let (before, ns, after) = (ticks(), now_ns(), ticks());
        (after.wrapping_sub(before), ns, before)
    };
    let (took, ns, before) = (0..READINGS).map(|_| reading()).min().expect("there are some");
    (ns, before.wrapping_add(took / 2))
}

impl Stamps {
    /// Finds out whether the counter is trusted, and how fast it counts.
    pub fn start() -> Stamps {
        let (since_ns, since_ticks) = look();
        let stamps = Stamps { since_ticks, since_ns, ..Stamps::default() };
        let source = std::fs::read_to_string(SOURCE).unwrap_or_default();
        if cfg!(target_arch = "x86_64") && source.trim() == TRUSTED {
            std::thread::sleep(FIRST);
            stamps.rescale();
        }
        stamps
    }
    /// True if timestamps are ticks and not read from the clock.
    pub(crate) fn are_trusted(&self) -> bool {
        self.scale.load(Ordering::Relaxed) > 0
    }
    /// The length of a tick, as far as it is known.
    pub(crate) fn unit(&self) -> Unit {
        Unit { scale: self.scale.load(Ordering::Relaxed) }
    }
    /// The time at which the counter stood at `ticks`, in nanoseconds.
    pub(crate) fn ns_at(&self, ticks: u64) -> u64 {
        self.since_ns + self.unit().ns(ticks.wrapping_sub(self.since_ticks))
    }
    /// The time in the ledger's unit.
    pub fn stamp(&self) -> Stamp {
        Stamp(if self.are_trusted() { ticks() } else { now_ns() })
    }
    /// The time in the ledger's unit and in nanoseconds, by one reading.
    pub fn now(&self) -> (Stamp, u64) {
        if self.are_trusted() {
            let ticks = ticks();
            (Stamp(ticks), self.ns_at(ticks))
        } else {
            let ns = now_ns();
            (Stamp(ns), ns)
        }
    }
    /// Nanoseconds, nearly as `now_ns` gives them.
    pub fn now_ns(&self) -> u64 {
        self.now().1
    }
    /// Calibrates the counter against the clock, if that is due at `now_ns`.
    pub fn refine(&self, now_ns: u64) {
        let due = now_ns >= self.scaled_ns.load(Ordering::Relaxed) + AGAIN_NS;
        if due && self.scale.load(Ordering::Relaxed) > 0 {
            self.rescale();
        }
    }
    /// A calibration for tests: the counter stood at `since_ticks` at `since_ns`; `scale`: see the field.
    #[cfg(test)]
    pub(crate) fn of(since_ticks: u64, since_ns: u64, scale: u64) -> Stamps {
        Stamps { since_ticks, since_ns, scale: AtomicU64::new(scale), scaled_ns: AtomicU64::new(since_ns) }
    }
    fn rescale(&self) {
        let (now_ns, ticks) = look();
        let ticks = ticks.wrapping_sub(self.since_ticks).max(1);
        let scale = (u128::from(now_ns - self.since_ns) << 32) / u128::from(ticks);
        self.scale.store(scale as u64, Ordering::Relaxed);
        self.scaled_ns.store(now_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_go_with_the_clock() {
        let stamps = Stamps::start();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            let (before, stamp, after) = (now_ns(), stamps.now_ns(), now_ns());
            stamps.refine(after);
            // A thousandth of what has passed, and what may lie between the two readings of a look.
            let slack = (after - stamps.since_ns) / 1000 + 20_000;
            assert!((before - slack..after + slack).contains(&stamp), "{before} {stamp} {after}");
        }
    }

    #[test]
    fn a_later_look_is_more_exact() {
        let stamps = Stamps::start();
        stamps.scale.store(1 << 20, Ordering::Relaxed);
        stamps.refine(stamps.since_ns);
        assert_eq!(stamps.scale.load(Ordering::Relaxed), 1 << 20, "not due yet");
        std::thread::sleep(Duration::from_nanos(AGAIN_NS));
        stamps.refine(now_ns());
        let (stamp, now) = (stamps.now_ns(), now_ns());
        assert!(stamp.abs_diff(now) < AGAIN_NS / 100, "{stamp} {now}");
    }

    #[test]
    fn without_trust_the_clock_itself_is_read() {
        let stamps = Stamps::start();
        stamps.scale.store(0, Ordering::Relaxed);
        let before = now_ns();
        stamps.refine(before + 2 * AGAIN_NS);
        let (stamp, after) = (stamps.now_ns(), now_ns());
        assert!((before..=after).contains(&stamp));
    }
}
