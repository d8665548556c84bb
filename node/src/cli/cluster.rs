//! The command line of `sinter cluster`.

use super::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, Transport, brick_bytes, bytes_within};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The processes that share the memory: three nodes and the mount.
pub const PROCESSES: u64 = 4;

/// `sinter cluster`.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Run three bricks on this machine that replicate each other, and mount their volume `default`, until SIGINT, SIGTERM or an
    /// unmount; makes the bricks on first use
    Dev(Dev),
    /// Tell which nodes of a cluster are there, which one leads, and whether it outlasts a failure: exit code 1 if not
    Status(ClusterStatus),
}

/// `sinter cluster dev`.
#[derive(Args, Debug)]
pub struct Dev {
    /// Directory of the cluster, with its bricks, sockets and logs; made if only its last component is missing
    pub directory: PathBuf,
    /// Directory at which the volume appears
    pub mount: PathBuf,
    /// Size of each new brick in bytes, at least 4G and at most 1024T [default: a third of 80% of the free space]
    #[arg(long, value_name = "BYTES", value_parser = brick_bytes)]
    pub size: Option<u64>,
    /// Memory for everything, which its four processes share, in bytes, 1G to 1T [default: 25% of the machine's or the control group's, 1G at least]
    #[arg(long, value_name = "BYTES", value_parser = memory_of_all)]
    pub memory_max: Option<u64>,
    /// Transport of the kernel's requests, to measure and to test [default: auto, which takes what measured faster]
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Transport::Auto, hide = true)]
    pub transport: Transport,
}

/// `sinter cluster status`.
#[derive(Args, Debug)]
pub struct ClusterStatus {
    /// Directory of the cluster
    pub directory: PathBuf,
    /// Print JSON [default: a line and a table]
    #[arg(long)]
    pub json: bool,
}

/// Reads the bound of the memory of all processes.
fn memory_of_all(text: &str) -> Result<u64, String> {
    bytes_within(text, PROCESSES * MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}
