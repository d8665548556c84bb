//! The scrub beside clients and the cleaner: segments are freed and written anew beneath it, and it finds nothing.

use crate::rig::{Rig, Shape, pattern};
use base::{At, Sync};
use runtime::OpenMode;
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use std::sync::Arc;
use store::scrub::{self, State};
use store::{Opening, check};

const DATA: &str = "segments-00000";

/// Half of so small a brick is for the cleaner.
const TINY: Shape = Shape { overlay_bytes: 1 << 20, ..Shape::TINY };

#[test]
fn what_is_freed_and_written_anew_beneath_it_is_no_finding() {
    let mut passes = 0;
    for seed in crate::rig::seeds(1..4) {
        let mut world = World::new(seed);
        let runtime = world.runtime();
        world.block_on(async {
            let rig = Rig::new(runtime, TINY).await;
            let mut rng = SplitMix(seed);
            let file = rig.create(rig.volume.root, "file").await.expect("there is room");
            let store = rig.groups.store().clone();
            for round in 0..400 {
                let (block, tag) = (rng.below(2000), rng.next());
                let written = rig.write(file, At::Offset(block * 4096), &pattern(tag, 64 << 10), Sync::Data).await;
                written.expect("there is room");
                if round % 20 == 19 && scrub::start(&store).expect("it is open") {
                    passes += 1;
                }
                let status = scrub::status(&store);
                assert!(status.position.bad.is_empty(), "{status:?}");
            }
            drop(store);
            rig.close().await;
        });
    }
    assert!(passes > 6, "{passes}");
}

#[test]
fn a_pass_is_remembered_without_writes() {
    let mut world = World::new(9);
    let runtime = world.runtime();
    world.block_on(async {
        let rig = Rig::new(runtime.clone(), TINY).await;
        let file = rig.create(rig.volume.root, "file").await.expect("there is room");
        for number in 0..40 {
            let at = At::Offset(number << 16);
            rig.write(file, at, &pattern(number, 64 << 10), Sync::Data).await.expect("there is room");
        }
        rig.checkpoint().await;
        let before = rig.groups.checkpoints();
        scrub::start(rig.groups.store()).expect("it is open");
        while scrub::status(rig.groups.store()).position.state != State::Done {
            runtime.clock.sleep(100_000_000).await;
        }
        runtime.clock.sleep(1_000_000_000).await;
        let checkpoints = rig.groups.checkpoints() - before;
        assert!(
            (1..=2).contains(&checkpoints),
            "its start and its end are written soon, its steps are not: {checkpoints}"
        );
        let rig = rig.reopen().await;
        assert_eq!(scrub::status(rig.groups.store()).position.state, State::Done);
        rig.close().await;
    });
}

/// A block that a client could not read is counted and named, also in a segment that is still open, with the other bad
/// blocks of a sealed segment. An offline check that reads data finds the same; one that does not says so.
#[test]
fn a_read_that_fails_is_counted_and_named_and_so_is_what_is_bad_beside_it() {
    let mut world = World::new(9);
    let runtime = world.runtime();
    let disk = world.disk().clone();
    let (rig, file, bad) = world.block_on(async {
        let rig = Rig::new(runtime.clone(), TINY).await;
        let file = rig.create(rig.volume.root, "file").await.expect("there is room");
        for number in 0..40 {
            let at = At::Offset(number << 16);
            rig.write(file, at, &pattern(number, 64 << 10), Sync::Data).await.expect("there is room");
        }
        // Full segments are sealed a moment after the checkpoint that finds them full.
        for _ in 0..3 {
            rig.checkpoint().await;
            runtime.clock.sleep(500_000_000).await;
        }
        let data = runtime.disk.open(DATA, OpenMode::Existing).expect("it was made");
        // Two blocks of one write in the first segment, which is full.
        let (image, first) = (disk.crash_image(Survival::Everything, &mut SplitMix(1)), pattern(1, 64 << 10));
        let is_first = |at: &u64| image.read(DATA, *at, 4096).as_deref() == Some(&first[..4096]);
        let mut blocks = (0..crate::rig::SEGMENT_BYTES / 4096).map(|block| block * 4096);
        let at = blocks.find(is_first).expect("the second write lies in the first segment");
        for block in [0, 3] {
            disk.flip_bits(data, at + block * 4096 + 9, &mut SplitMix(block));
        }
        (rig, file, [16, 19])
    });
    let (runtime, index) = world.block_on(async {
        let store = rig.groups.store().clone();
        assert_eq!(scrub::failed_reads(&store), 0);
        assert_eq!(rig.read(file, 1 << 16, 4096).await, Err(base::Kind::Corrupt));
        assert_eq!(scrub::failed_reads(&store), 1);
        runtime.clock.sleep(3_000_000_000).await;
        let status = scrub::status(&store);
        let found: Vec<_> = status.position.bad.iter().map(|bad| (bad.ino, bad.offset)).collect();
        assert_eq!(found, bad.map(|block| (file, block)), "{status:?}");
        let news: Vec<_> = store.scrub.take_news().iter().map(|bad| bad.offset).collect();
        assert_eq!((news, store.scrub.take_news().len()), (bad.to_vec(), 0), "told once");
        drop(store);
        rig.close().await
    });
    world.block_on(async {
        let opening = Opening::read_wholly(runtime, Arc::new(index), false).await.expect("it is closed");
        let mut report = check::check(&opening, &mut |_| ()).await.expect("it can be checked");
        assert!(report.findings.is_empty() && report.data_blocks.is_none(), "{report:?}");
        check::data::read(&opening, &mut report, &mut |_| ()).await.expect("it can be checked");
        assert_eq!(report.data_blocks, Some(40 * 16));
        let named = |block: u64| {
            let text = format!("/file (inode {file} of volume 1), 4096 bytes from {} on: differs", block * 4096);
            report.findings.iter().any(|finding| finding.contains(&text))
        };
        assert!(report.findings.len() == 2 && bad.iter().all(|block| named(*block)), "{report:?}");
    });
}
