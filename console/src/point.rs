//! A second of a daemon in few numbers: a point of every chart. Pure.

use explain::Window;
use explain::times::Times;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of the latency map per power of two.
const ROWS_PER_OCTAVE: f64 = 2.0;

/// A point. Rates are per second, shares are parts of 1.
#[derive(Serialize, PartialEq, Debug)]
pub struct Point {
    /// Seconds since the daemon's start.
    pub at: f64,
    /// Requests by operation.
    pub operations: BTreeMap<String, Rate>,
    /// The share of its time for which each core's thread ran, and for which it waited for a CPU.
    pub cores: Vec<[f64; 2]>,
    /// Mean number of requests that the daemon had.
    pub in_flight: f64,
    /// Bytes per second by purpose and verb of the daemon's own I/O.
    pub io: BTreeMap<String, f64>,
    /// Bytes of log that a start after a crash would replay.
    pub backlog_bytes: u64,
}

/// An operation's requests.
#[derive(Serialize, PartialEq, Debug)]
pub struct Rate {
    /// Requests.
    pub rate: f64,
    /// Their mean duration in nanoseconds.
    pub mean_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// Numbers of requests by row of the latency map: row r has durations up to 2^(r/2) nanoseconds.
    pub rows: BTreeMap<u32, u64>,
}

/// The point of a window.
pub fn point(window: &Window) -> Point {
    let rate = |total: &Times| Rate {
        rate: window.per_second(total.count as f64),
        mean_ns: total.mean_ns(),
        p99_ns: total.quantile_ns(0.99),
        rows: rows(total),
    };
    let mut io: BTreeMap<String, f64> = BTreeMap::new();
    for class in window.io.iter().filter(|class| class.bytes > 0) {
        *io.entry(format!("{} {}", class.purpose, class.verb)).or_default() += window.per_second(class.bytes as f64);
    }
    Point {
        at: window.after.at_ns.saturating_sub(window.after.started_ns) as f64 / 1e9,
        operations: window.operations.iter().map(|one| (one.name.clone(), rate(&one.total))).collect(),
        cores: window.cores.iter().map(|core| [window.share(core.run_ns), window.share(core.wait_ns)]).collect(),
        in_flight: window.occupancy(),
        io,
        backlog_bytes: window.after.log.backlog_bytes,
    }
}

fn rows(total: &Times) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for (end_ns, count) in total.ends() {
        let row = ((end_ns.max(1) as f64).log2() * ROWS_PER_OCTAVE).ceil();
        *rows.entry(row as u32).or_default() += count;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use explain::Snapshot;
    use explain::snapshot::{Io, Log, Operation, Process, Thread};

    /// The snapshot of a daemon after so many seconds, at the same rates all the time.
    fn after(seconds: u64) -> Snapshot {
        // Bucket 136 ends at 2^17 - 2 ns.
        let times = |count| Times {
            count,
            sum_ns: 100_000 * count,
            max_ns: 131_000,
            unit_ns: 1.0,
            buckets: [(135, count)].into(),
        };
        let io = |purpose: &str, bytes| Io {
            purpose: purpose.into(),
            verb: "read".into(),
            took: times(seconds),
            bytes,
            ..Io::default()
        };
        let core = Thread { name: "sinter-core-0".into(), id: 7, run_ns: 250_000_000 * seconds, wait_ns: 0 };
        Snapshot {
            at_ns: 5_000_000_000 + 1_000_000_000 * seconds,
            started_ns: 5_000_000_000,
            operations: vec![Operation { name: "read".into(), total: times(2_000 * seconds), ..Operation::default() }],
            io: vec![io("client", 4096 * seconds), Io { bytes_max: 1, ..io("client", 512 * seconds) }, io("log", 0)],
            process: Process { threads: vec![core], ..Process::default() },
            log: Log { backlog_bytes: 77, ..Log::default() },
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_point_has_rates_and_shares_whatever_the_windows_length() {
        for length in [1, 3] {
            let point = point(&Window::between(&after(2), &after(2 + length)).expect("in order"));
            assert_eq!((point.at, point.backlog_bytes), (2.0 + length as f64, 77));
            let read = &point.operations["read"];
            assert_eq!((read.rate, read.mean_ns, read.p99_ns), (2000.0, 100_000, 131_000));
            assert_eq!(read.rows, [(34, 2000 * length)].into(), "up to 2^17 ns");
            assert_eq!((point.cores, point.in_flight), (vec![[0.25, 0.0]], 0.2));
            assert_eq!(point.io, [("client read".to_string(), 4608.0)].into(), "classes of a purpose are one");
        }
    }
}
