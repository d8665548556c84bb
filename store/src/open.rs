//! Opening a brick: superblock, segment table, replay, a new epoch, then the log's tasks (rules L4-L6).

mod devices;
mod reread;

use crate::format::devices::{DeviceTable, Tier};
use crate::format::keys;
use crate::format::passages::Passages;
use crate::format::record::{Logged, Moved, Places};
use crate::format::segment::{SegmentHeader, Stream};
use crate::format::summary::{self, SummaryEntry};
use crate::format::superblock::{EPOCH_ENDS_MAX, EpochEnd, REVISION_2, State, Superblock};
use crate::format::values::{self, GroupRow, ReplayRow, SegmentState};
use crate::index::{self, Index};
use crate::log::{Log, Resume, drive};
use crate::media::device_table;
use crate::media::geometry::Geometry;
use crate::media::host::Host;
use crate::media::superblock_file;
use crate::progress::{self, Tell};
use crate::promote::drive::Copies;
use crate::promote::{self, Promotion, Size};
use crate::read_cache::ReadCache;
use crate::recovery::bounds::Bounds;
use crate::recovery::{self, Head, LIVES_AHEAD_MAX, Replayed, Tail};
use crate::segments::bulk::Bulk;
use crate::segments::pins::Pins;
use crate::segments::{Origin, Resident, Row, Table, usable_blocks};
use crate::segments::{discard, prepare};
use crate::space::Space;
use crate::space::usage::Usages;
use crate::{Store, scrub};
use base::limits::BLOCK_BYTES;
use base::{Edit, Error, GroupId, Kind, Life, Place, Result, SegmentId, VolumeId};
use runtime::seeded::{Bug, active};
use runtime::{FileId, Lock, Runtime, tasks};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A brick that has been read but not yet replayed.
pub struct Opening {
    runtime: Runtime,
    index: Arc<dyn Index>,
    superblock: Superblock,
    superblock_file: FileId,
    geometry: Arc<Geometry>,
    devices: DeviceTable,
    /// The copy of the device table that is not as the other.
    bad_devices: Option<u64>,
    table: Table,
    headers: BTreeMap<SegmentId, SegmentHeader>,
    /// Segments with a batch behind the header.
    begun: BTreeSet<SegmentId>,
    /// Headers that are gone, as the batches behind them tell them.
    lost: BTreeMap<SegmentId, SegmentHeader>,
    replay: ReplayRow,
    passages: Passages,
    summaries: BTreeMap<SegmentId, Vec<SummaryEntry>>,
    /// Segments of which the index holds parts of a summary that nobody needs.
    stale: Vec<SegmentId>,
    tell: Tell,
    read_cache_bytes: u64,
    promotion_bytes: u64,
    /// Something an operator should know: a damaged superblock copy.
    pub warnings: Vec<String>,
}

/// The segments whose headers are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Headers {
    /// All that a start needs.
    Needed,
    /// All; and of the segment table all live bitmaps.
    All,
}

/// Free segments of a disk whose headers a start reads: more than the streams take between two checkpoints, and half a second's
/// seeks.
const FREE_HEADERS: u32 = 64;

/// Payload blocks as described by records, by segment.
type Described = BTreeMap<SegmentId, Vec<SummaryEntry>>;

/// The figures of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// Batches read.
    pub batches: u64,
    /// Records read.
    pub records: u64,
    /// Bytes of log that they took.
    pub bytes: u64,
    /// Nanoseconds taken.
    pub ns: u64,
}

impl Opening {
    /// Reads everything but the log. Errors: `NotFound`, `Corrupt`, `Newer`, `Io`; `Invalid` for a half-formatted
    /// brick.
    pub async fn read(runtime: Runtime, index: Arc<dyn Index>, writable: bool) -> Result<Opening> {
        Opening::with_headers(runtime, index, writable, Headers::Needed).await
    }
    /// Reads the header of every segment, too, and keeps all live bitmaps: for `check` and repairs. On a large disk that takes
    /// minutes, and of 20 TB 600 MB.
    pub async fn read_wholly(runtime: Runtime, index: Arc<dyn Index>, writable: bool) -> Result<Opening> {
        Opening::with_headers(runtime, index, writable, Headers::All).await
    }

    async fn with_headers(
        runtime: Runtime,
        index: Arc<dyn Index>,
        writable: bool,
        headers: Headers,
    ) -> Result<Opening> {
        let found = superblock_file::load(&runtime, writable).await?;
        let superblock = found.superblock;
        if superblock.state == State::Formatting {
            let what = "the brick's format was interrupted: it holds no data; format it again";
            return Err(Error::new(Kind::Invalid, what));
        }
        let mut warnings = Vec::new();
        if let Some(error) = &found.damaged {
            warnings.push(format!("one copy of the superblock is damaged, the other is used: {error}"));
        }
        let (devices, damaged) = device_table::load(&runtime, &superblock).await?;
        let bad_devices = damaged.as_ref().map(|&(copy, _)| copy);
        if let Some((_, error)) = damaged {
            warnings.push(format!("one copy of the device table is not used: {error}"));
        }
        let opened = devices::open((&runtime, &*index), (&superblock, &devices), writable).await?;
        let geometry = Arc::new(opened.geometry);
        warnings.extend(opened.warnings);
        let bounds = Bounds::of(&superblock, &geometry);
        refuse_more_groups(&*index, superblock.groups)?;
        let (replay, passages) = match index.get(&keys::replay())? {
            Some(row) => values::decode_damaged_replay(&row)?,
            None => Default::default(),
        };
        bounds.replay(&replay)?;
        let mut table = read_table(&*index, (&devices, &geometry), &bounds, headers)?;
        for (next, stored) in table.next_sequence.iter_mut().zip(replay.next_sequence) {
            *next = (*next).max(stored);
        }
        let mut opening = Opening {
            runtime,
            index,
            superblock,
            superblock_file: found.file,
            geometry,
            devices,
            bad_devices,
            table,
            headers: BTreeMap::new(),
            begun: BTreeSet::new(),
            lost: BTreeMap::new(),
            replay,
            passages,
            summaries: BTreeMap::new(),
            stale: Vec::new(),
            tell: progress::nobody(),
            read_cache_bytes: 0,
            promotion_bytes: 0,
            warnings,
        };
        opening.read_headers(headers).await?;
        opening.read_summaries()?;
        Ok(opening)
    }

    /// Has somebody told how far reading the log has come.
    pub fn tell(&mut self, tell: Tell) {
        self.tell = tell;
    }
    /// Keeps up to `bytes` bytes of blocks that clients read; none are kept without this call.
    pub fn keep_reads(&mut self, bytes: u64) {
        self.read_cache_bytes = bytes;
    }
    /// True if the brick has disks.
    pub fn has_disks(&self) -> bool {
        self.devices.rows.iter().any(|row| row.tier == Tier::Disk)
    }
    /// Lets a brick with disks copy what is read from them again to flash, and spends `bytes` bytes of memory on knowing the
    /// copies; none are made without this call.
    pub fn promote(&mut self, bytes: u64) {
        self.promotion_bytes = bytes;
    }
    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
    /// The index.
    pub fn index(&self) -> &Arc<dyn Index> {
        &self.index
    }
    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
    /// The segment table as of the last checkpoint.
    pub fn table(&self) -> &Table {
        &self.table
    }
    /// The brick's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    /// Summary entries of a segment that the last checkpoint found open or closed: the index holds them until it is
    /// sealed.
    pub fn unsealed_summary(&self, segment: SegmentId) -> &[SummaryEntry] {
        self.summaries.get(&segment).map_or(&[], Vec::as_slice)
    }
    /// Position in the commit stream of the segment where replay begins.
    pub fn replay_from(&self) -> u64 {
        self.replay.sequence
    }
    /// The place where replay begins.
    pub(crate) fn replay_row(&self) -> &ReplayRow {
        &self.replay
    }
    /// The block of its segment where replay begins.
    pub(crate) fn replay_block(&self) -> u32 {
        u32::from(self.replay.block).max(1)
    }
    /// The findings of earlier repairs about the log.
    pub(crate) fn passages(&self) -> &Passages {
        &self.passages
    }
    /// Writes both copies of the superblock again, as it was read.
    pub async fn rewrite_superblock(&self) -> Result<()> {
        superblock_file::update(&self.runtime, self.superblock_file, &self.superblock).await
    }
    /// Headers of the segments that are in use.
    pub fn headers(&self) -> impl Iterator<Item = &SegmentHeader> {
        self.headers.values()
    }

    /// Headers of segments that may have been opened since the checkpoint, or whose state it left open.
    async fn read_headers(&mut self, which: Headers) -> Result<()> {
        let mut free = 0;
        let mut device = None;
        for number in 0..self.superblock.segments {
            let segment = SegmentId(number);
            let row = self.table.row(segment).expect("the table has each segment");
            if let (Headers::Needed, Some(slot)) = (which, self.table.disk_slot(segment)) {
                // Each would take a seek. Those that are sealed are as the index says. Of the free ones those with the lowest
                // numbers are taken first: what was taken since the checkpoint is among these, or a record tells of it.
                free = if device.replace(slot) == Some(slot) { free } else { 0 };
                free += u32::from(row.state == SegmentState::Free);
                let is_needed = match row.state {
                    SegmentState::Free => free <= FREE_HEADERS,
                    SegmentState::Sealed => false,
                    SegmentState::Open | SegmentState::Closed => true,
                };
                if !is_needed {
                    continue;
                }
            }
            match self.read_header(segment).await? {
                (Head::Whole(header, begun), true) => {
                    self.headers.insert(segment, header);
                    if begun {
                        self.begun.insert(segment);
                    }
                }
                (Head::Lost(header), _) => drop(self.lost.insert(segment, header)),
                _ => {}
            }
        }
        Ok(())
    }

    /// A segment's beginning, and whether it is of the life that the segment is in.
    async fn read_header(&self, segment: SegmentId) -> Result<(Head, bool)> {
        let row = self.table.row(segment).ok_or_else(|| recovery::header_lost(segment))?;
        let asked = (segment, row.life);
        let head = recovery::read_head(&self.runtime, &self.geometry, &self.superblock, asked).await?;
        let Head::Whole(header, _) = &head else { return Ok((head, false)) };
        Bounds::of(&self.superblock, &self.geometry).header(header)?;
        // A free segment still shows the header of the life that ended. One with live blocks is in the life that the index
        // says (rule K3), and a life has one place in one stream.
        let is_current = match (row.state, header.life.cmp(&row.life)) {
            (SegmentState::Free, order) => order.is_gt(),
            (_, Ordering::Equal) => (header.stream, header.sequence) == (row.stream, row.sequence),
            (_, order) => order.is_gt() && self.table.live(segment) == 0,
        };
        Ok((head, is_current))
    }

    fn read_summaries(&mut self) -> Result<()> {
        let unsealed = |(_, row): &(SegmentId, &Row)| matches!(row.state, SegmentState::Open | SegmentState::Closed);
        self.summaries = self.table.iter().filter(unsealed).map(|(segment, _)| (segment, Vec::new())).collect();
        let (from, to) = keys::summaries();
        for (key, value) in self.index.scan(&from, &to, usize::MAX)? {
            let segment = keys::segment_id(&key);
            match self.summaries.get_mut(&segment) {
                Some(entries) => entries.extend(summary::decode_entries(&value)?),
                None => self.stale.push(segment),
            }
        }
        Ok(())
    }

    /// Walks the log without changing anything; for `check`.
    pub async fn walk(&self, sink: impl AsyncFnMut(Vec<Replayed>) -> Result<()>) -> Result<Tail> {
        let applied = self.applied()?;
        let walked = self.walk_above(|group| applied[group.0 as usize], sink).await;
        walked.map(|(tail, ..)| tail)
    }

    /// The one road of a start and of the check, so that one refuses exactly what the other finds. `applied`: the last record of a
    /// group that the index has. Returns what later ones say of payloads, and headers that they need and that were not read
    /// before. Errors: `Corrupt` (rule L5).
    async fn walk_above(
        &self,
        applied: impl Fn(GroupId) -> base::Index,
        sink: impl AsyncFnMut(Vec<Replayed>) -> Result<()>,
    ) -> Result<(Tail, Described, Vec<SegmentHeader>)> {
        self.refuse_missing_segment()?;
        let (tail, described) = self.read_log(applied, sink).await?;
        let mut more = Vec::new();
        for &segment in described.keys().filter(|segment| !self.headers.contains_key(segment)) {
            // Of a disk only those headers were read that are always needed.
            let on_disk = self.table.row(segment).is_some() && self.table.disk_slot(segment).is_some();
            match if on_disk { self.read_header(segment).await? } else { (Head::Nothing, false) } {
                (Head::Whole(header, _), true) => more.push(header),
                // Without its header a segment would count as free, and what these records say lies in it would be overwritten.
                _ => return Err(recovery::header_lost(segment)),
            }
        }
        Ok((tail, described, more))
    }

    async fn read_log(
        &self,
        applied: impl Fn(GroupId) -> base::Index,
        mut sink: impl AsyncFnMut(Vec<Replayed>) -> Result<()>,
    ) -> Result<(Tail, Described)> {
        let (mut described, mut order) = (Described::new(), Order::new(self.superblock.groups, &applied));
        let tail = recovery::walk(&self.runtime, &self.geometry, self.log(), async |mut chunk: Vec<Replayed>| {
            chunk.retain(|replayed| match &replayed.logged {
                Logged::Record(record) => !self.passages.leave_out((record.group, record.index), replayed.batch),
                Logged::Moves(_) | Logged::Vote(_) => true,
            });
            for replayed in &chunk {
                order.follow(replayed)?;
                self.refuse_without(replayed, &applied)?;
                describe(&mut described, replayed, &applied);
            }
            // Nobody knows which life a segment is in whose header can't be read, so no row could count what was moved there. Blocks
            // stay where they were: no checkpoint has had the move, so that place is kept (rule K3), and as after a move that
            // came too late the copy is dead. A later start that finds the disk and reads this record again may take it or not.
            let is_move = |replayed: &Replayed| matches!(replayed.logged, Logged::Moves(_));
            let stays = |replayed: &Replayed| is_move(replayed) && self.lies_on_absent(replayed);
            chunk.retain(|replayed| !stays(replayed) || active(Bug::MissingBelieved));
            sink(chunk).await
        });
        let tail = tail.await?;
        described.retain(|&segment, _| !self.geometry.is_absent(segment));
        Ok((tail, described))
    }

    /// True for a record whose payload lies on a disk that is missing, or was when it was removed.
    fn lies_on_absent(&self, replayed: &Replayed) -> bool {
        replayed.runs.iter().any(|run| self.geometry.is_absent(run.place.segment))
    }
    /// Refuses to start where such a record is no move, and new: then the payload has no other place. Errors: `NotFound`.
    fn refuse_without(&self, replayed: &Replayed, applied: &impl Fn(GroupId) -> base::Index) -> Result<()> {
        let Logged::Record(record) = &replayed.logged else { return Ok(()) };
        if record.index <= applied(record.group) || !self.lies_on_absent(replayed) {
            return Ok(());
        }
        let what = "a disk is missing on which lies what was written since the last checkpoint: bring it back";
        Err(Error::new(Kind::NotFound, what).with(format!("group {}, record {}", record.group, record.index)))
    }

    /// The last record of each group that the index has. A row that can't be read stops a start by itself: no record counts as
    /// newer.
    fn applied(&self) -> Result<Vec<base::Index>> {
        let row = |group| match self.index.get(&keys::group(GroupId(group)))? {
            _ if active(Bug::StartAndCheckDisagree) => Ok(base::Index(u64::MAX)),
            Some(row) => Ok(values::decode_group(&row).map_or(base::Index(u64::MAX), |row| row.applied)),
            None => Ok(GroupRow::fresh().applied),
        };
        (0..self.superblock.groups).map(row).collect()
    }

    /// Headers that are gone and that a start needs, as a repair writes them.
    pub(crate) async fn lost_headers(&self) -> Result<Vec<SegmentHeader>> {
        if !self.lost.is_empty() {
            return Ok(self.lost.values().copied().collect());
        }
        let applied = self.applied()?;
        let described = match self.read_log(|group| applied[group.0 as usize], async |_| Ok(())).await {
            Ok((_, described)) => described,
            Err(error) if error.kind == Kind::Corrupt => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let of_bulk = self.headers.values().filter(|header| header.stream == Stream::Bulk);
        let first = of_bulk.map(|header| header.sequence + 1).fold(self.table.next_in(Stream::Bulk), u64::max);
        let mut lost = Vec::new();
        let without = described.into_keys().filter(|segment| !self.headers.contains_key(segment));
        for (sequence, segment) in (first..).zip(without) {
            let row = self.table.row(segment).ok_or_else(|| recovery::header_lost(segment))?;
            // Batches of the commit stream tell their own. Which life this is nobody knows; it is none that was before.
            let life = Life(row.life.0.saturating_add(LIVES_AHEAD_MAX));
            let (uuid, stream) = (self.superblock.uuid, Stream::Bulk);
            lost.push(SegmentHeader { uuid, segment, life, stream, sequence, epoch: 0 });
        }
        Ok(lost)
    }

    pub(crate) fn log(&self) -> recovery::Log<'_> {
        recovery::Log {
            superblock: &self.superblock,
            replay: &self.replay,
            segments: self.headers.values().copied().collect(),
            tell: &self.tell,
            damaged: false,
            over: &self.passages.over,
        }
    }

    /// Ends the log durably after its last whole batch: what follows is dead, as after a crash (rule L4).
    pub async fn cut_log(&self, tail: &Tail) -> Result<()> {
        let mut superblock = self.superblock.clone();
        superblock.ends.retain(|end| end.epoch >= self.replay.epoch);
        superblock.ends.iter_mut().for_each(|end| end.batch = end.batch.min(tail.number));
        superblock.ends.push(EpochEnd { epoch: superblock.epoch, batch: tail.number });
        if superblock.ends.len() > EPOCH_ENDS_MAX {
            return Err(Error::new(Kind::Corrupt, "the brick crashed too often without a checkpoint"));
        }
        superblock.epoch += 1;
        superblock.sequence += 1;
        superblock.features.incompatible |= REVISION_2;
        superblock_file::update(&self.runtime, self.superblock_file, &superblock).await
    }

    /// A checkpoint names a commit segment only once its header is durable: if replay needs one that has no valid
    /// header now, the device has lost it and all that was acknowledged in it (rule L5).
    pub(crate) fn refuse_missing_segment(&self) -> Result<()> {
        let lost = self.table.iter().find(|(segment, row)| {
            let needed = row.stream == Stream::Commit && row.sequence >= self.replay.sequence;
            row.state != SegmentState::Free && needed && !self.headers.contains_key(segment)
        });
        let lost = lost.map(|(segment, _)| segment).or(self.lost.keys().next().copied());
        lost.map_or(Ok(()), |segment| Err(recovery::header_lost(segment)))
    }

    /// Replays the log into `sink`, which gets every record at or after the replay position in order, then starts a
    /// new epoch and the log's tasks. `applied`: the record is above its group's applied position.
    pub async fn replay(
        mut self,
        mut sink: impl AsyncFnMut(Vec<Replayed>) -> Result<()>,
        applied: impl Fn(GroupId) -> base::Index,
    ) -> Result<(Arc<Store>, Replay)> {
        let start_ns = self.runtime.clock.now_ns();
        let mut records = 0;
        let walked = self.walk_above(applied, async |chunk| {
            records += chunk.len() as u64;
            sink(chunk).await
        });
        let (tail, described, more) = walked.await?;
        self.headers.extend(more.into_iter().map(|header| (header.segment, header)));
        let mentioned: BTreeSet<_> = described.keys().copied().collect();
        for (segment, entries) in described {
            // A segment that the index calls sealed has its whole summary on the device, unless that was another life.
            let life = self.headers.get(&segment).map(|header| header.life);
            if self.table.row(segment).is_some_and(|row| row.state != SegmentState::Sealed || life > Some(row.life)) {
                let all = self.summaries.entry(segment).or_default();
                all.extend(entries);
                // A checkpoint writes entries of records that came after its groups were frozen: replay finds them too.
                all.sort_by_key(|entry| entry.block);
                all.dedup_by_key(|entry| entry.block);
            }
        }
        // What was found may still lie in a drive's cache: it counts from now on, so it must be durable.
        drive::flush_all(&self.runtime, &self.geometry.all_files()).await?;
        self.settle_segments(&tail, &mentioned);
        let store = self.start(&tail).await?;
        scrub::go_on(&store);
        let ns = store.runtime.clock.now_ns() - start_ns;
        Ok((store, Replay { batches: tail.batches, records, bytes: tail.blocks * BLOCK_BYTES as u64, ns }))
    }

    /// Decides what every segment that was open is now. None is written again in this epoch: late writes of the
    /// process before hit dead space only (rule L4). One that was open two epochs ago and holds nothing is free, also
    /// if no checkpoint has known it: a brick that crashes again and again keeps its space.
    fn settle_segments(&mut self, tail: &Tail, mentioned: &BTreeSet<SegmentId>) {
        let replay_from = self.replay.sequence;
        let unended = promote::drive::unended(self.headers.values(), self.superblock.epoch);
        for (segment, header) in &self.headers {
            if header.stream == Stream::Copies && unended != Some(*segment) {
                self.table.restore_copies(*segment, header.life, header.sequence);
                self.summaries.remove(segment);
                continue;
            }
            let row = *self.table.row(*segment).expect("headers are read for the table's segments");
            let used = self.summaries.get(segment).into_iter().flatten().map(|entry| u32::from(entry.block) + 1).max();
            let used = used.unwrap_or(1).max(match tail.end {
                Some((end, block)) if end.segment == *segment => block,
                _ => row.used,
            });
            let SegmentHeader { life, stream, sequence, epoch, .. } = *header;
            let old = epoch < self.superblock.epoch;
            // Opened after the last checkpoint: in which order among them matters little for their ages.
            let opened = if life > row.life { self.table.next_opened() } else { row.opened };
            if life > row.life && old && !self.begun.contains(segment) && !mentioned.contains(segment) {
                let state = SegmentState::Free;
                self.table.restate(*segment, Row { state, life, stream, sequence, opened, used: 0 });
                // As below: an index that was put back from a backup may say that it is open.
                self.summaries.remove(segment);
                continue;
            }
            if life > row.life || row.state == SegmentState::Open {
                let state = SegmentState::Open;
                self.table.restate(*segment, Row { state, life, stream, sequence, opened, used });
                self.table.set_state(*segment, SegmentState::Closed, used);
                // It is sealed, and may be freed then, also if nothing lies in it.
                self.summaries.entry(*segment).or_default();
            }
            let unsealed = self.summaries.get(segment).is_some_and(|entries| !entries.is_empty());
            let dead = self.table.live(*segment) == 0 && !unsealed && !mentioned.contains(segment);
            let replayed = stream == Stream::Commit && sequence >= replay_from;
            if dead && !replayed && life == row.life && old {
                // An empty summary would have it sealed beside its next life.
                self.summaries.remove(segment);
                self.table.set_state(*segment, SegmentState::Free, 0);
            }
        }
        // Without a header and without a live block: nothing is lost with it.
        let unused = self.table.iter().filter(|(segment, row)| {
            let dead = self.table.live(*segment) == 0;
            let unread = !self.headers.contains_key(segment) && !self.table.is_missing(*segment);
            row.state != SegmentState::Free && dead && unread
        });
        let unused: Vec<_> = unused.map(|(segment, _)| segment).collect();
        for segment in unused {
            self.summaries.remove(&segment);
            self.table.set_state(segment, SegmentState::Free, 0);
        }
        // The process before may have had writes under way to what it has opened, and to the ends of what it, too, found open:
        // these must have ended before the segments are taken again.
        for &segment in self.summaries.keys() {
            self.table.hold_back(segment);
        }
    }

    /// Room to know copies, if the brick has disks. Of what is added before the next start, only so many segments more are copied.
    fn promotion(&self) -> Promotion {
        let bytes = if self.has_disks() { self.promotion_bytes } else { 0 };
        let segments = self.superblock.segments.next_power_of_two();
        Promotion::new(Size { bytes, segments, blocks: self.geometry.blocks() })
    }

    /// Ends the epoch of the process before. Errors: `Corrupt`.
    fn end_epoch(&mut self, tail: &Tail) -> Result<()> {
        let end = EpochEnd { epoch: self.superblock.epoch, batch: tail.number };
        self.superblock.ends.retain(|end| end.epoch >= self.replay.epoch);
        self.superblock.ends.push(end);
        if self.superblock.ends.len() > EPOCH_ENDS_MAX {
            let what = "the brick crashed too often without a checkpoint; run `sinter check`";
            return Err(Error::new(Kind::Corrupt, what));
        }
        self.superblock.epoch += u64::from(!active(Bug::EpochKept));
        Ok(())
    }

    async fn start(mut self, tail: &Tail) -> Result<Arc<Store>> {
        if let Some(copy) = self.bad_devices {
            device_table::mend(&self.runtime, &self.devices, copy).await?;
        }
        if !active(Bug::TailReused) || tail.end.is_none() {
            self.end_epoch(tail)?;
        }
        self.superblock.sequence += 1;
        self.superblock.features.incompatible |= REVISION_2;
        superblock_file::update(&self.runtime, self.superblock_file, &self.superblock).await?;
        let (blocks, promotion) = (self.geometry.blocks(), self.promotion());
        let (epoch, sequence) = (self.superblock.epoch, self.table.next_in(Stream::Commit));
        let resume = Resume { number: tail.number, epoch, sequence };
        let log = Arc::new(Log::new(self.runtime.clone(), self.superblock.uuid, blocks, resume));
        if active(Bug::TailReused)
            && let Some((header, block)) = tail.end
        {
            log.reuse_tail(&self.geometry, &header, block, tail.crc);
        }
        // The index may hold parts of these: the next checkpoint drops them.
        let summarised = self.summaries.keys().chain(&self.stale).map(|&segment| (segment, 0)).collect();
        let left_open = self.summaries.keys().copied().collect();
        for (segment, entries) in self.summaries {
            log.restore_summary(segment, entries);
        }
        let usable = usable_blocks(blocks);
        let destage = Lock::new("disks", Bulk::of_disks((&self.devices, &self.geometry), &self.runtime, &log, usable));
        assert!(self.superblock.epoch > 0, "appends are of an epoch that the superblock knows (rule L3)");
        let usages = Usages::read(&*self.index, self.superblock.groups, &volumes(&*self.index)?)?;
        let used_bytes = self.table.all_totals().live_bytes() + usages.unmapped_bytes();
        let store = Arc::new(Store {
            space: Space::new(self.table.sizes(), usable - 1, used_bytes),
            usages: Lock::new("usages", usages),
            scrub: scrub::Scrub::read(&*self.index)?,
            bulk: Bulk::new((Stream::Bulk, Origin::Flash), self.runtime.clone(), log.clone(), usable),
            cold: Bulk::new((Stream::Cold, Origin::Flash), self.runtime.clone(), log.clone(), usable),
            destage,
            devices: Lock::new("devices", self.devices),
            opened_ns: self.runtime.clock.now_ns(),
            read_cache: ReadCache::new(self.read_cache_bytes),
            promotion,
            copies: Copies::default(),
            pins: Pins::new(self.runtime.tasks.cores()),
            uuid: self.superblock.uuid,
            groups: self.superblock.groups,
            epoch: self.superblock.epoch,
            epoch_ends: self.superblock.ends.len(),
            index: self.index,
            log: log.clone(),
            superblock: Lock::new("superblock", self.superblock),
            superblock_file: self.superblock_file,
            superblock_changes: AtomicBool::new(false),
            discarded_bytes: AtomicU64::new(0),
            geometry: self.geometry,
            host: Host::default(),
            table: Lock::new("segments", self.table),
            summarised: Lock::new("summarised", summarised),
            replay: Lock::new("replay", self.replay),
            mended: AtomicBool::new(!self.passages.is_empty()),
            runtime: self.runtime,
        });
        let there = store.clone();
        tasks::run_blocking(&*store.runtime.tasks, move || there.check_host_room()).await;
        start_tasks(&store, left_open);
        Ok(store)
    }
}

fn start_tasks(store: &Arc<Store>, mut left_open: Vec<SegmentId>) {
    drive::start(&store.log);
    // On a missing disk nothing can be sealed: checkpoints keep the summaries for a start that finds it.
    left_open.retain(|&segment| !store.is_missing(segment));
    let mut by_disk: BTreeMap<Option<usize>, Vec<SegmentId>> = BTreeMap::new();
    let slot = |segment: SegmentId| store.table.lock().disk_slot(segment);
    left_open.into_iter().for_each(|segment| by_disk.entry(slot(segment)).or_default().push(segment));
    for stream in store.destage() {
        let left_open = by_disk.remove(&stream.disk()).unwrap_or_default();
        prepare::start_disk(store, stream, left_open);
    }
    let (there, left_open) = (store.clone(), by_disk.remove(&None).unwrap_or_default());
    store.runtime.tasks.spawn(0, Box::new(move || Box::pin(housekeep(there, left_open))));
    if store.discards() || active(Bug::FilesDiscarded) {
        let there = store.clone();
        store.runtime.tasks.spawn(0, Box::new(move || Box::pin(discard::run(there))));
    }
    promote::drive::start(store);
}

/// The segment table as of the last checkpoint.
fn read_table(
    index: &dyn Index,
    (devices, geometry): (&DeviceTable, &Geometry),
    bounds: &Bounds,
    which: Headers,
) -> Result<Table> {
    let resident = if which == Headers::All { Resident::All } else { Resident::Flash };
    let mut table = Table::new(devices, resident);
    table.note_missing(|segment| geometry.is_missing(segment));
    // A part at a time: all bitmaps of large disks at once would take more memory than the daemon may have.
    index::each(index, keys::segments(), |key, value| {
        let (segment, row) = (keys::segment_id(key), values::decode_segment(value)?);
        bounds.segment(segment, &row)?;
        table.restore(segment, row);
        Ok(())
    })?;
    Ok(table)
}

/// A superblock that counts fewer groups than the index has: what theirs is in the index would be nobody's.
fn refuse_more_groups(index: &dyn Index, groups: u32) -> Result<()> {
    let (from, to) = (keys::group(GroupId(groups)), keys::group(keys::BRICK));
    let next = index.scan(&from, &to, 1)?;
    // A row that no group has written is the check's affair.
    let counters = |(key, value): &&(Vec<u8>, Vec<u8>)| {
        let is_group = keys::row(key).is_some_and(|(.., row)| row == keys::Row::Group);
        is_group && values::decode_group(value).is_ok()
    };
    match next.iter().find(counters) {
        Some((key, _)) => {
            let what = "the superblock counts fewer groups than the index has: restore it from a backup";
            Err(Error::new(Kind::Corrupt, what).with(format!("groups {groups}, row {key:02x?}")))
        }
        None => Ok(()),
    }
}

/// Seals what the process before left open, then keeps segments ready.
async fn housekeep(store: Arc<Store>, left_open: Vec<SegmentId>) {
    for segment in left_open {
        if !store.log.is_reused(segment)
            && let Err(error) = prepare::seal(&store, segment).await
        {
            return store.log.fail(error.with("sealing a segment after recovery"));
        }
    }
    prepare::run(store).await;
}

/// Each group's records come in its order, none missing (rule L6).
struct Order<'a, F> {
    groups: u32,
    applied: &'a F,
    last: BTreeMap<GroupId, base::Index>,
}

impl<'a, F: Fn(GroupId) -> base::Index> Order<'a, F> {
    fn new(groups: u32, applied: &'a F) -> Order<'a, F> {
        Order { groups, applied, last: BTreeMap::new() }
    }
    /// Errors: `Corrupt`.
    fn follow(&mut self, replayed: &Replayed) -> Result<()> {
        let Logged::Record(record) = &replayed.logged else { return Ok(()) };
        if record.group.0 >= self.groups {
            let what = "the log holds a record of a group that the brick does not have";
            return Err(Error::new(Kind::Corrupt, what).with(record.group));
        }
        let last = self.last.entry(record.group).or_insert_with(|| (self.applied)(record.group));
        // What the index has may be missing here.
        if record.index.0 > (*last).max((self.applied)(record.group)).0.saturating_add(1) {
            let error = Error::new(Kind::Corrupt, "a record is missing from a group's order");
            return Err(error.with(format!("group {}: {} after {last}", record.group, record.index)));
        }
        // With several replicas one comes at an index that was there, and the order goes on from it: what was written last counts.
        *last = record.index;
        Ok(())
    }
}

fn describe(described: &mut Described, replayed: &Replayed, applied: &impl Fn(GroupId) -> base::Index) {
    let mut places = Places::of(&replayed.runs);
    let mut add = |entries: &mut dyn Iterator<Item = SummaryEntry>| {
        for (entry, Place { segment, block }) in entries.zip(&mut places) {
            described.entry(segment).or_default().push(SummaryEntry { block, ..entry });
        }
    };
    match &replayed.logged {
        Logged::Record(record) if record.index > applied(record.group) => {
            let (group, volume, index) = (record.group, record.volume, record.index);
            for edit in &record.edits {
                let Edit::Map { ino, first, crcs } = edit else { continue };
                let blocks = crcs.as_slice().iter().zip(*first..);
                let entry = |(&crc, offset)| SummaryEntry { block: 0, group, volume, ino: *ino, offset, index, crc };
                add(&mut blocks.map(entry));
            }
        }
        Logged::Record(_) | Logged::Vote(_) => {}
        Logged::Moves(moves) => {
            let (group, volume) = (moves.group, moves.volume);
            let entry = |moved: &Moved| {
                let Moved { ino, block: offset, crc, index, .. } = *moved;
                SummaryEntry { block: 0, group, volume, ino, offset, index, crc }
            };
            add(&mut moves.blocks.iter().map(entry));
        }
    }
}

/// The volumes that the index knows.
pub(crate) fn volumes(index: &dyn Index) -> Result<Vec<VolumeId>> {
    let (from, to) = keys::volumes();
    let rows = index.scan(&from, &to, usize::MAX)?;
    rows.iter().map(|(_, value)| Ok(values::decode_volume(value)?.id)).collect()
}
