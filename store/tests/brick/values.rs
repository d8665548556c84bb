//! Wrong values under right checksums: bytes that no build wrote, or a build with a bug. Whatever is changed, a start either
//! refuses, and then the check says so too, or finds all that was there; nothing panics or takes time without bound.

use crate::rig::{Brick, Map, SEGMENT_BYTES, boot, file, format, payload};
use base::checksum::crc32c;
use base::{Kind, Sync};
use runtime::disk::{self, DEVICE};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Survival, World};
use runtime::{OpenMode, Runtime};
use std::sync::Arc;
use store::format::batch::BatchHeader;
use store::format::keys;
use store::format::segment::{SegmentHeader, Stream};
use store::format::summary::{self, SummaryEntry};
use store::format::superblock::{EpochEnd, State, Superblock};
use store::format::values;
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit};
use store::{Opening, check, scrub};

const DATA: &str = "segments-00000";
const SEGMENTS: u64 = 16;

/// A brick that was killed: a checkpoint, a bulk segment, and a log after it in more than one segment. `checkpointed`: the
/// index knows of some of it.
fn killed(checkpointed: bool) -> (DiskImage, ModelIndex, Map) {
    let mut world = World::new(5);
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = format(&runtime, SEGMENTS).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write_bulk(file(1), 0, &payload(1, 40), Sync::Data).await.expect("a healthy brick writes");
        brick.write(file(1), 50, &payload(2, 3), Sync::Data).await.expect("a healthy brick writes");
        if checkpointed {
            brick.checkpoint().await.expect("a healthy brick checkpoints");
        }
        for number in 0..12 {
            let bytes = payload(10 + number, 25);
            brick.write(file(2), number * 30, &bytes, Sync::Data).await.expect("a healthy brick writes");
        }
        // The last batch says that all others are durable.
        runtime.clock.sleep(2_000_000_000).await;
        (brick, index)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(5));
    let index = index.crashed(0);
    let map = brick.map();
    (image, index, map)
}

async fn put(runtime: &Runtime, name: &str, at: u64, bytes: &[u8]) {
    let file = runtime.disk.open(name, OpenMode::Existing).expect("it is there");
    let mut buffer = runtime.buffer(bytes.len()).expect("within the bound");
    buffer.copy_from_slice(bytes);
    let slices = vec![buffer.share().slice(0..bytes.len())];
    disk::write(&*runtime.disk, file, at, slices, true).await.1.expect("it can be written");
}

/// The image with other bytes in places.
fn with(image: &DiskImage, name: &str, changes: &[(u64, Vec<u8>)]) -> DiskImage {
    let mut world = boot(1, image);
    let runtime = world.runtime();
    world.block_on(async {
        for (at, bytes) in changes {
            put(&runtime, name, *at, bytes).await;
        }
    });
    world.crash_as(Survival::Everything, &mut SplitMix(1))
}

/// The fault of a brick that the offline check reports.
fn found(image: &DiskImage, index: &ModelIndex) -> Option<String> {
    let mut world = boot(3, image);
    let runtime = world.runtime();
    world.block_on(async {
        let opening = match Opening::read(runtime, Arc::new(index.crashed(0)), false).await {
            Ok(opening) => opening,
            Err(error) => return Some(error.to_string()),
        };
        match check::check(&opening, &mut |_| ()).await {
            Ok(report) => report.findings.first().cloned(),
            Err(error) => Some(error.to_string()),
        }
    })
}

/// True if a start refuses it. One that does not has everything, or the check knows why not; and it can go on.
fn refuses(image: &DiskImage, index: &ModelIndex, map: &Map, what: &str) -> bool {
    let found = found(image, index);
    let mut world = boot(4, image);
    let runtime = world.runtime();
    let index = index.crashed(0);
    world.block_on(async {
        match Brick::open(&runtime, index).await {
            Ok(brick) => {
                assert!(found.is_some() || brick.map() == *map, "{what}: something is missing and nobody says so");
                if found.is_none() {
                    brick.read_all().await;
                    brick.write(file(9), 0, &payload(99, 2), Sync::Data).await.expect("a healthy brick writes");
                    brick.checkpoint().await.expect("a healthy brick checkpoints");
                }
                false
            }
            Err(error) => {
                assert!(found.is_some(), "{what}: start says {error}, check finds nothing");
                assert!(error.kind != Kind::Host, "{what}: {error}");
                true
            }
        }
    })
}

fn superblocks(image: &DiskImage) -> Superblock {
    let bytes = image.read("superblock", 0, 4096).expect("the brick has one");
    Superblock::decode(&bytes).expect("it is whole")
}

/// Bytes of a superblock as it never was: the encoder keeps no bounds but that of its list.
fn sealed(superblock: &Superblock) -> Vec<u8> {
    superblock.encode()
}

type Change<T> = (&'static str, bool, fn(&mut T));

const SUPERBLOCK: [Change<Superblock>; 22] = [
    ("groups 0", true, |it| it.groups = 0),
    ("groups 4097", true, |it| it.groups = 4097),
    ("groups max", true, |it| it.groups = u32::MAX),
    ("segments 0", true, |it| it.segments = 0),
    ("segments 1", true, |it| it.segments = 1),
    ("segments 2", true, |it| it.segments = 2),
    ("segments 100 million", true, |it| it.segments = 100_000_000),
    ("segments max", true, |it| it.segments = u32::MAX),
    ("segments a few more", false, |it| it.segments = 20),
    ("segments a million", false, |it| it.segments = 1_000_000),
    ("uuid", true, |it| it.uuid.0[3] ^= 1),
    ("smaller segments need more files", false, |it| it.segment_bytes *= 2),
    ("sequence max", true, |it| it.sequence = u64::MAX),
    ("epoch max", true, |it| it.epoch = u64::MAX),
    ("epoch 0", true, |it| it.epoch = 0),
    ("epoch of the life before", true, |it| it.epoch -= 1),
    ("epoch far ahead", false, |it| it.epoch += 1_000_000),
    ("end of the present epoch", true, |it| it.ends.push(EpochEnd { epoch: it.epoch, batch: 2 })),
    ("end at a batch that never was", true, |it| it.ends.push(EpochEnd { epoch: 0, batch: 1 << 40 })),
    ("end max", true, |it| it.ends.push(EpochEnd { epoch: 0, batch: u64::MAX })),
    ("formatting", true, |it| it.state = State::Formatting),
    ("on a device", true, |it| it.features.incompatible |= 1),
];

#[test]
fn wrong_values_in_the_superblock_are_refused_or_do_no_harm() {
    for checkpointed in [false, true] {
        let (image, index, map) = killed(checkpointed);
        assert!(!refuses(&image, &index, &map, "nothing"));
        for (what, refused, change) in SUPERBLOCK {
            let mut superblock = superblocks(&image);
            change(&mut superblock);
            let bytes = sealed(&superblock);
            let both = with(&image, "superblock", &[(0, bytes.clone()), (4096, bytes.clone())]);
            let refuses_both = refuses(&both, &index, &map, what);
            assert!(refuses_both || !refused, "{what}, checkpointed {checkpointed}");
            for copy in [0, 4096] {
                refuses(&with(&image, "superblock", &[(copy, bytes.clone())]), &index, &map, what);
            }
        }
    }
}

const HEADER: [Change<SegmentHeader>; 10] = [
    ("uuid", true, |it| it.uuid.0[0] ^= 1),
    ("life max", true, |it| it.life.0 = u32::MAX),
    ("next life", false, |it| it.life.0 += 1),
    ("life before", false, |it| it.life.0 -= 1),
    ("sequence max", true, |it| it.sequence = u64::MAX),
    ("next sequence", false, |it| it.sequence += 1),
    ("far sequence", false, |it| it.sequence += 1000),
    ("epoch max", true, |it| it.epoch = u64::MAX),
    ("epoch ahead", true, |it| it.epoch += 7),
    ("stream", false, |it| it.stream = if it.stream == Stream::Commit { Stream::Cold } else { Stream::Commit }),
];

#[test]
fn wrong_values_in_segment_headers_are_refused_or_do_no_harm() {
    for checkpointed in [false, true] {
        let (image, index, map) = killed(checkpointed);
        let mut seen = 0;
        for segment in 0..SEGMENTS {
            let at = segment * SEGMENT_BYTES;
            let bytes = image.read(DATA, at, 4096).expect("the file was made");
            let Ok(header) = SegmentHeader::decode(&bytes) else { continue };
            seen += 1;
            for (what, refused, change) in HEADER {
                let mut header = header;
                change(&mut header);
                let image = with(&image, DATA, &[(at, header.encode())]);
                let what = format!("segment {segment}, {what}, checkpointed {checkpointed}");
                assert!(refuses(&image, &index, &map, &what) || !refused, "{what}");
            }
        }
        assert!(seen >= 3, "{seen}");
    }
}

/// A change of a batch's header: what and how.
type HeaderChange = (&'static str, fn(&mut BatchHeader));

const BATCH: [HeaderChange; 12] = [
    ("epoch", |it| it.epoch += 1),
    ("number", |it| it.number += 1),
    ("number max", |it| it.number = u64::MAX),
    ("durable max", |it| it.durable_through = u64::MAX),
    ("life", |it| it.life.0 += 1),
    ("sequence", |it| it.sequence += 1),
    ("previous", |it| it.previous_crc ^= 1),
    ("payload max", |it| it.payload_blocks = u32::MAX),
    ("payload and header past 32 bits", |it| it.payload_blocks = u32::MAX - 3),
    ("one payload block more", |it| it.payload_blocks += 1),
    ("records max", |it| it.records = u16::MAX),
    ("no records", |it| it.records = 0),
];

#[test]
fn wrong_values_in_batch_headers_are_refused_or_do_no_harm() {
    for checkpointed in [false, true] {
        let (image, index, map) = killed(checkpointed);
        let blocks = image.length(DATA).expect("the file was made") / 4096;
        let mut seen = 0;
        for block in 0..blocks {
            let bytes = image.read(DATA, block * 4096, 4096).expect("the file was made");
            let Ok(header) = BatchHeader::peek(&bytes) else { continue };
            assert!(header.header_blocks == 1, "small records");
            seen += 1;
            // The first, some between, and the last ones.
            if seen > 2 && seen % 4 != 0 && seen < 11 {
                continue;
            }
            for (what, change) in BATCH {
                let (mut header, mut bytes) = (header, bytes.clone());
                change(&mut header);
                header.seal(&mut bytes);
                let image = with(&image, DATA, &[(block * 4096, bytes)]);
                refuses(&image, &index, &map, &format!("block {block}, {what}, checkpointed {checkpointed}"));
            }
        }
        assert!(seen >= 10, "{seen}");
    }
}

/// An index with another row.
fn with_row(index: &ModelIndex, key: Vec<u8>, value: Vec<u8>) -> ModelIndex {
    let index = index.crashed(0);
    index.write(vec![IndexEdit::Put(key, value)]).expect("the model index writes");
    index.persist().expect("the model index persists");
    index
}

#[test]
fn wrong_values_in_rows_that_a_start_reads_are_refused_or_do_no_harm() {
    let (image, index, map) = killed(true);
    let rows = |range: keys::Bounds| index.scan(&range.0, &range.1, usize::MAX).expect("the model index reads");
    let segments = rows(keys::segments());
    assert!(segments.len() >= 2);
    let (_, value) = &segments[0];
    let beyond = with_row(&index, keys::segment(base::SegmentId(77)), value.clone());
    assert!(refuses(&image, &beyond, &map, "a row of segment 77"));
    for (key, value) in &segments {
        let row = values::decode_segment(value).expect("a good row");
        let others = [
            values::SegmentRow { life: base::Life(u32::MAX), ..row.clone() },
            values::SegmentRow { sequence: u64::MAX, ..row.clone() },
            values::SegmentRow { opened: u64::MAX, ..row.clone() },
            values::SegmentRow { used: 257, ..row.clone() },
            values::SegmentRow { live: vec![1; 5], ..row.clone() },
        ];
        for other in others {
            let index = with_row(&index, key.clone(), values::encode_segment(&other));
            assert!(refuses(&image, &index, &map, &format!("{other:?}")));
        }
    }
    let row = index.get(&keys::replay()).expect("the model index reads").expect("there was a checkpoint");
    let row = values::decode_replay(&row).expect("a good row");
    let others = [
        values::ReplayRow { number: u64::MAX, ..row },
        values::ReplayRow { number: row.number + 1000, ..row },
        values::ReplayRow { number: row.number - 1, ..row },
        values::ReplayRow { epoch: u64::MAX, ..row },
        values::ReplayRow { sequence: u64::MAX, ..row },
        values::ReplayRow { block: u16::MAX, ..row },
        values::ReplayRow { segment: base::SegmentId(u32::MAX), ..row },
        values::ReplayRow { next_sequence: [u64::MAX; 3], ..row },
    ];
    for other in others {
        let index = with_row(&index, keys::replay(), values::encode_replay(&other));
        assert!(refuses(&image, &index, &map, &format!("{other:?}")), "{other:?}");
    }
}

/// A device's label counts and sizes too.
#[test]
fn wrong_values_in_a_label_are_refused_or_do_no_harm() {
    use runtime::sim::Setup;
    use store::device::Foreign;
    use store::format::label::Label;
    let device_bytes = Some((1 << 20) + 40 * SEGMENT_BYTES);
    let mut world = World::with(Setup { device_bytes, ..Setup::new(1) });
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = crate::rig::format_as(&runtime, None, Some(Foreign::Keep)).await.expect("a blank device");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 9), Sync::Data).await.expect("a healthy brick writes");
        runtime.clock.sleep(2_000_000_000).await;
        (brick, index)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    let (index, map) = (index.crashed(0), brick.map());
    let label = Label::decode(&image.read(DEVICE, 0, 4096).expect("it is there")).expect("a label");
    let changes: [(bool, Label); 5] = [
        (true, Label { segments: 0, ..label }),
        (true, Label { segments: label.segments - 1, ..label }),
        (false, Label { segments: u32::MAX, ..label }),
        (true, Label { segment_bytes: u64::MAX, ..label }),
        (true, Label { segment_bytes: 0, ..label }),
    ];
    for (refused, other) in changes {
        let bytes = other.encode();
        let image = with(&image, DEVICE, &[(0, bytes.clone()), (4096, bytes)]);
        assert_eq!(refuses(&image, &index, &map, &format!("{other:?}")), refused, "{other:?}");
    }
    // The same of the superblock that belongs to it.
    for change in [|it: &mut Superblock| it.features.incompatible &= !1, |it: &mut Superblock| it.uuid.0[0] ^= 1] {
        let mut superblock = superblocks(&image);
        change(&mut superblock);
        let bytes = sealed(&superblock);
        let image = with(&image, "superblock", &[(0, bytes.clone()), (4096, bytes)]);
        assert!(refuses(&image, &index, &map, "a superblock of another home"));
    }
}

/// A change of a sealed segment's summary: what and how.
type SummaryChange = (&'static str, fn(&mut SummaryEntry));

const SUMMARY: [SummaryChange; 6] = [
    ("block max", |it| it.block = u16::MAX),
    ("group max", |it| it.group.0 = u32::MAX),
    ("volume max", |it| it.volume.0 = u32::MAX),
    ("inode max", |it| it.ino.0 = u64::MAX),
    ("offset max", |it| it.offset = u64::MAX),
    ("checksum", |it| it.crc ^= 1),
];

/// Numbers of entries that no segment has.
const ENTRIES: [u32; 4] = [0, 1, 1 << 20, u32::MAX];

/// Segments that are sealed, with live blocks, as of a checkpoint.
fn sealed_segments() -> (DiskImage, ModelIndex, Map) {
    let mut world = World::new(6);
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = format(&runtime, SEGMENTS).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for number in 0..16 {
            brick.write_bulk(file(1), number * 40, &payload(number, 40), Sync::Data).await.expect("it writes");
        }
        runtime.clock.sleep(2_000_000_000).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        (brick, index)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(6));
    let map = brick.map();
    (image, index.crashed(0), map)
}

/// Opens it, has the scrub read all of it, and goes on.
fn scrubbed(image: &DiskImage, index: &ModelIndex, map: &Map) {
    let mut world = boot(7, image);
    let runtime = world.runtime();
    let index = index.crashed(0);
    world.block_on(async {
        let brick = Brick::open(&runtime, index).await.expect("no start needs a summary");
        assert!(brick.map() == *map);
        scrub::start(&brick.store).expect("it is open");
        runtime.clock.sleep(5_000_000_000).await;
        assert_eq!(scrub::status(&brick.store).position.state, scrub::State::Done);
        brick.write(file(9), 0, &payload(99, 2), Sync::Data).await.expect("a healthy brick writes");
    });
}

#[test]
fn wrong_values_in_summaries_are_found_and_do_no_harm() {
    let (image, index, map) = sealed_segments();
    let mut seen = 0;
    for segment in 0..SEGMENTS {
        let end = (segment + 1) * SEGMENT_BYTES;
        let last = image.read(DATA, end - 4096, 4096).expect("the file was made");
        let Ok(footer) = summary::decode_footer(&last) else { continue };
        seen += 1;
        let count = footer.entries as usize;
        let length = summary::summary_blocks(count) * 4096;
        let bytes = image.read(DATA, end - length as u64, length).expect("the file was made");
        let entries = summary::decode_entries(&bytes[..count * summary::ENTRY_BYTES]).expect("they are whole");
        let mut images = Vec::new();
        for (what, change) in SUMMARY {
            let mut entries = entries.clone();
            change(entries.last_mut().expect("something was written"));
            let bytes = summary::encode(footer.uuid, footer.segment, footer.life, &entries);
            images.push((what.to_string(), with(&image, DATA, &[(end - bytes.len() as u64, bytes)])));
        }
        for number in ENTRIES {
            let mut last = last.clone();
            last[32..36].copy_from_slice(&number.to_le_bytes());
            let crc = crc32c(&last[..40]);
            last[40..44].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(summary::decode_footer(&last).map(|footer| footer.entries), Ok(number));
            images.push((format!("{number} entries"), with(&image, DATA, &[(end - 4096, last)])));
        }
        for (what, image) in images {
            assert!(found(&image, &index).is_some(), "segment {segment}, {what}: nobody says so");
            scrubbed(&image, &index, &map);
        }
    }
    assert!(seen >= 2, "{seen}");
}
