//! The giver's side of a heal: a group's rows, page by page, from a snapshot of the index.
//!
//! Promises: all pages together say what the group has at the snapshot's position, and nothing of what this brick alone has to do: places,
//! what is left to free and what lies in it, counts, promises. Leaves come before inodes (`take` says why).

use super::codec::{self, Told};
use super::files;
use super::walk::{self, Cursor, Phase};
use crate::format::keys;
use crate::format::leaf::{Leaf, Slot};
use crate::format::values::{self, GroupRow};
use crate::index::{Index, Pair};
use crate::space::purge::Purges;
use base::{GroupId, Ino, Result, VolumeId};
use std::collections::BTreeSet;

/// Bytes after which a page takes nothing more. With its last row it stays below 64 KiB, unless a single row is larger: the attributes of an
/// inode take up to 257 KiB.
pub const PAGE_BYTES: usize = 60 << 10;
/// Number of rows read at a time.
const ROWS: usize = 256;
/// Number of rows after which a page ends, full or not: they may all be such as don't travel.
const ROWS_MAX: usize = 1 << 14;

/// A part of a group's rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The rows, encoded.
    pub bytes: Vec<u8>,
    /// The cursor of the next page; None: this is the last one.
    pub next: Option<Vec<u8>>,
}

/// The cuts that a group has yet to free, those in volumes included that the catalogue does not have any more.
pub fn purges(index: &dyn Index, group: GroupId) -> Result<Purges> {
    Purges::read(index, group, &walk::volumes(index, group)?)
}

/// The page at a cursor; the first one's is empty. `index`: a snapshot; `purges`: those that it has. Errors: `Corrupt`, also for a cursor that is
/// none; those of the index.
pub fn page(index: &dyn Index, group: GroupId, purges: &Purges, from: &[u8]) -> Result<Page> {
    page_of(index, group, purges, (from, PAGE_BYTES))
}

/// The same, of a page that takes nothing more after fewer bytes: for tests.
pub fn page_of(index: &dyn Index, group: GroupId, purges: &Purges, (from, full): (&[u8], usize)) -> Result<Page> {
    let cursor = Cursor::decode(from, group)?;
    let (mut bytes, at) = (codec::begin(cursor.phase), cursor.clone());
    let next = match cursor.phase {
        Phase::Leaves => {
            let mut before = None;
            let rows = Walk { index, group, phase: Phase::Leaves, after: Phase::Others };
            let take =
                |rows: &[Pair], out: &mut Vec<u8>| leaves((index, group, purges), rows, &mut before, (out, full));
            Some(rows.fill(cursor.from, &mut bytes, take)?)
        }
        Phase::Others => {
            let rows = Walk { index, group, phase: Phase::Others, after: Phase::Group };
            Some(rows.fill(cursor.from, &mut bytes, |rows, out| Ok(others(rows, (out, full))))?)
        }
        Phase::Group => {
            let row = index.get(&keys::group(group))?;
            bytes.extend(row.unwrap_or_else(|| values::encode_group(&GroupRow::fresh())));
            None
        }
    };
    assert!(next.as_ref().is_none_or(|next| *next > at), "each page leads a heal further");
    Ok(Page { bytes, next: next.map(|cursor| cursor.encode()) })
}

/// The rows of a phase, and the phase that comes after it.
struct Walk<'a> {
    index: &'a dyn Index,
    group: GroupId,
    phase: Phase,
    after: Phase,
}

impl Walk<'_> {
    /// Fills a page. `take` adds rows until it is full, and returns how many of them it has dealt with. Returns where the next page begins.
    fn fill(
        &self,
        mut from: Vec<u8>,
        out: &mut Vec<u8>,
        mut take: impl FnMut(&[Pair], &mut Vec<u8>) -> Result<usize>,
    ) -> Result<Cursor> {
        let to = keys::in_group(self.group).1;
        for _ in 0..ROWS_MAX / ROWS {
            let rows = walk::scan(self.index, self.phase, (from.clone(), to.clone()), ROWS)?;
            let taken = take(&rows, out)?;
            assert!(taken <= rows.len(), "{taken} of {} rows were dealt with", rows.len());
            if let Some((key, _)) = rows.get(taken) {
                return Ok(Cursor { phase: self.phase, from: key.clone() });
            }
            match rows.last() {
                Some((key, _)) if rows.len() == ROWS => from = keys::after(key),
                _ => return Ok(Cursor::start(self.after, self.group)),
            }
        }
        Ok(Cursor { phase: self.phase, from })
    }
}

fn leaves(
    (index, group, purges): (&dyn Index, GroupId, &Purges),
    rows: &[Pair],
    before: &mut Option<(VolumeId, Ino)>,
    (out, full): (&mut Vec<u8>, usize),
) -> Result<usize> {
    let begun = codec::begin(Phase::Leaves).len();
    let of = |key: &[u8]| (keys::row(key).expect("the key of a leaf").1, keys::leaf_of(key));
    let mentioned: BTreeSet<_> = rows.iter().map(|(key, _)| of(key)).map(|(volume, at)| (volume, at.ino)).collect();
    let files = files(index, group, &mentioned)?;
    for (number, (key, value)) in rows.iter().enumerate() {
        if out.len() >= full && out.len() > begun {
            return Ok(number);
        }
        let ((volume, at), leaf) = (of(key), Leaf::decode(value)?);
        // One that is left to free counts as empty.
        if leaf.trim < purges.trim_of(volume, at) {
            continue;
        }
        let crc = |(index, slot): (usize, Slot)| match slot {
            Slot::Local { crc, .. } => Some((index, crc)),
            Slot::Hole => None,
        };
        let blocks: Vec<_> = leaf.iter().filter_map(crc).collect();
        if !blocks.is_empty() {
            let file = (volume, at.ino);
            codec::put_leaf(out, &Told { volume, at, ctime: files[&file].ctime, blocks }, *before);
            *before = Some(file);
        }
    }
    Ok(rows.len())
}

fn others(rows: &[Pair], (out, full): (&mut Vec<u8>, usize)) -> usize {
    let begun = codec::begin(Phase::Others).len();
    for (number, (key, value)) in rows.iter().enumerate() {
        let fits = out.len() + key.len() + value.len() <= full || out.len() == begun;
        if !fits {
            return number;
        }
        codec::put_row(out, key, value);
    }
    rows.len()
}
