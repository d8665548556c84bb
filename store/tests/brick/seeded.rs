//! Bugs from the list (`base::seeded`) that the tests of this suite notice: each of them fails while its bug is on.
//! `docs/evidence.md` has the rules that they stand for.

use crate::{
    bitmaps, commit, damage, device, devices, grow, leaving, missing, pending, reread, space, summaries, votes,
};
use runtime::seeded::{Bug, fails};

/// Bugs, each with the test that fails with it.
const NOTICED: [(Bug, fn()); 25] = [
    (Bug::FrameOfAnotherLife, commit::crashes_one_after_the_other_keep_the_records_of_all_epochs),
    (Bug::EpochKept, commit::crashes_one_after_the_other_keep_the_records_of_all_epochs),
    (Bug::DamageTakenForTail, damage::damage_of_what_was_durable_is_refused_and_changes_nothing),
    (Bug::TornTailBelieved, damage::damage_above_the_last_durable_mark_is_a_torn_tail),
    (Bug::MarkNotCarried, commit::an_idle_log_says_once_that_all_is_durable_and_rests),
    (Bug::MarkLeftOut, damage::at_rest_the_last_batch_is_no_torn_tail_however_full_its_segment_is),
    (
        Bug::StartAndCheckDisagree,
        damage::a_rotten_header_of_a_bulk_segment_does_not_make_it_free_and_can_be_written_anew,
    ),
    (Bug::SummaryForgotten, summaries::maps_can_be_built_again_from_summaries_alone),
    (Bug::TicketForgotten, summaries::a_segment_is_not_sealed_before_its_payloads_are_ordered),
    (Bug::TimerForgotten, commit::what_nobody_synced_is_durable_within_a_second),
    (Bug::FeaturesIgnored, damage::a_newer_brick_is_refused_by_name),
    (Bug::DeviceCountedEarly, devices::a_crash_leaves_the_brick_with_the_device_or_without),
    (Bug::LogReadUnpinned, reread::what_was_ordered_is_read_again_in_order_and_once),
    (Bug::PendingFreed, pending::what_a_checkpoint_does_not_have_yet_keeps_its_blocks),
    (Bug::VoteForgotten, votes::what_was_promised_is_never_forgotten),
    (Bug::HeadersOneByOne, commit::records_that_belong_together_are_appended_all_or_none),
    (
        Bug::MissingBelieved,
        missing::blocks_whose_move_to_a_missing_disk_no_checkpoint_has_seen_are_read_where_they_were,
    ),
    (Bug::BitmapUnloaded, bitmaps::the_row_of_a_disks_segment_that_is_sealed_keeps_its_bitmap),
    (Bug::RemovedInUse, devices::a_disk_leaves_only_when_nothing_lies_on_it_and_the_others_have_room),
    (Bug::LeavingUnflushed, leaving::a_commit_keeps_what_lies_unflushed_on_flash_that_leaves),
    (Bug::DestageUnflushed, devices::what_goes_to_a_disk_is_there_after_a_crash_once_it_counts),
    (Bug::GrownBeforeRoom, grow::a_crash_leaves_the_old_size_or_the_new_one),
    (Bug::ZerosSkipped, space::the_commit_stream_uses_only_what_was_once_written),
    (Bug::FilesDiscarded, device::a_brick_in_a_directory_is_never_discarded),
    (Bug::PinIgnored, space::a_freed_segment_is_not_taken_again_beneath_a_reader),
];

#[test]
fn each_bug_is_noticed_by_its_test() {
    let missed: Vec<_> = NOTICED.iter().filter(|(bug, test)| !fails(*test, *bug)).map(|(bug, _)| bug).collect();
    assert!(missed.is_empty(), "went unnoticed: {missed:?}");
}
