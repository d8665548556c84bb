//! `check --data`: reads every block that a file has, and compares it with its checksum, both as of the last checkpoint
//! and as the log says since. A block that the log replaces is not read in its old place.

use super::segments::is_told;
use super::{FINDINGS_MAX, Report};
use crate::format::record::{Logged, Places};
use crate::format::summary::SummaryEntry;
use crate::format::superblock::REPLICAS;
use crate::format::values::{SegmentRow, SegmentState};
use crate::index::paths;
use crate::open::Opening;
use crate::progress::Step;
use crate::recovery::standing::Standing;
use crate::segments::summaries;
use crate::verify;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Edit, Ino, Kind, Place, Result, SegmentId, VolumeId};
use runtime::disk;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that are read together.
const SLICE_BLOCKS: u16 = (IO_BYTES_MAX / BLOCK_BYTES) as u16;
const MEANS: &str =
    "reads of it fail with EIO, and never give wrong data: restore the file from a backup, or delete it";

/// A block of a file.
#[derive(Clone, Copy)]
struct Block {
    place: Place,
    crc: u32,
    volume: VolumeId,
    ino: Ino,
    offset: u64,
}

/// Bad blocks of one file in a row.
struct Rot {
    volume: VolumeId,
    ino: Ino,
    offset: u64,
    blocks: u64,
    why: &'static str,
}

struct Data<'a> {
    opening: &'a Opening,
    rot: Vec<Rot>,
    unlisted: u64,
    blocks: u64,
}

/// The log's words on blocks since the last checkpoint.
type Fresh = BTreeMap<(VolumeId, Ino, u64), (Place, u32)>;

/// Adds to a report what is wrong with data. Errors: as `check`.
pub async fn read(opening: &Opening, report: &mut Report, progress: super::Progress<'_>) -> Result<()> {
    let mut data = Data { opening, rot: Vec::new(), unlisted: 0, blocks: 0 };
    let fresh = fresh(opening).await;
    let of = u64::from(opening.superblock().segments);
    for number in 0..opening.superblock().segments {
        progress(Step { what: "data", done: u64::from(number), of });
        data.segment(SegmentId(number), &fresh).await?;
    }
    let mut blocks: Vec<Block> = Vec::with_capacity(fresh.len());
    for ((volume, ino, offset), (place, crc)) in fresh {
        blocks.push(Block { place, crc, volume, ino, offset });
    }
    blocks.sort_unstable_by_key(|block| block.place);
    data.all(&blocks).await?;
    report.data_blocks = Some(data.blocks);
    data.tell(report)
}

/// A log that can't be read is a finding by itself.
async fn fresh(opening: &Opening) -> Fresh {
    let mut fresh = Fresh::new();
    let void = void(opening).await;
    let mut numbers = 0..;
    let walked = opening.walk(async |chunk| {
        for (replayed, number) in chunk.iter().zip(&mut numbers) {
            let Logged::Record(record) = &replayed.logged else { continue };
            if void.contains(&number) {
                continue;
            }
            let mut places = Places::of(&replayed.runs);
            for edit in &record.edits {
                follow(&mut fresh, record.volume, edit, &mut places);
            }
        }
        Ok(())
    });
    drop(walked.await);
    fresh
}

/// The numbers of the log's records that don't count. Reads the log, if it may have any.
async fn void(opening: &Opening) -> BTreeSet<u64> {
    let mut standing = Standing::default();
    if opening.superblock().features.incompatible & REPLICAS != 0 {
        let walked = opening.walk(async |chunk| {
            chunk.iter().for_each(|replayed| standing.take(&replayed.logged));
            Ok(())
        });
        drop(walked.await);
    }
    standing.void()
}

fn follow(fresh: &mut Fresh, volume: VolumeId, edit: &Edit, places: &mut Places<'_>) {
    let gone = match edit {
        Edit::Map { ino, first, crcs } => {
            for ((&crc, offset), place) in crcs.as_slice().iter().zip(*first..).zip(places) {
                fresh.insert((volume, *ino, offset), (place, crc));
            }
            return;
        }
        Edit::InodeDrop { ino } => (*ino, 0..u64::MAX),
        Edit::InodeCut { ino, size, .. } => (*ino, size.div_ceil(BLOCK_BYTES as u64)..u64::MAX),
        Edit::Punch { ino, first, count, .. } => (*ino, *first..first.saturating_add(*count)),
        _ => return,
    };
    let (ino, blocks) = gone;
    let range = (volume, ino, blocks.start)..(volume, ino, blocks.end);
    let keys: Vec<_> = fresh.range(range).map(|(key, _)| *key).collect();
    for key in keys {
        fresh.remove(&key);
    }
}

impl Data<'_> {
    /// The live blocks of a segment, as it tells of them; one that does not is a finding by itself.
    async fn segment(&mut self, segment: SegmentId, fresh: &Fresh) -> Result<()> {
        let opening = self.opening;
        let there = |row: &SegmentRow| is_told(row) && !opening.table().is_missing(segment);
        let Some(row) = opening.table().whole_row(segment).filter(there) else { return Ok(()) };
        let mut entries = match row.state {
            SegmentState::Sealed => {
                let of = (opening.superblock().uuid, segment, row.life);
                match summaries::read(opening.runtime(), opening.geometry(), of).await {
                    Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Io) => return Ok(()),
                    entries => entries?,
                }
            }
            _ => opening.unsealed_summary(segment).to_vec(),
        };
        entries.retain(|entry| row.is_live(entry.block));
        entries.sort_by_key(|entry| entry.block);
        let block = |entry: &SummaryEntry| {
            let SummaryEntry { block, volume, ino, offset, crc, .. } = *entry;
            Block { place: Place { segment, block }, crc, volume, ino, offset }
        };
        let replaced = |block: &Block| fresh.contains_key(&(block.volume, block.ino, block.offset));
        let blocks: Vec<_> = entries.iter().map(block).filter(|block| !replaced(block)).collect();
        self.all(&blocks).await
    }

    /// Blocks in the device's order.
    async fn all(&mut self, blocks: &[Block]) -> Result<()> {
        let together = |one: &Block, next: &Block| {
            one.place.segment == next.place.segment && one.place.block / SLICE_BLOCKS == next.place.block / SLICE_BLOCKS
        };
        for slice in blocks.chunk_by(together) {
            let (first, last) = (slice[0].place, slice[slice.len() - 1].place);
            self.blocks += slice.len() as u64;
            let bytes = self.bytes(first, u32::from(last.block - first.block) + 1).await?;
            for block in slice {
                let from = usize::from(block.place.block - first.block) * BLOCK_BYTES;
                let good = |bytes: &[u8]| verify(bytes, std::iter::once(block.crc)).is_ok();
                if bytes.as_ref().is_some_and(|bytes| good(&bytes[from..from + BLOCK_BYTES])) {
                    continue;
                }
                // Once more, alone: of a transfer that failed most blocks are good.
                match self.bytes(block.place, 1).await? {
                    None => self.bad(block, "can't be read from the device"),
                    Some(bytes) if !good(&bytes) => self.bad(block, "differs from its checksum"),
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// None if the device can't read them.
    async fn bytes(&self, place: Place, count: u32) -> Result<Option<runtime::Buf>> {
        let runtime = self.opening.runtime();
        let Some(spot) = self.opening.geometry().spot(place) else { return Ok(None) };
        let buffer = runtime.buffer(count as usize * BLOCK_BYTES)?;
        let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, buffer).await;
        Ok(result.is_ok().then_some(buffer))
    }

    fn bad(&mut self, block: &Block, why: &'static str) {
        let Block { volume, ino, offset, .. } = *block;
        if let Some(last) = self.rot.last_mut()
            && (last.volume, last.ino, last.offset + last.blocks, last.why) == (volume, ino, offset, why)
        {
            last.blocks += 1;
            return;
        }
        match self.rot.len() < FINDINGS_MAX {
            true => self.rot.push(Rot { volume, ino, offset, blocks: 1, why }),
            false => self.unlisted += 1,
        }
    }

    /// Names them in a user's words.
    fn tell(&self, report: &mut Report) -> Result<()> {
        let index = &**self.opening.index();
        for Rot { volume, ino, offset, blocks, why } in &self.rot {
            // Names may be damaged too.
            let known = paths::volume(index, *volume).ok().flatten();
            let path = known.as_ref().and_then(|volume| paths::find(index, volume, *ino).ok().flatten());
            let file = match path {
                Some(path) => format!("{} (inode {ino} of volume {volume})", String::from_utf8_lossy(&path)),
                None => format!("inode {ino} of volume {volume}"),
            };
            let at = offset * BLOCK_BYTES as u64;
            let bytes = blocks * BLOCK_BYTES as u64;
            report.findings.push(format!("data: {file}, {bytes} bytes from {at} on: {why}; {MEANS}"));
        }
        if self.unlisted > 0 {
            report.findings.push(format!("data: {} more bad blocks are not listed; {MEANS}", self.unlisted));
        }
        Ok(())
    }
}
