//! Seeds of the day: whole bricks under clients, crashed again and again; every promise is checked on every image.

use sim::{campaign, scenario};

/// Two minutes on two cores: about 25 seeds, 180 images per second and core.
const SEEDS: u64 = 4000;

#[test]
fn every_promise_holds_for_the_seeds_of_the_day() {
    let seeds = campaign::seeds(SEEDS);
    let count = seeds.end - seeds.start;
    println!("seeds {seeds:?}");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (total, failures) = campaign::run_many(seeds, threads, 5, scenario::run);
    println!("{total:?}");
    let told: Vec<_> = failures.iter().map(campaign::replay).collect();
    assert!(failures.is_empty(), "{}", told.join("\n"));
    // What should happen does happen.
    assert!(total.images > count && total.lost > count && total.changes > count, "{total:?}");
}
