//! The last seconds of a daemon, as tables and sentences: what the console shows beside its charts. Pure.

use explain::snapshot::{Io, Space, Whole};
use explain::times::Times;
use explain::{Explanation, Finding, Window};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Slowest requests that are shown: a table that a person reads.
const SLOWEST_MAX: usize = 20;

/// The last seconds.
#[derive(Serialize, Debug)]
pub struct Last {
    /// The verdict, its evidence, and the stages of requests.
    pub explanation: Explanation,
    /// The other causes in words, in the explanation's order.
    pub titles: Vec<String>,
    /// The daemon's own I/O.
    pub io: Vec<IoRow>,
    /// Locks, those that were waited for most first.
    pub locks: Vec<LockRow>,
    /// Pools.
    pub pools: Vec<PoolRow>,
    /// The slowest requests of the last two minutes, the slowest first.
    pub slowest: Vec<Whole>,
    /// The brick's space.
    pub space: Space,
    /// Segments in use, by the tenth of their blocks that is live.
    pub liveness: Vec<u64>,
}

/// I/O of a purpose and verb.
#[derive(Serialize, Debug, Default)]
pub struct IoRow {
    /// The work that it was a part of.
    pub purpose: String,
    /// `read`, `write` or `flush`.
    pub verb: String,
    /// Transfers per second.
    pub rate: f64,
    /// Bytes per second.
    pub bytes: f64,
    /// Mean, median and 99th percentile of their durations, in nanoseconds.
    pub took_ns: [u64; 3],
}

/// Locks of a name.
#[derive(Serialize, Debug)]
pub struct LockRow {
    /// The name.
    pub name: String,
    /// Acquisitions per second.
    pub rate: f64,
    /// The share of them that had to wait.
    pub contended: f64,
    /// The share of the requests' time for which threads waited for it.
    pub share: f64,
    /// Mean wait of those, and mean time for which it was held, in nanoseconds.
    pub mean_ns: [u64; 2],
}

/// A pool.
#[derive(Serialize, Debug)]
pub struct PoolRow {
    /// The name.
    pub name: String,
    /// Threads now.
    pub threads: u64,
    /// Jobs that wait now.
    pub queued: u64,
    /// Jobs per second.
    pub rate: f64,
    /// Mean and 99th percentile of their waits, in nanoseconds.
    pub wait_ns: [u64; 2],
}

/// The tables of a window, with the slowest requests and the liveness of segments, which are no differences.
pub fn last(window: &Window, explanation: Explanation, mut slowest: Vec<Whole>, liveness: Vec<u64>) -> Last {
    slowest.sort_by_key(|whole| Reverse(whole.duration_ns));
    slowest.truncate(SLOWEST_MAX);
    let title = |finding: &Finding| explain::verdict::title(&finding.cause).to_string();
    Last {
        titles: explanation.others.iter().map(title).collect(),
        explanation,
        io: io(window),
        locks: locks(window),
        pools: pools(window),
        slowest,
        space: window.after.space.clone(),
        liveness,
    }
}

fn io(window: &Window) -> Vec<IoRow> {
    let mut rows: BTreeMap<(&str, &str), (Times, u64)> = BTreeMap::new();
    for Io { purpose, verb, took, bytes, .. } in &window.io {
        let (sum, moved) = rows.entry((purpose, verb)).or_default();
        sum.add(took);
        *moved += bytes;
    }
    let row = |((purpose, verb), (took, bytes)): ((&str, &str), (Times, u64))| IoRow {
        purpose: purpose.to_string(),
        verb: verb.to_string(),
        rate: window.per_second(took.count as f64),
        bytes: window.per_second(bytes as f64),
        took_ns: [took.mean_ns(), took.quantile_ns(0.5), took.quantile_ns(0.99)],
    };
    rows.into_iter().map(row).collect()
}

fn locks(window: &Window) -> Vec<LockRow> {
    let row = |(lock, share): (&explain::snapshot::Lock, f64)| LockRow {
        name: lock.name.clone(),
        rate: window.per_second(lock.acquired as f64),
        contended: lock.contended as f64 / lock.acquired as f64,
        share,
        mean_ns: [lock.wait.mean_ns(), lock.hold.mean_ns()],
    };
    window.locks_by_wait().into_iter().map(row).collect()
}

fn pools(window: &Window) -> Vec<PoolRow> {
    let row = |pool: &explain::snapshot::Pool| PoolRow {
        name: pool.name.clone(),
        threads: pool.threads,
        queued: pool.queued,
        rate: window.per_second(pool.jobs as f64),
        wait_ns: [pool.wait.mean_ns(), pool.wait.quantile_ns(0.99)],
    };
    window.pools.iter().map(row).collect()
}
