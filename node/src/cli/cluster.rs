//! The command line of `sinter cluster`.

use super::{Resources, brick_bytes};
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
    #[command(flatten)]
    pub resources: Resources,
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
