//! The part that a group has in changes of several groups of a replicated volume: inodes that it holds for changes which other groups
//! are about to decide, and the changes that it has decided, or is about to.

use base::{Edit, GroupId, Index, Ino, Intent, IntentId, Result, VolumeId};
use runtime::seeded::{Bug, active};
use std::collections::{BTreeMap, BTreeSet};
use store::format::values::LockRow;
use store::format::{keys, values};
use store::index::Index as Engine;

/// A number that no inode has, in the place of one: who holds it in group 0 is the only one to move directories.
pub fn turn(group: GroupId) -> Ino {
    Ino::new(1, group)
}

/// Inodes that are held for a change.
pub struct Hold {
    /// The inodes.
    pub row: LockRow,
    /// Those of them that the change is to make: other numbers may be used before theirs.
    unborn: Vec<Ino>,
    /// The time at which this replica last asked what became of the change; 0: it has not looked yet.
    pub asked_ns: u64,
}

/// A change that this group has decided.
pub struct Decided {
    /// The record that says so; 0 if it was in the index at the start.
    pub index: Index,
    /// The parts of the other groups.
    pub intent: Intent,
    /// The groups that have not said that they have their parts.
    pub left: BTreeSet<GroupId>,
    /// The time at which they were told last.
    pub told_ns: u64,
}

/// See the module.
#[derive(Default)]
pub struct Across {
    /// Inodes that are held, by change.
    pub holds: BTreeMap<IntentId, Hold>,
    /// Changes that others may not have their parts of.
    pub decided: BTreeMap<IntentId, Decided>,
    /// Changes that this replica is about to decide while it leads.
    pub running: BTreeSet<IntentId>,
}

impl Decided {
    fn new(index: Index, intent: Intent) -> Decided {
        let left = intent.follow.iter().map(|follow| follow.group).collect();
        Decided { index, intent, left, told_ns: 0 }
    }
}

impl Across {
    /// The part that a group has as its index says; blocking.
    pub fn read(index: &dyn Engine, group: GroupId) -> Result<Across> {
        let mut across = Across::default();
        let (from, to) = keys::locks(group);
        for (key, value) in index.scan(&from, &to, usize::MAX)? {
            let row = values::decode_lock(&value)?;
            let mut unborn = Vec::new();
            for ino in &row.inos {
                if index.get(&keys::inode(row.volume, *ino))?.is_none() {
                    unborn.push(*ino);
                }
            }
            across.holds.insert(keys::lock_id(&key), Hold { row, unborn, asked_ns: 0 });
        }
        let (from, to) = keys::intents(group);
        for (_, value) in index.scan(&from, &to, usize::MAX)? {
            let intent = values::decode_intent(&value)?;
            across.decided.insert(intent.id, Decided::new(Index(0), intent));
        }
        Ok(across)
    }
    /// Takes an edit of the record at `index`. `born`: the first sequence number that no inode has used.
    pub fn apply(&mut self, (volume, born): (VolumeId, u64), edit: &Edit, index: Index) {
        match edit {
            Edit::LockPut { id, inos } => {
                let before = self.holds.remove(id).map(|hold| hold.unborn).unwrap_or_default();
                assert!(inos.len() >= before.len(), "a change holds more and more");
                let is_unborn = |ino: &&Ino| ino.sequence() >= born || before.contains(ino);
                let unborn = inos.iter().filter(is_unborn).copied().collect();
                let row = LockRow { volume, inos: inos.clone() };
                self.holds.insert(*id, Hold { row, unborn, asked_ns: 0 });
            }
            Edit::LockDrop { id } => {
                // A change of which no other group has a part ends with its hold.
                self.running.remove(id);
                self.holds.remove(id);
            }
            Edit::IntentPut(intent) => {
                self.running.remove(&intent.id);
                self.decided.insert(intent.id, Decided::new(index, intent.clone()));
            }
            Edit::IntentDrop { id } => drop(self.decided.remove(id)),
            _ => {}
        }
    }
    /// True if an inode is held for another change than `own`.
    pub fn bars(&self, volume: VolumeId, ino: Ino, own: Option<IntentId>) -> bool {
        let is_held = |row: &LockRow| row.volume == volume && row.inos.contains(&ino);
        !active(Bug::HoldIgnored) && self.holds.iter().any(|(id, hold)| Some(*id) != own && is_held(&hold.row))
    }
    /// True if a change that an inode is held for is to make it.
    #[inline]
    pub fn is_unborn(&self, ino: Ino) -> bool {
        self.holds.values().any(|hold| hold.unborn.contains(&ino))
    }
    /// The inodes that are held for a change.
    pub fn held_for(&self, id: IntentId) -> &[Ino] {
        self.holds.get(&id).map_or(&[], |hold| &hold.row.inos)
    }
}
