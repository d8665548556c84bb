//! Bugs from the list (`base::seeded`) that the tests of this room notice: each of them fails while its bug is on.

use super::{cases, random, writes};
use base::seeded::{Bug, fails};

/// Bugs, each with the test that fails with it.
const NOTICED: [(Bug, fn()); 3] = [
    (Bug::TimeStandsStill, writes::extends_by_max_and_ticks),
    (Bug::TrimKept, cases::a_new_size_is_a_cut_and_the_rest_a_put),
    (Bug::PrivilegesKept, random::agrees_with_a_naive_file_system),
];

#[test]
fn each_bug_is_noticed_by_its_test() {
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
