//! The pacer against clients of several kinds.

use super::core::{Clients, Pacer, TURN_NS};
use super::{Bad, Why};
use base::{Ino, Life, Place, SegmentId, VolumeId};
use runtime::random::SplitMix;

/// Duration of a slice on an idle device.
const SLICE_NS: u64 = 200_000;

/// Clients that send a request every `every_ns` (0: none), which takes `alone_ns`, and so many percent more in a turn in
/// which the scrub works all the time.
struct Plant {
    every_ns: u64,
    alone_ns: u64,
    more_percent: u64,
    rng: SplitMix,
}

/// Runs the pacer. Returns, for each second, the share at its end in thousandths, and the slices read.
fn run(mut plant: Plant, seconds: u64) -> Vec<(u64, u64)> {
    let (mut now_ns, mut clients, mut owed_ns) = (0, Clients::default(), 0);
    let mut pacer = Pacer::new(now_ns, clients);
    let mut seen = Vec::new();
    for second in 1..=seconds {
        let mut slices = 0;
        while now_ns < second * 1_000_000_000 {
            let pause_ns = pacer.pause_ns(now_ns, SLICE_NS, clients);
            assert!(pause_ns <= TURN_NS.max(200 * SLICE_NS), "it goes on: {pause_ns}");
            // Of this step the device serves the scrub for one slice.
            let step_ns = SLICE_NS + pause_ns;
            now_ns += step_ns;
            slices += 1;
            owed_ns += step_ns;
            if let Some(came) = owed_ns.checked_div(plant.every_ns) {
                owed_ns %= plant.every_ns;
                let busy_percent = plant.more_percent * SLICE_NS / step_ns;
                let mean_ns = plant.alone_ns + plant.alone_ns * busy_percent / 100;
                // Means of real requests scatter by some percent.
                let chance = mean_ns * plant.rng.below(60) / 1000;
                clients.count += came;
                clients.sum_ns += came * (mean_ns + chance);
            }
        }
        seen.push((pacer.share(), slices));
    }
    seen
}

fn plant(every_ns: u64, more_percent: u64) -> Plant {
    Plant { every_ns, alone_ns: 500_000, more_percent, rng: SplitMix(7) }
}

#[test]
fn a_rest_ends_after_one_turn() {
    let nobody = Clients::default();
    let mut pacer = Pacer::new(0, nobody);
    assert_eq!(pacer.pause_ns(TURN_NS - 1, SLICE_NS, nobody), 1);
    // It begins with a twentieth of the time.
    assert_eq!(pacer.pause_ns(TURN_NS, SLICE_NS, nobody), 19 * SLICE_NS);
}

#[test]
fn alone_it_soon_works_all_the_time() {
    let seen = run(plant(0, 0), 10);
    assert_eq!(seen[9].0, 1000);
    assert!(seen[9].1 >= 4_500, "{seen:?}");
}

#[test]
fn clients_that_it_does_not_harm_do_not_hold_it() {
    let seen = run(plant(50_000, 0), 20);
    // Half of its time goes into looking what requests take without it.
    assert!(seen[19].0 >= 900 && seen[19].1 >= 2_000, "{seen:?}");
}

#[test]
fn clients_that_it_harms_come_first_and_it_goes_on() {
    let seen = run(plant(50_000, 300), 30);
    let worst = seen[5..].iter().map(|(share, _)| *share).max().expect("seconds");
    assert!(worst <= 150, "a request takes at most a tenth longer, or the share is halved: {seen:?}");
    assert!(seen.iter().all(|(_, slices)| *slices >= 5), "it starves in no second: {seen:?}");
}

#[test]
fn few_requests_get_half_of_the_time() {
    let seen = run(plant(30_000_000, 300), 10);
    assert!(seen.iter().all(|(share, _)| *share <= 500), "{seen:?}");
    assert!(seen[9].1 >= 500, "{seen:?}");
}

#[test]
fn only_what_follows_in_segment_and_file_is_one_finding() {
    let place = |block| Place { segment: SegmentId(3), block };
    let (volume, ino, why) = (VolumeId(1), Ino(9), Why::Differs);
    let bad = Bad { place: place(5), life: Life(2), blocks: 3, volume, ino, offset: 70, why };
    let next = Bad { place: place(8), offset: 73, ..bad };
    assert!(bad.goes_on_with(&next));
    for apart in [
        Bad { place: place(9), ..next },
        Bad { offset: 74, ..next },
        Bad { place: Place { segment: SegmentId(4), block: 8 }, ..next },
        Bad { life: Life(3), ..next },
        Bad { ino: Ino(10), ..next },
        Bad { why: Why::Unreadable, ..next },
    ] {
        assert!(!bad.goes_on_with(&apart), "{apart:?}");
    }
    for (block, told) in [(4, false), (5, true), (7, true), (8, false)] {
        assert_eq!(bad.covers(&Bad { place: place(block), blocks: 1, ..bad }), told, "{block}");
    }
}
