//! Three to five replicas of one group, under a seed: clocks that differ, logs that take their time or hang, connections that are cut
//! and come again, processes that are killed. Nothing ticks in an order; bricks ask each other for support every 400 ms.
//! What must hold is looked at in every step (`checks.rs`, `World::look`).

mod checks;
mod disk;
mod faults;
mod host;
mod network;
mod random;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use world::Figures;

/// Seeds of a usual run; `SINTER_SEEDS` says otherwise.
const SEEDS: u64 = 200;

fn seeds(usual: u64) -> u64 {
    std::env::var("SINTER_SEEDS").map_or(usual, |seeds| seeds.parse().expect("a number of seeds"))
}

fn run(seed: u64) -> Result<Figures, String> {
    catch_unwind(AssertUnwindSafe(|| faults::run(seed))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or(panic.downcast_ref::<&str>().map(|text| text.to_string()));
        format!("seed {seed}: {}", text.unwrap_or_default())
    })
}

#[test]
fn replicas_agree_whatever_goes_wrong_and_nothing_ticks() {
    let mut sum = Figures::default();
    for seed in std::env::var("SINTER_SEED").map_or(0, |s| s.parse().unwrap())..seeds(SEEDS) {
        let figures = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        sum.steps += figures.steps;
        sum.committed += figures.committed;
        sum.terms += figures.terms;
        sum.starts += figures.starts;
        sum.leases_looked_at += figures.leases_looked_at;
        sum.messages += figures.messages;
        sum.transfers += figures.transfers;
    }
    println!("{sum:?}");
}
