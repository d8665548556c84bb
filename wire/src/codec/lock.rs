//! Locks of files among the mounts of a volume. They change nothing that is stored, so they are no operations: the server keeps
//! them in memory, by session.

use super::Body;
use super::bytes::{Put, Take, corrupt};
use super::reply::Failure;
use crate::FrameKind;
use base::{Ino, Result};

/// The family of a lock. Families don't know of each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// Locks of ranges of bytes: those of fcntl, the owner being a process (POSIX) or an open file (OFD).
    Range,
    /// Locks of whole files: flock, the owner being an open file.
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
pub struct Lock {
    /// The inode.
    pub ino: Ino,
    /// The family.
    pub family: Family,
    /// The mode.
    pub mode: Mode,
    /// The owner within the session, as its kernel names it.
    pub owner: u64,
    /// The process, for those who ask who has it.
    pub pid: u32,
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

/// A call for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockCall {
    /// Asks for a lock that is in the way of this one.
    Test(Lock),
    /// Takes it, if nothing is in its way.
    Take(Lock),
    /// Takes it, and waits until nothing is in its way, or until `Cancel`.
    Wait(Lock),
    /// Gives it back, or a part of it, in any mode.
    Release(Lock),
}

/// The answer to a call for a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockDone {
    /// Done; nothing is in the way.
    Done,
    /// This lock is in the way.
    Held(Lock),
    /// An error.
    Failed(Failure),
}

impl Put<'_> {
    pub fn lock(&mut self, lock: &Lock) -> &mut Self {
        self.ino(lock.ino).u8(family_code(lock.family)).u8(mode_code(lock.mode));
        self.u64(lock.owner).u32(lock.pid).u64(lock.first).u64(lock.last)
    }
}

impl Take<'_> {
    pub fn lock(&mut self) -> Result<Lock> {
        let ino = self.ino()?;
        let family = self.coded(&[Family::Range, Family::Whole], family_code)?;
        let mode = self.coded(&[Mode::Shared, Mode::Exclusive], mode_code)?;
        let (owner, pid, first, last) = (self.u64()?, self.u32()?, self.u64()?, self.u64()?);
        let is_range = first <= last;
        let lock = Lock { ino, family, mode, owner, pid, first, last };
        if is_range { Ok(lock) } else { Err(corrupt("a lock ends before it begins")) }
    }
}

fn family_code(family: Family) -> u8 {
    match family {
        Family::Range => 1,
        Family::Whole => 2,
    }
}

fn mode_code(mode: Mode) -> u8 {
    match mode {
        Mode::Shared => 1,
        Mode::Exclusive => 2,
    }
}

impl Body for LockCall {
    const KIND: FrameKind = FrameKind::Lock;

    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, lock) = match self {
            LockCall::Test(lock) => (1, lock),
            LockCall::Take(lock) => (2, lock),
            LockCall::Wait(lock) => (3, lock),
            LockCall::Release(lock) => (4, lock),
        };
        Put(out).u8(tag).lock(lock);
    }
    fn decode(body: &[u8]) -> Result<LockCall> {
        Take::all(body, |take| {
            let call = match take.u8()? {
                1 => LockCall::Test,
                2 => LockCall::Take,
                3 => LockCall::Wait,
                4 => LockCall::Release,
                _ => return Err(corrupt("a call for a lock has a tag that is not known")),
            };
            take.lock().map(call)
        })
    }
}

impl Body for LockDone {
    const KIND: FrameKind = FrameKind::LockDone;

    fn encode(&self, out: &mut Vec<u8>) {
        let mut put = Put(out);
        match self {
            LockDone::Done => put.u8(1),
            LockDone::Held(lock) => put.u8(2).lock(lock),
            LockDone::Failed(failure) => put.u8(3).failure(failure),
        };
    }
    fn decode(body: &[u8]) -> Result<LockDone> {
        Take::all(body, |take| {
            Ok(match take.u8()? {
                1 => LockDone::Done,
                2 => LockDone::Held(take.lock()?),
                3 => LockDone::Failed(take.failure()?),
                _ => return Err(corrupt("an answer about a lock has a tag that is not known")),
            })
        })
    }
}
