//! The memory of the segment table: what the allocator has given for segments of disks, all of them partly live.

use crate::counting::taken;
use base::{Life, Place, SegmentId};
use store::format::Uuid;
use store::format::devices::{DeviceId, DeviceRow, DeviceTable, State, Tier};
use store::format::segment::Stream;
use store::format::values::{SegmentRow, SegmentState};
use store::segments::{Resident, Staged, Table};

const FLASH: u32 = 1000;
const DISK: u32 = 400_000;
/// Words of the bitmap of a segment of 64 MiB.
const WORDS: usize = 256;
const BYTES_MAX: u64 = 64;

fn device(id: u32, tier: Tier, first: u32, segments: u32) -> DeviceRow {
    DeviceRow { id: DeviceId(id), tier, state: State::InUse, first, segments }
}

fn row(state: SegmentState, number: u32, live: Vec<u64>) -> SegmentRow {
    let (life, stream, opened) = (Life(3), Stream::Cold, u64::from(number) + 1);
    SegmentRow { state, life, stream, sequence: opened, opened, used: 9, live }
}

fn half_live(number: u32) -> Vec<u64> {
    vec![0x5555_5555_5555_5555 << (number % 2); WORDS]
}

fn per_segment(before: i64) -> u64 {
    ((taken().0 - before) as u64).div_ceil(u64::from(DISK))
}

#[test]
fn a_segment_of_a_disk_takes_at_most_64_bytes_whatever_lives_in_it() {
    let mut devices = DeviceTable::of_one(Uuid::default(), FLASH);
    devices.rows.push(device(2, Tier::Disk, FLASH, DISK / 2));
    let before = taken().0;
    let mut table = Table::new(&devices, Resident::Flash);
    // One that is added later takes no more than one that was there.
    table.add_device(device(3, Tier::Disk, FLASH + DISK / 2, DISK / 2));
    let disk = FLASH..FLASH + DISK;
    disk.clone().for_each(|number| table.restore(SegmentId(number), row(SegmentState::Free, number, Vec::new())));
    let free = per_segment(before);
    disk.clone().for_each(|number| {
        table.restore(SegmentId(number), row(SegmentState::Sealed, number, half_live(number)));
    });
    let live = per_segment(before);
    println!("{free} bytes for a free segment, {live} for a partly live one");
    assert!((1..=BYTES_MAX).contains(&live) && (1..=BYTES_MAX).contains(&free), "live {live}, free {free}");
    assert_eq!(table.totals(Tier::Disk).live_blocks, u64::from(DISK) * 32 * WORDS as u64);

    // Checkpoints that change them leave nothing behind.
    let kept = taken().0;
    for some in disk.clone().collect::<Vec<_>>().chunks(1000).take(20) {
        let mut staged = Staged::default();
        for &number in some {
            let place = Place { segment: SegmentId(number), block: (number % 2) as u16 };
            staged.load(place.segment, half_live(number));
            table.stage_dead(&mut staged, place).expect("it lives");
        }
        let rows = table.stage_rows(&staged).filter(|(_, row)| row.live.len() == WORDS).count();
        assert_eq!(rows, some.len(), "each row goes to the index with its bitmap");
        table.commit(staged);
    }
    assert_eq!(taken().0, kept);
    // All of them free: in sets, in the order in which disks are emptied, which is any.
    for step in 0..7 {
        for number in disk.clone().filter(|number| number % 7 == step) {
            table.restore(SegmentId(number), row(SegmentState::Free, number, Vec::new()));
        }
    }
    let freed = per_segment(before);
    assert!((1..=BYTES_MAX).contains(&freed), "{freed}");
}
