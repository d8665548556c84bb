//! Crashes at chosen steps.

use super::*;
use crate::Slabs;
use std::sync::Arc;

/// The protocol by which a small store writes its data and the header that announces them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    /// Write the data, flush, write the header durably.
    Right,
    /// The header is durable before the data.
    NoFlush,
    /// The protocol `Right`, but data and flush are submitted together.
    FlushTooEarly,
}

const HEADER: u8 = 1;
const DATA: u8 = 2;

async fn store(runtime: &Runtime, protocol: Protocol, acknowledged: &std::cell::Cell<bool>) -> Result<()> {
    let file = runtime.disk.open("a", OpenMode::Create)?;
    runtime.disk.allocate(file, PAGES * 4096)?;
    flush(runtime, file).await?;
    runtime.disk.sync_names()?;
    let data = submit(runtime, file, 1, DATA, false);
    if protocol == Protocol::FlushTooEarly {
        flush(runtime, file).await?;
    }
    data.await.result?;
    if protocol == Protocol::Right {
        flush(runtime, file).await?;
    }
    submit(runtime, file, 0, HEADER, true).await.result?;
    acknowledged.set(true);
    Ok(())
}

/// Crashes a run at one step; gives the images, or None if the run has fewer steps.
fn crashed(
    slabs: &Arc<Slabs>,
    (seed, protocol): (u64, Protocol),
    step: u64,
    side: Side,
) -> Option<(bool, Vec<DiskImage>)> {
    let mut world = World::with_slabs(seed, slabs.clone());
    let runtime = world.runtime();
    world.crash_at_step(step, side);
    let acknowledged = std::cell::Cell::new(false);
    match world.run(store(&runtime, protocol, &acknowledged)) {
        Ran::Finished(result) => {
            result.expect("no fault is planned");
            assert!(world.steps() < step);
            None
        }
        Ran::Crashed => {
            assert_eq!(world.steps(), if side == Side::Before { step - 1 } else { step });
            let rng = &mut SplitMix(seed);
            let mut images: Vec<_> = (0..8).map(|_| world.crash(rng)).collect();
            images.push(world.crash_as(Survival::Nothing, rng));
            images.push(world.crash_as(Survival::Everything, rng));
            Some((acknowledged.get(), images))
        }
    }
}

/// Runs until the end of the protocol with a crash at every step; counts the images in which the header promises
/// data that is not there, and the steps.
fn enumerate(seed: u64, protocol: Protocol) -> (usize, u64) {
    let slabs = World::new(0).runtime().slabs;
    let mut broken = 0;
    for step in 1.. {
        for side in [Side::Before, Side::After] {
            let Some((acknowledged, images)) = crashed(&slabs, (seed, protocol), step, side) else {
                return (broken, step - 1);
            };
            assert!(!acknowledged, "the acknowledgement comes after the last step");
            for image in images.iter().filter(|image| !image.names().is_empty()) {
                let header = page(image, "a", 0).contains(&HEADER);
                broken += usize::from(header && page(image, "a", 1) != [DATA; 8]);
            }
        }
    }
    unreachable!("a run has finitely many steps")
}

#[test]
fn every_step_can_crash_and_the_right_protocol_bears_it() {
    for seed in 0..20 {
        // Flush, names, data submitted, flush, header submitted, header durable.
        assert_eq!(enumerate(seed, Protocol::Right), (0, 6));
    }
}

#[test]
fn a_wrong_protocol_is_caught() {
    for protocol in [Protocol::NoFlush, Protocol::FlushTooEarly] {
        assert!((0..20).map(|seed| enumerate(seed, protocol).0).sum::<usize>() > 0, "{protocol:?}");
    }
}

#[test]
fn the_sides_of_a_step_differ() {
    let slabs = World::new(0).runtime().slabs;
    for seed in 0..SEEDS {
        let images = |step, side| {
            let crashed = crashed(&slabs, (seed, Protocol::Right), step, side);
            crashed.expect("there are 6 steps").1
        };
        // Before the names are durable nothing survives the hardest crash, the ninth image.
        assert!(images(1, Side::Before)[8].names().is_empty() && images(2, Side::Before)[8].names().is_empty());
        assert!(images(2, Side::After).iter().all(|image| image.length("a") == Some(PAGES * 4096)));
        let header = |side| images(6, side).iter().filter(|image| page(image, "a", 0) == [HEADER; 8]).count();
        assert!(header(Side::Before) < 10 && header(Side::After) == 10);
        // Not yet submitted, it can't be there; submitted, it can: the tenth image has all there is.
        assert!(images(5, Side::Before).iter().all(|image| page(image, "a", 0) == [0; 8]));
        assert_eq!(page(&images(5, Side::After)[9], "a", 0), [HEADER; 8]);
    }
}

#[test]
fn a_crashed_machine_does_nothing_more() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.crash_at_step(1, Side::After);
    let ran = world.run(async {
        let file = runtime.disk.open("a", OpenMode::Create).expect("new");
        runtime.disk.allocate(file, PAGES * 4096).expect("space");
        runtime.disk.sync_names().expect("this step happens");
        // Still in the same turn.
        assert!(runtime.disk.sync_names().is_err());
        assert!(runtime.disk.open("b", OpenMode::Create).is_err());
        assert!(runtime.disk.allocate(file, 1 << 20).is_err());
        submit(&runtime, file, 0, 1, true).await;
        unreachable!("no transfer ends after the crash")
    });
    assert_eq!(ran, Ran::<()>::Crashed);
    assert_eq!(world.run(async {}), Ran::Crashed);
    assert_eq!(world.run_for(1), Ran::Crashed);
    let image = world.crash_as(Survival::Everything, &mut SplitMix(1));
    assert_eq!((image.names().len(), page(&image, "a", 0)), (1, vec![0; 8]));
}

#[test]
#[should_panic(expected = "is past")]
fn a_step_that_is_past_is_refused() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(create(&runtime, "a"));
    world.crash_at_step(1, Side::After);
}
