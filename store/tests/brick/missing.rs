//! A brick that starts without one of its disks: what can be read is, and all of it is right again once the disk is back.

use crate::devices::{DISK, FIRST, fill, format, place, table_of, world};
use crate::rig::{Brick, GROUP, Map, VOLUME, boot, file, payload};
use base::checksum::crc32c;
use base::{Index, Kind, Life, Place, Result, SegmentId, Sync};
use runtime::disk::device_name;
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Fail, FaultPlan, Setup, Survival, World};
use runtime::{OpenMode, Purpose};
use store::device::Foreign;
use store::format::devices::{DeviceId, State, Tier};
use store::format::record::{Moved, Moves};
use store::grow::device::{add_device, next_device};
use store::grow::removal;
use store::index::model::ModelIndex;
use store::log::Payload;
use store::scrub::{State as Pass, Suspect, start, status, suspect};

/// Blocks that go down to the disk at a time.
pub const RUN: usize = 100;

/// Writes runs to a disk, and has a file map them there.
pub async fn put_on_disk(brick: &Brick, number: u64, runs: u64) {
    for run in 0..runs {
        let bytes = payload(number << 8 | run, RUN);
        let placed = place(brick, &bytes).await.expect("a healthy disk");
        let first = run * RUN as u64;
        let written = loop {
            let came = brick.store.log.segment_came.ticket();
            match brick.append_payload(file(number), first, &bytes, Payload::Placed(&placed), Sync::Data) {
                Err(error) if error.kind == Kind::Busy => brick.store.log.segment_came.after(came).await,
                appended => break appended.expect("a healthy log"),
            }
        };
        brick.store.log.wait(written.batch, Sync::Data, None).await.expect("a healthy log");
    }
}

/// A brick whose file 1 is on flash and whose file 2 is on the disk, after a crash; its index, and what it holds.
fn crashed(seed: u64, disks: &[Tier]) -> (DiskImage, ModelIndex, Map) {
    let mut world = world(seed, &[DISK, DISK]);
    let runtime = world.runtime();
    let (index, expected) = world.block_on(async {
        let index = format(&runtime, disks).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        fill(&brick, 8).await;
        put_on_disk(&brick, 2, 6).await;
        // The last of its segments stays open, the full ones are sealed.
        runtime.clock.sleep(1_000_000_000).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        fill(&brick, 4).await;
        (index, brick.map())
    });
    (world.crash_as(Survival::Everything, &mut SplitMix(seed)), index, expected)
}

async fn read(brick: &Brick, place: Place, crc: u32) -> Result<bool> {
    let buffer = brick.runtime.buffer(4096).expect("within the bound");
    let (buffer, result) = brick.store.read(Purpose::Other, place, buffer).await;
    result.map(|()| crc32c(&buffer) == crc)
}

/// Reads all that the brick holds: what lies on a missing disk is an error of the device, at once, and all else is right.
async fn read_what_can_be(brick: &Brick, is_missing: impl Fn(SegmentId) -> bool) -> [usize; 2] {
    let mut counts = [0; 2];
    for ((ino, block), (place, crc)) in brick.map() {
        match (is_missing(place.segment), read(brick, place, crc).await) {
            (true, Err(error)) if error.kind == Kind::Io && error.to_string().contains("missing") => counts[1] += 1,
            (false, Ok(true)) => counts[0] += 1,
            (_, found) => panic!("block {block} of {ino:?} at {place:?}: {found:?}"),
        }
    }
    counts
}

/// The scrub leaves the missing disk out, and so does the second look at what a client could not read.
async fn nothing_is_called_damaged(brick: &Brick) {
    let suspects = brick.map().into_iter().map(|((ino, offset), (place, crc))| {
        let volume = VOLUME;
        Suspect { volume, ino, offset, place, crc }
    });
    suspect(&brick.store, suspects.filter(|suspect| on_disk(suspect.place.segment)));
    start(&brick.store).expect("it can be scrubbed");
    while status(&brick.store).position.state == Pass::Running {
        brick.runtime.clock.sleep(100_000_000).await;
    }
    let found = status(&brick.store);
    assert_eq!((found.position.state, found.position.bad), (Pass::Done, Vec::new()));
    assert_eq!(found.done_blocks, found.of_blocks);
}

fn on_disk(segment: SegmentId) -> bool {
    (FIRST..FIRST + DISK).contains(&segment.0)
}

/// The lives of the disk's segments, each also if it is sealed, and the number of free ones: what a start without it must keep.
fn rows(brick: &Brick) -> (Vec<(Life, Option<Life>)>, u64) {
    let segments = (FIRST..FIRST + DISK).map(SegmentId);
    let rows = segments.map(|segment| (brick.store.life(segment), brick.store.sealed_life(segment)));
    (rows.collect(), brick.store.devices()[1].free)
}

#[test]
pub fn a_brick_serves_without_a_disk_and_all_is_right_when_the_disk_is_back() {
    let (image, index, expected) = crashed(21, &[Tier::Disk]);
    let two = device_name(2);
    let mut world = boot(23, &image.clone().without(&two));
    let (runtime, index) = (world.runtime(), index.crashed(0));
    let after = world.block_on(async {
        let brick = Brick::open(&runtime, index.clone()).await.expect("it serves without its disk");
        assert_eq!(brick.map(), expected);
        let kept = rows(&brick);
        let sealed = kept.0.iter().filter(|(_, sealed)| sealed.is_some()).count() as u64;
        assert!(sealed > 0 && u64::from(DISK) > kept.1 + sealed, "others are open or closed: {kept:?}");
        let [there, missing] = read_what_can_be(&brick, on_disk).await;
        assert_eq!((there, missing), (8 * 60, 6 * RUN));
        let told = brick.store.devices();
        assert!(told[1].missing && !told[0].missing && told[1].live_blocks == 6 * RUN as u64, "{told:?}");
        assert_eq!(told[1].row.state, State::InUse);
        assert!(brick.store.roomiest_disk().is_none());
        let stream = brick.store.destage().pop().expect("the brick knows its disk");
        let buffer = runtime.buffer(4096).expect("within the bound");
        let placed = stream.place_durably(vec![buffer.share().slice(0..4096)]).await.map(drop);
        assert_eq!(placed.expect_err("nothing goes there").kind, Kind::Busy);
        assert_eq!(brick.store.segments_of(Tier::Disk).segments, 0, "its room is nobody's");
        let refused = removal::begin(&brick.store, DeviceId(2)).await.expect_err("its blocks can't be moved");
        assert!(refused.kind == Kind::Unsupported && refused.to_string().contains("bring it back"), "{refused}");
        nothing_is_called_damaged(&brick).await;
        // What fills its first segment wholly, and a part of the next one.
        for run in 0..3 {
            let bytes = payload(77 + run, RUN);
            brick.write(file(2), run * RUN as u64, &bytes, Sync::Data).await.expect("flash is healthy");
        }
        fill(&brick, 12).await;
        for _ in 0..3 {
            brick.checkpoint().await.expect("flash is healthy");
            runtime.clock.sleep(40_000_000_000).await;
            brick.store.release_held_back();
            brick.store.free_unread();
        }
        let [there, missing] = read_what_can_be(&brick, on_disk).await;
        assert_eq!((there, missing), (12 * 60 + 3 * RUN, 3 * RUN));
        assert_eq!(brick.store.devices()[1].live_blocks, 3 * RUN as u64, "what was written anew has died there");
        assert_eq!(rows(&brick), kept, "no segment of it was freed or taken");
        brick.map()
    });
    let image_without = world.crash_as(Survival::Nothing, &mut SplitMix(23));
    assert_eq!(table_of(&image_without).rows[1].state, State::InUse, "that it was missing is written nowhere");
    let mut world = boot(24, &image_without.with_file_of(&image, &two));
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("all devices are there again");
        assert_eq!(brick.map(), after);
        brick.read_all().await;
        assert!(!brick.store.devices()[1].missing);
        put_on_disk(&brick, 3, 20).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.read_all().await;
    });
}

#[test]
fn without_one_disk_the_others_take_what_goes_down_and_another_one_can_be_added() {
    let (image, index, _) = crashed(31, &[Tier::Disk]);
    // Device 3 is blank: a start without device 2 gets it as a second disk.
    let mut world = boot(32, &image.clone().without(&device_name(2)));
    let (runtime, index) = (world.runtime(), index.crashed(0));
    let expected = world.block_on(async {
        let brick = Brick::open(&runtime, index.clone()).await.expect("it serves without its disk");
        let id = next_device(&brick.store);
        add_device(&brick.store, id, Tier::Disk, Foreign::Keep).await.expect("a blank device");
        put_on_disk(&brick, 3, 4).await;
        let third = |segment: SegmentId| segment.0 >= FIRST + DISK;
        assert!(brick.map().range((file(3), 0)..).all(|(_, (place, _))| third(place.segment)));
        read_what_can_be(&brick, on_disk).await;
        brick.checkpoint().await.expect("flash is healthy");
        brick.map()
    });
    let crashed = world.crash_as(Survival::Nothing, &mut SplitMix(32));
    let mut world = boot(33, &crashed.with_file_of(&image, &device_name(2)));
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("all devices are there");
        assert_eq!((brick.map(), brick.store.devices().len()), (expected, 3));
        brick.read_all().await;
    });
}

/// Moves the first blocks of file 1 to the disk, as the destage does; no checkpoint sees that.
async fn move_down(brick: &Brick, blocks: u64) {
    let map = brick.map();
    let placed = place(brick, &payload(0, blocks as usize)).await.expect("a healthy disk");
    let moved = |block: u64| {
        let (old, crc) = map[&(file(1), block)];
        Moved { ino: file(1), block, crc, index: Index(1), old }
    };
    let moves = Moves { group: GROUP, volume: VOLUME, blocks: (0..blocks).map(moved).collect() };
    let batch = brick.store.log.append_moves(&moves, &placed).expect("a healthy log").batch;
    brick.store.log.wait(batch, Sync::Data, None).await.expect("a healthy log");
}

/// Nobody could count them there: the segment is in a life that no checkpoint knows.
#[test]
pub fn blocks_whose_move_to_a_missing_disk_no_checkpoint_has_seen_are_read_where_they_were() {
    let mut world = world(71, &[DISK]);
    let runtime = world.runtime();
    let (index, expected) = world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let expected = fill(&brick, 8).await;
        move_down(&brick, 40).await;
        (index, expected)
    });
    let image = world.crash_as(Survival::Everything, &mut SplitMix(71));
    let mut world = boot(72, &image.clone().without(&device_name(2)));
    let (runtime, index) = (world.runtime(), index.crashed(0));
    world.block_on(async {
        let brick = Brick::open(&runtime, index.clone()).await.expect("it serves without its disk");
        assert_eq!(brick.map(), expected, "the moves are left out");
        brick.read_all().await;
        brick.checkpoint().await.expect("flash is healthy");
    });
    let crashed = world.crash_as(Survival::Nothing, &mut SplitMix(72));
    let mut world = boot(73, &crashed.with_file_of(&image, &device_name(2)));
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("all devices are there");
        assert_eq!(brick.map(), expected);
        let life = brick.store.life(SegmentId(FIRST));
        assert_eq!(life, Life(1), "its header is read, so that no life begins twice (rule L2)");
        put_on_disk(&brick, 3, 6).await;
        brick.read_all().await;
    });
}

/// A disk that does not come back can be taken out of the brick, once nothing lies on it any more.
#[test]
fn a_missing_disk_on_which_nothing_lies_leaves_at_once_and_for_good() {
    let (image, index, _) = crashed(61, &[Tier::Disk]);
    let mut world = boot(62, &image.without(&device_name(2)));
    let (runtime, index) = (world.runtime(), index.crashed(0));
    let expected = world.block_on(async {
        let brick = Brick::open(&runtime, index.clone()).await.expect("it serves without its disk");
        for run in 0..6 {
            let bytes = payload(77 + run, RUN);
            brick.write(file(2), run * RUN as u64, &bytes, Sync::Data).await.expect("flash is healthy");
        }
        let refused = removal::begin(&brick.store, DeviceId(2)).await.expect_err("no checkpoint has seen that");
        assert_eq!(refused.kind, Kind::Unsupported);
        brick.checkpoint().await.expect("flash is healthy");
        removal::begin(&brick.store, DeviceId(2)).await.expect("nothing lies on it");
        let told = (brick.store.devices().len(), brick.store.missing(), next_device(&brick.store));
        assert_eq!(told, (1, Vec::new(), DeviceId(3)));
        fill(&brick, 8).await;
        brick.map()
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(62));
    assert_eq!(table_of(&image).rows[1].state, State::Gone);
    let mut world = boot(63, &image);
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("it needs the disk no more");
        assert_eq!((brick.map(), brick.store.devices().len()), (expected, 1));
        brick.read_all().await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
    });
}

/// The blocks have no other place, unlike those of a move.
#[test]
fn what_was_written_to_a_disk_since_the_last_checkpoint_is_not_given_up() {
    let mut world = world(41, &[DISK]);
    let runtime = world.runtime();
    let index = world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        put_on_disk(&brick, 2, 1).await;
        index
    });
    let image = world.crash_as(Survival::Everything, &mut SplitMix(41));
    let mut world = boot(42, &image.without(&device_name(2)));
    let runtime = world.runtime();
    let refused = world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.err() });
    let refused = refused.expect("its record is in the log");
    assert!(refused.kind == Kind::NotFound && refused.to_string().contains("bring it back"), "{refused}");
}

#[test]
fn a_disk_without_a_medium_or_that_can_not_be_read_is_missing_and_flash_never_is() {
    let (image, index, expected) = crashed(51, &[Tier::Disk, Tier::Flash]);
    let open = |image: DiskImage, further_bytes: Vec<u64>, unreadable: Option<u32>| {
        let mut world = World::with(Setup { image: Some(image), further_bytes, ..Setup::new(52) });
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        world.block_on(async {
            if let Some(number) = unreadable {
                let only = runtime.disk.open(&device_name(number), OpenMode::Existing).expect("it can be opened");
                disk.set_faults(FaultPlan { reads: Fail::From(1), only: Some(only), ..FaultPlan::default() });
            }
            let brick = Brick::open(&runtime, index.crashed(0)).await?;
            assert_eq!(brick.map(), expected);
            let missing = brick.store.devices().into_iter().filter(|device| device.missing);
            Ok::<_, base::Error>(missing.map(|device| device.row.id.0).collect::<Vec<_>>())
        })
    };
    let without = |number: u32| image.clone().without(&device_name(number));
    assert_eq!(open(image.clone(), Vec::new(), None), Ok(Vec::new()));
    assert_eq!(open(without(2), Vec::new(), None), Ok(vec![2]));
    assert_eq!(open(without(2), vec![0], None), Ok(vec![2]), "no medium");
    assert_eq!(open(image.clone(), Vec::new(), Some(2)), Ok(vec![2]), "its label can't be read");
    for refused in [open(without(3), Vec::new(), None), open(image.clone(), Vec::new(), Some(3))] {
        let refused = refused.expect_err("the log is on flash");
        let told = refused.to_string();
        assert!(matches!(refused.kind, Kind::NotFound | Kind::Io), "{refused}");
        assert!(told.contains("device 3 is flash") && told.contains("bytes of files"), "{refused}");
    }
}
