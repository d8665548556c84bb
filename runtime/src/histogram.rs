//! Log-linear histograms of nanoseconds (after HdrHistogram, G. Tene): 8 buckets per power of two, hence within
//! 12.5% of the true value. Written by one thread without locked instructions, read by any.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets per power of two.
const SUB: usize = 8;
/// Values from 2^38 ns (275 s) on share the last bucket.
const OCTAVES: usize = 36;
const BUCKETS: usize = SUB * OCTAVES;

/// A histogram with one writer at a time.
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
    max: AtomicU64,
    min: AtomicU64,
}

fn bucket_of(ns: u64) -> usize {
    // Without a branch: every request asks for it several times. Below SUB each value has its own bucket.
    let shift = 60 - (ns | SUB as u64).leading_zeros() as usize;
    (shift * SUB + (ns >> shift) as usize).min(BUCKETS - 1)
}

fn bucket_end(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let (octave, within) = (bucket / SUB + 2, bucket % SUB);
    ((SUB + within + 1) as u64) << (octave - 3)
}

fn bump(cell: &AtomicU64, by: u64) {
    // One writer: a plain load and store instead of a locked add.
    cell.store(cell.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
        }
    }
}

impl Histogram {
    /// Counts one value; only one thread at a time may record.
    #[inline]
    pub fn record(&self, ns: u64) {
        bump(&self.buckets[bucket_of(ns)], 1);
        bump(&self.sum, ns);
        // New extremes are rare: most values cost two comparisons.
        if ns > self.max.load(Ordering::Relaxed) {
            self.max.store(ns, Ordering::Relaxed);
        }
        if ns < self.min.load(Ordering::Relaxed) {
            self.min.store(ns, Ordering::Relaxed);
        }
    }
    /// Sum of the values.
    pub fn sum_ns(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
    /// Adds what this histogram holds to a summary.
    pub fn add_to(&self, summary: &mut Summary) {
        for (bucket, count) in self.buckets.iter().enumerate() {
            summary.buckets[bucket] += count.load(Ordering::Relaxed);
        }
        summary.sum += self.sum.load(Ordering::Relaxed);
        summary.max = summary.max.max(self.max.load(Ordering::Relaxed));
        summary.min = summary.min.min(self.min.load(Ordering::Relaxed));
    }
    /// What it holds now.
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
    min: u64,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary { buckets: vec![0; BUCKETS], sum: 0, max: 0, min: u64::MAX }
    }
}

impl Summary {
    /// Values counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
    /// Sum of the values, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum
    }
    /// Smallest value; 0 if there is none.
    pub fn min_ns(&self) -> u64 {
        if self.min == u64::MAX { 0 } else { self.min }
    }
    /// Largest value.
    pub fn max_ns(&self) -> u64 {
        self.max
    }
    /// Mean; 0 if there is none.
    pub fn mean_ns(&self) -> u64 {
        self.sum.checked_div(self.count()).unwrap_or(0)
    }
    /// The value that a share of all values (0..=1) does not exceed, within 12.5%.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &in_bucket) in self.buckets.iter().enumerate() {
            seen += in_bucket;
            if count > 0 && seen >= rank {
                return bucket_end(bucket).min(self.max).max(self.min_ns());
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

    #[test]
    fn buckets_ascend_and_cover() {
        let mut last = 0;
        for power in 0..64 {
            for ns in [1u64 << power, (1u64 << power) | (1u64 << power) >> 1] {
                let bucket = bucket_of(ns);
                assert!(bucket >= last && bucket < BUCKETS);
                last = bucket;
            }
        }
    }
}
