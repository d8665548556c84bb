//! The record (rule L1): a local frame around a replicated part that is the same on every replica and holds no place.

use super::Uuid;
use super::bytes::{Reader, Writer, corrupt};
use super::edits::{put_edit, take_edit};
use base::checksum::{crc32c, crc32c_append};
use base::{
    Edit, Error, GroupId, Index, Ino, Kind, Life, Outcome, Place, ReplicaId, RequestId, Result, SegmentId, SessionId,
    Term, VolumeId,
};

/// Version of the replicated part.
const VERSION: u8 = 1;
/// The kind of record that changes a group's state; cleaner moves, terms and membership get theirs when they come.
const KIND_EDITS: u8 = 1;
/// Bytes of the frame before the runs.
const FRAME_BYTES: usize = 30;

/// A run of payload blocks on this brick, in the payload's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first block.
    pub place: Place,
    /// Blocks.
    pub count: u16,
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
    /// What the request did (rule R1).
    pub outcome: Outcome,
    /// What changes.
    pub edits: Vec<Edit>,
}

/// Appends the replicated part from its pieces, so that the write path need not build a `Record`.
pub fn encode_replicated(out: &mut Vec<u8>, head: &Head, edits: &[Edit]) {
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

fn decode_replicated(bytes: &[u8]) -> Result<Record> {
    let mut reader = Reader::new(bytes);
    let (kind, version, _skippable, _) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    if kind != KIND_EDITS || version != VERSION {
        let error = Error::new(Kind::Newer, "the log holds a record of a newer version; upgrade this machine");
        return Err(error.with(format!("record kind {kind} version {version}")));
    }
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
    let edits = (0..count).map(|_| take_edit(&mut reader)).collect::<Result<_>>()?;
    if !reader.is_empty() {
        return Err(corrupt("a record has bytes after its last edit"));
    }
    Ok(Record { group, term, index, volume, session, request, outcome, edits })
}

/// What the frame ties a record to: bytes of another brick, life or stream position fail its checksum.
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
    assert!(out.len() - start == length);
    let crc = framed_crc(frame.uuid, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

fn framed_crc(uuid: Uuid, framed: &[u8]) -> u32 {
    crc32c_append(crc32c(&uuid.0), &framed[8..])
}

/// Reads the next framed record and checks that it belongs here. Errors: `Corrupt`, `Newer`.
pub fn take_framed(reader: &mut Reader<'_>, uuid: Uuid, life: Life, sequence: u64) -> Result<(Record, Vec<Run>)> {
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
        Ok(Run { place, count: fields.u16()? })
    };
    let runs = (0..count).map(|_| run(&mut fields)).collect::<Result<_>>()?;
    Ok((decode_replicated(fields.rest())?, runs))
}
