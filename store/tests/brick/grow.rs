//! Bricks grow while they are served, and a crash leaves the old size or the new one (rule X5).

use crate::rig::{Brick, Map, SEGMENT_BYTES, boot, file, format_as, payload, superblock_of};
use base::{Kind, Result, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Ran, Setup, Side, Survival, World};
use store::device::Foreign;
use store::grow::grow;
use store::index::model::ModelIndex;

/// Segments before and after; the second file of 1 GiB comes into being, and the first becomes longer.
const BEFORE: u64 = 20;
const AFTER: u64 = 1030;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Home {
    Directory,
    Device,
}

/// A world that has not crashed, in which a brick was written to, and grown, with its index.
struct Grown {
    world: World,
    index: ModelIndex,
    expected: Map,
    /// Steps of the disk before it grew.
    before: u64,
    result: Option<Result<()>>,
}

fn life(home: Home, crash: Option<(u64, Side)>) -> Grown {
    let device_bytes = (home == Home::Device).then_some((AFTER + 1) * SEGMENT_BYTES);
    let mut world = World::with(Setup { device_bytes, ..Setup::new(1) });
    let runtime = world.runtime();
    let foreign = (home == Home::Device).then_some(Foreign::Keep);
    let (index, brick, expected) = world.block_on(async {
        let index = format_as(&runtime, Some(BEFORE * SEGMENT_BYTES), foreign).await.expect("it can be formatted");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let mut expected = Map::new();
        for number in 0..8 {
            let written = brick.write(file(1), number * 60, &payload(number, 60), Sync::Data).await;
            written.expect("a healthy brick writes").lay_over(&mut expected);
        }
        (index, brick, expected)
    });
    // What was made ready, and what the log does when it falls idle.
    world.run_for(2_000_000_000);
    let before = world.steps();
    if let Some((step, side)) = crash {
        world.crash_at_step(before + step, side);
    }
    let ran = world.run(async { grow(&brick.store, Some(AFTER * SEGMENT_BYTES)).await.map(drop) });
    let result = match ran {
        Ran::Finished(result) => Some(result),
        Ran::Crashed => None,
    };
    Grown { world, index, expected, before, result }
}

#[test]
pub fn a_crash_leaves_the_old_size_or_the_new_one() {
    for home in [Home::Directory, Home::Device] {
        let whole = life(home, None);
        assert_eq!(whole.result, Some(Ok(())));
        let steps = whole.world.steps() - whole.before;
        assert!(steps >= 4, "two copies of the superblock, each written and flushed");
        let mut sizes = [0; 2];
        for step in 1..=steps {
            for side in [Side::Before, Side::After] {
                let Grown { world, index, expected, .. } = life(home, Some((step, side)));
                for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
                    let image = world.crash_as(survival, &mut SplitMix(step));
                    let segments = u64::from(superblock_of(&image).segments);
                    assert!([BEFORE, AFTER].contains(&segments), "{home:?} {step} {side:?}: {segments}");
                    sizes[usize::from(segments == AFTER)] += 1;
                    let mut after = boot(step, &image);
                    let runtime = after.runtime();
                    after.block_on(async {
                        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a crash leaves a brick");
                        assert_eq!(brick.map(), expected, "{home:?} {step} {side:?} {survival:?}");
                        brick.read_all().await;
                        assert_eq!(brick.store.segments().segments, segments);
                        let again = grow(&brick.store, Some(AFTER * SEGMENT_BYTES)).await;
                        assert_eq!(again.expect("it can be repeated").bytes, AFTER * SEGMENT_BYTES);
                    });
                }
            }
        }
        assert!(sizes.iter().all(|&count| count > 0), "{sizes:?}");
    }
}

#[test]
fn a_full_brick_that_grows_takes_writes_again_and_keeps_them() {
    for home in [Home::Directory, Home::Device] {
        let device_bytes = (home == Home::Device).then_some((BEFORE + 21) * SEGMENT_BYTES);
        let mut world = World::with(Setup { device_bytes, ..Setup::new(2) });
        let runtime = world.runtime();
        world.block_on(async {
            let foreign = (home == Home::Device).then_some(Foreign::Keep);
            let index = format_as(&runtime, Some(BEFORE * SEGMENT_BYTES), foreign).await.expect("it can be formatted");
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            let mut next = 0;
            let refused = loop {
                match brick.write(file(1), next * 60, &payload(next, 60), Sync::Data).await {
                    Ok(_) => next += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(refused.kind, Kind::NoSpace);
            let size = brick.store.space.statfs().size_bytes;
            let bytes = (BEFORE + 20) * SEGMENT_BYTES;
            assert_eq!(grow(&brick.store, Some(bytes)).await.expect("there is room").bytes, bytes);
            assert!(brick.store.space.statfs().size_bytes > size);
            for number in next..next + 40 {
                brick.write(file(1), number * 60, &payload(number, 60), Sync::Data).await.expect("it has grown");
            }
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            let expected = brick.map();
            brick.stop().await;
            let brick = Brick::open(&runtime, index).await.expect("a healthy brick opens");
            assert_eq!((brick.map(), brick.store.segments().segments), (expected, BEFORE + 20));
            brick.read_all().await;
        });
    }
}

#[test]
fn a_brick_neither_shrinks_nor_grows_beyond_its_room() {
    for home in [Home::Directory, Home::Device] {
        let device_bytes = (home == Home::Device).then_some((BEFORE + 11) * SEGMENT_BYTES);
        let mut world = World::with(Setup { device_bytes, capacity_bytes: 4 << 30, ..Setup::new(3) });
        let runtime = world.runtime();
        world.block_on(async {
            let foreign = (home == Home::Device).then_some(Foreign::Keep);
            let index = format_as(&runtime, Some(BEFORE * SEGMENT_BYTES), foreign).await.expect("it can be formatted");
            let brick = Brick::open(&runtime, index).await.expect("just formatted");
            let to = async |bytes| grow(&brick.store, Some(bytes)).await.map_err(|error| error.kind);
            assert_eq!(to((BEFORE - 1) * SEGMENT_BYTES).await, Err(Kind::Invalid));
            assert_eq!(to(5 << 30).await, Err(Kind::NoSpace));
            let grown = grow(&brick.store, None).await.expect("by default to what there is");
            let segments = grown.bytes / SEGMENT_BYTES;
            match home {
                Home::Device => assert_eq!(segments, BEFORE + 10),
                Home::Directory => assert!((3200..3300).contains(&segments), "{segments} of 4096"),
            }
            assert_eq!(to(grown.bytes).await.map(|same| same.bytes), Ok(grown.bytes), "nothing to do");
            brick.write(file(1), 0, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
        });
    }
}
