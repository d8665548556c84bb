//! What clients can ask, and what they are told: closed enums, shared by every front and layer.
//! Payload bytes travel beside the operation (see `runtime::buffer`), never inside it.

use crate::ids::{Ino, VolumeId};
use crate::inode::{FileKind, Guard, Inode, Time};
use crate::name::Name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a write goes (rule M4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Byte offset.
    Offset(u64),
    /// The end of the file when the write is ordered (O_APPEND).
    End,
}

/// When a change may be acknowledged (rule U3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sync {
    /// Once ordered in the overlay: buffered writes and changes of names.
    Ordered,
    /// Once the device write of its data has completed, without flush: O_DIRECT.
    Written,
    /// Once data and what is needed to read it back are durable: O_DSYNC, fdatasync.
    Data,
    /// Once everything, time stamps included, is durable: O_SYNC, fsync.
    All,
}

/// What fallocate makes of a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It keeps what it holds, and is promised.
    Promised,
    /// It becomes a hole; what was promised of it is given back.
    Hole,
    /// It becomes zeros, and is promised.
    Zeroed,
}

/// What lseek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte that was written.
    Data,
    /// The next byte that was not; the end of the file is one.
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
    /// New change time (set only by a kernel that keeps it itself).
    pub ctime: Option<Time>,
    /// New guard, alone or with a project.
    pub guard: Option<Guard>,
    /// New project, which counts what it has from now on.
    pub project: Option<u32>,
    /// Clear setuid and setgid as a write or chown by an unprivileged user does (HANDLE_KILLPRIV_V2).
    pub kill_privileges: bool,
}

/// Whether an extended attribute that is set must have been there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetHow {
    /// It is all the same.
    #[default]
    Any,
    /// XATTR_CREATE: it must not.
    Create,
    /// XATTR_REPLACE: it must.
    Replace,
}

/// The extended attributes of an inode, by their whole names.
pub type Xattrs = BTreeMap<Name, Arc<[u8]>>;

/// One operation. Directory operations name the directory first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Entry -> attributes.
    Lookup { parent: Ino, name: Name },
    /// Attributes of an inode.
    GetAttr { ino: Ino },
    /// Attributes of an inode that the client has only the number of: one that it knew long ago, or was told by a former
    /// life of ours. From now on it knows it. An inode without a name is gone for it.
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
    /// Create a regular file that has no name and open it: it ends with its last open, unless it is given a name.
    TempFile { parent: Ino, mode: u16 },
    /// One more name for an inode that is no directory; the first one for a file that was created without.
    Link { ino: Ino, new_parent: Ino, new_name: Name },
    /// Remove a name that is not a directory's.
    Unlink { parent: Ino, name: Name },
    /// Remove an empty directory.
    RemoveDir { parent: Ino, name: Name },
    /// Move a name; an existing target is replaced unless `no_replace`. `whiteout`: the old name is left to a character
    /// device 0:0, by which overlay file systems know what was there.
    Rename { parent: Ino, name: Name, new_parent: Ino, new_name: Name, no_replace: bool, whiteout: bool },
    /// Two names that exist change what they name.
    Exchange { parent: Ino, name: Name, new_parent: Ino, new_name: Name },
    /// Count an open of the inode (keeps an unlinked file alive); `truncate` = O_TRUNC.
    Open { ino: Ino, truncate: bool },
    /// Undo one open.
    Release { ino: Ino },
    /// The client lets go of an inode of which so many answers told it. (FUSE: what LOOKUP and all that creates count.)
    Forget { ino: Ino, times: u64 },
    /// Read up to `length` bytes (at most 1 MiB); the payload comes beside the reply.
    Read { ino: Ino, offset: u64, length: u32 },
    /// Write the payload beside the operation (at most 1 MiB).
    Write { ino: Ino, at: At, sync: Sync, kill_privileges: bool },
    /// Promise a file room for a range of bytes that it may not have written yet, or make a hole or zeros of the range; the
    /// file grows to hold the range unless `keep_size`, which a hole always does.
    Allocate { ino: Ino, offset: u64, length: u64, keep_size: bool, room: Room },
    /// Where data or a hole begins, at `offset` or behind it.
    Seek { ino: Ino, offset: u64, what: Seek },
    /// Value of an extended attribute.
    GetXattr { ino: Ino, name: Name },
    /// Names of all extended attributes.
    ListXattr { ino: Ino },
    /// Set an extended attribute. `kill_setgid`: with an access control list, setgid goes, as with a mode that is set by
    /// somebody who is not of the inode's group.
    SetXattr { ino: Ino, name: Name, value: Arc<[u8]>, how: SetHow, kill_setgid: bool },
    /// Remove an extended attribute.
    RemoveXattr { ino: Ino, name: Name },
    /// Make an inode's acknowledged changes durable.
    Fsync { ino: Ino, sync: Sync },
    /// Entries of a directory after `cookie` (0 = from the start), at most `count`; with attributes if `plus`.
    ReadDir { ino: Ino, cookie: u64, count: u32, plus: bool },
    /// Space of the volume.
    StatFs,
    /// Make everything acknowledged so far durable.
    SyncAll,
    /// Create a volume with its root directory; it takes at most so many bytes of data, if said.
    VolumeCreate { name: Name, size_bytes: Option<u64> },
    /// Delete a volume and all that is in it.
    VolumeDelete { name: Name },
    /// Give a volume another name.
    VolumeRename { name: Name, new_name: Name },
    /// Give a volume another size; None: as the brick.
    VolumeResize { name: Name, size_bytes: Option<u64> },
    /// All volumes.
    VolumeList,
}

// A request is moved several times on its way, from the front's message into the future of each floor, and its answer on
// the way back. What is larger and rare belongs behind a pointer.
const _: () = assert!(size_of::<Op>() <= 128 && size_of::<Reply>() <= 128);

impl Op {
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
            Op::StatFs => "statfs",
            Op::SyncAll => "sync",
            Op::VolumeCreate { .. } => "volume-create",
            Op::VolumeDelete { .. } => "volume-delete",
            Op::VolumeRename { .. } => "volume-rename",
            Op::VolumeResize { .. } => "volume-resize",
            Op::VolumeList => "volume-list",
        }
    }
    /// True if the operation may order a record.
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
            | Op::VolumeResize { .. } => true,
            _ => false,
        }
    }
}

/// An inode's number and attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Its attributes.
    pub inode: Inode,
    /// What it takes.
    pub blocks: Blocks,
}

/// How many blocks a file takes, those included that it was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// So many, as far as is known.
    pub count: u64,
    /// False: more will be known soon, so nobody keeps it.
    pub exact: bool,
}

impl Attr {
    /// Attributes, before anybody has looked at what the file takes: no more than its size.
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
    /// What it points to.
    pub ino: Ino,
    /// Kind of the target.
    pub kind: crate::inode::FileKind,
    /// The name.
    pub name: Name,
    /// The target's attributes, if asked for and still there.
    pub attr: Option<Attr>,
}

/// Space of a volume, in bytes, and its inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Usable size.
    pub size_bytes: u64,
    /// Free for clients.
    pub free_bytes: u64,
    /// Inodes that there are.
    pub inodes: u64,
}

/// A volume of the brick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Its id, never reused.
    pub id: VolumeId,
    /// Its name.
    pub name: Name,
    /// Its root directory.
    pub root: Ino,
    /// When it was created.
    pub created: Time,
    /// Bytes of data that it may hold; None: as many as the brick.
    pub size_bytes: Option<u64>,
}

/// What a mutating request did: enough to answer it again (rule R1). Kept per session, hence small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done; nothing else to tell.
    Done,
    /// An inode was created or found, or a volume's root.
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
    /// Where a seek has come to; None: nothing of that kind there, or the offset is not within the file.
    Found(Option<u64>),
    /// Entries in cookie order; fewer than asked and empty only at the end. What gets its place later has `next_cookie` or
    /// more.
    Entries { entries: Vec<DirEntry>, next_cookie: u64 },
    /// Space.
    StatFs(StatFs),
    /// A volume (create).
    Volume(Volume),
    /// All volumes.
    Volumes(Vec<Volume>),
}
