//! What truncations, unlinks and deleted volumes have left in the index (rule K6): leaves that count no more. The change
//! itself is one record whatever the size; each checkpoint then frees a bounded number of leaves and notes in its own
//! batch how far it came.
//!
//! Until then such a leaf must read as empty, although blocks written since may lie in leaves beside it. So a leaf that
//! is written while a purge is pending bears the number of the truncation that it is newer than; one with a smaller
//! number is stale. Numbers of inodes and volumes are never reused (rule L2): of what was dropped, every leaf is stale.

use crate::format::{keys, values};
use crate::index::Index;
use base::{GroupId, Ino, LeafKey, Result, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// The trim number of an inode that was dropped: no leaf is newer.
pub const DROPPED: u64 = u64::MAX;

/// What is left of one inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purge {
    /// Whose blocks they are, for the count of what it uses.
    pub project: u32,
    /// Leaves before this one are done.
    pub next: u64,
    /// Cuts that are not done: first leaf, trim number; both rise. One more per checkpoint at most, and each of those
    /// frees some.
    pub cuts: Vec<(u64, u64)>,
}

impl Purge {
    /// Leaves from `first` on are gone unless they are as new as `trim`; those before `next` need no look.
    fn new(project: u32, first: u64, trim: u64, next: u64) -> Purge {
        Purge { project, next, cuts: vec![(first, trim)] }
    }
    /// One more cut; the latest.
    fn cut(&mut self, first: u64, trim: u64, next: u64) {
        self.cuts.retain(|(earlier, _)| *earlier < first);
        self.cuts.push((first, trim));
        self.next = self.next.min(next);
    }
    /// The latest cut that a leaf lies in.
    fn trim_of(&self, leaf: u64) -> u64 {
        self.cuts.iter().rev().find(|(first, _)| *first <= leaf).map_or(0, |(_, trim)| *trim)
    }
}

/// What is left to free in one group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purges {
    /// Of inodes.
    pub inodes: BTreeMap<(VolumeId, Ino), Purge>,
    /// Of volumes.
    pub volumes: BTreeSet<VolumeId>,
}

impl Purges {
    /// Reads a group's purges. `volumes`: those that the catalogue has.
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
    /// The trim number that a leaf must bear to count: 0 if any does.
    pub fn trim_of(&self, volume: VolumeId, key: LeafKey) -> u64 {
        match self.inodes.get(&(volume, key.ino)) {
            _ if self.volumes.contains(&volume) => DROPPED,
            Some(purge) => purge.trim_of(key.leaf),
            None => 0,
        }
    }
    /// Leaves of an inode of a project from `first` on are gone unless they are as new as `trim`; those before `next` need
    /// no look.
    pub fn cut(&mut self, (volume, ino): (VolumeId, Ino), project: u32, first: u64, trim: u64, next: u64) {
        match self.inodes.get_mut(&(volume, ino)) {
            Some(purge) => purge.cut(first, trim, next),
            None => drop(self.inodes.insert((volume, ino), Purge::new(project, first, trim, next))),
        }
    }
    /// All leaves of a volume are gone.
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

    #[test]
    fn a_leaf_must_be_as_new_as_the_latest_cut_that_it_lies_in() {
        let mut purges = Purges::default();
        purges.cut((VOLUME, INO), 0, 4, 1, 6);
        assert_eq!(trims(&purges), [0, 0, 0, 0, 1, 1, 1, 1]);
        // Later and further out: the earlier one still holds below it.
        purges.cut((VOLUME, INO), 0, 6, 2, 6);
        assert_eq!(trims(&purges), [0, 0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(purges.inodes[&(VOLUME, INO)].next, 6);
        // Later and further in: the earlier ones say nothing any more, and freeing goes back.
        purges.cut((VOLUME, INO), 0, 2, 3, 3);
        assert_eq!(trims(&purges), [0, 0, 3, 3, 3, 3, 3, 3]);
        assert_eq!(purges.inodes[&(VOLUME, INO)], Purge { project: 0, next: 3, cuts: vec![(2, 3)] });
        purges.cut((VOLUME, INO), 0, 0, DROPPED, 0);
        assert_eq!(trims(&purges), [DROPPED; 8]);
        purges.drop_volume(VOLUME);
        assert!(purges.inodes.is_empty());
        assert_eq!(trims(&purges), [DROPPED; 8]);
    }
}
