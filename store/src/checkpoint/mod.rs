//! Checkpoints (rule X1): the changes that groups have merged since the last one go to the index as one atomic batch,
//! with each group's applied position, the live bitmaps, and the place where replay starts. Leaves cut by truncations
//! and unlinks are freed on the way, a bounded number at a time (rule K6). Blocking: runs in the pool.

mod bitmaps;
mod commit;
pub mod held;
pub(crate) mod mapped;
mod summaries;
mod votes;

pub(crate) use commit::{Durable, write_rows};

use crate::Store;
use crate::format::keys;
use crate::format::leaf::{self, Encoded, Leaf, Slot};
use crate::format::values::{self, GroupRow, LockRow, ReplayRow, ReplicaRow, SessionRow, TermRow};
use crate::index::IndexEdit;
use crate::segments::Staged;
use crate::space::purge::Purges;
use crate::space::reserve::{self, Leaves, Reserves};
use crate::space::usage::{self, User};
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF, FILE_BYTES_MAX};
use base::{
    FileKind, GroupId, Ino, Inode, Intent, IntentId, LeafKey, Name, Place, Result, SessionId, Volume, VolumeId, Xattrs,
};
use runtime::seeded::{Bug, active};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Changes of extended attributes by name: the new value, or None if removed.
pub type XattrChanges = BTreeMap<Name, Option<Arc<[u8]>>>;

/// Applies `changes` to `all`, the full set of an inode's extended attributes.
pub fn lay_xattrs(all: &mut Xattrs, changes: &XattrChanges) {
    if active(Bug::XattrsReplaced) {
        all.clear();
    }
    for (name, value) in changes {
        match value {
            Some(value) => all.insert(name.clone(), value.clone()),
            None => all.remove(name),
        };
    }
}

/// One change of a group: all its changes of one key, merged into the final value.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// An inode, or its end.
    Inode(VolumeId, Ino, Option<Inode>),
    /// An entry (target, kind, cookie), or its end.
    Entry(VolumeId, Ino, Box<[u8]>, Option<(Ino, FileKind, u64)>),
    /// An entry by its cookie, or its end.
    Cookie(VolumeId, Ino, u64, Option<(Name, Ino, FileKind)>),
    /// A symbolic link's target, or its end.
    Target(VolumeId, Ino, Option<Box<[u8]>>),
    /// Extended attributes set and removed; None: they are gone with the inode.
    Xattrs(VolumeId, Ino, Option<XattrChanges>),
    /// An inode belongs to this project from now on. Comes before all changes that are charged to a project.
    Project(VolumeId, Ino, u32),
    /// Blocks of an inode are gone. Comes before leaves.
    Cut(Cut),
    /// Blocks are reserved for an inode of a project. Comes after cuts and before leaves.
    Reserve(VolumeId, Ino, u32, Range<u64>),
    /// A change of the number of a project's inodes, and of the bytes of names and targets.
    Count(VolumeId, u32, Count),
    /// Changed slots of a leaf, and the project of its inode.
    Leaf(VolumeId, LeafKey, Leaf, u32),
    /// Changed slots of a leaf in which only the cleaner has moved blocks, and the old places as the index has them:
    /// `Place::MISSING` for one that the brick lacked.
    Moved(VolumeId, LeafKey, Leaf, Vec<(usize, Place)>),
    /// The inode is an orphan, or no longer.
    Orphan(VolumeId, Ino, bool),
    /// An intent decided here, or its end.
    Intent(IntentId, Option<Intent>),
    /// The group has followed an intent, or the mark is gone.
    Followed(IntentId, bool),
    /// Inodes that are held for a change of another group, or the end of that.
    Lock(IntentId, Option<LockRow>),
    /// A session's row, or its end.
    Session(SessionId, Option<SessionRow>),
    /// The group's terms.
    Terms(Vec<TermRow>),
    /// A volume of the catalogue, or its end.
    Volume(Name, Option<Volume>),
    /// The group's replica has all its blocks: the mark that it heals goes.
    Healed,
    /// Everything of a volume in this group is gone. Comes after everything else.
    VolumeDrop(VolumeId),
}

/// The change of used space that records tell; the checkpoint itself counts data and extended attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Change of the number of inodes.
    pub inodes: i64,
    /// Change of the bytes of the rows of names and targets.
    pub names: i64,
}

/// A range of blocks that the index must no longer map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The volume.
    pub volume: VolumeId,
    /// The inode.
    pub ino: Ino,
    /// The inode's project.
    pub project: u32,
    /// The range of blocks; ends at `END` if all blocks from the first one on are cut.
    pub blocks: Range<u64>,
    /// The trim number of the truncation or punch; `purge::DROPPED` if the inode is gone too.
    pub trim: u64,
}

/// End of a truncation's cut: no file has as many blocks.
pub const END: u64 = u64::MAX;
const _: () = assert!(FILE_BYTES_MAX / (BLOCK_BYTES as u64) < END);

/// The part of one group in a checkpoint.
pub struct GroupPart {
    /// The group.
    pub group: GroupId,
    /// The group's counters, and its applied position, which the changes reach.
    pub row: GroupRow,
    /// First sequence number of inodes of which the index has nothing.
    pub young: u64,
    /// The group's changes: cuts before leaves, drops of volumes last.
    pub changes: Vec<Change>,
    /// Cuts that earlier checkpoints have left to free; the checkpoint updates them.
    pub purges: Arc<Purges>,
    /// Blocks reserved for files; the checkpoint updates them.
    pub reserves: Arc<Reserves>,
    /// The row of the group's replica, of a brick that is marked with `REPLICAS`: replay begins behind the votes that its promise comes
    /// to. None: it is as the index has it.
    pub replica: Option<ReplicaRow>,
}

/// The work that a checkpoint has left in a group for the next one.
pub struct Left {
    /// The group.
    pub group: GroupId,
    /// Cuts left to free.
    pub purges: Arc<Purges>,
    /// Reservations with blocks that are not mapped yet.
    pub reserves: Arc<Reserves>,
    /// Numbers of mapped blocks: of files with holes, and of files whose inode itself has not changed.
    pub blocks: BTreeMap<(VolumeId, Ino), u64>,
}

/// Limits of what one checkpoint frees of cut or dropped files: they bound the checkpoint's time and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeLimits {
    /// Largest number of leaves of an inode that are freed at once, so that small files leave no purge behind.
    pub at_once: usize,
    /// Largest number of slots that a checkpoint frees of its own cuts, over all inodes.
    pub slots_at_once: usize,
    /// Largest number of slots that a checkpoint frees of earlier checkpoints' cuts.
    pub slots_later: usize,
}

impl Default for FreeLimits {
    /// The usual limits: 16 MiB of a file at once, and 2^20 slots in all. That is 4 GiB of dense files or 116,000 files
    /// of one block, as many as an overlay holds, and takes about 1 s and 30 MB. The rest is not urgent.
    fn default() -> FreeLimits {
        FreeLimits { at_once: 64, slots_at_once: 1 << 20, slots_later: 1 << 18 }
    }
}

/// Cost of freeing a leaf besides its slots, as a number of slots: key, map entry, look-up.
const LEAF_SLOTS: usize = 8;
/// Number of leaves read in one go.
const LEAVES_AT_ONCE: usize = 256;
/// Number of index rows per scan.
const SCAN_ROWS: usize = 256;
/// Smallest number of rows that are deleted as a range. Reads check each deleted range, so these must be few.
const RANGE_ROWS_MIN: usize = 64;
/// Largest number of slots of a patch. With more of them, of 16 bytes each, it would be as large as the leaf.
const PATCH_SLOTS_MAX: usize = 24;
const _: () = assert!(PATCH_SLOTS_MAX < BLOCKS_PER_LEAF);

/// Changed slots of a leaf, and the project that is charged for the leaf's blocks.
struct Patch {
    volume: VolumeId,
    at: LeafKey,
    patch: Leaf,
    project: u32,
}

/// A leaf: its content in the index, its new one, and the project charged for its blocks; None if its volume goes.
struct Touched {
    old: Leaf,
    new: Leaf,
    project: Option<u32>,
}

#[derive(Default)]
struct Work {
    edits: Vec<IndexEdit>,
    /// Patches of the present group's part; they are applied many at a time.
    patches: Vec<Patch>,
    /// Changed leaves.
    leaves: BTreeMap<Vec<u8>, Touched>,
    /// Changes in the use of projects.
    usage: BTreeMap<User, usage::Change>,
    /// Changed inodes, and the changes of files' numbers of mapped blocks.
    inodes: BTreeMap<(VolumeId, Ino), Option<Inode>>,
    mapped: BTreeMap<(VolumeId, Ino), i64>,
    /// Inodes whose purges have changed.
    purged: BTreeSet<(VolumeId, Ino)>,
    /// Files of the present group's part whose reservations have changed.
    promised: BTreeSet<(VolumeId, Ino)>,
    /// Dropped volumes: their counts are dropped too.
    dropped: Vec<(GroupId, VolumeId)>,
    /// Blocks that patches have made dead and live, of leaves that were not read as a whole.
    dead: Vec<Place>,
    live: Vec<Place>,
    staged: Staged,
    /// Number of slots that may still be freed.
    budget: usize,
    /// The bitmaps that freeing needs besides.
    freed: bitmaps::Freed,
}

/// Writes a checkpoint and makes it durable. The caller has made sure that every record up to the parts' applied
/// positions is durable in the log (rule U5), and that `replay` lies at or before the first record above these
/// positions. Returns the work left in each part's group. Errors: `Io`, `Corrupt` (rule X4).
pub fn write(store: &Store, replay: ReplayRow, parts: Vec<GroupPart>, limits: FreeLimits) -> Result<Vec<Left>> {
    store.check_host_room();
    if active(Bug::FreedBeforeCheckpoint) {
        store.index.persist()?;
    }
    let mut work = Work { budget: limits.slots_at_once, freed: bitmaps::Freed::of(store), ..Work::default() };
    let mut left = Vec::with_capacity(parts.len());
    let mut promised = Vec::with_capacity(parts.len());
    let mut young = BTreeMap::new();
    for GroupPart { group, row, young: of_group, changes, mut purges, mut reserves, replica } in parts {
        assert!(young.insert(group, of_group).is_none(), "group {group} has one part");
        work.edits.push(IndexEdit::Put(keys::group(group), values::encode_group(&row)));
        work.edits.extend(replica.and_then(|replica| votes::row(store, group, replica)));
        let before = reserves.clone();
        for change in changes {
            work.take(store, group, (&mut purges, &mut reserves), change, limits)?;
        }
        for some in std::mem::take(&mut work.patches).chunks(LEAVES_AT_ONCE) {
            work.patch(store, &purges, &reserves, some)?;
        }
        promised.push((before, std::mem::take(&mut work.promised)));
        left.push(Left { group, purges, reserves, blocks: BTreeMap::new() });
    }
    // Comes before purges end, since purges tell which leaves in the index are stale.
    for (left, (before, files)) in left.iter_mut().zip(promised) {
        work.count_promises(store, left, &before, files)?;
    }
    work.budget = limits.slots_later;
    for Left { group, purges, .. } in &mut left {
        work.free(store, *group, purges)?;
        work.put_purges(*group, purges);
    }
    work.finish_leaves(store)?;
    work.finish_inodes(store, &young, &mut left)?;
    work.commit(store, replay, Durable::Now)?;
    Ok(left)
}

impl Work {
    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.edits.push(match value {
            Some(value) => IndexEdit::Put(key, value),
            None => IndexEdit::Delete(key),
        });
    }

    fn take(
        &mut self,
        store: &Store,
        group: GroupId,
        (purges, reserves): (&mut Arc<Purges>, &mut Arc<Reserves>),
        change: Change,
        limits: FreeLimits,
    ) -> Result<()> {
        match change {
            Change::Inode(volume, ino, inode) => {
                self.inodes.insert((volume, ino), inode);
            }
            Change::Entry(volume, dir, name, entry) => {
                let value = entry.map(|(ino, kind, cookie)| values::encode_entry(ino, kind, cookie));
                self.put(keys::entry(volume, dir, &name), value);
            }
            Change::Cookie(volume, dir, cookie, entry) => {
                let value = entry.map(|(name, ino, kind)| values::encode_cookie(name.as_bytes(), ino, kind));
                self.put(keys::cookie(volume, dir, cookie), value);
            }
            Change::Target(volume, ino, target) => {
                self.put(keys::target(volume, ino), target.map(|target| values::encode_target(&target)));
            }
            Change::Xattrs(volume, ino, changes) => self.xattrs(store, (volume, ino), changes)?,
            Change::Project(volume, ino, project) => {
                self.change_project(store, (purges, reserves), (volume, ino), project)?;
            }
            Change::Cut(cut) => {
                self.cut(store, purges, &cut, limits)?;
                if reserves.files.contains_key(&(cut.volume, cut.ino)) {
                    Arc::make_mut(reserves).cut((cut.volume, cut.ino), &cut.blocks);
                    self.promised.insert((cut.volume, cut.ino));
                }
            }
            Change::Reserve(volume, ino, project, range) => {
                Arc::make_mut(reserves).add((volume, ino), project, range);
                self.promised.insert((volume, ino));
            }
            Change::Count(volume, project, more) => {
                let usage = self.usage.entry((group, volume, project)).or_default();
                usage.inodes += more.inodes;
                usage.names += more.names;
            }
            Change::Leaf(volume, at, patch, project) => self.patches.push(Patch { volume, at, patch, project }),
            Change::Moved(volume, key, patch, from) => self.moved(store, purges, (volume, key), &patch, &from)?,
            Change::Orphan(volume, ino, is) => {
                self.put(keys::orphan(volume, ino), is.then(values::encode_mark));
            }
            Change::Intent(id, intent) => {
                self.put(keys::intent(id), intent.map(|intent| values::encode_intent(&intent)));
            }
            Change::Followed(id, is) => self.put(keys::followed(group, id), is.then(values::encode_mark)),
            Change::Lock(id, row) => self.put(keys::lock(group, id), row.map(|row| values::encode_lock(&row))),
            Change::Session(session, row) => {
                self.put(keys::session(group, session), row.map(|row| values::encode_session(&row)));
            }
            Change::Terms(terms) => self.put(keys::terms(group), Some(values::encode_terms(&terms))),
            Change::Volume(name, volume) => {
                self.put(keys::volume(name.as_bytes()), volume.map(|volume| values::encode_volume(&volume)));
            }
            Change::Healed => self.put(keys::heal(group), None),
            Change::VolumeDrop(volume) => {
                self.drop_volume(group, purges, volume);
                Arc::make_mut(reserves).files.retain(|(of, _), _| *of != volume);
            }
        }
        Ok(())
    }

    /// Charges an inode's mapped and reserved blocks to another project from this checkpoint on.
    fn change_project(
        &mut self,
        store: &Store,
        (purges, reserves): (&mut Arc<Purges>, &mut Arc<Reserves>),
        file: (VolumeId, Ino),
        project: u32,
    ) -> Result<()> {
        let Some((old, blocks)) = mapped::leaves_project(store, file, project)? else { return Ok(()) };
        let reserved = Arc::make_mut(reserves).give(file, project);
        Arc::make_mut(purges).give(file, project);
        self.promised.insert(file);
        self.purged.insert(file);
        for (of, sign) in [(old, -1), (project, 1)] {
            let usage = self.usage.entry((file.1.group(), file.0, of)).or_default();
            usage.blocks += sign * blocks as i64;
            usage.reserved += sign * reserved as i64;
        }
        Ok(())
    }

    /// Applies changes of extended attributes to those in the index, and counts their bytes.
    fn xattrs(&mut self, store: &Store, (volume, ino): (VolumeId, Ino), changes: Option<XattrChanges>) -> Result<()> {
        let key = keys::xattrs(volume, ino);
        let before = store.index.get(&key)?;
        let mut all = Xattrs::new();
        if let Some(changes) = changes {
            all = before.as_ref().map(|row| values::decode_xattrs(row)).transpose()?.unwrap_or_default();
            lay_xattrs(&mut all, &changes);
        }
        let after = (!all.is_empty()).then(|| values::encode_xattrs(&all));
        if !active(Bug::NamesNotCharged) {
            let bytes = |row: &Option<Vec<u8>>| row.as_ref().map_or(0, |row| (key.len() + row.len()) as i64);
            self.usage.entry((ino.group(), volume, 0)).or_default().names += bytes(&after) - bytes(&before);
        }
        self.put(key, after);
        Ok(())
    }

    /// The new content of a leaf, which begins as the content in the index, or empty if that is stale.
    fn leaf(
        &mut self,
        store: &Store,
        purges: &Purges,
        (volume, project): (VolumeId, u32),
        at: LeafKey,
    ) -> Result<&mut Leaf> {
        let (key, trim) = (keys::leaf(volume, at), purges.trim_of(volume, at));
        if !self.leaves.contains_key(&key) {
            let old = store.index.get(&key)?.map(|value| Leaf::decode(&value)).transpose()?.unwrap_or_default();
            let new = if old.trim < trim { Leaf::default() } else { old.clone() };
            self.leaves.insert(key.clone(), Touched { old, new, project: Some(project) });
        }
        let leaf = &mut self.leaves.get_mut(&key).expect("just touched").new;
        leaf.trim = leaf.trim.max(trim);
        Ok(leaf)
    }

    /// Applies patches to leaves. Most patches only map blocks: then only these slots of the leaf are decoded, and the
    /// engine merges the patch with the rest.
    fn patch(&mut self, store: &Store, purges: &Purges, reserves: &Reserves, patches: &[Patch]) -> Result<()> {
        let (plain, others): (Vec<_>, Vec<_>) = patches.iter().partition(|one| {
            let touched = self.leaves.contains_key(&keys::leaf(one.volume, one.at));
            let maps = one.patch.iter().all(|(_, slot)| slot != Slot::Hole);
            // Reserved blocks are counted by whole leaves.
            let promised = reserves.files.contains_key(&(one.volume, one.at.ino));
            maps && !touched && !promised && purges.trim_of(one.volume, one.at) == 0
        });
        for Patch { volume, at, patch, project } in others {
            if reserves.files.contains_key(&(*volume, at.ino)) {
                self.promised.insert((*volume, at.ino));
            }
            self.leaf(store, purges, (*volume, *project), *at)?.lay(patch);
        }
        let keys: Vec<_> = plain.iter().map(|one| keys::leaf(one.volume, one.at)).collect();
        let leaves = store.index.get_many(&keys)?;
        assert!(leaves.len() == plain.len(), "the index answers for each key");
        for ((one, key), old) in plain.into_iter().zip(keys).zip(leaves) {
            let old = old.unwrap_or_else(|| Leaf::default().encode());
            let leaf = Encoded::new(&old)?;
            let mut more = 0;
            for (slot, value) in one.patch.iter() {
                let Slot::Local { place, .. } = value else { unreachable!("it maps") };
                match leaf.place(slot)? {
                    Some(before) => self.dead.push(before),
                    None => more += 1,
                }
                self.live.push(place);
            }
            if more > 0 {
                self.count_blocks((one.volume, one.at.ino), one.project, more);
            }
            let patch = one.patch.encode();
            let small = one.patch.len() <= PATCH_SLOTS_MAX && one.patch.len() < leaf.len();
            self.edits.push(match small {
                true => IndexEdit::Patch(key, patch),
                false => IndexEdit::Put(key, leaf::merge(Some(&old), &patch)),
            });
        }
        Ok(())
    }

    /// Counts `more` mapped blocks (or fewer) for a file of a project.
    fn count_blocks(&mut self, (volume, ino): (VolumeId, Ino), project: u32, more: i64) {
        if more != 0 {
            self.usage.entry((ino.group(), volume, project)).or_default().blocks += more;
            *self.mapped.entry((volume, ino)).or_default() += more;
        }
    }

    /// Applies moves of a leaf's blocks. The leaf need not be read, unless a cut has yet to be carried out in it.
    fn moved(
        &mut self,
        store: &Store,
        purges: &Purges,
        (volume, at): (VolumeId, LeafKey),
        patch: &Leaf,
        from: &[(usize, Place)],
    ) -> Result<()> {
        assert!(from.len() == patch.len(), "each block of {at:?} was moved from somewhere");
        let key = keys::leaf(volume, at);
        if self.leaves.contains_key(&key) || purges.trim_of(volume, at) > 0 {
            // The project does not matter: as many blocks as before are mapped.
            self.leaf(store, purges, (volume, 0), at)?.lay(patch);
            return Ok(());
        }
        for (slot, old) in from {
            let Some(Slot::Local { place, .. }) = patch.get(*slot) else { unreachable!("a moved block has a place") };
            self.dead.push(*old);
            self.live.push(place);
        }
        self.edits.push(IndexEdit::Patch(key, patch.encode()));
        Ok(())
    }

    /// Frees the leaves of a cut, as far as the limits allow; the rest becomes a purge.
    fn cut(&mut self, store: &Store, purges: &mut Arc<Purges>, cut: &Cut, limits: FreeLimits) -> Result<()> {
        let Cut { volume, ino, project, ref blocks, trim } = *cut;
        assert!(!blocks.is_empty(), "a cut of {ino:?} takes blocks away");
        let whole = whole_leaves(blocks);
        for leaf in cut_leaves(blocks) {
            let at = LeafKey { ino, leaf };
            self.leaf(store, purges, (volume, project), at)?.clear(at.part_of(blocks));
        }
        if whole.is_empty() {
            return Ok(());
        }
        let (mut from, to) = keys::leaves_within(volume, ino, &whole);
        let rows = match self.budget {
            0 => Vec::new(),
            _ => store.index.scan(&from, &to, limits.at_once)?,
        };
        let done = self.budget > 0 && rows.len() < limits.at_once;
        for (key, value) in rows {
            from = key.clone();
            self.erase(store, key, Leaf::decode(&value)?, Some(project));
        }
        let left = if done { whole.end } else { keys::leaf_number(&from) }..whole.end;
        if !left.is_empty() || purges.inodes.contains_key(&(volume, ino)) {
            Arc::make_mut(purges).cut((volume, ino), project, whole, left, trim);
            self.purged.insert((volume, ino));
        }
        Ok(())
    }

    /// Removes a leaf.
    fn erase(&mut self, store: &Store, key: Vec<u8>, old: Leaf, project: Option<u32>) {
        let bitmaps = self.freed.slots(store, old.places());
        self.budget = self.budget.saturating_sub(old.len() + LEAF_SLOTS + bitmaps);
        let gone = Touched { old, new: Leaf::default(), project };
        self.leaves.entry(key).or_insert(gone).new = Leaf::default();
    }

    /// Writes the purges of a group that have changed.
    fn put_purges(&mut self, group: GroupId, purges: &Purges) {
        let purged = std::mem::take(&mut self.purged);
        let (own, others): (BTreeSet<_>, BTreeSet<_>) = purged.into_iter().partition(|(_, ino)| ino.group() == group);
        self.purged = others;
        if active(Bug::PurgeForgotten) {
            return;
        }
        for (volume, ino) in own {
            self.put(keys::purge(volume, ino), purges.inodes.get(&(volume, ino)).map(values::encode_purge));
        }
    }

    fn drop_volume(&mut self, group: GroupId, purges: &mut Arc<Purges>, volume: VolumeId) {
        // Leaves of this volume that the same checkpoint changed must not come back.
        let (from, to) = keys::leaves_in_group(group, volume);
        self.leaves.range_mut(from..to).for_each(|(_, touched)| {
            (touched.new, touched.project) = (Leaf::default(), None);
        });
        self.dropped.push((group, volume));
        let others = keys::volume_but_leaves(group, volume);
        if !active(Bug::VolumeRowsKept) {
            self.edits.extend(others.map(|(from, to)| IndexEdit::DeleteRange(from, to)));
        }
        Arc::make_mut(purges).drop_volume(volume);
        self.put(keys::purged_volume(group, volume), Some(values::encode_mark()));
    }

    /// Continues to free a group's cuts of earlier checkpoints, within the budget.
    fn free(&mut self, store: &Store, group: GroupId, purges: &mut Arc<Purges>) -> Result<()> {
        while self.budget > 0
            && let Some(&volume) = purges.volumes.first()
        {
            let (from, to) = keys::leaves_in_group(group, volume);
            if self.free_rows(store, purges, (volume, None), (from, to))?.is_none() {
                Arc::make_mut(purges).volumes.remove(&volume);
                self.put(keys::purged_volume(group, volume), None);
            }
        }
        // A purge that is not done has used up the budget, so this ends.
        while self.budget > 0
            && let Some((&(volume, ino), purge)) = purges.inodes.first_key_value()
        {
            let (of, leaves) = ((volume, Some(purge.project)), purge.first());
            let next = self.free_rows(store, purges, of, keys::leaves_within(volume, ino, &leaves))?;
            let next = next.unwrap_or(leaves.end);
            assert!(next > leaves.start, "freeing {ino:?} goes on from leaf {next}");
            Arc::make_mut(purges).freed((volume, ino), leaves.start..next);
            self.purged.insert((volume, ino));
        }
        Ok(())
    }

    /// Frees stale leaves of a range within the budget. Returns the leaf at which to continue; None if all are freed.
    fn free_rows(
        &mut self,
        store: &Store,
        purges: &Purges,
        (volume, project): (VolumeId, Option<u32>),
        (mut from, to): keys::Bounds,
    ) -> Result<Option<u64>> {
        // Consecutive rows to delete: no row that stays lies between them.
        let mut gone = Vec::new();
        let mut last = false;
        while self.budget > 0 && !last {
            let count = SCAN_ROWS.min(self.budget.div_ceil(LEAF_SLOTS + self.freed.slots_of_leaf()));
            let rows = store.index.scan(&from, &to, count)?;
            last = rows.len() < count;
            for (key, value) in rows {
                from = keys::after(&key);
                self.budget = self.budget.saturating_sub(1);
                let old = Encoded::new(&value)?;
                let at = keys::leaf_of(&key);
                // A leaf that this checkpoint has written is not stale.
                if self.leaves.contains_key(&key) || old.trim() >= purges.trim_of(volume, at) {
                    self.delete(&mut gone);
                    continue;
                }
                let before = self.dead.len();
                for place in old.places() {
                    self.dead.push(place?);
                }
                let bitmaps = self.freed.slots(store, self.dead[before..].iter().copied());
                self.budget = self.budget.saturating_sub(old.len() + LEAF_SLOTS + bitmaps);
                if let Some(project) = project {
                    let freed = (self.dead.len() - before) as i64;
                    self.count_blocks((volume, at.ino), project, -freed);
                }
                gone.push(key);
            }
        }
        self.delete(&mut gone);
        // Behind the last row even if that stays: with a budget for one row, it would be looked at for ever.
        Ok((!last).then(|| keys::leaf_number(&from) + 1))
    }

    /// Deletes index rows between which there is no other row.
    fn delete(&mut self, gone: &mut Vec<Vec<u8>>) {
        if gone.len() < RANGE_ROWS_MIN {
            self.edits.extend(gone.drain(..).map(IndexEdit::Delete));
        } else if let (Some(mut last), Some(first)) = (gone.pop(), gone.drain(..).next()) {
            last.push(0);
            self.edits.push(IndexEdit::DeleteRange(first, last));
        }
    }

    /// Counts the reserved blocks that are not mapped yet, of files whose reservations have changed.
    fn count_promises(
        &mut self,
        store: &Store,
        left: &mut Left,
        before: &Reserves,
        files: BTreeSet<(VolumeId, Ino)>,
    ) -> Result<()> {
        for file in files {
            let (volume, ino) = file;
            let reserves = Arc::make_mut(&mut left.reserves);
            // The reservation has gone with its volume, and so has its row.
            let Some(reserve) = reserves.files.get_mut(&file) else { continue };
            let leaves = TouchedOf { work: self, volume, ino };
            reserve::count(&*store.index, &left.purges, file, reserve, &leaves)?;
            let old = before.files.get(&file);
            let more = reserve.left() as i64 - old.map_or(0, |old| old.left() as i64);
            let row = (!reserve.extents.is_empty()).then(|| values::encode_reserve(reserve));
            let project = reserve.project;
            if row.is_none() {
                reserves.files.remove(&file);
            }
            self.usage.entry((left.group, volume, project)).or_default().reserved += more;
            self.put(keys::reserve(volume, ino), row);
        }
        Ok(())
    }

    /// Writes the rows of inodes that changed, with the counts of their blocks.
    fn finish_inodes(&mut self, store: &Store, young: &BTreeMap<GroupId, u64>, left: &mut [Left]) -> Result<()> {
        let (mut inodes, mut mapped) = (std::mem::take(&mut self.inodes), std::mem::take(&mut self.mapped));
        let mut counted = std::mem::take(&mut store.usages.lock().files);
        // The rows of dropped volumes are gone.
        let stays = |(volume, ino): &(VolumeId, Ino)| !self.dropped.contains(&(ino.group(), *volume));
        inodes.retain(|file, _| stays(file));
        mapped.retain(|file, _| stays(file));
        counted.retain(|file, _| stays(file));
        let uncounted = store.usages.lock().uncounted();
        let (edits, told) = mapped::Changed { inodes, mapped, counted, young, uncounted }.rows(&*store.index)?;
        self.edits.extend(edits);
        for (file, blocks) in told {
            if let Some(of_group) = left.iter_mut().find(|of_group| of_group.group == file.1.group()) {
                of_group.blocks.insert(file, blocks);
            }
        }
        Ok(())
    }

    /// Turns the touched leaves into edits of the index and of the live bitmaps.
    fn finish_leaves(&mut self, store: &Store) -> Result<()> {
        self.load_bitmaps(store)?;
        let table = store.table.lock();
        self.dead.drain(..).try_for_each(|place| table.stage_dead(&mut self.staged, place))?;
        self.live.drain(..).try_for_each(|place| table.stage_live(&mut self.staged, place))?;
        for (key, Touched { old, new, project }) in std::mem::take(&mut self.leaves) {
            let new = new.without_holes();
            let mut patch = Leaf::default();
            if let (Some(project), Some((_, volume, _))) = (project, keys::row(&key)) {
                let more = new.places().count() as i64 - old.places().count() as i64;
                self.count_blocks((volume, keys::leaf_of(&key).ino), project, more);
            }
            for index in 0..BLOCKS_PER_LEAF {
                let (before, after) = (old.get(index), new.get(index));
                if before == after {
                    continue;
                }
                if let Some(Slot::Local { place, .. }) = before {
                    table.stage_dead(&mut self.staged, place)?;
                }
                if let Some(Slot::Local { place, .. }) = after {
                    table.stage_live(&mut self.staged, place)?;
                }
                patch.set(index, after.unwrap_or(Slot::Hole));
            }
            if patch.is_empty() {
                continue;
            }
            let edit = if new.is_empty() {
                IndexEdit::Delete(key)
            } else if patch.len() <= PATCH_SLOTS_MAX && patch.len() < new.len() && old.trim == new.trim {
                IndexEdit::Patch(key, patch.encode())
            } else {
                IndexEdit::Put(key, new.encode())
            };
            self.edits.push(edit);
        }
        Ok(())
    }
}

/// The leaves that lie completely in a cut.
fn whole_leaves(blocks: &Range<u64>) -> Range<u64> {
    let end = if blocks.end == END { END } else { blocks.end / BLOCKS_PER_LEAF as u64 };
    blocks.start.div_ceil(BLOCKS_PER_LEAF as u64)..end
}

/// The leaves that lie only partly in a cut: the first one, the last one, both or none.
fn cut_leaves(blocks: &Range<u64>) -> BTreeSet<u64> {
    let whole = whole_leaves(blocks);
    let ends = [blocks.start, blocks.end - 1].map(|block| block / BLOCKS_PER_LEAF as u64);
    ends.into_iter().filter(|leaf| !whole.contains(leaf)).collect()
}

/// A file's leaves that a checkpoint has touched.
struct TouchedOf<'a> {
    work: &'a Work,
    volume: VolumeId,
    ino: Ino,
}

impl Leaves for TouchedOf<'_> {
    fn touched(&self, leaf: u64) -> Option<(Option<&Leaf>, &Leaf)> {
        let touched = self.work.leaves.get(&keys::leaf(self.volume, LeafKey { ino: self.ino, leaf }))?;
        // A stale leaf counts as empty.
        let before = (touched.old.trim >= touched.new.trim).then_some(&touched.old);
        Some((before, &touched.new))
    }
    fn all(&self) -> Vec<u64> {
        let (from, to) = keys::leaves_from(self.volume, self.ino, 0);
        self.work.leaves.range(from..to).map(|(key, _)| keys::leaf_number(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Uuid;
    use crate::format::devices::DeviceTable;
    use crate::format::segment::Stream;
    use crate::format::values::SegmentState;
    use crate::segments::{Origin, Resident, Table};

    #[test]
    fn a_segment_that_was_sealed_meanwhile_leaves_no_parts() {
        let mut table = Table::new(&DeviceTable::of_one(Uuid::default(), 3), Resident::Flash);
        let taken: Vec<_> =
            (0..3).map(|_| table.take(Stream::Commit, Origin::Flash).expect("all are free").segment).collect();
        table.set_state(taken[0], SegmentState::Closed, 9);
        table.set_state(taken[1], SegmentState::Sealed, 9);
        let mut summaries = taken.iter().map(|&segment| (segment, 5)).collect();
        let mut edits = Vec::new();
        bitmaps::put(&mut table, &Staged::default(), (&mut summaries, &mut edits), ReplayRow::default());
        assert_eq!(summaries, BTreeMap::from([(taken[0], 5), (taken[2], 5)]));
        let (from, to) = keys::summary_of(taken[1]);
        let is_drop = |edit: &&IndexEdit| matches!(edit, IndexEdit::DeleteRange(..));
        let drops: Vec<_> = edits.iter().filter(is_drop).collect();
        assert!(matches!(&drops[..], [IndexEdit::DeleteRange(first, end)] if *first == from && *end == to));
    }
}
