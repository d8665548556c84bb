//! The checksum of what a group says, whatever brick says it: two replicas that have applied the same records have the same one.
//!
//! It leaves out what each brick decides by itself: places and births of blocks, access times, what is still to be freed, and which
//! results of sessions are kept.

use crate::format::keys::{self, Row};
use crate::format::leaf::{Leaf, Slot};
use crate::format::values;
use crate::index::Index;
use crate::space::purge::Purges;
use base::checksum::crc32c_append;
use base::limits::BLOCKS_PER_LEAF;
use base::{GroupId, Result, Time};

/// Number of rows read at a time.
const ROWS: usize = 1024;

/// The last record of a group that the index has, and the checksum of what it says. The caller makes sure that no checkpoint comes in between.
/// Errors: the index's; `Corrupt`.
pub fn checksum(index: &dyn Index, group: GroupId) -> Result<(base::Index, u32)> {
    let row = index.get(&keys::group(group))?;
    let applied = row.map_or(Ok(base::Index(0)), |row| values::decode_group(&row).map(|row| row.applied))?;
    let (first, last) = keys::volumes();
    let volumes = index.scan(&first, &last, usize::MAX)?;
    let volumes = volumes.iter().map(|(_, value)| values::decode_volume(value).map(|volume| volume.id));
    let purges = Purges::read(index, group, &volumes.collect::<Result<Vec<_>>>()?)?;
    let (mut from, to) = keys::all();
    let mut sum = 0;
    loop {
        let rows = index.scan(&from, &to, ROWS)?;
        let Some((last, _)) = rows.last() else { return Ok((applied, sum)) };
        from = keys::after(last);
        for (key, value) in &rows {
            let Some((_, volume, kind)) = keys::row(key).filter(|(of, ..)| *of == group) else { continue };
            let said = match kind {
                Row::Inode => {
                    let (inode, blocks) = values::decode_counted_inode(value)?;
                    Some(values::encode_counted_inode(&base::Inode { atime: Time(0), ..inode }, blocks))
                }
                Row::Leaf if Leaf::decode(value)?.trim < purges.trim_of(volume, keys::leaf_of(key)) => None,
                Row::Leaf => Some(blocks_of(&Leaf::decode(value)?)).filter(|said| !said.is_empty()),
                Row::Session => Some(Vec::new()),
                Row::Entry | Row::Cookie | Row::Target | Row::Xattrs | Row::Orphan | Row::Volume => Some(value.clone()),
                Row::Intent | Row::Followed | Row::Lock => Some(value.clone()),
                _ => None,
            };
            if let Some(said) = said {
                let lengths = [(key.len() as u32).to_le_bytes(), (said.len() as u32).to_le_bytes()].concat();
                sum = [&lengths[..], key, &said].into_iter().fold(sum, crc32c_append);
            }
        }
    }
}

/// The blocks of a leaf: their numbers and checksums.
fn blocks_of(leaf: &Leaf) -> Vec<u8> {
    let mut said = Vec::with_capacity(8 * BLOCKS_PER_LEAF);
    for number in 0..BLOCKS_PER_LEAF {
        if let Some(Slot::Local { crc, .. }) = leaf.get(number) {
            said.extend_from_slice(&(number as u32).to_le_bytes());
            said.extend_from_slice(&crc.to_le_bytes());
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::leaf::merge;
    use crate::index::IndexEdit;
    use crate::index::model::ModelIndex;
    use base::{FileKind, Ino, Inode, LeafKey, Place, SegmentId, VolumeId};

    fn index(size: u64, atime: i64, crc: u32, segment: u32) -> ModelIndex {
        let (index, volume, ino) = (ModelIndex::new(merge), VolumeId(1), Ino(5));
        let inode = Inode { size, atime: Time(atime), ..Inode::blank(FileKind::File, ino, Ino(1), Time(3)) };
        let mut leaf = Leaf::default();
        leaf.set(3, Slot::Local { place: Place { segment: SegmentId(segment), block: 9 }, crc, birth: segment });
        let rows = [
            (keys::inode(volume, ino), values::encode_inode(&inode)),
            (keys::leaf(volume, LeafKey::of(ino, 3).0), leaf.encode()),
        ];
        index
            .write(rows.into_iter().map(|(key, value)| IndexEdit::Put(key, value)).collect())
            .expect("a model takes all");
        index
    }

    #[test]
    fn what_is_said_counts_and_where_it_lies_does_not() {
        let sum = |index: ModelIndex| checksum(&index, Ino(5).group()).expect("sound rows").1;
        let one = sum(index(10, 1, 77, 1));
        assert_eq!(one, sum(index(10, 2, 77, 1)), "a brick's own access time");
        assert_eq!(one, sum(index(10, 1, 77, 2)), "a brick's own place");
        assert_ne!(one, sum(index(11, 1, 77, 1)), "a size");
        assert_ne!(one, sum(index(10, 1, 78, 1)), "a block");
        assert_ne!(one, sum(ModelIndex::new(merge)), "nothing");
    }
}
