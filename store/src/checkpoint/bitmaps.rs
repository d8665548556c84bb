//! The rows of segments in a checkpoint. Of a segment on a disk memory has no live bitmap: the checkpoint loads those that it
//! changes, and those of rows that changed otherwise, for a row is written as a whole. What it has loaded is gone when it ends.
//!
//! Bounds: it takes memory for a bitmap of each disk segment that it changes, 2 KiB of 64 MiB, and once more for the row that the index
//! gets. Freeing of what was cut counts that as freed slots (`Freed`): at most 15,000 segments, 60 MB. Clients touch at most one
//! segment with each block that they map, at worst all of them (decision 0066).

use super::{Touched, Work, summaries};
use crate::Store;
use crate::format::keys;
use crate::format::leaf::Slot;
use crate::format::values::{self, ReplayRow};
use crate::index::IndexEdit;
use crate::segments::bitmaps::compare;
use crate::segments::{Staged, Table};
use base::limits::BLOCKS_PER_LEAF;
use base::{Place, Result, SegmentId};
use runtime::seeded::{Bug, active};
use std::collections::{BTreeMap, BTreeSet};

/// Number of rows read at a time.
const ROWS: usize = 256;
/// Blocks of a segment per slot that could be freed instead: a bitmap and the row that is made of it take as much memory as so many
/// slots (`FreeLimits`).
const BLOCKS_PER_SLOT: u32 = 128;

/// The segments on disks in which a checkpoint frees blocks of what was cut: their bitmaps count as freed slots do.
#[derive(Default)]
pub(super) struct Freed {
    /// Cost of a bitmap, as a number of slots; 0 if the brick has no disks.
    slots: usize,
    segments: BTreeSet<SegmentId>,
}

impl Freed {
    /// None yet.
    pub fn of(store: &Store) -> Freed {
        let loads = store.table.lock().leaves_bitmaps_out();
        let slots = if loads { (store.geometry.blocks() / BLOCKS_PER_SLOT).max(1) as usize } else { 0 };
        Freed { slots, segments: BTreeSet::new() }
    }
    /// Notes that blocks are freed. Returns the cost of bitmaps that nothing freed before has needed.
    pub fn slots(&mut self, store: &Store, places: impl Iterator<Item = Place>) -> usize {
        if self.slots == 0 {
            return 0;
        }
        let new = places.filter(|&place| store.is_on_disk(place) && self.segments.insert(place.segment));
        new.count() * self.slots
    }
    /// The highest cost of a leaf's bitmaps.
    pub fn slots_of_leaf(&self) -> usize {
        BLOCKS_PER_LEAF * self.slots
    }
}

impl Work {
    /// Loads the bitmaps of segments on disks in which blocks become live or dead.
    pub(super) fn load_bitmaps(&mut self, store: &Store) -> Result<()> {
        if !store.table.lock().leaves_bitmaps_out() {
            return Ok(());
        }
        let mut segments: BTreeSet<SegmentId> = self.dead.iter().chain(&self.live).map(|place| place.segment).collect();
        for Touched { old, new, .. } in self.leaves.values() {
            for index in 0..BLOCKS_PER_LEAF {
                let (before, after) = (old.get(index), new.get(index));
                let changed = [before, after].into_iter().flatten().filter(|_| before != after);
                segments.extend(changed.filter_map(|slot| match slot {
                    Slot::Local { place, .. } => Some(place.segment),
                    Slot::Hole => None,
                }));
            }
        }
        load(store, &mut self.staged, segments)
    }
}

fn load(store: &Store, staged: &mut Staged, segments: impl IntoIterator<Item = SegmentId>) -> Result<()> {
    let segments: Vec<_> = {
        let table = store.table.lock();
        segments.into_iter().filter(|&segment| table.must_load(staged, segment)).collect()
    };
    for some in segments.chunks(ROWS) {
        for (&segment, row) in some.iter().zip(store.indexed_rows(some)?) {
            compare(&store.table.lock(), segment, &row)?;
            staged.load(segment, row.live);
        }
    }
    Ok(())
}

/// Rows of segments, with what is staged, and the positions of streams. Errors: `Corrupt`, `Io`.
pub(super) fn rows(
    store: &Store,
    staged: &mut Staged,
    (summaries, edits): (&mut BTreeMap<SegmentId, usize>, &mut Vec<IndexEdit>),
    replay: ReplayRow,
) -> Result<ReplayRow> {
    loop {
        let to_load = {
            let mut table = store.table.lock();
            let to_load = table.to_load(staged);
            if to_load.is_empty() {
                return Ok(put(&mut table, staged, (summaries, edits), replay));
            }
            to_load
        };
        // Without the lock: another segment may change meanwhile.
        load(store, staged, to_load)?;
    }
}

/// Rows of segments as `staged` has them, and the positions of streams.
pub(super) fn put(
    table: &mut Table,
    staged: &Staged,
    (summaries, edits): (&mut BTreeMap<SegmentId, usize>, &mut Vec<IndexEdit>),
    replay: ReplayRow,
) -> ReplayRow {
    summaries::drop_sealed(table, summaries, edits);
    for (segment, row) in table.stage_rows(staged) {
        if !active(Bug::BitmapDropped) || row.live.is_empty() {
            edits.push(IndexEdit::Put(keys::segment(segment), values::encode_segment(&row)));
        }
    }
    ReplayRow { next_sequence: table.next_sequence, ..replay }
}
