//! New counts of the space that projects use and of the blocks reserved for files.

use super::Repair;
use crate::format::keys::{self, Row};
use crate::format::leaf::Leaf;
use crate::format::values;
use crate::space::purge::Purges;
use crate::space::reserve;
use crate::space::usage::{self, Usage, User};
use base::{GroupId, Ino, Result, VolumeId};
use std::collections::BTreeMap;

#[derive(Default)]
struct Counted {
    /// Group and volume of the present rows, and the projects of their inodes.
    of: (GroupId, VolumeId),
    projects: BTreeMap<Ino, u32>,
    /// Blocks that files count, less those that their leaves have.
    unmapped: BTreeMap<Ino, i64>,
    purges: Option<(GroupId, Purges)>,
    found: BTreeMap<User, Usage>,
    told: BTreeMap<User, Usage>,
}

impl Repair<'_> {
    pub(super) fn counts(&mut self) -> Result<()> {
        let mut counted = Counted::default();
        self.each("counts", |repair, key, value| repair.count(key, value, &mut counted))?;
        self.blocks(&mut counted)?;
        let Counted { mut found, told, .. } = counted;
        found.retain(|user, usage| *usage != Usage::default() || told.contains_key(user));
        for user in told.keys() {
            found.entry(*user).or_default();
        }
        for (user, usage) in found {
            if told.get(&user) != Some(&usage) {
                self.edits.push(usage::row(user, &usage));
                let (group, volume, project) = user;
                self.mended(format!(
                    "what project {project} of volume {volume} uses in group {group} was counted anew"
                ));
            }
        }
        self.write()
    }

    /// Files of the group and volume at hand say how many blocks they have.
    fn blocks(&mut self, counted: &mut Counted) -> Result<()> {
        let (_, volume) = counted.of;
        for (ino, more) in std::mem::take(&mut counted.unmapped).into_iter().filter(|(_, more)| *more != 0) {
            let key = keys::inode(volume, ino);
            let Some(row) = self.index.get(&key)? else { continue };
            let (inode, told) = values::decode_counted_inode(&row)?;
            let blocks = told.saturating_add_signed(-more);
            self.put(key, Some(values::encode_counted_inode(&inode, blocks)));
            self.mended(format!("the blocks of inode {ino} of volume {volume} were counted anew"));
        }
        Ok(())
    }

    fn count(&mut self, key: &[u8], value: &[u8], counted: &mut Counted) -> Result<()> {
        let Some((group, volume, row)) = keys::row(key) else { return Ok(()) };
        if !self.volumes.contains_key(&volume) || !row.is_of_volume() {
            return Ok(());
        }
        // Inodes come before what is counted for them.
        if counted.of != (group, volume) {
            self.blocks(counted)?;
            (counted.of, counted.projects) = ((group, volume), BTreeMap::new());
        }
        if counted.purges.as_ref().is_none_or(|(known, _)| *known != group) {
            counted.purges = Some((group, self.purges(group)?));
        }
        let (_, purges) = counted.purges.as_ref().expect("just read");
        match row {
            Row::Inode => {
                let ino = keys::first_ino(key);
                let inode = values::decode_counted_inode(value).ok();
                if let Some((_, blocks)) = inode {
                    counted.unmapped.insert(ino, blocks as i64);
                }
                let project = inode.map_or(0, |(inode, _)| inode.project);
                if project != 0 {
                    counted.projects.insert(ino, project);
                }
                counted.found.entry((group, volume, project)).or_default().inodes += 1;
            }
            Row::Leaf => {
                let ino = keys::leaf_of(key).ino;
                let purged = purges.inodes.get(&(volume, ino)).map_or(0, |purge| purge.project);
                let project = counted.projects.get(&ino).copied().unwrap_or(purged);
                let blocks = Leaf::decode(value).map_or(0, |leaf| leaf.places().count() as u64);
                if let Some(unmapped) = counted.unmapped.get_mut(&ino) {
                    *unmapped -= blocks as i64;
                }
                counted.found.entry((group, volume, project)).or_default().blocks += blocks;
            }
            Row::Reserve => {
                let left = self.promise((volume, keys::first_ino(key)), value, purges)?;
                let (project, left) = left;
                counted.found.entry((group, volume, project)).or_default().reserved += left;
            }
            Row::Usage => {
                let user = (group, volume, keys::usage_project(key));
                counted.told.insert(user, values::decode_usage(value)?);
            }
            row if usage::is_named(row) => {
                let names = counted.found.entry((group, volume, 0)).or_default().names.get_or_insert(0);
                *names += (key.len() + value.len()) as u64;
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts what of a promise is not mapped yet; project and blocks.
    fn promise(&mut self, file: (VolumeId, Ino), value: &[u8], purges: &Purges) -> Result<(u32, u64)> {
        let mut reserve = values::decode_reserve(value)?;
        let before = reserve.clone();
        for extent in &mut reserve.extents {
            let mapped = reserve::mapped(&*self.index, purges, file, extent.first..extent.end, |_| true)?;
            extent.left = Some(extent.end - extent.first - mapped);
        }
        reserve.extents.retain(|extent| extent.left != Some(0));
        if reserve != before {
            let row = (!reserve.extents.is_empty()).then(|| values::encode_reserve(&reserve));
            self.put(keys::reserve(file.0, file.1), row);
            self.mended(format!("what inode {} of volume {} was promised was counted anew", file.1, file.0));
        }
        Ok((reserve.project, reserve.left()))
    }
}
