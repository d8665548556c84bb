//! Seeds of the day: whole bricks under clients, crashed again and again; every promise is checked on every image.

use sim::campaign;
use sim::workload::Focus;

/// About 60 s on two cores, with all checkers.
const SEEDS: u64 = 1000;

#[test]
fn every_promise_holds_for_the_seeds_of_the_day() {
    let seeds = campaign::seeds(SEEDS);
    let count = seeds.end - seeds.start;
    println!("seeds {seeds:?}");
    let (total, failures) = campaign::run_many(seeds, Focus::Any, 5);
    println!("{total:?}");
    let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", told.join("\n"));
    // What should happen does happen.
    assert!(total.images > count && total.lost > count && total.changes > count, "{total:?}");
}
