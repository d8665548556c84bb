//! The estimated duration of a replay if the brick were killed now (rule X2). A checkpoint is due before the estimate
//! exceeds the permitted duration of a start. The speeds are below those of the slowest machines that we know.
//!
//! A replay also compares payloads that are not known to be durable with their checksums. They were written within
//! about a second (rule U3), and reading them in pieces of a megabyte takes less than that, so `is_due` leaves a second
//! for it. *Absent:* the search for the log's end, which reads a segment or two.

use base::limits::{DURABLE_WITHIN_NS, REPLAY_NS_MAX};

/// Time per byte: 0.5 GB/s.
const BYTE_NS: u64 = 2;
/// Time per record: 200,000 records per second.
const RECORD_NS: u64 = 5_000;
/// Time per look-up in the index. After a start the index has nothing in memory, so each look-up takes a read or two of
/// the device, one after the other.
const LOAD_NS: u64 = 50_000;
const _: () = assert!(DURABLE_WITHIN_NS < REPLAY_NS_MAX);

/// The work of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Bytes of log to be read.
    pub bytes: u64,
    /// Records to be applied.
    pub records: u64,
    /// Rows of the index that the records need.
    pub loads: u64,
}

impl Cost {
    /// Upper estimate of the replay's duration in nanoseconds.
    pub fn ns(self) -> u64 {
        let parts = [(self.bytes, BYTE_NS), (self.records, RECORD_NS), (self.loads, LOAD_NS)];
        parts.iter().fold(0u64, |sum, &(count, ns)| sum.saturating_add(count.saturating_mul(ns)))
    }
    /// True if a replay, with the records that are not durable yet, may take as long as permitted.
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
