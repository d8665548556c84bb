//! Each seeded bug that a simulated crash can show is caught by the checks of every day's seeds, and the same seeds pass
//! without it.
#![cfg(feature = "seeded-bugs")]

use runtime::seeded::{self, Bug};
use sim::campaign;
use sim::scenario::Plan;
use sim::workload::Focus;

/// Seeds that may pass before a bug must have been caught: an unconditional move is caught by one in a hundred, a
/// reused tail and batches acknowledged out of order by one in two hundred, the others sooner.
const SEEDS_MAX: u64 = 2000;
/// Seeds that must pass without the bug after the one that caught it.
const SEEDS_CLEAN: u64 = 20;

fn caught(bug: Bug, focus: Focus) {
    let slabs = sim::world::slabs();
    let run = |seed| campaign::run_one(Plan { focus, ..Plan::new(seed) }, &slabs, &|_| {});
    let seeds = campaign::seeds(SEEDS_MAX);
    seeded::set(Some(bug));
    let failed = seeds.into_iter().find_map(|seed| run(seed).err());
    seeded::set(None);
    let failed = failed.unwrap_or_else(|| panic!("{bug:?} went unnoticed for {SEEDS_MAX} seeds"));
    println!("{bug:?}: {failed}");
    for seed in failed.plan.seed..failed.plan.seed + SEEDS_CLEAN {
        if let Err(failure) = run(seed) {
            panic!("without a bug: {failure}");
        }
    }
}

#[test]
fn fua_instead_of_a_flush_after_a_plain_batch() {
    caught(Bug::FuaAfterPlain, Focus::Any);
}

#[test]
fn a_batch_acknowledged_before_the_one_before_it() {
    caught(Bug::AckOutOfOrder, Focus::DurableWrites);
}

#[test]
fn a_tail_reused_after_recovery() {
    caught(Bug::TailReused, Focus::Any);
}

#[test]
fn records_in_the_index_before_they_are_durable() {
    caught(Bug::AppliedBeforeDurable, Focus::Any);
}

#[test]
fn a_checkpoint_that_is_dropped() {
    caught(Bug::CheckpointDropped, Focus::Any);
}

#[test]
fn an_intent_that_is_not_redone() {
    caught(Bug::IntentNotRedone, Focus::CrossGroup);
}

#[test]
fn an_answer_before_the_flush() {
    caught(Bug::AckBeforeFlush, Focus::Any);
}

#[test]
fn a_move_that_overwrites_what_came_after_the_copy() {
    caught(Bug::MoveUnconditional, Focus::Cleaner);
}

#[test]
fn segments_freed_before_the_checkpoint_is_durable() {
    caught(Bug::FreedBeforeCheckpoint, Focus::Cleaner);
}

#[test]
fn segments_discarded_before_the_checkpoint_is_durable() {
    caught(Bug::DiscardedBeforeCheckpoint, Focus::Cleaner);
}

#[test]
fn a_segment_that_is_freed_twice() {
    caught(Bug::FreedTwice, Focus::Cleaner);
}

#[test]
fn live_bitmaps_that_are_not_in_the_checkpoint() {
    caught(Bug::BitmapDropped, Focus::Cleaner);
}

#[test]
fn leaves_that_a_truncation_left_behind_are_read() {
    caught(Bug::StaleLeafRead, Focus::Cuts);
}

#[test]
fn what_is_left_to_free_is_forgotten() {
    caught(Bug::PurgeForgotten, Focus::Cuts);
}
