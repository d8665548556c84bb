//! The brick's files: a flat directory. Data is read and written by transfers; names change by blocking calls (at
//! start-up or in the pool).
//!
//! Durability, for all implementations: a write is durable after a later flush of its file, or at once if it was
//! `durable` itself; a created, renamed or removed name after `sync_names`; a length set by `allocate` after a flush of
//! the file. A crash may lose, tear at 512-byte sectors, or reorder anything else.

use crate::buffer::{Buf, Slice};
use crate::transfer::{Purpose, Request, Start, Transfer};
use base::Result;

/// The number of an open file; valid until the disk is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// The name under which the brick's first block device is opened, if its segments lie on one (rule X5). Neither its
/// existence nor its length can be changed here. `list` does not return its name, and `sync_names` does not make it
/// durable. Further devices of a brick are the same in all of that (`device_name`).
pub const DEVICE: &str = "device";

/// The name of a device of a brick that has several: `device` is the first, `device-2` the second.
pub fn device_name(device: u32) -> String {
    if device <= 1 { DEVICE.to_string() } else { format!("{DEVICE}-{device}") }
}

/// True for the name of a block device, be it the first or a further one; the lengths of these can't be changed.
pub fn is_device(name: &str) -> bool {
    name.strip_prefix(DEVICE).is_some_and(|rest| {
        let number = rest.strip_prefix('-').filter(|number| !number.starts_with(['0', '+']));
        rest.is_empty() || number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 1))
    })
}

/// The mode of opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist, and is created.
    Create,
    /// The file must exist; writes are refused.
    ReadOnly,
}

/// The files of one brick.
pub trait Disk: Send + Sync {
    /// Opens a file by its name (no directories). Opening a file twice gives the same id.
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId>;
    /// Notes, before the first I/O on it, that a device is a hard disk. It gets what there is to do at once, and sorts it: a limit
    /// that is learned from how soon flash answers would only keep flash waiting. Its times are counted apart (`Purpose::on_disk`).
    fn mark_disk(&self, file: FileId);
    /// Closes a device that turned out to be none of the brick's; its name may be opened again, and be another device then.
    /// The id is not used any more.
    fn close(&self, file: FileId);
    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Length of a file in bytes.
    fn length(&self, file: FileId) -> Result<u64>;
    /// Reserves space so that the file has at least `bytes`; new bytes read as zero.
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()>;
    /// Gives back the space of a file whose bytes are not needed any more. Its length is 0 at once; after a crash it is
    /// 0 or the old one. Blocks.
    fn release(&self, file: FileId) -> Result<()>;
    /// Makes created names durable.
    fn sync_names(&self) -> Result<()>;
    /// Free bytes of the file system that holds the brick.
    fn free_bytes(&self) -> Result<u64>;
    /// Tells the block device that these bytes are not needed any more (TRIM). Until they are written again they read
    /// as anything, after a crash perhaps as before. Blocks. Errors: `Unsupported` for files, and for a device that
    /// does not support it.
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()>;
    /// Starts an I/O for a purpose; only to be called on a core.
    fn submit_for(&self, purpose: Purpose, request: Request) -> Transfer;
    /// Starts an I/O for no purpose that has a name.
    fn submit(&self, request: Request) -> Transfer {
        self.submit_for(Purpose::Other, request)
    }
}

/// Reads `length` bytes (the buffer's length) at `offset`.
pub async fn read(disk: &dyn Disk, file: FileId, offset: u64, buffer: Buf) -> (Buf, Result<()>) {
    read_for(Purpose::Other, disk, file, offset, buffer).await
}

/// Reads for a purpose, as `read` does.
pub async fn read_for(purpose: Purpose, disk: &dyn Disk, file: FileId, offset: u64, buffer: Buf) -> (Buf, Result<()>) {
    let done = disk.submit_for(purpose, Request::Read { file, offset, buffer, start: Start::AtOnce }).await;
    (done.buffer.expect("a read hands its buffer back"), done.result)
}

/// Writes the slices at `offset`; see `Request::Write`. Returns the emptied vector for further use.
pub async fn write(
    disk: &dyn Disk,
    file: FileId,
    offset: u64,
    slices: Vec<Slice>,
    durable: bool,
) -> (Vec<Slice>, Result<()>) {
    write_for(Purpose::Other, disk, Request::Write { file, offset, slices, durable }).await
}

/// Writes for a purpose, as `write` does.
pub async fn write_for(purpose: Purpose, disk: &dyn Disk, write: Request) -> (Vec<Slice>, Result<()>) {
    let done = disk.submit_for(purpose, write).await;
    (done.slices, done.result)
}

/// Flushes a file.
pub async fn flush(disk: &dyn Disk, file: FileId) -> Result<()> {
    flush_for(Purpose::Other, disk, file).await
}

/// Flushes a file for a purpose.
pub async fn flush_for(purpose: Purpose, disk: &dyn Disk, file: FileId) -> Result<()> {
    disk.submit_for(purpose, Request::Flush { file }).await.result
}
