//! Durations as a snapshot carries them: a histogram of which any two can be subtracted.

use runtime::histogram::{Summary, bucket_end};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The durations of some kind of event since the daemon's start, or within a window.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Times {
    /// Number of events.
    pub count: u64,
    /// Sum of their durations, in nanoseconds.
    pub sum_ns: u64,
    /// The longest since the start; of a window, the end of the last bucket that has any, if that is less.
    pub max_ns: u64,
    /// Nanoseconds per unit of the buckets' values.
    pub unit_ns: f64,
    /// Counts by bucket (`runtime::histogram`: 8 buckets per power of two), in the order of values.
    pub buckets: BTreeMap<u16, u64>,
}

impl Times {
    /// The durations of a histogram.
    pub fn of(summary: &Summary) -> Times {
        Times {
            count: summary.count(),
            sum_ns: summary.sum_ns(),
            max_ns: summary.max_ns(),
            unit_ns: summary.unit_ns(),
            buckets: summary.buckets().map(|(number, count)| (number as u16, count)).collect(),
        }
    }
    /// The events since `earlier`.
    pub fn since(&self, earlier: &Times) -> Times {
        let less = |(&number, &count): (&u16, &u64)| {
            let count = count.saturating_sub(earlier.buckets.get(&number).copied().unwrap_or(0));
            (count > 0).then_some((number, count))
        };
        let mut since = Times {
            count: self.count.saturating_sub(earlier.count),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            max_ns: self.max_ns,
            unit_ns: self.unit_ns,
            buckets: self.buckets.iter().filter_map(less).collect(),
        };
        let last = since.buckets.keys().next_back().copied();
        since.max_ns = last.map_or(0, |last| since.end_ns(last)).min(self.max_ns);
        since
    }
    /// Adds durations of the same unit.
    pub fn add(&mut self, other: &Times) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.unit_ns = other.unit_ns;
        for (&number, &count) in &other.buckets {
            *self.buckets.entry(number).or_default() += count;
        }
    }
    fn end_ns(&self, bucket: u16) -> u64 {
        // Unknown buckets of a file that was changed by hand end somewhere too.
        let end = bucket_end(usize::from(bucket).min(511));
        (end as f64 * self.unit_ns) as u64
    }
    /// The shortest, up to an eighth more; 0 if there is none.
    pub fn min_ns(&self) -> u64 {
        self.buckets.keys().next().map_or(0, |first| self.end_ns(*first).min(self.max_ns))
    }
    /// The events of each bucket: the longest that they may have taken, in nanoseconds, and their number; in order.
    pub fn ends(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|(&number, &count)| (self.end_ns(number), count))
    }
    /// Mean; 0 if there is none.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }
    /// The duration that a share (0..=1) of all does not exceed, within 12.5%; 0 if there is none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (&number, &count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return self.end_ns(number).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Histogram;

    #[test]
    fn two_looks_at_a_histogram_give_what_came_between() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|ns| histogram.record(ns));
        let before = Times::of(&histogram.summary());
        (0..100).for_each(|number| histogram.record(5000 + number));
        let since = Times::of(&histogram.summary()).since(&before);
        assert_eq!((since.count, since.sum_ns, since.mean_ns()), (100, 504_950, 5049));
        assert!((4400..5700).contains(&since.quantile_ns(0.5)), "{}", since.quantile_ns(0.5));
        assert_eq!(since.max_ns, 5099);
        let none = before.since(&before);
        assert_eq!((none.count, none.mean_ns(), none.quantile_ns(0.99), none.max_ns), (0, 0, 0, 0));
    }

    #[test]
    fn figures_that_went_back_are_nothing() {
        let later = Times { count: 3, sum_ns: 30, max_ns: 10, unit_ns: 1.0, buckets: [(8, 3)].into() };
        let since = Times::default().since(&later);
        assert_eq!((since.count, since.sum_ns, since.buckets.len()), (0, 0, 0));
    }
}
