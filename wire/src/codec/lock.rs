//! Locks of files as they travel, and the news that one may be had.

use super::Body;
use super::bytes::{Put, Take, corrupt};
use crate::FrameKind;
use base::lock::{Family, FileLock, LockWish, Mode};
use base::{Ino, Result};

/// A lock that a client has a place in the queue for can be had: it should ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freed {
    /// The file.
    pub ino: Ino,
    /// The owner that wants it.
    pub owner: u64,
}

impl Put<'_> {
    pub fn lock(&mut self, lock: &FileLock) -> &mut Self {
        self.ino(lock.ino).u8(family_code(lock.family)).u8(mode_code(lock.mode));
        self.u64(lock.owner).u32(lock.pid).u64(lock.first).u64(lock.last)
    }
    pub fn lock_wish(&mut self, wish: LockWish) -> &mut Self {
        self.u8(wish_code(wish))
    }
}

impl Take<'_> {
    pub fn lock(&mut self) -> Result<FileLock> {
        let ino = self.ino()?;
        let family = self.coded(&[Family::Range, Family::Whole], family_code)?;
        let mode = self.coded(&[Mode::Shared, Mode::Exclusive], mode_code)?;
        let (owner, pid, first, last) = (self.u64()?, self.u32()?, self.u64()?, self.u64()?);
        let is_range = first <= last;
        let lock = FileLock { ino, family, mode, owner, pid, first, last };
        if is_range { Ok(lock) } else { Err(corrupt("a lock ends before it begins")) }
    }
    pub fn lock_wish(&mut self) -> Result<LockWish> {
        let all = [LockWish::Test, LockWish::Take, LockWish::Queue, LockWish::Leave, LockWish::Release];
        self.coded(&all, wish_code)
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

fn wish_code(wish: LockWish) -> u8 {
    match wish {
        LockWish::Test => 1,
        LockWish::Take => 2,
        LockWish::Queue => 3,
        LockWish::Leave => 4,
        LockWish::Release => 5,
    }
}

impl Body for Freed {
    const KIND: FrameKind = FrameKind::Freed;

    fn encode(&self, out: &mut Vec<u8>) {
        Put(out).ino(self.ino).u64(self.owner);
    }
    fn decode(body: &[u8]) -> Result<Freed> {
        Take::all(body, |take| Ok(Freed { ino: take.ino()?, owner: take.u64()? }))
    }
}
