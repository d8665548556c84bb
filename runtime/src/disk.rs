//! The brick's files: a flat directory whose data is read and written by transfers, and whose names change by
//! blocking calls (start-up, the pool).
//!
//! Durability model, for all implementations: a write is durable after a later flush of its file, or when it was
//! `durable` itself; a created, renamed or removed name is durable after `sync_names`; a length set by `allocate`
//! after a flush of the file. Anything else may be lost, torn at 512-byte sectors or reordered by a crash.

use crate::buffer::{Buf, Slice};
use crate::transfer::{Request, Start, Transfer};
use base::Result;

/// An open file of the disk; valid until the disk is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// The name under which the brick's block device is opened, if its segments lie on one (rule X5). It has its length,
/// is there or not, and is none of the names that `list` tells or `sync_names` makes durable.
pub const DEVICE: &str = "device";

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Must exist.
    Existing,
    /// Must not exist.
    Create,
    /// Must exist; writes are refused.
    ReadOnly,
}

/// The files of one brick.
pub trait Disk: Send + Sync {
    /// Opens a file by its name (no directories). Opening one twice gives the same id.
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId>;
    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Length of a file in bytes.
    fn length(&self, file: FileId) -> Result<u64>;
    /// Reserves space so that the file has at least `bytes`; new bytes read as zero.
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()>;
    /// Gives the space of a file back whose bytes nobody reads: its length is 0 at once, and after a crash that or what it
    /// was. Blocks.
    fn release(&self, file: FileId) -> Result<()>;
    /// Makes created names durable.
    fn sync_names(&self) -> Result<()>;
    /// Free bytes of the file system that holds the brick.
    fn free_bytes(&self) -> Result<u64>;
    /// Tells the block device that nobody needs these bytes: they read as anything until they are written again, and
    /// whether a crash finds the old ones there is open. Blocks. Errors: `Unsupported` for files, and for a device that
    /// has no use for it.
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()>;
    /// Starts an I/O; to be called on a core.
    fn submit(&self, request: Request) -> Transfer;
}

/// Reads `length` bytes (the buffer's length) at `offset`.
pub async fn read(disk: &dyn Disk, file: FileId, offset: u64, buffer: Buf) -> (Buf, Result<()>) {
    let done = disk.submit(Request::Read { file, offset, buffer, start: Start::AtOnce }).await;
    (done.buffer.expect("a read hands its buffer back"), done.result)
}

/// Writes the slices at `offset`; see `Request::Write`. Hands the emptied vector back.
pub async fn write(
    disk: &dyn Disk,
    file: FileId,
    offset: u64,
    slices: Vec<Slice>,
    durable: bool,
) -> (Vec<Slice>, Result<()>) {
    let done = disk.submit(Request::Write { file, offset, slices, durable }).await;
    (done.slices, done.result)
}

/// Flushes a file.
pub async fn flush(disk: &dyn Disk, file: FileId) -> Result<()> {
    disk.submit(Request::Flush { file }).await.result
}
