//! Blocks that clients read again and that nobody above keeps: of what was opened with O_DIRECT or O_DSYNC the kernel's page
//! cache holds nothing.
//!
//! A place holds one content for as long as its segment's life. So no write makes anything here void: new content has
//! another place. A segment that begins another life does, for all its blocks at once. Whoever takes a block compares its
//! checksum as with what the device gives (rule K8).
//!
//! A block is kept when it is read for the second time, so that one pass over much costs neither room nor copies (as the
//! queue of what was seen once in "2Q": T. Johnson, D. Shasha, 1994). It goes when nobody asked for it since the hand of the
//! clock passed it (F. J. Corbató, "A paging experiment with the Multics system", 1968).

use base::limits::BLOCK_BYTES;
use base::{Place, SegmentId};
use runtime::Lock;
use runtime::lock::LockSummary;
use runtime::seeded::{Bug, active};
use std::sync::atomic::{AtomicU16, Ordering};

/// Blocks of a set.
const WAYS: usize = 8;
const SET_BYTES: usize = WAYS * BLOCK_BYTES;
/// Blocks of a set that were read once and are remembered: twice as many as it keeps.
const ONCE: usize = 2 * WAYS;
/// A byte marks the blocks of a set, and another counts round those that were read once.
const _: () = assert!(WAYS <= 8 && 256 % ONCE == 0);
/// Most shards: so many that cores seldom meet in one.
const SHARDS_MAX: usize = 64;
/// Segments with an era of their own; of larger bricks (4 TiB and more of usual segments) several share one, and are forgotten
/// together.
const ERAS: usize = 1 << 16;

/// See the module.
pub struct ReadCache {
    shards: Vec<Lock<Shard>>,
    /// Lives that segments have begun, as far as keys tell them apart.
    eras: Vec<AtomicU16>,
}

/// The figures of a cache since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Bytes that it holds.
    pub bytes: u64,
    /// Blocks that were looked for and found.
    pub found: u64,
    /// Blocks that were looked for in vain.
    pub missed: u64,
}

/// The presence of blocks in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// All of them.
    All,
    /// Some are missing, and some of those were read before: they are worth caching.
    Again,
    /// Some are missing, and none of those was read lately.
    New,
}

struct Shard {
    sets: Vec<Set>,
    /// Set by set. The system backs memory only once a block is put there.
    data: Vec<u8>,
    figures: Figures,
}

#[derive(Clone, Copy, Default)]
struct Set {
    /// Keys of the set's blocks; 0 is none, because no block 0 is ever cached: it is its segment's header.
    keys: [u64; WAYS],
    /// Marks of blocks that were read once, lately.
    once: [u16; ONCE],
    next_once: u8,
    /// A bit for each block that was asked for since the hand passed it.
    asked: u8,
    hand: u8,
}

/// The set in which a block is looked up.
#[derive(Clone, Copy)]
struct Spot {
    set: usize,
    key: u64,
    /// Tells most blocks of a set apart.
    mark: u16,
}

impl ReadCache {
    /// Room for about `bytes` of blocks, less than 32 KiB is none.
    pub fn new(bytes: u64) -> ReadCache {
        let sets = bytes as usize / SET_BYTES;
        let shards = sets.min(SHARDS_MAX);
        let shard = || {
            let sets = vec![Set::default(); sets / shards];
            let data = vec![0; sets.len() * SET_BYTES];
            Lock::new("read cache", Shard { sets, data, figures: Figures::default() })
        };
        let eras = if shards == 0 { 0 } else { ERAS };
        ReadCache {
            shards: (0..shards).map(|_| shard()).collect(),
            eras: (0..eras).map(|_| AtomicU16::new(0)).collect(),
        }
    }
    /// Fills `out` with the blocks from `place` on, if all of them are there; otherwise what it holds then means nothing.
    pub fn copy(&self, place: Place, out: &mut [u8]) -> Held {
        let mut held = if self.shards.is_empty() { Held::New } else { Held::All };
        self.each(place, out.chunks_exact_mut(BLOCK_BYTES), |shard, spot, out| match shard.copy(spot, out) {
            Held::All => {}
            Held::New if held == Held::All => held = Held::New,
            Held::New => {}
            Held::Again => held = Held::Again,
        });
        held
    }
    /// Keeps blocks that were read from `place` on, and compared; the reader's pin still lives.
    pub fn keep(&self, place: Place, blocks: &[u8]) {
        self.each(place, blocks.chunks_exact(BLOCK_BYTES), Shard::keep);
    }
    /// Drops the blocks of a segment that begins another life. Nobody who looked up a place in the former life still
    /// reads.
    pub fn forget(&self, segment: SegmentId) {
        if !active(Bug::CacheBelieved)
            && let Some(era) = self.era(segment)
        {
            era.fetch_add(1, Ordering::Release);
        }
    }
    /// Its figures so far.
    pub fn figures(&self) -> Figures {
        self.shards.iter().fold(Figures::default(), |sum, shard| {
            let Figures { bytes, found, missed } = shard.lock().figures;
            Figures { bytes: sum.bytes + bytes, found: sum.found + found, missed: sum.missed + missed }
        })
    }
    /// The locks' figures.
    pub fn lock_summaries(&self) -> impl Iterator<Item = LockSummary> {
        self.shards.iter().map(Lock::summary)
    }

    fn each<T>(&self, place: Place, blocks: impl Iterator<Item = T>, mut with: impl FnMut(&mut Shard, Spot, T)) {
        let Some(era) = self.era(place.segment) else { return };
        let segment = u64::from(place.segment.0) << 32 | u64::from(era.load(Ordering::Acquire)) << 16;
        for (number, block) in (u64::from(place.block)..).zip(blocks) {
            let key = segment | number;
            let hash = mixed(key);
            let mut shard = self.shards[hash as usize % self.shards.len()].lock();
            let spot = Spot { set: (hash >> 32) as usize % shard.sets.len(), key, mark: (hash >> 16) as u16 };
            with(&mut shard, spot, block);
        }
    }
    /// None of a cache without room.
    fn era(&self, segment: SegmentId) -> Option<&AtomicU16> {
        self.eras.get(segment.0 as usize % ERAS)
    }
}

impl Shard {
    fn copy(&mut self, spot: Spot, out: &mut [u8]) -> Held {
        let set = &mut self.sets[spot.set];
        let Some(way) = set.way(spot.key) else {
            self.figures.missed += 1;
            return if set.was_read(spot.mark) { Held::Again } else { Held::New };
        };
        set.asked |= 1 << way;
        self.figures.found += 1;
        out.copy_from_slice(self.block(spot.set, way));
        Held::All
    }
    fn keep(&mut self, spot: Spot, block: &[u8]) {
        let set = &mut self.sets[spot.set];
        let way = set.way(spot.key).or_else(|| set.way(0)).unwrap_or_else(|| set.unasked());
        if set.keys[way] == 0 {
            self.figures.bytes += BLOCK_BYTES as u64;
            assert!(self.figures.bytes <= self.data.len() as u64, "a shard holds no more than it has room for");
        }
        set.keys[way] = spot.key;
        self.block(spot.set, way).copy_from_slice(block);
    }
    fn block(&mut self, set: usize, way: usize) -> &mut [u8] {
        let at = set * SET_BYTES + way * BLOCK_BYTES;
        &mut self.data[at..at + BLOCK_BYTES]
    }
}

impl Set {
    fn way(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|&held| held == key)
    }
    /// True if a block with this mark was read once; if not, it is now.
    fn was_read(&mut self, mark: u16) -> bool {
        let was = self.once.contains(&mark);
        if !was {
            self.once[usize::from(self.next_once) % ONCE] = mark;
            self.next_once = self.next_once.wrapping_add(1);
        }
        was
    }
    /// The next block that nobody has asked for since the hand passed it.
    fn unasked(&mut self) -> usize {
        loop {
            let way = usize::from(self.hand) % WAYS;
            self.hand = (way + 1) as u8;
            if self.asked & 1 << way == 0 {
                return way;
            }
            self.asked &= !(1 << way);
        }
    }
}

/// Spreads keys over shards (low bits) and their sets (high bits): the end of MurmurHash3 (A. Appleby, 2011).
pub(crate) fn mixed(key: u64) -> u64 {
    let key = (key ^ key >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ key >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ key >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u32, block: u16) -> Place {
        Place { segment: SegmentId(segment), block }
    }
    fn filled(byte: u8, blocks: usize) -> Vec<u8> {
        vec![byte; blocks * BLOCK_BYTES]
    }
    fn found(cache: &ReadCache, place: Place, blocks: usize) -> Option<Vec<u8>> {
        let mut out = filled(0, blocks);
        (cache.copy(place, &mut out) == Held::All).then_some(out)
    }

    #[test]
    fn it_gives_what_was_kept_of_that_place() {
        let cache = ReadCache::new(1 << 20);
        assert_eq!(found(&cache, place(3, 7), 1), None);
        cache.keep(place(3, 7), &filled(1, 2));
        cache.keep(place(4, 7), &filled(2, 1));
        assert_eq!(found(&cache, place(3, 7), 2), Some(filled(1, 2)));
        assert_eq!(found(&cache, place(3, 8), 1), Some(filled(1, 1)));
        assert_eq!(found(&cache, place(3, 7), 3), None, "all of it or nothing");
        assert_eq!(found(&cache, place(4, 7), 1), Some(filled(2, 1)));
        cache.keep(place(4, 7), &filled(3, 1));
        assert_eq!(found(&cache, place(4, 7), 1), Some(filled(3, 1)));
        assert_eq!(cache.figures(), Figures { bytes: 3 * 4096, found: 7, missed: 2 });
    }

    #[test]
    fn a_segments_next_life_has_nothing_of_the_one_before() {
        let cache = ReadCache::new(1 << 20);
        cache.keep(place(3, 7), &filled(1, 1));
        cache.keep(place(4, 7), &filled(2, 1));
        cache.forget(SegmentId(3));
        assert_eq!(found(&cache, place(3, 7), 1), None);
        assert_eq!(found(&cache, place(4, 7), 1), Some(filled(2, 1)));
        cache.keep(place(3, 7), &filled(5, 1));
        assert_eq!(found(&cache, place(3, 7), 1), Some(filled(5, 1)));
    }

    #[test]
    fn it_is_bounded_and_what_is_asked_for_stays() {
        let cache = ReadCache::new(1 << 20);
        for number in 1..10_000u16 {
            cache.keep(place(1, 1), &filled(9, 1));
            assert!(found(&cache, place(1, 1), 1).is_some());
            cache.keep(place(2, number), &filled(number as u8, 1));
            assert!(cache.figures().bytes <= 1 << 20);
        }
        assert_eq!(cache.figures().bytes, 1 << 20, "all of its room is used");
        let held = (1..10_000).filter(|&number| found(&cache, place(2, number), 1).is_some()).count();
        assert_eq!(held, (1 << 20) / BLOCK_BYTES - 1);
    }

    #[test]
    fn what_is_worth_keeping_was_read_before() {
        let cache = ReadCache::new(1 << 20);
        let look = |place, blocks| cache.copy(place, &mut filled(0, blocks));
        assert_eq!((look(place(1, 7), 1), look(place(1, 8), 2)), (Held::New, Held::New));
        assert_eq!((look(place(1, 7), 1), look(place(1, 9), 3)), (Held::Again, Held::Again));
        cache.keep(place(1, 7), &filled(9, 1));
        assert_eq!((look(place(1, 7), 1), look(place(1, 6), 2)), (Held::All, Held::New));
        // Too long ago.
        for number in 1000..10_000 {
            look(place(1, number), 1);
        }
        assert_eq!((look(place(1, 8), 1), look(place(1, 7), 1)), (Held::New, Held::All));
        cache.forget(SegmentId(1));
        assert_eq!((look(place(1, 7), 1), look(place(1, 9_999), 1)), (Held::New, Held::New));
    }

    #[test]
    fn without_room_it_keeps_nothing() {
        for bytes in [0, SET_BYTES as u64 - 1] {
            let cache = ReadCache::new(bytes);
            cache.keep(place(1, 1), &filled(9, 1));
            cache.forget(SegmentId(1));
            assert_eq!(found(&cache, place(1, 1), 1), None);
            assert_eq!(cache.figures(), Figures::default());
        }
    }
}
