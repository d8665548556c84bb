//! Damage: what opens, what is refused, and that a refusal changes nothing (rules L5, X4).

use crate::batches::{DATA, batches};
use crate::rig::{Brick, SEGMENT_BYTES, boot, file, format, payload, try_format};
use base::{Kind, Sync};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Fail, FaultPlan, Survival, World};
use std::sync::Arc;
use store::Opening;
use store::brick::{Found, look};
use store::format::batch::BatchHeader;
use store::format::superblock::{Features, REVISION_2, Superblock};
use store::index::model::ModelIndex;
use store::repair::{Depth, Repaired, repair};

/// A brick after durable writes, then a rest, then writes that were durable but of which no batch tells.
fn brick_at_rest(seed: u64, tail: u64) -> (DiskImage, ModelIndex) {
    let mut world = World::new(seed);
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for number in 0..8 {
            brick.write(file(1), number * 4, &payload(number, 3), Sync::Data).await.expect("a healthy brick writes");
        }
        runtime.clock.sleep(2_000_000_000).await;
        for number in 0..tail {
            let bytes = payload(100 + number, 3);
            brick.append(file(2), number * 4, &bytes, Sync::Written).await.expect("a healthy brick writes");
        }
        let last = brick.store.log.last_batch();
        brick.store.log.wait(last, Sync::Data, None).await.expect("a healthy brick writes");
        (brick, index)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
    drop(brick);
    (image, index)
}

/// True if the check says that a start refuses the brick.
fn check_says_refused(image: &DiskImage, index: &ModelIndex) -> bool {
    let mut world = boot(7, image);
    let runtime = world.runtime();
    world.block_on(async {
        let Ok(opening) = Opening::read(runtime, Arc::new(index.crashed(0)), false).await else { return true };
        let report = store::check::check(&opening, &mut |_| ()).await.expect("a healthy device");
        assert!(!report.log_lost || !report.findings.is_empty(), "it says why");
        report.log_lost
    })
}

/// A brick after a round of the repair, with how much that mended and lost.
fn repaired(image: &DiskImage, index: &ModelIndex) -> (DiskImage, ModelIndex, Repaired) {
    let mut world = boot(8, image);
    let runtime = world.runtime();
    let index = index.crashed(0);
    let done = world.block_on(async {
        let opening = Opening::read(runtime, Arc::new(index.clone()), true).await.expect("it can be read");
        repair(&opening, Depth::Maps, &mut |_| ()).await.expect("a healthy device")
    });
    (world.crash_as(Survival::Nothing, &mut SplitMix(8)), index, done)
}

/// A repair brings back what a brick had before its header was damaged.
fn a_header_is_written_anew(image: &DiskImage, bad: &DiskImage, index: &ModelIndex) {
    assert_eq!(opened(bad, index), Err(Kind::Corrupt));
    let (mended, index, done) = repaired(bad, index);
    assert!(done.lost.is_empty() && done.mended.iter().any(|what| what.contains("header")), "{done:?}");
    assert_eq!(opened(&mended, &index), opened(image, &index));
    let mut world = boot(9, &mended);
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index).await.expect("nothing is damaged any more");
        brick.read_all().await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.write_bulk(file(3), 0, &payload(3, 40), Sync::Data).await.expect("a healthy brick writes");
        brick.read_all().await;
    });
}

/// The result of opening a brick: its records, or the error. If it does not open, its files are the same afterwards,
/// and the check gives the same error.
fn opened(image: &DiskImage, index: &ModelIndex) -> Result<Vec<u64>, Kind> {
    let mut world = boot(7, image);
    let before = world.crash_as(Survival::Everything, &mut SplitMix(1)).checksum();
    let runtime = world.runtime();
    let opened = world.block_on(async { Brick::open(&runtime, index.crashed(0)).await });
    match opened {
        Ok(brick) => {
            assert!(!check_says_refused(image, index), "a start refuses what the check says it does");
            Ok(brick.fresh.lock().expect("no panic while held").iter().map(|one| one.index).collect())
        }
        Err(error) => {
            // Who does not know a feature may still read.
            let told = error.kind == Kind::Newer || check_says_refused(image, index);
            assert!(told, "the check finds what a start refuses: {error}");
            let after = world.crash_as(Survival::Everything, &mut SplitMix(1)).checksum();
            assert_eq!(before, after, "a refused brick was changed: {error}");
            Err(error.kind)
        }
    }
}

#[test]
pub fn damage_of_what_was_durable_is_refused_and_changes_nothing() {
    let (image, index) = brick_at_rest(1, 0);
    assert_eq!(opened(&image, &index), Ok((1..9).collect()));
    let all = batches(&image);
    let last = all.last().expect("there are batches").1;
    assert!(last.records == 0 && last.durable_through == last.number - 1);
    let mut rng = SplitMix(5);
    for (at, header) in &all[..all.len() - 1] {
        // Fields, records, the zeros behind them.
        for within in [0, 60, 93, 96 + u64::from(header.records_bytes) / 2, 4000] {
            let mut bad = image.clone();
            bad.flip_bits(DATA, at + within, &mut rng);
            assert_eq!(opened(&bad, &index), Err(Kind::Corrupt), "batch {}, byte {within}", header.number);
        }
    }
    // The last one, which only says so of the others, is a torn tail.
    let mut bad = image.clone();
    bad.flip_bits(DATA, all.last().expect("there are batches").0 + 48, &mut rng);
    assert_eq!(opened(&bad, &index), Ok((1..9).collect()));
}

/// A brick that rests after durable writes of so many blocks each, or when it is full.
fn brick_filled_by(sizes: impl Iterator<Item = usize>) -> (DiskImage, ModelIndex) {
    let mut world = World::new(13);
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for (number, blocks) in (0..).zip(sizes) {
            if brick.write(file(1), number * 256, &payload(number, blocks), Sync::Data).await.is_err() {
                break;
            }
        }
        runtime.clock.sleep(2_000_000_000).await;
        (brick, index)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    drop(brick);
    (image, index)
}

/// The mark has room or not, depending on how full the segment is.
#[test]
pub fn at_rest_the_last_batch_is_no_torn_tail_however_full_its_segment_is() {
    let mut bricks = Vec::new();
    // Some 60 writes of 3 blocks fill a segment.
    for (writes, last) in (56..64).flat_map(|writes| (1..5).map(move |last| (writes, last))) {
        bricks.push(brick_filled_by(std::iter::repeat_n(3, writes).chain([last, 1])));
    }
    // One write fills a segment: beside its payload there are only headers and the summary.
    bricks.push(brick_filled_by([1, 250].into_iter()));
    // No segment is left for the mark.
    bricks.push(brick_filled_by(std::iter::repeat(1)));
    for (number, (image, index)) in bricks.iter().enumerate() {
        assert!(opened(image, index).is_ok());
        let (at, _) = *batches(image).iter().rfind(|(_, header)| header.records > 0).expect("there are batches");
        let mut bad = image.clone();
        bad.flip_bits(DATA, at + 60, &mut SplitMix(number as u64));
        assert_eq!(opened(&bad, index), Err(Kind::Corrupt), "brick {number}");
    }
}

#[test]
pub fn damage_above_the_last_durable_mark_is_a_torn_tail() {
    let (image, index) = brick_at_rest(2, 6);
    let all = batches(&image);
    let durable = all.iter().map(|(_, header)| header.durable_through).max().expect("there are batches");
    let mut rng = SplitMix(6);
    let whole = opened(&image, &index).expect("it is whole");
    assert_eq!(whole, (1..15).collect::<Vec<_>>());
    let tail: Vec<_> = all.iter().filter(|(_, header)| header.number > durable && header.records > 0).collect();
    assert!(!tail.is_empty());
    for (at, header) in tail {
        let payload = u64::from(header.header_blocks) * 4096;
        let end = payload + u64::from(header.payload_blocks) * 4096;
        for within in [20, 92, payload, payload + 5000, end - 1] {
            let mut bad = image.clone();
            bad.flip_bits(DATA, at + within, &mut rng);
            let kept = opened(&bad, &index).expect("a torn tail is what a crash may leave");
            assert!(whole.starts_with(&kept) && kept.len() < whole.len(), "byte {within}: {kept:?}");
            assert!(kept.len() >= 8, "the durable ones are there");
        }
    }
}

#[test]
fn damaged_payload_below_the_durable_mark_is_found_when_it_is_read() {
    let (mut image, index) = brick_at_rest(3, 0);
    let (at, header) = batches(&image)[2];
    image.flip_bits(DATA, at + u64::from(header.header_blocks) * 4096 + 100, &mut SplitMix(1));
    let mut world = boot(1, &image);
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("replay reads no payload that was durable");
        let mut bad = Vec::new();
        for (key, (place, crc)) in brick.map() {
            let (buffer, result) =
                brick.store.read(runtime::Purpose::Other, place, runtime.buffer(4096).expect("within the bound")).await;
            result.expect("a healthy device reads");
            if store::verify(&buffer, [crc].into_iter()) == Err(0) {
                bad.push(key);
            }
        }
        assert_eq!(bad.len(), 1, "one block is damaged, and only that one");
    });
}

/// The image with a batch that has neither records nor payload some blocks behind the last one.
fn with_batch(image: &DiskImage, change: impl Fn(&mut BatchHeader)) -> DiskImage {
    let (at, last) = *batches(image).last().expect("there are batches");
    let end = at + u64::from(u32::from(last.header_blocks) + last.payload_blocks) * 4096;
    let number = last.number + 3;
    let mut header = BatchHeader {
        number,
        durable_through: number - 1,
        header_blocks: 1,
        payload_blocks: 0,
        records: 0,
        records_bytes: 0,
        ..last
    };
    change(&mut header);
    let mut world = boot(1, image);
    let runtime = world.runtime();
    world.block_on(async {
        let file = runtime.disk.open(DATA, runtime::OpenMode::Existing).expect("the file was made");
        let mut buffer = runtime.buffer(4096).expect("within the bound");
        header.seal(&mut buffer);
        let slices = vec![buffer.share().slice(0..4096)];
        let written = runtime::disk::write(&*runtime.disk, file, end + 2 * 4096, slices, true).await;
        written.1.expect("it can be written");
    });
    world.crash_as(Survival::Everything, &mut SplitMix(1))
}

/// The old content of a segment, from before this life or this brick, may look like a log.
#[test]
fn batches_that_are_not_of_this_log_tell_nothing_of_it() {
    let (image, index) = brick_at_rest(7, 0);
    let whole = opened(&image, &index);
    assert!(whole.is_ok());
    assert_eq!(opened(&with_batch(&image, |_| ()), &index), Err(Kind::Corrupt), "batches before it are missing");
    let others: [fn(&mut BatchHeader); 5] = [
        |header| header.uuid.0[0] ^= 1,
        |header| header.segment.0 += 1,
        |header| header.life.0 -= 1,
        |header| header.sequence -= 1,
        // It would not fit into the segment.
        |header| header.payload_blocks = 256,
    ];
    for (number, other) in others.iter().enumerate() {
        assert_eq!(opened(&with_batch(&image, other), &index), whole, "{number}");
    }
}

/// The image with other superblock copies.
fn with_copies(image: &DiskImage, copies: [&[u8]; 2]) -> DiskImage {
    let mut world = boot(1, image);
    let runtime = world.runtime();
    world.block_on(async {
        let file = runtime.disk.open("superblock", runtime::OpenMode::Existing).expect("the brick has one");
        for (number, copy) in (0..).zip(copies) {
            let mut buffer = runtime.buffer(4096).expect("within the bound");
            buffer.copy_from_slice(copy);
            let slices = vec![buffer.share().slice(0..4096)];
            runtime::disk::write(&*runtime.disk, file, number * 4096, slices, true).await.1.expect("it can be written");
        }
    });
    world.crash_as(Survival::Everything, &mut SplitMix(1))
}

fn copies(image: &DiskImage) -> [Superblock; 2] {
    [0, 4096].map(|at| {
        let bytes = image.read("superblock", at, 4096).expect("the brick has one");
        Superblock::decode(&bytes).expect("both copies are whole")
    })
}

#[test]
fn one_copy_of_the_superblock_is_enough() {
    let (image, index) = brick_at_rest(4, 0);
    let [one, other] = copies(&image);
    assert_eq!(one, other, "an older copy would not know the last epoch");
    for copy in [0, 1] {
        let mut bad = image.clone();
        bad.flip_bits("superblock", copy * 4096 + 70, &mut SplitMix(copy));
        let mut world = boot(1, &bad);
        let runtime = world.runtime();
        let warnings = world.block_on(async {
            let opening = Opening::read(runtime.clone(), std::sync::Arc::new(index.crashed(0)), true).await;
            opening.expect("one copy is whole").warnings
        });
        assert_eq!(warnings.len(), 1, "the operator is told");
        assert!(warnings[0].contains("superblock"));
        // Written in that state, and opened again.
        let mut world = boot(2, &bad);
        let runtime = world.runtime();
        world.block_on(async {
            let brick = Brick::open(&runtime, index.crashed(0)).await.expect("one copy is whole");
            brick.write(file(2), 0, &payload(50, 1), Sync::Data).await.expect("a healthy brick writes");
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(copy));
        copies(&image);
        assert_eq!(opened(&image, &index), Ok((1..10).collect()));
    }
    let mut bad = image.clone();
    [0, 1].into_iter().for_each(|copy| bad.flip_bits("superblock", copy * 4096 + 70, &mut SplitMix(copy)));
    assert_eq!(opened(&bad, &index), Err(Kind::Corrupt));
}

#[test]
pub fn a_newer_brick_is_refused_by_name() {
    let (image, index) = brick_at_rest(5, 0);
    let [one, other] = copies(&image);
    let newer = |features: Features, superblock: &Superblock| Superblock { features, ..superblock.clone() }.encode();
    let incompatible = Features { incompatible: 1 << 63, ..Features::default() };
    let read_only = Features { read_only: 1, ..Features::default() };
    let compatible = Features { compatible: 1, ..Features::default() };
    let both = |features| with_copies(&image, [&newer(features, &one), &newer(features, &other)]);
    assert_eq!(opened(&both(compatible), &index), Ok((1..9).collect()));
    assert_eq!(opened(&both(incompatible), &index), Err(Kind::Newer));
    assert_eq!(opened(&both(read_only), &index), Err(Kind::Newer), "who does not know it must not write");
    let mut world = boot(1, &both(read_only));
    let runtime = world.runtime();
    let read = world.block_on(Opening::read(runtime, std::sync::Arc::new(index.crashed(0)), false));
    assert!(read.is_ok(), "but may read");
    // An upgrade was cut off: one copy is newer.
    for half in [[newer(incompatible, &one), other.encode()], [one.encode(), newer(incompatible, &other)]] {
        assert_eq!(opened(&with_copies(&image, [&half[0], &half[1]]), &index), Err(Kind::Newer));
    }
    let mut version = other.encode();
    version[8] = 2;
    let crc = base::checksum::crc32c(&version[..4092]);
    version[4092..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(opened(&with_copies(&image, [&one.encode(), &version]), &index), Err(Kind::Newer));
}

#[test]
fn a_brick_of_the_first_revision_opens_and_is_of_the_second_from_then_on() {
    let (image, index) = brick_at_rest(5, 0);
    let revision = |superblock: &Superblock| superblock.features.incompatible & REVISION_2;
    let first = copies(&image).map(|mut superblock| {
        assert_eq!(revision(&superblock), REVISION_2, "a new brick is of the second");
        superblock.features.incompatible &= !REVISION_2;
        superblock.encode()
    });
    let image = with_copies(&image, [&first[0], &first[1]]);
    assert_eq!(opened(&image, &index), Ok((1..9).collect()));
    let mut world = boot(1, &image);
    let runtime = world.runtime();
    let brick = world.block_on(Brick::open(&runtime, index.crashed(0)));
    assert!(brick.is_ok());
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    assert_eq!(copies(&image).map(|superblock| revision(&superblock)), [REVISION_2; 2]);
}

#[test]
fn a_format_that_was_cut_off_is_known_and_can_be_repeated() {
    use runtime::sim::{Ran, Side};
    let mut whole = World::new(9);
    let runtime = whole.runtime();
    whole.block_on(async { format(&runtime, 16).await });
    let steps = whole.steps();
    for step in 1..=steps {
        for side in [Side::Before, Side::After] {
            let mut world = World::new(9);
            let runtime = world.runtime();
            world.crash_at_step(step, side);
            let ran = world.run(async { try_format(&runtime, 16).await.map(drop) });
            assert!(!matches!(ran, Ran::Finished(Ok(()))), "step {step}");
            for survival in [Survival::Nothing, Survival::Everything, Survival::Random] {
                let image = world.crash_as(survival, &mut SplitMix(step));
                let mut after = boot(step, &image);
                let runtime = after.runtime();
                after.block_on(async {
                    let found = look(&runtime).await.expect("a cut off format is known");
                    let index = match found {
                        Found::Brick(_) => ModelIndex::new(store::format::leaf::merge),
                        Found::Empty | Found::HalfFormatted => {
                            let opened = Brick::open(&runtime, ModelIndex::new(store::format::leaf::merge)).await;
                            let refused = opened.err().expect("a cut off format is no brick").kind;
                            assert!([Kind::NotFound, Kind::Invalid, Kind::Io, Kind::Corrupt].contains(&refused));
                            format(&runtime, 16).await
                        }
                    };
                    let brick = Brick::open(&runtime, index).await.expect("now it is a brick");
                    brick.write(file(1), 0, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
                });
            }
        }
    }
}

#[test]
fn a_rotten_header_of_a_segment_is_no_silent_loss_and_can_be_written_anew() {
    let (image, index) = brick_at_rest(6, 0);
    let (at, _) = batches(&image)[0];
    let mut bad = image.clone();
    bad.flip_bits(DATA, at / SEGMENT_BYTES * SEGMENT_BYTES + 30, &mut SplitMix(1));
    a_header_is_written_anew(&image, &bad, &index);
}

#[test]
fn a_rotten_header_of_a_segment_that_a_checkpoint_knows_is_refused() {
    let mut world = World::new(8);
    let runtime = world.runtime();
    let index = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(0, 1), Sync::Data).await.expect("a healthy brick writes");
        // The segments that were made ready ahead have headers too.
        runtime.clock.sleep(100_000_000).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.write(file(1), 1, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
        index
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    assert_eq!(opened(&image, &index), Ok(vec![2]));
    for segment in [0, 1] {
        let mut bad = image.clone();
        bad.flip_bits(DATA, segment * SEGMENT_BYTES + 30, &mut SplitMix(1));
        assert_eq!(opened(&bad, &index), Err(Kind::Corrupt), "segment {segment}");
    }
}

#[test]
pub fn a_rotten_header_of_a_bulk_segment_does_not_make_it_free_and_can_be_written_anew() {
    for checkpointed in [false, true] {
        let mut world = World::new(9);
        let runtime = world.runtime();
        let (index, segment) = world.block_on(async {
            let index = format(&runtime, 16).await;
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            brick.write(file(1), 0, &payload(0, 1), Sync::Data).await.expect("a healthy brick writes");
            let one = brick.write_bulk(file(1), 1, &payload(1, 40), Sync::Data).await.expect("a healthy brick writes");
            if checkpointed {
                brick.checkpoint().await.expect("a healthy brick checkpoints");
                // Nothing of the segment lives in the index, but a record above it names it.
                brick.write_bulk(file(1), 1, &payload(2, 40), Sync::Data).await.expect("a healthy brick writes");
            }
            (index, one.runs[0].place.segment)
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
        assert!(opened(&image, &index).is_ok());
        let mut bad = image.clone();
        bad.flip_bits(DATA, u64::from(segment.0) * SEGMENT_BYTES + 20, &mut SplitMix(1));
        a_header_is_written_anew(&image, &bad, &index);
    }
}

/// Nothing is lost with it, and no write of an earlier process is awaited: it can be taken at once.
#[test]
fn a_dead_segment_whose_header_is_gone_is_free() {
    let mut world = World::new(13);
    let runtime = world.runtime();
    let (index, (segment, life)) = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let one = brick.write_bulk(file(1), 0, &payload(1, 40), Sync::Data).await.expect("a healthy brick writes");
        brick.write(file(1), 0, &payload(2, 40), Sync::Data).await.expect("a healthy brick writes");
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let segment = one.runs[0].place.segment;
        (index, (segment, brick.store.life(segment)))
    });
    let mut bad = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    bad.flip_bits(DATA, u64::from(segment.0) * SEGMENT_BYTES + 20, &mut SplitMix(1));
    let mut after = boot(14, &bad);
    let runtime = after.runtime();
    after.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("nothing is lost");
        for number in 0..20 {
            let bytes = payload(number, 40);
            brick.write_bulk(file(1), 0, &bytes, Sync::Data).await.expect("a healthy brick writes");
        }
        assert!(brick.store.life(segment) > life, "segment {segment} was taken again");
    });
}

#[test]
fn a_superblock_that_cannot_be_read_is_no_damage() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let disk = world.disk().clone();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        disk.set_faults(FaultPlan { reads: Fail::From(1), ..FaultPlan::default() });
        let refused = Opening::read(runtime.clone(), Arc::new(index.clone()), true).await.map(drop);
        assert_eq!(refused.map_err(|error| error.kind), Err(Kind::Io));
        disk.set_faults(FaultPlan::default());
        Brick::open(&runtime, index).await.expect("the device works again");
    });
}

/// A brick whose third batch is whole, with a record that maps more blocks than its payload has.
fn brick_with_a_greedy_record() -> (DiskImage, ModelIndex) {
    let mut world = World::new(11);
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for number in 0..2 {
            brick.write(file(1), number * 4, &payload(number, 3), Sync::Data).await.expect("a healthy brick writes");
        }
        let greedy = brick.append_greedy(file(2), &payload(7, 3), 4).expect("the log takes what it is given");
        brick.store.log.wait(greedy, Sync::Data, None).await.expect("a healthy brick writes");
        (brick, index)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(11));
    drop(brick);
    (image, index)
}

#[test]
fn a_record_that_maps_what_it_does_not_have_is_damage_and_can_be_cut() {
    let (image, index) = brick_with_a_greedy_record();
    assert_eq!(opened(&image, &index), Err(Kind::Corrupt));
    let mut world = boot(12, &image);
    let runtime = world.runtime();
    let index = index.crashed(0);
    world.block_on(async {
        let opening = Opening::read(runtime.clone(), Arc::new(index.clone()), true).await.expect("it can be read");
        let report = store::check::check(&opening, &mut |_| ()).await.expect("it can be checked");
        assert!(report.log_lost && report.findings[0].contains("more blocks than its payload"), "{report:?}");
        let done = repair(&opening, Depth::Maps, &mut |_| ()).await.expect("a healthy device");
        assert!(done.mended.iter().any(|what| what.contains("cut after batch")), "{done:?}");
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(12));
    assert_eq!(opened(&image, &index), Ok(vec![1, 2]));
}

/// These records are all of one group: what builds on a lost one is lost.
#[test]
fn a_repair_keeps_a_damaged_log_up_to_the_lost_record() {
    for (seed, kept) in [(1, 0), (2, 3), (3, 6)] {
        let (image, index) = brick_at_rest(seed, 0);
        let records = opened(&image, &index).expect("nothing is wrong");
        let mut bad = image.clone();
        bad.flip_bits(DATA, batches(&image)[kept].0 + 40, &mut SplitMix(seed));
        assert_eq!(opened(&bad, &index), Err(Kind::Corrupt));
        let (mended, of_mended, done) = repaired(&bad, &index);
        assert!(done.lost.is_empty(), "records have checksums of their own: {done:?}");
        assert_eq!(opened(&mended, &of_mended).as_ref(), Ok(&records));
        let mut bad = image.clone();
        bad.flip_bits(DATA, batches(&image)[kept].0 + 96 + 40, &mut SplitMix(seed));
        assert_eq!(opened(&bad, &index), Err(Kind::Corrupt));
        let (image, index, Repaired { lost, .. }) = repaired(&bad, &index);
        assert!(lost.iter().any(|lost| lost.ino == file(1)), "the file is named: {lost:?}");
        let before = opened(&image, &index).expect("it opens again");
        assert!(before.len() < records.len() && records.starts_with(&before), "{before:?} of {records:?}");
        // What is written from now on is durable as ever.
        let mut world = boot(seed + 10, &image);
        let runtime = world.runtime();
        world.block_on(async {
            let brick = Brick::open(&runtime, index.clone()).await.expect("it opens again");
            brick.write(file(3), 0, &payload(77, 3), Sync::Data).await.expect("a healthy brick writes");
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        let again = opened(&image, &index).expect("it opens");
        assert_eq!(again, (1..=before.len() as u64 + 1).collect::<Vec<_>>(), "the new one, and none of those left out");
    }
}
