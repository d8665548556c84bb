//! The inode: the attributes of a file or directory, apart from its name and data.

use crate::ids::Ino;
use crate::seeded::{Bug, active};

/// A timestamp: nanoseconds since the epoch, signed, so that dates before 1970 survive. Range: years 1678 to 2262.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Whole seconds (rounded down) and the nanoseconds above them.
    #[inline]
    pub fn parts(self) -> (i64, u32) {
        let seconds = self.0.div_euclid(1_000_000_000);
        // Near the earliest time the product wraps around; the difference wraps back.
        (seconds, self.0.wrapping_sub(seconds.wrapping_mul(1_000_000_000)) as u32)
    }
    /// The timestamp of these seconds and nanoseconds; saturates at the ends of the range.
    pub fn from_parts(seconds: i64, nanos: u32) -> Time {
        Time(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanos)))
    }
    /// The timestamp of the next change, which never repeats and never goes back: the clock's, or one nanosecond after
    /// `self` if the clock is not later (rule M6).
    pub fn tick(self, clock: Time) -> Time {
        let least = if active(Bug::TimeStandsStill) { self.0 } else { self.0.saturating_add(1) };
        Time(clock.0.max(least))
    }
}

/// The kind of object that an inode is.
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
    /// The kind that the `S_IFMT` bits of a mode name; None if they name no kind.
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

/// Protections of an inode, against root as well. The kernel checks who may set and lift them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// Nothing of the inode changes (`chattr +i`).
    pub immutable: bool,
    /// A file only grows, a directory only gains names (`chattr +a`).
    pub append_only: bool,
    /// Objects created in the directory join its project, and links and renames into it are refused for inodes of other
    /// projects (`chattr +P`). The directory itself is not protected by this.
    pub hands_down_project: bool,
}

impl Guard {
    /// True if changes are restricted: immutable or append-only.
    pub fn any(self) -> bool {
        self.immutable || self.append_only
    }
}

/// The tier on which a file's blocks should lie, as its owner says by the attribute `user.sinter.tier`. New files and directories
/// begin with the hint of the directory they are made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierHint {
    /// No wish: the brick decides.
    Auto,
    /// Flash, also for what nobody has written for long.
    Flash,
    /// Disk, as soon as there is a reason to move it.
    Disk,
}

impl TierHint {
    /// All hints.
    pub const ALL: [TierHint; 3] = [TierHint::Auto, TierHint::Flash, TierHint::Disk];

    /// The attribute's value.
    pub fn name(self) -> &'static str {
        match self {
            TierHint::Auto => "auto",
            TierHint::Flash => "flash",
            TierHint::Disk => "disk",
        }
    }
    /// The hint that is written so; None if there is no such hint.
    pub fn of(value: &[u8]) -> Option<TierHint> {
        TierHint::ALL.into_iter().find(|hint| hint.name().as_bytes() == value)
    }
}

/// An inode's extended attributes, as far as the inode itself tells, in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes(u8);

impl Attributes {
    const STORED: u8 = 1;
    const TIER_BIT: u32 = 1;
    const TIER: u8 = 3 << Attributes::TIER_BIT;

    /// Attributes that are rows of their own, or none, and the tier hint, which is not.
    pub fn new(stored: bool, tier: Option<TierHint>) -> Attributes {
        Attributes::default().with_stored(stored).with_tier(tier)
    }
    /// True if some are stored. Most inodes have none, and the index is not asked for them.
    pub fn are_stored(self) -> bool {
        self.0 & Attributes::STORED != 0
    }
    /// The tier for the blocks of a file, or of what is made in a directory; None if nobody has said.
    pub fn tier(self) -> Option<TierHint> {
        match (self.0 & Attributes::TIER) >> Attributes::TIER_BIT {
            0 => None,
            code => Some(TierHint::ALL[usize::from(code) - 1]),
        }
    }
    /// The same with others stored, or none.
    pub fn with_stored(self, stored: bool) -> Attributes {
        Attributes(self.0 & !Attributes::STORED | u8::from(stored))
    }
    /// The same with another hint.
    pub fn with_tier(self, tier: Option<TierHint>) -> Attributes {
        let code = tier.map_or(0, |tier| 1 + tier as u8);
        Attributes(self.0 & !Attributes::TIER | code << Attributes::TIER_BIT)
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
    /// Generation, a part of the inode's file handles. A handle from a brick that was restored or cloned may have the
    /// number of this inode; the generation tells the two apart (rule M6).
    pub generation: u32,
    /// Bytes; for a symbolic link its target's length.
    pub size: u64,
    /// Number of truncations and holes so far. Every data operation carries the number that it knows (rule M4).
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
    /// True of a directory that is being removed: it takes no new entries (rule M3).
    pub dead: bool,
    /// Its extended attributes.
    pub xattrs: Attributes,
    /// Protections against changes.
    pub guard: Guard,
}

// Groups keep many inodes in memory, so their size matters.
const _: () = assert!(size_of::<Inode>() == 96);

impl Inode {
    /// An inode of which only kind, number, parent and times are known. The low half of the sequence number serves as
    /// generation: numbers are never reused, so generations need to differ only between bricks that were restored or
    /// cloned.
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
            xattrs: Attributes::default(),
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
