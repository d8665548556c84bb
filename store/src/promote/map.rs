//! A shard's map from blocks on disk to their copies on flash, of fixed size.
//!
//! Copies are entered and dropped in the order of the flash segments that hold them. So entries are a ring, the segment of
//! an entry follows from its position, and dropping a segment moves the ring's end: nothing is looked for or moved. Entries of
//! a bucket form a chain from the youngest to the oldest. A link that leads out of the ring, or to an entry that is no
//! older, is out of date and ends the chain; links are never cleared. One that leads into another bucket's chain does no
//! harm, because keys are compared whole.

use super::{Copied, mixed};
use base::{Place, SegmentId};
use std::collections::VecDeque;

/// Blocks of a group, aligned on disk; an entry tells of copies of some of them.
pub(super) const GROUP: u32 = 16;
/// Bits of a group's number in its segment, whose blocks have 16 bits.
const GROUP_BITS: u32 = 16 - GROUP.ilog2();
/// An entry has the segment and the group in one word.
const _: () = assert!(base::limits::SEGMENTS_MAX <= 1 << (32 - GROUP_BITS));
const _: () = assert!(GROUP == u16::BITS, "a bit for each block");
/// Bytes of an entry and of its share of the buckets: two entries have one.
const ENTRIES_PER_HEAD: usize = 2;
/// Most entries: positions are told apart over several rounds of the ring.
const ENTRIES_MAX: u32 = 1 << 28;

/// A group of blocks, in one life of their segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// The segment on disk.
    pub segment: SegmentId,
    /// The number of lives that it had begun.
    pub era: u16,
    /// The group's number within it.
    pub group: u16,
}

impl Key {
    /// The group of a block.
    pub fn of(place: Place, era: u16) -> Key {
        Key { segment: place.segment, era, group: place.block / GROUP as u16 }
    }
    fn name(self) -> u32 {
        assert!(self.segment.0 < 1 << (32 - GROUP_BITS), "no brick has a segment {}", self.segment);
        self.segment.0 << GROUP_BITS | u32::from(self.group)
    }
    /// Spreads keys over buckets and sets.
    pub fn hash(self) -> u64 {
        mixed(u64::from(self.name()) << 16 | u64::from(self.era))
    }
    fn block(self, number: u32) -> Place {
        Place { segment: self.segment, block: self.group * GROUP as u16 + number as u16 }
    }
}

/// Copies of some blocks of a group, which lie one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    key: Key,
    /// The blocks; none of an entry that is void.
    blocks: u16,
    /// Those that were asked for since they were copied.
    asked: u16,
    /// The first one's block on flash.
    start: u16,
    /// The position of the bucket's next older entry.
    older: u32,
}

impl Entry {
    fn pack(self) -> [u32; 4] {
        let halves = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        [self.key.name(), halves(self.key.era, self.start), halves(self.blocks, self.asked), self.older]
    }
    fn unpack([name, second, third, older]: [u32; 4]) -> Entry {
        let segment = SegmentId(name >> GROUP_BITS);
        let key = Key { segment, era: (second >> 16) as u16, group: (name & ((1 << GROUP_BITS) - 1)) as u16 };
        Entry { key, blocks: (third >> 16) as u16, asked: third as u16, start: second as u16, older }
    }
    /// The block on flash that holds a copy of a block.
    fn block_of(&self, number: u32) -> u16 {
        assert!(self.blocks & 1 << number != 0, "the entry has the block");
        self.start + (self.blocks & ((1 << number) - 1)).count_ones() as u16
    }
}

/// The numbers of set bits, ascending.
pub(super) fn bits(mut set: u16) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        bit
    })
}

/// The blocks that a segment's drop took out of the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Dropped {
    /// Blocks without another copy.
    pub lost: u32,
    /// Blocks of segments on disk that have begun another life since.
    pub outlived: u32,
}

/// See the module.
pub(super) struct Map {
    /// Packed entries by position modulo their number. The system backs memory only once an entry is put there.
    entries: Vec<[u32; 4]>,
    /// The position of each bucket's youngest entry.
    heads: Vec<u32>,
    /// Positions are counted modulo this, a multiple of the number of entries.
    round: u32,
    /// The position of the next entry.
    next: u32,
    used: u32,
    /// Segments on flash of which there are entries, oldest first, with the position of the first entry of each.
    segments: VecDeque<(u32, SegmentId)>,
    segments_max: usize,
    /// Blocks of all entries.
    blocks: u64,
}

impl Map {
    /// Room for so many entries, in so many segments on flash.
    pub fn new(entries: u32, segments: usize) -> Map {
        assert!(entries > 0 && entries <= ENTRIES_MAX, "{entries} entries in a shard");
        assert!(segments > 0, "copies lie in segments");
        Map {
            entries: vec![[0; 4]; entries as usize],
            heads: vec![0; heads(entries)],
            round: u32::MAX / entries * entries,
            next: 0,
            used: 0,
            segments: VecDeque::with_capacity(segments),
            segments_max: segments,
            blocks: 0,
        }
    }
    /// Bytes that a map of this size takes.
    pub fn bytes_of(entries: u32, segments: usize) -> u64 {
        let entries_bytes = entries as usize * size_of::<[u32; 4]>() + heads(entries) * size_of::<u32>();
        (entries_bytes + segments * size_of::<(u32, SegmentId)>()) as u64
    }
    /// Bytes that it has taken.
    pub fn bytes(&self) -> u64 {
        let entries_bytes = self.entries.capacity() * size_of::<[u32; 4]>() + self.heads.capacity() * size_of::<u32>();
        (entries_bytes + self.segments.capacity() * size_of::<(u32, SegmentId)>()) as u64
    }
    /// Number of entries.
    pub fn used(&self) -> u32 {
        self.used
    }
    /// Blocks of flash that its entries name.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
    /// True if a segment should be dropped before the map is full: what is asked again needs entries before that.
    pub fn is_short(&self) -> bool {
        let entries = self.entries.len() as u32;
        self.used >= entries - entries / 8 || self.segments.len() >= self.segments_max
    }

    /// The number of entries since the one at a position was entered, itself included.
    fn age(&self, position: u32) -> u32 {
        if position < self.next { self.next - position } else { self.next + (self.round - position) }
    }
    fn before(&self, age: u32) -> u32 {
        if age <= self.next { self.next - age } else { self.next + (self.round - age) }
    }
    fn bucket(&self, key: Key) -> usize {
        (key.hash() >> 32) as usize % self.heads.len()
    }
    fn slot(&mut self, position: u32) -> &mut [u32; 4] {
        let entries = self.entries.len();
        &mut self.entries[position as usize % entries]
    }
    /// The youngest entry of a group from a link on, with its age, if that is more than `than`.
    fn search(&self, key: Key, mut link: u32, mut than: u32) -> Option<(u32, Entry)> {
        loop {
            let age = self.age(link);
            if age <= than || age > self.used {
                return None;
            }
            let entry = Entry::unpack(self.entries[link as usize % self.entries.len()]);
            if entry.key == key {
                return Some((age, entry));
            }
            (link, than) = (entry.older, age);
        }
    }
    fn segment_at(&self, age: u32) -> SegmentId {
        let older = self.segments.partition_point(|(first, _)| self.age(*first) >= age);
        assert!(older > 0, "each entry belongs to a segment");
        self.segments[older - 1].1
    }

    /// Looks for copies of the `wanted` blocks of a group. Returns those found, with the place of each in `places`. `ask`: they
    /// count as asked for.
    pub fn find(&mut self, key: Key, wanted: u16, ask: bool, places: &mut [Place; GROUP as usize]) -> u16 {
        let mut found = 0;
        let (mut link, mut than) = (self.heads[self.bucket(key)], 0);
        while found != wanted
            && let Some((age, mut entry)) = self.search(key, link, than)
        {
            let hits = entry.blocks & wanted & !found;
            if hits != 0 {
                let segment = self.segment_at(age);
                bits(hits).for_each(|bit| places[bit as usize] = Place { segment, block: entry.block_of(bit) });
                found |= hits;
            }
            if ask && entry.asked | hits != entry.asked {
                entry.asked |= hits;
                let position = self.before(age);
                *self.slot(position) = entry.pack();
            }
            (link, than) = (entry.older, age);
        }
        found
    }
    /// Enters copies of blocks of a group that lie from `to` on. False if there is no room.
    pub fn enter(&mut self, key: Key, blocks: u16, to: Place) -> bool {
        assert!(blocks != 0, "an entry tells of blocks");
        assert!(u32::from(to.block) + blocks.count_ones() <= 1 << 16, "copies lie within a segment");
        if self.used as usize == self.entries.len() {
            return false;
        }
        if self.segments.back().is_none_or(|(_, last)| *last != to.segment) {
            if self.segments.len() == self.segments_max {
                return false;
            }
            assert!(self.segments.iter().all(|(_, one)| *one != to.segment), "segments are filled one by one");
            self.segments.push_back((self.next, to.segment));
        }
        let (bucket, position) = (self.bucket(key), self.next);
        let entry = Entry { key, blocks, asked: 0, start: to.block, older: self.heads[bucket] };
        *self.slot(position) = entry.pack();
        self.heads[bucket] = position;
        self.next = if position + 1 == self.round { 0 } else { position + 1 };
        self.used += 1;
        self.blocks += u64::from(blocks.count_ones());
        true
    }
    /// Makes the copies void that lie where one was found to be bad: all those of its entry.
    pub fn forget(&mut self, key: Key, block: Place, copy: Place) -> u32 {
        let number = u32::from(block.block) % GROUP;
        let (mut link, mut than) = (self.heads[self.bucket(key)], 0);
        while let Some((age, mut entry)) = self.search(key, link, than) {
            let has = entry.blocks & 1 << number != 0;
            if has && (self.segment_at(age), entry.block_of(number)) == (copy.segment, copy.block) {
                let gone = entry.blocks.count_ones();
                self.blocks -= u64::from(gone);
                (entry.blocks, entry.asked) = (0, 0);
                let position = self.before(age);
                *self.slot(position) = entry.pack();
                return gone;
            }
            (link, than) = (entry.older, age);
        }
        0
    }

    /// The ages of the oldest segment's entries, from the oldest on.
    fn oldest(&self) -> std::ops::Range<u32> {
        let end = self.segments.get(1).map_or(0, |(first, _)| self.age(*first));
        assert!(end <= self.used, "a segment's entries are among all");
        end..self.used
    }
    /// The copies in a segment, which is the oldest, that were asked for since they were made: of half of its entries at most, so
    /// that a drop makes room. `era`: of a segment on disk.
    pub fn asked(&self, segment: SegmentId, era: impl Fn(SegmentId) -> Option<u16>) -> Vec<Copied> {
        let mut copies = Vec::new();
        if self.segments.front().is_none_or(|(_, oldest)| *oldest != segment) {
            return copies;
        }
        let ages = self.oldest();
        let most = ages.len().div_ceil(2);
        let entry = |age| Entry::unpack(self.entries[self.before(age + 1) as usize % self.entries.len()]);
        let entries = ages.rev().map(entry);
        let asked = entries.filter(|entry| entry.asked != 0 && era(entry.key.segment) == Some(entry.key.era));
        for entry in asked.take(most) {
            for bit in bits(entry.asked) {
                let from = entry.key.block(bit);
                let to = Place { segment, block: entry.block_of(bit) };
                let one = Copied { from, era: entry.key.era, to, count: 1 };
                match copies.last_mut() {
                    Some(last) if last.goes_on(&one) => last.count += 1,
                    _ => copies.push(one),
                }
            }
        }
        copies
    }
    /// Drops a segment, which is the oldest: in the moment in which this returns, nobody finds a copy in it any more.
    pub fn drop_segment(&mut self, segment: SegmentId, era: impl Fn(SegmentId) -> Option<u16>) -> Dropped {
        let mut dropped = Dropped::default();
        if self.segments.front().is_none_or(|(_, oldest)| *oldest != segment) {
            assert!(self.segments.iter().all(|(_, one)| *one != segment), "the oldest segment is dropped first");
            return dropped;
        }
        let ages = self.oldest();
        for age in ages.clone().map(|younger| younger + 1) {
            let entry = Entry::unpack(self.entries[self.before(age) as usize % self.entries.len()]);
            self.blocks -= u64::from(entry.blocks.count_ones());
            if era(entry.key.segment) != Some(entry.key.era) {
                dropped.outlived += entry.blocks.count_ones();
            } else {
                dropped.lost += self.without_younger(&entry, age);
            }
        }
        self.used -= ages.len() as u32;
        self.segments.pop_front();
        assert!(self.segments.is_empty() == (self.used == 0), "each entry belongs to a segment");
        dropped
    }
    /// Number of an entry's blocks of which there is no younger copy.
    fn without_younger(&self, entry: &Entry, age: u32) -> u32 {
        let mut left = entry.blocks;
        let (mut link, mut than) = (self.heads[self.bucket(entry.key)], 0);
        while left != 0
            && let Some((younger, other)) = self.search(entry.key, link, than)
            && younger < age
        {
            left &= !other.blocks;
            (link, than) = (other.older, younger);
        }
        left.count_ones()
    }
}

fn heads(entries: u32) -> usize {
    (entries as usize).div_ceil(ENTRIES_PER_HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: u16) -> Key {
        Key { segment: SegmentId(3), era: 1, group }
    }
    fn to(segment: u32, block: u16) -> Place {
        Place { segment: SegmentId(segment), block }
    }
    fn found(map: &mut Map, key: Key, wanted: u16) -> Vec<Place> {
        let mut places = [to(0, 0); GROUP as usize];
        let found = map.find(key, wanted, false, &mut places);
        bits(found).map(|bit| places[bit as usize]).collect()
    }

    #[test]
    fn entries_are_packed_whole() {
        let key = Key { segment: SegmentId(base::limits::SEGMENTS_MAX - 1), era: 0xabcd, group: 0xfff };
        let entry = Entry { key, blocks: 0x8001, asked: 0x7ffe, start: 0xfedc, older: 0x1234_5678 };
        assert_eq!(Entry::unpack(entry.pack()), entry);
        assert_eq!((entry.block_of(0), entry.block_of(15)), (0xfedc, 0xfedd));
    }

    /// The counts of positions begin anew; what is out of date then looks like what is there.
    #[test]
    fn positions_go_round() {
        for before in 1..40 {
            let mut map = Map::new(8, 4);
            map.next = map.round - before;
            for number in 0..40u16 {
                let segment = u32::from(number / 4);
                if number % 4 == 0 && number >= 8 {
                    map.drop_segment(SegmentId(segment - 2), |_| Some(1));
                }
                assert!(map.enter(key(number), 0b110, to(segment, 2 * number)));
                for other in 0..40u16 {
                    let there = other <= number && u32::from(other / 4) + 1 >= segment;
                    let places = [0, 1].map(|next| to(u32::from(other / 4), 2 * other + next));
                    let places = if there { &places[..] } else { &[] };
                    assert_eq!(found(&mut map, key(other), 0b111), places, "{before} {number} {other}");
                }
            }
            assert_eq!((map.used, map.blocks, map.segments.len()), (8, 16, 2));
        }
    }
}
