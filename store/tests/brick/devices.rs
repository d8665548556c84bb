//! Bricks of several devices: formatted so, or given another device while they are served. A crash leaves the brick with
//! the device or without it; a device that is another one is refused by name.

use crate::rig::{Brick, Map, SEGMENT_BYTES, boot, file, payload, superblock_of};
use base::{Kind, Place, Result, Sync};
use runtime::disk::device_name;
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Fail, FaultPlan, Ran, Setup, Side, Survival, World};
use runtime::{Purpose, Runtime};
use store::FormatOptions;
use store::device::Foreign;
use store::format::devices::{DeviceId, DeviceTable, State, Tier};
use store::format::record::Run;
use store::grow::device::{add_device, next_device};
use store::grow::removal;
use store::index::model::ModelIndex;
use store::media::device_table;

pub const FIRST: u32 = 24;
pub const DISK: u32 = 40;

fn bytes_of(segments: u32) -> u64 {
    (1 << 20) + u64::from(segments) * SEGMENT_BYTES
}

pub fn world(seed: u64, further: &[u32]) -> World {
    let further_bytes = further.iter().map(|&segments| bytes_of(segments)).collect();
    World::with(Setup { further_bytes, ..Setup::new(seed) })
}

pub async fn format(runtime: &Runtime, further: &[Tier]) -> Result<ModelIndex> {
    let options = FormatOptions {
        size_bytes: Some(u64::from(FIRST) * SEGMENT_BYTES),
        segment_bytes: SEGMENT_BYTES,
        groups: 1,
        size_bytes_min: 0,
        device: None,
        further: further.iter().map(|&tier| (tier, Foreign::Keep)).collect(),
    };
    store::format_brick(runtime, options, async || Ok(())).await?;
    Ok(ModelIndex::new(store::format::leaf::merge))
}

pub fn table_of(image: &DiskImage) -> DeviceTable {
    let sequence = superblock_of(image).devices;
    let bytes = store::format::devices::TABLE_BYTES as u64;
    let copy = |number: u64| image.read(device_table::FILE, number * bytes, bytes as usize);
    let mut copies = (0..2).filter_map(copy).filter_map(|bytes| DeviceTable::decode(&bytes).ok());
    copies.find(|table| table.sequence == sequence).expect("the superblock names a copy")
}

pub async fn fill(brick: &Brick, rounds: u64) -> Map {
    let mut expected = brick.map();
    for number in 0..rounds {
        let written = brick.write(file(1), number * 60, &payload(number, 60), Sync::Data).await;
        written.expect("a healthy brick writes").lay_over(&mut expected);
    }
    expected
}

/// Copies what a file has to a disk, as the cleaner would; each block's place there.
async fn destage(brick: &Brick, bytes: &[u8]) -> Result<Vec<Place>> {
    let runs = place(brick, bytes).await?;
    let places = |run: &Run| {
        let (place, count) = (run.place, u32::from(run.count));
        (0..count).map(move |number| place.advance(number))
    };
    Ok(runs.iter().flat_map(places).collect())
}

/// Writes bytes to the last of the brick's disks that takes any; their runs.
pub async fn place(brick: &Brick, bytes: &[u8]) -> Result<Vec<Run>> {
    let all = brick.store.destage();
    let stream = all.iter().rev().find(|stream| stream.takes_more()).or(all.last()).expect("the brick has a disk");
    loop {
        let mut buffer = brick.runtime.buffer(bytes.len()).expect("within the bound");
        buffer.copy_from_slice(bytes);
        let came = brick.store.log.segment_came.ticket();
        match stream.place_durably(vec![buffer.share().slice(0..bytes.len())]).await {
            Err(error) if error.kind == Kind::Busy => brick.store.log.segment_came.after(came).await,
            Err(error) => return Err(error),
            Ok(tickets) => {
                let runs = tickets.iter().flat_map(|ticket| ticket.runs().to_vec()).collect();
                tickets.into_iter().for_each(|ticket| stream.close(ticket));
                return Ok(runs);
            }
        }
    }
}

#[test]
fn a_brick_is_formatted_with_disks_and_writes_to_them() {
    let mut world = world(1, &[DISK, 30]);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, &[Tier::Disk, Tier::Flash]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let devices = brick.store.devices();
        let told: Vec<_> = devices.iter().map(|device| (device.row.id.0, device.row.tier, device.row.first)).collect();
        assert_eq!(told, [(1, Tier::Flash, 0), (2, Tier::Disk, FIRST), (3, Tier::Flash, FIRST + DISK)]);
        assert_eq!(brick.store.segments_of(Tier::Disk).segments, u64::from(DISK));
        assert_eq!(brick.store.segments_of(Tier::Flash).segments, u64::from(FIRST + 30));
        fill(&brick, 100).await;
        let bytes = payload(7, 200);
        let places = destage(&brick, &bytes).await.expect("a healthy disk");
        let disk = FIRST..FIRST + DISK;
        assert!(places.iter().all(|place| disk.contains(&place.segment.0)), "{places:?}");
        for (place, block) in places.iter().zip(bytes.chunks(4096)) {
            let buffer = runtime.buffer(4096).expect("within the bound");
            let (buffer, result) = brick.store.read(Purpose::Other, *place, buffer).await;
            result.expect("a healthy disk");
            assert_eq!(&buffer[..], block);
        }
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let used: Vec<_> = brick.map().values().map(|(place, _)| place.segment.0).collect();
        assert!(used.iter().all(|segment| !disk.contains(segment)), "the log is on flash only");
        assert!(used.iter().any(|&segment| segment >= FIRST + DISK), "both flash devices are used");
        let expected = brick.map();
        brick.stop().await;
        let brick = Brick::open(&runtime, index).await.expect("a healthy brick opens");
        assert_eq!(brick.map(), expected);
        brick.read_all().await;
    });
}

/// A world in which a brick was written to and then changed; with its index, what it holds, and the steps before the change.
type Changed = (World, ModelIndex, Map, u64);

/// `further`: the tiers of the devices that it has from the start, beside the first.
fn changed(
    (seed, further): (u64, &[Tier]),
    crash: Option<(u64, Side)>,
    change: impl AsyncFnOnce(&Brick) -> Result<()>,
) -> Changed {
    let mut world = world(seed, &[DISK]);
    let runtime = world.runtime();
    let (index, brick, expected) = world.block_on(async {
        let index = format(&runtime, further).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let expected = fill(&brick, 8).await;
        (index, brick, expected)
    });
    // What was made ready, and what the log does when it falls idle.
    world.run_for(2_000_000_000);
    let before = world.steps();
    if let Some((step, side)) = crash {
        world.crash_at_step(before + step, side);
    }
    if let Ran::Finished(result) = world.run(change(&brick)) {
        result.expect("a healthy brick can be changed");
    }
    (world, index, expected, before)
}

/// Crashes before and after each step of a change. `seen` looks at each image; `then` goes on with the brick that is opened from
/// it, which holds what it held.
fn each_crash<T>(
    change: impl Fn(Option<(u64, Side)>) -> Changed,
    (least, why): (u64, &str),
    mut seen: impl FnMut(&DiskImage) -> T,
    then: impl AsyncFn(&Brick, T),
) {
    let (whole, _, _, before) = change(None);
    let steps = whole.steps() - before;
    assert!(steps >= least, "{why}: {steps}");
    for step in 1..=steps {
        for side in [Side::Before, Side::After] {
            let (world, index, expected, _) = change(Some((step, side)));
            for survival in [Survival::Nothing, Survival::Random, Survival::Everything] {
                let image = world.crash_as(survival, &mut SplitMix(step));
                let what = seen(&image);
                let mut after = boot(step, &image);
                let runtime = after.runtime();
                after.block_on(async {
                    let opened = Brick::open(&runtime, index.crashed(0)).await;
                    let brick = opened.unwrap_or_else(|error| panic!("{step} {side:?} {survival:?}: {error}"));
                    assert_eq!(brick.map(), expected, "{step} {side:?} {survival:?}");
                    then(&brick, what).await;
                });
            }
        }
    }
}

#[test]
pub fn a_crash_leaves_the_brick_with_the_device_or_without() {
    let mut counts = [0; 2];
    let add = |crash| {
        changed((2, &[]), crash, async |brick| {
            let id = next_device(&brick.store);
            add_device(&brick.store, id, Tier::Disk, Foreign::Keep).await.map(drop)
        })
    };
    let seen = |image: &DiskImage| {
        let superblock = superblock_of(image);
        let added = superblock.has_several_devices();
        assert_eq!(superblock.segments, if added { FIRST + DISK } else { FIRST });
        counts[usize::from(added)] += 1;
        added
    };
    each_crash(add, (8, "label, table and superblock, each twice and flushed"), seen, async |brick, added| {
        if !added {
            let id = next_device(&brick.store);
            assert_eq!(id, DeviceId(2), "no device has had it");
            let again = add_device(&brick.store, id, Tier::Disk, Foreign::Keep).await;
            again.expect("it can be repeated: the device bears the label of an interrupted addition");
        }
        destage(brick, &payload(9, 30)).await.expect("a healthy disk");
        brick.read_all().await;
    });
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn a_crash_leaves_a_removal_before_its_begin_its_end_or_after_it() {
    let mut parts = std::collections::BTreeSet::new();
    let remove = |crash| {
        changed((12, &[Tier::Disk]), crash, async |brick| {
            removal::begin(&brick.store, DeviceId(2)).await?;
            removal::end(&brick.store, DeviceId(2)).await
        })
    };
    let seen = |image: &DiskImage| {
        let part = table_of(image).rows[1].state;
        parts.insert(part.name());
        part
    };
    let why = "table and superblock twice, each flushed, and the label";
    each_crash(remove, (16, why), seen, async |brick, part| {
        if part == State::InUse {
            destage(brick, &payload(9, 30)).await.expect("a disk like before");
            return;
        }
        let stream = brick.store.destage().pop().expect("the brick knows its disk");
        assert!(!stream.takes_more() && brick.store.roomiest_disk().is_none());
        if part == State::Leaving {
            removal::end(&brick.store, DeviceId(2)).await.expect("it goes on where it was");
        }
        assert_eq!(brick.store.devices().len(), 1);
        assert_eq!(next_device(&brick.store), DeviceId(3), "its number is never given again");
        let again = removal::begin(&brick.store, DeviceId(2)).await;
        assert_eq!(again.expect_err("it has left").kind, Kind::NotFound);
    });
    assert_eq!(parts.into_iter().collect::<Vec<_>>(), ["gone", "in use", "leaving"]);
}

#[test]
pub fn a_disk_leaves_only_when_nothing_lies_on_it_and_the_others_have_room() {
    let mut world = world(13, &[DISK]);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let refused = async |id| removal::begin(&brick.store, DeviceId(id)).await.expect_err("it can't leave").kind;
        assert_eq!((refused(1).await, refused(9).await), (Kind::Unsupported, Kind::NotFound));
        destage(&brick, &payload(1, 30)).await.expect("a healthy disk");
        removal::begin(&brick.store, DeviceId(2)).await.expect("the flash has room");
        removal::begin(&brick.store, DeviceId(2)).await.expect("it leaves already");
        let refused = removal::end(&brick.store, DeviceId(2)).await.expect_err("a segment is in use");
        assert_eq!(refused.kind, Kind::Busy);
        let stream = brick.store.destage().pop().expect("the brick has a disk");
        let mut buffer = runtime.buffer(4096).expect("within the bound");
        buffer.fill(1);
        let refused = stream.place_durably(vec![buffer.share().slice(0..4096)]).await.map(drop);
        assert_eq!(refused.expect_err("it gets nothing more").kind, Kind::Busy);
    });
}

#[test]
fn devices_that_are_too_small_foreign_or_too_many_are_refused_and_nothing_is_written() {
    let mut world = world(3, &[8, DISK, DISK]);
    let runtime = world.runtime();
    world.block_on(async {
        let refused = format(&runtime, &[Tier::Disk]).await.err().expect("8 segments");
        assert!(refused.kind == Kind::NoSpace && refused.to_string().contains("larger one"), "{refused}");
        assert!(runtime.disk.list().expect("it lists").is_empty(), "nothing was begun");
    });
}

/// The brick is as before, and the next attempt gets the same number.
#[test]
fn an_addition_that_fails_on_its_device_changes_nothing_and_can_be_repeated() {
    let mut world = world(10, &[DISK]);
    let runtime = world.runtime();
    let disk = world.disk().clone();
    world.block_on(async {
        let index = format(&runtime, &[]).await.expect("an empty directory");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let only = runtime.disk.open(&device_name(2), runtime::OpenMode::Existing).expect("it is there");
        disk.set_faults(FaultPlan { writes: Fail::From(1), only: Some(only), ..FaultPlan::default() });
        let add = async || add_device(&brick.store, next_device(&brick.store), Tier::Disk, Foreign::Keep).await;
        assert_eq!(add().await.map(drop).map_err(|error| error.kind), Err(Kind::Io));
        assert_eq!((brick.store.log.failed(), brick.store.devices().len()), (None, 1));
        fill(&brick, 8).await;
        disk.set_faults(FaultPlan::default());
        assert_eq!(add().await.expect("its device is healthy again").id, DeviceId(2));
        destage(&brick, &payload(9, 30)).await.expect("a healthy disk");
        brick.read_all().await;
    });
}

/// Two disks of a brick whose links were exchanged, and a disk of another brick.
#[test]
fn swapped_devices_and_those_of_other_bricks_are_refused_by_name() {
    let mut world = world(4, &[DISK, DISK]);
    let runtime = world.runtime();
    let index = world.block_on(async {
        let index = format(&runtime, &[Tier::Disk, Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        fill(&brick, 8).await;
        index
    });
    let image = world.crash_as(Survival::Everything, &mut SplitMix(4));
    let refusal = |image: DiskImage, further_bytes: Vec<u64>| {
        let mut world = World::with(Setup { image: Some(image), further_bytes, ..Setup::new(5) });
        let runtime = world.runtime();
        world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.err().expect("it is refused") })
    };
    let (two, three) = (device_name(2), device_name(3));
    let refused = refusal(image.clone().with_swapped(&two, &three), Vec::new());
    assert!(refused.kind == Kind::NotFound && refused.to_string().contains("swapped"), "{refused}");
    let refused = refusal(image.without(&two), vec![bytes_of(DISK)]);
    assert!(refused.kind == Kind::NotFound && refused.to_string().contains("no label"), "{refused}");
}

#[test]
fn either_copy_of_the_device_table_may_rot_and_both_may_not() {
    let mut world = world(6, &[DISK]);
    let runtime = world.runtime();
    let (index, expected) = world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let expected = fill(&brick, 8).await;
        (index, expected)
    });
    let image = world.crash_as(Survival::Everything, &mut SplitMix(6));
    assert_eq!(table_of(&image).rows.len(), 2);
    let bytes = store::format::devices::TABLE_BYTES;
    let open = |bad: &[u64]| {
        let mut image = image.clone();
        for copy in bad {
            let at = copy * bytes as u64 + 50;
            image.flip_bits(device_table::FILE, at, &mut SplitMix(*copy));
        }
        let mut world = boot(7, &image);
        let runtime = world.runtime();
        let opened = world.block_on(async { Brick::open(&runtime, index.crashed(0)).await.map(|brick| brick.map()) });
        // A start makes both copies the same again, so that the other one may rot later.
        let healed = world.crash_as(Survival::Nothing, &mut SplitMix(7));
        let copies = [0, 1].map(|copy| healed.read(device_table::FILE, copy * bytes as u64, bytes));
        assert!(opened.is_err() || copies[0].is_some() && copies[0] == copies[1], "{bad:?}");
        opened
    };
    for bad in [&[][..], &[0], &[1]] {
        assert_eq!(open(bad), Ok(expected.clone()), "{bad:?}");
    }
    let refused = open(&[0, 1]).expect_err("nobody knows what lies where");
    assert!(refused.kind == Kind::Corrupt && refused.to_string().contains("`devices`"), "{refused}");
}

/// A crash takes what a disk has not flushed: nobody may believe it before.
#[test]
pub fn what_goes_to_a_disk_is_there_after_a_crash_once_it_counts() {
    for seed in 1..6 {
        let mut world = world(seed, &[DISK]);
        let runtime = world.runtime();
        let bytes = payload(seed, 100);
        let places = world.block_on(async {
            let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
            let brick = Brick::open(&runtime, index).await.expect("just formatted");
            destage(&brick, &bytes).await.expect("a healthy disk")
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        for (place, block) in places.iter().zip(bytes.chunks(4096)) {
            let segment = u64::from(place.segment.0 - FIRST);
            let at = (1 << 20) + segment * SEGMENT_BYTES + u64::from(place.block) * 4096;
            assert_eq!(image.read(&device_name(2), at, 4096).as_deref(), Some(block), "seed {seed} {place:?}");
        }
    }
}

/// A disk may take minutes to answer: the log gets its segments all the same.
#[test]
fn a_disk_that_does_not_answer_holds_up_only_what_goes_to_it() {
    let mut world = world(9, &[DISK]);
    let runtime = world.runtime();
    let disk = world.disk().clone();
    world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        destage(&brick, &payload(1, 30)).await.expect("a healthy disk");
        let only = runtime.disk.open(&device_name(2), runtime::OpenMode::Existing).expect("it is open");
        let stall_ns = 600_000_000_000;
        disk.set_faults(FaultPlan { stalls: Fail::From(1), stall_ns, only: Some(only), ..FaultPlan::default() });
        // More than the segments that it has: others must be made ready on it.
        let stream = brick.store.destage().pop().expect("the brick has a disk");
        for number in 0..6 {
            let (stream, log, bytes) = (stream.clone(), brick.store.log.clone(), payload(number, 200));
            let mut buffer = runtime.buffer(bytes.len()).expect("within the bound");
            buffer.copy_from_slice(&bytes);
            let run = buffer.share().slice(0..bytes.len());
            let place = async move {
                loop {
                    let came = log.segment_came.ticket();
                    match stream.place_durably(vec![run.clone()]).await {
                        Err(error) if error.kind == Kind::Busy => log.segment_came.after(came).await,
                        _ => return,
                    }
                }
            };
            runtime.tasks.spawn(0, Box::new(move || Box::pin(place)));
        }
        runtime.clock.sleep(1_000_000_000).await;
        let begun_ns = runtime.clock.now_ns();
        fill(&brick, 50).await;
        let took_ns = runtime.clock.now_ns() - begun_ns;
        assert!(took_ns < 10_000_000_000, "the log waited {took_ns} ns");
    });
}

/// A disk that fails takes nothing more; the log and what is on flash go on.
#[test]
fn a_disk_that_can_not_write_is_left_alone_and_the_log_goes_on() {
    let mut world = world(8, &[DISK]);
    let runtime = world.runtime();
    let disk = world.disk().clone();
    world.block_on(async {
        let index = format(&runtime, &[Tier::Disk]).await.expect("blank devices");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        fill(&brick, 4).await;
        destage(&brick, &payload(1, 30)).await.expect("a healthy disk");
        let only = runtime.disk.open(&device_name(2), runtime::OpenMode::Existing).expect("it is open");
        disk.set_faults(FaultPlan { writes: Fail::From(1), only: Some(only), ..FaultPlan::default() });
        destage(&brick, &payload(2, 30)).await.expect_err("its disk fails");
        assert!(brick.store.devices()[1].failed.is_some(), "status names it");
        let expected = fill(&brick, 8).await;
        assert_eq!(brick.store.log.failed(), None);
        brick.checkpoint().await.expect("flash is healthy");
        assert_eq!(brick.map(), expected);
        brick.read_all().await;
        destage(&brick, &payload(3, 30)).await.expect_err("it gets nothing more");
    });
}
