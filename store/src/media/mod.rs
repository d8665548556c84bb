//! The media that a brick lies on: where its segments are, in files or on a block device, the file of its superblock, and the room
//! that the file system of its directory has.

pub mod device_table;
pub mod feature;
pub mod geometry;
pub mod host;
pub mod superblock_file;

use base::Result;
use runtime::{FileId, Purpose, Request, Runtime, disk};

/// Writes whole blocks at an offset of a file, and flushes it.
async fn write_flushed(runtime: &Runtime, file: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut buffer = runtime.own_buffer(bytes.len()).await?;
    buffer.copy_from_slice(bytes);
    let slices = vec![buffer.share().slice(0..bytes.len())];
    let write = Request::Write { file, offset, slices, durable: false };
    disk::write_for(Purpose::Checkpoint, &*runtime.disk, write).await.1?;
    disk::flush_for(Purpose::Checkpoint, &*runtime.disk, file).await
}
