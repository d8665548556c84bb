//! Checkpoints: atomic, exact in their live bits, and replay goes on where they end (rules X1, K1, U5).

use crate::rig::{Brick, Map, VOLUME, boot, file, format, index_map, payload, seeds};
use base::{LeafKey, Place, Result, SegmentId, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use store::format::superblock::EPOCH_ENDS_MAX;
use store::format::{keys, values};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit, Pair};

/// An engine that keeps what it was told to write.
#[derive(Clone)]
pub struct Watched {
    pub model: ModelIndex,
    pub written: Arc<Mutex<Vec<IndexEdit>>>,
    /// False: its persist never ends well, as a crash comes first.
    pub persists: bool,
}

impl Index for Watched {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.model.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        self.model.scan(from, to, count)
    }
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        self.written.lock().expect("no panic while held").extend(edits.iter().cloned());
        self.model.write(edits)
    }
    fn persist(&self) -> Result<()> {
        match self.persists {
            true => self.model.persist(),
            false => Err(base::Error::new(base::Kind::Io, "the power fails first")),
        }
    }
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        Arc::new(self.model.clone()).snapshot()
    }
    fn written_bytes(&self) -> u64 {
        self.model.written_bytes()
    }
    fn memory_bytes(&self) -> u64 {
        self.model.memory_bytes()
    }
}

/// Random overwrites, some of them large.
async fn overwrite(brick: &Brick, rng: &mut SplitMix, count: u64) {
    for _ in 0..count {
        let tag = rng.next() >> 24;
        let (ino, first) = (file(rng.below(3)), rng.below(200));
        if rng.one_in(8) {
            let bytes = payload(tag, 32 + rng.below(8) as usize);
            brick.write_bulk(ino, first, &bytes, Sync::Data).await.expect("a healthy brick writes");
        } else {
            let bytes = payload(tag, 1 + rng.below(6) as usize);
            let sync = if rng.one_in(2) { Sync::Data } else { Sync::Ordered };
            brick.write(ino, first, &bytes, sync).await.expect("a healthy brick writes");
        }
    }
}

pub fn live_places(index: &dyn Index) -> BTreeSet<Place> {
    let (from, to) = keys::segments();
    let mut live = BTreeSet::new();
    for (key, value) in index.scan(&from, &to, usize::MAX).expect("the model index reads") {
        let (segment, row) = (keys::segment_id(&key), values::decode_segment(&value).expect("a segment's row"));
        for (word, bits) in row.live.iter().enumerate() {
            let set = (0..64).filter(|bit| bits & 1 << bit != 0);
            live.extend(set.map(|bit| Place { segment, block: (word * 64 + bit) as u16 }));
        }
    }
    live
}

pub fn places(map: &Map) -> BTreeSet<Place> {
    map.values().map(|(place, _)| *place).collect()
}

#[test]
fn live_bits_are_the_leaves_at_every_checkpoint() {
    for seed in seeds(1..5) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rng = SplitMix(seed);
            let index = format(&runtime, 64).await;
            let mut brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            let mut expected = Map::new();
            for round in 0..12 {
                overwrite(&brick, &mut rng, 12).await;
                brick.fresh.lock().expect("no panic while held").iter().for_each(|one| one.lay_over(&mut expected));
                brick.checkpoint().await.expect("a healthy brick checkpoints");
                let map = index_map(&index);
                assert_eq!(map, expected, "seed {seed}, round {round}");
                let mapped = places(&map);
                assert_eq!(mapped.len(), map.len(), "no place is named twice");
                assert_eq!(live_places(&index), mapped, "seed {seed}, round {round}");
                if round % 4 == 3 {
                    brick.stop().await;
                    brick = Brick::open(&runtime, index.clone()).await.expect("a healthy brick opens");
                    assert_eq!(brick.map(), expected, "seed {seed}, round {round}");
                }
            }
            brick.read_all().await;
        });
    }
}

#[test]
fn a_checkpoint_is_there_as_a_whole_or_not_at_all() {
    for seed in seeds(1..8) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let (index, expected) = world.block_on(async {
            let mut rng = SplitMix(seed);
            let index = format(&runtime, 64).await;
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            overwrite(&brick, &mut rng, 20).await;
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            overwrite(&brick, &mut rng, 5).await;
            brick.stop().await;
            let index = Watched { model: index, written: Arc::default(), persists: false };
            let brick = Brick::open(&runtime, index.clone()).await.expect("a healthy brick opens");
            overwrite(&brick, &mut rng, 20).await;
            let expected = brick.map();
            brick.checkpoint().await.expect_err("its persist fails");
            (index.model, expected)
        });
        assert_eq!(index.unpersisted(), 1, "a checkpoint is one write");
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        for kept in [0, 1] {
            let mut after = boot(seed, &image);
            let runtime = after.runtime();
            after.block_on(async {
                let index = index.crashed(kept);
                let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
                assert_eq!(brick.map(), expected, "seed {seed}, {kept} kept");
                brick.read_all().await;
                brick.checkpoint().await.expect("a healthy brick checkpoints");
                assert_eq!(index_map(&index), expected);
                assert_eq!(live_places(&index), places(&expected));
            });
        }
    }
}

#[test]
fn the_ends_of_epochs_are_kept_only_while_replay_may_meet_them() {
    let mut world = World::new(4);
    let runtime = world.runtime();
    let index = world.block_on(format(&runtime, 900));
    let mut rng = SplitMix(4);
    for life in 0..EPOCH_ENDS_MAX as u64 + 20 {
        let runtime = world.runtime();
        world.block_on(async {
            let brick = Brick::open(&runtime, index.clone()).await.expect("it crashed not too often");
            brick.write(file(1), life, &payload(life, 1), Sync::Data).await.expect("a healthy brick writes");
            if life % 50 == 49 {
                brick.checkpoint().await.expect("a healthy brick checkpoints");
            }
        });
        let image = world.crash_as(Survival::Nothing, &mut rng);
        let ends = crate::rig::superblock_of(&image).ends.len() as u64;
        assert!(ends <= 52, "life {life}: {ends} ends");
        world = boot(rng.next(), &image);
    }
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
        assert_eq!(brick.map().len(), EPOCH_ENDS_MAX + 20);
        brick.read_all().await;
    });
}

#[test]
fn too_many_crashes_without_a_checkpoint_are_said_before_anything_is_lost() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    let index = world.block_on(format(&runtime, 900));
    let mut rng = SplitMix(5);
    let mut lives = 0;
    let refused = loop {
        let runtime = world.runtime();
        let opened = world.block_on(async {
            let brick = Brick::open(&runtime, index.clone()).await?;
            brick.write(file(1), lives, &payload(lives, 1), Sync::Data).await.map(drop)
        });
        match opened {
            Ok(()) => lives += 1,
            Err(error) => break error,
        }
        world = boot(rng.next(), &world.crash_as(Survival::Nothing, &mut rng));
    };
    assert_eq!((refused.kind, lives), (base::Kind::Corrupt, EPOCH_ENDS_MAX as u64), "{refused}");
}

#[test]
fn only_segments_in_use_have_rows() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let (from, to) = keys::segments();
        let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
        let states: BTreeMap<SegmentId, _> = (rows.iter())
            .map(|(key, value)| (keys::segment_id(key), values::decode_segment(value).expect("a row").state))
            .collect();
        assert!(states.len() < 8, "{states:?}");
        assert_eq!(states[&SegmentId(0)], values::SegmentState::Open);
    });
}

/// A few blocks of a leaf are written as a few blocks, and what did not change is not written.
#[test]
fn a_checkpoint_writes_no_more_than_it_must() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    world.block_on(async {
        let written = Arc::new(Mutex::new(Vec::new()));
        let index = Watched { model: format(&runtime, 64).await, written: written.clone(), persists: true };
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let key = keys::leaf(VOLUME, LeafKey { ino: file(1), leaf: 0 });
        for (first, blocks, whole) in [(0, 64, true), (9, 3, false), (5, 30, true), (63, 1, false)] {
            brick.write(file(1), first, &payload(first, blocks), Sync::Data).await.expect("a healthy brick writes");
            written.lock().expect("no panic while held").clear();
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            let written = std::mem::take(&mut *written.lock().expect("no panic while held"));
            let of_leaf = |edit: &IndexEdit| match edit {
                IndexEdit::Put(of, _) if *of == key => Some(true),
                IndexEdit::Patch(of, _) if *of == key => Some(false),
                _ => None,
            };
            assert_eq!(written.iter().filter_map(of_leaf).collect::<Vec<_>>(), [whole], "{blocks} blocks");
            let empty =
                |edit: &IndexEdit| matches!(edit, IndexEdit::Put(key, value) if value.is_empty() && key[0] != 0);
            assert!(!written.iter().any(empty), "{written:?}");
        }
        // Segments are made ready at their own pace, and a checkpoint tells of each.
        runtime.clock.sleep(1_000_000_000).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        written.lock().expect("no panic while held").clear();
        // Nothing but the positions.
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let written = std::mem::take(&mut *written.lock().expect("no panic while held"));
        assert!(written.len() <= 2, "{written:?}");
    });
}

#[test]
fn rows_say_soon_that_a_segment_is_free() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for number in 0..2000 {
            brick.write(file(1), number % 8, &payload(number, 1), Sync::Data).await.expect("there is room");
        }
        // The first frees them, the next says so.
        for _ in 0..3 {
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            brick.runtime.clock.sleep(1_000_000_000).await;
        }
        let (from, to) = keys::segments();
        let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
        let row = |value: &Vec<u8>| values::decode_segment(value).expect("a row");
        let used = rows.iter().filter(|(_, value)| row(value).state != values::SegmentState::Free).count();
        let free = brick.store.segments().free_segments as usize;
        assert!(rows.len() > 8 && used + free <= 64, "{used} rows of segments in use, {free} of 64 are free");
    });
}

#[test]
fn a_checkpoint_before_the_first_append_keeps_the_replay_position() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("a fresh brick opens");
        for number in 0..600 {
            brick.write(file(1), number % 8, &payload(number, 1), Sync::Data).await.expect("there is room");
        }
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.stop().await;
        let mut last = replay_of(&index).sequence;
        assert!(last > 2, "the log has gone through several segments");
        for _ in 0..3 {
            let brick = Brick::open(&runtime, index.clone()).await.expect("a clean brick opens");
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            let now = replay_of(&index).sequence;
            assert!(now > last, "replay would start at segment {now} of the stream, it did at {last}");
            last = now;
            brick.stop().await;
        }
        let brick = Brick::open(&runtime, index.clone()).await.expect("a clean brick opens");
        assert!(brick.space_free() > 8, "dead segments before the replay position are free");
    });
}

fn replay_of(index: &ModelIndex) -> values::ReplayRow {
    let row = index.get(&keys::replay()).expect("the model index reads").expect("there was a checkpoint");
    values::decode_replay(&row).expect("a replay position")
}

#[test]
fn a_checkpoint_leaves_a_short_replay() {
    let mut world = World::new(9);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let segment = crate::rig::SEGMENT_BYTES;
        for number in 0..60 {
            brick.write(file(1), number * 20, &payload(number, 20), Sync::Data).await.expect("healthy");
        }
        // 1,200 blocks and their headers, where a segment takes 255.
        assert!((5 * segment..=8 * segment).contains(&brick.store.replay_bytes()), "{}", brick.store.replay_bytes());
        brick.checkpoint().await.expect("healthy");
        assert!(brick.store.replay_bytes() <= 2 * segment, "{}", brick.store.replay_bytes());
    });
}
