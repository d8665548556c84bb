//! Pages of a heal: they come from another brick, and their rows go to this one's index.

use crate::targets::{Answer, answer};
use base::{FileKind, GroupId, Ino, Inode, LeafKey, Place, SegmentId, Time, VolumeId};
use store::format::leaf::{self, Leaf, Slot};
use store::format::{keys, values};
use store::heal::codec::Rows;
use store::heal::{decode_page, give};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit};

const GROUP: GroupId = GroupId(3);

/// The pages of a group with a file, its blocks and a name.
pub fn seeds() -> Vec<Vec<u8>> {
    let (index, volume, ino) = (ModelIndex::new(leaf::merge), VolumeId(2), Ino::new(7, GROUP));
    let mut leaf = Leaf::default();
    for block in [0u16, 5, 63] {
        let place = Place { segment: SegmentId(1), block };
        leaf.set(usize::from(block), Slot::Local { place, crc: 4, birth: 5 });
    }
    let rows = [
        (keys::leaf(volume, LeafKey { ino, leaf: 0 }), leaf.encode()),
        (keys::leaf(volume, LeafKey { ino, leaf: 9 }), leaf.encode()),
        (keys::inode(volume, ino), values::encode_inode(&Inode::blank(FileKind::File, ino, ino, Time(3)))),
        (keys::entry(volume, ino, b"name"), values::encode_entry(ino, FileKind::File, 4)),
    ];
    let edits = rows.into_iter().map(|(key, value)| IndexEdit::Put(key, value)).collect();
    index.write(edits).expect("a model takes all");
    let (purges, mut from, mut pages) = (store::purge::Purges::default(), Vec::new(), Vec::new());
    loop {
        let page = give::page(&index, GROUP, &purges, &from).expect("sound rows");
        pages.push(page.bytes);
        match page.next {
            Some(next) => from = next,
            None => return pages,
        }
    }
}

/// Reads a page.
pub fn run(bytes: &[u8]) -> Answer {
    answer(&decode_page(bytes, GROUP), |rows| match rows {
        Rows::Leaves(leaves) => leaves.len().min(3) as u64,
        Rows::Others(rows) => 4 + rows.len().min(3) as u64,
        Rows::Group(_) => 8,
    })
}
