//! The read cache: what clients read and nobody above keeps is in memory the next time, and is what the file has.

use crate::rig::{Rig, SEGMENT_BYTES, Shape, pattern, seeds};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Op, Sync};
use group::Context;
use runtime::Stage;
use runtime::random::SplitMix;
use runtime::sim::World;

const SHAPE: Shape = Shape { cache_bytes: 8 << 20, ..Shape::TINY };

/// Reads for a client that keeps nothing; also for how long the device was waited for.
async fn read(rig: &Rig, ino: Ino, offset: u64, length: usize) -> (Vec<u8>, u64) {
    let context = Context { unkept: true, ..rig.context() };
    let op = Op::Read { ino, offset, length: length as u32 };
    let answer = rig.call_as(&context, op, None).await.expect("it is there");
    (answer.data.map_or_else(Vec::new, |data| data.to_vec()), rig.booked_ns(&context, Stage::Read))
}

#[test]
pub fn what_was_read_is_in_memory_for_whoever_keeps_nothing() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let file = rig.create(rig.volume.root, "f").await.expect("a new file");
        let mut expected = pattern(1, 512 << 10);
        rig.write(file, At::Offset(0), &expected, Sync::All).await.expect("a write");
        // Pieces that lie elsewhere.
        for block in [3, 4, 9] {
            let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            expected[range.clone()].copy_from_slice(&pattern(block as u64, BLOCK_BYTES));
            rig.write(file, At::Offset(range.start as u64), &expected[range], Sync::All).await.expect("a write");
        }
        rig.checkpoint().await;
        for (offset, length) in [(0, 4096), (4096, 8192), (100_000, 5), (0, 64 << 10), (200_001, 60_000)] {
            for time in 0..4 {
                let (bytes, waited_ns) = read(&rig, file, offset as u64, length).await;
                assert!(bytes == expected[offset..offset + length], "{length} at {offset}");
                // The first time it is remembered, the second time it is kept.
                assert!(waited_ns > 0 || time > 1 || offset + length == 4096, "{length} at {offset}, time {time}");
                assert!(waited_ns == 0 || time < 2, "{length} at {offset}, time {time}");
            }
        }
        let figures = rig.groups.store().read_cache.figures();
        assert!(figures.bytes >= 31 * 4096 && figures.found > 60 && figures.missed > 0, "{figures:?}");
        // One that has a cache of its own, and one that reads large parts, are given what the device has.
        for _ in 0..2 {
            let context = rig.context();
            let op = Op::Read { ino: file, offset: 0, length: 4096 };
            rig.call_as(&context, op, None).await.expect("it is there");
            assert!(rig.booked_ns(&context, Stage::Read) > 0);
            assert!(read(&rig, file, 0, 128 << 10).await.1 > 0);
        }
        assert_eq!(rig.groups.store().read_cache.figures(), figures);
        rig.close().await;
    });
}

#[test]
pub fn what_is_kept_counts_only_for_what_the_file_has() {
    for seed in seeds(0..10) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let rig = Rig::new(runtime, SHAPE).await;
            let mut rng = SplitMix(seed);
            let mut files = Vec::new();
            for number in 0..8 {
                let file = rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file");
                files.push((file, Vec::new()));
            }
            // The brick's segments are written several times each.
            for round in 0..80 * (SEGMENT_BYTES as usize) / (256 << 10) {
                let count = files.len();
                let (ino, expected) = &mut files[round % count];
                *expected = pattern(seed + round as u64, 256 << 10);
                rig.write(*ino, At::Offset(0), expected, Sync::All).await.expect("there is room");
                let at = rng.below(64) as usize * BLOCK_BYTES;
                let part = pattern(rng.next(), BLOCK_BYTES);
                expected[at..at + BLOCK_BYTES].copy_from_slice(&part);
                rig.write(*ino, At::Offset(at as u64), &part, Sync::All).await.expect("there is room");
                if round % 8 == 7 {
                    rig.checkpoint().await;
                    rig.groups.store().free_unread();
                }
                for _ in 0..12 {
                    let (ino, expected) = &files[rng.below(1 + round.min(7) as u64) as usize];
                    let (offset, length) = (rng.below(196 << 10) as usize, 1 + rng.below(60 << 10) as usize);
                    let (offset, length) =
                        if rng.one_in(2) { (offset & !4095, (length + 4095) & !4095) } else { (offset, length) };
                    let (bytes, _) = read(&rig, *ino, offset as u64, length).await;
                    assert!(bytes == expected[offset..offset + length], "seed {seed}, round {round}");
                }
            }
            let figures = rig.groups.store().read_cache.figures();
            assert!(figures.found > 1000, "{figures:?}");
            rig.close().await;
        });
    }
}
