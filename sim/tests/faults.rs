//! Devices that fail: whatever a client was told to be durable survives failed reads, writes and flushes, a host
//! without space, and slowness (rule U4).

use sim::campaign;
use sim::workload::Focus;

/// About 10 s on two cores.
const SEEDS: u64 = 500;

#[test]
fn promises_hold_while_the_device_fails() {
    let (total, failures) = campaign::run_many(campaign::seeds(SEEDS), Focus::Faults, 5);
    println!("{total:?}");
    let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", told.join("\n"));
    assert!(total.blamed > SEEDS, "the device has failed often: {total:?}");
}
