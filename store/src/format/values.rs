//! Values of index rows other than leaves. Each starts with a version (rule X3).

use super::bytes::{Reader, Writer, corrupt};
use super::edits::{self, Further};
use super::passages::Passages;
use super::purge::Purge;
use super::record::{self, Vote};
use super::reserve::{Extent, Reserve};
use super::scrub::{Bad, Position, State, Why};
use super::segment::Stream;
use super::usage::Usage;
use base::limits::{BLOCK_BYTES, NUMBER_MAX};
use base::{
    FileKind, Holder, Index, Ino, Inode, Intent, Life, Name, Numbers, Outcome, Place, ReplicaId, RequestId, Result,
    SegmentId, Term, Time, Volume, VolumeId, Xattrs,
};

const VERSION: u8 = 1;
/// Version of values that hold more than those of the first revision.
const VERSION_2: u8 = 2;
const VERSION_3: u8 = 3;
const VERSION_4: u8 = 4;
const VERSION_5: u8 = 5;

fn versioned() -> Vec<u8> {
    vec![VERSION]
}

fn open(bytes: &[u8]) -> Result<Reader<'_>> {
    match open_either(bytes)? {
        (VERSION, reader) => Ok(reader),
        _ => Err(corrupt("a value has no known version")),
    }
}

/// Opens a value that has two versions. Returns the version.
fn open_either(bytes: &[u8]) -> Result<(u8, Reader<'_>)> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        version @ (VERSION | VERSION_2) => Ok((version, reader)),
        _ => Err(corrupt("a value has no known version")),
    }
}

/// An inode's value.
pub fn encode_inode(inode: &Inode) -> Vec<u8> {
    let mut out = versioned();
    edits::put_inode(&mut out, inode);
    out
}
/// An inode's value, with how many of its blocks are mapped. Most files have no holes: their size says it.
pub fn encode_counted_inode(inode: &Inode, blocks: u64) -> Vec<u8> {
    if blocks == whole_blocks(inode) {
        return encode_inode(inode);
    }
    let mut out = vec![VERSION_2];
    edits::put_inode(&mut out, inode);
    Writer(&mut out).u64(blocks);
    out
}
/// Reads an inode.
pub fn decode_inode(bytes: &[u8]) -> Result<Inode> {
    decode_counted_inode(bytes).map(|(inode, _)| inode)
}
/// Reads an inode, and how many of its blocks are mapped.
pub fn decode_counted_inode(bytes: &[u8]) -> Result<(Inode, u64)> {
    let (version, mut reader) = open_either(bytes)?;
    let inode = edits::take_inode(&mut reader)?;
    let blocks = if version == VERSION_2 { reader.u64()? } else { whole_blocks(&inode) };
    Ok((inode, blocks))
}
/// Blocks of an inode that has no hole.
pub fn whole_blocks(inode: &Inode) -> u64 {
    if inode.kind == FileKind::File { inode.size.div_ceil(BLOCK_BYTES as u64) } else { 0 }
}

/// An entry's value: where the name leads, and its cookie.
pub fn encode_entry(ino: Ino, kind: FileKind, cookie: u64) -> Vec<u8> {
    let mut out = versioned();
    edits::put_kind(&mut out, kind);
    Writer(&mut out).u64(ino.0).u64(cookie);
    out
}
/// Reads an entry.
pub fn decode_entry(bytes: &[u8]) -> Result<(Ino, FileKind, u64)> {
    let mut reader = open(bytes)?;
    let kind = edits::take_kind(&mut reader)?;
    Ok((Ino(reader.u64()?), kind, reader.u64()?))
}

/// A cookie's value: the entry's name, target and kind.
pub fn encode_cookie(name: &[u8], ino: Ino, kind: FileKind) -> Vec<u8> {
    let mut out = versioned();
    edits::put_kind(&mut out, kind);
    Writer(&mut out).u64(ino.0).bytes(name);
    out
}
/// Reads a cookie's value.
pub fn decode_cookie(bytes: &[u8]) -> Result<(Name, Ino, FileKind)> {
    let mut reader = open(bytes)?;
    let kind = edits::take_kind(&mut reader)?;
    let ino = Ino(reader.u64()?);
    let name = Name::new(reader.rest()).map_err(|_| corrupt("a cookie leads to no name"))?;
    Ok((name, ino, kind))
}

/// A symbolic link's target.
pub fn encode_target(target: &[u8]) -> Vec<u8> {
    let mut out = versioned();
    Writer(&mut out).bytes(target);
    out
}
/// Reads a target.
pub fn decode_target(bytes: &[u8]) -> Result<Box<[u8]>> {
    Ok(open(bytes)?.rest().into())
}

/// An inode's extended attributes.
pub fn encode_xattrs(xattrs: &Xattrs) -> Vec<u8> {
    let mut out = versioned();
    Writer(&mut out).u32(xattrs.len() as u32);
    xattrs.iter().for_each(|(name, value)| edits::put_xattr(&mut out, name, value));
    out
}
/// Reads extended attributes.
pub fn decode_xattrs(bytes: &[u8]) -> Result<Xattrs> {
    let mut reader = open(bytes)?;
    let count = reader.u32()?;
    (0..count).map(|_| edits::take_xattr(&mut reader)).collect()
}

/// A volume's value. The second version belongs to one that has layers, the third to one that has a policy, the fourth to one that
/// has limits, the fifth to one whose directory trees have some.
pub fn encode_volume(volume: &Volume) -> Vec<u8> {
    let further = Further::of(volume);
    let mut out = vec![match further {
        Further::Nothing => VERSION,
        Further::Layers => VERSION_2,
        Further::Policy => VERSION_3,
        Further::Limits => VERSION_4,
        Further::Trees => VERSION_5,
    }];
    edits::put_volume(&mut out, volume);
    further.put(&mut out, volume);
    out
}
/// Reads a volume.
pub fn decode_volume(bytes: &[u8]) -> Result<Volume> {
    let mut reader = Reader::new(bytes);
    let further = match reader.u8()? {
        VERSION => Further::Nothing,
        VERSION_2 => Further::Layers,
        VERSION_3 => Further::Policy,
        VERSION_4 => Further::Limits,
        VERSION_5 => Further::Trees,
        _ => return Err(corrupt("a value has no known version")),
    };
    let mut volume = edits::take_volume(&mut reader)?;
    further.take(&mut reader, &mut volume)?;
    Ok(volume)
}

/// An intent's value.
pub fn encode_intent(intent: &Intent) -> Vec<u8> {
    let mut out = versioned();
    edits::put_intent(&mut out, intent);
    out
}
/// Reads an intent.
pub fn decode_intent(bytes: &[u8]) -> Result<Intent> {
    edits::take_intent(&mut open(bytes)?)
}

/// Inodes of a volume that are held for a change which another group is about to decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRow {
    /// The volume.
    pub volume: VolumeId,
    /// The inodes.
    pub inos: Box<[Ino]>,
}

/// A lock's value.
pub fn encode_lock(row: &LockRow) -> Vec<u8> {
    let mut out = versioned();
    Writer(&mut out).u32(row.volume.0);
    edits::put_inos(&mut out, &row.inos);
    out
}
/// Reads a lock.
pub fn decode_lock(bytes: &[u8]) -> Result<LockRow> {
    let mut reader = open(bytes)?;
    Ok(LockRow { volume: VolumeId(reader.u32()?), inos: edits::take_inos(&mut reader)? })
}

/// A mark's value: nothing but that it is there.
pub fn encode_mark() -> Vec<u8> {
    versioned()
}

/// Encodes the cuts left of an inode: where freeing continues, and the ranges.
pub fn encode_purge(purge: &Purge) -> Vec<u8> {
    let mut out = versioned();
    Writer(&mut out).u32(purge.project).u32(purge.cuts().len() as u32);
    let mut end = 0;
    for (leaves, trim) in purge.cuts() {
        assert!(end <= leaves.start && leaves.start < leaves.end, "`decode_purge` refuses cuts that are not in order");
        end = leaves.end;
        Writer(&mut out).u64(leaves.start).u64(leaves.end).u64(trim);
    }
    out
}
/// Reads a purge.
pub fn decode_purge(bytes: &[u8]) -> Result<Purge> {
    let mut reader = open(bytes)?;
    let (mut purge, count) = (Purge::new(reader.u32()?), reader.u32()?);
    let mut end = 0;
    for _ in 0..count {
        let (leaves, trim) = (reader.u64()?..reader.u64()?, reader.u64()?);
        if leaves.is_empty() || leaves.start < end {
            return Err(corrupt("the cuts of a file are not in order"));
        }
        end = leaves.end;
        purge.cut(leaves.clone(), leaves, trim);
    }
    Ok(purge)
}

/// Encodes the blocks reserved for a file. Every extent has been counted by then.
pub fn encode_reserve(reserve: &Reserve) -> Vec<u8> {
    let mut out = versioned();
    Writer(&mut out).u32(reserve.project).u32(reserve.extents.len() as u32);
    for Extent { first, end, left } in &reserve.extents {
        let left = left.expect("a checkpoint counts before it writes");
        assert!(first <= end && left <= end - first, "`decode_reserve` refuses more than was promised");
        Writer(&mut out).u64(*first).u64(end - first).u64(left);
    }
    out
}
/// Reads what a file was promised.
pub fn decode_reserve(bytes: &[u8]) -> Result<Reserve> {
    let mut reader = open(bytes)?;
    let (project, count) = (reader.u32()?, reader.u32()?);
    let extent = |reader: &mut Reader<'_>| {
        let (first, blocks, left) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let end = first.checked_add(blocks).filter(|_| left <= blocks);
        let end = end.ok_or_else(|| corrupt("a file was promised more than there is"))?;
        Ok(Extent { first, end, left: Some(left) })
    };
    let extents = (0..count).map(|_| extent(&mut reader)).collect::<Result<_>>()?;
    Ok(Reserve { project, extents })
}

/// Encodes the space that a project uses. The first version belongs to a brick whose names have not been counted yet.
pub fn encode_usage(usage: &Usage) -> Vec<u8> {
    let mut out = vec![if usage.names.is_some() { VERSION_2 } else { VERSION }];
    let mut writer = Writer(&mut out);
    writer.u64(usage.blocks).u64(usage.inodes).u64(usage.reserved);
    if let Some(names) = usage.names {
        writer.u64(names);
    }
    out
}
/// Reads what a project uses.
pub fn decode_usage(bytes: &[u8]) -> Result<Usage> {
    let (version, mut reader) = open_either(bytes)?;
    let (blocks, inodes, reserved) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let names = if version == VERSION_2 { Some(reader.u64()?) } else { None };
    Ok(Usage { blocks, inodes, reserved, names })
}

/// A session as a group knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionRow {
    /// The client on another machine that has the session; None: a mount of this machine, which ends with the process.
    pub holder: Option<Holder>,
    /// Results of requests whose answers the client may not have, oldest first.
    pub results: Vec<(RequestId, Outcome)>,
}

/// A session's row; version 1 if no other machine has the session.
pub fn encode_session(row: &SessionRow) -> Vec<u8> {
    let mut out = match &row.holder {
        None => versioned(),
        Some(holder) => {
            let mut out = vec![VERSION_2];
            edits::put_holder(&mut out, holder);
            out
        }
    };
    Writer(&mut out).u16(row.results.len() as u16);
    for (request, outcome) in &row.results {
        let (tag, first, second) = match *outcome {
            Outcome::Done => (0, 0, 0),
            Outcome::Inode(ino) => (1, ino.0, 0),
            Outcome::Wrote { offset, length } => (2, offset, length),
        };
        Writer(&mut out).u64(request.0).u8(tag).u64(first).u32(second);
    }
    out
}
/// Reads a session's row.
pub fn decode_session(bytes: &[u8]) -> Result<SessionRow> {
    let mut reader = Reader::new(bytes);
    let holder = match reader.u8()? {
        VERSION => None,
        VERSION_2 => Some(edits::take_holder(&mut reader)?),
        _ => return Err(corrupt("a value has no known version")),
    };
    let count = reader.u16()?;
    let result = |reader: &mut Reader<'_>| {
        let request = RequestId(reader.u64()?);
        let (tag, first, second) = (reader.u8()?, reader.u64()?, reader.u32()?);
        let outcome = match tag {
            0 => Outcome::Done,
            1 => Outcome::Inode(Ino(first)),
            2 => Outcome::Wrote { offset: first, length: second },
            _ => return Err(corrupt("a session's result has no known outcome")),
        };
        Ok((request, outcome))
    };
    Ok(SessionRow { holder, results: (0..count).map(|_| result(&mut reader)).collect::<Result<_>>()? })
}

/// A term of a group: it lasts until the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TermRow {
    /// The term.
    pub term: Term,
    /// Index of the first record that is known to be of it.
    pub first: Index,
    /// The number that its process drew at its start; 0: it served no client on another machine.
    pub start: u64,
}

/// A group's terms, oldest first.
pub fn encode_terms(terms: &[TermRow]) -> Vec<u8> {
    let mut out = versioned();
    let mut writer = Writer(&mut out);
    writer.u16(terms.len() as u16);
    for TermRow { term, first, start } in terms {
        writer.u64(term.0).u64(first.0).u64(*start);
    }
    out
}
/// Reads a group's terms. Errors: `Corrupt`, also if terms or indices don't rise.
pub fn decode_terms(bytes: &[u8]) -> Result<Vec<TermRow>> {
    let mut reader = open(bytes)?;
    let count = reader.u16()?;
    let term = |reader: &mut Reader<'_>| {
        Ok(TermRow { term: Term(reader.u64()?), first: Index(reader.u64()?), start: reader.u64()? })
    };
    let terms: Vec<_> = (0..count).map(|_| term(&mut reader)).collect::<Result<_>>()?;
    let rises = terms.is_sorted_by(|one, next| one.term < next.term && one.first < next.first);
    if rises && terms.iter().all(|row| row.term.0 < NUMBER_MAX && row.first.0 < NUMBER_MAX) {
        Ok(terms)
    } else {
        Err(corrupt("a group's terms do not rise"))
    }
}

/// The promise of a group's replica in the vote for a leader: what its votes come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promise {
    /// The highest term that it has heard of.
    pub term: Term,
    /// The replica that has its vote in that term; None: nobody yet.
    pub voted_for: Option<ReplicaId>,
}

impl Promise {
    /// The promise that a vote makes.
    pub fn of(vote: &Vote) -> Promise {
        Promise { term: vote.term, voted_for: vote.voted_for }
    }
    /// The promise that binds more: the one of the higher term, and in one term the one that names a replica. Votes of the log that
    /// an index row already has change nothing by it.
    pub fn and(self, other: Promise) -> Promise {
        let binds = |promise: &Promise| (promise.term, promise.voted_for.is_some());
        if binds(&other) > binds(&self) { other } else { self }
    }
}

/// The row of a group's replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaRow {
    /// Its promise.
    pub promise: Promise,
    /// The last record before those of the group's that replay may find in the log, with its term: a follower that has it, and nothing more, gets
    /// what comes next. None if that was never noted.
    pub before: Option<(Index, Term)>,
}

/// A replica's row.
pub fn encode_replica(row: &ReplicaRow) -> Vec<u8> {
    let mut out = vec![if row.before.is_some() { VERSION_2 } else { VERSION }];
    let mut writer = Writer(&mut out);
    writer.u64(row.promise.term.0);
    record::put_voted_for(&mut writer, row.promise.voted_for);
    if let Some((index, term)) = row.before {
        writer.u64(index.0).u64(term.0);
    }
    out
}
/// Reads a replica's row. Errors: `Corrupt`, also for numbers that are never given.
pub fn decode_replica(bytes: &[u8]) -> Result<ReplicaRow> {
    let (version, mut reader) = open_either(bytes)?;
    let promise = Promise { term: Term(reader.u64()?), voted_for: record::take_voted_for(&mut reader)? };
    let before = match version {
        VERSION_2 => Some((Index(reader.u64()?), Term(reader.u64()?))),
        _ => None,
    };
    let (index, term) = before.map_or((0, 0), |(index, term)| (index.0, term.0));
    let numbers = [promise.term.0, promise.voted_for.map_or(0, |replica| replica.0), index, term];
    match reader.is_empty() && numbers.iter().all(|&number| number < NUMBER_MAX) {
        true => Ok(ReplicaRow { promise, before }),
        false => Err(corrupt("a replica's row has numbers that are never given")),
    }
}

/// The mark that a group's replica heals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealRow {
    /// True while the group's rows are a mix and of no position; false: they are whole, and the brick lacks blocks only.
    pub rows: bool,
    /// Wall time at which it began, in nanoseconds since 1970.
    pub started: u64,
}

/// The value of such a mark.
pub fn encode_heal(row: &HealRow) -> Vec<u8> {
    let mut out = versioned();
    Writer(&mut out).u8(u8::from(row.rows)).u64(row.started);
    out
}
/// Reads such a mark. Errors: `Corrupt`.
pub fn decode_heal(bytes: &[u8]) -> Result<HealRow> {
    let mut reader = open(bytes)?;
    let (rows, started) = (reader.u8()?, reader.u64()?);
    match reader.is_empty() && rows <= 1 {
        true => Ok(HealRow { rows: rows == 1, started }),
        false => Err(corrupt("a group heals in no known way")),
    }
}

/// A group's counters: what makes its numbers fresh, and how far the index holds its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupRow {
    /// The last record that the index includes.
    pub applied: Index,
    /// Its term.
    pub term: Term,
    /// Next inode sequence.
    pub next_ino: u64,
    /// Next entry cookie.
    pub next_cookie: u64,
    /// Next intent number.
    pub next_intent: u64,
    /// Next volume id (group 0 only).
    pub next_volume: u32,
    /// Numbers below these may have been given out by the life that wrote this.
    pub reserved: Numbers,
}

impl GroupRow {
    /// The row of a group that has none yet. Inode 0 is never used; inode 1 of a group may clash with FUSE's root
    /// number; cookies up to 2 are "." and "..". Volume 0 is the catalogue.
    pub fn fresh() -> GroupRow {
        GroupRow { next_ino: 2, next_cookie: 3, next_intent: 1, next_volume: 1, ..GroupRow::default() }
    }
    /// The next numbers.
    pub fn next(&self) -> Numbers {
        Numbers { ino: self.next_ino, cookie: self.next_cookie, intent: self.next_intent }
    }
    /// The row of a life that is over: whatever it may have given out counts as given out (rule L2).
    pub fn pass_reserved(&mut self) {
        let next = self.next().max(self.reserved);
        (self.next_ino, self.next_cookie, self.next_intent) = (next.ino, next.cookie, next.intent);
    }
}

/// A group row's value.
pub fn encode_group(row: &GroupRow) -> Vec<u8> {
    let mut out = vec![VERSION_2];
    let mut writer = Writer(&mut out);
    writer.u64(row.applied.0).u64(row.term.0).u64(row.next_ino).u64(row.next_cookie).u64(row.next_intent);
    writer.u32(row.next_volume);
    writer.u64(row.reserved.ino).u64(row.reserved.cookie).u64(row.reserved.intent);
    out
}
/// Reads a group row. Version 1 reserves no numbers.
pub fn decode_group(bytes: &[u8]) -> Result<GroupRow> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8()?;
    if !(VERSION..=VERSION_2).contains(&version) {
        return Err(corrupt("a value has no known version"));
    }
    let mut row = GroupRow {
        applied: Index(reader.u64()?),
        term: Term(reader.u64()?),
        next_ino: reader.u64()?,
        next_cookie: reader.u64()?,
        next_intent: reader.u64()?,
        next_volume: reader.u32()?,
        reserved: Numbers::default(),
    };
    if version == VERSION_2 {
        row.reserved = edits::take_numbers(&mut reader)?;
    }
    let numbers = row.next().max(row.reserved);
    let highest = row.applied.0.max(row.term.0).max(numbers.cookie).max(numbers.intent);
    if highest >= NUMBER_MAX || numbers.ino >= Ino::SEQUENCE_END || row.next_volume == u32::MAX {
        return Err(corrupt("a group's counters are higher than any that are given"));
    }
    Ok(row)
}

/// The place where replay starts: the first batch that the index does not include.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayRow {
    /// Number of that batch.
    pub number: u64,
    /// Checksum of the header before it.
    pub previous_crc: u32,
    /// The epoch that previous header was of.
    pub epoch: u64,
    /// Position in the stream of the segment in which it lies, or would.
    pub sequence: u64,
    /// The segment.
    pub segment: SegmentId,
    /// The block within it.
    pub block: u16,
    /// Next stream position for each stream: commit, bulk, cold.
    pub next_sequence: [u64; 3],
}

/// The replay row's value.
pub fn encode_replay(row: &ReplayRow) -> Vec<u8> {
    encode_damaged_replay(row, &Passages::default())
}
/// The replay row's value with the ways over the log's bad batches.
pub fn encode_damaged_replay(row: &ReplayRow, passages: &Passages) -> Vec<u8> {
    let mut out = vec![if passages.is_empty() { VERSION } else { VERSION_2 }];
    let mut writer = Writer(&mut out);
    writer.u64(row.number).u32(row.previous_crc).u64(row.epoch).u64(row.sequence).u32(row.segment.0).u16(row.block);
    for &next in &row.next_sequence {
        writer.u64(next);
    }
    if !passages.is_empty() {
        passages.put(&mut out);
    }
    out
}
/// Reads the replay row.
pub fn decode_replay(bytes: &[u8]) -> Result<ReplayRow> {
    decode_damaged_replay(bytes).map(|(row, _)| row)
}
/// Reads the replay row and the ways over bad batches, if it has some.
pub fn decode_damaged_replay(bytes: &[u8]) -> Result<(ReplayRow, Passages)> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8()?;
    if version != VERSION && version != VERSION_2 {
        return Err(corrupt("a value has no known version"));
    }
    let row = ReplayRow {
        number: reader.u64()?,
        previous_crc: reader.u32()?,
        epoch: reader.u64()?,
        sequence: reader.u64()?,
        segment: SegmentId(reader.u32()?),
        block: reader.u16()?,
        next_sequence: [reader.u64()?, reader.u64()?, reader.u64()?],
    };
    let passages = match version {
        VERSION => Passages::default(),
        _ => Passages::take(&mut reader)?,
    };
    Ok((row, passages))
}

/// Encodes the progress of the scrub and its findings.
pub fn encode_scrub(position: &Position) -> Vec<u8> {
    let mut out = versioned();
    let state = match position.state {
        State::Never => 0,
        State::Running => 1,
        State::Stopped => 2,
        State::Done => 3,
    };
    let mut writer = Writer(&mut out);
    writer.u8(state).i64(position.began.0).i64(position.ended.0).u32(position.next.0).u64(position.blocks);
    writer.u64(position.unlisted).u32(position.bad.len() as u32);
    for bad in &position.bad {
        let why = match bad.why {
            Why::Differs => 0,
            Why::Unreadable => 1,
            Why::Untold => 2,
        };
        let Place { segment, block } = bad.place;
        writer.u8(why).u32(segment.0).u16(block).u32(bad.life.0).u32(bad.blocks);
        writer.u32(bad.volume.0).u64(bad.ino.0).u64(bad.offset);
    }
    out
}
/// Reads how far the scrub is.
pub fn decode_scrub(bytes: &[u8]) -> Result<Position> {
    let mut reader = open(bytes)?;
    let state = match reader.u8()? {
        0 => State::Never,
        1 => State::Running,
        2 => State::Stopped,
        3 => State::Done,
        _ => return Err(corrupt("a scrub has no known state")),
    };
    let (began, ended, next) = (Time(reader.i64()?), Time(reader.i64()?), SegmentId(reader.u32()?));
    let (blocks, unlisted, count) = (reader.u64()?, reader.u64()?, reader.u32()?);
    let bad = |reader: &mut Reader<'_>| {
        let why = match reader.u8()? {
            0 => Why::Differs,
            1 => Why::Unreadable,
            2 => Why::Untold,
            _ => return Err(corrupt("a finding has no known cause")),
        };
        let place = Place { segment: SegmentId(reader.u32()?), block: reader.u16()? };
        let (life, blocks) = (Life(reader.u32()?), reader.u32()?);
        let (volume, ino, offset) = (VolumeId(reader.u32()?), Ino(reader.u64()?), reader.u64()?);
        Ok(Bad { place, life, blocks, volume, ino, offset, why })
    };
    let bad = (0..count).map(|_| bad(&mut reader)).collect::<Result<_>>()?;
    Ok(Position { state, began, ended, next, blocks, bad, unlisted })
}

/// The row of a segment in the segment table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Never used, or free for another life.
    Free,
    /// Being written.
    Open,
    /// Full, or left by a process that ended; its summary not yet written.
    Closed,
    /// Full and summarised.
    Sealed,
}

/// A segment table row: the state and the live bitmap, one bit per block (rule K1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// State at the checkpoint.
    pub state: SegmentState,
    /// Current (or last) life.
    pub life: Life,
    /// Its stream.
    pub stream: Stream,
    /// Position in the stream.
    pub sequence: u64,
    /// Position among all segments of the brick, whatever their stream, in the order of their opening: its age.
    pub opened: u64,
    /// Blocks written from the start, header included.
    pub used: u32,
    /// Live bits; empty = none live.
    pub live: Vec<u64>,
}

impl SegmentRow {
    /// True if a block was live at the checkpoint.
    pub fn is_live(&self, block: u16) -> bool {
        is_live(&self.live, block)
    }
}

/// True if a block's bit in a live bitmap is set.
pub fn is_live(live: &[u64], block: u16) -> bool {
    live.get(usize::from(block / 64)).is_some_and(|word| word & 1 << (block % 64) != 0)
}

/// A segment row's value.
pub fn encode_segment(row: &SegmentRow) -> Vec<u8> {
    let mut out = versioned();
    let state = match row.state {
        SegmentState::Free => 0,
        SegmentState::Open => 1,
        SegmentState::Closed => 2,
        SegmentState::Sealed => 3,
    };
    let mut writer = Writer(&mut out);
    writer.u8(state).u8(row.stream.code()).u32(row.life.0).u64(row.sequence).u64(row.opened).u32(row.used);
    writer.u32(row.live.len() as u32);
    for &word in &row.live {
        writer.u64(word);
    }
    out
}
/// Reads a segment row.
pub fn decode_segment(bytes: &[u8]) -> Result<SegmentRow> {
    let mut reader = open(bytes)?;
    let state = match reader.u8()? {
        0 => SegmentState::Free,
        1 => SegmentState::Open,
        2 => SegmentState::Closed,
        3 => SegmentState::Sealed,
        _ => return Err(corrupt("a segment has no known state")),
    };
    let stream = Stream::from_code(reader.u8()?)?;
    let (life, sequence, opened) = (Life(reader.u32()?), reader.u64()?, reader.u64()?);
    let used = reader.u32()?;
    let words = reader.u32()?;
    let live = (0..words).map(|_| reader.u64()).collect::<Result<_>>()?;
    Ok(SegmentRow { state, life, stream, sequence, opened, used, live })
}
