//! Options of the commands that look at a running daemon.

use clap::Args;
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
