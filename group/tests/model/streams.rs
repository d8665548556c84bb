//! Files on a disk that are read in order are read ahead in large units, and clients always have what the file has.

use crate::rig::{Rig, Shape, pattern, seeds};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Sync};
use runtime::random::SplitMix;
use store::format::devices::Tier;

const SHAPE: Shape =
    Shape { segments: 64, further: &[(Tier::Disk, 200)], groups: 4, cache_bytes: 8 << 20, ..Shape::SMALL };
const FILE_BYTES: usize = 12 << 20;
const READ_BYTES: usize = 128 << 10;
const WRITE_BYTES: usize = 256 << 10;

/// A file on the disk, in the runs of several destages.
async fn file_on_disk(rig: &Rig, rng: &mut SplitMix) -> (Ino, Vec<u8>) {
    let file = rig.create(rig.volume.root, "file").await.expect("a new file");
    let mut bytes = pattern(rng.next(), FILE_BYTES);
    for (number, part) in bytes.chunks(WRITE_BYTES).enumerate() {
        let at = At::Offset((number * WRITE_BYTES) as u64);
        rig.write(file, at, part, Sync::Ordered).await.expect("there is room");
    }
    for round in 0..4 {
        for _ in 0..200 {
            overwrite(rig, (file, &mut bytes), rng, 0).await;
        }
        let other = rig.create(rig.volume.root, &format!("other{round}")).await.expect("a new file");
        fill(rig, other).await;
    }
    (file, bytes)
}

/// Fills flash with something else, so that what was there goes down to the disk.
async fn fill(rig: &Rig, other: Ino) {
    let filling = pattern(1, WRITE_BYTES);
    for number in 0..24 << 20 >> 18 {
        let at = At::Offset(number * WRITE_BYTES as u64);
        rig.write(other, at, &filling, Sync::Ordered).await.expect("there is room");
        if number % 16 == 0 {
            rig.checkpoint().await;
        }
    }
    pause(rig).await;
}

/// Long enough for the cleaner to come to rest.
async fn pause(rig: &Rig) {
    for _ in 0..10 {
        rig.runtime.clock.sleep(1_000_000_000).await;
        rig.checkpoint().await;
    }
}

/// Overwrites a block that lies at `from` or behind it.
async fn overwrite(rig: &Rig, (file, bytes): (Ino, &mut [u8]), rng: &mut SplitMix, from: usize) {
    let first = from.div_ceil(BLOCK_BYTES);
    let block = first + rng.below((FILE_BYTES / BLOCK_BYTES - first) as u64) as usize;
    let part = &mut bytes[block * BLOCK_BYTES..][..BLOCK_BYTES];
    part.copy_from_slice(&pattern(rng.next(), BLOCK_BYTES));
    let at = At::Offset((block * BLOCK_BYTES) as u64);
    rig.write(file, at, part, Sync::Ordered).await.expect("there is room");
}

async fn read(rig: &Rig, file: Ino, bytes: &[u8], at: usize) {
    let found = rig.read(file, at as u64, READ_BYTES).await.expect("it is there");
    assert!(found == bytes[at..at + READ_BYTES], "{READ_BYTES} bytes at {at}");
}

#[test]
pub fn a_file_on_a_disk_is_read_ahead_of_who_reads_it_in_order() {
    let mut world = SHAPE.world(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let (file, bytes) = file_on_disk(&rig, &mut SplitMix(1)).await;
        for at in (0..FILE_BYTES).step_by(READ_BYTES) {
            read(&rig, file, &bytes, at).await;
        }
        let once = rig.groups.streamed();
        let blocks = (FILE_BYTES / BLOCK_BYTES) as u64;
        assert!(once.taken_blocks > blocks * 3 / 4, "most of {blocks}: {once:?}");
        assert!(once.read_blocks <= blocks && once.taken_blocks <= once.read_blocks, "{once:?}");
        assert!(once.runs < once.read_blocks / 8, "seeks are fewer than requests: {once:?}");
        assert!(once.held_bytes <= once.bytes_max, "{once:?}");
        // Nobody reads in order.
        let rng = &mut SplitMix(2);
        for _ in 0..200 {
            read(&rig, file, &bytes, rng.below((FILE_BYTES / READ_BYTES) as u64) as usize * READ_BYTES).await;
        }
        let then = rig.groups.streamed();
        assert!(then.read_blocks <= once.read_blocks + blocks / 4, "{once:?}, {then:?}");
        rig.close().await;
    });
}

#[test]
pub fn what_is_read_in_order_is_what_the_file_has_whatever_was_read_ahead() {
    let mut taken = 0;
    for seed in seeds(0..4) {
        let mut world = SHAPE.world(seed);
        let runtime = world.runtime();
        taken += world.block_on(async {
            let rng = &mut SplitMix(seed);
            let rig = Rig::new(runtime, SHAPE).await;
            let (file, mut bytes) = file_on_disk(&rig, rng).await;
            let other = rig.create(rig.volume.root, "other").await.expect("a new file");
            for _ in 0..3 {
                for at in (0..FILE_BYTES).step_by(READ_BYTES) {
                    match rng.below(24) {
                        // They are in what was read ahead, or will be.
                        0..8 => overwrite(&rig, (file, &mut bytes), rng, at).await,
                        8 => rig.checkpoint().await,
                        9 => rig.runtime.clock.sleep(rng.below(2_000_000_000)).await,
                        10 => {
                            for _ in 0..100 {
                                overwrite(&rig, (file, &mut bytes), rng, at).await;
                            }
                            fill(&rig, other).await;
                        }
                        _ => {}
                    }
                    read(&rig, file, &bytes, at).await;
                }
            }
            let taken = rig.groups.streamed().taken_blocks;
            rig.close().await;
            taken
        });
    }
    assert!(taken > 10_000, "{taken} blocks were read ahead and used");
}
