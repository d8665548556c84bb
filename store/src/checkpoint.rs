//! Checkpoints (rule X1): what groups have merged since the last one goes to the index as one atomic batch, with each
//! group's applied position, the live bitmaps and the place where replay starts. Blocking: runs in the pool.

use crate::Store;
use crate::format::leaf::{Leaf, Slot};
use crate::format::values::{self, GroupRow, ReplayRow, SegmentRow};
use crate::format::{keys, summary};
use crate::index::IndexEdit;
use crate::segments::Staged;
use base::limits::BLOCKS_PER_LEAF;
use base::{
    FileKind, GroupId, Ino, Inode, Intent, IntentId, LeafKey, Name, Outcome, RequestId, Result, SegmentId, SessionId,
    Volume, VolumeId,
};
use runtime::seeded::{Bug, active};
use std::collections::BTreeMap;

/// One merged change of a group: the last word on its key.
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
    /// Blocks of the inode from this one on, as far as the index knows them, are gone. Comes before leaves.
    Cut(VolumeId, Ino, u64),
    /// Slots laid over a leaf.
    Leaf(VolumeId, LeafKey, Leaf),
    /// The inode is an orphan, or no longer.
    Orphan(VolumeId, Ino, bool),
    /// An intent decided here, or its end.
    Intent(IntentId, Option<Intent>),
    /// The group has followed an intent, or the mark's end.
    Followed(IntentId, bool),
    /// A session's last results, or their end.
    Session(SessionId, Option<Vec<(RequestId, Outcome)>>),
    /// A volume of the catalogue, or its end.
    Volume(Name, Option<Volume>),
    /// All that a volume has in this group is gone. Comes after everything else.
    VolumeDrop(VolumeId),
}

/// What one group adds to a checkpoint.
pub struct GroupPart {
    /// The group.
    pub group: GroupId,
    /// Its counters and applied position, which the changes bring the index to.
    pub row: GroupRow,
    /// Cuts before leaves, drops of volumes last.
    pub changes: Vec<Change>,
}

/// Index rows per scan: bounds memory while a large file's leaves are freed.
const SCAN_ROWS: usize = 1000;
/// A leaf with more changed slots than this is written whole: a patch of 16-byte slots would be as large.
const PATCH_SLOTS_MAX: usize = 24;

#[derive(Default)]
struct Work {
    edits: Vec<IndexEdit>,
    /// Leaves touched: what the index holds, what it shall hold.
    leaves: BTreeMap<Vec<u8>, (Leaf, Leaf)>,
    staged: Staged,
}

/// Writes a checkpoint and makes it durable. Every record up to the parts' applied positions is durable in the log
/// (rule U5), and `replay` lies at or before the first record above them. Errors: `Io`, `Corrupt` (rule X4).
pub fn write(store: &Store, replay: ReplayRow, parts: Vec<GroupPart>) -> Result<()> {
    if active(Bug::FreedBeforeCheckpoint) {
        store.index.persist()?;
    }
    let mut work = Work::default();
    for part in parts {
        work.edits.push(IndexEdit::Put(keys::group(part.group), values::encode_group(&part.row)));
        for change in part.changes {
            work.take(store, part.group, change)?;
        }
    }
    work.finish_leaves(store);
    let Work { mut edits, staged, .. } = work;
    let summaries = summary_rows(store, &mut edits);
    let replay = {
        let mut table = store.table.lock();
        for (segment, row) in table.stage_rows(&staged) {
            if !active(Bug::BitmapDropped) || row.live.is_empty() {
                edits.push(segment_row(segment, &row));
            }
        }
        ReplayRow { next_sequence: table.next_sequence, ..replay }
    };
    edits.push(IndexEdit::Put(keys::replay(), values::encode_replay(&replay)));
    store.index.write(edits)?;
    if active(Bug::DiscardedBeforeCheckpoint) {
        crate::discard::too_early(store, &staged, replay.sequence)?;
    }
    // The seeded early freeing makes a checkpoint durable only when the next one comes.
    if !active(Bug::CheckpointDropped) && !active(Bug::FreedBeforeCheckpoint) {
        store.index.persist()?;
    }
    {
        let mut table = store.table.lock();
        table.commit(staged);
        table.free_dead(replay.sequence);
        store.space.measured(table.space().live_blocks);
    }
    store.let_go();
    *store.summarised.lock() = summaries;
    *store.replay.lock() = replay;
    Ok(())
}

fn segment_row(segment: SegmentId, row: &SegmentRow) -> IndexEdit {
    IndexEdit::Put(keys::segment(segment), values::encode_segment(row))
}

/// Summary entries of open segments since the last checkpoint go to the index, so that a seal after a crash has all
/// of them; those of sealed segments are dropped. Returns how many of each segment the index then holds.
fn summary_rows(store: &Store, edits: &mut Vec<IndexEdit>) -> BTreeMap<SegmentId, usize> {
    let before = store.summarised.lock().clone();
    let now: BTreeMap<_, _> = store.log.summary_lengths().into_iter().collect();
    for (&segment, _) in before.iter().filter(|(segment, _)| !now.contains_key(segment)) {
        let (from, to) = keys::summary_of(segment);
        edits.push(IndexEdit::DeleteRange(from, to));
    }
    let mut after = BTreeMap::new();
    for &segment in now.keys() {
        let from = before.get(&segment).copied().unwrap_or(0);
        let entries = store.log.summary_from(segment, from);
        after.insert(segment, from + entries.len());
        if from == 0 {
            // Parts of an earlier life, or from before a crash.
            let (from, to) = keys::summary_of(segment);
            edits.push(IndexEdit::DeleteRange(from, to));
        }
        if !entries.is_empty() {
            let key = keys::summary(segment, from as u16);
            edits.push(IndexEdit::Put(key, summary::encode_entries(&entries)));
        }
    }
    after
}

impl Work {
    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.edits.push(match value {
            Some(value) => IndexEdit::Put(key, value),
            None => IndexEdit::Delete(key),
        });
    }

    fn take(&mut self, store: &Store, group: GroupId, change: Change) -> Result<()> {
        match change {
            Change::Inode(volume, ino, inode) => {
                self.put(keys::inode(volume, ino), inode.map(|inode| values::encode_inode(&inode)));
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
            Change::Cut(volume, ino, first) => self.cut(store, volume, ino, first)?,
            Change::Leaf(volume, key, patch) => self.leaf(store, volume, key)?.lay(&patch),
            Change::Orphan(volume, ino, is) => {
                self.put(keys::orphan(volume, ino), is.then(values::encode_mark));
            }
            Change::Intent(id, intent) => {
                self.put(keys::intent(id), intent.map(|intent| values::encode_intent(&intent)));
            }
            Change::Followed(id, is) => self.put(keys::followed(group, id), is.then(values::encode_mark)),
            Change::Session(session, results) => {
                self.put(keys::session(group, session), results.map(|results| values::encode_results(&results)));
            }
            Change::Volume(name, volume) => {
                self.put(keys::volume(name.as_bytes()), volume.map(|volume| values::encode_volume(&volume)));
            }
            Change::VolumeDrop(volume) => self.drop_volume(store, group, volume)?,
        }
        Ok(())
    }

    fn leaf(&mut self, store: &Store, volume: VolumeId, key: LeafKey) -> Result<&mut Leaf> {
        let key = keys::leaf(volume, key);
        if !self.leaves.contains_key(&key) {
            let old = store.index.get(&key)?.map(|value| Leaf::decode(&value)).transpose()?.unwrap_or_default();
            self.leaves.insert(key.clone(), (old.clone(), old));
        }
        Ok(&mut self.leaves.get_mut(&key).expect("just inserted").1)
    }

    fn cut(&mut self, store: &Store, volume: VolumeId, ino: Ino, first: u64) -> Result<()> {
        let (from, to) = keys::leaves_from(volume, ino, first / BLOCKS_PER_LEAF as u64);
        self.each_leaf(store, from, to, |key, leaf| {
            let kept = first.saturating_sub(keys::leaf_number(key) * BLOCKS_PER_LEAF as u64);
            if (kept as usize) < BLOCKS_PER_LEAF {
                leaf.truncate(kept as usize);
            }
        })
    }

    fn drop_volume(&mut self, store: &Store, group: GroupId, volume: VolumeId) -> Result<()> {
        let (from, to) = keys::leaves_in_group(group, volume);
        self.each_leaf(store, from, to, |_, leaf| *leaf = Leaf::default())?;
        let (from, to) = keys::volume_in_group(group, volume);
        // Leaves of this volume that the same checkpoint changed must not come back.
        self.leaves.range_mut(from.clone()..to.clone()).for_each(|(_, (_, new))| *new = Leaf::default());
        self.edits.push(IndexEdit::DeleteRange(from, to));
        Ok(())
    }

    /// Changes every leaf that the index holds in a range.
    fn each_leaf(
        &mut self,
        store: &Store,
        mut from: Vec<u8>,
        to: Vec<u8>,
        change: impl Fn(&[u8], &mut Leaf),
    ) -> Result<()> {
        loop {
            let rows = store.index.scan(&from, &to, SCAN_ROWS)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            from = [last.as_slice(), &[0]].concat();
            for (key, value) in rows {
                let old = Leaf::decode(&value)?;
                let (_, new) = self.leaves.entry(key.clone()).or_insert_with(|| (old.clone(), old));
                change(&key, new);
            }
        }
    }

    /// Turns the touched leaves into index edits and live bits.
    fn finish_leaves(&mut self, store: &Store) {
        let table = store.table.lock();
        for (key, (old, new)) in std::mem::take(&mut self.leaves) {
            let new = new.without_holes();
            let mut patch = Leaf::default();
            for index in 0..BLOCKS_PER_LEAF {
                let (before, after) = (old.get(index), new.get(index));
                if before == after {
                    continue;
                }
                if let Some(Slot::Local { place, .. }) = before {
                    table.stage_dead(&mut self.staged, place);
                }
                if let Some(Slot::Local { place, .. }) = after {
                    table.stage_live(&mut self.staged, place);
                }
                patch.set(index, after.unwrap_or(Slot::Hole));
            }
            if patch.is_empty() {
                continue;
            }
            let edit = if new.is_empty() {
                IndexEdit::Delete(key)
            } else if patch.len() <= PATCH_SLOTS_MAX && patch.len() < new.len() {
                IndexEdit::Patch(key, patch.encode())
            } else {
                IndexEdit::Put(key, new.encode())
            };
            self.edits.push(edit);
        }
    }
}
