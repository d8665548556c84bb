//! The room that one file was promised before it is written, as its row in the index says it (rule K5).

use std::ops::Range;

/// A range of blocks that a file was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first block.
    pub first: u64,
    /// The block after the last.
    pub end: u64,
    /// Blocks of it that are not mapped; None until the checkpoint that takes the promise has counted them.
    pub left: Option<u64>,
}

/// The blocks reserved for one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reserve {
    /// The project for which they count.
    pub project: u32,
    /// Rising, none overlaps another.
    pub extents: Vec<Extent>,
}

impl Reserve {
    /// Blocks that are not mapped yet.
    pub fn left(&self) -> u64 {
        self.extents.iter().filter_map(|extent| extent.left).sum()
    }
    /// True if a block was promised.
    pub fn holds(&self, block: u64) -> bool {
        let after = self.extents.partition_point(|extent| extent.first <= block);
        after > 0 && block < self.extents[after - 1].end
    }
    /// One more promise: those blocks of it that were not promised before.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let mut first = range.start;
        let mut more = Vec::new();
        for extent in self.extents.iter().filter(|extent| extent.end > range.start && extent.first < range.end) {
            if first < extent.first {
                more.push(Extent { first, end: extent.first, left: None });
            }
            first = extent.end;
        }
        if first < range.end {
            more.push(Extent { first, end: range.end, left: None });
        }
        self.extents.extend(more);
        self.extents.sort_unstable_by_key(|extent| extent.first);
    }
    /// Blocks of a range are promised no more.
    pub(crate) fn cut(&mut self, range: &Range<u64>) {
        let kept = |extent: Extent| {
            if extent.end <= range.start || range.end <= extent.first {
                return [Some(extent), None];
            }
            let piece = |first, end| (first < end).then_some(Extent { first, end, left: None });
            [piece(extent.first, range.start), piece(range.end, extent.end)]
        };
        self.extents = std::mem::take(&mut self.extents).into_iter().flat_map(kept).flatten().collect();
    }
    /// A block that was not mapped before is now.
    pub(crate) fn note_mapped(&mut self, block: u64) {
        let holds = |extent: &&mut Extent| (extent.first..extent.end).contains(&block);
        if let Some(left) = self.extents.iter_mut().find(holds).and_then(|extent| extent.left.as_mut()) {
            *left = left.saturating_sub(1);
        }
    }
}
