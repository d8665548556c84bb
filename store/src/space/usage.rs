//! The space that each project of each volume uses (rule M6). Inodes and names are counted when records create or
//! remove them; blocks and attributes when a checkpoint replaces rows, by comparing old and new. Counts are kept per
//! group, because a group may move to another brick. They are exact as of the last checkpoint, since their rows are
//! written in the checkpoint's own batch.
//!
//! Names are charged to project 0, whatever project the directory belongs to. The format's first revision did not count
//! names: rows of such a brick have no count of names until the names were counted (`count_names`) and a checkpoint has
//! written the counts, group by group and volume by volume.

use crate::format::keys::Row;
use crate::format::{keys, values};
use crate::index::{self, Index, IndexEdit};
use base::limits::BLOCK_BYTES;
use base::{GroupId, Ino, Result, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

pub use crate::format::usage::Usage;

/// The key of a count: group, volume, project.
pub type User = (GroupId, VolumeId, u32);

/// A change of the space in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Blocks.
    pub blocks: i64,
    /// Inodes.
    pub inodes: i64,
    /// Reserved blocks that are not mapped.
    pub reserved: i64,
    /// Bytes of rows of names, targets and attributes.
    pub names: i64,
}

/// The counts of a whole brick.
#[derive(Default)]
pub struct Usages {
    users: BTreeMap<User, Usage>,
    /// Keys whose names were counted late: the next checkpoint writes their rows.
    counted: BTreeSet<User>,
    /// Numbers of mapped blocks of files that were counted late: the next checkpoint writes these too.
    pub(crate) files: BTreeMap<(VolumeId, Ino), u64>,
}

impl Usages {
    /// Reads the rows of all groups. `volumes`: the volumes of the catalogue.
    pub fn read(index: &dyn Index, groups: u32, volumes: &[VolumeId]) -> Result<Usages> {
        let mut usages = Usages::default();
        for group in (0..groups).map(GroupId) {
            for &volume in volumes {
                let (from, to) = keys::usages(group, volume);
                for (key, value) in index.scan(&from, &to, usize::MAX)? {
                    usages.users.insert((group, volume, keys::usage_project(&key)), values::decode_usage(&value)?);
                }
            }
        }
        Ok(usages)
    }
    /// Forgets the counts of a group whose rows are counted anew.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.users.retain(|(of, ..), _| *of != group);
        self.counted.retain(|(of, ..)| *of != group);
        self.files.retain(|(_, ino), _| ino.group() != group);
    }
    /// The space that a volume uses, by project.
    pub fn of_volume(&self, volume: VolumeId) -> BTreeMap<u32, Usage> {
        let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
        for ((_, _, project), usage) in self.users.iter().filter(|((_, of, _), _)| *of == volume) {
            sums.entry(*project).or_default().add(usage);
        }
        sums
    }
    /// Bytes that are used without being mapped blocks: reserved blocks, inodes and names.
    pub fn unmapped_bytes(&self) -> u64 {
        let bytes = |usage: &Usage| usage.reserved * BLOCK_BYTES as u64 + usage.row_bytes();
        self.users.values().map(bytes).sum()
    }
    /// Groups and volumes whose names have not been counted yet.
    pub fn uncounted(&self) -> BTreeSet<(GroupId, VolumeId)> {
        let uncounted = self.users.iter().filter(|(_, usage)| usage.names.is_none());
        uncounted.map(|((group, volume, _), _)| (*group, *volume)).collect()
    }
    /// Sets the bytes of a volume's names in a group, counted as of the last checkpoint.
    pub(crate) fn count(&mut self, group: GroupId, volume: VolumeId, names: u64) {
        let users = self.users.range_mut((group, volume, 0)..=(group, volume, u32::MAX));
        for ((group, volume, project), usage) in users.filter(|(_, usage)| usage.names.is_none()) {
            usage.names = Some(if *project == 0 { names } else { 0 });
            self.counted.insert((*group, *volume, *project));
        }
    }
    /// The rows that a checkpoint must write, with their new counts. A count never falls below zero: a wrong count is
    /// damage that a check will find, not a reason to stop.
    pub(crate) fn changed(&self, changes: &BTreeMap<User, Change>) -> Vec<(User, Usage)> {
        let after = |(user, change): (&User, &Change)| {
            let before = self.users.get(user).copied().unwrap_or_default();
            let blocks = before.blocks.saturating_add_signed(change.blocks);
            let inodes = before.inodes.saturating_add_signed(change.inodes);
            let names = before.names.map(|names| names.saturating_add_signed(change.names));
            let reserved = before.reserved.saturating_add_signed(change.reserved);
            (*user, Usage { blocks, inodes, reserved, names })
        };
        let counted = self.counted.iter().filter(|user| self.users.contains_key(user) && !changes.contains_key(user));
        let changed =
            changes.iter().filter(|(user, change)| **change != Change::default() || self.counted.contains(user));
        counted.map(|user| (*user, self.users[user])).chain(changed.map(after)).collect()
    }
    /// Takes over the counts of a checkpoint that is durable. `dropped`: deleted volumes, whose counts are dropped.
    pub(crate) fn commit(&mut self, changed: Vec<(User, Usage)>, dropped: &[(GroupId, VolumeId)]) {
        self.counted.retain(|user| !changed.iter().any(|(of, _)| of == user));
        self.users.extend(changed);
        self.users.retain(|(group, volume, _), _| !dropped.contains(&(*group, *volume)));
    }
}

/// Bytes of the rows of a volume's names, targets and attributes in a group. Skips the leaves, which are many.
pub(crate) fn count_names(index: &dyn Index, group: GroupId, volume: VolumeId) -> Result<u64> {
    let mut bytes = 0;
    for bounds in keys::volume_but_leaves(group, volume) {
        index::each(index, bounds, |key, value| {
            let named = keys::row(key).is_some_and(|(.., row)| is_named(row));
            bytes += if named { (key.len() + value.len()) as u64 } else { 0 };
            Ok(())
        })?;
    }
    Ok(bytes)
}

/// True for rows whose bytes are charged.
pub(crate) fn is_named(row: Row) -> bool {
    matches!(row, Row::Entry | Row::Cookie | Row::Target | Row::Xattrs)
}

/// A row as a checkpoint writes it.
pub(crate) fn row(user: User, usage: &Usage) -> IndexEdit {
    let (group, volume, project) = user;
    IndexEdit::Put(keys::usage(group, volume, project), values::encode_usage(usage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::charge;

    #[test]
    fn a_volume_that_went_takes_no_room() {
        let mut usages = Usages::default();
        let used = Usage { blocks: 5, inodes: 3, reserved: 7, names: Some(100) };
        let bytes = 7 * BLOCK_BYTES as u64 + 3 * charge::INODE + 100;
        let (group, kept, gone) = (GroupId(1), VolumeId(1), VolumeId(2));
        usages.commit(vec![((group, kept, 0), used), ((group, gone, 0), used)], &[]);
        assert_eq!(usages.unmapped_bytes(), 2 * bytes);
        usages.commit(Vec::new(), &[(group, gone)]);
        assert_eq!(usages.unmapped_bytes(), bytes);
        assert_eq!((usages.of_volume(gone), usages.of_volume(kept)), (BTreeMap::new(), BTreeMap::from([(0, used)])));
    }

    #[test]
    fn names_that_were_counted_late_are_told_by_the_next_checkpoint() {
        let mut usages = Usages::default();
        let (group, volume) = (GroupId(1), VolumeId(1));
        let old = Usage { blocks: 5, inodes: 3, reserved: 7, names: None };
        let users = [0, 4].map(|project| (group, volume, project));
        usages.commit(users.iter().map(|user| (*user, old)).collect(), &[]);
        assert_eq!(usages.uncounted(), BTreeSet::from([(group, volume)]));
        let more = BTreeMap::from([(users[0], Change { names: 30, ..Change::default() })]);
        // Whoever counts them finds those that came too.
        assert_eq!(usages.changed(&more)[0].1.names, None);
        usages.count(group, volume, 100);
        assert_eq!(usages.uncounted(), BTreeSet::new());
        let changed = usages.changed(&more);
        let names: BTreeMap<_, _> = changed.iter().map(|((.., project), usage)| (*project, usage.names)).collect();
        assert_eq!(names, BTreeMap::from([(0, Some(130)), (4, Some(0))]));
        usages.commit(changed, &[]);
        assert_eq!(usages.changed(&BTreeMap::new()), []);
        assert_eq!(usages.of_volume(volume)[&0].names, Some(130));
    }
}
