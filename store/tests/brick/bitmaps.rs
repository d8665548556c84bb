//! Live bitmaps of disks, which the index has and memory has not: exact at every checkpoint, whatever of a row has changed and
//! wherever a crash comes (rules K1, X1).

use crate::checkpoints::{Watched, live_places, places};
use crate::devices::{DISK, FIRST, fill, format, place, world};
use crate::missing::{RUN, put_on_disk};
use crate::rig::{Brick, GROUP, Map, VOLUME, boot, file, index_map, payload, seeds};
use base::{Index, Place, SegmentId, Sync};
use runtime::disk::device_name;
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Ran, Side, Survival, World};
use runtime::tasks::both;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::checkpoint::END;
use store::format::devices::Tier;
use store::format::keys;
use store::format::values::{self, GroupRow, SegmentState};
use store::index::Index as Engine;
use store::index::model::ModelIndex;
use store::purge::Purges;
use store::{Change, Cut, FreeLimits, GroupPart};

fn is_exact(index: &dyn Engine) {
    assert_eq!(live_places(index), places(&index_map(index)), "the live bits are what the leaves name");
}

/// The states of the disk's segments with live blocks, as the index has them.
fn states(index: &dyn Engine) -> Vec<SegmentState> {
    let (from, to) = (keys::segment(SegmentId(FIRST)), keys::segment(SegmentId(FIRST + DISK)));
    let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads").into_iter();
    let rows = rows.map(|(_, value)| values::decode_segment(&value).expect("a segment's row"));
    rows.filter(|row| row.live.iter().any(|&word| word != 0)).map(|row| row.state).collect()
}

/// Fills the disk's segments with what no file has until this one is sealed.
async fn seal(brick: &Brick, segment: SegmentId) {
    for _ in 0..20 {
        if brick.store.sealed_life(segment).is_some() {
            return;
        }
        place(brick, &payload(99, RUN)).await.expect("a healthy disk");
        brick.runtime.clock.sleep(1_000_000_000).await;
    }
    panic!("segment {segment} is not sealed");
}

/// A brick whose file 2 lies in an open segment of its disk, by a checkpoint.
async fn begun(runtime: &runtime::Runtime, index: &ModelIndex) -> Brick {
    let brick = Brick::open(runtime, index.clone()).await.expect("just formatted");
    fill(&brick, 4).await;
    put_on_disk(&brick, 2, 1).await;
    brick.checkpoint().await.expect("a healthy brick checkpoints");
    assert_eq!(states(index), [SegmentState::Open]);
    brick
}

/// The same on blank devices, with that segment sealed by another checkpoint.
async fn sealed(runtime: &runtime::Runtime) -> (ModelIndex, Brick) {
    let index = format(runtime, &[Tier::Disk]).await.expect("blank devices");
    let brick = begun(runtime, &index).await;
    seal(&brick, SegmentId(FIRST)).await;
    brick.checkpoint().await.expect("a healthy brick checkpoints");
    (index, brick)
}

/// Starts after a crash or a stop: the brick is whole, exact, and takes no place of a file again.
async fn goes_on(runtime: &runtime::Runtime, index: ModelIndex, expected: &Map, why: &str) {
    let opened = Brick::open(runtime, index.clone()).await;
    let brick = opened.unwrap_or_else(|error| panic!("{why}: {error}"));
    assert_eq!(&brick.map(), expected, "{why}");
    is_exact(&index);
    put_on_disk(&brick, 3, 12).await;
    brick.checkpoint().await.expect("a healthy brick checkpoints");
    is_exact(&index);
    put_on_disk(&brick, 4, 12).await;
    brick.read_all().await;
}

#[test]
pub fn the_row_of_a_disks_segment_that_is_sealed_keeps_its_bitmap() {
    let mut world = world(81, &[DISK]);
    let runtime = world.runtime();
    world.block_on(async {
        // Nothing in it becomes live or dead: only its state changes.
        let (index, brick) = sealed(&runtime).await;
        assert_eq!(states(&index), [SegmentState::Sealed]);
        is_exact(&index);
        let expected = brick.map();
        brick.stop().await;
        goes_on(&runtime, index, &expected, "after a stop").await;
    });
}

/// Three checkpoints of a brick whose disk is written to, sealed and partly overwritten, the last one crashed.
fn crashed(seed: u64, persists: bool, crash: Option<(u64, Side)>) -> (World, ModelIndex, Map, u64) {
    let mut world = world(seed, &[DISK]);
    let runtime = world.runtime();
    let (index, brick) = world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        begun(&runtime, &index).await.stop().await;
        let watched = Watched { model: index.clone(), written: Default::default(), persists: true };
        let brick = Brick::open(&runtime, watched).await.expect("a healthy brick opens");
        put_on_disk(&brick, 3, 6).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.stop().await;
        let watched = Watched { model: index.clone(), written: Default::default(), persists };
        let brick = Brick::open(&runtime, watched).await.expect("a healthy brick opens");
        let is_open = |place: &Place| place.segment.0 >= FIRST && brick.store.sealed_life(place.segment).is_none();
        let last_open = places(&brick.map()).into_iter().filter(is_open).map(|place| place.segment).max();
        let last_open = last_open.expect("the last one is not full");
        // Of one segment a part dies, of another one all, a third is sealed.
        let from = payload(seed, RUN / 2);
        brick.write(file(2), 10, &from, Sync::Data).await.expect("a healthy brick writes");
        for number in 0..4 {
            let bytes = payload(seed + number, RUN);
            brick.write(file(3), number * RUN as u64, &bytes, Sync::Data).await.expect("a healthy brick writes");
        }
        seal(&brick, last_open).await;
        (index, brick)
    });
    let (before, expected) = (world.steps(), brick.map());
    if let Some((step, side)) = crash {
        world.crash_at_step(before + step, side);
    }
    if let Ran::Finished(result) = world.run(brick.checkpoint()) {
        assert_eq!(result.is_ok(), persists, "{result:?}");
    }
    (world, index, expected, before)
}

#[test]
fn a_crash_at_each_step_of_a_checkpoint_leaves_exact_bitmaps() {
    for persists in [true, false] {
        let (whole, index, _, before) = crashed(82, persists, None);
        assert_eq!(index.unpersisted(), usize::from(!persists), "a checkpoint is one change of the index");
        let steps = whole.steps() - before;
        for step in 0..=steps {
            for side in [Side::Before, Side::After] {
                let crash = (step > 0).then_some((step, side));
                let (world, index, expected, _) = crashed(82, persists, crash);
                for (kept, survival) in (0..=index.unpersisted()).zip([Survival::Nothing, Survival::Everything]) {
                    let why = format!("step {step} of {steps} {side:?} {survival:?}, {kept} changes of the index");
                    let image = world.crash_as(survival, &mut SplitMix(step));
                    let mut after = boot(step, &image);
                    let runtime = after.runtime();
                    after.block_on(goes_on(&runtime, index.crashed(kept), &expected, &why));
                }
            }
        }
    }
}

/// Random work on disks, with stops, and without the disk now and then: blocks die there all the same.
#[test]
fn live_bits_of_disks_are_the_leaves_at_every_checkpoint() {
    for seed in seeds(1..9) {
        let mut rng = SplitMix(seed);
        let mut world = world(seed, &[DISK]);
        let runtime = world.runtime();
        let mut index = world.block_on(format(&runtime, &[Tier::Disk])).expect("blank devices");
        let mut kept: Option<DiskImage> = None;
        for round in 0..6 {
            let runtime = world.runtime();
            let is_there = kept.is_none();
            world.block_on(async {
                let brick = Brick::open(&runtime, index.clone()).await.expect("a healthy brick opens");
                for _ in 0..4 {
                    if is_there && rng.one_in(2) {
                        put_on_disk(&brick, 2 + rng.below(3), 1 + rng.below(4)).await;
                    }
                    let (first, blocks) = (rng.below(300), 1 + rng.below(60) as usize);
                    let bytes = payload(rng.next() >> 24, blocks);
                    let written = brick.write(file(2 + rng.below(3)), first, &bytes, Sync::Data).await;
                    written.expect("a healthy brick writes");
                    brick.checkpoint().await.expect("a healthy brick checkpoints");
                    is_exact(&index);
                }
                if is_there {
                    brick.read_all().await;
                }
            });
            let image = world.crash_as(Survival::Everything, &mut rng);
            index = index.crashed(0);
            // The disk goes or comes.
            let image = match (kept.take(), round % 2) {
                (Some(disk), _) => image.with_file_of(&disk, &device_name(2)),
                (None, 0) => {
                    kept = Some(image.clone());
                    image.without(&device_name(2))
                }
                (None, _) => image,
            };
            world = boot(seed * 100 + round, &image);
        }
    }
}

/// One step of freeing all blocks of a file, as far as the limits go; the blocks left on the disk.
async fn free(brick: &Brick, changes: Vec<Change>, purges: Arc<Purges>, limits: FreeLimits) -> (Arc<Purges>, u64) {
    let (replay, last) = brick.store.cut();
    brick.store.log.wait(last, Sync::All, None).await.expect("a healthy log");
    let row = GroupRow { applied: Index(brick.applied.load(Ordering::Relaxed)), ..GroupRow::default() };
    let part =
        GroupPart { group: GROUP, row, young: u64::MAX, changes, purges, reserves: Arc::default(), replica: None };
    let left = store::checkpoint::write(&brick.store, replay, vec![part], limits).expect("a healthy index");
    (left[0].purges.clone(), brick.store.devices()[1].live_blocks)
}

/// Each bitmap that must be loaded for it takes memory.
#[test]
fn what_was_cut_on_a_disk_is_freed_a_few_segments_at_a_time() {
    let mut world = world(83, &[DISK]);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let blocks = 12 * RUN as u64;
        put_on_disk(&brick, 2, 12).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        // Three leaves' slots, which one scan would exceed by far.
        let limits = FreeLimits { at_once: 1, slots_at_once: 0, slots_later: 3 * 72 };
        let cut = Cut { volume: VOLUME, ino: file(2), project: 0, blocks: 0..END, trim: 1 };
        let (mut purges, mut left) = free(&brick, vec![Change::Cut(cut)], Arc::default(), limits).await;
        let mut before = blocks;
        while before > 0 {
            assert!(left < before && before - left <= 4 * 64, "{} of {before} blocks at once", before - left);
            is_exact(&index);
            before = left;
            (purges, left) = free(&brick, Vec::new(), purges, limits).await;
        }
        assert!(purges.is_empty(), "all of it is freed");
    });
}

#[test]
fn a_bitmap_that_is_held_is_as_exact_as_the_last_checkpoint() {
    for seed in seeds(1..30) {
        let mut world = world(seed, &[DISK]);
        let runtime = world.runtime();
        world.block_on(async {
            let (index, brick) = sealed(&runtime).await;
            let segment = SegmentId(FIRST);
            let life = brick.store.life(segment);
            let asked = |block: u16| brick.store.is_live_block(Place { segment, block }, life);
            let live = || -> BTreeSet<u16> {
                let of = live_places(&index).into_iter().filter(|place| place.segment == segment);
                of.map(|place| place.block).collect()
            };
            assert!(live().len() == RUN && (0..256).all(|block| asked(block).is_none()), "only the index knows");
            let overwrite = async |first: u64| {
                let bytes = payload(seed, 10);
                brick.write(file(2), first, &bytes, Sync::Data).await.expect("a healthy brick writes");
            };
            overwrite(10).await;
            // It comes before, during or after the checkpoint.
            let hold = async {
                brick.runtime.clock.sleep(SplitMix(seed).below(60_000)).await;
                let _pin = brick.store.pin();
                brick.store.hold_live_of((segment, life)).await.map(Some)
            };
            let checkpoint = async { brick.checkpoint().await.map(|()| None) };
            let (checkpointed, held) = both(checkpoint, hold).await;
            assert!(checkpointed.is_ok_and(|none| none.is_none()), "a healthy brick checkpoints");
            let (entries, hold) = held.expect("it is sealed").expect("it was asked for");
            assert!(entries.len() == RUN || entries.len() == RUN - 10, "{} entries", entries.len());
            let exact = || (0..256).all(|block| asked(block) == Some(live().contains(&block)));
            assert!(live().len() == RUN - 10 && exact(), "seed {seed}");
            overwrite(30).await;
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            assert!(live().len() == RUN - 20 && exact(), "seed {seed}");
            drop(hold);
            assert!((0..256).all(|block| asked(block).is_none()), "nobody needs it any more");
            for first in (0..RUN as u64).step_by(10) {
                overwrite(first).await;
            }
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            assert!((0..256).all(|block| asked(block) == Some(false)), "none lives: that needs no bitmap");
        });
    }
}
