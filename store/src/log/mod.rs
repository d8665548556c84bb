//! The log: every change of every group is one record in one shared sequence of batches (decision D1). Group commit
//! needs no dedicated thread: if a request finds the log idle, a writer task of its own core submits the batch at once,
//! and all requests that come while that write is under way share the next batch (decision D3).
//!
//! Promises: acknowledgements in log order and only by rule U1; the first failed write or flush fails everything
//! unacknowledged and stops the log for good (rule U4). Absent by design: the meaning of records, and the choice of
//! segments (see `prepare`). Owned by the store; one short measured lock.

pub mod build;
pub mod core;
pub mod drive;
pub mod leave;
mod local;
mod replace;
mod summaries;

use self::build::{Batch, Building, HeaderFields, OpenSegment};
use self::core::{Commit, Positions};
pub use self::replace::Replacement;
use crate::format::Uuid;
use crate::format::batch::FIXED_BYTES;
use crate::format::record::{Frame, Places, Run, framed_bytes, put_framed};
use crate::format::segment::SegmentHeader;
use crate::format::summary::{SummaryEntry, summary_blocks};
use crate::format::values::ReplayRow;
use crate::media::geometry::Geometry;
use base::limits::{BLOCK_BYTES, BULK_BYTES_MIN, HEADER_BLOCKS_MAX, SEGMENT_BYTES_MIN};
use base::{Error, GroupId, Index, Ino, Kind, Life, Place, ReplicaId, Result, SegmentId, Sync, VolumeId};
use runtime::ledger::Phases;
use runtime::seeded::{Bug, active};
use runtime::{Buf, Event, FileId, Lock, Runtime, Slice, Span, Stage};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

/// Largest number of batches being written at once. Two keep the device busy while the next is built; more would only
/// make batches smaller, with a header of 4 KiB each. A brick of several devices will need a number found by feedback.
const WRITING_MAX: usize = 2;
/// Largest number of bytes of memory for changes that are ordered and not yet written: half of the program's own
/// buffers, from which headers of batches come, but no more than this. It bounds memory, and what a crash can lose.
const PENDING_BYTES_MAX: u64 = 64 << 20;

/// The smallest segment holds any one change: its own header, that of the largest record, the largest inline payload, the
/// mark behind it, and the summary.
const _: () = {
    let payload = BULK_BYTES_MIN / BLOCK_BYTES;
    let blocks = 1 + HEADER_BLOCKS_MAX + payload + 1 + summary_blocks(payload);
    assert!(blocks as u64 * BLOCK_BYTES as u64 <= SEGMENT_BYTES_MIN);
};

/// A commit segment made ready by `prepare`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// The segment.
    pub segment: SegmentId,
    /// The segment's life.
    pub life: Life,
    /// The segment's position in its stream.
    pub sequence: u64,
    /// The file that the segment lies in.
    pub file: FileId,
    /// Byte offset of the segment's first block in the file.
    pub offset: u64,
}

/// Blocks of a payload, as the summary will list them.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// The inode.
    pub ino: Ino,
    /// Number of the first block within the inode.
    pub first: u64,
    /// One checksum per block.
    pub crcs: &'a [u32],
}

/// The payload of a record.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// No payload.
    None,
    /// Blocks that become part of the batch.
    Inline(&'a [Slice]),
    /// Blocks that the bulk stream has placed.
    Placed(&'a [Run]),
}

/// A record to be logged. Its replicated part is encoded by the group, which knows the record's index.
pub struct Entry<'a> {
    /// The group, volume and index, for the summary.
    pub owner: (GroupId, VolumeId, Index),
    /// The replicated part, encoded.
    pub replicated: &'a [u8],
    /// The payload.
    pub payload: Payload<'a>,
    /// The inodes and blocks that the payload consists of.
    pub described: &'a [Described<'a>],
}

/// The place of a record in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// The batch that the record is in, for `wait`.
    pub batch: u64,
    /// The place of the first block of the record's inline payload.
    pub place: Option<Place>,
}

struct Waiter {
    batch: u64,
    durable: bool,
    waker: Waker,
}

struct State {
    commit: Commit,
    segment: Option<OpenSegment>,
    prepared: VecDeque<Prepared>,
    building: Option<Building>,
    ready: VecDeque<Batch>,
    next_number: u64,
    previous_crc: u32,
    epoch: u64,
    /// Position in the stream of this log's first segment.
    first_sequence: u64,
    waiters: Vec<Waiter>,
    idle_writers: Vec<Vec<Waker>>,
    /// The time by the clock at which each write and flush under way began.
    under_way: Vec<u64>,
    spare: Vec<Vec<Slice>>,
    /// A record found no memory for its batch since the last tick.
    short_of_memory: bool,
    scratch: Vec<u8>,
    /// Records with a payload in the batch being built: the payload's first block within the batch's payload, and the
    /// position of the record in the header.
    inlined: Vec<(u32, usize)>,
    /// Number of header blocks of the next batch. It grows while batches end because their headers are full.
    header_blocks: usize,
    /// Number of blocks in the segment that the append under way does not need.
    spare_blocks: u32,
    summaries: BTreeMap<SegmentId, Vec<SummaryEntry>>,
    /// Number of summary entries of the open segment that a checkpoint has taken. These can't change any more.
    summary_taken: usize,
    full: Vec<(SegmentId, u32)>,
    /// The log goes on in the next segment as soon as there is one, whatever room is left: a device leaves on which it lies.
    moves_on: bool,
    last_durable_stamp: u64,
    phases: Phases,
    figures: Figures,
    out_of_space: bool,
    failed: Option<Error>,
    stopping: bool,
    closing: bool,
    /// Seeded bug `AckBeforeFlush` only: the last batch that was acknowledged too early.
    acknowledged_early: u64,
}

/// The log's figures since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Number of batches written.
    pub batches: u64,
    /// Number of records ordered.
    pub records: u64,
    /// Number of bytes written, headers included.
    pub bytes: u64,
    /// Number of batches that were durable by their own write.
    pub fua_batches: u64,
    /// Number of flushes.
    pub flushes: u64,
}

/// The log of one brick.
pub struct Log {
    runtime: Runtime,
    uuid: Uuid,
    segment_blocks: u32,
    state: Lock<State>,
    written: AtomicU64,
    /// Notified when a prepared segment is taken or wanted.
    pub segment_wanted: Event,
    /// Notified when a segment was prepared, or when it turns out that none can be.
    pub segment_came: Event,
    drained: Event,
    /// True after a failure. Like `pending_bytes` it is read without the lock.
    has_failed: AtomicBool,
    pending_bytes: AtomicU64,
    pending_bytes_max: u64,
}

/// The point at which the log continues after recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    /// Number of the last batch that counts.
    pub number: u64,
    /// The epoch of all appends from now on.
    pub epoch: u64,
    /// Position in the stream of the first segment that will be appended to.
    pub sequence: u64,
}

impl Log {
    /// A log that continues after `resume`, in fresh segments.
    pub fn new(runtime: Runtime, uuid: Uuid, segment_blocks: u32, resume: Resume) -> Log {
        let cores = runtime.tasks.cores();
        let state = State {
            commit: Commit::new(resume.number),
            segment: None,
            prepared: VecDeque::new(),
            building: None,
            ready: VecDeque::new(),
            next_number: resume.number + 1,
            previous_crc: 0,
            epoch: resume.epoch,
            first_sequence: resume.sequence,
            waiters: Vec::with_capacity(1024),
            under_way: Vec::with_capacity(drive::UNDER_WAY_MAX),
            idle_writers: (0..cores).map(|_| Vec::with_capacity(16)).collect(),
            spare: Vec::new(),
            short_of_memory: false,
            scratch: Vec::with_capacity(2 * BLOCK_BYTES),
            inlined: Vec::with_capacity(build::PAYLOAD_BLOCKS_MAX as usize),
            header_blocks: 1,
            spare_blocks: 0,
            summaries: BTreeMap::new(),
            summary_taken: 0,
            full: Vec::new(),
            moves_on: false,
            last_durable_stamp: resume.number,
            phases: Default::default(),
            figures: Figures::default(),
            out_of_space: false,
            failed: None,
            stopping: false,
            closing: false,
            acknowledged_early: 0,
        };
        let events = || Event::new();
        Log {
            pending_bytes_max: PENDING_BYTES_MAX.min(runtime.slabs.own_bytes_max() / 2),
            runtime,
            uuid,
            segment_blocks,
            state: Lock::new("log", state),
            written: AtomicU64::new(resume.number),
            segment_wanted: events(),
            segment_came: events(),
            drained: events(),
            has_failed: AtomicBool::new(false),
            pending_bytes: AtomicU64::new(0),
        }
    }

    /// Waits until a record may be ordered: the bytes of pending records are bounded (back-pressure). The wait is
    /// booked in `span`.
    pub async fn admit(&self, span: &Span) -> Result<()> {
        let mut waited = false;
        loop {
            let ticket = self.drained.ticket();
            if self.has_failed.load(Ordering::Acquire) {
                // Clients must learn of the failure (rule U4), whatever else the caller would find wrong.
                self.check()?;
            }
            if self.pending_bytes.load(Ordering::Acquire) <= self.pending_bytes_max {
                break;
            }
            self.kick(true);
            self.drained.after(ticket).await;
            waited = true;
        }
        if waited {
            span.mark(Stage::Backlog, self.runtime.stamp());
        }
        Ok(())
    }

    /// Appends records, all or none, in order; one batch holds them unless they don't fit. Called under the locks of
    /// the groups concerned. Errors: `Busy` if no prepared segment or no memory is at hand (wait for `segment_came`, then
    /// evaluate again), `Io` after a failure (rule U4).
    pub fn append(&self, entries: &[Entry<'_>], sync: Sync, ordered: &mut Vec<Ordered>) -> Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        state.reserve(self, entries)?;
        let mut headers = state.headers(self, entries)?.into_iter();
        for entry in entries {
            ordered.push(state.append_one(self, entry, headers.next().flatten())?);
        }
        state.note_wants(sync);
        Ok(())
    }

    /// Appends one record; as `append`.
    pub fn append_one_record(&self, entry: &Entry<'_>, sync: Sync) -> Result<Ordered> {
        let mut state = self.state.lock();
        state.check()?;
        state.reserve(self, std::slice::from_ref(entry))?;
        let ordered = state.append_one(self, entry, None)?;
        state.note_wants(sync);
        Ok(ordered)
    }

    /// Waits until batch `batch` is as durable as `sync` asks. Errors: `Io` if the log has failed before that.
    pub async fn wait(&self, batch: u64, sync: Sync, span: Option<&Span>) -> Result<()> {
        if sync == Sync::Ordered {
            self.kick(false);
            return Ok(());
        }
        let durable = sync >= Sync::Data;
        let phases = std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            let outcome = state.outcome(batch, durable);
            if outcome.is_ready() {
                return outcome;
            }
            // Under the same lock as the check above, so that a request that waits takes the lock only once.
            state.want(batch, durable);
            state.waiters.push(Waiter { batch, durable, waker: context.waker().clone() });
            let writer = state.writer(self.runtime.tasks.core());
            drop(state);
            if let Some(writer) = writer {
                writer.wake();
            }
            Poll::Pending
        })
        .await?;
        if let Some(span) = span {
            span.mark_commit(phases, self.runtime.stamp());
        }
        Ok(())
    }

    /// The phases of the latest commit, if a batch is durable.
    pub fn phases_of(&self, batch: u64) -> Option<Phases> {
        match self.state.lock().outcome(batch, true) {
            Poll::Ready(Ok(phases)) => Some(phases),
            _ => None,
        }
    }

    /// The batch that holds the last record ordered so far; 0 if there is none yet.
    pub fn last_batch(&self) -> u64 {
        let state = self.state.lock();
        state.next_number - u64::from(state.building.is_none())
    }

    /// The batch up to which all are written, itself included. Read without the lock, so it may lag.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Bytes of memory of changes that are ordered and not yet written, and the bound up to which further records are
    /// admitted.
    pub fn pending_bytes(&self) -> (u64, u64) {
        (self.pending_bytes.load(Ordering::Acquire), self.pending_bytes_max)
    }

    /// The progress of writes and durability.
    pub fn positions(&self) -> Positions {
        self.state.lock().commit.positions()
    }

    /// Makes a checkpoint's cut: ends the batch being built. Returns the place where the next batch will start, from
    /// which a replay sees every later record, and the last batch before the cut (rule U5: the checkpoint waits until
    /// that batch is durable).
    pub fn cut(&self) -> (ReplayRow, u64) {
        let mut state = self.state.lock();
        state.close_building(self);
        let place = state.segment;
        let row = ReplayRow {
            number: state.next_number,
            previous_crc: state.previous_crc,
            epoch: state.epoch,
            sequence: place.map_or(state.first_sequence, |open| open.sequence),
            segment: place.map_or(SegmentId(0), |open| open.segment),
            block: place.map_or(0, |open| open.next_block.min(u32::from(u16::MAX)) as u16),
            next_sequence: [0; 3],
        };
        let last = state.next_number - 1;
        assert!(state.commit.positions().written <= last, "what is written lies before the cut, or in it");
        drop(state);
        self.kick(true);
        (row, last)
    }

    /// Hands the log a prepared segment.
    pub fn give(&self, prepared: Prepared) {
        let mut state = self.state.lock();
        state.out_of_space = false;
        let last = state.prepared.back().map_or(0, |last| last.sequence);
        assert!(last < prepared.sequence, "segments are prepared in the order of their stream");
        state.prepared.push_back(prepared);
        state.move_on(self);
        drop(state);
        self.segment_came.notify();
        self.kick(false);
    }
    /// Number of prepared segments at hand.
    pub fn prepared(&self) -> usize {
        self.state.lock().prepared.len()
    }
    /// Notes that a write beside the log has completed without flush.
    pub fn mark_dirty(&self, file: FileId) {
        self.state.lock().commit.mark_dirty(file);
    }
    /// Segments that have become full since the last call, each with the number of its blocks in use.
    pub fn take_full(&self) -> Vec<(SegmentId, u32)> {
        std::mem::take(&mut self.state.lock().full)
    }
    /// The log's figures since start.
    pub fn figures(&self) -> Figures {
        self.state.lock().figures
    }
    /// Statistics of the log's lock: how often it was taken and contended, how long it was waited for and held.
    pub fn lock_summary(&self) -> runtime::lock::LockSummary {
        self.state.summary()
    }
    /// Notes that no segment is free, and wakes the tasks that wait for one.
    pub fn set_out_of_space(&self) {
        self.state.lock().out_of_space = true;
        self.segment_came.notify();
    }
    /// Notes that segments are free again; they will be prepared.
    pub fn clear_out_of_space(&self) {
        self.state.lock().out_of_space = false;
    }
    /// True if no segment is free.
    pub fn out_of_space(&self) -> bool {
        self.state.lock().out_of_space
    }
    /// The first failure, if any.
    pub fn failed(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }
    /// Returns an error after a failure of the log. Errors: `Io`, whatever the first failure was: a device that refuses
    /// a write because it has no space must not look to clients like a full brick (rule U4).
    pub fn check(&self) -> Result<()> {
        self.state.lock().check()
    }
    /// Fails everything unacknowledged and every later append (rule U4).
    pub fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(|waiter| waiter.waker.wake());
        self.drained.notify();
        self.segment_came.notify();
        self.segment_wanted.notify();
    }
    /// Seeded bug `TailReused` only: continues right after the old tail.
    pub fn reuse_tail(&self, geometry: &Geometry, header: &SegmentHeader, block: u32, crc: u32) {
        let place = Place { segment: header.segment, block: 0 };
        let spot = geometry.spot(place).expect("the tail lies in a segment that was read");
        let mut state = self.state.lock();
        let SegmentHeader { segment, life, sequence, .. } = *header;
        let (file, offset) = (spot.file, spot.offset);
        state.segment =
            Some(OpenSegment { segment, life, sequence, file, offset, next_block: block, payload_blocks: 0 });
        state.previous_crc = crc;
    }
    /// True if appends go to this segment.
    pub fn is_reused(&self, segment: SegmentId) -> bool {
        self.state.lock().segment.is_some_and(|open| open.segment == segment)
    }
    /// Notes that the brick is being closed: no more empty batches are written to carry `durable_through` forward,
    /// since the next start would have to replay them.
    pub fn close(&self) {
        self.state.lock().closing = true;
    }
    /// Lets the writers end once nothing is left to write.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        let idle: Vec<_> = state.idle_writers.iter_mut().flat_map(|wakers| wakers.drain(..)).collect();
        drop(state);
        idle.into_iter().for_each(Waker::wake);
        self.segment_wanted.notify();
        self.segment_came.notify();
    }
    /// True once `stop` was called.
    pub fn stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Wakes a writer of the calling core if there is something to write. `all`: even if no request waits for it.
    fn kick(&self, all: bool) {
        let mut state = self.state.lock();
        if all && let Some(building) = state.building.as_mut() {
            building.wants_write = true;
        }
        let writer = state.writer(self.runtime.tasks.core());
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(cause) => {
                let what = "the brick is read-only after a failed device write; see `sinter status`, then restart";
                Err(Error::new(Kind::Io, what).with(cause))
            }
        }
    }

    fn note_wants(&mut self, sync: Sync) {
        let building = self.building.as_mut().expect("append_one leaves the batch of its record open");
        building.wants_write |= sync >= Sync::Written;
        building.wants_durable |= sync >= Sync::Data;
    }

    /// An idle writer of the core to wake, if there is something to write.
    fn writer(&mut self, core: usize) -> Option<Waker> {
        if self.has_job() { self.idle_writers[core].pop() } else { None }
    }

    fn has_job(&self) -> bool {
        let write = self.building_is_due() || !self.ready.is_empty();
        (write && self.commit.writing() < WRITING_MAX) || self.commit.flush_due()
    }

    /// True if the batch being built should be written now. While a batch is being made durable, the next one that is
    /// to be durable collects all requests that come meanwhile: that is group commit (decision D3).
    fn building_is_due(&self) -> bool {
        let gathers = |building: &Building| building.wants_durable && self.commit.is_committing();
        self.building.as_ref().is_some_and(|building| building.wants_write && !gathers(building))
    }

    /// The result for a waiter, if there is one yet: the times of the last write and flush.
    fn outcome(&self, batch: u64, durable: bool) -> Poll<Result<Phases>> {
        let positions = self.commit.positions();
        let reached = if durable { positions.durable.max(self.acknowledged_early) } else { positions.written };
        match self.check() {
            _ if reached >= batch => Poll::Ready(Ok(self.phases)),
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn want(&mut self, batch: u64, durable: bool) {
        assert!(batch <= self.next_number, "a wait for batch {batch} would not end: {} is next", self.next_number);
        match &mut self.building {
            Some(building) if batch >= self.next_number => {
                building.wants_durable |= durable;
                building.wants_write = true;
            }
            _ => {}
        }
        if !durable {
            return;
        }
        match self.ready.iter_mut().find(|ready| ready.number == batch) {
            Some(ready) => ready.wants_durable = true,
            None => self.commit.want(batch),
        }
    }

    /// Makes sure that the segment has space for `entries`, however they are split into batches.
    fn reserve(&mut self, log: &Log, entries: &[Entry<'_>]) -> Result<()> {
        let payload: u32 = entries.iter().map(Entry::payload_blocks).sum();
        let blocks = payload + header_blocks_of_all(entries);
        let spare = |open: &OpenSegment, building: u32, mark: u32| {
            let summary = summary_blocks((open.payload_blocks + payload) as usize) as u32;
            log.segment_blocks.checked_sub(open.next_block + building + blocks + mark + summary)
        };
        let building = self.building.as_ref().map_or(0, Building::blocks);
        if let Some(spare) = self.segment.and_then(|open| spare(&open, building, mark_blocks())) {
            self.spare_blocks = spare;
            return Ok(());
        }
        if self.prepared.is_empty() {
            log.segment_wanted.notify();
            return Err(Error::new(Kind::Busy, "the log waits for a segment"));
        }
        self.next_segment(log);
        let fresh = self.segment.expect("next_segment opens one");
        let room = spare(&fresh, 0, mark_blocks()).or_else(|| spare(&fresh, 0, 0));
        self.spare_blocks = room.expect("a fresh segment holds any one change");
        Ok(())
    }

    fn next_segment(&mut self, log: &Log) {
        self.close_building(log);
        let Prepared { segment, life, sequence, file, offset } =
            self.prepared.pop_front().expect("reserve has seen a prepared segment");
        assert!(life > Life(0), "segment {segment} is in a life");
        if let Some(open) = self.segment.take() {
            assert!(open.sequence < sequence, "a stream goes on from segment to segment");
            self.full.push((open.segment, open.next_block));
        }
        self.segment = Some(OpenSegment { segment, life, sequence, file, offset, next_block: 1, payload_blocks: 0 });
        self.summary_taken = 0;
        // Memory for a whole segment's entries: no append ever has to make it grow.
        self.summaries.entry(segment).or_insert_with(|| Vec::with_capacity(log.segment_blocks as usize));
        log.segment_wanted.notify();
    }

    /// `header`: that of the batch that the record may begin; without one, it is taken only then.
    fn append_one(&mut self, log: &Log, entry: &Entry<'_>, header: Option<Buf>) -> Result<Ordered> {
        let bytes = framed_bytes(entry.runs_max(), entry.replicated.len());
        let payload_blocks = entry.payload_blocks();
        if !self.building.as_ref().is_some_and(|building| building.fits(bytes, payload_blocks)) {
            self.grow_header(bytes);
            self.close_building(log);
            let open = self.segment.expect("reserve has opened a segment");
            let header = match header {
                Some(header) => header,
                None => {
                    let blocks = self.next_header_blocks(header_blocks(entry));
                    self.header(log, blocks)?
                }
            };
            self.building = Some(self.begin(log, &open, header));
        }
        let open = self.segment.as_mut().expect("reserve has opened a segment");
        let building = self.building.as_mut().expect("just made sure");
        let place = building.next_place(open.segment);
        let inline = [Run { place, count: payload_blocks as u16 }];
        let (runs, slices): (&[Run], &[Slice]) = match entry.payload {
            Payload::None => (&[], &[]),
            Payload::Inline(slices) => (&inline, slices),
            Payload::Placed(runs) => (runs, &[]),
        };
        let life = if active(Bug::FrameOfAnotherLife) { base::Life(open.life.0 + 1) } else { open.life };
        let frame = Frame { uuid: log.uuid, life, sequence: open.sequence, replica: ReplicaId(1) };
        self.scratch.clear();
        put_framed(&mut self.scratch, &frame, runs, entry.replicated);
        if !slices.is_empty() {
            self.inlined.push((building.payload_blocks(), building.used()));
        }
        assert!(self.scratch.len() == bytes, "a record takes the room that was reserved for it");
        building.add(&self.scratch, slices);
        assert!(building.block + building.blocks() <= log.segment_blocks, "a batch ends within its segment");
        open.payload_blocks += payload_blocks;
        log.pending_bytes.fetch_add(held_bytes(slices), Ordering::AcqRel);
        self.figures.records += 1;
        let mut places = Places::of(runs);
        for described in entry.described.iter().filter(|_| !active(Bug::SummaryForgotten)) {
            describe(&mut self.summaries, entry.owner, described, &mut places);
        }
        let all = entry.described.is_empty() || places.next().is_none();
        assert!(all || active(Bug::SummaryForgotten), "the summary tells of each block of a payload (rule L7)");
        let place = matches!(entry.payload, Payload::Inline(_)).then_some(place);
        Ok(Ordered { batch: self.next_number, place })
    }

    fn close_building(&mut self, log: &Log) {
        let Some(building) = self.building.take() else { return };
        self.inlined.clear();
        self.shrink_header(&building);
        let open = self.segment.as_mut().expect("a batch is built in a segment");
        let durable_through = self.commit.positions().durable;
        let fields = HeaderFields {
            uuid: log.uuid,
            epoch: self.epoch,
            number: self.next_number,
            previous_crc: self.previous_crc,
            durable_through,
        };
        // An empty batch only carries the mark forward. No later batch need say that it is durable, or the log would
        // never rest.
        self.last_durable_stamp = if building.is_empty() { self.next_number } else { durable_through };
        assert!(building.block == open.next_block, "a batch begins where the one before it ends");
        open.next_block = building.block + building.blocks();
        let summary = summary_blocks(open.payload_blocks as usize) as u32;
        assert!(open.next_block + summary <= log.segment_blocks, "a segment keeps room for its summary (rule L7)");
        let (batch, crc) = building.finish(open, &fields);
        self.previous_crc = crc;
        self.next_number += 1;
        self.ready.push_back(batch);
    }

    /// Begins an empty batch that only carries `durable_through` forward (rule L5).
    fn open_empty(&mut self, log: &Log) -> Result<()> {
        let Some(mut open) = self.segment else { return Ok(()) };
        if self.building.is_some() || active(Bug::MarkNotCarried) {
            return Ok(());
        }
        if open.next_block + 1 + summary_blocks(open.payload_blocks as usize) as u32 > log.segment_blocks {
            // A single change has filled the segment to its end: the mark goes into the next segment, once there is
            // one.
            if self.prepared.is_empty() || active(Bug::MarkLeftOut) {
                log.segment_wanted.notify();
                return Ok(());
            }
            self.next_segment(log);
            open = self.segment.expect("next_segment opens one");
        }
        let header = self.header(log, 1)?;
        let mut building = self.begin(log, &open, header);
        building.wants_write = true;
        self.building = Some(building);
        Ok(())
    }

    /// A new batch behind what the segment has so far.
    fn begin(&mut self, log: &Log, open: &OpenSegment, header: Buf) -> Building {
        assert!(self.building.is_none() && self.inlined.is_empty(), "one batch is built at a time");
        log.pending_bytes.fetch_add(header.capacity() as u64, Ordering::AcqRel);
        let slices = self.spare.pop().unwrap_or_default();
        Building::new(open.next_block, header, slices, log.runtime.clock.now_ns())
    }
}

/// Bytes of memory that slices keep in use.
fn held_bytes(slices: &[Slice]) -> u64 {
    slices.iter().map(|slice| slice.held_bytes() as u64).sum()
}

fn describe(
    summaries: &mut BTreeMap<SegmentId, Vec<SummaryEntry>>,
    (group, volume, index): (GroupId, VolumeId, Index),
    described: &Described<'_>,
    places: &mut Places<'_>,
) {
    for ((&crc, offset), Place { segment, block }) in described.crcs.iter().zip(described.first..).zip(places) {
        let entry = SummaryEntry { block, group, volume, ino: described.ino, offset, index, crc };
        summaries.entry(segment).or_default().push(entry);
    }
}

/// Largest number of header blocks that these records may need. They need fewer if a batch is being built already.
fn header_blocks_of_all(entries: &[Entry<'_>]) -> u32 {
    let (mut blocks, mut room) = (0, 0);
    for entry in entries {
        let bytes = framed_bytes(entry.runs_max(), entry.replicated.len());
        // A payload may end the batch before its header is full.
        if bytes > room || entry.payload_blocks() > 0 {
            let own = header_blocks(entry);
            blocks += own as u32;
            room = own * BLOCK_BYTES - FIXED_BYTES;
        }
        assert!(bytes <= room, "a record of {bytes} bytes fits into the header blocks that it needs");
        room -= bytes;
    }
    blocks
}

/// Number of blocks that an append leaves free at the end of the segment, for the empty batch (the mark) with which an
/// idle log carries `durable_through` forward (rule L5). On a full brick there may be no other segment for the mark,
/// and without it one flipped bit in the last batch would pass for a torn tail. Only a change that needs a whole
/// segment may use this block as well.
fn mark_blocks() -> u32 {
    u32::from(!active(Bug::MarkLeftOut))
}

fn header_blocks(entry: &Entry<'_>) -> usize {
    (FIXED_BYTES + framed_bytes(entry.runs_max(), entry.replicated.len())).div_ceil(BLOCK_BYTES)
}

impl Entry<'_> {
    fn payload_blocks(&self) -> u32 {
        match self.payload {
            Payload::Inline(slices) => slices.iter().map(|slice| (slice.len() / BLOCK_BYTES) as u32).sum(),
            _ => 0,
        }
    }
    fn runs_max(&self) -> usize {
        match self.payload {
            Payload::None => 0,
            Payload::Inline(_) => 1,
            Payload::Placed(runs) => runs.len(),
        }
    }
}
