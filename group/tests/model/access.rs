//! Access times (rule M6): they follow as relatime has it, order nothing, and are kept by checkpoints and clean ends.

use crate::rig::{Rig, Shape, name};
use base::{At, Ino, Inode, Op, SetAttr, SetTime, Sync, Time};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};

const HOUR_NS: i64 = 3600 * 1_000_000_000;

async fn inode(rig: &Rig, ino: Ino) -> Inode {
    rig.attr(Op::GetAttr { ino }).await.expect("it is there").inode
}

async fn pause(rig: &Rig) {
    rig.runtime.clock.sleep(1_000_000).await;
}

/// Reads the inode as what it is; true if its access time moved.
async fn moves(rig: &Rig, op: Op) -> bool {
    let (Op::Read { ino, .. } | Op::ReadDir { ino, .. } | Op::ReadLink { ino }) = op else { panic!("no read: {op:?}") };
    pause(rig).await;
    let before = inode(rig, ino).await;
    let records = rig.groups.store().log.figures().records;
    rig.call(op, None).await.expect("it can be read");
    assert_eq!(rig.groups.store().log.figures().records, records, "a read orders nothing");
    let after = inode(rig, ino).await;
    assert_eq!(Inode { atime: before.atime, ..after }, before, "nothing else changes");
    assert!(after.atime >= before.atime);
    after.atime > before.atime
}

#[test]
fn a_read_moves_the_access_time_if_the_inode_changed_since() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let (rig, file) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let (file, dir) = (rig.create(root, "file").await.expect("new"), rig.mkdir(root, "dir").await.expect("new"));
        let link = Op::SymLink { parent: root, name: name("link"), target: (*b"somewhere").into() };
        let link = rig.attr(link).await.expect("new").ino;
        rig.write(file, At::End, b"hello", Sync::Ordered).await.expect("a write");
        let read = Op::Read { ino: file, offset: 0, length: 5 };
        let list = Op::ReadDir { ino: dir, cookie: 0, count: 9, plus: false };
        for (op, what) in [(read.clone(), "file"), (list.clone(), "directory"), (Op::ReadLink { ino: link }, "link")] {
            assert!(moves(&rig, op.clone()).await, "the first read of a {what}");
            assert!(!moves(&rig, op).await, "the second read of a {what}");
        }
        rig.write(file, At::End, b"more", Sync::Ordered).await.expect("a write");
        rig.create(dir, "entry").await.expect("a new file");
        assert!(moves(&rig, read.clone()).await && moves(&rig, list).await, "after a change");
        let beyond = Op::Read { ino: file, offset: 1 << 20, length: 5 };
        rig.write(file, At::End, b"more", Sync::Ordered).await.expect("a write");
        assert!(moves(&rig, beyond).await, "a read at the end is one");
        rig.write(file, At::End, b"more", Sync::Ordered).await.expect("a write");
        let before = inode(&rig, file).await;
        let context = group::Context { noatime: true, ..rig.context() };
        rig.call_as(&context, read.clone(), None).await.expect("a read");
        assert_eq!(inode(&rig, file).await, before, "who asks for none moves none");
        // What a client sets counts, and what it leaves alone stays.
        rig.call(read.clone(), None).await.expect("a read");
        let seen = inode(&rig, file).await.atime;
        let set = SetAttr { mtime: Some(SetTime::To(Time(5))), ..SetAttr::default() };
        let told = rig.attr(Op::SetAttr { ino: file, set: set.into() }).await.expect("a file").inode;
        assert_eq!((told.atime, told.mtime), (seen, Time(5)));
        let set = SetAttr { atime: Some(SetTime::To(Time(7))), ..SetAttr::default() };
        assert_eq!(rig.attr(Op::SetAttr { ino: file, set: set.into() }).await.expect("a file").inode.atime, Time(7));
        assert_eq!(inode(&rig, file).await.atime, Time(7));
        assert!(moves(&rig, read).await, "it was older than the change");
        (rig, file)
    });
    let read = Op::Read { ino: file, offset: 0, length: 5 };
    for (hours, wanted) in [(23, false), (2, true), (1, false)] {
        world.jump_wall(hours * HOUR_NS);
        let moved = world.block_on(async {
            // Reads look at a clock that is a moment old.
            rig.runtime.clock.sleep(300_000_000).await;
            moves(&rig, read.clone()).await
        });
        assert_eq!(moved, wanted, "{hours} hours later");
    }
}

/// A checkpoint keeps them and a clean end makes one; a crash takes back no more than what no checkpoint has seen.
#[test]
fn access_times_go_with_checkpoints() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    let (rig, file, kept, seen) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        rig.write(file, At::End, b"hello", Sync::All).await.expect("a write");
        let rig = rig.reopen().await;
        let read = Op::Read { ino: file, offset: 0, length: 5 };
        assert!(moves(&rig, read.clone()).await);
        rig.done(Op::Fsync { ino: file, sync: Sync::All }).await.expect("nothing to wait for");
        let kept = inode(&rig, file).await.atime;
        // Nothing but a read has happened, and yet a clean end keeps it.
        let rig = rig.reopen().await;
        assert_eq!(inode(&rig, file).await.atime, kept);
        rig.write(file, At::End, b"more", Sync::All).await.expect("a write");
        assert!(moves(&rig, read.clone()).await);
        let kept = inode(&rig, file).await.atime;
        rig.checkpoint().await;
        assert_eq!(inode(&rig, file).await.atime, kept);
        rig.write(file, At::End, b"more", Sync::All).await.expect("a write");
        assert!(moves(&rig, read).await);
        let seen = inode(&rig, file).await;
        (rig, file, kept, seen)
    });
    let mut after = World::from_image(2, world.crash_as(Survival::Everything, &mut SplitMix(2)));
    let runtime = after.runtime();
    after.block_on(async {
        let rig = rig.after_crash(runtime, 0).await;
        assert_eq!(inode(&rig, file).await, Inode { atime: kept, ..seen });
        rig.close().await;
    });
}

/// Reading many files changes many inodes in memory: no more of them than the overlay has room for.
#[test]
fn readers_do_not_overfill_the_overlay() {
    const FILES: usize = 3000;
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let shape = Shape { overlay_bytes: 64 << 10, segments: 1024, ..Shape::SMALL };
        let rig = Rig::new(runtime, shape).await;
        let dir = rig.mkdir(rig.volume.root, "dir").await.expect("a new directory");
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(rig.create(dir, &format!("f{number}")).await.expect("a new file"));
        }
        rig.checkpoint().await;
        pause(&rig).await;
        let mut most = 0;
        for ino in files {
            rig.call(Op::Read { ino, offset: 0, length: 1 }, None).await.expect("a read");
            most = most.max(rig.groups.overlay_bytes());
        }
        let bound = 2 * shape.overlay_bytes;
        assert!(most > bound / 2, "the test does not come near the bound: {most} bytes");
        assert!(most <= bound + 1000, "{most} bytes of {bound}");
        rig.close().await;
    });
}
