//! The memory of the segment table: what the allocator has given for segments of disks, all of them partly live.

use base::{Life, Place, SegmentId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use store::format::Uuid;
use store::format::devices::{DeviceId, DeviceRow, DeviceTable, State, Tier};
use store::format::segment::Stream;
use store::format::values::{SegmentRow, SegmentState};
use store::segments::{Resident, Staged, Table};

thread_local! {
    /// Bytes that this thread has taken.
    static TAKEN: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    // A thread that is ending has no counts any more.
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + bytes));
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    ((TAKEN.get() - before) as u64).div_ceil(u64::from(DISK))
}

#[test]
fn a_segment_of_a_disk_takes_at_most_64_bytes_whatever_lives_in_it() {
    let mut devices = DeviceTable::of_one(Uuid::default(), FLASH);
    devices.rows.push(device(2, Tier::Disk, FLASH, DISK / 2));
    let before = TAKEN.get();
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
    let taken = TAKEN.get();
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
    assert_eq!(TAKEN.get(), taken);
    // All of them free: in sets, in the order in which disks are emptied, which is any.
    for step in 0..7 {
        for number in disk.clone().filter(|number| number % 7 == step) {
            table.restore(SegmentId(number), row(SegmentState::Free, number, Vec::new()));
        }
    }
    let freed = per_segment(before);
    assert!((1..=BYTES_MAX).contains(&freed), "{freed}");
}
