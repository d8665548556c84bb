//! The disk's interface, its faults, and what reads see.

use super::*;

fn plan() -> FaultPlan {
    FaultPlan::default()
}

/// Runs `act` in one world per seed, with the durable file `a`.
fn each<A: AsyncFnMut(&SimDisk, &Runtime, FileId)>(mut act: A) {
    let slabs = World::new(0).runtime().slabs;
    for seed in 0..SEEDS {
        let mut world = World::with_slabs(seed, slabs.clone());
        let (disk, runtime) = (world.disk().clone(), world.runtime());
        world.block_on(async {
            let a = create(&runtime, "a").await;
            act(&disk, &runtime, a).await;
        });
    }
}

#[test]
fn names_are_refused_as_on_a_real_disk() {
    let world = World::new(1);
    let disk = world.runtime().disk;
    let kind = |name, mode| disk.open(name, mode).expect_err("refused").kind;
    assert_eq!(kind("x", OpenMode::Existing), Kind::NotFound);
    assert_eq!(kind("x", OpenMode::ReadOnly), Kind::NotFound);
    assert_eq!(kind("x/y", OpenMode::Create), Kind::Invalid);
    assert_eq!(kind("", OpenMode::Create), Kind::Invalid);
    let second = disk.open("y", OpenMode::Create).expect("new");
    let first = disk.open("x", OpenMode::Create).expect("new");
    assert_ne!(first, second);
    assert_eq!(kind("x", OpenMode::Create), Kind::Exists);
    assert_eq!(disk.open("x", OpenMode::Existing).expect("there"), first);
    assert_eq!(disk.open("x", OpenMode::ReadOnly).expect("there"), first);
    assert_eq!(disk.list().expect("no fault"), ["x", "y"]);
}

#[test]
fn transfers_past_the_end_and_to_read_only_files_are_refused() {
    each(async |_, runtime, a| {
        let late = submit(runtime, a, PAGES, 1, true).await.result;
        assert_eq!(late.expect_err("past the end").kind, Kind::Io);
        let buffer = runtime.buffer(8192).expect("memory is left");
        let (buffer, late) = disk::read(&*runtime.disk, a, (PAGES - 1) * 4096, buffer).await;
        assert_eq!((buffer.len(), late.expect_err("past the end").kind), (8192, Kind::Io));
    });
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(create(&runtime, "a"));
    let mut world = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = world.runtime();
    world.block_on(async {
        let a = runtime.disk.open("a", OpenMode::ReadOnly).expect("there");
        assert_eq!(submit(&runtime, a, 0, 1, false).await.result.expect_err("refused").kind, Kind::ReadOnly);
        assert_eq!(runtime.disk.allocate(a, PAGES * 8192).expect_err("refused").kind, Kind::ReadOnly);
        assert_eq!(uniform(&read(&runtime, a, 0).await), Some(0));
    });
}

#[test]
fn a_read_sees_completed_writes_and_any_part_of_one_in_flight() {
    let (mut old, mut new, mut torn) = (0, 0, 0);
    each(async |_, runtime, a| {
        write(runtime, a, 1, 1, false).await;
        assert_eq!(uniform(&read(runtime, a, 1).await), Some(1));
        let writing = submit(runtime, a, 1, 2, false);
        match sectors(&read(runtime, a, 1).await) {
            page if page == [1; 8] => old += 1,
            page if page == [2; 8] => new += 1,
            page => {
                assert!(page.iter().all(|sector| [1, 2].contains(sector)));
                torn += 1;
            }
        }
        writing.await.result.expect("no fault");
        assert_eq!(uniform(&read(runtime, a, 1).await), Some(2));
    });
    assert!(old > 10 && new > 10 && torn > 10, "{old} {new} {torn}");
}

#[test]
fn the_planned_io_fails_and_only_that() {
    each(async |disk, runtime, a| {
        disk.set_faults(FaultPlan { reads: Fail::Nth(2), writes: Fail::From(2), flushes: Fail::Nth(1), ..plan() });
        for n in 1..4 {
            let buffer = runtime.buffer(4096).expect("memory is left");
            let (_, result) = disk::read(&*runtime.disk, a, 0, buffer).await;
            assert_eq!(result.is_err(), n == 2);
            assert_eq!(submit(runtime, a, 0, 1, false).await.result.is_err(), n >= 2);
            assert_eq!(flush(runtime, a).await.is_err(), n == 1);
        }
    });
}

#[test]
fn faults_keep_to_their_file() {
    each(async |disk, runtime, a| {
        let b = create(runtime, "b").await;
        disk.set_faults(FaultPlan { only: Some(b), writes: Fail::Nth(1), ..plan() });
        write(runtime, a, 0, 1, false).await;
        assert!(submit(runtime, b, 0, 1, false).await.result.is_err());
        write(runtime, b, 0, 1, false).await;
    });
}

#[test]
fn faults_by_chance_come_about_as_often_as_asked() {
    let mut failed = 0;
    each(async |disk, runtime, a| {
        disk.set_faults(FaultPlan { flushes: Fail::OneIn(4), ..plan() });
        failed += u64::from(flush(runtime, a).await.is_err());
    });
    assert!((SEEDS / 8..SEEDS / 2).contains(&failed), "{failed}");
}

#[test]
fn a_failed_write_leaves_nothing_all_or_a_part_and_is_not_durable() {
    let (mut old, mut new, mut torn) = (0, 0, 0);
    each(async |disk, runtime, a| {
        disk.set_faults(FaultPlan { writes: Fail::Nth(1), ..plan() });
        assert_eq!(submit(runtime, a, 0, 1, true).await.result.expect_err("planned").kind, Kind::Io);
        match sectors(&read(runtime, a, 0).await) {
            page if page == [0; 8] => old += 1,
            page if page == [1; 8] => new += 1,
            _ => torn += 1,
        }
        let image = disk.crash_image(Survival::Nothing, &mut SplitMix(1));
        assert_eq!(page(&image, "a", 0), [0; 8]);
    });
    assert!(old > 10 && new > 10 && torn > 10, "{old} {new} {torn}");
}

#[test]
fn what_a_failed_flush_covered_no_later_flush_makes_durable() {
    each(async |disk, runtime, a| {
        write(runtime, a, 0, 1, false).await;
        disk.set_faults(FaultPlan { flushes: Fail::Nth(1), ..plan() });
        flush(runtime, a).await.expect_err("planned");
        write(runtime, a, 1, 2, false).await;
        flush(runtime, a).await.expect("the second is well");
        let image = disk.crash_image(Survival::Nothing, &mut SplitMix(1));
        assert_eq!((page(&image, "a", 0), page(&image, "a", 1)), (vec![0; 8], vec![2; 8]));
        // Written again, it is covered again, and the doomed bytes can't come back over it.
        write(runtime, a, 0, 3, false).await;
        flush(runtime, a).await.expect("well");
        for survival in [Survival::Nothing, Survival::Everything] {
            assert_eq!(page(&disk.crash_image(survival, &mut SplitMix(1)), "a", 0), [3; 8]);
        }
    });
}

#[test]
fn space_ends_by_size_and_by_plan() {
    let mut world = World::with(Setup { capacity_bytes: 1 << 20, ..Setup::new(1) });
    let runtime = world.runtime();
    world.block_on(async {
        let a = create(&runtime, "a").await;
        assert_eq!(runtime.disk.free_bytes().expect("no fault"), (1 << 20) - PAGES * 4096);
        assert_eq!(runtime.disk.allocate(a, (1 << 20) + 4096).expect_err("too much").kind, Kind::NoSpace);
        assert_eq!(runtime.disk.length(a).expect("open"), PAGES * 4096);
        runtime.disk.allocate(a, 1 << 20).expect("it fits just so");
        runtime.disk.allocate(a, 4096).expect("a file never shrinks");
        assert_eq!(runtime.disk.length(a).expect("open"), 1 << 20);
        assert_eq!(runtime.disk.free_bytes().expect("no fault"), 0);
    });
    each(async |disk, runtime, a| {
        disk.set_faults(FaultPlan { space: Fail::Nth(2), ..plan() });
        runtime.disk.allocate(a, 1 << 20).expect("the first");
        assert_eq!(runtime.disk.open("b", OpenMode::Create).expect_err("the second").kind, Kind::NoSpace);
        assert_eq!(runtime.disk.list().expect("no fault"), ["a"]);
        runtime.disk.open("b", OpenMode::Create).expect("the third");
    });
}

#[test]
fn a_slow_or_stalled_device_takes_its_time() {
    each(async |disk, runtime, a| {
        let timed = async || {
            let start = runtime.clock.now_ns();
            write(runtime, a, 0, 1, false).await;
            runtime.clock.now_ns() - start
        };
        // 16 times the longest typical time, one and a half times.
        assert!(timed().await < 3_000_000);
        disk.set_faults(FaultPlan { slowness: 1000, ..plan() });
        assert!(timed().await > 5_000_000);
        disk.set_faults(FaultPlan { stalls: Fail::Nth(2), stall_ns: 1_000_000_000, ..plan() });
        assert!(timed().await < 3_000_000);
        assert!(timed().await >= 1_000_000_000);
    });
}

#[test]
fn rot_is_on_the_medium_and_in_every_cache() {
    each(async |disk, runtime, a| {
        write(runtime, a, 1, 7, false).await;
        let before = disk.crash_image(Survival::Nothing, &mut SplitMix(1));
        disk.flip_bits(a, 4096 + 100, &mut SplitMix(1));
        let seen = read(runtime, a, 1).await;
        assert_ne!(seen[100], 7);
        assert!(seen[..100].iter().chain(&seen[101..]).all(|&byte| byte == 7));
        let after = disk.crash_image(Survival::Nothing, &mut SplitMix(1));
        let byte = |image: &DiskImage| image.read("a", 4096 + 100, 1);
        assert_ne!(byte(&before), byte(&after));
        flush(runtime, a).await.expect("no fault");
        let flushed = disk.crash_image(Survival::Nothing, &mut SplitMix(1));
        assert_eq!(flushed.read("a", 4096, 4096).expect("there"), seen);
        let mut rotten = flushed.clone();
        rotten.flip_bits("a", 5000, &mut SplitMix(1));
        assert_ne!(rotten.checksum(), flushed.checksum());
    });
}

#[test]
fn figures_count_what_was_submitted() {
    each(async |disk, runtime, a| {
        write(runtime, a, 0, 1, false).await;
        write(runtime, a, 0, 1, true).await;
        read(runtime, a, 0).await;
        flush(runtime, a).await.expect("no fault");
        let expected = FileFigures {
            reads: 1,
            writes: 2,
            durable_writes: 1,
            // One by `create`.
            flushes: 2,
            read_bytes: 4096,
            written_bytes: 8192,
            discards: 0,
            discarded_bytes: 0,
        };
        assert_eq!(disk.figures()["a"], expected);
    });
}

#[test]
#[should_panic(expected = "whole blocks")]
fn an_unaligned_write_is_a_bug() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let a = create(&runtime, "a").await;
        let half = vec![slices(&runtime, 1, 1)[0].slice(0..2048)];
        disk::write(&*runtime.disk, a, 0, half, false).await.1.expect("never reached");
    });
}

#[test]
#[should_panic(expected = "was not opened")]
fn an_unopened_file_is_a_bug() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(create(&runtime, "a"));
    let mut world = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = world.runtime();
    world.block_on(async { flush(&runtime, FileId(0)).await.expect("never reached") });
}

#[test]
fn failures_are_counted_and_say_what_the_plan_says() {
    let nth = Fail::Nth(2);
    each(async |disk, runtime, a| {
        disk.set_faults(FaultPlan { writes: nth, error: Some(Kind::NoSpace), ..plan() });
        write(runtime, a, 0, 1, false).await;
        let failed = submit(runtime, a, 1, 1, false).await.result;
        assert_eq!(failed.expect_err("the second one").kind, Kind::NoSpace);
        write(runtime, a, 2, 1, false).await;
        assert_eq!(disk.faults_met(), 1);
        disk.set_faults(FaultPlan { names: nth, ..plan() });
        assert_eq!(disk.faults_met(), 0, "counted anew");
        let told: Vec<_> = (0..3).map(|_| runtime.disk.sync_names().map_err(|error| error.kind)).collect();
        assert_eq!(told, [Ok(()), Err(Kind::Io), Ok(())]);
        disk.set_faults(FaultPlan { space: nth, error: Some(Kind::Io), ..plan() });
        let open = |name| runtime.disk.open(name, OpenMode::Create).map_err(|error| error.kind);
        assert!(open("b").is_ok());
        assert_eq!(open("c"), Err(Kind::Io));
        assert_eq!(disk.faults_met(), 1);
    });
}
