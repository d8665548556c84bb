//! Space: the end of it is told cleanly, and dead segments come back (rules K3, K5, L4).

use crate::rig::{Brick, Map, SEGMENT_BLOCKS, SEGMENT_BYTES, boot, file, format, payload};
use base::limits::BLOCK_BYTES;
use base::{Kind, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Fail, FaultPlan, Setup, Survival, World};
use store::FormatOptions;
use store::format::leaf::merge;
use store::format::summary::summary_blocks;
use store::index::model::ModelIndex;

#[test]
fn a_full_brick_says_so_and_keeps_what_it_has() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 12).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let free = brick.space_free();
        let mut blocks = 0;
        let refused = loop {
            match brick.write(file(1), blocks, &payload(blocks, 8), Sync::Data).await {
                Ok(_) => blocks += 8,
                Err(error) => break error,
            }
            assert!(blocks < 12 * SEGMENT_BLOCKS, "more than the brick holds");
            assert!(brick.space_free() <= free);
        };
        assert_eq!(refused.kind, Kind::NoSpace, "{refused}");
        assert!(blocks > 10 * SEGMENT_BLOCKS, "{blocks} blocks fit into 12 segments");
        assert_eq!(brick.store.log.failed(), None, "the brick is full, not broken");
        brick.read_all().await;
        brick.checkpoint().await.expect("a full brick checkpoints");
        let expected = brick.map();
        brick.stop().await;
        let brick = Brick::open(&runtime, index).await.expect("a full brick opens");
        assert_eq!(brick.map(), expected);
        brick.read_all().await;
    });
}

#[test]
fn bulk_stops_while_the_log_still_has_room() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let mut blocks = 0;
        let refused = loop {
            match brick.write_bulk(file(1), blocks, &payload(blocks, 64), Sync::Data).await {
                Ok(_) => blocks += 64,
                Err(error) => break error,
            }
            assert!(blocks < 16 * SEGMENT_BLOCKS, "more than the brick holds");
        };
        assert_eq!(refused.kind, Kind::NoSpace, "{refused}");
        // Deletions and the like go through the log.
        for number in 0..SEGMENT_BLOCKS {
            brick.write(file(2), number, &payload(number, 1), Sync::Data).await.expect("the log has a reserve");
        }
        brick.read_all().await;
    });
}

#[test]
pub fn dead_segments_are_free_after_restarts() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 40).await;
        let mut brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let mut tag = 0;
        let mut least = u64::MAX;
        // Ten times the brick's size in all, over the same few blocks.
        for _ in 0..40 {
            let mut expected = Map::new();
            for round in 0..10 * SEGMENT_BLOCKS / 30 {
                tag += 1;
                let first = round % 8 * 30;
                let written = brick.write(file(1), first, &payload(tag, 30), Sync::Ordered).await;
                written.expect("space comes back").lay_over(&mut expected);
            }
            brick.checkpoint().await.expect("a healthy brick checkpoints");
            least = least.min(brick.space_free());
            brick.stop().await;
            brick = Brick::open(&runtime, index.clone()).await.expect("a healthy brick opens");
            assert_eq!(brick.map(), expected);
            brick.read_all().await;
        }
        assert!(least > 4, "{least} segments were free at worst");
    });
}

#[test]
fn a_brick_that_starts_again_and_again_keeps_its_space() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 12).await;
        for round in 0..30 {
            let brick = Brick::open(&runtime, index.clone()).await.expect("the brick opens");
            // Its segments are made ready meanwhile.
            runtime.clock.sleep(1_000_000_000).await;
            assert!(brick.space_free() >= 6, "start {round}: {} segments are free", brick.space_free());
            brick.stop().await;
        }
    });
}

#[test]
pub fn the_commit_stream_uses_only_what_was_once_written() {
    // The smallest, and one that takes several writes.
    for segment_bytes in [SEGMENT_BYTES, 4 * SEGMENT_BYTES] {
        let mut world = World::new(4);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        world.block_on(async {
            let size_bytes = Some(16 * segment_bytes);
            let options =
                FormatOptions { size_bytes, segment_bytes, groups: 1, size_bytes_min: 0, ..FormatOptions::default() };
            store::format_brick(&runtime, options, async || Ok(())).await.expect("an empty disk can be formatted");
            let brick = Brick::open(&runtime, ModelIndex::new(merge)).await.expect("just formatted");
            runtime.clock.sleep(1_000_000_000).await;
            let ready = brick.store.log.prepared() as u64;
            let written_bytes = disk.figures()["segments-00000"].written_bytes;
            assert!(ready > 0 && written_bytes >= ready * segment_bytes, "{ready} are ready, {written_bytes} written");
        });
    }
}

/// Blocks that bulk payloads have filled are not filled with zeros again when the log takes their segment.
#[test]
fn the_commit_stream_does_not_fill_what_was_written() {
    let mut world = World::new(4);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        const BLOCKS: usize = 240;
        for number in 0..9 {
            let bytes = payload(number, BLOCKS);
            brick.write_bulk(file(number), 0, &bytes, Sync::Data).await.expect("there is room");
        }
        runtime.clock.sleep(1_000_000_000).await;
        let written_bytes = || disk.figures()["segments-00000"].written_bytes;
        let before_bytes = written_bytes();
        for number in 0..9 {
            for first in (0..BLOCKS as u64).step_by(30) {
                let bytes = payload(number << 8 | first, 30);
                brick.write(file(number), first, &bytes, Sync::Data).await.expect("there is room");
            }
            brick.checkpoint().await.expect("a healthy brick checkpoints");
        }
        // With headers and summaries; a segment more for each of the few that were never used.
        let payload_bytes = 9 * BLOCKS as u64 * BLOCK_BYTES as u64;
        let more_bytes = written_bytes() - before_bytes - payload_bytes;
        assert!(more_bytes < 5 * SEGMENT_BYTES, "{}", more_bytes as f64 / SEGMENT_BYTES as f64);
        brick.read_all().await;
    });
}

#[test]
fn a_write_may_fill_a_whole_segment() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        // Beside the payload: the segment's header, the batch's, and the summary of the payload.
        let blocks = 250;
        assert_eq!(1 + 1 + blocks + summary_blocks(blocks), SEGMENT_BLOCKS as usize);
        for number in 0..3 {
            let bytes = payload(number, blocks);
            brick.write(file(number), 0, &bytes, Sync::Data).await.expect("there is room");
        }
        runtime.clock.sleep(1_000_000_000).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        brick.read_all().await;
    });
}

#[test]
pub fn a_freed_segment_is_not_taken_again_beneath_a_reader() {
    let mut world = World::new(5);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 24).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let overwrite = async |rounds: std::ops::Range<u64>| {
            for round in rounds {
                for number in 0..8 {
                    let bytes = payload(round << 8 | number, 30);
                    brick.write(file(1), number * 30, &bytes, Sync::Data).await.expect("there is room");
                }
                brick.checkpoint().await.expect("a healthy brick checkpoints");
            }
        };
        overwrite(0..2).await;
        let reader = brick.store.pin();
        overwrite(2..6).await;
        let held = brick.store.segments();
        assert!(held.emptied_segments >= 3, "{held:?}");
        drop(reader);
        for _ in 0..2 {
            brick.store.free_unread();
        }
        let free = brick.store.segments();
        assert!(free.emptied_segments <= 1 && free.free_segments >= held.free_segments + 2, "{held:?}, then {free:?}");
        brick.read_all().await;
    });
}

/// A brick of which a process was killed: what that had left open is held back for 30 s, and whoever makes checkpoints is
/// told that it is not any more, also if one came in between.
#[test]
fn the_end_of_late_writes_is_told_once_whatever_came_before() {
    let mut world = World::new(6);
    let runtime = world.runtime();
    let index = world.block_on(async {
        let index = format(&runtime, 24).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 30), Sync::Data).await.expect("a healthy brick writes");
        index
    });
    let mut world = boot(7, &world.crash_as(Survival::Nothing, &mut SplitMix(6)));
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a healthy brick opens");
        brick.write(file(1), 0, &payload(2, 30), Sync::Data).await.expect("a healthy brick writes");
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        assert!(!brick.store.release_held_back(), "its last writes may still come");
        runtime.clock.sleep(31_000_000_000).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let held = brick.store.segments();
        assert!(brick.store.release_held_back(), "a checkpoint can free them from now on");
        assert!(!brick.store.release_held_back());
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        (0..2).for_each(|_| brick.store.free_unread());
        let free = brick.store.segments();
        assert!(free.free_segments > held.free_segments, "{held:?}, then {free:?}");
        brick.read_all().await;
    });
}

/// A host that has promised more than it has refuses what a segment begins with: the segment is given back, nobody was told
/// of it, and it is taken again in its next life.
#[test]
fn a_segment_that_can_not_be_made_ready_is_given_back() {
    let mut world = World::new(8);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    let full = FaultPlan { writes: Fail::Nth(1), error: Some(Kind::NoSpace), ..FaultPlan::default() };
    let (index, life, expected) = world.block_on(async {
        let index = format(&runtime, 24).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 3), Sync::Data).await.expect("there is room");
        // By then the log has its segments ahead, and rests.
        runtime.clock.sleep(3_000_000_000).await;
        let free = brick.space_free();
        for _ in 0..3 {
            disk.set_faults(full);
            let refused = brick.write_bulk(file(2), 0, &payload(2, 32), Sync::Data).await.expect_err("no room");
            assert_eq!((refused.kind, disk.faults_met()), (Kind::NoSpace, 1));
            disk.set_faults(FaultPlan::default());
            assert_eq!((brick.space_free(), brick.store.log.failed()), (free, None));
        }
        // A checkpoint in between tells of a free segment.
        brick.checkpoint().await.expect("a brick whose host is full checkpoints");
        let written = brick.write_bulk(file(2), 0, &payload(3, 32), Sync::Data).await.expect("there is room again");
        runtime.clock.sleep(1_000_000_000).await;
        // One is written to, another is ready ahead.
        assert_eq!(brick.space_free(), free - 2);
        brick.read_all().await;
        (index, brick.store.life(written.runs[0].place.segment), brick.map())
    });
    assert_eq!(life.0, 4, "three lives have begun and ended before");
    let mut world = boot(9, &world.crash_as(Survival::Nothing, &mut SplitMix(8)));
    let runtime = world.runtime();
    world.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a healthy brick opens");
        assert_eq!(brick.map(), expected);
        brick.read_all().await;
    });
}

#[test]
fn a_host_keeps_a_ballast_and_lets_it_go_when_it_is_short() {
    const GIB: u64 = 1 << 30;
    let mut world = World::new(1);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let host = store::host::Host::default();
        let ballast = 4 * GIB / 64;
        let look = |others_bytes: u64| {
            disk.set_others(others_bytes);
            host.look(&*runtime.disk, 4 * GIB).expect("a healthy disk");
            (host.is_short(), host.spare_bytes())
        };
        let room = runtime.disk.free_bytes().expect("it tells");
        // Half as much again is kept free beside it.
        assert_eq!(look(0), (false, ballast / 2));
        assert_eq!(look(room - ballast), (true, ballast * 3 / 2), "it is let go");
        assert_eq!(look(room - 2 * ballast + 4096), (true, ballast * 3 / 2), "not made again for a little room");
        assert_eq!(look(room - 2 * ballast), (false, ballast / 2));
    });
}

/// A second file that the host has no room for is missed while the first still has its reserve (rule K5).
#[test]
fn the_next_file_is_asked_for_before_the_reserve_of_the_others_is_used() {
    const PER_FILE: u64 = 1024;
    const RESERVE: u64 = PER_FILE / 10;
    let mut world = World::with(Setup { capacity_bytes: 4 << 30, ..Setup::new(1) });
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let index = format(&runtime, 2 * PER_FILE).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let bytes = payload(1, 250);
        brick.write_bulk(file(1), 0, &bytes, Sync::Data).await.expect("there is room");
        disk.set_others(runtime.disk.free_bytes().expect("no fault") - (500 << 20));
        for number in 1.. {
            brick.write_bulk(file(1), number * 250, &bytes, Sync::Ordered).await.expect("there is room");
            if brick.store.hidden_segments() > 0 {
                break;
            }
        }
        assert_eq!(brick.store.hidden_segments() as u64, PER_FILE);
        // Each stream may have taken one since.
        let free = brick.space_free();
        assert!((RESERVE - 3..=RESERVE).contains(&free), "{free} segments of the first file are free");
    });
}

#[test]
fn who_opens_a_brick_may_expect_space_from_a_cleaner() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("a fresh brick opens");
        assert!(!brick.store.space.reclaims(), "nobody cleans this one");
        brick.store.expect_space();
        assert!(brick.store.space.reclaims());
    });
}
