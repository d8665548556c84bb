//! Names against inodes: every count says what is there, every name leads somewhere, every inode has a name.

use super::kinds::{Named, Witnesses, word};
use super::tree::Tree;
use super::{Check, Means};
use base::{FileKind, Ino, Inode, VolumeId};
use std::collections::BTreeMap;

/// Directories of a loop that a finding names.
const LISTED_MAX: usize = 8;

/// The facts about an inode that the check keeps in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub kind: FileKind,
    pub links: u32,
    pub size: u64,
    pub entries: u64,
    pub xattrs: bool,
}

impl From<&Inode> for Known {
    fn from(inode: &Inode) -> Known {
        let Inode { kind, links, size, entries, xattrs, .. } = *inode;
        Known { kind, links, size, entries, xattrs: xattrs.are_stored() }
    }
}

/// An inode, and what was found to lead to it or to be in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// None: something leads to it, but it is not there.
    pub inode: Option<Known>,
    /// Entries that point to it, and what kind they say.
    pub links: u32,
    pub named: Named,
    /// Number of its entries that are directories.
    pub subdirectories: u32,
    /// Its entries, by name and by cookie.
    pub names: u64,
    pub cookies: u64,
    /// There are leaves that map data of it, and a target.
    pub data: bool,
    pub target: bool,
    /// Mapped blocks that it counts, less those that its leaves have.
    pub unmapped: i64,
    /// It is marked as one that the next start frees.
    pub orphan: bool,
}

#[derive(Default)]
pub(super) struct Names {
    inodes: BTreeMap<(VolumeId, Ino), Found>,
    pub roots: BTreeMap<VolumeId, Ino>,
    /// Parents of directories, as the directories' own rows say.
    pub parents: BTreeMap<(VolumeId, Ino), Ino>,
    /// The tree of directories, as their names say.
    pub tree: Tree,
}

impl Names {
    pub fn of(&mut self, volume: VolumeId, ino: Ino) -> &mut Found {
        self.inodes.entry((volume, ino)).or_default()
    }
    pub fn inode(&self, volume: VolumeId, ino: Ino) -> Option<Known> {
        self.inodes.get(&(volume, ino)).and_then(|found| found.inode)
    }
    /// A leaf maps data of an inode. Of those that are gone nobody asks for it.
    pub fn add_data(&mut self, volume: VolumeId, ino: Ino, blocks: u64) {
        if let Some(found) = self.inodes.get_mut(&(volume, ino)) {
            found.data = true;
            found.unmapped -= blocks as i64;
        }
    }
}

impl Check<'_> {
    pub(super) fn names(&mut self) {
        if !self.is_settled() {
            return;
        }
        let names = std::mem::take(&mut self.names);
        for (&(volume, ino), found) in &names.inodes {
            if found.unmapped != 0 && found.inode.is_some() && !self.uncounted.contains(&(ino.group(), volume)) {
                let more = found.unmapped;
                self.miscounted.push(format!("inode {ino} of volume {volume} counts {more} blocks more than it has"));
            }
            let root = names.roots.get(&volume) == Some(&ino);
            match &found.inode {
                Some(inode) => self.counts((volume, ino), inode, found, root),
                None if found.links > 0 => {
                    let finding = format!("an entry of volume {volume} leads to inode {ino}, which is not there");
                    self.find(finding, Means::Unreadable);
                }
                // A mark alone: there is nothing to free.
                None if found.names + found.cookies == 0 => {}
                None => {
                    let finding = format!("entries of directory {ino} of volume {volume}, which is not there");
                    self.find(finding, Means::Unreadable);
                }
            }
        }
        for (&volume, &root) in &names.roots {
            if names.inode(volume, root).is_none() {
                self.find(format!("volume {volume} has no root directory {root}"), Means::Unreadable);
            }
        }
        self.tree(names);
    }

    /// Every directory lies in one other, which it says itself, and a path leads to it.
    fn tree(&mut self, names: Names) {
        let Names { inodes, roots, parents, mut tree } = names;
        for (&(volume, ino), &says) in &parents {
            let links = inodes.get(&(volume, ino)).map_or(0, |found| found.links);
            let root = roots.get(&volume) == Some(&ino);
            if links > u32::from(!root) {
                let what = if root { ", which is the root," } else { "" };
                self.find(format!("directory {ino} of volume {volume}{what} has {links} names"), Means::Names);
                // Nobody knows by which of them it is reached.
                tree.remove((volume, ino));
            } else if let Some(dir) = tree.above((volume, ino)).filter(|dir| *dir != says) {
                let finding = format!("directory {ino} of volume {volume} lies in {dir}, and says in {says}");
                self.find(finding, Means::Names);
            }
        }
        for (volume, lost) in tree.loops() {
            let listed: Vec<_> = lost.dirs.iter().take(LISTED_MAX).map(|ino| ino.to_string()).collect();
            let more = if lost.dirs.len() > LISTED_MAX { " and others" } else { "" };
            let (listed, below) = (listed.join(", "), lost.below);
            let finding = format!(
                "directories {listed}{more} of volume {volume} lie in each other: no path leads to them, nor to {below} \
                 directories below them"
            );
            self.find(finding, Means::Names);
        }
    }

    fn counts(&mut self, (volume, ino): (VolumeId, Ino), inode: &Known, found: &Found, root: bool) {
        let directory = self.kind((volume, ino), inode, found, root) == FileKind::Directory;
        let links = match directory {
            true if inode.links == 0 => 0,
            true => 2 + found.subdirectories,
            false => found.links,
        };
        if inode.links != links {
            let says = inode.links;
            self.find(format!("inode {ino} of volume {volume} says {says} links, has {links}"), Means::Names);
        }
        if directory && (inode.entries, found.names) != (found.cookies, found.cookies) {
            let (says, Found { names, cookies, .. }) = (inode.entries, found);
            let finding =
                format!("directory {ino} of volume {volume} says {says} entries, has {names} and lists {cookies}");
            self.find(finding, Means::Names);
        }
        if !root && found.links == 0 && (inode.links > 0 || !found.orphan) {
            self.find(format!("inode {ino} of volume {volume} has no name and is no orphan"), Means::Names);
        }
        if inode.links > 0 && found.orphan {
            self.find(format!("inode {ino} of volume {volume} has names, and the next start frees it"), Means::Names);
        }
    }

    /// The kind of an inode; adds a finding if a witness says something else.
    fn kind(&mut self, (volume, ino): (VolumeId, Ino), inode: &Known, found: &Found, root: bool) -> FileKind {
        let (entries, Found { data, target, named, .. }) = (found.cookies > 0, *found);
        let row = Some(inode.kind);
        let kind = Witnesses { root, entries, data, target, names: named, row }.kind().unwrap_or(inode.kind);
        if inode.kind != kind {
            let (says, is) = (word(inode.kind), word(kind));
            let finding =
                format!("inode {ino} of volume {volume} says it is a {says}; by its names or contents it is a {is}");
            self.find(finding, Means::Kind);
        }
        if named.contradict(kind) {
            let is = word(kind);
            self.find(format!("a name of inode {ino} of volume {volume}, a {is}, says another kind"), Means::Names);
        }
        kind
    }
}
