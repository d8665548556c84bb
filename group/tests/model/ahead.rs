//! Small files are read ahead when they are opened, while clients read what they open.

use crate::rig::{Rig, Shape, pattern, seeds};
use base::{At, Ino, Op, Room, SetAttr, Sync};
use runtime::Stage;
use runtime::random::SplitMix;
use runtime::sim::World;

/// All that is looked at stays in memory.
const SHAPE: Shape = Shape { cache_bytes: 8 << 20, ..Shape::SMALL };
const FILES: u64 = 60;
const BYTES: usize = 20_000;

/// Files that lie on the device, and are read without the index's pool.
async fn files(rig: &Rig) -> Vec<Ino> {
    let mut files = Vec::new();
    for number in 0..FILES {
        let file = rig.create(rig.volume.root, &format!("f{number}")).await.expect("a new file");
        rig.write(file, At::Offset(0), &pattern(number, BYTES), Sync::All).await.expect("a write");
        files.push(file);
    }
    rig.checkpoint().await;
    for file in &files {
        rig.read(*file, 0, BYTES).await.expect("it is there");
    }
    files
}

async fn open(rig: &Rig, ino: Ino) {
    rig.attr(Op::Open { ino, truncate: false }).await.expect("it is there");
    // The client's way from the answer to its next request.
    rig.runtime.clock.sleep(1_000_000).await;
}

/// Reads a file from its begin on, and returns the bytes and for how long it waited for the device.
async fn read(rig: &Rig, ino: Ino) -> (Vec<u8>, u64) {
    let context = rig.context();
    let answer = rig.call_as(&context, Op::Read { ino, offset: 0, length: 1 << 17 }, None).await.expect("it is there");
    (answer.data.map_or_else(Vec::new, |data| data.to_vec()), rig.booked_ns(&context, Stage::Read))
}

#[test]
pub fn the_device_begins_with_files_that_will_be_read() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        let files = files(&rig).await;
        let mut waited = Vec::new();
        for (number, &file) in (0..).zip(&files) {
            open(&rig, file).await;
            let (bytes, waited_ns) = read(&rig, file).await;
            assert!(bytes == pattern(number, BYTES));
            waited.push(waited_ns > 0);
            rig.done(Op::Release { ino: file }).await.expect("it is open");
        }
        assert!(waited[..16].iter().all(|&waited| waited), "nobody knows that yet");
        assert!(waited[16..].iter().all(|&waited| !waited), "{waited:?}");
        // Opened for something else, or for a part of them: from then on it is not worth it.
        for &file in &files {
            open(&rig, file).await;
            rig.read(file, 0, 4096).await.expect("it is there");
            rig.done(Op::Release { ino: file }).await.expect("it is open");
        }
        open(&rig, files[0]).await;
        assert!(read(&rig, files[0]).await.1 > 0);
        rig.close().await;
    });
}

#[test]
pub fn what_was_read_ahead_counts_only_for_what_the_file_has_then() {
    for seed in seeds(0..20) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let rig = Rig::new(runtime, SHAPE).await;
            let files = files(&rig).await;
            let mut expected: Vec<_> = (0..FILES).map(|number| pattern(number, BYTES)).collect();
            let mut rng = SplitMix(seed);
            for round in 0..400 {
                let number = rng.below(FILES) as usize;
                let (ino, bytes) = (files[number], &mut expected[number]);
                open(&rig, ino).await;
                match rng.below(12) {
                    0 => {
                        bytes[4096..8192].copy_from_slice(&pattern(round, 4096));
                        let part = &bytes[4096..8192];
                        rig.write(ino, At::Offset(4096), part, Sync::All).await.expect("a write");
                    }
                    1 => {
                        *bytes = pattern(round, BYTES);
                        rig.write(ino, At::Offset(0), bytes, Sync::All).await.expect("a write");
                    }
                    2 => {
                        let room = Room::Hole;
                        let punch = Op::Allocate { ino, offset: 0, length: 4096, room, keep_size: true };
                        rig.call(punch, None).await.expect("a hole");
                        bytes[..4096].fill(0);
                    }
                    3 => {
                        let set = SetAttr { size: Some(100), ..SetAttr::default() };
                        rig.attr(Op::SetAttr { ino, set: set.into() }).await.expect("cut");
                        bytes[100..].fill(0);
                        rig.write(ino, At::Offset(BYTES as u64 - 1), &[0], Sync::All).await.expect("a write");
                    }
                    4 => rig.checkpoint().await,
                    _ => {}
                }
                assert!(read(&rig, ino).await.0 == *bytes, "round {round}");
                rig.done(Op::Release { ino }).await.expect("it is open");
            }
            rig.close().await;
        });
    }
}
