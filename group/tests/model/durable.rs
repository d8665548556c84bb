//! Durability as a client can observe it: by flushes that are not made, and by crashes (rules U1, U3, U5, K8).

use crate::rig::{Rig, Shape, name, pattern, seeds};
use base::limits::{FILE_BYTES_MAX, IO_BYTES_MAX};
use base::{At, Kind, Op, Sync};
use runtime::random::SplitMix;
use runtime::sim::{FaultPlan, SimDisk, Survival, World};

/// Flushes and durable writes so far, of all files.
fn made_durable(disk: &SimDisk) -> u64 {
    disk.figures().values().map(|figures| figures.flushes + figures.durable_writes).sum()
}

#[test]
pub fn fsync_of_what_is_durable_asks_nothing_of_the_device() {
    let mut world = World::new(1);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let root = rig.volume.root;
        let one = rig.create(root, "one").await.expect("a new file");
        let other = rig.create(root, "other").await.expect("a new file");
        rig.write(one, At::End, &pattern(1, 5000), Sync::Ordered).await.expect("a write");
        let fsync = |ino| Op::Fsync { ino, sync: Sync::All };
        let before = made_durable(&disk);
        rig.done(fsync(one)).await.expect("a healthy brick syncs");
        assert!(made_durable(&disk) > before, "the first one is work");
        // The other file's creation is older than what was just made durable; it too needs nothing.
        for ino in [one, other, root] {
            let before = (made_durable(&disk), rig.groups.store().log.figures());
            rig.done(fsync(ino)).await.expect("a healthy brick syncs");
            rig.done(Op::Fsync { ino, sync: Sync::Data }).await.expect("a healthy brick syncs");
            assert_eq!((made_durable(&disk), rig.groups.store().log.figures()), before, "{ino:?}");
        }
        rig.checkpoint().await;
        let before = (made_durable(&disk), rig.groups.store().log.figures());
        rig.done(fsync(one)).await.expect("a healthy brick syncs");
        rig.done(fsync(other)).await.expect("a healthy brick syncs");
        assert_eq!((made_durable(&disk), rig.groups.store().log.figures()), before, "after a checkpoint");
    });
}

/// O_DIRECT waits for the device write of its data: a large payload's own, before its record is on its way.
#[test]
fn a_large_direct_write_waits_for_its_payload_alone() {
    let mut world = World::new(1);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        // Has a segment made for large payloads.
        rig.write(file, At::Offset(0), &pattern(0, 256 << 10), Sync::All).await.expect("a write");
        let batches = || rig.groups.store().log.figures().batches;
        let written = || disk.figures().values().map(|figures| figures.written_bytes).sum::<u64>();
        let before = (batches(), written());
        let large = pattern(1, 256 << 10);
        rig.write(file, At::Offset(0), &large, Sync::Written).await.expect("a write");
        assert_eq!(batches(), before.0, "nothing is waited for but its bytes");
        assert!(written() >= before.1 + (256 << 10));
        rig.write(file, At::Offset(1 << 20), &pattern(2, 4096), Sync::Written).await.expect("a write");
        assert_eq!(batches(), before.0 + 1, "a small one lies in its batch");
        rig.write(file, At::Offset(0), &large, Sync::Data).await.expect("a write");
        assert_eq!(batches(), before.0 + 2, "what is durable can be found again");
        assert_eq!(rig.read(file, 0, 256 << 10).await, Ok(large));
    });
}

#[test]
pub fn what_was_synced_survives_and_the_rest_is_a_prefix() {
    for seed in seeds(1..12) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let (rig, file, synced) = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            let mut synced = 0;
            for number in 0..20 {
                let sync = [Sync::Ordered, Sync::Written, Sync::Data, Sync::All][rng.below(4) as usize];
                let length = if rng.one_in(5) { 140_000 } else { 3000 };
                rig.write(file, At::End, &pattern(number, length), sync).await.expect("an append");
                if rng.one_in(6) {
                    rig.done(Op::Fsync { ino: file, sync: Sync::Data }).await.expect("a healthy brick syncs");
                }
                if sync >= Sync::Data {
                    synced = rig.attr(Op::GetAttr { ino: file }).await.expect("a file").inode.size;
                }
                if rng.one_in(7) {
                    rig.checkpoint().await;
                }
            }
            (rig, file, synced)
        });
        let whole = world.block_on(async {
            let mut bytes = Vec::new();
            while let Ok(more) = rig.read(file, bytes.len() as u64, IO_BYTES_MAX).await
                && !more.is_empty()
            {
                bytes.extend(more);
            }
            bytes
        });
        for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
            let mut after = World::from_image(seed, world.crash_as(survival, &mut rng));
            let runtime = after.runtime();
            after.block_on(async {
                let rig = rig.after_crash(runtime, 0).await;
                assert_eq!(rig.lookup(rig.volume.root, "file").await, Ok(file), "its name is durable with it");
                let size = rig.attr(Op::GetAttr { ino: file }).await.expect("a file").inode.size;
                assert!(size >= synced, "seed {seed}: {size} of {synced} synced bytes");
                let mut at = 0;
                while at < size {
                    let bytes = rig.read(file, at, 100_000).await.expect("a file");
                    assert!(bytes == whole[at as usize..][..bytes.len()], "seed {seed}, {survival:?}, at {at}");
                    at += bytes.len() as u64;
                }
            });
        }
    }
}

/// Large writes that nobody syncs, while somebody else commits again and again: each is flushed for itself, and what comes
/// before a commit is as durable as that (rules U1, U2).
#[test]
pub fn a_commit_keeps_large_writes_before_it() {
    for seed in seeds(1..6) {
        let mut world = World::new(seed);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        let mut rng = SplitMix(seed);
        let (rig, large) = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let small = rig.create(rig.volume.root, "small").await.expect("a new file");
            let large = rig.create(rig.volume.root, "large").await.expect("a new file");
            let commit = || rig.write(small, At::Offset(0), b"small", Sync::Data);
            for number in 0..4 {
                commit().await.expect("a commit");
                let flushes = || disk.figures()["segments-00000"].flushes;
                let before = flushes();
                rig.write(large, At::Offset(number * 300_000), &pattern(number, 300_000), Sync::Written)
                    .await
                    .expect("a write");
                assert!(flushes() > before, "it has a flush of its own");
                commit().await.expect("a commit");
            }
            (rig, large)
        });
        let mut after = World::from_image(seed, world.crash_as(Survival::Nothing, &mut rng));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            for number in 0..4 {
                let bytes = rig.read(large, number * 300_000, 300_000).await;
                assert!(bytes == Ok(pattern(number, 300_000)), "seed {seed}, write {number}");
            }
        });
    }
}

#[test]
fn a_rename_over_a_file_leaves_the_old_or_the_whole_new_one() {
    for seed in seeds(1..15) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let (old, new) = (pattern(1, 20_000), pattern(2, [3000, 50_000, 300_000][rng.below(3) as usize]));
        let rig = world.block_on(async {
            let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
            let (root, dir) = (rig.volume.root, rig.mkdir(rig.volume.root, "dir").await.expect("a new directory"));
            let file = rig.create(root, "file").await.expect("a new file");
            rig.write(file, At::End, &old, Sync::All).await.expect("a write");
            // From a directory in another group, too.
            let parent = if rng.one_in(2) { root } else { dir };
            let file = rig.create(parent, "file.tmp").await.expect("a new file");
            rig.write(file, At::End, &new, Sync::Ordered).await.expect("a write");
            let (from, to) = (name("file.tmp"), name("file"));
            let op =
                Op::Rename { parent, name: from, new_parent: root, new_name: to, no_replace: false, whiteout: false };
            rig.done(op).await.expect("a file replaces a file");
            runtime.clock.sleep(rng.below(300_000)).await;
            rig
        });
        for _ in 0..4 {
            let mut after = World::from_image(seed, world.crash_as(Survival::Random, &mut rng));
            let runtime = after.runtime();
            after.block_on(async {
                let rig = rig.after_crash(runtime, 0).await;
                let file = rig.lookup(rig.volume.root, "file").await.expect("the name never goes");
                let bytes = rig.read(file, 0, IO_BYTES_MAX).await.expect("a file");
                assert!(bytes == old || bytes == new, "seed {seed}: {} bytes of neither", bytes.len());
                rig.reopen().await;
            });
        }
    }
}

#[test]
fn large_writes_go_anywhere() {
    for seed in seeds(1..3) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "large").await.expect("a new file");
            let mut own = vec![0; 4 << 20];
            let mut size = 0;
            // 1 MiB from the middle of a block on covers 257 blocks; some lie across the end of what is there.
            let offsets = [0, 100, 4095, 4096, 1 << 20, (1 << 20) + 1, 3_000_000, 2_000_001, 777_777];
            for (tag, &offset) in (0..).zip(&offsets) {
                for length in [100 << 10, 128 << 10, (128 << 10) - 1, IO_BYTES_MAX - 1, IO_BYTES_MAX] {
                    let bytes = pattern(tag * 10 + length as u64 % 7, length);
                    assert_eq!(rig.write(file, At::Offset(offset), &bytes, Sync::Ordered).await, Ok(offset));
                    own[offset as usize..offset as usize + length].copy_from_slice(&bytes);
                    size = size.max(offset as usize + length);
                }
            }
            for checkpointed in [false, true] {
                if checkpointed {
                    rig.checkpoint().await;
                }
                for from in [0, 1, 4096, 1 << 20, 2_000_001] {
                    let bytes = rig.read(file, from as u64, IO_BYTES_MAX).await.expect("a file");
                    assert!(bytes == own[from..size.min(from + IO_BYTES_MAX)], "from {from}");
                }
            }
            let too_long = Op::Write { ino: file, at: At::End, sync: Sync::Ordered, kill_privileges: false };
            let refused = rig.call(too_long, Some(&[])).await;
            assert_eq!(refused.err().map(|error| error.kind), Some(Kind::Invalid));
            rig.reopen().await;
        });
    }
}

#[test]
fn files_end_at_16_tib() {
    let mut world = World::new(4);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "huge").await.expect("a new file");
        let bytes = pattern(1, 5000);
        let last = FILE_BYTES_MAX - 5000;
        assert_eq!(rig.write(file, At::Offset(last), &bytes, Sync::Data).await, Ok(last));
        for at in [At::Offset(last + 1), At::Offset(FILE_BYTES_MAX), At::Offset(u64::MAX - 10), At::End] {
            assert_eq!(rig.write(file, at, &bytes, Sync::Ordered).await, Err(Kind::TooLarge), "{at:?}");
        }
        assert_eq!(rig.truncate(file, FILE_BYTES_MAX + 1).await.err(), Some(Kind::TooLarge));
        assert_eq!(rig.attr(Op::GetAttr { ino: file }).await.expect("a file").inode.size, FILE_BYTES_MAX);
        let rig = rig.reopen().await;
        assert!(rig.read(file, last, 10_000).await == Ok(bytes));
        assert!(rig.read(file, 1 << 40, 10).await == Ok(vec![0; 10]), "in between lies nothing");
        assert!(rig.read(file, FILE_BYTES_MAX, 10).await == Ok(Vec::new()));
        assert!(rig.read(file, u64::MAX - 5, 10).await == Ok(Vec::new()));
        rig.truncate(file, 10).await.expect("a file can be cut");
        rig.truncate(file, FILE_BYTES_MAX).await.expect("a file can be long");
        assert!(rig.read(file, last, 100).await == Ok(vec![0; 100]), "what was cut does not come back");
        rig.reopen().await;
    });
}

#[test]
pub fn blocks_are_readable_while_their_write_is_under_way() {
    for seed in seeds(1..6) {
        let mut world = World::new(seed);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            rig.write(file, At::Offset(0), &pattern(0, 100_000), Sync::Data).await.expect("a write");
            // A device so slow that nothing of this ends before it is read.
            disk.set_faults(FaultPlan { slowness: 2000, ..FaultPlan::default() });
            let mut own = pattern(0, 100_000);
            let mut rng = SplitMix(seed);
            for tag in 1..40 {
                let at = rng.below(90_000);
                let bytes = pattern(tag, 1 + rng.below(9000) as usize);
                let start_ns = rig.runtime.clock.now_ns();
                let aligned = at / 4096 * 4096;
                let (at, bytes) = if rng.one_in(2) { (aligned, pattern(tag, 4096)) } else { (at, bytes) };
                rig.write(file, At::Offset(at), &bytes, Sync::Ordered).await.expect("a write");
                let end = at as usize + bytes.len();
                own.resize(own.len().max(end), 0);
                own[at as usize..end].copy_from_slice(&bytes);
                let told = rig.read(file, at, bytes.len()).await.expect("a file");
                assert!(told == bytes, "seed {seed}, write {tag}");
                // An unaligned write may need the old block, which the slow device must bring.
                let fast = at.is_multiple_of(4096) && bytes.len() == 4096;
                let took_ns = rig.runtime.clock.now_ns() - start_ns;
                assert!(!fast || took_ns < 1_000_000, "it was read from memory, not in {took_ns} ns");
            }
            disk.set_faults(FaultPlan::default());
            assert!(rig.read(file, 0, 200_000).await == Ok(own));
            rig.reopen().await;
        });
    }
}

#[test]
fn an_answer_says_whether_it_is_durable() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let ino = rig.create(rig.volume.root, "file").await.expect("a new file");
        for (sync, durable) in [(Sync::Ordered, false), (Sync::Written, false), (Sync::Data, true), (Sync::All, true)] {
            let op = Op::Write { ino, at: At::End, sync, kill_privileges: false };
            let answer = rig.call(op, Some(&pattern(1, 4096))).await.expect("a write");
            assert_eq!(answer.position.map(|position| position.durable), Some(durable), "{sync:?}");
        }
        rig.close().await;
    });
}
