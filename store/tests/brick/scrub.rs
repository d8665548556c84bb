//! The scrub finds each block that has rotted and nothing else, remembers how far it is and what it found, and goes on
//! after a crash (rule K8).

use crate::rig::{Brick, SEGMENT_BYTES, boot, file, format, payload, seeds};
use base::limits::SEGMENT_BYTES_MAX;
use base::{Ino, Place, Sync, VolumeId};
use runtime::random::SplitMix;
use runtime::sim::{Fail, FaultPlan, Ran, Side, Survival, World};
use runtime::{OpenMode, Runtime};
use std::collections::BTreeSet;
use store::format::values::SegmentState;
use store::index::model::ModelIndex;
use store::scrub::{self, Position, State, Why};
use store::{FormatOptions, Store, format::values};

const SECOND_NS: u64 = 1_000_000_000;

/// Blocks of files that are bad.
type Bad = BTreeSet<(Ino, u64)>;

/// A brick with sealed segments, all of it checkpointed.
async fn filled(runtime: &Runtime, index: &ModelIndex) -> Brick {
    let brick = Brick::open(runtime, index.clone()).await.expect("just formatted");
    for number in 0..60 {
        brick.write(file(number % 3), number * 20, &payload(number, 20), Sync::Data).await.expect("healthy");
    }
    runtime.clock.sleep(SECOND_NS).await;
    brick.checkpoint().await.expect("healthy");
    brick
}

fn is_sealed(store: &Store, place: Place, index: &ModelIndex) -> bool {
    let row = store::index::Index::get(index, &store::format::keys::segment(place.segment)).expect("the model reads");
    let row = row.map(|row| values::decode_segment(&row).expect("a segment's row"));
    assert!(store.is_live(place.segment), "a file has a block there");
    row.is_some_and(|row| row.state == SegmentState::Sealed)
}

/// Rots some blocks of sealed segments; which.
fn rot(world: &World, runtime: &Runtime, (brick, index): (&Brick, &ModelIndex), rng: &mut SplitMix) -> Bad {
    let data = runtime.disk.open("segments-00000", OpenMode::Existing).expect("the file was made");
    let mut bad = Bad::new();
    for ((ino, block), (place, _)) in brick.map() {
        if is_sealed(&brick.store, place, index) && rng.one_in(40) {
            let at = u64::from(place.segment.0) * SEGMENT_BYTES + u64::from(place.block) * 4096;
            world.disk().flip_bits(data, at + rng.below(4096), rng);
            bad.insert((ino, block));
        }
    }
    assert!(bad.len() > 3, "some blocks have rotted");
    bad
}

async fn ended(brick: &Brick) {
    for _ in 0..600 {
        if scrub::status(&brick.store).position.state == State::Done {
            return;
        }
        brick.runtime.clock.sleep(SECOND_NS / 10).await;
    }
    panic!("a minute is enough: {:?}", scrub::status(&brick.store));
}

fn found(brick: &Brick) -> Bad {
    let status = scrub::status(&brick.store);
    let each =
        |bad: &scrub::Bad| (0..u64::from(bad.blocks)).map(|number| (bad.ino, bad.offset + number)).collect::<Vec<_>>();
    let all: Vec<_> = status.position.bad.iter().flat_map(each).collect();
    let once: Bad = all.iter().copied().collect();
    assert_eq!(all.len(), once.len(), "no block is listed twice");
    once
}

#[test]
fn what_has_rotted_is_found_and_nothing_else() {
    for seed in seeds(1..4) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let (brick, index) = world.block_on(async {
            let index = format(&runtime, 64).await;
            (filled(&runtime, &index).await, index)
        });
        world.block_on(async {
            assert_eq!(scrub::status(&brick.store).position.state, State::Never);
            assert!(scrub::start(&brick.store).expect("it is open"));
            ended(&brick).await;
            assert!(found(&brick).is_empty(), "nothing is wrong yet");
        });
        let bad = rot(&world, &runtime, (&brick, &index), &mut SplitMix(seed));
        world.block_on(async {
            assert!(scrub::start(&brick.store).expect("it is open"));
            assert!(!scrub::start(&brick.store).expect("it is open"), "one at a time");
            ended(&brick).await;
            assert_eq!(found(&brick), bad);
            let status = scrub::status(&brick.store);
            assert!(status.done_blocks == status.of_blocks && status.position.blocks >= status.of_blocks);
            // What nobody has any more is no finding.
            let (ino, block) = *bad.first().expect("there is one");
            brick.write(ino, block, &payload(9999, 1), Sync::Data).await.expect("healthy");
            brick.checkpoint().await.expect("healthy");
            assert_eq!(found(&brick).len(), bad.len() - 1);
        });
    }
}

#[test]
fn a_device_that_can_not_read_is_told_from_one_that_could_not_once() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    let disk = world.disk().clone();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = filled(&runtime, &index).await;
        // The first read is that of a summary, the third of a slice or another summary.
        disk.set_faults(FaultPlan { reads: Fail::Nth(3), ..FaultPlan::default() });
        scrub::start(&brick.store).expect("it is open");
        ended(&brick).await;
        assert!(found(&brick).is_empty(), "the second reading was good");
        disk.set_faults(FaultPlan { reads: Fail::From(3), ..FaultPlan::default() });
        scrub::start(&brick.store).expect("it is open");
        ended(&brick).await;
        let all = scrub::status(&brick.store).position.bad;
        assert!(all.iter().any(|bad| bad.why == Why::Unreadable) && all.iter().any(|bad| bad.why == Why::Untold));
        // Of a segment that can't be told, the whole of it is meant.
        let nobody = (VolumeId(0), Ino(0));
        let whole = |bad: &&scrub::Bad| (bad.place.block, bad.offset, (bad.volume, bad.ino)) == (0, 0, nobody);
        assert!(all.iter().filter(|bad| bad.why == Why::Untold).all(|bad| whole(&bad)), "{all:?}");
        assert!(brick.store.log.failed().is_none(), "reading changes nothing");
    });
}

#[test]
fn a_pass_that_was_stopped_goes_on_where_it_was() {
    let mut world = World::new(4);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = filled(&runtime, &index).await;
        scrub::start(&brick.store).expect("it is open");
        while scrub::status(&brick.store).done_blocks == 0 {
            runtime.clock.sleep(SECOND_NS / 100).await;
        }
        assert!(scrub::stop(&brick.store) && !scrub::stop(&brick.store));
        runtime.clock.sleep(SECOND_NS).await;
        let before = scrub::status(&brick.store);
        assert_eq!(before.position.state, State::Stopped);
        assert!(before.done_blocks < before.of_blocks, "it was stopped in the middle");
        brick.checkpoint().await.expect("healthy");
        brick.stop().await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("healthy");
        runtime.clock.sleep(SECOND_NS).await;
        assert_eq!(scrub::status(&brick.store).position, before.position, "it waits to be started");
        scrub::start(&brick.store).expect("it is open");
        ended(&brick).await;
        let after = scrub::status(&brick.store);
        assert_eq!(after.position.began, before.position.began, "the same pass");
        assert!(after.position.blocks < before.position.blocks + after.of_blocks, "nothing was read twice");
    });
}

#[test]
fn a_crash_keeps_what_the_last_checkpoint_saw_and_the_pass_goes_on() {
    let mut resumed = 0;
    for seed in seeds(1..25) {
        let mut rng = SplitMix(seed);
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let (brick, index) = world.block_on(async {
            let index = format(&runtime, 64).await;
            (filled(&runtime, &index).await, index)
        });
        let bad = rot(&world, &runtime, (&brick, &index), &mut rng);
        let rounds = 1 + rng.below(8);
        let side = if rng.one_in(2) { Side::Before } else { Side::After };
        world.crash_at_step(world.steps() + 1 + rng.below(60), side);
        let saved = world.run(async {
            scrub::start(&brick.store).expect("it is open");
            let mut saved = None;
            for _ in 0..rounds {
                runtime.clock.sleep(SECOND_NS / 20).await;
                let position = scrub::status(&brick.store).position;
                if brick.checkpoint().await.is_err() {
                    break;
                }
                saved = Some(position.next);
            }
            saved
        });
        let kept = rng.below(3) as usize;
        let (image, index) = (world.crash_as(Survival::Random, &mut rng), index.crashed(kept));
        drop(brick);
        let mut world = boot(seed + 1000, &image);
        let runtime = world.runtime();
        world.block_on(async {
            let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
            let position = scrub::status(&brick.store).position;
            let Position { state, next, .. } = position;
            if let Ran::Finished(Some(saved)) = saved {
                assert!(state == State::Done || next >= saved, "seed {seed}: {next} after {saved}");
            }
            // Not started, as far as the index knows; else it goes on by itself.
            match state {
                State::Never => drop(scrub::start(&brick.store).expect("it is open")),
                _ => resumed += 1,
            }
            ended(&brick).await;
            assert_eq!(found(&brick), bad, "seed {seed}");
        });
    }
    assert!(resumed >= 5, "only {resumed} of the passes were remembered");
}

#[test]
fn the_time_that_is_left_grows_shorter() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 64).await;
        let brick = filled(&runtime, &index).await;
        assert_eq!(scrub::status(&brick.store).left_ns, None);
        scrub::start(&brick.store).expect("it is open");
        let mut left = Vec::new();
        while scrub::status(&brick.store).position.state != State::Done {
            left.extend(scrub::status(&brick.store).left_ns);
            runtime.clock.sleep(SECOND_NS / 100).await;
        }
        let (first, last) = (left[0], left[left.len() - 1]);
        assert!(last < first / 2, "{left:?}");
        assert_eq!(scrub::status(&brick.store).left_ns, None);
        // Of the next pass too, much later.
        runtime.clock.sleep(1000 * SECOND_NS).await;
        scrub::start(&brick.store).expect("it is open");
        while scrub::status(&brick.store).left_ns.is_none() {
            runtime.clock.sleep(SECOND_NS / 100).await;
        }
        // It begins slowly, after a turn of rest.
        let most = Some(10 * first + SECOND_NS);
        assert!(scrub::status(&brick.store).left_ns < most, "{:?}", scrub::status(&brick.store));
    });
}

/// The summary of 26,214 blocks is written in one piece, and the largest segments have more.
#[test]
fn a_summary_of_several_pieces_is_read_as_it_was_written() {
    const PIECES: u64 = 110;
    let mut world = World::new(6);
    let runtime = world.runtime();
    let (index, segment_bytes) = (ModelIndex::new(store::format::leaf::merge), SEGMENT_BYTES_MAX);
    let size_bytes = Some(40 * segment_bytes);
    let options = FormatOptions { size_bytes, segment_bytes, groups: 1, size_bytes_min: 0, ..FormatOptions::default() };
    world.block_on(async {
        store::format_brick(&runtime, options, async || Ok(())).await.expect("an empty disk can be formatted");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for number in 0..PIECES {
            brick.write_bulk(file(0), number * 256, &payload(number, 256), Sync::Data).await.expect("healthy");
        }
        brick.checkpoint().await.expect("healthy");
        brick.stop().await;
        // What was open is sealed soon after the next start.
        let brick = Brick::open(&runtime, index.clone()).await.expect("healthy");
        brick.runtime.clock.sleep(10 * SECOND_NS).await;
        brick.checkpoint().await.expect("healthy");
        scrub::start(&brick.store).expect("it is open");
        ended(&brick).await;
        let status = scrub::status(&brick.store);
        assert!(status.position.bad.is_empty(), "{:?}", status.position.bad);
        assert!(status.position.blocks >= PIECES * 256, "{status:?}");
    });
}
