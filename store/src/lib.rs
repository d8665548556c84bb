//! Floor 2: the brick. Segments, batches, group commit, replay, index, checkpoints.
//!
//! Promises: what `wait` returned for stays, whatever crashes (rules L, U); the index changes only by checkpoints
//! (rule X1). Does not: know what edits mean (that is `names`) or which group is asked (that is `group`).
#![forbid(unsafe_code)]

pub mod brick;
pub mod check;
pub mod checkpoint;
pub mod cleaner;
pub mod device;
pub mod format;
pub mod grow;
pub mod heal;
pub mod index;
pub mod log;
pub mod media;
pub mod open;
pub mod progress;
pub mod promote;
pub mod read_cache;
pub mod recovery;
pub mod repair;
pub mod scrub;
pub mod segments;
pub mod space;

pub use brick::{FormatOptions, format_brick};
pub use checkpoint::{Change, Count, Cut, FreeLimits, GroupPart, Left, XattrChanges};
pub use index::paths;
pub use media::{feature, geometry, host};
pub use open::{Opening, Replay};
pub use read_cache::{Held, ReadCache};
pub use recovery::Replayed;
pub use recovery::running::Stored;
pub use segments::bulk;
pub use space::{purge, reserve, usage};

use base::checksum::crc32c;
use base::limits::BLOCK_BYTES;
use base::{Error, Kind, Place, Result, SegmentId};
use format::Uuid;
use format::devices::{DeviceId, DeviceRow, DeviceTable, Tier};
use format::summary::SummaryEntry;
use format::superblock::Superblock;
use format::values::ReplayRow;
use geometry::{Geometry, Spot};
use index::Index;
use log::Log;
use runtime::seeded::{Bug, active};
use runtime::{Buf, FileId, Lock, Purpose, Request, Runtime, Start, Transfer, disk};
use segments::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Time after which no write of a killed process can be in flight (rule L4): the kernel gives up on a command after 30
/// s. The brick's lock outlives such writes too; this is for hosts where it does not.
const LATE_WRITES_NS: u64 = 30_000_000_000;

/// A device of the brick, and what lies on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceFigures {
    /// The device.
    pub row: DeviceRow,
    /// Number of its free segments.
    pub free: u64,
    /// Number of live blocks on it, as of the last checkpoint.
    pub live_blocks: u64,
    /// The error after which it gets nothing more.
    pub failed: Option<Error>,
    /// True if it was not there at the start.
    pub missing: bool,
}

/// See `Store::begin_change`.
struct Changing<'a>(&'a AtomicBool);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// An open brick.
pub struct Store {
    /// The world.
    pub runtime: Runtime,
    /// The brick's identity.
    pub uuid: Uuid,
    /// Groups 0..groups exist.
    pub groups: u32,
    /// The log's epoch.
    pub epoch: u64,
    /// Ends of earlier epochs that the superblock still lists: a checkpoint lets the next start drop them.
    pub epoch_ends: usize,
    /// The index engine. Its calls block: pool only.
    pub index: Arc<dyn Index>,
    /// The log.
    pub log: Arc<Log>,
    /// The bulk stream.
    pub bulk: bulk::Bulk,
    /// The stream of what the cleaner moves.
    pub cold: bulk::Bulk,
    /// Streams of what goes to disks, one for each.
    destage: Lock<Vec<Arc<bulk::Bulk>>>,
    /// The device table as it was last written.
    devices: Lock<DeviceTable>,
    /// The space that clients may still use.
    pub space: space::Space,
    /// Blocks that clients have read.
    pub read_cache: ReadCache,
    /// Copies on flash of blocks whose home is on disk.
    pub promotion: promote::Promotion,
    /// Blocks that wait to be copied.
    pub copies: promote::drive::Copies,
    /// Time at which the brick was opened.
    opened_ns: u64,
    /// Readers in flight.
    pins: segments::pins::Pins,
    /// The superblock as it was last written.
    superblock: Lock<Superblock>,
    superblock_file: FileId,
    /// Somebody is changing the superblock: has more segments made, or marks a feature.
    superblock_changes: AtomicBool,
    discarded_bytes: AtomicU64,
    geometry: Arc<Geometry>,
    /// The file system that the brick's directory is in.
    pub host: host::Host,
    table: Lock<Table>,
    /// Summary entries of open segments that the index holds.
    summarised: Lock<BTreeMap<SegmentId, usize>>,
    /// The place where replay starts by the last durable checkpoint.
    replay: Lock<ReplayRow>,
    /// True if a repair has found ways over bad batches of the log that a replay would still take.
    mended: AtomicBool,
    /// The space that volumes used at the last checkpoint.
    usages: Lock<usage::Usages>,
    /// The scrub and its progress.
    pub scrub: scrub::Scrub,
}

impl Store {
    /// Fills `buffer` with the blocks from `place` on. Checksums are the caller's to compare: it knows them.
    pub async fn read(&self, purpose: Purpose, place: Place, buffer: Buf) -> (Buf, Result<()>) {
        match self.geometry.spot(place) {
            Some(spot) => disk::read_for(purpose, &*self.runtime.disk, spot.file, spot.offset, buffer).await,
            None => (buffer, Err(self.absent(place))),
        }
    }
    /// True if the brick has, or had, devices beside the first.
    pub fn has_further(&self) -> bool {
        self.geometry.has_further()
    }
    /// True if a place is on a disk.
    pub fn is_on_disk(&self, place: Place) -> bool {
        self.geometry.is_on_disk(place.segment)
    }
    /// Begins to read for a client, as `read` does: the I/O goes on while others are begun.
    pub fn begin_read(&self, place: Place, buffer: Buf, start: Start) -> Result<Transfer> {
        self.begin_read_for(Purpose::Client, place, buffer, start)
    }
    /// Begins to read for a purpose.
    pub fn begin_read_for(&self, purpose: Purpose, place: Place, buffer: Buf, start: Start) -> Result<Transfer> {
        let Spot { file, offset } = self.geometry.spot(place).ok_or_else(|| self.absent(place))?;
        Ok(self.runtime.disk.submit_for(purpose, Request::Read { file, offset, buffer, start }))
    }

    /// The bounds of what values may name.
    pub fn bounds(&self) -> recovery::bounds::Bounds {
        recovery::bounds::Bounds::of(&self.superblock.lock(), &self.geometry)
    }
    /// The place where replay would start now.
    pub fn replay_start(&self) -> ReplayRow {
        *self.replay.lock()
    }
    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes
    }
    /// Segments and blocks.
    pub fn segments(&self) -> segments::SegmentTotals {
        self.table.lock().all_totals()
    }
    /// The same of one tier.
    pub fn segments_of(&self, tier: Tier) -> segments::SegmentTotals {
        self.table.lock().totals(tier)
    }
    /// The brick's devices, without those that have left. Looks at each segment: not for every second of a large brick.
    pub fn devices(&self) -> Vec<DeviceFigures> {
        let table = self.table.lock();
        let there = table.devices().enumerate().filter(|(_, (row, _))| row.state != format::devices::State::Gone);
        let figures = there.map(|(slot, (row, free))| DeviceFigures {
            row: *row,
            free: free as u64,
            live_blocks: table.live_on(row),
            failed: self.destage_to(slot).and_then(|stream| stream.failed()),
            missing: self.is_missing(SegmentId(row.first)),
        });
        figures.collect()
    }
    /// The disks that were not there at the start, each with the number of live blocks on it.
    pub fn missing(&self) -> Vec<(DeviceId, u64)> {
        if !self.geometry.has_missing() {
            return Vec::new();
        }
        let table = self.table.lock();
        let missing = table.devices().filter(|(row, _)| self.is_missing(SegmentId(row.first)));
        missing.map(|(row, _)| (row.id, table.live_on(row))).collect()
    }
    /// True if a segment lies on a disk that was not there at the start.
    pub fn is_missing(&self, segment: SegmentId) -> bool {
        self.geometry.is_missing(segment)
    }
    /// The error of a read of a place that there is not.
    fn absent(&self, place: Place) -> Error {
        if place == Place::MISSING {
            return Error::new(Kind::Elsewhere, "the brick lacks a block: it heals, and others have the block");
        }
        match self.is_missing(place.segment) {
            true => {
                let what = "the block lies on a disk that is missing: `sinter brick devices` names it";
                Error::new(Kind::Io, what).with(format!("segment {}", place.segment))
            }
            false => never_made(),
        }
    }
    /// Numbers of segments in use, by the tenth of their blocks that is live. Looks at each segment: not for every second of a
    /// large brick.
    pub fn liveness(&self) -> [u64; segments::TENTHS] {
        self.table.lock().liveness(self.geometry.blocks())
    }
    /// Segments of the flash tier that streams may still open, those made ready included.
    pub fn free_segments(&self) -> usize {
        self.table.lock().free() + self.log.prepared()
    }
    /// Segments of a tier that the cleaner may choose from.
    pub fn cleanable(&self, tier: Tier) -> Vec<cleaner::Candidate> {
        let replay = self.replay.lock().sequence;
        let table = self.table.lock();
        let blocks = self.geometry.blocks();
        let candidate = |(segment, row, live): (SegmentId, &segments::Row, u32)| cleaner::Candidate {
            segment,
            live,
            blocks,
            age: table.age(row),
            stream: row.stream,
            pinned: 0,
        };
        table.cleanable(tier, replay).map(candidate).collect()
    }
    /// The life that a segment is in.
    pub fn life(&self, segment: SegmentId) -> base::Life {
        self.table.lock().row(segment).map_or(base::Life(0), |row| row.life)
    }
    /// The space that a volume used at the last checkpoint, by project.
    pub fn usage(&self, volume: base::VolumeId) -> BTreeMap<u32, usage::Usage> {
        self.usages.lock().of_volume(volume)
    }
    /// Groups and volumes whose names and files' blocks nobody has counted: of a brick of the first revision.
    pub fn uncounted(&self) -> BTreeSet<(base::GroupId, base::VolumeId)> {
        self.usages.lock().uncounted()
    }
    /// Counts a volume's names, and its files' blocks, in a group. Blocks. No checkpoint runs meanwhile: the next one says what was found. Errors:
    /// `Io`, `Corrupt`.
    pub fn count_names(&self, group: base::GroupId, volume: base::VolumeId) -> Result<()> {
        let names = usage::count_names(&*self.index, group, volume)?;
        let files = checkpoint::mapped::count(&*self.index, group, volume)?;
        let mut usages = self.usages.lock();
        usages.count(group, volume, names);
        usages.files.extend(files);
        Ok(())
    }
    /// True if the next checkpoint tells of files that were counted, whatever else has changed.
    pub fn has_counted(&self) -> bool {
        !self.usages.lock().files.is_empty()
    }
    /// True if a block of a segment's life was live at the last checkpoint (rule K1). None if memory can't tell: the segment is on
    /// a disk, and nobody holds its bitmap (`hold_live_of`), or the brick lacks the block.
    pub fn is_live_block(&self, place: Place, life: base::Life) -> Option<bool> {
        self.table.lock().is_live_block(place, life)
    }
    /// True if the last checkpoint found live blocks in a segment.
    pub fn is_live(&self, segment: SegmentId) -> bool {
        self.table.lock().is_live(segment)
    }
    /// The right to change the superblock: one has it at a time, until it is dropped. Errors: `Busy`.
    fn begin_change(&self) -> Result<Changing<'_>> {
        match self.superblock_changes.swap(true, Ordering::AcqRel) {
            true => Err(Error::new(Kind::Busy, "the brick is being changed already; ask again later")),
            false => Ok(Changing(&self.superblock_changes)),
        }
    }
    /// The life of a segment, if it is sealed in it. One that was chosen when it was sealed may be free by now, or open again, and
    /// then the summary on its device is of the life before.
    pub fn sealed_life(&self, segment: SegmentId) -> Option<base::Life> {
        let table = self.table.lock();
        table.row(segment).filter(|row| row.state == format::values::SegmentState::Sealed).map(|row| row.life)
    }
    /// Reads the summary of a segment that was sealed in this life; of its entries those that were live at the last checkpoint, so
    /// none if it was freed since. A pin held meanwhile keeps it from being taken again. Errors: `Corrupt` if it is no summary of
    /// this life, `Io`.
    pub async fn live_of(&self, (segment, life): (SegmentId, base::Life)) -> Result<Vec<SummaryEntry>> {
        let Some(live) = self.bitmap_of((segment, life)).await? else { return Ok(Vec::new()) };
        let mut entries = segments::summaries::read(&self.runtime, &self.geometry, (self.uuid, segment, life)).await?;
        entries.retain(|entry| format::values::is_live(&live, entry.block));
        Ok(entries)
    }
    /// Bytes of log that a replay would read now.
    pub fn replay_bytes(&self) -> u64 {
        let start = self.replay_start();
        self.log_bytes_from(&start)
    }
    /// Bytes of log that a replay would read from there, in whole segments.
    pub fn log_bytes_from(&self, start: &ReplayRow) -> u64 {
        let table = self.table.lock();
        let segments = table.iter().filter(|(_, row)| {
            row.stream == format::segment::Stream::Commit
                && row.state != format::values::SegmentState::Free
                && row.sequence >= start.sequence
        });
        segments.count() as u64 * self.geometry.segment_bytes
    }
    /// True if the segments of the brick's first device lie on a block device.
    pub fn on_device(&self) -> bool {
        self.geometry.device().is_some()
    }
    /// True if a device of the flash tier may be told what it need not keep.
    fn discards(&self) -> bool {
        let devices = self.devices.lock();
        self.on_device() || devices.rows.iter().skip(1).any(|row| row.tier == Tier::Flash)
    }
    /// The streams of what goes to disks.
    pub fn destage(&self) -> Vec<Arc<bulk::Bulk>> {
        self.destage.lock().clone()
    }
    /// The stream of the disk with most free segments, of those that take more.
    pub fn roomiest_disk(&self) -> Option<Arc<bulk::Bulk>> {
        let healthy = self.destage().into_iter().filter(|stream| stream.takes_more());
        let table = self.table.lock();
        healthy.max_by_key(|stream| table.free_on(stream.from))
    }
    /// The stream of the disk at a position of the device table.
    fn destage_to(&self, slot: usize) -> Option<Arc<bulk::Bulk>> {
        let from = segments::Origin::Device(slot);
        self.destage.lock().iter().find(|stream| stream.from == from).cloned()
    }
    /// Bytes of the device that were discarded since start.
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes.load(Ordering::Relaxed)
    }
    /// The locks' figures.
    pub fn lock_summaries(&self) -> Vec<runtime::lock::LockSummary> {
        let mut all =
            vec![self.log.lock_summary(), self.bulk.lock_summary(), self.cold.lock_summary(), self.table.summary()];
        all.extend(self.read_cache.lock_summaries());
        all.extend(self.promotion.lock_summaries());
        all.push(self.copies.lock_summary());
        all
    }
    /// Announces a reader: while its pin lives, no segment in which it has looked up a place since is written again
    /// (rule K8).
    pub fn pin(&self) -> segments::pins::Pin<'_> {
        self.pins.pin(self.runtime.tasks.core())
    }
    /// Makes segments count that a killed process had left open, once its last writes have ended. True if there are
    /// any: a checkpoint can free them from now on. True only once; the caller has that checkpoint made.
    pub fn release_held_back(&self) -> bool {
        let late = self.runtime.clock.now_ns() - self.opened_ns >= LATE_WRITES_NS;
        late && self.table.lock().release_held_back()
    }
    /// Makes freed segments that nobody reads any more free to be taken, and wakes those who wait for one.
    pub fn free_unread(&self) {
        let mut table = self.table.lock();
        let more = table.free_unread(&self.pins);
        drop(table);
        if more {
            self.log.segment_wanted.notify();
            self.space.came.notify();
        }
    }
    /// Notes that a cleaner will run: until it says otherwise, callers that need a segment wait for it.
    pub fn expect_space(&self) {
        self.space.set_pace(0, true);
        self.offer_segments();
    }
    /// Segments may be had that could not be had before.
    fn offer_segments(&self) {
        self.log.clear_out_of_space();
        self.log.segment_wanted.notify();
        self.space.came.notify();
    }
    /// The host has no room for another segment file: until it has, the brick is as large as the files that it has.
    fn hide_unmade(&self) {
        let mut table = self.table.lock();
        table.hide(|segment| self.geometry.spot(Place { segment, block: 0 }).is_some());
        self.space.resize(table.sizes());
    }
    /// Number of segments for which the host has no space.
    pub fn hidden_segments(&self) -> usize {
        self.table.lock().hidden()
    }
    /// Checks the room that the host has (rule K5). Blocks. If that fails, the brick takes no more changes (rule U4).
    pub fn check_host_room(&self) {
        if let Err(error) = self.try_check_host_room() {
            self.log.fail(error.with("keeping room for the index"));
        }
    }
    fn try_check_host_room(&self) -> Result<()> {
        let brick_bytes = u64::from(self.superblock.lock().segments) * self.geometry.segment_bytes;
        self.host.look(&*self.runtime.disk, brick_bytes)?;
        let needed_bytes = self.geometry.unmade_bytes() + self.host.spare_bytes();
        if self.runtime.disk.free_bytes()? < needed_bytes {
            // Before they are needed: who fills the others hears in time that there are no more.
            self.hide_unmade();
            return Ok(());
        }
        let mut table = self.table.lock();
        if table.show_hidden() {
            self.space.resize(table.sizes());
            drop(table);
            self.offer_segments();
        }
        Ok(())
    }
    /// Begins a checkpoint: ends the current batch and says where a replay starts that sees every later record, and
    /// the last batch before (see `Log::cut`). A checkpoint that lacks records before it, because they don't count yet, begins its replay
    /// at an earlier one's cut: then it frees nothing that these records name.
    pub fn cut(&self) -> (ReplayRow, u64) {
        // First: who names a segment that is sealed by now has been ordered.
        self.table.lock().begin_checkpoint();
        self.space.admission.begin_checkpoint();
        let cut = self.log.cut();
        self.table.lock().note_cut(cut.0.number);
        cut
    }
    /// Ends the log's tasks once all is written.
    pub fn stop(&self) {
        self.log.stop();
        self.copies.wake();
        self.space.came.notify();
    }
}

/// Compares blocks with their checksums; the number of the first that differs.
pub fn verify(blocks: &[u8], crcs: impl Iterator<Item = u32>) -> std::result::Result<(), usize> {
    assert!(blocks.len().is_multiple_of(BLOCK_BYTES), "checksums are of whole blocks, not of {} bytes", blocks.len());
    let mut crcs = crcs;
    for (number, block) in blocks.chunks(BLOCK_BYTES).enumerate() {
        if crcs.next() != Some(crc32c(block)) && !active(Bug::ChecksumIgnored) {
            return Err(number);
        }
    }
    assert!(crcs.next().is_none(), "each block is compared with its checksum");
    Ok(())
}

fn never_made() -> Error {
    Error::new(Kind::Corrupt, "a leaf names a segment that was never made")
}
