//! Each rule of the durability model, by what crashes leave.

use super::*;

/// The images of crashes right after `act`, which gets a world with the durable files `a` and `b`: with nothing
/// volatile, with everything, and many by seed.
fn images<A: AsyncFn(&Runtime, FileId, FileId)>(act: A) -> (Vec<DiskImage>, Vec<DiskImage>, Vec<DiskImage>) {
    let (mut nothing, mut everything, mut random) = (Vec::new(), Vec::new(), Vec::new());
    let slabs = World::new(0).runtime().slabs;
    for seed in 0..SEEDS {
        let mut world = World::with_slabs(seed, slabs.clone());
        let runtime = world.runtime();
        world.block_on(async {
            let (a, b) = (create(&runtime, "a").await, create(&runtime, "b").await);
            act(&runtime, a, b).await;
        });
        let rng = &mut SplitMix(seed);
        nothing.push(world.crash_as(Survival::Nothing, rng));
        everything.push(world.crash_as(Survival::Everything, rng));
        random.extend((0..4).map(|_| world.crash(rng)));
    }
    (nothing, everything, random)
}

/// True for the images in which the page has this byte throughout.
fn is(name: &'static str, number: u64, byte: u8) -> impl Fn(&DiskImage) -> bool {
    move |image| page(image, name, number) == [byte; 8]
}

#[test]
fn a_flushed_write_survives_every_crash() {
    let (nothing, everything, random) = images(async |runtime, a, _| {
        write(runtime, a, 3, 7, false).await;
        flush(runtime, a).await.expect("no fault");
    });
    assert!(nothing.iter().chain(&everything).chain(&random).all(is("a", 3, 7)));
    assert!(random.iter().all(|image| image.length("a") == Some(PAGES * 4096)));
}

#[test]
fn a_durable_write_survives_every_crash() {
    let (nothing, _, random) = images(async |runtime, a, _| write(runtime, a, 3, 7, true).await);
    assert!(nothing.iter().chain(&random).all(is("a", 3, 7)));
}

#[test]
fn an_unflushed_write_is_kept_lost_or_torn() {
    let (nothing, everything, random) = images(async |runtime, a, _| write(runtime, a, 3, 7, false).await);
    assert!(nothing.iter().all(is("a", 3, 0)));
    assert!(everything.iter().all(is("a", 3, 7)));
    let kept = random.iter().filter(|image| is("a", 3, 7)(image)).count();
    let lost = random.iter().filter(|image| is("a", 3, 0)(image)).count();
    let torn = random.len() - kept - lost;
    assert!(kept > 50 && lost > 50 && torn > 50, "{kept} {lost} {torn}");
    let mixed = random.iter().map(|image| page(image, "a", 3)).filter(|page| page.contains(&0) && page.contains(&7));
    // Heads, tails, and what is neither.
    let changes = |page: &Vec<u8>| page.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let mixed: Vec<_> = mixed.collect();
    assert_eq!(mixed.len(), torn);
    assert!(mixed.iter().any(|page| page[0] == 7 && changes(page) == 1));
    assert!(mixed.iter().any(|page| page[0] == 0 && changes(page) == 1));
    assert!(mixed.iter().any(|page| changes(page) > 2));
}

#[test]
fn a_write_in_flight_is_kept_lost_or_torn_even_a_durable_one() {
    for durable in [false, true] {
        let (nothing, everything, random) = images(async |runtime, a, _| drop(submit(runtime, a, 3, 7, durable)));
        assert!(nothing.iter().all(is("a", 3, 0)));
        assert!(everything.iter().all(is("a", 3, 7)));
        assert!(random.iter().any(is("a", 3, 0)) && random.iter().any(is("a", 3, 7)));
        assert!(random.iter().any(|image| page(image, "a", 3).contains(&0) && page(image, "a", 3).contains(&7)));
    }
}

#[test]
fn a_flush_covers_no_write_that_completed_after_its_submission() {
    let (nothing, ..) = images(async |runtime, a, _| {
        let late = submit(runtime, a, 3, 7, false);
        // Whichever ends first.
        flush(runtime, a).await.expect("no fault");
        late.await.result.expect("no fault");
    });
    assert!(nothing.iter().all(is("a", 3, 0)));
}

#[test]
fn a_flush_covers_its_file_only() {
    let (nothing, ..) = images(async |runtime, a, b| {
        write(runtime, a, 3, 7, false).await;
        flush(runtime, b).await.expect("no fault");
    });
    assert!(nothing.iter().all(is("a", 3, 0)));
}

#[test]
fn a_durable_write_leaves_earlier_plain_writes_volatile() {
    let (nothing, _, random) = images(async |runtime, a, b| {
        write(runtime, a, 3, 7, false).await;
        write(runtime, a, 5, 8, true).await;
        write(runtime, b, 3, 9, true).await;
    });
    assert!(nothing.iter().all(|image| is("a", 3, 0)(image) && is("a", 5, 8)(image) && is("b", 3, 9)(image)));
    assert!(random.iter().any(is("a", 3, 0)));
}

#[test]
fn what_a_durable_write_replaced_never_comes_back() {
    let (nothing, everything, random) = images(async |runtime, a, _| {
        let wide = slices(runtime, 3, 7);
        let (_, result) = disk::write(&*runtime.disk, a, 2 * 4096, wide, false).await;
        result.expect("no fault");
        write(runtime, a, 3, 8, true).await;
    });
    assert!(nothing.iter().chain(&everything).chain(&random).all(is("a", 3, 8)));
    assert!(random.iter().any(is("a", 2, 7)) && random.iter().any(is("a", 4, 0)));
}

#[test]
fn plain_writes_reach_the_medium_in_any_order() {
    let (_, _, random) = images(async |runtime, a, _| {
        write(runtime, a, 1, 1, false).await;
        write(runtime, a, 2, 2, false).await;
    });
    for (first, second) in [(1, 2), (1, 0), (0, 2), (0, 0)] {
        assert!(random.iter().any(|image| is("a", 1, first)(image) && is("a", 2, second)(image)));
    }
}

#[test]
fn of_two_unflushed_writes_to_a_place_either_may_survive() {
    let (_, everything, random) = images(async |runtime, a, _| {
        write(runtime, a, 1, 1, false).await;
        write(runtime, a, 1, 2, false).await;
    });
    assert!(everything.iter().all(is("a", 1, 2)));
    assert!([0, 1, 2].iter().all(|&byte| random.iter().any(is("a", 1, byte))));
}

#[test]
fn a_name_survives_only_after_sync_names() {
    let (nothing, everything, random) = images(async |runtime, _, _| {
        let file = runtime.disk.open("c", OpenMode::Create).expect("new");
        runtime.disk.allocate(file, 4096).expect("space");
        write(runtime, file, 0, 1, true).await;
        flush(runtime, file).await.expect("no fault");
    });
    let names = ["a", "b", "c"];
    assert!(nothing.iter().all(|image| image.names() == names[..2]));
    assert!(everything.iter().all(|image| image.names() == names));
    assert!(random.iter().any(|image| image.names().len() == 2) && random.iter().any(|image| image.names().len() == 3));
    let synced = images(async |runtime, _, _| {
        runtime.disk.open("c", OpenMode::Create).expect("new");
        runtime.disk.sync_names().expect("no fault");
    });
    assert!(synced.0.iter().chain(&synced.2).all(|image| image.names() == names));
    // Only the name: the file is as long as it was durably, not at all.
    assert!(synced.0.iter().all(|image| image.length("c") == Some(0)));
}

#[test]
fn a_length_survives_only_after_a_flush_submitted_later() {
    let lengths = |images: &[DiskImage]| {
        let mut lengths: Vec<_> =
            images.iter().filter_map(|image| image.length("a")).map(|bytes| bytes / 4096).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    };
    let grow = |runtime: &Runtime, file, pages: u64| runtime.disk.allocate(file, pages * 4096).expect("space");
    let (nothing, everything, random) = images(async |runtime, a, _| {
        grow(runtime, a, 20);
        write(runtime, a, 19, 7, true).await;
        grow(runtime, a, 30);
    });
    assert_eq!((lengths(&nothing), lengths(&everything)), (vec![PAGES], vec![30]));
    assert_eq!(lengths(&random), [PAGES, 20, 30]);
    // What lay beyond the surviving end is gone for good.
    let mut world = World::from_image(1, nothing[0].clone());
    let runtime = world.runtime();
    world.block_on(async {
        let a = runtime.disk.open("a", OpenMode::Existing).expect("there");
        grow(&runtime, a, 20);
        assert_eq!(uniform(&read(&runtime, a, 19).await), Some(0));
    });
    let (nothing, ..) = images(async |runtime, a, _| {
        grow(runtime, a, 20);
        let flushed = runtime.disk.submit(Request::Flush { file: a });
        grow(runtime, a, 30);
        flushed.await.result.expect("no fault");
    });
    assert_eq!(lengths(&nothing), [20]);
}

#[test]
fn an_image_is_all_durable_and_lives_on() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let a = create(&runtime, "a").await;
        write(&runtime, a, 1, 1, false).await;
    });
    let image = world.crash_as(Survival::Everything, &mut SplitMix(1));
    let wall = runtime.clock.wall();
    drop(world);
    let mut world = World::from_image(2, image.clone());
    let runtime = world.runtime();
    assert!(runtime.clock.wall() >= wall, "the battery clock goes on");
    assert_eq!(world.crash_as(Survival::Nothing, &mut SplitMix(1)).checksum(), image.checksum());
    world.block_on(async {
        let a = runtime.disk.open("a", OpenMode::Existing).expect("there");
        assert_eq!(uniform(&read(&runtime, a, 1).await), Some(1));
        write(&runtime, a, 1, 2, true).await;
    });
    let later = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    assert_eq!((page(&image, "a", 1), page(&later, "a", 1)), (vec![1; 8], vec![2; 8]));
    assert_ne!(later.checksum(), image.checksum());
}

#[test]
fn a_discard_destroys_what_was_there_now_and_perhaps_again_after_a_crash() {
    let (mut zeros, mut old) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::with(Setup { device_bytes: Some(64 << 10), ..Setup::new(seed) });
        let runtime = world.runtime();
        world.block_on(async {
            let device = runtime.disk.open(DEVICE, OpenMode::Existing).expect("it is there");
            assert_eq!(runtime.disk.list(), Ok(Vec::new()), "it is no name of the directory");
            assert_eq!(runtime.disk.length(device), Ok(64 << 10));
            assert_eq!(runtime.disk.allocate(device, 128 << 10).map_err(|error| error.kind), Err(Kind::Unsupported));
            write(&runtime, device, 3, 7, true).await;
            write(&runtime, device, 4, 8, true).await;
            runtime.disk.discard(device, 3 * 4096, 4096).expect("a device");
            assert_ne!(uniform(&read(&runtime, device, 3).await), Some(7));
            assert_eq!(uniform(&read(&runtime, device, 4).await), Some(8));
            let file = create(&runtime, "a").await;
            assert_eq!(runtime.disk.discard(file, 0, 4096).map_err(|error| error.kind), Err(Kind::Unsupported));
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        assert_eq!(page(&image, DEVICE, 4), [8; 8]);
        zeros += u64::from(page(&image, DEVICE, 3) == [0; 8]);
        old += u64::from(page(&image, DEVICE, 3) == [7; 8]);
    }
    assert!(zeros > SEEDS / 8 && old > SEEDS / 8, "{zeros} {old} of {SEEDS}");
}
