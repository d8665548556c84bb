//! Files that are created without a name: gone with their last open or with the process, kept by the first name.

use crate::rig::{Rig, Shape, name, pattern, seeds};
use base::{At, Ino, Kind, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};

async fn nameless(rig: &Rig, parent: Ino) -> Ino {
    rig.attr(Op::TempFile { parent, mode: 0o600 }).await.expect("a new file").ino
}

#[test]
fn a_nameless_file_ends_with_its_last_open() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        rig.settle().await;
        let free = rig.free_bytes().await;
        let before = rig.attr(Op::GetAttr { ino: root }).await.expect("the root").inode;
        let file = nameless(&rig, root).await;
        let after = rig.attr(Op::GetAttr { ino: root }).await.expect("the root").inode;
        assert_eq!(before, after, "the directory knows nothing of it");
        rig.write(file, At::End, &pattern(1, 300_000), Sync::All).await.expect("a write");
        assert_eq!(rig.attr(Op::GetAttr { ino: file }).await.expect("open").inode.links, 0);
        rig.attr(Op::Open { ino: file, truncate: false }).await.expect("by its number");
        rig.done(Op::Release { ino: file }).await.expect("one open less");
        assert_eq!(rig.read(file, 0, 300_000).await, Ok(pattern(1, 300_000)));
        rig.done(Op::Release { ino: file }).await.expect("the last one");
        assert_eq!(rig.attr(Op::GetAttr { ino: file }).await, Err(Kind::Stale));
        rig.settle().await;
        assert_eq!(rig.free_bytes().await, free);
        // Nor does a process that ends leave one behind: it lies in the index as an orphan.
        let file = nameless(&rig, root).await;
        rig.write(file, At::End, &pattern(2, 300_000), Sync::All).await.expect("a write");
        let rig = rig.reopen().await;
        assert_eq!(rig.attr(Op::GetAttr { ino: file }).await, Err(Kind::Stale));
        rig.settle().await;
        assert_eq!(rig.free_bytes().await, free);
        rig.close().await;
    });
}

/// Written, made durable, given a name in any directory, made durable again: then it is there after any crash; before
/// that it is there as a whole or not at all.
#[test]
fn a_name_keeps_a_nameless_file() {
    for seed in seeds(1..25) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let bytes = pattern(seed, [3000, 50_000, 300_000][rng.below(3) as usize]);
        let durable = rng.one_in(2);
        let (rig, file, dir) = world.block_on(async {
            let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
            let (root, dir) = (rig.volume.root, rig.mkdir(rig.volume.root, "dir").await.expect("a new directory"));
            let file = nameless(&rig, root).await;
            rig.write(file, At::End, &bytes, Sync::All).await.expect("a write");
            if rng.one_in(2) {
                // The index has it as an orphan, the log alone knows better.
                rig.checkpoint().await;
            }
            let parent = if rng.one_in(2) { root } else { dir };
            let op = Op::Link { ino: file, new_parent: parent, new_name: name("named") };
            assert_eq!(rig.attr(op).await.expect("a free name").inode.links, 1);
            if durable {
                rig.done(Op::Fsync { ino: file, sync: Sync::All }).await.expect("fsync");
            }
            runtime.clock.sleep(rng.below(300_000)).await;
            (rig, file, parent)
        });
        for survival in [Survival::Nothing, Survival::Random, Survival::Random, Survival::Everything] {
            let mut after = World::from_image(seed, world.crash_as(survival, &mut rng));
            let runtime = after.runtime();
            after.block_on(async {
                let rig = rig.after_crash(runtime, 0).await;
                let found = rig.lookup(dir, "named").await;
                if durable || found.is_ok() {
                    assert_eq!(found, Ok(file), "seed {seed}, {survival:?}");
                    assert_eq!(rig.attr(Op::GetAttr { ino: file }).await.expect("named").inode.links, 1);
                    assert!(rig.read(file, 0, bytes.len()).await == Ok(bytes.clone()), "seed {seed}, {survival:?}");
                } else {
                    assert_eq!(rig.attr(Op::GetAttr { ino: file }).await, Err(Kind::Stale));
                }
                rig.close().await;
            });
        }
    }
}
