//! The offline check notices every structure that was damaged on purpose, and says what that means; a healthy brick
//! has no finding.

use crate::rig::{Rig, SEGMENT_BYTES, Shape, checked, name, pattern};
use base::limits::BLOCK_BYTES;
use base::{
    At, Edit, FileKind, Follow, GroupId, Ino, Intent, IntentId, LeafKey, Name, Op, Place, SegmentId, SetHow, Sync,
    Time, VolumeId,
};
use runtime::random::SplitMix;
use runtime::sim::{Ran, Side, Survival, World};
use runtime::{OpenMode, Runtime, disk};
use std::sync::Arc;
use store::format::keys;
use store::format::leaf::{Leaf, Slot};
use store::format::segment::SegmentHeader;
use store::format::summary;
use store::format::values::{self, SegmentRow, SegmentState};
use store::index::model::ModelIndex;
use store::index::{Index, IndexEdit};
use store::progress::Step;
use store::{Opening, check};

/// A closed brick: a directory with two files of 600 blocks each, and a symbolic link.
pub struct Closed {
    pub runtime: Runtime,
    pub index: ModelIndex,
    pub volume: VolumeId,
    pub root: Ino,
    pub dir: Ino,
    pub one: Ino,
    pub other: Ino,
    pub link: Ino,
}

/// Part of the finding on a volume's space: counted, and found.
const COUNTS: &str = "reserved blocks, and has";

/// Blocks per file: more than two segments hold.
pub const BLOCKS: usize = 600;

async fn closed(runtime: Runtime) -> Closed {
    let rig = Rig::new(runtime, Shape::SMALL).await;
    let (volume, root) = (rig.volume.id, rig.volume.root);
    let dir = rig.mkdir(root, "dir").await.expect("there is room");
    let one = rig.create(dir, "one").await.expect("there is room");
    let other = rig.create(dir, "other").await.expect("there is room");
    let target = b"one".to_vec().into_boxed_slice();
    let op = Op::SymLink { parent: dir, name: name("link"), target };
    let link = rig.attr(op).await.expect("there is room").ino;
    let name = Name::of_attribute(b"user.a").expect("a good name");
    let op = Op::SetXattr { ino: one, name, value: [1].into(), how: SetHow::Any, kill_setgid: false };
    rig.done(op).await.expect("there is room");
    for number in 0..BLOCKS / 10 {
        for ino in [one, other] {
            let bytes = pattern(ino.0 + number as u64, 10 * BLOCK_BYTES);
            let at = At::Offset((number * 10 * BLOCK_BYTES) as u64);
            rig.write(ino, at, &bytes, Sync::Ordered).await.expect("there is room");
        }
    }
    rig.runtime.clock.sleep(2_000_000_000).await;
    let (runtime, index) = rig.close().await;
    Closed { runtime, index, volume, root, dir, one, other, link }
}

impl Closed {
    pub fn leaf_key(&self, ino: Ino, leaf: u64) -> Vec<u8> {
        keys::leaf(self.volume, LeafKey { ino, leaf })
    }
    pub fn leaf(&self, ino: Ino, leaf: u64) -> Leaf {
        let value = self.index.get(&self.leaf_key(ino, leaf)).expect("the model index reads");
        Leaf::decode(&value.expect("the file has such blocks")).expect("a leaf")
    }
    /// The place of a block of a file, and its checksum.
    pub fn slot(&self, ino: Ino, block: u64) -> (Place, u32, u32) {
        match self.leaf(ino, block / 64).get(block as usize % 64) {
            Some(Slot::Local { place, crc, birth }) => (place, crc, birth),
            other => panic!("a block with data: {other:?}"),
        }
    }
    /// The edit that maps a block of a file to something else.
    pub fn mapped(&self, ino: Ino, block: u64, (place, crc, birth): (Place, u32, u32)) -> IndexEdit {
        let mut leaf = self.leaf(ino, block / 64);
        leaf.set(block as usize % 64, Slot::Local { place, crc, birth });
        IndexEdit::Put(self.leaf_key(ino, block / 64), leaf.encode())
    }
    pub fn row(&self, segment: SegmentId) -> SegmentRow {
        let value = self.index.get(&keys::segment(segment)).expect("the model index reads");
        values::decode_segment(&value.expect("the segment is used")).expect("a segment's row")
    }
    /// The edit that changes live bits of a segment.
    pub fn bits(&self, segment: SegmentId, change: impl Fn(&mut Vec<u64>)) -> IndexEdit {
        let mut row = self.row(segment);
        change(&mut row.live);
        IndexEdit::Put(keys::segment(segment), values::encode_segment(&row))
    }
    /// A segment of this state with live blocks.
    pub fn segment(&self, state: SegmentState) -> SegmentId {
        let live = |segment: &SegmentId| {
            let value = self.index.get(&keys::segment(*segment)).expect("the model index reads");
            let row = value.map(|value| values::decode_segment(&value).expect("a segment's row"));
            row.is_some_and(|row| row.state == state && row.live.iter().any(|&word| word != 0))
        };
        (0..256).map(SegmentId).find(live).expect("there is one")
    }
    /// A block of the first file in a segment of this state.
    pub fn block_in(&self, state: SegmentState) -> u64 {
        let is_there = |&block: &u64| self.row(self.slot(self.one, block).0.segment).state == state;
        (0..BLOCKS as u64).find(is_there).expect("there is one")
    }
    /// Applies edits and checks: each finding has one of these texts, and each text is in a finding.
    pub async fn finds(&self, edits: Vec<IndexEdit>, texts: &[&str]) {
        let index = self.index.crashed(0);
        index.write(edits).expect("the model index writes");
        let findings = checked(&self.runtime, &index).await.findings;
        for text in texts {
            assert!(findings.iter().any(|finding| finding.contains(text)), "no {text:?} in {findings:#?}");
        }
        for finding in &findings {
            assert!(texts.iter().any(|text| finding.contains(text)), "{finding:?} was not expected: {texts:#?}");
            assert!(finding.contains("; "), "it says what it means: {finding:?}");
        }
    }
    /// Changes blocks of a segment on the device.
    pub async fn change(&self, place: Place, blocks: usize, change: impl Fn(&mut [u8])) {
        let disk = &*self.runtime.disk;
        let file = disk.open("segments-00000", OpenMode::Existing).expect("the file was made");
        let at = u64::from(place.segment.0) * SEGMENT_BYTES + u64::from(place.block) * BLOCK_BYTES as u64;
        let buffer = self.runtime.buffer(blocks * BLOCK_BYTES).expect("within the bound");
        let (mut buffer, read) = disk::read(disk, file, at, buffer).await;
        read.expect("a healthy device reads");
        change(&mut buffer);
        let length = buffer.len();
        let slices = vec![buffer.share().slice(0..length)];
        disk::write(disk, file, at, slices, true).await.1.expect("a healthy device writes");
    }
}

/// Runs a test on a closed brick.
pub fn on_closed(test: impl AsyncFnOnce(Closed)) {
    let mut world = World::new(1);
    let runtime = world.runtime();
    world.block_on(async { test(closed(runtime).await).await });
}

#[test]
fn damaged_live_bits_are_found() {
    on_closed(async |brick| {
        brick.finds(vec![], &[]).await;
        let (Place { segment, block }, ..) = brick.slot(brick.one, 100);
        let (word, bit) = (usize::from(block / 64), 1u64 << (block % 64));
        let cleared = brick.bits(segment, |live| live[word] &= !bit);
        let whose =
            format!("1 blocks of inode {} of volume {}, from block 100 on, don't count", brick.one, brick.volume);
        brick.finds(vec![cleared], &[&whose]).await;
        // The header's block is never live.
        let set = brick.bits(segment, |live| live[0] |= 1);
        brick.finds(vec![set], &["1 blocks count as live which no file has; no data is missing"]).await;
    });
}

#[test]
fn damaged_leaves_are_found() {
    on_closed(async |brick| {
        let (one, other) = (brick.one, brick.other);
        let shared = brick.mapped(other, 5, brick.slot(one, 7));
        let named =
            format!("named by block 7 of inode {one} of volume 1 and by block 5 of inode {other} of volume 1; at");
        let differs = format!("1 blocks of inode {other} of volume 1, from block 5 on, are another file's");
        brick.finds(vec![shared], &[&named, &differs, "1 blocks count as live which no file has"]).await;
        for state in [SegmentState::Sealed, SegmentState::Open] {
            let block = brick.block_in(state);
            let (place, crc, birth) = brick.slot(one, block);
            let crc = brick.mapped(one, block, (place, crc ^ 1, birth));
            brick.finds(vec![crc], &["have another checksum, in the segment's summary; either"]).await;
        }
        let (place, crc, birth) = brick.slot(one, 0);
        let outside = brick.mapped(one, 0, (Place { segment: SegmentId(256), ..place }, crc, birth));
        brick.finds(vec![outside], &["lies outside the brick", "1 blocks count as live"]).await;
        let rotten = IndexEdit::Put(brick.leaf_key(one, 1), vec![77; 40]);
        brick.finds(vec![rotten], &["leaf 1: ", "blocks count as live which no readable map has; what"]).await;
    });
}

#[test]
fn blocks_of_nobody_are_found() {
    on_closed(async |brick| {
        let (volume, one, nobody) = (brick.volume, brick.one, Ino::new(7777, brick.one.group()));
        let free = Place { segment: SegmentId(200), block: 9 };
        let stray = |volume, leaf| {
            let mut slots = Leaf::default();
            slots.set(3, Slot::Local { place: Place { block: 9 + leaf as u16, ..free }, crc: 1, birth: 1 });
            IndexEdit::Put(keys::leaf(volume, LeafKey { ino: nobody, leaf }), slots.encode())
        };
        let whose = format!("2 blocks are of inode {nobody} of volume {volume}, which does not exist");
        brick.finds(vec![stray(volume, 0), stray(volume, 1)], &[&whose, "don't count as live", COUNTS]).await;
        let texts = ["2 rows with 2 blocks are of volume 9, which does not exist", "don't count as live"];
        brick.finds(vec![stray(VolumeId(9), 0), stray(VolumeId(9), 1)], &texts).await;
        // The inode is lost: its name leads nowhere.
        let lost = IndexEdit::Delete(keys::inode(volume, one));
        let gone = format!("attributes of inode {one} of volume {volume}, which has none");
        let whose = format!("600 blocks are of inode {one} of volume {volume}, which does not exist");
        let leads = format!("an entry of volume {volume} leads to inode {one}, which is not there");
        brick.finds(vec![lost], &[&whose, &leads, &gone, COUNTS]).await;
        // One that can't be read is not one that does not exist.
        let rotten = IndexEdit::Put(keys::inode(volume, one), vec![77; 9]);
        brick.finds(vec![rotten], &[&format!("inode {one} of volume {volume}: "), &leads, &gone]).await;
    });
}

#[test]
fn rows_that_nobody_reads_are_found() {
    on_closed(async |brick| {
        let mut kind = keys::inode(brick.volume, brick.one);
        kind[8] = 0x7f;
        let mut group = keys::leaf(brick.volume, LeafKey { ino: brick.one, leaf: 0 });
        group[3] ^= 1;
        let none = keys::group(GroupId(8));
        let cut = keys::leaf(brick.volume, LeafKey { ino: brick.one, leaf: 0 })[..20].to_vec();
        for key in [kind, group, none, cut] {
            brick.finds(vec![IndexEdit::Put(key, vec![1])], &["1 rows of the index are of no known kind"]).await;
        }
    });
}

#[test]
fn a_report_counts_what_there_is() {
    on_closed(async |brick| {
        let report = checked(&brick.runtime, &brick.index).await;
        assert_eq!(report.findings, Vec::<String>::new());
        // The root, its directory, two files and a link; all but the root have a name.
        assert_eq!((report.inodes, report.entries, report.blocks), (5, 4, 2 * BLOCKS as u64));
        assert_eq!((report.intents, report.records, report.log_lost), (0, 0, false), "all of it is checkpointed");
    });
}

#[test]
fn counts_that_a_redo_will_mend_are_no_finding() {
    on_closed(async |brick| {
        let (volume, dir) = (brick.volume, brick.dir);
        let id = IntentId { group: GroupId(3), number: 9 };
        let intent = values::encode_intent(&Intent { id, follow: Vec::new() });
        let (from, to) = keys::cookies_after(volume, dir, 0);
        let cookie = brick.index.scan(&from, &to, 1).expect("the model index reads").remove(0).0;
        brick.finds(vec![IndexEdit::Put(keys::intent(id), intent), IndexEdit::Delete(cookie)], &[]).await;
    });
}

#[test]
fn blocks_beyond_the_end_are_found() {
    on_closed(async |brick| {
        let key = keys::inode(brick.volume, brick.one);
        let row = brick.index.get(&key).expect("the model index reads").expect("it is there");
        let mut inode = values::decode_inode(&row).expect("an inode");
        // Two blocks and a part of a third are the file's, of its first leaf.
        inode.size = 2 * BLOCK_BYTES as u64 + 1;
        let beyond = format!("inode {} of volume {}: 61 blocks lie beyond its end", brick.one, brick.volume);
        let others = format!("inode {} of volume {}: 64 blocks lie beyond its end", brick.one, brick.volume);
        let last = format!("inode {} of volume {}: 24 blocks lie beyond its end", brick.one, brick.volume);
        brick.finds(vec![IndexEdit::Put(key, values::encode_inode(&inode))], &[&beyond, &others, &last]).await;
    });
}

#[test]
fn damaged_names_are_found() {
    on_closed(async |brick| {
        let (volume, dir) = (brick.volume, brick.dir);
        let entry = IndexEdit::Delete(keys::entry(volume, dir, b"one"));
        let count = format!("directory {dir} of volume {volume} says 3 entries, has 2 and lists 3");
        brick.finds(vec![entry], &["and its cookie", &count]).await;
        let (from, to) = keys::cookies_after(volume, dir, 0);
        let cookie = brick.index.scan(&from, &to, 1).expect("the model index reads").remove(0).0;
        // An entry that says another inode, kind or cookie than its cookie does.
        let row = brick.index.get(&keys::entry(volume, dir, b"one")).expect("the model index reads");
        let (ino, kind, number) = values::decode_entry(&row.expect("it is there")).expect("an entry");
        for other in [(brick.other, kind, number), (ino, FileKind::Fifo, number), (ino, kind, number + 1)] {
            let value = values::encode_entry(other.0, other.1, other.2);
            let entry = IndexEdit::Put(keys::entry(volume, dir, b"one"), value);
            brick.finds(vec![entry], &["entry \"one\" and its cookie"]).await;
        }
        let count = format!("directory {dir} of volume {volume} says 3 entries, has 3 and lists 2");
        let texts = [&count, "says 1 links, has 0", "has no name and is no orphan"];
        brick.finds(vec![IndexEdit::Delete(cookie)], &texts).await;
        let index = brick.index.crashed(0);
        index.write(vec![IndexEdit::Delete(keys::inode(volume, brick.root))]).expect("the model index writes");
        let findings = checked(&brick.runtime, &index).await.findings;
        let rootless = format!("volume {volume} has no root directory {}", brick.root);
        assert!(findings.iter().any(|finding| finding.contains(&rootless)), "{findings:#?}");
        let target = IndexEdit::Delete(keys::target(volume, brick.link));
        brick.finds(vec![target], &["has no target; what it held"]).await;
        let xattrs = |ino| keys::xattrs(volume, ino);
        let of_one = IndexEdit::Delete(xattrs(brick.one));
        brick.finds(vec![of_one], &["has lost its attributes; what it held"]).await;
        let rotten = IndexEdit::Put(xattrs(brick.one), vec![1, 2]);
        brick.finds(vec![rotten], &[&format!("attributes of inode {} of volume {volume}: ", brick.one)]).await;
        let of_none = IndexEdit::Put(xattrs(brick.other), values::encode_xattrs(&base::Xattrs::new()));
        brick.finds(vec![of_none], &["of volume 1, which has none; no data is missing"]).await;
        let target = IndexEdit::Put(keys::target(volume, brick.one), values::encode_target(b"x"));
        brick.finds(vec![target], &["of volume 1, which is none"]).await;
    });
}

#[test]
fn a_summary_that_lacks_a_live_block_is_found() {
    on_closed(async |brick| {
        let open = brick.segment(SegmentState::Open);
        let (from, to) = keys::summary_of(open);
        brick.finds(vec![IndexEdit::DeleteRange(from, to)], &["are missing in the segment's summary; the data"]).await;
        let block = brick.block_in(SegmentState::Sealed);
        let (place, ..) = brick.slot(brick.one, block);
        let row = brick.row(place.segment);
        let last = Place { segment: place.segment, block: 255 };
        // All entries of a segment of 256 blocks take four blocks at most, its footer one.
        let rewrite = |keep: bool, life: u32| {
            move |bytes: &mut [u8]| {
                let footer = summary::decode_footer(&bytes[4 * BLOCK_BYTES..]).expect("a footer");
                let start = 5 * BLOCK_BYTES - summary::summary_blocks(footer.entries as usize) * BLOCK_BYTES;
                let all = &bytes[start..start + footer.entries as usize * summary::ENTRY_BYTES];
                let mut entries = summary::decode_entries(all).expect("whole entries");
                entries.iter_mut().filter(|entry| entry.block == place.block).for_each(|entry| {
                    // A block that holds no data is told of instead: the number of entries stays.
                    entry.block = if keep { entry.block } else { 0 };
                });
                entries.sort_by_key(|entry| entry.block);
                let life = base::Life(footer.life.0.wrapping_add(life));
                bytes[start..].copy_from_slice(&summary::encode(footer.uuid, footer.segment, life, &entries));
            }
        };
        let first = Place { block: 251, ..last };
        brick.change(first, 5, rewrite(true, 1)).await;
        brick.finds(vec![], &["its summary: a summary is of another life"]).await;
        brick.change(first, 5, rewrite(true, u32::MAX)).await;
        brick.finds(vec![], &[]).await;
        brick.change(first, 5, rewrite(false, 0)).await;
        let whose = format!("1 blocks of inode {} of volume 1, from block {block} on, are missing", brick.one);
        brick.finds(vec![], &[&whose]).await;
        brick.change(last, 1, |bytes| bytes[9] ^= 1).await;
        brick.finds(vec![], &["a summary's footer fails its checksum"]).await;
        assert_eq!(row.state, SegmentState::Sealed);
    });
}

#[test]
fn marks_of_orphans_are_held_against_inodes() {
    on_closed(async |brick| {
        let (volume, lost) = (brick.volume, Ino::new(7777, brick.one.group()));
        let inode = base::Inode { links: 0, ..base::Inode::blank(FileKind::File, lost, brick.dir, Time(1)) };
        let row = IndexEdit::Put(keys::inode(volume, lost), values::encode_inode(&inode));
        let mark = |ino| IndexEdit::Put(keys::orphan(volume, ino), values::encode_mark());
        // Nobody would ever free it.
        let leaked = format!("inode {lost} of volume {volume} has no name and is no orphan");
        brick.finds(vec![row.clone()], &[&leaked, COUNTS]).await;
        brick.finds(vec![row, mark(lost)], &[COUNTS]).await;
        let doomed = format!("inode {} of volume {volume} has names, and the next start frees it", brick.one);
        brick.finds(vec![mark(brick.one)], &[&doomed]).await;
        brick.finds(vec![mark(lost)], &[]).await;
    });
}

#[test]
fn a_header_of_another_life_is_found() {
    for other in [|header: &mut SegmentHeader| header.life.0 += 1, |header: &mut SegmentHeader| header.sequence += 1] {
        on_closed(async |brick| {
            let first = Place { segment: brick.segment(SegmentState::Sealed), block: 0 };
            let rewrite = |bytes: &mut [u8]| {
                let mut header = SegmentHeader::decode(bytes).expect("a header");
                other(&mut header);
                bytes.copy_from_slice(&header.encode());
            };
            brick.change(first, 1, rewrite).await;
            brick.finds(vec![], &["its header is damaged or missing"]).await;
        });
    }
}

#[test]
fn a_brick_in_ruins_has_a_bounded_report() {
    on_closed(async |brick| {
        let stray = |number: u64| {
            let ino = Ino::new(10_000 + number, GroupId(1));
            IndexEdit::Put(keys::leaf(brick.volume, LeafKey { ino, leaf: 0 }), vec![77; 40])
        };
        let index = brick.index.crashed(0);
        index.write((0..1500).map(stray).collect()).expect("the model index writes");
        let findings = checked(&brick.runtime, &index).await.findings;
        assert_eq!(findings.len(), 1001);
        assert_eq!(findings[1000], "500 more findings are not listed");
    });
}

#[test]
fn a_check_tells_how_far_it_is() {
    on_closed(async |brick| {
        let opening = Opening::read_wholly(brick.runtime.clone(), Arc::new(brick.index.clone()), false).await;
        let mut steps: Vec<Step> = Vec::new();
        let opening = opening.expect("a closed brick opens");
        let report = check::check(&opening, &mut |step| steps.push(step)).await.expect("a closed brick can be checked");
        let used = opening.table().iter().filter(|(_, row)| row.state != SegmentState::Free).count();
        assert!(used > 2 && report.segments == used as u64);
        let suspect = steps.iter().find(|step| step.what == "segments that differ");
        assert!(suspect.is_none(), "{suspect:?}");
        for what in ["segments", "index"] {
            let of_this: Vec<_> = steps.iter().filter(|step| step.what == what).collect();
            assert!(of_this.len() > 1 && of_this.iter().all(|step| step.done <= step.of), "{what}: {of_this:?}");
            assert!(of_this.is_sorted_by_key(|step| step.done), "{what}: {of_this:?}");
        }
    });
}

/// An intent's followers are done once, also if the redo itself is cut off, at any step of it.
#[test]
fn a_redo_that_is_cut_off_is_not_done_twice() {
    const INTENTS: u64 = 40;
    let mut world = World::new(1);
    let runtime = world.runtime();
    let brick = world.block_on(closed(runtime));
    let image = world.crash_as(Survival::Everything, &mut SplitMix(1));
    let volume = store::paths::volume(&brick.index, brick.volume).expect("it reads").expect("the volume is there");
    // So much that follows and ends are in several batches.
    let intent = |number: u64| {
        let id = IntentId { group: GroupId(brick.dir.group().0 ^ 1), number };
        let touch = Edit::InodeTouch { ino: brick.dir, links: 1, entries: 0, mtime: Time(0), ctime: Time(0) };
        let list = Edit::XattrPut {
            ino: brick.dir,
            name: Name::of_attribute(b"user.a").expect("a name"),
            value: [7; 60_000].into(),
        };
        let follow = Follow { volume: brick.volume, group: brick.dir.group(), edits: vec![touch, list] };
        IndexEdit::Put(keys::intent(id), values::encode_intent(&Intent { id, follow: vec![follow] }))
    };
    brick.index.write((9..9 + INTENTS).map(intent).collect()).expect("the model index writes");
    brick.index.persist().expect("the model index is durable");
    for step in 1.. {
        let mut world = World::from_image(step, image.clone());
        let (runtime, index) = (world.runtime(), brick.index.crashed(0));
        world.crash_at_step(step, if step % 2 == 0 { Side::Before } else { Side::After });
        let ran = world.run(async {
            let rig = Rig::existing((runtime, index.clone()), Shape::SMALL, volume.clone()).await;
            rig.runtime.clock.sleep(2_000_000_000).await;
        });
        let mut after = World::from_image(1, world.crash_as(Survival::Nothing, &mut SplitMix(step)));
        let runtime = after.runtime();
        after.block_on(async {
            let rig = Rig::existing((runtime, index.crashed(0)), Shape::SMALL, volume.clone()).await;
            let inode = rig.attr(Op::GetAttr { ino: brick.dir }).await.expect("it is there").inode;
            assert_eq!(u64::from(inode.links), 2 + INTENTS, "step {step}");
        });
        if matches!(ran, Ran::Finished(())) {
            assert!(step > 5, "there was something to cut off: {step}");
            break;
        }
    }
}
