//! Locks of files among the processes and mounts that have a volume. They change nothing that is stored.

use crate::ids::Ino;

/// The family of a lock. Locks of different families are never in each other's way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// Locks of ranges of bytes: those of fcntl. The owner is a process (POSIX) or an open file (OFD).
    Range,
    /// Locks of whole files: flock. The owner is an open file.
    Whole,
}

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Others may have it too.
    Shared,
    /// Nobody else has it.
    Exclusive,
}

/// A lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLock {
    /// The inode.
    pub ino: Ino,
    /// The family.
    pub family: Family,
    /// The mode.
    pub mode: Mode,
    /// The owner within the session, as its kernel names it.
    pub owner: u64,
    /// The process, for those who ask who has it; 0 if it is one of another machine.
    pub pid: u32,
    /// The first byte.
    pub first: u64,
    /// The last byte, not before the first.
    pub last: u64,
}

impl FileLock {
    /// True if the ranges have a byte in common.
    pub fn overlaps(&self, other: &FileLock) -> bool {
        self.first <= other.last && other.first <= self.last
    }
    /// True if two owners can't have both.
    pub fn excludes(&self, other: &FileLock) -> bool {
        let is_exclusive = self.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
        is_exclusive && self.family == other.family && self.overlaps(other)
    }
}

/// The wish of a client that names a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWish {
    /// Ask for a lock that is in the way of this one.
    Test,
    /// Take it, if nothing is in its way. What its owner has of the range gets its mode.
    Take,
    /// Take it, or get a place in the queue for it. The place is kept for `limits::LOCK_PLACE_NS` after each time that it is asked for.
    Queue,
    /// Give the place in the queue up.
    Leave,
    /// Give the range back, in any mode.
    Release,
}
