//! Reads live bitmaps from the index: those of segments on disks are not in memory unless somebody holds them (`segments::bitmaps`,
//! decision 0066). Promises: what is held is as exact as what stays in memory; what the index says of a segment can be true.

use crate::Store;
use crate::format::keys;
use crate::format::summary::SummaryEntry;
use crate::format::values::{self, SegmentRow};
use crate::index::Index;
use base::{Error, Kind, Life, Result, SegmentId};
use runtime::tasks;
use std::sync::Arc;

/// The index's rows of segments, which come in ascending order.
fn read(
    index: &dyn Index,
    segments: &[SegmentId],
    can_be: impl Fn(SegmentId, &SegmentRow) -> Result<()>,
) -> Result<Vec<SegmentRow>> {
    let keys: Vec<_> = segments.iter().map(|&segment| keys::segment(segment)).collect();
    let values = index.get_many(&keys)?;
    assert!(values.len() == segments.len(), "the index answers for each key");
    let row = |(&segment, value): (&SegmentId, Option<Vec<u8>>)| {
        let none = || {
            let what = "the index has no row of a segment with live blocks";
            Error::new(Kind::Corrupt, what)
                .with(format!("segment {segment}; stop the brick, then `sinter check --repair`"))
        };
        let row = values::decode_segment(&value.ok_or_else(none)?)?;
        can_be(segment, &row)?;
        Ok(row)
    };
    segments.iter().zip(values).map(row).collect()
}

/// The bitmap of a row that was read while nobody held it: the segment may have been freed and taken again meanwhile.
fn in_life(row: SegmentRow, life: Life) -> Option<Vec<u64>> {
    (row.life == life).then_some(row.live)
}

/// Keeps a segment's bitmap in memory, and as exact as if it were of flash, until it is dropped.
pub struct Hold {
    store: Arc<Store>,
    segment: SegmentId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.store.table.lock().release(self.segment);
    }
}

impl Store {
    /// The blocks of `live_of` for who moves them: `is_live_block` can tell of them while the `Hold` lives. Errors: as `live_of`.
    pub async fn hold_live_of(
        self: &Arc<Store>,
        (segment, life): (SegmentId, Life),
    ) -> Result<(Vec<SummaryEntry>, Option<Hold>)> {
        let hold = self.hold_bitmap(segment).await?;
        Ok((self.live_of((segment, life)).await?, hold))
    }
    /// Has a segment's bitmap in memory while the `Hold` lives; None for flash, whose bitmaps always are. Errors: `Corrupt`, `Io`.
    async fn hold_bitmap(self: &Arc<Store>, segment: SegmentId) -> Result<Option<Hold>> {
        let must_load = {
            let mut table = self.table.lock();
            if table.disk_slot(segment).is_none() {
                return Ok(None);
            }
            table.hold(segment)
        };
        let hold = Hold { store: self.clone(), segment };
        if must_load {
            let row = self.indexed_row(segment).await?;
            self.table.lock().note_loaded(segment, row.live);
        }
        Ok(Some(hold))
    }
    /// The bitmap of a segment in one of its lives, as of the last checkpoint; None if it is in another life. Errors: `Corrupt`,
    /// `Io`.
    pub(crate) async fn bitmap_of(&self, (segment, life): (SegmentId, Life)) -> Result<Option<Vec<u64>>> {
        match self.known_bitmap((segment, life)) {
            Some(known) => Ok(known),
            None => Ok(in_life(self.indexed_row(segment).await?, life)),
        }
    }
    /// The same. Blocks.
    pub(crate) fn bitmap_now(&self, (segment, life): (SegmentId, Life)) -> Result<Option<Vec<u64>>> {
        match self.known_bitmap((segment, life)) {
            Some(known) => Ok(known),
            None => Ok(in_life(self.indexed_rows(&[segment])?.remove(0), life)),
        }
    }
    /// None if the index must be asked.
    fn known_bitmap(&self, (segment, life): (SegmentId, Life)) -> Option<Option<Vec<u64>>> {
        let table = self.table.lock();
        match table.row(segment).is_some_and(|row| row.life == life) {
            true => table.bitmap(segment).map(|live| Some(live.to_vec())),
            false => Some(None),
        }
    }
    /// The rows of segments, in their order, as the index has them. Blocks. Errors: `Corrupt` if there is none, `Io`.
    pub(crate) fn indexed_rows(&self, segments: &[SegmentId]) -> Result<Vec<SegmentRow>> {
        let bounds = self.bounds();
        read(&*self.index, segments, |segment, row| bounds.segment(segment, row))
    }
    async fn indexed_row(&self, segment: SegmentId) -> Result<SegmentRow> {
        let (index, bounds) = (self.index.clone(), self.bounds());
        let read = move || Ok(read(&*index, &[segment], |segment, row| bounds.segment(segment, row))?.remove(0));
        tasks::run_background(&*self.runtime.tasks, read).await
    }
}
