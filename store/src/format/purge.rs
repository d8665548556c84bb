//! The leaves of one inode that are left to free, as their row in the index says it (rule K6).

use std::collections::BTreeMap;
use std::ops::Range;

/// The cuts of one inode that are left to free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purge {
    /// The project for which the blocks count.
    pub project: u32,
    /// Cuts that are not done, by their first leaf: the leaf after the last, trim number. None overlaps another: where
    /// cuts met, the latest one counts. Groups bound how many there are.
    pub(crate) cuts: BTreeMap<u64, (u64, u64)>,
}

impl Purge {
    /// Nothing of an inode of a project.
    pub fn new(project: u32) -> Purge {
        Purge { project, cuts: BTreeMap::new() }
    }
    /// Cuts that are not done, rising: leaves, trim number.
    pub fn cuts(&self) -> impl ExactSizeIterator<Item = (Range<u64>, u64)> + '_ {
        self.cuts.iter().map(|(&first, &(end, trim))| (first..end, trim))
    }
    /// Leaves of a range have been cut; those of `left`, at its end, are gone unless they are as new as `trim`.
    pub fn cut(&mut self, leaves: Range<u64>, left: Range<u64>, trim: u64) {
        assert!(leaves.start <= left.start && left.end <= leaves.end, "what is left is a part of what is cut");
        self.done(leaves);
        if !left.is_empty() {
            let before = self.cuts.insert(left.start, (left.end, trim));
            assert!(before.is_none(), "no cut is left where the latest one counts");
        }
    }
    /// No cut says anything of a range any more.
    pub(crate) fn done(&mut self, leaves: Range<u64>) {
        let mut from = leaves.start;
        if let Some((&first, (end, _))) = self.cuts.range(..from).next_back()
            && *end > from
        {
            from = first;
        }
        let met: Vec<_> = self.cuts.range(from..leaves.end.max(from)).map(|(first, cut)| (*first, *cut)).collect();
        for (first, (end, trim)) in met {
            self.cuts.remove(&first);
            assert!(first < end, "a cut that is not done has leaves");
            for kept in [first..leaves.start, leaves.end.max(first)..end] {
                if !kept.is_empty() {
                    self.cuts.insert(kept.start, (kept.end, trim));
                }
            }
        }
    }
    /// The leaves that are freed next.
    pub(crate) fn first(&self) -> Range<u64> {
        let (first, (end, _)) = self.cuts.first_key_value().expect("a purge without cuts is done");
        *first..*end
    }
    /// The latest cut that a leaf lies in.
    pub(crate) fn trim_of(&self, leaf: u64) -> u64 {
        let before = self.cuts.range(..=leaf).next_back();
        before.filter(|(_, (end, _))| leaf < *end).map_or(0, |(_, (_, trim))| *trim)
    }
}
