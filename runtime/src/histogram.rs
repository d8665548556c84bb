//! Log-linear histograms of durations (after HdrHistogram, G. Tene): 8 buckets per power of two, hence within 12.5% of
//! the true value. One thread writes a histogram, without locked instructions; any thread may read it.

use crate::stamp::Unit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per power of two: as many as three bits of a float's mantissa distinguish.
const SUB: usize = 8;
/// Number of powers of two that a duration may have.
const OCTAVES: usize = 64;
const BUCKETS: usize = SUB * OCTAVES;
/// Bits of a float's mantissa below those three.
const BELOW: u32 = f64::MANTISSA_DIGITS - 1 - SUB.ilog2();
/// Position of the bucket of 0, the first one: the exponent of 1.0, without the bits that durations never reach.
const FIRST: usize = (1.0f64.to_bits() >> BELOW) as usize % BUCKETS;

/// Position of a value's bucket: the exponent and the first bits of the mantissa of the value as a float, which the
/// processor converts in one instruction. (Every request needs this several times.) The value is raised by one first,
/// since 0 has no exponent.
fn place_of(value: u64) -> usize {
    (((value as i64).wrapping_add(1)) as f64).to_bits() as usize >> BELOW & (BUCKETS - 1)
}

/// Number of buckets of every histogram outside of the ledger: there are many of these, and their memory matters more
/// than an instruction. Values from 2^38 ns (275 s) on share the last bucket.
const SHORT: usize = SUB * 38;

/// The largest value of a bucket, by its number in the order of values. The first octaves have fewer values than
/// buckets: buckets between two whole numbers stay empty.
pub fn bucket_end(number: usize) -> u64 {
    let (octave, within) = (number / SUB, number % SUB);
    let next = (((SUB + within + 1) as u128) << octave).div_ceil(SUB as u128);
    (next - 2) as u64
}

/// The smallest value of a bucket.
fn bucket_start(number: usize) -> u64 {
    ((((SUB + number % SUB) as u128) << (number / SUB)).div_ceil(SUB as u128) - 1) as u64
}

/// Adds to a counter that only one thread writes: a plain load and store instead of a locked add. Returns the new count.
#[inline(always)]
pub(crate) fn bump(cell: &AtomicU64, by: u64) -> u64 {
    let count = cell.load(Ordering::Relaxed) + by;
    cell.store(count, Ordering::Relaxed);
    count
}

/// The counters of a histogram, in any unit, for one writer at a time. A histogram with all `BUCKETS` has them in the
/// order of `place_of`, a shorter one in the order of values.
pub(crate) struct Cells<const N: usize = BUCKETS> {
    buckets: [AtomicU64; N],
    sum: AtomicU64,
    max: AtomicU64,
}

impl<const N: usize> Default for Cells<N> {
    fn default() -> Cells<N> {
        let zero = || AtomicU64::new(0);
        let buckets = [const { AtomicU64::new(0) }; N];
        Cells { buckets, sum: zero(), max: zero() }
    }
}

impl<const N: usize> Cells<N> {
    /// The bucket that counts a value.
    #[inline]
    fn place(value: u64) -> usize {
        let place = place_of(value);
        if N == BUCKETS { place } else { ((place + BUCKETS - FIRST) % BUCKETS).min(N - 1) }
    }
    /// Counts one value; only one thread at a time may record.
    #[inline]
    pub(crate) fn record(&self, value: u64) {
        // New extremes are rare.
        if value > self.max.load(Ordering::Relaxed) {
            self.max.store(value, Ordering::Relaxed);
        }
        bump(&self.buckets[Cells::<N>::place(value)], 1);
        bump(&self.sum, value);
    }
    /// True if nothing was counted yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.sum() == 0 && self.buckets[Cells::<N>::place(0)].load(Ordering::Relaxed) == 0
    }
    /// Sum of the values.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
    /// Adds the histogram's counts to a summary.
    pub(crate) fn add_to(&self, summary: &mut Summary) {
        if self.is_empty() {
            return;
        }
        let first = Cells::<N>::place(0);
        for (number, sum) in summary.buckets[..N].iter_mut().enumerate() {
            *sum += self.buckets[(first + number) % N].load(Ordering::Relaxed);
        }
        summary.sum += self.sum();
        summary.max = summary.max.max(self.max.load(Ordering::Relaxed));
    }
}

/// A histogram of nanoseconds with one writer at a time.
#[derive(Default)]
pub struct Histogram(Box<Cells<SHORT>>);

impl Histogram {
    /// Counts one value; only one thread at a time may record.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.0.record(ns);
    }
    /// Adds this histogram's counts to a summary.
    pub fn add_to(&self, summary: &mut Summary) {
        self.0.add_to(summary);
    }
    /// A summary of the present counts.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        self.add_to(&mut summary);
        summary
    }
}

/// The sum of any number of histograms.
#[derive(Clone)]
pub struct Summary {
    buckets: Vec<u64>,
    sum: u64,
    max: u64,
    unit: Unit,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary::of(Unit::NS)
    }
}

impl Summary {
    /// A summary without values; all values added to it must be in this unit.
    pub(crate) fn of(unit: Unit) -> Summary {
        Summary { buckets: vec![0; BUCKETS], sum: 0, max: 0, unit }
    }
    /// The buckets that hold any value, each with its number in the order of values and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        self.buckets.iter().copied().enumerate().filter(|&(_, count)| count > 0)
    }
    /// The values counted since `before`, an earlier summary of the same histograms. Its largest value is the largest of all.
    pub fn since(&self, before: &Summary) -> Summary {
        let buckets = self.buckets.iter().zip(&before.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        Summary { buckets, sum: self.sum.saturating_sub(before.sum), ..*self }
    }
    /// Adds the values of another summary. In two units, the result is in that of the one that has values.
    pub fn add(&mut self, more: &Summary) {
        if self.sum == 0 {
            self.unit = more.unit;
        }
        self.buckets.iter_mut().zip(&more.buckets).for_each(|(sum, more)| *sum += more);
        self.sum += more.sum;
        self.max = self.max.max(more.max);
    }
    /// Nanoseconds per unit of the buckets' values.
    pub fn unit_ns(&self) -> f64 {
        self.unit.scale as f64 / (1u64 << 32) as f64
    }
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
    /// Sum of the values, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.unit.ns(self.sum)
    }
    /// Smallest value, within 12.5%; 0 if there is none.
    pub fn min_ns(&self) -> u64 {
        let first = self.buckets.iter().position(|&count| count > 0);
        self.unit.ns(first.map_or(0, bucket_start))
    }
    /// Largest value.
    pub fn max_ns(&self) -> u64 {
        self.unit.ns(self.max)
    }
    /// Mean; 0 if there is none.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns().checked_div(self.count()).unwrap_or(0)
    }
    /// The value that a share (0..=1) of all values does not exceed, within 12.5%.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (number, &in_bucket) in self.buckets.iter().enumerate() {
            seen += in_bucket;
            if count > 0 && seen >= rank {
                // The largest of all is in the last one that holds any.
                return if seen == count { self.max_ns() } else { self.unit.ns(bucket_end(number)) };
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_an_eighth() {
        let histogram = Histogram::default();
        (1..=100_000u64).for_each(|ns| histogram.record(ns));
        let summary = histogram.summary();
        assert_eq!(summary.count(), 100_000);
        assert_eq!((summary.min_ns(), summary.max_ns()), (1, 100_000));
        for (share, truth) in [(0.5, 50_000.0), (0.99, 99_000.0)] {
            let error = summary.quantile_ns(share) as f64 / truth;
            assert!((0.875..=1.125).contains(&error), "{share}: {error}");
        }
    }

    fn number_of(value: u64) -> usize {
        (place_of(value) + BUCKETS - FIRST) % BUCKETS
    }

    #[test]
    fn buckets_ascend_and_cover() {
        // All small values, then some of each octave that a float tells exactly.
        let large = (12..52).flat_map(|power| (0..64).map(move |part| (1u64 << power) + (part << (power - 6))));
        let mut last = 0;
        for value in (0..1 << 12).chain(large) {
            let number = number_of(value);
            assert!(number >= last, "{value}");
            assert!(value <= bucket_end(number), "{value}");
            assert!(value >= bucket_start(number), "{value}");
            assert!(number == 0 || value > bucket_end(number - 1), "{value}");
            last = number;
        }
        // Beyond, a float's rounding may count a value to the next one.
        (52..63).for_each(|power| assert_eq!(number_of(1 << power), power * SUB));
        assert_eq!(bucket_end(62 * SUB + SUB - 1), (1 << 63) - 2);
    }

    #[test]
    fn a_bucket_is_an_eighth_of_its_values_wide() {
        for number in 3 * SUB..BUCKETS {
            let (before, end) = (bucket_end(number - 1), bucket_end(number));
            assert!((end - before) <= before.div_ceil(SUB as u64) + 1, "{number}: {before} {end}");
        }
    }

    #[test]
    fn the_last_bucket_takes_what_is_longer() {
        let histogram = Histogram::default();
        let second = 1_000_000_000u64;
        [100 * second, 1000 * second, 5000 * second].into_iter().for_each(|ns| histogram.record(ns));
        let summary = histogram.summary();
        assert_eq!((summary.count(), summary.max_ns()), (3, 5000 * second));
        assert!((100 * second..=112 * second).contains(&summary.quantile_ns(0.3)));
        assert_eq!(summary.quantile_ns(1.0), 5000 * second);
    }

    #[test]
    fn extremes_are_told_in_any_order() {
        for values in [&[0, 7][..], &[7, 0], &[5], &[0], &[3, 9, 1, 4], &[9, 9], &[6000, 5000, 7000]] {
            let histogram = Histogram::default();
            values.iter().for_each(|&ns| histogram.record(ns));
            let summary = histogram.summary();
            let told = (summary.count(), summary.max_ns(), summary.sum_ns());
            let (min, max) = (*values.iter().min().expect("some"), *values.iter().max().expect("some"));
            assert_eq!(told, (values.len() as u64, max, values.iter().sum()), "{values:?}");
            assert!((min - min / 8..=min).contains(&summary.min_ns()), "{values:?}");
        }
        let none = Histogram::default().summary();
        assert_eq!(
            (none.count(), none.min_ns(), none.max_ns(), none.mean_ns(), none.quantile_ns(0.5)),
            (0, 0, 0, 0, 0)
        );
    }
}
