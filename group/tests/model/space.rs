//! A brick that fills: statfs tells it, writes are refused cleanly, everything else goes on, and space comes back
//! (rule K5).

use crate::rig::{Rig, SEGMENT_BYTES, Shape, name, pattern};
use base::{At, Kind, Op, Sync};
use runtime::sim::World;

const FULL: Shape = Shape { segments: 32, groups: 4, overlay_bytes: 8 << 20, cache_bytes: 1 };

#[test]
fn a_full_brick_refuses_writes_and_nothing_else() {
    for length in [4096, 10_000, 128 << 10, 1 << 20] {
        let mut world = World::new(length as u64);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rig = Rig::new(runtime, FULL).await;
            let root = rig.volume.root;
            let mut files = Vec::new();
            let mut free = rig.free_bytes().await;
            assert!(free > 20 * SEGMENT_BYTES && free < 32 * SEGMENT_BYTES);
            let refused = loop {
                let number = files.len() as u64;
                let ino = match rig.create(root, &format!("f{number}")).await {
                    Ok(ino) => ino,
                    Err(kind) => break kind,
                };
                files.push(ino);
                match rig.write(ino, At::End, &pattern(number, length), Sync::Data).await {
                    Ok(_) => {}
                    Err(kind) => break kind,
                }
                assert!(files.len() * length < 32 << 20, "more than the brick holds");
                let now = rig.free_bytes().await;
                assert!(now <= free, "free space grew from {free} to {now}");
                free = now;
            };
            assert_eq!(refused, Kind::NoSpace);
            // The file that was not written has no bytes, the others all of theirs.
            let last = files.pop().expect("some fit");
            assert!(rig.read(last, 0, 10).await == Ok(Vec::new()));
            // Small durable writes bring a header each, and the creations' records lie between them.
            let least = if length <= 10_000 { 10 << 20 } else { 18 << 20 };
            assert!(files.len() * length > least, "only {} files of {length}", files.len());
            assert!(free < 5 * SEGMENT_BYTES, "{free} bytes are said to be free");
            for (number, &ino) in (0..).zip(&files) {
                assert!(rig.read(ino, 0, length).await == Ok(pattern(number, length)));
            }
            // Deleting works, and so does truncating; to within a block it takes a block of the reserve each time.
            for (number, &ino) in files.iter().enumerate() {
                match number % 20 {
                    19 => drop(rig.truncate(ino, 100).await.expect("a file can be cut")),
                    one if one % 2 == 1 => drop(rig.truncate(ino, 0).await.expect("a file can be cut")),
                    _ => {
                        let op = Op::Unlink { parent: root, name: name(&format!("f{number}")) };
                        rig.done(op).await.expect("a name can be removed");
                    }
                }
            }
            // Two restarts: what was open when the brick closed is free only then.
            rig = rig.reopen().await.reopen().await;
            let now = rig.free_bytes().await;
            assert!(now > 18 * SEGMENT_BYTES, "{now} bytes are free after all was deleted");
            for (number, &ino) in (0..).zip(&files).filter(|(number, _)| number % 20 == 19) {
                assert!(rig.read(ino, 0, 10_000).await == Ok(pattern(number, length)[..100].to_vec()));
            }
            let ino = rig.create(root, "again").await.expect("there is room");
            rig.write(ino, At::End, &pattern(7, 1 << 20), Sync::Data).await.expect("there is room");
        });
    }
}
