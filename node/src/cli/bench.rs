//! The command line of `sinter bench`.

use super::bytes_within;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `sinter bench`.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// Synchronous 4 KiB writers: how many writes become durable per second, and how long each takes
    Sync(BenchSync),
    /// Random 4 KiB reads and writes past the page cache
    Random(BenchRandom),
    /// Large reads and writes past the page cache, one after the other
    Seq(BenchSeq),
    /// Small files: create, write, fsync and close; then open, read cold and close
    Smallfile(BenchSmallfile),
    /// Objects as object servers store them: put, get cold, cached and with little memory, delete
    Object(BenchObject),
    /// Empty files in one directory: create, stat cold, readdir cold, unlink
    Metadata(BenchMetadata),
    /// Small synchronous writers, alone and beside a massive commit
    CommitMix(BenchCommitMix),
    /// Thousands of readers of a constant bit rate each, alone and beside one at full speed
    Streams(BenchStreams),
    /// Two directories in turns: 14 metrics, each ahead, at par or behind
    Scorecard(BenchScorecard),
    /// Random 4 KiB overwrites of a filled brick, second by second: what it does for life
    Steady(BenchSteady),
}

/// Options of all benches.
#[derive(Args, Debug, Clone)]
pub struct BenchPlace {
    /// Directory to measure; the files made in it are removed at the end
    pub directory: PathBuf,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
    /// Write a chart of the result, as SVG, to this file [default: none]
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Options of benches that end by time.
#[derive(Args, Debug, Clone)]
pub struct BenchTarget {
    #[command(flatten)]
    pub place: BenchPlace,
    /// Seconds per measurement, 1 to 3600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 5)]
    pub time: u64,
}

/// Options of benches that can hold two directories against each other.
#[derive(Args, Debug, Clone)]
pub struct BenchBeside {
    /// Measure this directory too, in turns with the other, and compare them [default: none]
    #[arg(long, value_name = "DIRECTORY")]
    pub beside: Option<PathBuf>,
    /// Rounds in which both are measured (a count), 2 to 1000; from 6 on, intervals are right in 95 of 100 cases
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=1000), default_value_t = 6, requires = "beside")]
    pub rounds: u32,
}

/// How a synchronous writer makes its write durable.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// Overwrite a block of a file opened with O_DSYNC
    OverwriteDsync,
    /// Append a block, then fdatasync
    AppendFdatasync,
    /// Overwrite a block, then fsync
    Fsync,
}

/// `sinter bench sync`.
#[derive(Args, Debug)]
pub struct BenchSync {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Bytes of each writer's file, 64K to 1T [default: 16M]
    #[arg(long, value_name = "BYTES", value_parser = file_bytes)]
    pub size: Option<u64>,
    /// Numbers of writers to measure, a list; each 1 to 64
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64), default_value = "1,2,4,8,16,32,64")]
    pub writers: Vec<u32>,
    /// Ways to make a write durable, a list [default: all]
    #[arg(long, value_name = "MODE", value_delimiter = ',')]
    pub mode: Vec<SyncMode>,
    /// Bypass the page cache (O_DIRECT) [default: off]
    #[arg(long)]
    pub direct: bool,
}

/// `sinter bench random`.
#[derive(Args, Debug)]
pub struct BenchRandom {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Bytes of each file, 64K to 1T [default: 256M]
    #[arg(long, value_name = "BYTES", value_parser = file_bytes)]
    pub size: Option<u64>,
    /// Files worked on at the same time (a count), 1 to 64 [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: Option<u32>,
    /// Requests in flight per file (a count), 1 to 64; jobs x depth is at most 64 [default: 8, or 1 if --jobs is given]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub depth: Option<u32>,
}

/// `sinter bench seq`.
#[derive(Args, Debug)]
pub struct BenchSeq {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Bytes of each file, 64K to 1T [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = file_bytes)]
    pub size: Option<u64>,
    /// Bytes of each read and write, 4K to 1M
    #[arg(long, value_name = "BYTES", value_parser = block_bytes, default_value = "1M")]
    pub block_size: u64,
    /// Files worked on at the same time (a count), 1 to 64
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64), default_value_t = 1)]
    pub jobs: u32,
    /// Requests in flight per file (a count), 1 to 64; jobs x depth is at most 64
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64), default_value_t = 4)]
    pub depth: u32,
}

/// What `sinter bench smallfile` and `object` do of their work.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Create, read and remove
    Both,
    /// Create the files and keep them
    Create,
    /// Read those that were kept
    Read,
    /// Remove them
    Remove,
}

/// `sinter bench smallfile`.
#[derive(Args, Debug)]
pub struct BenchSmallfile {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Numbers of threads to measure, a list; each 1 to 64
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64), default_value = "1,4,16")]
    pub threads: Vec<u32>,
    /// Bytes of files to measure, a list; each 1 to 1M
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = small_file_bytes, default_value = "4K,16K,64K")]
    pub file_size: Vec<u64>,
    /// Draw each file's length from an exponential distribution with --file-size as its mean [default: all the same]
    #[arg(long)]
    pub exponential: bool,
    /// Most files of one measurement (a count), 1 to 10000000; it ends before if its time is over
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000), default_value_t = 50_000)]
    pub files: u64,
    /// What to do: all, or create and keep, or read what was kept (after a new mount, say), or remove it
    #[arg(long, value_name = "PHASE", default_value = "both")]
    pub phase: Phase,
}

/// `sinter bench object`.
#[derive(Args, Debug)]
pub struct BenchObject {
    #[command(flatten)]
    pub place: BenchPlace,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Bytes of all objects, 1M to 1T; twice the memory of what serves them shows what memory doesn't help
    #[arg(long, value_name = "BYTES", value_parser = objects_bytes, default_value = "1G")]
    pub bytes: u64,
    /// Number of threads, 1 to 64
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64), default_value_t = 20)]
    pub threads: u32,
    /// The number that all objects follow from, 0 to 4294967295
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u32,
    /// Seconds per pass of gets at most, 1 to 3600 [default: until all objects were read]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub time: Option<u64>,
    /// Part of the work: all, or put and keep, or get what was kept (after a new mount, say), or delete it
    #[arg(long, value_name = "PHASE", default_value = "both")]
    pub phase: Phase,
}

/// `sinter bench metadata`.
#[derive(Args, Debug)]
pub struct BenchMetadata {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Numbers of threads to measure, a list; each 1 to 64
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64), default_value = "1,4")]
    pub threads: Vec<u32>,
    /// Files of one measurement (a count), 1 to 10000000; it ends before if its time is over
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000), default_value_t = 20_000)]
    pub files: u64,
}

/// `sinter bench commit-mix`.
#[derive(Args, Debug)]
pub struct BenchCommitMix {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Number of small writers, 1 to 63
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=63), default_value_t = 4)]
    pub writers: u32,
    /// Bytes of a massive commit, 64K to 1T
    #[arg(long, value_name = "BYTES", value_parser = file_bytes, default_value = "1G")]
    pub size: u64,
}

/// `sinter bench streams`.
#[derive(Args, Debug)]
pub struct BenchStreams {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Readers (a count), 1 to 100000; each has a file of its own
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000), default_value_t = 4000)]
    pub streams: u32,
    /// Bits per second of each reader (a number), 1000 to 1000000000
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000), default_value_t = 1_000_000)]
    pub bit_rate: u64,
    /// Seconds over which the readers start, 1 to 3600 [default: the time that 128 KiB last at their bit rate]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub start_over: Option<u64>,
    /// Bytes of each reader's file, 128K to 1T; the one at full speed has all of that, at most 2G
    #[arg(long, value_name = "BYTES", value_parser = stream_bytes, default_value = "2M")]
    pub size: u64,
}

/// `sinter bench scorecard`.
#[derive(Args, Debug)]
pub struct BenchScorecard {
    #[command(flatten)]
    pub target: BenchTarget,
    #[command(flatten)]
    pub versus: BenchBeside,
    /// Bytes of each file of random, sequential and synchronous access, 64K to 1T [default: as those benches]
    #[arg(long, value_name = "BYTES", value_parser = file_bytes)]
    pub size: Option<u64>,
    /// Files of one measurement of small and of empty files (a count), 1 to 10000000
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000), default_value_t = 20_000)]
    pub files: u64,
}

/// `sinter bench steady`.
#[derive(Args, Debug)]
pub struct BenchSteady {
    #[command(flatten)]
    pub target: BenchTarget,
    /// Bytes to fill, 64K to 1T [default: by --fill]
    #[arg(long, value_name = "BYTES", value_parser = file_bytes)]
    pub size: Option<u64>,
    /// Percent of the brick's size to fill first, 1 to 95
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=95), default_value_t = 80)]
    pub fill: u64,
    /// Few blocks get most writes, by Zipf's law [default: uniform]
    #[arg(long)]
    pub zipf: bool,
    /// Data directory of a running daemon that tells what its device wrote [default: none]
    #[arg(long, value_name = "DATA")]
    pub brick: Option<PathBuf>,
}

fn file_bytes(text: &str) -> Result<u64, String> {
    whole_blocks(bytes_within(text, 64 << 10, 1 << 40)?)
}

fn stream_bytes(text: &str) -> Result<u64, String> {
    whole_blocks(bytes_within(text, 128 << 10, 1 << 40)?)
}

fn block_bytes(text: &str) -> Result<u64, String> {
    whole_blocks(bytes_within(text, 4 << 10, 1 << 20)?)
}

fn whole_blocks(bytes: u64) -> Result<u64, String> {
    if bytes.is_multiple_of(4096) { Ok(bytes) } else { Err("must be a multiple of 4096 bytes".to_string()) }
}

fn objects_bytes(text: &str) -> Result<u64, String> {
    bytes_within(text, 1 << 20, 1 << 40)
}

fn small_file_bytes(text: &str) -> Result<u64, String> {
    bytes_within(text, 1, 1 << 20)
}
