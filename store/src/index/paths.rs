//! The paths of inodes, for messages: by the index alone, hence without names that no checkpoint has seen yet.

use crate::format::{keys, values};
use crate::index::{Index, each_until};
use base::{Ino, Name, Result, Volume, VolumeId};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Deeper trees get no path: paths have 4096 bytes.
const DEPTH_MAX: usize = 2048;
/// Names of directories' entries that are kept for the next path: some 30 MB. A larger directory is read for each.
const NAMES_MAX: usize = 1 << 18;

/// The volume of this id, if the catalogue has it. Blocks.
pub fn volume(index: &dyn Index, id: VolumeId) -> Result<Option<Volume>> {
    let (from, to) = keys::volumes();
    let rows = index.scan(&from, &to, usize::MAX)?;
    let volumes = rows.iter().filter_map(|(_, value)| values::decode_volume(value).ok());
    Ok(volumes.into_iter().find(|volume| volume.id == id))
}

/// A path within the volume that leads to an inode. None if nobody knows one: of a file with several names only those in
/// the directory where it was born are looked for. Blocks.
pub fn find(index: &dyn Index, volume: &Volume, ino: Ino) -> Result<Option<Vec<u8>>> {
    find_by(index, volume, ino, |dir, ino| name_in(index, volume.id, dir, ino))
}

/// The paths of many inodes: each directory is read once, as long as its entries are kept.
pub struct Paths<'a> {
    index: &'a dyn Index,
    known: BTreeMap<(VolumeId, Ino), BTreeMap<Ino, Vec<u8>>>,
    names: usize,
}

impl<'a> Paths<'a> {
    /// None are known.
    pub fn new(index: &'a dyn Index) -> Paths<'a> {
        Paths { index, known: BTreeMap::new(), names: 0 }
    }
    /// A path within the volume that leads to an inode, as `find` gives it.
    pub fn find(&mut self, volume: &Volume, ino: Ino) -> Result<Option<Vec<u8>>> {
        find_by(self.index, volume, ino, |dir, ino| self.name_in(volume.id, dir, ino))
    }
    fn name_in(&mut self, volume: VolumeId, dir: Ino, ino: Ino) -> Result<Option<Vec<u8>>> {
        if !self.known.contains_key(&(volume, dir)) {
            let Some(entries) = entries(self.index, volume, dir)? else { return name_in(self.index, volume, dir, ino) };
            if self.names + entries.len() > NAMES_MAX {
                (self.known, self.names) = (BTreeMap::new(), 0);
            }
            self.names += entries.len();
            self.known.insert((volume, dir), entries);
        }
        Ok(self.known[&(volume, dir)].get(&ino).cloned())
    }
}

/// A name of each inode in a directory; None if they are too many to be kept.
fn entries(index: &dyn Index, volume: VolumeId, dir: Ino) -> Result<Option<BTreeMap<Ino, Vec<u8>>>> {
    let mut entries = BTreeMap::new();
    let ended = each_entry(index, volume, dir, |name, ino| {
        entries.entry(ino).or_insert_with(|| name.as_bytes().to_vec());
        if entries.len() > NAMES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(ended?.is_continue().then_some(entries))
}

/// Hands over the entries of a directory until `with` wants no more. Those that can't be read are left out.
fn each_entry(
    index: &dyn Index,
    volume: VolumeId,
    dir: Ino,
    mut with: impl FnMut(&Name, Ino) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    each_until(index, keys::cookies_after(volume, dir, 0), |_, value| {
        Ok(match values::decode_cookie(value) {
            Ok((name, ino, _)) => with(&name, ino),
            Err(_) => ControlFlow::Continue(()),
        })
    })
}

fn find_by(
    index: &dyn Index,
    volume: &Volume,
    ino: Ino,
    mut name_in: impl FnMut(Ino, Ino) -> Result<Option<Vec<u8>>>,
) -> Result<Option<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut at = ino;
    while at != volume.root {
        let row = index.get(&keys::inode(volume.id, at))?;
        let Some(inode) = row.and_then(|row| values::decode_inode(&row).ok()) else { return Ok(None) };
        let Some(name) = name_in(inode.parent, at)? else { return Ok(None) };
        if parts.len() == DEPTH_MAX {
            return Ok(None);
        }
        parts.push(name);
        at = inode.parent;
    }
    let path = parts.iter().rev().flat_map(|name| [&b"/"[..], name.as_slice()]).collect::<Vec<_>>().concat();
    Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
}

fn name_in(index: &dyn Index, volume: VolumeId, dir: Ino, ino: Ino) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    let ended = each_entry(index, volume, dir, |name, target| {
        if target != ino {
            return ControlFlow::Continue(());
        }
        found = Some(name.as_bytes().to_vec());
        ControlFlow::Break(())
    });
    ended.map(|_| found)
}
