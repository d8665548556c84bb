//! Moments and durations of what only explains, in the unit in which the ledger counts: the processor's ticks where the
//! kernel trusts them, nanoseconds of the clock otherwise. They are added and sorted as they are, and become nanoseconds
//! when somebody reads the ledger.

/// A moment. Nothing may depend on it; 0 in a build without observation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stamp(pub u64);

/// How long something took.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Lapse(pub u64);

impl Stamp {
    /// The time since `earlier`; none if it was later.
    pub fn since(self, earlier: Stamp) -> Lapse {
        Lapse(self.0.saturating_sub(earlier.0))
    }
}

/// How long a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    /// Nanoseconds, in parts of 2^32.
    pub(crate) scale: u64,
}

impl Unit {
    /// A nanosecond.
    pub(crate) const NS: Unit = Unit { scale: 1 << 32 };
    /// So many, in nanoseconds.
    pub(crate) fn ns(self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.scale)) >> 32) as u64
    }
    /// How many make so many nanoseconds.
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
