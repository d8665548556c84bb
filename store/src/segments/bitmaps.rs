//! Live bitmaps in memory. Those of flash always are: the log fills these segments and the cleaner asks for them all the time.
//! Those of disks are in the index, each in its segment's row, and in memory only while somebody needs them, for 20 TB of them
//! would take 600 MB; of each the table keeps the number of its live blocks. Promises: a bitmap that is held is exact as of the last
//! checkpoint, as one that stays is (rule K1). Absent by design: a cache. Who moves or compares blocks of a segment holds its
//! bitmap meanwhile (`checkpoint::held`), and a checkpoint loads what it changes (`checkpoint::bitmaps`).

use super::{Table, contradicts, ones};
use crate::format::values::{SegmentRow, is_live};
use base::{Life, Place, Result, SegmentId};

/// The bitmap of a segment on a disk, while somebody holds it.
#[derive(Default)]
pub(super) struct Held {
    holders: u32,
    /// None until it is loaded.
    live: Option<Vec<u64>>,
}

impl Table {
    /// The bitmap of a segment; None if it is not in memory.
    pub fn bitmap(&self, segment: SegmentId) -> Option<&[u64]> {
        let device = &self.devices[self.slot(segment)];
        let live = match &device.bitmaps {
            Some(all) => Some(&all[(segment.0 - device.row.first) as usize]),
            None => self.held.get(&segment).and_then(|held| held.live.as_ref()),
        };
        let none: &[u64] = &[];
        live.map(Vec::as_slice).or((self.live[segment.0 as usize] == 0).then_some(none))
    }
    /// True if a block of a segment's life was live at the last checkpoint (rule K1); None if only the index can tell, as of a
    /// block that the brick lacks.
    pub fn is_live_block(&self, place: Place, life: Life) -> Option<bool> {
        if place == Place::MISSING {
            return None;
        }
        if self.row(place.segment).is_none_or(|row| row.life != life) {
            return Some(false);
        }
        self.bitmap(place.segment).map(|live| is_live(live, place.block))
    }
    /// True if the bitmap of a segment stays in memory.
    pub(super) fn stays(&self, segment: SegmentId) -> bool {
        self.devices[self.slot(segment)].bitmaps.is_some()
    }
    /// A row with its bitmap, of a table that has all of them.
    pub fn whole_row(&self, segment: SegmentId) -> Option<SegmentRow> {
        let row = self.row(segment)?;
        Some(row.with(self.bitmap(segment).expect("check and repair read the table as a whole").to_vec()))
    }
    /// All rows with their bitmaps, of a table that has all of them.
    pub fn whole_rows(&self) -> impl Iterator<Item = (SegmentId, SegmentRow)> {
        (0..self.rows.len() as u32).map(SegmentId).filter_map(|segment| Some((segment, self.whole_row(segment)?)))
    }
    /// Takes over what a checkpoint or the index says of a segment's blocks.
    pub(super) fn set_bitmap(&mut self, segment: SegmentId, live: Vec<u64>) {
        self.set_live(segment, ones(&live));
        let slot = self.slot(segment);
        let device = &mut self.devices[slot];
        match &mut device.bitmaps {
            Some(all) => all[(segment.0 - device.row.first) as usize] = live,
            None => {
                if let Some(held) = self.held.get_mut(&segment) {
                    held.live = Some(live);
                }
            }
        }
    }
    /// Somebody needs a bitmap. True if it must be loaded; then a checkpoint that ends before has the last word.
    pub(crate) fn hold(&mut self, segment: SegmentId) -> bool {
        assert!(!self.stays(segment), "the bitmap of segment {segment} is in memory anyway");
        let live = self.bitmap(segment).map(<[u64]>::to_vec);
        let held = self.held.entry(segment).or_default();
        held.holders += 1;
        held.live = held.live.take().or(live);
        held.live.is_none()
    }
    /// Takes over the bitmap of a segment that is held, as the index had it.
    pub(crate) fn note_loaded(&mut self, segment: SegmentId, live: Vec<u64>) {
        let held = self.held.get_mut(&segment).expect("who loads a bitmap holds it");
        held.live.get_or_insert(live);
    }
    /// Somebody needs a bitmap no more.
    pub(crate) fn release(&mut self, segment: SegmentId) {
        let held = self.held.get_mut(&segment).expect("it is held");
        assert!(held.holders > 0, "who lets go of the bitmap of segment {segment} has held it");
        held.holders -= 1;
        if held.holders == 0 {
            self.held.remove(&segment);
        }
    }
}

/// A bitmap that a checkpoint has loaded must be the one that the last one counted. Errors: `Corrupt`.
pub(crate) fn compare(table: &Table, segment: SegmentId, loaded: &SegmentRow) -> Result<()> {
    let life = table.row(segment).map(|row| row.life);
    match life == Some(loaded.life) && ones(&loaded.live) == table.live(segment) {
        true => Ok(()),
        false => Err(contradicts("the index has another live bitmap of a segment than it had", segment)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Uuid;
    use crate::format::devices::{DeviceId, DeviceRow, DeviceTable, State, Tier};
    use crate::format::segment::Stream;
    use crate::format::values::SegmentState;
    use crate::segments::{Resident, Staged};

    const DISK: SegmentId = SegmentId(3);

    /// A table with a segment of a disk whose first three blocks live.
    fn table() -> Table {
        let mut devices = DeviceTable::of_one(Uuid::default(), 3);
        let disk = DeviceRow { id: DeviceId(2), tier: Tier::Disk, state: State::InUse, first: 3, segments: 2 };
        devices.rows.push(disk);
        let mut table = Table::new(&devices, Resident::Flash);
        table.restore(DISK, row(vec![7]));
        table
    }

    fn row(live: Vec<u64>) -> SegmentRow {
        let (state, life, stream) = (SegmentState::Sealed, Life(1), Stream::Cold);
        SegmentRow { state, life, stream, sequence: 1, opened: 1, used: 4, live }
    }

    fn asked(table: &Table, block: u16) -> Option<bool> {
        table.is_live_block(Place { segment: DISK, block }, Life(1))
    }

    /// A checkpoint in which a block of it dies.
    fn commit(table: &mut Table, live: Vec<u64>, block: u16) {
        let mut staged = Staged::default();
        if table.must_load(&mut staged, DISK) {
            staged.load(DISK, live);
        }
        table.stage_dead(&mut staged, Place { segment: DISK, block }).expect("it lives");
        table.commit(staged);
    }

    #[test]
    fn a_checkpoint_that_ends_while_a_bitmap_is_loaded_has_the_last_word() {
        let mut table = table();
        assert!(asked(&table, 0).is_none() && table.hold(DISK));
        commit(&mut table, vec![7], 1);
        table.note_loaded(DISK, vec![7]);
        assert_eq!([0, 1, 2].map(|block| asked(&table, block)), [Some(true), Some(false), Some(true)]);
        assert!(!table.hold(DISK), "it is known");
        table.release(DISK);
        commit(&mut table, vec![5], 0);
        assert_eq!([0, 1, 2].map(|block| asked(&table, block)), [Some(false), Some(false), Some(true)]);
        table.release(DISK);
        assert!(asked(&table, 2).is_none() && table.held.is_empty(), "nobody needs it any more");
    }

    #[test]
    fn who_lets_go_of_a_bitmap_takes_nothing_from_a_checkpoint() {
        let mut table = table();
        assert!(table.hold(DISK));
        table.note_loaded(DISK, vec![7]);
        let mut staged = Staged::default();
        assert!(!table.must_load(&mut staged, DISK), "memory has it");
        table.release(DISK);
        table.stage_dead(&mut staged, Place { segment: DISK, block: 2 }).expect("it lives");
        table.set_state(DISK, SegmentState::Sealed, 0);
        assert!(table.to_load(&staged).is_empty());
        let rows: Vec<_> = table.stage_rows(&staged).collect();
        assert_eq!(rows, [(DISK, row(vec![3]))]);
    }

    #[test]
    fn another_bitmap_than_was_counted_is_refused() {
        let table = table();
        assert!(compare(&table, DISK, &row(vec![7])).is_ok());
        let other_life = SegmentRow { life: Life(2), ..row(vec![7]) };
        for other in [row(vec![3]), row(Vec::new()), other_life] {
            let refused = compare(&table, DISK, &other).expect_err("it is not what was counted");
            assert_eq!(refused.kind, base::Kind::Corrupt);
        }
    }
}
