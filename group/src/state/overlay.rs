//! One generation of a group's overlay: for each key that records have changed since the generation began, the latest
//! value, which hides the one in the index. The active generation takes edits; a frozen one waits for its checkpoint
//! and never changes.

use crate::state::cuts::Cuts;
use crate::state::hash::Map;
use crate::state::names_of::NamesOf;
use base::limits::BLOCK_BYTES;
use base::{Edit, FileKind, Ino, Inode, Intent, IntentId, LeafKey, Name, Place, SessionId, Volume, VolumeId};
use names::Entry;
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use store::format::leaf::{Leaf, Slot};
use store::format::values::{LockRow, SessionRow, TermRow};
use store::{Change, Count, Cut, XattrChanges};

/// An inode as this generation leaves it, and the batch of its last change, for which fsync waits.
#[derive(Clone, Copy, Debug)]
pub struct InodeSlot {
    /// None = dropped.
    pub inode: Option<Inode>,
    /// The last batch that changed the inode.
    pub batch: u64,
}

/// A directory's entry by cookie.
pub type CookieEntry = (Name, Ino, FileKind);

/// The changes of a leaf.
#[derive(Clone, Default, Debug)]
pub struct Patch {
    /// The changed slots.
    pub leaf: Leaf,
    /// The old places of blocks that the cleaner has moved, as the index has them. If only such blocks changed, a
    /// checkpoint need not read the leaf to update the live bitmaps.
    pub moved: Vec<(usize, Place)>,
}

/// A generation; see the module. `None` values mean that the key is gone.
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
    /// Extended attributes that were set or removed; None: they are gone with the inode.
    pub xattrs: Map<(VolumeId, Ino), Option<XattrChanges>>,
    /// Leaves: only the slots that changed.
    pub leaves: BTreeMap<(VolumeId, LeafKey), Patch>,
    /// Cuts in blocks of older generations and of the index.
    pub cuts: Map<(VolumeId, Ino), Cuts>,
    /// Blocks reserved for files, and not cut since.
    pub promises: Map<(VolumeId, Ino), Vec<Range<u64>>>,
    /// Changes of the number of a project's inodes, and of the bytes of names and targets. Project 0 counts the whole
    /// volume.
    pub counts: BTreeMap<(VolumeId, u32), Count>,
    /// New projects of inodes.
    pub projects: BTreeMap<(VolumeId, Ino), u32>,
    /// Orphans (true), and inodes that are orphans no longer (false).
    pub orphans: BTreeMap<(VolumeId, Ino), bool>,
    /// Intents decided here.
    pub intents: BTreeMap<IntentId, Option<Intent>>,
    /// Marks of intents followed.
    pub followed: BTreeMap<IntentId, bool>,
    /// Inodes held for changes of other groups.
    pub locks: BTreeMap<IntentId, Option<LockRow>>,
    /// Volumes of the catalogue.
    pub volumes: BTreeMap<Name, Option<Volume>>,
    /// Volumes dropped with everything of them in this group.
    pub volume_drops: Vec<VolumeId>,
    /// Sessions that changed; their rows are filled in when the generation is frozen.
    pub sessions: BTreeMap<SessionId, Option<SessionRow>>,
    /// The group's terms, if they changed; they are filled in when the generation is frozen.
    pub terms: Option<Vec<TermRow>>,
    /// Rough number of bytes in memory.
    pub bytes: usize,
    /// Number of blocks within files' sizes that the generation's cuts have removed.
    pub cut_blocks: u64,
    /// Number of records taken.
    pub records: u64,
    /// Number of access times taken.
    pub accesses: u64,
    /// Number of rows that a replay would have to look up in the index, because records change them without replacing
    /// them.
    pub loads: u64,
    /// Next sequence number of an inode when the generation was frozen: later inodes have this number or a higher one.
    pub next_ino: u64,
}

// Rough costs of map entries with their allocations, for the memory bound.
const INODE_BYTES: usize = 200;
/// Bytes that an entry takes in memory, besides its name. Two trees hold it, in 40 bytes by name and 64 bytes by
/// cookie; as their nodes are half full and have heads, that makes 210. The allocation of the key takes at least 32.
/// The rest is for directories with few changes, since each directory has nodes of its own.
const ENTRY_BYTES: usize = 300;
const LEAF_BYTES: usize = 120;
const SLOT_BYTES: usize = 24;
const PROMISE_BYTES: usize = 100;
const CUT_BYTES: usize = 100;
const XATTR_BYTES: usize = 400;
const PROJECT_BYTES: usize = 100;

impl Generation {
    /// True if nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.records == 0 && self.accesses == 0
    }
    /// Sets an inode. True if it is the first change of the inode in this generation.
    pub fn set_inode(&mut self, volume: VolumeId, ino: Ino, inode: Option<Inode>, batch: u64) -> bool {
        let fresh = self.inodes.insert((volume, ino), InodeSlot { inode, batch }).is_none();
        if fresh {
            self.bytes += INODE_BYTES;
        }
        fresh
    }
    /// The state of a block in this generation: a slot, `Hole` if it was cut, or None if nothing changed.
    pub fn slot(&self, volume: VolumeId, ino: Ino, block: u64) -> Option<Slot> {
        let (key, index) = LeafKey::of(ino, block);
        let slot = self.leaves.get(&(volume, key)).and_then(|patch| patch.leaf.get(index));
        slot.or_else(|| {
            let cuts = self.cuts.get(&(volume, ino))?;
            cuts.hold(block).then_some(Slot::Hole)
        })
    }
    /// Maps a block. `moved_from`: the place that the index still has, if the cleaner moved the block.
    pub fn map(&mut self, volume: VolumeId, ino: Ino, block: u64, slot: Slot, moved_from: Option<Place>) {
        let (key, index) = LeafKey::of(ino, block);
        let patch = self.leaves.entry((volume, key)).or_insert_with(|| {
            self.bytes += LEAF_BYTES;
            Patch::default()
        });
        let before = patch.leaf.len() + patch.moved.len();
        patch.leaf.set(index, slot);
        patch.moved.retain(|(moved, _)| *moved != index);
        patch.moved.extend(moved_from.map(|place| (index, place)));
        assert!(patch.moved.len() <= patch.leaf.len(), "each block that was moved is mapped");
        let after = patch.leaf.len() + patch.moved.len();
        self.bytes += after.saturating_sub(before) * SLOT_BYTES;
    }
    /// Removes blocks.
    pub fn cut(&mut self, cut: Cut) {
        let Cut { volume, ino, project, blocks, trim } = cut;
        let cuts = self.cuts.entry((volume, ino)).or_default();
        (cuts.project, cuts.trim) = (project, trim);
        cuts.add(blocks.clone());
        self.bytes += CUT_BYTES;
        if let Some(promises) = self.promises.get_mut(&(volume, ino)) {
            let kept = |range: Range<u64>| {
                let before = range.start..range.end.min(blocks.start);
                let after = range.start.max(blocks.end)..range.end;
                [before, after].into_iter().filter(|kept| !kept.is_empty())
            };
            *promises = std::mem::take(promises).into_iter().flat_map(kept).collect();
        }
        let [from, last] = [blocks.start, blocks.end - 1].map(|block| (volume, LeafKey::of(ino, block).0));
        let met: Vec<_> = self.leaves.range(from..=last).map(|(key, _)| *key).collect();
        for key in met {
            let gone = key.1.part_of(&blocks);
            let patch = self.leaves.get_mut(&key).expect("just seen");
            patch.leaf.clear(gone.clone());
            patch.moved.retain(|(moved, _)| !gone.contains(moved));
            if patch.leaf.is_empty() {
                self.leaves.remove(&key);
            }
        }
    }
    /// Reserves blocks for a file.
    pub fn promise(&mut self, volume: VolumeId, ino: Ino, range: Range<u64>) {
        self.bytes += PROMISE_BYTES;
        self.promises.entry((volume, ino)).or_default().push(range);
    }
    /// True if this generation reserves a block, false if it cuts it, None if it does neither.
    pub fn promised(&self, volume: VolumeId, ino: Ino, block: u64) -> Option<bool> {
        let holds = |ranges: &Vec<Range<u64>>| ranges.iter().any(|range| range.contains(&block));
        if self.promises.get(&(volume, ino)).is_some_and(holds) {
            return Some(true);
        }
        self.cuts.get(&(volume, ino)).filter(|cuts| cuts.hold(block)).map(|_| false)
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
            Edit::XattrPut { ino, name, value } => self.set_xattr(volume, *ino, name, Some(value)),
            Edit::XattrDrop { ino, name } => self.set_xattr(volume, *ino, name, None),
            Edit::OrphanPut { ino } => drop(self.orphans.insert((volume, *ino), true)),
            Edit::OrphanDrop { ino } => drop(self.orphans.insert((volume, *ino), false)),
            Edit::IntentPut(intent) => drop(self.intents.insert(intent.id, Some(intent.clone()))),
            Edit::IntentDrop { id } => drop(self.intents.insert(*id, None)),
            Edit::FollowedPut { id } => drop(self.followed.insert(*id, true)),
            Edit::FollowedDrop { id } => drop(self.followed.insert(*id, false)),
            Edit::LockPut { id, inos } => drop(self.locks.insert(*id, Some(LockRow { volume, inos: inos.clone() }))),
            Edit::LockDrop { id } => drop(self.locks.insert(*id, None)),
            Edit::VolumePut(volume) => drop(self.volumes.insert(volume.name.clone(), Some(volume.clone()))),
            Edit::VolumeChange { name, volume } => {
                self.volumes.insert(name.clone(), None);
                self.volumes.insert(volume.name.clone(), Some(volume.clone()));
            }
            Edit::SessionDrop { session } => drop(self.sessions.insert(*session, None)),
            Edit::VolumeDrop { id } => self.drop_volume(*id),
            Edit::Numbers { .. } => {}
            Edit::SessionPut { .. }
            | Edit::Term { .. }
            | Edit::InodePut { .. }
            | Edit::InodeTouch { .. }
            | Edit::InodeParent { .. }
            | Edit::InodeProject { .. }
            | Edit::InodeExtend { .. }
            | Edit::InodeCut { .. }
            | Edit::InodeDrop { .. }
            | Edit::Punch { .. }
            | Edit::Reserve { .. }
            | Edit::Map { .. } => unreachable!("the state applies edits of inodes, data, sessions and terms"),
        }
    }

    fn set_xattr(&mut self, volume: VolumeId, ino: Ino, name: &Name, value: Option<&Arc<[u8]>>) {
        self.bytes += XATTR_BYTES + value.map_or(0, |value| value.len());
        // Changes of an inode's attributes after the inode was dropped are ignored.
        if let Some(changes) = self.xattrs.entry((volume, ino)).or_insert_with(|| Some(XattrChanges::new())) {
            changes.insert(name.clone(), value.cloned());
        }
    }

    fn set_entry(&mut self, volume: VolumeId, dir: Ino, name: &Name, cookie: u64, entry: Option<Entry>) {
        let names = self.entries.entry((volume, dir)).or_default();
        if names.set(name.as_bytes(), entry) {
            self.bytes += ENTRY_BYTES + 2 * name.as_bytes().len();
        }
        let by_cookie = entry.map(|entry| (name.clone(), entry.ino, entry.kind));
        self.cookies.entry((volume, dir)).or_default().insert(cookie, by_cookie);
    }

    /// Drops the volume of this id from the catalogue, and everything of it in this generation.
    fn drop_volume(&mut self, id: VolumeId) {
        self.volume_drops.push(id);
        self.cut_blocks = u64::MAX;
        self.inodes.retain(|(volume, _), _| *volume != id);
        self.entries.retain(|(volume, _), _| *volume != id);
        self.cookies.retain(|(volume, _), _| *volume != id);
        self.targets.retain(|(volume, _), _| *volume != id);
        self.xattrs.retain(|(volume, _), _| *volume != id);
        self.leaves.retain(|(volume, _), _| *volume != id);
        self.cuts.retain(|(volume, _), _| *volume != id);
        self.promises.retain(|(volume, _), _| *volume != id);
        self.counts.retain(|(volume, _), _| *volume != id);
        self.projects.retain(|(volume, _), _| *volume != id);
        self.orphans.retain(|(volume, _), _| *volume != id);
    }

    /// Counts `bytes` more (or less) of names and targets of a volume.
    pub fn count_names(&mut self, volume: VolumeId, bytes: i64) {
        if !active(Bug::NamesNotCharged) {
            self.counts.entry((volume, 0)).or_default().names += bytes;
        }
    }

    /// Moves an inode to another project: the old project has one inode less, the new one has one more.
    pub fn set_project(&mut self, volume: VolumeId, ino: Ino, (old, new): (u32, u32)) {
        self.counts.entry((volume, old)).or_default().inodes -= 1;
        self.counts.entry((volume, new)).or_default().inodes += 1;
        if self.projects.insert((volume, ino), new).is_none() {
            self.bytes += PROJECT_BYTES;
        }
    }

    /// The project of an inode that has been written in this generation. A write changes its inode too, so the inode is
    /// here.
    fn project(&self, volume: VolumeId, ino: Ino) -> u32 {
        self.inodes.get(&(volume, ino)).and_then(|slot| slot.inode).map_or(0, |inode| inode.project)
    }

    /// The generation's changes in the order in which a checkpoint takes them: projects first, cuts before leaves,
    /// drops of volumes last.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.inodes.len() + self.leaves.len() + 8);
        changes.extend(self.projects.iter().map(|(&(volume, ino), &project)| Change::Project(volume, ino, project)));
        for (&(volume, ino), cuts) in &self.cuts {
            // The inode may have moved to another project after the cut.
            let project = self.projects.get(&(volume, ino)).copied().unwrap_or(cuts.project);
            let trim = cuts.trim;
            changes.extend(cuts.iter().map(|blocks| Change::Cut(Cut { volume, ino, project, blocks, trim })));
        }
        for (&(volume, ino), ranges) in &self.promises {
            let project = self.project(volume, ino);
            changes.extend(ranges.iter().map(|range| Change::Reserve(volume, ino, project, range.clone())));
        }
        changes.extend(self.counts.iter().map(|(&(volume, project), &more)| Change::Count(volume, project, more)));
        for (&(volume, ino), slot) in &self.inodes {
            changes.push(Change::Inode(volume, ino, slot.inode));
        }
        for (&(volume, dir), names) in &self.entries {
            for (name, entry) in names.iter() {
                let value = entry.map(|entry| (entry.ino, entry.kind, entry.cookie));
                changes.push(Change::Entry(volume, dir, name.clone(), value));
            }
        }
        for (&(volume, dir), cookies) in &self.cookies {
            changes.extend(cookies.iter().map(|(&cookie, entry)| Change::Cookie(volume, dir, cookie, entry.clone())));
        }
        for (&(volume, ino), target) in &self.targets {
            changes.push(Change::Target(volume, ino, target.clone()));
        }
        for (&(volume, ino), xattrs) in &self.xattrs {
            changes.push(Change::Xattrs(volume, ino, xattrs.clone()));
        }
        for (&(volume, key), patch) in &self.leaves {
            assert!(!patch.leaf.is_empty(), "a leaf that says nothing is not kept");
            changes.push(match patch.moved.len() == patch.leaf.len() {
                true => Change::Moved(volume, key, patch.leaf.clone(), patch.moved.clone()),
                false => Change::Leaf(volume, key, patch.leaf.clone(), self.project(volume, key.ino)),
            });
        }
        changes.extend(self.orphans.iter().map(|(&(volume, ino), &is)| Change::Orphan(volume, ino, is)));
        changes.extend(self.intents.iter().map(|(&id, intent)| Change::Intent(id, intent.clone())));
        changes.extend(self.followed.iter().map(|(&id, &is)| Change::Followed(id, is)));
        changes.extend(self.locks.iter().map(|(&id, row)| Change::Lock(id, row.clone())));
        changes.extend(self.sessions.iter().map(|(&id, results)| Change::Session(id, results.clone())));
        changes.extend(self.terms.clone().map(Change::Terms));
        changes.extend(self.volumes.iter().map(|(name, volume)| Change::Volume(name.clone(), volume.clone())));
        changes.extend(self.volume_drops.iter().map(|&id| Change::VolumeDrop(id)));
        changes
    }
}

/// Number of blocks of a file of this size.
pub fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{GroupId, SegmentId};

    #[test]
    fn a_name_is_counted_once_whatever_becomes_of_it() {
        let mut generation = Generation::default();
        let (volume, dir) = (VolumeId(1), Ino::new(3, GroupId(0)));
        let name = Name::new(b"name").expect("a good name");
        let put =
            Edit::EntryPut { dir, name: name.clone(), ino: Ino::new(4, GroupId(0)), kind: FileKind::File, cookie: 5 };
        let drop = Edit::EntryDrop { dir, name: name.clone(), cookie: 5 };
        for (edit, is_there) in [(&put, true), (&drop, false), (&put, true), (&put, true), (&drop, false)] {
            generation.apply(volume, edit);
            let entries = &generation.entries[&(volume, dir)];
            let is_known = entries.get(name.as_bytes()).map(|entry| entry.is_some());
            assert_eq!((entries.iter().count(), is_known), (1, Some(is_there)));
            assert_eq!(generation.bytes, ENTRY_BYTES + 2 * 4);
        }
        let mut generation = Generation::default();
        generation.apply(volume, &drop);
        let count = generation.entries[&(volume, dir)].iter().count();
        assert_eq!((count, generation.bytes), (1, ENTRY_BYTES + 2 * 4));
    }

    #[test]
    fn slots_and_what_they_were_moved_from_are_counted_once() {
        let mut generation = Generation::default();
        let place = |block| Place { segment: SegmentId(1), block };
        let mut map = |block: u64, moved_from| {
            let slot = Slot::Local { place: place(7), crc: 1, birth: 1 };
            generation.map(VolumeId(1), Ino::new(3, GroupId(0)), block, slot, moved_from);
            generation.bytes
        };
        let first = map(0, Some(place(3)));
        assert!(first > 2 * SLOT_BYTES, "a leaf, a slot, and what it was moved from");
        assert_eq!(map(0, Some(place(4))), first, "the same again");
        assert_eq!(map(0, None), first, "less is not given back before the checkpoint");
        assert_eq!(map(0, Some(place(3))), first + SLOT_BYTES);
        assert_eq!(map(1, None), first + 2 * SLOT_BYTES);
    }
}
