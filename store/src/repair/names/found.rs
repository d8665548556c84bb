//! `lost+found`: names for what has none.

use super::{All, Repair, Seen, made_anew};
use crate::format::keys;
use crate::format::values::{self, GroupRow};
use crate::index::{Index, IndexEdit};
use base::{FileKind, GroupId, Ino, Inode, Name, Result, Volume, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The directory's name; a number follows if something else has it.
const NAME: &str = "lost+found";

/// Inodes without a name, by volume, and inodes that are not written yet.
#[derive(Default)]
pub(super) struct Found {
    files: BTreeMap<VolumeId, Vec<(Ino, FileKind)>>,
    inodes: BTreeMap<(VolumeId, Ino), Inode>,
}

impl Found {
    /// This one needs a name.
    pub fn add(&mut self, volume: VolumeId, ino: Ino, kind: FileKind) {
        self.files.entry(volume).or_default().push((ino, kind));
    }
    /// Its inode, but for the parent.
    pub fn moved(&mut self, volume: VolumeId, ino: Ino, inode: Inode) {
        self.inodes.insert((volume, ino), inode);
    }
}

/// Counters of groups that names are taken from.
struct Counters {
    index: Arc<dyn Index>,
    rows: BTreeMap<GroupId, GroupRow>,
}

impl Counters {
    fn of(&mut self, group: GroupId) -> Result<&mut GroupRow> {
        if !self.rows.contains_key(&group) {
            let row = self.index.get(&keys::group(group))?;
            let row = row.map(|row| values::decode_group(&row)).transpose()?;
            let mut row = row.unwrap_or_else(GroupRow::fresh);
            row.pass_reserved();
            self.rows.insert(group, row);
        }
        Ok(self.rows.get_mut(&group).expect("just there"))
    }
}

impl Repair<'_> {
    /// Gives everything a name that needs one.
    pub(super) fn reattach(&mut self, all: &All, found: Found) -> Result<()> {
        let Found { files, mut inodes } = found;
        let mut counters = Counters { index: self.index.clone(), rows: BTreeMap::new() };
        let (mut rows, mut told) = (Vec::new(), Vec::new());
        for (volume, files) in files {
            let volume = self.volumes[&volume].clone();
            let (dir, mut seen) = self.lost_and_found(&volume, all, &mut counters, &mut rows)?;
            for (ino, kind) in files {
                let name = Name::new(format!("#{}", ino.0).as_bytes())?;
                let cookie = counters.of(dir.group())?;
                cookie.next_cookie += 1;
                let cookie = cookie.next_cookie - 1;
                rows.push((keys::entry(volume.id, dir, name.as_bytes()), values::encode_entry(ino, kind, cookie)));
                let value = values::encode_cookie(name.as_bytes(), ino, kind);
                rows.push((keys::cookie(volume.id, dir, cookie), value));
                seen.entries += 1;
                seen.subdirectories += u32::from(kind == FileKind::Directory);
                let mut inode = inodes.remove(&(volume.id, ino)).expect("it was looked at");
                inode.parent = dir;
                rows.push((keys::inode(volume.id, ino), values::encode_inode(&inode)));
                told.push(format!("inode {ino} of volume {} has the name /{NAME}/{name:?} now", volume.id));
            }
            let row = rows.iter().rfind(|(key, _)| *key == keys::inode(volume.id, dir)).map(|(_, value)| value.clone());
            let row = row.map_or_else(|| self.index.get(&keys::inode(volume.id, dir)), |row| Ok(Some(row)))?;
            let mut inode = values::decode_inode(&row.expect("it is there"))?;
            (inode.links, inode.entries) = (2 + seen.subdirectories, seen.entries);
            rows.push((keys::inode(volume.id, dir), values::encode_inode(&inode)));
        }
        let groups = counters.rows;
        rows.extend(groups.iter().map(|(group, row)| (keys::group(*group), values::encode_group(row))));
        rows.into_iter().for_each(|(key, value)| self.put(key, Some(value)));
        told.into_iter().for_each(|what| self.mended(what));
        Ok(())
    }

    /// The directory, there or made, and what is in it.
    fn lost_and_found(
        &self,
        volume: &Volume,
        all: &All,
        counters: &mut Counters,
        rows: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(Ino, Seen)> {
        let Volume { id, root, .. } = *volume;
        for number in 0.. {
            let name = if number == 0 { NAME.to_string() } else { format!("{NAME}.{number}") };
            let name = Name::new(name.as_bytes())?;
            let entry = self.index.get(&keys::entry(id, root, name.as_bytes()))?;
            match entry.and_then(|row| values::decode_entry(&row).ok()) {
                Some((ino, FileKind::Directory, _)) => {
                    return Ok((ino, all.get(&(id, ino)).copied().unwrap_or_default()));
                }
                Some(_) => {}
                None => {
                    let ino = self.new_directory(volume, (&name, all), counters, rows)?;
                    return Ok((ino, Seen::default()));
                }
            }
        }
        unreachable!("a directory has fewer names than there are numbers")
    }

    fn new_directory(
        &self,
        volume: &Volume,
        (name, all): (&Name, &All),
        counters: &mut Counters,
        rows: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Ino> {
        let Volume { id, root, .. } = *volume;
        let counter = counters.of(root.group())?;
        let (ino, cookie) = (Ino::new(counter.next_ino, root.group()), counter.next_cookie);
        (counter.next_ino, counter.next_cookie) = (counter.next_ino + 1, counter.next_cookie + 1);
        let kind = FileKind::Directory;
        rows.push((keys::entry(id, root, name.as_bytes()), values::encode_entry(ino, kind, cookie)));
        rows.push((keys::cookie(id, root, cookie), values::encode_cookie(name.as_bytes(), ino, kind)));
        let now = self.opening.runtime().clock.wall();
        let inode = Inode { links: 2, ..made_anew(ino, kind, &Seen::default(), root, now) };
        rows.push((keys::inode(id, ino), values::encode_inode(&inode)));
        // The root has one entry more; it may have been mended in the same change.
        let above = keys::inode(id, root);
        let mended = self.edits.iter().rev().find_map(|edit| match edit {
            IndexEdit::Put(key, value) if *key == above => Some(value.clone()),
            _ => None,
        });
        let row = mended.map_or_else(|| self.index.get(&above), |row| Ok(Some(row)))?;
        let mut inode = values::decode_inode(&row.expect("a root that is lost was made anew"))?;
        let seen = all.get(&(id, root)).copied().unwrap_or_default();
        (inode.links, inode.entries) = (2 + seen.subdirectories + 1, seen.entries + 1);
        rows.push((above, values::encode_inode(&inode)));
        Ok(ino)
    }
}
