//! The requests of clients and the answers to them: closed enums, shared by every front and layer. Payload bytes travel
//! beside the operation (see `runtime::buffer`), never inside it.

use crate::bounds::{Limit, Limits};
use crate::error::{Error, Kind, Result};
use crate::ids::{Ino, VolumeId};
use crate::inode::{FileKind, Guard, Inode, Time};
use crate::layer::Layer;
use crate::lock::{FileLock, LockWish};
use crate::name::Name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The position of a write in the file (rule M4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Byte offset.
    Offset(u64),
    /// The end of the file when the write is ordered (O_APPEND).
    End,
}

/// The condition for acknowledging a change (rule U3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sync {
    /// Ordered in the overlay: buffered writes and changes of names.
    Ordered,
    /// Written: the device write of its data has completed, without a flush. O_DIRECT.
    Written,
    /// Durable data, with all that is needed to read it back. O_DSYNC, fdatasync.
    Data,
    /// Durable data and attributes, timestamps included. O_SYNC, fsync.
    All,
}

/// The effect of fallocate on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// The range keeps its content, and space for all of it is reserved.
    Promised,
    /// The range becomes a hole; the space reserved for it is given back.
    Hole,
    /// The range reads as zeros, and space for all of it is reserved.
    Zeroed,
}

/// The target of an lseek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte of data.
    Data,
    /// The next byte of a hole; the end of the file counts as one.
    Hole,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The owner's clock.
    Now,
    /// A given time.
    To(Time),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New owning group of users.
    pub gid: Option<u32>,
    /// New size (truncate or extend).
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time (sent only by a kernel that keeps change times itself).
    pub ctime: Option<Time>,
    /// New protections, alone or with a project.
    pub guard: Option<Guard>,
    /// New project, which is charged for the inode's blocks and name from now on.
    pub project: Option<u32>,
    /// Clear setuid and setgid as a write or chown by an unprivileged user does (HANDLE_KILLPRIV_V2).
    pub kill_privileges: bool,
}

/// The condition under which an extended attribute is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetHow {
    /// None: the attribute is created or replaced.
    #[default]
    Any,
    /// XATTR_CREATE: the attribute must not exist.
    Create,
    /// XATTR_REPLACE: the attribute must exist.
    Replace,
}

/// The extended attributes of an inode, by name, namespace included.
pub type Xattrs = BTreeMap<Name, Arc<[u8]>>;

/// One operation. Directory operations name the directory first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Look a name up in a directory.
    Lookup { parent: Ino, name: Name },
    /// Attributes of an inode.
    GetAttr { ino: Ino },
    /// Look an inode up by its number alone. The client has the number from long ago, or from an earlier run of the
    /// daemon; from now on the client knows the inode. An inode without a name is answered as gone.
    Recall { ino: Ino },
    /// Change attributes; `size` truncates.
    SetAttr { ino: Ino, set: Box<SetAttr> },
    /// Target of a symbolic link.
    ReadLink { ino: Ino },
    /// Create a regular file and open it; without `exclusive` an existing file is returned as it is.
    Create { parent: Ino, name: Name, mode: u16, exclusive: bool },
    /// Create a directory.
    MakeDir { parent: Ino, name: Name, mode: u16 },
    /// Create a symbolic link.
    SymLink { parent: Ino, name: Name, target: Box<[u8]> },
    /// Create an object that has no data here: a named pipe, a socket, a device (`rdev` as the kernel encodes it).
    MakeNode { parent: Ino, name: Name, kind: FileKind, mode: u16, rdev: u32 },
    /// Create a regular file without a name and open it (O_TMPFILE). It is freed at its last release, unless it has
    /// been given a name.
    TempFile { parent: Ino, mode: u16 },
    /// Give an inode that is no directory another name, or a file created without a name its first.
    Link { ino: Ino, new_parent: Ino, new_name: Name },
    /// Remove a name that is not a directory's.
    Unlink { parent: Ino, name: Name },
    /// Remove an empty directory.
    RemoveDir { parent: Ino, name: Name },
    /// Move a name; an existing target is replaced unless `no_replace`. `whiteout` leaves a character device 0:0 at the
    /// old name, by which overlay file systems know that a name of a lower layer is hidden.
    Rename { parent: Ino, name: Name, new_parent: Ino, new_name: Name, no_replace: bool, whiteout: bool },
    /// Exchange the inodes of two existing names.
    Exchange { parent: Ino, name: Name, new_parent: Ino, new_name: Name },
    /// Count an open of the inode, which keeps an unlinked file alive; `truncate` = O_TRUNC.
    Open { ino: Ino, truncate: bool },
    /// Undo one open.
    Release { ino: Ino },
    /// Take back `times` answers by which the client learnt of an inode; when all are taken back, the client no longer
    /// knows it. (FUSE: LOOKUP and everything that creates an inode count one each.)
    Forget { ino: Ino, times: u64 },
    /// Read up to `length` bytes (at most 1 MiB); the payload comes beside the reply.
    Read { ino: Ino, offset: u64, length: u32 },
    /// Write the payload beside the operation (at most 1 MiB).
    Write { ino: Ino, at: At, sync: Sync, kill_privileges: bool },
    /// Reserve space for a range of bytes, or turn the range into a hole or zeros. The file grows to hold the range
    /// unless `keep_size`; with a hole `keep_size` is always set.
    Allocate { ino: Ino, offset: u64, length: u64, keep_size: bool, room: Room },
    /// Find the beginning of data or of a hole, at `offset` or after it.
    Seek { ino: Ino, offset: u64, what: Seek },
    /// Value of an extended attribute.
    GetXattr { ino: Ino, name: Name },
    /// Names of all extended attributes.
    ListXattr { ino: Ino },
    /// Set an extended attribute. `kill_setgid`: if the attribute is an access list, setting it also clears setgid, as
    /// chmod does for a caller who is not in the inode's group.
    SetXattr { ino: Ino, name: Name, value: Arc<[u8]>, how: SetHow, kill_setgid: bool },
    /// Remove an extended attribute.
    RemoveXattr { ino: Ino, name: Name },
    /// Make an inode's acknowledged changes durable.
    Fsync { ino: Ino, sync: Sync },
    /// Entries of a directory after `cookie` (0 = from the start), at most `count`; with attributes if `plus`.
    ReadDir { ino: Ino, cookie: u64, count: u32, plus: bool },
    /// Ask for a lock, take it or give it back (`LockWish`). The caller's session has it until it is given back or ends.
    Lock { lock: Box<FileLock>, wish: LockWish },
    /// Space of the volume.
    StatFs,
    /// Make everything acknowledged so far durable.
    SyncAll,
    /// Create a volume with its root directory. It holds at most `size_bytes` of data; None: as much as the brick
    /// holds.
    VolumeCreate { name: Name, size_bytes: Option<u64> },
    /// Delete a volume and all that is in it.
    VolumeDelete { name: Name },
    /// Give a volume another name.
    VolumeRename { name: Name, new_name: Name },
    /// Give a volume another size; None: that of the brick.
    VolumeResize { name: Name, size_bytes: Option<u64> },
    /// Give a volume other layers, from the top down; a running stack is changed by whoever has it.
    VolumeLayers { name: Name, layers: Box<[Layer]> },
    /// Give a volume another tier policy.
    VolumePolicy { name: Name, policy: TierPolicy },
    /// Change some of a volume's limits (0: no limit); a running stack is changed by whoever has it.
    /// Those of a directory tree, if there is one: its project, and the directory at its top.
    VolumeLimits { name: Name, tree: Option<(u32, Ino)>, changed: Box<[(Limit, u64)]> },
    /// All volumes.
    VolumeList,
}

// A request is moved in memory several times, from the front's message into the future of each package below, and its
// answer on the way back. So what is larger and rare belongs behind a pointer.
const _: () = assert!(size_of::<Op>() <= 128 && size_of::<Reply>() <= 128);

/// Every name that `Op::name` gives. Names are stored with layers: none is ever given to another operation.
pub const OP_NAMES: &[&str] = &[
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "create",
    "mkdir",
    "symlink",
    "unlink",
    "rmdir",
    "rename",
    "open",
    "release",
    "read",
    "write",
    "write-direct",
    "write-sync",
    "fsync",
    "readdir",
    "statfs",
    "sync",
    "volume-create",
    "volume-delete",
    "volume-list",
    "fallocate",
    "mknod",
    "link",
    "exchange",
    "getxattr",
    "listxattr",
    "setxattr",
    "removexattr",
    "lseek",
    "tmpfile",
    "forget",
    "recall",
    "volume-rename",
    "volume-resize",
    "volume-layers",
    "volume-policy",
    "volume-limits",
    "lock",
];

impl Op {
    /// The inode in whose group the operation is decided; None for those of a whole volume, or of all.
    pub fn home(&self) -> Option<Ino> {
        match self {
            Op::Lookup { parent, .. }
            | Op::Create { parent, .. }
            | Op::MakeDir { parent, .. }
            | Op::SymLink { parent, .. }
            | Op::MakeNode { parent, .. }
            | Op::TempFile { parent, .. }
            | Op::Unlink { parent, .. }
            | Op::RemoveDir { parent, .. } => Some(*parent),
            Op::Rename { new_parent, .. } | Op::Exchange { new_parent, .. } | Op::Link { new_parent, .. } => {
                Some(*new_parent)
            }
            Op::GetAttr { ino }
            | Op::Recall { ino }
            | Op::SetAttr { ino, .. }
            | Op::ReadLink { ino }
            | Op::Open { ino, .. }
            | Op::Release { ino }
            | Op::Forget { ino, .. }
            | Op::Read { ino, .. }
            | Op::Write { ino, .. }
            | Op::Allocate { ino, .. }
            | Op::Seek { ino, .. }
            | Op::GetXattr { ino, .. }
            | Op::ListXattr { ino }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. }
            | Op::Fsync { ino, .. }
            | Op::ReadDir { ino, .. } => Some(*ino),
            Op::Lock { lock, .. } => Some(lock.ino),
            Op::StatFs
            | Op::SyncAll
            | Op::VolumeCreate { .. }
            | Op::VolumeDelete { .. }
            | Op::VolumeRename { .. }
            | Op::VolumeResize { .. }
            | Op::VolumeLayers { .. }
            | Op::VolumePolicy { .. }
            | Op::VolumeLimits { .. }
            | Op::VolumeList => None,
        }
    }
    /// True for operations on the catalogue of volumes. A new operation without an inode counts as one until somebody has said otherwise.
    pub fn is_of_catalogue(&self) -> bool {
        self.home().is_none() && !matches!(self, Op::StatFs | Op::SyncAll)
    }
    /// Short name for ledgers and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Lookup { .. } => "lookup",
            Op::GetAttr { .. } => "getattr",
            Op::Recall { .. } => "recall",
            Op::SetAttr { .. } => "setattr",
            Op::ReadLink { .. } => "readlink",
            Op::Create { .. } => "create",
            Op::MakeDir { .. } => "mkdir",
            Op::SymLink { .. } => "symlink",
            Op::MakeNode { .. } => "mknod",
            Op::TempFile { .. } => "tmpfile",
            Op::Link { .. } => "link",
            Op::Unlink { .. } => "unlink",
            Op::RemoveDir { .. } => "rmdir",
            Op::Rename { .. } => "rename",
            Op::Exchange { .. } => "exchange",
            Op::Open { .. } => "open",
            Op::Release { .. } => "release",
            Op::Forget { .. } => "forget",
            Op::Read { .. } => "read",
            Op::Write { sync: Sync::Ordered, .. } => "write",
            Op::Write { sync: Sync::Written, .. } => "write-direct",
            Op::Write { .. } => "write-sync",
            Op::Allocate { .. } => "fallocate",
            Op::Seek { .. } => "lseek",
            Op::Fsync { .. } => "fsync",
            Op::GetXattr { .. } => "getxattr",
            Op::ListXattr { .. } => "listxattr",
            Op::SetXattr { .. } => "setxattr",
            Op::RemoveXattr { .. } => "removexattr",
            Op::ReadDir { .. } => "readdir",
            Op::Lock { .. } => "lock",
            Op::StatFs => "statfs",
            Op::SyncAll => "sync",
            Op::VolumeCreate { .. } => "volume-create",
            Op::VolumeDelete { .. } => "volume-delete",
            Op::VolumeRename { .. } => "volume-rename",
            Op::VolumeResize { .. } => "volume-resize",
            Op::VolumeLayers { .. } => "volume-layers",
            Op::VolumePolicy { .. } => "volume-policy",
            Op::VolumeLimits { .. } => "volume-limits",
            Op::VolumeList => "volume-list",
        }
    }
    /// True if the operation may change state and so order a record.
    pub fn mutates(&self) -> bool {
        match self {
            Op::Open { truncate, .. } => *truncate,
            Op::SetAttr { .. }
            | Op::Create { .. }
            | Op::MakeDir { .. }
            | Op::SymLink { .. }
            | Op::MakeNode { .. }
            | Op::TempFile { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::RemoveDir { .. }
            | Op::Rename { .. }
            | Op::Exchange { .. }
            | Op::Release { .. }
            | Op::Write { .. }
            | Op::Allocate { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::VolumeCreate { .. }
            | Op::VolumeDelete { .. }
            | Op::VolumeRename { .. }
            | Op::VolumeResize { .. }
            | Op::VolumeLayers { .. }
            | Op::VolumePolicy { .. }
            | Op::VolumeLimits { .. } => true,
            _ => false,
        }
    }
}

/// An inode's number and attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The inode's number.
    pub ino: Ino,
    /// The inode's attributes.
    pub inode: Inode,
    /// The blocks that the inode occupies.
    pub blocks: Blocks,
}

/// The number of blocks that a file occupies, including reserved ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The number, as far as it is known.
    pub count: u64,
    /// False: an estimate that will soon be replaced, so clients must not cache it.
    pub exact: bool,
}

impl Attr {
    /// Attributes with an estimate of the blocks: as many as the file's size needs. The true number has not been looked
    /// up yet.
    pub fn new(ino: Ino, inode: Inode) -> Attr {
        let file = inode.kind == crate::FileKind::File;
        let count = if file { inode.size.div_ceil(crate::limits::BLOCK_BYTES as u64) } else { 0 };
        Attr { ino, inode, blocks: Blocks { count, exact: !file } }
    }
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Position after this entry: pass it to read on.
    pub cookie: u64,
    /// The inode that the entry points to.
    pub ino: Ino,
    /// The inode's kind.
    pub kind: crate::inode::FileKind,
    /// The name.
    pub name: Name,
    /// The inode's attributes, if they were asked for and the inode still exists.
    pub attr: Option<Attr>,
}

/// Space of a volume, in bytes, and its inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Usable size.
    pub size_bytes: u64,
    /// Free for clients.
    pub free_bytes: u64,
    /// Number of inodes.
    pub inodes: u64,
}

/// A volume of the brick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// The volume's id, never reused.
    pub id: VolumeId,
    /// Its name.
    pub name: Name,
    /// Its root directory.
    pub root: Ino,
    /// Time of its creation.
    pub created: Time,
    /// Largest number of bytes of data in the volume; None: as many as the brick holds.
    pub size_bytes: Option<u64>,
    /// The layers that its operations pass, from the top down.
    pub layers: Box<[Layer]>,
    /// The tiers that its blocks may lie on.
    pub policy: TierPolicy,
    /// Limits of what its clients get, and their weight.
    pub limits: Limits,
}

/// The tiers that a volume's blocks may lie on, on a hybrid brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TierPolicy {
    /// Flash first; cold blocks go down to disks.
    #[default]
    WriteBack,
    /// Flash, whatever its inodes' hints say.
    FlashOnly,
}

impl TierPolicy {
    /// All policies.
    pub const ALL: [TierPolicy; 2] = [TierPolicy::WriteBack, TierPolicy::FlashOnly];

    /// The name in commands and tables.
    pub fn name(self) -> &'static str {
        match self {
            TierPolicy::WriteBack => "write-back",
            TierPolicy::FlashOnly => "flash-only",
        }
    }
    /// The policy of this name. Errors: `Invalid`.
    pub fn of(name: &str) -> Result<TierPolicy> {
        let known = TierPolicy::ALL.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| Error::new(Kind::Invalid, "a volume's policy is write-back or flash-only").with(name))
    }
}

/// The outcome of a mutating request: enough to answer a duplicate of it (rule R1). Kept per session, hence small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done; nothing else to tell.
    Done,
    /// An inode was created or found; of a volume, its root.
    Inode(Ino),
    /// A write went to this offset, with this length.
    Wrote { offset: u64, length: u32 },
}

/// The answer to an operation that succeeded. Read's bytes come beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nothing to tell.
    Done,
    /// Attributes (lookup, getattr, setattr, create, mkdir, symlink, open).
    Attr(Attr),
    /// A link's target.
    Target(Box<[u8]>),
    /// An extended attribute's value.
    Value(Arc<[u8]>),
    /// Names of extended attributes, each ended by a zero.
    Names(Box<[u8]>),
    /// Bytes read, beside the reply; shorter than asked only at the end of the file.
    Data { length: u32 },
    /// A write's offset and length.
    Wrote { offset: u64, length: u32 },
    /// The position that a seek found. None: there is no such byte after the offset, or the offset is outside the file.
    Found(Option<u64>),
    /// Entries in cookie order. Fewer than asked for, or none, only at the end of the directory. Entries added later
    /// get cookies from `next_cookie` on.
    Entries { entries: Vec<DirEntry>, next_cookie: u64 },
    /// Space.
    StatFs(StatFs),
    /// A volume (create).
    Volume(Volume),
    /// All volumes.
    Volumes(Vec<Volume>),
    /// A lock that is in the way, if any: then nothing was taken.
    InTheWay(Option<Box<FileLock>>),
}
