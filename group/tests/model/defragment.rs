//! Blocks that large reads find scattered are put together, and stay what the file has, whatever else happens meanwhile.

use crate::rig::{Rig, SEGMENT_BYTES, Shape, pattern, seeds};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};

const SHAPE: Shape = Shape { cache_bytes: 8 << 20, ..Shape::SMALL };
/// Half a segment: it can lie in one piece.
const BYTES: usize = SEGMENT_BYTES as usize / 2;
const BLOCKS: usize = BYTES / BLOCK_BYTES;

/// Overwrites blocks of a file in a random order.
async fn scatter(rig: &Rig, file: Ino, expected: &mut [u8], rng: &mut SplitMix, count: usize) {
    let mut blocks: Vec<usize> = (0..BLOCKS).collect();
    for at in (1..BLOCKS).rev() {
        blocks.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for block in &blocks[..count] {
        let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        expected[range.clone()].copy_from_slice(&pattern(rng.next(), BLOCK_BYTES));
        rig.write(file, At::Offset(range.start as u64), &expected[range], Sync::Ordered).await.expect("a write");
    }
}

/// A file whose blocks all lie apart, durable and in the index.
async fn scattered(rig: &Rig, rng: &mut SplitMix) -> (Ino, Vec<u8>) {
    let file = rig.create(rig.volume.root, "f").await.expect("a new file");
    let mut expected = pattern(1, BYTES);
    rig.write(file, At::Offset(0), &expected, Sync::All).await.expect("a write");
    scatter(rig, file, &mut expected, rng, BLOCKS).await;
    rig.groups.store().log.wait(rig.groups.store().log.last_batch(), Sync::All, None).await.expect("a healthy log");
    rig.checkpoint().await;
    // The cleaner looks around, and finds enough that is free.
    rig.runtime.clock.sleep(1_000_000_000).await;
    (file, expected)
}

async fn pause(rig: &Rig) {
    rig.runtime.clock.sleep(500_000_000).await;
}

#[test]
pub fn what_a_large_read_found_scattered_is_read_in_one_piece_the_next_time() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let (file, mut expected) = scattered(&rig, &mut SplitMix(1)).await;
        // Small reads, and those that begin within a block, are nobody's who reads in order.
        assert!(rig.read(file, 0, 64 << 10).await.expect("it is there") == expected[..64 << 10]);
        assert!(rig.read(file, 5, 256 << 10).await.expect("it is there") == expected[5..5 + (256 << 10)]);
        pause(&rig).await;
        assert_eq!(rig.groups.defragmented_blocks(), 0);

        assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
        pause(&rig).await;
        assert_eq!(rig.groups.defragmented_blocks(), BLOCKS as u64);
        // Found in one piece, before and after the index knows, it is left there.
        for _ in 0..2 {
            assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
            pause(&rig).await;
            assert_eq!(rig.groups.defragmented_blocks(), BLOCKS as u64);
            rig.checkpoint().await;
        }
        // A few blocks that lie elsewhere cost a reader little.
        scatter(&rig, file, &mut expected, &mut SplitMix(2), 4).await;
        rig.checkpoint().await;
        assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
        pause(&rig).await;
        assert_eq!(rig.groups.defragmented_blocks(), BLOCKS as u64);
        let rig = rig.reopen().await;
        assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
        rig.close().await;
    });
}

/// A client's answer waits for the memory that it has lent.
#[test]
pub fn what_waits_to_be_put_together_keeps_no_memory_of_its_reader() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let (file, expected) = scattered(&rig, &mut SplitMix(1)).await;
        let (loan, room) = rig.runtime.buffer(BYTES).expect("memory").lend();
        let read = Op::Read { ino: file, offset: 0, length: BYTES as u32 };
        let answer = rig.groups.call(&rig.context(), read, Some(room)).await.expect("it is there");
        let bytes = answer.data.expect("bytes");
        assert!(bytes[..] == expected && loan.offset(&bytes).is_some(), "the answer is in the memory that was lent");
        drop(bytes);
        assert!(loan.back().is_ok(), "it is the client's again at once");
        pause(&rig).await;
        assert_eq!(rig.groups.defragmented_blocks(), BLOCKS as u64);
        rig.close().await;
    });
}

#[test]
pub fn readers_alone_do_not_rewrite_without_end() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let mut rng = SplitMix(3);
        let (file, mut expected) = scattered(&rig, &mut rng).await;
        // Every fourth block is written anew between two reads: each read would rewrite four blocks for one.
        for _ in 0..40 {
            scatter(&rig, file, &mut expected, &mut rng, BLOCKS / 4).await;
            rig.checkpoint().await;
            assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
            pause(&rig).await;
            let (moved, written) = (rig.groups.defragmented_blocks(), rig.groups.store().space.written_blocks());
            assert!(moved <= written, "{moved} blocks were put together, {written} were written");
        }
        assert!(rig.groups.defragmented_blocks() >= 10 * BLOCKS as u64);
        rig.close().await;
    });
}

#[test]
pub fn moved_or_not_the_file_has_what_was_written_last() {
    for seed in seeds(0..20) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let rig = Rig::new(runtime, SHAPE).await;
            let mut rng = SplitMix(seed);
            let (file, mut expected) = scattered(&rig, &mut rng).await;
            for _ in 0..12 {
                // The answer is there; the move is under way while the client writes again.
                assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
                rig.runtime.clock.sleep(rng.below(3_000_000)).await;
                if rng.below(3) == 0 {
                    rig.checkpoint_beside();
                }
                let count = rng.below(BLOCKS as u64 / 2) as usize;
                scatter(&rig, file, &mut expected, &mut rng, count).await;
                assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
            }
            assert!(rig.groups.defragmented_blocks() > 0);
            let rig = rig.reopen().await;
            assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
            rig.close().await;
        });
    }
}

/// A crash at any time of the move: what was durable where it lay is durable where it lies.
#[test]
pub fn a_crash_keeps_what_was_put_together() {
    for seed in seeds(0..20) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let (rig, file, expected) = world.block_on(async {
            let rig = Rig::new(runtime, SHAPE).await;
            let (file, expected) = scattered(&rig, &mut rng).await;
            assert!(rig.read(file, 0, BYTES).await.expect("it is there") == expected);
            rig.runtime.clock.sleep(rng.below(20_000_000)).await;
            match rng.below(3) {
                0 => rig.checkpoint_beside(),
                1 => rig.checkpoint().await,
                _ => {}
            }
            // What is durable is so with all before it, the move among it.
            rig.write(file, At::Offset(BYTES as u64), b"the end", Sync::Data).await.expect("a write");
            (rig, file, expected)
        });
        for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
            let mut after = World::from_image(seed, world.crash_as(survival, &mut rng));
            let runtime = after.runtime();
            after.block_on(async {
                let rig = rig.after_crash(runtime, 0).await;
                let found = rig.read(file, 0, BYTES).await.expect("it is there");
                assert!(found == expected, "seed {seed}, {survival:?}");
                assert_eq!(rig.read(file, BYTES as u64, 100).await, Ok(b"the end".to_vec()));
                rig.close().await;
            });
        }
    }
}
