//! The command line of `sinter mount` and `sinter umount`.

use super::{Resources, WireEncryption, volume_name};
use clap::Args;
use std::path::PathBuf;

/// Longest time for which a mount that does not wait for ever waits for its server: a day.
pub const SOFT_S_MAX: u64 = 86_400;

/// `sinter mount`.
#[derive(Args, Debug)]
#[command(allow_missing_positional = true)]
pub struct Mount {
    /// Directory of a brick whose daemon is running, or of a cluster that runs on this machine; or NAME/VOLUME, a volume of a server that this machine has joined as NAME
    pub source: PathBuf,
    /// Volume to mount, if the source is a directory
    #[arg(value_parser = volume_name)]
    pub volume: Option<String>,
    /// Directory at which the volume appears
    pub mount: PathBuf,
    /// Mount a volume of a server or a cluster so that nothing can be changed [default: off]
    #[arg(long)]
    pub read_only: bool,
    /// Answer with errors (EIO) once the server is away for so many seconds, 1 to 86400; what was written may be lost then [default: wait]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SOFT_S_MAX))]
    pub soft: Option<u64>,
    /// Let the contents of NAME/VOLUME go unencrypted if the server has `off` too: for networks that are separated [default: on]
    #[arg(long, value_name = "WISH", conflicts_with = "volume")]
    pub wire_encryption: Option<WireEncryption>,
    /// Serve the mount of a server's or cluster's volume here, until it is unmounted, SIGINT or SIGTERM [default: a daemon does, in the background]
    #[arg(long)]
    pub foreground: bool,
    /// Directory with the files that `sinter client join` wrote
    #[arg(long, value_name = "DIR", default_value = crate::remote::MEMBERSHIPS, conflicts_with = "volume")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub resources: Resources,
    /// Print JSON [default: nothing]
    #[arg(long)]
    pub json: bool,
}

/// `sinter umount`.
#[derive(Args, Debug)]
pub struct Umount {
    /// Where a volume is mounted, NAME/VOLUME, or the directory of a brick, all of whose mounts go
    pub target: PathBuf,
    /// Of a brick, only what is mounted of this volume [default: all]
    #[arg(value_parser = volume_name)]
    pub volume: Option<String>,
    /// Take mounts away although files are open; they work until they are closed [default: off]
    #[arg(long)]
    pub lazy: bool,
    /// Seconds to wait for those who use mounts of a brick, 1 to 3600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 60)]
    pub timeout: u64,
    /// Print JSON [default: a line for each mount of a brick]
    #[arg(long)]
    pub json: bool,
}
