//! Options of the commands that look at a running daemon.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `sinter explain`.
#[derive(Args, Debug)]
pub struct Explain {
    /// Directory of the brick; its daemon must be running
    #[arg(required_unless_present = "from")]
    pub data: Option<PathBuf>,
    /// Seconds to look at, 1 to 3600; with --sweep, at each number of requests in flight
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 5)]
    pub seconds: u64,
    /// Keep the two snapshots, for others or for later [default: no]
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Explain the two snapshots of a file; needs no daemon [default: take them]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "save"])]
    pub from: Option<PathBuf>,
    /// Read this file of a mount of the brick, past the page cache and with 1 to 64 requests in flight, until others' requests
    /// take twice as long; tell what a change would bring [default: look only]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "save"], requires = "data")]
    pub sweep: Option<PathBuf>,
    /// Print JSON [default: sentences and tables]
    #[arg(long)]
    pub json: bool,
}

/// `sinter profile`.
#[derive(Args, Debug)]
pub struct Profile {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// Figures to show
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ProfileOf::Operations)]
    pub of: ProfileOf,
    /// Only what came after the snapshot in this file [default: since the daemon's start]
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,
    /// Keep a snapshot in this file, for a later --since [default: no]
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    pub save: Option<PathBuf>,
    /// Every so many seconds, 1 to 3600, show what came in them, until SIGINT [default: once, and end]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), conflicts_with = "since")]
    pub watch: Option<u64>,
    /// The last operations one by one instead of sums [default: off]
    #[arg(long, conflicts_with_all = ["of", "since", "save", "watch"])]
    pub history: bool,
    /// Print JSON, with --watch a line each time [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// The figures that `sinter profile` shows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileOf {
    /// Requests, per operation and stage
    Operations,
    /// Locks of the daemon, those that were waited for most first
    Locks,
    /// Threads that serve requests, one per core
    Cores,
    /// Pools of threads for work that blocks
    Pools,
    /// Transfers of the device, by purpose, verb, size and depth
    Io,
}

/// `sinter trace`.
#[derive(Args, Debug)]
pub struct Trace {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// File that receives the requests as JSON trace events, which Perfetto shows [default: must be given]
    #[arg(long, value_name = "FILE")]
    pub perfetto: PathBuf,
    /// Seconds to look, 1 to 3600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 5)]
    pub seconds: u64,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// `sinter top`.
#[derive(Args, Debug)]
pub struct Top {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// Seconds of a round, 1 to 60
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60), default_value_t = 1)]
    pub seconds: u64,
    /// Number of rounds, at least 1 and at most 1000000 [default: until q or SIGINT]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rounds: Option<u64>,
    /// Print JSON, a line per round [default: a screen]
    #[arg(long)]
    pub json: bool,
}
