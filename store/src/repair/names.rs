//! Names and inodes: every name leads to an inode, every inode has a name or is an orphan, and counts say what is there.
//! An inode that is lost is made anew as far as its names, blocks and rows tell; what has no name gets one in
//! `lost+found`. All of it is one atomic change of the index, but for the kinds of inodes, which come first.

mod found;
mod kinds;
mod loops;

use super::Repair;
use crate::check::kinds::Named;
use crate::format::keys::{self, Row};
use crate::format::leaf::{Leaf, Slot};
use crate::format::values;
use crate::index::IndexEdit;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{Attributes, FileKind, Ino, Inode, Result, Time, VolumeId};
use found::Found;
use std::collections::{BTreeMap, BTreeSet};

type File = (VolumeId, Ino);

/// An inode, and what leads to it or belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    /// The inode according to its row.
    inode: Option<Known>,
    /// Its row can't be read.
    broken: bool,
    /// Names, what kind they say, and the directory that the last one is in.
    names: u32,
    named: Named,
    dir: Ino,
    /// Number of entries of a directory, and of those that are directories.
    entries: u64,
    subdirectories: u32,
    /// The block after the last that a leaf maps, and the largest trim number of a leaf.
    end: u64,
    trim: u64,
    /// Length of a symbolic link's target.
    target: Option<u64>,
    xattrs: bool,
    orphan: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    kind: FileKind,
    links: u32,
    entries: u64,
    dead: bool,
    xattrs: bool,
    parent: Ino,
}

impl Seen {
    /// Something of it is left beside names.
    fn remains(&self) -> bool {
        self.end > 0 || self.target.is_some() || self.entries > 0 || self.xattrs
    }
    fn links(&self, kind: FileKind) -> u32 {
        if kind == FileKind::Directory { 2 + self.subdirectories } else { self.names }
    }
}

type All = BTreeMap<File, Seen>;

/// Directories that lose names, with the directory in which one stays.
type Stay = BTreeMap<File, Option<Ino>>;

impl Repair<'_> {
    pub(super) fn names(&mut self) -> Result<()> {
        let mut all = self.seen()?;
        if self.kinds(&all)? {
            all = self.seen()?;
        }
        let stay = self.misplaced(&mut all)?;
        let gone = self.dangling(&all);
        self.remove_names(&mut all, &gone, stay)?;
        let mut found = Found::default();
        let files: Vec<File> = all.keys().copied().collect();
        for file in files {
            let seen = all[&file];
            if gone.contains(&file) {
                continue;
            }
            match seen.inode {
                Some(known) => self.known(file, &seen, known, &mut found)?,
                None if seen.broken || seen.remains() || self.is_root(file) => {
                    self.lost_inode(file, &seen, &mut found)?
                }
                None if seen.orphan => self.put(keys::orphan(file.0, file.1), None),
                None => {}
            }
        }
        self.reattach(&all, found)?;
        self.write()
    }

    fn is_root(&self, (volume, ino): File) -> bool {
        self.volumes.get(&volume).is_some_and(|volume| volume.root == ino)
    }

    fn seen(&mut self) -> Result<All> {
        let mut all = All::new();
        for volume in self.volumes.values() {
            all.entry((volume.id, volume.root)).or_default();
        }
        self.each("names", |repair, key, value| {
            if let Some((_, volume, row)) = keys::row(key)
                && repair.volumes.contains_key(&volume)
            {
                look(&mut all, volume, (key, value), row);
            }
            Ok(())
        })?;
        // Leaves that a truncation or the end of their inode has cut are not its.
        for (file, seen) in all.iter_mut().filter(|(_, seen)| seen.inode.is_none() && seen.end > 0) {
            let purges = self.purges(file.1.group())?;
            if purges.cuts_of(file.0, file.1) > 0 || purges.volumes.contains(&file.0) {
                seen.end = 0;
            }
        }
        Ok(all)
    }

    /// Inodes with names that lead to nothing.
    fn dangling(&self, all: &All) -> BTreeSet<File> {
        let mut gone = BTreeSet::new();
        for (file, seen) in all {
            let aimless = seen.inode.is_some_and(|inode| inode.kind == FileKind::Link) && seen.target.is_none();
            let empty = seen.inode.is_none() && !seen.broken && !seen.remains() && seen.names > 0;
            let lost_link = seen.inode.is_none() && seen.named.kind == Some(FileKind::Link) && seen.target.is_none();
            let nothing = seen.inode.is_none() && seen.broken && seen.names == 0 && !seen.remains();
            if (aimless || empty || lost_link || nothing) && !self.is_root(*file) {
                gone.insert(*file);
            }
        }
        gone
    }

    /// Takes the names of what is gone, and what else is left of it; of directories those that don't stay.
    fn remove_names(&mut self, all: &mut All, gone: &BTreeSet<File>, mut stay: Stay) -> Result<()> {
        if gone.is_empty() && stay.is_empty() {
            return Ok(());
        }
        // Kept apart: nothing is written before the counts are right.
        let mut edits = Vec::new();
        let (mut lost, mut astray) = (Vec::new(), Vec::new());
        self.each("names", |_, key, value| {
            let Some((_, volume, Row::Cookie)) = keys::row(key) else { return Ok(()) };
            let Ok((name, ino, kind)) = values::decode_cookie(value) else { return Ok(()) };
            let dir = keys::first_ino(key);
            let is_lost = gone.contains(&(volume, ino));
            let is_astray = stay.get_mut(&(volume, ino)).is_some_and(|one| one.take_if(|one| *one == dir).is_none());
            if is_lost || is_astray {
                let seen = all.get_mut(&(volume, dir)).expect("its entries were seen");
                seen.entries -= 1;
                seen.subdirectories -= u32::from(kind == FileKind::Directory);
                all.get_mut(&(volume, ino)).expect("its name was seen").names -= 1;
                edits.push(IndexEdit::Delete(key.to_vec()));
                edits.push(IndexEdit::Delete(keys::entry(volume, dir, name.as_bytes())));
                let names = if is_lost { &mut lost } else { &mut astray };
                names.push((volume, dir, format!("{name:?}"), ino));
            }
            Ok(())
        })?;
        for &(volume, ino) in gone {
            let rows = [keys::inode, keys::target, keys::xattrs, keys::orphan].map(|key| key(volume, ino));
            edits.extend(rows.into_iter().map(IndexEdit::Delete));
        }
        self.edits.append(&mut edits);
        for (volume, dir, name, ino) in lost {
            self.lost((volume, dir), "an entry: what it led to is gone; it was removed");
            self.mended(format!(
                "entry {name} of directory {dir} of volume {volume} led to inode {ino}, which is gone"
            ));
        }
        for (volume, dir, name, ino) in astray {
            self.mended(format!(
                "entry {name} of directory {dir} of volume {volume} was removed: directory {ino} lies elsewhere, or above"
            ));
        }
        Ok(())
    }

    /// An inode whose row is there.
    fn known(&mut self, (volume, ino): File, seen: &Seen, known: Known, found: &mut Found) -> Result<()> {
        let directory = known.kind == FileKind::Directory;
        let named = seen.names > 0 || self.is_root((volume, ino));
        let mut links = seen.links(known.kind);
        if !named {
            match known.links {
                0 => links = 0,
                _ => found.add(volume, ino, known.kind),
            }
            links = if known.links > 0 && !directory { 1 } else { links };
        }
        if links > 0 && seen.orphan {
            self.put(keys::orphan(volume, ino), None);
            self.mended(format!("inode {ino} of volume {volume} has a name, and is no orphan any more"));
        }
        if links == 0 && !seen.orphan {
            self.put(keys::orphan(volume, ino), Some(values::encode_mark()));
            self.mended(format!("inode {ino} of volume {volume} has no name: the next start frees it"));
        }
        let entries = if directory { seen.entries } else { known.entries };
        if known.xattrs && !seen.xattrs {
            self.lost((volume, ino), "its extended attributes; it has none now");
        }
        let dead = known.dead && links == 0;
        let above = directory && seen.names > 0 && !self.is_root((volume, ino));
        let parent = if above { seen.dir } else { known.parent };
        let now = Known { links, entries, dead, xattrs: seen.xattrs, parent, ..known };
        if now != known || (!named && links > 0) {
            let row = self.index.get(&keys::inode(volume, ino))?;
            let mut inode = values::decode_inode(&row.expect("it was seen"))?;
            (inode.links, inode.entries, inode.dead) = (links, entries, dead);
            inode.xattrs = inode.xattrs.with_stored(seen.xattrs);
            inode.parent = parent;
            if !named && links > 0 {
                found.moved(volume, ino, inode);
            } else {
                self.put(keys::inode(volume, ino), Some(values::encode_inode(&inode)));
            }
            let (before, had) = (known.links, known.entries);
            self.mended(format!(
                "inode {ino} of volume {volume}: {links} links instead of {before}, {entries} entries instead of {had}"
            ));
            if parent != known.parent {
                let said = known.parent;
                self.mended(format!("directory {ino} of volume {volume} lies in {parent}, and said in {said}"));
            }
        }
        Ok(())
    }

    /// An inode that is gone, of which something is left.
    fn lost_inode(&mut self, (volume, ino): File, seen: &Seen, found: &mut Found) -> Result<()> {
        let root = self.is_root((volume, ino));
        let kind = seen.kind(root).unwrap_or(FileKind::File);
        let named = seen.names > 0 || root;
        let now = self.opening.runtime().clock.wall();
        let links = if named { seen.links(kind) } else { seen.links(kind).max(1) };
        let parent = if root { ino } else { seen.dir };
        let inode = Inode { links, ..made_anew(ino, kind, seen, parent, now) };
        if named {
            self.put(keys::inode(volume, ino), Some(values::encode_inode(&inode)));
        } else {
            found.add(volume, ino, kind);
            found.moved(volume, ino, inode);
        }
        if seen.orphan {
            self.put(keys::orphan(volume, ino), None);
        }
        self.lost((volume, ino), "its inode: owner root, mode 0600 (0700), times now, size up to a whole block");
        self.mended(format!("inode {ino} of volume {volume} was made anew"));
        Ok(())
    }
}

/// Notes what one row tells of inodes.
fn look(all: &mut All, volume: VolumeId, (key, value): (&[u8], &[u8]), row: Row) {
    let own = |key: &[u8]| (volume, keys::first_ino(key));
    match row {
        Row::Inode => {
            let seen = all.entry(own(key)).or_default();
            let known = |inode: Inode| {
                let Inode { kind, links, entries, dead, xattrs, parent, .. } = inode;
                Known { kind, links, entries, dead, xattrs: xattrs.are_stored(), parent }
            };
            seen.inode = values::decode_inode(value).ok().map(known);
            seen.broken = seen.inode.is_none();
        }
        Row::Cookie => {
            let Ok((_, ino, kind)) = values::decode_cookie(value) else { return };
            let dir = keys::first_ino(key);
            let seen = all.entry((volume, ino)).or_default();
            (seen.names, seen.dir) = (seen.names + 1, dir);
            seen.named.add(kind);
            let above = all.entry((volume, dir)).or_default();
            above.entries += 1;
            above.subdirectories += u32::from(kind == FileKind::Directory);
        }
        Row::Target => {
            let length = values::decode_target(value).map(|target| target.len() as u64);
            all.entry(own(key)).or_default().target = length.ok();
        }
        Row::Xattrs => all.entry(own(key)).or_default().xattrs = true,
        Row::Orphan => all.entry((volume, keys::orphan_ino(key))).or_default().orphan = true,
        Row::Leaf => {
            let at = keys::leaf_of(key);
            let Ok(leaf) = Leaf::decode(value) else { return };
            let seen = all.entry((volume, at.ino)).or_default();
            let last = leaf.iter().filter(|(_, slot)| *slot != Slot::Hole).map(|(slot, _)| slot as u64).last();
            seen.end = seen.end.max(last.map_or(0, |slot| at.leaf * BLOCKS_PER_LEAF as u64 + slot + 1));
            seen.trim = seen.trim.max(leaf.trim);
        }
        _ => {}
    }
}

/// An inode as what is left of it tells.
fn made_anew(ino: Ino, kind: FileKind, seen: &Seen, parent: Ino, now: Time) -> Inode {
    let size = match kind {
        FileKind::File => seen.end * BLOCK_BYTES as u64,
        FileKind::Link => seen.target.unwrap_or(0),
        _ => 0,
    };
    let mode = if kind == FileKind::Directory { 0o700 } else { 0o600 };
    let Seen { trim, entries, xattrs, .. } = *seen;
    let xattrs = Attributes::new(xattrs, None);
    Inode { mode, size, trim, entries, xattrs, ..Inode::blank(kind, ino, parent, now) }
}
