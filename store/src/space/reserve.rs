//! Space that files have reserved (fallocate, rule K5): ranges of blocks, each with the number of its blocks that are
//! not mapped yet. These blocks count as used. Records say what is reserved; a checkpoint counts how much of it is
//! mapped and writes the counts in its own batch, so they are exact as of the checkpoint.

use crate::format::leaf::{Leaf, Slot};
use crate::format::{keys, values};
use crate::index::{self, Index};
use crate::space::purge::Purges;
use base::limits::BLOCKS_PER_LEAF;
use base::{GroupId, Ino, Result, VolumeId};
use std::collections::BTreeMap;
use std::ops::Range;

pub use crate::format::reserve::{Extent, Reserve};

/// The blocks reserved for the files of one group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserves {
    /// Reservations by file.
    pub files: BTreeMap<(VolumeId, Ino), Reserve>,
}

impl Reserves {
    /// Reads a group's reservations. `volumes`: the volumes of the catalogue.
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
    /// True if a block is reserved for a file.
    pub fn holds(&self, volume: VolumeId, ino: Ino, block: u64) -> bool {
        self.files.get(&(volume, ino)).is_some_and(|reserve| reserve.holds(block))
    }
    /// Reserves a range of blocks for a file of a project.
    pub(crate) fn add(&mut self, file: (VolumeId, Ino), project: u32, range: Range<u64>) {
        let reserve = self.files.entry(file).or_default();
        reserve.project = project;
        reserve.add(range);
    }
    /// Notes that a file now belongs to another project. Returns the number of its reserved blocks that are not mapped.
    pub(crate) fn give(&mut self, file: (VolumeId, Ino), project: u32) -> u64 {
        let Some(reserve) = self.files.get_mut(&file) else { return 0 };
        reserve.project = project;
        reserve.left()
    }
    /// Ends the reservation of a range of a file's blocks, which were cut.
    pub(crate) fn cut(&mut self, file: (VolumeId, Ino), range: &Range<u64>) {
        if let Some(reserve) = self.files.get_mut(&file) {
            reserve.cut(range);
        }
    }
}

/// The leaves of a file that a checkpoint has touched.
pub(crate) trait Leaves {
    /// The content of a leaf before and after the checkpoint; None if the checkpoint has not touched it. The content
    /// before is None if the leaf was stale.
    fn touched(&self, leaf: u64) -> Option<(Option<&Leaf>, &Leaf)>;
    /// Numbers of all leaves that the checkpoint has touched.
    fn all(&self) -> Vec<u64>;
}

/// Updates the counts of one file's reservations.
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

/// Number of mapped blocks of a range in the index, in those leaves for which `counts` is true.
pub(crate) fn mapped(
    index: &dyn Index,
    purges: &Purges,
    (volume, ino): (VolumeId, Ino),
    range: Range<u64>,
    counts: impl Fn(u64) -> bool,
) -> Result<u64> {
    let leaf_of = |block: u64| block / BLOCKS_PER_LEAF as u64;
    let leaves = leaf_of(range.start)..leaf_of(range.end - 1) + 1;
    let mut mapped = 0;
    index::each(index, keys::leaves_within(volume, ino, &leaves), |key, value| {
        let (at, leaf) = (keys::leaf_of(key), Leaf::decode(value)?);
        if counts(at.leaf) && leaf.trim >= purges.trim_of(volume, at) {
            mapped += mapped_of(&leaf, at.leaf, &range);
        }
        Ok(())
    })?;
    Ok(mapped)
}

/// Number of mapped blocks of a leaf that lie in a range.
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
