//! One generation of a group's overlay: what records have changed since the generation began, the last word on each
//! key, above the index. The active generation takes edits; a frozen one waits for its checkpoint and never changes.

use crate::hash::Map;
use base::limits::BLOCK_BYTES;
use base::{
    Edit, FileKind, Ino, Inode, Intent, IntentId, LeafKey, Name, Outcome, RequestId, SessionId, Volume, VolumeId,
};
use names::Entry;
use std::collections::BTreeMap;
use store::Change;
use store::format::leaf::{Leaf, Slot};

/// An inode as this generation leaves it, and the batch of its last change: what fsync waits for.
#[derive(Clone, Copy, Debug)]
pub struct InodeSlot {
    /// None = dropped.
    pub inode: Option<Inode>,
    /// The last batch that changed it.
    pub batch: u64,
}

/// A directory's entry by cookie.
pub type CookieEntry = (Name, Ino, FileKind);

/// A directory's changed names.
pub type NamesOf = BTreeMap<Box<[u8]>, Option<Entry>>;

/// See the module. `None` values say that the key is gone.
#[derive(Default)]
pub struct Generation {
    /// Inodes.
    pub inodes: Map<(VolumeId, Ino), InodeSlot>,
    /// Entries by directory and name.
    pub entries: Map<(VolumeId, Ino), NamesOf>,
    /// Entries by directory and cookie.
    pub cookies: Map<(VolumeId, Ino), BTreeMap<u64, Option<CookieEntry>>>,
    /// Targets of symbolic links.
    pub targets: Map<(VolumeId, Ino), Option<Box<[u8]>>>,
    /// Leaves: only the slots that changed.
    pub leaves: BTreeMap<(VolumeId, LeafKey), Leaf>,
    /// Blocks of older generations and of the index from this one on are gone, by the truncation of this trim number.
    pub cuts: Map<(VolumeId, Ino), (u64, u64)>,
    /// Orphans, and inodes that are none any more.
    pub orphans: BTreeMap<(VolumeId, Ino), bool>,
    /// Intents decided here.
    pub intents: BTreeMap<IntentId, Option<Intent>>,
    /// Marks of intents followed.
    pub followed: BTreeMap<IntentId, bool>,
    /// Volumes of the catalogue.
    pub volumes: BTreeMap<Name, Option<Volume>>,
    /// Volumes dropped with all they have here.
    pub volume_drops: Vec<VolumeId>,
    /// Sessions whose results changed; the results are filled in when the generation is frozen.
    pub sessions: BTreeMap<SessionId, Option<Vec<(RequestId, Outcome)>>>,
    /// Memory, roughly.
    pub bytes: usize,
    /// Records taken.
    pub records: u64,
}

// Rough costs of map entries with their allocations, for the memory bound.
const INODE_BYTES: usize = 200;
const ENTRY_BYTES: usize = 500;
const LEAF_BYTES: usize = 120;
const SLOT_BYTES: usize = 24;

impl Generation {
    /// True if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }
    /// Sets an inode.
    pub fn set_inode(&mut self, volume: VolumeId, ino: Ino, inode: Option<Inode>, batch: u64) {
        if self.inodes.insert((volume, ino), InodeSlot { inode, batch }).is_none() {
            self.bytes += INODE_BYTES;
        }
    }
    /// What this generation says of a block: a slot, `Hole` for what it cut, or None if it says nothing.
    pub fn slot(&self, volume: VolumeId, ino: Ino, block: u64) -> Option<Slot> {
        let (key, index) = LeafKey::of(ino, block);
        let slot = self.leaves.get(&(volume, key)).and_then(|leaf| leaf.get(index));
        slot.or_else(|| {
            let (first, _) = self.cuts.get(&(volume, ino))?;
            (*first <= block).then_some(Slot::Hole)
        })
    }
    /// Maps a block.
    pub fn map(&mut self, volume: VolumeId, ino: Ino, block: u64, slot: Slot) {
        let (key, index) = LeafKey::of(ino, block);
        let leaf = self.leaves.entry((volume, key)).or_insert_with(|| {
            self.bytes += LEAF_BYTES;
            Leaf::default()
        });
        let before = leaf.len();
        leaf.set(index, slot);
        self.bytes += (leaf.len() - before) * SLOT_BYTES;
    }
    /// Removes blocks from `first` on, by the truncation of this trim number.
    pub fn cut(&mut self, volume: VolumeId, ino: Ino, first: u64, trim: u64) {
        let cut = self.cuts.entry((volume, ino)).or_insert((first, trim));
        *cut = (first.min(cut.0), trim);
        let (boundary, index) = LeafKey::of(ino, first);
        let end = LeafKey { ino, leaf: u64::MAX };
        let gone: Vec<_> = self.leaves.range((volume, boundary)..=(volume, end)).map(|(key, _)| *key).collect();
        for key in gone {
            let leaf = self.leaves.get_mut(&key).expect("just seen");
            if key.1 == boundary {
                leaf.truncate(index);
            }
            if key.1 != boundary || leaf.is_empty() {
                self.leaves.remove(&key);
            }
        }
    }
    /// Applies an edit that concerns neither an inode's attributes nor data (those need more than this generation).
    pub fn apply(&mut self, volume: VolumeId, edit: &Edit) {
        match edit {
            Edit::EntryPut { dir, name, ino, kind, cookie } => {
                let entry = Entry { ino: *ino, kind: *kind, cookie: *cookie };
                self.set_entry(volume, *dir, name, *cookie, Some(entry));
            }
            Edit::EntryDrop { dir, name, cookie } => self.set_entry(volume, *dir, name, *cookie, None),
            Edit::TargetPut { ino, target } => {
                self.bytes += target.len() + INODE_BYTES;
                self.targets.insert((volume, *ino), Some(target.clone()));
            }
            Edit::OrphanPut { ino } => drop(self.orphans.insert((volume, *ino), true)),
            Edit::OrphanDrop { ino } => drop(self.orphans.insert((volume, *ino), false)),
            Edit::IntentPut(intent) => drop(self.intents.insert(intent.id, Some(intent.clone()))),
            Edit::IntentDrop { id } => drop(self.intents.insert(*id, None)),
            Edit::FollowedPut { id } => drop(self.followed.insert(*id, true)),
            Edit::FollowedDrop { id } => drop(self.followed.insert(*id, false)),
            Edit::VolumePut(volume) => drop(self.volumes.insert(volume.name, Some(*volume))),
            Edit::SessionDrop { session } => drop(self.sessions.insert(*session, None)),
            Edit::VolumeDrop { id } => self.drop_volume(*id),
            Edit::InodePut { .. }
            | Edit::InodeTouch { .. }
            | Edit::InodeParent { .. }
            | Edit::InodeExtend { .. }
            | Edit::InodeCut { .. }
            | Edit::InodeDrop { .. }
            | Edit::Map { .. } => unreachable!("the state applies inode and data edits"),
        }
    }

    fn set_entry(&mut self, volume: VolumeId, dir: Ino, name: &Name, cookie: u64, entry: Option<Entry>) {
        let names = self.entries.entry((volume, dir)).or_default();
        match names.get_mut(name.as_bytes()) {
            Some(known) => *known = entry,
            None => {
                self.bytes += ENTRY_BYTES + 2 * name.as_bytes().len();
                names.insert(name.as_bytes().into(), entry);
            }
        }
        let by_cookie = entry.map(|entry| (*name, entry.ino, entry.kind));
        self.cookies.entry((volume, dir)).or_default().insert(cookie, by_cookie);
    }

    /// The catalogue's row goes by the id; everything of the volume in this generation goes too.
    fn drop_volume(&mut self, id: VolumeId) {
        self.volume_drops.push(id);
        self.inodes.retain(|(volume, _), _| *volume != id);
        self.entries.retain(|(volume, _), _| *volume != id);
        self.cookies.retain(|(volume, _), _| *volume != id);
        self.targets.retain(|(volume, _), _| *volume != id);
        self.leaves.retain(|(volume, _), _| *volume != id);
        self.cuts.retain(|(volume, _), _| *volume != id);
        self.orphans.retain(|(volume, _), _| *volume != id);
    }

    /// The generation as a checkpoint takes it: cuts before leaves, drops of volumes last.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.inodes.len() + self.leaves.len() + 8);
        for (&(volume, ino), &(first, trim)) in &self.cuts {
            changes.push(Change::Cut(volume, ino, first, trim));
        }
        for (&(volume, ino), slot) in &self.inodes {
            changes.push(Change::Inode(volume, ino, slot.inode));
        }
        for (&(volume, dir), names) in &self.entries {
            for (name, entry) in names {
                let value = entry.map(|entry| (entry.ino, entry.kind, entry.cookie));
                changes.push(Change::Entry(volume, dir, name.clone(), value));
            }
        }
        for (&(volume, dir), cookies) in &self.cookies {
            changes.extend(cookies.iter().map(|(&cookie, entry)| Change::Cookie(volume, dir, cookie, *entry)));
        }
        for (&(volume, ino), target) in &self.targets {
            changes.push(Change::Target(volume, ino, target.clone()));
        }
        for (&(volume, key), leaf) in &self.leaves {
            changes.push(Change::Leaf(volume, key, leaf.clone()));
        }
        changes.extend(self.orphans.iter().map(|(&(volume, ino), &is)| Change::Orphan(volume, ino, is)));
        changes.extend(self.intents.iter().map(|(&id, intent)| Change::Intent(id, intent.clone())));
        changes.extend(self.followed.iter().map(|(&id, &is)| Change::Followed(id, is)));
        changes.extend(self.sessions.iter().map(|(&id, results)| Change::Session(id, results.clone())));
        changes.extend(self.volumes.iter().map(|(&name, volume)| Change::Volume(name, *volume)));
        changes.extend(self.volume_drops.iter().map(|&id| Change::VolumeDrop(id)));
        changes
    }
}

/// The first block that a file of this size does not have.
pub fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64)
}
