//! Segments against leaves: live bits, and where they have live blocks headers and summaries. Live bits come last: a crash
//! before finds them as they were.

use super::Repair;
use super::summed::Claimed;
use crate::check::blocks::{Claims, Owner, beyond};
use crate::check::each_place;
use crate::format::keys::{self, Row};
use crate::format::leaf::Leaf;
use crate::format::segment::{SegmentHeader, Stream};
use crate::format::summary::{self, SummaryEntry};
use crate::format::values::{self, SegmentRow, SegmentState};
use crate::index::IndexEdit;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Error, Index, Kind, Place, Result, SegmentId};
use runtime::disk;
use std::collections::BTreeMap;

/// Summary entries held at once: some 60 MB.
const ENTRIES_MAX: u32 = 1 << 20;

impl Repair<'_> {
    pub(super) async fn segments(&mut self) -> Result<()> {
        let claimed = self.claims()?;
        let (opening, none) = (self.opening, Claims::default());
        let (mut rows, mut untold) = (Vec::new(), Vec::new());
        for (segment, mut row) in opening.table().whole_rows() {
            let claims = claimed.get(&segment).unwrap_or(&none);
            let (more, fewer) = (beyond(&claims.bits, &row.live), beyond(&row.live, &claims.bits));
            let was_free = row.state == SegmentState::Free;
            let is_told = !claims.bits.is_empty();
            if is_told && was_free {
                row.state = SegmentState::Sealed;
            }
            let replayed = row.stream == Stream::Commit && row.sequence >= opening.replay_from() && !was_free;
            if is_told || replayed {
                let header = opening.headers().find(|header| header.segment == segment);
                if header.is_none_or(|header| (header.life, header.sequence) != (row.life, row.sequence)) {
                    let SegmentRow { life, stream, sequence, .. } = row;
                    let uuid = opening.superblock().uuid;
                    // Which epoch it was is not known; an early one says that nobody writes to it any more.
                    self.write_header(&SegmentHeader { uuid, segment, life, stream, sequence, epoch: 0 }).await?;
                }
            }
            if is_told && self.summary(segment, &row).await?.is_none_or(|entries| !claims.are_told(&entries)) {
                untold.push((segment, row.clone()));
            }
            if more + fewer > 0 {
                self.mended(format!("segment {segment}: {more} blocks were marked live, and {fewer} were freed"));
                row.live.clone_from(&claims.bits);
                rows.push(IndexEdit::Put(keys::segment(segment), values::encode_segment(&row)));
            }
        }
        self.write_summaries(&untold, &claimed).await?;
        for file in opening.geometry().all_files() {
            disk::flush(&*opening.runtime().disk, file).await?;
        }
        self.write()?;
        self.edits = rows;
        self.write()
    }

    /// One write to a segment: blocks from `first` on.
    async fn write_blocks(&self, (segment, first): (SegmentId, usize), bytes: &[u8]) -> Result<()> {
        let runtime = self.opening.runtime();
        for (number, part) in bytes.chunks(IO_BYTES_MAX).enumerate() {
            let block = (first + number * (IO_BYTES_MAX / BLOCK_BYTES)) as u16;
            let spot = self.opening.geometry().spot(Place { segment, block });
            let spot = spot.ok_or_else(|| Error::new(Kind::Corrupt, "a segment's file is missing"))?;
            let mut buffer = runtime.buffer(part.len())?;
            buffer.copy_from_slice(part);
            let slices = vec![buffer.share().slice(0..part.len())];
            disk::write(&*runtime.disk, spot.file, spot.offset, slices, false).await.1?;
        }
        Ok(())
    }

    pub(super) async fn write_header(&mut self, header: &SegmentHeader) -> Result<()> {
        self.write_blocks((header.segment, 0), &header.encode()).await?;
        self.mended(format!("segment {}: its header was written anew", header.segment));
        Ok(())
    }

    /// Segments that don't tell of all their blocks do so again.
    async fn write_summaries(&mut self, untold: &[(SegmentId, SegmentRow)], claimed: &Claimed) -> Result<()> {
        let at_once = (ENTRIES_MAX / self.opening.geometry().blocks()).max(1) as usize;
        for some in untold.chunks(at_once) {
            let mut entries: BTreeMap<SegmentId, BTreeMap<u16, SummaryEntry>> = BTreeMap::new();
            for (segment, row) in some {
                // What it tells of dead blocks stays: it is the history that the latest blocks are told from.
                let known = self.summary(*segment, row).await?.unwrap_or_default();
                entries.insert(*segment, known.into_iter().map(|entry| (entry.block, entry)).collect());
            }
            self.each("summaries", |_, key, value| {
                if let (Some((_, volume, Row::Leaf)), Ok(leaf)) = (keys::row(key), Leaf::decode(value)) {
                    each_place(volume, key, &leaf, |place, owner| {
                        if let Some(of) = entries.get_mut(&place.segment) {
                            tell(of, place.block, &owner);
                        }
                    });
                }
                Ok(())
            })?;
            for (segment, row) in some {
                let all: Vec<_> = entries[segment].values().copied().collect();
                // Where two leaves still name one block nothing can be told.
                if claimed[segment].are_told(&all) {
                    self.write_summary(*segment, row, &all).await?;
                }
            }
        }
        Ok(())
    }

    async fn write_summary(&mut self, segment: SegmentId, row: &SegmentRow, entries: &[SummaryEntry]) -> Result<()> {
        if row.state != SegmentState::Sealed {
            let (from, to) = keys::summary_of(segment);
            self.edits.push(IndexEdit::DeleteRange(from, to));
            self.put(keys::summary(segment, 0), Some(summary::encode_entries(entries)));
        } else {
            let bytes = summary::encode(self.opening.superblock().uuid, segment, row.life, entries);
            let first = self.opening.geometry().blocks() as usize - bytes.len() / BLOCK_BYTES;
            if entries.last().is_some_and(|last| usize::from(last.block) >= first) {
                // It would lie over a block that it tells of. The check goes on to say that it is missing.
                return Ok(());
            }
            self.write_blocks((segment, first), &bytes).await?;
        }
        self.mended(format!("segment {segment}: its summary was written anew"));
        Ok(())
    }
}

fn tell(entries: &mut BTreeMap<u16, SummaryEntry>, block: u16, owner: &Owner) {
    let Owner { group, volume, ino, offset, crc } = *owner;
    // Of a block that was told of wrongly nobody knows which record named it.
    let known = entries.get(&block).filter(|entry| Owner::told(entry) == *owner).map(|entry| entry.index);
    let index = known.unwrap_or(Index(0));
    entries.insert(block, SummaryEntry { block, group, volume, ino, offset, index, crc });
}
