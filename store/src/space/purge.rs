//! Purges: the leaves that truncations, holes, unlinks and deleted volumes have left in the index, although they are no
//! longer part of any file (rule K6). Such a change is one record whatever its size; each later checkpoint then frees a
//! bounded number of leaves, and notes in its own batch how far it came.
//!
//! Until a cut leaf is freed it must read as empty, although its blocks may be written again. So a leaf that is written
//! while a purge is pending holds the trim number of the latest cut that it is newer than; a leaf with a smaller number
//! is stale. Numbers of inodes and volumes are never reused (rule L2), so all leaves of a dropped inode or volume are
//! stale.

use crate::format::{keys, values};
use crate::index::Index;
use base::{GroupId, Ino, LeafKey, Result, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub use crate::format::purge::Purge;

/// The trim number of a dropped inode: every leaf has a smaller one, so all are stale.
pub const DROPPED: u64 = u64::MAX;

/// The cuts that are left to free in one group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purges {
    /// Cuts of inodes.
    pub inodes: BTreeMap<(VolumeId, Ino), Purge>,
    /// Dropped volumes.
    pub volumes: BTreeSet<VolumeId>,
}

impl Purges {
    /// Reads a group's purges. `volumes`: the volumes of the catalogue.
    pub fn read(index: &dyn Index, group: GroupId, volumes: &[VolumeId]) -> Result<Purges> {
        let mut purges = Purges::default();
        let (from, to) = keys::purged_volumes(group);
        for (key, _) in index.scan(&from, &to, usize::MAX)? {
            purges.volumes.insert(keys::purged_volume_id(&key));
        }
        for &volume in volumes {
            let (from, to) = keys::purges(group, volume);
            for (key, value) in index.scan(&from, &to, usize::MAX)? {
                purges.inodes.insert((volume, keys::first_ino(&key)), values::decode_purge(&value)?);
            }
        }
        Ok(purges)
    }
    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.volumes.is_empty()
    }
    /// The smallest trim number with which a leaf is not stale.
    pub fn trim_of(&self, volume: VolumeId, key: LeafKey) -> u64 {
        match self.inodes.get(&(volume, key.ino)) {
            _ if self.volumes.contains(&volume) => DROPPED,
            Some(purge) => purge.trim_of(key.leaf),
            None => 0,
        }
    }
    /// Number of cuts of an inode that are not carried out.
    pub fn cuts_of(&self, volume: VolumeId, ino: Ino) -> usize {
        self.inodes.get(&(volume, ino)).map_or(0, |purge| purge.cuts.len())
    }
    /// Notes that leaves of an inode of a project have been cut with the trim number `trim`. The leaves of `left`, at
    /// the range's end, remain to be freed; the others are freed already.
    pub fn cut(&mut self, file: (VolumeId, Ino), project: u32, leaves: Range<u64>, left: Range<u64>, trim: u64) {
        self.inodes.entry(file).or_insert_with(|| Purge::new(project)).cut(leaves, left, trim);
        self.end(file);
    }
    /// Notes that an inode now belongs to another project.
    pub(crate) fn give(&mut self, file: (VolumeId, Ino), project: u32) {
        if let Some(purge) = self.inodes.get_mut(&file) {
            purge.project = project;
        }
    }
    /// Notes that leaves of an inode that were cut are freed now.
    pub(crate) fn freed(&mut self, file: (VolumeId, Ino), leaves: Range<u64>) {
        self.inodes.get_mut(&file).expect("it had leaves to free").done(leaves);
        self.end(file);
    }
    fn end(&mut self, file: (VolumeId, Ino)) {
        if self.inodes.get(&file).is_some_and(|purge| purge.cuts.is_empty()) {
            self.inodes.remove(&file);
        }
    }
    /// Notes that a volume was deleted: all its leaves are to be freed.
    pub fn drop_volume(&mut self, volume: VolumeId) {
        self.inodes.retain(|(of, _), _| *of != volume);
        self.volumes.insert(volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(1);
    const INO: Ino = Ino(1 << 20);

    fn trims(purges: &Purges) -> Vec<u64> {
        (0..8).map(|leaf| purges.trim_of(VOLUME, LeafKey { ino: INO, leaf })).collect()
    }

    const END: u64 = u64::MAX;

    #[test]
    fn a_leaf_must_be_as_new_as_the_latest_cut_that_it_lies_in() {
        let mut purges = Purges::default();
        let file = (VOLUME, INO);
        // What of the cut was freed at once says nothing.
        purges.cut(file, 0, 4..END, 5..END, 1);
        assert_eq!(trims(&purges), [0, 0, 0, 0, 0, 1, 1, 1]);
        // Later and further out: the earlier one still holds below it.
        purges.cut(file, 0, 6..END, 6..END, 2);
        assert_eq!(trims(&purges), [0, 0, 0, 0, 0, 1, 2, 2]);
        // Later and further in: the earlier ones say nothing any more.
        purges.cut(file, 0, 2..END, 3..END, 3);
        assert_eq!(trims(&purges), [0, 0, 0, 3, 3, 3, 3, 3]);
        // A hole, within and across the edge of what was cut before.
        purges.cut(file, 0, 5..7, 6..7, 4);
        assert_eq!(trims(&purges), [0, 0, 0, 3, 3, 0, 4, 3]);
        purges.cut(file, 0, 1..4, 1..4, 5);
        assert_eq!(trims(&purges), [0, 5, 5, 5, 3, 0, 4, 3]);
        assert_eq!(purges.cuts_of(VOLUME, INO), 4);
        assert_eq!(purges.inodes[&file].first(), 1..4);
        purges.freed(file, 1..3);
        assert_eq!(trims(&purges), [0, 0, 0, 5, 3, 0, 4, 3]);
        purges.cut(file, 0, 0..END, 0..END, DROPPED);
        assert_eq!(trims(&purges), [DROPPED; 8]);
        assert_eq!(purges.cuts_of(VOLUME, INO), 1);
        purges.freed(file, 0..END);
        assert!(purges.is_empty());
        purges.cut(file, 0, 0..END, 0..END, DROPPED);
        purges.drop_volume(VOLUME);
        assert!(purges.inodes.is_empty());
        assert_eq!(trims(&purges), [DROPPED; 8]);
    }
}
