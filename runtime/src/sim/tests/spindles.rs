//! Devices that are hard disks.

use super::*;
use crate::sim::spindle::Counters;

const DISK_BYTES: u64 = 1 << 30;
const MS: u64 = 1_000_000;
/// The second device, beside one that is flash.
const DISK: &str = "device-2";

fn world(seed: u64, spindles: &[&str]) -> World {
    let spindles = spindles.iter().map(|name| (*name).to_string()).collect();
    let bytes = DISK_BYTES;
    World::with(Setup { device_bytes: Some(bytes), further_bytes: vec![bytes], spindles, ..Setup::new(seed) })
}

/// Simulated time that so many writes to a device take, each behind and after the one before.
fn appends_ns(world: &mut World, device: &str, pages: u64) -> u64 {
    let runtime = world.runtime();
    let began_ns = runtime.clock.now_ns();
    world.block_on(async {
        let device = runtime.disk.open(device, OpenMode::Existing).expect("it is there");
        for page in 0..pages {
            write(&runtime, device, page, 7, true).await;
        }
    });
    runtime.clock.now_ns() - began_ns
}

fn counters(world: &World) -> Counters {
    world.disk().spindle(DISK).expect("it is a spindle")
}

#[test]
fn a_device_is_a_hard_disk_if_its_world_says_so() {
    let mut flash = world(1, &[]);
    assert!([DEVICE, DISK].iter().all(|device| appends_ns(&mut flash, device, 50) < 50 * MS));
    assert_eq!(flash.disk().spindle(DISK), None);
    let mut both = world(1, &[DISK]);
    let took_ns = appends_ns(&mut both, DISK, 50);
    assert!((49 * 8 * MS..51 * 9 * MS).contains(&took_ns), "{took_ns}");
    assert!(appends_ns(&mut both, DEVICE, 50) < 50 * MS, "the other one stays flash");
    assert_eq!(both.disk().spindle(DEVICE), None);
    let counted = counters(&both);
    assert_eq!((counted.writes, counted.written_bytes, counted.reads), (50, 50 * 4096, 0));
}

#[test]
fn it_is_one_after_a_crash_too_and_keeps_what_was_durable() {
    let mut disk = world(2, &[DISK]);
    appends_ns(&mut disk, DISK, 3);
    let image = disk.crash_as(Survival::Nothing, &mut SplitMix(2));
    assert_eq!(page(&image, DISK, 2), [7; 8]);
    let mut next = World::from_image(3, image);
    assert!(appends_ns(&mut next, DISK, 10) > 70 * MS);
    assert_eq!(counters(&next).writes, 10);
}

/// Sixteen reads all over the disk at a time: what it took, what was counted, and the world's fingerprint.
fn scattered(seed: u64) -> (u64, Counters, u64) {
    let mut disk = world(seed, &[DISK]);
    let runtime = disk.runtime();
    disk.block_on(async {
        let device = runtime.disk.open(DISK, OpenMode::Existing).expect("it is there");
        let reads: Vec<Transfer> = (0..16)
            .map(|_| {
                let buffer = runtime.buffer(4096).expect("memory is left");
                let offset = runtime.random.next_u64() % (DISK_BYTES / 4096) * 4096;
                runtime.disk.submit(Request::Read { file: device, offset, buffer, start: crate::Start::AtOnce })
            })
            .collect();
        for read in reads {
            read.await.result.expect("no fault is planned");
        }
    });
    (counters(&disk).busy_ns, counters(&disk), disk.fingerprint())
}

#[test]
fn its_queue_is_served_in_the_order_of_the_shortest_way_and_the_same_by_each_seed() {
    for seed in 0..20 {
        let (took_ns, counted, _) = scattered(seed);
        assert_eq!(counted.reads, 16);
        // One by one they would take 16 times 12 ms.
        assert!((40 * MS..150 * MS).contains(&took_ns), "{took_ns}");
        assert_eq!(scattered(seed), scattered(seed));
    }
}

#[test]
fn its_faults_take_the_disks_time() {
    let took_ns = |faults: FaultPlan| {
        let mut disk = world(4, &[DISK]);
        disk.disk().set_faults(faults);
        appends_ns(&mut disk, DISK, 20)
    };
    let well_ns = took_ns(FaultPlan::default());
    let stalled_ns = took_ns(FaultPlan { stalls: Fail::Nth(5), ..FaultPlan::default() });
    assert!(stalled_ns.abs_diff(well_ns + 100 * MS) < 10 * MS, "{well_ns} {stalled_ns}");
    let slow_ns = took_ns(FaultPlan { slowness: 5, ..FaultPlan::default() });
    assert!(slow_ns > 4 * well_ns, "{well_ns} {slow_ns}");
}

#[test]
#[should_panic(expected = "a spindle is a device that is there")]
fn a_name_that_is_no_devices_is_a_mistake() {
    world(5, &["device-9"]);
}
