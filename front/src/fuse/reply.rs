//! Encoding of the stack's answers as the bytes that the kernel expects. Pure.

use super::abi::{self, Writer, fopen, ioctl};
use base::limits::{BLOCK_BYTES, NAME_BYTES_MAX, NAMED_INODE_BYTES};
use base::lock::Mode;
use base::{Attr, DirEntry, Error, FileKind, FileLock, Guard, Ino, StatFs, Time};
use runtime::seeded::{Bug, active};

/// Seconds for which the kernel may cache names (absent ones too) and most attributes of a volume that no other mount has:
/// nothing changes but through this session (rule R2); an hour only bounds how long the kernel keeps what it no longer
/// uses.
pub const ALONE_VALID_S: u64 = 3600;

/// Seconds for which the kernel may cache an inode's attributes, of those for which it may cache others. It asks anew each time for those of a setuid or setgid
/// program: a write that clears these bits here leaves them set in the kernel's cache, and it would execute the program
/// by them (decision 0042).
fn attr_valid_seconds(attr: &Attr, valid_s: u64) -> u64 {
    let is_privileged = attr.inode.kind == FileKind::File && attr.inode.mode & PRIVILEGES != 0;
    // An estimated number of blocks may be known exactly a moment later (decision 0032).
    let changes = (is_privileged && !active(Bug::PrivilegesKeptInMind)) || !attr.blocks.exact;
    if changes { 0 } else { valid_s }
}

/// The setuid and setgid bits.
pub const PRIVILEGES: u16 = 0o6000;

/// The largest answer of fixed size: header, entry and handle (CREATE).
const SMALL_BYTES_MAX: usize = abi::OUT_HEADER_BYTES + abi::ENTRY_OUT_BYTES + 16;

/// The errno of an error on its way to the kernel. ENOSYS would make the kernel stop sending that kind of request for
/// ever (an fsync would then "succeed"), so no error of the stack becomes ENOSYS.
pub fn errno(error: &Error) -> i32 {
    match error.kind.errno() {
        libc::ENOSYS => libc::ENOMEM,
        errno => errno,
    }
}

/// The identity of a mount's nodes. A file handle holds a node id and a generation, and the kernel presents it to
/// whatever is mounted under the same device number.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The volume's root.
    pub root: Ino,
    /// The brick's mark, which is mixed into generations so that a handle of another brick is stale.
    pub brick: u32,
    /// Seconds for which the kernel may cache what it is told.
    pub valid_s: u64,
}

/// An answer's head: the header and the part of fixed shape. Bytes of variable length follow it.
pub struct Head {
    bytes: [u8; SMALL_BYTES_MAX],
    length: usize,
}

impl Head {
    fn build(unique: u64, error: i32, tail_bytes: usize, body: impl FnOnce(&mut Writer<'_>)) -> Head {
        let mut bytes = [0; SMALL_BYTES_MAX];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(0).u32(error as u32).u64(unique);
        body(&mut writer);
        let length = writer.len();
        let total = u32::try_from(length + tail_bytes).expect("an answer is at most 1 MiB and its head");
        bytes[..4].copy_from_slice(&total.to_ne_bytes());
        Head { bytes, length }
    }
    /// The head's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
    /// An answer that is only a status: 0 for success, or a positive errno.
    pub fn status(unique: u64, errno: i32) -> Head {
        assert!((0..512).contains(&errno), "the kernel refuses other errors");
        Head::build(unique, -errno, 0, |_| ())
    }
    /// Success, with `tail_bytes` bytes behind the head.
    pub fn before(unique: u64, tail_bytes: usize) -> Head {
        Head::build(unique, 0, tail_bytes, |_| ())
    }
    /// An entry.
    pub fn entry(unique: u64, attr: &Attr, origin: Origin) -> Head {
        Head::build(unique, 0, 0, |writer| put_entry(writer, attr, origin))
    }
    /// The answer that there is no such name. The kernel caches it like an entry, as node 0.
    pub fn absent(unique: u64, valid_s: u64) -> Head {
        Head::build(unique, 0, 0, |writer| {
            writer.u64(0).u64(0).u64(valid_s).zeros(abi::ENTRY_OUT_BYTES - 24);
        })
    }
    /// Attributes.
    pub fn attr(unique: u64, attr: &Attr, valid_s: u64) -> Head {
        Head::build(unique, 0, 0, |writer| {
            writer.u64(attr_valid_seconds(attr, valid_s)).u64(0);
            put_attr(writer, attr);
        })
    }
    /// A handle of this number for an open by this process.
    pub fn open(unique: u64, opening: Opening, (number, pid): (u32, u32)) -> Head {
        Head::build(unique, 0, 0, |writer| put_open(writer, opening, (number, pid)))
    }
    /// A directory's handle.
    pub fn open_dir(unique: u64, (handle, pid): (u32, u32), caching: DirCaching) -> Head {
        let keeps = match caching {
            DirCaching::None => 0,
            DirCaching::Keeps => fopen::KEEP_CACHE,
            DirCaching::Fills => fopen::KEEP_CACHE | fopen::CACHE_DIR,
        };
        Head::build(unique, 0, 0, |writer| {
            writer.u32(handle).u32(pid).u32(keeps).zeros(4);
        })
    }
    /// An entry and a handle.
    pub fn create(unique: u64, attr: &Attr, origin: Origin, opening: Opening, handle: (u32, u32)) -> Head {
        Head::build(unique, 0, 0, |writer| {
            put_entry(writer, attr, origin);
            put_open(writer, opening, handle);
        })
    }
    /// The number of bytes written.
    pub fn wrote(unique: u64, length: u32) -> Head {
        Head::build(unique, 0, 0, |writer| {
            writer.u32(length).u32(0);
        })
    }
    /// The offset that a seek found.
    pub fn found(unique: u64, offset: u64) -> Head {
        Head::build(unique, 0, 0, |writer| {
            writer.u64(offset);
        })
    }
    /// The result of an ioctl: flags in an answer of `bytes` bytes, or none.
    pub fn control(unique: u64, flags: u32, project: u32, bytes: u32) -> Head {
        Head::build(unique, 0, 0, |writer| {
            writer.zeros(16);
            match bytes {
                0 => {}
                ioctl::X_BYTES => drop(writer.u32(flags).zeros(8).u32(project).zeros(12)),
                _ => drop(writer.u32(flags).zeros(bytes as usize - 4)),
            }
        })
    }
    /// The size of the buffer that an attribute's value, or the list of names, needs.
    pub fn xattr_size(unique: u64, length: usize) -> Head {
        Head::build(unique, 0, 0, |writer| {
            writer.u32(length as u32).u32(0);
        })
    }
    /// The volume's space. Inodes have no limit of their own: as many are reported free as the free space can hold.
    pub fn statfs(unique: u64, space: &StatFs) -> Head {
        let block = BLOCK_BYTES as u64;
        let (blocks, free) = (space.size_bytes / block, space.free_bytes / block);
        let more = space.free_bytes / NAMED_INODE_BYTES;
        Head::build(unique, 0, 0, |writer| {
            writer.u64(blocks).u64(free).u64(free).u64(space.inodes + more).u64(more);
            writer.u32(BLOCK_BYTES as u32).u32(NAME_BYTES_MAX as u32).u32(BLOCK_BYTES as u32).zeros(28);
        })
    }
}

/// The node id of an inode: its number, but 1 for the root.
pub(super) fn nodeid_of(ino: Ino, root: Ino) -> u64 {
    if ino == root {
        return abi::ROOT_ID;
    }
    // Sequences start above 0, so no inode but the root can be number 0 or 1 (rule M1).
    assert!(ino.0 > abi::ROOT_ID, "an inode number that the kernel gives another meaning");
    ino.0
}

fn put_entry(writer: &mut Writer<'_>, attr: &Attr, origin: Origin) {
    // The root that the kernel makes before it asks anything has generation 0.
    let generation = if attr.ino == origin.root { 0 } else { attr.inode.generation ^ origin.brick };
    let nodeid = nodeid_of(attr.ino, origin.root);
    let valid_s = origin.valid_s;
    writer.u64s([nodeid, u64::from(generation), valid_s, attr_valid_seconds(attr, valid_s), 0]);
    put_attr(writer, attr);
}

fn put_attr(writer: &mut Writer<'_>, attr: &Attr) {
    let inode = &attr.inode;
    // st_blocks counts 512 bytes; space is given out in blocks of 4 KiB.
    let blocks = attr.blocks.count * 8;
    let [(atime, a_nanos), (mtime, m_nanos), (ctime, c_nanos)] =
        [inode.atime, inode.mtime, inode.ctime].map(Time::parts);
    writer.u64s([attr.ino.0, inode.size, blocks, atime as u64, mtime as u64, ctime as u64]);
    writer.u32s([a_nanos, m_nanos, c_nanos, inode.st_mode(), inode.links, inode.uid, inode.gid, inode.rdev]);
    writer.u32s([BLOCK_BYTES as u32, 0]);
}

/// Attributes with the time of birth. The kernel uses the same fields as of other attributes, and this time.
pub fn statx(attr: &Attr, valid_s: u64) -> Box<[u8]> {
    let inode = &attr.inode;
    let mut bytes = [0; abi::STATX_OUT_BYTES];
    let mut writer = Writer::new(&mut bytes);
    writer.u64(attr_valid_seconds(attr, valid_s)).zeros(24);
    writer.u32(libc::STATX_BASIC_STATS | libc::STATX_BTIME).u32(BLOCK_BYTES as u32).u64(0);
    writer.u32(inode.links).u32(inode.uid).u32(inode.gid).u16(inode.st_mode() as u16).u16(0);
    writer.u64(attr.ino.0).u64(inode.size).u64(attr.blocks.count * 8).u64(0);
    for time in [inode.atime, inode.btime, inode.ctime, inode.mtime] {
        let (seconds, nanos) = time.parts();
        writer.u64(seconds as u64).u32(nanos).u32(0);
    }
    // As `new_decode_dev` of the kernel has it.
    writer.u32(inode.rdev >> 8 & 0xfff).u32(inode.rdev & 0xff | inode.rdev >> 12 & 0xf_ff00);
    bytes.into()
}

/// Appends a handle. It holds the process that opened it, which is thus known at its release, and a number, which is known when the
/// file is synced.
fn put_open(writer: &mut Writer<'_>, opening: Opening, (number, pid): (u32, u32)) {
    writer.u32(number).u32(pid).u32(open_flags(opening)).u32(0);
}

/// The kernel's treatment of listings that it reads through a handle of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirCaching {
    /// Other mounts have the volume too: the kernel keeps nothing.
    None,
    /// The kernel keeps what was listed through other handles, and this one reads past it.
    Keeps,
    /// The kernel keeps what is listed through this handle until an entry of the directory changes: whatever changes an entry goes
    /// through the kernel. At most one open handle of a directory is told this (`ends.rs`).
    Fills,
}

/// The circumstances of an open.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The flags of the open.
    pub flags: u32,
    /// True if other mounts have the volume too: what they change must be seen.
    pub is_shared: bool,
    /// True if locks are passed on, which a close gives back (FLUSH).
    pub passes_locks: bool,
}

/// The kernel's treatment of an open. Pages stay cached across opens, unless the volume is shared. O_DIRECT, O_DSYNC and O_SYNC bypass
/// the page cache, as do all opens of a shared volume, with concurrent writers (rule F1). A handle that can't write has nothing to flush at close; others
/// keep the kernel's own flush of mapped pages, which reports their errors.
fn open_flags(Opening { flags, is_shared, passes_locks }: Opening) -> u32 {
    let mut answer = if is_shared { 0 } else { fopen::KEEP_CACHE };
    if is_shared || bypasses_cache(flags) && !active(Bug::DirectIoForgotten) {
        answer |= fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
    }
    if flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32 && !passes_locks {
        answer |= fopen::NOFLUSH;
    }
    answer
}

/// True if the guard forbids to open the inode with these flags.
pub fn is_guarded(guard: Guard, flags: u32) -> bool {
    let writes = flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
    writes && (guard.immutable || guard.append_only && flags & libc::O_APPEND as u32 == 0)
}

/// A lock that is in the way; None: there is none.
pub fn file_lock(lock: Option<&FileLock>) -> Box<[u8]> {
    let mut bytes = [0; abi::FILE_LOCK_BYTES];
    let mut writer = Writer::new(&mut bytes);
    let kind = |mode| if mode == Mode::Exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    match lock {
        Some(lock) => writer.u64(lock.first).u64(lock.last).u32(kind(lock.mode) as u32).u32(lock.pid),
        None => writer.u64(0).u64(0).u32(libc::F_UNLCK as u32).u32(0),
    };
    bytes.into()
}

/// The guard as flags of an inode, in the encoding of an answer of `bytes` bytes.
pub fn guard_flags(guard: Guard, bytes: u32) -> u32 {
    let flags = match bytes {
        ioctl::X_BYTES => [ioctl::X_IMMUTABLE, ioctl::X_APPEND_ONLY, ioctl::X_PROJECT],
        _ => [ioctl::IMMUTABLE, ioctl::APPEND_ONLY, ioctl::PROJECT],
    };
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    flag(guard.immutable, flags[0]) | flag(guard.append_only, flags[1]) | flag(guard.hands_down_project, flags[2])
}

/// True if reads and writes with these open flags bypass the kernel's page cache.
pub fn bypasses_cache(flags: u32) -> bool {
    flags & (libc::O_DIRECT | libc::O_DSYNC | libc::O_SYNC) as u32 != 0
}

/// Entries of a directory, packed in a buffer.
pub struct Entries<'a> {
    writer: Writer<'a>,
    plus: bool,
    origin: Origin,
}

impl<'a> Entries<'a> {
    /// An empty buffer; `plus`: entries come with attributes.
    pub fn new(into: &'a mut [u8], plus: bool, origin: Origin) -> Entries<'a> {
        Entries { writer: Writer::new(into), plus, origin }
    }
    /// Bytes so far.
    pub fn used(&self) -> usize {
        self.writer.len()
    }
    /// Bytes that are left.
    pub fn room(&self) -> usize {
        self.writer.room()
    }
    /// Adds "." or ".."; the kernel never uses these for look-ups.
    pub fn dot(&mut self, name: &'static [u8], ino: Ino, cookie: u64) -> bool {
        self.put(name, ino, FileKind::Directory, cookie, None)
    }
    /// Adds an entry; false if it does not fit.
    pub fn push(&mut self, entry: &DirEntry) -> bool {
        self.put(entry.name.as_bytes(), entry.ino, entry.kind, entry.cookie, entry.attr)
    }
    fn put(&mut self, name: &[u8], ino: Ino, kind: FileKind, cookie: u64, attr: Option<Attr>) -> bool {
        let plain = abi::DIRENT_BYTES + name.len();
        let padded = plain.next_multiple_of(8);
        let needed = padded + if self.plus { abi::ENTRY_OUT_BYTES } else { 0 };
        if needed > self.writer.room() {
            return false;
        }
        match attr {
            Some(attr) if self.plus => put_entry(&mut self.writer, &attr, self.origin),
            // Node 0 here means "no attributes told", not "absent".
            None if self.plus => {
                self.writer.zeros(abi::ENTRY_OUT_BYTES);
            }
            _ => (),
        }
        let writer = &mut self.writer;
        writer.u64s([ino.0, cookie]).u32s([name.len() as u32, kind.mode_bits() >> 12]);
        writer.bytes(name).zeros(padded - plain);
        true
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
