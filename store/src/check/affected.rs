//! The files that have blocks on a device, by the index alone, hence as of the last checkpoint. Promises that the list is exact:
//! each block that a file has on the device is counted once, and nothing else is. A part at a time, so that a list of millions
//! of files needs little memory. Absent by design: files' blocks that no checkpoint has seen; who asks makes one first.

use super::each_place;
use crate::Store;
use crate::format::devices::{DeviceId, DeviceRow, State};
use crate::format::leaf::Leaf;
use crate::format::{keys, values};
use crate::index::paths::Paths;
use crate::index::{self, Index};
use crate::space::purge::Purges;
use base::{Error, GroupId, Ino, Kind, Result, Volume, VolumeId};
use std::ops::ControlFlow;

/// A file with blocks on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affected {
    /// Its volume.
    pub volume: Volume,
    /// Its inode.
    pub ino: Ino,
    /// A path that leads to it; None if none is known: of a file that was unlinked while it is open.
    pub path: Option<Vec<u8>>,
    /// Number of its blocks on the device.
    pub blocks: u64,
}

/// A part of the list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// The files.
    pub files: Vec<Affected>,
    /// The place after which the next part begins; None at the end.
    pub next: Option<(VolumeId, Ino)>,
}

/// The next files, `files_max` at most, after one; from the first on without. Blocks. Errors: `NotFound` if the brick has no device of the
/// number, `Io`, `Corrupt`.
pub fn list(store: &Store, id: DeviceId, after: Option<(VolumeId, Ino)>, files_max: usize) -> Result<Part> {
    let row = store.devices.lock().rows.iter().find(|row| row.id == id && row.state != State::Gone).copied();
    let row = row.ok_or_else(|| Error::new(Kind::NotFound, "the brick has no device of this number"))?;
    let index = &*store.index;
    let (from, to) = keys::volumes();
    let rows = index.scan(&from, &to, usize::MAX)?;
    let mut volumes = rows.iter().map(|(_, value)| values::decode_volume(value)).collect::<Result<Vec<_>>>()?;
    volumes.sort_by_key(|volume| volume.id);
    let ids: Vec<_> = volumes.iter().map(|volume| volume.id).collect();
    let (mut part, mut paths) = (Part::default(), Paths::new(index));
    let first = after.map_or(GroupId(0), |(_, ino)| ino.group());
    for group in (first.0..store.groups).map(GroupId) {
        let purges = Purges::read(index, group, &ids)?;
        for volume in &volumes {
            let after = after.filter(|(_, ino)| ino.group() == group);
            let from = match after {
                Some((of, _)) if of > volume.id => continue,
                Some((of, ino)) if of == volume.id => Some(ino),
                _ => None,
            };
            let files = Files { index, purges: &purges, row: &row, of: (group, volume.id) };
            let ended = files.each(from, |ino, blocks| {
                let path = paths.find(volume, ino)?;
                part.files.push(Affected { volume: volume.clone(), ino, path, blocks });
                let is_full = part.files.len() == files_max;
                part.next = is_full.then_some((volume.id, ino));
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            });
            if ended?.is_break() {
                return Ok(part);
            }
        }
    }
    Ok(part)
}

/// The files of a volume in a group, as they lie on a device.
struct Files<'a> {
    index: &'a dyn Index,
    purges: &'a Purges,
    row: &'a DeviceRow,
    of: (GroupId, VolumeId),
}

impl Files<'_> {
    /// Hands over each file behind `after` that has blocks on the device, with their number, until `with` wants no more.
    fn each(
        &self,
        after: Option<Ino>,
        mut with: impl FnMut(Ino, u64) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let (group, volume) = self.of;
        let (first, to) = keys::leaves_in_group(group, volume);
        let from = after.map_or(first, |ino| keys::leaves_from(volume, ino, 0).1);
        let mut present: Option<(Ino, u64)> = None;
        let ended = index::each_until(self.index, (from, to), |key, value| {
            let (ino, blocks) = (keys::leaf_of(key).ino, self.blocks(key, &Leaf::decode(value)?));
            match &mut present {
                _ if blocks == 0 => Ok(ControlFlow::Continue(())),
                Some((of, sum)) if *of == ino => {
                    *sum += blocks;
                    Ok(ControlFlow::Continue(()))
                }
                other => match other.replace((ino, blocks)) {
                    Some((before, sum)) => with(before, sum),
                    None => Ok(ControlFlow::Continue(())),
                },
            }
        })?;
        match present {
            Some((ino, sum)) if ended.is_continue() => with(ino, sum),
            _ => Ok(ended),
        }
    }
    fn blocks(&self, key: &[u8], leaf: &Leaf) -> u64 {
        let (_, volume) = self.of;
        // One that a cut has left to be freed is no file's.
        if leaf.trim < self.purges.trim_of(volume, keys::leaf_of(key)) {
            return 0;
        }
        let mut blocks = 0;
        let here = self.row.first..self.row.end();
        each_place(volume, key, leaf, |place, _| blocks += u64::from(here.contains(&place.segment.0)));
        blocks
    }
}
