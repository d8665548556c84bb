//! The cuts that a generation of the overlay has made in one file: they hide these blocks in older generations and in
//! the index.

use std::collections::BTreeMap;
use std::ops::Range;

/// The cuts of one file; see the module.
#[derive(Clone, Default, Debug)]
pub struct Cuts {
    /// The file's project.
    pub project: u32,
    /// The trim number of the latest cut: blocks that the generation maps are newer than all cuts.
    pub trim: u64,
    /// Ends of ranges by first block; no two ranges touch.
    ranges: BTreeMap<u64, u64>,
}

impl Cuts {
    /// Adds a cut.
    pub fn add(&mut self, blocks: Range<u64>) {
        assert!(!blocks.is_empty(), "a cut takes blocks away");
        let (mut first, mut end) = (blocks.start, blocks.end);
        // Joins all ranges that meet or touch the new one, from the last to the first.
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back()
            && to >= first
        {
            self.ranges.remove(&from);
            (first, end) = (first.min(from), end.max(to));
        }
        self.ranges.insert(first, end);
    }
    /// True if a block is gone.
    pub fn hold(&self, block: u64) -> bool {
        self.ranges.range(..=block).next_back().is_some_and(|(_, end)| block < *end)
    }
    /// True if any block of a range is gone.
    pub fn meet(&self, blocks: &Range<u64>) -> bool {
        self.ranges.range(..blocks.end).next_back().is_some_and(|(_, end)| blocks.start < *end)
    }
    /// All cut ranges, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&first, &end)| first..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_that_meet_become_one() {
        let mut cuts = Cuts::default();
        let mut after = |range: Range<u64>| {
            cuts.add(range);
            cuts.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(after(10..20), [(10, 20)]);
        assert_eq!(after(30..40), [(10, 20), (30, 40)]);
        assert_eq!(after(50..60), [(10, 20), (30, 40), (50, 60)]);
        assert_eq!(after(20..25), [(10, 25), (30, 40), (50, 60)]);
        assert_eq!(after(22..30), [(10, 40), (50, 60)]);
        assert_eq!(after(12..15), [(10, 40), (50, 60)]);
        assert_eq!(after(55..u64::MAX), [(10, 40), (50, u64::MAX)]);
        let held: Vec<_> = [9, 10, 39, 40, 49, 50, 1 << 60].into_iter().filter(|block| cuts.hold(*block)).collect();
        assert_eq!(held, [10, 39, 50, 1 << 60]);
        let meeting = [0..10, 0..11, 39..41, 40..50, 40..51].map(|range| cuts.meet(&range));
        assert_eq!(meeting, [false, true, true, false, true]);
        cuts.add(0..u64::MAX);
        assert_eq!(cuts.iter().len(), 1);
    }
}
