//! The requests and replies of the admin socket, as JSON. Promises that each reads back as it was written; times
//! are nanoseconds, sizes bytes.

pub use super::replica::{EtcdState, Heal, PeerState, Replica};

use base::{Error, Kind};
use explain::Snapshot;
use explain::snapshot::Whole;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Longest request line: the longest path (4 KiB) with every byte escaped fits.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest reply line: the history of 256 cores fits.
pub const REPLY_BYTES_MAX: usize = 64 << 20;

/// A request to a daemon.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The daemon's status.
    Status,
    /// Figures per operation and stage.
    Profile,
    /// The last operations.
    History,
    /// The slowest operations of the last two minutes.
    Slow,
    /// All that is counted and measured, after so many milliseconds of looking at requests in flight, at most 1000.
    Signals { milliseconds: u64 },
    /// Begin to record all operations.
    RecordBegin,
    /// Give the next bytes of a recording's file; the last ones end the recording.
    RecordTake { number: u64, last: bool },
    /// Create a volume.
    VolumeCreate {
        /// Its name.
        name: String,
        /// Bytes of data that it may hold; None: as many as the brick.
        size_bytes: Option<u64>,
    },
    /// All volumes.
    VolumeList,
    /// One volume.
    VolumeInfo { name: String },
    /// Give a volume another size; None: as the brick.
    VolumeResize { name: String, size_bytes: Option<u64> },
    /// Give a volume another tier policy, by name.
    VolumePolicy { name: String, policy: String },
    /// Change some of a volume's limits, by their names; 0: no limit.
    /// Those of the tree below a directory of it, if there is a path.
    VolumeLimits {
        name: String,
        #[serde(default)]
        tree: Option<String>,
        changed: BTreeMap<String, u64>,
    },
    /// Give a volume another name.
    VolumeRename { name: String, new_name: String },
    /// A volume's layers.
    LayerList { volume: String },
    /// Put a layer into a volume's stack.
    LayerAdd {
        /// The volume.
        volume: String,
        /// The layer.
        layer: Layer,
        /// The position that it gets, from 1 at the top; None: the lowest.
        #[serde(default)]
        at: Option<u64>,
    },
    /// Take the layer at a position out of a volume's stack.
    LayerRemove { volume: String, at: u64 },
    /// Move a layer to another position.
    LayerMove { volume: String, from: u64, to: u64 },
    /// Delete a volume.
    VolumeDelete {
        /// Its name.
        name: String,
        /// True to unmount even if files of a detached mount are still open: their programs get errors from then on.
        #[serde(default)]
        force: bool,
    },
    /// Mount a volume at an absolute path.
    Mount {
        /// The volume.
        volume: String,
        /// The mount point.
        path: String,
        /// The source that mount tables show; None: the volume's name.
        #[serde(default)]
        source: Option<String>,
        /// Its restrictions, by their names in mount(8).
        #[serde(default)]
        restrictions: Vec<String>,
    },
    /// Unmount what is mounted at an absolute path.
    Umount { path: String, lazy: bool },
    /// More room for the brick: its new size, or what there is.
    Grow { size_bytes: Option<u64> },
    /// The brick's devices.
    Devices,
    /// The tiers that reads are served from, and what was decided about copies on flash.
    Tiers,
    /// The files with blocks on the device of a number: the next ones after one, or the first ones.
    Affected { number: u32, after: Option<FileOf> },
    /// Another device for the brick: its absolute path, and its tier by name.
    AddDevice { path: String, tier: String, force: bool },
    /// The removal of the disk of a number, which goes on until nothing lies on it.
    RemoveDevice { number: u32 },
    /// Start the scrub.
    ScrubStart,
    /// Stop it.
    ScrubStop,
    /// The scrub's status.
    ScrubStatus,
    /// About tokens and clients of other machines.
    Network { ask: NetworkRequest },
    /// End the daemon as SIGTERM does.
    Shutdown,
}

/// A request about tokens and clients of other machines.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NetworkRequest {
    /// Make a token.
    CreateToken {
        /// The volumes that its bearer may mount.
        volumes: Vec<String>,
        /// True to refuse changes.
        read_only: bool,
        /// True to have the bearer's superuser count as nobody.
        squash_root: bool,
        /// Seconds for which it works.
        life_s: u64,
        /// Number of machines that may join with it.
        uses: u32,
        /// Addresses of this server; none: its own.
        addresses: Vec<String>,
    },
    /// All tokens.
    Tokens,
    /// Take the token of this id back.
    RevokeToken { id: String },
    /// All clients.
    Clients,
    /// Refuse the client of this name from now on.
    RevokeClient { name: String },
}

/// One reply line.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// It was done.
    Answer(Answer),
    /// It was not.
    Refusal(Refusal),
}

/// A daemon's reply.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// The daemon's status.
    Status(Status),
    /// Figures per operation, and per layer.
    Profile(Profile),
    /// The last operations, or the slowest, oldest first.
    History(Vec<Whole>),
    /// All that is counted and measured.
    Signals(Box<Snapshot>),
    /// A part of a recording's file.
    Recorded {
        /// The recording's number.
        number: u64,
        /// The next bytes, in hexadecimal digits.
        hex: String,
    },
    /// The brick's devices.
    Devices(Vec<Device>),
    /// The tiers that reads were served from, and what was decided about copies on flash.
    Tiers(Tiers),
    /// Files with blocks on a device, and the one after which the next ones come, if there are more.
    Affected { files: Vec<Affected>, next: Option<FileOf> },
    /// A volume.
    Volume(Volume),
    /// All volumes.
    Volumes(Vec<Volume>),
    /// A volume's layers, from the top down.
    Layers(Vec<Hop>),
    /// The scrub's status.
    Scrub(Scrub),
    /// A token that was made.
    Token(TokenMade),
    /// All tokens.
    Tokens(Vec<Invited>),
    /// All clients of other machines.
    Clients(Vec<Joined>),
    /// The brick's size, before and now.
    Grown { before_bytes: u64, bytes: u64 },
}

/// The reason why a request was not done.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Refusal {
    /// Name of the error's kind.
    pub kind: String,
    /// The refused thing, and context.
    pub text: String,
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[digit as usize]))
        .collect()
}

/// The bytes of these digits. None: they are none, or one is missing.
pub fn of_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Refusal {
    /// The refusal that stands for an error.
    pub fn of(error: &Error) -> Refusal {
        Refusal { kind: format!("{:?}", error.kind), text: error.to_string() }
    }
    /// The error's kind; `Io` for one that this build does not know.
    pub fn kind(&self) -> Kind {
        let known = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == self.kind);
        known.unwrap_or(Kind::Io)
    }
}

/// The status of a daemon and its brick.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since the brick was opened.
    pub uptime_seconds: u64,
    /// The stage of the daemon's end, if that has begun.
    #[serde(default)]
    pub ending: Option<String>,
    /// Reactor threads.
    pub cores: u32,
    /// The brick's identity; at a client `NAME/VOLUME`.
    pub brick: String,
    /// A client's server, and the way there.
    #[serde(default)]
    pub server: Option<String>,
    /// The reason why the brick takes no changes, if it takes none.
    pub read_only: Option<String>,
    /// Usable size.
    pub size_bytes: u64,
    /// Free for clients.
    pub free_bytes: u64,
    /// Bytes per segment.
    pub segment_bytes: u64,
    /// Segments, made or not.
    pub segments: u64,
    /// Placement groups.
    pub groups: u64,
    /// Bytes of I/O buffers taken from the system.
    pub buffer_bytes: u64,
    /// Bound of the daemon's memory.
    pub memory_max_bytes: u64,
    /// The mounts.
    pub mounts: Vec<Mounted>,
    /// The address where clients of other machines are served; None: nowhere.
    #[serde(default)]
    pub listening: Option<String>,
    /// Their sessions.
    #[serde(default)]
    pub clients: Vec<Attached>,
    /// The users of the volumes that they have.
    #[serde(default)]
    pub users: Vec<Users>,
    /// True, at a client, if others have the volume mounted too, so that this machine caches less.
    #[serde(default)]
    pub shared: Option<bool>,
    /// The state of the brick's replica, if it is one of a cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<Box<Replica>>,
    /// The parts of the size.
    pub space: Space,
    /// The cleaner's state, and the reason.
    pub cleaner: String,
    /// Matters that an operator should attend to before they hurt.
    pub warnings: Vec<String>,
    /// The scrub's status, with only the number of its findings.
    #[serde(default)]
    pub scrub: Scrub,
    /// Background work that clients bound.
    #[serde(default)]
    pub agents: Vec<Agent>,
    /// Further figures of the store, by name.
    pub figures: Vec<Figure>,
}

/// The session of a client of another machine.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Attached {
    /// The client's name.
    pub client: String,
    /// The volume that it has mounted.
    pub volume: String,
    /// False while nothing is heard of it.
    pub connected: bool,
}

/// The users of a volume.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Users {
    /// The volume.
    pub volume: String,
    /// True if more than one of them is heard of.
    pub shared: bool,
    /// Clients of other machines, one for each session.
    pub clients: Vec<String>,
    /// The same, of those that nothing is heard of.
    pub silent: Vec<String>,
    /// True if it is mounted on the brick's own machine.
    pub here: bool,
}

/// A token that was made.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct TokenMade {
    /// Its id.
    pub id: String,
    /// The server's name.
    pub name: String,
    /// The token, a secret.
    pub token: String,
    /// The addresses in it.
    pub addresses: Vec<String>,
}

/// A token, without its secret. All times are in seconds since 1970.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Invited {
    /// Its id.
    pub id: String,
    /// The rights that it gives.
    pub volumes: Vec<Granted>,
    /// The time from which on it is refused.
    pub expires_s: u64,
    /// Number of machines that may join with it.
    pub uses: u32,
    /// Those that have.
    pub used_by: Vec<String>,
    /// The time when it was revoked.
    pub revoked_s: Option<u64>,
}

/// The right to mount a volume.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Granted {
    /// The volume.
    pub volume: String,
    /// True if changes are refused.
    pub read_only: bool,
    /// True if the client's superuser counts as nobody.
    pub squash_root: bool,
}

/// A client of another machine. All times are in seconds since 1970.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Joined {
    /// Its name.
    pub name: String,
    /// Its rights.
    pub volumes: Vec<Granted>,
    /// The time when it joined last.
    pub joined_s: u64,
    /// The last second of its certificate.
    pub valid_until_s: u64,
    /// The time when it was revoked.
    pub revoked_s: Option<u64>,
    /// The volumes that it has mounted, each with whether it is connected now.
    pub mounted: BTreeMap<String, bool>,
}

/// An agent of background work.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Thousandths of the time in which it may work as long as clients are there; None: it has nothing to do.
    pub share: Option<u64>,
    /// Nanoseconds for which it has worked since start.
    pub worked_ns: u64,
}

/// A device of a brick.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Device {
    /// Its number.
    pub number: u32,
    /// Its tier by name.
    pub tier: String,
    /// Its state: "in use", "leaving", "failed" or "missing".
    pub state: String,
    /// The path of its link; None: the brick's directory.
    pub path: Option<String>,
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// Bytes of its free segments.
    pub free_bytes: u64,
    /// Bytes of the data on it, as of the last checkpoint.
    pub live_bytes: u64,
    /// The reason why it gets no more segments, if it has failed.
    pub error: Option<String>,
}

/// The tiers of a brick.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Tiers {
    /// Each tier's part of reads.
    pub served: Vec<Served>,
    /// Bytes of flash that hold copies.
    pub copied_bytes: u64,
    /// Segments of flash that hold copies.
    pub segments: u32,
    /// Number of segments that may hold copies now.
    pub segments_max: u32,
    /// Entries of the map from places on disk to copies.
    pub map_entries: u64,
    /// Bytes of memory that it takes at most.
    pub map_bytes: u64,
    /// Read-ahead from disks.
    pub ahead: Ahead,
    /// Blocks by what was decided about them, and why.
    pub decided: Vec<Decided>,
    /// The last decisions, oldest first.
    pub decisions: Vec<Decision>,
}

/// Read-ahead from disks since start, for clients that read files in order.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Ahead {
    /// Units of it.
    pub units: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Runs on the disks that they lay in: each took a seek.
    pub runs: u64,
    /// Bytes that clients have taken.
    pub taken_bytes: u64,
    /// Bytes of memory that units have now.
    pub held_bytes: u64,
    /// Bytes of memory that they never exceed.
    pub held_bytes_max: u64,
}

/// A tier's part of reads since start, in blocks of 4 KiB.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Served {
    /// The tier.
    pub tier: String,
    /// Blocks that were looked for there.
    pub asked_blocks: u64,
    /// Those that it had.
    pub found_blocks: u64,
}

/// Decisions of one kind since start.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Decided {
    /// The decision: "admitted", "refused" or "evicted".
    pub verdict: String,
    /// The reason.
    pub reason: String,
    /// Blocks that it was about.
    pub blocks: u64,
}

/// A decision about a copy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Decision {
    /// Milliseconds since then.
    pub ago_ms: u64,
    /// The decision: "admitted", "refused" or "evicted".
    pub verdict: String,
    /// The reason.
    pub reason: String,
    /// The segment on disk; on flash if all of one was dropped.
    pub segment: u32,
    /// The first block there.
    pub block: u16,
    /// Number of blocks.
    pub blocks: u32,
}

/// A file, by the number of its volume and of its inode.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct FileOf {
    /// The volume.
    pub volume: u32,
    /// The inode.
    pub inode: u64,
}

/// A file with blocks on a device.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Affected {
    /// The volume's name.
    pub volume: String,
    /// The inode.
    pub inode: u64,
    /// A path within the volume; None if it has none, because it was unlinked while it is open.
    pub path: Option<String>,
    /// Bytes of its blocks on the device.
    pub bytes: u64,
}

/// A brick's space, in bytes.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Space {
    /// All segments.
    pub physical_bytes: u64,
    /// Data that files still have, as of the last checkpoint.
    pub logical_bytes: u64,
    /// Segments that can be taken at once.
    pub free_bytes: u64,
    /// Segments in use less the data in them: the cleaner gets most of it back.
    pub reclaimable_bytes: u64,
    /// Clients' writes since start.
    pub client_bytes: u64,
    /// Bytes written since start by log, bulk and cold stream and index.
    pub device_bytes: u64,
    /// Bytes of these that the cleaner moved.
    pub moved_bytes: u64,
}

/// The status of a brick's scrub.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Scrub {
    /// `never started`, `running`, `stopped` or `done`.
    pub state: String,
    /// Time at which the pass began: nanoseconds since 1970; 0: it has not.
    pub began_ns: i64,
    /// Time at which it ended; 0: it has not.
    pub ended_ns: i64,
    /// Live bytes of sealed segments that the pass is through with.
    pub done_bytes: u64,
    /// Live bytes of all sealed segments.
    pub of_bytes: u64,
    /// Seconds that it will still take, if it goes on as it has.
    pub left_seconds: Option<u64>,
    /// Bad blocks that files still have.
    pub findings: Vec<Rotten>,
    /// Findings that are not listed.
    pub unlisted: u64,
}

/// Bad blocks of a file.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Rotten {
    /// The volume's name.
    pub volume: String,
    /// The inode; 0 if nobody knows whose blocks they are.
    pub inode: u64,
    /// A path of it in the volume, if one is known.
    pub path: Option<String>,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Its place on the device: the segment, and the block in it.
    pub segment: u32,
    /// The block.
    pub block: u16,
    /// The fault.
    pub why: String,
}

/// A mounted volume.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Mounted {
    /// The volume's name.
    pub volume: String,
    /// The path where it is, or was mounted last.
    pub path: String,
    /// It is mounted nowhere any more, and still used.
    #[serde(default)]
    pub detached: bool,
}

/// A named number.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Figure {
    /// Its name, with its unit.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// Figures of one duration.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Times {
    /// Number of measurements.
    pub count: u64,
    /// The shortest; in truth, up to an eighth more.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: u64,
    /// Half take no longer.
    pub p50_ns: u64,
    /// 99 of 100 take no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Times {
    /// The times of a histogram's summary.
    pub fn of(summary: &runtime::histogram::Summary) -> Times {
        Times {
            count: summary.count(),
            min_ns: summary.min_ns(),
            mean_ns: summary.mean_ns(),
            p50_ns: summary.quantile_ns(0.5),
            p99_ns: summary.quantile_ns(0.99),
            max_ns: summary.max_ns(),
        }
    }
    /// The times within a window.
    pub fn within(times: &explain::Times) -> Times {
        Times {
            count: times.count,
            min_ns: times.min_ns(),
            mean_ns: times.mean_ns(),
            p50_ns: times.quantile_ns(0.5),
            p99_ns: times.quantile_ns(0.99),
            max_ns: times.max_ns,
        }
    }
}

/// The places where the time of requests went.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// The operations that were asked for.
    pub operations: Vec<Operation>,
    /// The volumes that have layers.
    pub volumes: Vec<Layered>,
}

/// A volume and its layers, from the top down.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Layered {
    /// The volume.
    pub volume: String,
    /// Its layers.
    pub layers: Vec<Hop>,
}

/// A layer and its parameters.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Layer {
    /// Refuses changes.
    ReadOnly,
    /// Holds operations of this name, or all, for so many nanoseconds.
    Delay { operation: Option<String>, ns: u64 },
    /// Answers each `every`th operation of this name, or of all, with an error.
    Fault { operation: Option<String>, error: String, every: u64 },
}

/// A layer in its place, and its figures since it was put in or the daemon was started.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Hop {
    /// Position, from 1 at the top.
    pub position: u64,
    /// The layer.
    pub layer: Layer,
    /// Operations that reached it.
    pub calls: u64,
    /// Operations that it answered itself.
    pub answered: u64,
    /// Operations that it changed and passed on.
    pub changed: u64,
    /// The mean time for which it held an operation.
    pub held_mean_ns: u64,
}

/// One operation's figures.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Operation {
    /// The operation.
    pub name: String,
    /// Whole requests.
    pub total: Times,
    /// Changes of thread, over all requests.
    pub hops: u64,
    /// Stages that took time, in the order in which a request meets them.
    pub stages: Vec<StageTimes>,
}

/// One stage's figures.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct StageTimes {
    /// The stage.
    pub stage: String,
    /// Requests that spent time in it, and how long.
    pub times: Times,
}

/// A directory tree that has limits of its own.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct LimitedTree {
    /// Its path in the volume, as of the last checkpoint; None: it has none yet, or none any more.
    pub path: Option<String>,
    /// Inode number of the directory at its top.
    pub inode: u64,
    /// The project of all that is in it.
    pub project: u32,
    /// Its limits by name, as those of volumes.
    pub limits: BTreeMap<String, u64>,
}

/// A volume.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Volume {
    /// Its id, never reused.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Inode number of its root directory.
    pub root: u64,
    /// Time of its creation: nanoseconds since 1970.
    pub created_ns: i64,
    /// Bytes of data and names that it may hold; None: as many as the brick.
    pub size_bytes: Option<u64>,
    /// Bytes of these in use: by data, reservations, inodes, names and attributes.
    #[serde(default)]
    pub used_bytes: u64,
    /// Inodes that it has.
    #[serde(default)]
    pub inodes: u64,
    /// The tiers that its blocks may lie on: `write-back` or `flash-only`.
    #[serde(default)]
    pub policy: String,
    /// Its limits by name: operations or bytes per second, and the burst in milliseconds. Without those that it does not have.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// Its directory trees that have limits of their own.
    #[serde(default)]
    pub trees: Vec<LimitedTree>,
    /// The paths where it is mounted.
    pub mounts: Vec<String>,
    /// Mounts that were taken away and are still used, and by whom.
    #[serde(default)]
    pub detached: Vec<String>,
    /// Number of its open files, and the processes that have them open.
    #[serde(default)]
    pub open: Option<String>,
}
