//! The number of mapped blocks of each file, including those that are yet to be freed. The inode's row has the number
//! if the file's size does not imply it. To keep it, a checkpoint adds the number of blocks by which the file's leaves
//! have grown to the number in the row that it replaces.

use crate::Store;
use crate::format::keys;
use crate::format::leaf::Leaf;
use crate::format::values;
use crate::index::{self, Index, IndexEdit};
use base::{FileKind, GroupId, Ino, Inode, Result, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// Number of index rows read at a time.
const ROWS: usize = 256;

/// Numbers of mapped blocks, by file.
pub(crate) type Files = BTreeMap<(VolumeId, Ino), u64>;

/// The inodes that a checkpoint changes.
pub(crate) struct Changed<'a> {
    /// The inodes that changed; None: gone.
    pub inodes: BTreeMap<(VolumeId, Ino), Option<Inode>>,
    /// Changes of the number of mapped blocks.
    pub mapped: BTreeMap<(VolumeId, Ino), i64>,
    /// Numbers of mapped blocks of files whose blocks had not been counted before.
    pub counted: Files,
    /// First sequence number, by group, of inodes of which the index has nothing.
    pub young: &'a BTreeMap<GroupId, u64>,
    /// Groups and volumes whose files' blocks have not been counted yet.
    pub uncounted: BTreeSet<(GroupId, VolumeId)>,
}

impl Changed<'_> {
    /// Returns the rows to write, and the counts that the caller can't derive from the changed inodes: of files whose
    /// size does not imply the count, and of files whose inode itself has not changed.
    pub fn rows(self, index: &dyn Index) -> Result<(Vec<IndexEdit>, Files)> {
        let Changed { inodes, mapped, counted, young, uncounted } = self;
        let all: BTreeSet<_> = inodes.keys().chain(mapped.keys()).chain(counted.keys()).copied().collect();
        let all: Vec<_> = all.into_iter().collect();
        let is_young = |ino: Ino| young.get(&ino.group()).is_some_and(|young| ino.sequence() >= *young);
        let is_file = |inode: &Option<Inode>| inode.is_some_and(|inode| inode.kind == FileKind::File);
        let (mut edits, mut told) = (Vec::with_capacity(inodes.len()), BTreeMap::new());
        for some in all.chunks(ROWS) {
            let read = |file: &&(VolumeId, Ino)| !is_young(file.1) && inodes.get(file).is_none_or(is_file);
            let files: Vec<_> = some.iter().filter(read).copied().collect();
            let rows: Vec<_> = files.iter().map(|(volume, ino)| keys::inode(*volume, *ino)).collect();
            let rows = index.get_many(&rows)?;
            assert!(rows.len() == files.len(), "the index answers for each key");
            let rows: BTreeMap<_, _> = files.into_iter().zip(rows).collect();
            for file in some {
                let (volume, ino) = *file;
                let before = rows.get(file).and_then(Option::as_ref);
                let before = before.map(|row| values::decode_counted_inode(row)).transpose()?;
                let after = match (inodes.get(file), before) {
                    (Some(None), _) => {
                        edits.push(IndexEdit::Delete(keys::inode(volume, ino)));
                        continue;
                    }
                    // The inode is gone, and its blocks are being freed.
                    (None, None) => continue,
                    (Some(Some(inode)), _) => *inode,
                    (None, Some((inode, _))) => inode,
                };
                let known = counted.get(file).copied().or(before.map(|(_, blocks)| blocks)).unwrap_or(0);
                let blocks = match uncounted.contains(&(ino.group(), volume)) || after.kind != FileKind::File {
                    true => values::whole_blocks(&after),
                    false => known.saturating_add_signed(mapped.get(file).copied().unwrap_or(0)),
                };
                if blocks != values::whole_blocks(&after) || !inodes.contains_key(file) {
                    told.insert(*file, blocks);
                }
                edits.push(IndexEdit::Put(keys::inode(volume, ino), values::encode_counted_inode(&after, blocks)));
            }
        }
        Ok((edits, told))
    }
}

/// Counts the mapped blocks of a volume's files in a group. Returns the counts that differ from those in the inodes'
/// rows.
pub(crate) fn count(index: &dyn Index, group: GroupId, volume: VolumeId) -> Result<Files> {
    let mut found: BTreeMap<Ino, u64> = BTreeMap::new();
    index::each(index, keys::leaves_in_group(group, volume), |key, value| {
        *found.entry(keys::leaf_of(key).ino).or_default() += Leaf::decode(value)?.places().count() as u64;
        Ok(())
    })?;
    let mut counted = BTreeMap::new();
    index::each(index, keys::inodes_in_group(group, volume), |key, value| {
        let (inode, told) = values::decode_counted_inode(value)?;
        let ino = keys::first_ino(key);
        let blocks = found.get(&ino).copied().unwrap_or(0);
        if inode.kind == FileKind::File && blocks != told {
            counted.insert((volume, ino), blocks);
        }
        Ok(())
    })?;
    Ok(counted)
}

/// The project of an inode as of the last checkpoint, and the number of mapped blocks that are charged to it, including
/// those that are yet to be freed. None if that is `project` already.
pub(crate) fn leaves_project(
    store: &Store,
    (volume, ino): (VolumeId, Ino),
    project: u32,
) -> Result<Option<(u32, u64)>> {
    let Some(row) = store.index.get(&keys::inode(volume, ino))? else { return Ok(None) };
    let (inode, told) = values::decode_counted_inode(&row)?;
    let is_counted = {
        let usages = store.usages.lock();
        !usages.files.contains_key(&(volume, ino)) && !usages.uncounted().contains(&(ino.group(), volume))
    };
    let blocks = match is_counted || inode.kind != FileKind::File {
        true => told,
        false => count_one(&*store.index, volume, ino)?,
    };
    Ok((inode.project != project).then_some((inode.project, blocks)))
}

/// Counts the mapped blocks of one inode.
fn count_one(index: &dyn Index, volume: VolumeId, ino: Ino) -> Result<u64> {
    let mut blocks = 0;
    index::each(index, keys::leaves_within(volume, ino, &(0..u64::MAX)), |_, value| {
        blocks += Leaf::decode(value)?.places().count() as u64;
        Ok(())
    })?;
    Ok(blocks)
}
