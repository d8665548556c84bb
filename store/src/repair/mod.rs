//! The offline repair: mends what the check can find, as far as anything on the brick still tells how it was. Maps come
//! from summaries (rule L7), live bits and counts from maps, names from their second row, lost inodes from what leads to
//! them.
//!
//! Promises: it changes only what contradicts something else; nothing that can still be read becomes unreadable; it can
//! be repeated after a crash at any moment, because live bits, the evidence for maps, are brought up to date last; what is
//! lost is listed by file and range. Changes of the index are visible at once and durable together at the end.
//! *Absent:* replaying the log, which the next start does; blocks that differ from their checksums, which go on to fail.

mod counts;
mod damage;
pub mod gaps;
mod kept;
mod log;
mod maps;
mod names;
mod rows;
mod segments;
mod summed;

use crate::check::is_mix;
use crate::format::keys;
use crate::format::values;
use crate::index::paths;
use crate::index::{Index, IndexEdit};
use crate::open::Opening;
use crate::progress::Step;
use crate::space::purge::Purges;
use base::limits::BLOCK_BYTES;
use base::{Error, GroupId, Ino, Kind, Name, Result, Volume, VolumeId};
use runtime::tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Index rows read at once: 4 MB if all are full leaves.
const ROWS: usize = 4096;
/// Changes written at once, for memory's sake.
const EDITS_MAX: usize = 4096;
/// Longer paths are not shown.
const PATH_BYTES_MAX: usize = 4096;
/// Changes that are listed one by one.
const LISTED_MAX: usize = 1000;

/// The extent of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// Maps, live bits and summaries: what the log still changes can be replayed over it.
    Maps,
    /// Names too: nothing is in the log that the index does not have.
    All,
}

/// The result of a repair.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// The mended faults, in words.
    pub mended: Vec<String>,
    /// Number of mended faults that are not listed.
    pub unlisted: u64,
    /// The losses.
    pub lost: Vec<Lost>,
}

/// Something that a file or directory has lost for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The volume.
    pub volume: VolumeId,
    /// The inode.
    pub ino: Ino,
    /// A path that leads to it now, if there is one.
    pub path: Option<Vec<u8>>,
    /// The lost bytes, if data: offset and length.
    pub range: Option<(u64, u64)>,
    /// A sentence that says what is lost, and what replaces it.
    pub what: &'static str,
}

/// The receiver of progress.
type Tell<'a> = &'a mut dyn FnMut(Step);

struct Repair<'a> {
    opening: &'a Opening,
    index: Arc<dyn Index>,
    volumes: BTreeMap<VolumeId, Volume>,
    edits: Vec<IndexEdit>,
    done: Repaired,
    /// The directory and the name that records after the last checkpoint give to inodes.
    young_names: BTreeMap<(VolumeId, Ino), (Ino, Name)>,
    tell: Tell<'a>,
}

/// Repairs a brick that was opened for writing and that nobody serves. The caller keeps a copy of the index before, and
/// checks the brick anew after. Errors: `Io`, `Corrupt` if the index itself can't be read, `Unsupported` while a disk is missing: what
/// lies on it would be taken for lost; or while a group's rows are a mix (`heal`).
pub async fn repair(opening: &Opening, depth: Depth, tell: Tell<'_>) -> Result<Repaired> {
    if opening.geometry().has_missing() {
        let what = "a disk is missing, and nothing was changed: bring it back, and repair then";
        return Err(Error::new(Kind::Unsupported, what));
    }
    for group in (0..opening.superblock().groups).map(GroupId) {
        // What names and maps should be, another brick knows.
        if is_mix(&**opening.index(), group)? {
            let what = "the brick heals: another one gives it a group's rows, and nothing was changed; start it, and repair then";
            return Err(Error::new(Kind::Unsupported, what));
        }
    }
    let (index, volumes, done) = (opening.index().clone(), BTreeMap::new(), Repaired::default());
    let (edits, young_names) = (Vec::new(), BTreeMap::new());
    let mut repair = Repair { opening, index, volumes, edits, done, young_names, tell };
    if !opening.warnings.is_empty() {
        opening.rewrite_superblock().await?;
        repair.mended("both copies of the superblock were written anew");
    }
    repair.log().await?;
    repair.read_volumes()?;
    if depth == Depth::All {
        repair.rows()?;
        repair.entries()?;
    }
    repair.maps().await?;
    if depth == Depth::All {
        repair.names()?;
        repair.counts()?;
    }
    repair.segments().await?;
    let index = repair.index.clone();
    (repair.tell)(Step::begin("making it durable"));
    tasks::run_blocking(&*opening.runtime().tasks, move || index.persist()).await?;
    repair.find_paths()?;
    Ok(repair.done)
}

impl Repair<'_> {
    fn groups(&self) -> u32 {
        self.opening.superblock().groups
    }

    /// Says what was mended.
    fn mended(&mut self, what: impl std::fmt::Display) {
        match self.done.mended.len() < LISTED_MAX {
            true => self.done.mended.push(what.to_string()),
            false => self.done.unlisted += 1,
        }
    }

    /// Says what is lost and has no range.
    fn lost(&mut self, (volume, ino): (VolumeId, Ino), what: &'static str) {
        self.done.lost.push(Lost { volume, ino, path: None, range: None, what });
    }

    /// Says that a block is lost; blocks in a row are one loss.
    fn lost_block(&mut self, (volume, ino): (VolumeId, Ino), block: u64, what: &'static str) {
        let (offset, block_bytes) = (block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        if let Some(Lost { volume: of, ino: whose, range: Some((from, length)), what: before, .. }) =
            self.done.lost.last_mut()
            && (*of, *whose, *before, *from + *length) == (volume, ino, what, offset)
        {
            *length += block_bytes;
            return;
        }
        self.done.lost.push(Lost { volume, ino, path: None, range: Some((offset, block_bytes)), what });
    }

    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.edits.push(match value {
            Some(value) => IndexEdit::Put(key, value),
            None => IndexEdit::Delete(key),
        });
    }

    /// Has the index show all changes so far.
    fn write(&mut self) -> Result<()> {
        match self.edits.is_empty() {
            true => Ok(()),
            false => self.index.write(std::mem::take(&mut self.edits)),
        }
    }

    /// A page of rows from a key on; where the next one begins, None at the end.
    fn page(&mut self, what: &'static str, from: &[u8]) -> Result<(Vec<crate::index::Pair>, Option<Vec<u8>>)> {
        let rows = self.index.scan(from, &keys::all().1, ROWS)?;
        let next = rows.last().map(|(last, _)| keys::after(last));
        if let Some((group, ..)) = rows.last().and_then(|(last, _)| keys::row(last)) {
            let of = self.groups();
            (self.tell)(Step { what, done: u64::from(group.0.min(of)), of: u64::from(of) });
        }
        Ok((rows, next))
    }

    /// Calls `with` for each row, with changes written in between.
    fn each(&mut self, what: &'static str, mut with: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<()>) -> Result<()> {
        let mut from = Some(keys::all().0);
        while let Some(start) = from {
            let (rows, next) = self.page(what, &start)?;
            for (key, value) in &rows {
                with(self, key, value)?;
            }
            if self.edits.len() >= EDITS_MAX {
                self.write()?;
            }
            from = next;
        }
        Ok(())
    }

    fn read_volumes(&mut self) -> Result<()> {
        let (from, to) = keys::volumes();
        for (_, value) in self.index.scan(&from, &to, usize::MAX)? {
            if let Ok(volume) = values::decode_volume(&value) {
                self.volumes.insert(volume.id, volume);
            }
        }
        Ok(())
    }

    /// The cuts that a group has yet to free.
    fn purges(&self, group: GroupId) -> Result<Purges> {
        let volumes: Vec<_> = self.volumes.keys().copied().collect();
        Purges::read(&*self.index, group, &volumes)
    }

    /// A path by the index; where that knows none, by the names that the log's records give.
    fn path(&self, volume: &Volume, ino: Ino) -> Result<Option<Vec<u8>>> {
        let (mut at, mut young) = (ino, Vec::new());
        loop {
            if let Some(mut path) = paths::find(&*self.index, volume, at)? {
                if path == b"/" && !young.is_empty() {
                    path.clear();
                }
                path.extend(young);
                return Ok(Some(path));
            }
            match self.young_names.get(&(volume.id, at)) {
                Some((dir, name)) if young.len() < PATH_BYTES_MAX => {
                    young.splice(..0, [b"/", name.as_bytes()].concat());
                    at = *dir;
                }
                _ => return Ok(None),
            }
        }
    }

    /// Finds the paths of the losses, in a user's words: all names are right by now.
    fn find_paths(&mut self) -> Result<()> {
        let files: BTreeSet<_> = self.done.lost.iter().map(|lost| (lost.volume, lost.ino)).collect();
        let mut found = BTreeMap::new();
        for (volume, ino) in files {
            if let Some(volume) = self.volumes.get(&volume)
                && let Some(path) = self.path(volume, ino)?
            {
                found.insert((volume.id, ino), path);
            }
        }
        for lost in &mut self.done.lost {
            lost.path = found.get(&(lost.volume, lost.ino)).cloned();
        }
        Ok(())
    }
}
