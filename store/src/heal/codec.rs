//! The bytes of a page: a version, the phase, and rows in the order of their keys up to the end.

use super::walk::Phase;
use crate::check::is_in_place;
use crate::format::bytes::{Reader, Writer, corrupt};
use crate::format::keys::{self, Row};
use crate::format::values::{self, GroupRow};
use crate::index::Pair;
use base::limits::{BLOCK_BYTES, BLOCKS_PER_LEAF, FILE_BYTES_MAX};
use base::{GroupId, Ino, LeafKey, Result, Time, VolumeId};

const VERSION: u8 = 1;
/// The byte before a leaf of the same file as the one before.
const SAME_FILE: u8 = 0;
/// The byte before a leaf whose file follows.
const NEW_FILE: u8 = 1;
/// Number of leaves of the largest file.
const LEAVES_MAX: u64 = FILE_BYTES_MAX / (BLOCK_BYTES * BLOCKS_PER_LEAF) as u64;

/// The rows of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Leaves, by key.
    Leaves(Vec<Told>),
    /// Rows of other kinds as they are in the giver's index, by key.
    Others(Vec<Pair>),
    /// The group's row.
    Group(GroupRow),
}

/// A leaf without places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Its volume.
    pub volume: VolumeId,
    /// Its inode and number.
    pub at: LeafKey,
    /// The time of the inode's last change; None if it has no row.
    pub ctime: Option<Time>,
    /// The checksums of its mapped blocks, by their numbers in the leaf.
    pub blocks: Vec<(usize, u32)>,
}

/// An empty page.
pub(super) fn begin(phase: Phase) -> Vec<u8> {
    vec![VERSION, phase as u8]
}

/// Adds a leaf. `before`: the file of the leaf before it in the page.
pub(super) fn put_leaf(out: &mut Vec<u8>, told: &Told, before: Option<(VolumeId, Ino)>) {
    let mut writer = Writer(out);
    let Told { volume, at, ctime, blocks } = told;
    if before == Some((*volume, at.ino)) {
        writer.u8(SAME_FILE);
    } else {
        writer.u8(NEW_FILE).u32(volume.0).u64(at.ino.0);
        writer.u8(u8::from(ctime.is_some())).i64(ctime.map_or(0, |ctime| ctime.0));
    }
    let mask = blocks.iter().fold(0u64, |mask, (index, _)| mask | 1 << index);
    assert!(mask != 0 && mask.count_ones() as usize == blocks.len(), "a leaf that travels maps blocks, each once");
    writer.u64(at.leaf).u64(mask);
    for (_, crc) in blocks {
        writer.u32(*crc);
    }
}

/// Adds a row of another kind.
pub(super) fn put_row(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    assert!(u32::try_from(value.len()).is_ok(), "a row of {} bytes is no row", value.len());
    Writer(out).counted(key).u32(value.len() as u32).bytes(value);
}

/// Reads a page of a group. Errors: `Corrupt`, also for rows of another group or of a kind that does not travel, values that are none, and keys
/// that don't rise.
pub fn decode_page(bytes: &[u8], group: GroupId) -> Result<Rows> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err(corrupt("a page of a heal has no known version"));
    }
    match Phase::from_code(reader.u8()?)? {
        Phase::Leaves => take_leaves(&mut reader, group).map(Rows::Leaves),
        Phase::Others => take_rows(&mut reader, group).map(Rows::Others),
        Phase::Group => values::decode_group(reader.rest()).map(Rows::Group),
    }
}

fn take_leaves(reader: &mut Reader<'_>, group: GroupId) -> Result<Vec<Told>> {
    let mut leaves: Vec<Told> = Vec::new();
    while !reader.is_empty() {
        let (volume, ino, ctime) = match (reader.u8()?, leaves.last()) {
            (SAME_FILE, Some(before)) => (before.volume, before.at.ino, before.ctime),
            (NEW_FILE, _) => (VolumeId(reader.u32()?), Ino(reader.u64()?), take_ctime(reader)?),
            _ => return Err(corrupt("a page of a heal has a leaf of no file")),
        };
        let (at, mask) = (LeafKey { ino, leaf: reader.u64()? }, reader.u64()?);
        let set = (0..BLOCKS_PER_LEAF).filter(|index| mask & 1 << index != 0);
        let blocks = set.map(|index| Ok((index, reader.u32()?))).collect::<Result<Vec<_>>>()?;
        if ino.group() != group || at.leaf >= LEAVES_MAX || volume.0 == u32::MAX || blocks.is_empty() {
            return Err(corrupt("a page of a heal has a leaf that no file of its group has"));
        }
        let rises = leaves.last().is_none_or(|last| (last.volume, last.at) < (volume, at));
        if !rises {
            return Err(corrupt("the leaves of a page of a heal do not rise"));
        }
        leaves.push(Told { volume, at, ctime, blocks });
    }
    Ok(leaves)
}

fn take_ctime(reader: &mut Reader<'_>) -> Result<Option<Time>> {
    match (reader.u8()?, Time(reader.i64()?)) {
        (0, _) => Ok(None),
        (1, ctime) => Ok(Some(ctime)),
        _ => Err(corrupt("a page of a heal has a file of no known time")),
    }
}

fn take_rows(reader: &mut Reader<'_>, group: GroupId) -> Result<Vec<Pair>> {
    let mut rows: Vec<Pair> = Vec::new();
    while !reader.is_empty() {
        let key = reader.counted()?;
        let length = reader.u32()? as usize;
        let value = reader.bytes(length)?;
        let kind = keys::row(key).filter(|found| found.0 == group && is_in_place(group.0 + 1, key, *found));
        let Some((.., row)) = kind.filter(|(.., row)| Phase::Others.takes(*row)) else {
            return Err(corrupt("a page of a heal has a row that does not travel"));
        };
        if rows.last().is_some_and(|(last, _)| last.as_slice() >= key) {
            return Err(corrupt("the rows of a page of a heal do not rise"));
        }
        can_be(row, value)?;
        rows.push((key.to_vec(), value.to_vec()));
    }
    Ok(rows)
}

/// Errors: `Corrupt` if the value is none of its kind.
fn can_be(row: Row, value: &[u8]) -> Result<()> {
    match row {
        Row::Inode => values::decode_inode(value).map(drop),
        Row::Entry => values::decode_entry(value).map(drop),
        Row::Cookie => values::decode_cookie(value).map(drop),
        Row::Target => values::decode_target(value).map(drop),
        Row::Xattrs => values::decode_xattrs(value).map(drop),
        Row::Intent => values::decode_intent(value).map(drop),
        Row::Lock => values::decode_lock(value).map(drop),
        Row::Session => values::decode_session(value).map(drop),
        Row::Terms => values::decode_terms(value).map(drop),
        Row::Volume => values::decode_volume(value).map(drop),
        Row::Reserve => values::decode_reserve(value).map(drop),
        // Marks say nothing but that they are there.
        _ => Ok(()),
    }
}
