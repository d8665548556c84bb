//! Small bricks that are written over and over: crashes while the cleaner moves blocks and segments are freed and taken
//! again (rules K1-K3).

use sim::campaign;
use sim::workload::Focus;

/// About 30 s on two cores: lives are long, because bricks must fill.
const SEEDS: u64 = 250;

/// The same with disks below the flash.
const DESTAGE_SEEDS: u64 = 60;

#[test]
fn promises_hold_while_cold_blocks_go_down_to_disks() {
    let (total, failures) = campaign::run_many(campaign::seeds(DESTAGE_SEEDS), Focus::Destage, 5);
    println!("{total:?}");
    let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", told.join("\n"));
    assert!(total.destaged > 100 * DESTAGE_SEEDS, "blocks have gone down: {total:?}");
    assert!(total.unread > 5 * DESTAGE_SEEDS, "disks were missing, and back: {total:?}");
    assert!(total.removals.iter().all(|&count| count > 0), "disks were leaving, and left: {total:?}");
    assert!(total.flash_removals.iter().all(|&count| count > 0), "and flash: {total:?}");
}

#[test]
fn promises_hold_while_the_cleaner_works() {
    let (total, failures) = campaign::run_many(campaign::seeds(SEEDS), Focus::Cleaner, 5);
    println!("{total:?}");
    let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", told.join("\n"));
    assert!(total.moved > 100 * SEEDS, "the cleaner has worked: {total:?}");
    assert!(total.discarded > SEEDS, "freed segments of devices were discarded: {total:?}");
}
