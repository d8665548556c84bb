//! Bricks grow while they are served, and a crash leaves the old size or the new one (rule X5).

use crate::rig::{Brick, Map, SEGMENT_BYTES, boot, file, format_as, payload, superblock_of};
use base::{Kind, Place, Result, SegmentId, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Ran, Setup, Side, Survival, World};
use runtime::{Disk, FileId, OpenMode, Request, Transfer};
use std::sync::{Arc, Mutex};
use store::device::Foreign;
use store::geometry::Geometry;
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

/// A disk that lets something happen while the next file is being made longer.
struct Between {
    disk: Arc<dyn Disk>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Disk for Between {
    fn open(&self, name: &str, mode: OpenMode) -> Result<FileId> {
        self.disk.open(name, mode)
    }
    fn mark_disk(&self, file: FileId) {
        self.disk.mark_disk(file);
    }
    fn close(&self, file: FileId) {
        self.disk.close(file);
    }
    fn list(&self) -> Result<Vec<String>> {
        self.disk.list()
    }
    fn length(&self, file: FileId) -> Result<u64> {
        self.disk.length(file)
    }
    fn allocate(&self, file: FileId, bytes: u64) -> Result<()> {
        let then = self.then.lock().expect("no panic while held").take();
        then.into_iter().for_each(|happen| happen());
        self.disk.allocate(file, bytes)
    }
    fn release(&self, file: FileId) -> Result<()> {
        self.disk.release(file)
    }
    fn sync_names(&self) -> Result<()> {
        self.disk.sync_names()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.disk.free_bytes()
    }
    fn discard(&self, file: FileId, offset: u64, bytes: u64) -> Result<()> {
        self.disk.discard(file, offset, bytes)
    }
    fn submit_for(&self, purpose: runtime::Purpose, request: Request) -> Transfer {
        self.disk.submit_for(purpose, request)
    }
}

/// A start takes a file for unmade that is too short for its segments: what was written there would be lost.
#[test]
fn a_file_that_is_made_while_the_brick_grows_is_as_long_as_the_grown_brick_needs() {
    let world = World::new(4);
    let disk = Arc::new(Between { disk: world.runtime().disk, then: Mutex::default() });
    let geometry = Geometry::open(disk.clone(), SEGMENT_BYTES, BEFORE as u32, true).expect("a healthy disk");
    let geometry = Arc::new(geometry);
    let growing = geometry.clone();
    let grow = move || assert_eq!(growing.extend(AFTER as u32), Ok(None), "it is not made yet");
    *disk.then.lock().expect("no panic while held") = Some(Box::new(grow));
    geometry.make(SegmentId(1), 0).expect("there is room");
    let place = Place { segment: SegmentId(1), block: 1 };
    let spot = geometry.spot(place).expect("its file is made");
    let after = Geometry::open(disk, SEGMENT_BYTES, AFTER as u32, true).expect("a healthy disk");
    assert_eq!(after.spot(place), Some(spot));
}
