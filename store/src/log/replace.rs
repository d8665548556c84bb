//! Small writes that follow each other closely: a block that waits in the batch being built is replaced where it lies,
//! so that a program that appends line by line writes each block about once. Such batches have many records and few
//! payload blocks, so their headers grow.
//!
//! Promises: each block of a batch on the device has the content of the batch's last record that wrote it, and the
//! checksum in the record that maps it is that of this content. A batch is replayed as a whole or not at all, so a
//! crash never leaves the later content without the later record. Absent by design: replacing blocks of a batch that is
//! closed, or blocks whose summary entries a checkpoint has taken.

use super::build::Building;
use super::{Entry, Log, Ordered, State, header_blocks};
use crate::format::record::{framed_bytes, replace_crc};
use base::limits::{BLOCK_BYTES, HEADER_BLOCKS_MAX};
use base::{Error, Kind, Place, Result, Sync};
use runtime::seeded::{Bug, active};
use runtime::{Buf, Slice};
use std::sync::atomic::Ordering;

/// Largest number of header blocks to which a header grows. A single record may need more. Eight blocks hold about 250
/// records; if each of them appends a line of 100 bytes, the payload is as large as the header, so a larger header
/// would only make the batch's write longer.
const HEADER_BLOCKS_GROWN: usize = 8;
const _: () = assert!(HEADER_BLOCKS_GROWN <= HEADER_BLOCKS_MAX);

/// A block that replaces one that waits to be written.
pub struct Replacement {
    /// The place of the replaced block.
    pub place: Place,
    /// The new block's checksum.
    pub crc: u32,
    /// The new block.
    pub payload: Slice,
}

impl Log {
    /// Appends a record as `append_one_record` does, and replaces a block of the batch that the record goes to. None if
    /// the block does not wait in that batch, and then nothing has changed.
    pub fn append_replacing(&self, entry: &Entry<'_>, with: Replacement, sync: Sync) -> Result<Option<Ordered>> {
        let mut state = self.state.lock();
        state.check()?;
        state.reserve(self, std::slice::from_ref(entry))?;
        let bytes = framed_bytes(entry.runs_max(), entry.replicated.len());
        let fits = state.building.as_ref().is_some_and(|building| building.fits(bytes, entry.payload_blocks()));
        if !fits || state.replace(self, with).is_none() {
            return Ok(None);
        }
        let batch = state.next_number;
        let ordered = state.append_one(self, entry, None)?;
        assert!(ordered.batch == batch, "the record is in the batch whose block it has replaced");
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
        let pending_bytes = log.pending_bytes.fetch_sub(before, Ordering::AcqRel);
        assert!(pending_bytes >= before, "what is replaced was counted when it was added");
        Some(())
    }

    /// Notes that a record of `bytes` bytes does not fit into the batch being built. If its header is what is full, the
    /// next batch gets a larger header.
    pub(super) fn grow_header(&mut self, bytes: usize) {
        if let Some(building) = self.building.as_ref().filter(|building| building.is_header_full(bytes)) {
            self.header_blocks = (2 * building.header_blocks()).min(HEADER_BLOCKS_GROWN);
        }
    }
    /// Notes that a batch ends. If it left half of its header empty, the next batch gets a smaller header.
    pub(super) fn shrink_header(&mut self, building: &Building) {
        if building.used() * 2 <= building.header_blocks() * BLOCK_BYTES {
            self.header_blocks = (building.header_blocks() / 2).max(1);
        }
    }
    /// The headers of the batches that these records may begin, record by record: once the first is appended, nothing may fail.
    /// None, or none at all, where the batch being built holds the record.
    pub(super) fn headers(&mut self, log: &Log, entries: &[Entry<'_>]) -> Result<Vec<Option<Buf>>> {
        if entries.len() < 2 || active(Bug::HeadersOneByOne) {
            return Ok(Vec::new());
        }
        let payload = entries[0].payload_blocks();
        let (mut bytes, mut begins) = (0, false);
        let mut headers = Vec::with_capacity(entries.len());
        for (number, entry) in entries.iter().enumerate() {
            bytes += framed_bytes(entry.runs_max(), entry.replicated.len());
            // Behind a payload, and with one of its own, a record may need another batch.
            let plain = number == 0 || payload + entry.payload_blocks() == 0;
            let fits = plain && self.building.as_ref().is_some_and(|building| building.fits(bytes, payload));
            let least = header_blocks(entry);
            headers.push(match (fits && !begins, begins) {
                (true, _) => None,
                // The first new batch holds all the others, as a rule.
                (_, false) => {
                    let blocks = self.next_header_blocks(least);
                    Some(self.header(log, blocks)?)
                }
                (_, true) => Some(self.header(log, least)?),
            });
            begins |= headers.last().is_some_and(Option::is_some);
        }
        Ok(headers)
    }
    /// Memory for a header of this many blocks. Errors: `Busy`; the next tick wakes who waits for `segment_came`.
    pub(super) fn header(&mut self, log: &Log, blocks: usize) -> Result<Buf> {
        log.runtime.buffer(blocks * BLOCK_BYTES).map_err(|error| {
            self.short_of_memory = true;
            Error::new(Kind::Busy, "the log waits for memory").with(error)
        })
    }
    /// Number of header blocks of the next batch, whose first record needs `least`.
    pub(super) fn next_header_blocks(&mut self, least: usize) -> usize {
        let more = self.header_blocks.saturating_sub(least).min(self.spare_blocks as usize);
        self.spare_blocks -= more as u32;
        least + more
    }
}
