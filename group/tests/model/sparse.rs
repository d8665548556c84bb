//! Sparse files: holes made and found, freed in steps; ranges zeroed and promised.

use crate::rig::{Rig, Shape, name, pattern};
use base::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use base::{At, Ino, Kind, Op, Reply, Room, Seek, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use store::FreeLimits;

const BLOCK: u64 = BLOCK_BYTES as u64;
const LEAF: u64 = 64 * BLOCK;

async fn clear(rig: &Rig, ino: Ino, offset: u64, length: u64, room: Room) -> Result<(), Kind> {
    rig.done(Op::Allocate { ino, offset, length, keep_size: true, room }).await
}

async fn seek(rig: &Rig, ino: Ino, offset: u64, what: Seek) -> Option<u64> {
    match rig.call(Op::Seek { ino, offset, what }, None).await.expect("files can be searched").reply {
        Reply::Found(found) => found,
        other => panic!("a seek was told {other:?}"),
    }
}

fn used(rig: &Rig) -> (u64, u64) {
    let usage = rig.groups.store().usage(rig.volume.id);
    (usage.values().map(|usage| usage.blocks).sum(), usage.values().map(|usage| usage.reserved).sum())
}

/// A hole over a large file is one record, freed over several checkpoints and restarts; meanwhile it reads as zeros, beside
/// what has been written in it since and what lies behind it (rule K6).
#[test]
pub fn a_large_hole_is_freed_step_by_step_and_nothing_beside_it() {
    const LEAVES: u64 = 40;
    let mut world = World::new(7);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, Shape::SMALL).await;
        rig.checkpoint().await;
        let free_at_first = rig.data_room().await;
        let file = rig.create(rig.volume.root, "sparse").await.expect("a new file");
        for leaf in 0..LEAVES {
            rig.write(file, At::Offset(leaf * LEAF), &pattern(leaf, 2 * 4096), Sync::Ordered).await.expect("a write");
        }
        rig.checkpoint().await;
        // From within leaf 2 to within leaf 37: of each of the two, one block stays.
        clear(&rig, file, 2 * LEAF + BLOCK, 35 * LEAF, Room::Hole).await.expect("a hole");
        rig.checkpoint().await;
        assert!(rig.groups.is_freeing(), "one step frees it all: the test shows nothing");
        // Within what is still to be freed: written, and another hole in that.
        rig.write(file, At::Offset(30 * LEAF + 8192), &pattern(77, 8192), Sync::Ordered).await.expect("a write");
        rig.write(file, At::Offset(32 * LEAF), &pattern(78, 4096), Sync::Ordered).await.expect("a write");
        clear(&rig, file, 31 * LEAF, 2 * LEAF, Room::Hole).await.expect("a hole");
        for round in 0..5 {
            for (offset, content) in [
                (2 * LEAF, pattern(2, 4096)),
                (2 * LEAF + BLOCK, vec![0; 4096]),
                (20 * LEAF, vec![0; 8192]),
                (30 * LEAF, vec![0; 8192]),
                (30 * LEAF + 8192, pattern(77, 8192)),
                (32 * LEAF, vec![0; 4096]),
                (37 * LEAF, vec![0; 4096]),
                (37 * LEAF + BLOCK, pattern(37, 2 * 4096)[4096..].to_vec()),
                (39 * LEAF, pattern(39, 2 * 4096)),
            ] {
                assert!(rig.read(file, offset, content.len()).await == Ok(content), "round {round}, offset {offset}");
            }
            assert_eq!(seek(&rig, file, 3 * LEAF, Seek::Data).await, Some(30 * LEAF + 8192));
            assert_eq!(seek(&rig, file, 30 * LEAF + 8192, Seek::Hole).await, Some(30 * LEAF + 4 * BLOCK));
            assert_eq!(seek(&rig, file, 31 * LEAF, Seek::Data).await, Some(37 * LEAF + BLOCK));
            rig = if round < 3 { rig.reopen().await } else { rig };
            rig.settle().await;
        }
        // Leaves 0 and 1, one block of 2, two of 30, one of 37, 38 and 39.
        assert_eq!(used(&rig), (4 + 1 + 2 + 1 + 4, 0));
        clear(&rig, file, 0, FILE_BYTES_MAX, Room::Hole).await.expect("a hole");
        rig.settle().await;
        assert_eq!((used(&rig), rig.data_room().await), ((0, 0), free_at_first));
        assert_eq!(seek(&rig, file, 0, Seek::Data).await, None);
        rig.reopen().await;
    });
}

#[test]
fn seeks_know_the_end_of_the_file_and_sizes_that_are_no_whole_blocks() {
    let mut world = World::new(8);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "sparse").await.expect("a new file");
        assert_eq!(seek(&rig, file, 0, Seek::Hole).await, None, "an empty file has nothing, not even a hole");
        rig.write(file, At::Offset(5 * LEAF + 100), &pattern(1, 5000), Sync::Ordered).await.expect("a write");
        // In the overlay, half in it, in the index.
        for settled in 0..3 {
            let (data, size) = (5 * LEAF, 5 * LEAF + 5100);
            assert_eq!(seek(&rig, file, 0, Seek::Data).await, Some(data), "{settled}");
            assert_eq!(seek(&rig, file, 17, Seek::Hole).await, Some(17));
            assert_eq!(seek(&rig, file, data + 4097, Seek::Data).await, Some(data + 4097));
            assert_eq!(seek(&rig, file, data + 1, Seek::Hole).await, Some(size));
            assert_eq!(seek(&rig, file, size - 1, Seek::Data).await, Some(size - 1));
            for what in [Seek::Data, Seek::Hole] {
                assert_eq!(seek(&rig, file, size, what).await, None);
                assert_eq!(seek(&rig, file, u64::MAX, what).await, None);
            }
            if settled == 1 {
                rig.write(file, At::Offset(5 * LEAF + 4096), &[1], Sync::Ordered).await.expect("a write");
            }
            rig.checkpoint().await;
        }
        rig.truncate(file, FILE_BYTES_MAX).await.expect("a file can be long");
        assert_eq!(seek(&rig, file, 6 * LEAF, Seek::Data).await, None);
        assert_eq!(seek(&rig, file, 6 * LEAF, Seek::Hole).await, Some(6 * LEAF));
        assert_eq!(seek(&rig, file, 5 * LEAF, Seek::Hole).await, Some(5 * LEAF + 2 * BLOCK));
        // Runs longer than what is looked at in one go.
        for leaf in 100..230 {
            rig.write(file, At::Offset(leaf * LEAF), &pattern(1, LEAF as usize), Sync::Ordered).await.expect("a write");
            if leaf == 160 {
                rig.checkpoint().await;
            }
        }
        assert_eq!(seek(&rig, file, 100 * LEAF, Seek::Hole).await, Some(230 * LEAF));
        assert_eq!(seek(&rig, file, 6 * LEAF, Seek::Data).await, Some(100 * LEAF));
        assert_eq!(
            rig.call(Op::Seek { ino: rig.volume.root, offset: 0, what: Seek::Data }, None)
                .await
                .err()
                .map(|error| error.kind),
            Some(Kind::Invalid)
        );
        rig.close().await;
    });
}

/// Promises within a hole are given back; a zeroed range has all of it promised, and what it held is freed.
#[test]
fn holes_give_promises_back_and_zeroed_ranges_have_them() {
    let mut world = World::new(9);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        clear(&rig, file, 0, 300 * BLOCK, Room::Promised).await.expect("there is room");
        rig.write(file, At::Offset(0), &pattern(1, 200 * BLOCK_BYTES), Sync::Ordered).await.expect("there is room");
        rig.settle().await;
        assert_eq!(used(&rig), (200, 100));
        // In one checkpoint, parts of blocks at both ends: a hole of 139 blocks, of which 89 were mapped and 50 were not.
        clear(&rig, file, 110 * BLOCK + 1, 140 * BLOCK, Room::Hole).await.expect("a hole");
        rig.settle().await;
        assert_eq!(used(&rig), (111, 50));
        // Zeros over what is mapped, a hole and what is promised.
        clear(&rig, file, 100 * BLOCK, 190 * BLOCK, Room::Zeroed).await.expect("there is room");
        rig.settle().await;
        assert_eq!(used(&rig), (100, 200));
        assert!(rig.read(file, 99 * BLOCK, 2 * 4096).await.is_ok_and(|bytes| bytes[4096..] == [0; 4096]));
        // And once more, before and after a write in the same checkpoint.
        rig.write(file, At::Offset(100 * BLOCK), &pattern(2, 8192), Sync::Ordered).await.expect("it was promised");
        clear(&rig, file, 101 * BLOCK, 10 * BLOCK, Room::Zeroed).await.expect("there is room");
        rig.write(file, At::Offset(102 * BLOCK), &pattern(2, 8192), Sync::Ordered).await.expect("it was promised");
        clear(&rig, file, 103 * BLOCK, BLOCK, Room::Hole).await.expect("a hole");
        rig.settle().await;
        assert_eq!(used(&rig), (100 + 2, 200 - 2 - 1));
        clear(&rig, file, 0, FILE_BYTES_MAX, Room::Hole).await.expect("a hole");
        rig.settle().await;
        assert_eq!(used(&rig), (0, 0));
        rig.reopen().await;
    });
}

/// Both edges of a hole lie within blocks: zeroed in the hole's own record, and there after a crash.
#[test]
fn a_hole_with_parts_of_blocks_outlives_a_crash() {
    for survival in [Survival::Nothing, Survival::Everything] {
        let mut world = World::new(10);
        let runtime = world.runtime();
        let bytes = pattern(3, 400 * BLOCK_BYTES);
        let (rig, file) = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            rig.write(file, At::Offset(0), &bytes[..200 * BLOCK_BYTES], Sync::Ordered).await.expect("there is room");
            rig.write(file, At::Offset(200 * BLOCK), &bytes[200 * BLOCK_BYTES..], Sync::Ordered).await.expect("room");
            rig.checkpoint().await;
            clear(&rig, file, 1000, 2000, Room::Hole).await.expect("a hole within a block");
            clear(&rig, file, 10_000, 300 * BLOCK, Room::Hole).await.expect("a hole");
            clear(&rig, file, 320 * BLOCK - 5, 10, Room::Zeroed).await.expect("zeros in two blocks");
            rig.done(Op::Fsync { ino: file, sync: Sync::All }).await.expect("a healthy brick syncs");
            (rig, file)
        });
        let mut expected = bytes.clone();
        for (offset, length) in [(1000, 2000), (10_000, 300 * BLOCK_BYTES), (320 * BLOCK_BYTES - 5, 10)] {
            expected[offset..offset + length].fill(0);
        }
        let mut after = World::from_image(4, world.crash_as(survival, &mut SplitMix(1)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            for pass in 0..2 {
                for (number, content) in expected.chunks(1 << 20).enumerate() {
                    let read = rig.read(file, (number as u64) << 20, content.len()).await.expect("it is there");
                    assert!(read == content, "MiB {number}, pass {pass}");
                }
                rig.settle().await;
            }
            assert_eq!(used(&rig), (400 - 299, 0));
            rig.reopen().await;
        });
    }
}

/// Scattered holes are carried out before they become too many to note.
#[test]
fn scattered_holes_wait_for_checkpoints_when_they_are_too_many() {
    let mut world = World::new(11);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        rig.write(file, At::Offset(0), &pattern(1, 1 << 20), Sync::Ordered).await.expect("there is room");
        let before = rig.groups.checkpoints();
        for number in 0..5000 {
            clear(&rig, file, 2 * number * BLOCK, BLOCK, Room::Hole).await.expect("a hole");
        }
        assert!(rig.groups.checkpoints() > before, "nobody has bounded them");
        rig.settle().await;
        assert_eq!(used(&rig), (128, 0));
        assert_eq!(seek(&rig, file, 0, Seek::Data).await, Some(BLOCK));
        let op = Op::Unlink { parent: rig.volume.root, name: name("file") };
        rig.done(op).await.expect("a name can be removed");
        rig.settle().await;
        assert_eq!(used(&rig), (0, 0));
        rig.reopen().await;
    });
}

/// Freeing with a budget for one row gets past rows that were written since the cut.
#[test]
fn freeing_gets_past_what_was_written_since() {
    let mut world = World::new(12);
    let runtime = world.runtime();
    world.block_on(async {
        let free = FreeLimits { at_once: 1, slots_at_once: 1, slots_later: 1 };
        let rig = Rig::new(runtime, Shape { free, ..Shape::SMALL }).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let write = async |leaf: u64| {
            let written = rig.write(file, At::Offset(leaf * LEAF), &pattern(leaf, 4096), Sync::Ordered).await;
            written.expect("there is room");
        };
        for leaf in 0..8 {
            write(leaf).await;
        }
        rig.checkpoint().await;
        clear(&rig, file, 0, 8 * LEAF, Room::Hole).await.expect("a hole");
        rig.checkpoint().await;
        for leaf in 1..7 {
            write(leaf).await;
        }
        for _ in 0..20 {
            rig.checkpoint().await;
        }
        assert!(!rig.groups.is_freeing(), "20 checkpoints have not freed two leaves");
        assert_eq!(used(&rig), (6, 0));
        rig.close().await;
    });
}
