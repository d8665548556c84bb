//! Rows that nobody can use: of no known kind, of volumes that are not there, unreadable; and entries against cookies,
//! each of which can be made from the other.

use super::Repair;
use crate::format::keys::{self, Row};
use crate::format::values;
use crate::index::IndexEdit;
use base::{FileKind, GroupId, Ino, Limits, Name, Result, TierPolicy, Volume, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Strays {
    unknown: u64,
    /// Volumes that the catalogue does not have, with the root directory, if there is one.
    volumes: BTreeMap<VolumeId, Option<Ino>>,
    /// Rows of the catalogue that can't be read.
    broken: Vec<Vec<u8>>,
    /// Volumes that each group has yet to free.
    purged: BTreeSet<(GroupId, VolumeId)>,
}

impl Repair<'_> {
    /// One pass over all rows, for those that can't be used.
    pub(super) fn rows(&mut self) -> Result<()> {
        let mut strays = Strays::default();
        for group in (0..self.groups()).map(GroupId) {
            let (from, to) = keys::purged_volumes(group);
            let rows = self.index.scan(&from, &to, usize::MAX)?;
            strays.purged.extend(rows.iter().map(|(key, _)| (group, keys::purged_volume_id(key))));
        }
        self.each("rows", |repair, key, value| repair.row(key, value, &mut strays))?;
        self.write()?;
        if strays.unknown > 0 {
            self.mended(format!("{} rows of the index of no known kind were removed", strays.unknown));
        }
        self.stray_volumes(strays)
    }

    fn row(&mut self, key: &[u8], value: &[u8], strays: &mut Strays) -> Result<()> {
        let known = keys::row(key).filter(|row| crate::check::is_in_place(self.groups(), key, *row));
        let Some((group, volume, row)) = known else {
            strays.unknown += 1;
            self.put(key.to_vec(), None);
            return Ok(());
        };
        if row.is_of_volume() && !self.volumes.contains_key(&volume) && !strays.purged.contains(&(group, volume)) {
            let root = strays.volumes.entry(volume).or_default();
            if row == Row::Inode && is_root(key, value) {
                *root = Some(keys::first_ino(key));
            }
            return Ok(());
        }
        match row {
            Row::Volume if values::decode_volume(value).is_err() => strays.broken.push(key.to_vec()),
            Row::Cookie => self.cookie(volume, key, value)?,
            Row::Target => self.drop_unreadable(key, values::decode_target(value).is_err(), None),
            Row::Xattrs => self.xattrs(volume, key, value)?,
            Row::Reserve => {
                let file = (volume, keys::first_ino(key));
                let gone = "what fallocate promised; nothing is promised now";
                self.drop_unreadable(key, values::decode_reserve(value).is_err(), Some((file, gone)));
            }
            Row::Purge => self.drop_unreadable(key, values::decode_purge(value).is_err(), None),
            Row::Usage => self.drop_unreadable(key, values::decode_usage(value).is_err(), None),
            Row::Session => self.drop_unreadable(key, values::decode_session(value).is_err(), None),
            Row::Terms => self.drop_unreadable(key, values::decode_terms(value).is_err(), None),
            // One that can't be read stays: without it the replica could vote twice in a term (rule L6).
            Row::Promise | Row::Heal => {}
            Row::Scrub => self.drop_unreadable(key, values::decode_scrub(value).is_err(), None),
            _ => {}
        }
        Ok(())
    }

    fn drop_unreadable(&mut self, key: &[u8], bad: bool, lost: Option<((VolumeId, Ino), &'static str)>) {
        if bad {
            self.put(key.to_vec(), None);
            self.mended("a row of the index that can't be read was removed");
            if let Some((file, what)) = lost {
                self.lost(file, what);
            }
        }
    }

    fn inode_of(&self, volume: VolumeId, ino: Ino) -> Result<Option<base::Inode>> {
        let row = self.index.get(&keys::inode(volume, ino))?;
        Ok(row.and_then(|row| values::decode_inode(&row).ok()))
    }

    /// The kind to write into a row of a name that is made anew: the kind in the inode's row or, if that row is missing
    /// or unreadable, `told`, the kind in the name's other row (a name has two: entry and cookie). The other row is not
    /// simply copied, since its kind may be wrong: both rows would then agree on the wrong kind, and a later pass might
    /// believe the name and change the inode (`check::kinds`).
    fn kind_of(&self, volume: VolumeId, ino: Ino, told: FileKind) -> Result<FileKind> {
        Ok(self.inode_of(volume, ino)?.map_or(told, |inode| inode.kind))
    }

    fn xattrs(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) -> Result<()> {
        let ino = keys::first_ino(key);
        if values::decode_xattrs(value).is_err() {
            self.put(key.to_vec(), None);
            self.lost((volume, ino), "its extended attributes; it has none now");
        } else if self.inode_of(volume, ino)?.is_some_and(|inode| !inode.xattrs.are_stored()) {
            self.put(key.to_vec(), None);
            self.mended(format!("attributes of inode {ino} of volume {volume}, which has none, were removed"));
        }
        Ok(())
    }

    /// A cookie's entry is there and says the same, or is made from it.
    fn cookie(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) -> Result<()> {
        let (dir, number) = (keys::first_ino(key), keys::cookie_number(key));
        let Ok((name, ino, kind)) = values::decode_cookie(value) else {
            // If an entry has it, it is made anew from that.
            self.put(key.to_vec(), None);
            return Ok(());
        };
        let entry_key = keys::entry(volume, dir, name.as_bytes());
        let entry = self.index.get(&entry_key)?.and_then(|row| values::decode_entry(&row).ok());
        if entry == Some((ino, kind, number)) {
            return Ok(());
        }
        let shown = format!("entry {name:?} of directory {dir} of volume {volume}");
        if let Some((other, other_kind, other_number)) = entry {
            let is_whole = self.cookie_names(volume, (dir, other_number), &name)?;
            let leads = self.inode_of(volume, other)?.is_some_and(|inode| inode.kind == other_kind);
            if other_number != number && is_whole {
                self.put(key.to_vec(), None);
                self.mended(format!("{shown} was listed twice"));
                return Ok(());
            }
            if leads && other_number == number {
                self.put(key.to_vec(), Some(values::encode_cookie(name.as_bytes(), other, other_kind)));
                self.mended(format!("the cookie of {shown} was made anew"));
                return Ok(());
            }
        }
        let is_twice = entry.is_some_and(|(other, other_kind, _)| (other, other_kind) == (ino, kind));
        let is = if is_twice { kind } else { self.kind_of(volume, ino, kind)? };
        if is != kind {
            self.put(key.to_vec(), Some(values::encode_cookie(name.as_bytes(), ino, is)));
        }
        self.put(entry_key, Some(values::encode_entry(ino, is, number)));
        self.mended(format!("{shown} was made anew from its cookie"));
        Ok(())
    }

    fn cookie_names(&self, volume: VolumeId, (dir, number): (Ino, u64), name: &Name) -> Result<bool> {
        let row = self.index.get(&keys::cookie(volume, dir, number))?;
        let named = row.and_then(|row| values::decode_cookie(&row).ok());
        Ok(named.is_some_and(|(of, ..)| of == *name))
    }

    /// One pass over all entries: each has its cookie.
    pub(super) fn entries(&mut self) -> Result<()> {
        self.each("entries", |repair, key, value| match keys::row(key) {
            Some((_, volume, Row::Entry)) => repair.entry(volume, key, value),
            _ => Ok(()),
        })?;
        self.write()
    }

    fn entry(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) -> Result<()> {
        let dir = keys::first_ino(key);
        let name = keys::entry_name(key);
        let (Ok(name), Ok((ino, kind, number))) = (Name::new(name), values::decode_entry(value)) else {
            self.put(key.to_vec(), None);
            self.mended(format!(
                "entry {:?} of directory {dir} of volume {volume}, unreadable, was removed",
                shown(name)
            ));
            return Ok(());
        };
        let cookie_key = keys::cookie(volume, dir, number);
        match self.index.get(&cookie_key)?.map(|row| values::decode_cookie(&row)) {
            Some(Ok((of, ..))) if of == name => {}
            Some(Ok(_)) => {
                // Its number is another's: which inode it led to is found by what has no name.
                self.put(key.to_vec(), None);
                self.mended(format!(
                    "entry {name:?} of directory {dir} of volume {volume}, without a cookie, was removed"
                ));
            }
            _ => {
                let is = self.kind_of(volume, ino, kind)?;
                if is != kind {
                    self.put(key.to_vec(), Some(values::encode_entry(ino, is, number)));
                }
                self.put(cookie_key, Some(values::encode_cookie(name.as_bytes(), ino, is)));
                self.mended(format!(
                    "the cookie of entry {name:?} of directory {dir} of volume {volume} was made anew"
                ));
            }
        }
        Ok(())
    }

    /// A volume whose root directory is there gets its place in the catalogue back; what is left of others goes.
    fn stray_volumes(&mut self, strays: Strays) -> Result<()> {
        let Strays { volumes, mut broken, .. } = strays;
        let roots = volumes.values().flatten().count();
        for (id, root) in volumes {
            let Some(root) = root else {
                for group in (0..self.groups()).map(GroupId) {
                    let (from, to) = keys::volume_in_group(group, id);
                    self.edits.push(IndexEdit::DeleteRange(from, to));
                }
                self.mended(format!("rows of volume {id}, which does not exist, were removed"));
                continue;
            };
            // Its own name, if there is no doubt whose it is.
            let (name, only) = match (roots, broken.as_slice()) {
                (1, [key]) => (keys::volume_name(key).to_vec(), true),
                _ => (format!("recovered-{id}").into_bytes(), false),
            };
            if only {
                broken.clear();
            }
            let created = self.opening.runtime().clock.wall();
            let name = Name::new(&name)?;
            let (layers, policy, limits) = (Box::default(), TierPolicy::default(), Limits::NONE);
            let volume = Volume { id, name, root, created, size_bytes: None, layers, policy, limits };
            self.put(keys::volume(volume.name.as_bytes()), Some(values::encode_volume(&volume)));
            self.lost(
                (id, root),
                "the volume's date, size and layers; it may hold as much as the brick now, and be written",
            );
            self.mended(format!("volume {id} is in the catalogue again, as {:?}", volume.name));
            self.volumes.insert(id, volume);
        }
        for key in broken {
            self.mended(format!("volume {:?} had no readable row and nothing in it", shown(keys::volume_name(&key))));
            self.put(key, None);
        }
        self.write()
    }
}

fn is_root(key: &[u8], value: &[u8]) -> bool {
    // Whatever kind it says: nothing else lies in itself.
    values::decode_inode(value).is_ok_and(|inode| inode.parent == keys::first_ino(key))
}

fn shown(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}
