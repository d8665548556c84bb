//! A brick that fills: statfs tells it, writes are refused cleanly, everything else goes on, and space comes back
//! (rule K5).

use crate::rig::{Rig, SEGMENT_BYTES, Shape, name, pattern};
use base::{At, Ino, Kind, Op, Sync};
use runtime::sim::World;

/// Half of so small a brick is for the cleaner: 16 segments of data.
const FULL: Shape = Shape { segments: 32, groups: 4, overlay_bytes: 8 << 20, cache_bytes: 1 };
/// Times that a brick is filled and emptied.
const ROUNDS: u64 = 10;

/// Files of `length` bytes until the brick is full; the last one, which was refused, is there and empty.
async fn fill(rig: &Rig, round: u64, length: usize) -> Vec<Ino> {
    let mut files = Vec::new();
    loop {
        let number = files.len() as u64;
        files.push(rig.create(rig.volume.root, &format!("f{number}")).await.expect("names have room"));
        match rig.write(files[files.len() - 1], At::End, &pattern(round + number, length), Sync::Data).await {
            Ok(_) => assert!(files.len() * length < 17 << 20, "more than the brick holds"),
            Err(kind) => {
                assert_eq!(kind, Kind::NoSpace);
                return files;
            }
        }
    }
}

#[test]
fn a_brick_is_filled_and_emptied_again_and_again() {
    for length in [4096, 10_000, 128 << 10, 1 << 20] {
        let mut world = World::new(length as u64);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rig = Rig::new(runtime, FULL).await;
            let free_at_first = rig.free_bytes().await;
            assert!(free_at_first > 14 * SEGMENT_BYTES && free_at_first < 16 * SEGMENT_BYTES);
            for round in 0..ROUNDS {
                let mut files = fill(&rig, round, length).await;
                let empty = files.pop().expect("the refused one");
                assert!(rig.read(empty, 0, 10).await == Ok(Vec::new()));
                let held = files.len() * length.next_multiple_of(4096);
                assert!(
                    held as u64 > free_at_first - (2 << 20),
                    "round {round}: only {held} bytes of files of {length}"
                );
                for (number, &ino) in (0..).zip(&files) {
                    assert!(rig.read(ino, 0, length).await == Ok(pattern(round + number, length)));
                }
                if round % 3 == 2 {
                    rig = rig.reopen().await;
                }
                empty_again(&rig, &files).await;
                for (number, &ino) in (0..).zip(&files).filter(|(number, _)| number % 20 == 19) {
                    let kept = rig.read(ino, 0, length).await;
                    assert!(kept == Ok(pattern(round + number, length)[..100].to_vec()));
                }
                for number in 0..=files.len() {
                    let op = Op::Unlink { parent: rig.volume.root, name: name(&format!("f{number}")) };
                    let done = rig.done(op).await;
                    assert!(done.is_ok() || done == Err(Kind::NotFound));
                }
            }
            rig.checkpoint().await;
            assert_eq!(rig.free_bytes().await, free_at_first, "accounting has drifted");
            rig.reopen().await;
        });
    }
}

/// On a full brick: removes files, empties some, cuts some within a block.
async fn empty_again(rig: &Rig, files: &[Ino]) {
    for (number, &ino) in files.iter().enumerate() {
        match number % 20 {
            19 => drop(rig.truncate(ino, 100).await.expect("a file can be cut")),
            one if one % 2 == 1 => drop(rig.truncate(ino, 0).await.expect("a file can be cut")),
            _ => {
                let op = Op::Unlink { parent: rig.volume.root, name: name(&format!("f{number}")) };
                rig.done(op).await.expect("a name can be removed");
            }
        }
    }
}
