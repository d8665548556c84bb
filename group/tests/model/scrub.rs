//! The scrub beside clients and the cleaner: segments are freed and written anew beneath it, and it finds nothing.

use crate::rig::{Rig, Shape, pattern};
use base::{At, Sync};
use runtime::random::SplitMix;
use runtime::sim::World;
use store::scrub::{self, State};

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
