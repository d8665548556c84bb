//! Options of the commands that record operations and do them again.

use clap::Args;
use std::path::PathBuf;

/// `sinter record`.
#[derive(Args, Debug)]
pub struct Record {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// File that receives the recording; it must not exist
    pub file: PathBuf,
    /// Seconds to record, 1 to 3600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 60)]
    pub seconds: u64,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// The recording
    pub file: PathBuf,
    /// Empty directory in which its operations are done, of any file system
    pub directory: PathBuf,
    /// Begin each operation when it began in the recording, or later [default: as soon as what had ended before it has ended]
    #[arg(long)]
    pub as_recorded: bool,
    /// Wait for a line on standard input before the first operation, and before what is open is closed [default: don't wait]
    #[arg(long)]
    pub pause: bool,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}
