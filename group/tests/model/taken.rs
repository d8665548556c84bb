//! The number of blocks that a file occupies comes with its attributes: exact at once where it can be known, and exact
//! for all after the next checkpoint (decision 0032).

use crate::rig::{Rig, Shape, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Blocks, Ino, Op, Room, Sync};
use runtime::random::SplitMix;
use runtime::sim::World;
use std::collections::BTreeSet;

const BLOCK: u64 = BLOCK_BYTES as u64;

async fn blocks(rig: &Rig, ino: Ino) -> Blocks {
    rig.attr(Op::GetAttr { ino }).await.expect("it is there").blocks
}

fn exactly(count: u64) -> Blocks {
    Blocks { count, exact: true }
}

async fn write(rig: &Rig, file: Ino, block: u64, count: u64) {
    let bytes = pattern(block, count as usize * BLOCK_BYTES);
    rig.write(file, At::Offset(block * BLOCK), &bytes, Sync::Ordered).await.expect("there is room");
}

async fn allocate(rig: &Rig, ino: Ino, block: u64, count: u64, room: Room) {
    let op = Op::Allocate { ino, offset: block * BLOCK, length: count * BLOCK, keep_size: true, room };
    rig.done(op).await.expect("there is room");
}

#[test]
fn a_file_with_holes_takes_what_it_has() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "sparse").await.expect("a new file");
        assert_eq!(blocks(&rig, file).await, exactly(0));
        rig.truncate(file, 1 << 30).await.expect("a file can grow");
        for number in 0..8 {
            write(&rig, file, number * 5000, 32).await;
        }
        assert_eq!(blocks(&rig, file).await, exactly(256));
        rig.checkpoint().await;
        assert_eq!(blocks(&rig, file).await, exactly(256));
        write(&rig, file, 300_000, 3).await;
        assert_eq!(blocks(&rig, file).await, exactly(259), "it grows");
        // Nobody knows whether there was a hole before: not more than that.
        write(&rig, file, 10, 4).await;
        let told = blocks(&rig, file).await;
        assert!(!told.exact && (259..=263).contains(&told.count), "{told:?}");
        rig = rig.reopen().await;
        assert_eq!(blocks(&rig, file).await, exactly(259));
        // A file without holes is known in every moment.
        let whole = rig.create(rig.volume.root, "whole").await.expect("a new file");
        write(&rig, whole, 0, 100).await;
        rig.checkpoint().await;
        write(&rig, whole, 50, 100).await;
        assert_eq!(blocks(&rig, whole).await, exactly(150));
        allocate(&rig, whole, 10, 20, Room::Hole).await;
        assert_eq!(blocks(&rig, whole).await, exactly(130));
        write(&rig, whole, 15, 1).await;
        assert_eq!(blocks(&rig, whole).await, exactly(131));
        rig.truncate(whole, 5 * BLOCK).await.expect("a file can be cut");
        assert_eq!(blocks(&rig, whole).await, exactly(5));
        // Promises take room before they are written, and not once more then.
        allocate(&rig, whole, 0, 1000, Room::Promised).await;
        assert_eq!(blocks(&rig, whole).await, exactly(1000));
        write(&rig, whole, 500, 10).await;
        assert_eq!(blocks(&rig, whole).await, exactly(1000));
        rig.checkpoint().await;
        write(&rig, whole, 520, 10).await;
        assert_eq!(blocks(&rig, whole).await, exactly(1000));
        rig.close().await;
    });
}

/// Numbers that are said to be exact are exact, and all are after a checkpoint that leaves nothing to free.
#[test]
fn what_random_files_take_is_told_exactly_after_a_checkpoint() {
    for seed in 0..24 {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            let mut random = SplitMix(seed);
            let mut taken = BTreeSet::new();
            for _ in 0..60 {
                let block = random.next() % 300;
                let count = 1 + random.next() % 40;
                match random.next() % 8 {
                    0..=2 => {
                        write(&rig, file, block, count).await;
                        taken.extend(block..block + count);
                    }
                    3 => {
                        allocate(&rig, file, block, count, Room::Hole).await;
                        taken.retain(|taken| !(block..block + count).contains(taken));
                    }
                    4 => {
                        allocate(&rig, file, block, count, Room::Promised).await;
                        taken.extend(block..block + count);
                    }
                    5 => {
                        rig.truncate(file, block * BLOCK).await.expect("a file can be cut");
                        taken.retain(|taken| *taken < block);
                    }
                    6 => rig.checkpoint().await,
                    _ => {
                        rig.settle().await;
                        if count > 30 {
                            rig = rig.reopen().await;
                        }
                        assert_eq!(blocks(&rig, file).await, exactly(taken.len() as u64), "seed {seed}");
                    }
                }
                let told = blocks(&rig, file).await;
                assert!(!told.exact || told.count == taken.len() as u64, "seed {seed}: {told:?} of {}", taken.len());
            }
            rig.settle().await;
            assert_eq!(blocks(&rig, file).await, exactly(taken.len() as u64), "seed {seed}");
            rig.close().await;
        });
    }
}
