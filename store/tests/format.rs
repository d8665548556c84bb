//! The drawings in `docs/format/`, offset by offset: what they say is what the code writes.

use base::checksum::crc32c;
use base::*;
use store::format::batch::BatchHeader;
use store::format::bytes::Reader;
use store::format::devices::{DeviceId, DeviceRow, DeviceTable, FIRST, State as Part, Tier};
use store::format::edits::put_edit;
use store::format::label::Label;
use store::format::leaf::{Leaf, Slot};
use store::format::passages::{Cut, Passage, Passages};
use store::format::record::{Frame, Head, Logged, Run, Vote, encode_replicated, encode_vote, put_framed, take_framed};
use store::format::segment::{SegmentHeader, Stream};
use store::format::superblock::{EpochEnd, Features, SEVERAL_DEVICES, State, Superblock};
use store::format::values::{
    self, GroupRow, HealRow, Promise, ReplayRow, ReplicaRow, SegmentRow, SegmentState, SessionRow, TermRow,
};
use store::format::{Uuid, keys, summary};
use store::reserve::{Extent, Reserve};
use store::scrub::{self, Bad, Why};
use store::usage::Usage;

const UUID: Uuid = Uuid([0xab; 16]);

/// The number of `size` bytes at `at`, little-endian.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn holder() -> Holder {
    Holder { client: Name::new(b"xyz").expect("a name"), volume: VolumeId(6), locks: true }
}

/// Fields as a drawing gives them: offset, size, value.
fn drawn(bytes: &[u8], fields: &[(usize, usize, u64)]) {
    for &(at, size, value) in fields {
        assert_eq!(number(bytes, at, size), value, "at byte {at}");
    }
}

#[test]
fn superblock() {
    let superblock = Superblock {
        uuid: UUID,
        state: State::Ready,
        features: Features { compatible: 1, read_only: 2, incompatible: 0 },
        sequence: 4,
        segment_bytes: 1 << 20,
        segments: 6,
        groups: 7,
        epoch: 8,
        ends: vec![EpochEnd { epoch: 9, batch: 10 }, EpochEnd { epoch: 11, batch: 12 }],
        devices: 0,
    };
    let bytes = superblock.encode();
    assert_eq!((bytes.len(), &bytes[..8], &bytes[16..32]), (4096, &b"SINTERSB"[..], &UUID.0[..]));
    let crc = u64::from(crc32c(&bytes[..4092]));
    drawn(&bytes, &[(8, 4, 1), (12, 4, 2), (32, 8, 1), (40, 8, 2), (48, 8, 0), (56, 8, 4), (64, 8, 1 << 20)]);
    drawn(&bytes, &[(72, 4, 6), (76, 4, 7), (80, 8, 8), (88, 4, 2), (92, 8, 9), (100, 8, 10), (108, 8, 11)]);
    drawn(&bytes, &[(116, 8, 12), (124, 8, 0), (4092, 4, crc)]);
    let features = Features { incompatible: SEVERAL_DEVICES, ..superblock.features };
    let several = Superblock { features, devices: 13, ..superblock }.encode();
    drawn(&several, &[(48, 8, 8), (116, 8, 12), (124, 8, 13), (132, 8, 0)]);
}

#[test]
fn device_table() {
    let disk = DeviceRow { id: DeviceId(4), tier: Tier::Disk, state: Part::InUse, first: 100, segments: 50 };
    let mut table = DeviceTable { sequence: 9, next: DeviceId(7), ..DeviceTable::of_one(UUID, 100) };
    table.rows.push(disk);
    let bytes = table.encode();
    assert_eq!((bytes.len(), &bytes[..8], &bytes[12..28]), (8192, &b"SINTERDT"[..], &UUID.0[..]));
    let crc = u64::from(crc32c(&bytes[..8188]));
    drawn(&bytes, &[(8, 4, 1), (28, 8, 9), (36, 4, 7), (40, 4, 2), (8188, 4, crc)]);
    drawn(&bytes, &[(44, 4, 1), (48, 1, 1), (49, 1, 1), (50, 2, 0), (52, 4, 0), (56, 4, 100)]);
    drawn(&bytes, &[(60, 4, 4), (64, 1, 2), (65, 1, 1), (68, 4, 100), (72, 4, 50), (76, 8, 0)]);
}

#[test]
fn label() {
    let label = Label { uuid: UUID, segment_bytes: 1 << 20, segments: 6, device: FIRST };
    let bytes = label.encode();
    assert_eq!((bytes.len(), &bytes[..8], &bytes[12..28]), (4096, &b"SINTERDV"[..], &UUID.0[..]));
    let crc = u64::from(crc32c(&bytes[..508]));
    drawn(&bytes, &[(8, 4, 1), (28, 8, 1 << 20), (36, 4, 6), (40, 8, 0), (508, 4, crc), (512, 8, 0)]);
    let further = Label { device: DeviceId(5), ..label }.encode();
    drawn(&further, &[(8, 4, 2), (28, 8, 1 << 20), (36, 4, 6), (40, 4, 5), (44, 8, 0)]);
    assert_eq!(Label::decode(&bytes), Ok(label));
    let mut newer = bytes.clone();
    newer[8] = 3;
    let crc = crc32c(&newer[..508]).to_le_bytes();
    newer[508..512].copy_from_slice(&crc);
    assert_eq!(Label::decode(&newer).map_err(|error| error.kind), Err(Kind::Newer));
    let kind = |at: usize| {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        Label::decode(&bad).map_err(|error| error.kind)
    };
    assert!([0, 9, 20, 300, 510].into_iter().all(|at| kind(at) == Err(Kind::Corrupt)));
}

#[test]
fn segment_header() {
    let (segment, life) = (SegmentId(3), Life(4));
    let header = SegmentHeader { uuid: UUID, segment, life, stream: Stream::Cold, sequence: 5, epoch: 6 };
    let bytes = header.encode();
    assert_eq!((bytes.len(), &bytes[..8], &bytes[8..24]), (4096, &b"SINTSEG1"[..], &UUID.0[..]));
    drawn(&bytes, &[(24, 4, 3), (28, 4, 4), (32, 8, 3), (40, 8, 5), (48, 8, 6), (56, 8, 0)]);
    drawn(&bytes, &[(64, 4, u64::from(crc32c(&bytes[..64])))]);
    let codes = [Stream::Commit, Stream::Bulk, Stream::Cold].map(Stream::code);
    assert_eq!(codes, [1, 2, 3]);
}

#[test]
fn batch_header() {
    let header = BatchHeader {
        uuid: UUID,
        epoch: 2,
        segment: SegmentId(3),
        life: Life(4),
        sequence: 5,
        number: 6,
        previous_crc: 7,
        durable_through: 8,
        header_blocks: 2,
        payload_blocks: 10,
        records: 11,
        records_bytes: 5000,
    };
    let mut bytes = vec![0xcc; 8192];
    let crc = header.seal(&mut bytes);
    assert_eq!((&bytes[..4], &bytes[8..24]), (&b"SBAT"[..], &UUID.0[..]));
    drawn(&bytes, &[(4, 4, 7), (24, 8, 2), (32, 4, 3), (36, 4, 4), (40, 8, 5), (48, 8, 6), (56, 8, 8), (64, 2, 2)]);
    drawn(&bytes, &[(66, 2, 11), (68, 4, 10), (72, 4, 5000), (76, 8, 0), (84, 8, 0), (92, 4, u64::from(crc))]);
    assert!(bytes[96..5096].iter().all(|&byte| byte == 0xcc) && bytes[5096..].iter().all(|&byte| byte == 0));
    let covered = [&bytes[..92], &bytes[96..]].concat();
    assert_eq!(crc, crc32c(&covered));
}

#[test]
fn record() {
    let head = Head {
        group: GroupId(1),
        term: Term(2),
        index: Index(3),
        volume: VolumeId(4),
        session: SessionId(5),
        request: RequestId(6),
        outcome: Outcome::Wrote { offset: 7, length: 8 },
    };
    let mut replicated = Vec::new();
    encode_replicated(&mut replicated, &head, &[Edit::InodeDrop { ino: Ino(9) }]);
    drawn(&replicated, &[(0, 1, 1), (1, 1, 1), (2, 2, 0), (4, 4, 1), (8, 8, 2), (16, 8, 3), (24, 4, 4), (28, 8, 5)]);
    drawn(&replicated, &[(36, 8, 6), (44, 1, 2), (45, 8, 7), (53, 4, 8), (57, 2, 1), (59, 1, 6), (60, 8, 9)]);
    let frame = Frame { uuid: UUID, life: Life(11), sequence: 12, replica: ReplicaId(13) };
    let runs = [Run { place: Place { segment: SegmentId(14), block: 15 }, count: 16 }];
    let mut bytes = Vec::new();
    put_framed(&mut bytes, &frame, &runs, &replicated);
    let crc = u64::from(crc32c(&[&UUID.0[..], &bytes[8..]].concat()));
    drawn(&bytes, &[(0, 4, bytes.len() as u64), (4, 4, crc), (8, 4, 11), (12, 8, 12), (20, 8, 13), (28, 2, 1)]);
    drawn(&bytes, &[(30, 4, 14), (34, 2, 15), (36, 2, 16)]);
    assert_eq!(bytes[38..], replicated);
    for (outcome, tag, first) in [(Outcome::Done, 0, 0), (Outcome::Inode(Ino(5)), 1, 5)] {
        let mut bytes = Vec::new();
        encode_replicated(&mut bytes, &Head { outcome, ..head }, &[]);
        drawn(&bytes, &[(44, 1, tag), (45, 8, first), (53, 4, 0)]);
    }
}

#[test]
fn vote() {
    let vote = Vote { group: GroupId(1), term: Term(2), voted_for: Some(ReplicaId(3)) };
    let mut bytes = Vec::new();
    encode_vote(&mut bytes, &vote);
    drawn(&bytes, &[(0, 1, 5), (1, 1, 1), (2, 2, 0), (4, 4, 1), (8, 8, 2), (16, 8, 3)]);
    assert_eq!(bytes.len(), 24);
    for voted_for in [vote.voted_for, None] {
        let vote = Vote { voted_for, ..vote };
        let frame = Frame { uuid: UUID, life: Life(11), sequence: 12, replica: ReplicaId(13) };
        let (mut replicated, mut framed) = (Vec::new(), Vec::new());
        encode_vote(&mut replicated, &vote);
        put_framed(&mut framed, &frame, &[], &replicated);
        let back = take_framed(&mut Reader::new(&framed), UUID, frame.life, frame.sequence);
        assert_eq!(back, Ok((Logged::Vote(vote), Vec::new())));
    }
}

fn inode() -> Inode {
    Inode {
        kind: FileKind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        links: 3,
        rdev: 4,
        project: 5,
        generation: 6,
        size: 7,
        trim: 8,
        entries: 9,
        parent: Ino(10),
        atime: Time(11),
        mtime: Time(12),
        ctime: Time(13),
        btime: Time(-1),
        dead: true,
        xattrs: base::Attributes::new(true, Some(base::TierHint::Flash)),
        guard: base::Guard { immutable: false, append_only: true, hands_down_project: false },
    }
}

/// The inode's drawing, from `at` on.
fn inode_drawn(bytes: &[u8], at: usize) {
    let small = [(0, 2, 0o100_644), (2, 2, 0x4b), (4, 4, 1), (8, 4, 2), (12, 4, 3), (16, 4, 4), (20, 4, 5), (24, 4, 6)];
    let large = [(28, 8, 7), (36, 8, 8), (44, 8, 9), (52, 8, 10), (60, 8, 11), (68, 8, 12), (76, 8, 13)];
    let last = [(84, 8, u64::MAX)];
    for &(offset, size, value) in small.iter().chain(&large).chain(&last) {
        drawn(bytes, &[(at + offset, size, value)]);
    }
}

fn layers_of_all_kinds() -> Box<[Layer]> {
    let delay = Layer::Delay { operations: Operations::All, ns: 5 };
    let operations = Operations::of(Some("read")).expect("its name");
    [Layer::ReadOnly, delay, Layer::Fault { operations, kind: Kind::Io, every: 7 }].into()
}

/// The drawing of those layers, from `at` on.
fn layers_drawn(bytes: &[u8], at: usize) {
    let first = [(0, 1, 3), (1, 1, 1), (2, 1, 2), (3, 2, 0), (5, 8, 5), (13, 1, 3), (14, 2, 4), (16, 1, b'r'.into())];
    for (offset, size, value) in first.into_iter().chain([(20, 2, 2), (22, 1, b'i'.into()), (24, 8, 7)]) {
        drawn(bytes, &[(at + offset, size, value)]);
    }
}

#[test]
fn edits_and_their_codes() {
    let (ino, time) = (Ino(2), Time(3));
    let name = Name::new(b"xyz").expect("a name");
    let (layers, policy, limits) = (Box::default(), TierPolicy::default(), Limits::NONE);
    let (id, size_bytes, root) = (VolumeId(6), Some(9), Ino(7));
    let volume = Volume { id, name: name.clone(), root, created: Time(8), size_bytes, layers, policy, limits };
    let layered = Volume { layers: layers_of_all_kinds(), ..volume.clone() };
    let flash_only = Volume { policy: TierPolicy::FlashOnly, ..volume.clone() };
    let limited = Volume { limits: some_limits(), ..volume.clone() };
    let tree = some_limits().with_tree(7, Ino(9), &[(Limit::Iops, 5)]).expect("within bounds");
    let treed = Volume { limits: tree, ..volume.clone() };
    let id = IntentId { group: GroupId(4), number: 5 };
    let (mtime, ctime) = (Time(9), Time(10));
    let follow = vec![Follow { volume: VolumeId(1), group: GroupId(2), edits: vec![Edit::InodeDrop { ino }] }];
    let rows: Vec<(u8, usize, Edit)> = vec![
        (1, 100, Edit::InodePut { ino, inode: inode() }),
        (2, 36, Edit::InodeTouch { ino, links: -1, entries: -2, mtime, ctime }),
        (3, 16, Edit::InodeParent { ino, parent: Ino(5) }),
        (30, 12, Edit::InodeProject { ino, project: 5 }),
        (4, 25, Edit::InodeExtend { ino, size: 4, time, kill_privileges: true }),
        (5, 32, Edit::InodeCut { ino, size: 4, trim: 5, time }),
        (6, 8, Edit::InodeDrop { ino }),
        (7, 8, Edit::OrphanPut { ino }),
        (8, 8, Edit::OrphanDrop { ino }),
        (9, 25 + 5, Edit::EntryPut { dir: ino, name: name.clone(), ino: Ino(3), kind: FileKind::Link, cookie: 4 }),
        (10, 16 + 5, Edit::EntryDrop { dir: ino, name: name.clone(), cookie: 4 }),
        (11, 8 + 2 + 4, Edit::TargetPut { ino, target: (*b"goal").into() }),
        (12, 18 + 3 * 4, Edit::Map { ino, first: 3, crcs: (7..10).collect() }),
        (13, 12 + 2 + 9 + 9, Edit::IntentPut(Intent { id, follow })),
        (14, 12, Edit::IntentDrop { id }),
        (15, 12, Edit::FollowedPut { id }),
        (16, 12, Edit::FollowedDrop { id }),
        (37, 12 + 1 + 2 * 8, Edit::LockPut { id, inos: [ino, Ino(3)].into() }),
        (38, 12, Edit::LockDrop { id }),
        (17, 28 + 5, Edit::VolumePut(volume.clone())),
        (29, 5 + 28 + 5, Edit::VolumeChange { name: name.clone(), volume }),
        (
            31,
            5 + 28 + 5 + 1 + 1 + (1 + 2 + 8) + (1 + 6 + 4 + 8),
            Edit::VolumeChange { name: name.clone(), volume: layered },
        ),
        (32, 5 + 28 + 5 + 2, Edit::VolumeChange { name: name.clone(), volume: flash_only }),
        (33, 5 + 28 + 5 + 2 + 1 + 2 * 9, Edit::VolumeChange { name: name.clone(), volume: limited }),
        (34, 5 + 28 + 5 + 2 + 1 + 2 * 9 + 1 + 22, Edit::VolumeChange { name: name.clone(), volume: treed }),
        (18, 4, Edit::VolumeDrop { id: VolumeId(6) }),
        (35, 8 + 4 + 1 + 2 + 3, Edit::SessionPut { session: SessionId(2), holder: Box::new(holder()) }),
        (36, 16, Edit::Term { term: Term(2), start: 3 }),
        (19, 8, Edit::SessionDrop { session: SessionId(2) }),
        (20, 24, Edit::Reserve { ino, first: 3, count: 4 }),
        (21, 32, Edit::Punch { ino, first: 3, count: 4, trim: 5 }),
        (23, 8 + 5 + 4 + 2, Edit::XattrPut { ino, name: name.clone(), value: (*b"ab").into() }),
        (24, 8 + 5, Edit::XattrDrop { ino, name }),
        (28, 24, Edit::Numbers { numbers: Numbers { ino: 2, cookie: 3, intent: 4 } }),
    ];
    for (code, length, edit) in rows {
        let mut bytes = Vec::new();
        put_edit(&mut bytes, &edit);
        assert_eq!((bytes[0], bytes.len() - 1), (code, length), "{edit:?}");
        match code {
            1 => inode_drawn(&bytes, 9),
            2 => drawn(&bytes, &[(9, 4, 0xffff_ffff), (13, 8, u64::MAX - 1), (21, 8, 9), (29, 8, 10)]),
            9 => drawn(&bytes, &[(1, 8, 2), (9, 8, 3), (17, 8, 4), (25, 1, 10), (26, 2, 3), (28, 1, b'x'.into())]),
            12 => drawn(&bytes, &[(1, 8, 2), (9, 8, 3), (17, 2, 3), (19, 4, 7), (27, 4, 9)]),
            37 => drawn(&bytes, &[(1, 4, 4), (5, 8, 5), (13, 1, 2), (14, 8, 2), (22, 8, 3)]),
            13 => drawn(&bytes, &[(1, 4, 4), (5, 8, 5), (13, 2, 1), (15, 4, 1), (19, 4, 2), (23, 1, 1), (24, 1, 6)]),
            17 => drawn(&bytes, &[(1, 4, 6), (5, 8, 7), (13, 8, 8), (21, 2, 3)]),
            31 => {
                drawn(&bytes, &[(1, 2, 3), (6, 4, 6), (26, 2, 3), (39, 1, 3)]);
                layers_drawn(&bytes, 39);
            }
            32 => drawn(&bytes, &[(1, 2, 3), (6, 4, 6), (26, 2, 3), (39, 1, 1), (40, 1, 0)]),
            33 => drawn(
                &bytes,
                &[(39, 1, 0), (40, 1, 0), (41, 1, 2), (42, 1, 1), (43, 8, 500), (51, 1, 6), (52, 8, 1 << 20)],
            ),
            35 => drawn(&bytes, &[(1, 8, 2), (9, 4, 6), (13, 1, 1), (14, 2, 3), (16, 1, b'x'.into())]),
            36 => drawn(&bytes, &[(1, 8, 2), (9, 8, 3)]),
            29 => drawn(&bytes, &[(1, 2, 3), (3, 1, b'x'.into()), (6, 4, 6), (10, 8, 7), (18, 8, 8), (26, 2, 3)]),
            23 => drawn(&bytes, &[(1, 8, 2), (9, 2, 3), (11, 1, b'x'.into()), (14, 4, 2), (18, 1, b'a'.into())]),
            _ => {}
        }
    }
}

#[test]
fn a_volume_has_layers_behind_it_or_is_as_before() {
    let name = Name::new(b"xyz").expect("a name");
    let (id, size_bytes, layers) = (VolumeId(6), Some(9), layers_of_all_kinds());
    let policy = TierPolicy::default();
    let limits = Limits::NONE;
    let volume = Volume { id, name, root: Ino(7), created: Time(8), size_bytes, layers, policy, limits };
    let bare = Volume { layers: Box::default(), ..volume.clone() };
    let (bytes, bare_bytes) = (values::encode_volume(&volume), values::encode_volume(&bare));
    assert_eq!((bytes[0], bare_bytes[0], &bytes[1..34]), (2, 1, &bare_bytes[1..]));
    layers_drawn(&bytes, 34);
    assert_eq!((values::decode_volume(&bytes), values::decode_volume(&bare_bytes)), (Ok(volume), Ok(bare)));
    // Each with one byte changed: the count, a code, an operation's name, an error's.
    let kind = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[34 + at] = byte;
        values::decode_volume(&changed).map(drop).map_err(|error| error.kind)
    };
    assert_eq!([kind(0, 0), kind(0, 17), kind(0, 4), kind(1, 0)], [Err(Kind::Corrupt); 4]);
    assert_eq!([kind(1, 4), kind(16, b'l'), kind(16, 0xff), kind(22, b'l')], [Err(Kind::Newer); 4]);
    // A delay of no time, and one of more than a minute.
    assert_eq!([kind(5, 0), kind(12, 1)], [Err(Kind::Corrupt); 2]);
}

#[test]
fn a_volume_has_a_policy_before_its_layers_or_is_as_before() {
    let (id, name, layers) = (VolumeId(6), Name::new(b"xyz").expect("a name"), layers_of_all_kinds());
    let policy = TierPolicy::FlashOnly;
    let (size_bytes, limits) = (None, Limits::NONE);
    let layered = Volume { id, name, root: Ino(7), created: Time(8), size_bytes, layers, policy, limits };
    let bare = Volume { layers: Box::default(), ..layered.clone() };
    let (bytes, bare_bytes) = (values::encode_volume(&layered), values::encode_volume(&bare));
    assert_eq!((bytes[0], &bytes[34..36], &bare_bytes[34..]), (3, &[1, 1][..], &[1, 0][..]));
    layers_drawn(&bytes, 36);
    assert_eq!((values::decode_volume(&bytes), values::decode_volume(&bare_bytes)), (Ok(layered), Ok(bare)));
    let mut changed = bare_bytes;
    changed[34] = 2;
    assert_eq!(values::decode_volume(&changed).map_err(|error| error.kind), Err(Kind::Newer), "no policy is left out");
}

fn some_limits() -> Limits {
    Limits::NONE.with(&[(Limit::Iops, 500), (Limit::WriteBandwidth, 1 << 20)]).expect("within bounds")
}

#[test]
fn a_volume_has_limits_behind_its_policy_and_before_its_layers() {
    let (id, name, layers) = (VolumeId(6), Name::new(b"xyz").expect("a name"), layers_of_all_kinds());
    let (size_bytes, policy, limits) = (None, TierPolicy::WriteBack, some_limits());
    let full = Volume { id, name, root: Ino(7), created: Time(8), size_bytes, layers, policy, limits };
    let bytes = values::encode_volume(&full);
    assert_eq!((bytes[0], &bytes[34..38]), (4, &[0, 1, 2, 1][..]));
    layers_drawn(&bytes, 55);
    let pinned = Volume { policy: TierPolicy::FlashOnly, layers: Box::default(), ..full.clone() };
    let pinned_bytes = values::encode_volume(&pinned);
    assert_eq!((pinned_bytes.len(), &pinned_bytes[34..37]), (55, &[1, 0, 2][..]));
    assert_eq!((values::decode_volume(&bytes), values::decode_volume(&pinned_bytes)), (Ok(full), Ok(pinned)));
    // Each with one byte changed: the policy; a limit's code, to none, to another's, to the other limit's; a value, to none and beyond
    // its bounds.
    let kind = |at: usize, byte: u8| {
        let mut changed = pinned_bytes.clone();
        changed[34 + at] = byte;
        values::decode_volume(&changed).map(drop).map_err(|error| error.kind)
    };
    assert_eq!([kind(0, 2), kind(3, 0), kind(3, 10)], [Err(Kind::Newer); 3], "nothing is left out");
    assert_eq!([kind(3, 6), kind(15, 0), kind(20, 1)], [Err(Kind::Corrupt); 3]);
    assert_eq!(kind(3, 3), Ok(()));
}

#[test]
fn limits_of_trees_come_behind_those_of_their_volume() {
    let (id, name, layers) = (VolumeId(6), Name::new(b"xyz").expect("a name"), Box::default());
    let tree =
        |limits: Limits, project, limit| limits.with_tree(project, Ino(9), &[(limit, 5)]).expect("within bounds");
    let limits = tree(tree(some_limits(), 7, Limit::Iops), 8, Limit::Burst);
    let (size_bytes, policy) = (None, TierPolicy::WriteBack);
    let volume = Volume { id, name, root: Ino(7), created: Time(8), size_bytes, layers, policy, limits };
    let bytes = values::encode_volume(&volume);
    // Behind two limits of the volume: the number of trees; project, directory, and the number of limits of the first.
    assert_eq!((bytes[0], bytes[55], bytes[56], bytes[60], bytes[68]), (5, 2, 7, 9, 1));
    assert_eq!((bytes.len(), values::decode_volume(&bytes)), (100, Ok(volume)));
    let kind = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        values::decode_volume(&changed).map(drop).map_err(|error| error.kind)
    };
    // A project twice, projects that fall, none, a weight, a reservation, a limit of a newer version.
    assert_eq!([kind(56, 8), kind(56, 9), kind(56, 0), kind(69, 8), kind(69, 9)], [Err(Kind::Corrupt); 5]);
    assert_eq!(kind(69, 10), Err(Kind::Newer));
}

#[test]
fn summary_at_a_segments_end() {
    let entry = summary::SummaryEntry {
        block: 1,
        group: GroupId(2),
        volume: VolumeId(3),
        ino: Ino(4),
        offset: 5,
        index: Index(6),
        crc: 7,
    };
    let bytes = summary::encode(UUID, SegmentId(8), Life(9), &[entry; 103]);
    // 103 entries of 40 bytes are more than one block; the footer's block comes after them.
    assert_eq!(bytes.len(), 3 * 4096);
    drawn(&bytes, &[(0, 2, 1), (2, 2, 0), (4, 4, 2), (8, 4, 3), (12, 4, 7), (16, 8, 4), (24, 8, 5), (32, 8, 6)]);
    let footer = &bytes[8192..];
    assert_eq!((&footer[..8], &footer[8..24]), (&b"SINTSUM1"[..], &UUID.0[..]));
    let (entries, own) = (u64::from(crc32c(&bytes[..103 * 40])), u64::from(crc32c(&footer[..40])));
    drawn(footer, &[(24, 4, 8), (28, 4, 9), (32, 4, 103), (36, 4, entries), (40, 4, own)]);
}

#[test]
fn keys_are_big_endian() {
    let (volume, ino) = (VolumeId(0x0102_0304), Ino::new(5, GroupId(6)));
    let id = IntentId { group: GroupId(6), number: 8 };
    let part = |numbers: &[(u64, usize)]| {
        let bytes = numbers.iter().flat_map(|(number, size)| number.to_be_bytes()[8 - size..].to_vec());
        bytes.collect::<Vec<u8>>()
    };
    let own = |kind: u64| part(&[(6, 4), (0x0102_0304, 4), (kind, 1), (ino.0, 8)]);
    let with = |mut key: Vec<u8>, more: &[(u64, usize)]| {
        key.extend(part(more));
        key
    };
    let (brick, group) =
        (|kind| part(&[(0xffff_ffff, 4), (0, 4), (kind, 1)]), |kind| part(&[(6, 4), (0, 4), (kind, 1)]));
    assert_eq!(keys::group(GroupId(6)), group(0x01));
    assert_eq!(keys::inode(volume, ino), with(own(0x10), &[(0, 4)]));
    assert_eq!(keys::entry(volume, ino, b"ab"), with(own(0x11), &[(0x6162, 2), (0, 1), (0, 4)]));
    assert_eq!(keys::cookie(volume, ino, 7), with(own(0x12), &[(7, 8), (0, 4)]));
    assert_eq!(keys::target(volume, ino), with(own(0x13), &[(0, 4)]));
    assert_eq!(keys::leaf(volume, LeafKey { ino, leaf: 7 }), with(own(0x14), &[(7, 8), (0, 4)]));
    assert_eq!(keys::orphan(volume, ino), own(0x15));
    assert_eq!(keys::intent(id), with(group(0x16), &[(8, 8)]));
    assert_eq!(keys::followed(GroupId(6), id), with(group(0x17), &[(6, 4), (8, 8)]));
    assert_eq!(keys::followed_id(&keys::followed(GroupId(1), id)), id);
    assert_eq!(keys::lock(GroupId(6), id), with(group(0x22), &[(6, 4), (8, 8)]));
    assert_eq!(keys::lock_id(&keys::lock(GroupId(1), id)), id);
    assert_eq!(keys::session(GroupId(6), SessionId(9)), with(group(0x18), &[(9, 8)]));
    assert_eq!(keys::volume(b"ab"), part(&[(0, 8), (0x19, 1), (0x6162, 2)]));
    assert_eq!(keys::segment(SegmentId(3)), with(brick(0x30), &[(3, 4)]));
    assert_eq!(keys::replay(), brick(0x31));
    assert_eq!(keys::summary(SegmentId(3), 4), with(brick(0x32), &[(3, 4), (4, 4)]));
}

#[test]
fn values_of_the_index() {
    let reserved = Numbers { ino: 7, cookie: 8, intent: 9 };
    let (applied, term) = (Index(1), Term(2));
    let row = GroupRow { applied, term, next_ino: 3, next_cookie: 4, next_intent: 5, next_volume: 6, reserved };
    let mut bytes = values::encode_group(&row);
    drawn(&bytes, &[(0, 1, 2), (1, 8, 1), (9, 8, 2), (17, 8, 3), (25, 8, 4), (33, 8, 5), (41, 4, 6)]);
    drawn(&bytes, &[(45, 8, 7), (53, 8, 8), (61, 8, 9)]);
    assert_eq!((bytes.len(), values::encode_mark()), (69, vec![1]));
    // Version 1 ends before them.
    bytes.truncate(45);
    bytes[0] = 1;
    assert_eq!(values::decode_group(&bytes), Ok(GroupRow { reserved: Numbers::default(), ..row }));
    let counted = values::encode_counted_inode(&inode(), 77);
    drawn(&counted, &[(0, 1, 2), (93, 8, 77)]);
    assert_eq!((counted.len(), values::decode_counted_inode(&counted)), (101, Ok((inode(), 77))));
    let whole = values::whole_blocks(&inode());
    assert_eq!(values::encode_counted_inode(&inode(), whole), values::encode_inode(&inode()));
    assert_eq!(values::decode_counted_inode(&values::encode_inode(&inode())), Ok((inode(), whole)));
    let bytes = values::encode_inode(&inode());
    assert_eq!(bytes.len(), 93);
    inode_drawn(&bytes, 1);
    let bytes = values::encode_entry(Ino(2), FileKind::Directory, 3);
    drawn(&bytes, &[(0, 1, 1), (1, 1, 4), (2, 8, 2), (10, 8, 3)]);
    let bytes = values::encode_cookie(b"ab", Ino(2), FileKind::Fifo);
    drawn(&bytes, &[(1, 1, 1), (2, 8, 2), (10, 2, number(b"ab", 0, 2))]);
    let results = vec![(RequestId(2), Outcome::Wrote { offset: 3, length: 4 })];
    let mut row = SessionRow { holder: None, results };
    let bytes = values::encode_session(&row);
    drawn(&bytes, &[(0, 1, 1), (1, 2, 1), (3, 8, 2), (11, 1, 2), (12, 8, 3), (20, 4, 4)]);
    assert_eq!(values::decode_session(&bytes), Ok(row.clone()));
    row.holder = Some(holder());
    let bytes = values::encode_session(&row);
    drawn(&bytes, &[(0, 1, 2), (1, 4, 6), (5, 1, 1), (6, 2, 3), (8, 1, b'x'.into()), (11, 2, 1), (13, 8, 2)]);
    assert_eq!(values::decode_session(&bytes), Ok(row));
    let terms =
        [(2, 3, 4), (5, 6, 0)].map(|(term, first, start)| TermRow { term: Term(term), first: Index(first), start });
    let bytes = values::encode_terms(&terms);
    drawn(&bytes, &[(0, 1, 1), (1, 2, 2), (3, 8, 2), (11, 8, 3), (19, 8, 4), (27, 8, 5), (35, 8, 6), (43, 8, 0)]);
    assert_eq!(values::decode_terms(&bytes).as_deref(), Ok(&terms[..]));
    let falling = [terms[1], terms[0]];
    assert!(values::decode_terms(&values::encode_terms(&falling)).is_err());
    let promise = Promise { term: Term(2), voted_for: Some(ReplicaId(3)) };
    let row = ReplicaRow { promise, before: None };
    let bytes = values::encode_replica(&row);
    drawn(&bytes, &[(0, 1, 1), (1, 8, 2), (9, 8, 3)]);
    assert_eq!((bytes.len(), values::decode_replica(&bytes)), (17, Ok(row)));
    let nobody = ReplicaRow { promise: Promise { voted_for: None, ..promise }, ..row };
    assert_eq!(values::decode_replica(&values::encode_replica(&nobody)), Ok(nobody));
    assert!(values::decode_replica(&[&bytes[..], &[0]].concat()).is_err());
    let noted = ReplicaRow { before: Some((Index(5), Term(1))), ..row };
    let bytes = values::encode_replica(&noted);
    drawn(&bytes, &[(0, 1, 2), (1, 8, 2), (9, 8, 3), (17, 8, 5), (25, 8, 1)]);
    assert_eq!((bytes.len(), values::decode_replica(&bytes)), (33, Ok(noted)));
    assert!(values::decode_replica(&bytes[..25]).is_err());
    let heal = HealRow { rows: true, started: 5 };
    let bytes = values::encode_heal(&heal);
    drawn(&bytes, &[(0, 1, 1), (1, 1, 1), (2, 8, 5)]);
    assert_eq!((bytes.len(), values::decode_heal(&bytes)), (10, Ok(heal)));
    assert!(values::decode_heal(&[&bytes[..], &[0]].concat()).is_err());
    let live = vec![u64::MAX, 1];
    let (life, stream, state) = (Life(2), Stream::Bulk, SegmentState::Sealed);
    let bytes = values::encode_segment(&SegmentRow { state, life, stream, sequence: 3, opened: 5, used: 4, live });
    drawn(&bytes, &[(1, 1, 3), (2, 1, 2), (3, 4, 2), (7, 8, 3), (15, 8, 5), (23, 4, 4), (27, 4, 2)]);
    drawn(&bytes, &[(31, 8, u64::MAX), (39, 8, 1)]);
    let extents = vec![Extent { first: 3, end: 8, left: Some(4) }];
    let bytes = values::encode_reserve(&Reserve { project: 2, extents });
    drawn(&bytes, &[(0, 1, 1), (1, 4, 2), (5, 4, 1), (9, 8, 3), (17, 8, 5), (25, 8, 4)]);
    let bytes = values::encode_usage(&Usage { blocks: 2, inodes: 3, reserved: 4, names: Some(5) });
    drawn(&bytes, &[(0, 1, 2), (1, 8, 2), (9, 8, 3), (17, 8, 4), (25, 8, 5)]);
    let of_first_revision = Usage { blocks: 2, inodes: 3, reserved: 4, names: None };
    let bytes = values::encode_usage(&of_first_revision);
    drawn(&bytes, &[(0, 1, 1), (1, 8, 2), (9, 8, 3), (17, 8, 4)]);
    assert_eq!((bytes.len(), values::decode_usage(&bytes)), (25, Ok(of_first_revision)));
    let replay = ReplayRow {
        number: 1,
        previous_crc: 2,
        epoch: 3,
        sequence: 4,
        segment: SegmentId(5),
        block: 6,
        next_sequence: [7, 8, 9],
    };
    let bytes = values::encode_replay(&replay);
    drawn(&bytes, &[(1, 8, 1), (9, 4, 2), (13, 8, 3), (21, 8, 4), (29, 4, 5), (33, 2, 6)]);
    drawn(&bytes, &[(35, 8, 7), (43, 8, 8), (51, 8, 9)]);
    let at = Place { segment: SegmentId(14), block: 15 };
    let passage = Passage { from: 10, to: 11, epoch: 12, previous_crc: 13, at, bad: None };
    let cut = Cut { group: GroupId(16), from: Index(17), through: 18 };
    let passages = Passages { over: vec![passage], cuts: vec![cut] };
    let bytes = values::encode_damaged_replay(&replay, &passages);
    drawn(&bytes, &[(0, 1, 2), (1, 8, 1), (59, 2, 1), (61, 2, 1), (63, 8, 10), (71, 8, 11), (79, 8, 12), (87, 4, 13)]);
    drawn(&bytes, &[(91, 4, 14), (95, 2, 15), (97, 4, u64::from(u32::MAX)), (103, 4, 16), (107, 8, 17), (115, 8, 18)]);
    assert_eq!(values::decode_damaged_replay(&bytes), Ok((replay, passages)));
}

#[test]
fn where_the_scrub_is() {
    let bad = |why| Bad {
        place: Place { segment: SegmentId(5), block: 6 },
        life: Life(7),
        blocks: 8,
        volume: VolumeId(9),
        ino: Ino(10),
        offset: 11,
        why,
    };
    let position = scrub::Position {
        state: scrub::State::Running,
        began: Time(1),
        ended: Time(2),
        next: SegmentId(3),
        blocks: 4,
        bad: [Why::Differs, Why::Unreadable, Why::Untold].map(bad).to_vec(),
        unlisted: 12,
    };
    let bytes = values::encode_scrub(&position);
    drawn(&bytes, &[(0, 1, 1), (1, 1, 1), (2, 8, 1), (10, 8, 2), (18, 4, 3), (22, 8, 4), (30, 8, 12), (38, 4, 3)]);
    for (cause, at) in (0..3).zip([42, 77, 112]) {
        drawn(&bytes, &[(at, 1, cause), (at + 1, 4, 5), (at + 5, 2, 6), (at + 7, 4, 7), (at + 11, 4, 8)]);
        drawn(&bytes, &[(at + 15, 4, 9), (at + 19, 8, 10), (at + 27, 8, 11)]);
    }
    assert_eq!(values::decode_scrub(&bytes).expect("just encoded"), position);
}

#[test]
fn leaf() {
    let mut leaf = Leaf::default();
    leaf.set(63, Slot::Hole);
    leaf.set(1, Slot::Local { place: Place { segment: SegmentId(2), block: 3 }, crc: 4, birth: 5 });
    let bytes = leaf.encode();
    assert_eq!(bytes.len(), 10 + 2 * 16);
    drawn(&bytes, &[(0, 1, 1), (1, 1, 0), (2, 8, 1 << 63 | 2)]);
    drawn(&bytes, &[(10, 1, 1), (11, 1, 0), (12, 2, 3), (14, 4, 2), (18, 4, 4), (22, 4, 5), (26, 8, 0), (34, 8, 0)]);
    leaf.set(1, Slot::Local { place: Place::MISSING, crc: 4, birth: 5 });
    let bytes = leaf.encode();
    drawn(&bytes, &[(10, 1, 9), (11, 1, 0), (12, 2, 0), (14, 4, 0), (18, 4, 4), (22, 4, 5)]);
}
