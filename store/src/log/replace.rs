//! Small writes that follow each other closely: a block that waits in the batch being built is replaced where it lies, so that
//! a program that appends line by line writes each block about once, and headers grow while records are what fills batches.
//!
//! Promises: a batch on the device says of each of its blocks what the last record in it left there. A batch is replayed as a
//! whole or not at all, so no crash shows the later content with the earlier record alone. Absent by design: blocks of a
//! batch that is closed, and those of which a checkpoint has taken the summary.

use super::build::Building;
use super::{Entry, Log, Ordered, State};
use crate::format::record::{framed_bytes, replace_crc};
use base::limits::BLOCK_BYTES;
use base::{Place, Result, Sync};
use runtime::Slice;
use std::sync::atomic::Ordering;

/// Header blocks of a batch at most, apart from what a single record needs: eight hold about 250 records, the payload of
/// as many lines of 100 bytes is as large again, and a larger header would only make the batch's write longer.
const HEADER_BLOCKS_GROWN: usize = 8;

/// A block that takes the place of one that waits to be written.
pub struct Replacement {
    /// The place of the replaced block.
    pub place: Place,
    /// The new block's checksum.
    pub crc: u32,
    /// The new block.
    pub payload: Slice,
}

impl Log {
    /// Appends a record, and replaces a block of the same batch; as `append_one_record` otherwise. None, and nothing has
    /// happened, if the block does not wait in the batch that the record would go to.
    pub fn append_replacing(&self, entry: &Entry<'_>, with: Replacement, sync: Sync) -> Result<Option<Ordered>> {
        let mut state = self.state.lock();
        state.check()?;
        state.reserve(self, std::slice::from_ref(entry))?;
        let bytes = framed_bytes(entry.runs_max(), entry.replicated.len());
        let fits = state.building.as_ref().is_some_and(|building| building.fits(bytes, entry.payload_blocks()));
        if !fits || state.replace(self, with).is_none() {
            return Ok(None);
        }
        let ordered = state.append_one(self, entry)?;
        state.note_wants(sync);
        Ok(Some(ordered))
    }
}

impl State {
    fn replace(&mut self, log: &Log, with: Replacement) -> Option<()> {
        let open = self.segment.filter(|open| open.segment == with.place.segment)?;
        let building = self.building.as_mut()?;
        let payload_at = building.block + building.header_blocks() as u32;
        let block = u32::from(with.place.block).checked_sub(payload_at)?;
        if block >= building.payload_blocks() {
            return None;
        }
        let &(first, record_at) = self.inlined.iter().rfind(|(first, _)| *first <= block)?;
        let entries = self.summaries.get_mut(&open.segment)?;
        let entry = entries.iter().rposition(|entry| entry.block == with.place.block)?;
        if entry < self.summary_taken {
            return None;
        }
        if !replace_crc(building.record_mut(record_at), log.uuid, (block - first) as usize, with.crc) {
            return None;
        }
        entries[entry].crc = with.crc;
        let (before, now) = building.replace(block, with.payload);
        log.pending_bytes.fetch_add(now, Ordering::AcqRel);
        log.pending_bytes.fetch_sub(before, Ordering::AcqRel);
        Some(())
    }

    /// Notes that a record of `bytes` bytes finds no room. If that is because of the header's size, the next batch gets
    /// a larger one.
    pub(super) fn grow_header(&mut self, bytes: usize) {
        if let Some(building) = self.building.as_ref().filter(|building| building.is_header_full(bytes)) {
            self.header_blocks = (2 * building.header_blocks()).min(HEADER_BLOCKS_GROWN);
        }
    }
    /// A batch ends: a header that it left half empty was too large.
    pub(super) fn shrink_header(&mut self, building: &Building) {
        if building.used() * 2 <= building.header_blocks() * BLOCK_BYTES {
            self.header_blocks = (building.header_blocks() / 2).max(1);
        }
    }
    /// Header blocks of the next batch, whose first record needs `least`.
    pub(super) fn next_header_blocks(&mut self, least: usize) -> usize {
        let more = self.header_blocks.saturating_sub(least).min(self.spare_blocks as usize);
        self.spare_blocks -= more as u32;
        least + more
    }
}
