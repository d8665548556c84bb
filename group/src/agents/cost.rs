//! What a replay would take if the brick were killed now (rule X2). A checkpoint is due before that is more than a start
//! may take. The speeds are below those of the slowest machines that we know.
//!
//! What is not durable is compared with its checksums besides: written within a second, read in pieces of a megabyte, it
//! takes less than a second. *Absent:* the log behind its end, of which a start looks at a segment or two.

use base::limits::{DURABLE_WITHIN_NS, REPLAY_NS_MAX};

/// 0.5 GB/s.
const BYTE_NS: u64 = 2;
/// 200,000 records per second.
const RECORD_NS: u64 = 5_000;
/// A look-up in the index, where nothing is in memory after a start: one after the other, each a read or two of the device.
const LOAD_NS: u64 = 50_000;

/// What there is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Bytes of log to be read.
    pub bytes: u64,
    /// Records to be applied.
    pub records: u64,
    /// Rows of the index that they need.
    pub loads: u64,
}

impl Cost {
    /// How long that takes, estimated from above.
    pub fn ns(self) -> u64 {
        let parts = [(self.bytes, BYTE_NS), (self.records, RECORD_NS), (self.loads, LOAD_NS)];
        parts.iter().fold(0u64, |sum, &(count, ns)| sum.saturating_add(count.saturating_mul(ns)))
    }
    /// True if a replay may take as long as one should, with what is not durable yet.
    pub fn is_due(self) -> bool {
        self.ns() >= REPLAY_NS_MAX - DURABLE_WITHIN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::Cost;

    #[test]
    fn what_a_replay_does_is_added_up() {
        let cost = |bytes, records, loads| Cost { bytes, records, loads };
        let half = [cost(1 << 30, 0, 0), cost(0, 400_000, 0), cost(0, 0, 40_000)];
        assert!(half.iter().all(|one| !one.is_due()));
        for (one, other) in [(half[0], half[1]), (half[1], half[2]), (half[2], half[0])] {
            let both = cost(one.bytes + other.bytes, one.records + other.records, one.loads + other.loads);
            assert!(both.is_due(), "{both:?}");
        }
        assert!(cost(u64::MAX, u64::MAX, u64::MAX).is_due());
    }
}
