//! A brick that fills: statfs tells it, writes are refused cleanly, everything else goes on, and space comes back
//! (rule K5).

use crate::rig::{Rig, SEGMENT_BYTES, Shape, format, name, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Ino, Kind, Op, Reply, SegmentId, Sync};
use runtime::Stage;
use runtime::random::SplitMix;
use runtime::sim::{SimDisk, Survival, World};
use runtime::tasks::{Local, both};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Half of so small a brick is for the cleaner: 16 segments of data.
const FULL: Shape = Shape::TINY;
/// Times that a brick is filled and emptied.
const ROUNDS: u64 = 10;

/// Files of `length` bytes until the brick is full; the last one, if its data was refused, is there and empty.
async fn fill(rig: &Rig, round: u64, length: usize) -> Vec<Ino> {
    let mut files = Vec::new();
    loop {
        let number = files.len() as u64;
        match rig.create(rig.volume.root, &format!("f{number}")).await {
            Ok(file) => files.push(file),
            Err(kind) => {
                assert_eq!(kind, Kind::NoSpace);
                return files;
            }
        }
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
pub fn a_brick_is_filled_and_emptied_again_and_again() {
    for length in [4096, 10_000, 128 << 10, 1 << 20] {
        let mut world = World::new(length as u64);
        let runtime = world.runtime();
        world.block_on(async {
            let mut rig = Rig::new(runtime, FULL).await;
            rig.checkpoint().await;
            let free_at_first = rig.free_bytes().await;
            assert!(free_at_first > 14 * SEGMENT_BYTES && free_at_first < 16 * SEGMENT_BYTES);
            for round in 0..ROUNDS {
                let mut files = fill(&rig, round, length).await;
                let last = *files.last().expect("it has room");
                if rig.read(last, 0, 10).await == Ok(Vec::new()) {
                    files.pop();
                }
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
            rig.settle().await;
            assert_eq!(rig.free_bytes().await, free_at_first, "accounting has drifted");
            rig.reopen().await;
        });
    }
}

/// A name that waits for a segment takes of the reserve once it turns out that none will be reclaimed, as one does that
/// comes later.
#[test]
fn a_name_that_waits_for_nothing_is_made() {
    let mut world = World::new(12);
    let runtime = world.runtime();
    world.block_on(async {
        // No checkpoint comes, which would free segments of the log.
        let rig = Rig::new(runtime, Shape { overlay_bytes: 1 << 30, ..FULL }).await;
        let space = &rig.groups.store().space;
        let file = rig.create(rig.volume.root, "file").await.expect("names have room");
        while rig.free_bytes().await > 2 << 20 {
            rig.write(file, At::End, &pattern(1, 1 << 20), Sync::Data).await.expect("there is room");
        }
        let mut links = 0..;
        while rig.groups.store().free_segments() > space.floor_for_names() {
            space.set_pace(0, false);
            let name = name(&format!("l{}", links.next().expect("no end")));
            let op = Op::SymLink { parent: rig.volume.root, name, target: vec![7; 10].into() };
            rig.attr(op).await.expect("names have room");
            rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        }
        space.set_pace(0, true);
        let made = async { rig.create(rig.volume.root, "waits").await.map(drop) };
        let late = async {
            rig.runtime.clock.sleep(1_000_000).await;
            space.set_pace(0, false);
            Ok(())
        };
        let (made, _) = both(made, late).await;
        made.expect("names have room");
        rig.close().await;
    });
}

/// Makes room on a full brick: removes files, empties some, cuts some within a block.
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

/// Victims are those of the moment at which cleaning begins, not those of long before, when little had died.
#[test]
fn the_cleaner_takes_victims_as_they_are_when_it_begins() {
    const SEGMENTS: u64 = 80;
    let mut world = World::new(11);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape { segments: SEGMENTS, ..FULL }).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let block = pattern(1, BLOCK_BYTES);
        let overwrite = async |number: u64| {
            let at = At::Offset(number * BLOCK_BYTES as u64);
            rig.write(file, at, &block, Sync::Ordered).await.expect("a write");
        };
        // 40 segments of payload; one block in each dies, and the cleaner looks at them.
        for number in 0..40 {
            rig.write(file, At::Offset(number << 20), &pattern(number, 1 << 20), Sync::Data).await.expect("a write");
        }
        for number in 0..40 {
            overwrite(number * 256).await;
        }
        rig.checkpoint().await;
        rig.runtime.clock.sleep(1_000_000_000).await;
        assert_eq!(rig.groups.cleaner().emptied_segments, 0, "it rests");
        // Most of the last 15 dies.
        for number in (25 * 256..40 * 256).filter(|number| number % 10 > 0) {
            overwrite(number).await;
        }
        rig.checkpoint().await;
        for number in 40.. {
            let free = rig.groups.store().segments().free_segments;
            if free <= 8 {
                break;
            }
            rig.write(file, At::Offset(number << 20), &pattern(number, 1 << 20), Sync::Data).await.expect("a write");
        }
        rig.runtime.clock.sleep(5_000_000_000).await;
        let cleaner = rig.groups.cleaner();
        assert!(cleaner.emptied_segments > 0, "{cleaner:?}");
        assert!(cleaner.moved_blocks < cleaner.emptied_segments * 128, "half a segment each: {cleaner:?}");
        assert_eq!(cleaner.moved_blocks, rig.groups.store().cold.placed_blocks(), "each copy counts once");
        rig.close().await;
    });
}

/// A crash does not undo the cleaner's work: blocks lie where they were moved to, and what was emptied is freed by the next
/// checkpoint (rule K2).
#[test]
fn what_was_moved_before_a_crash_stays_moved() {
    const SEGMENTS: u64 = 48;
    let mut world = World::new(13);
    let runtime = world.runtime();
    let live = |rig: &Rig| -> BTreeSet<SegmentId> {
        let store = rig.groups.store();
        (0..SEGMENTS as u32).map(SegmentId).filter(|segment| store.is_live(*segment)).collect()
    };
    let (rig, before) = world.block_on(async {
        let rig = Rig::new(runtime, Shape { segments: SEGMENTS, ..FULL }).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let write = async |at: u64, length: usize| {
            rig.write(file, At::Offset(at), &pattern(at, length), Sync::Data).await.expect("a write");
        };
        for number in 0..16 {
            write(number << 20, 1 << 20).await;
        }
        // Every tenth block of these segments stays.
        for number in (0..16 * 256).filter(|number| number % 10 > 0) {
            let at = At::Offset(number * BLOCK_BYTES as u64);
            rig.write(file, at, &pattern(number, BLOCK_BYTES), Sync::Ordered).await.expect("a write");
        }
        rig.checkpoint().await;
        for number in 16.. {
            if rig.groups.store().segments().free_segments <= 8 {
                break;
            }
            write(number << 20, 1 << 20).await;
        }
        // Until it has emptied one that no checkpoint has counted since.
        let emptied = || rig.groups.cleaner().emptied_segments;
        let mut seen = (rig.groups.checkpoints(), emptied());
        while emptied() == seen.1 {
            rig.runtime.clock.sleep(100_000).await;
            if rig.groups.checkpoints() != seen.0 {
                seen = (rig.groups.checkpoints(), emptied());
            }
        }
        rig.done(Op::SyncAll).await.expect("a healthy brick syncs");
        assert_eq!(rig.groups.checkpoints(), seen.0, "the index knows of the moves: the test shows nothing");
        let before = live(&rig);
        (rig, before)
    });
    let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = after.runtime();
    after.block_on(async {
        let rig = rig.after_crash(runtime, 0).await;
        rig.checkpoint().await;
        assert_eq!(rig.groups.store().cold.placed_blocks(), 0, "nothing has been moved since");
        assert!(!before.is_subset(&live(&rig)), "what was emptied has live blocks again");
        rig.reopen().await;
    });
}

/// The cut blocks of a large file are freed over several checkpoints and restarts. Meanwhile they read as zeros, beside
/// blocks that were written since (rule K6).
#[test]
pub fn a_large_file_that_was_cut_is_freed_step_by_step() {
    const LEAF_BYTES: u64 = 64 * 4096;
    const LEAVES: u64 = 40;
    let mut world = World::new(7);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, FULL).await;
        let free_at_first = rig.free_bytes().await;
        let file = rig.create(rig.volume.root, "sparse").await.expect("a new file");
        for leaf in 0..LEAVES {
            let at = At::Offset(leaf * LEAF_BYTES);
            rig.write(file, at, &pattern(leaf, 4096), Sync::Ordered).await.expect("a write");
        }
        rig.checkpoint().await;
        rig.truncate(file, 2 * LEAF_BYTES + 100).await.expect("a file can be cut");
        rig.checkpoint().await;
        assert!(rig.groups.is_freeing(), "one step frees it all: the test shows nothing");
        rig.write(file, At::Offset(30 * LEAF_BYTES + 8192), b"new", Sync::Ordered).await.expect("a write");
        for _ in 0..3 {
            rig = rig.reopen().await;
            assert!(rig.read(file, 20 * LEAF_BYTES, 4096).await == Ok(vec![0; 4096]));
            assert!(rig.read(file, 30 * LEAF_BYTES, 4096).await == Ok(vec![0; 4096]));
            assert!(rig.read(file, 30 * LEAF_BYTES + 8192, 3).await == Ok(b"new".to_vec()));
            assert!(rig.read(file, LEAF_BYTES, 4096).await == Ok(pattern(1, 4096)));
        }
        let op = Op::Unlink { parent: rig.volume.root, name: name("sparse") };
        rig.done(op).await.expect("a name can be removed");
        rig.settle().await;
        assert_eq!(rig.free_bytes().await, free_at_first);
    });
}

#[test]
fn truncating_within_a_hole_takes_no_block() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "sparse").await.expect("there is room");
        let block = BLOCK_BYTES as u64;
        let bytes = pattern(1, 2 * BLOCK_BYTES);
        rig.write(file, At::Offset(0), &bytes, Sync::Ordered).await.expect("there is room");
        // Grown by holes, cut within one of them, grown again.
        for size in [10 * block + 100, 5 * block + 50, 7 * block] {
            rig.truncate(file, size).await.expect("there is room");
        }
        rig.checkpoint().await;
        assert_eq!(rig.groups.store().segments().live_blocks, 2);
        // What is cut off within data reads as zeros, whether it was rewritten or was zeros already.
        for size in [block + 100, 3 * block, block + 2000, 3 * block] {
            rig.truncate(file, size).await.expect("there is room");
        }
        let read = rig.read(file, 0, 3 * BLOCK_BYTES).await.expect("it is there");
        assert_eq!(&read[..BLOCK_BYTES + 100], &bytes[..BLOCK_BYTES + 100]);
        assert!(read[BLOCK_BYTES + 100..].iter().all(|&byte| byte == 0));
        rig.checkpoint().await;
        assert_eq!(rig.groups.store().segments().live_blocks, 2);
        rig.close().await;
    });
}

/// A volume with a size of its own is full when its data fills it, whatever the brick has; what is in it can be overwritten
/// and deleted; what it uses is known to the block, across restarts (rules K5, M6).
#[test]
pub fn a_volume_is_full_at_its_size() {
    const SIZE: u64 = 4 << 20;
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let mut rig = Rig::new(runtime, Shape::SMALL).await;
        let op = Op::VolumeCreate { name: name("small"), size_bytes: Some(SIZE + 4096) };
        let Ok(Reply::Volume(volume)) = rig.call(op, None).await.map(|answer| answer.reply) else {
            panic!("a volume is told");
        };
        for round in 0..3 {
            let client = rig.client(9 + round, volume.clone());
            let file = client.create(volume.root, "file").await.expect("a new file");
            let mut length = 0;
            let refused = loop {
                match client.write(file, At::End, &pattern(round, 64 << 10), Sync::Data).await {
                    Ok(_) => length += 64 << 10,
                    Err(kind) => break kind,
                }
            };
            assert_eq!((refused, length), (Kind::Quota, SIZE));
            assert!(client.free_bytes().await < 4096, "names take a part of the last block");
            assert!(rig.free_bytes().await > 100 * SIZE / 4, "the brick has room");
            let other = rig.create(rig.volume.root, &format!("f{round}")).await.expect("a new file");
            rig.write(other, At::End, &pattern(round, 4096), Sync::Data).await.expect("another volume has room");
            // What is there can be written over, names made and removed.
            client.write(file, At::Offset(8192), &pattern(7, 8192), Sync::Data).await.expect("an overwrite");
            client.mkdir(volume.root, "dir").await.expect("a name");
            assert!(client.read(file, 8192, 8192).await == Ok(pattern(7, 8192)));
            if round == 1 {
                rig.checkpoint().await;
                drop(client);
                rig = rig.reopen().await;
            } else {
                rig.checkpoint().await;
            }
            let used = rig.groups.store().usage(volume.id);
            let blocks: Vec<_> = used.iter().map(|(project, usage)| (*project, usage.blocks, usage.inodes)).collect();
            // Root, file, directory.
            assert_eq!(blocks, [(0, SIZE / 4096, 3)]);
            let client = rig.client(90 + round, volume.clone());
            for op in [
                Op::Unlink { parent: volume.root, name: name("file") },
                Op::RemoveDir { parent: volume.root, name: name("dir") },
            ] {
                client.done(op).await.expect("it can be removed");
            }
            rig.settle().await;
            assert_eq!(client.data_room().await, SIZE + 4096);
        }
    });
}

/// The index has the ballast's room while others fill the file system of the brick's directory. Data and new names are
/// refused, changes that make room are not, also after a crash; and all is as before once there is room again (rule
/// K5).
#[test]
fn a_short_host_leaves_its_last_room_to_deletions_and_checkpoints() {
    /// The ballast of a brick of 256 MiB.
    const BALLAST: u64 = 4 << 20;
    let mut world = World::new(5);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    let ballast = |disk: &SimDisk| {
        disk.crash_image(Survival::Everything, &mut SplitMix(1)).length("ballast").expect("it was made")
    };
    let rig = world.block_on(async {
        let rig = Rig::new(runtime.clone(), Shape::SMALL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        rig.write(file, At::End, &pattern(1, 1 << 20), Sync::Data).await.expect("there is room");
        rig.create(rig.volume.root, "gone").await.expect("a new file");
        assert_eq!(ballast(&disk), BALLAST);
        disk.set_others(runtime.disk.free_bytes().expect("no fault") - BALLAST / 4);
        runtime.clock.sleep(2_000_000_000).await;
        assert_eq!(ballast(&disk), 0);
        assert_eq!(rig.write(file, At::Offset(0), &[1], Sync::Data).await, Err(Kind::NoSpace));
        assert_eq!(rig.create(rig.volume.root, "new").await, Err(Kind::NoSpace));
        rig.done(Op::Unlink { parent: rig.volume.root, name: name("gone") }).await.expect("names can be removed");
        rig.settle().await;
        rig
    });
    let mut after = World::from_image(6, world.crash_as(Survival::Random, &mut SplitMix(2)));
    let (runtime, disk) = (after.runtime(), after.disk().clone());
    disk.set_others(runtime.disk.free_bytes().expect("no fault") - BALLAST / 4);
    after.block_on(async {
        let rig = rig.after_crash(runtime.clone(), 0).await;
        let file = rig.lookup(rig.volume.root, "file").await.expect("it was durable");
        assert_eq!(rig.write(file, At::Offset(0), &[1], Sync::Data).await, Err(Kind::NoSpace));
        let set = base::SetAttr { size: Some(4096), ..base::SetAttr::default() };
        rig.attr(Op::SetAttr { ino: file, set: set.into() }).await.expect("files can be cut");
        rig.settle().await;
        disk.set_others(0);
        runtime.clock.sleep(2_000_000_000).await;
        assert_eq!(ballast(&disk), BALLAST);
        rig.write(file, At::End, &pattern(2, 4096), Sync::Data).await.expect("there is room again");
        assert!(rig.read(file, 0, 8192).await == Ok([pattern(1, 1 << 20)[..4096].to_vec(), pattern(2, 4096)].concat()));
        assert_eq!(rig.lookup(rig.volume.root, "gone").await, Err(Kind::NotFound));
        rig.reopen().await;
    });
}

/// The host has no room for a single segment: whoever asks for one hears so once nothing can be reclaimed, instead of waiting
/// for ever.
#[test]
fn a_brick_without_any_segment_refuses_what_needs_one() {
    let mut world = World::new(14);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        format(&runtime, Shape::SMALL).await;
        // The ballast has room.
        disk.set_others(runtime.disk.free_bytes().expect("no fault") - (40 << 20));
        let rig = Rig::found(runtime.clone(), Shape::SMALL).await;
        let refused = Arc::new(AtomicBool::new(false));
        let (client, told) = (rig.client(9, rig.volume.clone()), refused.clone());
        let make = move || -> Local {
            Box::pin(async move {
                let made = client.call(Op::VolumeCreate { name: name("main"), size_bytes: None }, None).await;
                told.store(made.is_err_and(|error| error.kind == Kind::NoSpace), Ordering::Relaxed);
            })
        };
        runtime.tasks.spawn(1, Box::new(make));
        runtime.clock.sleep(10_000_000_000).await;
        assert!(refused.load(Ordering::Relaxed), "nobody was told in 10 s");
        disk.set_others(0);
        runtime.clock.sleep(2_000_000_000).await;
        rig.new_volume("main").await;
        rig.close().await;
    });
}

/// The delay that is told is the one that clients feel (rule K4).
#[test]
fn clients_are_slowed_while_segments_are_short() {
    const FILE_BLOCKS: u64 = 14 * 256;
    let mut world = World::new(15);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, FULL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let mut rng = SplitMix(15);
        // Returns what the write has waited to be let in.
        let mut write = async || {
            let context = rig.context();
            let at = At::Offset(rng.below(FILE_BLOCKS / 16) * 16 * BLOCK_BYTES as u64);
            let op = Op::Write { ino: file, at, sync: Sync::Ordered, kill_privileges: false };
            rig.call_as(&context, op, Some(&pattern(1, 16 * BLOCK_BYTES))).await.expect("a write");
            rig.booked_ns(&context, Stage::Space)
        };
        assert_eq!(write().await, 0, "there is room");
        for _ in 0..5000 {
            if rig.groups.cleaner().client_delay_ns > 0 {
                break;
            }
            write().await;
        }
        assert!(rig.groups.cleaner().client_delay_ns > 0, "the test shows nothing");
        write().await;
        assert!(write().await > 0, "the second one follows at once");
        rig.close().await;
    });
}

/// Direct writes that are slowed gather in one batch (rule K4): who waits for the device waits a little longer.
#[test]
fn direct_writes_gather_while_clients_are_slowed() {
    let mut world = World::new(12);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, FULL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        // Nothing is left that becomes durable by itself meanwhile, in a batch of its own.
        rig.write(file, At::Offset(0), &pattern(1, BLOCK_BYTES), Sync::Data).await.expect("a write");
        for (delay_ns, gathers) in [(0, false), (62_500, true)] {
            rig.groups.store().space.set_pace(delay_ns, true);
            let before_ns = rig.runtime.clock.now_ns();
            rig.write(file, At::Offset(0), &pattern(1, BLOCK_BYTES), Sync::Written).await.expect("a write");
            let took_ns = rig.runtime.clock.now_ns() - before_ns;
            assert_eq!(took_ns >= 1_000_000, gathers, "{took_ns} ns");
            rig.groups.store().space.set_pace(delay_ns, true);
            let batches = || rig.groups.store().log.figures().batches;
            let (before, block) = (batches(), pattern(1, BLOCK_BYTES));
            let write = async |number: u64| {
                rig.runtime.clock.sleep(number * 20_000).await;
                rig.write(file, At::Offset(number << 12), &block, Sync::Written).await.expect("a write");
            };
            both(write(0), write(1)).await;
            assert_eq!(batches() - before == 1, gathers, "in {} batches", batches() - before);
        }
        rig.close().await;
    });
}

/// Overwriting takes no room (rule K4): a brick that has rested, and has no dead block yet, is not called full because the
/// checkpoint that counts the dead ones has not come yet.
#[test]
fn a_brick_that_rested_can_be_overwritten_at_once() {
    let mut world = World::new(16);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime, FULL).await;
        let file = rig.create(rig.volume.root, "file").await.expect("a new file");
        let write = async |number: u64| {
            let at = At::Offset((number % 14) << 20);
            rig.write(file, at, &pattern(number, 1 << 20), Sync::Ordered).await
        };
        for number in 0..14 {
            write(number).await.expect("there is room");
        }
        rig.checkpoint().await;
        rig.runtime.clock.sleep(3_000_000_000).await;
        for number in 14..42 {
            assert_eq!(write(number).await, Ok((number % 14) << 20), "{number}: {:?}", rig.groups.cleaner());
        }
        rig.close().await;
    });
}
