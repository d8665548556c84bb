//! Segments on a block device (rules X5, K3, K7): whose it is, what may be on it, and what becomes of freed segments.

use crate::rig::{Brick, Map, SEGMENT_BYTES, boot, file, format_as, payload, seeds, superblock_of};
use base::{Kind, Result, Sync};
use runtime::disk::{self, DEVICE};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Fail, FaultPlan, Ran, Setup, Side, Survival, World};
use runtime::{OpenMode, Runtime};
use store::brick::{Found, look};
use store::device::Foreign;
use store::format::devices::FIRST;
use store::format::label::Label;
use store::format::leaf::merge;
use store::format::superblock::Superblock;
use store::index::model::ModelIndex;

const SEGMENTS: u64 = 40;
/// Label and segments.
const DEVICE_BYTES: u64 = (1 << 20) + SEGMENTS * SEGMENT_BYTES;

fn blank(seed: u64) -> World {
    World::with(Setup { device_bytes: Some(DEVICE_BYTES), ..Setup::new(seed) })
}

async fn format(runtime: &Runtime) -> Result<ModelIndex> {
    format_as(runtime, None, Some(Foreign::Keep)).await
}

/// Overwrites a few blocks again and again, with checkpoints: segments die. Returns what the blocks are.
async fn churn(brick: &Brick, rng: &mut SplitMix, rounds: u64, writes: u64) -> Map {
    let mut expected = brick.map();
    for _ in 0..rounds {
        for _ in 0..writes {
            let bytes = payload(rng.next() >> 24, 1 + rng.below(30) as usize);
            let written = brick.write(file(1), rng.below(8) * 30, &bytes, Sync::Data).await;
            written.expect("space comes back").lay_over(&mut expected);
        }
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        // Readers of a phase end, and what was freed is discarded.
        brick.store.free_unread();
        brick.runtime.clock.sleep(20_000_000).await;
        brick.store.free_unread();
    }
    expected
}

#[test]
pub fn a_brick_on_a_device_keeps_what_it_has_while_freed_segments_are_discarded() {
    let mut images = 0;
    for seed in seeds(1..12) {
        let mut world = blank(seed);
        let runtime = world.runtime();
        let mut rng = SplitMix(seed);
        let (index, expected) = world.block_on(async {
            let index = format(&runtime).await.expect("a blank device");
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            let expected = churn(&brick, &mut rng, 30, 24).await;
            assert!(brick.store.discarded_bytes() >= 4 * SEGMENT_BYTES, "{}", brick.store.discarded_bytes());
            brick.read_all().await;
            (index, expected)
        });
        for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
            let image = world.crash_as(survival, &mut rng);
            assert!(
                image.names().iter().all(|name| [DEVICE, "superblock", store::host::BALLAST].contains(&name.as_str()))
            );
            let mut after = boot(seed, &image);
            let runtime = after.runtime();
            after.block_on(async {
                let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a crash leaves a brick");
                assert_eq!(brick.map(), expected);
                brick.read_all().await;
                churn(&brick, &mut rng, 3, 24).await;
                brick.read_all().await;
            });
            images += 1;
        }
    }
    assert!(images >= 3);
}

#[test]
fn segments_are_not_discarded_while_few_are_free() {
    let mut world = blank(3);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime).await.expect("a blank device");
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let mut next = 0;
        // What stays: all but a few segments.
        while brick.space_free() as usize > brick.store.space.target() + 2 {
            let bytes = payload(next, 60);
            brick.write(file(2), next * 60, &bytes, Sync::Ordered).await.expect("there is room");
            next += 1;
        }
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let before = brick.store.discarded_bytes();
        // All of a small file, again and again: what dies is taken again.
        let mut least = u64::MAX;
        for round in 0..40 {
            for number in 0..4 {
                let bytes = payload(round << 8 | number, 30);
                brick.write(file(1), number * 30, &bytes, Sync::Data).await.expect("space comes back");
            }
            churn(&brick, &mut SplitMix(round), 1, 0).await;
            least = least.min(brick.space_free());
        }
        assert!(least > 0 && brick.store.segments().free_segments > 0);
        assert_eq!(brick.store.discarded_bytes(), before, "{} segments are free", brick.space_free());
    });
}

#[test]
fn a_device_that_has_no_use_for_discards_is_asked_once() {
    let mut world = blank(10);
    let runtime = world.runtime();
    world.disk().set_faults(FaultPlan { discards: Fail::From(1), ..FaultPlan::default() });
    world.block_on(async {
        let index = format(&runtime).await.expect("a blank device");
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        churn(&brick, &mut SplitMix(10), 30, 24).await;
        assert_eq!(brick.store.discarded_bytes(), 0);
        brick.read_all().await;
    });
    assert_eq!(world.disk().figures()[DEVICE].discards, 1);
}

#[test]
pub fn a_brick_in_a_directory_is_never_discarded() {
    let mut world = World::new(4);
    let runtime = world.runtime();
    world.block_on(async {
        let index = crate::rig::format(&runtime, SEGMENTS).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        churn(&brick, &mut SplitMix(4), 30, 24).await;
        assert_eq!(brick.store.discarded_bytes(), 0);
    });
    assert!(world.disk().figures().values().all(|figures| figures.discards == 0));
}

/// Writes a block, as somebody else would.
async fn scribble(runtime: &Runtime, at: u64, block: &[u8]) {
    let device = runtime.disk.open(DEVICE, OpenMode::Existing).expect("it is there");
    let mut buffer = runtime.buffer(4096).expect("within the bound");
    buffer.copy_from_slice(block);
    let slices = vec![buffer.share().slice(0..4096)];
    disk::write(&*runtime.disk, device, at, slices, true).await.1.expect("a healthy device writes");
}

#[test]
fn a_device_that_holds_anything_is_refused_unless_forced() {
    for at in [0, 64 << 10, DEVICE_BYTES - (1 << 20), DEVICE_BYTES - 4096] {
        let mut world = blank(5);
        let runtime = world.runtime();
        world.block_on(async {
            scribble(&runtime, at, &[1; 4096]).await;
            let refused = format(&runtime).await.map(drop).expect_err("somebody's data");
            assert!(refused.kind == Kind::Exists && refused.to_string().contains("--force"), "{refused}");
            assert!(matches!(look(&runtime).await, Ok(Found::Empty)), "nothing was begun");
            let index = format_as(&runtime, None, Some(Foreign::Destroy)).await.expect("forced");
            let brick = Brick::open(&runtime, index).await.expect("just formatted");
            brick.write(file(1), 0, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
        let tail = image.read(DEVICE, DEVICE_BYTES - (1 << 20), 1 << 20).expect("the device");
        assert!(tail.iter().all(|&byte| byte == 0), "nothing tells of what was there");
    }
}

/// A brick at rest on a device.
fn at_rest(seed: u64) -> (DiskImage, ModelIndex) {
    let mut world = blank(seed);
    let runtime = world.runtime();
    let index = world.block_on(async {
        let index = format(&runtime).await.expect("a blank device");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 3), Sync::Data).await.expect("a healthy brick writes");
        index
    });
    (world.crash_as(Survival::Nothing, &mut SplitMix(seed)), index)
}

fn opens(image: &DiskImage, index: &ModelIndex) -> Result<()> {
    let mut world = boot(1, image);
    let runtime = world.runtime();
    world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.map(drop) })
}

#[test]
fn only_the_bricks_own_device_is_opened() {
    let (image, index) = at_rest(6);
    assert_eq!(opens(&image, &index), Ok(()));
    let (other, _) = at_rest(7);
    let swapped = opens(&image.clone().with_file_of(&other, DEVICE), &index).expect_err("another brick's");
    assert!(swapped.kind == Kind::NotFound && swapped.to_string().contains("--device"), "{swapped}");
    let mut rotten = image.clone();
    rotten.flip_bits(DEVICE, 30, &mut SplitMix(1));
    assert_eq!(opens(&rotten, &index), Ok(()), "the label has a second copy");
    rotten.flip_bits(DEVICE, 4096 + 30, &mut SplitMix(1));
    let rotten = opens(&rotten, &index).expect_err("no label is left");
    assert!(rotten.kind == Kind::NotFound && rotten.to_string().contains("--device"), "{rotten}");
}

#[test]
fn a_device_that_can_not_be_read_is_not_taken_for_another() {
    let (image, index) = at_rest(6);
    let mut kinds = Vec::new();
    for nth in 1..20 {
        let mut world = boot(1, &image);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        disk.set_faults(FaultPlan { reads: Fail::From(nth), ..FaultPlan::default() });
        kinds.extend(
            world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.err() }).map(|error| error.kind),
        );
    }
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == Kind::Io), "{kinds:?}");
}

#[test]
fn a_device_that_became_smaller_is_refused() {
    let (image, index) = at_rest(8);
    let mut world = World::with(Setup { image: Some(image), device_bytes: Some(DEVICE_BYTES - 4096), ..Setup::new(1) });
    let runtime = world.runtime();
    let refused = world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.map(drop) });
    assert_eq!(refused.expect_err("segments are missing").kind, Kind::Corrupt);
}

/// The device behaves like one whose medium was taken out.
#[test]
fn a_device_without_any_room_is_not_the_bricks() {
    let (image, index) = at_rest(8);
    let mut world = World::with(Setup { image: Some(image), device_bytes: Some(0), ..Setup::new(1) });
    let runtime = world.runtime();
    let refused = world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.map(drop) });
    let refused = refused.expect_err("nothing is there");
    assert!(refused.kind == Kind::NotFound && refused.to_string().contains("--device"), "{refused}");
}

#[test]
fn a_label_that_tells_of_another_shape_is_refused() {
    let (image, index) = at_rest(8);
    let Superblock { uuid, segment_bytes, segments, .. } = superblock_of(&image);
    let own = Label { uuid, segment_bytes, segments, device: FIRST };
    let larger = Label { segments: segments + 1, ..own };
    let fewer = Label { segments: segments - 1, ..own };
    let longer = Label { segment_bytes: 2 * segment_bytes, ..own };
    let shorter = Label { segment_bytes: segment_bytes / 2, segments: 2 * segments, ..own };
    // A brick that grows writes its label first.
    for (label, fits) in [(own, true), (larger, true), (fewer, false), (longer, false), (shorter, false)] {
        let mut world = boot(1, &image);
        let runtime = world.runtime();
        let opened = world.block_on(async {
            for copy in 0..2 {
                scribble(&runtime, copy * 4096, &label.encode()).await;
            }
            Brick::open(&runtime, index.crashed(0)).await.map(drop)
        });
        let expected = if fits { Ok(()) } else { Err(Kind::Corrupt) };
        assert_eq!(opened.map_err(|error| error.kind), expected, "{label:?}");
    }
}

#[test]
fn another_bricks_device_is_taken_only_by_force() {
    let (image, _) = at_rest(9);
    let mut world = boot(1, &image.without("superblock").without(store::host::BALLAST));
    let runtime = world.runtime();
    world.block_on(async {
        let refused = format(&runtime).await.map(drop).expect_err("a brick's");
        assert!(refused.kind == Kind::Exists && refused.to_string().contains("another brick"), "{refused}");
        format_as(&runtime, None, Some(Foreign::Destroy)).await.expect("forced");
    });
}

#[test]
fn a_format_of_a_device_that_was_cut_off_can_be_repeated() {
    let mut whole = blank(9);
    let runtime = whole.runtime();
    whole.block_on(async { format(&runtime).await }).expect("a blank device");
    for step in 1..=whole.steps() {
        for side in [Side::Before, Side::After] {
            let mut world = blank(9);
            let runtime = world.runtime();
            world.crash_at_step(step, side);
            let ran = world.run(async { format(&runtime).await.map(drop) });
            assert!(!matches!(ran, Ran::Finished(Ok(()))), "step {step}");
            for survival in [Survival::Nothing, Survival::Everything, Survival::Random, Survival::Random] {
                let mut after = boot(step, &world.crash_as(survival, &mut SplitMix(step)));
                let runtime = after.runtime();
                after.block_on(async {
                    let index = match look(&runtime).await.expect("a cut off format is known") {
                        Found::Brick(_) => ModelIndex::new(merge),
                        _ => format(&runtime).await.expect("its own device is no foreign one"),
                    };
                    let brick = Brick::open(&runtime, index).await.expect("now it is a brick");
                    brick.write(file(1), 0, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
                });
            }
        }
    }
}
