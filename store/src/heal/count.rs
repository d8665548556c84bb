//! The counts of a group whose rows have come from another brick: of its files' blocks, and of the space that projects use.

use super::walk;
use crate::format::leaf::Encoded;
use crate::format::usage::Usage;
use crate::format::{keys, values};
use crate::index::{self, Index, IndexEdit};
use crate::space::usage;
use base::{GroupId, Ino, Inode, Result, VolumeId};
use std::collections::BTreeMap;

/// Number of inodes read at a time.
const ROWS: usize = 1024;

/// Counts a group anew. Writes the counts of files, where they are others, some at a time; returns the edits that replace those of projects, and
/// remove what was left to free.
pub(super) fn group(index: &dyn Index, group: GroupId) -> Result<Vec<IndexEdit>> {
    let mut edits = Vec::new();
    for volume in walk::volumes(index, group)? {
        if volume == VolumeId(0) {
            continue;
        }
        let mut used = files(index, group, volume)?;
        index::each(index, keys::reserves(group, volume), |_, value| {
            let reserve = values::decode_reserve(value)?;
            used.entry(reserve.project).or_default().reserved += reserve.left();
            Ok(())
        })?;
        let names = usage::count_names(index, group, volume)?;
        if names > 0 {
            used.entry(0).or_default().names = Some(names);
        }
        for (from, to) in [keys::usages(group, volume), keys::purges(group, volume)] {
            edits.push(IndexEdit::DeleteRange(from, to));
        }
        edits.extend(used.iter().map(|(project, usage)| usage::row((group, volume, *project), usage)));
    }
    Ok(edits)
}

/// Counts inodes and blocks of a volume, by project.
fn files(index: &dyn Index, group: GroupId, volume: VolumeId) -> Result<BTreeMap<u32, Usage>> {
    let mut used: BTreeMap<u32, Usage> = BTreeMap::new();
    let (mut from, to) = keys::inodes_in_group(group, volume);
    let (mut leaves_from, leaves_to) = keys::leaves_in_group(group, volume);
    loop {
        assert!(leaves_from <= leaves_to, "leaves are counted once");
        let rows = index.scan(&from, &to, ROWS)?;
        let mut inodes: BTreeMap<Ino, (Inode, u64, u64)> = BTreeMap::new();
        for (key, value) in &rows {
            let (inode, told) = values::decode_counted_inode(value)?;
            inodes.insert(keys::first_ino(key), (inode, told, 0));
        }
        assert!(inodes.len() == rows.len(), "each row is of another inode");
        let next = rows.last().filter(|_| rows.len() == ROWS).map(|(key, _)| keys::after(key));
        // Leaves come in the order of their inodes: those up to the last one, or all that are left.
        let last = inodes.last_key_value().filter(|_| next.is_some());
        let end = last.map_or(leaves_to.clone(), |(ino, _)| keys::leaves_from(volume, *ino, 0).1);
        index::each(index, (leaves_from, end.clone()), |key, value| {
            let mut blocks = 0;
            for place in Encoded::new(value)?.places() {
                place.map(|_| blocks += 1)?;
            }
            let inode = inodes.get_mut(&keys::leaf_of(key).ino);
            let project = inode.as_ref().map_or(0, |(inode, ..)| inode.project);
            used.entry(project).or_default().blocks += blocks;
            if let Some((.., found)) = inode {
                *found += blocks;
            }
            Ok(())
        })?;
        let mut edits = Vec::new();
        for (ino, (inode, told, found)) in inodes {
            used.entry(inode.project).or_default().inodes += 1;
            if told != found {
                let row = values::encode_counted_inode(&inode, found);
                edits.push(IndexEdit::Put(keys::inode(volume, ino), row));
            }
        }
        if !edits.is_empty() {
            index.write(edits)?;
        }
        match next {
            Some(next) => (from, leaves_from) = (next, end),
            None => return Ok(used),
        }
    }
}
