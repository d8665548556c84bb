//! Directories that lie in several others, or in each other.

use super::{All, File, Repair, Seen, Stay};
use crate::check::tree::Tree;
use crate::format::keys::{self, Row};
use crate::format::values;
use base::{FileKind, Ino, Result};
use std::collections::BTreeMap;

impl Seen {
    fn is_directory(&self) -> bool {
        self.inode.map_or(self.named.kind, |known| Some(known.kind)) == Some(FileKind::Directory)
    }
}

impl Repair<'_> {
    /// Directories with names that must go. A root has none, any other one; of a loop the first gives its name up, and gets
    /// one in `lost+found`.
    pub(super) fn misplaced(&mut self, all: &mut All) -> Result<Stay> {
        let mut stay = Stay::new();
        for (file, dirs) in self.named_twice(all)? {
            let says = all[&file].inode.map(|known| known.parent);
            let first = dirs.iter().filter(|dir| Some(**dir) == says);
            let kept = first.chain(&dirs).find(|dir| self.leads_up(all, file, **dir));
            let kept = *kept.or(dirs.first()).expect("it has names");
            all.get_mut(&file).expect("it was seen").dir = kept;
            stay.insert(file, Some(kept));
        }
        let mut tree = Tree::default();
        for (file, seen) in all.iter().filter(|(_, seen)| seen.is_directory() && seen.names > 0) {
            match self.is_root(*file) {
                true => drop(stay.insert(*file, None)),
                false => tree.add(*file, seen.dir),
            }
        }
        for (volume, lost) in tree.loops() {
            stay.insert((volume, lost.dirs[0]), None);
        }
        Ok(stay)
    }

    /// Directories of several names, with where these are.
    fn named_twice(&mut self, all: &All) -> Result<BTreeMap<File, Vec<Ino>>> {
        let twice = all.iter().filter(|(file, seen)| seen.is_directory() && seen.names > 1 && !self.is_root(**file));
        let mut twice: BTreeMap<File, Vec<Ino>> = twice.map(|(file, _)| (*file, Vec::new())).collect();
        if !twice.is_empty() {
            self.each("names", |_, key, value| {
                if let Some((_, volume, Row::Cookie)) = keys::row(key)
                    && let Ok((_, ino, _)) = values::decode_cookie(value)
                    && let Some(dirs) = twice.get_mut(&(volume, ino))
                {
                    dirs.push(keys::first_ino(key));
                }
                Ok(())
            })?;
        }
        Ok(twice)
    }

    /// True if the way up from `dir` has an end, and does not come by the directory `file`.
    fn leads_up(&self, all: &All, (volume, ino): File, dir: Ino) -> bool {
        let mut at = dir;
        // A longer way goes round.
        for _ in 0..=all.len() {
            match all.get(&(volume, at)) {
                _ if at == ino => return false,
                Some(seen) if seen.names > 0 && !self.is_root((volume, at)) => at = seen.dir,
                _ => return true,
            }
        }
        false
    }
}
