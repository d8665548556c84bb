//! Bugs from the list (`base::seeded`) that the tests of this suite notice: each of them fails while its bug is on.
//! `docs/evidence.md` has the rules that they stand for.

use crate::{
    ahead, charged, concurrent, copies, durable, failure, forgotten, kept, listing, promises, random, restart,
    sessions, space, sparse, streams, tiers, trips, twice, volumes, waits,
};
use runtime::seeded::{Bug, fails};

/// Bugs, each with the test that fails with it.
const NOTICED: [(Bug, fn()); 45] = [
    (Bug::FeatureUnmarked, volumes::limits_are_there_as_a_whole_or_not_at_all_and_never_unmarked),
    (Bug::FeatureUnmarked, volumes::layers_are_there_as_a_whole_or_not_at_all_and_never_unmarked),
    (Bug::InoReused, restart::numbers_given_out_before_a_crash_are_not_given_out_again),
    (Bug::NumbersFromDurable, restart::numbers_that_a_crash_took_back_are_not_given_out_again),
    (Bug::RecordNotReplayed, durable::what_was_synced_survives_and_the_rest_is_a_prefix),
    (Bug::BulkOrderedEarly, concurrent::overlapping_writes_and_reads_are_never_torn),
    (Bug::BulkUnflushed, durable::a_commit_keeps_large_writes_before_it),
    (Bug::FsyncUnheard, durable::fsync_of_what_is_durable_asks_nothing_of_the_device),
    (Bug::FailureForgotten, failure::a_failed_write_or_flush_ends_changes_until_a_restart),
    (Bug::CheckpointNeverDue, restart::checkpoints_come_by_themselves_and_keep_replay_short),
    (Bug::VolumeRowsKept, volumes::a_volume_goes_with_all_that_is_in_it),
    (Bug::BadRowReadAsNone, failure::a_damaged_index_row_is_its_files_error),
    (Bug::RefusedWhileBehind, space::a_brick_is_filled_and_emptied_again_and_again),
    (Bug::AdmittedBeyondUsable, space::a_brick_is_filled_and_emptied_again_and_again),
    (Bug::LadderFlat, space::a_brick_is_filled_and_emptied_again_and_again),
    (Bug::PromiseForgotten, promises::what_was_promised_can_be_written_on_a_full_brick_and_nobody_else_gets_it),
    (Bug::NamesNotCharged, charged::names_and_attributes_fill_a_volume),
    (Bug::OrphansKept, restart::what_was_open_without_a_name_is_purged_after_a_crash),
    (Bug::HoleKeepsBlocks, sparse::a_large_hole_is_freed_step_by_step_and_nothing_beside_it),
    (Bug::ChecksumIgnored, failure::damaged_blocks_are_errors_and_never_turn_into_data),
    (Bug::PayloadLetGo, durable::blocks_are_readable_while_their_write_is_under_way),
    (Bug::CookieReused, listing::who_stays_is_listed_once_whoever_comes_and_goes),
    (Bug::TrimKept, space::a_large_file_that_was_cut_is_freed_step_by_step),
    (Bug::SizeReplaced, random::random_operations_agree_with_a_plain_model),
    (Bug::EdgeForgotten, random::random_operations_agree_with_a_plain_model),
    (Bug::RangeFree, concurrent::neighbours_within_a_block_keep_their_bytes),
    (Bug::TailKept, random::random_operations_agree_with_a_plain_model),
    (Bug::XattrsReplaced, random::random_operations_agree_with_a_plain_model),
    (Bug::ResultForgotten, twice::a_second_delivery_repeats_the_answer_and_nothing_else),
    (Bug::ResultsCutByCount, twice::results_are_kept_until_the_client_has_them),
    (Bug::FsyncIgnoresTerm, sessions::a_change_that_a_crash_took_is_told_as_lost),
    (Bug::OrphansNotAwaited, sessions::clients_of_other_machines_keep_their_open_files_through_a_crash),
    (Bug::OpenUncounted, random::random_operations_agree_with_a_plain_model),
    (Bug::ForgetEndsEarly, forgotten::a_known_inode_stays_in_every_order_of_the_queues),
    (Bug::SessionsKept, sessions::nothing_is_left_of_a_session_that_is_over),
    (Bug::CallerForgotten, random::random_operations_agree_with_a_plain_model),
    (Bug::LoopUnchecked, concurrent::directories_moved_below_each_other_make_no_loop),
    (Bug::LookedUpOnce, failure::a_damaged_block_that_is_rewritten_while_it_is_read_is_looked_up_again),
    (Bug::AheadBelieved, ahead::what_was_read_ahead_counts_only_for_what_the_file_has_then),
    (Bug::CacheBelieved, kept::what_is_kept_counts_only_for_what_the_file_has),
    (Bug::HintUnread, tiers::pinned_blocks_stay_on_flash_when_others_go_down),
    (Bug::CopyEarly, copies::clients_have_what_the_file_has_whatever_becomes_of_copies),
    (Bug::UnitBelieved, streams::what_is_read_in_order_is_what_the_file_has_whatever_was_read_ahead),
    (Bug::WaitUnnamed, waits::every_wait_is_booked_on_a_stage_that_is_named_after_it),
    (Bug::YoungForEver, trips::what_is_younger_than_the_index_is_not_looked_for_there),
];

#[test]
fn each_bug_is_noticed_by_its_test() {
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
