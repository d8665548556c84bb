//! The live bitmaps of a checkpoint that is under way. Promises: a row goes to the index with its bitmap, whatever of it has changed.

use super::{Row, Table, contradicts, ones};
use crate::format::values::SegmentRow;
use base::{Place, Result, SegmentId};
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;

/// The live bitmaps that a checkpoint writes, before it is durable.
#[derive(Default)]
pub struct Staged {
    pub(super) live: BTreeMap<SegmentId, Vec<u64>>,
}

impl Staged {
    /// Adds the bitmap of a segment as the index has it.
    pub fn load(&mut self, segment: SegmentId, live: Vec<u64>) {
        let before = self.live.insert(segment, live);
        assert!(before.is_none(), "the bitmap of segment {segment} may have changed since it was loaded");
    }
}

impl Table {
    /// Marks a block live in a checkpoint's bitmaps; one that the brick lacks has no bit. Errors: `Corrupt` if another leaf names it
    /// already.
    pub fn stage_live(&self, staged: &mut Staged, place: Place) -> Result<()> {
        if place == Place::MISSING {
            return Ok(());
        }
        let word = self.staged_word(staged, place)?;
        if *word & 1 << (place.block % 64) != 0 {
            return Err(contradicts("the index names a block twice", place));
        }
        *word |= 1 << (place.block % 64);
        Ok(())
    }
    /// Marks a block dead in a checkpoint's bitmaps; one that the brick lacks has no bit. Errors: `Corrupt` if it was not live.
    pub fn stage_dead(&self, staged: &mut Staged, place: Place) -> Result<()> {
        if place == Place::MISSING {
            return Ok(());
        }
        let word = self.staged_word(staged, place)?;
        if *word & 1 << (place.block % 64) == 0 {
            return Err(contradicts("a leaf of the index names a block that is not live", place));
        }
        *word &= !(1 << (place.block % 64));
        Ok(())
    }
    /// The word of a bitmap that has the block's bit. Errors: `Corrupt` if the brick has no such block: the index may
    /// have wrong values under right checksums.
    fn staged_word<'a>(&self, staged: &'a mut Staged, place: Place) -> Result<&'a mut u64> {
        if place.segment.0 as usize >= self.rows.len() {
            return Err(contradicts("a leaf of the index names a block outside the brick", place));
        }
        let known =
            || self.bitmap(place.segment).expect("a checkpoint has loaded the bitmaps that it changes").to_vec();
        let live = staged.live.entry(place.segment).or_insert_with(known);
        let word = usize::from(place.block / 64);
        if live.len() <= word {
            live.resize(word + 1, 0);
        }
        Ok(&mut live[word])
    }
    /// Stages the bitmap of a segment on a disk if memory has it now: its holders may let go of it before it changes. True if it must
    /// be loaded instead.
    pub fn must_load(&self, staged: &mut Staged, segment: SegmentId) -> bool {
        let is_there = (segment.0 as usize) < self.rows.len();
        if !is_there || self.stays(segment) || staged.live.contains_key(&segment) {
            return false;
        }
        match self.bitmap(segment) {
            Some(live) => staged.load(segment, live.to_vec()),
            None => return true,
        }
        false
    }
    /// Segments whose rows a checkpoint must write and whose bitmaps must be loaded for that.
    pub fn to_load(&self, staged: &Staged) -> Vec<SegmentId> {
        let lacks = |segment: &&SegmentId| !staged.live.contains_key(segment) && self.bitmap(**segment).is_none();
        let lacking = self.changed.iter().filter(|segment| lacks(segment) && !active(Bug::BitmapUnloaded));
        lacking.copied().collect()
    }
    /// Takes the rows that a checkpoint must write: all that changed, with their staged bitmaps. Nothing is left `to_load`.
    pub fn stage_rows<'a>(&'a mut self, staged: &'a Staged) -> impl Iterator<Item = (SegmentId, SegmentRow)> + 'a {
        let mut segments = std::mem::take(&mut self.changed);
        segments.extend(staged.live.keys());
        let row = |segment: SegmentId| {
            let row: Row = self.rows[segment.0 as usize];
            let live = staged.live.get(&segment).map(Vec::as_slice).or(self.bitmap(segment));
            assert!(
                live.is_some() || active(Bug::BitmapUnloaded),
                "the row of segment {segment} would lose its bitmap"
            );
            let is_counted = || live.is_none_or(|live| ones(live) == self.live(segment));
            assert!(staged.live.contains_key(&segment) || is_counted(), "nothing in segment {segment} has changed");
            (segment, row.with(live.unwrap_or_default().to_vec()))
        };
        segments.into_iter().map(row)
    }
    /// Takes over the bitmaps of a checkpoint that is durable. Of those of disks nobody may need, only the numbers stay.
    pub fn commit(&mut self, staged: Staged) {
        for (segment, live) in staged.live {
            self.set_bitmap(segment, live);
        }
        let sum: u64 = self.live.iter().map(|&live| u64::from(live)).sum();
        let counted: u64 = self.live_blocks.iter().sum::<u64>() + self.live_missing;
        assert!(sum == counted, "{sum} blocks live, {counted} were counted");
    }
}
