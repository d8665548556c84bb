//! Room on the file system that holds the brick's directory (rule K5). The index lives there and takes more with each
//! checkpoint, segments' files are made there as they are needed, and others may fill it. A ballast file holds back what
//! the index needs. When the room beside it runs short it is let go: from then on clients' data is refused, while
//! deletions, the cleaner and checkpoints go on with what it held. Segments whose files can't be made are not counted as
//! free, so that the cleaner makes do with the others.

use base::limits::BALLAST_BYTES_MAX;
use base::{Error, Kind, Result};
use runtime::{Disk, FileId, Lock, OpenMode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The ballast's file.
pub const BALLAST: &str = "ballast";

/// The ballast is this part of the brick's size: the index of a full brick is about half a percent of it, and what a
/// checkpoint writes and RocksDB compacts at once is a part of that.
const BALLAST_PARTS: u64 = 64;

/// Bytes that segments may take in a file system with `free_bytes` free: by default, and at most. The rest is for the
/// index, with the ballast and as much again.
pub fn room_for_segments(free_bytes: u64) -> (u64, u64) {
    (free_bytes / 5 * 4, free_bytes / (BALLAST_PARTS + 2) * BALLAST_PARTS)
}

/// The ballast, and whether room is short.
pub struct Host {
    ballast: Lock<Ballast>,
    short: AtomicBool,
    /// Free bytes that must be left to the index when a segment file is created.
    spare_bytes: AtomicU64,
}

#[derive(Default)]
struct Ballast {
    file: Option<FileId>,
    bytes: u64,
}

impl Default for Host {
    /// Nothing is known yet.
    fn default() -> Host {
        let ballast = Lock::new("ballast", Ballast::default());
        Host { ballast, short: AtomicBool::new(false), spare_bytes: AtomicU64::new(0) }
    }
}

impl Host {
    /// True if clients' data and new names are to be refused, because the index has only the ballast's room left.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }
    /// Bytes that a segment file must leave free: less would be short.
    pub fn spare_bytes(&self) -> u64 {
        self.spare_bytes.load(Ordering::Acquire)
    }
    /// Looks at the room: lets the ballast go, or makes it again. Blocks. Errors: `Io` where that fails for another reason
    /// than room: nobody is to take a device that fails for one that is full.
    pub fn look(&self, disk: &dyn Disk, brick_bytes: u64) -> Result<()> {
        let mut ballast = self.ballast.lock();
        let wanted_bytes = brick_bytes.div_ceil(BALLAST_PARTS).min(BALLAST_BYTES_MAX);
        let short = match ballast.look(disk, wanted_bytes) {
            // Not even the ballast's name has room.
            Err(error) if is_full(&error) => Some(true),
            looked => looked?,
        };
        if let Some(short) = short {
            self.short.store(short, Ordering::Release);
        }
        // Half the ballast is kept free beside it (see `Ballast::look`), and what is missing of it.
        self.spare_bytes.store(wanted_bytes + wanted_bytes / 2 - ballast.bytes, Ordering::Release);
        Ok(())
    }
}

/// True if a call failed for want of room: the file system's, or what it lets the daemon's user have.
fn is_full(error: &Error) -> bool {
    matches!(error.kind, Kind::NoSpace | Kind::Quota)
}

impl Ballast {
    /// True if there is no room but the ballast's; None if that stays as it was.
    fn look(&mut self, disk: &dyn Disk, wanted_bytes: u64) -> Result<Option<bool>> {
        if self.file.is_none() && disk.list()?.iter().any(|name| name == BALLAST) {
            self.file = Some(disk.open(BALLAST, OpenMode::Existing)?);
        }
        self.bytes = self.file.map_or(Ok(0), |file| disk.length(file))?.min(wanted_bytes);
        let room_bytes = disk.free_bytes()? + self.bytes;
        // Half the ballast is kept free beside it: one look finds it going before it is gone, unless somebody writes more
        // than that in between.
        if room_bytes < wanted_bytes + wanted_bytes / 2 {
            if let Some(file) = self.file {
                disk.release(file)?;
                self.bytes = 0;
            }
            return Ok(Some(true));
        }
        // More than what is short, so that the ballast does not come and go.
        if self.bytes < wanted_bytes && room_bytes >= 2 * wanted_bytes {
            self.make(disk, wanted_bytes)?;
        }
        Ok((self.bytes == wanted_bytes).then_some(false))
    }
    /// Makes the ballast, unless somebody else was faster with the room.
    fn make(&mut self, disk: &dyn Disk, bytes: u64) -> Result<()> {
        let file = self.file.map_or_else(|| disk.open(BALLAST, OpenMode::Create), Ok)?;
        self.file = Some(file);
        match disk.allocate(file, bytes) {
            Err(error) if is_full(&error) => return Ok(()),
            made => made?,
        }
        self.bytes = bytes;
        disk.sync_names()
    }
}
