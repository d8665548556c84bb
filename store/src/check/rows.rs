//! One pass over all rows of the index, in the order of their keys: within a group and volume inodes come first, then
//! entries, cookies, targets and leaves.

use super::blocks::Owner;
use super::{Check, Means, Progress};
use crate::format::keys::{self, Row};
use crate::format::leaf::{Leaf, Slot};
use crate::format::values;
use crate::progress::Step;
use crate::space::purge::Purges;
use crate::space::reserve::{self, Extent};
use crate::space::usage::{self, Usage};
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF};
use base::{FileKind, GroupId, Ino, Place, Result, VolumeId};
use std::collections::BTreeMap;

/// Rows read from the index at once: 4 MB if all are full leaves.
const ROWS: usize = 4096;

/// Rows that belong to nobody, counted until the scan has seen everything.
#[derive(Default)]
pub(super) struct Strays {
    /// Rows and blocks of volumes that the catalogue does not have.
    volumes: BTreeMap<VolumeId, (u64, u64)>,
    /// The inode without a row of whose leaves the last ones were, and their blocks.
    inode: Option<((VolumeId, Ino), u64)>,
    unknown: u64,
}

/// The space that a volume uses in one group.
#[derive(Default)]
pub(super) struct Used {
    /// The sum of the usage rows of all its projects.
    told: Usage,
    /// The sum found in the other rows.
    found: Usage,
}

impl Used {
    /// A row's bytes, if it is of those that count with them.
    fn names(&mut self, row: Row, bytes: usize) {
        if let Some(names) = self.found.names.as_mut().filter(|_| usage::is_named(row)) {
            *names += bytes as u64;
        }
    }
}

impl Check<'_> {
    /// Calls `with` for each row, and tells how far it is: groups have about as many rows each.
    pub(super) fn each(
        &mut self,
        what: &'static str,
        progress: Progress<'_>,
        mut with: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut from, to) = keys::all();
        loop {
            let rows = self.opening.index().scan(&from, &to, ROWS)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            from = keys::after(last);
            for (key, value) in &rows {
                with(self, key, value)?;
            }
            if let Some((group, ..)) = keys::row(last) {
                let of = self.groups();
                progress(Step { what, done: u64::from(group.0.min(of)), of: u64::from(of) });
            }
        }
    }

    pub(super) fn index(&mut self, progress: Progress<'_>) -> Result<()> {
        let mut strays = Strays::default();
        self.each("index", progress, |check, key, value| check.row(key, value, &mut strays))?;
        self.stray_inode(&mut strays);
        if self.report.mixed == 0 {
            self.usage();
        }
        if strays.unknown > 0 {
            self.find(format!("{} rows of the index are of no known kind", strays.unknown), Means::Unknown);
        }
        // The volume's other half may be in the log.
        for (volume, (rows, blocks)) in strays.volumes.into_iter().filter(|_| self.is_settled()).collect::<Vec<_>>() {
            let finding = format!("{rows} rows with {blocks} blocks are of volume {volume}, which does not exist");
            self.find(finding, Means::Leak);
        }
        Ok(())
    }

    fn row(&mut self, key: &[u8], value: &[u8], strays: &mut Strays) -> Result<()> {
        let Some((group, volume, row)) = keys::row(key).filter(|found| is_in_place(self.groups(), key, *found)) else {
            strays.unknown += 1;
            return Ok(());
        };
        if self.purges.as_ref().is_none_or(|(known, _)| *known != group) {
            let volumes: Vec<_> = self.volumes.iter().copied().collect();
            self.purges = Some((group, Purges::read(&**self.opening.index(), group, &volumes)?));
        }
        if self.report.mixed > 0 {
            // Of a mix only live bits are right: nobody can tell what else should fit together.
            return if row == Row::Leaf { self.leaf(volume, key, value, strays) } else { Ok(()) };
        }
        let stray = row.is_of_volume() && !self.volumes.contains(&volume) && !self.is_purged(volume);
        if stray {
            strays.volumes.entry(volume).or_default().0 += 1;
        }
        if !stray {
            self.used(group, volume).names(row, key.len() + value.len());
        }
        match row {
            Row::Leaf => self.leaf(volume, key, value, strays)?,
            _ if stray => {}
            Row::Inode => self.inode(volume, key, value)?,
            Row::Entry => self.names.of(volume, keys::first_ino(key)).names += 1,
            Row::Cookie => self.cookie(volume, key, value),
            Row::Target => self.target(volume, keys::first_ino(key)),
            Row::Xattrs => self.xattrs(volume, keys::first_ino(key), value),
            Row::Orphan => {
                self.report.orphans += 1;
                self.names.of(volume, keys::orphan_ino(key)).orphan = true;
            }
            // Read when the brick is opened, or only then used.
            Row::Group | Row::Intent | Row::Followed | Row::Lock | Row::Session | Row::Terms | Row::Volume => {}
            Row::Promise => {
                if let Err(error) = values::decode_replica(value) {
                    self.find(format!("the promise of group {group}'s replica: {error}"), Means::Unreadable);
                }
            }
            Row::Heal => {
                if let Err(error) = values::decode_heal(value) {
                    self.find(format!("the mark that group {group} heals: {error}"), Means::Unreadable);
                }
            }
            Row::Reserve => self.reserve(volume, key, value)?,
            Row::Usage => match values::decode_usage(value) {
                Ok(usage) => self.used(group, volume).told.add(&usage),
                Err(error) => self.find(format!("what volume {volume} uses: {error}"), Means::Leak),
            },
            Row::Purge | Row::PurgedVolume => {}
            Row::Segment | Row::Replay | Row::Summary | Row::Scrub => {}
        }
        Ok(())
    }

    fn inode(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) -> Result<()> {
        let ino = keys::first_ino(key);
        self.report.inodes += 1;
        self.used(ino.group(), volume).found.inodes += 1;
        match values::decode_counted_inode(value) {
            Ok((inode, blocks)) => {
                let aimless =
                    inode.kind == FileKind::Link && self.opening.index().get(&keys::target(volume, ino))?.is_none();
                if aimless {
                    self.find(format!("symbolic link {ino} of volume {volume} has no target"), Means::Unreadable);
                }
                if inode.xattrs.are_stored() && self.opening.index().get(&keys::xattrs(volume, ino))?.is_none() {
                    self.find(format!("inode {ino} of volume {volume} has lost its attributes"), Means::Unreadable);
                }
                let found = self.names.of(volume, ino);
                (found.inode, found.unmapped) = (Some((&inode).into()), blocks as i64);
                if inode.kind == FileKind::Directory {
                    self.names.parents.insert((volume, ino), inode.parent);
                }
            }
            Err(error) => self.find(format!("inode {ino} of volume {volume}: {error}"), Means::Unreadable),
        }
        Ok(())
    }

    /// Checks a file's reserved blocks, and how many of them are left by its maps.
    fn reserve(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) -> Result<()> {
        let ino = keys::first_ino(key);
        let reserve = match values::decode_reserve(value) {
            Ok(reserve) => reserve,
            Err(error) => {
                self.find(format!("reservation of inode {ino} of volume {volume}: {error}"), Means::Leak);
                return Ok(());
            }
        };
        let (_, purges) = self.purges.as_ref().expect("those of the row's group");
        let mut left = 0;
        for Extent { first, end, .. } in &reserve.extents {
            let mapped = reserve::mapped(&**self.opening.index(), purges, (volume, ino), *first..*end, |_| true);
            // A leaf that can't be read is told of by itself.
            left += mapped.map_or(0, |mapped| end - first - mapped);
        }
        if left != reserve.left() && self.unread_leaves == 0 {
            let told = reserve.left();
            let finding = format!("inode {ino} of volume {volume} has {told} reserved blocks, by its map {left}");
            self.find(finding, Means::Leak);
        }
        self.used(ino.group(), volume).found.reserved += reserve.left();
        Ok(())
    }

    fn used(&mut self, group: GroupId, volume: VolumeId) -> &mut Used {
        self.used.entry((group, volume)).or_default()
    }

    /// Compares the space that volumes use as counted by checkpoints with the space found.
    fn usage(&mut self) {
        for ((group, volume), Used { told, found }) in std::mem::take(&mut self.used) {
            if !self.volumes.contains(&volume) {
                continue;
            }
            if told.names.is_none() {
                self.uncounted.insert((group, volume));
            }
            if let (Some(told), Some(found)) = (told.names, found.names)
                && told != found
            {
                let names = format!("group {group} counts {told} bytes of names for volume {volume}, and has {found}");
                self.miscounted.push(names);
            }
            if (Usage { names: told.names, ..found }) != told && self.unread_leaves == 0 {
                let text = |usage: Usage| {
                    let Usage { blocks, inodes, reserved, .. } = usage;
                    format!("{blocks} blocks, {inodes} inodes and {reserved} reserved blocks")
                };
                let (told, found) = (text(told), text(found));
                let finding = format!("group {group} counts for volume {volume} {told}, and has {found}");
                self.find(finding, Means::Leak);
            }
        }
    }

    /// Counts that differ where every row is right. Any other finding explains them: its repair counts anew.
    pub(super) fn miscounts(&mut self) {
        let counts = std::mem::take(&mut self.miscounted);
        if self.report.findings.is_empty() && self.is_settled() {
            counts.into_iter().for_each(|finding| self.find(finding, Means::Leak));
        }
    }

    fn target(&mut self, volume: VolumeId, ino: Ino) {
        self.names.of(volume, ino).target = true;
        let kind = self.names.inode(volume, ino).map(|inode| inode.kind);
        if kind != Some(FileKind::Link) {
            self.find(format!("a target of symbolic link {ino} of volume {volume}, which is none"), Means::Leak);
        }
    }

    fn xattrs(&mut self, volume: VolumeId, ino: Ino, value: &[u8]) {
        match values::decode_xattrs(value) {
            Err(error) => {
                self.find(format!("attributes of inode {ino} of volume {volume}: {error}"), Means::Unreadable);
            }
            Ok(_) if self.names.inode(volume, ino).is_some_and(|inode| inode.xattrs) => {}
            Ok(_) => self.find(format!("attributes of inode {ino} of volume {volume}, which has none"), Means::Leak),
        }
    }

    fn cookie(&mut self, volume: VolumeId, key: &[u8], value: &[u8]) {
        let (dir, cookie) = (keys::first_ino(key), keys::cookie_number(key));
        self.report.entries += 1;
        let (name, ino, kind) = match values::decode_cookie(value) {
            Ok(entry) => entry,
            Err(error) => {
                return self
                    .find(format!("directory {dir} of volume {volume}, cookie {cookie}: {error}"), Means::Names);
            }
        };
        let found = self.names.of(volume, ino);
        found.links += 1;
        found.named.add(kind);
        self.names.of(volume, dir).cookies += 1;
        if kind == FileKind::Directory {
            self.names.of(volume, dir).subdirectories += 1;
            self.names.tree.add((volume, ino), dir);
        }
        let row = self.opening.index().get(&keys::entry(volume, dir, name.as_bytes()));
        let entry = row.and_then(|row| row.map(|row| values::decode_entry(&row)).transpose());
        match entry {
            Ok(Some(entry)) if entry == (ino, kind, cookie) => {}
            Ok(_) => {
                let finding =
                    format!("directory {dir} of volume {volume}: entry {name:?} and its cookie {cookie} differ");
                self.find(finding, Means::Names);
            }
            Err(error) => {
                self.find(format!("directory {dir} of volume {volume}, entry {name:?}: {error}"), Means::Names);
            }
        }
    }

    fn leaf(&mut self, volume: VolumeId, key: &[u8], value: &[u8], strays: &mut Strays) -> Result<()> {
        let at = keys::leaf_of(key);
        let leaf = match Leaf::decode(value) {
            Ok(leaf) => leaf,
            Err(error) => {
                let finding = format!("inode {} of volume {volume}, leaf {}: {error}", at.ino, at.leaf);
                self.unread_leaves += 1;
                self.find(finding, Means::Unreadable);
                return Ok(());
            }
        };
        let lacking = lacking(&leaf);
        self.report.lacking += lacking;
        if self.report.mixed > 0 {
            each_place(volume, key, &leaf, |place, owner| self.claim(place, &owner));
            return Ok(());
        }
        // To be freed: it holds its blocks, and is nobody's.
        let stale = self.purges.as_ref().is_some_and(|(_, purges)| leaf.trim < purges.trim_of(volume, at));
        let size = self.names.inode(volume, at.ino).map(|inode| inode.size).filter(|_| !stale);
        let end = size.map_or(u64::MAX, |size| size.div_ceil(BLOCK_BYTES as u64));
        if leaf.iter().any(|(_, slot)| slot != Slot::Hole) {
            self.names.add_data(volume, at.ino, leaf.places().count() as u64);
        }
        let (mut blocks, mut beyond) = (lacking, 0);
        each_place(volume, key, &leaf, |place, owner| {
            blocks += 1;
            beyond += u64::from(owner.offset >= end);
            self.claim(place, &owner);
        });
        self.report.blocks += blocks;
        self.used(at.ino.group(), volume).found.blocks += blocks;
        if beyond > 0 {
            let finding = format!("inode {} of volume {volume}: {beyond} blocks lie beyond its end", at.ino);
            self.find(finding, Means::Names);
        }
        if stale {
            return Ok(());
        }
        if !self.volumes.contains(&volume) {
            strays.volumes.entry(volume).or_default().1 += blocks;
        } else if size.is_none() && !self.may_lack_inode(volume, at.ino)? {
            self.stray_leaf((volume, at.ino), blocks, strays);
        }
        Ok(())
    }

    fn is_purged(&self, volume: VolumeId) -> bool {
        self.purges.as_ref().is_some_and(|(_, purges)| purges.volumes.contains(&volume))
    }

    /// True if an inode's leaves may be there without the inode. The inode's row ends with its blocks, in one
    /// checkpoint; but one that is there and can't be read was reported as such.
    fn may_lack_inode(&self, volume: VolumeId, ino: Ino) -> Result<bool> {
        Ok(self.opening.index().get(&keys::inode(volume, ino))?.is_some())
    }

    /// Leaves of an inode come one after another: they are one finding.
    fn stray_leaf(&mut self, key: (VolumeId, Ino), blocks: u64, strays: &mut Strays) {
        if strays.inode.is_none_or(|(before, _)| before != key) {
            self.stray_inode(strays);
            strays.inode = Some((key, 0));
        }
        strays.inode = strays.inode.map(|(key, before)| (key, before + blocks));
    }

    fn stray_inode(&mut self, strays: &mut Strays) {
        if let Some(((volume, ino), blocks)) = strays.inode.take() {
            let finding = format!("{blocks} blocks are of inode {ino} of volume {volume}, which does not exist");
            self.find(finding, Means::Leak);
        }
    }

    fn claim(&mut self, place: Place, owner: &Owner) {
        let geometry = self.opening.geometry();
        if u32::from(place.block) >= geometry.blocks() || place.segment.0 >= self.opening.superblock().segments {
            let Owner { volume, ino, offset, .. } = owner;
            let finding = format!("block {offset} of inode {ino} of volume {volume} lies outside the brick: {place:?}");
            return self.find(finding, Means::Unreadable);
        }
        self.claims.entry(place.segment).or_default().add(place.block, owner);
    }
}

/// False for a row where nobody looks for it. `groups`: how many the brick has.
pub(crate) fn is_in_place(groups: u32, key: &[u8], (group, _, row): (GroupId, VolumeId, Row)) -> bool {
    match row {
        Row::Segment | Row::Replay | Row::Summary | Row::Scrub => true,
        Row::Volume => group == GroupId(0),
        Row::Group
        | Row::Intent
        | Row::Followed
        | Row::Lock
        | Row::Session
        | Row::Terms
        | Row::Promise
        | Row::Heal
        | Row::PurgedVolume
        | Row::Usage => group.0 < groups,
        Row::Inode
        | Row::Entry
        | Row::Cookie
        | Row::Target
        | Row::Leaf
        | Row::Orphan
        | Row::Purge
        | Row::Reserve
        | Row::Xattrs => group.0 < groups && keys::first_ino(key).group() == group,
    }
}

/// Number of blocks that a leaf maps and that the brick lacks.
fn lacking(leaf: &Leaf) -> u64 {
    leaf.places().filter(|place| *place == Place::MISSING).count() as u64
}

/// Calls `with` for each block that a leaf maps and that the brick has.
pub(crate) fn each_place(volume: VolumeId, key: &[u8], leaf: &Leaf, mut with: impl FnMut(Place, Owner)) {
    let at = keys::leaf_of(key);
    for (slot, value) in leaf.iter() {
        let Slot::Local { place, crc, .. } = value else { continue };
        if place == Place::MISSING {
            continue;
        }
        let offset = at.leaf * BLOCKS_PER_LEAF as u64 + slot as u64;
        with(place, Owner { group: at.ino.group(), volume, ino: at.ino, offset, crc });
    }
}
