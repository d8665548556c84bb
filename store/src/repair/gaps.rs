//! Gaps of the index: ranges of keys of which the engine can read nothing.

use crate::format::keys::{self, Row};

/// A gap between two rows that are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The key of the row before it; empty at the index's beginning.
    pub after: Vec<u8>,
    /// The key of the row behind it; empty at the index's end.
    pub before: Vec<u8>,
}

impl Gap {
    /// True if all that may have been there is told by other rows and by segments, or can be missed and listed: a repair
    /// can go on. What can't be missed: where replay starts, segments and their live bits, counters of groups, changes
    /// between groups, and what was cut and is not freed, which would come back as data.
    pub fn can_be_mended(&self) -> bool {
        let (Some(after), Some(before)) = (keys::row(&self.after), keys::row(&self.before)) else { return false };
        let names_and_maps =
            |row: Row| matches!(row, Row::Inode | Row::Entry | Row::Cookie | Row::Target | Row::Leaf | Row::Orphan);
        let counts = |row: Row| matches!(row, Row::Usage | Row::Reserve | Row::Xattrs);
        let between = |both: &dyn Fn(Row) -> bool| both(after.2) && both(before.2);
        (after.0, after.1) == (before.0, before.1) && (between(&names_and_maps) || between(&counts))
    }

    /// Its position, in words.
    pub fn told(&self) -> String {
        let of = |key: &[u8], end: &'static str| match keys::row(key) {
            None => end.to_string(),
            Some((keys::BRICK, _, row)) => format!("{row:?} rows of the brick"),
            Some((group, volume, row)) => {
                let ino = if row.is_of_volume() && row != Row::Usage {
                    format!(", inode {}", keys::first_ino(key))
                } else {
                    String::new()
                };
                format!("{row:?} rows of group {group}, volume {volume}{ino}")
            }
        };
        format!("from {} to {}", of(&self.after, "the first row"), of(&self.before, "the last row"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{GroupId, Ino, LeafKey, SegmentId, VolumeId};

    #[test]
    fn what_lies_in_a_gap_decides() {
        let (volume, ino) = (VolumeId(1), |number| Ino::new(number, GroupId(3)));
        let leaf = |number, leaf| keys::leaf(volume, LeafKey { ino: ino(number), leaf });
        let gap = |after: &[u8], before: &[u8]| Gap { after: after.to_vec(), before: before.to_vec() };
        let inode = |number| keys::inode(volume, ino(number));
        for mended in [
            gap(&leaf(5, 1), &leaf(5, 9)),
            gap(&inode(5), &leaf(9, 0)),
            gap(&inode(5), &keys::orphan(volume, ino(5))),
            gap(&keys::usage(GroupId(3), volume, 0), &keys::xattrs(volume, ino(9))),
        ] {
            assert!(mended.can_be_mended(), "{}", mended.told());
        }
        let other = keys::inode(volume, Ino::new(5, GroupId(4)));
        for lost in [
            gap(&[], &leaf(5, 1)),
            gap(&leaf(5, 1), &[]),
            gap(&keys::group(GroupId(3)), &inode(5)),
            gap(&leaf(5, 1), &keys::usage(GroupId(3), volume, 0)),
            gap(&leaf(5, 1), &other),
            gap(&inode(5), &keys::inode(VolumeId(2), ino(5))),
            gap(&keys::segment(SegmentId(1)), &keys::segment(SegmentId(3))),
        ] {
            assert!(!lost.can_be_mended(), "{}", lost.told());
        }
        let told = gap(&leaf(5, 1), &[]).told();
        assert_eq!(told, format!("from Leaf rows of group 3, volume 1, inode {} to the last row", ino(5)));
    }
}
