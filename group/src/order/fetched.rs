//! The state of other groups that a change of several groups has fetched, where each group has an order of its own.

use crate::replica::across::Found;
use base::{Blocks, GroupId, Ino, Inode, IntentId, Name, Xattrs};
use names::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module. It stays as it is while what was fetched is held for the change.
#[derive(Default)]
pub struct Fetched {
    /// The change for which it is held; None of an operation that changes nothing.
    pub id: Option<IntentId>,
    inodes: BTreeMap<Ino, Option<(Inode, Blocks)>>,
    entries: BTreeMap<(Ino, Name), Option<Entry>>,
    xattrs: BTreeMap<Ino, Option<Arc<Xattrs>>>,
    opens: BTreeMap<Ino, u64>,
    fresh: BTreeMap<GroupId, Ino>,
}

/// Nothing: an operation has not begun to fetch.
pub static NOTHING: Fetched = Fetched {
    id: None,
    inodes: BTreeMap::new(),
    entries: BTreeMap::new(),
    xattrs: BTreeMap::new(),
    opens: BTreeMap::new(),
    fresh: BTreeMap::new(),
};

impl Fetched {
    /// Takes what was found.
    pub fn take(&mut self, found: Found) {
        match found {
            Found::Inode(ino, inode) => drop(self.inodes.insert(ino, inode)),
            Found::Entry(dir, name, entry) => drop(self.entries.insert((dir, name), entry)),
            Found::Xattrs(ino, all) => drop(self.xattrs.insert(ino, all)),
            Found::Opens(ino, opens) => drop(self.opens.insert(ino, opens)),
            Found::Fresh(ino) => drop(self.fresh.insert(ino.group(), ino)),
        }
    }
    /// An inode, if it was fetched; None within, if it does not exist.
    pub fn inode(&self, ino: Ino) -> Option<Option<Inode>> {
        Some(self.inodes.get(&ino)?.as_ref().map(|(inode, _)| *inode))
    }
    /// The blocks of an inode that was fetched.
    pub fn blocks(&self, ino: Ino) -> Option<Blocks> {
        self.inodes.get(&ino)?.as_ref().map(|(_, blocks)| *blocks)
    }
    /// An entry.
    pub fn entry(&self, dir: Ino, name: &Name) -> Option<Option<Entry>> {
        self.entries.get(&(dir, name.clone())).copied()
    }
    /// An inode's extended attributes.
    pub fn xattrs(&self, ino: Ino) -> Option<Option<Arc<Xattrs>>> {
        self.xattrs.get(&ino).cloned()
    }
    /// The number of opens of an inode.
    pub fn opens(&self, ino: Ino) -> Option<u64> {
        self.opens.get(&ino).copied()
    }
    /// The number of a new inode of a group.
    pub fn fresh(&self, group: GroupId) -> Option<Ino> {
        self.fresh.get(&group).copied()
    }
}
