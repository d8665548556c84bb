//! The promotion against a drive that does at once what it is told, on flash and disks of which each block says what it holds.

use super::*;
use runtime::random::SplitMix;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Blocks of a segment on flash.
const BLOCKS: u32 = 128;
/// The first segment on disk; those on flash have lower numbers.
const DISK: u32 = 1000;

/// The content of a block: of which place it is a copy, in which life. None: of something else.
type Content = Option<(Place, u32)>;

struct Rig {
    promotion: Promotion,
    order: Order,
    /// Lives of segments on disk.
    lives: BTreeMap<SegmentId, u32>,
    flash: BTreeMap<Place, Content>,
    free: BTreeSet<SegmentId>,
    /// Segments on a device that leaves.
    leaving: BTreeSet<SegmentId>,
    target: u32,
    queue: VecDeque<(Wanted, Reason, u32)>,
    anew: Option<(SegmentId, VecDeque<Copied>)>,
    /// Copies that were entered and not dropped, by their home.
    entered: BTreeMap<Place, Vec<Place>>,
    /// Blocks found, and looked for.
    found: u64,
    looked: u64,
    /// Blocks copied anew.
    copied_anew: u64,
    drops: Vec<(SegmentId, Cause)>,
}

impl Rig {
    /// `segments` of flash that copies may take, if the target stays at 0.
    fn new(segments: u32, bytes: u64) -> Rig {
        Rig {
            promotion: Promotion::new(Size { bytes, segments: 2 * DISK, blocks: BLOCKS }),
            order: Order::new(BLOCKS),
            lives: BTreeMap::new(),
            flash: BTreeMap::new(),
            free: (0..segments).map(SegmentId).collect(),
            leaving: BTreeSet::new(),
            target: 0,
            queue: VecDeque::new(),
            anew: None,
            entered: BTreeMap::new(),
            found: 0,
            looked: 0,
            copied_anew: 0,
            drops: Vec::new(),
        }
    }
    fn life(&self, segment: SegmentId) -> u32 {
        self.lives.get(&segment).copied().unwrap_or(0)
    }
    fn content(&self, place: Place) -> Content {
        Some((place, self.life(place.segment)))
    }
    /// Reads blocks as a client does. True if their copies were found.
    fn read(&mut self, place: Place, count: u32, reader: Reader) -> bool {
        self.looked += u64::from(count);
        match self.promotion.look(Read { place, count, reader, at_ns: self.looked }) {
            Look::Copied(parts) => {
                let copies =
                    parts.iter().flat_map(|(first, blocks)| (0..blocks).map(move |number| first.advance(number)));
                let copies: Vec<Content> = copies.map(|copy| self.flash[&copy]).collect();
                let homes: Vec<Content> = (0..count).map(|number| self.content(place.advance(number))).collect();
                assert_eq!(copies, homes, "copies are of what the disk holds");
                self.found += u64::from(count);
                return true;
            }
            Look::Admitted(offer) => {
                let life = self.life(place.segment);
                self.queue.extend(offer.runs().map(|(_, wanted)| (wanted, offer.reason(), life)));
            }
            Look::Disk => {}
        }
        let known = |number| self.entered.contains_key(&place.advance(number));
        let all = (0..count).all(known);
        assert!(!all || count > PARTS_MAX as u32, "what was entered is found");
        false
    }
    fn begin_life(&mut self, segment: SegmentId) {
        self.promotion.begin_life(segment);
        *self.lives.entry(segment).or_default() += 1;
        self.entered.retain(|home, _| home.segment != segment);
    }
    /// Does what the order asks for until it rests. Returns the number of steps.
    fn work(&mut self) -> usize {
        for steps in 0.. {
            let sight = Sight {
                free: self.free.len() as u32,
                leaving: 0,
                target: self.target,
                queued: self.queue.iter().map(|(wanted, ..)| u64::from(wanted.count)).sum(),
                map_is_short: self.promotion.map_is_short(),
                is_leaving: self.order.segments().any(|segment| self.leaving.contains(&segment)),
            };
            match self.order.step(&sight) {
                Step::Rest => return steps,
                Step::Refuse => self.queue.clear(),
                Step::Take => {
                    let segment = self.free.pop_first().expect("the budget is of free segments");
                    self.order.took(segment);
                }
                Step::Write(room) => {
                    let (mut wanted, reason, life) = self.queue.pop_front().expect("something is queued");
                    let count = wanted.count.min(room);
                    let copied = wanted.split(count, self.order.fill(count));
                    if wanted.count > 0 {
                        self.queue.push_front((wanted, reason, life));
                    }
                    let contents = (0..count).map(|number| Some((copied.from.advance(number), life)));
                    self.write(copied, contents.collect(), reason);
                }
                Step::CopyAnew(segment, most) => self.copy_anew(segment, most),
                Step::Drop(segment, cause) => self.drop_segment(segment, cause),
            }
        }
        unreachable!("it returns when there is nothing to do")
    }
    fn write(&mut self, copied: Copied, contents: Vec<Content>, reason: Reason) {
        assert_eq!(contents.len(), copied.count as usize);
        for (number, content) in (0..).zip(contents) {
            self.flash.insert(copied.to.advance(number), content);
        }
        let is_current = copied.era == self.life(copied.from.segment) as u16;
        if self.promotion.enter(copied, reason, self.looked) {
            assert!(is_current, "of an earlier life");
            for number in 0..copied.count {
                let copies = self.entered.entry(copied.from.advance(number)).or_default();
                copies.push(copied.to.advance(number));
            }
        }
    }
    fn copy_anew(&mut self, segment: SegmentId, most: u32) {
        let asked = || (segment, self.promotion.asked(segment).into());
        let (of, mut left) = self.anew.take().filter(|(of, _)| *of == segment).unwrap_or_else(asked);
        match left.pop_front() {
            Some(old) => {
                let count = old.count.min(most);
                let copied = old.wanted().split(count, self.order.fill(count));
                let contents = (0..count).map(|number| self.flash[&old.to.advance(number)]);
                self.write(copied, contents.collect(), Reason::AskedAgain);
                self.copied_anew += u64::from(count);
                self.anew = Some((of, left));
            }
            None => self.order.copied_anew(),
        }
    }
    fn drop_segment(&mut self, segment: SegmentId, cause: Cause) {
        self.promotion.drop_segment(segment, cause, self.looked);
        self.order.dropped(segment);
        self.drops.push((segment, cause));
        self.anew = None;
        // Somebody else writes there now.
        self.flash.iter_mut().filter(|(place, _)| place.segment == segment).for_each(|(_, content)| *content = None);
        for copies in self.entered.values_mut() {
            copies.retain(|copy| copy.segment != segment);
        }
        self.entered.retain(|_, copies| !copies.is_empty());
        if !self.leaving.contains(&segment) {
            self.free.insert(segment);
        }
    }
    /// Reads and works until the blocks have copies.
    fn warm(&mut self, places: impl Iterator<Item = Place>, count: u32) {
        for place in places {
            for _ in 0..2 {
                self.read(place, count, Reader::Client);
                self.work();
            }
        }
    }
    fn count(&self, reason: Reason) -> u64 {
        self.promotion.counts()[reason as usize].1
    }
    fn hit_percent(&mut self, work: impl FnOnce(&mut Rig)) -> u64 {
        (self.found, self.looked) = (0, 0);
        work(self);
        self.found * 100 / self.looked
    }
}

fn disk(segment: u32, block: u32) -> Place {
    Place { segment: SegmentId(DISK + segment), block: u16::try_from(block).expect("a block of a segment") }
}

/// Block `number` of all disks, in segments of 4,096 blocks.
fn nth(number: u32) -> Place {
    disk(number / 4096, number % 4096)
}

#[test]
fn what_is_read_again_is_copied_and_found() {
    let mut rig = Rig::new(8, 8 << 20);
    assert!(!rig.read(disk(0, 13), 7, Reader::Client));
    rig.work();
    assert_eq!(rig.order.held(), 0, "what was read once is not copied");
    assert!(!rig.read(disk(0, 13), 7, Reader::Client));
    rig.work();
    assert!(rig.read(disk(0, 13), 7, Reader::Client), "it lies in two groups");
    assert!(rig.read(disk(0, 15), 2, Reader::Client), "a part of it");
    assert!(!rig.read(disk(0, 15), 6, Reader::Client), "all of it or nothing");
    assert!(!rig.read(disk(1, 13), 7, Reader::Client), "another segment");
    rig.begin_life(SegmentId(DISK));
    assert!(!rig.read(disk(0, 13), 7, Reader::Client), "another life");
    assert_eq!((rig.count(Reason::ReadAgain), rig.count(Reason::ReadOnce)), (7, 7 + 1 + 7 + 7));
    let figures = rig.promotion.figures();
    assert_eq!((figures.found, figures.missed, figures.held, figures.entries), (9, 7 + 7 + 6 + 7 + 7, 7, 2));
}

#[test]
fn only_what_is_missing_is_copied() {
    let mut rig = Rig::new(8, 8 << 20);
    rig.warm([disk(0, 10), disk(0, 300)].into_iter(), 4);
    let at = disk(0, 0);
    for _ in 0..2 {
        rig.read(at, 20, Reader::Client);
    }
    assert_eq!(
        rig.queue.iter().map(|(wanted, ..)| (wanted.from.block, wanted.count)).collect::<Vec<_>>(),
        [(0, 10), (14, 6)]
    );
    rig.work();
    let Look::Copied(parts) = rig.promotion.look(Read { place: at, count: 20, reader: Reader::Client, at_ns: 0 })
    else {
        panic!("all of it was copied");
    };
    let to = |block| Place { segment: SegmentId(0), block };
    assert_eq!(parts.iter().collect::<Vec<_>>(), [(to(9), 10), (to(1), 4), (to(19), 6)], "in their order");
}

/// More pieces than are read at once are copied into one.
#[test]
fn copies_in_many_pieces_are_put_together() {
    let mut rig = Rig::new(8, 8 << 20);
    rig.warm((0..40).map(|number| disk(0, 39 - number)), 1);
    assert!(!rig.read(disk(0, 0), 40, Reader::Client));
    rig.work();
    assert!(rig.read(disk(0, 0), 40, Reader::Client));
    assert_eq!(rig.count(Reason::Scattered), 40);
}

#[test]
fn streams_and_what_is_read_ahead_are_neither_copied_nor_remembered() {
    for (reader, reason) in [(Reader::Stream, Reason::Stream), (Reader::Ahead, Reason::Ahead)] {
        let mut rig = Rig::new(8, 8 << 20);
        for _ in 0..3 {
            assert!(!rig.read(disk(0, 16), 256, reader));
        }
        assert!(!rig.read(disk(0, 16), 16, Reader::Client), "for the first time");
        rig.work();
        assert_eq!((rig.count(reason), rig.count(Reason::ReadAgain)), (3 * 256, 0));
        assert!(!rig.read(disk(0, 16), 16, Reader::Client));
        rig.work();
        assert!(rig.read(disk(0, 16), 16, reader), "copies serve them all the same");
        assert!(rig.promotion.asked(SegmentId(0)).is_empty(), "but are not asked for");
    }
}

/// A read that touches the edge of another is another read.
#[test]
fn most_of_a_read_must_be_read_again() {
    let mut rig = Rig::new(8, 8 << 20);
    rig.read(disk(0, 0), 8, Reader::Client);
    rig.read(disk(0, 5), 8, Reader::Client);
    assert!(rig.queue.is_empty());
    rig.read(disk(0, 6), 8, Reader::Client);
    assert_eq!(rig.queue.len(), 1);
}

/// Each block of flash and disk says what it holds; `read` compares.
#[test]
fn no_copy_of_an_earlier_life_is_ever_found() {
    for seed in 0..60 {
        let random = &mut SplitMix(seed);
        let mut rig = Rig::new(3 + random.below(12) as u32, [200 << 10, 500 << 10, 4 << 20][random.below(3) as usize]);
        let (segments, blocks) = (1 + random.below(4), [40, 600, 3000][random.below(3) as usize]);
        for _ in 0..3000 {
            let segment = random.below(segments) as u32;
            let block = random.below(blocks) as u32;
            match random.below(100) {
                0 => rig.begin_life(SegmentId(DISK + segment)),
                1 => rig.target = random.below(8) as u32,
                2..10 => {
                    rig.work();
                }
                _ => {
                    let most = [4, 20, 256][random.below(3) as usize];
                    let count = 1 + random.below(most) as u32;
                    let reader = if random.one_in(10) { Reader::Stream } else { Reader::Client };
                    rig.read(disk(segment, block), count, reader);
                }
            }
        }
        rig.work();
        assert!(rig.found > 0 && rig.free.len() as u32 >= rig.target.min(rig.free.len() as u32 + rig.order.held()));
    }
}

/// Mission S7: one pass over four times the flash, whether it is known to be a stream or looks like clients' reads.
#[test]
fn a_hot_set_stays_while_much_is_read_once() {
    for (reader, in_order) in [(Reader::Stream, true), (Reader::Client, true), (Reader::Client, false)] {
        let mut rig = Rig::new(64, 2 << 20);
        let flash_blocks = 64 * BLOCKS;
        // Six tenths of the flash, in reads of four blocks of every second eight.
        let hot: Vec<Place> = (0..flash_blocks * 6 / 10 / 4).map(|number| nth(8 * number)).collect();
        let random = &mut SplitMix(7);
        rig.warm(hot.iter().copied(), 4);
        let ask = |rig: &mut Rig, random: &mut SplitMix| {
            rig.read(hot[random.below(hot.len() as u64) as usize], 4, Reader::Client);
            rig.work();
        };
        let before = rig.hit_percent(|rig| (0..5_000).for_each(|_| ask(rig, random)));
        assert_eq!(before, 100);
        let scanned = 4 * flash_blocks / 16;
        let during = rig.hit_percent(|rig| {
            for number in 0..scanned {
                // 7,919 is prime: each once.
                let number = if in_order { number } else { number * 7_919 % scanned };
                let (found, looked) = (rig.found, rig.looked);
                rig.read(nth(1_000_000 + 16 * number), 16, reader);
                rig.work();
                (rig.found, rig.looked) = (found, looked);
                ask(rig, random);
            }
        });
        let after = rig.hit_percent(|rig| (0..5_000).for_each(|_| ask(rig, random)));
        assert!(during > 95 && after > 95, "{during}% and {after}% of {before}% ({reader:?}, {in_order})");
    }
}

/// New copies come and go, each of them read three times in all. What is hot is copied anew before its segment is dropped.
#[test]
fn a_hot_set_outlives_much_that_is_read_twice() {
    let mut rig = Rig::new(64, 2 << 20);
    let flash_blocks = 64 * BLOCKS;
    let hot: Vec<Place> = (0..flash_blocks * 3 / 10 / 4).map(|number| nth(8 * number)).collect();
    let random = &mut SplitMix(7);
    rig.warm(hot.iter().copied(), 4);
    let percent = rig.hit_percent(|rig| {
        for number in 0..4 * flash_blocks / 4 {
            let (found, looked) = (rig.found, rig.looked);
            rig.warm([nth(1_000_000 + 4 * number)].into_iter(), 4);
            (rig.found, rig.looked) = (found, looked);
            for _ in 0..4 {
                rig.read(hot[random.below(hot.len() as u64) as usize], 4, Reader::Client);
                rig.work();
            }
        }
    });
    assert!(rig.drops.len() > 200, "all of the flash was replaced several times");
    assert!(percent > 95, "{percent}%");
}

/// A set that is larger than flash, and all of it hot, does not go round and round.
#[test]
fn each_drop_makes_room() {
    let mut rig = Rig::new(8, 8 << 20);
    let random = &mut SplitMix(3);
    for _ in 0..10_000 {
        rig.read(nth(4 * random.below(20 * u64::from(BLOCKS) / 4) as u32), 4, Reader::Client);
        let steps = rig.work();
        assert!(steps < 2 * BLOCKS as usize, "{steps} steps for one read");
    }
    let most = rig.drops.len() as u64 * u64::from(BLOCKS) / 2;
    assert!(rig.copied_anew > 0 && rig.copied_anew <= most, "{} of {most} blocks", rig.copied_anew);
    assert!(rig.drops.iter().all(|(_, cause)| *cause == Cause::Replaced));
    assert_eq!(rig.order.held(), 7, "one segment is left for what is copied anew");
}

#[test]
fn it_gives_way_at_once_and_oldest_first() {
    let mut rig = Rig::new(20, 8 << 20);
    rig.warm((0..18 * (BLOCKS - 1) / 4).map(|number| nth(4 * number)), 4);
    (0..18 * (BLOCKS - 1) / 4).for_each(|number| assert!(rig.read(nth(4 * number), 4, Reader::Client)));
    assert_eq!((rig.order.held(), rig.free.len()), (18, 2));
    for target in [2, 5, 12, 19, 20, 30] {
        rig.target = target;
        rig.work();
        assert_eq!(rig.order.held(), 20u32.saturating_sub(target).min(18), "the cleaner's share is free: {target}");
    }
    let expected: Vec<_> = (0..18).map(|number| (SegmentId(number), Cause::GaveWay)).collect();
    assert_eq!((&rig.drops, rig.copied_anew), (&expected, 0));
    rig.warm([nth(0)].into_iter(), 4);
    assert_eq!((rig.order.held(), rig.count(Reason::AskedAgain)), (0, 0), "there is no flash for copies");
    rig.target = 18;
    rig.warm((0..100).map(|number| nth(4 * number)), 4);
    assert!(rig.order.held() == 1 && rig.drops.len() > 18, "less room makes for fewer copies");
}

#[test]
fn segments_whose_readers_have_not_ended_count_as_free() {
    let sight = Sight { free: 3, leaving: 2, target: 4, ..Sight::default() };
    assert_eq!((budget(&sight, 0), budget(&sight, 5)), (1, 6));
    let sight = Sight { target: 9, ..sight };
    assert_eq!((budget(&sight, 0), budget(&sight, 5)), (0, 1));
}

#[test]
fn copies_on_flash_that_leaves_are_dropped_and_those_before_them() {
    let mut rig = Rig::new(8, 8 << 20);
    let blocks = (0..5 * (BLOCKS - 1) / 8).map(|number| nth(number * 8));
    rig.warm(blocks, 8);
    let held: Vec<_> = rig.order.segments().collect();
    assert!(held.len() >= 4 && rig.drops.is_empty(), "{held:?}");
    rig.leaving = BTreeSet::from([held[1], held[2]]);
    rig.work();
    let expected: Vec<_> = held[..3].iter().map(|&segment| (segment, Cause::GaveWay)).collect();
    assert_eq!(rig.drops, expected);
    assert!(rig.order.segments().eq(held[3..].iter().copied()), "younger ones elsewhere stay");
}

#[test]
fn a_bad_copy_is_not_found_again() {
    let mut rig = Rig::new(8, 8 << 20);
    rig.warm([disk(0, 2), disk(0, 40)].into_iter(), 8);
    let copy = |block| Place { segment: SegmentId(0), block };
    rig.promotion.forget(disk(0, 5), copy(7), 9);
    assert!(rig.read(disk(0, 2), 8, Reader::Client), "another place has nothing to do with it");
    rig.promotion.forget(disk(0, 5), copy(4), 9);
    rig.entered.clear();
    assert!(!rig.read(disk(0, 2), 8, Reader::Client));
    assert!(rig.read(disk(0, 40), 8, Reader::Client));
    let last = *rig.promotion.decisions().iter().rfind(|one| one.reason == Reason::Bad).expect("it is told");
    assert_eq!(last, Decision { at_ns: 9, reason: Reason::Bad, place: disk(0, 5), blocks: 8 });
    assert_eq!(rig.promotion.figures().held, 8);
}

#[test]
fn what_is_worn_is_not_copied() {
    let mut rig = Rig::new(8, 8 << 20);
    for life in 0..u32::from(WORN) {
        assert_eq!(life, rig.life(SegmentId(DISK)));
        if life % 10_000 == 0 || life + 2 > u32::from(WORN) {
            rig.warm([disk(0, 0)].into_iter(), 4);
            assert!(rig.read(disk(0, 0), 4, Reader::Client));
        }
        rig.begin_life(SegmentId(DISK));
    }
    for _ in 0..2 {
        rig.warm([disk(0, 0)].into_iter(), 4);
        assert!(!rig.read(disk(0, 0), 4, Reader::Client));
        rig.begin_life(SegmentId(DISK));
    }
    assert_eq!(rig.count(Reason::Worn), 2 * 3 * 4);
}

#[test]
fn each_decision_has_its_reason_and_the_last_ones_are_kept() {
    let mut rig = Rig::new(8, 8 << 20);
    for number in 0..DECISIONS_MAX as u32 + 10 {
        rig.read(nth(32 * number), 2, Reader::Client);
    }
    let last = rig.promotion.decisions();
    assert_eq!(last.len(), DECISIONS_MAX);
    assert_eq!((last[0].place, last[0].blocks, last[0].reason), (nth(320), 2, Reason::ReadOnce));
    assert!(last.is_sorted_by_key(|one| one.at_ns));
    let Look::Admitted(offer) = rig.promotion.look(Read { place: nth(64), count: 2, reader: Reader::Client, at_ns: 1 })
    else {
        panic!("it was read before");
    };
    rig.promotion.refuse(&offer, Reason::Busy, 1);
    assert_eq!(rig.count(Reason::Busy), 2);
    assert!(Reason::ALL.iter().enumerate().all(|(number, reason)| *reason as usize == number));
}

/// A copy that was begun in one life and written in the next.
#[test]
fn a_copy_that_comes_late_is_refused() {
    let mut rig = Rig::new(8, 8 << 20);
    rig.read(disk(0, 0), 4, Reader::Client);
    rig.read(disk(0, 0), 4, Reader::Client);
    rig.begin_life(SegmentId(DISK));
    rig.work();
    assert_eq!((rig.count(Reason::Changed), rig.count(Reason::ReadAgain)), (4, 0));
    assert!(!rig.read(disk(0, 0), 4, Reader::Client));
}

#[test]
fn without_room_it_does_nothing() {
    let mut rig = Rig::new(8, 5000);
    rig.warm([disk(0, 0)].into_iter(), 4);
    rig.begin_life(SegmentId(DISK));
    rig.promotion.forget(disk(0, 0), disk(0, 0), 0);
    rig.warm([disk(0, 0)].into_iter(), 4);
    assert_eq!((rig.promotion.figures(), rig.promotion.has_room()), (Figures::default(), false));
    assert!(rig.promotion.decisions().is_empty());
}

/// Entries run out long before flash does: segments are dropped, and at most the stated memory is taken.
#[test]
fn a_full_map_replaces_copies() {
    let bytes = 250 << 10;
    let mut rig = Rig::new(500, bytes);
    for number in 0..20_000 {
        rig.warm([nth(16 * number)].into_iter(), 1);
        assert!(rig.promotion.bytes() <= bytes);
    }
    let held = rig.promotion.figures();
    assert!(rig.order.held() > 5 && rig.order.held() < 100, "{} segments", rig.order.held());
    assert!(held.entries * 30 > (bytes - (130 << 10)) / 2, "{} entries of about 22 bytes", held.entries);
    assert_eq!(rig.count(Reason::MapFull), 0);
    assert!(rig.read(nth(16 * 19_999), 1, Reader::Client));
}

/// Bugs from the list that these tests notice, each with the test that fails with it.
#[cfg(feature = "seeded-bugs")]
#[test]
fn each_bug_is_noticed_by_its_test() {
    use runtime::seeded::{Bug, fails};
    const NOTICED: [(Bug, fn()); 2] = [
        (Bug::CopyOutlived, no_copy_of_an_earlier_life_is_ever_found),
        (Bug::CopyAfterDrop, no_copy_of_an_earlier_life_is_ever_found),
    ];
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
