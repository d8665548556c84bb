//! The requests and replies of the admin socket, as JSON. Promises that each reads back as it was written; times
//! are nanoseconds, sizes bytes.

use base::{Error, Kind};
use serde::{Deserialize, Serialize};

/// Longest request line: the longest path (4 KiB) with every byte escaped fits.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Longest reply line: the history of 256 cores fits.
pub const REPLY_BYTES_MAX: usize = 64 << 20;

/// What a daemon can be asked.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How it is.
    Status,
    /// Figures per operation and stage.
    Profile,
    /// The last operations.
    History,
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
    /// Give a volume another name.
    VolumeRename { name: String, new_name: String },
    /// Delete a volume.
    VolumeDelete {
        /// Its name.
        name: String,
        /// Also if files of a mount that was detached are still open: their programs get errors from then on.
        #[serde(default)]
        force: bool,
    },
    /// Mount a volume at an absolute path.
    Mount {
        /// The volume.
        volume: String,
        /// Where.
        path: String,
        /// What mount tables show as its source; None: the volume's name.
        #[serde(default)]
        source: Option<String>,
        /// What it must not allow, as mount(8) calls it.
        #[serde(default)]
        restrictions: Vec<String>,
    },
    /// Unmount what is mounted at an absolute path.
    Umount { path: String, lazy: bool },
    /// More room for the brick: its new size, or what there is.
    Grow { size_bytes: Option<u64> },
    /// Start the scrub.
    ScrubStart,
    /// Stop it.
    ScrubStop,
    /// How it is.
    ScrubStatus,
    /// End the daemon as SIGTERM does.
    Shutdown,
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

/// What a daemon tells.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing to tell.
    Done,
    /// How it is.
    Status(Status),
    /// Figures per operation.
    Profile(Vec<Operation>),
    /// The last operations, oldest first.
    History(Vec<Past>),
    /// A volume.
    Volume(Volume),
    /// All volumes.
    Volumes(Vec<Volume>),
    /// How the scrub is.
    Scrub(Scrub),
    /// The brick's size, before and now.
    Grown { before_bytes: u64, bytes: u64 },
}

/// Why a request was not done.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub struct Refusal {
    /// Name of the error's kind.
    pub kind: String,
    /// What was refused, and context.
    pub text: String,
}

impl Refusal {
    /// From an error.
    pub fn of(error: &Error) -> Refusal {
        Refusal { kind: format!("{:?}", error.kind), text: error.to_string() }
    }
    /// The error's kind; `Io` for one that this build does not know.
    pub fn kind(&self) -> Kind {
        let known = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == self.kind);
        known.unwrap_or(Kind::Io)
    }
}

/// How a daemon and its brick are.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Since the brick was opened.
    pub uptime_seconds: u64,
    /// What its end is at, if that has begun.
    #[serde(default)]
    pub ending: Option<String>,
    /// Reactor threads.
    pub cores: u32,
    /// The brick's identity.
    pub brick: String,
    /// Why the brick takes no changes, if so.
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
    /// What is mounted.
    pub mounts: Vec<Mounted>,
    /// What the size is made of.
    pub space: Space,
    /// What the cleaner does, and why.
    pub cleaner: String,
    /// What an operator should do something about before it hurts.
    pub warnings: Vec<String>,
    /// How the scrub is; of its findings only how many there are.
    #[serde(default)]
    pub scrub: Scrub,
    /// Further figures of the store, by name.
    pub figures: Vec<Figure>,
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
    /// Of log, bulk and cold stream and index, written since start.
    pub device_bytes: u64,
    /// Of these, moved by the cleaner.
    pub moved_bytes: u64,
}

/// How a brick's scrub is.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct Scrub {
    /// `never started`, `running`, `stopped` or `done`.
    pub state: String,
    /// When the pass began and ended: nanoseconds since 1970; 0: it has not.
    pub began_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// Live bytes of sealed segments that the pass is through with.
    pub done_bytes: u64,
    /// Live bytes of all sealed segments.
    pub of_bytes: u64,
    /// How long it will take, if it goes on as it has.
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
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Where on the device: the segment, and the block in it.
    pub segment: u32,
    /// The block.
    pub block: u16,
    /// What is wrong.
    pub why: String,
}

/// A mounted volume.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Mounted {
    /// The volume's name.
    pub volume: String,
    /// Where it is, or was mounted last.
    pub path: String,
    /// It is mounted nowhere any more, and still used.
    #[serde(default)]
    pub detached: bool,
}

/// A named number.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Figure {
    /// What it counts, with its unit.
    pub name: String,
    /// How many.
    pub value: u64,
}

/// Figures of one duration.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Times {
    /// How many were measured.
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
    /// From a histogram's sum.
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

/// One operation of the past.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Past {
    /// The operation.
    pub name: String,
    /// When it ended, on the monotonic clock.
    pub end_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
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
    /// When it was created: nanoseconds since 1970.
    pub created_ns: i64,
    /// Bytes of data and names that it may hold; None: as many as the brick.
    pub size_bytes: Option<u64>,
    /// Of these, used: by data, promises, inodes, names and attributes.
    #[serde(default)]
    pub used_bytes: u64,
    /// Inodes that it has.
    #[serde(default)]
    pub inodes: u64,
    /// Where it is mounted.
    pub mounts: Vec<String>,
    /// Mounts that were taken away and are still used, and by whom.
    #[serde(default)]
    pub detached: Vec<String>,
    /// How many files of it are open, and who has them open.
    #[serde(default)]
    pub open: Option<String>,
}
