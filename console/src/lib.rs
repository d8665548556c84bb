//! The figures of a daemon over HTTP: a page of metrics for scrapers, and a console for people, who look at the last minutes in a
//! browser. Both are read-only and off unless an address is given.
//!
//! Promises: nothing here is waited for by a request of the brick. One thread of the least priority serves; others look at
//! the daemon when a scraper asks, and once a second while somebody watches. Connections are few, each carries one request
//! and lives for seconds, so that clients who stay, or never read, take nothing from others.
//! Absent by design: changes of anything, sessions, names of files, and addresses that other machines can reach.
//! Owns: the figures of the last ten minutes, which are gone with the daemon.

pub mod address;
mod http;
mod last;
mod metrics;
mod point;
mod server;
mod watch;

pub use address::Addresses;
pub use server::{Listening, Server};

use explain::Snapshot;
use explain::snapshot::Whole;
use std::time::Duration;

/// The daemon, as this package sees it. Called on threads of this package, one call of each function at a time; may block.
pub trait Source: Send + Sync {
    /// Looks at requests in flight for so long, then tells everything. None if the daemon can't tell at the moment.
    fn snapshot(&self, looking: Duration) -> Option<Snapshot>;
    /// The slowest requests of the last two minutes.
    fn slowest(&self) -> Vec<Whole>;
    /// Numbers of segments that hold data, by the tenth of their blocks that is live.
    fn liveness(&self) -> Vec<u64>;
    /// The daemon's version.
    fn version(&self) -> String;
    /// The directory of the brick.
    fn brick(&self) -> String;
}
