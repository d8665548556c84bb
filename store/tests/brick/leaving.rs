//! A device of flash that leaves a brick: the log and all else that lies there goes on elsewhere, whether anybody writes or not, and
//! what was acknowledged is there whatever crashes. Blocks are moved as whoever wrote them would: once more.

use crate::devices::{DISK as SECOND, FIRST, fill, format, table_of, world};
use crate::rig::{Brick, Map, boot, file, payload};
use base::{Kind, Result, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Ran, Side, Survival};
use std::collections::BTreeSet;
use store::format::devices::{DeviceId, State, Tier};
use store::grow::removal;

const LEAVES: DeviceId = DeviceId(2);
const SECOND_NS: u64 = 1_000_000_000;
/// Blocks of each of `fill`'s writes.
const WRITE_BLOCKS: u64 = 60;
/// Checkpoints after which whatever lay on a device must have gone: late writes of a killed process count for half a minute.
const ROUNDS: u32 = 40;

/// The blocks without their places: these change as they move.
fn content(map: &Map) -> Vec<(base::Ino, u64, u32)> {
    map.iter().map(|((ino, block), (_, crc))| (*ino, *block, *crc)).collect()
}

/// Moves what lies on the device and ends its removal. Returns the number of checkpoints that it took.
async fn move_away(brick: &Brick) -> Result<u32> {
    for round in 1..=ROUNDS {
        let on_it = brick.map().into_iter().filter(|(_, (place, _))| place.segment.0 >= FIRST);
        let writes: BTreeSet<_> = on_it.map(|((ino, block), _)| (ino, block / WRITE_BLOCKS)).collect();
        for (ino, number) in writes {
            let bytes = payload(number, WRITE_BLOCKS as usize);
            brick.write(ino, number * WRITE_BLOCKS, &bytes, Sync::Data).await?;
        }
        brick.store.release_held_back();
        brick.checkpoint().await?;
        match removal::end(&brick.store, LEAVES).await {
            Ok(()) => return Ok(round),
            Err(error) if error.kind == Kind::Busy => brick.runtime.clock.sleep(SECOND_NS).await,
            Err(error) => return Err(error),
        }
    }
    panic!("something stays on the device: {:?}", brick.store.devices());
}

/// A segment of the log or the bulk stream may be open there, made ready, or none.
#[test]
fn flash_leaves_at_any_moment_of_its_streams_and_the_log_needs_no_writer_for_that() {
    for rounds in 0..24 {
        let mut world = world(rounds, &[SECOND]);
        let runtime = world.runtime();
        world.block_on(async {
            let index = format(&runtime, &[Tier::Flash]).await.expect("a blank device");
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            fill(&brick, rounds).await;
            if rounds % 3 == 1 {
                brick.write_bulk(file(1), 0, &payload(0, 60), Sync::Data).await.expect("a healthy brick writes");
            }
            if rounds % 2 == 1 {
                // Until what is wanted is made ready.
                runtime.clock.sleep(SECOND_NS).await;
            }
            let expected = content(&brick.map());
            removal::begin(&brick.store, LEAVES).await.expect("the other device has room");
            assert_eq!(brick.store.devices()[1].row.state, State::Leaving);
            let checkpoints = move_away(&brick).await.expect("a healthy brick moves");
            assert!(checkpoints <= 4, "{rounds}: {checkpoints} checkpoints, and nobody holds anything back");
            let devices = brick.store.devices();
            assert!(devices.len() == 1 && brick.store.segments().segments == u64::from(FIRST), "{devices:?}");
            fill(&brick, rounds).await;
            assert_eq!(content(&brick.map()), expected);
            brick.stop().await;
            let brick = Brick::open(&runtime, index).await.expect("a healthy brick opens");
            assert_eq!(content(&brick.map()), expected);
            brick.read_all().await;
        });
    }
}

#[test]
fn a_crash_at_any_step_goes_on_with_the_removal_of_flash_and_loses_nothing() {
    let run = |crash: Option<(u64, Side)>| {
        let mut world = world(5, &[SECOND]);
        let runtime = world.runtime();
        let (index, brick) = world.block_on(async {
            let index = format(&runtime, &[Tier::Flash]).await.expect("a blank device");
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            fill(&brick, 5).await;
            (index, brick)
        });
        let (expected, before) = (content(&brick.map()), world.steps());
        if let Some((step, side)) = crash {
            world.crash_at_step(before + step, side);
        }
        let ran = world.run(async {
            removal::begin(&brick.store, LEAVES).await?;
            move_away(&brick).await
        });
        if let Ran::Finished(result) = ran {
            result.expect("the other device has room");
        }
        let steps = world.steps() - before;
        (world, index, expected, steps)
    };
    let (.., steps) = run(None);
    let mut parts = BTreeSet::new();
    for step in 1..=steps {
        for side in [Side::Before, Side::After] {
            let (world, index, expected, _) = run(Some((step, side)));
            let survivals = [Survival::Nothing, Survival::Random, Survival::Everything];
            for survival in [survivals[step as usize % 3], survivals[(step as usize + 1) % 3]] {
                let image = world.crash_as(survival, &mut SplitMix(step));
                let part = table_of(&image).rows[1].state;
                parts.insert(part.name());
                let mut after = boot(step, &image);
                let runtime = after.runtime();
                after.block_on(async {
                    let opened = Brick::open(&runtime, index.crashed(0)).await;
                    let brick = opened.unwrap_or_else(|error| panic!("{step} {side:?} {survival:?}: {error}"));
                    assert_eq!(content(&brick.map()), expected, "{step} {side:?} {survival:?} {part:?}");
                    if part != State::Gone {
                        removal::begin(&brick.store, LEAVES).await.expect("it goes on");
                        move_away(&brick).await.expect("a healthy brick moves");
                    }
                    assert_eq!((content(&brick.map()), brick.store.devices().len()), (expected.clone(), 1));
                    brick.read_all().await;
                });
            }
        }
    }
    assert_eq!(parts.into_iter().collect::<Vec<_>>(), ["gone", "in use", "leaving"]);
}

/// The log goes on elsewhere: what it has left unflushed counts all the same.
#[test]
pub fn a_commit_keeps_what_lies_unflushed_on_flash_that_leaves() {
    let mut world = world(7, &[SECOND]);
    let runtime = world.runtime();
    let (index, expected) = world.block_on(async {
        let index = format(&runtime, &[Tier::Flash]).await.expect("a blank device");
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        let mut expected = brick.map();
        let mut write = async |number: u64, sync| {
            let written = brick.write(file(1), number * WRITE_BLOCKS, &payload(number, 60), sync).await;
            let written = written.expect("a healthy brick writes");
            written.lay_over(&mut expected);
            written.batch
        };
        write(0, Sync::Data).await;
        let unflushed = write(1, Sync::Written).await;
        removal::begin(&brick.store, LEAVES).await.expect("the other device has room");
        brick.store.log.wait(unflushed, Sync::Data, None).await.expect("a flush of the device that leaves");
        while brick.store.log.cut().0.segment.0 >= FIRST {
            runtime.clock.sleep(1_000_000).await;
        }
        write(2, Sync::Data).await;
        let on_it = expected.values().filter(|(place, _)| place.segment.0 >= FIRST).count();
        assert_eq!(on_it, 120, "the log has moved on");
        (index, expected)
    });
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(7));
    let mut after = boot(8, &image);
    let runtime = after.runtime();
    after.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("nothing durable is lost");
        assert_eq!(brick.map(), expected);
        brick.read_all().await;
    });
}

#[test]
fn flash_that_others_have_no_room_for_stays_and_so_does_the_first_device() {
    let mut world = world(9, &[SECOND]);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, &[Tier::Flash]).await.expect("a blank device");
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let refused = async |id| removal::begin(&brick.store, DeviceId(id)).await.expect_err("it can't leave");
        let first = refused(1).await;
        assert!(first.kind == Kind::Unsupported && first.to_string().contains("formatted with"), "{first}");
        // More than the half of the first device that files may take.
        let rounds = u64::from(FIRST / 2 + 1) * 256 / WRITE_BLOCKS + 1;
        fill(&brick, rounds).await;
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let full = refused(LEAVES.0).await;
        assert!(full.kind == Kind::NoSpace && full.to_string().contains("more bytes are needed"), "{full}");
        assert_eq!(brick.store.devices()[1].row.state, State::InUse);
        let expected = fill(&brick, rounds).await;
        assert_eq!(content(&brick.map()), content(&expected), "it is used as before");
    });
}
