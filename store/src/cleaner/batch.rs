//! The order in which survivors of many victims are written to disk (`Batch`): pure, with bounded memory.
//!
//! A sweep goes through all files, by volume, inode and offset, again and again, as an elevator goes through floors. It takes
//! along what all victims of the batch have at its position: so what lies together in a file gets together on the disk, from
//! as many victims as there is memory for. A victim joins at any time, and is emptied once the sweep has come round to where it
//! joined. If they began and ended together, segments of flash would come free in one lump; as they join one after
//! the other, they come free one after the other.

use crate::format::summary::SummaryEntry;
use base::limits::BLOCK_BYTES;
use base::{Ino, Life, SegmentId, VolumeId};

/// Largest memory of a batch: entries of 1.6 GiB of blocks, 25 full segments. Twice as much would halve the number of
/// pieces in which a file overwritten at random lies on the disk, and be felt on a small machine.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// Number of blocks of a run: 1 MiB, one write.
pub const RUN_BLOCKS: usize = (1 << 20) / BLOCK_BYTES;
const ENTRY_BYTES: usize = size_of::<SummaryEntry>();
const _: () = assert!(ENTRY_BYTES == 40, "the cap is counted in entries of this size");

type Key = (VolumeId, Ino, u64);

fn key(entry: &SummaryEntry) -> Key {
    (entry.volume, entry.ino, entry.offset)
}

/// A block to be destaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survivor {
    /// The segment that it lies in.
    pub segment: SegmentId,
    /// The segment's life when it joined.
    pub life: Life,
    /// The number of its joining: a segment that left may have joined again while this block is on its way.
    join: u64,
    /// The block.
    pub entry: SummaryEntry,
}

/// A victim that has joined. Its entries are given from the sweep's position on to the last, then from the first on.
struct Part {
    segment: SegmentId,
    life: Life,
    join: u64,
    /// Sorted; empty once all were given.
    entries: Vec<SummaryEntry>,
    blocks: usize,
    next: usize,
    given: usize,
    done: usize,
}

impl Part {
    /// The next block, if it lies in what is left of this round.
    fn head(&self, from: Key) -> Option<Key> {
        self.entries.get(self.next).map(key).filter(|&key| key >= from)
    }
    fn give(&mut self) -> Survivor {
        let entry = self.entries[self.next];
        (self.next, self.given) = (self.next + 1, self.given + 1);
        if self.given == self.blocks {
            (self.entries, self.next) = (Vec::new(), 0);
        } else if self.next == self.blocks {
            self.next = 0;
        }
        Survivor { segment: self.segment, life: self.life, join: self.join, entry }
    }
}

/// Victims that are being destaged together.
pub struct Batch {
    bytes_max: usize,
    parts: Vec<Part>,
    /// Number of victims that have joined.
    joins: u64,
    /// The sweep's position: what lies before it comes in the next round.
    position: Key,
    /// Number of blocks of the victim that joined last, and of blocks given since.
    joined: usize,
    given: usize,
}

impl Batch {
    /// A batch that takes at most so much memory, or one victim.
    pub fn new(bytes_max: usize) -> Batch {
        Batch { bytes_max, parts: Vec::new(), joins: 0, position: FIRST, joined: 0, given: 0 }
    }
    /// True if a victim of so many live blocks should join now, given the largest number of victims
    /// (`Thresholds::batch_max`).
    pub fn wants(&self, live: u32, victims_max: usize) -> bool {
        let fits = self.bytes() + live as usize * ENTRY_BYTES <= self.bytes_max && self.parts.len() < victims_max;
        // At first they join twice as fast as they are emptied, but not all at once. Later an eighth faster at most: if two were
        // emptied together, the next two must not be.
        let spaced = if self.parts.len() < victims_max / 2 { self.joined / 2 } else { self.joined * 7 / 8 };
        self.parts.is_empty() || fits && self.given >= spaced
    }
    /// A victim joins. Its entries are those that were live at the last checkpoint, at least one.
    pub fn join(&mut self, segment: SegmentId, life: Life, mut entries: Vec<SummaryEntry>) {
        assert!(!self.contains(segment), "{segment} has joined already");
        assert!(!entries.is_empty(), "{segment} is emptied already");
        entries.sort_unstable_by_key(key);
        entries.shrink_to_fit();
        let blocks = entries.len();
        let next = entries.partition_point(|entry| key(entry) < self.position);
        let next = if next == blocks { 0 } else { next };
        (self.joined, self.given) = (blocks, 0);
        self.joins += 1;
        self.parts.push(Part { segment, life, join: self.joins, entries, blocks, next, given: 0, done: 0 });
    }
    /// The next blocks, in order: a run, to be written in one piece. There are fewer than `blocks_max` (`RUN_BLOCKS`, if there is
    /// no reason for less) at the end of a round only. None if nothing is left to be given.
    pub fn next_run(&mut self, blocks_max: usize) -> Option<Vec<Survivor>> {
        if self.parts.iter().all(|part| part.head(self.position).is_none()) {
            self.position = FIRST;
        }
        let mut run = Vec::with_capacity(blocks_max.min(self.left()));
        while run.len() < blocks_max {
            let from = self.position;
            let heads = self.parts.iter_mut().filter_map(|part| part.head(from).map(|key| (key, part)));
            let Some((key, part)) = heads.min_by_key(|(key, _)| *key) else { break };
            run.push(part.give());
            self.position = key;
        }
        self.given += run.len();
        (!run.is_empty()).then_some(run)
    }
    /// Notes that the moves of a run count, or that its blocks were no longer there. Returns the segments that are emptied
    /// by that; they leave.
    pub fn note_moved(&mut self, run: &[Survivor]) -> Vec<(SegmentId, Life)> {
        for survivor in run {
            // It may have been removed meanwhile.
            if let Some(part) = self.parts.iter_mut().find(|part| part.join == survivor.join) {
                part.done += 1;
                assert!(part.done <= part.given, "{} blocks moved, {} given", part.done, part.given);
            }
        }
        let emptied = |part: &mut Part| part.done == part.blocks;
        self.parts.extract_if(.., emptied).map(|part| (part.segment, part.life)).collect()
    }
    /// Removes a victim that can't be emptied now: this block of it can't be read, or was not moved.
    pub fn remove(&mut self, survivor: &Survivor) {
        self.parts.retain(|part| part.join != survivor.join);
    }
    /// Removes all victims: nobody takes their blocks.
    pub fn clear(&mut self) {
        self.parts.clear();
    }
    /// True if a segment is being emptied.
    pub fn contains(&self, segment: SegmentId) -> bool {
        self.parts.iter().any(|part| part.segment == segment)
    }
    /// Number of blocks that are not given yet.
    pub fn left(&self) -> usize {
        self.parts.iter().map(|part| part.blocks - part.given).sum()
    }
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.entries.capacity() * ENTRY_BYTES).sum()
    }
}

/// The first position of a round.
const FIRST: Key = (VolumeId(0), Ino(0), 0);
