//! The vocabulary that every other package uses.
//!
//! Promises: identifiers, operations, replies, logical edits, errors, limits and checksums, as plain values. Absent by
//! design: no I/O, no clock, no async, no serialisation (the owner of a byte layout writes its own).
#![forbid(unsafe_code)]

pub mod ablated;
pub mod bounds;
pub mod checksum;
pub mod edit;
pub mod error;
pub mod ids;
pub mod inode;
pub mod layer;
pub mod limits;
pub mod lock;
pub mod name;
pub mod op;
pub mod seeded;

pub use bounds::{Limit, Limits, Tree};
pub use edit::{Crcs, Edit, Follow, Holder, Intent, IntentId, Numbers};
pub use error::{Error, Kind, Remedy, Result};
pub use ids::{GroupId, Index, Ino, LeafKey, Life, Place, ReplicaId, RequestId, SegmentId, SessionId, Term, VolumeId};
pub use inode::{Attributes, FileKind, Guard, Inode, TierHint, Time};
pub use layer::{Layer, Operations};
pub use lock::{FileLock, LockWish};
pub use name::Name;
pub use op::{
    At, Attr, Blocks, DirEntry, OP_NAMES, Op, Outcome, Reply, Room, Seek, SetAttr, SetHow, SetTime, StatFs, Sync,
    TierPolicy, Volume, Xattrs,
};
