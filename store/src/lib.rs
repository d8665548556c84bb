//! Floor 2: the brick. Segments, batches, group commit, replay, index, checkpoints.
//!
//! Promises: what `wait` returned for stays, whatever crashes (rules L, U); the index changes only by checkpoints
//! (rule X1). Does not: know what edits mean (that is `names`) or which group is asked (that is `group`).
#![forbid(unsafe_code)]

pub mod brick;
pub mod bulk;
pub mod check;
pub mod checkpoint;
pub mod format;
pub mod geometry;
pub mod index;
pub mod log;
pub mod open;
pub mod prepare;
pub mod recovery;
pub mod segments;
pub mod superblock_file;

pub use brick::{FormatOptions, format_brick};
pub use checkpoint::{Change, GroupPart};
pub use open::{Opening, Replay};
pub use recovery::Replayed;

use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Place, Result, SegmentId, StatFs};
use format::Uuid;
use format::values::ReplayRow;
use geometry::Geometry;
use index::Index;
use log::Log;
use runtime::{Buf, Lock, Runtime, disk};
use segments::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An open brick.
pub struct Store {
    /// The world.
    pub runtime: Runtime,
    /// The brick's identity.
    pub uuid: Uuid,
    /// Groups 0..groups exist.
    pub groups: u32,
    /// The log's epoch.
    pub epoch: u64,
    /// Ends of earlier epochs that the superblock still lists: a checkpoint lets the next start drop them.
    pub epoch_ends: usize,
    /// The index engine. Its calls block: pool only.
    pub index: Arc<dyn Index>,
    /// The log.
    pub log: Arc<Log>,
    /// The bulk stream.
    pub bulk: bulk::Bulk,
    geometry: Arc<Geometry>,
    table: Lock<Table>,
    /// Summary entries of open segments that the index holds.
    summarised: Lock<BTreeMap<SegmentId, usize>>,
    /// Where replay starts by the last durable checkpoint.
    replay: Lock<ReplayRow>,
}

impl Store {
    /// Reads `count` blocks from `place` on into `buffer`, whose length becomes theirs. Checksums are the caller's
    /// to compare: it knows them.
    pub async fn read(&self, place: Place, count: u32, mut buffer: Buf) -> (Buf, Result<()>) {
        buffer.set_len(count as usize * BLOCK_BYTES);
        match self.geometry.spot(place) {
            Some(spot) => disk::read(&*self.runtime.disk, spot.file, spot.offset, buffer).await,
            None => (buffer, Err(Error::new(Kind::Corrupt, "a leaf names a segment that was never made"))),
        }
    }

    /// Space for clients, in bytes. A block counts as taken from its segment's first use until the segment is freed.
    pub fn statfs(&self) -> StatFs {
        let space = self.table.lock().space();
        let usable = |segments: u64| segments * self.geometry.segment_bytes / 100 * 98;
        let reserve = (prepare::DATA_RESERVE_SEGMENTS + 2) as u64;
        StatFs {
            size_bytes: usable(space.segments.saturating_sub(reserve)),
            free_bytes: usable(space.free_segments.saturating_sub(reserve)),
        }
    }
    /// Space in segments and blocks.
    pub fn space(&self) -> segments::Space {
        self.table.lock().space()
    }
    /// True if client data may take more segments (the rest is for deletions and checkpoints, rule K5).
    pub fn has_room_for_data(&self) -> bool {
        self.table.lock().free() >= prepare::DATA_RESERVE_SEGMENTS
    }
    /// Bytes of log that a replay would read now.
    pub fn replay_bytes(&self) -> u64 {
        let start = self.replay.lock().sequence;
        let table = self.table.lock();
        let segments = table.iter().filter(|(_, row)| {
            row.stream == format::segment::Stream::Commit
                && row.state != format::values::SegmentState::Free
                && row.sequence >= start
        });
        segments.count() as u64 * self.geometry.segment_bytes
    }
    /// The locks' figures.
    pub fn lock_summaries(&self) -> Vec<runtime::lock::LockSummary> {
        vec![self.log.lock_summary(), self.bulk.lock_summary(), self.table.summary()]
    }
    /// Ends the log's tasks once all is written.
    pub fn stop(&self) {
        self.log.stop();
    }
}

/// Compares blocks with their checksums; the number of the first that differs.
pub fn verify(blocks: &[u8], crcs: impl Iterator<Item = u32>) -> std::result::Result<(), usize> {
    let mut crcs = crcs;
    for (number, block) in blocks.chunks(BLOCK_BYTES).enumerate() {
        if crcs.next() != Some(crc32c(block)) {
            return Err(number);
        }
    }
    Ok(())
}
