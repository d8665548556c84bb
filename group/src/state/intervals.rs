//! Sets of blocks as ranges: few ranges, of any length.

use std::ops::Range;

/// Ascending ranges, no two of which touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intervals(Vec<Range<u64>>);

impl Intervals {
    /// One range.
    pub fn of(range: Range<u64>) -> Intervals {
        Intervals([range].into_iter().filter(|range| !range.is_empty()).collect())
    }
    /// Adds the blocks of a range.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut first, mut end) = (range.start, range.end);
        let meets = |other: &Range<u64>| other.start <= range.end && range.start <= other.end;
        for met in self.0.extract_if(.., |other| meets(other)) {
            (first, end) = (first.min(met.start), end.max(met.end));
        }
        let at = self.0.partition_point(|other| other.end < first);
        assert!(self.0.get(at).is_none_or(|next| end < next.start), "ranges that touch are one");
        self.0.insert(at, first..end);
    }
    /// Takes the blocks of a range away.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            // An empty range in the middle of another one would cut that in two.
            return;
        }
        let kept = |other: Range<u64>| {
            let before = other.start..other.end.min(range.start).max(other.start);
            let after = other.start.max(range.end).min(other.end)..other.end;
            match range.end <= other.start || other.end <= range.start {
                true => [other, 0..0],
                false => [before, after],
            }
        };
        let pieces = std::mem::take(&mut self.0).into_iter().flat_map(kept);
        self.0 = pieces.filter(|range| !range.is_empty()).collect();
    }
    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }
    /// True if a block is in the set.
    pub fn hold(&self, block: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= block);
        after > 0 && block < self.0[after - 1].end
    }
    /// True if any block of a range is in the set.
    pub fn meet(&self, range: &Range<u64>) -> bool {
        let after = self.0.partition_point(|known| known.start < range.end);
        after > 0 && range.start < self.0[after - 1].end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sets_of_ranges_are_those_of_their_blocks() {
        let mut random = runtime::random::SplitMix(7);
        for _ in 0..300 {
            let (mut ranges, mut blocks) = (Intervals::default(), BTreeSet::new());
            for _ in 0..12 {
                let first = random.next() % 30;
                let range = first..first + random.next() % 8;
                if random.next().is_multiple_of(2) {
                    ranges.add(range.clone());
                    blocks.extend(range);
                } else {
                    ranges.remove(&range);
                    blocks.retain(|block| !range.contains(block));
                }
                assert_eq!(ranges.count(), blocks.len() as u64, "{ranges:?}");
                assert!((0..40).all(|block| ranges.hold(block) == blocks.contains(&block)), "{ranges:?}");
                for first in 0..40 {
                    let some = first..first + 3;
                    assert_eq!(ranges.meet(&some), some.clone().any(|block| blocks.contains(&block)), "{ranges:?}");
                }
                assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            }
        }
    }
}
