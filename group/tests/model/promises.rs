//! Room that files were promised (fallocate, rule K5): nobody else gets it, it is there when the brick is full, and what is
//! left of it is known to the block.

use crate::rig::{Rig, Shape, name, pattern};
use base::{At, Ino, Kind, Op, Reply, Room, SetAttr, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};

/// Half of so small a brick is for the cleaner: 16 segments of data.
const TINY: Shape = Shape::TINY;
const MIB: u64 = 1 << 20;

async fn allocate(rig: &Rig, ino: Ino, offset: u64, length: u64) -> Result<(), Kind> {
    rig.done(Op::Allocate { ino, offset, length, keep_size: true, room: Room::Promised }).await
}

fn reserved(rig: &Rig) -> u64 {
    rig.groups.store().usage(rig.volume.id).values().map(|usage| usage.reserved).sum()
}

/// Appends to a file until that is refused. Returns the bytes that were taken.
async fn fill(rig: &Rig, ino: Ino) -> u64 {
    let mut taken = 0;
    loop {
        match rig.write(ino, At::End, &pattern(1, 64 << 10), Sync::Data).await {
            Ok(_) => taken += 64 << 10,
            Err(kind) => {
                assert_eq!(kind, Kind::NoSpace);
                return taken;
            }
        }
    }
}

#[test]
pub fn what_was_promised_can_be_written_on_a_full_brick_and_nobody_else_gets_it() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, TINY).await;
        let root = rig.volume.root;
        rig.checkpoint().await;
        let all = rig.data_room().await;
        let (kept, other) =
            (rig.create(root, "kept").await.expect("new"), rig.create(root, "other").await.expect("new"));
        // Some of it is written before, and that is not promised again.
        rig.write(kept, At::Offset(2 * MIB), &pattern(7, 1 << 20), Sync::Data).await.expect("there is room");
        assert_eq!(allocate(&rig, kept, 0, 2 * all).await, Err(Kind::NoSpace));
        allocate(&rig, kept, MIB, 4 * MIB).await.expect("there is room");
        rig.checkpoint().await;
        assert_eq!((reserved(&rig), rig.data_room().await), (3 * 256, all - 4 * MIB));
        // A promise to somebody who has it costs nothing; its size is as it was.
        allocate(&rig, kept, 2 * MIB, 2 * MIB).await.expect("it has that");
        assert_eq!(rig.attr(Op::GetAttr { ino: kept }).await.expect("it is there").inode.size, 3 * MIB);
        let taken = fill(&rig, other).await;
        assert!(taken <= all - 4 * MIB && taken + MIB > all - 4 * MIB, "{taken} of {all}");
        assert_eq!(allocate(&rig, other, 100 * MIB, MIB).await, Err(Kind::NoSpace));
        allocate(&rig, kept, MIB, 4 * MIB).await.expect("it has that");
        // An append too: the file ends at 3 MiB.
        rig.write(kept, At::End, &pattern(8, 4096), Sync::Data).await.expect("it was promised");
        for round in 0..3 {
            for at in (MIB..5 * MIB).step_by(128 << 10) {
                let written = rig.write(kept, At::Offset(at), &pattern(at + round, 128 << 10), Sync::Data).await;
                written.expect("it was promised");
            }
            rig.checkpoint().await;
            assert_eq!(reserved(&rig), 0, "all of it is written");
            rig = rig.reopen().await;
        }
        assert!(rig.read(kept, 3 * MIB, 128 << 10).await == Ok(pattern(3 * MIB + 2, 128 << 10)));
        // Less than what it is filled with at a time is left.
        let mut refused = Ok(0);
        for _ in 0..16 {
            refused = refused.and(rig.write(other, At::End, &pattern(1, 4096), Sync::Data).await);
        }
        assert_eq!(refused, Err(Kind::NoSpace));
    });
}

/// Counting what a file has of a range takes the longer the longer the range is: not for more than there can be.
#[test]
fn more_than_a_brick_can_hold_is_refused_at_once() {
    let mut world = World::new(9);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, TINY).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let before_ns = rig.runtime.clock.now_ns();
        for length in [1024 * MIB, base::limits::FILE_BYTES_MAX] {
            assert_eq!(allocate(&rig, file, 0, length).await, Err(Kind::NoSpace));
            assert_eq!(rig.runtime.clock.now_ns(), before_ns);
            assert_eq!(rig.groups.checkpoints(), 0, "none can make so much room");
        }
        rig.close().await;
    });
}

#[test]
fn a_promise_ends_with_what_is_cut_and_with_the_file() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, TINY).await;
        let root = rig.volume.root;
        rig.checkpoint().await;
        let all = rig.data_room().await;
        let file = rig.create(root, "file").await.expect("new");
        let cut = async |size| {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            rig.attr(Op::SetAttr { ino: file, set: set.into() }).await.expect("files can be cut");
        };
        allocate(&rig, file, 0, 4 * MIB).await.expect("there is room");
        rig.write(file, At::Offset(MIB), &pattern(1, 64 << 10), Sync::Ordered).await.expect("there is room");
        rig.checkpoint().await;
        assert_eq!(reserved(&rig), 1024 - 16);
        // In one checkpoint: cut, written below the cut and promised anew beyond it.
        cut(2 * MIB).await;
        rig.write(file, At::Offset(0), &pattern(2, 8 << 10), Sync::Ordered).await.expect("there is room");
        allocate(&rig, file, 3 * MIB, 4096).await.expect("there is room");
        rig.settle().await;
        assert_eq!(reserved(&rig), 512 - 16 - 2 + 1);
        // What comes before the promise in the same checkpoint counts as well.
        rig.write(file, At::Offset(5 * MIB), &pattern(3, 4096), Sync::Ordered).await.expect("there is room");
        allocate(&rig, file, 5 * MIB, 3 * 4096).await.expect("there is room");
        rig.write(file, At::Offset(5 * MIB + 4096), &pattern(3, 4096), Sync::Ordered).await.expect("there is room");
        rig.settle().await;
        assert_eq!(reserved(&rig), 512 - 16 - 2 + 1 + 1);
        rig.done(Op::Unlink { parent: root, name: name("file") }).await.expect("it is there");
        rig.settle().await;
        assert_eq!((reserved(&rig), rig.data_room().await), (0, all));
        rig.reopen().await;
    });
}

#[test]
fn a_promise_outlives_a_crash_and_counts_for_its_volume() {
    const SIZE: u64 = 4 * MIB;
    let mut world = World::new(3);
    let runtime = world.runtime();
    let (rig, volume, file) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let op = Op::VolumeCreate { name: name("small"), size_bytes: Some(SIZE + 4096) };
        let Ok(Reply::Volume(volume)) = rig.call(op, None).await.map(|answer| answer.reply) else {
            panic!("a volume is told");
        };
        let client = rig.client(9, volume.clone());
        let file = client.create(volume.root, "file").await.expect("new");
        assert_eq!(allocate(&client, file, 0, SIZE + 4096).await, Err(Kind::Quota));
        allocate(&client, file, 0, 3 * MIB).await.expect("there is room");
        client.done(Op::Fsync { ino: file, sync: Sync::All }).await.expect("a healthy brick syncs");
        (rig, volume, file)
    });
    let mut after = World::from_image(4, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = after.runtime();
    after.block_on(async {
        let rig = rig.after_crash(runtime, 0).await;
        let client = rig.client(10, volume.clone());
        rig.checkpoint().await;
        assert_eq!(client.data_room().await, MIB + 4096, "names take a part of the last block");
        let other = client.create(volume.root, "other").await.expect("new");
        assert_eq!(client.write(other, At::End, &pattern(1, 1 << 20), Sync::Data).await, Ok(0));
        assert_eq!(client.write(other, At::End, &[1], Sync::Data).await, Err(Kind::Quota));
        assert_eq!(client.write(file, At::Offset(0), &pattern(1, 1 << 20), Sync::Data).await, Ok(0));
        drop(client);
        rig.reopen().await;
    });
}
