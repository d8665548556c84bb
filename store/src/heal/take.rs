//! The taker's side of a heal: the brick's own rows of a group become those that pages tell, and blocks that it does not provably have are
//! missing from then on.
//!
//! A leaf's slot keeps its place if the brick's own row of the inode has the same time of change as the giver's, the own leaf is no older than
//! the cuts that the brick has yet to free there, and the checksums are equal. Why that is enough: a group's changes have one order, and with
//! each change of an inode, its data included, its time of change rises. So of two replicas' rows with one time both say the same version of the
//! inode. What must hold is that an own slot with a place is of the version that the own row says:
//!
//! - Before the heal it is, since a checkpoint writes both together, and what is left to free is told by the purges.
//! - Pages with leaves come first, and compare with own rows of inodes that no page has replaced yet. After all of them each slot with a place is of
//!   a file whose own row and whose row at the giver are of the same version; all other slots are missing, and keep no place.
//! - So when the pages that follow replace a row by one of another version, its file has no slot with a place left, and the sentence holds for
//!   whatever row comes. Purges stay until the end (`finish`): they make leaves count less, never more.
//!
//! Hence it holds after every page, and a heal may be cut off anywhere and begun anew: the next one begins with leaves again. Its snapshot may be
//! a later one, for the argument needs nothing of the one before. A row that is gone has no version, and equals none.
//!
//! Promises: after each write live bits agree with leaves, and the group's mark says that its rows are a mix; a crash leaves some of the pages that were taken,
//! those before, or all. Nobody uses the group's rows meanwhile, no block of it is moved, and no checkpoint runs beside a call.

use super::codec::{self, Rows, Told};
use super::walk::{self, Cursor, Phase};
use super::{File, Page, count, files, heal_row};
use crate::Store;
use crate::checkpoint::{Durable, write_rows};
use crate::format::bytes::corrupt;
use crate::format::keys::{self, Bounds};
use crate::format::leaf::{Leaf, Slot};
use crate::format::superblock::HEALING;
use crate::format::values::{self, GroupRow, HealRow};
use crate::index::{IndexEdit, Pair};
use crate::open::volumes;
use crate::space::usage::Usages;
use base::{Error, GroupId, Ino, Kind, Place, Result, VolumeId};
use runtime::seeded::{Bug, active};
use std::collections::{BTreeMap, BTreeSet};

/// Number of own rows that are replaced by one write.
const ROWS: usize = 4096;

/// Replaces the brick's own rows from a page's cursor to that of the next one. Not durable before the next checkpoint; what it makes dead is
/// freed by that. `started`: the wall time at which the heal began. Returns the group's row, which comes with the last page and is not
/// written before `finish`. Blocks. Errors: `Corrupt` for a page that is none, or does not fit to its cursor, and then nothing of it was
/// taken; `Busy` before the first checkpoint after a repair of the log; those of the index.
pub fn take_page(
    store: &Store,
    group: GroupId,
    (from, page): (&[u8], &Page),
    started: u64,
) -> Result<Option<GroupRow>> {
    let marked = store.superblock.lock().features.incompatible & HEALING != 0 || active(Bug::FeatureUnmarked);
    assert!(marked, "a brick is marked before one of its replicas heals");
    let cursor = Cursor::decode(from, group)?;
    let next = page.next.as_ref().map(|next| Cursor::decode(next, group)).transpose()?;
    let bounds = cursor.to(next.as_ref(), group)?;
    let heal = IndexEdit::Put(keys::heal(group), values::encode_heal(&HealRow { rows: true, started }));
    let taking = Taking { store, group, heal };
    match (cursor.phase, codec::decode_page(&page.bytes, group)?) {
        (Phase::Leaves, Rows::Leaves(told)) => taking.leaves(told, bounds)?,
        (Phase::Others, Rows::Others(told)) => taking.others(told, bounds)?,
        (Phase::Group, Rows::Group(row)) => return Ok(Some(row)),
        _ => return Err(corrupt("a page of a heal is not of its cursor's phase")),
    }
    Ok(None)
}

/// Ends what pages have begun: the group's blocks are counted anew, nothing is left to free, its row is what the last page said, and its mark
/// says that only blocks are missing. Durable when it returns; a crash before leaves the mark as it was, or all of it done. Blocks. Errors:
/// `Invalid` if no page was taken; otherwise as `take_page`.
pub fn finish(store: &Store, group: GroupId, row: GroupRow) -> Result<()> {
    let heal = heal_row(&*store.index, group)?.filter(|heal| heal.rows);
    let heal = heal.ok_or_else(|| Error::new(Kind::Invalid, "no page of a heal was taken"))?;
    let mut edits = count::group(&*store.index, group)?;
    let (from, to) = keys::purged_volumes(group);
    edits.push(IndexEdit::DeleteRange(from, to));
    edits.push(IndexEdit::Put(keys::group(group), values::encode_group(&row)));
    edits.push(IndexEdit::Put(keys::heal(group), values::encode_heal(&HealRow { rows: false, ..heal })));
    // What it still knows of the group must not be written over the new counts.
    store.usages.lock().forget(group);
    write_rows(store, edits, Vec::new(), Durable::Now)?;
    let usages = Usages::read(&*store.index, store.groups, &volumes(&*store.index)?)?;
    let unmapped_bytes = usages.unmapped_bytes();
    *store.usages.lock() = usages;
    let live_bytes = store.table.lock().all_totals().live_bytes();
    store.space.measured(live_bytes + unmapped_bytes);
    Ok(())
}

/// The writes of a page.
struct Taking<'a> {
    store: &'a Store,
    group: GroupId,
    /// The mark that goes with each of them.
    heal: IndexEdit,
}

impl Taking<'_> {
    fn write(&self, mut edits: Vec<IndexEdit>, dead: Vec<Place>) -> Result<()> {
        edits.push(self.heal.clone());
        write_rows(self.store, edits, dead, Durable::Later)
    }

    /// Calls `with` for own rows of a range, some at a time, and those that the page tells there.
    fn each<T>(
        &self,
        phase: Phase,
        (mut from, to): Bounds,
        mut told: BTreeMap<Vec<u8>, T>,
        mut with: impl FnMut(BTreeMap<Vec<u8>, Vec<u8>>, BTreeMap<Vec<u8>, T>) -> Result<()>,
    ) -> Result<()> {
        let fits = told.keys().all(|key| (&from..&to).contains(&key));
        if !fits {
            return Err(corrupt("a page of a heal has rows outside of its range"));
        }
        loop {
            let own = walk::scan(&*self.store.index, phase, (from.clone(), to.clone()), ROWS)?;
            let next = own.last().filter(|_| own.len() == ROWS).map(|(key, _)| keys::after(key));
            let later = next.as_ref().map(|next| told.split_off(next)).unwrap_or_default();
            with(own.into_iter().collect(), std::mem::replace(&mut told, later))?;
            match next {
                Some(next) => from = next,
                None => {
                    assert!(told.is_empty(), "each row of the page was handed over");
                    return Ok(());
                }
            }
        }
    }

    fn leaves(&self, told: Vec<Told>, bounds: Bounds) -> Result<()> {
        let told = told.into_iter().map(|told| (keys::leaf(told.volume, told.at), told)).collect();
        self.each(Phase::Leaves, bounds, told, |own, mut told| {
            let of: BTreeSet<(VolumeId, Ino)> = told.values().map(|told| (told.volume, told.at.ino)).collect();
            let files = files(&*self.store.index, self.group, &of)?;
            let (mut edits, mut dead) = (Vec::new(), Vec::new());
            for (key, value) in own {
                let old = Leaf::decode(&value)?;
                let told = told.remove(&key);
                let new = told.map(|told| self.leaf(&told, &old, &files[&(told.volume, told.at.ino)]));
                let kept = |index: usize| new.as_ref().and_then(|new| place(new, index));
                let places = old.iter().filter_map(|(index, _)| Some((index, place(&old, index)?)));
                dead.extend(places.filter(|(index, place)| kept(*index) != Some(*place)).map(|(_, place)| place));
                match new {
                    Some(new) if new == old => {}
                    Some(new) => edits.push(IndexEdit::Put(key, new.encode())),
                    None => edits.push(IndexEdit::Delete(key)),
                }
            }
            let file = File::default();
            for (key, told) in told {
                edits.push(IndexEdit::Put(key, self.leaf(&told, &Leaf::default(), &file).encode()));
            }
            self.write(edits, dead)
        })
    }

    /// The leaf that the giver tells, with those places of the own one that are of the same version of the file.
    fn leaf(&self, told: &Told, own: &Leaf, file: &File) -> Leaf {
        let counts = file.counts(told.at.leaf, own.trim);
        let keeps_all = active(Bug::StaleBlocksKept);
        let same = counts && told.ctime.is_some() && (told.ctime == file.ctime || keeps_all);
        // It stays newer than the cuts that it was newer than, also for a heal that begins anew.
        let mut leaf = Leaf::default();
        if counts {
            leaf.trim = own.trim;
        }
        for &(index, crc) in &told.blocks {
            let kept = own
                .get(index)
                .filter(|slot| same && matches!(slot, Slot::Local { crc: of, .. } if *of == crc || keeps_all));
            let birth = self.store.epoch as u32;
            leaf.set(index, kept.unwrap_or(Slot::Local { place: Place::MISSING, crc, birth }));
        }
        assert!(leaf.len() == told.blocks.len(), "a block of {:?} was told twice", told.at);
        leaf
    }

    fn others(&self, told: Vec<Pair>, bounds: Bounds) -> Result<()> {
        self.each(Phase::Others, bounds, told.into_iter().collect(), |own, told| {
            let gone = own.keys().filter(|key| !told.contains_key(*key));
            let gone = gone.map(|key| IndexEdit::Delete(key.clone()));
            let new = told.iter().filter(|(key, value)| own.get(*key) != Some(*value));
            let new = new.map(|(key, value)| IndexEdit::Put(key.clone(), value.clone()));
            self.write(gone.chain(new).collect(), Vec::new())
        })
    }
}

/// The place of a block that the brick has.
fn place(leaf: &Leaf, index: usize) -> Option<Place> {
    match leaf.get(index) {
        Some(Slot::Local { place, .. }) if place != Place::MISSING => Some(place),
        _ => None,
    }
}
