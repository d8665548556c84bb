//! Timestamps and durations for statistics only. They count in the ledger's unit: ticks of the processor's counter if
//! the kernel uses that counter as its own clock source, else nanoseconds of the clock. They are added and compared in
//! that unit, and converted to nanoseconds when the ledger is read.

/// A timestamp, for statistics only: no decision may depend on it. Always 0 in a build without observation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stamp(pub u64);

/// A duration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Lapse(pub u64);

impl Stamp {
    /// The time since `earlier`; zero if that was later.
    pub fn since(self, earlier: Stamp) -> Lapse {
        Lapse(self.0.saturating_sub(earlier.0))
    }
}

/// The length of the ledger's unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    /// Nanoseconds, in parts of 2^32.
    pub(crate) scale: u64,
}

impl Unit {
    /// A nanosecond.
    pub(crate) const NS: Unit = Unit { scale: 1 << 32 };
    /// Converts `count` units to nanoseconds.
    pub(crate) fn ns(self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.scale)) >> 32) as u64
    }
    /// Converts `ns` nanoseconds to units.
    pub(crate) fn count(self, ns: u64) -> u64 {
        ((u128::from(ns) << 32) / u128::from(self.scale)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_ticks_are_scaled_without_overflow() {
        let week_ns = 7 * 86_400 * 1_000_000_000u64;
        let third = Unit { scale: (1 << 32) / 3 };
        assert!(third.ns(3 * week_ns).abs_diff(week_ns) < week_ns / 1_000_000_000 + 1);
        assert!(third.count(week_ns).abs_diff(3 * week_ns) < 3 * week_ns / 1_000_000_000 + 1);
        assert_eq!((Unit::NS.ns(week_ns), Unit::NS.count(week_ns)), (week_ns, week_ns));
    }

    #[test]
    fn no_time_has_passed_since_later() {
        assert_eq!(Stamp(5).since(Stamp(3)), Lapse(2));
        assert_eq!(Stamp(3).since(Stamp(5)), Lapse(0));
    }
}
