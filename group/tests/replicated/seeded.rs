//! Bugs from the list (`base::seeded`) that the tests of this suite notice: each of them fails while its bug is on.
//! `docs/evidence.md` has the rules that they stand for.

use crate::{
    a_deposed_leader_drops_what_was_not_committed,
    a_follower_gets_all_since_it_left_although_the_others_were_started_again,
    a_leader_without_its_lease_answers_no_read, disks, heals, several,
};
use runtime::seeded::{Bug, fails};

/// Bugs, each with the test that fails with it.
const NOTICED: [(Bug, fn()); 14] = [
    (Bug::CommitUnawaited, a_deposed_leader_drops_what_was_not_committed),
    (Bug::LeaseUnasked, a_leader_without_its_lease_answers_no_read),
    (Bug::ReadUncommitted, a_deposed_leader_drops_what_was_not_committed),
    (Bug::VoidKept, a_deposed_leader_drops_what_was_not_committed),
    (Bug::HungDiskLeads, disks::a_brick_whose_disk_hangs_leads_no_longer),
    (Bug::EndNotKept, a_follower_gets_all_since_it_left_although_the_others_were_started_again),
    (Bug::UncommittedCheckpoint, a_deposed_leader_drops_what_was_not_committed),
    (Bug::StaleBlocksKept, heals::a_follower_that_lacks_what_is_no_longer_kept_heals),
    (Bug::HealEndsEarly, heals::a_follower_that_lacks_what_is_no_longer_kept_heals),
    (Bug::HoldUncommitted, several::each_step_waits_for_the_commit_of_the_one_before),
    (Bug::PartBeforeDecision, several::each_step_waits_for_the_commit_of_the_one_before),
    (Bug::HoldIgnored, several::changes_of_several_groups_survive_everything),
    (Bug::PartTwice, several::a_part_is_taken_once),
    (Bug::FateGuessed, several::only_who_leads_tells_what_becomes_of_a_change),
];

#[test]
fn each_bug_is_noticed_by_its_test() {
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
