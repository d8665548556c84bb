//! The repair of inodes' kinds. It comes before all that depends on them: a link without a target would be removed, and
//! blocks of an inode that is no file can't be read.

use super::{All, File, Repair, Seen, made_anew};
use crate::check::kinds::{Witnesses, word};
use crate::format::keys::{self, Row};
use crate::format::values;
use base::{FileKind, Inode, Result};
use std::collections::BTreeMap;

impl Seen {
    /// The kind that its witnesses tell.
    pub(super) fn kind(&self, root: bool) -> Option<FileKind> {
        let (entries, data, target) = (self.entries > 0, self.end > 0, self.target.is_some());
        let row = self.inode.map(|known| known.kind);
        Witnesses { root, entries, data, target, names: self.named, row }.kind()
    }
}

impl Repair<'_> {
    /// Inodes' rows and names say what the inodes are. True if something was changed. It can be cut off anywhere: each
    /// change brings one witness over to what the others say.
    pub(super) fn kinds(&mut self, all: &All) -> Result<bool> {
        let mut changed = false;
        let mut misnamed = BTreeMap::new();
        for (&file, seen) in all {
            let Some(kind) = seen.kind(self.is_root(file)) else { continue };
            if seen.named.contradict(kind) {
                misnamed.insert(file, kind);
            }
            let Some(known) = seen.inode else { continue };
            if known.kind != kind {
                self.becomes(file, seen, kind)?;
                changed = true;
            }
            if seen.target.is_some() && kind != FileKind::Link {
                let (volume, ino) = file;
                self.put(keys::target(volume, ino), None);
                self.mended(format!("the target of inode {ino} of volume {volume}, no symbolic link, was removed"));
                changed = true;
            }
        }
        if !misnamed.is_empty() {
            self.names_become(&misnamed)?;
            changed = true;
        }
        self.write()?;
        Ok(changed)
    }

    /// An inode's row says another kind. Links and entries are counted later.
    fn becomes(&mut self, (volume, ino): File, seen: &Seen, kind: FileKind) -> Result<()> {
        let key = keys::inode(volume, ino);
        let row = self.index.get(&key)?;
        let inode = values::decode_inode(&row.expect("it was seen"))?;
        // A file's size is known to its row alone, and so is a device's number.
        let size = match kind {
            FileKind::File => inode.size,
            _ => made_anew(ino, kind, seen, inode.parent, inode.ctime).size,
        };
        let is_device = matches!(kind, FileKind::Character | FileKind::BlockDevice);
        let rdev = if is_device { inode.rdev } else { 0 };
        self.put(key, Some(values::encode_inode(&Inode { kind, size, rdev, ..inode })));
        let (said, is) = (word(inode.kind), word(kind));
        self.mended(format!("inode {ino} of volume {volume} is a {is} again, and said that it is a {said}"));
        Ok(())
    }

    /// Both rows of names say another kind.
    fn names_become(&mut self, kinds: &BTreeMap<File, FileKind>) -> Result<()> {
        self.each("names", |repair, key, value| {
            let Some((_, volume, Row::Cookie)) = keys::row(key) else { return Ok(()) };
            let Ok((name, ino, said)) = values::decode_cookie(value) else { return Ok(()) };
            let Some(&kind) = kinds.get(&(volume, ino)).filter(|kind| **kind != said) else { return Ok(()) };
            let (dir, number) = (keys::first_ino(key), keys::cookie_number(key));
            let entry = keys::entry(volume, dir, name.as_bytes());
            repair.put(key.to_vec(), Some(values::encode_cookie(name.as_bytes(), ino, kind)));
            repair.put(entry, Some(values::encode_entry(ino, kind, number)));
            let (said, is) = (word(said), word(kind));
            repair.mended(format!(
                "entry {name:?} of directory {dir} of volume {volume} leads to a {is} again, and said to a {said}"
            ));
            Ok(())
        })
    }
}
