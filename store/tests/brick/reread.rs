//! The log of a running brick, read again: everything that was ordered since a position, in order and once, whatever checkpoints free
//! meanwhile, and after a crash (rules L6, K8).

use crate::rig::{Brick, boot, file, format, payload, seeds};
use base::{Kind, ReplicaId, Sync};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use runtime::tasks::both;
use std::cell::Cell;
use store::format::keys;
use store::format::superblock::REPLICAS;
use store::format::values::{self, ReplayRow};
use store::{Stored, feature};

const SEGMENTS: u64 = 64;

/// Changes small and large, unsynced and durable, and votes; a checkpoint now and then.
async fn change(brick: &Brick, rng: &mut SplitMix, count: u64) {
    for _ in 0..count {
        let (tag, ino, first) = (rng.next() >> 24, file(rng.below(2)), rng.below(40));
        let sync = [Sync::Ordered, Sync::Written, Sync::Data][rng.below(3) as usize];
        let changed = if rng.one_in(10) {
            let batch = brick.append_vote(1 + tag, Some(ReplicaId(2)).filter(|_| tag % 2 == 0)).await;
            brick.store.log.wait(batch.expect("there is room"), sync, None).await
        } else if rng.one_in(6) {
            brick.write_bulk(ino, first, &payload(tag, 32 + rng.below(30) as usize), sync).await.map(drop)
        } else {
            brick.write(ino, first, &payload(tag, 1 + rng.below(20) as usize), sync).await.map(drop)
        };
        changed.expect("there is room");
        if rng.one_in(20) {
            brick.checkpoint().await.expect("a healthy brick checkpoints");
        }
        if rng.one_in(5) {
            brick.runtime.clock.sleep(rng.below(2_000_000)).await;
        }
    }
}

/// The number of the first batch that a replay would read now.
fn start(brick: &Brick) -> u64 {
    let row = brick.store.index.get(&keys::replay()).expect("the model index reads");
    row.map_or(0, |row| values::decode_damaged_replay(&row).expect("a row").0.number)
}

/// Reads the log, perhaps slowly, and compares it with what was ordered before the call.
async fn read(brick: &Brick, rng: &mut SplitMix, from: Option<&ReplayRow>) -> base::Result<ReplayRow> {
    let first = from.map_or_else(|| start(brick), |row| row.number);
    let mut expected = brick.history.lock().expect("no panic while held").clone();
    expected.retain(|stored| stored.replayed.batch >= first);
    let mut found: Vec<Stored> = Vec::new();
    let end = brick.store.read_log(from, async |some| {
        assert!(!some.is_empty());
        found.extend(some);
        if rng.one_in(3) {
            brick.runtime.clock.sleep(rng.below(100_000_000)).await;
        }
        Ok(())
    });
    let end = end.await?;
    let numbers = |all: &[Stored]| all.iter().map(|one| one.replayed.batch).collect::<Vec<_>>();
    assert_eq!(numbers(&found), numbers(&expected), "from batch {first} on");
    assert!(found == expected, "from batch {first} on");
    assert!(expected.last().is_none_or(|last| last.replayed.batch < end.number));
    Ok(end)
}

#[test]
pub fn what_was_ordered_is_read_again_in_order_and_once() {
    let (mut reads, mut gone) = (0, 0);
    for seed in seeds(1..6) {
        let mut rng = SplitMix(seed);
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let mut index = world.block_on(format(&runtime, SEGMENTS));
        for life in 0..4 {
            let runtime = world.runtime();
            let brick =
                world.block_on(Brick::open(&runtime, index.clone())).expect("a crash leaves a brick that opens");
            let (mut writer, mut reader) = (SplitMix(rng.next()), SplitMix(rng.next()));
            let done = Cell::new(false);
            world.block_on(async {
                feature::require(&brick.store, REPLICAS).await.expect("a healthy brick");
                let write = async {
                    change(&brick, &mut writer, 300).await;
                    done.set(true);
                };
                let reread = async {
                    let mut last = None;
                    while !done.get() {
                        reads += 1;
                        let from = last.take().filter(|_| reader.one_in(2));
                        match read(&brick, &mut reader, from.as_ref()).await {
                            Ok(end) => last = Some(end),
                            // A checkpoint has come in between.
                            Err(error) if error.kind == Kind::NotFound && from.is_some() => gone += 1,
                            Err(error) => panic!("seed {seed}, life {life}: {error}"),
                        }
                        brick.runtime.clock.sleep(reader.below(20_000_000)).await;
                    }
                };
                both(write, reread).await;
                let log = &brick.store.log;
                log.wait(log.last_batch(), Sync::Written, None).await.expect("a healthy brick writes");
                brick.read_all().await;
            });
            let before = brick.history.lock().expect("no panic while held").clone();
            let survival = if rng.one_in(2) { Survival::Nothing } else { Survival::Random };
            let image = world.crash_as(survival, &mut rng);
            index = index.crashed(0);
            world = boot(rng.next(), &image);
            let runtime = world.runtime();
            world.block_on(async {
                let brick = Brick::open(&runtime, index.clone()).await.expect("a crash leaves a brick that opens");
                let first = start(&brick);
                let after = brick.history.lock().expect("no panic while held").clone();
                let mut same = before.iter().filter(|stored| stored.replayed.batch >= first);
                assert!(after.iter().all(|stored| same.next() == Some(stored)), "seed {seed}, life {life}: a prefix");
                read(&brick, &mut rng, None).await.expect("a healthy brick reads");
                brick.stop().await;
            });
        }
    }
    assert!(reads > 60 && gone > 5, "{reads} reads, {gone} of what was gone");
}

/// A sink that fails ends the read, and the brick goes on.
#[test]
fn a_reader_that_gives_up_harms_nobody() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let mut rng = SplitMix(1);
        let end = read(&brick, &mut rng, None).await.expect("an empty log reads");
        assert_eq!(read(&brick, &mut rng, Some(&end)).await, Ok(end));
        brick.write(file(1), 0, &payload(1, 3), Sync::Ordered).await.expect("a healthy brick writes");
        let refused = brick.store.read_log(None, async |_| Err(base::Error::new(Kind::Interrupted, "enough"))).await;
        assert_eq!(refused.map_err(|error| error.kind), Err(Kind::Interrupted));
        read(&brick, &mut rng, Some(&end)).await.expect("a healthy brick reads");
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        let gone = brick.store.read_log(Some(&end), async |_| Ok(())).await;
        assert_eq!(gone.map_err(|error| error.kind), Err(Kind::NotFound));
        read(&brick, &mut rng, None).await.expect("a healthy brick reads");
    });
}
