//! The segment table: which segments are free, and which blocks of the others are live (rule K1). The live bits are
//! exact as of the last checkpoint; between checkpoints they may only overstate.

pub mod bulk;
pub mod discard;
pub mod pins;
pub mod prepare;
pub mod summaries;

use crate::format::segment::Stream;
use crate::format::values::{SegmentRow, SegmentState};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Life, Place, Result, SegmentId};
use pins::{Leaving, Pins};
use runtime::seeded::{Bug, active};
use std::collections::{BTreeMap, BTreeSet};

/// The segment table in memory.
pub struct Table {
    rows: Vec<SegmentRow>,
    /// Number of live blocks of each segment as of the last checkpoint.
    live: Vec<u32>,
    live_blocks: u64,
    /// Number of sealed segments without a live block that the last checkpoint could not free yet.
    dead_waiting: u64,
    /// The number, by segment, of the checkpoint (counted from start) before whose cut the segment was sealed.
    sealed_before: Vec<u32>,
    /// Number of the checkpoint that begins next.
    checkpoint: u32,
    free: BTreeSet<SegmentId>,
    /// Freed segments in which readers that looked up a place earlier may still read (rule K8).
    leaving: Leaving<SegmentId>,
    /// Segments freed since start and not yet discarded. Some may still be `leaving`. Segments that recovery freed are
    /// not among them: the life of such a segment may be known from its header only, which a discard would destroy.
    undiscarded: BTreeSet<SegmentId>,
    /// Free segments for whose files the host has no space.
    hidden: BTreeSet<SegmentId>,
    /// The segment that is being discarded, which is not free meanwhile.
    discarding: Option<SegmentId>,
    /// Seeded bug `FreedTwice` only: the segments that the last checkpoint freed.
    freed_before: Vec<SegmentId>,
    /// Segments that the process before this one left open: not taken again in this epoch (rule L4).
    held_back: BTreeSet<SegmentId>,
    /// Rows that the next checkpoint must write.
    changed: BTreeSet<SegmentId>,
    /// Next position in each stream.
    pub next_sequence: [u64; 3],
    /// Next position among all segments opened.
    next_opened: u64,
}

/// The live bitmaps that a checkpoint writes, before it is durable.
#[derive(Default)]
pub struct Staged {
    live: BTreeMap<SegmentId, Vec<u64>>,
}

/// A segment taken into use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The segment.
    pub segment: SegmentId,
    /// The segment's new life.
    pub life: Life,
    /// The segment's position in its stream.
    pub sequence: u64,
    /// Number of blocks at the segment's beginning that have been written in any life. Those behind may never have been
    /// written.
    pub written: u32,
}

/// Classes of segments by the share of their blocks that is live.
pub const TENTHS: usize = 10;

/// Numbers of segments and of live blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentTotals {
    /// Number of segments of the brick, without those for which the host has no space.
    pub segments: u64,
    /// Number of free segments.
    pub free_segments: u64,
    /// Number of segments without a live block that will be free once a checkpoint or their last readers have ended.
    pub emptied_segments: u64,
    /// Number of live blocks as of the last checkpoint.
    pub live_blocks: u64,
}

impl SegmentTotals {
    /// Bytes of live blocks.
    pub fn live_bytes(&self) -> u64 {
        self.live_blocks * BLOCK_BYTES as u64
    }
}

fn stream_slot(stream: Stream) -> usize {
    usize::from(stream.code()) - 1
}

fn never_used() -> SegmentRow {
    let stream = Stream::Commit;
    SegmentRow { state: SegmentState::Free, life: Life(0), stream, sequence: 0, opened: 0, used: 0, live: Vec::new() }
}

impl Table {
    /// A table of `segments` segments that were never used.
    pub fn new(segments: u32) -> Table {
        Table {
            rows: vec![never_used(); segments as usize],
            live: vec![0; segments as usize],
            live_blocks: 0,
            dead_waiting: 0,
            sealed_before: vec![0; segments as usize],
            checkpoint: 1,
            leaving: Leaving::default(),
            undiscarded: BTreeSet::new(),
            hidden: BTreeSet::new(),
            discarding: None,
            freed_before: Vec::new(),
            held_back: BTreeSet::new(),
            free: (0..segments).map(SegmentId).collect(),
            changed: BTreeSet::new(),
            next_sequence: [1; 3],
            next_opened: 1,
        }
    }
    /// Notes that the process before this one has no write in flight any more: its segments may be freed. False if none
    /// was held back.
    pub fn release_held_back(&mut self) -> bool {
        !std::mem::take(&mut self.held_back).is_empty()
    }
    /// Sets a row as the index or recovery found it.
    pub fn restore(&mut self, segment: SegmentId, row: SegmentRow) {
        match row.state {
            SegmentState::Free => self.free.insert(segment),
            _ => self.free.remove(&segment),
        };
        let next = &mut self.next_sequence[stream_slot(row.stream)];
        *next = (*next).max(row.sequence + 1);
        self.next_opened = self.next_opened.max(row.opened + 1);
        self.set_live(segment, ones(&row.live));
        self.rows[segment.0 as usize] = row;
    }
    fn set_live(&mut self, segment: SegmentId, live: u32) {
        let counted = &mut self.live[segment.0 as usize];
        assert!(self.live_blocks >= u64::from(*counted), "the sum holds what segment {segment} had");
        self.live_blocks = self.live_blocks - u64::from(*counted) + u64::from(live);
        *counted = live;
    }
    /// Notes that the process before this one left the segment open: that process's late writes may still hit it.
    pub fn hold_back(&mut self, segment: SegmentId) {
        self.held_back.insert(segment);
    }
    /// A row.
    pub fn row(&self, segment: SegmentId) -> Option<&SegmentRow> {
        self.rows.get(segment.0 as usize)
    }
    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, &SegmentRow)> {
        self.rows.iter().enumerate().map(|(number, row)| (SegmentId(number as u32), row))
    }
    /// The position that a segment opened now would get among all segments opened.
    pub fn next_opened(&self) -> u64 {
        self.next_opened
    }
    /// The position that the next segment taken for a stream will get in it.
    pub fn next_in(&self, stream: Stream) -> u64 {
        self.next_sequence[stream_slot(stream)]
    }
    /// Takes a free segment into its next life. None if none is free. No checkpoint writes the segment's row before
    /// `note_ready`: a row that says "in use" proves that a header is on the device.
    pub fn take(&mut self, stream: Stream) -> Option<Taken> {
        let segment = self.free.pop_first()?;
        self.undiscarded.remove(&segment);
        let next = &mut self.next_sequence[stream_slot(stream)];
        let sequence = *next;
        *next += 1;
        let row = &mut self.rows[segment.0 as usize];
        assert!(row.state == SegmentState::Free, "segment {segment} is taken while it is {:?}", row.state);
        assert!(!self.held_back.contains(&segment), "late writes may hit segment {segment} (rule L4)");
        assert!(self.discarding != Some(segment), "segment {segment} is being discarded");
        assert!(row.live.iter().all(|&word| word == 0), "a free segment has no live block");
        // A commit segment was filled before its use. Of other segments the used part was written, except for what a
        // crash may have prevented.
        let filled = row.life > Life(0) && row.stream == Stream::Commit;
        let written = if filled { u32::MAX } else { row.used };
        *row = SegmentRow {
            state: SegmentState::Open,
            life: Life(row.life.0 + 1),
            stream,
            sequence,
            opened: self.next_opened,
            used: 1,
            live: Vec::new(),
        };
        self.next_opened += 1;
        self.changed.remove(&segment);
        Some(Taken { segment, life: row.life, sequence, written })
    }
    /// The next segment for which a file is to be made: the first free one behind the first `made` segments, if at most
    /// `ahead` of these are free.
    pub fn next_unmade(&self, made: u32, ahead: usize) -> Option<SegmentId> {
        let next = self.free.range(SegmentId(made)..).next()?;
        let enough = self.free.range(..SegmentId(made)).nth(ahead).is_some();
        (!enough).then_some(*next)
    }
    /// Gives back a segment that was taken but could not be made ready: nothing but a header may have been written in
    /// this life.
    pub fn give_back(&mut self, segment: SegmentId) {
        // Marked as not of the commit stream, so that it counts as not filled.
        let row = &mut self.rows[segment.0 as usize];
        (row.state, row.stream) = (SegmentState::Free, Stream::Bulk);
        assert!(row.used <= 1, "segment {segment} has been written to in this life");
        self.free.insert(segment);
        self.changed.insert(segment);
    }
    /// Hides free segments whose files are not `made`, until `show_hidden`.
    pub fn hide(&mut self, made: impl Fn(SegmentId) -> bool) {
        let hidden = self.free.extract_if(.., |segment| !made(*segment));
        self.hidden.extend(hidden);
    }
    /// Makes hidden segments free again. False if there was none.
    pub fn show_hidden(&mut self) -> bool {
        let some = !self.hidden.is_empty();
        self.free.append(&mut self.hidden);
        some
    }
    /// Number of segments for which the host has no space.
    pub fn hidden(&self) -> usize {
        self.hidden.len()
    }
    /// Notes that the header of a segment taken is durable.
    pub fn note_ready(&mut self, segment: SegmentId) {
        let state = self.rows[segment.0 as usize].state;
        assert!(state == SegmentState::Open, "segment {segment} is made ready while it is {state:?}");
        self.changed.insert(segment);
    }
    /// Changes a segment's state and how far it is used.
    pub fn set_state(&mut self, segment: SegmentId, state: SegmentState, used: u32) {
        let row = &mut self.rows[segment.0 as usize];
        let closes = state == SegmentState::Closed && row.state != SegmentState::Open;
        assert!(!closes || active(Bug::TailReused), "segment {segment} is closed while it is {:?}", row.state);
        row.state = state;
        row.used = row.used.max(used);
        if state == SegmentState::Free {
            assert!(row.live.iter().all(|&word| word == 0), "only a segment without live blocks is freed");
            self.free.insert(segment);
        }
        if state == SegmentState::Sealed {
            self.sealed_before[segment.0 as usize] = self.checkpoint;
        }
        self.changed.insert(segment);
    }

    /// Notes that a checkpoint makes its cut: it has all records that lie in segments sealed before, or name them.
    pub fn begin_checkpoint(&mut self) {
        self.checkpoint += 1;
    }
    /// Called when a checkpoint is durable (rule K3): frees sealed segments without a live block, if all records that
    /// lie in them or name them are part of the checkpoint. `replay_sequence`: the position of the segment where replay
    /// would start.
    pub fn free_dead(&mut self, replay_sequence: u64) {
        let mut dead: Vec<_> = self.dead(replay_sequence).collect();
        if active(Bug::FreedTwice) {
            dead.append(&mut self.freed_before);
            self.freed_before.clone_from(&dead);
        }
        for &segment in &dead {
            self.rows[segment.0 as usize].state = SegmentState::Free;
        }
        // What is left are segments of the log that replay would still read.
        self.dead_waiting = self.dead(u64::MAX).count() as u64;
        self.changed.extend(&dead);
        self.undiscarded.extend(&dead);
        self.leaving.extend(dead);
    }
    fn dead(&self, replay_sequence: u64) -> impl Iterator<Item = SegmentId> + '_ {
        self.iter().filter_map(move |(segment, row)| {
            let number = segment.0 as usize;
            let past = row.stream != Stream::Commit || row.sequence < replay_sequence;
            let dead = row.state == SegmentState::Sealed && self.live[number] == 0;
            let known = self.sealed_before[number] < self.checkpoint && !self.held_back.contains(&segment);
            (dead && past && known).then_some(segment)
        })
    }
    /// Makes freed segments without readers free to be taken.
    pub fn free_unread(&mut self, pins: &Pins) {
        for segment in self.leaving.take_unread(pins) {
            let state = self.rows[segment.0 as usize].state;
            assert!(state == SegmentState::Free, "segment {segment} was freed, and is {state:?}");
            self.free.insert(segment);
        }
    }
    /// Takes a free segment out to be discarded, if at least `least` are left. None if there is none to discard.
    pub fn begin_discard(&mut self, least: usize) -> Option<SegmentId> {
        assert!(self.discarding.is_none(), "one at a time");
        if self.free.len() <= least {
            return None;
        }
        // The last one: segments with low numbers are taken first and will be written soon anyway.
        let segment = *self.undiscarded.iter().rev().find(|segment| self.free.contains(segment))?;
        let state = self.rows[segment.0 as usize].state;
        assert!(state == SegmentState::Free, "segment {segment} is discarded while it is {state:?}");
        self.free.remove(&segment);
        self.discarding = Some(segment);
        self.discarding
    }
    /// Makes the discarded segment free again.
    pub fn end_discard(&mut self) {
        let segment = self.discarding.take().expect("one was taken out");
        self.undiscarded.remove(&segment);
        self.free.insert(segment);
    }
    /// Seeded bug `DiscardedBeforeCheckpoint` only: segments that are empty once the checkpoint is durable.
    pub fn about_to_die(&self, staged: &Staged, replay_sequence: u64) -> Vec<SegmentId> {
        let empty = |(segment, live): (&SegmentId, &Vec<u64>)| {
            let row = &self.rows[segment.0 as usize];
            let past = row.stream != Stream::Commit || row.sequence < replay_sequence;
            let known = self.sealed_before[segment.0 as usize] < self.checkpoint;
            (ones(live) == 0 && row.state == SegmentState::Sealed && past && known).then_some(*segment)
        };
        staged.live.iter().filter_map(empty).collect()
    }
    /// Adds segments that were never used.
    pub fn grow(&mut self, segments: u32) {
        let before = self.rows.len() as u32;
        assert!(segments >= before, "bricks don't shrink");
        assert!(self.live.len() == self.rows.len() && self.sealed_before.len() == self.rows.len());
        self.rows.resize(segments as usize, never_used());
        self.live.resize(segments as usize, 0);
        self.sealed_before.resize(segments as usize, 0);
        self.free.extend((before..segments).map(SegmentId));
    }
    /// Number of segments that were opened since this one, over all streams.
    pub fn age(&self, row: &SegmentRow) -> u64 {
        assert!(row.opened < self.next_opened, "no segment is younger than the next one");
        self.next_opened - 1 - row.opened
    }
    /// True if the last checkpoint found live blocks in a segment.
    pub fn is_live(&self, segment: SegmentId) -> bool {
        self.live[segment.0 as usize] > 0
    }
    /// Sealed segments whose records are all in the last checkpoint: what the cleaner may choose from (rule K1).
    pub fn cleanable(&self, replay_sequence: u64) -> impl Iterator<Item = (SegmentId, &SegmentRow, u32)> {
        self.iter().filter_map(move |(segment, row)| {
            let number = segment.0 as usize;
            let past = row.stream != Stream::Commit || row.sequence < replay_sequence;
            let known = self.sealed_before[number] < self.checkpoint && !self.held_back.contains(&segment);
            let sealed = row.state == SegmentState::Sealed && self.live[number] > 0;
            (sealed && past && known).then(|| (segment, row, self.live[number]))
        })
    }
    /// Number of free segments.
    pub fn free(&self) -> usize {
        self.free.len()
    }
    /// The present totals.
    pub fn totals(&self) -> SegmentTotals {
        SegmentTotals {
            segments: (self.rows.len() - self.hidden.len()) as u64,
            free_segments: self.free.len() as u64 + u64::from(self.discarding.is_some()),
            emptied_segments: self.dead_waiting + self.leaving.count() as u64,
            live_blocks: self.live_blocks,
        }
    }
    /// Numbers of segments in use, by the tenth of their `blocks` blocks that is live.
    pub fn liveness(&self, blocks: u32) -> [u64; TENTHS] {
        let mut numbers = [0; TENTHS];
        for (segment, row) in self.iter() {
            if row.state != SegmentState::Free && !self.hidden.contains(&segment) {
                let tenth = u64::from(self.live[segment.0 as usize]) * TENTHS as u64 / u64::from(blocks.max(1));
                numbers[(tenth as usize).min(TENTHS - 1)] += 1;
            }
        }
        numbers
    }
    /// Marks a block live in a checkpoint's bitmaps. Errors: `Corrupt` if another leaf names it already.
    pub fn stage_live(&self, staged: &mut Staged, place: Place) -> Result<()> {
        let word = self.staged_word(staged, place)?;
        if *word & 1 << (place.block % 64) != 0 {
            return Err(contradicts("the index names a block twice", place));
        }
        *word |= 1 << (place.block % 64);
        Ok(())
    }
    /// Marks a block dead in a checkpoint's bitmaps. Errors: `Corrupt` if it was not live.
    pub fn stage_dead(&self, staged: &mut Staged, place: Place) -> Result<()> {
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
        let live = staged.live.entry(place.segment).or_insert_with(|| self.rows[place.segment.0 as usize].live.clone());
        let word = usize::from(place.block / 64);
        if live.len() <= word {
            live.resize(word + 1, 0);
        }
        Ok(&mut live[word])
    }
    /// Takes the rows that a checkpoint must write: all that changed, with their staged bitmaps.
    pub fn stage_rows(&mut self, staged: &Staged) -> Vec<(SegmentId, SegmentRow)> {
        let mut segments = std::mem::take(&mut self.changed);
        segments.extend(staged.live.keys());
        let row = |segment: SegmentId| {
            let mut row = self.rows[segment.0 as usize].clone();
            if let Some(live) = staged.live.get(&segment) {
                row.live.clone_from(live);
            }
            (segment, row)
        };
        segments.into_iter().map(row).collect()
    }
    /// Takes over the bitmaps of a checkpoint that is durable.
    pub fn commit(&mut self, staged: Staged) {
        for (segment, live) in staged.live {
            self.set_live(segment, ones(&live));
            self.rows[segment.0 as usize].live = live;
        }
        let sum: u64 = self.live.iter().map(|&live| u64::from(live)).sum();
        assert!(sum == self.live_blocks, "{sum} blocks live, {} were counted", self.live_blocks);
    }
}

fn contradicts(what: &'static str, place: Place) -> Error {
    let next = "stop the brick, then `sinter check --repair`";
    Error::new(Kind::Corrupt, what).with(format!("{place:?}; {next}"))
}

fn ones(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

/// Bytes of a number of blocks.
pub fn block_bytes(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_the_same_after_a_restart() {
        let mut table = Table::new(6);
        for stream in [Stream::Commit, Stream::Bulk, Stream::Commit, Stream::Cold] {
            table.take(stream).expect("segments are free");
        }
        let mut after = Table::new(6);
        table.iter().for_each(|(segment, row)| after.restore(segment, row.clone()));
        for table in [table, after] {
            let ages = table.iter().take(4).map(|(_, row)| table.age(row));
            assert_eq!(ages.collect::<Vec<_>>(), [3, 2, 1, 0], "others opened since");
        }
    }

    #[test]
    fn of_a_segment_that_was_used_the_commit_stream_fills_the_rest() {
        let mut table = Table::new(1);
        let mut lives =
            [(Stream::Cold, 9, 0), (Stream::Commit, 7, 9), (Stream::Bulk, 5, u32::MAX), (Stream::Commit, 3, 5)]
                .into_iter();
        for (stream, used, written) in lives.by_ref() {
            let taken = table.take(stream).expect("it is free");
            assert_eq!(taken.written, written, "{stream:?}");
            table.set_state(taken.segment, SegmentState::Free, used);
        }
        let taken = table.take(Stream::Bulk).expect("it is free");
        table.give_back(taken.segment);
        assert!(table.take(Stream::Commit).expect("it is free").written <= 1, "who knows what was written");
    }

    #[test]
    fn segments_in_use_are_counted_by_how_live_they_are() {
        let mut table = Table::new(4);
        let segments = [(); 3].map(|()| table.take(Stream::Bulk).expect("segments are free").segment);
        let mut staged = Staged::default();
        let mut live = |segment, count: u16| {
            for block in 0..count {
                table.stage_live(&mut staged, Place { segment, block }).expect("it is not live");
            }
        };
        live(segments[1], 3);
        live(segments[2], 20);
        table.commit(staged);
        assert_eq!(table.liveness(20), [1, 1, 0, 0, 0, 0, 0, 0, 0, 1], "none, 3 and 20 of 20 blocks");
        assert_eq!(Table::new(4).liveness(20), [0; TENTHS]);
    }

    /// A few such segments would keep much space from being used.
    #[test]
    fn a_segment_with_one_live_block_can_be_cleaned() {
        let mut table = Table::new(3);
        let segments = [(); 2].map(|()| table.take(Stream::Bulk).expect("segments are free").segment);
        segments.iter().for_each(|&segment| table.set_state(segment, SegmentState::Sealed, 9));
        let mut staged = Staged::default();
        table.stage_live(&mut staged, Place { segment: segments[1], block: 7 }).expect("it is not live");
        table.begin_checkpoint();
        table.commit(staged);
        let cleanable = table.cleanable(1).map(|(segment, _, live)| (segment, live));
        assert_eq!(cleanable.collect::<Vec<_>>(), [(segments[1], 1)], "a dead one is freed without");
    }
}
