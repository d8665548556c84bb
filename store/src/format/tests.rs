use super::*;
use crate::format::bytes::Reader;
use crate::format::leaf::{Leaf, Slot};
use base::*;

/// The frame of these tests' records.
const FRAME: record::Frame = record::Frame { uuid: Uuid([1; 16]), life: Life(2), sequence: 3, replica: ReplicaId(1) };

fn head(outcome: Outcome) -> record::Head {
    record::Head {
        group: GroupId(0),
        term: Term(1),
        index: Index(12),
        volume: VolumeId(1),
        session: SessionId(2),
        request: RequestId(3),
        outcome,
    }
}

#[test]
fn superblock_survives_and_newer_is_named() {
    let block = superblock::Superblock {
        uuid: Uuid([7; 16]),
        state: superblock::State::Ready,
        features: Default::default(),
        sequence: 3,
        segment_bytes: 1 << 20,
        segments: 100,
        groups: 64,
        epoch: 9,
        ends: vec![superblock::EpochEnd { epoch: 8, batch: 77 }],
        devices: 0,
    };
    let bytes = block.encode();
    assert_eq!(superblock::Superblock::decode(&bytes).expect("just encoded"), block);
    for at in [0, 9, 60, 4095] {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert_eq!(superblock::Superblock::decode(&bad).expect_err("flipped").kind, Kind::Corrupt);
    }
    let newer = superblock::Superblock {
        features: superblock::Features { incompatible: 1 << 63, ..Default::default() },
        ..block
    };
    assert_eq!(superblock::Superblock::decode(&newer.encode()).expect_err("newer").kind, Kind::Newer);
}

#[test]
fn records_are_tied_to_their_place_in_the_stream() {
    let name = Name::new(b"file").expect("a name");
    let id = IntentId { group: GroupId(3), number: 9 };
    let edits = vec![
        Edit::EntryPut { dir: Ino(64), name, ino: Ino(65), kind: FileKind::File, cookie: 5 },
        Edit::InodeTouch { ino: Ino(64), links: -1, entries: -2, mtime: Time(-5), ctime: Time(6) },
        Edit::Map { ino: Ino(65), first: 7, crcs: (0..40).collect() },
        Edit::IntentPut(Intent {
            id,
            follow: vec![Follow {
                volume: VolumeId(1),
                group: GroupId(4),
                edits: vec![Edit::InodeDrop { ino: Ino(4) }],
            }],
        }),
    ];
    let head = head(Outcome::Wrote { offset: 9, length: 4 });
    let mut replicated = Vec::new();
    record::encode_replicated(&mut replicated, &head, &edits);
    let runs = [record::Run { place: Place { segment: SegmentId(8), block: 9 }, count: 40 }];
    let mut out = Vec::new();
    record::put_framed(&mut out, &FRAME, &runs, &replicated);
    let take = |bytes: &[u8], uuid, life| record::take_framed(&mut Reader::new(bytes), uuid, life, 3);
    let (back, back_runs) = take(&out, FRAME.uuid, FRAME.life).expect("just encoded");
    let record::Logged::Record(back) = back else { panic!("it was a change") };
    assert_eq!((back.edits, back.outcome, back.index), (edits, head.outcome, head.index));
    assert_eq!(back_runs, runs);
    assert!(take(&out, Uuid([2; 16]), FRAME.life).is_err());
    assert!(take(&out, FRAME.uuid, Life(3)).is_err());
    for at in 0..out.len() {
        let mut bad = out.clone();
        bad[at] ^= 0x10;
        assert!(take(&bad, FRAME.uuid, FRAME.life).is_err(), "flip at {at} went unseen");
    }
}

#[test]
fn a_record_maps_no_more_blocks_than_its_payload_has() {
    let run = |count| record::Run { place: Place { segment: SegmentId(8), block: 9 }, count };
    let taken = |runs: &[record::Run], replicated: &[u8]| {
        let mut out = Vec::new();
        record::put_framed(&mut out, &FRAME, runs, replicated);
        record::take_framed(&mut Reader::new(&out), FRAME.uuid, FRAME.life, 3).map(drop).map_err(|error| error.kind)
    };
    let head = head(Outcome::Done);
    let map = |crcs: u32| Edit::Map { ino: Ino(65), first: 7, crcs: (0..crcs).collect() };
    let mut record = Vec::new();
    record::encode_replicated(&mut record, &head, &[map(3), map(2)]);
    let moved = record::Moved {
        ino: Ino(2),
        block: 3,
        old: Place { segment: SegmentId(7), block: 1 },
        crc: 0,
        index: Index(1),
    };
    let mut moves = Vec::new();
    record::encode_moves(&mut moves, &record::Moves { group: GroupId(5), volume: VolumeId(2), blocks: vec![moved; 5] });
    for replicated in [&record, &moves] {
        assert_eq!(taken(&[run(2), run(3)], replicated), Ok(()));
        assert_eq!(taken(&[run(2), run(3)], &[&replicated[..], &[0]].concat()), Err(Kind::Corrupt), "it has an end");
        for runs in [&[][..], &[run(4)], &[run(2), run(2)]] {
            assert_eq!(taken(runs, replicated), Err(Kind::Corrupt), "{runs:?}");
        }
    }
    // Whoever follows an intent has no payload at all.
    let id = IntentId { group: GroupId(3), number: 9 };
    let follow = vec![Follow { volume: VolumeId(1), group: GroupId(4), edits: Vec::new() }];
    let mut intent = Vec::new();
    record::encode_replicated(&mut intent, &head, &[Edit::IntentPut(Intent { id, follow })]);
    assert_eq!(taken(&[run(1)], &intent), Ok(()));
    // The encoder makes no such intent: the count of its follower's edits is the last byte.
    *intent.last_mut().expect("it has bytes") = 1;
    edits::put_edit(&mut intent, &map(1));
    assert_eq!(taken(&[run(1)], &intent), Err(Kind::Corrupt));
}

#[test]
fn moves_come_back() {
    let moved = |number: u64| record::Moved {
        ino: Ino(number),
        block: number << 33,
        old: Place { segment: SegmentId(7), block: number as u16 },
        crc: number as u32,
        index: Index(number * 3),
    };
    let moves = record::Moves { group: GroupId(5), volume: VolumeId(2), blocks: (1..40).map(moved).collect() };
    let mut bytes = Vec::new();
    record::encode_moves(&mut bytes, &moves);
    let mut out = Vec::new();
    let runs = [record::Run { place: Place { segment: SegmentId(8), block: 9 }, count: 39 }];
    record::put_framed(&mut out, &FRAME, &runs, &bytes);
    let (back, _) = record::take_framed(&mut Reader::new(&out), FRAME.uuid, FRAME.life, 3).expect("just encoded");
    assert_eq!(back, record::Logged::Moves(moves));
}

#[test]
fn leaves_merge_as_they_are_laid() {
    // One in three was only moved, and keeps the birth that it finds below; one in five is missing.
    let place = |n: u32| Place { segment: SegmentId(n), block: n as u16 };
    let place = |n: u32| if n.is_multiple_of(5) { Place::MISSING } else { place(n) };
    let slot = |n: u32| Slot::Local { place: place(n), crc: n, birth: n % 3 };
    let mut random = runtime::random::SplitMix(5);
    for _ in 0..500 {
        let mut leaves = [Leaf::default(), Leaf::default(), Leaf::default()];
        for leaf in &mut leaves {
            for _ in 0..random.below(20) {
                let value = if random.one_in(4) { Slot::Hole } else { slot(random.below(1000) as u32) };
                leaf.set(random.below(64) as usize, value);
            }
            leaf.trim = random.below(3);
            let bytes = leaf.encode();
            let encoded = leaf::Encoded::new(&bytes).expect("a leaf");
            for index in 0..64 {
                let place = leaf
                    .get(index)
                    .and_then(|slot| if let Slot::Local { place, .. } = slot { Some(place) } else { None });
                assert_eq!((encoded.place(index), encoded.len()), (Ok(place), leaf.len()));
            }
            let newer = [&[bytes[0] + 1], &bytes[1..]].concat();
            for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &newer] {
                assert!(leaf::Encoded::new(wrong).is_err() && Leaf::decode(wrong).is_err());
            }
            assert_eq!(Leaf::decode(&leaf.encode()), Ok(leaf.clone()));
        }
        let [a, b, c] = &leaves;
        let mut laid = a.clone();
        laid.lay(b);
        laid.lay(c);
        let left = leaf::merge(Some(&leaf::merge(Some(&a.encode()), &b.encode())), &c.encode());
        let right = leaf::merge(Some(&a.encode()), &leaf::merge(Some(&b.encode()), &c.encode()));
        assert_eq!(left, right, "the merge must be associative");
        assert_eq!(Leaf::decode(&left).expect("merged"), laid);
        let mut cut = laid.clone();
        cut.clear(17..40);
        let kept: Vec<_> = laid.iter().filter(|(index, _)| !(17..40).contains(index)).collect();
        assert_eq!(cut.iter().collect::<Vec<_>>(), kept);
    }
}

#[test]
fn batch_headers_know_their_own_bytes() {
    let header = batch::BatchHeader {
        uuid: Uuid([3; 16]),
        epoch: 1,
        segment: SegmentId(2),
        life: Life(3),
        sequence: 4,
        number: 5,
        previous_crc: 6,
        durable_through: 4,
        header_blocks: 1,
        payload_blocks: 2,
        records: 1,
        records_bytes: 10,
    };
    let mut blocks = vec![0xaa; 4096];
    let crc = header.seal(&mut blocks);
    assert_eq!(batch::BatchHeader::check(&blocks).expect("just sealed"), (header, crc));
    for at in [0, 5, 30, 91, 93, 100, 4095] {
        let mut bad = blocks.clone();
        bad[at] ^= 4;
        assert!(batch::BatchHeader::check(&bad).is_err(), "flip at {at} went unseen");
    }
}

#[test]
fn what_a_scrub_remembers_comes_back() {
    use crate::format::scrub::{Bad, Position, State, Why};
    let bad = |why| Bad {
        place: Place { segment: SegmentId(1), block: 2 },
        life: Life(3),
        blocks: 4,
        volume: VolumeId(5),
        ino: Ino(6),
        offset: 7,
        why,
    };
    for state in [State::Never, State::Running, State::Stopped, State::Done] {
        let position = Position {
            state,
            began: Time(8),
            ended: Time(9),
            next: SegmentId(10),
            blocks: 11,
            bad: [Why::Differs, Why::Unreadable, Why::Untold].map(bad).to_vec(),
            unlisted: 12,
        };
        assert_eq!(values::decode_scrub(&values::encode_scrub(&position)), Ok(position));
    }
}

#[test]
fn summaries_and_rows_come_back() {
    let entry = summary::SummaryEntry {
        block: 9,
        group: GroupId(1),
        volume: VolumeId(2),
        ino: Ino(3),
        offset: 4,
        index: Index(5),
        crc: 6,
    };
    let entries = vec![entry; 250];
    let bytes = summary::encode(Uuid([1; 16]), SegmentId(1), Life(2), &entries);
    assert_eq!(bytes.len() / 4096, summary::summary_blocks(250));
    let footer = summary::decode_footer(&bytes[bytes.len() - 4096..]).expect("just encoded");
    assert_eq!((footer.entries, footer.life), (250, Life(2)));
    assert_eq!(summary::decode_entries(&summary::encode_entries(&entries)).expect("just encoded"), entries);
    let row = values::SegmentRow {
        state: values::SegmentState::Closed,
        life: Life(4),
        stream: segment::Stream::Bulk,
        sequence: 6,
        opened: 8,
        used: 7,
        live: vec![1, 2],
    };
    assert_eq!(values::decode_segment(&values::encode_segment(&row)).expect("just encoded"), row);
    let header = segment::SegmentHeader {
        uuid: Uuid([1; 16]),
        segment: SegmentId(5),
        life: Life(6),
        stream: segment::Stream::Commit,
        sequence: 7,
        epoch: 8,
    };
    assert_eq!(segment::SegmentHeader::decode(&header.encode()).expect("just encoded"), header);
    for (dead, xattrs) in [(false, false), (true, false), (false, true), (true, true)] {
        let xattrs = Attributes::new(xattrs, None);
        let inode = Inode { dead, xattrs, ..Inode::blank(FileKind::Fifo, Ino(3), Ino(2), Time(5)) };
        assert_eq!(values::decode_inode(&values::encode_inode(&inode)).expect("just encoded"), inode);
    }
    for tier in [None, Some(TierHint::Auto), Some(TierHint::Flash), Some(TierHint::Disk)] {
        let xattrs = Attributes::new(tier.is_none(), tier);
        let inode = Inode { xattrs, ..Inode::blank(FileKind::File, Ino(3), Ino(2), Time(5)) };
        assert_eq!(values::decode_inode(&values::encode_inode(&inode)).expect("just encoded"), inode);
    }
    let key = keys::leaf(VolumeId(1), LeafKey { ino: Ino(77), leaf: 88 });
    assert_eq!(keys::leaf_of(&key), LeafKey { ino: Ino(77), leaf: 88 });
}

#[test]
fn no_key_lies_between_one_and_the_one_after_it() {
    let key = keys::entry(VolumeId(1), Ino(1 << 20), b"name");
    let after = keys::after(&key);
    assert!(key < after);
    for later in [keys::entry(VolumeId(1), Ino(1 << 20), b"name\x01"), keys::entry(VolumeId(1), Ino(1 << 20), b"namf")]
    {
        assert!(after < later);
    }
    assert_eq!(after.strip_prefix(key.as_slice()), Some(&[0][..]));
}
