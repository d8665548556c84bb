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
    for seed in 0..seeds(SEEDS) {
        let figures = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        sum.steps += figures.steps;
        sum.committed += figures.committed;
        sum.terms += figures.terms;
        sum.starts += figures.starts;
        sum.leases_looked_at += figures.leases_looked_at;
        sum.messages += figures.messages;
        sum.transfers += figures.transfers;
        sum.came_back += figures.came_back;
    }
    println!("{sum:?}");
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
}

#[cfg(feature = "seeded-bugs")]
mod bugs {
    use base::seeded::{self, Bug};

    /// Seeds within which a bug must have been caught.
    const SEEDS_MAX: u64 = 2000;

    fn caught(bug: Bug) {
        seeded::set(Some(bug));
        let failed = (0..SEEDS_MAX).find_map(|seed| super::run(seed).err());
        seeded::set(None);
        let failed = failed.unwrap_or_else(|| panic!("{bug:?} went unnoticed for {SEEDS_MAX} seeds"));
        println!("{bug:?}: {failed}");
    }

    #[test]
    fn a_vote_before_its_record() {
        caught(Bug::VoteBeforeDurable);
    }

    #[test]
    fn a_vote_against_who_is_supported() {
        caught(Bug::VoteAgainstSupported);
    }

    #[test]
    fn a_vote_right_after_a_start() {
        caught(Bug::VoteAfterStart);
    }

    #[test]
    fn a_bond_that_ends_with_its_term() {
        caught(Bug::BondEndsWithTerm);
    }

    #[test]
    fn a_lease_of_whatever_spell() {
        caught(Bug::AnySpellCounts);
    }

    #[test]
    fn a_lease_that_outlives_support() {
        caught(Bug::LeaseOutlivesSupport);
    }

    #[test]
    fn a_lease_that_begins_with_the_answer() {
        caught(Bug::LeaseFromAnswer);
    }

    #[test]
    fn a_lease_that_is_kept_in_a_transfer() {
        caught(Bug::LeaseKeptInTransfer);
    }

    #[test]
    fn support_of_who_hears_nothing() {
        caught(Bug::SupportOneWay);
    }

    #[test]
    fn a_hung_disk_that_leads() {
        caught(Bug::HungDiskAsks);
    }

    #[test]
    fn own_records_that_count_early() {
        caught(Bug::OwnRecordsBelieved);
    }

    #[test]
    fn an_acknowledgement_before_its_records() {
        caught(Bug::AckBeforeRecords);
    }

    #[test]
    fn a_commit_that_one_replica_has() {
        caught(Bug::CommitUncounted);
    }

    #[test]
    fn an_old_read_in_a_new_term() {
        caught(Bug::OldReadBelieved);
    }
}
