//! Faults of a simulated disk, as a value.

use crate::disk::FileId;
use crate::random::SplitMix;
use base::Kind;

/// The choice of failing operations among those of one kind, which are counted from 1 since the plan was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fail {
    /// No operation.
    #[default]
    Never,
    /// The operation of this number only.
    Nth(u64),
    /// The operation of this number and all after it.
    From(u64),
    /// One operation in this many (at least 1), by seed.
    OneIn(u64),
}

/// A disk's faults. The default has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// Only transfers of this file fail or stall, and only they are counted.
    pub only: Option<FileId>,
    /// Reads that end with an I/O error.
    pub reads: Fail,
    /// A byte that can't be read, and its file: reads that take it end with an I/O error as well.
    pub unreadable: Option<(FileId, u64)>,
    /// Writes that end with an I/O error; anything from nothing to all of them has been written.
    pub writes: Fail,
    /// Flushes that end with an I/O error; the writes that they covered never become durable by a later flush.
    pub flushes: Fail,
    /// Calls of `allocate` and `open(Create)` (counted together) that find no space.
    pub space: Fail,
    /// Calls of `sync_names` that end with an I/O error; the names are not durable.
    pub names: Fail,
    /// The error that all these give instead: a host that promised more space than it has refuses writes for want of
    /// space, and a failing one refuses to create files.
    pub error: Option<Kind>,
    /// Discards that the device refuses.
    pub discards: Fail,
    /// All latencies are this many times longer.
    pub slowness: u64,
    /// I/Os that take `stall_ns` longer.
    pub stalls: Fail,
    /// Additional time of a stalled I/O, in nanoseconds.
    pub stall_ns: u64,
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        let never = Fail::Never;
        // 100 ms: what a drive takes that tries hard to read a bad sector or cleans up inside.
        let stall_ns = 100_000_000;
        FaultPlan {
            only: None,
            reads: never,
            unreadable: None,
            writes: never,
            flushes: never,
            space: never,
            names: never,
            error: None,
            discards: never,
            slowness: 1,
            stalls: never,
            stall_ns,
        }
    }
}

/// Counts the operations of one kind.
#[derive(Default)]
pub(super) struct Counter(u64);

impl Counter {
    /// Counts an operation. True if it fails.
    pub(super) fn fails(&mut self, fail: Fail, rng: &mut SplitMix) -> bool {
        self.0 += 1;
        match fail {
            Fail::Never => false,
            Fail::Nth(n) => self.0 == n,
            Fail::From(n) => self.0 >= n,
            Fail::OneIn(n) => rng.one_in(n),
        }
    }
}
