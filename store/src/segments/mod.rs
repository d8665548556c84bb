//! The segment table: which segments are free, and which blocks of the others are live (rule K1). The live bits are
//! exact as of the last checkpoint; between checkpoints they may only overstate.

pub mod bitmaps;
pub mod bulk;
pub mod discard;
pub mod pins;
pub mod prepare;
mod staged;
pub mod summaries;

use crate::format::devices::{DeviceRow, DeviceTable, State, Tier};
use crate::format::segment::Stream;
use crate::format::summary::summary_blocks;
use crate::format::values::{SegmentRow, SegmentState};
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Life, SegmentId};
use pins::{Leaving, Pins};
use runtime::seeded::{Bug, active};
pub use staged::Staged;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// The segment table in memory.
pub struct Table {
    rows: Vec<Row>,
    devices: Vec<Device>,
    /// Bitmaps of segments on disks that somebody needs.
    held: BTreeMap<SegmentId, bitmaps::Held>,
    /// Number of live blocks of each segment as of the last checkpoint.
    live: Vec<u32>,
    /// Their sums, without those on devices that are missing.
    live_blocks: ByTier,
    /// Number of live blocks on devices that are missing.
    live_missing: u64,
    /// The number, by segment, of the checkpoint (counted from start) before whose cut the segment was sealed.
    sealed_before: Vec<u32>,
    /// Number of the checkpoint that begins next.
    checkpoint: u32,
    /// Cuts that no durable checkpoint begins behind: the number of the batch behind the cut, and the checkpoint's.
    cuts: VecDeque<(u64, u32)>,
    /// Freed segments in which readers that looked up a place earlier may still read (rule K8).
    leaving: Leaving<SegmentId>,
    /// Segments freed since start and not yet discarded. Some may still be `leaving`. Segments that recovery freed are
    /// not among them: the life of such a segment may be known from its header only, which a discard would destroy.
    undiscarded: BTreeSet<SegmentId>,
    /// Free segments of the first device for whose files the host has no space.
    hidden: BTreeSet<SegmentId>,
    /// The segment that is being discarded, which is not free meanwhile.
    discarding: Option<SegmentId>,
    /// Seeded bug `FreedTwice` only: the segments that the last checkpoint freed.
    freed_before: Vec<SegmentId>,
    /// Segments that the process before this one left open: not taken again in this epoch (rule L4).
    held_back: BTreeSet<SegmentId>,
    /// Rows that the next checkpoint must write.
    changed: BTreeSet<SegmentId>,
    /// Next position in each stream.
    pub next_sequence: [u64; 3],
    /// Next position among all segments opened.
    next_opened: u64,
}

/// A segment as memory has it: its row in the index without the live bitmap. There are millions of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// See `SegmentRow`, as of all fields.
    pub state: SegmentState,
    /// Current (or last) life.
    pub life: Life,
    /// Its stream.
    pub stream: Stream,
    /// Position in the stream.
    pub sequence: u64,
    /// Position among all segments of the brick.
    pub opened: u64,
    /// Blocks written from the start, header included.
    pub used: u32,
}
const _: () = assert!(size_of::<Row>() <= 32, "a table of a million segments is to stay small");

impl Row {
    /// The row less its bitmap.
    pub fn of(row: &SegmentRow) -> Row {
        let SegmentRow { state, life, stream, sequence, opened, used, .. } = *row;
        Row { state, life, stream, sequence, opened, used }
    }
    /// The row and its bitmap.
    pub fn with(self, live: Vec<u64>) -> SegmentRow {
        let Row { state, life, stream, sequence, opened, used } = self;
        SegmentRow { state, life, stream, sequence, opened, used, live }
    }
}

/// The live bitmaps that stay in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resident {
    /// Those of flash: for serving.
    Flash,
    /// All: for check and repair, which compare each with what leaves say.
    All,
}

/// A device of the brick, and its free segments.
struct Device {
    row: DeviceRow,
    free: BTreeSet<SegmentId>,
    /// Live bitmaps of its segments; None if they are in the index only.
    bitmaps: Option<Vec<Vec<u64>>>,
    /// It was not there when the brick was opened.
    missing: bool,
    /// Number of sealed segments without a live block that the last checkpoint could not free yet.
    dead_waiting: u64,
    /// Number of freed segments in which readers may still read.
    leaving: u64,
}

impl Device {
    fn new(row: DeviceRow, resident: Resident) -> Device {
        let stay = row.tier == Tier::Flash || resident == Resident::All;
        let bitmaps = stay.then(|| vec![Vec::new(); row.segments as usize]);
        let free = (row.first..row.end()).map(SegmentId).collect();
        Device { row, free, bitmaps, missing: false, dead_waiting: 0, leaving: 0 }
    }
    /// False if no more segments of it are used.
    fn gives(&self) -> bool {
        self.row.state == State::InUse && !self.missing
    }
}

/// A number for each tier.
type ByTier = [u64; Tier::ALL.len()];

/// The device that a segment is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Any device of the flash tier.
    Flash,
    /// The device at this position in the device table.
    Device(usize),
}

/// A segment taken into use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The segment.
    pub segment: SegmentId,
    /// The segment's new life.
    pub life: Life,
    /// The segment's position in its stream.
    pub sequence: u64,
    /// Number of blocks at the segment's beginning that have been written in any life. Those behind may never have been
    /// written.
    pub written: u32,
}

/// Classes of segments by the share of their blocks that is live.
pub const TENTHS: usize = 10;

/// Numbers of segments and of live blocks, of a tier or of the brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentTotals {
    /// Number of all segments, without those for which the host has no space.
    pub segments: u64,
    /// Number of free segments.
    pub free_segments: u64,
    /// Number of segments without a live block that will be free once a checkpoint or their last readers have ended.
    pub emptied_segments: u64,
    /// Number of live blocks as of the last checkpoint.
    pub live_blocks: u64,
}

impl SegmentTotals {
    /// Bytes of live blocks.
    pub fn live_bytes(&self) -> u64 {
        self.live_blocks * BLOCK_BYTES as u64
    }
    /// The sum of both.
    pub fn and(&self, other: &SegmentTotals) -> SegmentTotals {
        SegmentTotals {
            segments: self.segments + other.segments,
            free_segments: self.free_segments + other.free_segments,
            emptied_segments: self.emptied_segments + other.emptied_segments,
            live_blocks: self.live_blocks + other.live_blocks,
        }
    }
}

/// None of copies: nothing reads them in the order of their stream, and their positions are those among all segments opened.
fn stream_slot(stream: Stream) -> Option<usize> {
    (stream != Stream::Copies).then(|| usize::from(stream.code()) - 1)
}

fn never_used() -> Row {
    let stream = Stream::Commit;
    Row { state: SegmentState::Free, life: Life(0), stream, sequence: 0, opened: 0, used: 0 }
}

impl Table {
    /// A table of segments that were never used, on the devices of a brick.
    pub fn new(devices: &DeviceTable, resident: Resident) -> Table {
        let segments = devices.segments();
        Table {
            rows: vec![never_used(); segments as usize],
            devices: devices.rows.iter().map(|&row| Device::new(row, resident)).collect(),
            held: BTreeMap::new(),
            live: vec![0; segments as usize],
            live_blocks: ByTier::default(),
            live_missing: 0,
            sealed_before: vec![0; segments as usize],
            checkpoint: 1,
            cuts: VecDeque::new(),
            leaving: Leaving::default(),
            undiscarded: BTreeSet::new(),
            hidden: BTreeSet::new(),
            discarding: None,
            freed_before: Vec::new(),
            held_back: BTreeSet::new(),
            changed: BTreeSet::new(),
            next_sequence: [1; 3],
            next_opened: 1,
        }
    }
    /// Notes that the process before this one has no write in flight any more: its segments may be freed. False if none
    /// was held back.
    pub fn release_held_back(&mut self) -> bool {
        !std::mem::take(&mut self.held_back).is_empty()
    }
    /// Sets a row as the index has it.
    pub fn restore(&mut self, segment: SegmentId, row: SegmentRow) {
        self.restate(segment, Row::of(&row));
        self.set_bitmap(segment, row.live);
    }
    /// Sets a row as recovery found it. Blocks that are live are so in the life that the index knows.
    pub fn restate(&mut self, segment: SegmentId, row: Row) {
        let free = &mut self.device_of(segment).free;
        match row.state {
            SegmentState::Free => free.insert(segment),
            _ => free.remove(&segment),
        };
        if let Some(slot) = stream_slot(row.stream) {
            self.next_sequence[slot] = self.next_sequence[slot].max(row.sequence + 1);
        }
        self.next_opened = self.next_opened.max(row.opened + 1);
        let before = std::mem::replace(&mut self.rows[segment.0 as usize], row);
        if before.life != row.life {
            self.set_bitmap(segment, Vec::new());
        }
    }
    /// Makes a segment of copies free: what they were copies of, nobody knows any more.
    pub fn restore_copies(&mut self, segment: SegmentId, life: Life, sequence: u64) {
        let Row { opened, .. } = self.rows[segment.0 as usize];
        let (state, stream, live) = (SegmentState::Free, Stream::Copies, Vec::new());
        self.restore(segment, SegmentRow { state, life, stream, sequence, opened, used: 0, live });
    }
    fn set_live(&mut self, segment: SegmentId, live: u32) {
        let slot = self.slot(segment);
        let Device { row, missing, .. } = &self.devices[slot];
        let sum = if *missing { &mut self.live_missing } else { &mut self.live_blocks[row.tier as usize] };
        let counted = &mut self.live[segment.0 as usize];
        assert!(*sum >= u64::from(*counted), "the sum holds what segment {segment} had");
        *sum = *sum - u64::from(*counted) + u64::from(live);
        *counted = live;
    }
    fn slot(&self, segment: SegmentId) -> usize {
        // Few devices: the search costs less than a table of all segments.
        let found = self.devices.iter().rposition(|device| device.row.first <= segment.0);
        found.expect("the first device begins with segment 0")
    }
    fn device_of(&mut self, segment: SegmentId) -> &mut Device {
        let slot = self.slot(segment);
        &mut self.devices[slot]
    }
    /// The tier that a segment lies on.
    pub fn tier(&self, segment: SegmentId) -> Tier {
        self.devices[self.slot(segment)].row.tier
    }
    /// The position in the device table of the disk that a segment lies on; None if it lies on flash.
    pub fn disk_slot(&self, segment: SegmentId) -> Option<usize> {
        let slot = self.slot(segment);
        (self.devices[slot].row.tier == Tier::Disk).then_some(slot)
    }
    /// The devices, each with the number of its free segments.
    pub fn devices(&self) -> impl Iterator<Item = (&DeviceRow, usize)> {
        self.devices.iter().map(|device| (&device.row, device.free.len()))
    }
    /// Number of free segments of a device.
    pub fn free_on(&self, from: Origin) -> usize {
        match from {
            Origin::Flash => self.free(),
            Origin::Device(slot) => self.devices[slot].free.len(),
        }
    }
    /// Number of live blocks on a device.
    pub fn live_on(&self, device: &DeviceRow) -> u64 {
        let range = device.first as usize..device.end() as usize;
        self.live[range].iter().map(|&live| u64::from(live)).sum()
    }
    /// Notes, before any row is set, which devices are not there: segments of these stay as they are, but for blocks that die, and
    /// count for nothing.
    pub fn note_missing(&mut self, is_missing: impl Fn(SegmentId) -> bool) {
        assert!(self.live.iter().all(|&live| live == 0), "rows are set once it is known which devices are there");
        self.devices.iter_mut().for_each(|device| device.missing = is_missing(SegmentId(device.row.first)));
    }
    /// True if a segment lies on a device that is missing.
    pub fn is_missing(&self, segment: SegmentId) -> bool {
        self.devices[self.slot(segment)].missing
    }
    /// Changes the part that a device plays. What it has free is not discarded any more unless it is in use.
    pub fn set_device_state(&mut self, slot: usize, state: State) {
        let row = &mut self.devices[slot].row;
        row.state = state;
        let range = row.first..row.end();
        self.undiscarded.retain(|segment| state == State::InUse || !range.contains(&segment.0));
    }
    /// Tells which segments lie on flash that leaves the brick; None if none leaves.
    pub fn on_leaving_flash(&self) -> Option<impl Fn(SegmentId) -> bool + use<>> {
        let leaves = |row: &&DeviceRow| row.tier == Tier::Flash && row.state == State::Leaving;
        let rows = self.devices.iter().map(|device| &device.row).filter(leaves);
        let ranges: Vec<Range<u32>> = rows.map(|row| row.first..row.end()).collect();
        let is_any = !ranges.is_empty();
        is_any.then_some(move |segment: SegmentId| ranges.iter().any(|range| range.contains(&segment.0)))
    }
    /// True if the bitmaps of a device are in memory only while somebody needs them.
    pub fn leaves_bitmaps_out(&self) -> bool {
        self.devices.iter().any(|device| device.bitmaps.is_none())
    }
    /// True if nobody uses or reads any segment of a device.
    pub fn is_unused(&self, slot: usize) -> bool {
        let Device { row, free, .. } = &self.devices[slot];
        free.len() == row.segments as usize
    }
    /// Sealed segments of a device, with blocks that live, whose records are all in the last checkpoint.
    pub fn movable_on(&self, slot: usize, replay_sequence: u64) -> impl Iterator<Item = (SegmentId, Life)> {
        let row = &self.devices[slot].row;
        let segments = (row.first..row.end()).map(SegmentId);
        segments
            .filter(move |&segment| self.is_cleanable(segment, replay_sequence))
            .map(|segment| (segment, self.rows[segment.0 as usize].life))
    }
    /// Adds a device with segments that were never used.
    pub fn add_device(&mut self, row: DeviceRow) {
        assert!(row.first as usize == self.rows.len(), "its segments follow those that there are");
        self.devices.push(Device::new(row, Resident::Flash));
        self.resize(row.end());
    }
    /// Notes that the process before this one left the segment open: that process's late writes may still hit it.
    pub fn hold_back(&mut self, segment: SegmentId) {
        self.held_back.insert(segment);
    }
    /// A row.
    pub fn row(&self, segment: SegmentId) -> Option<&Row> {
        self.rows.get(segment.0 as usize)
    }
    /// Number of live blocks of a segment as of the last checkpoint.
    pub fn live(&self, segment: SegmentId) -> u32 {
        self.live[segment.0 as usize]
    }
    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, &Row)> {
        self.rows.iter().enumerate().map(|(number, row)| (SegmentId(number as u32), row))
    }
    /// The position that a segment opened now would get among all segments opened.
    pub fn next_opened(&self) -> u64 {
        self.next_opened
    }
    /// The position that the next segment taken for a stream will get in it.
    pub fn next_in(&self, stream: Stream) -> u64 {
        stream_slot(stream).map_or(self.next_opened, |slot| self.next_sequence[slot])
    }
    /// Takes a free segment into its next life. None if none is free. No checkpoint writes the segment's row before
    /// `note_ready`: a row that says "in use" proves that a header is on the device.
    pub fn take(&mut self, stream: Stream, from: Origin) -> Option<Taken> {
        let device = match from {
            // Streams go round the devices, as the one with most free segments changes.
            Origin::Flash => {
                let flash = self.devices.iter_mut().filter(|device| device.row.tier == Tier::Flash && device.gives());
                flash.rev().max_by_key(|device| device.free.len())
            }
            Origin::Device(slot) => self.devices.get_mut(slot).filter(|device| device.gives()),
        };
        let segment = device?.free.pop_first()?;
        self.undiscarded.remove(&segment);
        let sequence = match stream_slot(stream) {
            None => self.next_opened,
            Some(slot) => {
                self.next_sequence[slot] += 1;
                self.next_sequence[slot] - 1
            }
        };
        let row = &mut self.rows[segment.0 as usize];
        assert!(row.state == SegmentState::Free, "segment {segment} is taken while it is {:?}", row.state);
        assert!(!self.held_back.contains(&segment), "late writes may hit segment {segment} (rule L4)");
        assert!(self.discarding != Some(segment), "segment {segment} is being discarded");
        assert!(self.live[segment.0 as usize] == 0, "a free segment has no live block");
        // A commit segment was filled before its use. Of other segments the used part was written, except for what a
        // crash may have prevented.
        let filled = row.life > Life(0) && row.stream == Stream::Commit;
        let written = if filled { u32::MAX } else { row.used };
        let life = Life(row.life.0 + 1);
        *row = Row { state: SegmentState::Open, life, stream, sequence, opened: self.next_opened, used: 1 };
        self.next_opened += 1;
        self.changed.remove(&segment);
        self.set_bitmap(segment, Vec::new());
        Some(Taken { segment, life, sequence, written })
    }
    /// The next segment for which a file is to be made: the first free one behind the first `made` segments, if at most
    /// `ahead` of these are free.
    pub fn next_unmade(&self, made: u32, ahead: usize) -> Option<SegmentId> {
        let free = &self.devices[0].free;
        let next = free.range(SegmentId(made)..).next()?;
        let enough = free.range(..SegmentId(made)).nth(ahead).is_some();
        (!enough).then_some(*next)
    }
    /// Gives back a segment that was taken but could not be made ready: nothing but a header may have been written in
    /// this life.
    pub fn give_back(&mut self, segment: SegmentId) {
        // Marked as not of the commit stream, so that it counts as not filled.
        let row = &mut self.rows[segment.0 as usize];
        (row.state, row.stream) = (SegmentState::Free, Stream::Bulk);
        assert!(row.used <= 1, "segment {segment} has been written to in this life");
        self.device_of(segment).free.insert(segment);
        self.changed.insert(segment);
    }
    /// Hides free segments whose files are not `made`, until `show_hidden`.
    pub fn hide(&mut self, made: impl Fn(SegmentId) -> bool) {
        let hidden = self.devices[0].free.extract_if(.., |segment| !made(*segment));
        self.hidden.extend(hidden);
    }
    /// Makes hidden segments free again. False if there was none.
    pub fn show_hidden(&mut self) -> bool {
        let some = !self.hidden.is_empty();
        self.devices[0].free.append(&mut self.hidden);
        some
    }
    /// Number of segments for which the host has no space.
    pub fn hidden(&self) -> usize {
        self.hidden.len()
    }
    /// Notes that the header of a segment taken is durable.
    pub fn note_ready(&mut self, segment: SegmentId) {
        let state = self.rows[segment.0 as usize].state;
        assert!(state == SegmentState::Open, "segment {segment} is made ready while it is {state:?}");
        self.changed.insert(segment);
    }
    /// Changes a segment's state and how far it is used.
    pub fn set_state(&mut self, segment: SegmentId, state: SegmentState, used: u32) {
        let row = &mut self.rows[segment.0 as usize];
        let closes = state == SegmentState::Closed && row.state != SegmentState::Open;
        assert!(!closes || active(Bug::TailReused), "segment {segment} is closed while it is {:?}", row.state);
        row.state = state;
        row.used = row.used.max(used);
        if state == SegmentState::Free {
            assert!(self.live[segment.0 as usize] == 0, "only a segment without live blocks is freed");
            self.device_of(segment).free.insert(segment);
        }
        if state == SegmentState::Sealed {
            self.sealed_before[segment.0 as usize] = self.checkpoint;
        }
        self.changed.insert(segment);
    }

    /// Notes that a checkpoint makes its cut: it has all records that lie in segments sealed before, or name them.
    pub fn begin_checkpoint(&mut self) {
        self.checkpoint += 1;
    }
    /// Notes the number of the batch that comes behind that cut.
    pub fn note_cut(&mut self, batch: u64) {
        self.cuts.pop_back_if(|cut| cut.0 == batch);
        assert!(self.cuts.back().is_none_or(|cut| cut.0 < batch), "the log goes on from cut to cut");
        self.cuts.push_back((batch, self.checkpoint));
    }
    /// The number of the checkpoint with the last cut that lies at or before the batch where replay begins; 0 if that lies before all
    /// cuts since the start.
    fn passed(&mut self, replay_batch: u64) -> u32 {
        while self.cuts.get(1).is_some_and(|cut| cut.0 <= replay_batch) {
            self.cuts.pop_front();
        }
        self.cuts.front().filter(|cut| cut.0 <= replay_batch).map_or(0, |cut| cut.1)
    }
    /// Called when a checkpoint is durable (rule K3): frees sealed segments without a live block, if all records that
    /// lie in them or name them are part of the checkpoint: those before the place where replay would start, which may be the cut of an
    /// earlier checkpoint. That place: the position of its segment, and its batch.
    pub fn free_dead(&mut self, (replay_sequence, replay_batch): (u64, u64)) {
        let passed = self.passed(replay_batch);
        let known = if active(Bug::PendingFreed) { self.checkpoint } else { passed };
        let mut dead: Vec<_> = self.dead(replay_sequence, known).collect();
        if active(Bug::FreedTwice) {
            dead.append(&mut self.freed_before);
            self.freed_before.clone_from(&dead);
        }
        for &segment in &dead {
            self.rows[segment.0 as usize].state = SegmentState::Free;
        }
        // What is left are segments of the log that replay would still read, and others that its records name.
        let waiting: Vec<_> = self.dead(u64::MAX, self.checkpoint).collect();
        self.devices.iter_mut().for_each(|device| device.dead_waiting = 0);
        waiting.into_iter().for_each(|segment| self.device_of(segment).dead_waiting += 1);
        self.changed.extend(&dead);
        for &segment in &dead {
            let device = self.device_of(segment);
            device.leaving += 1;
            if device.row.tier == Tier::Flash && device.gives() {
                self.undiscarded.insert(segment);
            }
        }
        self.leaving.extend(dead);
    }
    /// `known`: all records before the cut of the checkpoint of this number count as part of what is durable.
    fn dead(&self, replay_sequence: u64, known: u32) -> impl Iterator<Item = SegmentId> + '_ {
        self.iter().filter_map(move |(segment, row)| {
            let number = segment.0 as usize;
            let past = row.stream != Stream::Commit || row.sequence < replay_sequence;
            let dead = row.state == SegmentState::Sealed && self.live[number] == 0;
            let known = self.sealed_before[number] < known && !self.held_back.contains(&segment);
            // Of a missing device none is freed: a start that finds it looks at the first free ones for what was opened last.
            (dead && past && known && !self.is_missing(segment)).then_some(segment)
        })
    }
    /// Frees a segment of copies that nobody looks up any more. It is not discarded: its life may be known from its header
    /// only.
    pub fn free_copies(&mut self, segment: SegmentId, used: u32) {
        let row = &mut self.rows[segment.0 as usize];
        assert!(row.stream == Stream::Copies && row.state == SegmentState::Open, "segment {segment} holds copies");
        assert!(self.live[segment.0 as usize] == 0, "no file has a copy in segment {segment}");
        row.state = SegmentState::Free;
        row.used = row.used.max(used);
        self.changed.insert(segment);
        self.device_of(segment).leaving += 1;
        self.leaving.extend([segment]);
    }
    /// Number of freed segments of a tier in which readers may still read, and that are taken again then.
    pub fn leaving(&self, tier: Tier) -> u64 {
        self.giving(tier).map(|device| device.leaving).sum()
    }
    /// The devices of a tier that give segments.
    fn giving(&self, tier: Tier) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(move |device| device.row.tier == tier && device.gives())
    }
    /// Makes freed segments without readers free to be taken. False if there was none.
    pub fn free_unread(&mut self, pins: &Pins) -> bool {
        let unread = self.leaving.take_unread(pins);
        let some = !unread.is_empty();
        for segment in unread {
            let state = self.rows[segment.0 as usize].state;
            assert!(state == SegmentState::Free, "segment {segment} was freed, and is {state:?}");
            let device = self.device_of(segment);
            device.leaving -= 1;
            device.free.insert(segment);
        }
        some
    }
    /// Takes a free segment out to be discarded, if at least `least` are left. None if there is none to discard.
    pub fn begin_discard(&mut self, least: usize) -> Option<SegmentId> {
        assert!(self.discarding.is_none(), "one at a time");
        if self.free() <= least {
            return None;
        }
        // The last one: segments with low numbers are taken first and will be written soon anyway.
        let free = |segment: &&SegmentId| self.devices[self.slot(**segment)].free.contains(segment);
        let segment = *self.undiscarded.iter().rev().find(free)?;
        let state = self.rows[segment.0 as usize].state;
        assert!(state == SegmentState::Free, "segment {segment} is discarded while it is {state:?}");
        self.device_of(segment).free.remove(&segment);
        self.discarding = Some(segment);
        self.discarding
    }
    /// Makes the discarded segment free again.
    pub fn end_discard(&mut self) {
        let segment = self.discarding.take().expect("one was taken out");
        self.undiscarded.remove(&segment);
        self.device_of(segment).free.insert(segment);
    }
    /// Seeded bug `DiscardedBeforeCheckpoint` only: segments that are empty once the checkpoint is durable.
    pub fn about_to_die(&self, staged: &Staged, replay_sequence: u64) -> Vec<SegmentId> {
        let empty = |(segment, live): (&SegmentId, &Vec<u64>)| {
            let row = &self.rows[segment.0 as usize];
            let past = row.stream != Stream::Commit || row.sequence < replay_sequence;
            let known = self.sealed_before[segment.0 as usize] < self.checkpoint;
            (ones(live) == 0 && row.state == SegmentState::Sealed && past && known).then_some(*segment)
        };
        staged.live.iter().filter_map(empty).collect()
    }
    /// Adds segments that were never used to a brick of one device.
    pub fn grow(&mut self, segments: u32) {
        let before = self.rows.len() as u32;
        assert!(segments >= before && self.devices.len() == 1, "bricks of one device grow, and don't shrink");
        self.devices[0].row.segments = segments;
        let Device { free, bitmaps, .. } = &mut self.devices[0];
        free.extend((before..segments).map(SegmentId));
        bitmaps.as_mut().expect("it is flash").resize(segments as usize, Vec::new());
        self.resize(segments);
    }
    fn resize(&mut self, segments: u32) {
        assert!(self.live.len() == self.rows.len() && self.sealed_before.len() == self.rows.len());
        assert!(segments as usize >= self.rows.len(), "a brick keeps its {} segments", self.rows.len());
        let more = segments as usize - self.rows.len();
        // Without what vectors take ahead: a brick rarely gets another device, and then one of very many segments.
        self.rows.reserve_exact(more);
        self.live.reserve_exact(more);
        self.sealed_before.reserve_exact(more);
        self.rows.resize(segments as usize, never_used());
        self.live.resize(segments as usize, 0);
        self.sealed_before.resize(segments as usize, 0);
    }
    /// Number of segments that were opened since this one, over all streams.
    pub fn age(&self, row: &Row) -> u64 {
        assert!(row.opened < self.next_opened, "no segment is younger than the next one");
        self.next_opened - 1 - row.opened
    }
    /// True if the last checkpoint found live blocks in a segment.
    pub fn is_live(&self, segment: SegmentId) -> bool {
        self.live[segment.0 as usize] > 0
    }
    /// Sealed segments of a tier whose records are all in the last checkpoint: what the cleaner may choose from (rule K1). What
    /// lies on a device that leaves has its own mover.
    pub fn cleanable(&self, tier: Tier, replay_sequence: u64) -> impl Iterator<Item = (SegmentId, &Row, u32)> {
        let segments = self.giving(tier).flat_map(|device| device.row.first..device.row.end()).map(SegmentId);
        let told = |segment: SegmentId| (segment, &self.rows[segment.0 as usize], self.live[segment.0 as usize]);
        segments.filter(move |&segment| self.is_cleanable(segment, replay_sequence)).map(told)
    }
    fn is_cleanable(&self, segment: SegmentId, replay_sequence: u64) -> bool {
        let (number, row) = (segment.0 as usize, &self.rows[segment.0 as usize]);
        let past = row.stream != Stream::Commit || row.sequence < replay_sequence;
        let known = self.sealed_before[number] < self.checkpoint && !self.held_back.contains(&segment);
        row.state == SegmentState::Sealed && self.live[number] > 0 && past && known && !self.is_missing(segment)
    }
    /// Number of free segments of the flash tier.
    pub fn free(&self) -> usize {
        self.giving(Tier::Flash).map(|device| device.free.len()).sum()
    }
    /// The present totals of a tier. Devices that leave the brick count only with what still lies on them, missing ones not at all.
    pub fn totals(&self, tier: Tier) -> SegmentTotals {
        let (mut segments, mut free, mut emptied) = (0, 0, 0);
        for device in self.giving(tier) {
            segments += u64::from(device.row.segments);
            free += device.free.len() as u64;
            emptied += device.dead_waiting + device.leaving;
        }
        // The first device is flash.
        let hidden = if tier == Tier::Flash { self.hidden.len() as u64 } else { 0 };
        let counts = |segment: SegmentId| {
            let Device { row, .. } = &self.devices[self.slot(segment)];
            row.tier == tier && row.state == State::InUse
        };
        let discarding = u64::from(self.discarding.is_some_and(counts));
        SegmentTotals {
            segments: segments - hidden,
            free_segments: free + discarding,
            emptied_segments: emptied,
            live_blocks: self.live_blocks[tier as usize],
        }
    }
    /// Number of segments of each tier.
    pub fn sizes(&self) -> [u32; 2] {
        Tier::ALL.map(|tier| self.totals(tier).segments as u32)
    }
    /// The totals of the brick.
    pub fn all_totals(&self) -> SegmentTotals {
        self.totals(Tier::Flash).and(&self.totals(Tier::Disk))
    }
    /// Numbers of segments in use, by the tenth of their `blocks` blocks that is live.
    pub fn liveness(&self, blocks: u32) -> [u64; TENTHS] {
        let mut numbers = [0; TENTHS];
        for (segment, row) in self.iter() {
            if row.state != SegmentState::Free && !self.hidden.contains(&segment) {
                let tenth = u64::from(self.live[segment.0 as usize]) * TENTHS as u64 / u64::from(blocks.max(1));
                numbers[(tenth as usize).min(TENTHS - 1)] += 1;
            }
        }
        numbers
    }
}

/// Blocks of a segment that payloads may take, its header included: the summary takes the last ones.
pub fn usable_blocks(blocks: u32) -> u32 {
    blocks - summary_blocks(blocks as usize) as u32
}

fn contradicts(what: &'static str, of: impl std::fmt::Debug) -> Error {
    let next = "stop the brick, then `sinter check --repair`";
    Error::new(Kind::Corrupt, what).with(format!("{of:?}; {next}"))
}

fn ones(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

/// Bytes of a number of blocks.
pub fn block_bytes(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Uuid;
    use base::Place;

    fn blank(segments: u32) -> Table {
        Table::new(&DeviceTable::of_one(Uuid::default(), segments), Resident::Flash)
    }

    #[test]
    fn ages_are_the_same_after_a_restart() {
        let mut table = blank(6);
        for stream in [Stream::Commit, Stream::Bulk, Stream::Commit, Stream::Cold] {
            table.take(stream, Origin::Flash).expect("segments are free");
        }
        let mut after = blank(6);
        table.whole_rows().for_each(|(segment, row)| after.restore(segment, row));
        for table in [table, after] {
            let ages = table.iter().take(4).map(|(_, row)| table.age(row));
            assert_eq!(ages.collect::<Vec<_>>(), [3, 2, 1, 0], "others opened since");
        }
    }

    #[test]
    fn of_a_segment_that_was_used_the_commit_stream_fills_the_rest() {
        let mut table = blank(1);
        let mut lives =
            [(Stream::Cold, 9, 0), (Stream::Commit, 7, 9), (Stream::Bulk, 5, u32::MAX), (Stream::Commit, 3, 5)]
                .into_iter();
        for (stream, used, written) in lives.by_ref() {
            let taken = table.take(stream, Origin::Flash).expect("it is free");
            assert_eq!(taken.written, written, "{stream:?}");
            table.set_state(taken.segment, SegmentState::Free, used);
        }
        let taken = table.take(Stream::Bulk, Origin::Flash).expect("it is free");
        table.give_back(taken.segment);
        assert!(
            table.take(Stream::Commit, Origin::Flash).expect("it is free").written <= 1,
            "who knows what was written"
        );
    }

    #[test]
    fn segments_in_use_are_counted_by_how_live_they_are() {
        let mut table = blank(4);
        let segments = [(); 3].map(|()| table.take(Stream::Bulk, Origin::Flash).expect("segments are free").segment);
        let mut staged = Staged::default();
        let mut live = |segment, count: u16| {
            for block in 0..count {
                table.stage_live(&mut staged, Place { segment, block }).expect("it is not live");
            }
        };
        live(segments[1], 3);
        live(segments[2], 20);
        table.commit(staged);
        assert_eq!(table.liveness(20), [1, 1, 0, 0, 0, 0, 0, 0, 0, 1], "none, 3 and 20 of 20 blocks");
        assert_eq!(blank(4).liveness(20), [0; TENTHS]);
    }

    /// A few such segments would keep much space from being used.
    #[test]
    fn a_segment_with_one_live_block_can_be_cleaned() {
        let mut table = blank(3);
        let segments = [(); 2].map(|()| table.take(Stream::Bulk, Origin::Flash).expect("segments are free").segment);
        segments.iter().for_each(|&segment| table.set_state(segment, SegmentState::Sealed, 9));
        let mut staged = Staged::default();
        table.stage_live(&mut staged, Place { segment: segments[1], block: 7 }).expect("it is not live");
        table.begin_checkpoint();
        table.commit(staged);
        let cleanable = table.cleanable(Tier::Flash, 1).map(|(segment, _, live)| (segment, live));
        assert_eq!(cleanable.collect::<Vec<_>>(), [(segments[1], 1)], "a dead one is freed without");
    }
}
