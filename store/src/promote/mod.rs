//! Promotion: clean copies on flash of blocks whose home is a segment on disk, for who reads them again.
//!
//! A place holds one content for as long as its segment's life. So no write makes a copy void, and dropping one takes no I/O. A
//! segment that begins another life ends all copies of its blocks at once. The map from places on disk to copies is in
//! memory alone, of a stated size; copies are of no use after a restart, and nothing depends on them.
//!
//! A block is copied when it is read from disk for the second time while a list of what was read once remembers it ("ghost"); what is
//! streamed or read ahead is neither copied nor remembered. Segments with copies are dropped whole, oldest first; what was asked for since
//! it was copied is copied anew before. So one pass over much replaces nothing, and what is hot stays (as in "S3-FIFO": J.
//! Yang, Y. Zhang, Z. Qiu, Y. Yue, R. Vinayak, "FIFO queues are all you need for cache eviction", 2023; its queue of new objects is
//! the read cache above).
//!
//! Whoever takes a copy compares its checksum as with what the disk gives, while its pin lives (rule K8); a segment with
//! copies is written again only after `drop_segment` and when all pins have ended that were there then. Copies are entered by one task, in the order of
//! their segments (`drive`). *Absent* but for the drive: I/O, clocks. Memory: `Size` says how much; a look allocates none.

mod core;
pub mod drive;
mod ghost;
mod journal;
mod map;
#[cfg(test)]
mod tests;

pub use self::core::{Cause, Order, Sight, Step, budget};
pub use self::journal::{DECISIONS_MAX, Decision, Reason, Verdict};
use crate::read_cache::mixed;
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{Place, SegmentId};
use ghost::Ghost;
use journal::Journal;
use map::{GROUP, Key, Map, bits};
use runtime::Lock;
use runtime::lock::LockSummary;
use runtime::seeded::{Bug, active};
use std::sync::atomic::{AtomicU16, Ordering};

/// Blocks of a unit, aligned on disk, whose copies one shard knows: a read takes one lock, or two.
const UNIT: u32 = 256;
/// Most blocks of one read.
const READ_BLOCKS_MAX: usize = IO_BYTES_MAX / BLOCK_BYTES;
const _: () = assert!(UNIT.is_multiple_of(GROUP) && READ_BLOCKS_MAX <= 256);
/// Most shards: so many that cores seldom meet in one.
const SHARDS_MAX: u64 = 64;
/// A bound of what a lock's histograms take.
const LOCK_BYTES: u64 = 5 << 10;
/// A shard is many times as large as its lock.
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// Most pieces of flash that one read takes its copies from. They are read at the same time, and beside a seek they would have to
/// be many more to be slow.
pub const PARTS_MAX: usize = 32;
/// The era of a segment that has begun too many lives to tell them apart: nothing of it is copied until the next start.
const WORN: u16 = u16::MAX;

/// The size of a promotion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Bytes of memory that it never exceeds.
    pub bytes: u64,
    /// Segments that the brick may ever have.
    pub segments: u32,
    /// Blocks of a segment on flash.
    pub blocks: u32,
}

/// The kind of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// A client wants these blocks, and perhaps again.
    Client,
    /// A client reads a file from end to end.
    Stream,
    /// Nobody has asked yet.
    Ahead,
}

/// A read of blocks whose home is a segment on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// The first block.
    pub place: Place,
    /// Number of blocks.
    pub count: u32,
    /// The kind of the read.
    pub reader: Reader,
    /// The clock.
    pub at_ns: u64,
}

/// The answer to a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// There are copies of all blocks.
    Copied(Parts),
    /// The disk has to be read, and these of the blocks are worth copying.
    Admitted(Offer),
    /// The disk has to be read.
    Disk,
}

/// The copies of a read's blocks, in their order: pieces of flash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    parts: [(Place, u32); PARTS_MAX],
    count: usize,
    /// There were more.
    scattered: bool,
}

impl Default for Parts {
    fn default() -> Parts {
        let nowhere = Place { segment: SegmentId(0), block: 0 };
        Parts { parts: [(nowhere, 0); PARTS_MAX], count: 0, scattered: false }
    }
}

impl Parts {
    fn push(&mut self, place: Place) {
        if let Some((first, blocks)) = self.parts[..self.count].last_mut()
            && first.segment == place.segment
            && u32::from(first.block) + *blocks == u32::from(place.block)
        {
            *blocks += 1;
        } else if self.count < PARTS_MAX {
            self.parts[self.count] = (place, 1);
            self.count += 1;
        } else {
            self.scattered = true;
        }
    }
    /// The first block of the only piece; None if there are several.
    pub fn whole(&self) -> Option<Place> {
        (self.count == 1).then_some(self.parts[0].0)
    }
    /// The pieces: the first block of each, and the number of its blocks.
    pub fn iter(&self) -> impl Iterator<Item = (Place, u32)> {
        self.parts[..self.count].iter().copied()
    }
}

/// Some of the blocks of a read, by their numbers in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Blocks([u64; READ_BLOCKS_MAX / 64]);

impl Blocks {
    fn add(&mut self, number: u32) {
        self.0[number as usize / 64] |= 1 << (number % 64);
    }
    fn has(&self, number: u32) -> bool {
        self.0[number as usize / 64] & 1 << (number % 64) != 0
    }
    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Blocks of a read that are worth copying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    place: Place,
    count: u32,
    era: u16,
    blocks: Blocks,
    reason: Reason,
}

impl Offer {
    /// The reason for which they are worth it.
    pub fn reason(&self) -> Reason {
        self.reason
    }
    /// The runs of blocks to be copied: where each begins in what was read, and the blocks, whose place on flash is not known yet.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Wanted)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = (at..self.count).find(|number| self.blocks.has(*number))?;
            let end = (first..self.count).find(|number| !self.blocks.has(*number)).unwrap_or(self.count);
            at = end;
            let from = self.place.advance(first);
            Some((first, Wanted { from, era: self.era, count: end - first }))
        })
    }
    /// Number of blocks to be copied.
    pub fn blocks(&self) -> u32 {
        self.blocks.count()
    }
}

/// Blocks that are to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The first one's place on disk.
    pub from: Place,
    /// Number of blocks.
    pub count: u32,
    era: u16,
}

impl Wanted {
    /// Splits the first blocks off, which are written to a place on flash.
    pub fn split(&mut self, count: u32, to: Place) -> Copied {
        assert!(count > 0 && count <= self.count, "{count} of {} blocks", self.count);
        let copied = Copied { from: self.from, era: self.era, to, count };
        self.count -= count;
        if self.count > 0 {
            self.from = self.from.advance(count);
        }
        copied
    }
}

/// Blocks and their copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The first block's place on disk.
    pub from: Place,
    era: u16,
    /// The first copy's place on flash.
    pub to: Place,
    /// Number of blocks.
    pub count: u32,
}

impl Copied {
    /// True if `next` is what follows, on disk and on flash.
    fn goes_on(&self, next: &Copied) -> bool {
        let follows = |one: Place, next: Place| {
            one.segment == next.segment && u32::from(one.block) + self.count == u32::from(next.block)
        };
        self.era == next.era && follows(self.from, next.from) && follows(self.to, next.to)
    }
    /// Splits the first blocks off.
    fn split(&mut self, count: u32) -> Copied {
        let part = Copied { count, ..*self };
        assert!(count > 0 && count <= self.count, "{count} of {} blocks", self.count);
        self.count -= count;
        if self.count > 0 {
            (self.from, self.to) = (self.from.advance(count), self.to.advance(count));
        }
        part
    }
    /// The same blocks, to be copied again.
    pub fn wanted(&self) -> Wanted {
        Wanted { from: self.from, era: self.era, count: self.count }
    }
}

/// The figures since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Blocks with a home on disk that were read from their copies.
    pub found: u64,
    /// Blocks with a home on disk for which the disk had to be read.
    pub missed: u64,
    /// Blocks of flash that hold copies now.
    pub held: u64,
    /// Entries of the map.
    pub entries: u64,
}

/// See the module.
pub struct Promotion {
    shards: Vec<Lock<Shard>>,
    /// Lives that segments have begun since start.
    eras: Vec<AtomicU16>,
    journal: Lock<Journal>,
}

struct Shard {
    map: Map,
    ghost: Ghost,
    found: u64,
    missed: u64,
}

impl Size {
    fn fixed_bytes(&self, shards: u64) -> u64 {
        u64::from(self.segments) * size_of::<AtomicU16>() as u64
            + Journal::bytes_of()
            + (size_of::<Lock<Shard>>() as u64 + LOCK_BYTES) * shards
            + LOCK_BYTES
    }
    /// Segments that hold so many entries, if these are full ones and each entry tells of a whole group; and those that are being
    /// replaced.
    fn segments_of(&self, entries: u64) -> usize {
        (entries * u64::from(GROUP) / u64::from(self.blocks)) as usize + 2
    }
    fn shard_bytes(&self, shards: u64, entries: u32) -> u64 {
        Map::bytes_of(entries, self.segments_of(shards * u64::from(entries))) + Ghost::bytes_of(entries)
    }
    /// The number of shards, and of entries of each; none if there is no room for any.
    fn shares(&self) -> (u64, u32) {
        let shards = (self.bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let bytes = self.bytes.saturating_sub(self.fixed_bytes(shards)) / shards;
        let (mut fits, mut too_many) = (0, 1 << 28);
        while too_many - fits > 1 {
            let entries = fits + (too_many - fits) / 2;
            if self.shard_bytes(shards, entries) <= bytes { fits = entries } else { too_many = entries }
        }
        if fits < GROUP { (0, 0) } else { (shards, fits) }
    }
}

impl Promotion {
    /// A promotion of this size, without copies.
    pub fn new(size: Size) -> Promotion {
        assert!(size.blocks > 1 && size.blocks <= 1 << 16, "blocks of a segment have 16 bits");
        let (shards, entries) = size.shares();
        let segments = size.segments_of(shards * u64::from(entries));
        let shard = || {
            let (map, ghost) = (Map::new(entries, segments), Ghost::new(entries));
            Lock::new("promotion", Shard { map, ghost, found: 0, missed: 0 })
        };
        let eras = if shards == 0 { 0 } else { size.segments };
        let promotion = Promotion {
            shards: (0..shards).map(|_| shard()).collect(),
            eras: (0..eras).map(|_| AtomicU16::new(0)).collect(),
            journal: Lock::new("promotions", Journal::new()),
        };
        assert!(shards == 0 || promotion.bytes() <= size.bytes, "it stays below its bound");
        promotion
    }
    /// A bound of the memory that it has taken; the system backs it as it is used.
    pub fn bytes(&self) -> u64 {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            shard.map.bytes() + shard.ghost.bytes() + size_of::<Lock<Shard>>() as u64 + LOCK_BYTES
        });
        let eras = self.eras.capacity() * size_of::<AtomicU16>();
        shards.sum::<u64>() + eras as u64 + self.journal.lock().bytes() + LOCK_BYTES
    }
    /// True if there is room for any copy.
    pub fn has_room(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Looks for copies of what is about to be read. The reader's pin lives. Of blocks that must be read from disk, it
    /// says whether they are worth copying, and remembers them.
    pub fn look(&self, read: Read) -> Look {
        let Read { place, count, reader, at_ns } = read;
        assert!(count > 0 && count as usize <= READ_BLOCKS_MAX, "a read has 1 to {READ_BLOCKS_MAX} blocks");
        let Some(era) = self.era(place.segment) else {
            if self.has_room() {
                self.note(Reason::Worn, place, count, at_ns);
            }
            return Look::Disk;
        };
        let (mut parts, mut missing, mut again) = (Parts::default(), Blocks::default(), Blocks::default());
        let end = u32::from(place.block) + count;
        let mut at = u32::from(place.block);
        while at < end {
            let unit_end = end.min((at | (UNIT - 1)) + 1);
            let mut shard = self.shard(place.segment, at).lock();
            while at < unit_end {
                let group_end = unit_end.min((at | (GROUP - 1)) + 1);
                let first = Place { segment: place.segment, block: at as u16 };
                shard.look(Key::of(first, era), at..group_end, reader, |block, copy, before| {
                    let number = block - u32::from(place.block);
                    match copy {
                        Some(copy) => parts.push(copy),
                        None => missing.add(number),
                    }
                    if before {
                        again.add(number);
                    }
                });
                at = group_end;
            }
            if at == end && reader != Reader::Ahead {
                let is_found = missing.count() == 0 && !parts.scattered;
                let tally = if is_found { &mut shard.found } else { &mut shard.missed };
                *tally += u64::from(count);
            }
        }
        let offer = |blocks, reason| Look::Admitted(Offer { place, count, era, blocks, reason });
        let refused = match reader {
            _ if missing.count() == 0 && !parts.scattered => return Look::Copied(parts),
            Reader::Stream => Reason::Stream,
            Reader::Ahead => Reason::Ahead,
            Reader::Client if missing.count() == 0 => {
                (0..count).for_each(|number| missing.add(number));
                return offer(missing, Reason::Scattered);
            }
            // Most of it: a read of other blocks that touches an old one at its edge is another read.
            Reader::Client if 2 * again.count() >= missing.count() => return offer(missing, Reason::ReadAgain),
            Reader::Client => Reason::ReadOnce,
        };
        self.note(refused, place, missing.count(), at_ns);
        Look::Disk
    }
    /// True if there is a copy of a block.
    pub fn has(&self, place: Place) -> bool {
        let Some(era) = self.era(place.segment) else { return false };
        let block = u32::from(place.block);
        let mut places = [place; GROUP as usize];
        let mut shard = self.shard(place.segment, block).lock();
        shard.map.find(Key::of(place, era), blocks_of(block..block + 1), false, &mut places) != 0
    }
    /// Enters copies that the device has taken. False if that was refused: then nobody will ever look for them. Only one task does
    /// this, segment by segment.
    pub fn enter(&self, copied: Copied, reason: Reason, at_ns: u64) -> bool {
        assert!(reason.verdict() == Verdict::Admitted, "{reason:?} is no reason to copy");
        let end = u32::from(copied.from.block) + copied.count;
        let mut at = u32::from(copied.from.block);
        while at < end {
            let refused = if self.era(copied.from.segment) != Some(copied.era) {
                Some(Reason::Changed)
            } else {
                let group_end = end.min((at | (GROUP - 1)) + 1);
                let key = Key::of(Place { segment: copied.from.segment, block: at as u16 }, copied.era);
                let to = copied.to.advance(at - u32::from(copied.from.block));
                let entered = self.shard(key.segment, at).lock().map.enter(key, blocks_of(at..group_end), to);
                at = if entered { group_end } else { at };
                (!entered).then_some(Reason::MapFull)
            };
            if let Some(refused) = refused {
                let done = at - u32::from(copied.from.block);
                self.note(reason, copied.from, done, at_ns);
                self.note(refused, copied.from.advance(done), copied.count - done, at_ns);
                return false;
            }
        }
        self.note(reason, copied.from, copied.count, at_ns);
        true
    }
    /// Notes why what was worth copying is not copied.
    pub fn refuse(&self, offer: &Offer, reason: Reason, at_ns: u64) {
        offer.runs().for_each(|(_, wanted)| self.refuse_wanted(&wanted, reason, at_ns));
    }
    /// The same of some of the blocks.
    pub fn refuse_wanted(&self, wanted: &Wanted, reason: Reason, at_ns: u64) {
        assert!(reason.verdict() == Verdict::Refused, "{reason:?} is no reason to refuse");
        self.note(reason, wanted.from, wanted.count, at_ns);
    }
    /// Notes that a copy of a block differed from its checksum: nobody finds it any more.
    pub fn forget(&self, block: Place, copy: Place, at_ns: u64) {
        let Some(era) = self.era(block.segment) else { return };
        let key = Key::of(block, era);
        let gone = self.shard(block.segment, u32::from(block.block)).lock().map.forget(key, block, copy);
        self.note(Reason::Bad, block, gone, at_ns);
    }
    /// Ends all copies of blocks of a segment that begins another life. Nobody who looked up a place in the former life
    /// still reads.
    pub fn begin_life(&self, segment: SegmentId) {
        if !active(Bug::CopyOutlived)
            && let Some(era) = self.eras.get(segment.0 as usize)
        {
            let next = |era: u16| Some(era.saturating_add(1));
            era.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).expect("there always is a next one");
        }
    }

    /// True if a segment should be dropped before the map is full.
    pub fn map_is_short(&self) -> bool {
        self.shards.iter().any(|shard| shard.lock().map.is_short())
    }
    /// The copies in the oldest segment that were asked for since they were made, in the order in which they lie there: about half of
    /// it at most.
    pub fn asked(&self, segment: SegmentId) -> Vec<Copied> {
        let asked = |shard: &Lock<Shard>| shard.lock().map.asked(segment, |segment| self.era(segment));
        let mut copies: Vec<Copied> = self.shards.iter().flat_map(asked).collect();
        copies.sort_unstable_by_key(|copied| copied.to);
        copies
    }
    /// Drops the oldest segment: nobody finds a copy in it any more. Who found one before may still read it.
    pub fn drop_segment(&self, segment: SegmentId, cause: Cause, at_ns: u64) {
        let (mut lost, mut outlived) = (0, 0);
        let shards = if active(Bug::CopyAfterDrop) { &[] } else { &self.shards[..] };
        for shard in shards {
            let dropped = shard.lock().map.drop_segment(segment, |segment| self.era(segment));
            (lost, outlived) = (lost + dropped.lost, outlived + dropped.outlived);
        }
        let reason = match cause {
            Cause::Replaced => Reason::Replaced,
            Cause::GaveWay => Reason::GaveWay,
            Cause::MapFull => Reason::MapShort,
        };
        let place = Place { segment, block: 0 };
        self.note(reason, place, lost, at_ns);
        self.note(Reason::Outlived, place, outlived, at_ns);
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        self.shards.iter().fold(Figures::default(), |sum, shard| {
            let shard = shard.lock();
            Figures {
                found: sum.found + shard.found,
                missed: sum.missed + shard.missed,
                held: sum.held + shard.map.blocks(),
                entries: sum.entries + u64::from(shard.map.used()),
            }
        })
    }
    /// Blocks by the reason of what was decided about them.
    pub fn counts(&self) -> [(Reason, u64); Reason::ALL.len()] {
        self.journal.lock().counts()
    }
    /// The last decisions, oldest first.
    pub fn decisions(&self) -> Vec<Decision> {
        self.journal.lock().last()
    }
    /// The locks' figures.
    pub fn lock_summaries(&self) -> impl Iterator<Item = LockSummary> {
        self.shards.iter().map(Lock::summary).chain([self.journal.summary()])
    }

    fn note(&self, reason: Reason, place: Place, blocks: u32, at_ns: u64) {
        self.journal.lock().note(Decision { at_ns, reason, place, blocks });
    }
    /// The number of lives that a segment has begun; None if they can't be told apart, or if there is no room for copies.
    fn era(&self, segment: SegmentId) -> Option<u16> {
        let era = self.eras.get(segment.0 as usize)?.load(Ordering::Acquire);
        (era != WORN).then_some(era)
    }
    fn shard(&self, segment: SegmentId, block: u32) -> &Lock<Shard> {
        let unit = mixed(u64::from(segment.0) << 16 | u64::from(block / UNIT));
        &self.shards[unit as usize % self.shards.len()]
    }
}

impl Shard {
    /// Looks for copies of blocks of one group; `tell` hears of each block where its copy lies, or whether it was read from
    /// disk before.
    fn look(
        &mut self,
        key: Key,
        blocks: std::ops::Range<u32>,
        reader: Reader,
        mut tell: impl FnMut(u32, Option<Place>, bool),
    ) {
        let (wanted, asks) = (blocks_of(blocks.clone()), reader == Reader::Client);
        let mut places = [Place { segment: SegmentId(0), block: 0 }; GROUP as usize];
        let found = self.map.find(key, wanted, asks, &mut places);
        let missing = wanted & !found;
        let before = if missing != 0 && asks { self.ghost.note(key, missing) } else { 0 };
        let base = blocks.start - blocks.start % GROUP;
        for bit in bits(wanted) {
            let copy = (found & 1 << bit != 0).then_some(places[bit as usize]);
            tell(base + bit, copy, before & 1 << bit != 0);
        }
    }
}

/// The bits of blocks that are in one group.
fn blocks_of(range: std::ops::Range<u32>) -> u16 {
    assert!(!range.is_empty() && range.start / GROUP == (range.end - 1) / GROUP, "blocks {range:?} are in one group");
    let upto = |bits: u32| if bits == GROUP { u16::MAX } else { (1 << bits) - 1 };
    let first = range.start % GROUP;
    upto(first + range.len() as u32) & !upto(first)
}
