//! The command line: every command, option, unit, bound and default. Promises that a wrong line is refused before
//! anything is touched (exit code 2, with a hint).

use base::limits::{BRICK_BYTES_MIN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, VOLUME_NAME_BYTES_MAX};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use store::format::devices::Tier;

mod bench;
mod cluster;
mod layer;
mod mount;
mod network;
mod observe;
mod record;

pub use bench::*;
pub use cluster::*;
pub use layer::*;
pub use mount::*;
pub use network::*;
pub use observe::*;
pub use record::*;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or nothing found
  1  failed, or `check` or `scrub` has findings, or `doctor` has warnings
  2  wrong command line, or `check` could not look
  3  the brick or the mount point is in use
  4  the host lacks something (FUSE, io_uring, memory)
  5  the brick is corrupt and needs repair
  6  the brick was written by a newer version

Sizes are bytes; the suffixes K, M, G and T (also KiB ...) mean powers of 1024, KB, MB, GB and TB powers of 1000.

A first try:
  mkdir /mnt/sinter
  sinter up /srv/brick /mnt/sinter";

/// Software-defined storage for flash and hybrid servers: one binary, one command.
#[derive(Parser, Debug)]
#[command(name = "sinter", version = crate::VERSION, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a brick and mount a volume of it, until SIGINT or SIGTERM; formats the brick on first use
    Up(Up),
    /// Make an empty directory a brick
    Format(Format),
    /// Serve a brick without mounting anything, until SIGINT or SIGTERM
    Serve(Serve),
    /// End a brick's daemon: unmount its volumes, make everything durable
    Down(Down),
    /// Mount a volume of a brick, or of a server
    Mount(Mount),
    /// Unmount a volume, or all that is mounted of a brick
    Umount(Umount),
    /// Create, list, describe, change or delete volumes
    #[command(subcommand)]
    Volume(Volume),
    /// Limit what clients get of a directory tree of a volume
    Limit(TreeLimit),
    /// List, add, remove or move the layers that a volume's operations pass
    #[command(subcommand)]
    Layer(Layer),
    /// Make, list or revoke tokens, with which other machines join
    #[command(subcommand)]
    Token(TokenCommand),
    /// Join a server as a client; list or revoke a brick's clients
    #[command(subcommand)]
    Client(ClientCommand),
    /// Run a cluster of three bricks on this machine, to try what a cluster does; tell how one is
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Give a brick more room, served or not
    Grow(Grow),
    /// List the devices of a brick, or add one
    #[command(subcommand)]
    Brick(BrickCommand),
    /// Show which tiers of a hybrid brick serve its reads, and why what was copied to flash or dropped
    Tiers(Shown),
    /// Look at config files
    #[command(subcommand)]
    Config(Config),
    /// What a brick's daemon is doing
    Status(Shown),
    /// Read a whole brick and report everything that is wrong with it; needs that no daemon serves it
    Check(Check),
    /// Have a brick's daemon read every block, and tell which are bad
    #[command(subcommand)]
    Scrub(Scrub),
    /// Where the time went: per operation and stage, and per layer
    Profile(Profile),
    /// Name the cause of slowness, with its evidence, and show the stages of requests
    Explain(Explain),
    /// Show what a daemon is doing now, by operation, file and client, on a screen that changes with it
    Top(Top),
    /// The slowest requests of the last two minutes, with their stages and callers
    Slow(Shown),
    /// Write one request in 64 with its stages to a file, for a viewer of traces
    Trace(Trace),
    /// Record all operations that reach a brick's daemon: kinds, sizes, places and times, without names and data
    Record(Record),
    /// Do the operations of a recording again, in any directory, and compare how long they take
    Replay(Replay),
    /// Look for what makes this machine, or the disks of a brick, slow or unsafe; needs no daemon
    Doctor(Doctor),
    /// Measure any directory
    #[command(subcommand)]
    Bench(Bench),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one page per command
    Man {
        /// Directory that receives the pages; without it the main page goes to standard output
        directory: Option<PathBuf>,
    },
}

/// What a brick is formatted with.
#[derive(Args, Debug, Clone)]
pub struct Geometry {
    /// Size of a new brick in bytes, at least 4G and at most 1024T [default: 80% of the free space, or the whole device]
    #[arg(long, value_name = "BYTES", value_parser = brick_bytes)]
    pub size: Option<u64>,
    /// Segment size of a new brick in bytes: a power of two, 1M to 256M [default: 64M]
    #[arg(long, value_name = "BYTES", value_parser = segment_bytes)]
    pub segment_size: Option<u64>,
    /// Placement groups of a new brick (a count), 1 to 1024 [default: 64]
    #[arg(long, value_name = "COUNT", value_parser = group_count)]
    pub groups: Option<u32>,
    /// Block device for the segments of a new brick, or where the device of a brick is now [default: they lie in DATA]
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// Flash devices of a new brick, 1 to 64 block devices; the first is what --device says [default: flash is in DATA]
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "device")]
    pub flash: Vec<PathBuf>,
    /// Disks of a new brick, 1 to 63 block devices for what is seldom used [default: none]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub disk: Vec<PathBuf>,
}

impl Geometry {
    /// The device of the log and of what is used often; None: DATA.
    pub fn first(&self) -> Option<&PathBuf> {
        self.device.as_ref().or(self.flash.first())
    }
    /// Further devices, each with its tier.
    pub fn further(&self) -> Vec<(Tier, PathBuf)> {
        let flash = self.flash.iter().skip(1).map(|path| (Tier::Flash, path.clone()));
        flash.chain(self.disk.iter().map(|path| (Tier::Disk, path.clone()))).collect()
    }
}

/// What a daemon may take.
#[derive(Args, Debug, Clone)]
pub struct Resources {
    /// Memory for everything in bytes, 256M to 1T [default: 25% of the machine's or the control group's]
    #[arg(long, value_name = "BYTES", value_parser = memory_bytes)]
    pub memory_max: Option<u64>,
    /// How the kernel's requests come, to measure and to test [default: auto, which takes what measured faster]
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Transport::Auto, hide = true)]
    pub transport: Transport,
}

/// The addresses at which a daemon serves its figures.
#[derive(Args, Debug, Clone, Default)]
pub struct Surfaces {
    /// Serve metrics (OpenMetrics) at this loopback address, under /metrics [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", value_parser = console::address::parse)]
    pub metrics: Option<SocketAddr>,
    /// Serve the console, a page for browsers, at this loopback address; it may be the same [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", value_parser = console::address::parse)]
    pub console: Option<SocketAddr>,
}

impl Surfaces {
    /// The addresses.
    pub fn addresses(&self) -> console::Addresses {
        console::Addresses { metrics: self.metrics, console: self.console }
    }
}

/// How the kernel's requests come.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// As `uring` (decision 0020)
    Auto,
    /// By reading /dev/fuse
    Dev,
    /// Over io_uring, where the kernel offers it; else as `dev`
    Uring,
}

/// `sinter up`.
#[derive(Args, Debug)]
pub struct Up {
    /// Directory of the brick; made if only its last component is missing
    #[arg(required_unless_present = "config")]
    pub data: Option<PathBuf>,
    /// Directory at which the volume appears
    #[arg(required_unless_present = "config")]
    pub mount: Option<PathBuf>,
    /// File that says what this command line leaves out (TOML) [default: none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Volume to mount: a name of 1 to 63 bytes; it is created if the brick has no volume of this name [default: default]
    #[arg(long, value_name = "NAME", value_parser = volume_name)]
    pub volume: Option<String>,
    #[command(flatten)]
    pub geometry: Geometry,
    #[command(flatten)]
    pub resources: Resources,
    #[command(flatten)]
    pub surfaces: Surfaces,
    #[command(flatten)]
    pub listen: Listen,
}

/// `sinter config`.
#[derive(Subcommand, Debug)]
pub enum Config {
    /// Tell whether a config file is good, and what it sets
    Check {
        /// The file
        file: PathBuf,
        /// Print JSON [default: a table]
        #[arg(long)]
        json: bool,
    },
}

/// `sinter format`.
#[derive(Args, Debug)]
pub struct Format {
    /// Directory of the brick: empty, or half-formatted
    pub data: PathBuf,
    #[command(flatten)]
    pub geometry: Geometry,
    /// Destroy what the device holds [default: refuse a device that holds anything]
    #[arg(long)]
    pub force: bool,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// `sinter serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Directory of the brick
    pub data: PathBuf,
    /// Where the brick's block device is now, if its name has changed [default: as at the last start]
    #[arg(long, value_name = "PATH")]
    pub device: Option<PathBuf>,
    /// End once all that was mounted is unmounted [default: off]
    #[arg(long)]
    pub until_unmounted: bool,
    #[command(flatten)]
    pub resources: Resources,
    #[command(flatten)]
    pub surfaces: Surfaces,
    #[command(flatten)]
    pub listen: Listen,
}

/// `sinter down`.
#[derive(Args, Debug)]
pub struct Down {
    /// Directory of the brick
    pub data: PathBuf,
    /// Seconds to wait for the daemon's end, 1 to 3600; it goes on ending after that
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 300)]
    pub timeout: u64,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// `sinter grow`.
#[derive(Args, Debug)]
pub struct Grow {
    /// Directory of the brick
    pub data: PathBuf,
    /// Its new size in bytes, at least 4G and at most 1024T [default: 80% of what is free is added, or all of the device]
    #[arg(long, value_name = "BYTES", value_parser = brick_bytes)]
    pub size: Option<u64>,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// `sinter brick`.
#[derive(Subcommand, Debug)]
pub enum BrickCommand {
    /// List a brick's devices, and what lies on each
    Devices(Shown),
    /// List the files that have data on a device: those that can't be read without it
    Affected(AffectedBy),
    /// Give a brick another device, served or not
    AddDevice(AddDevice),
    /// Move what lies on a device away, and take the device out of the brick, while it is served
    RemoveDevice(RemoveDevice),
}

/// `sinter brick affected`.
#[derive(Args, Debug)]
pub struct AffectedBy {
    /// Directory of the brick
    pub data: PathBuf,
    /// The device's number, as `sinter brick devices` lists it
    pub device: u32,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter brick remove-device`.
#[derive(Args, Debug)]
pub struct RemoveDevice {
    /// Directory of the brick
    pub data: PathBuf,
    /// The device's number, as `sinter brick devices` lists it; 1, which the brick was formatted with, stays
    pub device: u32,
    /// Wait until the device has left [default: return once its removal has begun]
    #[arg(long)]
    pub wait: bool,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter brick add-device`.
#[derive(Args, Debug)]
pub struct AddDevice {
    /// Directory of the brick
    pub data: PathBuf,
    /// The block device
    pub path: PathBuf,
    /// Its tier: flash (the log, and what is used often) or disk (what is seldom used) [default: none, it must be given]
    #[arg(long, value_name = "TIER", value_enum)]
    pub tier: DeviceTier,
    /// Destroy what the device holds [default: refuse a device that holds anything]
    #[arg(long)]
    pub force: bool,
    /// Print JSON [default: a line]
    #[arg(long)]
    pub json: bool,
}

/// A tier, as a command names it.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceTier {
    /// The log, and what is used often
    Flash,
    /// Blocks that are seldom used
    Disk,
}

impl DeviceTier {
    /// The store's word for it.
    pub fn tier(self) -> Tier {
        match self {
            DeviceTier::Flash => Tier::Flash,
            DeviceTier::Disk => Tier::Disk,
        }
    }
}

/// `sinter volume`.
#[derive(Subcommand, Debug)]
pub enum Volume {
    /// Create an empty volume
    Create(VolumeCreate),
    /// List all volumes
    List(Shown),
    /// Describe one volume
    Info(VolumeNamed),
    /// Give a volume another size, mounted or not
    Set(VolumeSet),
    /// Give a volume another name, mounted or not
    Rename(VolumeRename),
    /// Delete a volume and everything in it
    Delete(VolumeDelete),
}

/// `sinter volume delete`.
#[derive(Args, Debug)]
pub struct VolumeDelete {
    #[command(flatten)]
    pub volume: VolumeNamed,
    /// Delete it also if a client has it mounted, or files of a mount that was taken away are still open: their programs get errors then [default: refuse that]
    #[arg(long)]
    pub force: bool,
}

/// `sinter volume create`.
#[derive(Args, Debug)]
pub struct VolumeCreate {
    #[command(flatten)]
    pub volume: VolumeNamed,
    /// Bytes of data that the volume may hold, at least 1M and at most 1024T; writes beyond fail with EDQUOT [default: as the brick]
    #[arg(long, value_name = "BYTES", value_parser = volume_bytes)]
    pub size: Option<u64>,
}

/// `sinter volume set`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("property").required(true).multiple(true).args(["size", "policy", "weight", "reserve"]).args(LIMITS))]
pub struct VolumeSet {
    #[command(flatten)]
    pub volume: VolumeNamed,
    /// Bytes that the volume may hold from now on, at least 1M and at most 1024T, and not less than it uses; `none`: as the brick [default: as it is]
    #[arg(long, value_name = "BYTES", value_parser = new_volume_bytes)]
    pub size: Option<NewSize>,
    /// Tiers of a hybrid brick that the volume's blocks may lie on from now on: flash and disk (write-back), or flash (flash-only) [default: as it is]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub policy: Option<VolumePolicy>,
    #[command(flatten)]
    pub limits: Limits,
    /// Weight of the volume's share of cores that other volumes want too (a number), 1 to 1000; `none`: 100 [default: as it is]
    #[arg(long, value_name = "NUMBER", value_parser = weight)]
    pub weight: Option<u64>,
    /// Share of the brick that the volume has at least while it wants it, in percent, 1 to 90; `none`: as its weight gives it [default: as it is]
    #[arg(long, value_name = "PERCENT", value_parser = reserve)]
    pub reserve: Option<u64>,
}

impl VolumeSet {
    /// Limits and shares that are to be changed, with the value that the protocol has for each.
    pub fn changed(&self) -> impl Iterator<Item = (base::Limit, u64)> {
        let shares = [(base::Limit::Weight, self.weight), (base::Limit::Reserve, self.reserve)];
        let shares = shares.into_iter().filter_map(|(limit, value)| value.map(|value| (limit, value)));
        self.limits.changed().chain(shares)
    }
}

/// `sinter limit`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(LIMITS))]
pub struct TreeLimit {
    #[command(flatten)]
    pub volume: VolumeNamed,
    /// Directory in the volume, from its root (a path)
    #[arg(value_name = "PATH")]
    pub path: String,
    #[command(flatten)]
    pub limits: Limits,
}

/// The arguments of `Limits`.
const LIMITS: [&str; 7] = [
    "iops_max",
    "bandwidth_max",
    "read_iops_max",
    "read_bandwidth_max",
    "write_iops_max",
    "write_bandwidth_max",
    "burst",
];

/// Limits of `sinter volume set` and `sinter limit`; 0 stands for none.
#[derive(Args, Debug)]
pub struct Limits {
    /// Number of operations per second that all clients of the volume get from now on, 1 to 1000000000; `none`: as many as they ask for [default: as it is]
    #[arg(long, value_name = "NUMBER", value_parser = iops)]
    pub iops_max: Option<u64>,
    /// Bytes per second that they read and write, 64K to 1T; `none`: no limit [default: as it is]
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    pub bandwidth_max: Option<u64>,
    /// Number of operations per second that change nothing, such as reads and look-ups, 1 to 1000000000; `none`: no limit [default: as it is]
    #[arg(long, value_name = "NUMBER", value_parser = iops)]
    pub read_iops_max: Option<u64>,
    /// Bytes per second that are read, 64K to 1T; `none`: no limit [default: as it is]
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    pub read_bandwidth_max: Option<u64>,
    /// Number of operations per second that change something, such as writes and creations, 1 to 1000000000; `none`: no limit [default: as it is]
    #[arg(long, value_name = "NUMBER", value_parser = iops)]
    pub write_iops_max: Option<u64>,
    /// Bytes per second that are written, 64K to 1T; `none`: no limit [default: as it is]
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    pub write_bandwidth_max: Option<u64>,
    /// Milliseconds of unused time that clients may catch up on at once, 1 to 60000; `none`: 10 [default: as it is]
    #[arg(long, value_name = "MILLISECONDS", value_parser = burst)]
    pub burst: Option<u64>,
}

impl Limits {
    /// Those that are to be changed, with the value that the protocol has for each.
    pub fn changed(&self) -> impl Iterator<Item = (base::Limit, u64)> {
        let value = |limit| match limit {
            base::Limit::Iops => self.iops_max,
            base::Limit::Bandwidth => self.bandwidth_max,
            base::Limit::ReadIops => self.read_iops_max,
            base::Limit::ReadBandwidth => self.read_bandwidth_max,
            base::Limit::WriteIops => self.write_iops_max,
            base::Limit::WriteBandwidth => self.write_bandwidth_max,
            base::Limit::Burst => self.burst,
            // They are of a volume alone.
            base::Limit::Weight | base::Limit::Reserve => None,
        };
        base::Limit::ALL.into_iter().filter_map(move |limit| value(limit).map(|value| (limit, value)))
    }
}

/// A volume's tier policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum VolumePolicy {
    /// Flash first; cold blocks go down to disks.
    WriteBack,
    /// Flash as long as it has room.
    FlashOnly,
}

impl VolumePolicy {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            VolumePolicy::WriteBack => base::TierPolicy::WriteBack.name(),
            VolumePolicy::FlashOnly => base::TierPolicy::FlashOnly.name(),
        }
    }
}

/// The size that a volume gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSize {
    /// This many bytes.
    Bytes(u64),
    /// The bytes that the brick has.
    AsBrick,
}

impl NewSize {
    /// The size in the catalogue's form.
    pub fn bytes(self) -> Option<u64> {
        match self {
            NewSize::Bytes(bytes) => Some(bytes),
            NewSize::AsBrick => None,
        }
    }
}

/// `sinter volume rename`.
#[derive(Args, Debug)]
pub struct VolumeRename {
    #[command(flatten)]
    pub volume: VolumeNamed,
    /// Its new name: 1 to 63 bytes, letters, digits, dot, dash and underscore
    #[arg(value_parser = volume_name)]
    pub new_name: String,
}

/// A volume of a brick.
#[derive(Args, Debug)]
pub struct VolumeNamed {
    /// Directory of the brick, served or not
    pub data: PathBuf,
    /// The volume's name: 1 to 63 bytes, letters, digits, dot, dash and underscore
    #[arg(value_parser = volume_name)]
    pub name: String,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// A brick of which something is shown.
#[derive(Args, Debug)]
pub struct Shown {
    /// Directory of the brick
    pub data: PathBuf,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter check`.
#[derive(Args, Debug)]
pub struct Check {
    /// Directory of the brick; no daemon may serve it
    pub data: PathBuf,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
    /// Mend what is wrong, as far as the brick still tells how it was; list what is lost, and read all data [default: change nothing]
    #[arg(long)]
    pub repair: bool,
    /// Read all data too, and compare it with its checksums [default: names, maps, log and segments only]
    #[arg(long = "data")]
    pub read_data: bool,
}

/// `sinter scrub`.
#[derive(Subcommand, Debug)]
pub enum Scrub {
    /// Start a pass over the brick, or go on with one that was stopped
    Start(ScrubStart),
    /// Stop the pass that is under way; it can be gone on with
    Stop(Served),
    /// How far it is, and which blocks are bad: exit code 1 if there are any
    Status(Served),
}

/// `sinter scrub start`.
#[derive(Args, Debug)]
pub struct ScrubStart {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// Return when the pass has ended [default: at once]
    #[arg(long)]
    pub wait: bool,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// A brick whose daemon is asked.
#[derive(Args, Debug)]
pub struct Served {
    /// Directory of the brick; its daemon must be running
    pub data: PathBuf,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// `sinter doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Directory that is or becomes a brick, served or not; without it only the machine is looked at
    pub data: Option<PathBuf>,
    /// Print JSON [default: a table]
    #[arg(long)]
    pub json: bool,
}

/// The volume that `sinter up` mounts unless told otherwise.
pub const VOLUME_DEFAULT: &str = "default";
/// Largest brick that the command line accepts: 1 PiB, far above one server's flash.
const BRICK_BYTES_MAX: u64 = 1 << 50;
/// Far above the cores of one server; each takes memory.
const GROUPS_MAX: u32 = 1024;
/// One write's worth.
const VOLUME_BYTES_MIN: u64 = 1 << 20;
/// Least `memory_max`: with less, the daemon's fixed structures (slabs, index cache, overlays) leave no room for
/// requests.
pub const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// Largest `memory_max`: above any server's memory today.
const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Reads a number of bytes with an optional suffix.
fn bytes(text: &str) -> Result<u64, String> {
    let hint = "a whole number of bytes, with K, M, G or T (or KiB ...) for powers of 1024, such as 64M, or KB, MB, GB or \
                TB for powers of 1000";
    // As the program itself prints sizes: `5 GiB`.
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = (&text[..end], text[end..].trim_start().to_ascii_lowercase());
    let (power, base) = match (unit.chars().next(), unit.get(1..).unwrap_or_default()) {
        (None, _) => (0, 1),
        (Some(letter), form @ ("" | "ib" | "b")) => {
            let power = "kmgt".find(letter).ok_or_else(|| hint.to_string())? as u32 + 1;
            (power, if form == "b" { 1000u64 } else { 1024 })
        }
        _ => return Err(hint.to_string()),
    };
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| all_digits).ok_or_else(|| hint.to_string())?;
    number.checked_mul(base.pow(power)).ok_or_else(|| "more bytes than any machine has".to_string())
}

fn bytes_within(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let value = bytes(text)?;
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(format!("must be {} to {} bytes", crate::table::exact_bytes(least), crate::table::exact_bytes(most)))
}

/// Reads the size of a brick.
pub fn brick_bytes(text: &str) -> Result<u64, String> {
    bytes_within(text, BRICK_BYTES_MIN, BRICK_BYTES_MAX)
}

fn volume_bytes(text: &str) -> Result<u64, String> {
    bytes_within(text, VOLUME_BYTES_MIN, BRICK_BYTES_MAX)
}

fn new_volume_bytes(text: &str) -> Result<NewSize, String> {
    if text == "none" { Ok(NewSize::AsBrick) } else { volume_bytes(text).map(NewSize::Bytes) }
}

/// Reads a limit; 0 stands for none, so nobody can ask for it.
fn limit(text: &str, limit: base::Limit, value: Result<u64, String>) -> Result<u64, String> {
    match value {
        _ if text == "none" => Ok(0),
        Ok(0) => Err("nothing would pass; `none` takes the limit away".to_string()),
        Ok(value) => limit.check(value).map(|()| value).map_err(|error| error.to_string()),
        Err(error) => Err(error),
    }
}

fn number(text: &str, of: base::Limit) -> Result<u64, String> {
    limit(text, of, text.parse().map_err(|_| "a whole number, or `none`".to_string()))
}

fn iops(text: &str) -> Result<u64, String> {
    number(text, base::Limit::Iops)
}

fn weight(text: &str) -> Result<u64, String> {
    number(text, base::Limit::Weight)
}

fn reserve(text: &str) -> Result<u64, String> {
    number(text.strip_suffix('%').unwrap_or(text), base::Limit::Reserve)
}

fn bandwidth(text: &str) -> Result<u64, String> {
    limit(text, base::Limit::Bandwidth, bytes(text))
}

fn burst(text: &str) -> Result<u64, String> {
    number(text, base::Limit::Burst)
}

/// Reads the bound of a daemon's memory.
pub fn memory_bytes(text: &str) -> Result<u64, String> {
    bytes_within(text, MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}

/// Reads the size of a segment.
pub fn segment_bytes(text: &str) -> Result<u64, String> {
    let value = bytes_within(text, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
    if value.is_power_of_two() { Ok(value) } else { Err("must be a power of two, such as 64M".to_string()) }
}

/// Reads a number of groups.
pub fn group_count(text: &str) -> Result<u32, String> {
    let within = text.parse::<u32>().ok().filter(|count| (1..=GROUPS_MAX).contains(count));
    within.ok_or_else(|| format!("must be a count, 1 to {GROUPS_MAX}"))
}

/// Reads a volume's name. These appear in commands, mount tables and JSON: no bytes that need quoting there.
pub fn volume_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.len() > VOLUME_NAME_BYTES_MAX {
        return Err(format!("at most {VOLUME_NAME_BYTES_MAX} bytes"));
    }
    if text.is_empty() || text.starts_with(['-', '.']) || !text.bytes().all(plain) {
        return Err("letters, digits, dot, dash and underscore, not starting with a dot or a dash".to_string());
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests;
