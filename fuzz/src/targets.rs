//! The targets of fuzzing: each has inputs that the product's own encoders made, and a parser. Inputs with a checksum
//! are also tried with the right one, or nothing behind it would ever be reached.

use crate::{acl, heal, recordings, replicas, request, wire_frames};
use base::checksum::{crc32c, crc32c_append};
use base::*;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use store::format::batch::{BatchHeader, FIXED_BYTES};
use store::format::bytes::Reader;
use store::format::devices::{DeviceId, DeviceRow, DeviceTable, FIRST, State as Part, Tier};
use store::format::label::Label;
use store::format::leaf::{self, Encoded, Leaf, Slot};
use store::format::passages::{Cut, Passage, Passages};
use store::format::record::{self, Frame, Head, Logged, Moved, Moves, Places, Run, Vote};
use store::format::segment::{SegmentHeader, Stream};
use store::format::superblock::{EpochEnd, Features, SEVERAL_DEVICES, State, Superblock};
use store::format::values::{
    self, GroupRow, HealRow, Promise, ReplayRow, ReplicaRow, SegmentRow, SegmentState, SessionRow, TermRow,
};
use store::format::{Uuid, edits, keys, summary};
use store::purge::Purge;
use store::reserve::{Extent, Reserve};
use store::usage::Usage;

/// The answer of a parser as a number: equal for answers of one kind.
pub type Answer = u64;

/// One target.
pub struct Target {
    /// Its name, also of its directory in the corpus.
    pub name: &'static str,
    /// Inputs that are fine.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Parses an input; panics where a promise is broken.
    pub run: fn(&[u8]) -> Answer,
    /// Words of a text's grammar.
    pub words: &'static [&'static str],
    /// Inputs that take about five seconds.
    pub usual: u64,
}

/// All targets.
pub const TARGETS: [Target; 19] = [
    binary("superblock", superblocks, superblock, 400_000),
    binary("label", labels, label, 2_000_000),
    binary("device_table", device_tables, device_table, 200_000),
    binary("segment", segments, segment, 2_000_000),
    binary("batch", batches, batch, 300_000),
    binary("record", records, framed, 1_500_000),
    binary("leaf", leaves, leaf, 800_000),
    binary("summary", summaries, entries, 400_000),
    binary("row", rows, row, 3_000_000),
    binary("heal_page", heal::seeds, heal::run, 1_000_000),
    binary("request", request::seeds, request::run, 3_000_000),
    binary("acl", acl::seeds, acl::run, 1_000_000),
    binary("recording", recordings::seeds, recordings::run, 60_000),
    binary("wire_frame", wire_frames::frames, wire_frames::frame, 200_000),
    binary("wire_request", wire_frames::requests, wire_frames::request, 300_000),
    binary("wire_reply", wire_frames::replies, wire_frames::reply, 300_000),
    binary("wire_message", wire_frames::messages, wire_frames::message, 600_000),
    binary("replica_told", replicas::told_seeds, replicas::told, 3_000_000),
    binary("replica_pulse", replicas::pulse_seeds, replicas::pulse, 6_000_000),
];

/// A target that fails on purpose: a panic three fields deep in what the superblock's encoder makes.
pub fn canary() -> Target {
    let run = |bytes: &[u8]| {
        let deep = bytes.starts_with(b"SINTERSB") && bytes.get(12) == Some(&2) && bytes.get(72..74) == Some(&[0xff; 2]);
        assert!(!deep, "the canary sings");
        superblock(bytes)
    };
    binary("canary", superblocks, run, 400_000)
}

/// Another: it believes a length.
pub fn greedy() -> Target {
    let run = |bytes: &[u8]| {
        let length = bytes.get(88..92).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let believed: Vec<u8> = Vec::with_capacity(length as usize);
        superblock(bytes) + believed.capacity() as u64 % 2
    };
    binary("greedy", superblocks, run, 400_000)
}

const fn binary(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, run: fn(&[u8]) -> Answer, usual: u64) -> Target {
    Target { name, seeds, run, words: &[], usual }
}

/// The answer for a result: which error, or which shape of value.
pub fn answer<T>(result: &Result<T>, shape: impl FnOnce(&T) -> u64) -> Answer {
    let mut hasher = DefaultHasher::new();
    match result {
        Ok(value) => (1, shape(value)).hash(&mut hasher),
        Err(error) => (0, error.kind as u64, error.what).hash(&mut hasher),
    }
    hasher.finish()
}

/// The size of a number, in powers of two: the shape of a count.
pub fn scale(count: usize) -> u64 {
    u64::from(usize::BITS - count.leading_zeros())
}

/// The bytes with the right checksum, of all bytes before it, at `at`.
fn resealed(bytes: &[u8], at: usize) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let crc = crc32c(bytes.get(..at)?);
    bytes.get_mut(at..at + 4)?.copy_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

const UUID: Uuid = Uuid([0xab; 16]);

fn superblocks() -> Vec<Vec<u8>> {
    let superblock = |ends: u64| Superblock {
        uuid: UUID,
        state: if ends == 0 { State::Formatting } else { State::Ready },
        features: Features { compatible: 1, read_only: 0, incompatible: 0 },
        sequence: 4,
        segment_bytes: 64 << 20,
        segments: 64,
        groups: 64,
        epoch: ends + 1,
        ends: (0..ends).map(|epoch| EpochEnd { epoch, batch: 100 * epoch }).collect(),
        devices: 0,
    };
    let mut all = [0, 1, 7].map(superblock).to_vec();
    let features = Features { incompatible: SEVERAL_DEVICES, ..Features::default() };
    all.push(Superblock { features, devices: 3, ..superblock(2) });
    all.iter().map(Superblock::encode).collect()
}

fn superblock(bytes: &[u8]) -> Answer {
    let read = |bytes: &[u8]| {
        let read = Superblock::decode(bytes);
        if let Ok(read) = &read {
            assert!(Superblock::decode(&read.encode()).as_ref() == Ok(read), "it does not read back as it was written");
        }
        answer(&read, |read| scale(read.ends.len()) << 8 | u64::from(read.state == State::Ready))
    };
    resealed(bytes, 4092).map_or(0, |sealed| read(&sealed)) ^ read(bytes).rotate_left(1)
}

fn labels() -> Vec<Vec<u8>> {
    let label = |device| Label { uuid: UUID, segment_bytes: 64 << 20, segments: 100, device };
    [FIRST, DeviceId(3)].map(|device| label(device).encode()[..512].to_vec()).to_vec()
}

fn device_tables() -> Vec<Vec<u8>> {
    let one = DeviceTable::of_one(UUID, 64);
    let mut several = DeviceTable { sequence: 7, next: DeviceId(9), ..one.clone() };
    let disk = |id, first| DeviceRow { id: DeviceId(id), tier: Tier::Disk, state: Part::Leaving, first, segments: 100 };
    several.rows.extend([disk(3, 64), disk(8, 164)]);
    vec![one.encode(), several.encode()]
}

fn device_table(bytes: &[u8]) -> Answer {
    let read = |bytes: &[u8]| {
        let read = DeviceTable::decode(bytes);
        if let Ok(read) = &read {
            assert!(
                DeviceTable::decode(&read.encode()).as_ref() == Ok(read),
                "it does not read back as it was written"
            );
        }
        answer(&read, |read| scale(read.rows.len()) << 8)
    };
    resealed(bytes, 8188).map_or(0, |sealed| read(&sealed)) ^ read(bytes).rotate_left(1)
}

fn label(bytes: &[u8]) -> Answer {
    let read = |bytes: &[u8]| {
        let read = Label::decode(bytes);
        if let Ok(read) = &read {
            assert!(Label::decode(&read.encode()).as_ref() == Ok(read), "it does not read back as it was written");
        }
        answer(&read, |_| 0)
    };
    resealed(bytes, 508).map_or(0, |sealed| read(&sealed)) ^ read(bytes).rotate_left(1)
}

fn segments() -> Vec<Vec<u8>> {
    let (segment, life, sequence, epoch) = (SegmentId(3), Life(4), 5, 6);
    let header = |stream| SegmentHeader { uuid: UUID, segment, life, stream, sequence, epoch }.encode()[..68].to_vec();
    [Stream::Commit, Stream::Bulk, Stream::Cold].map(header).to_vec()
}

fn segment(bytes: &[u8]) -> Answer {
    let read = |bytes: &[u8]| {
        let read = SegmentHeader::decode(bytes);
        if let Ok(read) = &read {
            assert!(SegmentHeader::decode(&read.encode()).as_ref() == Ok(read), "it does not read back");
        }
        answer(&read, |read| u64::from(read.stream.code()))
    };
    resealed(bytes, 64).map_or(0, |sealed| read(&sealed)) ^ read(bytes).rotate_left(1)
}

const FRAME: Frame = Frame { uuid: UUID, life: Life(4), sequence: 5, replica: ReplicaId(1) };

fn head(outcome: Outcome) -> Head {
    let (group, term, index, volume) = (GroupId(1), Term(1), Index(3), VolumeId(4));
    Head { group, term, index, volume, session: SessionId(5), request: RequestId(6), outcome }
}

fn inode() -> Inode {
    Inode {
        kind: FileKind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        links: 3,
        rdev: 0,
        project: 5,
        generation: 6,
        size: 7,
        trim: 8,
        entries: 0,
        parent: Ino(10),
        atime: Time(11),
        mtime: Time(12),
        ctime: Time(13),
        btime: Time(-1),
        dead: false,
        xattrs: base::Attributes::new(true, Some(base::TierHint::Disk)),
        guard: base::Guard { immutable: true, append_only: true, hands_down_project: false },
    }
}

fn volume() -> Volume {
    let name = Name::new(b"home").expect("a name");
    Volume {
        id: VolumeId(6),
        name,
        root: Ino(7),
        created: Time(8),
        size_bytes: Some(1 << 30),
        layers: Box::default(),
        policy: base::TierPolicy::default(),
        limits: base::Limits::NONE,
    }
}

fn layered() -> Volume {
    let delay = Layer::Delay { operations: Operations::All, ns: 5_000_000 };
    let fault = Layer::Fault { operations: Operations::Named("read"), kind: Kind::Io, every: 100 };
    Volume { layers: [Layer::ReadOnly, delay, fault].into(), ..volume() }
}

fn intent() -> Intent {
    let id = IntentId { group: GroupId(4), number: 5 };
    let edits = vec![Edit::InodeDrop { ino: Ino(2) }, Edit::OrphanDrop { ino: Ino(2) }];
    Intent { id, follow: vec![Follow { volume: VolumeId(1), group: GroupId(2), edits }] }
}

fn some_edits() -> Vec<Vec<Edit>> {
    let (ino, time, id) = (Ino(2), Time(3), intent().id);
    let name = Name::new(b"name").expect("a name");
    let attribute = Name::of_attribute(b"user.x").expect("a name");
    vec![
        vec![
            Edit::Map { ino, first: 3, crcs: (7..12).collect() },
            Edit::InodeExtend { ino, size: 4, time, kill_privileges: true },
        ],
        vec![
            Edit::InodePut { ino, inode: inode() },
            Edit::EntryPut { dir: ino, name: name.clone(), ino: Ino(3), kind: FileKind::Link, cookie: 4 },
            Edit::TargetPut { ino, target: (*b"goal").into() },
            Edit::InodeTouch { ino, links: -1, entries: 1, mtime: time, ctime: time },
        ],
        vec![
            Edit::InodeParent { ino, parent: Ino(5) },
            Edit::InodeCut { ino, size: 4, trim: 5, time },
            Edit::Punch { ino, first: 3, count: 4, trim: 5 },
            Edit::Reserve { ino, first: 3, count: 4 },
            Edit::EntryDrop { dir: ino, name, cookie: 4 },
            Edit::IntentPut(intent()),
        ],
        vec![
            Edit::OrphanPut { ino },
            Edit::IntentDrop { id },
            Edit::FollowedPut { id },
            Edit::FollowedDrop { id },
            Edit::VolumePut(volume()),
            Edit::VolumeChange { name: attribute.clone(), volume: volume() },
            Edit::VolumeDrop { id: VolumeId(6) },
            Edit::SessionDrop { session: SessionId(2) },
            Edit::Numbers { numbers: Numbers { ino: 2, cookie: 3, intent: 4 } },
            Edit::XattrPut { ino, name: attribute.clone(), value: (*b"ab").into() },
            Edit::XattrDrop { ino, name: attribute },
        ],
        vec![
            Edit::SessionPut { session: SessionId(2), holder: Box::new(holder()) },
            Edit::Term { term: Term(2), start: 3 },
        ],
        vec![Edit::LockPut { id, inos: [Ino(3), Ino(4)].into() }, Edit::LockDrop { id }],
    ]
}

fn holder() -> Holder {
    Holder { client: Name::new(b"host").expect("a name"), volume: VolumeId(1), locks: true }
}

fn session() -> SessionRow {
    let results = vec![(RequestId(2), Outcome::Wrote { offset: 3, length: 4 })];
    SessionRow { holder: Some(holder()), results }
}

fn records() -> Vec<Vec<u8>> {
    let runs = [Run { place: Place { segment: SegmentId(14), block: 15 }, count: 5 }];
    let framed = |replicated: &[u8]| {
        let mut bytes = Vec::new();
        record::put_framed(&mut bytes, &FRAME, &runs, replicated);
        bytes
    };
    let outcomes = [Outcome::Done, Outcome::Inode(Ino(2)), Outcome::Wrote { offset: 7, length: 8 }, Outcome::Done];
    let record = |(edits, outcome): (Vec<Edit>, Outcome)| {
        let mut replicated = Vec::new();
        record::encode_replicated(&mut replicated, &head(outcome), &edits);
        framed(&replicated)
    };
    let mut all: Vec<_> = some_edits().into_iter().zip(outcomes).map(record).collect();
    let moved =
        Moved { ino: Ino(2), block: 3, old: Place { segment: SegmentId(4), block: 5 }, crc: 6, index: Index(7) };
    let mut replicated = Vec::new();
    record::encode_moves(&mut replicated, &Moves { group: GroupId(1), volume: VolumeId(2), blocks: vec![moved; 3] });
    all.push(framed(&replicated));
    let volume = layered();
    all.push(record((vec![Edit::VolumeChange { name: volume.name.clone(), volume }], Outcome::Done)));
    let mut replicated = Vec::new();
    let (group, term) = (GroupId(1), Term(2));
    record::encode_vote(&mut replicated, &Vote { group, term, voted_for: Some(ReplicaId(3)) });
    let mut vote = Vec::new();
    record::put_framed(&mut vote, &FRAME, &[], &replicated);
    all.push(vote);
    all
}

fn framed(bytes: &[u8]) -> Answer {
    let mut sealed = bytes.to_vec();
    if let Some(length) = sealed.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
        && (8..=sealed.len()).contains(&length)
    {
        let crc = crc32c_append(crc32c(&UUID.0), &sealed[8..length]);
        sealed[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    one_record(&mut Reader::new(&sealed)).0 ^ one_record(&mut Reader::new(bytes)).0.rotate_left(1)
}

/// Reads the next record, and writes it again. Returns also whether there was one.
fn one_record(reader: &mut Reader<'_>) -> (Answer, bool) {
    let read = record::take_framed(reader, UUID, FRAME.life, FRAME.sequence);
    if let Ok((logged, runs)) = &read {
        let mut replicated = Vec::new();
        match logged {
            Logged::Record(record) => {
                let record::Record { group, term, index, volume, session, request, outcome, ref edits } = *record;
                let head = Head { group, term, index, volume, session, request, outcome };
                record::encode_replicated(&mut replicated, &head, edits);
            }
            Logged::Moves(moves) => record::encode_moves(&mut replicated, moves),
            Logged::Vote(vote) => record::encode_vote(&mut replicated, vote),
        }
        let mut again = Vec::new();
        record::put_framed(&mut again, &FRAME, runs, &replicated);
        let back = record::take_framed(&mut Reader::new(&again), UUID, FRAME.life, FRAME.sequence);
        assert!(back.as_ref() == Ok(&(logged.clone(), runs.clone())), "it does not read back as it was written");
        // Replay takes a place for each block.
        assert!(Places::of(runs).count() >= logged.mapped_blocks(), "a block without a place");
    }
    let told = answer(&read, |(logged, runs)| {
        let kind = match logged {
            Logged::Record(record) => record.edits.iter().fold(0, |kinds, edit| kinds | 1 << edit_kind(edit)),
            Logged::Moves(moves) => scale(moves.blocks.len()) << 40,
            Logged::Vote(vote) => 1 << 50 | u64::from(vote.voted_for.is_some()) << 51,
        };
        kind ^ scale(runs.len()) << 56
    });
    (told, read.is_ok())
}

/// The code with which an edit is written.
fn edit_kind(edit: &Edit) -> u8 {
    let mut bytes = Vec::new();
    edits::put_edit(&mut bytes, edit);
    bytes[0] % 40
}

fn batches() -> Vec<Vec<u8>> {
    let batch = |records: &[Vec<u8>]| {
        let bytes = records.concat();
        let header = BatchHeader {
            uuid: UUID,
            epoch: 2,
            segment: SegmentId(3),
            life: FRAME.life,
            sequence: FRAME.sequence,
            number: 6,
            previous_crc: 7,
            durable_through: 5,
            header_blocks: 1,
            payload_blocks: 5,
            records: records.len() as u16,
            records_bytes: bytes.len() as u32,
        };
        let mut blocks = vec![0; 4096];
        blocks[FIXED_BYTES..FIXED_BYTES + bytes.len()].copy_from_slice(&bytes);
        header.seal(&mut blocks);
        blocks
    };
    let records = records();
    vec![batch(&[]), batch(&records[..1]), batch(&records[..5]), batch(&records[5..6]), batch(&records[6..])]
}

/// Parses a batch as replay does: its fields, its checksum, each of its records.
fn batch(bytes: &[u8]) -> Answer {
    let mut sealed = bytes.to_vec();
    if let Ok(header) = BatchHeader::peek(bytes)
        && let Some(blocks) = sealed.get_mut(..usize::from(header.header_blocks) * 4096)
    {
        let crc = crc32c_append(crc32c(&blocks[..FIXED_BYTES - 4]), &blocks[FIXED_BYTES..]);
        blocks[FIXED_BYTES - 4..FIXED_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
    let read = |bytes: &[u8]| {
        let read = BatchHeader::check(bytes);
        let mut found = 0;
        if let Ok((header, _)) = &read {
            let mut reader = Reader::new(header.records(bytes));
            for _ in 0..header.records {
                let (one, is_one) = one_record(&mut reader);
                found = (found ^ one).rotate_left(5);
                if !is_one {
                    break;
                }
            }
        }
        answer(&read, |_| found)
    };
    read(&sealed) ^ read(bytes).rotate_left(1)
}

fn leaves() -> Vec<Vec<u8>> {
    let local = |block: u16| Slot::Local { place: Place { segment: SegmentId(2), block }, crc: 4, birth: 5 };
    let mut one = Leaf::default();
    one.set(1, local(3));
    one.set(63, Slot::Hole);
    let mut moved = Leaf::default();
    moved.trim = 9;
    let place = Place { segment: SegmentId(7), block: 8 };
    moved.set(1, Slot::Local { place, crc: 4, birth: leaf::BIRTH_KEPT });
    let mut lacking = Leaf::default();
    lacking.set(2, Slot::Local { place: Place::MISSING, crc: 6, birth: 7 });
    let mut full = Leaf::default();
    (0..64).for_each(|index| full.set(index, local(index as u16)));
    [one, moved, full, Leaf::default(), lacking].map(|leaf| leaf.encode()).to_vec()
}

/// Leaves and what lies over them: the second half of the input is laid over the first, as the index engine does.
fn leaf(bytes: &[u8]) -> Answer {
    let read = Leaf::decode(bytes);
    let encoded = Encoded::new(bytes);
    if let Ok(read) = &read {
        assert!(Leaf::decode(&read.encode()).as_ref() == Ok(read), "it does not read back as it was written");
        let encoded = encoded.as_ref().expect("what reads as a whole reads in parts");
        let places: Result<Vec<_>> = encoded.places().collect();
        assert!(
            places == Ok(read.places().collect()) && encoded.len() == read.len(),
            "its parts differ from the whole"
        );
    }
    if let Ok(encoded) = &encoded {
        (0..64).for_each(|index| drop(encoded.place(index)));
    }
    for at in [10, bytes.len() / 2] {
        let (below, above) = bytes.split_at(at.min(bytes.len()));
        let merged = leaf::merge(Some(below), above);
        match (Leaf::decode(below), Leaf::decode(above)) {
            (Ok(mut below), Ok(above)) => {
                below.lay(&above);
                assert!(Leaf::decode(&merged) == Ok(below), "merged bytes differ from merged leaves");
            }
            _ => drop(Leaf::decode(&merged)),
        }
    }
    answer(&read, |read| scale(read.len()) << 1 | u64::from(read.trim > 0)) ^ answer(&encoded, |_| 0).rotate_left(1)
}

fn summaries() -> Vec<Vec<u8>> {
    let entry = summary::SummaryEntry {
        block: 1,
        group: GroupId(2),
        volume: VolumeId(3),
        ino: Ino(4),
        offset: 5,
        index: Index(6),
        crc: 7,
    };
    let whole = summary::encode(UUID, SegmentId(8), Life(9), &[entry; 3]);
    vec![whole[..120].to_vec(), whole[4096..4096 + 44].to_vec()]
}

fn entries(bytes: &[u8]) -> Answer {
    let read = summary::decode_entries(bytes);
    if let Ok(read) = &read {
        let again = summary::decode_entries(&summary::encode_entries(read));
        assert!(again.as_ref() == Ok(read), "they do not read back as they were written");
    }
    let footer = summary::decode_footer(bytes);
    let sealed = resealed(bytes, 40).map_or(0, |sealed| answer(&summary::decode_footer(&sealed), |_| 0));
    answer(&read, |read| scale(read.len())) ^ answer(&footer, |_| 0).rotate_left(1) ^ sealed.rotate_left(2)
}

/// One row of each kind; the byte before it says which.
fn rows() -> Vec<Vec<u8>> {
    let mut purge = Purge::new(3);
    purge.cut(10..20, 15..20, 7);
    let (life, stream, state) = (Life(2), Stream::Bulk, SegmentState::Sealed);
    let segment = SegmentRow { state, life, stream, sequence: 3, opened: 5, used: 4, live: vec![u64::MAX, 1] };
    let replay = ReplayRow { number: 1, previous_crc: 2, epoch: 3, sequence: 4, ..ReplayRow::default() };
    let at = Place { segment: SegmentId(1), block: 7 };
    let passage = Passage { from: 3, to: 5, epoch: 1, previous_crc: 9, at, bad: None };
    let cut = Cut { group: GroupId(2), from: Index(4), through: 9 };
    let passages = Passages { over: vec![passage], cuts: vec![cut] };
    let group = GroupRow { applied: Index(1), term: Term(1), next_ino: 3, ..GroupRow::default() };
    let attribute = Name::of_attribute(b"user.x").expect("a name");
    let values = [
        values::encode_counted_inode(&inode(), 77),
        values::encode_entry(Ino(2), FileKind::Directory, 3),
        values::encode_cookie(b"ab", Ino(2), FileKind::Fifo),
        values::encode_target(b"goal"),
        values::encode_xattrs(&[(attribute, (*b"value").into())].into()),
        values::encode_volume(&volume()),
        values::encode_intent(&intent()),
        values::encode_purge(&purge),
        values::encode_reserve(&Reserve { project: 2, extents: vec![Extent { first: 3, end: 8, left: Some(4) }] }),
        values::encode_usage(&Usage { blocks: 2, inodes: 3, reserved: 4, names: Some(5) }),
        values::encode_session(&session()),
        values::encode_group(&group),
        values::encode_damaged_replay(&replay, &passages),
        values::encode_segment(&segment),
        keys::leaf(VolumeId(1), LeafKey { ino: Ino(2), leaf: 3 }),
        values::encode_terms(&[TermRow { term: Term(2), first: Index(3), start: 4 }]),
    ];
    let local = values::encode_session(&SessionRow { holder: None, ..session() });
    let promise = Promise { term: Term(2), voted_for: Some(ReplicaId(3)) };
    let replica = |before| values::encode_replica(&ReplicaRow { promise, before });
    let more = [
        (5, values::encode_volume(&layered())),
        (10, local),
        (16, replica(None)),
        (16, replica(Some((Index(5), Term(1))))),
    ];
    let heal = (17, values::encode_heal(&HealRow { rows: true, started: 4 }));
    let numbered = (0..).zip(values).chain(more).chain([heal]);
    numbered.map(|(kind, value)| [vec![kind], value].concat()).collect()
}

fn row(bytes: &[u8]) -> Answer {
    let Some((kind, value)) = bytes.split_first() else { return 0 };
    let kind = kind % 18;
    let read = match kind {
        0 => back(value, values::decode_counted_inode, |(inode, blocks)| values::encode_counted_inode(inode, *blocks)),
        1 => back(value, values::decode_entry, |&(ino, kind, cookie)| values::encode_entry(ino, kind, cookie)),
        2 => {
            back(value, values::decode_cookie, |(name, ino, kind)| values::encode_cookie(name.as_bytes(), *ino, *kind))
        }
        3 => back(value, values::decode_target, |target| values::encode_target(target)),
        4 => back(value, values::decode_xattrs, values::encode_xattrs),
        5 => back(value, values::decode_volume, values::encode_volume),
        6 => back(value, values::decode_intent, values::encode_intent),
        7 => back(value, values::decode_purge, values::encode_purge),
        8 => back(value, values::decode_reserve, values::encode_reserve),
        9 => back(value, values::decode_usage, values::encode_usage),
        10 => back(value, values::decode_session, values::encode_session),
        11 => back(value, values::decode_group, values::encode_group),
        12 => back(value, values::decode_damaged_replay, |(row, ways)| values::encode_damaged_replay(row, ways)),
        13 => back(value, values::decode_segment, values::encode_segment),
        16 => back(value, values::decode_replica, values::encode_replica),
        17 => back(value, values::decode_heal, values::encode_heal),
        15 => back(value, values::decode_terms, |terms| values::encode_terms(terms)),
        _ => u64::from(keys::row(value).is_some()),
    };
    read.rotate_left(u32::from(kind))
}

/// Reads a value, and sees to it that it reads back when it is written.
fn back<T: PartialEq>(value: &[u8], decode: impl Fn(&[u8]) -> Result<T>, encode: impl Fn(&T) -> Vec<u8>) -> Answer {
    let read = decode(value);
    if let Ok(read) = &read {
        let again = decode(&encode(read));
        assert!(again.as_ref().is_ok_and(|again| again == read), "it does not read back as it was written");
    }
    answer(&read, |_| scale(value.len()))
}
