//! The kernel's side of the protocol: its numbers, and access to its messages field by field, after the kernel's
//! documentation (`include/uapi/linux/fuse.h`, version 7.39). All fields are in the machine's own byte order.

use base::{Error, Kind, Result};

/// Major version of the protocol spoken: 7.39 is the first that has `DIRECT_IO_ALLOW_MMAP`.
pub const MAJOR: u32 = 7;
/// Minor version; see `MAJOR`.
pub const MINOR: u32 = 39;
/// Node id of the mount's root.
pub const ROOT_ID: u64 = 1;
/// Length of `fuse_in_header`.
pub const IN_HEADER_BYTES: usize = 40;
/// Length of `fuse_out_header`.
pub const OUT_HEADER_BYTES: usize = 16;
/// Length of the header and `fuse_write_in`, which precede a write's payload.
pub const WRITE_HEAD_BYTES: usize = IN_HEADER_BYTES + 40;
/// Length of `fuse_entry_out`: ids and validity, then the attributes.
pub const ENTRY_OUT_BYTES: usize = 40 + ATTR_BYTES;
/// Length of `fuse_attr`.
pub const ATTR_BYTES: usize = 88;
/// Length of `fuse_statx_out`: validity, then the attributes.
pub const STATX_OUT_BYTES: usize = 32 + 256;
/// Length of `fuse_dirent` up to its name.
pub const DIRENT_BYTES: usize = 24;

/// Request codes.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const FLUSH: u32 = 25;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
}

/// Flags of INIT, both words as one.
pub mod init_flag {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// User and group of a request whose caller the kernel does not reveal. On mounts whose ids may be mapped, only
/// requests that create something carry their caller's ids.
pub const UNTOLD_ID: u32 = u32::MAX;

/// `fuse_setattr_in.valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of an answer to OPEN or CREATE.
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Commands of IOCTL that read and set flags and projects, as 64-bit programs send them. The kernel checks who may set
/// what before it sends these, and sends no others on its own.
pub mod ioctl {
    pub const GET_FLAGS: u32 = 0x8008_6601;
    pub const SET_FLAGS: u32 = 0x4008_6602;
    /// `FS_IMMUTABLE_FL`.
    pub const IMMUTABLE: u32 = 0x10;
    /// `FS_APPEND_FL`.
    pub const APPEND_ONLY: u32 = 0x20;
    /// `FS_PROJINHERIT_FL`.
    pub const PROJECT: u32 = 0x2000_0000;
    /// `FS_IOC_FSGETXATTR`, by which the kernel reads the present flags before it lets somebody change them.
    pub const GET_X: u32 = 0x801c_581f;
    /// `FS_IOC_FSSETXATTR`.
    pub const SET_X: u32 = 0x401c_5820;
    /// Length of `struct fsxattr`: flags, a hint for extents, their number, a project, another hint, zeros. No inode
    /// has a hint.
    pub const X_BYTES: u32 = 28;
    /// `FS_XFLAG_IMMUTABLE`.
    pub const X_IMMUTABLE: u32 = 0x8;
    /// `FS_XFLAG_APPEND`.
    pub const X_APPEND_ONLY: u32 = 0x10;
    /// `FS_XFLAG_PROJINHERIT`.
    pub const X_PROJECT: u32 = 0x200;
    /// `FS_XFLAG_HASATTR`: read-only. Some file systems report it, so callers may send it back.
    pub const X_HAS_ATTRIBUTES: u32 = 0x8000_0000;
}

/// Code of the notice that asks the kernel to forget pages of a file.
pub const NOTIFY_INVAL_INODE: u32 = 2;
/// Code of the notice that makes the kernel look every name up again, since Linux 6.16.
pub const NOTIFY_INC_EPOCH: u32 = 8;
/// `fuse_lk_in.lk_flags`: flock.
pub const LK_FLOCK: u32 = 1 << 0;
/// Length of `fuse_file_lock`, the answer to GETLK.
pub const FILE_LOCK_BYTES: usize = 24;
/// `fuse_write_in.write_flags`: the write comes from the page cache; its handle and flags are the kernel's guess.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `fuse_read_in.read_flags` and `fuse_write_in.write_flags`: the lock owner is given. The kernel sets this exactly for
/// requests that bypass its page cache.
pub const LOCK_OWNER: u32 = 1 << 1;
/// `fuse_write_in.write_flags`: clear setuid and setgid.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `fuse_fsync_in.fsync_flags`: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `open_flags` of OPEN and CREATE: clear setuid and setgid with the truncation.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `setxattr_flags`: clear setgid with the access control list that is set.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// A message being decoded, front to back; never reads past its end.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let short = || Error::new(Kind::Invalid, "the request is shorter than its fields");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("`bytes` gave N bytes"))
    }
    /// A 16-bit field.
    #[cfg(test)]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_ne_bytes(self.array()?))
    }
    /// A 32-bit field.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_ne_bytes(self.array()?))
    }
    /// A 64-bit field.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_ne_bytes(self.array()?))
    }
    /// A string up to its NUL, which is consumed.
    pub fn string(&mut self) -> Result<&'a [u8]> {
        let open = || Error::new(Kind::Invalid, "a name of the request has no end");
        let end = self.0.iter().position(|&byte| byte == 0).ok_or_else(open)?;
        let taken = self.bytes(end)?;
        self.bytes(1)?;
        Ok(taken)
    }
}

/// Length of one inode of a BATCH_FORGET: its number, and how many look-ups are taken back.
pub const FORGET_ONE_BYTES: usize = 16;

/// A message being encoded, front to back, in memory that is large enough.
pub struct Writer<'a> {
    into: &'a mut [u8],
    length: usize,
}

impl<'a> Writer<'a> {
    /// A writer at the start of `into`.
    pub fn new(into: &'a mut [u8]) -> Writer<'a> {
        Writer { into, length: 0 }
    }
    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.into[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }
    /// Appends a 16-bit field.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    /// Appends a 32-bit field.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    /// Appends a 64-bit field.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }
    /// Appends 32-bit fields.
    pub fn u32s<const COUNT: usize>(&mut self, values: [u32; COUNT]) -> &mut Self {
        self.all(values.map(u32::to_ne_bytes))
    }
    /// Appends 64-bit fields.
    pub fn u64s<const COUNT: usize>(&mut self, values: [u64; COUNT]) -> &mut Self {
        self.all(values.map(u64::to_ne_bytes))
    }
    /// Appends fields, with a single check that there is room for all of them.
    fn all<const COUNT: usize, const BYTES: usize>(&mut self, fields: [[u8; BYTES]; COUNT]) -> &mut Self {
        self.bytes(fields.as_flattened())
    }
    /// Appends `count` zeros.
    pub fn zeros(&mut self, count: usize) -> &mut Self {
        self.into[self.length..self.length + count].fill(0);
        self.length += count;
        self
    }
    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.length
    }
    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.into.len() - self.length
    }
}
