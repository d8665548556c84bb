//! Streams: files on disks that clients read in order, and their read-ahead.
//!
//! A file that was overwritten at random lies on a disk in as many runs as there were destages since: each has a few blocks of
//! every megabyte of it. Read a request at a time, each of these blocks takes a seek. Read tens of megabytes at a time, in the
//! disk's order, each run takes one: with 65 runs, 8 ms for a seek and 139 MB/s, a unit of 64 MiB takes a second, half of which is
//! seeks. So a unit gets enough bytes for each seek of the one before, within its share of a bound for all streams together.
//!
//! Correctness never depends on it: a block is used only if its place still is the block's place when the client reads, and its
//! checksum is compared then (rule K8). Absent by design: what lies on flash, or has copies there, which the kernel reads ahead well
//! enough.

use crate::Groups;
use crate::data::near;
use crate::state::Block;
use crate::state::load::Wanted;
use base::limits::BLOCK_BYTES;
use base::{Ino, LeafKey, Place, VolumeId};
use runtime::seeded::{Bug, active};
use runtime::{Buf, Event, Lock, Need, Purpose, Slice, Start};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use store::format::record::Moved;
use wire::Context;

/// Streams that are followed at the same time; of more, the one that was read longest ago is forgotten.
const STREAMS_MAX: usize = 4096;
/// Bytes read in order from which on it is a stream. What is smaller is a file of its own, which may be read again as a whole.
const STREAM_BYTES: u64 = 1 << 20;
/// Requests of one stream overtake each other, the kernel's on several cores by some of their own length. They may leave out as
/// many, or this much.
const SLACK_REQUESTS: u64 = 4;
const SLACK_BYTES: u64 = 256 << 10;
const _: () = assert!(SLACK_BYTES < STREAM_BYTES);
/// Units stay for requests that were overtaken: the largest have 1 MiB.
const KEPT_BYTES: u64 = SLACK_REQUESTS << 20;
/// A stream that nobody read for so long has no units any more: one of 1 Mb/s asks for 128 KiB each second.
const IDLE_NS: u64 = 30_000_000_000;
/// First unit of a stream, unless its share is less.
const UNIT_BYTES: u64 = 4 << 20;
/// Smallest unit: what the kernel reads ahead by itself.
const UNIT_BYTES_MIN: u64 = 256 << 10;
/// Most that a unit is larger than the one before.
const GROWTH: u64 = 8;
/// Bytes for each seek of a unit: with the 8 ms of a seek and the 14 ms of 2 MiB, seeks take a third of the time.
const BYTES_PER_SEEK: u64 = 2 << 20;
/// Units of a stream: one that is read by the client, and one that is read from the disk meanwhile.
const UNITS: usize = 2;
/// Most dead blocks that are read between two others: they take less time than a seek.
const GAP_BLOCKS_MAX: u16 = 64;
/// Transfers of a unit at the same time, and their bytes. A disk that may choose among so many small ones loses less to its rotation; the
/// bytes are what others wait for.
const TRANSFERS: usize = 32;
const TRANSFERS_BYTES: usize = 4 << 20;

/// Files that clients read in order.
pub(crate) struct Streams {
    state: Lock<VecDeque<Stream>>,
    /// Bytes of all units, and their bound.
    bytes: Arc<AtomicU64>,
    bytes_max: u64,
    /// Units that nobody reads yet; None once nobody will.
    asked: Lock<Option<VecDeque<Asked>>>,
    /// Units that are being read.
    reading: AtomicUsize,
    /// All figures but the bytes that are held, which `bytes` says.
    figures: Lock<ReadAhead>,
    /// Notified when a unit is asked for, or was read.
    pub came: Event,
}

/// Read-ahead from disks since start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadAhead {
    /// Units.
    pub units: u64,
    /// Blocks that were read.
    pub read_blocks: u64,
    /// Runs of them, each of which took a seek: what lies near each other on the disk is one.
    pub runs: u64,
    /// Blocks that clients have taken.
    pub taken_blocks: u64,
    /// Bytes that units may take now.
    pub held_bytes: u64,
    /// The bound of all units.
    pub bytes_max: u64,
}

/// A unit that should be read.
pub(crate) struct Asked {
    volume: VolumeId,
    ino: Ino,
    unit: Arc<Unit>,
}

/// A part of a file that a client reads.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub ino: Ino,
    pub offset: u64,
    pub length: u32,
    /// Length of the file, bytes.
    pub size: u64,
}

/// The stream that a read belongs to.
pub(super) struct Noted {
    /// True for a stream.
    pub is_stream: bool,
    /// Units that have some of what is read.
    pub units: Vec<Arc<Unit>>,
    /// The unit that should be read now.
    next: Option<Arc<Unit>>,
}

struct Stream {
    volume: VolumeId,
    ino: Ino,
    /// The end of what was read in order, and its length. Bytes.
    end: u64,
    length: u64,
    /// The clock at the last read.
    at_ns: u64,
    /// Bytes of the next unit.
    unit_bytes: u64,
    units: VecDeque<Arc<Unit>>,
}

/// Blocks of a file that are read ahead.
pub(crate) struct Unit {
    /// The first block, and the one behind the last.
    first: u64,
    end: u64,
    state: Lock<Filled>,
    ready: Event,
    /// Its part of the bound: given back once clients have taken all of it, or nobody has the unit any more.
    share: Share,
}

struct Share {
    bytes: AtomicU64,
    of: Arc<AtomicU64>,
}

impl Share {
    fn give_back(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        let before = self.of.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "a unit gives back what it took");
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[derive(Default)]
struct Filled {
    done: bool,
    blocks: BTreeMap<u64, (Place, Slice)>,
    /// Blocks that were moved while the unit was read: the place that they came from, and the last one that they went to.
    moved: BTreeMap<u64, (Place, Place)>,
}

/// Blocks that are read by one transfer.
#[derive(PartialEq, Eq, Debug)]
struct Run {
    place: Place,
    blocks: u32,
    /// Block of the file, and its number within the run.
    wanted: Vec<(u64, u32)>,
}

impl Streams {
    /// Read-ahead within `bytes_max` bytes for all streams together.
    pub fn new(bytes_max: u64) -> Streams {
        Streams {
            state: Lock::new("streams", VecDeque::new()),
            bytes: Arc::new(AtomicU64::new(0)),
            bytes_max,
            asked: Lock::new("asked units", Some(VecDeque::new())),
            reading: AtomicUsize::new(0),
            figures: Lock::new("read-ahead", ReadAhead { bytes_max, ..ReadAhead::default() }),
            came: Event::new(),
        }
    }
    /// The figures so far.
    pub fn figures(&self) -> ReadAhead {
        ReadAhead { held_bytes: self.bytes.load(Ordering::Relaxed), ..*self.figures.lock() }
    }
    /// Notes that a client has taken blocks.
    pub(super) fn taken(&self, blocks: u64) {
        self.figures.lock().taken_blocks += blocks;
    }
    /// The next unit to be read, if fewer than `most` are. It must be read, and its end told. Those whose stream has ended since are
    /// left out.
    pub fn take(&self, most: usize) -> Option<Asked> {
        if self.reading.load(Ordering::Acquire) >= most {
            return None;
        }
        let is_wanted = |asked: &Asked| Arc::strong_count(&asked.unit) > 1;
        let mut asked = self.asked.lock();
        let next = std::iter::from_fn(|| asked.as_mut()?.pop_front()).find(is_wanted)?;
        self.reading.fetch_add(1, Ordering::AcqRel);
        Some(next)
    }
    /// A unit that was taken has been read.
    pub fn done(&self) {
        let before = self.reading.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "only units that were taken end");
        self.came.notify();
    }
    /// Notes that blocks were moved, with what they hold. What a unit has of a block is the block's in its new place too.
    pub fn moved(&self, volume: VolumeId, moves: &[(Moved, Place)]) {
        if self.bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let streams = self.state.lock();
        for stream in streams.iter().filter(|stream| stream.volume == volume) {
            let of_file = |(moved, _): &&(Moved, Place)| moved.ino == stream.ino;
            for (Moved { block, old, .. }, new) in moves.iter().filter(of_file) {
                let units = stream.units.iter().filter(|unit| (unit.first..unit.end).contains(block));
                units.for_each(|unit| unit.moved(*block, *old, *new));
            }
        }
    }
    /// Nobody reads units any more: who waits for one reads for itself.
    pub fn end(&self) {
        let left = self.asked.lock().take();
        left.into_iter().flatten().for_each(|asked| asked.unit.fill(BTreeMap::new()));
    }
    fn ask(&self, asked: Asked) {
        let mut all = self.asked.lock();
        match all.as_mut() {
            Some(all) => all.push_back(asked),
            None => asked.unit.fill(BTreeMap::new()),
        }
        drop(all);
        self.came.notify();
    }
    /// Notes that a client reads a part of a file that lies on a disk.
    fn note(&self, volume: VolumeId, part: Part, at_ns: u64) -> Noted {
        let Part { ino, offset, length, .. } = part;
        let mut streams = self.state.lock();
        let known = streams.iter().position(|stream| (stream.volume, stream.ino) == (volume, ino));
        let mut stream = match known.and_then(|at| streams.remove(at)) {
            Some(stream) => stream,
            None => Stream::new(volume, ino, offset),
        };
        stream.at_ns = at_ns;
        stream.note(offset, offset + u64::from(length));
        let blocks = offset / BLOCK_BYTES as u64..(offset + u64::from(length)).div_ceil(BLOCK_BYTES as u64);
        let has = |unit: &&Arc<Unit>| unit.first < blocks.end && blocks.start < unit.end;
        let units = stream.units.iter().filter(has).cloned().collect();
        // The streams are in the order of their last reads.
        let idle = |stream: &Stream| stream.at_ns.saturating_add(IDLE_NS) < at_ns;
        let idle = streams.iter().take_while(|stream| idle(stream)).count();
        streams.range_mut(..idle).for_each(|stream| stream.units.clear());
        let share = self.bytes_max / (UNITS * (streams.len() - idle + 1)) as u64;
        let next = self.next(&stream, &part, share);
        stream.units.extend(next.clone());
        let is_stream = stream.length > STREAM_BYTES;
        streams.push_back(stream);
        if streams.len() > STREAMS_MAX {
            streams.pop_front();
        }
        Noted { is_stream, units, next }
    }
    /// The unit that a stream should read now, of up to `share` bytes. A unit that is smaller than the stream's requests would be read
    /// in vain: what it has of a request is read once more with the rest.
    fn next(&self, stream: &Stream, part: &Part, share: u64) -> Option<Arc<Unit>> {
        let is_filled = stream.units.back().is_none_or(|unit| unit.state.lock().done);
        if stream.length <= STREAM_BYTES || stream.unread() >= UNITS || !is_filled {
            return None;
        }
        let read = stream.end.div_ceil(BLOCK_BYTES as u64);
        let first = stream.units.back().map_or(read, |unit| unit.end.max(read));
        let left = part.size.saturating_sub(first * BLOCK_BYTES as u64).next_multiple_of(BLOCK_BYTES as u64);
        let room = self.bytes_max.saturating_sub(self.bytes.load(Ordering::Relaxed));
        let most = stream.unit_bytes.min(share.max(UNIT_BYTES_MIN)).min(room);
        if most < UNIT_BYTES_MIN.max(part.length.into()).min(left) || left == 0 {
            return None;
        }
        let bytes = (most / BLOCK_BYTES as u64 * BLOCK_BYTES as u64).min(left);
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u64), "a unit has whole blocks");
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(Arc::new(Unit {
            first,
            end: first + bytes / BLOCK_BYTES as u64,
            state: Lock::new("unit", Filled::default()),
            ready: Event::new(),
            share: Share { bytes: AtomicU64::new(bytes), of: self.bytes.clone() },
        }))
    }
    /// Notes how many blocks a unit had on the disk, and the seeks that they took, so that the next has enough bytes for each.
    fn learn(&self, volume: VolumeId, ino: Ino, blocks: u64, seeks: u64) {
        let bytes = blocks * BLOCK_BYTES as u64;
        let mut figures = self.figures.lock();
        figures.units += 1;
        figures.read_blocks += blocks;
        figures.runs += seeks;
        drop(figures);
        let mut streams = self.state.lock();
        let known = streams.iter_mut().find(|stream| (stream.volume, stream.ino) == (volume, ino));
        let (Some(stream), true) = (known, bytes > 0) else { return };
        let enough = u128::from(stream.unit_bytes) * u128::from(seeks * BYTES_PER_SEEK) / u128::from(bytes);
        let most = stream.unit_bytes.saturating_mul(GROWTH).min(self.bytes_max / UNITS as u64).max(UNIT_BYTES);
        stream.unit_bytes = u64::try_from(enough).unwrap_or(most).clamp((stream.unit_bytes / 2).max(UNIT_BYTES), most);
    }
}

impl Stream {
    fn new(volume: VolumeId, ino: Ino, offset: u64) -> Stream {
        let units = VecDeque::new();
        Stream { volume, ino, end: offset, length: 0, at_ns: 0, unit_bytes: UNIT_BYTES, units }
    }
    /// The number of units that the client has not passed.
    fn unread(&self) -> usize {
        self.units.iter().filter(|unit| unit.end * BLOCK_BYTES as u64 > self.end).count()
    }
    /// Notes a read.
    fn note(&mut self, offset: u64, end: u64) {
        assert!(offset <= end && self.unread() <= UNITS, "a stream has {UNITS} units at most that were not passed");
        let slack = SLACK_BYTES.max((end - offset) * SLACK_REQUESTS);
        let near = self.end.saturating_sub(slack)..=self.end.saturating_add(slack);
        let ahead = |unit: &Arc<Unit>| (unit.first..unit.end).contains(&(offset / BLOCK_BYTES as u64));
        if !near.contains(&offset) && !self.units.iter().any(ahead) {
            (self.end, self.length, self.unit_bytes) = (offset, 0, UNIT_BYTES);
            self.units.clear();
        }
        self.length += end.saturating_sub(self.end);
        self.end = self.end.max(end);
        let end = self.end;
        self.units.retain(|unit| unit.end * BLOCK_BYTES as u64 + KEPT_BYTES > end);
    }
}

impl Unit {
    /// Waits until it is read.
    pub async fn wait(&self) {
        loop {
            let ticket = self.ready.ticket();
            if self.state.lock().done {
                return;
            }
            self.ready.after(ticket).await;
        }
    }
    /// Takes a block out, if it was read from this place.
    pub fn take(&self, block: u64, place: Place) -> Option<Slice> {
        let mut state = self.state.lock();
        let found = state.blocks.get(&block).is_some_and(|(from, _)| *from == place || active(Bug::UnitBelieved));
        let (_, slice) = found.then(|| state.blocks.remove(&block).expect("just seen"))?;
        // Passed units stay for requests that were overtaken. With what was taken of them hundreds of slow streams would fill the bound.
        if state.blocks.is_empty() {
            self.share.give_back();
        }
        Some(slice)
    }
    fn moved(&self, block: u64, old: Place, new: Place) {
        let mut state = self.state.lock();
        let Filled { done, blocks, moved } = &mut *state;
        match (*done, blocks.get_mut(&block)) {
            (true, Some((place, _))) if *place == old => *place = new,
            (true, _) => {}
            (false, _) => {
                let known = moved.entry(block).or_insert((old, new));
                // One that was written meanwhile has begun anew.
                *known = if known.1 == old { (known.0, new) } else { (old, new) };
            }
        }
    }
    fn fill(&self, mut blocks: BTreeMap<u64, (Place, Slice)>) {
        let mut state = self.state.lock();
        for (block, (old, new)) in std::mem::take(&mut state.moved) {
            if let Some((place, _)) = blocks.get_mut(&block).filter(|(place, _)| *place == old) {
                *place = new;
            }
        }
        *state = Filled { done: true, blocks, ..Filled::default() };
        drop(state);
        self.ready.notify();
    }
}

impl Run {
    /// The transfer that reads these blocks, whose places rise.
    fn of(blocks: &[(u64, Place)]) -> Run {
        let place = blocks[0].1;
        let wanted: Vec<_> = blocks.iter().map(|(block, at)| (*block, u32::from(at.block - place.block))).collect();
        Run { place, blocks: wanted[wanted.len() - 1].1 + 1, wanted }
    }
    fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }
}

/// The transfers for blocks of a file, in the order of the disk, and the number of seeks that they take.
fn runs(mut blocks: Vec<(u64, Place)>) -> (Vec<Run>, u64) {
    blocks.sort_unstable_by_key(|&(_, place)| (place.segment, place.block));
    let place = |(_, place): &(u64, Place)| *place;
    let (mut runs, mut seeks) = (Vec::new(), 0);
    for together in near::together(&blocks, place, GAP_BLOCKS_MAX) {
        seeks += 1;
        runs.extend(near::transfers(together, place).map(Run::of));
    }
    (runs, seeks)
}

/// Parts of a buffer, each a block; blocks of their own if much of the buffer is of no use. Blocks for which memory is short are left out.
fn cut(buffer: Buf, run: Run, block_of: impl Fn(&[u8]) -> Option<Buf>) -> Vec<(u64, (Place, Slice))> {
    let Run { place, blocks, wanted } = run;
    assert!(buffer.len() == blocks as usize * BLOCK_BYTES, "a run was read as a whole");
    assert!(wanted.len() <= blocks as usize, "each block of a run is wanted once at most");
    let part = |number: u32| number as usize * BLOCK_BYTES..(number as usize + 1) * BLOCK_BYTES;
    if wanted.len() == blocks as usize {
        let whole = buffer.share();
        let block = |(block, number): (u64, u32)| (block, (place.advance(number), whole.slice(part(number))));
        return wanted.into_iter().map(block).collect();
    }
    let copy = |(block, number): (u64, u32)| {
        let own = block_of(&buffer[part(number)])?;
        Some((block, (place.advance(number), own.share().slice(0..BLOCK_BYTES))))
    };
    wanted.into_iter().filter_map(copy).collect()
}

impl Groups {
    /// Notes that a client reads a part of a file that lies on a disk, and asks for the next unit if it is time. The read's units must
    /// be waited for before their blocks are taken.
    pub(super) fn note_stream(&self, context: &Context, part: Part) -> Noted {
        let noted = self.streams.note(context.volume, part, self.store().runtime.clock.now_ns());
        if let Some(unit) = noted.next.clone() {
            self.streams.ask(Asked { volume: context.volume, ino: part.ino, unit });
        }
        noted
    }

    /// Reads what a unit has on disks.
    pub(crate) async fn read_unit(&self, asked: Asked) {
        let Asked { volume, ino, unit } = asked;
        let Some(_step) = self.begin_step() else { return unit.fill(BTreeMap::new()) };
        let store = self.store();
        // Places that are looked up stay what they are until they were read.
        let _pin = store.pin();
        let mut found = self.places(volume, ino, &unit).await;
        let copied = found.iter().filter(|(_, place)| store.promotion.has(*place)).count();
        if 2 * copied > found.len() {
            found.clear();
        }
        let count = found.len() as u64;
        let (runs, seeks) = runs(found);
        let mut runs = runs.into_iter();
        let (mut begun, mut blocks) = (VecDeque::new(), BTreeMap::new());
        let mut bytes = 0;
        // Memory that is short goes to who waits: what a unit lacks is read when it is asked for.
        let room = |bytes: usize| store.runtime.slabs.take(store.runtime.tasks.core(), bytes, Need::Starting).ok();
        loop {
            while begun.len() < TRANSFERS
                && bytes < TRANSFERS_BYTES
                && let Some(run) = runs.next()
            {
                let Some(buffer) = room(run.bytes()) else { continue };
                if let Ok(transfer) = store.begin_read_for(Purpose::Client, run.place, buffer, Start::AtOnce) {
                    bytes += run.bytes();
                    begun.push_back((run, transfer));
                }
            }
            let Some((run, transfer)) = begun.pop_front() else { break };
            bytes -= run.bytes();
            let done = transfer.await;
            let Some(buffer) = done.buffer.filter(|_| done.result.is_ok()) else { continue };
            blocks.extend(cut(buffer, run, |bytes| {
                let mut own = room(bytes.len())?;
                own.copy_from_slice(bytes);
                Some(own)
            }));
        }
        unit.fill(blocks);
        self.streams.learn(volume, ino, count, seeks);
    }

    /// The blocks of a unit that lie on disks, with their places.
    async fn places(&self, volume: VolumeId, ino: Ino, unit: &Unit) -> Vec<(u64, Place)> {
        let mut found = Vec::new();
        let mut block = unit.first;
        while block < unit.end {
            let missing = {
                let mut state = self.state(ino.group()).state.lock();
                loop {
                    match state.block(volume, ino, block) {
                        Block::Missing => break true,
                        Block::Device { place, .. } if self.store().is_on_disk(place) => found.push((block, place)),
                        _ => {}
                    }
                    block += 1;
                    // One leaf at a time: others want the lock too.
                    if block == unit.end || LeafKey::of(ino, block).0 != LeafKey::of(ino, block - 1).0 {
                        break false;
                    }
                }
            };
            if missing && self.load(volume, vec![Wanted::Leaf(LeafKey::of(ino, block).0)], None).await.is_err() {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{GroupId, SegmentId};
    use runtime::random::SplitMix;

    const VOLUME: VolumeId = VolumeId(1);
    const MIB: u64 = 1 << 20;
    const READ_BYTES: u32 = 128 << 10;
    const SECOND_NS: u64 = 1_000_000_000;

    fn part(number: u64, offset: u64, length: u32) -> Part {
        Part { ino: Ino::new(number + 2, GroupId(0)), offset, length, size: 1 << 40 }
    }
    fn place(segment: u32, block: u16) -> Place {
        Place { segment: SegmentId(segment), block }
    }
    /// Reads the MiB of a file that begins at `at`, in MiB.
    fn read(streams: &Streams, file: u64, at: u64, second: u64) -> Noted {
        streams.note(VOLUME, part(file, at * MIB, MIB as u32), second * SECOND_NS)
    }
    fn blocks(unit: &Unit) -> u64 {
        unit.end - unit.first
    }
    /// The share of reads that count as parts of a stream.
    fn streamed(reads: impl Iterator<Item = (u64, u64)>) -> f64 {
        let streams = Streams::new(0);
        let note = |(file, offset)| streams.note(VOLUME, part(file, offset, READ_BYTES), 0).is_stream;
        let noted: Vec<bool> = reads.map(note).collect();
        noted.iter().filter(|it| **it).count() as f64 / noted.len() as f64
    }

    #[test]
    fn files_that_are_read_in_order_are_streams_also_if_requests_overtake_each_other() {
        let read_bytes = u64::from(READ_BYTES);
        for (swapped, files) in [(0, 1), (1, 1), (3, 1), (1, 60)] {
            let order = |number: u64| number ^ swapped;
            let reads = (0..1000u64).flat_map(|number| (0..files).map(move |file| (file, order(number) * read_bytes)));
            let share = streamed(reads);
            assert!(share > 0.98 && share < 1.0, "{share} of {files}: all but the beginning ({swapped})");
        }
    }

    #[test]
    fn reads_at_random_and_of_small_files_are_none() {
        let random = &mut SplitMix(3);
        for file_bytes in [512 << 10, 4 << 20, 1 << 30] {
            let reads = (0..10_000).map(|_| (1, random.below(file_bytes / 4096) * 4096));
            let share = streamed(reads);
            assert!(share < 0.15, "{share} of {file_bytes} bytes");
        }
        let reads = (0..800u64).map(|number| (number / 8 % 10, number % 8 * u64::from(READ_BYTES)));
        assert_eq!(streamed(reads), 0.0, "files of 1 MiB, again and again");
    }

    #[test]
    fn blocks_are_read_in_the_order_of_the_disk_with_small_gaps() {
        let wanted = vec![(7, place(2, 9)), (3, place(1, 5)), (4, place(1, 6)), (9, place(1, 40)), (8, place(1, 400))];
        let (found, seeks) = runs(wanted);
        assert_eq!(seeks, 3);
        assert_eq!(found[0], Run { place: place(1, 5), blocks: 36, wanted: vec![(3, 0), (4, 1), (9, 35)] });
        assert_eq!((found[1].place, found[2].place), (place(1, 400), place(2, 9)));
        // What is longer than a transfer goes on without a seek.
        let (found, seeks) = runs((0..600).map(|n| (n, place(1, n as u16 + 1))).collect());
        assert_eq!((found.len(), seeks), (3, 1));
    }

    #[test]
    fn streams_have_two_units_that_grow_with_their_seeks_within_a_bound() {
        let streams = Streams::new(256 * MIB);
        assert!(read(&streams, 1, 0, 0).next.is_none(), "a megabyte is no stream yet");
        let first = read(&streams, 1, 1, 0).next.expect("two are");
        assert_eq!((first.first, blocks(&first)), (512, UNIT_BYTES / 4096));
        assert!(read(&streams, 1, 2, 0).next.is_none(), "the first one is not there yet");
        first.fill(BTreeMap::new());
        streams.learn(VOLUME, part(1, 0, 0).ino, UNIT_BYTES / 4096, 65);
        let noted = read(&streams, 1, 3, 0);
        let second = noted.next.expect("one ahead of the one that is read");
        assert!(noted.units.len() == 1 && Arc::ptr_eq(&noted.units[0], &first));
        assert_eq!((second.first, blocks(&second)), (first.end, GROWTH * UNIT_BYTES / 4096));
        second.fill(BTreeMap::new());
        streams.learn(VOLUME, part(1, 0, 0).ino, GROWTH * UNIT_BYTES / 4096, 65);
        assert!(read(&streams, 1, 4, 0).next.is_none(), "two are enough");
        let third = read(&streams, 1, 7, 0).next.expect("the first one was passed");
        // The kernel has sent them at once, and they overtook each other.
        for at in [5, 6] {
            let noted = read(&streams, 1, at, 0);
            assert!(noted.next.is_none() && noted.is_stream && !noted.units.is_empty(), "it still is there");
        }
        assert_eq!(blocks(&third), 128 * MIB / 4096, "half of the bound: one of the two");
        streams.learn(VOLUME, part(1, 0, 0).ino, 128 * MIB / 4096, 1);
        assert_eq!(streams.state.lock()[0].unit_bytes, 64 * MIB, "one seek needs no more");
        // Who reads elsewhere begins anew; its units are dropped, and so are their bytes.
        assert!(read(&streams, 1, 500, 0).units.is_empty());
        drop((first, second, third, noted.units));
        assert_eq!(streams.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn streams_share_the_bound_and_idle_ones_leave_it() {
        let streams = Streams::new(64 * MIB);
        let small = |file, at| streams.note(VOLUME, part(file, at * u64::from(READ_BYTES), READ_BYTES), 0).next;
        for (file, at) in (0..300).flat_map(|file| (0..8).map(move |at| (file, at))) {
            assert!(small(file, at).is_none(), "no stream so far");
        }
        let units: Vec<_> = (0..300).filter_map(|file| small(file, 8)).collect();
        assert!(units.len() > 250 && streams.bytes.load(Ordering::Relaxed) <= 64 * MIB, "{} have units", units.len());
        drop(units);
        read(&streams, 1000, 0, 31);
        let unit = read(&streams, 1000, 1, 31).next.expect("nobody else reads any more");
        assert_eq!((blocks(&unit), streams.bytes.load(Ordering::Relaxed)), (UNIT_BYTES / 4096, UNIT_BYTES));
    }

    #[test]
    fn hundreds_of_slow_streams_are_read_ahead_although_the_bound_has_little_for_each() {
        let streams = Streams::new(376 * MIB);
        let buffer = runtime::sim::World::new(1).runtime().buffer(BLOCK_BYTES).expect("there is memory");
        let slice = buffer.share().slice(0..BLOCK_BYTES);
        let (mut reads, mut found) = (0, 0);
        for chunk in 0..64 {
            for file in 0..300 {
                let offset = chunk * u64::from(READ_BYTES);
                let noted = streams.note(VOLUME, part(file, offset, READ_BYTES), chunk * SECOND_NS);
                for block in offset / 4096..(offset + u64::from(READ_BYTES)) / 4096 {
                    found += u64::from(noted.units.iter().any(|unit| unit.take(block, place(1, 1)).is_some()));
                    reads += u64::from(noted.is_stream);
                }
                if let Some(unit) = noted.next {
                    unit.fill((unit.first..unit.end).map(|block| (block, (place(1, 1), slice.clone()))).collect());
                }
                assert!(streams.bytes.load(Ordering::Relaxed) <= 376 * MIB);
            }
        }
        assert!(found * 100 > reads * 95, "{found} of {reads} blocks were read ahead");
    }

    #[test]
    fn no_unit_is_smaller_than_the_requests_of_its_stream() {
        let streams = Streams::new(2 * MIB);
        let next = |file: u64, at| read(&streams, file, at, 0).next;
        assert!(next(1, 0).is_none());
        let unit = next(1, 1).expect("it has all of the bound");
        assert_eq!((unit.end - unit.first) * BLOCK_BYTES as u64, MIB);
        assert!(next(2, 0).is_none() && next(2, 1).is_none(), "half of it is less than a request");
        let small = |at: u64| streams.note(VOLUME, part(3, at * u64::from(READ_BYTES), READ_BYTES), 0).next;
        assert!((0..16).any(|at| small(at).is_some()), "and more than a small one");
    }

    #[test]
    fn a_unit_whose_stream_has_ended_is_not_read() {
        let streams = Streams::new(64 * MIB);
        let ask = |file: u64| {
            read(&streams, file, 0, 0);
            let unit = read(&streams, file, 1, 0).next.expect("a stream");
            streams.ask(Asked { volume: VOLUME, ino: part(file, 0, 0).ino, unit });
        };
        (1..=3).for_each(ask);
        assert!(read(&streams, 2, 500, 0).units.is_empty(), "it is read elsewhere now");
        let taken: Vec<_> = std::iter::from_fn(|| streams.take(8)).map(|asked| asked.ino).collect();
        assert_eq!(taken, [part(1, 0, 0).ino, part(3, 0, 0).ino]);
    }

    /// The cleaner moves blocks between the time when they are read ahead and the time when a client asks for them.
    #[test]
    fn what_was_moved_while_it_was_read_ahead_or_since_is_used() {
        let streams = Streams::new(64 * MIB);
        read(&streams, 1, 0, 0);
        let unit = read(&streams, 1, 1, 0).next.expect("a stream");
        let buffer = runtime::sim::World::new(1).runtime().buffer(BLOCK_BYTES).expect("there is memory");
        let slice = buffer.share().slice(0..BLOCK_BYTES);
        let ino = part(1, 0, 0).ino;
        let moves = |block: u64, old: Place, new: Place| {
            let moved = Moved { ino, block, old, crc: 0, index: base::Index(1) };
            streams.moved(VOLUME, &[(moved, new)]);
        };
        let [first, second, third] = [unit.first, unit.first + 1, unit.first + 2];
        // While it is read: twice; from another place than it was read from.
        moves(first, place(1, 1), place(5, 1));
        moves(first, place(5, 1), place(6, 1));
        moves(second, place(9, 9), place(5, 2));
        let blocks = [(first, place(1, 1)), (second, place(1, 2)), (third, place(1, 3))];
        unit.fill(blocks.into_iter().map(|(block, place)| (block, (place, slice.clone()))).collect());
        moves(third, place(1, 3), place(7, 3));
        moves(unit.end, place(1, 3), place(7, 4));
        assert!(unit.take(first, place(1, 1)).is_none() && unit.take(first, place(6, 1)).is_some());
        assert!(unit.take(second, place(5, 2)).is_none() && unit.take(second, place(1, 2)).is_some());
        assert!(unit.take(third, place(1, 3)).is_none() && unit.take(third, place(7, 3)).is_some());
    }

    #[test]
    fn a_unit_ends_with_its_file() {
        let streams = Streams::new(64 * MIB);
        let note = |at: u64| streams.note(VOLUME, Part { size: 2 * MIB + 5000, ..part(1, at * MIB, MIB as u32) }, 0);
        note(0);
        let unit = note(1).next.expect("5,000 bytes are left");
        assert_eq!((unit.first, unit.end), (512, 514));
        unit.fill(BTreeMap::new());
        assert!(note(1).next.is_none());
    }
}
