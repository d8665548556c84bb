//! One recorded operation.

use serde::{Deserialize, Serialize};

/// Number of words that an operation takes on a core's tape, without its times.
pub const WORDS: usize = 9;

/// The kinds of operations. Files hold their numbers: new ones come last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Deed {
    Lookup,
    GetAttr,
    SetAttr,
    ReadLink,
    Create,
    /// A regular file made by mknod(2): nothing is opened.
    CreateNode,
    MakeDir,
    SymLink,
    Unlink,
    RemoveDir,
    Rename,
    Exchange,
    Open,
    Release,
    Read,
    Write,
    Fsync,
    ReadDir,
    StatFs,
    SyncAll,
    Allocate,
    MakeNode,
    Link,
    GetXattr,
    ListXattr,
    SetXattr,
    RemoveXattr,
    Seek,
    TempFile,
    /// An inode is looked up by its number alone, or the directory above one, for a file handle.
    Recall,
}

impl Deed {
    /// All of them, by number.
    pub const ALL: [Deed; 30] = [
        Deed::Lookup,
        Deed::GetAttr,
        Deed::SetAttr,
        Deed::ReadLink,
        Deed::Create,
        Deed::CreateNode,
        Deed::MakeDir,
        Deed::SymLink,
        Deed::Unlink,
        Deed::RemoveDir,
        Deed::Rename,
        Deed::Exchange,
        Deed::Open,
        Deed::Release,
        Deed::Read,
        Deed::Write,
        Deed::Fsync,
        Deed::ReadDir,
        Deed::StatFs,
        Deed::SyncAll,
        Deed::Allocate,
        Deed::MakeNode,
        Deed::Link,
        Deed::GetXattr,
        Deed::ListXattr,
        Deed::SetXattr,
        Deed::RemoveXattr,
        Deed::Seek,
        Deed::TempFile,
        Deed::Recall,
    ];
}

/// Facts about an operation that are true or not, as bits. Several kinds of operations share bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
pub struct Flags(pub u16);

impl Flags {
    /// Open: for reading.
    pub const READ: Flags = Flags(1);
    /// Open: for writing.
    pub const WRITE: Flags = Flags(1 << 1);
    /// The handle has O_APPEND; a write goes to the end of the file.
    pub const APPEND: Flags = Flags(1 << 2);
    /// The handle has O_DIRECT.
    pub const DIRECT: Flags = Flags(1 << 3);
    /// The handle has O_DSYNC, or it is fdatasync.
    pub const DATA_SYNC: Flags = Flags(1 << 4);
    /// The handle has O_SYNC.
    pub const SYNC: Flags = Flags(1 << 5);
    /// The handle has O_NOATIME.
    pub const NO_ACCESS_TIME: Flags = Flags(1 << 6);
    /// A read or write that passed the kernel's page cache.
    pub const CACHED: Flags = Flags(1 << 7);
    /// Attribute: the kernel's own look at `security.capability` before the first write to a file.
    pub const KERNEL: Flags = Flags(1 << 7);
    /// Attributes that were set: permission bits.
    pub const MODE: Flags = Flags(1 << 8);
    /// Owner or group.
    pub const OWNER: Flags = Flags(1 << 9);
    /// Size, which is the offset.
    pub const SIZE: Flags = Flags(1 << 10);
    /// Times.
    pub const TIMES: Flags = Flags(1 << 11);
    /// Allocate: the file keeps its size.
    pub const KEEP_SIZE: Flags = Flags(1 << 12);
    /// Allocate: the range becomes a hole. Seek: for a hole.
    pub const HOLE: Flags = Flags(1 << 13);
    /// Allocate: the range becomes zeros.
    pub const ZEROED: Flags = Flags(1 << 14);
    /// Rename: an existing target is not replaced.
    pub const NO_REPLACE: Flags = Flags(1 << 15);

    /// The bits of a handle by which reads and writes differ.
    pub const HANDLE: Flags = Flags(Flags::DIRECT.0 | Flags::DATA_SYNC.0 | Flags::SYNC.0);

    /// True if all of `flags` are set.
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }
    /// These and `flags`, if `condition`.
    pub fn with(self, condition: bool, flags: Flags) -> Flags {
        if condition { Flags(self.0 | flags.0) } else { self }
    }
    /// Those that both have.
    pub fn and(self, flags: Flags) -> Flags {
        Flags(self.0 & flags.0)
    }
}

/// An operation as it reached the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its kind.
    pub deed: Deed,
    /// More about it.
    pub flags: Flags,
    /// The error that it ended with; 0: none.
    pub errno: u16,
    /// The volume.
    pub volume: u32,
    /// The inode that it is about; of a name, its directory.
    pub ino: u64,
    /// The directory of the second name; 0: there is none.
    pub new_parent: u64,
    /// The inode that was found, opened or made; 0: none.
    pub made: u64,
    /// The name's hash; 0: there is none.
    pub name: u64,
    /// The second name's hash; 0: there is none.
    pub new_name: u64,
    /// The beginning of a read, write, seek or range; the new size; a position in a directory.
    pub offset: u64,
    /// The bytes that were asked for: of a range, a target, an attribute's value, a listing.
    pub length: u64,
    /// The bytes that were read, written or listed.
    pub bytes: u32,
    /// Its beginning, in nanoseconds after that of the recording.
    pub start_ns: u64,
    /// Its duration in the daemon.
    pub duration_ns: u64,
    /// The part of it for which the device worked for it.
    pub device_ns: u64,
    /// The last part of it, in which the reply was handed over: the client may have gone on meanwhile.
    pub reply_ns: u64,
}

impl Operation {
    /// An operation about an inode.
    pub fn new(deed: Deed, ino: u64) -> Operation {
        Operation {
            deed,
            flags: Flags::default(),
            errno: 0,
            volume: 0,
            ino,
            new_parent: 0,
            made: 0,
            name: 0,
            new_name: 0,
            offset: 0,
            length: 0,
            bytes: 0,
            start_ns: 0,
            duration_ns: 0,
            device_ns: 0,
            reply_ns: 0,
        }
    }
    /// The name of its row in the daemon's ledger.
    pub fn row(&self) -> &'static str {
        match self.deed {
            Deed::Lookup => "lookup",
            Deed::GetAttr => "getattr",
            Deed::SetAttr => "setattr",
            Deed::ReadLink => "readlink",
            Deed::Create | Deed::CreateNode => "create",
            Deed::MakeDir => "mkdir",
            Deed::SymLink => "symlink",
            Deed::Unlink => "unlink",
            Deed::RemoveDir => "rmdir",
            Deed::Rename => "rename",
            Deed::Exchange => "exchange",
            Deed::Open => "open",
            Deed::Release => "release",
            Deed::Read => "read",
            Deed::Write if self.flags.has(Flags::DATA_SYNC) || self.flags.has(Flags::SYNC) => "write-sync",
            Deed::Write if self.flags.has(Flags::DIRECT) => "write-direct",
            Deed::Write => "write",
            Deed::Fsync => "fsync",
            Deed::ReadDir => "readdir",
            Deed::StatFs => "statfs",
            Deed::SyncAll => "sync",
            Deed::Allocate => "fallocate",
            Deed::MakeNode => "mknod",
            Deed::Link => "link",
            Deed::GetXattr => "getxattr",
            Deed::ListXattr => "listxattr",
            Deed::SetXattr => "setxattr",
            Deed::RemoveXattr => "removexattr",
            Deed::Seek => "lseek",
            Deed::TempFile => "tmpfile",
            Deed::Recall => "recall",
        }
    }
    /// Its end.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
    /// The time at which its client may have known its outcome: what depends on it began no earlier.
    pub fn answered_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns.saturating_sub(self.reply_ns))
    }
    /// The operation without its times, as words of a tape.
    pub fn words(&self) -> [u64; WORDS] {
        let what = self.deed as u64 | u64::from(self.flags.0) << 8 | u64::from(self.errno) << 24;
        let volume = u64::from(self.volume) | u64::from(self.bytes) << 32;
        let Operation { ino, new_parent, made, name, new_name, offset, length, .. } = *self;
        [what, volume, ino, new_parent, made, name, new_name, offset, length]
    }
    /// The operation of these words. None: there is no such kind.
    pub fn of_words(words: [u64; WORDS]) -> Option<Operation> {
        let [what, volume, ino, new_parent, made, name, new_name, offset, length] = words;
        Some(Operation {
            flags: Flags((what >> 8) as u16),
            errno: (what >> 24) as u16,
            volume: volume as u32,
            bytes: (volume >> 32) as u32,
            new_parent,
            made,
            name,
            new_name,
            offset,
            length,
            ..Operation::new(*Deed::ALL.get((what & 0xff) as usize)?, ino)
        })
    }
}

/// The kind of an inode, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileShape {
    File,
    Directory,
    SymLink,
    /// A pipe, a socket or a device.
    Other,
}

/// An inode that was there before the recording met it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inode {
    /// Its volume.
    pub volume: u32,
    /// Its number.
    pub ino: u64,
    /// Its kind.
    pub shape: FileShape,
    /// Its size, a moment after the recording met it.
    pub size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for (number, deed) in (0u64..).zip(Deed::ALL) {
            assert_eq!(deed as u64, number, "{deed:?} has its place");
            let operation = Operation {
                flags: Flags(0x8421),
                errno: 511,
                volume: u32::MAX,
                new_parent: 2,
                made: 3,
                name: u64::MAX,
                new_name: 5,
                offset: u64::MAX - 1,
                length: 7,
                bytes: 1 << 20,
                ..Operation::new(deed, 1)
            };
            assert_eq!(Operation::of_words(operation.words()), Some(operation));
            assert!(base::OP_NAMES.contains(&operation.row()), "{deed:?}");
        }
        assert_eq!(Operation::of_words([0xff; WORDS]), None);
    }
}
