//! Segments describe themselves: from the summaries alone, the map of blocks can be built again (rule L7).

use crate::rig::{Brick, GROUP, Map, SEGMENT_BLOCKS, SEGMENT_BYTES, VOLUME, boot, file, format, payload, seeds};
use base::checksum::crc32c;
use base::{Index, Place, SegmentId, Sync};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Survival, World};
use std::collections::BTreeMap;
use store::format::summary::{self, SummaryEntry};
use store::format::values::SegmentState;
use store::format::{keys, values};
use store::index::model::ModelIndex;
use store::index::{Index as _, IndexEdit};
use store::log::Payload;

/// A sealed segment's summary as it lies on the disk.
fn read_summary(image: &DiskImage, segment: SegmentId) -> Vec<SummaryEntry> {
    let read = |block: u64, blocks: u64| {
        let at = u64::from(segment.0) * SEGMENT_BYTES + block * 4096;
        image.read("segments-00000", at, blocks as usize * 4096).expect("the file was made")
    };
    let footer = summary::decode_footer(&read(SEGMENT_BLOCKS - 1, 1)).expect("a sealed segment has a summary");
    assert_eq!(footer.segment, segment);
    let blocks = summary::summary_blocks(footer.entries as usize) as u64;
    let bytes = read(SEGMENT_BLOCKS - blocks, blocks - 1);
    let bytes = &bytes[..footer.entries as usize * 40];
    assert_eq!(crc32c(bytes), footer.crc);
    let entries = summary::decode_entries(bytes).expect("whole entries");
    assert!(entries.is_sorted_by(|one, next| one.block < next.block), "each block once, in order");
    entries
}

fn sealed(index: &dyn store::index::Index) -> Vec<SegmentId> {
    let (from, to) = keys::segments();
    let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
    let row = |value: &[u8]| values::decode_segment(value).expect("a segment's row");
    let sealed = rows.iter().filter(|(_, value)| row(value).state == SegmentState::Sealed);
    sealed.map(|(key, _)| keys::segment_id(key)).collect()
}

/// The map that summaries give: of each block the record with the highest index.
fn rebuild(image: &DiskImage, segments: &[SegmentId]) -> Map {
    let mut best: BTreeMap<_, (u64, Place, u32)> = BTreeMap::new();
    for &segment in segments {
        for entry in read_summary(image, segment) {
            let SummaryEntry { block, ino, offset, index, crc, .. } = entry;
            let place = Place { segment, block };
            let known = best.entry((ino, offset)).or_insert((0, place, crc));
            if index.0 > known.0 {
                *known = (index.0, place, crc);
            }
        }
    }
    best.into_iter().map(|(key, (_, place, crc))| (key, (place, crc))).collect()
}

async fn fill(brick: &Brick, rng: &mut SplitMix, count: u64) {
    for number in 0..count {
        let (ino, first) = (file(rng.below(3)), rng.below(300));
        let tag = rng.next() >> 24;
        if rng.one_in(10) {
            let bytes = payload(tag, 32 + rng.below(100) as usize);
            brick.write_bulk(ino, first, &bytes, Sync::Written).await.expect("a healthy brick writes");
        } else {
            let bytes = payload(tag, 1 + rng.below(20) as usize);
            brick.write(ino, first, &bytes, Sync::Ordered).await.expect("a healthy brick writes");
        }
        if number % 40 == 39 {
            brick.checkpoint().await.expect("a healthy brick checkpoints");
        }
    }
}

/// Restarts until no segment with content is open any more, then compares.
fn compare(mut world: World, index: &ModelIndex, seed: u64, expected: &Map) {
    let mut rng = SplitMix(seed);
    for life in 0..3 {
        let runtime = world.runtime();
        let brick = world.block_on(async {
            let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
            assert_eq!(brick.map(), *expected, "seed {seed}, life {life}");
            brick
        });
        // What was open is sealed by the brick's own task.
        world.run_for(1_000_000_000);
        world.block_on(brick.checkpoint()).expect("a healthy brick checkpoints");
        let image = world.crash_as(Survival::Nothing, &mut rng);
        for segment in sealed(index) {
            let row = index.get(&keys::segment(segment)).expect("the model index reads").expect("it is sealed");
            let used = values::decode_segment(&row).expect("a segment's row").used;
            let last = read_summary(&image, segment).last().map_or(0, |entry| u32::from(entry.block));
            assert!(used > last, "{segment} is used up to {used}, with a block at {last}");
        }
        let rebuilt = rebuild(&image, &sealed(index));
        assert_eq!(rebuilt.len(), expected.len(), "seed {seed}, life {life}");
        assert_eq!(rebuilt, *expected, "seed {seed}, life {life}");
        world = boot(rng.next(), &image);
    }
}

#[test]
pub fn maps_can_be_built_again_from_summaries_alone() {
    for seed in seeds(1..5) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let (index, expected) = world.block_on(async {
            let index = format(&runtime, 200).await;
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            fill(&brick, &mut SplitMix(seed), 150).await;
            let last = brick.store.log.last_batch();
            brick.store.log.wait(last, Sync::All, None).await.expect("a healthy brick writes");
            (index, brick.map())
        });
        // Not all is checkpointed, and some segments are open: replay and the index's parts fill them in.
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        compare(boot(seed, &image), &index, seed, &expected);
    }
}

/// A segment may be sealed while a checkpoint is under way that holds parts of its summary; they must not be taken for its next
/// life's.
#[test]
fn parts_of_summaries_that_were_left_over_tell_of_no_later_life() {
    for seed in seeds(1..5) {
        let (mut world, mut index) = (World::new(seed), None);
        let mut rng = SplitMix(seed);
        for life in 0..3 {
            let runtime = world.runtime();
            let (now, expected) = world.block_on(async {
                let now = match index.take() {
                    Some(index) => index,
                    None => format(&runtime, 200).await,
                };
                let brick = Brick::open(&runtime, now.clone()).await.expect("a crash leaves a brick that opens");
                fill(&brick, &mut rng, 150).await;
                let last = brick.store.log.last_batch();
                brick.store.log.wait(last, Sync::All, None).await.expect("a healthy brick writes");
                (now, brick.map())
            });
            let image = world.crash_as(Survival::Nothing, &mut rng);
            world = boot(rng.next(), &image);
            if life == 2 {
                compare(world, &now, seed, &expected);
                break;
            }
            leave_parts(&now);
            index = Some(now);
        }
    }
}

/// Parts of summaries of all segments that are sealed or free, as of a file that nobody has.
fn leave_parts(index: &ModelIndex) {
    let (from, to) = keys::segments();
    let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
    for (key, value) in rows {
        let row = values::decode_segment(&value).expect("a segment's row");
        if matches!(row.state, SegmentState::Sealed | SegmentState::Free) {
            let entry = |block: u16| SummaryEntry {
                block,
                group: GROUP,
                volume: VOLUME,
                ino: file(99),
                offset: u64::from(block),
                index: Index(1),
                crc: 7,
            };
            let entries: Vec<_> = (1..200).map(entry).collect();
            let part = keys::summary(keys::segment_id(&key), 0);
            let put = IndexEdit::Put(part, summary::encode_entries(&entries));
            index.write(vec![put]).expect("the model index writes");
        }
    }
}

/// A payload that was placed and is not ordered yet keeps its full segment open: its summary must tell of it (rule U2).
#[test]
pub fn a_segment_is_not_sealed_before_its_payloads_are_ordered() {
    let mut world = World::new(6);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let index = format(&runtime, 32).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let bytes = payload(1, 64);
        let mut buffer = runtime.buffer(bytes.len()).expect("within the bound");
        buffer.copy_from_slice(&bytes);
        let ticket = brick.store.bulk.place(buffer.share().slice(0..bytes.len())).await.expect("there is room");
        let fill = async |from: u64| {
            for number in from..from + 8 {
                brick.write_bulk(file(2), number * 64, &payload(number, 64), Sync::Data).await.expect("there is room");
            }
            runtime.clock.sleep(1_000_000_000).await;
        };
        fill(2).await;
        let payload = Payload::Placed(ticket.runs());
        let written = brick.append_payload(file(1), 0, &bytes, payload, Sync::Ordered).expect("there is room");
        brick.store.bulk.close(ticket);
        fill(10).await;
        let image = disk.crash_image(Survival::Everything, &mut SplitMix(1));
        let place = written.runs[0].place;
        let told = read_summary(&image, place.segment);
        assert!(told.iter().any(|entry| (entry.ino, entry.block) == (file(1), place.block)), "its summary forgot it");
    });
}

/// Summary parts that a checkpoint wrote of an open segment belong to that life. Without a live block the segment would
/// be free after starts that made no checkpoint, and taken again: then these parts would be taken for its next life's.
#[test]
fn a_dead_segment_of_which_parts_are_left_is_not_taken_before_it_is_sealed() {
    let mut world = World::new(7);
    let runtime = world.runtime();
    let (index, mut expected) = world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write_bulk(file(1), 0, &payload(1, 32), Sync::Data).await.expect("a healthy brick writes");
        for half in [0, 16] {
            brick.write(file(1), half, &payload(2 + half, 16), Sync::Data).await.expect("a healthy brick writes");
        }
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        (index, brick.map())
    });
    for life in 1..4 {
        world = boot(life, &world.crash_as(Survival::Nothing, &mut SplitMix(life)));
        let runtime = world.runtime();
        expected = world.block_on(async {
            let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
            assert_eq!(brick.map(), expected);
            for number in 0..8 {
                let bytes = payload(life << 8 | number, 30);
                brick.write(file(life), number * 30, &bytes, Sync::Data).await.expect("a healthy brick writes");
                brick.write_bulk(file(7), number * 30, &bytes, Sync::Data).await.expect("a healthy brick writes");
            }
            brick.map()
        });
    }
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(7));
    compare(boot(8, &image), &index, 7, &expected);
}
