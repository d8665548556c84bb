//! What each project of each volume uses (rule M6): inodes, by what records say of births and ends; blocks, by what a
//! checkpoint finds mapped before and after. Kept per group, because a group may move to another brick, and exact as of
//! the last checkpoint: its rows are in the checkpoint's own batch.

use crate::format::{keys, values};
use crate::index::{Index, IndexEdit};
use base::{GroupId, Result, VolumeId};
use std::collections::BTreeMap;

/// Whose use is counted: group, volume, project.
pub type User = (GroupId, VolumeId, u32);

/// What is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Mapped blocks, those included that are yet to be freed.
    pub blocks: u64,
    /// Inodes of any kind.
    pub inodes: u64,
    /// Blocks that files were promised and have not mapped yet.
    pub reserved: u64,
}

/// By how much it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Blocks.
    pub blocks: i64,
    /// Inodes.
    pub inodes: i64,
    /// Promised blocks.
    pub reserved: i64,
}

/// All of a brick.
#[derive(Default)]
pub struct Usages {
    users: BTreeMap<User, Usage>,
}

impl Usages {
    /// Reads the rows of all groups. `volumes`: those that the catalogue has.
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
    /// What a volume uses, by project.
    pub fn of_volume(&self, volume: VolumeId) -> BTreeMap<u32, Usage> {
        let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
        for ((_, _, project), usage) in self.users.iter().filter(|((_, of, _), _)| *of == volume) {
            let sum = sums.entry(*project).or_default();
            sum.blocks += usage.blocks;
            sum.inodes += usage.inodes;
            sum.reserved += usage.reserved;
        }
        sums
    }
    /// Blocks that files of the brick were promised and have not mapped.
    pub fn reserved(&self) -> u64 {
        self.users.values().map(|usage| usage.reserved).sum()
    }
    /// The rows that a checkpoint writes, and what they will say. A count below zero would be damage: it is found by a
    /// check, and no reason to stop.
    pub(crate) fn changed(&self, changes: &BTreeMap<User, Change>) -> Vec<(User, Usage)> {
        let after = |(user, change): (&User, &Change)| {
            let before = self.users.get(user).copied().unwrap_or_default();
            let blocks = before.blocks.saturating_add_signed(change.blocks);
            let inodes = before.inodes.saturating_add_signed(change.inodes);
            (*user, Usage { blocks, inodes, reserved: before.reserved.saturating_add_signed(change.reserved) })
        };
        changes.iter().filter(|(_, change)| **change != Change::default()).map(after).collect()
    }
    /// The checkpoint is durable. `dropped`: volumes that went, with their rows.
    pub(crate) fn commit(&mut self, changed: Vec<(User, Usage)>, dropped: &[(GroupId, VolumeId)]) {
        self.users.extend(changed);
        self.users.retain(|(group, volume, _), _| !dropped.contains(&(*group, *volume)));
    }
}

/// A row as a checkpoint writes it.
pub(crate) fn row(user: User, usage: &Usage) -> IndexEdit {
    let (group, volume, project) = user;
    IndexEdit::Put(keys::usage(group, volume, project), values::encode_usage(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_went_takes_no_room() {
        let mut usages = Usages::default();
        let used = Usage { blocks: 5, inodes: 3, reserved: 7 };
        let (group, kept, gone) = (GroupId(1), VolumeId(1), VolumeId(2));
        usages.commit(vec![((group, kept, 0), used), ((group, gone, 0), used)], &[]);
        assert_eq!(usages.reserved(), 14);
        usages.commit(Vec::new(), &[(group, gone)]);
        assert_eq!(usages.reserved(), 7);
        assert_eq!((usages.of_volume(gone), usages.of_volume(kept)), (BTreeMap::new(), BTreeMap::from([(0, used)])));
    }
}
