//! Heals: a brick that was away takes a group's rows from another one, keeps what it provably has, and is whole again in the end,
//! whatever cuts the heal off.

#[path = "heal/story.rs"]
mod story;

use crate::rig::{Brick, GROUP, boot, format, payload, seeds};
use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{GroupId, Ino, Kind, LeafKey, Place, Time, VolumeId};
use runtime::random::SplitMix;
use runtime::sim::World;
use runtime::{Runtime, tasks};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::check::{self, Report, logical};
use store::format::keys::{self, Row};
use store::format::leaf::{BIRTH_KEPT, Leaf, Slot};
use store::format::superblock::HEALING;
use store::format::values::{self, GroupRow, HealRow};
use store::heal::{Page, decode_page, give, heal_row, missing, take};
use store::index::Index;
use store::index::model::ModelIndex;
use store::repair::{Depth, repair};
use store::reserve::Reserves;
use store::{Change, Opening, feature};
use story::{Author, Follower, Step, block};

/// The time at which the heals of these tests began.
const STARTED: u64 = 77;

/// The blocks that a group has by an index, without those that are left to free: checksum and place.
type Blocks = BTreeMap<(VolumeId, Ino, u64), (u32, Place)>;

fn blocks(index: &dyn Index) -> Blocks {
    let purges = give::purges(index, GROUP).expect("sound rows");
    let (from, to) = keys::in_group(GROUP);
    let mut blocks = Blocks::new();
    for (key, value) in index.scan(&from, &to, usize::MAX).expect("a model reads") {
        let Some((_, volume, Row::Leaf)) = keys::row(&key) else { continue };
        let (at, leaf) = (keys::leaf_of(&key), Leaf::decode(&value).expect("a leaf"));
        if leaf.trim < purges.trim_of(volume, at) {
            continue;
        }
        for (slot, value) in leaf.iter() {
            if let Slot::Local { place, crc, .. } = value {
                blocks.insert((volume, at.ino, block(at, slot)), (crc, place));
            }
        }
    }
    blocks
}

fn ctime(index: &dyn Index, (volume, ino): (VolumeId, Ino)) -> Option<Time> {
    let row = index.get(&keys::inode(volume, ino)).expect("a model reads");
    row.map(|row| values::decode_inode(&row).expect("an inode").ctime)
}

/// A group that two bricks follow; one of them is away for the last steps.
struct Story {
    /// The blocks by their checksums.
    content: BTreeMap<u32, Vec<u8>>,
    steps: Vec<Step>,
}

impl Story {
    fn new(seed: u64, length: usize) -> Story {
        let mut author = Author::new(seed);
        let steps: Vec<_> = (0..length).map(|_| author.step()).collect();
        let data = steps.iter().filter_map(|step| step.data.as_ref());
        let all: Vec<_> = data.map(|data| payload(data.tag, data.blocks)).collect();
        let blocks = all.iter().flat_map(|bytes| bytes.chunks(BLOCK_BYTES));
        Story { content: blocks.map(|block| (crc32c(block), block.to_vec())).collect(), steps }
    }

    /// A brick that follows the steps of a range. The first one formats it.
    async fn followed(&self, brick: Brick, seed: u64, steps: std::ops::Range<usize>) -> Follower {
        let index = &*brick.store.index;
        let volumes: Vec<_> = volumes(index);
        let purges = Arc::new(give::purges(index, GROUP).expect("sound rows"));
        let reserves = Arc::new(Reserves::read(index, GROUP, &volumes).expect("sound rows"));
        let mut follower = Follower { brick, purges, reserves, rng: SplitMix(seed) };
        for number in steps {
            follower.follow(number as u64 + 1, &self.steps[number]).await;
        }
        follower
    }

    /// The indices of a brick that has followed so many steps, each as of one number.
    fn given(&self, seed: u64, lengths: &[usize]) -> Vec<Arc<dyn Index>> {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let index = Arc::new(format(&runtime, 60).await);
            let brick = Brick::open(&runtime, (*index).clone()).await.expect("just formatted");
            let (mut follower, mut at, mut given) = (self.followed(brick, seed, 0..0).await, 0, Vec::new());
            for &length in lengths {
                for number in at..length {
                    follower.follow(number as u64 + 1, &self.steps[number]).await;
                }
                at = length;
                given.push(index.clone().snapshot().expect("a model has one"));
            }
            sound(&runtime, &index, None).await;
            given
        })
    }
}

fn volumes(index: &dyn Index) -> Vec<VolumeId> {
    let (from, to) = keys::volumes();
    let rows = index.scan(&from, &to, usize::MAX).expect("a model reads");
    rows.iter().map(|(_, value)| values::decode_volume(value).expect("a volume").id).collect()
}

/// The check finds nothing. `lacking`: the number of blocks that the brick lacks; None: nothing of it heals.
async fn sound(runtime: &Runtime, index: &ModelIndex, lacking: Option<u64>) -> Report {
    let opening = Opening::read_wholly(runtime.clone(), Arc::new(index.clone()), false).await.expect("it opens");
    let report = check::check(&opening, &mut |_| ()).await.expect("it can be checked");
    assert!(!report.log_lost && report.findings.is_empty(), "{:#?}", report.findings);
    assert_eq!(report.healing().is_some(), lacking.is_some_and(|lacking| lacking > 0) || report.mixed > 0);
    if let Some(lacking) = lacking {
        assert_eq!(report.lacking, lacking);
    }
    report
}

/// Takes pages of random sizes, at most so many. Returns the group's row if it came to the end.
async fn taken(brick: &Brick, giver: &Arc<dyn Index>, pages: u64, rng: &mut SplitMix) -> Option<GroupRow> {
    feature::require(&brick.store, HEALING).await.expect("nobody else changes the superblock");
    let purges = give::purges(&**giver, GROUP).expect("sound rows");
    let (mut from, mut row) = (Vec::new(), None);
    for _ in 0..pages {
        let full = [1, 100, 1000, give::PAGE_BYTES][rng.below(4) as usize];
        let page = give::page_of(&**giver, GROUP, &purges, (&from, full)).expect("sound rows");
        let store = brick.store.clone();
        let next = page.next.clone();
        let take = move || take::take_page(&store, GROUP, (&from, &page), STARTED);
        row = tasks::run_blocking(&*brick.runtime.tasks, take).await.expect("a page that was given");
        assert_eq!(row.is_some(), next.is_none(), "the group's row comes last");
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    row
}

/// The brick has now what the giver says, with those places that it had of the same versions.
fn healed(own: &dyn Index, before: &dyn Index, giver: &dyn Index) -> u64 {
    assert_eq!(logical::checksum(own, GROUP), recounted(giver));
    let (now, old, told) = (blocks(own), blocks(before), blocks(giver));
    let mut lacking = 0;
    for (of @ (volume, ino, block), (crc, _)) in &told {
        let same = ctime(before, (*volume, *ino)).is_some_and(|time| ctime(giver, (*volume, *ino)) == Some(time));
        let kept = old.get(of).filter(|(of, _)| same && of == crc).map_or(Place::MISSING, |(_, place)| *place);
        assert_eq!(now.get(of), Some(&(*crc, kept)), "block {block} of inode {ino} of volume {volume}");
        lacking += u64::from(kept == Place::MISSING);
    }
    assert_eq!(now.len(), told.len());
    lacking
}

/// The giver's checksum once nothing is left to free: until then its inodes count blocks that are.
fn recounted(giver: &dyn Index) -> base::Result<(base::Index, u32)> {
    let (from, to) = keys::in_group(GROUP);
    let copy = ModelIndex::new(store::format::leaf::merge);
    let mut found: BTreeMap<(VolumeId, Ino), u64> = BTreeMap::new();
    for (volume, ino, _) in blocks(giver).keys() {
        *found.entry((*volume, *ino)).or_default() += 1;
    }
    for (key, mut value) in giver.scan(&from, &to, usize::MAX)? {
        if let Some((_, volume, Row::Inode)) = keys::row(&key) {
            let blocks = found.get(&(volume, keys::first_ino(&key))).copied().unwrap_or(0);
            value = values::encode_counted_inode(&values::decode_inode(&value)?, blocks);
        }
        copy.write(vec![store::index::IndexEdit::Put(key, value)])?;
    }
    logical::checksum(&copy, GROUP)
}

/// All missing blocks, a few at a time.
fn all_missing(index: &dyn Index, rng: &mut SplitMix) -> Vec<store::heal::Lacking> {
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let found = missing(index, GROUP, after, 1 + rng.below(50) as usize).expect("sound rows");
        assert_eq!(found.blocks, found.lacking.iter().map(|one| one.crcs.len() as u64).sum::<u64>());
        all.extend(found.lacking);
        match found.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

/// Fetches all missing blocks, and ends the heal.
async fn fetch(follower: &mut Follower, story: &Story, rng: &mut SplitMix) {
    for lacking in all_missing(&*follower.brick.store.index, rng) {
        let bytes: Vec<_> = lacking.crcs.iter().flat_map(|crc| story.content[crc].clone()).collect();
        let (volume, ino, first) = (lacking.volume, lacking.ino, lacking.first);
        follower.brick.volume.store(volume.0, Ordering::Relaxed);
        let written = follower.brick.append(ino, first, &bytes, base::Sync::Ordered).await.expect("it has room");
        let mut map = BTreeMap::new();
        written.lay_over(&mut map);
        let mut moved: BTreeMap<LeafKey, (Leaf, Vec<(usize, Place)>)> = BTreeMap::new();
        for ((ino, block), (place, crc)) in map {
            let (key, slot) = LeafKey::of(ino, block);
            let (leaf, from) = moved.entry(key).or_default();
            leaf.set(slot, Slot::Local { place, crc, birth: BIRTH_KEPT });
            from.push((slot, Place::MISSING));
        }
        let changes = moved.into_iter().map(|(key, (leaf, from))| Change::Moved(volume, key, leaf, from));
        follower.checkpoint(changes.collect()).await;
    }
    follower.checkpoint(vec![Change::Healed]).await;
}

/// Every block has its content.
async fn read(brick: &Brick, story: &Story) {
    for (of, (crc, place)) in blocks(&*brick.store.index) {
        let buffer = brick.runtime.buffer(BLOCK_BYTES).expect("within the bound");
        let (buffer, result) = brick.store.read(runtime::Purpose::Other, place, buffer).await;
        match place {
            Place::MISSING => assert_eq!(result.map_err(|error| error.kind), Err(Kind::Elsewhere)),
            _ => assert!(result.is_ok() && buffer[..] == story.content[&crc][..], "{of:?}"),
        }
    }
}

/// A brick that was away heals. `cuts`: how often it is cut off before it may come to the end; a later snapshot is given then.
fn heal(seed: u64, cuts: u64) -> (u64, u64) {
    let mut rng = SplitMix(seed);
    let away = 30 + rng.below(60) as usize;
    let given = away + 5 + rng.below(40) as usize;
    let story = Story::new(seed, given + 40);
    let (early, late) = (given + rng.below(15) as usize, given + 20);
    let givers = story.given(seed, &[given, early, late]);
    let mut world = World::new(seed + 1);
    let runtime = world.runtime();
    let mut index = world.block_on(async {
        let index = format(&runtime, 60).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        drop(story.followed(brick, seed + 1, 0..away).await);
        index
    });
    let before = Arc::new(index.clone()).snapshot().expect("a model has one");
    for cut in 0..cuts {
        let image = world.crash(&mut rng);
        index = index.crashed(rng.below(index.unpersisted() as u64 + 1) as usize);
        world = boot(seed + 2 + cut, &image);
        let runtime = world.runtime();
        world.block_on(async {
            let mark = heal_row(&index, GROUP).expect("sound rows");
            assert!(mark.is_none_or(|mark| mark == HealRow { rows: true, started: STARTED }), "{mark:?}");
            let report = sound(&runtime, &index, None).await;
            assert_eq!(report.mixed, u32::from(mark.is_some()));
            if mark.is_some() {
                let opening = Opening::read(runtime.clone(), Arc::new(index.clone()), true).await.expect("it opens");
                let refused = repair(&opening, Depth::All, &mut |_| ()).await;
                assert_eq!(refused.map_err(|error| error.kind), Err(Kind::Unsupported));
            }
            let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
            let giver = &givers[(cut as usize).min(1)];
            // Perhaps all of them: it is cut off before it finishes.
            let pages = rng.below(150);
            taken(&brick, giver, pages, &mut rng).await;
        });
    }
    let image = world.crash(&mut rng);
    index = index.crashed(rng.below(index.unpersisted() as u64 + 1) as usize);
    let mut world = boot(seed + 99, &image);
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
        let giver = givers.last().expect("three");
        bounded(giver);
        let row = taken(&brick, giver, u64::MAX, &mut rng).await.expect("it came to the end");
        let store = brick.store.clone();
        let finish = move || take::finish(&store, GROUP, row);
        tasks::run_blocking(&*brick.runtime.tasks, finish).await.expect("a healthy brick");
        assert_eq!(heal_row(&index, GROUP), Ok(Some(HealRow { rows: false, started: STARTED })));
        let lacking = healed(&index, &*before, &**giver);
        assert_eq!(all_missing(&index, &mut rng).iter().map(|one| one.crcs.len() as u64).sum::<u64>(), lacking);
        assert!(give::purges(&index, GROUP).expect("sound rows").is_empty());
        sound(&runtime, &index, Some(lacking)).await;
        read(&brick, &story).await;
        let has = blocks(&index).len() as u64;
        // It goes on as any other, and gets what it lacks.
        brick.applied.store(late as u64, Ordering::Relaxed);
        let mut follower = story.followed(brick, seed, late..late + 20).await;
        let lacking_now = all_missing(&index, &mut rng).iter().map(|one| one.crcs.len() as u64).sum::<u64>();
        assert!(lacking_now <= lacking, "nothing new is missing");
        fetch(&mut follower, &story, &mut rng).await;
        assert_eq!(heal_row(&index, GROUP), Ok(None));
        assert!(all_missing(&index, &mut rng).is_empty());
        read(&follower.brick, &story).await;
        sound(&runtime, &index, None).await;
        (lacking, has - lacking)
    })
}

/// Pages that are as large as can be stay below their bound.
fn bounded(giver: &Arc<dyn Index>) {
    let purges = give::purges(&**giver, GROUP).expect("sound rows");
    let mut from = Some(Vec::new());
    while let Some(at) = from {
        let Page { bytes, next } = give::page(&**giver, GROUP, &purges, &at).expect("sound rows");
        assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());
        from = next;
    }
}

#[test]
fn a_brick_that_was_away_takes_over_what_others_have() {
    let (mut lacked, mut kept) = (0, 0);
    for seed in seeds(0..30) {
        let (lacking, has) = heal(seed, 0);
        (lacked, kept) = (lacked + lacking, kept + has);
    }
    assert!(lacked > 0 && kept > 0, "{lacked} blocks were missing, {kept} were kept");
}

#[test]
fn a_heal_that_is_cut_off_begins_anew() {
    let mut kept = 0;
    for seed in seeds(100..140) {
        kept += heal(seed, 1 + seed % 3).1;
    }
    assert!(kept > 0);
}

#[test]
fn pages_that_are_damaged_or_of_another_group_are_refused() {
    let story = Story::new(7, 120);
    let giver = story.given(7, &[120]).pop().expect("one");
    let purges = give::purges(&*giver, GROUP).expect("sound rows");
    let mut world = World::new(8);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 20).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        feature::require(&brick.store, HEALING).await.expect("nobody else changes the superblock");
        let mut rng = SplitMix(9);
        let (mut from, mut first) = (Vec::new(), None);
        loop {
            let page = give::page(&*giver, GROUP, &purges, &from).expect("sound rows");
            assert!(decode_page(&page.bytes, GROUP).is_ok());
            assert!(decode_page(&page.bytes, GroupId(1)).is_err() || page.next.is_none() || page.bytes.len() == 2);
            for _ in 0..2000 {
                let mut bytes = page.bytes.clone();
                let at = rng.below(bytes.len() as u64) as usize;
                match rng.below(3) {
                    0 => bytes.truncate(at),
                    1 => bytes[at] ^= 1 << rng.below(8),
                    _ => bytes.insert(at, rng.next() as u8),
                }
                drop(decode_page(&bytes, GROUP));
            }
            let first = first.get_or_insert_with(|| page.clone());
            let refused = |page: Page, from: &[u8]| {
                let taken = take::take_page(&brick.store, GROUP, (from, &page), STARTED);
                assert_eq!(taken.map_err(|error| error.kind), Err(Kind::Corrupt));
            };
            // Of another phase; a cursor that does not follow; rows behind it.
            if page
                .next
                .as_ref()
                .is_none_or(|next| next.len() > 1 && next[0] != first.next.as_ref().expect("not all")[0])
            {
                refused(Page { bytes: first.bytes.clone(), ..page.clone() }, &from);
            }
            refused(Page { next: Some(vec![1]), ..page.clone() }, &from);
            refused(Page { next: Some(b"nonsense".to_vec()), ..page.clone() }, &from);
            assert_eq!(heal_row(&index, GROUP), Ok(None), "nothing of it was taken");
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        let row = GroupRow::fresh();
        assert_eq!(take::finish(&brick.store, GROUP, row).map_err(|error| error.kind), Err(Kind::Invalid));
    });
}
