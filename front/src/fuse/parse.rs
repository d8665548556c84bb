//! Parses requests into what is asked of the stack. Pure: whatever the bytes are, the result is a value or an error,
//! never a panic.

use super::abi::{self, Fields, fattr, ioctl, opcode};
use super::file_locks::LockAsk;
use base::limits::{DIR_ENTRIES_MAX, IO_BYTES_MAX, TARGET_BYTES_MAX};
use base::lock::{Family, FileLock, LockWish, Mode};
use base::{At, Error, FileKind, Guard, Ino, Kind, Name, Op, Result, Room, Seek, SetAttr, SetHow, SetTime, Sync, Time};
use runtime::seeded::{self, Bug};

/// The part of a request's header that matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of request.
    pub opcode: u32,
    /// Number of the request within the connection.
    pub unique: u64,
    /// The inode that it is about; 1 = the root.
    pub nodeid: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group of users.
    pub gid: u32,
    /// The caller's umask, of requests that create something.
    pub umask: u16,
    /// The caller's process, as this process sees its number. In a release, the process that opened the handle.
    pub pid: u32,
}

/// A request, sorted by the shape of its answer.
#[derive(PartialEq, Debug)]
pub enum Ask {
    /// Nothing; no answer is expected.
    Silent,
    /// The kernel forgets an inode of which it has learnt by `times` answers. No answer.
    Forget { ino: Ino, times: u64 },
    /// The kernel forgets many inodes. No answer.
    ForgetAll(Box<[(Ino, u64)]>),
    /// An answer that needs no stack: this errno (0 = success).
    Answer(i32),
    /// An entry with its attributes.
    Entry(Op),
    /// The entry of the directory that contains this one.
    Above(Ino),
    /// An entry. The operation also opens the inode, which the client did not ask for.
    Node(Op),
    /// Attributes.
    Attr(Op),
    /// Attributes with the time of birth.
    Birth(Op),
    /// The guard of a file or directory, as flags in an answer of this many bytes.
    Guard(Op, u32),
    /// A change of the guard of a file or directory.
    SetGuard(Op),
    /// An answer without content: success or an error.
    Done(Op),
    /// A link's target.
    Target(Op),
    /// An attribute's value, or the names of all attributes, for a buffer of this many bytes. 0: only the size that
    /// they need.
    Xattrs(Op, usize),
    /// A handle; `kill_privileges`: a truncating open by an unprivileged user.
    Open { ino: Ino, flags: u32, kill_privileges: bool },
    /// A directory's handle. The stack need not know of it, as the kernel refuses to read removed directories.
    OpenDir { ino: Ino },
    /// A directory's handle is given back.
    CloseDir { ino: Ino, handle: u32 },
    /// An entry and a handle.
    Create { op: Op, flags: u32, kill_privileges: bool },
    /// No answer: a signal came for the thread of this request.
    Interrupt(u64),
    /// Nothing; the inode or volume is durable then. The number of the file's handle; None: a directory's, or the volume.
    Sync { op: Op, handle: Option<u32> },
    /// Bytes. `noatime`: the handle was opened with O_NOATIME. `flags`: all with which it was opened.
    Read { op: Op, noatime: bool, flags: u32, way: Way },
    /// The number of bytes written.
    Write { op: Op, way: Way },
    /// The offset at which data or a hole begins.
    Seek(Op),
    /// The volume's space.
    StatFs,
    /// A lock that is in the way (`Test`), or nothing.
    Lock(LockAsk),
    /// Nothing: a process closes a file, and with that gives its locks back.
    Flush { ino: Ino, owner: u64 },
    /// Nothing: a handle is given back.
    Release { ino: Ino, handle: u64 },
    /// Entries from `offset` on, as many as fit `size` bytes.
    ReadDir { ino: Ino, handle: u32, offset: u64, size: usize, plus: bool, noatime: bool },
}

/// The target of a read's bytes, or the source of a write's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Memory of the client, bypassing the kernel's page cache.
    Direct,
    /// The client, with a copy in the page cache.
    Cached,
    /// A page that was changed through a mapping and is now written back, some time later.
    Back,
}

/// Smallest buffer for a directory's entries: the largest entry (255 bytes of name, with attributes) fits.
const READDIR_BYTES_MIN: usize = 512;

const fn invalid(what: &'static str) -> Error {
    Error { kind: Kind::Invalid, what, context: None }
}

/// The inode that a node id names.
pub fn ino_of(nodeid: u64, root: Ino) -> Ino {
    if nodeid == abi::ROOT_ID { root } else { Ino(nodeid) }
}

/// Parses the header of a message of `total` bytes, of which `message` holds at least the first 40.
pub fn header(message: &[u8], total: usize) -> Result<Header> {
    let mut fields = Fields(message);
    let length = fields.u32()?;
    if length as usize != total {
        return Err(invalid("the request's length is not its header's"));
    }
    let opcode = fields.u32()?;
    let unique = fields.u64()?;
    let nodeid = fields.u64()?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let pid = fields.u32()?;
    // The length of extensions, which are only sent if negotiated.
    fields.bytes(4)?;
    Ok(Header { opcode, unique, nodeid, uid, gid, umask: 0, pid })
}

/// The umask of a request, from the bytes that follow its header, where it lies behind the mode, or the mode and a
/// number. 0 for a request that creates nothing.
pub fn umask(opcode: u32, body: &[u8]) -> u16 {
    let before = match opcode {
        opcode::MKDIR => 4,
        opcode::MKNOD | opcode::CREATE | opcode::TMPFILE => 8,
        _ => return 0,
    };
    let mut fields = Fields(body.get(before..).unwrap_or_default());
    mode_bits(fields.u32().unwrap_or(0))
}

/// The process that opened the handle given back by a release, from the bytes that follow the header; None for other
/// requests. A handle's upper half is that process. The lower half of a file's handle is its number below the losses of its target
/// at the open, that of a directory's handle its number in `ends.rs`.
pub fn opener(opcode: u32, body: &[u8]) -> Option<u32> {
    let gives_back = matches!(opcode, opcode::RELEASE | opcode::RELEASEDIR);
    gives_back.then(|| (Fields(body).u64().unwrap_or(0) >> 32) as u32)
}

/// Parses what follows the header. A write's payload is not part of `body`; its length is `payload_bytes`.
pub fn ask(header: &Header, body: &[u8], payload_bytes: usize, root: Ino) -> Result<Ask> {
    let fields = Fields(body);
    let ino = ino_of(header.nodeid, root);
    match header.opcode {
        opcode::READ => read(fields, ino),
        opcode::WRITE => write(fields, ino, payload_bytes),
        opcode::GETATTR => Ok(Ask::Attr(Op::GetAttr { ino })),
        opcode::STATX => Ok(Ask::Birth(Op::GetAttr { ino })),
        opcode::SETATTR => set_attr(fields, ino),
        opcode::OPEN | opcode::OPENDIR | opcode::RELEASE | opcode::RELEASEDIR => handle(header.opcode, fields, ino),
        opcode::FSYNC | opcode::FSYNCDIR => fsync(fields, ino),
        opcode::READDIR | opcode::READDIRPLUS => read_dir(header.opcode, fields, ino),
        opcode::GETXATTR | opcode::LISTXATTR => get_xattr(header.opcode, fields, ino),
        opcode::SETXATTR => set_xattr(fields, ino),
        opcode::REMOVEXATTR => {
            let mut fields = fields;
            Ok(Ask::Done(Op::RemoveXattr { ino, name: Name::of_attribute(fields.string()?)? }))
        }
        opcode::READLINK => Ok(Ask::Target(Op::ReadLink { ino })),
        opcode::STATFS => Ok(Ask::StatFs),
        opcode::SYNCFS => Ok(Ask::Sync { op: Op::SyncAll, handle: None }),
        opcode::FALLOCATE => allocate(fields, ino),
        opcode::LSEEK => seek(fields, ino),
        opcode::IOCTL => control(fields, ino),
        opcode::LOOKUP
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::CREATE => named(header.opcode, fields, ino),
        opcode::TMPFILE => temp_file(fields, ino),
        opcode::LINK => link(fields, ino, root),
        opcode::FORGET => forget(fields, ino),
        opcode::BATCH_FORGET => batch_forget(fields, root),
        opcode::RENAME | opcode::RENAME2 => rename(header.opcode, fields, ino, root),
        opcode => seldom(opcode, fields, ino),
    }
}

/// Requests that the stack never sees. ENOSYS makes the kernel stop sending a kind of request, so it is the answer
/// exactly where that is wanted: FLUSH unless locks are passed on (rule F4), ACCESS, POLL, COPY_FILE_RANGE (the kernel then copies through its
/// page cache), BMAP.
#[cold]
fn seldom(code: u32, mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    match code {
        opcode::NOTIFY_REPLY => Ok(Ask::Silent),
        opcode::DESTROY => Ok(Ask::Answer(0)),
        opcode::INTERRUPT => fields.u64().map(Ask::Interrupt),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => lock(code, fields, ino),
        opcode::FLUSH => {
            fields.bytes(16)?;
            Ok(Ask::Flush { ino, owner: fields.u64()? })
        }
        _ => Ok(Ask::Answer(libc::ENOSYS)),
    }
}

fn lock(code: u32, mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let (handle, owner, first, last) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
    let (kind, pid, flags) = (fields.u32()? as i32, fields.u32()?, fields.u32()?);
    let family = if flags & abi::LK_FLOCK != 0 { Family::Whole } else { Family::Range };
    let (first, last) = if family == Family::Whole { (0, u64::MAX) } else { (first, last) };
    if first > last {
        return Err(invalid("a lock that ends before it begins"));
    }
    let (mode, wish) = match (kind, code) {
        (libc::F_UNLCK, _) => (Mode::Exclusive, LockWish::Release),
        (kind, code) => {
            let mode = if kind == libc::F_RDLCK { Mode::Shared } else { Mode::Exclusive };
            let wish = match code {
                opcode::GETLK => LockWish::Test,
                opcode::SETLK => LockWish::Take,
                _ => LockWish::Queue,
            };
            (mode, wish)
        }
    };
    Ok(Ask::Lock(LockAsk { handle, lock: FileLock { ino, family, mode, owner, pid, first, last }, wish }))
}

fn read(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let _handle = fields.u64()?;
    let offset = fields.u64()?;
    let length = fields.u32()?;
    if length as usize > IO_BYTES_MAX {
        return Err(invalid("a read of more than 1 MiB"));
    }
    let read_flags = Fields(fields.0).u32()?;
    let flags = opened_with(fields)?;
    let way = if read_flags & abi::LOCK_OWNER != 0 { Way::Direct } else { Way::Cached };
    let noatime = has(flags, libc::O_NOATIME);
    Ok(Ask::Read { op: Op::Read { ino, offset, length }, noatime, flags, way })
}

/// The flags with which the handle was opened. They lie behind the size of a read of a file or directory, its own flags
/// and its lock owner.
fn opened_with(mut fields: Fields<'_>) -> Result<u32> {
    fields.bytes(12)?;
    fields.u32()
}

fn write(mut fields: Fields<'_>, ino: Ino, payload_bytes: usize) -> Result<Ask> {
    let _handle = fields.u64()?;
    let offset = fields.u64()?;
    let size = fields.u32()? as usize;
    let write_flags = fields.u32()?;
    let _lock_owner = fields.u64()?;
    let flags = fields.u32()?;
    fields.u32()?;
    if size != payload_bytes || size > IO_BYTES_MAX {
        return Err(invalid("a write whose payload is not as long as announced"));
    }
    let kill_privileges = write_flags & abi::WRITE_KILL_SUIDGID != 0;
    let (at, sync) = (write_at(write_flags, flags, offset), write_sync(write_flags, flags));
    Ok(Ask::Write { op: Op::Write { ino, at, sync, kill_privileges }, way: write_way(write_flags) })
}

fn write_way(write_flags: u32) -> Way {
    match (write_flags & abi::WRITE_CACHE != 0, write_flags & abi::LOCK_OWNER != 0) {
        (true, _) => Way::Back,
        (false, true) => Way::Direct,
        (false, false) => Way::Cached,
    }
}

fn has(flags: u32, all: i32) -> bool {
    flags & all as u32 == all as u32
}

/// The position of a write. An appending write goes to the file's end as the owner knows it, but not with O_DIRECT: the
/// kernel may send the parts of one large asynchronous write side by side, and they keep their order only by the
/// offsets that it computed while it held the inode's lock.
fn write_at(write_flags: u32, flags: u32, offset: u64) -> At {
    let cached = write_flags & abi::WRITE_CACHE != 0;
    if !cached && has(flags, libc::O_APPEND) && !has(flags, libc::O_DIRECT) { At::End } else { At::Offset(offset) }
}

/// The condition for acknowledging a write (rule F1). With direct I/O the kernel sends no FSYNC, so the flags decide.
fn write_sync(write_flags: u32, flags: u32) -> Sync {
    if write_flags & abi::WRITE_CACHE != 0 || seeded::active(Bug::WriteFlagsIgnored) {
        Sync::Ordered
    } else if has(flags, libc::O_SYNC) {
        Sync::All
    } else if has(flags, libc::O_DSYNC) {
        Sync::Data
    } else if has(flags, libc::O_DIRECT) {
        Sync::Written
    } else {
        Sync::Ordered
    }
}

fn set_attr(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let valid = fields.u32()?;
    fields.bytes(12)?;
    let size = fields.u64()?;
    let _lock_owner = fields.u64()?;
    let seconds = [fields.u64()?, fields.u64()?, fields.u64()?];
    let nanos = [fields.u32()?, fields.u32()?, fields.u32()?];
    let mode = fields.u32()?;
    fields.u32()?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let asked = |flag: u32| valid & flag != 0;
    let time = |which: usize| Time::from_parts(seconds[which] as i64, nanos[which]);
    let set_time = |set: u32, now: u32, which: usize| match (asked(now), asked(set)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::To(time(which))),
        (false, false) => None,
    };
    let set = SetAttr {
        mode: asked(fattr::MODE).then_some((mode & 0o7777) as u16),
        uid: asked(fattr::UID).then_some(uid),
        gid: asked(fattr::GID).then_some(gid),
        size: asked(fattr::SIZE).then_some(size),
        atime: set_time(fattr::ATIME, fattr::ATIME_NOW, 0),
        mtime: set_time(fattr::MTIME, fattr::MTIME_NOW, 1),
        ctime: asked(fattr::CTIME).then(|| time(2)),
        guard: None,
        project: None,
        kill_privileges: asked(fattr::KILL_SUIDGID),
    };
    Ok(Ask::Attr(Op::SetAttr { ino, set: set.into() }))
}

fn handle(code: u32, mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    match code {
        opcode::OPEN => {
            let flags = fields.u32()?;
            let kill_privileges = fields.u32()? & abi::OPEN_KILL_SUIDGID != 0;
            Ok(Ask::Open { ino, flags, kill_privileges })
        }
        opcode::OPENDIR => Ok(Ask::OpenDir { ino }),
        opcode::RELEASE => Ok(Ask::Release { ino, handle: fields.u64()? }),
        _ => Ok(Ask::CloseDir { ino, handle: fields.u64()? as u32 }),
    }
}

fn allocate(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let _handle = fields.u64()?;
    let (offset, length) = (fields.u64()?, fields.u64()?);
    let mode = fields.u32()? as i32;
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let room = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Room::Promised,
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Room::Hole,
        libc::FALLOC_FL_ZERO_RANGE => Room::Zeroed,
        _ => return Ok(Ask::Answer(libc::EOPNOTSUPP)),
    };
    Ok(Ask::Done(Op::Allocate { ino, offset, length, keep_size, room }))
}

/// Parses the IOCTLs by which chattr and lsattr access the flags of a file or directory. Flags that no guard has are
/// not kept.
fn control(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    // Handle and flags; behind the command its argument in the caller's memory, and how much of that came.
    fields.bytes(12)?;
    let command = fields.u32()?;
    fields.bytes(12)?;
    let answer_bytes = fields.u32()?;
    match command {
        ioctl::GET_X if answer_bytes == ioctl::X_BYTES => Ok(Ask::Guard(Op::GetAttr { ino }, answer_bytes)),
        ioctl::GET_FLAGS if (4..=8).contains(&answer_bytes) => Ok(Ask::Guard(Op::GetAttr { ino }, answer_bytes)),
        ioctl::SET_FLAGS => {
            Ok(set_guard(ino, fields.u32()?, [ioctl::IMMUTABLE, ioctl::APPEND_ONLY, ioctl::PROJECT], None))
        }
        ioctl::SET_X => {
            let flags = fields.u32()? & !ioctl::X_HAS_ATTRIBUTES;
            let (extents_hint, _extents, project, copies_hint) =
                (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
            let known = [ioctl::X_IMMUTABLE, ioctl::X_APPEND_ONLY, ioctl::X_PROJECT];
            match [extents_hint, copies_hint] {
                [0, 0] => Ok(set_guard(ino, flags, known, Some(project))),
                _ => Ok(Ask::Answer(libc::EOPNOTSUPP)),
            }
        }
        _ => Ok(Ask::Answer(libc::ENOTTY)),
    }
}

/// A change of the guard to `flags`, of which those in `known` exist, and of the project.
fn set_guard(ino: Ino, flags: u32, known: [u32; 3], project: Option<u32>) -> Ask {
    let [immutable, append_only, hands_down_project] = known.map(|flag| flags & flag != 0);
    if flags & !known.iter().fold(0, |all, flag| all | flag) != 0 {
        return Ask::Answer(libc::EOPNOTSUPP);
    }
    let guard = Some(Guard { immutable, append_only, hands_down_project });
    Ask::SetGuard(Op::SetAttr { ino, set: SetAttr { guard, project, ..SetAttr::default() }.into() })
}

/// Parses LSEEK. The kernel sends only seeks for data and holes; it answers the others itself.
fn seek(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let _handle = fields.u64()?;
    let (offset, whence) = (fields.u64()?, fields.u32()?);
    match whence as i32 {
        libc::SEEK_DATA => Ok(Ask::Seek(Op::Seek { ino, offset, what: Seek::Data })),
        libc::SEEK_HOLE => Ok(Ask::Seek(Op::Seek { ino, offset, what: Seek::Hole })),
        _ => Err(invalid("a seek for neither data nor a hole")),
    }
}

fn fsync(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let handle = fields.u64()? as u32;
    let data_only = fields.u32()? & abi::FSYNC_FDATASYNC != 0;
    let sync = if data_only { Sync::Data } else { Sync::All };
    Ok(Ask::Sync { op: Op::Fsync { ino, sync }, handle: Some(handle) })
}

fn get_xattr(code: u32, mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let size = fields.u32()? as usize;
    fields.u32()?;
    match code {
        opcode::LISTXATTR => Ok(Ask::Xattrs(Op::ListXattr { ino }, size)),
        _ => Ok(Ask::Xattrs(Op::GetXattr { ino, name: Name::of_attribute(fields.string()?)? }, size)),
    }
}

/// Parses SETXATTR. The value lies behind the name, and the name behind two words, or four if the kernel knows
/// SETXATTR_EXT. In that case the third word has at most its lowest bit set, so no name with this length can begin
/// there.
fn set_xattr(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let total = fields.0.len();
    let size = fields.u32()? as usize;
    let how = match fields.u32()? as i32 {
        0 => SetHow::Any,
        libc::XATTR_CREATE => SetHow::Create,
        libc::XATTR_REPLACE => SetHow::Replace,
        _ => return Err(invalid("setxattr knows only XATTR_CREATE and XATTR_REPLACE")),
    };
    let short = Fields(fields.0).string().is_ok_and(|name| !name.is_empty() && total == 8 + name.len() + 1 + size);
    let mut kill_setgid = false;
    if !short {
        kill_setgid = fields.u32()? & abi::SETXATTR_ACL_KILL_SGID != 0;
        fields.u32()?;
    }
    let name = Name::of_attribute(fields.string()?)?;
    let value = fields.bytes(size)?.into();
    Ok(Ask::Done(Op::SetXattr { ino, name, value, how, kill_setgid }))
}

fn read_dir(code: u32, mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    let handle = fields.u64()? as u32;
    let offset = fields.u64()?;
    let size = fields.u32()? as usize;
    if size < READDIR_BYTES_MIN {
        return Err(invalid("no entry fits the buffer"));
    }
    let size = size.min(IO_BYTES_MAX);
    let noatime = has(opened_with(fields)?, libc::O_NOATIME);
    Ok(Ask::ReadDir { ino, handle, offset, size, plus: code == opcode::READDIRPLUS, noatime })
}

/// The number of entries that about fill `room` bytes, for names of 16 bytes. If the reply is not quite full, that
/// costs less than fetching attributes which then do not fit.
pub fn entries_for(room: usize, plus: bool) -> u32 {
    let entry = abi::DIRENT_BYTES + 16 + if plus { abi::ENTRY_OUT_BYTES } else { 0 };
    (room / entry).clamp(1, DIR_ENTRIES_MAX) as u32
}

fn named(code: u32, mut fields: Fields<'_>, parent: Ino) -> Result<Ask> {
    match code {
        opcode::LOOKUP => match fields.string()? {
            // With these the kernel comes for file handles: the node is what it asks about, of any kind.
            b"." => Ok(Ask::Entry(Op::Recall { ino: parent })),
            b".." => Ok(Ask::Above(parent)),
            name => Ok(Ask::Entry(Op::Lookup { parent, name: Name::new(name)? })),
        },
        opcode::UNLINK => Ok(Ask::Done(Op::Unlink { parent, name: Name::new(fields.string()?)? })),
        opcode::RMDIR => Ok(Ask::Done(Op::RemoveDir { parent, name: Name::new(fields.string()?)? })),
        opcode::SYMLINK => {
            let name = Name::new(fields.string()?)?;
            let target = fields.string()?;
            if target.is_empty() || target.len() > TARGET_BYTES_MAX {
                return Err(Error::new(Kind::NameTooLong, "a link's target has 1 to 4095 bytes"));
            }
            Ok(Ask::Entry(Op::SymLink { parent, name, target: target.into() }))
        }
        opcode::MKDIR => {
            let mode = mode_bits(fields.u32()?);
            fields.u32()?;
            Ok(Ask::Entry(Op::MakeDir { parent, name: Name::new(fields.string()?)?, mode }))
        }
        opcode::MKNOD => make_node(fields, parent),
        _ => create(fields, parent),
    }
}

/// Permission bits.
fn mode_bits(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn make_node(mut fields: Fields<'_>, parent: Ino) -> Result<Ask> {
    let mode = fields.u32()?;
    let rdev = fields.u32()?;
    // Umask, padding.
    fields.bytes(8)?;
    let name = Name::new(fields.string()?)?;
    match FileKind::from_mode(mode) {
        Some(FileKind::File) => Ok(Ask::Node(Op::Create { parent, name, mode: mode_bits(mode), exclusive: true })),
        Some(kind) => Ok(Ask::Entry(Op::MakeNode { parent, name, kind, mode: mode_bits(mode), rdev })),
        None => Err(invalid("no such kind of object")),
    }
}

/// Parses FORGET: the number of answers that are taken back.
fn forget(mut fields: Fields<'_>, ino: Ino) -> Result<Ask> {
    Ok(Ask::Forget { ino, times: fields.u64()? })
}

/// Parses BATCH_FORGET. As many inodes as the message holds are forgotten, whatever number it announces.
fn batch_forget(mut fields: Fields<'_>, root: Ino) -> Result<Ask> {
    let count = fields.u32()? as usize;
    fields.u32()?;
    let mut all = Vec::with_capacity(count.min(fields.0.len() / abi::FORGET_ONE_BYTES));
    while all.len() < count && fields.0.len() >= abi::FORGET_ONE_BYTES {
        all.push((ino_of(fields.u64()?, root), fields.u64()?));
    }
    Ok(Ask::ForgetAll(all.into()))
}

fn link(mut fields: Fields<'_>, new_parent: Ino, root: Ino) -> Result<Ask> {
    let ino = ino_of(fields.u64()?, root);
    Ok(Ask::Entry(Op::Link { ino, new_parent, new_name: Name::new(fields.string()?)? }))
}

fn create(mut fields: Fields<'_>, parent: Ino) -> Result<Ask> {
    let flags = fields.u32()?;
    let mode = mode_bits(fields.u32()?);
    let _umask = fields.u32()?;
    let kill_privileges = fields.u32()? & abi::OPEN_KILL_SUIDGID != 0;
    let name = Name::new(fields.string()?)?;
    let op = Op::Create { parent, name, mode, exclusive: has(flags, libc::O_EXCL) };
    Ok(Ask::Create { op, flags, kill_privileges })
}

/// TMPFILE: its arguments are laid out like CREATE's. The name among them means nothing and is not read. Nor is O_EXCL
/// (the file may never be given a name): the kernel itself enforces it.
fn temp_file(mut fields: Fields<'_>, parent: Ino) -> Result<Ask> {
    let flags = fields.u32()?;
    let mode = mode_bits(fields.u32()?);
    // Umask, flags of the open: there is nothing to truncate.
    fields.bytes(8)?;
    Ok(Ask::Create { op: Op::TempFile { parent, mode }, flags, kill_privileges: false })
}

fn rename(code: u32, mut fields: Fields<'_>, parent: Ino, root: Ino) -> Result<Ask> {
    let new_parent = ino_of(fields.u64()?, root);
    let mut flags = 0;
    if code == opcode::RENAME2 {
        flags = fields.u32()?;
        fields.u32()?;
    }
    let (no_replace, whiteout) = (flags & libc::RENAME_NOREPLACE != 0, flags & libc::RENAME_WHITEOUT != 0);
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT) != 0 && flags != libc::RENAME_EXCHANGE {
        return Err(invalid("no such way to rename"));
    }
    let name = Name::new(fields.string()?)?;
    let new_name = Name::new(fields.string()?)?;
    if flags == libc::RENAME_EXCHANGE {
        return Ok(Ask::Done(Op::Exchange { parent, name, new_parent, new_name }));
    }
    Ok(Ask::Done(Op::Rename { parent, name, new_parent, new_name, no_replace, whiteout }))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
