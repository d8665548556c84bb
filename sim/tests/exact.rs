//! A seed is exact: run again it does the same to the last event. So a failure can be replayed, and a small life can be
//! ended at each of its steps.

use runtime::sim::Side;
use sim::campaign;
use sim::scenario::{End, Plan, Summary};
use sim::workload::Focus;

fn run(plan: Plan) -> Summary {
    let slabs = sim::world::slabs();
    campaign::run_one(plan, &slabs, &|_| {}).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn seeds_replay_exactly() {
    let mut fingerprints = Vec::new();
    for seed in campaign::seeds(40) {
        let focus = Focus::ALL[seed as usize % Focus::ALL.len()];
        let plan = Plan { focus, ..Plan::new(seed) };
        let (first, second) = (run(plan), run(plan));
        assert_eq!(first, second, "seed {seed} ({focus:?}) differs from itself");
        fingerprints.push(first.fingerprint);
    }
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert!(fingerprints.len() > 35, "different seeds do different things");
}

/// From before format to after the last request, each durable write and flush is a step; a crash comes before and
/// after each.
#[test]
fn a_crash_at_every_step_of_a_small_life() {
    let mut steps = 0;
    for seed in campaign::seeds(6) {
        let focus = [Focus::Any, Focus::CrossGroup, Focus::DurableWrites][seed as usize % 3];
        let whole = run(Plan { seed, focus, once: Some(End::Quiet) });
        steps += whole.steps;
        for step in 1..=whole.steps {
            for side in [Side::Before, Side::After] {
                run(Plan { seed, focus, once: Some(End::Step(step, side)) });
            }
        }
    }
    assert!(steps > 100, "only {steps} steps");
}
