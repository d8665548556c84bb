//! Reported space and numbers of inodes are right soon after changes, without anybody asking for a checkpoint (rules
//! K5, X2).

use crate::rig::{Rig, Shape, name, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use store::format::charge;

/// The shape of a daemon's brick.
const SHAPE: Shape = Shape { quiet_ns: 700_000_000, ..Shape::SMALL };
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes charged for a file with a name of four bytes.
const NAME: u64 = charge::INODE + 79 + 2 * 4;
const SECOND_NS: u64 = 1_000_000_000;

async fn write(rig: &Rig, file: Ino, block: u64, blocks: usize) {
    let bytes = pattern(block, blocks * BLOCK_BYTES);
    rig.write(file, At::Offset(block * BLOCK), &bytes, Sync::Ordered).await.expect("there is room");
}

#[test]
fn what_was_overwritten_and_deleted_is_free_two_seconds_later() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        rig.runtime.clock.sleep(2 * SECOND_NS).await;
        let before = rig.space().await;
        let kept = rig.create(rig.volume.root, "kept").await.expect("a new file");
        let gone = rig.create(rig.volume.root, "gone").await.expect("a new file");
        for _ in 0..4 {
            write(&rig, kept, 0, 100).await;
            write(&rig, gone, 0, 100).await;
        }
        assert_eq!(rig.space().await.inodes, before.inodes + 2, "at once");
        rig.done(Op::Unlink { parent: rig.volume.root, name: name("gone") }).await.expect("it can be removed");
        assert_eq!(rig.space().await.inodes, before.inodes + 1, "at once");
        rig.runtime.clock.sleep(2 * SECOND_NS).await;
        let after = rig.space().await;
        assert_eq!((before.free_bytes - after.free_bytes, after.inodes - before.inodes), (100 * BLOCK + NAME, 1));
        // At rest there is nothing to count.
        let checkpoints = rig.groups.checkpoints();
        rig.runtime.clock.sleep(20 * SECOND_NS).await;
        assert_eq!(rig.groups.checkpoints(), checkpoints);
        rig.close().await;
    });
}

/// Somebody always writes a little: who looks at space has it counted all the same.
#[test]
fn what_is_free_is_told_to_those_who_ask_while_others_write() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        rig.runtime.clock.sleep(2 * SECOND_NS).await;
        let before = rig.free_bytes().await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let mut checkpoints = 0;
        for number in 0..200 {
            write(&rig, file, 0, 1).await;
            rig.runtime.clock.sleep(SECOND_NS / 20).await;
            if number == 100 {
                checkpoints = rig.groups.checkpoints();
            }
            if (100..140).contains(&number) {
                rig.free_bytes().await;
            }
        }
        let more = rig.groups.checkpoints() - checkpoints;
        assert!((1..=3).contains(&more), "{more} checkpoints for two seconds of asking");
        let used = before - rig.free_bytes().await;
        assert!(used < 100 * BLOCK, "{used} bytes for one block");
        rig.close().await;
    });
}

/// Records that a crash left in the log take room before any checkpoint has counted them, and are counted soon.
#[test]
fn what_replay_brings_back_takes_room() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    let (rig, before) = world.block_on(async {
        let rig = Rig::new(runtime, SHAPE).await;
        rig.checkpoint().await;
        let before = rig.free_bytes().await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        write(&rig, file, 0, 200).await;
        write(&rig, file, 0, 200).await;
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        (rig, before)
    });
    let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = after.runtime();
    after.block_on(async {
        let rig = rig.after_crash(runtime, 0).await;
        let used = before - rig.free_bytes().await;
        assert!(used >= 200 * BLOCK, "{used} bytes are told of 200 blocks");
        rig.runtime.clock.sleep(2 * SECOND_NS).await;
        assert_eq!(before - rig.free_bytes().await, 200 * BLOCK + NAME);
        rig.close().await;
    });
}
