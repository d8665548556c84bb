//! The offline repair: for each kind of damage that the check can find, the brick is clean afterwards, what can be read is
//! as it was, and what can't is in the list of losses. It can be cut off at any moment and repeated.

use crate::check::{BLOCKS, Closed, on_closed};
use crate::rig::{Rig, Shape, checked, pattern};
use base::limits::BLOCK_BYTES;
use base::{At, Error, GroupId, Ino, Kind, LeafKey, Op, Place, Reply, Result, SegmentId, Sync, Volume, VolumeId};
use runtime::random::SplitMix;
use runtime::sim::{Survival, World};
use runtime::{OpenMode, Runtime, disk};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Opening;
use store::format::keys::{self, Row};
use store::format::leaf::{Leaf, Slot};
use store::format::values::{self, SegmentRow, SegmentState};
use store::format::{segment, summary};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit, Pair};
use store::progress::Step;
use store::purge::Purge;
use store::repair::{Depth, Lost, Repaired, repair};
use store::reserve::{Extent, Reserve};
use store::usage::Usage;

/// Most rounds: as many as the command tries.
const ROUNDS_MAX: usize = 4;

/// One round on a brick that nobody serves.
async fn once(runtime: &Runtime, index: Arc<dyn Index>) -> Result<Repaired> {
    let opening = Opening::read_wholly(runtime.clone(), index, true).await?;
    repair(&opening, Depth::All, &mut |_| ()).await
}

/// Repairs until the check finds nothing; what was lost.
pub async fn mended(runtime: &Runtime, index: &ModelIndex) -> Vec<Lost> {
    let mut lost = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let round = once(runtime, Arc::new(index.clone())).await.expect("a healthy device");
        lost.extend(round.lost);
        // Also as a crash would leave it.
        if checked(runtime, &index.crashed(0)).await.findings.is_empty() {
            return lost;
        }
    }
    panic!("still {:#?}", checked(runtime, index).await.findings);
}

/// The content of a file of the closed brick.
fn content(ino: Ino) -> Vec<u8> {
    (0..BLOCKS / 10).flat_map(|number| pattern(ino.0 + number as u64, 10 * BLOCK_BYTES)).collect()
}

/// The volume as the catalogue has it now.
fn volume(index: &ModelIndex, id: VolumeId) -> Volume {
    store::paths::volume(index, id).expect("the model index reads").expect("the volume is there")
}

/// A file is what it was but for what is listed as lost: that reads as zeros or fails.
async fn is_as_it_was(rig: &Rig, ino: Ino, now: Ino, lost: &[Lost]) {
    let is_lost = |block: usize| {
        let at = (block * BLOCK_BYTES) as u64;
        let holds = |lost: &&Lost| lost.range.is_some_and(|(from, length)| (from..from + length).contains(&at));
        lost.iter().filter(|lost| lost.ino == now).any(|lost| holds(&lost))
    };
    for (number, expected) in content(ino).chunks(BLOCK_BYTES).enumerate() {
        let read = rig.read(now, (number * BLOCK_BYTES) as u64, BLOCK_BYTES).await;
        match is_lost(number) {
            true => assert!(
                read == Ok(vec![0; BLOCK_BYTES]) || read.as_deref() == Ok(expected) || read.is_err(),
                "block {number} is lost, and never wrong"
            ),
            false => assert!(read.as_deref() == Ok(expected), "block {number} of {ino}: {:?}", read.map(|_| "differs")),
        }
    }
}

/// Both files are there under their names and as they were.
async fn all_is_there(rig: &Rig, brick: &Closed, lost: &[Lost]) {
    assert_eq!(rig.lookup(rig.volume.root, "dir").await, Ok(brick.dir));
    for (name, ino) in [("one", brick.one), ("other", brick.other)] {
        assert_eq!(rig.lookup(brick.dir, name).await, Ok(ino), "{name}");
        is_as_it_was(rig, ino, ino, lost).await;
        let inode = rig.attr(Op::GetAttr { ino }).await.expect("it is there").inode;
        assert_eq!((inode.size, inode.links), ((BLOCKS * BLOCK_BYTES) as u64, 1));
    }
}

/// Damages a brick and repairs it: each loss has one of these texts, and all other files are as they were.
pub fn repairs(damage: impl AsyncFnOnce(&Closed) -> Vec<IndexEdit>, texts: &[&str]) {
    on_closed(async |brick| {
        let edits = damage(&brick).await;
        let index = brick.index.crashed(0);
        index.write(edits).expect("the model index writes");
        index.persist().expect("the model index is durable");
        let before = checked(&brick.runtime, &index).await.findings;
        assert!(!before.is_empty(), "the damage is seen");
        let lost = mended(&brick.runtime, &index).await;
        let found = |text: &&str| lost.iter().any(|lost| lost.what.contains(*text));
        assert!(texts.iter().all(found), "{texts:?}: {lost:#?}");
        assert!(lost.iter().all(|lost| texts.iter().any(|text| lost.what.contains(text))), "{texts:?}: {lost:#?}");
        let volume = volume(&index, brick.volume);
        let rig = Rig::existing((brick.runtime.clone(), index), Shape::SMALL, volume).await;
        all_is_there(&rig, &brick, &lost).await;
        assert!(rig.lookup(rig.volume.root, "lost+found").await.is_err(), "nothing has lost its name");
        // What was made anew is for root alone.
        for (ino, mode) in [(brick.one, 0o600), (brick.dir, 0o700), (brick.root, 0o700)] {
            let anew = lost.iter().any(|lost| lost.ino == ino && lost.what.starts_with("its inode"));
            let inode = rig.attr(Op::GetAttr { ino }).await.expect("it is there").inode;
            assert!(!anew || inode.mode == mode, "{ino}: {:o}", inode.mode);
        }
        // It can be written, emptied and closed like any other.
        rig.truncate(brick.one, 0).await.expect("a file can be cut");
        rig.settle().await;
        rig.close().await;
    });
}

fn mapped_elsewhere(brick: &Closed, ino: Ino, block: u64, place: Place) -> IndexEdit {
    let (_, crc, birth) = brick.slot(ino, block);
    brick.mapped(ino, block, (place, crc, birth))
}

#[test]
fn live_bits_are_mended() {
    for set in [false, true] {
        let damage = async |brick: &Closed| {
            let (Place { segment, block }, ..) = brick.slot(brick.one, 100);
            let (word, bit) = (usize::from(block / 64), 1u64 << (block % 64));
            vec![brick.bits(segment, |live| if set { live[0] |= 1 } else { live[word] &= !bit })]
        };
        repairs(damage, &[]);
    }
}

#[test]
fn maps_are_built_again_from_summaries() {
    repairs(async |brick| vec![brick.mapped(brick.other, 5, brick.slot(brick.one, 7))], &[]);
    repairs(
        async |brick| {
            let (place, ..) = brick.slot(brick.one, 0);
            vec![mapped_elsewhere(brick, brick.one, 0, Place { segment: SegmentId(256), ..place })]
        },
        &[],
    );
    // Beyond the file's end.
    repairs(async |brick| vec![brick.mapped(brick.other, BLOCKS as u64 + 5, brick.slot(brick.one, 7))], &[]);
    // Neither a segment's header is a file's, nor the end of its summary.
    for outside in [0, 255, 256] {
        repairs(
            async |brick| {
                let (place, ..) = brick.slot(brick.one, 0);
                vec![mapped_elsewhere(brick, brick.one, 0, Place { block: outside, ..place })]
            },
            &[],
        );
    }
    for state in [SegmentState::Sealed, SegmentState::Open] {
        repairs(
            async |brick| {
                let block = brick.block_in(state);
                let (place, crc, birth) = brick.slot(brick.one, block);
                vec![brick.mapped(brick.one, block, (place, crc ^ 1, birth))]
            },
            &[],
        );
    }
    // The map has another checksum than the summary, and the block is neither's: it is not given out for data.
    repairs(
        async |brick| {
            let block = brick.block_in(SegmentState::Sealed);
            let (place, crc, birth) = brick.slot(brick.one, block);
            brick.change(place, 1, |bytes| bytes[9] ^= 1).await;
            vec![brick.mapped(brick.one, block, (place, crc ^ 1, birth))]
        },
        &["data that differs from its checksum; reading it fails"],
    );
    repairs(async |brick| vec![IndexEdit::Put(brick.leaf_key(brick.one, 1), vec![77; 40])], &[]);
    // All leaves of a file: each is in summaries of sealed and open segments.
    repairs(async |brick| (0..10).map(|leaf| IndexEdit::Delete(brick.leaf_key(brick.one, leaf))).collect(), &[]);
}

/// Blocks beside one whose map is wrong are as good as their own maps, also if the device has lost them: no repair
/// brings those back.
#[test]
fn only_what_contradicts_something_is_mended() {
    on_closed(async |brick| {
        let block = brick.block_in(SegmentState::Sealed);
        let (place, crc, birth) = brick.slot(brick.one, block);
        let beside = |other: &u64| *other != block && brick.slot(brick.one, *other).0.segment == place.segment;
        let beside = (0..BLOCKS as u64).find(beside).expect("a segment holds more than one");
        brick.change(brick.slot(brick.one, beside).0, 1, |bytes| bytes[9] ^= 1).await;
        let wrong = brick.mapped(brick.one, block, (place, crc ^ 1, birth));
        brick.index.write(vec![wrong]).expect("the model index writes");
        let round = once(&brick.runtime, Arc::new(brick.index.clone())).await.expect("a healthy device");
        let again = format!("block {block} of inode {} of volume {} was found again", brick.one, brick.volume);
        assert_eq!((round.mended, round.lost), (vec![again], Vec::new()));
    });
}

/// Its blocks may have been overwritten: those that are not what they were are lost, the others stay.
#[test]
fn a_segment_that_counts_as_free_is_taken_back() {
    repairs(
        async |brick| {
            let (place, ..) = brick.slot(brick.one, brick.block_in(SegmentState::Sealed));
            brick.change(place, 1, |bytes| bytes.fill(7)).await;
            let row = SegmentRow { state: SegmentState::Free, live: Vec::new(), ..brick.row(place.segment) };
            vec![IndexEdit::Put(keys::segment(place.segment), values::encode_segment(&row))]
        },
        &["data; it reads as zeros now"],
    );
}

/// Nobody knows whether it was written after what has cut it, here the file's first truncation or hole.
#[test]
fn a_leaf_that_was_cut_and_can_not_be_read_is_a_loss() {
    repairs(
        async |brick| {
            let key = keys::inode(brick.volume, brick.one);
            let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
            let inode = base::Inode { trim: 1, ..values::decode_inode(&row).expect("an inode") };
            let mut purge = Purge::new(0);
            purge.cut(1..2, 1..2, inode.trim);
            vec![
                IndexEdit::Put(key, values::encode_inode(&inode)),
                IndexEdit::Put(keys::purge(brick.volume, brick.one), values::encode_purge(&purge)),
                IndexEdit::Put(brick.leaf_key(brick.one, 1), vec![77; 40]),
            ]
        },
        &["data; it reads as zeros now"],
    );
}

#[test]
fn blocks_in_a_row_are_one_loss() {
    on_closed(async |brick| {
        let mut leaf = brick.leaf(brick.one, 0);
        for block in [0, 1, 3] {
            let (place, crc, birth) = brick.slot(brick.one, block);
            brick.change(place, 1, |bytes| bytes[9] ^= 1).await;
            leaf.set(block as usize, Slot::Local { place, crc: crc ^ 1, birth });
        }
        let edit = IndexEdit::Put(brick.leaf_key(brick.one, 0), leaf.encode());
        brick.index.write(vec![edit]).expect("the model index writes");
        let lost = mended(&brick.runtime, &brick.index).await;
        let ranges: Vec<_> = lost.iter().map(|lost| (lost.ino, lost.range)).collect();
        assert_eq!(ranges, [(brick.one, Some((0, 8192))), (brick.one, Some((12_288, 4096)))]);
    });
}

#[test]
fn blocks_of_nobody_are_freed() {
    let stray = |brick: &Closed, volume: VolumeId| {
        let nobody = Ino::new(7777, brick.one.group());
        let leaf = |leaf: u64| {
            let mut slots = Leaf::default();
            let place = Place { segment: SegmentId(200), block: 9 + leaf as u16 };
            slots.set(3, Slot::Local { place, crc: 1, birth: 1 });
            IndexEdit::Put(keys::leaf(volume, LeafKey { ino: nobody, leaf }), slots.encode())
        };
        vec![leaf(0), leaf(1)]
    };
    repairs(async |brick| stray(brick, brick.volume), &["data; it reads as zeros now"]);
    repairs(async |brick| stray(brick, VolumeId(9)), &[]);
}

#[test]
fn lost_inodes_are_made_anew() {
    const INODE: &str = "its inode";
    for rotten in [false, true] {
        let row = |key: Vec<u8>| if rotten { IndexEdit::Put(key, vec![77; 9]) } else { IndexEdit::Delete(key) };
        for which in [0, 1, 2] {
            repairs(
                async |brick| {
                    let ino = [brick.one, brick.dir, brick.root][which];
                    vec![row(keys::inode(brick.volume, ino))]
                },
                &[INODE],
            );
        }
    }
    // A broken one of which nothing else tells.
    let nobody = |brick: &Closed| keys::inode(brick.volume, Ino::new(7777, brick.one.group()));
    repairs(async |brick| vec![IndexEdit::Put(nobody(brick), vec![77; 9])], &[]);
}

#[test]
fn a_catalogue_that_lost_a_volume_gets_it_back() {
    repairs(async |_| vec![IndexEdit::Put(keys::volume(b"main"), vec![77; 9])], &["the volume's date"]);
    repairs(async |_| vec![IndexEdit::Delete(keys::volume(b"main"))], &["the volume's date"]);
}

#[test]
fn rows_that_nobody_reads_are_removed() {
    repairs(
        async |brick| {
            let mut kind = keys::inode(brick.volume, brick.one);
            kind[8] = 0x7f;
            let mut group = keys::leaf(brick.volume, LeafKey { ino: brick.one, leaf: 0 });
            group[3] ^= 1;
            let cut = keys::leaf(brick.volume, LeafKey { ino: brick.one, leaf: 0 })[..20].to_vec();
            let all = [kind, group, keys::group(GroupId(8)), cut];
            all.into_iter().map(|key| IndexEdit::Put(key, vec![1])).collect()
        },
        &[],
    );
}

#[test]
fn names_and_counts_are_mended() {
    let cookie_of = |brick: &Closed, name: &str| {
        let (from, to) = keys::cookies_after(brick.volume, brick.dir, 0);
        let rows = brick.index.scan(&from, &to, 10).expect("the model index reads");
        let is = |(_, value): &&Pair| values::decode_cookie(value).is_ok_and(|row| row.0.as_bytes() == name.as_bytes());
        rows.iter().find(is).expect("it is listed").0.clone()
    };
    repairs(async |brick| vec![IndexEdit::Delete(keys::entry(brick.volume, brick.dir, b"one"))], &[]);
    repairs(async |brick| vec![IndexEdit::Put(keys::entry(brick.volume, brick.dir, b"one"), vec![9])], &[]);
    repairs(
        async |brick| {
            let key = keys::entry(brick.volume, brick.dir, b"one");
            let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
            let (ino, kind, cookie) = values::decode_entry(&row).expect("an entry");
            vec![IndexEdit::Put(key, values::encode_entry(ino, kind, cookie + 7))]
        },
        &[],
    );
    repairs(async |brick| vec![IndexEdit::Delete(cookie_of(brick, "one"))], &[]);
    repairs(async |brick| vec![IndexEdit::Put(cookie_of(brick, "one"), vec![1, 9])], &[]);
    // One that leads elsewhere than its entry, which leads to an inode of its kind; or that has another's name.
    for (name, ino) in [("one", 1), ("other", 0)] {
        repairs(
            async |brick| {
                let value = values::encode_cookie(name.as_bytes(), [brick.one, brick.other][ino], base::FileKind::File);
                vec![IndexEdit::Put(cookie_of(brick, "one"), value)]
            },
            &[],
        );
    }
    for (links, entries) in [(7, 3), (2, 9)] {
        repairs(
            async |brick| {
                let key = keys::inode(brick.volume, brick.dir);
                let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
                let mut inode = values::decode_inode(&row).expect("an inode");
                (inode.links, inode.entries) = (links, entries);
                vec![IndexEdit::Put(key, values::encode_inode(&inode))]
            },
            &[],
        );
    }
    // One without is left for the next start to free.
    repairs(
        async |brick| {
            // No number that is yet to be given out: no row has one of these.
            let nameless = Ino::new(1, brick.one.group());
            let time = base::Time(1);
            let inode = base::Inode { links: 0, ..base::Inode::blank(base::FileKind::File, nameless, brick.dir, time) };
            let row = IndexEdit::Put(keys::inode(brick.volume, nameless), values::encode_inode(&inode));
            let orphan = IndexEdit::Put(keys::orphan(brick.volume, nameless), values::encode_mark());
            vec![row, orphan, IndexEdit::Delete(keys::entry(brick.volume, brick.dir, b"one"))]
        },
        &[],
    );
    // An orphan with a name must not be freed by the next start.
    repairs(
        async |brick| {
            let key = keys::inode(brick.volume, brick.one);
            let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
            let inode = base::Inode { links: 0, ..values::decode_inode(&row).expect("an inode") };
            let orphan = IndexEdit::Put(keys::orphan(brick.volume, brick.one), values::encode_mark());
            vec![IndexEdit::Put(key, values::encode_inode(&inode)), orphan]
        },
        &[],
    );
}

#[test]
fn a_repair_says_what_it_mends() {
    on_closed(async |brick| {
        // An orphan with a name, and one copy of the superblock.
        let key = keys::inode(brick.volume, brick.one);
        let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
        let inode = base::Inode { links: 0, ..values::decode_inode(&row).expect("an inode") };
        let orphan = IndexEdit::Put(keys::orphan(brick.volume, brick.one), values::encode_mark());
        brick.index.write(vec![IndexEdit::Put(key, values::encode_inode(&inode)), orphan]).expect("the model writes");
        // A promise that is counted well: nothing is told of it.
        let extents = vec![Extent { first: 590, end: 610, left: Some(10) }];
        let reserve = values::encode_reserve(&Reserve { project: 0, extents });
        let promise = IndexEdit::Put(keys::reserve(brick.volume, brick.one), reserve);
        brick.index.write(vec![promise]).expect("the model writes");
        let unknown = IndexEdit::Put(keys::group(GroupId(Shape::SMALL.groups)), vec![1]);
        brick.index.write(vec![unknown]).expect("the model writes");
        // A directory that says it lies elsewhere.
        let key = keys::inode(brick.volume, brick.dir);
        let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
        let inode = base::Inode { parent: brick.one, ..values::decode_inode(&row).expect("an inode") };
        brick.index.write(vec![IndexEdit::Put(key, values::encode_inode(&inode))]).expect("the model writes");
        let disk = &*brick.runtime.disk;
        let file = disk.open("superblock", OpenMode::Existing).expect("the brick has one");
        let zeros = brick.runtime.buffer(BLOCK_BYTES).expect("within the bound").share().slice(0..BLOCK_BYTES);
        disk::write(disk, file, 0, vec![zeros], true).await.1.expect("a healthy device writes");
        let round = once(&brick.runtime, Arc::new(brick.index.clone())).await.expect("a healthy device");
        let told = [
            "both copies of the superblock were written anew".to_string(),
            "1 rows of the index of no known kind were removed".to_string(),
            format!("inode {} of volume {} has a name, and is no orphan any more", brick.one, brick.volume),
            format!(
                "directory {} of volume {} lies in {}, and said in {}",
                brick.dir, brick.volume, brick.root, brick.one
            ),
        ];
        assert!(told.iter().all(|told| round.mended.contains(told)), "{:#?}", round.mended);
        assert!(!round.mended.iter().any(|told| told.contains("promised")), "{:#?}", round.mended);
        let again = once(&brick.runtime, Arc::new(brick.index.clone())).await.expect("a healthy device");
        assert_eq!((again.mended, again.lost), (Vec::new(), Vec::new()));
    });
}

#[test]
fn what_belongs_to_inodes_is_mended() {
    const ATTRIBUTES: &str = "its extended attributes";
    repairs(
        async |brick| vec![IndexEdit::Delete(keys::target(brick.volume, brick.link))],
        &["an entry: what it led to"],
    );
    repairs(async |brick| vec![IndexEdit::Delete(keys::xattrs(brick.volume, brick.one))], &[ATTRIBUTES]);
    repairs(async |brick| vec![IndexEdit::Put(keys::xattrs(brick.volume, brick.one), vec![1, 2])], &[ATTRIBUTES]);
    repairs(
        async |brick| {
            let none = values::encode_xattrs(&base::Xattrs::new());
            vec![IndexEdit::Put(keys::xattrs(brick.volume, brick.other), none)]
        },
        &[],
    );
    repairs(
        async |brick| vec![IndexEdit::Put(keys::target(brick.volume, brick.one), values::encode_target(b"x"))],
        &[],
    );
    repairs(
        async |brick| {
            let usage = Usage { blocks: 7, inodes: 8, reserved: 9, names: Some(10) };
            vec![IndexEdit::Put(keys::usage(brick.one.group(), brick.volume, 0), values::encode_usage(&usage))]
        },
        &[],
    );
    let promise = |left| {
        let extents = vec![Extent { first: 590, end: 610, left: Some(left) }];
        values::encode_reserve(&Reserve { project: 0, extents })
    };
    repairs(async |brick| vec![IndexEdit::Put(keys::reserve(brick.volume, brick.one), promise(3))], &[]);
    repairs(async |brick| vec![IndexEdit::Put(keys::reserve(brick.volume, brick.one), vec![3])], &["fallocate"]);
}

#[test]
fn summaries_and_headers_are_written_anew() {
    repairs(
        async |brick| {
            let (from, to) = keys::summary_of(brick.segment(SegmentState::Open));
            vec![IndexEdit::DeleteRange(from, to)]
        },
        &[],
    );
    for (block, byte) in [(255, 9), (255, 40), (0, 20)] {
        repairs(
            async |brick| {
                let segment = brick.segment(SegmentState::Sealed);
                brick.change(Place { segment, block }, 1, |bytes| bytes[byte] ^= 1).await;
                Vec::new()
            },
            &[],
        );
    }
    // One that tells of another's block.
    repairs(
        async |brick| {
            let segment = brick.segment(SegmentState::Sealed);
            let rewrite = |bytes: &mut [u8]| {
                let footer = summary::decode_footer(&bytes[4 * BLOCK_BYTES..]).expect("a footer");
                let start = 5 * BLOCK_BYTES - summary::summary_blocks(footer.entries as usize) * BLOCK_BYTES;
                let all = &bytes[start..start + footer.entries as usize * summary::ENTRY_BYTES];
                let mut entries = summary::decode_entries(all).expect("whole entries");
                entries.iter_mut().step_by(7).for_each(|entry| entry.offset += 1000);
                bytes[start..].copy_from_slice(&summary::encode(footer.uuid, footer.segment, footer.life, &entries));
            };
            brick.change(Place { segment, block: 251 }, 5, rewrite).await;
            Vec::new()
        },
        &[],
    );
    let header = segment::SegmentHeader::decode(&[0; BLOCK_BYTES]);
    assert!(header.is_err(), "a block of zeros is no header");
}

#[test]
fn what_has_lost_its_name_is_in_lost_and_found() {
    on_closed(async |brick| {
        let index = brick.index.crashed(0);
        let (from, to) = keys::cookies_after(brick.volume, brick.dir, 0);
        let mut edits = vec![IndexEdit::DeleteRange(from, to)];
        edits.extend(
            [&b"one"[..], b"other", b"link"].map(|name| IndexEdit::Delete(keys::entry(brick.volume, brick.dir, name))),
        );
        // Of one even the inode is gone: its blocks alone tell that it was there.
        edits.push(IndexEdit::Delete(keys::inode(brick.volume, brick.other)));
        (0..10).for_each(|leaf| edits.push(IndexEdit::Delete(brick.leaf_key(brick.other, leaf))));
        index.write(edits).expect("the model index writes");
        index.persist().expect("the model index is durable");
        let lost = mended(&brick.runtime, &index).await;
        assert!(lost.iter().all(|lost| lost.ino == brick.other && lost.range.is_none()), "{lost:#?}");
        assert!(lost[0].path.as_deref() == Some(format!("/lost+found/#{}", brick.other.0).as_bytes()), "{lost:?}");
        let volume = volume(&index, brick.volume);
        let rig = Rig::existing((brick.runtime.clone(), index), Shape::SMALL, volume).await;
        let found = rig.lookup(rig.volume.root, "lost+found").await.expect("it was made");
        for ino in [brick.one, brick.other] {
            assert_eq!(rig.lookup(found, &format!("#{}", ino.0)).await, Ok(ino));
            is_as_it_was(&rig, ino, ino, &lost).await;
        }
        let made = rig.attr(Op::GetAttr { ino: brick.other }).await.expect("it was made anew").inode;
        assert_eq!((made.mode, made.links, made.size), (0o600, 1, (BLOCKS * BLOCK_BYTES) as u64), "for root alone");
        let op = Op::ReadLink { ino: brick.link };
        assert!(matches!(rig.call(op, None).await.map(|answer| answer.reply), Ok(Reply::Target(to)) if &*to == b"one"));
        // Numbers taken for it are not taken again.
        let new = rig.create(found, "new").await.expect("there is room");
        assert!(![found, brick.one, brick.other].contains(&new));
        rig.close().await;
    });
}

#[test]
fn a_file_that_is_called_lost_and_found_stays() {
    on_closed(async |brick| {
        let index = brick.index.crashed(0);
        let cookie_of = |ino: Ino| {
            let (from, to) = keys::cookies_after(brick.volume, brick.dir, 0);
            let rows = index.scan(&from, &to, 10).expect("the model index reads");
            let is = |(_, value): &&Pair| values::decode_cookie(value).is_ok_and(|row| row.1 == ino);
            rows.iter().find(is).expect("it is listed").0.clone()
        };
        // One has another name, the other one none.
        let (taken, kind, cookie) = (b"lost+found", base::FileKind::File, 1 << 40);
        let edits = vec![
            IndexEdit::Put(keys::entry(brick.volume, brick.root, taken), values::encode_entry(brick.one, kind, cookie)),
            IndexEdit::Put(
                keys::cookie(brick.volume, brick.root, cookie),
                values::encode_cookie(taken, brick.one, kind),
            ),
            IndexEdit::Delete(cookie_of(brick.other)),
            IndexEdit::Delete(keys::entry(brick.volume, brick.dir, b"other")),
        ];
        index.write(edits).expect("the model index writes");
        index.persist().expect("the model index is durable");
        let lost = mended(&brick.runtime, &index).await;
        assert!(lost.is_empty(), "{lost:#?}");
        let volume = volume(&index, brick.volume);
        let rig = Rig::existing((brick.runtime.clone(), index), Shape::SMALL, volume).await;
        assert_eq!(rig.lookup(brick.root, "lost+found").await, Ok(brick.one));
        let found = rig.lookup(brick.root, "lost+found.1").await.expect("it was made");
        assert_eq!(rig.lookup(found, &format!("#{}", brick.other.0)).await, Ok(brick.other));
        is_as_it_was(&rig, brick.other, brick.other, &lost).await;
        rig.close().await;
    });
}

/// Leaves of a deleted volume remain until checkpoints have freed them.
#[test]
fn what_is_yet_to_be_freed_is_no_damage() {
    on_closed(async |brick| {
        let deleted = VolumeId(9);
        for group in (0..Shape::SMALL.groups).map(GroupId) {
            let mut leaf = Leaf::default();
            leaf.set(3, Slot::Hole);
            let key = keys::leaf(deleted, LeafKey { ino: Ino::new(7777, group), leaf: 0 });
            let mark = IndexEdit::Put(keys::purged_volume(group, deleted), values::encode_mark());
            brick.index.write(vec![IndexEdit::Put(key, leaf.encode()), mark]).expect("the model index writes");
        }
        assert_eq!(checked(&brick.runtime, &brick.index).await.findings, Vec::<String>::new());
        let round = once(&brick.runtime, Arc::new(brick.index.clone())).await.expect("a healthy device");
        assert_eq!((round.mended, round.lost), (Vec::new(), Vec::new()));
    });
}

#[test]
fn a_repair_tells_how_far_it_is() {
    on_closed(async |brick| {
        let opening = Opening::read_wholly(brick.runtime.clone(), Arc::new(brick.index.clone()), true).await;
        let mut steps: Vec<Step> = Vec::new();
        let opening = opening.expect("a closed brick opens");
        repair(&opening, Depth::All, &mut |step| steps.push(step)).await.expect("a healthy device");
        for what in ["rows", "entries", "maps", "names", "counts"] {
            let of_this: Vec<_> = steps.iter().filter(|step| step.what == what).collect();
            assert!(!of_this.is_empty(), "{what}: {steps:?}");
            assert!(of_this.iter().all(|step| step.done <= step.of && step.of > 0), "{what}: {of_this:?}");
        }
        assert_eq!(steps.last(), Some(&Step::begin("making it durable")));
    });
}

/// Rows that a random damage may hit: not those without which nothing opens.
fn may_break(key: &[u8]) -> bool {
    let row = keys::row(key).map(|(.., row)| row);
    !matches!(row, None | Some(Row::Group | Row::Segment | Row::Replay | Row::Summary | Row::Volume))
}

/// Breaks some rows in ways that the engine's checksums can't see.
fn break_rows(index: &ModelIndex, rng: &mut SplitMix, count: u64) {
    let (from, to) = keys::all();
    let rows = index.scan(&from, &to, usize::MAX).expect("the model index reads");
    let rows: Vec<_> = rows.into_iter().filter(|(key, _)| may_break(key)).collect();
    for _ in 0..count {
        let (key, mut value) = rows[rng.below(rows.len() as u64) as usize].clone();
        let edit = match rng.below(3) {
            0 => IndexEdit::Delete(key),
            1 => IndexEdit::Put(key, vec![77; 11]),
            _ => {
                let at = rng.below(value.len() as u64) as usize;
                value[at] ^= 1 << rng.below(8);
                IndexEdit::Put(key, value)
            }
        };
        index.write(vec![edit]).expect("the model index writes");
    }
    index.persist().expect("the model index is durable");
}

/// The present place of a file: under its name, or in `lost+found`.
async fn where_it_is(rig: &Rig, dir: Ino, name: &str, ino: Ino) -> Option<Ino> {
    if let Ok(there) = rig.lookup(dir, name).await {
        return Some(there);
    }
    let found = rig.lookup(rig.volume.root, "lost+found").await.ok()?;
    rig.lookup(found, &format!("#{}", ino.0)).await.ok()
}

#[test]
fn many_damages_at_once_are_mended_and_never_read_as_wrong_data() {
    for seed in crate::rig::seeds(1..30) {
        on_closed(async |brick| {
            let index = brick.index.crashed(0);
            break_rows(&index, &mut SplitMix(seed), 1 + seed % 6);
            let lost = mended(&brick.runtime, &index).await;
            let volume = volume(&index, brick.volume);
            let rig = Rig::existing((brick.runtime.clone(), index), Shape::SMALL, volume).await;
            for (name, ino) in [("one", brick.one), ("other", brick.other)] {
                match where_it_is(&rig, brick.dir, name, ino).await {
                    Some(now) if now == ino => is_as_it_was(&rig, ino, now, &lost).await,
                    // A damaged number leads elsewhere: it is listed, or in the other's place.
                    _ => {}
                }
            }
            rig.settle().await;
            rig.close().await;
        });
    }
}

/// An engine that fails at a write.
struct Failing {
    inner: ModelIndex,
    left: AtomicU64,
}

impl Index for Failing {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(key)
    }
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Result<Vec<Pair>> {
        self.inner.scan(from, to, count)
    }
    fn write(&self, edits: Vec<IndexEdit>) -> Result<()> {
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => self.inner.write(edits),
            Err(_) => Err(Error::new(Kind::Io, "the machine crashed here")),
        }
    }
    fn persist(&self) -> Result<()> {
        match self.left.load(Ordering::Relaxed) {
            0 => Err(Error::new(Kind::Io, "the machine crashed here")),
            _ => self.inner.persist(),
        }
    }
    fn snapshot(self: Arc<Self>) -> Result<Arc<dyn Index>> {
        Arc::new(self.inner.clone()).snapshot()
    }
    fn written_bytes(&self) -> u64 {
        0
    }
    fn memory_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_repair_that_is_cut_off_can_be_repeated() {
    let mut cut_off = 0;
    for writes in 0..10 {
        on_closed(async |brick| {
            let mut rng = SplitMix(writes);
            let index = brick.index.crashed(0);
            let (place, ..) = brick.slot(brick.one, 0);
            let edits = vec![
                mapped_elsewhere(&brick, brick.one, 0, Place { segment: SegmentId(256), ..place }),
                IndexEdit::Put(brick.leaf_key(brick.one, 1), vec![77; 40]),
                IndexEdit::Delete(brick.leaf_key(brick.other, 2)),
                IndexEdit::Delete(keys::inode(brick.volume, brick.other)),
                IndexEdit::Delete(keys::entry(brick.volume, brick.dir, b"one")),
                brick.bits(brick.slot(brick.one, 200).0.segment, |live| live[0] |= 1),
            ];
            index.write(edits).expect("the model index writes");
            index.persist().expect("the model index is durable");
            let failing = Arc::new(Failing { inner: index.clone(), left: AtomicU64::new(writes) });
            cut_off += u64::from(once(&brick.runtime, failing).await.is_err());
            let kept = rng.below(index.unpersisted() as u64 + 1) as usize;
            let index = index.crashed(kept);
            let lost = mended(&brick.runtime, &index).await;
            assert!(lost.iter().all(|lost| lost.what.contains("its inode")), "after {writes} writes: {lost:#?}");
            let volume = volume(&index, brick.volume);
            let rig = Rig::existing((brick.runtime.clone(), index), Shape::SMALL, volume).await;
            all_is_there(&rig, &brick, &[]).await;
            rig.close().await;
        });
    }
    assert!((3..10).contains(&cut_off), "{cut_off} of them were cut off");
}

/// The log can't be read without the header of a segment that replay reads: a first round writes it anew.
#[test]
fn a_log_that_lacks_a_header_is_read_again() {
    let mut world = World::new(1);
    let runtime = world.runtime();
    let (rig, file) = world.block_on(async {
        let rig = Rig::new(runtime, Shape::SMALL).await;
        rig.checkpoint().await;
        let file = rig.create(rig.volume.root, "file").await.expect("there is room");
        rig.write(file, At::End, &pattern(1, 100_000), Sync::Data).await.expect("there is room");
        (rig, file)
    });
    let (index, volume) = (rig.index.crashed(0), rig.volume);
    let mut world = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(1)));
    let runtime = world.runtime();
    world.block_on(async {
        let disk = &*runtime.disk;
        let zeros = runtime.buffer(BLOCK_BYTES).expect("within the bound").share().slice(0..BLOCK_BYTES);
        let segments = disk.open("segments-00000", OpenMode::Existing).expect("the brick has them");
        disk::write(disk, segments, 0, vec![zeros], true).await.1.expect("a healthy device writes");
        let lost = mended(&runtime, &index).await;
        assert!(lost.is_empty(), "{lost:#?}");
        let rig = Rig::existing((runtime.clone(), index), Shape::SMALL, volume.clone()).await;
        assert_eq!(rig.lookup(volume.root, "file").await, Ok(file));
        assert!(rig.read(file, 0, 100_000).await == Ok(pattern(1, 100_000)));
        rig.close().await;
    });
}
