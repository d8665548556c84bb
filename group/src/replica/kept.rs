//! The records of a replica that it may need again: those since the last checkpoint, to be applied, and some before, for
//! followers.

use base::limits::BLOCK_BYTES;
use base::{Edit, Index, Result};
use order_raft::{Position, Shadow};
use runtime::Slice;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use store::format::record::{Record, Run, decode_record};
use store::log::Described;

/// The kind of a shadow: all records have the same, but those with which terms begin.
const KIND: u8 = 1;

/// A record's blocks.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    /// The blocks in memory, until the device has them.
    pub slices: Vec<Slice>,
    /// The places of the blocks on the device.
    pub runs: Vec<Run>,
    /// The checksums of the blocks.
    pub crcs: Arc<[u32]>,
}

impl Carried {
    /// The blocks that these edits map.
    pub fn of(edits: &[Edit], slices: &[Slice], runs: &[Run]) -> Carried {
        let crcs = maps_of(edits).flat_map(|described| described.crcs).copied().collect();
        Carried { slices: slices.to_vec(), runs: runs.to_vec(), crcs }
    }
    /// True unless the device has to be read for the blocks.
    pub fn is_in_memory(&self) -> bool {
        self.runs.is_empty() || !self.slices.is_empty()
    }
    /// Some of the blocks, by their numbers within the payload; none if it is no longer in memory.
    pub fn part(&self, blocks: Range<usize>) -> Vec<Slice> {
        let mut start = 0;
        let mut parts = Vec::new();
        for slice in &self.slices {
            let end = start + slice.len() / BLOCK_BYTES;
            let (from, to) = (blocks.start.max(start), blocks.end.min(end));
            if from < to {
                parts.push(slice.slice((from - start) * BLOCK_BYTES..(to - start) * BLOCK_BYTES));
            }
            start = end;
        }
        assert!(self.slices.is_empty() || blocks.end <= start, "{blocks:?} of {start} blocks");
        parts
    }
}

/// A record.
#[derive(Clone)]
pub(crate) struct Kept {
    pub position: Position,
    pub shadow: Shadow,
    /// The replicated part.
    pub bytes: Arc<[u8]>,
    pub payload: Carried,
    pub batch: u64,
}

impl Kept {
    /// The memory that it takes, blocks aside.
    fn memory(&self) -> usize {
        size_of::<Kept>() + self.bytes.len() + size_of_val(&self.payload.crcs[..]) + size_of_val(&self.payload.runs[..])
    }
    /// The record itself. Errors: `Corrupt`.
    pub fn record(&self) -> Result<Record> {
        decode_record(&self.bytes)
    }
}

/// The shadow of a record, from its replicated part.
pub(crate) fn shadow_of(bytes: &[u8]) -> Shadow {
    Shadow { length: bytes.len() as u32, crc: base::checksum::crc32c(bytes), kind: KIND }
}

/// Records at consecutive indexes.
#[derive(Default)]
pub(crate) struct KeptRecords {
    /// The index of the first record.
    first: u64,
    records: VecDeque<Kept>,
    /// Records with blocks in memory: their batches and indexes.
    held: VecDeque<(u64, u64)>,
    /// The memory that all take, blocks aside.
    bytes: usize,
}

impl KeptRecords {
    /// No records; the next one has the index after this one.
    pub fn after(index: Index) -> KeptRecords {
        KeptRecords { first: index.0 + 1, ..KeptRecords::default() }
    }
    /// The first record's index, or the next one's if there is none.
    pub fn first(&self) -> Index {
        Index(self.first)
    }
    /// The last record's index, or the one before the first.
    pub fn last(&self) -> Index {
        Index(self.first + self.records.len() as u64 - 1)
    }
    /// The record at an index.
    pub fn get(&self, index: Index) -> Option<&Kept> {
        self.records.get(self.place(index)?)
    }
    fn place(&self, index: Index) -> Option<usize> {
        usize::try_from(index.0.checked_sub(self.first)?).ok()
    }
    /// The positions of all.
    /// The last record's position; None if there is none.
    pub fn last_position(&self) -> Option<Position> {
        self.records.back().map(|kept| kept.position)
    }
    pub fn positions(&self) -> impl Iterator<Item = Position> {
        self.records.iter().map(|kept| kept.position)
    }
    /// Adds a record. It takes the place of those from its index on.
    pub fn push(&mut self, kept: Kept) {
        let index = kept.position.index;
        self.truncate(index);
        assert!(index.0 == self.last().0 + 1, "records are kept in order: {index:?} after {:?}", self.last());
        if !kept.payload.slices.is_empty() {
            self.held.push_back((kept.batch, index.0));
        }
        self.bytes += kept.memory();
        self.records.push_back(kept);
    }
    /// Drops the records from an index on.
    pub fn truncate(&mut self, from: Index) {
        let stay = from.0.saturating_sub(self.first) as usize;
        self.bytes -= self.records.iter().skip(stay).map(Kept::memory).sum::<usize>();
        self.records.truncate(stay);
        assert!(self.last() < from || from.0 < self.first, "nothing is left from there on");
        self.held.retain(|(_, index)| *index < from.0);
    }
    /// The first index from which on the records take no more than so many bytes.
    pub fn first_within(&self, bytes_max: usize) -> Index {
        let (mut first, mut bytes) = (self.first, self.bytes);
        for kept in &self.records {
            if bytes <= bytes_max {
                break;
            }
            first += 1;
            bytes -= kept.memory();
        }
        assert!(first <= self.last().0 + 1, "no more are let go of than there are");
        Index(first)
    }
    /// Drops the records before an index.
    pub fn keep_from(&mut self, first: Index) {
        let gone = first.0.saturating_sub(self.first).min(self.records.len() as u64);
        self.bytes -= self.records.drain(..gone as usize).map(|kept| kept.memory()).sum::<usize>();
        self.first += gone;
        assert!(self.records.front().is_none_or(|kept| kept.position.index.0 == self.first), "indexes have no gap");
    }
    /// Lets go of blocks in memory that the device has: those of batches up to this one.
    pub fn release(&mut self, written: u64) {
        while let Some((batch, index)) = self.held.front().copied().filter(|(batch, _)| *batch <= written) {
            self.held.pop_front();
            let place = self.place(Index(index));
            if let Some(kept) = place.and_then(|at| self.records.get_mut(at)).filter(|kept| kept.batch == batch) {
                kept.payload.slices.clear();
            }
        }
    }
    /// Shadows of records that the order asks for, up to the first one that is not here.
    pub fn shadows(&self, indexes: Range<u64>) -> Vec<Shadow> {
        indexes.map_while(|index| self.get(Index(index))).map(|kept| kept.shadow).collect()
    }
}

/// The blocks that a record maps.
pub(crate) fn maps_of(edits: &[Edit]) -> impl Iterator<Item = Described<'_>> {
    edits.iter().filter_map(|edit| match edit {
        Edit::Map { ino, first, crcs } => Some(Described { ino: *ino, first: *first, crcs: crcs.as_slice() }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Term;

    fn kept(index: u64, term: u64) -> Kept {
        let position = Position { index: Index(index), term: Term(term) };
        let bytes: Arc<[u8]> = Arc::from([index as u8]);
        Kept { position, shadow: shadow_of(&bytes), bytes, payload: Carried::default(), batch: index }
    }

    #[test]
    fn a_record_takes_the_place_of_those_from_its_index_on() {
        let mut records = KeptRecords::after(Index(10));
        assert_eq!(records.last(), Index(10));
        (11..=15).for_each(|index| records.push(kept(index, 1)));
        records.push(kept(13, 2));
        assert_eq!(records.last(), Index(13));
        let terms: Vec<_> = records.positions().map(|position| position.term.0).collect();
        assert_eq!(terms, [1, 1, 2]);
        records.keep_from(Index(12));
        assert!(records.get(Index(11)).is_none() && records.get(Index(14)).is_none());
        assert_eq!(records.get(Index(12)).map(|kept| kept.position.term), Some(Term(1)));
        assert_eq!(records.shadows(12..20).len(), 2);
        records.keep_from(Index(14));
        assert_eq!(records.last(), Index(13), "all are gone, and the next one's index is known");
        records.push(kept(14, 2));
        assert_eq!(records.shadows(13..15).len(), 0, "nothing behind a gap");
    }
}
