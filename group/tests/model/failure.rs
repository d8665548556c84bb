//! Devices that fail, lie or fill: what clients are told, and what they still have (rules U4, K8, X4, K5).

use crate::rig::{Rig, Shape, format, name, pattern};
use base::{At, Kind, Op, SetAttr, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Fail, FaultPlan, SimDisk, Survival, World};
use runtime::{FileId, Need, OpenMode, Runtime, Slabs, Stage, tasks, tasks::Local};
use std::sync::Arc;

const DATA: &str = "segments-00000";

fn data_file(runtime: &Runtime) -> FileId {
    runtime.disk.open(DATA, OpenMode::Existing).expect("the brick has made it")
}

fn flushes(disk: &SimDisk) -> u64 {
    disk.figures()[DATA].flushes
}

#[test]
pub fn a_failed_write_or_flush_ends_changes_until_a_restart() {
    let writes = FaultPlan { writes: Fail::From(1), ..FaultPlan::default() };
    let flush = FaultPlan { flushes: Fail::Nth(1), ..FaultPlan::default() };
    for (seed, plan) in (1..).zip([writes, flush, writes, flush]) {
        let mut world = World::new(seed);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        let rig = world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let root = rig.volume.root;
            let kept = rig.create(root, "kept").await.expect("a new file");
            rig.write(kept, At::End, &pattern(1, 50_000), Sync::All).await.expect("a write");
            let file = rig.create(root, "file").await.expect("a new file");
            rig.write(file, At::End, &pattern(2, 5000), Sync::Data).await.expect("a write");
            rig.runtime.clock.sleep(50_000_000).await;
            let only = Some(data_file(&rig.runtime));
            disk.set_faults(FaultPlan { only, ..plan });
            // Enough without a flush that the durable one needs one.
            rig.write(file, At::End, &pattern(3, 5000), Sync::Ordered).await.expect("nothing has failed yet");
            let _ = rig.write(file, At::End, &pattern(4, 4096), Sync::Written).await;
            assert_eq!(rig.write(file, At::End, &pattern(5, 5000), Sync::Data).await, Err(Kind::Io));
            disk.set_faults(FaultPlan::default());
            let before = flushes(&disk);
            // Nothing is tried again, and every handle of the file is told, again and again.
            for sync in [Sync::Data, Sync::All, Sync::Data] {
                assert_eq!(rig.done(Op::Fsync { ino: file, sync }).await, Err(Kind::Io));
            }
            assert_eq!(rig.done(Op::SyncAll).await, Err(Kind::Io));
            // What was durable is.
            rig.done(Op::Fsync { ino: kept, sync: Sync::All }).await.expect("it was durable before");
            assert_eq!(rig.create(root, "late").await, Err(Kind::Io));
            assert_eq!(rig.write(kept, At::Offset(0), &[1], Sync::Ordered).await, Err(Kind::Io));
            assert_eq!(rig.write(kept, At::Offset(0), &pattern(6, 1 << 20), Sync::Ordered).await, Err(Kind::Io));
            assert_eq!(rig.done(Op::Unlink { parent: root, name: name("kept") }).await, Err(Kind::Io));
            assert_eq!(rig.truncate(kept, 10).await.err(), Some(Kind::Io));
            assert!(rig.groups.checkpoint().await.is_err());
            // Reading goes on.
            assert!(rig.read(kept, 0, 60_000).await == Ok(pattern(1, 50_000)));
            assert_eq!(rig.lookup(root, "kept").await, Ok(kept));
            rig.runtime.clock.sleep(3_000_000_000).await;
            assert_eq!(flushes(&disk), before, "a failed flush is not tried again");
            assert!(rig.groups.close().await.is_err(), "and closing says so");
            rig
        });
        let mut after = World::from_image(seed, world.crash_as(Survival::Nothing, &mut SplitMix(seed)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            let root = rig.volume.root;
            let kept = rig.lookup(root, "kept").await.expect("it was durable");
            assert!(rig.read(kept, 0, 60_000).await == Ok(pattern(1, 50_000)));
            let file = rig.lookup(root, "file").await.expect("it was durable");
            assert!(rig.read(file, 0, 5000).await == Ok(pattern(2, 5000)));
            rig.write(file, At::End, &pattern(7, 5000), Sync::Data).await.expect("a restart mends it");
            rig.reopen().await;
        });
    }
}

#[test]
fn a_failed_read_is_that_reads_error_only() {
    let mut world = World::new(1);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        rig.write(file, At::End, &pattern(1, 50_000), Sync::All).await.expect("a write");
        rig.runtime.clock.sleep(50_000_000).await;
        disk.set_faults(FaultPlan { reads: Fail::Nth(1), ..FaultPlan::default() });
        assert_eq!(rig.read(file, 8192, 4096).await, Err(Kind::Io));
        assert!(rig.read(file, 0, 60_000).await == Ok(pattern(1, 50_000)));
        rig.write(file, At::Offset(100), &pattern(2, 10), Sync::Data).await.expect("the brick is well");
        rig.reopen().await;
    });
}

#[test]
pub fn damaged_blocks_are_errors_and_never_turn_into_data() {
    for large in [false, true] {
        let mut world = World::new(2);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        world.block_on(async {
            let rig = Rig::new(runtime, Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            let length = if large { 200_000 } else { 40_000 };
            let mut own = pattern(1, length);
            rig.write(file, At::End, &own, Sync::All).await.expect("a write");
            rig.checkpoint().await;
            // The block's bytes are somewhere on the device: find them, and let one rot.
            let block = 5 * 4096..6 * 4096;
            let wanted = own[block.clone()].to_vec();
            let image = disk.crash_image(Survival::Everything, &mut SplitMix(1));
            let blocks = image.length(DATA).expect("it was made") / 4096;
            let at = (0..blocks).find(|at| image.read(DATA, at * 4096, 4096).as_ref() == Some(&wanted));
            let at = at.expect("the block is on the device") * 4096;
            disk.flip_bits(data_file(&rig.runtime), at + 77, &mut SplitMix(3));
            assert_eq!(rig.read(file, 5 * 4096 + 10, 20).await, Err(Kind::Corrupt));
            assert_eq!(rig.read(file, 0, length).await, Err(Kind::Corrupt), "no part of it passes for the whole");
            assert!(rig.read(file, 0, 5 * 4096).await == Ok(own[..5 * 4096].to_vec()));
            assert!(rig.read(file, 6 * 4096, length).await == Ok(own[6 * 4096..].to_vec()));
            // Merging with the damaged block would give it a good checksum.
            for sync in [Sync::Ordered, Sync::Data] {
                assert_eq!(rig.write(file, At::Offset(5 * 4096 + 1), &[1, 2], sync).await, Err(Kind::Corrupt));
            }
            let set = SetAttr { size: Some(5 * 4096 + 9), ..SetAttr::default() };
            assert_eq!(rig.attr(Op::SetAttr { ino: file, set: set.into() }).await.err(), Some(Kind::Corrupt));
            assert_eq!(rig.read(file, 5 * 4096, 1).await, Err(Kind::Corrupt));
            // A whole new block heals it.
            own[block].copy_from_slice(&pattern(9, 4096));
            let healed = rig.write(file, At::Offset(5 * 4096), &pattern(9, 4096), Sync::Data).await;
            assert_eq!(healed, Ok(5 * 4096));
            assert!(rig.read(file, 0, length).await == Ok(own));
            rig.reopen().await;
        });
    }
}

#[test]
pub fn a_damaged_index_row_is_its_files_error() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let (bad, good) = (rig.create(root, "bad").await, rig.create(root, "good").await);
        let (bad, good) = (bad.expect("a new file"), good.expect("a new file"));
        for file in [bad, good] {
            rig.write(file, At::End, &pattern(file.0, 50_000), Sync::Ordered).await.expect("a write");
        }
        // The cache must not know the leaf.
        let rig = rig.reopen().await;
        let key = store::format::keys::leaf(rig.volume.id, base::LeafKey { ino: bad, leaf: 0 });
        rig.spoil(key);
        assert_eq!(rig.read(bad, 0, 4096).await, Err(Kind::Corrupt));
        assert_eq!(rig.write(bad, At::Offset(1), &[1], Sync::Ordered).await, Err(Kind::Corrupt));
        assert!(rig.read(good, 0, 50_000).await == Ok(pattern(good.0, 50_000)));
        assert_eq!(rig.lookup(root, "bad").await, Ok(bad));
    });
}

#[test]
fn a_host_without_space_is_told_and_forgotten_once_there_is_some() {
    let mut world = World::new(4);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        format(&runtime, Shape::SMALL).await;
        // The first data file can't be made: nothing can be ordered.
        disk.set_faults(FaultPlan { space: Fail::From(1), ..FaultPlan::default() });
        let mut rig = Rig::found(runtime.clone(), Shape::SMALL).await;
        for _ in 0..5 {
            let refused = rig.call(Op::VolumeCreate { name: name("main"), size_bytes: None }, None).await;
            assert_eq!(refused.err().map(|error| error.kind), Some(Kind::NoSpace));
        }
        disk.set_faults(FaultPlan::default());
        let tries = [(); 10].map(|()| name("main"));
        let mut made = None;
        for name in tries {
            if let Ok(answer) = rig.call(Op::VolumeCreate { name, size_bytes: None }, None).await {
                made = Some(answer.reply);
                break;
            }
            // The host is looked at once in a second.
            runtime.clock.sleep(200_000_000).await;
        }
        let Some(base::Reply::Volume(volume)) = made else { panic!("there is space again: {made:?}") };
        rig.volume = volume.clone();
        let file = rig.create(volume.root, "file").await.expect("a new file");
        rig.write(file, At::End, &pattern(1, 1 << 20), Sync::Data).await.expect("there is space again");
        let space = rig.groups.store().segments();
        assert!(space.free_segments > 245, "segments were lost to the failed attempts: {space:?}");
        rig.reopen().await;
    });
}

/// Somebody heals the block while it is read: what was read does not match, and the map has changed (rule K8).
#[test]
pub fn a_damaged_block_that_is_rewritten_while_it_is_read_is_looked_up_again() {
    let mut world = World::new(5);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let (old, new) = (pattern(1, 4096), pattern(2, 4096));
        rig.write(file, At::End, &old, Sync::All).await.expect("a write");
        rig.checkpoint().await;
        let image = disk.crash_image(Survival::Everything, &mut SplitMix(1));
        let blocks = image.length(DATA).expect("it was made") / 4096;
        let at = (0..blocks).find(|at| image.read(DATA, at * 4096, 4096).as_ref() == Some(&old));
        disk.flip_bits(data_file(&runtime), at.expect("it is on the device") * 4096, &mut SplitMix(2));
        // From here on the leaf is in memory: the next read goes to the device at once.
        assert_eq!(rig.read(file, 0, 4096).await, Err(Kind::Corrupt));
        // And takes long enough for a write in memory beside it.
        disk.set_faults(FaultPlan { slowness: 1000, ..FaultPlan::default() });
        let (client, written) = (rig.client(7, rig.volume.clone()), new.clone());
        let rewrite = move || -> Local {
            Box::pin(async move {
                client.runtime.clock.sleep(100_000).await;
                client.write(file, At::Offset(0), &written, Sync::Ordered).await.expect("a write");
            })
        };
        runtime.tasks.spawn(1, Box::new(rewrite));
        assert!(rig.read(file, 0, 4096).await == Ok(new));
        disk.set_faults(FaultPlan::default());
        rig.reopen().await;
    });
}

/// The ballast for the index can't be made, for another reason than room: clients are told of a failing device, with
/// its cause, and never that the brick is full (rules U4, K5).
#[test]
fn a_host_that_fails_is_not_called_full() {
    const BALLAST: u64 = 4 << 20;
    let fails = |plan: FaultPlan| FaultPlan { error: Some(Kind::Io), ..plan };
    let space = fails(FaultPlan { space: Fail::From(1), ..FaultPlan::default() });
    let names = fails(FaultPlan { names: Fail::From(1), ..FaultPlan::default() });
    for (seed, plan) in (1..).zip([space, names]) {
        let mut world = World::new(seed);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        let rig = world.block_on(async {
            let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
            let file = rig.create(rig.volume.root, "file").await.expect("a new file");
            rig.write(file, At::End, &pattern(1, 50_000), Sync::All).await.expect("there is room");
            disk.set_others(runtime.disk.free_bytes().expect("no fault") - BALLAST / 4);
            runtime.clock.sleep(2_000_000_000).await;
            assert_eq!(rig.write(file, At::Offset(0), &[1], Sync::Data).await, Err(Kind::NoSpace));
            // Somebody makes room: the ballast is made again, or would be.
            disk.set_faults(plan);
            disk.set_others(0);
            runtime.clock.sleep(2_000_000_000).await;
            assert!(disk.faults_met() > 0, "it was tried");
            assert_eq!(rig.write(file, At::Offset(0), &[1], Sync::Data).await, Err(Kind::Io));
            assert_eq!(rig.create(rig.volume.root, "new").await, Err(Kind::Io));
            let cause = rig.groups.store().log.failed().expect("the brick has failed").to_string();
            assert!(cause.contains("keeping room for the index"), "{cause}");
            assert!(rig.read(file, 0, 60_000).await == Ok(pattern(1, 50_000)), "reading goes on");
            rig
        });
        let mut after = World::from_image(seed, world.crash_as(Survival::Nothing, &mut SplitMix(seed)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = rig.after_crash(runtime, 0).await;
            let file = rig.lookup(rig.volume.root, "file").await.expect("it was durable");
            rig.write(file, At::Offset(0), &[1], Sync::Data).await.expect("a restart mends it");
            rig.reopen().await;
        });
    }
}

#[test]
fn a_full_memory_slows_clients_and_ends_nothing() {
    let slabs = Arc::new(Slabs::new(2, 32 << 20));
    let mut world = World::with_slabs(9, slabs.clone());
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let root = rig.volume.root;
        let file = rig.create(root, "file").await.expect("a new file");
        rig.write(file, At::End, &pattern(1, 5000), Sync::All).await.expect("a write");
        rig.checkpoint().await;
        // Requests hold all that there is for clients.
        let all = || std::iter::from_fn(|| slabs.take(0, 1 << 20, Need::Finishing).ok()).collect::<Vec<_>>();
        let held = all();
        // What needs no data goes on, and so does all that others wait for.
        rig.create(root, "other").await.expect("a name");
        rig.done(Op::Unlink { parent: root, name: name("other") }).await.expect("no name");
        rig.truncate(file, 6000).await.expect("a size");
        rig.done(Op::Fsync { ino: file, sync: Sync::All }).await.expect("durable");
        rig.checkpoint().await;
        // Data waits until others are done.
        let began = rig.runtime.clock.now_ns();
        let free = async {
            rig.runtime.clock.sleep(300_000_000).await;
            drop(held);
        };
        let context = rig.context();
        let read = async {
            let op = Op::Read { ino: file, offset: 4000, length: 2000 };
            drop(rig.call_as(&context, op, None).await.expect("memory comes back"));
        };
        tasks::both(read, free).await;
        assert!(rig.runtime.clock.now_ns() - began >= 300_000_000);
        assert!(rig.booked_ns(&context, Stage::Buffer) >= 290_000_000, "and it says so");
        // Nobody waits for ever.
        let held = all();
        assert_eq!(rig.read(file, 0, 2000).await, Err(Kind::Host));
        drop(held);
        assert_eq!(rig.read(file, 0, 2000).await, Ok(pattern(1, 2000)));
        rig.close().await;
    });
}

#[test]
fn a_change_waits_for_the_logs_memory() {
    let slabs = Arc::new(Slabs::new(2, 16 << 20));
    let mut world = World::with_slabs(11, slabs.clone());
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        rig.checkpoint().await;
        let held: Vec<_> = std::iter::from_fn(|| slabs.take_own(0, 4096).ok()).collect();
        let began = rig.runtime.clock.now_ns();
        let free = async {
            rig.runtime.clock.sleep(300_000_000).await;
            drop(held);
        };
        let target = vec![b'x'; 4095].into();
        let link = async {
            let op = Op::SymLink { parent: rig.volume.root, name: name("link"), target };
            drop(rig.call(op, None).await.expect("it has memory then"));
        };
        tasks::both(link, free).await;
        assert!(rig.runtime.clock.now_ns() - began >= 300_000_000);
        rig.reopen().await;
    });
}

/// Changes that nobody waits for are written a second later: until then they are in memory, and so are the heads of
/// batches without payload.
#[test]
fn many_large_names_at_once_fit_into_a_small_memory() {
    let slabs = Arc::new(Slabs::new(2, 16 << 20));
    let mut world = World::with_slabs(10, slabs.clone());
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let target: Box<[u8]> = vec![b'x'; 4095].into();
        let (began, mut admitted) = (rig.runtime.clock.now_ns(), 0);
        for number in 0..3000 {
            let (parent, name) = (rig.volume.root, name(&format!("link-{}", number % 100)));
            for op in [Op::SymLink { parent, name: name.clone(), target: target.clone() }, Op::Unlink { parent, name }]
            {
                let context = rig.context();
                rig.call_as(&context, op, None).await.expect("it waits for memory");
                let waits = [Stage::Buffer, Stage::Space, Stage::Backlog];
                admitted += waits.map(|stage| rig.booked_ns(&context, stage)).iter().sum::<u64>();
            }
        }
        let took = rig.runtime.clock.now_ns() - began;
        assert!(admitted > took / 2, "{admitted} of {took} ns are said to be waiting");
        rig.close().await;
    });
}
