//! Reserved room of files (fallocate, rule K5): ranges of blocks, with the number of blocks of each that are not mapped
//! yet. Records say what is reserved. A checkpoint counts how much of it is mapped, in its own batch, so the counts are
//! exact as of it. The rest counts as used.

use crate::format::leaf::{Leaf, Slot};
use crate::format::{keys, values};
use crate::index::Index;
use crate::space::purge::Purges;
use base::limits::BLOCKS_PER_LEAF;
use base::{GroupId, Ino, Result, VolumeId};
use std::collections::BTreeMap;
use std::ops::Range;

pub use crate::format::reserve::{Extent, Reserve};

/// Index rows per scan.
const SCAN_ROWS: usize = 256;

/// The blocks reserved for the files of one group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserves {
    /// Reservations by file.
    pub files: BTreeMap<(VolumeId, Ino), Reserve>,
}

impl Reserves {
    /// Reads a group's reserves. `volumes`: those that the catalogue has.
    pub fn read(index: &dyn Index, group: GroupId, volumes: &[VolumeId]) -> Result<Reserves> {
        let mut reserves = Reserves::default();
        for &volume in volumes {
            let (from, to) = keys::reserves(group, volume);
            for (key, value) in index.scan(&from, &to, usize::MAX)? {
                reserves.files.insert((volume, keys::first_ino(&key)), values::decode_reserve(&value)?);
            }
        }
        Ok(reserves)
    }
    /// True if a block was promised to a file.
    pub fn holds(&self, volume: VolumeId, ino: Ino, block: u64) -> bool {
        self.files.get(&(volume, ino)).is_some_and(|reserve| reserve.holds(block))
    }
    /// A file of a project is promised a range of blocks.
    pub(crate) fn add(&mut self, file: (VolumeId, Ino), project: u32, range: Range<u64>) {
        let reserve = self.files.entry(file).or_default();
        reserve.project = project;
        reserve.add(range);
    }
    /// A file is of another project; how many blocks of its promises count for the new one.
    pub(crate) fn give(&mut self, file: (VolumeId, Ino), project: u32) -> u64 {
        let Some(reserve) = self.files.get_mut(&file) else { return 0 };
        reserve.project = project;
        reserve.left()
    }
    /// A file's blocks of a range are gone.
    pub(crate) fn cut(&mut self, file: (VolumeId, Ino), range: &Range<u64>) {
        if let Some(reserve) = self.files.get_mut(&file) {
            reserve.cut(range);
        }
    }
}

/// The leaves of a file as a checkpoint leaves those that it has touched: before, and after.
pub(crate) trait Leaves {
    /// None: it has not touched this one. No leaf before: it said nothing.
    fn touched(&self, leaf: u64) -> Option<(Option<&Leaf>, &Leaf)>;
    /// Numbers of those that it has touched.
    fn all(&self) -> Vec<u64>;
}

/// Brings one file's counts up to date.
pub(crate) fn count(
    index: &dyn Index,
    purges: &Purges,
    (volume, ino): (VolumeId, Ino),
    reserve: &mut Reserve,
    leaves: &impl Leaves,
) -> Result<()> {
    for number in leaves.all() {
        let (before, after) = leaves.touched(number).expect("one of those touched");
        for (slot, _) in after.iter().filter(|(_, slot)| matches!(slot, Slot::Local { .. })) {
            if !matches!(before.and_then(|before| before.get(slot)), Some(Slot::Local { .. })) {
                reserve.note_mapped(number * BLOCKS_PER_LEAF as u64 + slot as u64);
            }
        }
    }
    for extent in reserve.extents.iter_mut().filter(|extent| extent.left.is_none()) {
        let mut mapped =
            mapped(index, purges, (volume, ino), extent.first..extent.end, |leaf| leaves.touched(leaf).is_none())?;
        for number in leaves.all() {
            let (_, after) = leaves.touched(number).expect("one of those touched");
            mapped += mapped_of(after, number, &(extent.first..extent.end));
        }
        extent.left = Some(extent.end - extent.first - mapped);
    }
    reserve.extents.retain(|extent| extent.left != Some(0));
    Ok(())
}

/// Mapped blocks of a range, as the index has them, in those leaves that `counts`.
pub(crate) fn mapped(
    index: &dyn Index,
    purges: &Purges,
    (volume, ino): (VolumeId, Ino),
    range: Range<u64>,
    counts: impl Fn(u64) -> bool,
) -> Result<u64> {
    let leaf_of = |block: u64| block / BLOCKS_PER_LEAF as u64;
    let (mut from, to) = keys::leaves_within(volume, ino, &(leaf_of(range.start)..leaf_of(range.end - 1) + 1));
    let mut mapped = 0;
    loop {
        let rows = index.scan(&from, &to, SCAN_ROWS)?;
        for (key, value) in &rows {
            let (at, leaf) = (keys::leaf_of(key), Leaf::decode(value)?);
            if counts(at.leaf) && leaf.trim >= purges.trim_of(volume, at) {
                mapped += mapped_of(&leaf, at.leaf, &range);
            }
        }
        match rows.last() {
            Some((key, _)) if rows.len() == SCAN_ROWS => from = keys::after(key),
            _ => return Ok(mapped),
        }
    }
}

/// Mapped blocks of a leaf that lie in a range.
fn mapped_of(leaf: &Leaf, number: u64, range: &Range<u64>) -> u64 {
    let first = number * BLOCKS_PER_LEAF as u64;
    let local =
        |(slot, value): &(usize, Slot)| range.contains(&(first + *slot as u64)) && matches!(value, Slot::Local { .. });
    leaf.iter().filter(local).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(reserve: &Reserve) -> Vec<(u64, u64, Option<u64>)> {
        reserve.extents.iter().map(|extent| (extent.first, extent.end, extent.left)).collect()
    }

    #[test]
    fn promises_are_not_counted_twice_and_go_with_what_is_cut() {
        let mut reserve = Reserve::default();
        assert!(!reserve.holds(0), "nothing was promised");
        reserve.add(10..20);
        reserve.add(30..40);
        let held: Vec<_> = (0..50).filter(|block| reserve.holds(*block)).collect();
        assert_eq!(held, (10..20).chain(30..40).collect::<Vec<_>>());
        reserve.extents.iter_mut().for_each(|extent| extent.left = Some(5));
        reserve.add(0..50);
        let counted = Some(5);
        let all = [(0, 10, None), (10, 20, counted), (20, 30, None), (30, 40, counted), (40, 50, None)];
        assert_eq!(ranges(&reserve), all);
        for again in [12..18, 10..20, 0..50] {
            reserve.add(again);
            assert_eq!(ranges(&reserve), all);
        }
        reserve.note_mapped(12);
        reserve.note_mapped(25);
        assert_eq!(reserve.left(), 9);
        let held: Vec<_> = [0, 9, 10, 49, 50].into_iter().filter(|block| reserve.holds(*block)).collect();
        assert_eq!(held, [0, 9, 10, 49]);
        reserve.cut(&(35..u64::MAX));
        assert_eq!(ranges(&reserve), [(0, 10, None), (10, 20, Some(4)), (20, 30, None), (30, 35, None)]);
        reserve.cut(&(20..u64::MAX));
        assert_eq!(ranges(&reserve), [(0, 10, None), (10, 20, Some(4))]);
        reserve.cut(&(12..13));
        assert_eq!(ranges(&reserve), [(0, 10, None), (10, 12, None), (13, 20, None)]);
        reserve.cut(&(5..15));
        assert_eq!(ranges(&reserve), [(0, 5, None), (15, 20, None)]);
        reserve.cut(&(0..u64::MAX));
        assert_eq!(ranges(&reserve), []);
    }
}
