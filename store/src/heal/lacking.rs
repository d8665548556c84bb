//! The blocks that a brick lacks, for who fetches them.

use super::files;
use super::walk::{self, Phase};
use crate::format::keys;
use crate::format::leaf::{Leaf, Slot};
use crate::index::Index;
use base::limits::BLOCKS_PER_LEAF;
use base::{GroupId, Ino, LeafKey, Place, Result, VolumeId};
use std::collections::BTreeSet;

/// Number of leaves read at a time.
const ROWS: usize = 256;
/// Number of leaves that are looked at before a search returns, whatever it has found.
const LEAVES_MAX: usize = 4096;

/// Consecutive blocks of a leaf that the brick lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// The volume.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// The number of the first block within it.
    pub first: u64,
    /// The checksums of them all.
    pub crcs: Vec<u32>,
}

impl Lacking {
    /// Adds a missing block, which comes after those that are there, to their last run or as a new one.
    pub fn add(runs: &mut Vec<Lacking>, (volume, ino): (VolumeId, Ino), block: u64, crc: u32) {
        match runs.last_mut() {
            Some(last)
                if (last.volume, last.ino, last.first + last.crcs.len() as u64) == (volume, ino, block)
                    && !block.is_multiple_of(BLOCKS_PER_LEAF as u64) =>
            {
                last.crcs.push(crc);
            }
            _ => runs.push(Lacking { volume, ino, first: block, crcs: vec![crc] }),
        }
    }
}

/// The result of a search for missing blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The blocks, in the order of volume, file and number.
    pub lacking: Vec<Lacking>,
    /// The leaf behind which to go on; None at the end.
    pub next: Option<(VolumeId, LeafKey)>,
    /// Number of blocks in `lacking`.
    pub blocks: u64,
}

/// Looks for the missing blocks of a group in leaves behind `after`, or in all of them, until it has `limit` blocks, or up to 63 more, or has looked
/// long enough. Leaves that are left to free lack nothing. Blocks. Errors: those of the index; `Corrupt`.
pub fn missing(index: &dyn Index, group: GroupId, after: Option<(VolumeId, LeafKey)>, limit: usize) -> Result<Found> {
    assert!(limit > 0, "who looks for nothing gets no further");
    let (mut from, to) = keys::in_group(group);
    if let Some((volume, at)) = after {
        from = keys::after(&keys::leaf(volume, at));
    }
    let mut found = Found::default();
    for _ in 0..LEAVES_MAX / ROWS {
        let rows = walk::scan(index, Phase::Leaves, (from, to.clone()), ROWS)?;
        let mut leaves = Vec::with_capacity(rows.len());
        for (key, value) in &rows {
            let volume = keys::row(key).expect("the key of a leaf").1;
            leaves.push((volume, keys::leaf_of(key), Leaf::decode(value)?));
        }
        let lacks = |leaf: &Leaf| leaf.places().any(|place| place == Place::MISSING);
        let of: BTreeSet<_> =
            leaves.iter().filter(|(.., leaf)| lacks(leaf)).map(|(volume, at, _)| (*volume, at.ino)).collect();
        let files = files(index, group, &of)?;
        for (volume, at, leaf) in leaves {
            found.next = Some((volume, at));
            let file = files.get(&(volume, at.ino));
            if lacks(&leaf) && file.is_some_and(|file| file.counts(at.leaf, leaf.trim)) {
                found.add(volume, at, &leaf);
            }
            if found.blocks >= limit as u64 {
                return Ok(found);
            }
        }
        match rows.last() {
            Some((key, _)) if rows.len() == ROWS => from = keys::after(key),
            _ => return Ok(Found { next: None, ..found }),
        }
    }
    Ok(found)
}

impl Found {
    fn add(&mut self, volume: VolumeId, at: LeafKey, leaf: &Leaf) {
        for (index, slot) in leaf.iter() {
            let Slot::Local { place: Place::MISSING, crc, .. } = slot else { continue };
            self.blocks += 1;
            Lacking::add(&mut self.lacking, (volume, at.ino), at.leaf * BLOCKS_PER_LEAF as u64 + index as u64, crc);
        }
    }
}
