//! Small buffered writes one after the other: what they cost on the device, and that blocks which are replaced while they wait
//! to be written are right for every reader, after every crash and beside checkpoints (rules M5, K8, L7).

use crate::rig::{Rig, Shape, pattern, seeds};
use base::limits::{BLOCK_BYTES, IO_BYTES_MAX};
use base::{At, Ino, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};

#[test]
fn lines_of_a_hundred_bytes_take_at_most_three_bytes_of_the_device_each() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let files = [rig.create(rig.volume.root, "one").await, rig.create(rig.volume.root, "other").await];
        let files = files.map(|file| file.expect("a new file"));
        let written = || rig.groups.store().log.figures().bytes;
        let (before, free) = (written(), rig.free_bytes().await);
        let line = |number: u64| pattern(number, 100);
        for number in 0..10_000 {
            rig.write(files[number as usize % 2], At::End, &line(number), Sync::Ordered).await.expect("a write");
        }
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        assert_eq!(rig.groups.store().space.client_bytes(), 1_000_000, "what is told of clients is bytes");
        let taken = written() - before;
        assert!(taken <= 3 * 1_000_000, "{taken} bytes for 1,000,000");
        let used = free - rig.free_bytes().await;
        assert!(used < 2_500_000, "{used} bytes of room for 1,000,000, before any checkpoint");
        for number in 0..10_000 {
            let read = rig.read(files[number as usize % 2], number / 2 * 100, 100).await;
            assert_eq!(read, Ok(line(number)), "line {number}");
        }
        rig.close().await;
    });
}

/// Small writes to a file of a few blocks, cuts and checkpoints among them. Returns what the file held after each of them.
async fn scribble(rig: &Rig, file: Ino, rng: &mut SplitMix, steps: u64) -> Vec<Vec<u8>> {
    let mut states = vec![Vec::new()];
    for step in 0..steps {
        let mut now: Vec<u8> = states.last().expect("there is a first").clone();
        if rng.one_in(12) {
            let size = rng.below(3 * BLOCK_BYTES as u64);
            rig.truncate(file, size).await.expect("a cut");
            now.resize(size as usize, 0);
        } else {
            let longest = if rng.one_in(4) { 5000 } else { 200 };
            let length = 1 + rng.below(longest);
            let offset = if rng.one_in(3) { rng.below(3 * BLOCK_BYTES as u64) } else { now.len() as u64 };
            let sync = if rng.one_in(30) { Sync::Data } else { Sync::Ordered };
            let bytes = pattern(step, length as usize);
            rig.write(file, At::Offset(offset), &bytes, sync).await.expect("a write");
            let end = (offset + length) as usize;
            now.resize(now.len().max(end), 0);
            now[offset as usize..end].copy_from_slice(&bytes);
        }
        match rng.below(20) {
            0 => rig.checkpoint_beside(),
            1 => rig.checkpoint().await,
            2 => rig.runtime.clock.sleep(rng.below(40_000_000)).await,
            _ => {}
        }
        let read = rig.read(file, 0, now.len()).await;
        assert!(read.as_ref() == Ok(&now), "step {step}: what was written is read");
        states.push(now);
    }
    states
}

#[test]
pub fn a_block_that_is_replaced_while_it_waits_is_whole_after_every_crash() {
    for seed in seeds(1..60) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let steps = 40 + rng.below(120);
        let (rig, file, states) = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            rig.done(Op::Fsync { ino: file, sync: Sync::All }).await.expect("a healthy brick syncs");
            let states = scribble(&rig, file, &mut rng, steps).await;
            (rig, file, states)
        });
        for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
            let mut after = World::from_image(seed, world.crash_as(survival, &mut rng));
            let runtime = after.runtime();
            after.block_on(async {
                let rig = rig.after_crash(runtime, rng.below(2) as usize).await;
                let read = rig.read(file, 0, IO_BYTES_MAX).await.expect("no block is damaged");
                assert!(states.contains(&read), "seed {seed}, {survival:?}: the file is as it was at some moment");
                // Goes on, seals what it left, and the check finds nothing.
                rig.write(file, At::End, b"more", Sync::Data).await.expect("a write");
                rig.close().await;
            });
        }
    }
}
