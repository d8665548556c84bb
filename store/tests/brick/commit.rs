//! Group commit: who is acknowledged when, and what a crash then leaves (rules U1, U3, L4, L5).

use crate::rig::{Brick, GROUP, VOLUME, Written, boot, file, format, payload, seeds, superblock_of};
use base::{Error, Index, Kind, Sync};
use runtime::ledger::{Ledger, Span, Stage};
use runtime::random::SplitMix;
use runtime::sim::{DiskImage, Fail, FaultPlan, Survival, World};
use runtime::{Event, Slabs, tasks::Local};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use store::format::batch::BatchHeader;
use store::log::{Entry, Payload};

/// Everything that was acknowledged as durable at some moment, and what a crash at that moment leaves.
struct Moment {
    acknowledged: Vec<Written>,
    image: DiskImage,
}

struct Writers {
    brick: Brick,
    acknowledged: Mutex<Vec<Written>>,
    moments: Mutex<Vec<Moment>>,
    left: AtomicU64,
    ended: Event,
}

/// One of several writers: durable writes, one after the other; draws an image of a crash now and then.
async fn writer(writers: Arc<Writers>, disk: Arc<runtime::sim::SimDisk>, mine: u64, rounds: u64) {
    let mut rng = SplitMix(mine);
    for round in 0..rounds {
        let bytes = payload(mine * 1000 + round, 1);
        let sync = if rng.one_in(4) { Sync::Ordered } else { Sync::Data };
        let written = writers.brick.write(file(mine), round, &bytes, sync).await.expect("a healthy brick writes");
        if sync == Sync::Ordered {
            continue;
        }
        let mut acknowledged = writers.acknowledged.lock().expect("no panic while held");
        acknowledged.push(written);
        if rng.one_in(10) {
            let survival = if rng.one_in(2) { Survival::Nothing } else { Survival::Random };
            let (image, acknowledged) = (disk.crash_image(survival, &mut rng), acknowledged.clone());
            writers.moments.lock().expect("no panic while held").push(Moment { acknowledged, image });
        }
    }
    writers.left.fetch_sub(1, Ordering::Relaxed);
    writers.ended.notify();
}

/// Memory may run out between two records: then none is ordered, and who waits for the log's memory is woken.
#[test]
pub fn records_that_belong_together_are_appended_all_or_none() {
    let slabs = Arc::new(Slabs::new(1, 16 << 20));
    let mut world = World::with_slabs(5, slabs.clone());
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 32).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 1), Sync::Data).await.expect("a healthy brick writes");
        let log = &brick.store.log;
        // Each fills most of a header.
        let records = [1, 2].map(|number| vec![number; 3_000]);
        let entry = |number: usize| Entry {
            owner: (GROUP, VOLUME, Index(2 + number as u64)),
            replicated: &records[number],
            payload: Payload::None,
            described: &[],
        };
        let mut held: Vec<_> = std::iter::from_fn(|| slabs.take_own(0, 4096).ok()).collect();
        let (last, came) = (log.last_batch(), log.segment_came.ticket());
        for left in 0..2 {
            held.truncate(held.len() - left);
            let mut ordered = Vec::new();
            let refused = log.append(&[entry(0), entry(1)], Sync::Data, &mut ordered).expect_err("no memory");
            assert_eq!((refused.kind, ordered.len(), log.last_batch()), (Kind::Busy, 0, last), "{left}");
        }
        drop(held);
        log.segment_came.after(came).await;
        let mut ordered = Vec::new();
        log.append(&[entry(0), entry(1)], Sync::Data, &mut ordered).expect("there is memory");
        assert_eq!((ordered.len(), ordered[1].batch), (2, last + 2));
    });
}

#[test]
fn concurrent_durable_writes_share_batches_and_survive_from_their_acknowledgement_on() {
    const WRITERS: u64 = 16;
    const ROUNDS: u64 = 20;
    for seed in seeds(1..4) {
        let mut world = World::new(seed);
        let (runtime, disk) = (world.runtime(), world.disk().clone());
        let (writers, index) = world.block_on(async {
            let index = format(&runtime, 32).await;
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            let (acknowledged, moments, left) = (Mutex::default(), Mutex::default(), AtomicU64::new(WRITERS));
            let writers = Arc::new(Writers { brick, acknowledged, moments, left, ended: Event::new() });
            for mine in 0..WRITERS {
                let (writers, disk) = (writers.clone(), disk.clone());
                let task = move || -> Local { Box::pin(writer(writers, disk, mine, ROUNDS)) };
                runtime.tasks.spawn(mine as usize % 2, Box::new(task));
            }
            while writers.left.load(Ordering::Relaxed) > 0 {
                let ticket = writers.ended.ticket();
                if writers.left.load(Ordering::Relaxed) > 0 {
                    writers.ended.after(ticket).await;
                }
            }
            (writers, index)
        });
        let figures = writers.brick.store.log.figures();
        assert_eq!(figures.records, WRITERS * ROUNDS);
        assert!(figures.batches < figures.records / 3, "{figures:?}");
        assert!(figures.flushes + figures.fua_batches <= figures.batches, "{figures:?}");
        let moments = std::mem::take(&mut *writers.moments.lock().expect("no panic while held"));
        assert!(moments.len() > 10);
        for (number, Moment { acknowledged, image }) in moments.iter().enumerate() {
            let mut after = boot(seed + number as u64, image);
            let runtime = after.runtime();
            after.block_on(async {
                let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a crash leaves a brick that opens");
                // `open` has seen that nothing is missing before the last record that came back.
                let fresh = brick.fresh.lock().expect("no panic while held").clone();
                for written in acknowledged {
                    assert_eq!(fresh.get(written.index as usize - 1), Some(written), "seed {seed}, crash {number}");
                }
                brick.read_all().await;
            });
        }
    }
}

#[test]
pub fn what_nobody_synced_is_durable_within_a_second() {
    for seed in seeds(1..20) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let (brick, index) = world.block_on(async {
            let index = format(&runtime, 16).await;
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            // At any phase of the timer.
            runtime.clock.sleep(seed * 37_000_000).await;
            let tickets = [Sync::Ordered, Sync::Written, Sync::Ordered];
            for (number, sync) in tickets.into_iter().enumerate() {
                let bytes = payload(number as u64, 2);
                brick.write(file(1), number as u64 * 2, &bytes, sync).await.expect("a healthy brick writes");
            }
            (brick, index)
        });
        world.run_for(base::limits::DURABLE_WITHIN_NS);
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        let expected = brick.map();
        let mut after = boot(seed, &image);
        let runtime = after.runtime();
        after.block_on(async {
            let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a crash leaves a brick that opens");
            assert_eq!(brick.map(), expected, "seed {seed}");
            brick.read_all().await;
        });
    }
}

#[test]
fn who_waits_behind_others_hears_so() {
    let mut world = World::new(7);
    let runtime = world.runtime();
    let ledger = Ledger::new(1, &["write"]);
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        runtime.clock.sleep(1_000_000_000).await;
        for number in 0..100 {
            let span = Span::start(runtime.stamp());
            let written = brick.append(file(1), number, &payload(number, 1), Sync::Data).await.expect("there is room");
            // The last of five is told of; it is written when those before it are.
            let (sync, span) = if number % 5 == 4 { (Sync::Data, Some(&span)) } else { (Sync::Ordered, None) };
            brick.store.log.wait(written.batch, sync, span).await.expect("a healthy brick writes");
            if let Some(span) = span {
                ledger.record(0, 0, span, runtime::Subject::default(), runtime.stamp());
            }
        }
    });
    let profile = ledger.profile();
    let took = |stage| profile[0].stages.iter().find(|(one, _)| *one == stage).map_or(0, |(_, took)| took.sum_ns());
    let (queue, write, total) = (took(Stage::Queue), took(Stage::Write), profile[0].total.sum_ns());
    assert!(queue > 0 && write > total / 2, "queue {queue}, write {write} of {total} ns");
}

/// Headers of all batches in an image that lie one after the other from block 1 of segment `segment` on.
fn batches_of(image: &DiskImage, segment: u64) -> Vec<BatchHeader> {
    let mut batches = Vec::new();
    let mut block = 1;
    loop {
        let at = segment * crate::rig::SEGMENT_BYTES + block * 4096;
        let bytes = image.read("segments-00000", at, 4096).expect("the file was made");
        let Ok((header, _)) = BatchHeader::check(&bytes) else { return batches };
        block += u64::from(header.header_blocks) + u64::from(header.payload_blocks);
        batches.push(header);
    }
}

#[test]
pub fn an_idle_log_says_once_that_all_is_durable_and_rests() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    let brick = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        for number in 0..5 {
            brick.write(file(1), number, &payload(number, 1), Sync::Data).await.expect("a healthy brick writes");
        }
        brick
    });
    world.run_for(2_000_000_000);
    let last = brick.store.log.last_batch();
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    let batches = batches_of(&image, 0);
    let (empty, records) = batches.split_last().expect("batches were written");
    assert!(records.iter().all(|batch| batch.records == 1), "one record at a time: {records:?}");
    assert_eq!((empty.records, empty.number, empty.durable_through), (0, last, last - 1));
    let (steps, figures) = (world.steps(), brick.store.log.figures());
    world.run_for(60_000_000_000);
    assert_eq!((world.steps(), brick.store.log.figures()), (steps, figures), "an idle brick writes nothing");
    // And again after the next change.
    world.block_on(async {
        brick.write(file(1), 9, &payload(9, 1), Sync::Ordered).await.expect("a healthy brick writes");
    });
    world.run_for(2_000_000_000);
    let image = world.crash_as(Survival::Nothing, &mut SplitMix(1));
    let batches = batches_of(&image, 0);
    assert_eq!(batches.len() as u64, last + 2, "one with the change, one empty");
    assert_eq!(batches.last().map(|batch| (batch.records, batch.durable_through)), Some((0, last + 1)));
}

#[test]
pub fn crashes_one_after_the_other_keep_the_records_of_all_epochs() {
    for seed in seeds(1..6) {
        let mut rng = SplitMix(seed);
        let mut world = World::new(seed);
        let index = {
            let runtime = world.runtime();
            world.block_on(async { format(&runtime, 64).await })
        };
        let mut expected = Vec::new();
        for life in 0..12 {
            let runtime = world.runtime();
            let index = index.crashed(0);
            let (brick, durable) = world.block_on(async {
                let brick = Brick::open(&runtime, index).await.expect("a crash leaves a brick that opens");
                let fresh = brick.fresh.lock().expect("no panic while held").clone();
                assert_eq!(fresh[..expected.len()], expected[..], "seed {seed}, life {life}");
                brick.read_all().await;
                // Some lives write nothing, some leave a tail that may or may not survive.
                let (synced, loose) = (rng.below(4), rng.below(4));
                for number in 0..synced {
                    let bytes = payload(life * 100 + number, 1 + rng.below(3) as usize);
                    brick.write(file(life), number, &bytes, Sync::Data).await.expect("a healthy brick writes");
                }
                let durable = brick.applied.load(Ordering::Relaxed) as usize;
                for number in 0..loose {
                    let sync = if rng.one_in(2) { Sync::Ordered } else { Sync::Written };
                    let bytes = payload(life * 100 + 50 + number, 1 + rng.below(3) as usize);
                    brick.write(file(life), 100 + number, &bytes, sync).await.expect("a healthy brick writes");
                }
                (brick, durable)
            });
            let fresh = brick.fresh.lock().expect("no panic while held").clone();
            assert_eq!(brick.store.epoch, life + 1, "each opening begins an epoch");
            // What came back from the life before counts from then on.
            expected = fresh[..durable.max(expected.len())].to_vec();
            let image = world.crash_as(Survival::Random, &mut rng);
            assert_eq!(superblock_of(&image).ends.len() as u64, life + 1, "no checkpoint has trimmed the ends");
            world = boot(rng.next(), &image);
        }
    }
}

/// Another task's flush of the same file has failed: what it covered may be lost, though the log's own flush succeeds.
#[test]
fn nothing_becomes_durable_after_a_failure() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("a fresh brick opens");
        let written = brick.write(file(1), 0, &payload(1, 1), Sync::Written).await.expect("there is room");
        let log = &brick.store.log;
        let mut waiting = std::pin::pin!(log.wait(written.batch, Sync::Data, None));
        // The flush is under way after this.
        begin(waiting.as_mut()).await;
        runtime.clock.sleep(1).await;
        log.fail(Error::new(Kind::Io, "a flush failed"));
        assert_eq!(waiting.await.map_err(|error| error.kind), Err(Kind::Io));
        runtime.clock.sleep(3_000_000_000).await;
        let told = log.wait(written.batch, Sync::Data, None).await;
        assert_eq!(told.map_err(|error| error.kind), Err(Kind::Io));
        assert!(log.positions().durable < written.batch);
    });
}

/// Begins to wait for what takes a while.
async fn begin(mut waiting: Pin<&mut impl Future>) {
    std::future::poll_fn(|context| {
        assert!(waiting.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// A header is a block too: what nobody waits for goes on gathering when the durable batch before it is done.
#[test]
fn what_nobody_waits_for_gathers_others() {
    let mut world = World::new(2);
    let runtime = world.runtime();
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let append = async |number: u64, sync| {
            let appended = brick.append(file(1), number, &payload(number, 1), sync).await;
            appended.expect("there is room").batch
        };
        let durable = append(0, Sync::Data).await;
        let mut waiting = std::pin::pin!(brick.store.log.wait(durable, Sync::Data, None));
        begin(waiting.as_mut()).await;
        // Its write is under way after this.
        runtime.clock.sleep(1_000).await;
        let during = append(1, Sync::Ordered).await;
        waiting.await.expect("a healthy brick writes");
        assert_eq!((during, append(2, Sync::Ordered).await), (durable + 1, durable + 1));
    });
}

/// The next start would have to replay it, after a clean stop whose checkpoint took long.
#[test]
fn a_log_that_is_being_closed_writes_no_batch_of_its_own() {
    let batches_in_two_seconds = |closes: bool| {
        let mut world = World::new(6);
        let runtime = world.runtime();
        world.block_on(async {
            let index = format(&runtime, 16).await;
            let brick = Brick::open(&runtime, index).await.expect("just formatted");
            brick.write(file(1), 0, &payload(0, 1), Sync::Data).await.expect("a healthy brick writes");
            let log = &brick.store.log;
            if closes {
                log.close();
            }
            let last = log.last_batch();
            runtime.clock.sleep(2_000_000_000).await;
            log.last_batch() - last
        })
    };
    assert_eq!([false, true].map(batches_in_two_seconds), [1, 0]);
}

/// It would not say so again: damage of what became durable later would pass for the end that a crash leaves (rule L5).
#[test]
fn a_log_that_waits_for_a_slow_write_does_not_say_that_all_is_durable() {
    let mut world = World::new(4);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    let store = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        brick.write(file(1), 0, &payload(0, 1), Sync::Data).await.expect("a healthy brick writes");
        runtime.clock.sleep(2_000_000_000).await;
        disk.set_faults(FaultPlan { stalls: Fail::Nth(2), stall_ns: 700_000_000, ..FaultPlan::default() });
        let log = &brick.store.log;
        let first = brick.append(file(1), 1, &payload(1, 1), Sync::Data).await.expect("there is room").batch;
        let mut waiting = std::pin::pin!(log.wait(first, Sync::Data, None));
        begin(waiting.as_mut()).await;
        runtime.clock.sleep(1_000).await;
        let slow = brick.append(file(1), 2, &payload(2, 1), Sync::Written).await.expect("there is room").batch;
        let mut slow_one = std::pin::pin!(log.wait(slow, Sync::Written, None));
        begin(slow_one.as_mut()).await;
        waiting.await.expect("a healthy brick writes");
        let began_ns = runtime.clock.now_ns();
        slow_one.await.expect("a slow brick writes");
        assert!(slow == first + 1 && runtime.clock.now_ns() - began_ns > 500_000_000, "the second one was slow");
        brick.store.clone()
    });
    world.run_for(2_000_000_000);
    let last = store.log.last_batch();
    let batches = batches_of(&world.crash_as(Survival::Nothing, &mut SplitMix(1)), 0);
    let told = batches.last().map(|batch| (batch.number, batch.records, batch.durable_through));
    assert_eq!(told, Some((last, 0, last - 1)));
}

/// The question whether the disk hangs is decided by it (rule P6).
#[test]
fn a_log_knows_since_when_its_oldest_transfer_has_been_under_way() {
    let mut world = World::new(5);
    let (runtime, disk) = (world.runtime(), world.disk().clone());
    world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index).await.expect("just formatted");
        let log = &brick.store.log;
        brick.write(file(1), 0, &payload(0, 1), Sync::Data).await.expect("a healthy brick writes");
        // A write that is durable by itself hangs, then the flush of one that is not.
        for before in [None, Some(Sync::Written)] {
            let sync = before.unwrap_or(Sync::Data);
            let batch = brick.append(file(1), 1, &payload(1, 1), sync).await.expect("there is room").batch;
            if let Some(sync) = before {
                log.wait(batch, sync, None).await.expect("a healthy brick writes");
            }
            assert_eq!(log.oldest_pending_ns(), None);
            disk.set_faults(FaultPlan { stalls: Fail::Nth(1), stall_ns: 2_000_000_000, ..FaultPlan::default() });
            let began_ns = runtime.clock.now_ns();
            let mut hung = std::pin::pin!(log.wait(batch, Sync::Data, None));
            begin(hung.as_mut()).await;
            runtime.clock.sleep(1_500_000_000).await;
            let since_ns = log.oldest_pending_ns().expect("it has not ended");
            assert!((began_ns..began_ns + 1_000_000).contains(&since_ns), "since {since_ns}, begun at {began_ns}");
            hung.await.expect("it ends");
            assert_eq!(log.oldest_pending_ns(), None);
        }
    });
}

/// Records of one block each in batches of a few that nobody flushed, as many buffered writes leave them behind.
#[test]
fn what_may_be_torn_is_read_in_large_pieces() {
    const RECORDS: u64 = 2000;
    let mut world = World::new(11);
    let runtime = world.runtime();
    let (brick, index) = world.block_on(async {
        let index = format(&runtime, 16).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        for number in 0..RECORDS {
            let bytes = payload(number, 1);
            let written = brick.append(file(1), number, &bytes, Sync::Written).await.expect("there is room");
            if number % 4 == 3 {
                brick.store.log.wait(written.batch, Sync::Written, None).await.expect("a healthy brick writes");
            }
        }
        (brick, index)
    });
    let positions = brick.store.log.positions();
    assert!(positions.written - positions.durable > 100, "the test needs batches that may be torn: {positions:?}");
    let image = world.crash_as(Survival::Everything, &mut SplitMix(1));
    let expected = brick.map();
    let mut after = boot(12, &image);
    let (runtime, disk) = (after.runtime(), after.disk().clone());
    let map = after.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a crash leaves a brick that opens");
        brick.map()
    });
    assert_eq!(map, expected);
    let figures = disk.figures()["segments-00000"];
    let log_bytes = RECORDS * 5 / 4 * 4096;
    assert!(figures.reads < 100 && figures.read_bytes < 3 * log_bytes, "of {log_bytes} bytes of log: {figures:?}");
}
