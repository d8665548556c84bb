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

/// Nothing of the process counts: neither where its memory lies nor what it drew for its hash tables.
#[test]
fn seeds_replay_exactly_in_another_process() {
    for focus in [Focus::Any, Focus::Cleaner] {
        let seed = campaign::seeds(1).start;
        let told = || {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sim"));
            command.args(["--seed", &seed.to_string(), "--focus", &format!("{focus:?}")]);
            let output = command.output().expect("the simulation's own program runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            String::from_utf8(output.stdout).expect("it writes text")
        };
        let (first, second) = (told(), told());
        assert!(first == second, "seed {seed} ({focus:?}) differs from itself in another process");
        let here = format!("{:?}", run(Plan { focus, ..Plan::new(seed) }));
        assert!(first.contains(&here), "seed {seed} ({focus:?}) differs in this process: {here}");
    }
}

/// Each durable write and flush, from before format to after the last request, is a step; a crash comes before and
/// after each.
#[test]
fn a_crash_at_every_step_of_a_small_life() {
    let mut steps = 0;
    for seed in campaign::seeds(6) {
        let focus = [Focus::Any, Focus::CrossGroup, Focus::DurableWrites][seed as usize % 3];
        let whole = run(Plan { focus, once: Some(End::Quiet), ..Plan::new(seed) });
        steps += whole.steps;
        for step in 1..=whole.steps {
            for side in [Side::Before, Side::After] {
                run(Plan { focus, once: Some(End::Step(step, side)), ..Plan::new(seed) });
            }
        }
    }
    assert!(steps > 100, "only {steps} steps");
}
