//! The inode: what a file or directory is, apart from its name and data.

use crate::ids::Ino;
use crate::seeded::{Bug, active};

/// Nanoseconds since the epoch; signed, so that dates before 1970 survive. Range: years 1678 to 2262.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Whole seconds (rounded down) and the nanoseconds above them.
    #[inline]
    pub fn parts(self) -> (i64, u32) {
        let seconds = self.0.div_euclid(1_000_000_000);
        // What the seconds wrap around to wraps back.
        (seconds, self.0.wrapping_sub(seconds.wrapping_mul(1_000_000_000)) as u32)
    }
    /// From seconds and nanoseconds; saturates at the range's ends.
    pub fn from_parts(seconds: i64, nanos: u32) -> Time {
        Time(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanos)))
    }
    /// A time stamp that never repeats nor goes back: the clock, or one nanosecond after `self` (rule M6).
    pub fn tick(self, clock: Time) -> Time {
        let least = if active(Bug::TimeStandsStill) { self.0 } else { self.0.saturating_add(1) };
        Time(clock.0.max(least))
    }
}

/// What kind of object an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Link,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    Character,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// The `S_IFMT` bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::Character => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::File => 0o100_000,
            FileKind::Link => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }
    /// From the `S_IFMT` bits of a mode; None for bits that name no kind.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        let all = [
            FileKind::File,
            FileKind::Directory,
            FileKind::Link,
            FileKind::Fifo,
            FileKind::Socket,
            FileKind::Character,
            FileKind::BlockDevice,
        ];
        all.into_iter().find(|kind| kind.mode_bits() == mode & 0o170_000)
    }
}

/// What may not be done to an inode, by root neither. Only who may lift a guard has it set, which the kernel looks after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// Nothing changes (`chattr +i`).
    pub immutable: bool,
    /// A file only gets longer, a directory only gets more names (`chattr +a`).
    pub append_only: bool,
    /// What is made in the directory is of its project, and only what is comes in by a link or a rename (`chattr +P`). Keeps
    /// nothing from being done to the directory itself.
    pub hands_down_project: bool,
}

impl Guard {
    /// True if there is any.
    pub fn any(self) -> bool {
        self.immutable || self.append_only
    }
}

/// An inode's attributes. `links == 0` means an orphan: unlinked but still open, or a dead directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Kind of object; never changes.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group of users.
    pub gid: u32,
    /// Names that point here; for a directory 2 + its subdirectories.
    pub links: u32,
    /// Device number of a device node, in the kernel's encoding.
    pub rdev: u32,
    /// Project for quota (rule M6); 0 = none.
    pub project: u32,
    /// Tells a reused handle from the first (rule M6).
    pub generation: u32,
    /// Bytes; for a symbolic link its target's length.
    pub size: u64,
    /// Counts truncations; every data operation carries the one it knows (rule M4).
    pub trim: u64,
    /// Entries of a directory.
    pub entries: u64,
    /// A directory's parent; for others the directory of birth (a hint only).
    pub parent: Ino,
    /// Last access.
    pub atime: Time,
    /// Last change of data.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// A directory that is being removed takes no new entries (rule M3).
    pub dead: bool,
    /// It has extended attributes: most inodes have none, and nobody looks for them then.
    pub xattrs: bool,
    /// What may not be done to it.
    pub guard: Guard,
}

// Groups keep many of them in memory.
const _: () = assert!(size_of::<Inode>() == 96);

impl Inode {
    /// An inode of which only kind, number, parent and times are known. The low half of the sequence serves as
    /// generation: numbers are never reused, so it need only differ between bricks that were restored or cloned.
    pub fn blank(kind: FileKind, ino: Ino, parent: Ino, now: Time) -> Inode {
        Inode {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 0,
            rdev: 0,
            project: 0,
            generation: ino.sequence() as u32,
            size: 0,
            trim: 0,
            entries: 0,
            parent,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            dead: false,
            xattrs: false,
            guard: Guard::default(),
        }
    }
    /// `st_mode`: kind and permissions.
    pub fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | u32::from(self.mode)
    }
    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn parts_are_a_time_also_before_1970_and_at_the_ends() {
        let second = 1_000_000_000;
        for nanos in [0, 1, -1, second - 1, -second, -second - 1, 1_700_000_000_123_456_789, i64::MAX, i64::MIN] {
            let (seconds, above) = Time(nanos).parts();
            assert!(above < second as u32);
            assert_eq!(i128::from(seconds) * i128::from(second) + i128::from(above), i128::from(nanos));
        }
    }
}
