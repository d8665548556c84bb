//! Streams of payloads without records: bulk (decision D2: large payloads are placed first and ordered later, so that
//! they never delay small commits) and cold (blocks that the cleaner moves). A payload is dead until a record names it;
//! until then its ticket keeps the segment from being sealed (rule U2).

use crate::format::devices::{DeviceRow, DeviceTable, State as Part, Tier};
use crate::format::record::Run;
use crate::format::segment::Stream;
use crate::log::leave::take_leaving;
use crate::log::{Log, Prepared};
use crate::media::geometry::Geometry;
use crate::segments::Origin;
use base::limits::{BLOCK_BYTES, BULK_BYTES_MIN};
use base::{Error, Kind, Place, Result, SegmentId};
use runtime::disk::FileId;
use runtime::seeded::{Bug, active};
use runtime::{Lock, Purpose, Runtime, Slice, Stamp, Transfer, disk};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bytes of a payload that the device gets at a time while other clients commit small writes: these then wait
/// for 40 us of a flash device's time instead of 300 us (decision 0024).
const PIECE_BYTES: usize = BULK_BYTES_MIN;
const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES));

/// A stream of payload of one brick.
pub struct Bulk {
    /// The stream.
    pub stream: Stream,
    /// The device whose segments it takes.
    pub from: Origin,
    purpose: Purpose,
    runtime: Runtime,
    log: Arc<Log>,
    blocks_usable: u32,
    state: Lock<State>,
    placed: AtomicU64,
}

#[derive(Default)]
struct State {
    open: Option<(Prepared, u32)>,
    prepared: VecDeque<Prepared>,
    wanted: bool,
    out_of_space: bool,
    tickets: BTreeMap<SegmentId, u32>,
    full: Vec<(SegmentId, u32)>,
    /// The error after which a disk gets nothing more.
    failed: Option<Error>,
    /// True if the disk leaves the brick, or is missing.
    retired: bool,
}

/// A payload that no record names yet. Ended by `close` once its record has been ordered, or if it never will be.
#[must_use]
pub struct Ticket {
    runs: Vec<Run>,
    held_ns: u64,
    ended: Stamp,
}

/// A payload on its way to the device.
#[must_use]
pub struct Begun {
    ticket: Ticket,
    /// The transfers under way: of the whole payload, or of one piece.
    transfers: Vec<(FileId, Transfer)>,
    /// The pieces to be written after that, one by one.
    left: VecDeque<(FileId, u64, Slice)>,
    beside: bool,
}

impl Ticket {
    /// A ticket for reserved places, before the device has any of the payload.
    fn of(spots: &[(Prepared, u32, u32)]) -> Ticket {
        Ticket { runs: spots.iter().map(to_run).collect(), held_ns: 0, ended: Stamp(0) }
    }
    /// The places of the payload, in its order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }
    /// Nanoseconds for which the payload was held back by the concurrency limit.
    pub fn held_ns(&self) -> u64 {
        self.held_ns
    }
    /// The time at which the last of its transfers had ended; 0 if that is not known.
    pub fn ended(&self) -> Stamp {
        self.ended
    }
}

impl Bulk {
    /// A stream whose segments hold at most `blocks_usable` blocks, header included.
    pub fn new((stream, from): (Stream, Origin), runtime: Runtime, log: Arc<Log>, blocks_usable: u32) -> Bulk {
        let name = match (stream, from) {
            (Stream::Cold, Origin::Flash) => "cold",
            (_, Origin::Flash) => "bulk",
            (_, Origin::Device(_)) => "destage",
        };
        assert!(stream != Stream::Commit && blocks_usable > 1, "a stream of payload, in segments with room for it");
        let purpose = if stream == Stream::Cold { Purpose::Cleaner } else { Purpose::Bulk };
        Bulk {
            stream,
            from,
            purpose,
            runtime,
            log,
            blocks_usable,
            state: Lock::new(name, State::default()),
            placed: AtomicU64::new(0),
        }
    }

    /// The stream of what goes to the disk at this position of the device table.
    pub fn of_disk(slot: usize, runtime: &Runtime, log: &Arc<Log>, blocks_usable: u32) -> Bulk {
        Bulk::new((Stream::Cold, Origin::Device(slot)), runtime.clone(), log.clone(), blocks_usable)
    }

    /// The streams of what goes to disks, one for each. Those that leave, or are missing, take nothing.
    pub(crate) fn of_disks(
        (devices, geometry): (&DeviceTable, &Geometry),
        runtime: &Runtime,
        log: &Arc<Log>,
        blocks_usable: u32,
    ) -> Vec<Arc<Bulk>> {
        let disks = devices.rows.iter().enumerate().filter(|(_, row)| row.tier == Tier::Disk);
        let stream = |(slot, row): (usize, &DeviceRow)| {
            let stream = Bulk::of_disk(slot, runtime, log, blocks_usable);
            if row.state != Part::InUse || geometry.is_missing(SegmentId(row.first)) {
                stream.retire();
            }
            Arc::new(stream)
        };
        disks.map(stream).collect()
    }

    /// The position in the device table of the disk that it writes to; None: it writes to flash.
    pub fn disk(&self) -> Option<usize> {
        match self.from {
            Origin::Flash => None,
            Origin::Device(slot) => Some(slot),
        }
    }

    /// Writes a payload of whole blocks; returns when the device has taken all of it (not flushed).
    pub async fn place(&self, payload: Slice) -> Result<Ticket> {
        let begun = self.begin(payload, false).await?;
        self.end(begun).await
    }

    /// Begins to write a payload of whole blocks; the caller must pass the result to `end`. `beside`: other clients
    /// commit small writes meanwhile. Then the payload is written in pieces, between which the device can take these
    /// writes, and is made durable by a flush of its own, so that small commits need not wait for its bytes.
    pub async fn begin(&self, payload: Slice, beside: bool) -> Result<Begun> {
        assert!(payload.len().is_multiple_of(BLOCK_BYTES) && !payload.is_empty());
        let blocks = (payload.len() / BLOCK_BYTES) as u32;
        let spots = self.reserve(blocks).await?;
        self.placed.fetch_add(u64::from(blocks), Ordering::Relaxed);
        let mut begun = Begun {
            ticket: Ticket::of(&spots),
            transfers: Vec::with_capacity(spots.len()),
            left: VecDeque::new(),
            beside,
        };
        let mut from = 0;
        for (prepared, block, count) in &spots {
            let end = from + *count as usize * BLOCK_BYTES;
            let mut offset = prepared.offset + u64::from(*block) * BLOCK_BYTES as u64;
            while from < end {
                let bytes = if beside { PIECE_BYTES.min(end - from) } else { end - from };
                let piece = (prepared.file, offset, payload.slice(from..from + bytes));
                match beside && !begun.transfers.is_empty() {
                    true => begun.left.push_back(piece),
                    false => begun.transfers.push(self.write(piece)),
                }
                (from, offset) = (from + bytes, offset + bytes as u64);
            }
        }
        assert!(from == payload.len(), "each block of a payload has its place");
        Ok(begun)
    }

    fn write(&self, (file, offset, slice): (FileId, u64, Slice)) -> (FileId, Transfer) {
        let request = runtime::Request::Write { file, offset, slices: vec![slice], durable: false };
        (file, self.runtime.disk.submit_for(self.purpose, request))
    }

    /// Waits until the device has written the whole payload, and has made it durable if it was begun with `beside`.
    pub async fn end(&self, mut begun: Begun) -> Result<Ticket> {
        if active(Bug::BulkOrderedEarly) {
            // The transfers go on although nothing waits for them.
            return Ok(begun.ticket);
        }
        let mut result = Ok(());
        let mut unflushed = Vec::new();
        while let Some((file, transfer)) = begun.transfers.pop() {
            let done = transfer.await;
            begun.ticket.held_ns += done.held_ns;
            begun.ticket.ended = begun.ticket.ended.max(done.ended);
            result = result.and(done.result);
            match begun.beside {
                false => self.log.mark_dirty(file),
                true if unflushed.contains(&file) || active(Bug::BulkUnflushed) => {}
                true => unflushed.push(file),
            }
            if result.is_ok() {
                begun.transfers.extend(begun.left.pop_front().map(|piece| self.write(piece)));
            }
        }
        assert!(begun.left.is_empty() || result.is_err(), "the device has taken each piece");
        for file in unflushed {
            if result.is_ok() {
                result = disk::flush_for(self.purpose, &*self.runtime.disk, file).await;
            }
        }
        if let Err(error) = result {
            self.log.fail(error.with("bulk write"));
            self.close(begun.ticket);
            return Err(self.log.check().expect_err("it has just failed"));
        }
        Ok(begun.ticket)
    }

    /// Writes runs of whole blocks to a disk, all of them queued at once, so that it need not wait between them. Returns a
    /// ticket for each when all are durable: if their moves were ordered before, the next commit would wait for the disk's
    /// flush (rule U1). A disk that fails gets nothing more; the log and the flash go on. Errors: `Busy` without a free
    /// segment, `Io`.
    pub async fn place_durably(&self, runs: Vec<Slice>) -> Result<Vec<Ticket>> {
        if let Some(error) = self.failed() {
            return Err(error);
        }
        if !self.takes_more() {
            return Err(Error::new(Kind::Busy, "the disk leaves the brick, or is missing"));
        }
        let mut all = Vec::with_capacity(runs.len());
        let mut begun = Ok(());
        for run in runs {
            match self.begin(run, false).await {
                Ok(run) => all.push(run),
                Err(error) => {
                    begun = Err(error);
                    break;
                }
            }
        }
        let mut result = Ok(());
        let mut files = Vec::new();
        for begun in &mut all {
            while let Some((file, transfer)) = begun.transfers.pop() {
                result = result.and(transfer.await.result);
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        for file in files {
            if begun.is_ok() && result.is_ok() && !active(Bug::DestageUnflushed) {
                result = disk::flush_for(self.purpose, &*self.runtime.disk, file).await;
            }
        }
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        let tickets = all.into_iter().map(|begun| begun.ticket);
        if let Err(error) = result.and(begun) {
            tickets.for_each(|ticket| self.close(ticket));
            return Err(error);
        }
        Ok(tickets.collect())
    }
    /// Notes that the stream's disk has failed: it gets no more segments.
    pub fn fail(&self, error: Error) {
        self.state.lock().failed.get_or_insert(error);
    }
    /// The error after which the stream's disk gets nothing more.
    pub fn failed(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }

    /// Has the stream take nothing more, because its disk leaves the brick. What it has open counts as full, and is sealed.
    pub fn retire(&self) {
        self.state.lock().retired = true;
        self.leave(|_| true);
        self.log.segment_wanted.notify();
    }
    /// Has the stream go on elsewhere: what it has open or prepared of segments that leave the brick counts as full, and is sealed.
    pub fn leave(&self, leaves: impl Fn(SegmentId) -> bool) {
        let mut state = self.state.lock();
        let State { open, prepared, full, .. } = &mut *state;
        let open = open.take_if(|(open, _)| leaves(open.segment));
        full.extend(open.map(|(open, next)| (open.segment, next)));
        take_leaving(prepared, full, &leaves);
    }
    /// False if its disk has failed, or leaves the brick.
    pub fn takes_more(&self) -> bool {
        let state = self.state.lock();
        state.failed.is_none() && !state.retired
    }

    /// Ends a ticket whose record has been ordered, or never will be.
    pub fn close(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        for run in &ticket.runs {
            let open = state.tickets.get_mut(&run.place.segment).expect("a ticket is closed once");
            *open -= 1;
            if *open == 0 {
                state.tickets.remove(&run.place.segment);
            }
        }
    }

    async fn reserve(&self, blocks: u32) -> Result<Vec<(Prepared, u32, u32)>> {
        let mut spots = Vec::with_capacity(2);
        let mut left = blocks;
        while left > 0 {
            let ticket = self.log.segment_came.ticket();
            self.log.check()?;
            if self.log.stopping() {
                return Err(Error::new(Kind::Interrupted, "the brick is being closed"));
            }
            match self.reserve_some(left) {
                Some((prepared, block, count)) => {
                    spots.push((prepared, block, count));
                    left -= count;
                }
                None if self.stream == Stream::Cold => {
                    // The cleaner does not wait here: it may have to do something else that frees segments.
                    self.log.segment_wanted.notify();
                    self.close(Ticket::of(&spots));
                    return Err(Error::new(Kind::Busy, "the cleaner waits for a segment"));
                }
                None => {
                    self.log.segment_wanted.notify();
                    self.log.segment_came.after(ticket).await;
                    if self.state.lock().out_of_space {
                        self.close(Ticket::of(&spots));
                        return Err(Error::new(Kind::NoSpace, "no free segment"));
                    }
                }
            }
        }
        Ok(spots)
    }

    fn reserve_some(&self, blocks: u32) -> Option<(Prepared, u32, u32)> {
        let mut state = self.state.lock();
        if state.retired {
            return None;
        }
        if state.open.is_some_and(|(_, next)| next >= self.blocks_usable) {
            let (prepared, next) = state.open.take().expect("just seen");
            state.full.push((prepared.segment, next));
        }
        if state.open.is_none() {
            state.open = state.prepared.pop_front().map(|prepared| (prepared, 1));
            state.wanted = true;
            // Segments may have become free since it was set.
            state.out_of_space = false;
            self.log.segment_wanted.notify();
        }
        let (prepared, next) = state.open.as_mut()?;
        assert!(*next > 0 && *next < self.blocks_usable, "a segment that takes a payload has room behind its header");
        let count = blocks.min(self.blocks_usable - *next);
        let spot = (*prepared, *next, count);
        *next += count;
        let segment = spot.0.segment;
        *state.tickets.entry(segment).or_default() += 1;
        Some(spot)
    }

    /// Blocks written since start.
    pub fn placed_blocks(&self) -> u64 {
        self.placed.load(Ordering::Relaxed)
    }
    /// True if the stream needs another segment ahead: only once it has been used at all.
    pub fn wants_segment(&self) -> bool {
        let state = self.state.lock();
        state.wanted && state.prepared.is_empty() && state.failed.is_none() && !state.retired
    }
    /// Notes that no segment is free for data, and wakes the tasks that wait for one.
    pub fn set_out_of_space(&self) {
        self.state.lock().out_of_space = true;
        self.log.segment_came.notify();
    }
    /// Hands over a prepared segment.
    pub fn give(&self, prepared: Prepared) {
        let mut state = self.state.lock();
        let last = state.open.map_or(0, |(open, _)| open.sequence);
        assert!(last < prepared.sequence, "segments are prepared in the order of their stream");
        match state.retired {
            true => state.full.push((prepared.segment, 1)),
            false => state.prepared.push_back(prepared),
        }
        drop(state);
        self.log.segment_came.notify();
    }
    /// Full segments whose payloads have all been ordered (or dropped): they can be sealed.
    pub fn take_full(&self) -> Vec<(SegmentId, u32)> {
        let mut state = self.state.lock();
        let State { full, tickets, .. } = &mut *state;
        let pinned = |segment: &SegmentId| tickets.contains_key(segment) && !active(Bug::TicketForgotten);
        let (held, free) = full.drain(..).partition(|(segment, _)| pinned(segment));
        *full = held;
        free
    }
    /// The lock's figures.
    pub fn lock_summary(&self) -> runtime::lock::LockSummary {
        self.state.summary()
    }
}

fn to_run((prepared, block, count): &(Prepared, u32, u32)) -> Run {
    assert!(*count > 0 && *block + *count <= 1 << 16, "block numbers have 16 bits");
    Run { place: Place { segment: prepared.segment, block: *block as u16 }, count: *count as u16 }
}
