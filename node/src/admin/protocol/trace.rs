//! The kernel's account of a window, beside the daemon's own.

use super::Times;
use serde::{Deserialize, Serialize};

/// A window of time, as the kernel's tracepoints and the daemon's ledger tell it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Its beginning, on the kernel's CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// Its length.
    pub lasted_ns: u64,
    /// Requests of the daemon's mounts.
    pub requests: TracedRequests,
    /// I/O of the disks below the brick.
    pub devices: TracedDevices,
}

/// The facts of the kernel that are in no count.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Uncounted {
    /// Ended in the window, begun before.
    pub begun_before: u64,
    /// Begun in the window, and not ended when it did.
    pub not_ended: u64,
    /// Dropped, as they came faster than they were read.
    pub lost: u64,
}

/// Requests, from their sending by the kernel to their end there.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct TracedRequests {
    /// The reason if the kernel tells nothing of them.
    pub absent: Option<String>,
    /// One request in so many was looked at: the kernel's counts are of these.
    pub one_in: u64,
    /// The operations that were asked for.
    pub operations: Vec<TracedOperation>,
    /// Requests of the kernel that are in none of them.
    pub uncounted: Uncounted,
}

/// An operation, as both sides tell it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct TracedOperation {
    /// The operation.
    pub name: String,
    /// The kernel's account.
    pub kernel: Times,
    /// The ledger's account of all requests that it ended in the window; none if it keeps none of this operation.
    pub ledger: Option<Mean>,
    /// The difference of the means: the way to the daemon and back, and the wait for its core.
    pub transport_ns: Option<i64>,
}

/// A number of durations and their mean.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Mean {
    /// Number of durations.
    pub count: u64,
    /// Their mean; 0 if there are none.
    pub mean_ns: u64,
}

/// I/O of devices, from its hand-over to the driver to its completion.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct TracedDevices {
    /// The reason if the kernel tells nothing of them.
    pub absent: Option<String>,
    /// One I/O of at most 64 KiB in so many was looked at, and all longer ones.
    pub one_in: u64,
    /// The devices below the brick.
    pub names: Vec<String>,
    /// Durations by device, verb and length.
    pub services: Vec<TracedService>,
    /// The issuers of I/O; estimates if not all was looked at.
    pub issuers: Vec<TracedIssuer>,
    /// I/O of the kernel that is in no duration.
    pub uncounted: Uncounted,
}

/// I/O of one device, verb and length.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct TracedService {
    /// The device.
    pub device: String,
    /// `read`, `write`, `flush`, `discard` or `other`.
    pub verb: String,
    /// The longest I/O that is counted here, 0 for flushes; none: those above 1 MiB.
    pub bytes_max: Option<u64>,
    /// One I/O in so many was looked at: the count is of these.
    pub one_in: u64,
    /// The durations.
    pub times: Times,
}

/// The I/O of threads of one name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct TracedIssuer {
    /// The threads' name.
    pub name: String,
    /// True for threads of the daemon.
    pub own: bool,
    /// Number of I/Os.
    pub count: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
}
