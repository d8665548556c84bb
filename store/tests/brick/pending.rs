//! Records that don't count yet, or no longer: a checkpoint that lacks them leaves them and their blocks alone (rule K3), and a replay
//! takes records at an index that was there before (rule L6).

use crate::rig::{Brick, GROUP, VOLUME, boot, file, format, payload};
use base::*;
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::sync::Arc;
use store::format::record::{Head, Logged, encode_replicated};
use store::format::superblock::REPLICAS;
use store::log::{Entry, Payload};
use store::{Opening, check, feature};

/// A replica applies what is committed: a checkpoint comes while a record is in the log that it can't have yet, and its replay begins
/// where one before it did.
#[test]
pub fn what_a_checkpoint_does_not_have_yet_keeps_its_blocks() {
    let mut world = World::new(3);
    let runtime = world.runtime();
    let (index, expected) = world.block_on(async {
        let index = format(&runtime, 24).await;
        let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
        brick.write(file(1), 0, &payload(1, 3), Sync::Data).await.expect("there is room");
        let earlier = brick.ready_for_checkpoint().await.expect("a healthy brick");
        brick.checkpoint_as(earlier.clone()).await.expect("a healthy brick checkpoints");
        // More than a segment of bulk, which is sealed; nobody has committed any of it.
        for number in 0..12 {
            let bytes = payload(10 + number, 60);
            brick.write_bulk(file(2), number * 60, &bytes, Sync::Data).await.expect("there is room");
        }
        runtime.clock.sleep(2_000_000_000).await;
        let free = brick.space_free();
        for _ in 0..3 {
            brick.store.cut();
            let (replay, _, (applied, _)) = earlier.clone();
            brick.checkpoint_as((replay, Vec::new(), (applied, 0))).await.expect("a healthy brick checkpoints");
            (0..2).for_each(|_| brick.store.free_unread());
        }
        assert!(brick.space_free() <= free, "what the records name is not free");
        for number in 0..30 {
            let bytes = payload(100 + number, 60);
            brick.write_bulk(file(3), 0, &bytes, Sync::Data).await.expect("there is room");
        }
        brick.read_all().await;
        (index, brick.map())
    });
    let mut after = boot(4, &world.crash_as(Survival::Nothing, &mut SplitMix(3)));
    let runtime = after.runtime();
    after.block_on(async {
        let brick = Brick::open(&runtime, index.crashed(0)).await.expect("a crash leaves a brick that opens");
        assert_eq!(brick.map(), expected);
        brick.read_all().await;
        let free = brick.space_free();
        // Now it has them, and frees what was overwritten.
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        runtime.clock.sleep(31_000_000_000).await;
        brick.store.release_held_back();
        brick.checkpoint().await.expect("a healthy brick checkpoints");
        (0..2).for_each(|_| brick.store.free_unread());
        assert!(brick.space_free() > free, "{} of {free}", brick.space_free());
        brick.read_all().await;
    });
}

/// Appends a record of a term at an index, that maps some blocks of a file from the first on.
async fn append(brick: &Brick, (term, index): (u64, u64), bytes: &[u8]) {
    let mut buffer = brick.runtime.buffer(bytes.len()).expect("within the bound");
    buffer.copy_from_slice(bytes);
    let slices = [buffer.share().slice(0..bytes.len())];
    let crcs: Vec<u32> = bytes.chunks(4096).map(base::checksum::crc32c).collect();
    let (session, request, outcome) = (SessionId(0), RequestId(0), Outcome::Done);
    let (term, index) = (Term(term), Index(index));
    let head = Head { group: GROUP, term, index, volume: VOLUME, session, request, outcome };
    let map = Edit::Map { ino: file(1), first: 0, crcs: crcs.iter().copied().collect() };
    let mut replicated = Vec::new();
    encode_replicated(&mut replicated, &head, &[map]);
    let described = &[store::log::Described { ino: file(1), first: 0, crcs: &crcs }];
    let payload = Payload::Inline(&slices);
    let entry = Entry { owner: (GROUP, VOLUME, index), replicated: &replicated, payload, described };
    let ordered = loop {
        let came = brick.store.log.segment_came.ticket();
        match brick.store.log.append_one_record(&entry, Sync::Data) {
            Err(error) if error.kind == Kind::Busy => brick.store.log.segment_came.after(came).await,
            appended => break appended.expect("there is room"),
        }
    };
    brick.store.log.wait(ordered.batch, Sync::Data, None).await.expect("a healthy brick writes");
}

/// The records of the log in its order, by term and index, if the brick can be opened; the check agrees.
fn replayed(image: &runtime::sim::DiskImage, index: &store::index::model::ModelIndex) -> Result<Vec<(u64, u64)>> {
    let mut world = boot(9, image);
    let runtime = world.runtime();
    let index = Arc::new(index.crashed(0));
    world.block_on(async {
        let opening = Opening::read_wholly(runtime.clone(), index.clone(), false).await?;
        let mut report = check::check(&opening, &mut |_| ()).await?;
        let lost = report.log_lost;
        if !lost {
            check::data::read(&opening, &mut report, &mut |_| ()).await?;
        }
        let is_known = |finding: &String| finding.contains("of volume 1, which does not exist");
        assert!(lost || report.findings.iter().all(is_known), "{:?}", report.findings);
        let opening = Opening::read(runtime, index, true).await?;
        let mut all = Vec::new();
        let sink = async |records: Vec<store::Replayed>| {
            all.extend(records.into_iter().filter_map(|replayed| match replayed.logged {
                Logged::Record(record) => Some((record.term.0, record.index.0)),
                _ => None,
            }));
            Ok(())
        };
        let opened = opening.replay(sink, |_| Index(0)).await.map(drop);
        assert_eq!(opened.is_err(), lost, "start and check agree");
        opened.map(|()| all)
    })
}

#[test]
fn a_record_comes_at_an_index_that_was_there_and_none_is_missing_from_there_on() {
    let sequences: [(&[(u64, u64)], bool); 4] = [
        (&[(1, 1), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3)], true),
        // The record of the higher term becomes void in its turn.
        (&[(1, 1), (2, 2), (4, 2), (4, 3), (2, 2), (2, 3), (2, 4)], true),
        (&[(1, 1), (2, 2), (2, 3), (3, 2), (3, 4)], false),
        (&[(1, 1), (2, 2), (2, 4)], false),
    ];
    for (seed, (sequence, is_whole)) in (1..).zip(sequences) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        let (brick, index) = world.block_on(async {
            let index = format(&runtime, 16).await;
            let brick = Brick::open(&runtime, index.clone()).await.expect("just formatted");
            feature::require(&brick.store, REPLICAS).await.expect("a healthy brick");
            for (number, &at) in (0..).zip(sequence) {
                append(&brick, at, &payload(number, 3)).await;
            }
            (brick, index)
        });
        let image = world.crash_as(Survival::Nothing, &mut SplitMix(seed));
        drop(brick);
        let found = replayed(&image, &index).map_err(|error| error.kind);
        assert_eq!(found, if is_whole { Ok(sequence.to_vec()) } else { Err(Kind::Corrupt) }, "{sequence:?}");
    }
}
