//! The record (rule L1): a local frame around a replicated part that is the same on every replica and holds no place.

use super::Uuid;
use super::batch::FIXED_BYTES;
use super::bytes::{Reader, Writer, corrupt};
use super::edits::{map_crc_at, put_edit, take_edit};
use base::checksum::{crc32c, crc32c_append};
use base::limits::{BLOCK_BYTES, HEADER_BLOCKS_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use base::{
    Edit, Error, GroupId, Index, Ino, Kind, Life, Outcome, Place, ReplicaId, RequestId, Result, SegmentId, SessionId,
    Term, VolumeId,
};

/// Version of the replicated part.
const VERSION: u8 = 1;
/// The kind of record that changes a group's state.
const KIND_EDITS: u8 = 1;
/// The kind of record that says where the cleaner has moved blocks to: local, outside the group's order (rule K2).
const KIND_MOVES: u8 = 2;
/// The kind of record that says what a replica has promised to others in the vote for a leader: local, outside the group's order.
/// Kinds 3 and 4 are kept for terms and members, which are ordered.
const KIND_VOTE: u8 = 5;
/// Bytes of the frame before the runs.
const FRAME_BYTES: usize = 30;

/// The largest attribute fits into a batch's header, beside the inode that it belongs to.
const _: () = {
    let attribute = XATTR_NAME_BYTES_MAX + XATTR_VALUE_BYTES_MAX;
    assert!(FIXED_BYTES + FRAME_BYTES + HEAD_BYTES + attribute + 256 <= HEADER_BLOCKS_MAX * BLOCK_BYTES);
};

/// A run of payload blocks on this brick, in the payload's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first block.
    pub place: Place,
    /// Blocks.
    pub count: u16,
}

/// The places of a payload's blocks, in their order: each edit that maps some takes its own.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    runs: &'a [Run],
    taken: u16,
}

impl<'a> Places<'a> {
    /// Those of the payload that lies in these runs.
    pub fn of(runs: &'a [Run]) -> Places<'a> {
        Places { runs, taken: 0 }
    }
}

impl Iterator for Places<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        while self.taken == self.runs.first()?.count {
            (self.runs, self.taken) = (&self.runs[1..], 0);
        }
        let place = self.runs[0].place.advance(u32::from(self.taken));
        self.taken += 1;
        Some(place)
    }
}

/// The replicated part: one logical change of one group.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The group.
    pub group: GroupId,
    /// The term in which it was ordered.
    pub term: Term,
    /// Its position in the group's order.
    pub index: Index,
    /// The volume.
    pub volume: VolumeId,
    /// The session that asked; 0 = the brick itself.
    pub session: SessionId,
    /// The session's request.
    pub request: RequestId,
    /// The outcome of the request (rule R1).
    pub outcome: Outcome,
    /// The changes.
    pub edits: Vec<Edit>,
}

/// Appends the replicated part from its pieces, so that the write path need not build a `Record`.
pub fn encode_replicated(out: &mut Vec<u8>, head: &Head, edits: &[Edit]) {
    let start = out.len();
    let mut writer = Writer(out);
    writer.u8(KIND_EDITS).u8(VERSION).u8(0).u8(0);
    writer.u32(head.group.0).u64(head.term.0).u64(head.index.0).u32(head.volume.0);
    writer.u64(head.session.0).u64(head.request.0);
    let (tag, first, second) = match head.outcome {
        Outcome::Done => (0, 0, 0),
        Outcome::Inode(ino) => (1, ino.0, 0),
        Outcome::Wrote { offset, length } => (2, offset, length),
    };
    writer.u8(tag).u64(first).u32(second);
    writer.u16(u16::try_from(edits.len()).expect("a record has few edits"));
    assert!(out.len() - start == HEAD_BYTES, "`replace_crc` looks for the edits there");
    edits.iter().for_each(|edit| put_edit(out, edit));
}

/// Everything of a record but its edits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// See `Record`.
    pub group: GroupId,
    /// See `Record`.
    pub term: Term,
    /// See `Record`.
    pub index: Index,
    /// See `Record`.
    pub volume: VolumeId,
    /// See `Record`.
    pub session: SessionId,
    /// See `Record`.
    pub request: RequestId,
    /// See `Record`.
    pub outcome: Outcome,
}

/// A block that the cleaner has copied: it counts only while the block's owner still maps it to `old` (rule K2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The file.
    pub ino: Ino,
    /// The block of the file.
    pub block: u64,
    /// Its old place.
    pub old: Place,
    /// Its checksum.
    pub crc: u32,
    /// The record that wrote it, for the summary.
    pub index: Index,
}

/// Blocks of one group and volume that were moved; the frame's runs say where to, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moves {
    /// The group.
    pub group: GroupId,
    /// The volume.
    pub volume: VolumeId,
    /// The blocks.
    pub blocks: Vec<Moved>,
}

/// A replica's vote: in this term it votes for nobody else, and in no earlier one for anybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// The group.
    pub group: GroupId,
    /// The term.
    pub term: Term,
    /// The replica that has the vote; None: the term was heard of, and nobody has it yet.
    pub voted_for: Option<ReplicaId>,
}

/// A record of the log.
#[derive(Clone, PartialEq, Debug)]
pub enum Logged {
    /// A change of a group.
    Record(Record),
    /// Work of the cleaner.
    Moves(Moves),
    /// A vote.
    Vote(Vote),
}

impl Logged {
    /// Blocks of the payload that it gives to files.
    pub fn mapped_blocks(&self) -> usize {
        match self {
            Logged::Vote(_) => 0,
            Logged::Moves(moves) => moves.blocks.len(),
            Logged::Record(record) => {
                let mapped = |edit: &Edit| if let Edit::Map { crcs, .. } = edit { crcs.len() } else { 0 };
                record.edits.iter().map(mapped).sum()
            }
        }
    }
}

/// Bytes of a record of moves before the moves.
const MOVES_BYTES: usize = 14;
/// Bytes of one moved block in a record.
pub const MOVED_BYTES: usize = 36;

/// Appends a record of moves.
pub fn encode_moves(out: &mut Vec<u8>, moves: &Moves) {
    let start = out.len();
    let mut writer = Writer(out);
    writer.u8(KIND_MOVES).u8(VERSION).u8(0).u8(0).u32(moves.group.0).u32(moves.volume.0);
    writer.u16(u16::try_from(moves.blocks.len()).expect("a record has few moves"));
    for moved in &moves.blocks {
        writer.u64(moved.ino.0).u64(moved.block).u32(moved.old.segment.0).u16(moved.old.block).u16(0);
        writer.u32(moved.crc).u64(moved.index.0);
    }
    assert!(
        out.len() - start == MOVES_BYTES + MOVED_BYTES * moves.blocks.len(),
        "each move takes as much as the others"
    );
}

fn take_moves(reader: &mut Reader<'_>) -> Result<Moves> {
    let (group, volume, count) = (GroupId(reader.u32()?), VolumeId(reader.u32()?), reader.u16()?);
    let moved = |reader: &mut Reader<'_>| {
        let (ino, block) = (Ino(reader.u64()?), reader.u64()?);
        let old = Place { segment: SegmentId(reader.u32()?), block: reader.u16()? };
        reader.u16()?;
        Ok(Moved { ino, block, old, crc: reader.u32()?, index: Index(reader.u64()?) })
    };
    let blocks = (0..count).map(|_| moved(reader)).collect::<Result<_>>()?;
    Ok(Moves { group, volume, blocks })
}

/// Bytes of a record of a vote.
pub const VOTE_BYTES: usize = 24;

/// Appends a record of a vote.
pub fn encode_vote(out: &mut Vec<u8>, vote: &Vote) {
    let start = out.len();
    let mut writer = Writer(out);
    writer.u8(KIND_VOTE).u8(VERSION).u8(0).u8(0).u32(vote.group.0).u64(vote.term.0);
    put_voted_for(&mut writer, vote.voted_for);
    assert!(out.len() - start == VOTE_BYTES, "each vote takes as much as the others");
}

fn take_vote(reader: &mut Reader<'_>) -> Result<Vote> {
    let (group, term) = (GroupId(reader.u32()?), Term(reader.u64()?));
    Ok(Vote { group, term, voted_for: take_voted_for(reader)? })
}

/// Writes who has a vote, if anybody has: no replica has number 0.
pub(super) fn put_voted_for(writer: &mut Writer<'_>, voted_for: Option<ReplicaId>) {
    assert!(voted_for != Some(ReplicaId(0)), "no replica has number 0");
    writer.u64(voted_for.map_or(0, |replica| replica.0));
}

/// Reads who has a vote. Errors: `Corrupt`.
pub(super) fn take_voted_for(reader: &mut Reader<'_>) -> Result<Option<ReplicaId>> {
    Ok(Some(ReplicaId(reader.u64()?)).filter(|replica| replica.0 > 0))
}

fn decode_logged(bytes: &[u8]) -> Result<Logged> {
    let mut reader = Reader::new(bytes);
    let (kind, version, _skippable, _) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    let logged = match (kind, version) {
        (KIND_EDITS, VERSION) => Logged::Record(take_record(&mut reader)?),
        (KIND_MOVES, VERSION) => Logged::Moves(take_moves(&mut reader)?),
        (KIND_VOTE, VERSION) => Logged::Vote(take_vote(&mut reader)?),
        _ => {
            let error = Error::new(Kind::Newer, "the log holds a record of a newer version; upgrade this machine");
            return Err(error.with(format!("record kind {kind} version {version}")));
        }
    };
    if !reader.is_empty() {
        return Err(corrupt("a record has bytes after its end"));
    }
    Ok(logged)
}

/// Reads a replicated part that came from another replica. Errors: `Corrupt`, `Newer`.
pub fn decode_record(bytes: &[u8]) -> Result<Record> {
    match decode_logged(bytes)? {
        Logged::Record(record) => Ok(record),
        _ => Err(corrupt("a record of a group's order is of a kind that stays on its brick")),
    }
}

fn take_record(reader: &mut Reader<'_>) -> Result<Record> {
    let (group, term, index) = (GroupId(reader.u32()?), Term(reader.u64()?), Index(reader.u64()?));
    let volume = VolumeId(reader.u32()?);
    let (session, request) = (SessionId(reader.u64()?), RequestId(reader.u64()?));
    let (tag, first, second) = (reader.u8()?, reader.u64()?, reader.u32()?);
    let outcome = match tag {
        0 => Outcome::Done,
        1 => Outcome::Inode(Ino(first)),
        2 => Outcome::Wrote { offset: first, length: second },
        _ => return Err(corrupt("a record has no known outcome")),
    };
    let count = reader.u16()?;
    let edits = (0..count).map(|_| take_edit(reader)).collect::<Result<_>>()?;
    Ok(Record { group, term, index, volume, session, request, outcome, edits })
}

/// The identity that a record's frame ties it to: bytes of another brick, life or stream position fail its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The brick.
    pub uuid: Uuid,
    /// Life of the segment that holds the record.
    pub life: Life,
    /// Its position in the commit stream.
    pub sequence: u64,
    /// The replica.
    pub replica: ReplicaId,
}

/// Bytes of a framed record with this many runs and replicated bytes.
pub fn framed_bytes(runs: usize, replicated: usize) -> usize {
    FRAME_BYTES + 8 * runs + replicated
}

/// Appends a framed record: length, checksum, life, sequence, replica, runs, replicated part.
pub fn put_framed(out: &mut Vec<u8>, frame: &Frame, runs: &[Run], replicated: &[u8]) {
    let start = out.len();
    let length = framed_bytes(runs.len(), replicated.len());
    let mut writer = Writer(out);
    writer.u32(length as u32).u32(0).u32(frame.life.0).u64(frame.sequence).u64(frame.replica.0);
    writer.u16(u16::try_from(runs.len()).expect("a payload has few runs"));
    for run in runs {
        writer.u32(run.place.segment.0).u16(run.place.block).u16(run.count);
    }
    writer.bytes(replicated);
    assert!(out.len() - start == length, "a record has the length that its frame says");
    let crc = framed_crc(frame.uuid, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Bytes of the replicated part before its edits.
const HEAD_BYTES: usize = 59;

/// Gives one block of a framed record's payload another checksum. False, and nothing is changed, unless the record's first
/// edit maps that block. `framed` may go on behind the record.
pub fn replace_crc(framed: &mut [u8], uuid: Uuid, block: usize, crc: u32) -> bool {
    let mut fields = Reader::new(framed);
    let length = fields.u32().expect("a record has a frame") as usize;
    let runs = fields.bytes(FRAME_BYTES - 6).and_then(|_| fields.u16()).expect("a record has a frame");
    let edits = framed_bytes(usize::from(runs), HEAD_BYTES);
    let Some(at) = framed[..length].get(edits..).and_then(|edit| map_crc_at(edit, block)) else { return false };
    assert!(edits + at + 4 <= length, "the checksum lies within its record");
    framed[edits + at..][..4].copy_from_slice(&crc.to_le_bytes());
    let crc = framed_crc(uuid, &framed[..length]);
    framed[4..8].copy_from_slice(&crc.to_le_bytes());
    true
}

fn framed_crc(uuid: Uuid, framed: &[u8]) -> u32 {
    crc32c_append(crc32c(&uuid.0), &framed[8..])
}

/// Reads the next framed record and checks that it belongs here. Errors: `Corrupt`, `Newer`.
pub fn take_framed(reader: &mut Reader<'_>, uuid: Uuid, life: Life, sequence: u64) -> Result<(Logged, Vec<Run>)> {
    let length = Reader::new(reader.rest()).u32()? as usize;
    if length < FRAME_BYTES {
        return Err(corrupt("a record is shorter than its frame"));
    }
    let framed = reader.bytes(length)?;
    let mut fields = Reader::new(framed);
    let (_, crc) = (fields.u32()?, fields.u32()?);
    if crc != framed_crc(uuid, framed) {
        return Err(corrupt("a record fails its checksum"));
    }
    if (Life(fields.u32()?), fields.u64()?) != (life, sequence) {
        return Err(corrupt("a record belongs to another life of its segment"));
    }
    let (_replica, count) = (fields.u64()?, fields.u16()?);
    let run = |fields: &mut Reader<'_>| {
        let place = Place { segment: SegmentId(fields.u32()?), block: fields.u16()? };
        let count = fields.u16()?;
        match place.block.checked_add(count.saturating_sub(1)) {
            Some(_) => Ok(Run { place, count }),
            None => Err(corrupt("a record's payload leaves its segment")),
        }
    };
    let runs = (0..count).map(|_| run(&mut fields)).collect::<Result<Vec<_>>>()?;
    let logged = decode_logged(fields.rest())?;
    // Who applies it takes a place for each block that it maps.
    if logged.mapped_blocks() > runs.iter().map(|run| usize::from(run.count)).sum() {
        return Err(corrupt("a record maps more blocks than its payload has"));
    }
    Ok((logged, runs))
}
