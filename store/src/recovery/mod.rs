//! Reading the log back (rules L4-L6): from the replay position of the last durable checkpoint to the last batch that
//! counts. A bad batch at or below any `durable_through` seen is corruption; above it, it is the torn tail.

pub mod bounds;
pub mod payloads;
pub mod running;
pub mod standing;

use self::bounds::Bounds;
use crate::format::batch::{BatchHeader, FIXED_BYTES};
use crate::format::bytes::Reader;
use crate::format::passages::Passage;
use crate::format::record::{Logged, Run, framed_bytes, take_framed};
use crate::format::segment::{SegmentHeader, Stream};
use crate::format::superblock::Superblock;
use crate::format::values::ReplayRow;
use crate::media::geometry::Geometry;
use crate::progress::{Step, Tell};
use base::limits::{BLOCK_BYTES, HEADER_BLOCKS_MAX, IO_BYTES_MAX};
use base::{Error, Kind, Life, Place, Result, SegmentId};
use runtime::seeded::{Bug, active};
use runtime::{Buf, Runtime, disk};
use std::collections::VecDeque;

/// Records handed over at once.
const CHUNK_RECORDS: usize = 4096;
/// Payload blocks that are compared together: 64 MiB, enough to keep a device busy, and a bad batch is found before much
/// that follows it was read.
const CHECK_BLOCKS: u32 = 16 << 10;
/// A window holds the largest header.
const _: () = assert!(HEADER_BLOCKS_MAX * BLOCK_BYTES <= IO_BYTES_MAX);

/// One record as the log holds it.
#[derive(Clone, PartialEq, Debug)]
pub struct Replayed {
    /// The record.
    pub logged: Logged,
    /// The places of its payload.
    pub runs: Vec<Run>,
    /// Its batch.
    pub batch: u64,
}

/// The result of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// The last batch that counts; 0 if there never was one.
    pub number: u64,
    /// The end of the log: the block after the last batch, in the commit stream's segment.
    pub end: Option<(SegmentHeader, u32)>,
    /// The checksum of its header.
    pub crc: u32,
    /// Batches read.
    pub batches: u64,
    /// Blocks that they take in the log.
    pub blocks: u64,
    /// The last batch that the chain reaches, and where the next one should lie: after `number` and `end` where a payload is
    /// torn.
    pub reached: (u64, Option<(SegmentHeader, u32)>),
    /// The last batch that was durable, as far as anything tells; above `number` only if the log is damaged.
    pub durable: u64,
}

struct Found {
    number: u64,
    blocks: u32,
    records: Vec<Replayed>,
    /// The bytes of each record's replicated part, if the chain keeps them.
    replicated: Vec<Box<[u8]>>,
    end: (SegmentHeader, u32),
    crc: u32,
}

/// Lives of a segment between two checkpoints at most: a batch that tells of more is garbage.
pub const LIVES_AHEAD_MAX: u32 = 1 << 16;

/// The identity of a segment, as its first blocks tell it.
pub enum Head {
    /// It never was in use, or belongs to another brick.
    Nothing,
    /// Its header, and whether a batch of the same life begins behind it.
    Whole(SegmentHeader, bool),
    /// There is no header, but behind it a batch of a life after the one that was known: headers are durable before batches
    /// are written. This is what it said.
    Lost(SegmentHeader),
}

/// Reads a segment's first blocks. `known`: the life that the last checkpoint knows.
pub async fn read_head(
    runtime: &Runtime,
    geometry: &Geometry,
    superblock: &Superblock,
    (segment, known): (SegmentId, Life),
) -> Result<Head> {
    let Some(spot) = geometry.spot(Place { segment, block: 0 }) else { return Ok(Head::Nothing) };
    let (buffer, result) = disk::read(&*runtime.disk, spot.file, spot.offset, runtime.buffer(2 * BLOCK_BYTES)?).await;
    result?;
    // One whose header takes more than a block is not checked: then it tells of itself only where there is no header.
    let checked = BatchHeader::check(&buffer[BLOCK_BYTES..]).ok().map(|(batch, _)| batch);
    let batch = BatchHeader::peek(&buffer[BLOCK_BYTES..]).ok();
    let batch = batch.filter(|batch| (batch.uuid, batch.segment) == (superblock.uuid, segment));
    let header = SegmentHeader::decode(&buffer);
    let is_ours = |uuid, of| (uuid, of) == (superblock.uuid, segment);
    let ahead = |batch: &BatchHeader| batch.life > known && batch.life.0 - known.0 <= LIVES_AHEAD_MAX;
    let lost = |batch: &BatchHeader| {
        let BatchHeader { uuid, life, sequence, epoch, .. } = *batch;
        Head::Lost(SegmentHeader { uuid, segment, life, stream: Stream::Commit, sequence, epoch })
    };
    if let (Ok(header), Some(batch)) = (&header, checked)
        && is_ours(header.uuid, header.segment)
        && is_ours(batch.uuid, batch.segment)
        && ahead(&batch)
        && contradicts(header, &batch)
    {
        return Ok(lost(&batch));
    }
    match (header, batch) {
        // On a device there may be what a brick before this one has left; files were made for this one.
        (Ok(header), _)
            if header.uuid != superblock.uuid && header.segment == segment && !geometry.is_on_device(segment) =>
        {
            let what = "a segment belongs to another brick: the superblock or the segments were replaced; put back those \
                        that belong together, from a backup";
            Err(Error::new(Kind::Corrupt, what).with(format!("segment {segment} of brick {}", header.uuid)))
        }
        (Ok(header), batch) if is_ours(header.uuid, header.segment) => {
            Ok(Head::Whole(header, batch.is_some_and(|batch| batch.life == header.life)))
        }
        (Err(_), Some(batch)) if ahead(&batch) => Ok(lost(&batch)),
        _ => Ok(Head::Nothing),
    }
}

/// A header that says something else of its segment than the batch behind it. Batches of the life before may still be there,
/// but only of one that a checkpoint has known the end of (rule K3); and where batches lie is the log.
fn contradicts(header: &SegmentHeader, batch: &BatchHeader) -> bool {
    (batch.life, batch.sequence, Stream::Commit) != (header.life, header.sequence, header.stream)
}

/// Opening stops where a segment that is needed has lost its header (rule L5).
pub fn header_lost(segment: SegmentId) -> Error {
    let what = "the header of a segment in use is damaged: `sinter check --repair` writes it anew";
    Error::new(Kind::Corrupt, what).with(format!("segment {segment}"))
}

/// A window over a segment: replay reads sequentially, in large pieces.
struct Window<'a> {
    runtime: &'a Runtime,
    geometry: &'a Geometry,
    segment: SegmentId,
    first: u32,
    buffer: Option<Buf>,
}

impl Window<'_> {
    /// `count` blocks from `block` on; shorter at the segment's end.
    async fn blocks(&mut self, block: u32, count: u32) -> Result<&[u8]> {
        let total = self.geometry.blocks();
        assert!(block < total, "block {block} lies behind its segment's end");
        let count = count.min(total - block);
        let held = self.buffer.as_ref().map_or(0, |buffer| (buffer.len() / BLOCK_BYTES) as u32);
        if self.buffer.is_none() || block < self.first || block + count > self.first + held {
            let length = ((total - block) as usize * BLOCK_BYTES).min(IO_BYTES_MAX);
            let spot = self.geometry.spot(Place { segment: self.segment, block: block as u16 });
            let spot = spot.ok_or_else(|| Error::new(Kind::Corrupt, "a segment's file is missing"))?;
            let mut buffer = match self.buffer.take() {
                Some(buffer) if buffer.capacity() >= length => buffer,
                _ => self.runtime.buffer(length)?,
            };
            buffer.set_len(length);
            let (buffer, result) = disk::read(&*self.runtime.disk, spot.file, spot.offset, buffer).await;
            result?;
            self.first = block;
            self.buffer = Some(buffer);
        }
        assert!(self.first <= block, "the window holds what was asked for");
        let buffer = self.buffer.as_ref().expect("just filled");
        let from = (block - self.first) as usize * BLOCK_BYTES;
        Ok(&buffer[from..from + count as usize * BLOCK_BYTES])
    }
}

/// The state of the walk along the chain of batches.
struct Chain<'a> {
    superblock: &'a Superblock,
    expected: u64,
    previous_crc: u32,
    epoch: u64,
    durable_seen: u64,
    /// See `Log::damaged`.
    damaged: bool,
    /// Number of a whole batch of a damaged log in which a record can't be read.
    unread: u64,
    bounds: Bounds,
    /// See `Log::over`.
    over: &'a [Passage],
    /// The place to which the last passage led.
    landing: Option<Place>,
    /// True if somebody wants the records' bytes as well.
    keeps_bytes: bool,
}

impl<'a> Chain<'a> {
    /// The state before the first batch that replay reads.
    fn at(
        (superblock, bounds): (&'a Superblock, Bounds),
        replay: &ReplayRow,
        damaged: bool,
        over: &'a [Passage],
    ) -> Chain<'a> {
        let (expected, previous_crc, epoch) = (replay.number.max(1), replay.previous_crc, replay.epoch);
        let (durable_seen, unread, landing, keeps_bytes) = (0, 0, None, false);
        Chain {
            superblock,
            expected,
            previous_crc,
            epoch,
            durable_seen,
            damaged,
            unread,
            bounds,
            over,
            landing,
            keeps_bytes,
        }
    }
}

impl Chain<'_> {
    /// The block of a segment where the next batch should lie.
    fn start(&self, replay: &ReplayRow, header: &SegmentHeader) -> u32 {
        match self.landing {
            Some(place) if place.segment == header.segment => u32::from(place.block),
            _ if header.sequence == replay.sequence => u32::from(replay.block).max(1),
            _ => 1,
        }
    }
    /// True if the header continues the chain: next number, same epoch and right checksum, or the first batch of a
    /// later epoch where the superblock says that the epochs between ended before it.
    fn accepts(&self, header: &BatchHeader) -> bool {
        if header.number != self.expected || self.ended(header.epoch) {
            return false;
        }
        if header.epoch == self.epoch {
            return header.previous_crc == self.previous_crc;
        }
        let ends_before = |epoch: u64| {
            let end = self.superblock.ends.iter().find(|end| end.epoch == epoch);
            end.is_some_and(|end| end.batch < self.expected)
        };
        // Epoch 0 is the brick before its first start: it has no batches.
        let between = (self.epoch.max(1)..header.epoch).all(ends_before);
        header.epoch > self.epoch && between && header.previous_crc == 0
    }
    /// True if the epoch ended before the next batch: what follows of it is dead, a whole header with a torn payload too.
    fn ended(&self, epoch: u64) -> bool {
        let end = self.superblock.ends.iter().find(|end| end.epoch == epoch);
        end.is_some_and(|end| end.batch < self.expected)
    }
}

/// The log to walk.
pub struct Log<'a> {
    /// Knows where epochs ended.
    pub superblock: &'a Superblock,
    /// The place where it begins.
    pub replay: &'a ReplayRow,
    /// The headers of all commit segments at or after that, and perhaps others.
    pub segments: Vec<SegmentHeader>,
    /// The receiver of progress.
    pub tell: &'a Tell,
    /// True if the intact beginning of a damaged log is wanted all the same.
    pub damaged: bool,
    /// Ways over bad batches that a repair has found.
    pub over: &'a [Passage],
}

/// Walks the log and hands its records, in order, to `sink`. Errors: `Corrupt` by rule L5, `Newer`, `Io`, and what
/// `sink` returns.
pub async fn walk(
    runtime: &Runtime,
    geometry: &Geometry,
    log: Log<'_>,
    mut sink: impl AsyncFnMut(Vec<Replayed>) -> Result<()>,
) -> Result<Tail> {
    let Log { superblock, replay, mut segments, tell, damaged, over } = log;
    segments.retain(|header| header.stream == Stream::Commit && header.sequence >= replay.sequence);
    segments.sort_by_key(|header| header.sequence);
    let mut chain = Chain::at((superblock, Bounds::of(superblock, geometry)), replay, damaged, over);
    let mut tail = Tail::at(replay);
    let mut pending: VecDeque<Found> = VecDeque::new();
    let mut ready = Vec::new();
    let mut ahead = 0;
    let blocks = u64::from(geometry.blocks());
    let of = segments.len() as u64 * blocks;
    for (number, header) in (0..).zip(&segments) {
        let mut window = Window { runtime, geometry, segment: header.segment, first: 0, buffer: None };
        let mut block = chain.start(replay, header);
        while let Some(found) = step(&mut window, (header, &segments), &mut chain, block).await? {
            let (there, next) = found.end;
            tail.reached = (found.number, Some(found.end));
            tell(Step { what: "log", done: number * blocks + u64::from(next), of });
            pending.push_back(found);
            while pending.front().is_some_and(|found| found.number <= chain.durable_seen) {
                tail.deliver(pending.pop_front().expect("just seen"), &mut ready);
            }
            if ready.len() >= CHUNK_RECORDS {
                sink(std::mem::take(&mut ready)).await?;
            }
            if there.segment != header.segment {
                break;
            }
            block = next;
        }
        ahead = ahead.max(look_ahead(&mut window, header, &chain, block).await?);
    }
    // Above the last `durable_through` a batch counts only if its payload is whole (rule L5).
    while !pending.is_empty() {
        let batches = some_batches(&pending);
        let (some, believed) = (batches.len(), active(Bug::TornTailBelieved));
        let whole = if believed { some } else { payloads::whole(runtime, geometry, &batches).await? };
        assert!(whole <= some, "{whole} of {some} batches are whole");
        pending.drain(..whole).for_each(|found| tail.deliver(found, &mut ready));
        if whole < some {
            break;
        }
        if ready.len() >= CHUNK_RECORDS {
            sink(std::mem::take(&mut ready)).await?;
        }
    }
    assert!(tail.number <= tail.reached.0, "what counts of the log is a part of its chain");
    let ended = superblock.ends.last().map_or(0, |end| end.batch);
    let durable = chain.durable_seen.max(ahead).max(ended).max(chain.unread);
    tail.durable = durable;
    if tail.number < durable && !damaged && !active(Bug::DamageTakenForTail) {
        let what = "the log is damaged below its durable end, and nothing was changed: `sinter check --repair` keeps what it can \
                    and lists what is lost, or restore the brick from a backup";
        let error = Error::new(Kind::Corrupt, what);
        return Err(error.with(format!("batch {} is bad, {durable} was durable", tail.number + 1)));
    }
    sink(ready).await?;
    Ok(tail)
}

impl Tail {
    /// The tail before the first batch that replay reads.
    fn at(replay: &ReplayRow) -> Tail {
        let number = replay.number.max(1) - 1;
        Tail { number, end: None, crc: replay.previous_crc, batches: 0, blocks: 0, reached: (number, None), durable: 0 }
    }
    fn deliver(&mut self, found: Found, ready: &mut Vec<Replayed>) {
        // One that stands for several bad ones has the number of the last.
        assert!(found.number > self.number, "batch {} comes after {}", found.number, self.number);
        self.number = found.number;
        self.end = Some(found.end);
        self.crc = found.crc;
        self.batches += 1;
        self.blocks += u64::from(found.blocks);
        ready.extend(found.records);
    }
}

/// Records of the batches, from the first on, whose payloads are compared together.
fn some_batches(pending: &VecDeque<Found>) -> Vec<&[Replayed]> {
    let mut blocks = 0;
    let enough = pending.iter().position(|found| {
        blocks += payloads::blocks_of(&found.records);
        blocks >= CHECK_BLOCKS
    });
    let count = enough.map_or(pending.len(), |last| last + 1);
    assert!((1..=pending.len()).contains(&count), "each look at payloads brings replay forward");
    pending.iter().take(count).map(|found| &found.records[..]).collect()
}

/// The next batch of the chain, or what is left of bad ones that a repair has found a way over.
async fn step(
    window: &mut Window<'_>,
    (header, segments): (&SegmentHeader, &[SegmentHeader]),
    chain: &mut Chain<'_>,
    block: u32,
) -> Result<Option<Found>> {
    let Some(passage) = chain.over.iter().find(|passage| passage.from == chain.expected).copied() else {
        return next_batch(window, header, chain, block).await;
    };
    let of = |place: Place| segments.iter().find(|header| header.segment == place.segment);
    let target = of(passage.at).ok_or_else(|| header_lost(passage.at.segment))?;
    let records = match passage.bad.and_then(|place| of(place).map(|header| (header, place))) {
        Some((header, place)) => {
            let salvaged = salvage(window.runtime, window.geometry, header, u32::from(place.block)).await?;
            let records = salvaged.records.into_iter();
            let bounded = records.filter(|(logged, runs)| chain.bounds.logged(logged, runs).is_ok());
            bounded.map(|(logged, runs)| Replayed { logged, runs, batch: passage.from }).collect()
        }
        None => Vec::new(),
    };
    (chain.expected, chain.previous_crc, chain.epoch) = (passage.to, passage.previous_crc, passage.epoch);
    chain.landing = Some(passage.at);
    let end = (*target, u32::from(passage.at.block));
    let (number, crc) = (passage.to - 1, passage.previous_crc);
    Ok(Some(Found { number, blocks: 0, records, replicated: Vec::new(), end, crc }))
}

/// The remains of a bad batch.
pub struct Salvaged {
    /// Records that are whole: each has a checksum of its own, which names the brick and the segment's life.
    pub records: Vec<(Logged, Vec<Run>)>,
    /// They are all that the header speaks of.
    pub all: bool,
}

/// Reads the records of a bad batch that are whole.
pub async fn salvage(runtime: &Runtime, geometry: &Geometry, segment: &SegmentHeader, block: u32) -> Result<Salvaged> {
    let mut salvaged = Salvaged { records: Vec::new(), all: false };
    if block >= geometry.blocks() {
        return Ok(salvaged);
    }
    let mut window = Window { runtime, geometry, segment: segment.segment, first: 0, buffer: None };
    let peeked = BatchHeader::peek(window.blocks(block, 1).await?).ok();
    // No further than records go: payloads are what clients say.
    let blocks = window.blocks(block, peeked.as_ref().map_or(1, |header| u32::from(header.header_blocks))).await?;
    let mut reader = Reader::new(&blocks[FIXED_BYTES..]);
    let mut rest = usize::MAX;
    while reader.rest().len() < rest {
        rest = reader.rest().len();
        // A bad one is passed by the length that it says, if that can be.
        if let Ok(record) = take_framed(&mut reader, segment.uuid, segment.life, segment.sequence) {
            salvaged.records.push(record);
        }
    }
    salvaged.all = peeked.is_some_and(|header| usize::from(header.records) <= salvaged.records.len());
    Ok(salvaged)
}

async fn next_batch(
    window: &mut Window<'_>,
    segment: &SegmentHeader,
    chain: &mut Chain<'_>,
    block: u32,
) -> Result<Option<Found>> {
    let Some((header, crc, blocks)) = header_at(window, segment, block).await? else { return Ok(None) };
    if !chain.accepts(&header) {
        return Ok(None);
    }
    let (mut records, mut replicated) = (Vec::with_capacity(usize::from(header.records)), Vec::new());
    let mut reader = Reader::new(header.records(blocks));
    for _ in 0..header.records {
        let framed = reader.rest();
        let taken = take_framed(&mut reader, segment.uuid, segment.life, segment.sequence);
        match taken.and_then(|(logged, runs)| chain.bounds.logged(&logged, &runs).map(|()| (logged, runs))) {
            Ok((logged, runs)) => {
                if chain.keeps_bytes {
                    let length = framed.len() - reader.rest().len();
                    replicated.push(framed[framed_bytes(runs.len(), 0)..length].into());
                }
                records.push(Replayed { logged, runs, batch: header.number });
            }
            Err(error) if error.kind == Kind::Corrupt && chain.damaged => {
                chain.unread = header.number;
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    if !reader.is_empty() && !chain.damaged {
        let error = Error::new(Kind::Corrupt, "a batch of the log has bytes behind its last record");
        return Err(error.with(format!("batch {}", header.number)));
    }
    chain.expected += 1;
    chain.previous_crc = crc;
    chain.epoch = header.epoch;
    chain.durable_seen = chain.durable_seen.max(header.durable_through);
    let first_payload = block + u32::from(header.header_blocks);
    let end = (*segment, first_payload + header.payload_blocks);
    let blocks = u32::from(header.header_blocks) + header.payload_blocks;
    Ok(Some(Found { number: header.number, blocks, records, replicated, end, crc }))
}

/// The first whole batch above a number, wherever it lies, that may be of the log: its header and its place. `segments`:
/// headers of the commit segments.
pub async fn next_above(
    runtime: &Runtime,
    geometry: &Geometry,
    (superblock, segments): (&Superblock, &[SegmentHeader]),
    number: u64,
) -> Result<Option<(BatchHeader, Place)>> {
    let ended = |header: &BatchHeader| {
        let end = superblock.ends.iter().find(|end| end.epoch == header.epoch);
        end.is_some_and(|end| end.batch < header.number)
    };
    let mut found: Option<(BatchHeader, Place)> = None;
    for segment in segments {
        let mut window = Window { runtime, geometry, segment: segment.segment, first: 0, buffer: None };
        for block in 1..geometry.blocks() {
            let Some((header, ..)) = header_at(&mut window, segment, block).await? else { continue };
            let nearer = found.as_ref().is_none_or(|(nearest, _)| header.number < nearest.number);
            if header.number > number && nearer && !ended(&header) {
                found = Some((header, Place { segment: segment.segment, block: block as u16 }));
            }
        }
    }
    Ok(found)
}

/// A whole, valid batch header of this segment's life at `block`, if there is one.
async fn header_at<'w>(
    window: &'w mut Window<'_>,
    segment: &SegmentHeader,
    block: u32,
) -> Result<Option<(BatchHeader, u32, &'w [u8])>> {
    let total = window.geometry.blocks();
    if block >= total {
        return Ok(None);
    }
    let Ok(peeked) = BatchHeader::peek(window.blocks(block, 1).await?) else { return Ok(None) };
    assert!(usize::from(peeked.header_blocks) <= HEADER_BLOCKS_MAX, "`peek` refuses larger ones");
    let blocks = window.blocks(block, u32::from(peeked.header_blocks)).await?;
    let Ok((header, crc)) = BatchHeader::check(blocks) else { return Ok(None) };
    let same = (header.uuid, header.segment, header.life, header.sequence)
        == (segment.uuid, segment.segment, segment.life, segment.sequence);
    let ends = u64::from(block) + u64::from(header.header_blocks) + u64::from(header.payload_blocks);
    let fits = ends <= u64::from(total);
    Ok((same && fits).then_some((header, crc, blocks)))
}

/// The highest `durable_through` that any later batch of this segment claims although the chain does not reach it.
async fn look_ahead(window: &mut Window<'_>, segment: &SegmentHeader, chain: &Chain<'_>, from: u32) -> Result<u64> {
    let mut durable = 0;
    for block in from..window.geometry.blocks() {
        if let Some((header, ..)) = header_at(window, segment, block).await?
            && header.epoch >= chain.epoch
            && !chain.ended(header.epoch)
        {
            if header.number < chain.expected {
                let error = Error::new(Kind::Corrupt, "the log goes on with a batch that the index says is behind it");
                return Err(error.with(format!("batch {} where {} begins", header.number, chain.expected)));
            }
            durable = durable.max(header.durable_through);
        }
    }
    Ok(durable)
}
