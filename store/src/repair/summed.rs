//! The blocks that leaves name, and the summaries' words on blocks that are marked live and that no leaf names: the
//! material from which leaves are made anew (rule L7).

use super::Repair;
use crate::check::blocks::{Claims, Owner, beyond, is_set};
use crate::check::each_place;
use crate::format::keys::{self, Row};
use crate::format::leaf::Leaf;
use crate::format::summary::SummaryEntry;
use crate::format::values::{SegmentRow, SegmentState};
use crate::segments::summaries;
use base::checksum::crc32c;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{Index, Ino, Kind, LeafKey, Place, Result, SegmentId, VolumeId};
use runtime::disk;
use std::collections::BTreeMap;

/// The blocks in each segment that leaves name.
pub(super) type Claimed = BTreeMap<SegmentId, Claims>;

/// A block that is marked live, and that no leaf names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spare {
    pub place: Place,
    pub crc: u32,
    /// The record that named it: the latest is right.
    index: Index,
}

/// All of them, by whose they are.
#[derive(Default)]
pub(super) struct Spares(BTreeMap<(VolumeId, Ino, u64), Spare>);

impl Spares {
    fn add(&mut self, entry: &SummaryEntry, segment: SegmentId) {
        let SummaryEntry { block, volume, ino, offset, index, crc, .. } = *entry;
        let spare = Spare { place: Place { segment, block }, crc, index };
        let known = self.0.entry((volume, ino, offset)).or_insert(spare);
        if index > known.index {
            *known = spare;
        }
    }
    /// Takes the block of a file that it must be.
    pub fn take(&mut self, owner: &Owner) -> Option<Spare> {
        self.0.remove(&(owner.volume, owner.ino, owner.offset))
    }
    /// Takes all blocks of a leaf.
    pub fn take_leaf(&mut self, volume: VolumeId, at: LeafKey) -> Vec<(u64, Spare)> {
        let first = at.leaf * BLOCKS_PER_LEAF as u64;
        let all = (volume, at.ino, first)..(volume, at.ino, first + BLOCKS_PER_LEAF as u64);
        let keys: Vec<_> = self.0.range(all).map(|(key, _)| *key).collect();
        let taken = keys.into_iter().filter_map(|key| Some((key.2, self.0.remove(&key)?)));
        taken.collect()
    }
    /// The leaf of the first one.
    pub fn first_leaf(&self) -> Option<(VolumeId, LeafKey)> {
        let ((volume, ino, offset), _) = self.0.first_key_value()?;
        Some((*volume, LeafKey::of(*ino, *offset).0))
    }
}

impl Repair<'_> {
    /// True for a place where no block of a file lies.
    pub(super) fn is_outside(&self, place: Place) -> bool {
        let blocks = self.opening.geometry().blocks();
        // The first block is the header, the last one the summary's.
        !(1..blocks - 1).contains(&u32::from(place.block)) || place.segment.0 >= self.opening.superblock().segments
    }

    /// The blocks that all readable leaves name within the brick.
    pub(super) fn claims(&mut self) -> Result<Claimed> {
        let mut claimed = Claimed::new();
        self.each("maps", |repair, key, value| {
            if let (Some((_, volume, Row::Leaf)), Ok(leaf)) = (keys::row(key), Leaf::decode(value)) {
                each_place(volume, key, &leaf, |place, owner| {
                    if !repair.is_outside(place) {
                        claimed.entry(place.segment).or_default().add(place.block, &owner);
                    }
                });
            }
            Ok(())
        })?;
        Ok(claimed)
    }

    /// The summary of a segment's blocks, in their order; None if it can't be read.
    pub(super) async fn summary(&self, segment: SegmentId, row: &SegmentRow) -> Result<Option<Vec<SummaryEntry>>> {
        let entries = match row.state {
            SegmentState::Open | SegmentState::Closed => {
                let mut entries = self.opening.unsealed_summary(segment).to_vec();
                entries.sort_by_key(|entry| entry.block);
                entries
            }
            SegmentState::Sealed | SegmentState::Free => {
                let of = (self.opening.superblock().uuid, segment, row.life);
                match summaries::read(self.opening.runtime(), self.opening.geometry(), of).await {
                    Ok(entries) => entries,
                    Err(error) if matches!(error.kind, Kind::Corrupt | Kind::Io) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(entries.is_sorted_by(|one, next| one.block < next.block).then_some(entries))
    }

    /// Blocks that are marked live, and that no leaf names.
    pub(super) async fn spares(&mut self, claimed: &Claimed) -> Result<Spares> {
        let (opening, none) = (self.opening, Claims::default());
        let mut spares = Spares::default();
        for (segment, row) in opening.table().whole_rows() {
            let claims = claimed.get(&segment).unwrap_or(&none);
            if beyond(&row.live, &claims.bits) == 0 {
                continue;
            }
            let entries = self.summary(segment, &row).await?.unwrap_or_default();
            let spare = entries.iter().filter(|entry| is_set(&row.live, entry.block) && !claims.has(entry.block));
            spare.for_each(|entry| spares.add(entry, segment));
        }
        Ok(spares)
    }

    /// The checksum of a block as the device has it; None if it can't be read.
    pub(super) async fn crc_of(&self, place: Place) -> Result<Option<u32>> {
        let Some(spot) = self.opening.geometry().spot(place) else { return Ok(None) };
        let runtime = self.opening.runtime();
        let buffer = runtime.buffer(BLOCK_BYTES)?;
        let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, buffer).await;
        Ok(result.is_ok().then(|| crc32c(&buffer)))
    }
}
